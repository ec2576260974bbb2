"""The README's ten lines of Spark do what they say, as a program of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_of_the_readme_works_as_written(
    bootstrap: str, topic: Any, fill: Any, records: Any, tmp_path: Path
) -> None:
    clicks, pages = topic("clicks"), topic("pages")
    fill(clicks, [json.dumps({"user": f"u{n % 3}", "page": n}).encode() for n in range(9)])
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    (text,) = (block for block in blocks if "penstock.spark" in block)
    text = text.replace("127.0.0.1:9092", bootstrap)
    text = text.replace('"clicks"', f'"{clicks}"').replace('"pages"', f'"{pages}"')
    for _ in range(2):  # the second run finds nothing new
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = {(record.key(), record.value()) for record in records(pages)}
        assert found == {(b"u%d" % (n % 3), b"%d" % (n * 10)) for n in range(9)}
        assert len(records(pages)) == 9
