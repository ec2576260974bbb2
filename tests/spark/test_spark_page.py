"""Every snippet of docs/spark.md runs, in its order, and does what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_the_snippets_run_as_they_stand(
    spark: Any, bootstrap: str, topic: Any, fill: Any, records: Any, tmp_path: Path
) -> None:
    orders, shouted, bad = topic("orders", 2), topic("shouted", 2), topic("bad", 2)
    rows = [{"id": at, "customer": f"c{at % 4}", "item": "tea", "amount": at} for at in range(40)]
    fill(orders, [json.dumps(row).encode() for row in rows] + [b"not JSON"])
    names: dict[str, Any] = {
        "spark": spark,
        "BOOTSTRAP": bootstrap,
        "CHECKPOINT": str(tmp_path / "checkpoint"),
        "LAKE": str(tmp_path / "lake"),
    }
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(snippets) == 7
    for snippet in snippets:
        text = snippet.replace('"orders"', f'"{orders}"').replace('"shouted"', f'"{shouted}"')
        text = text.replace("orders.bad", bad).replace("copy-of-orders", f"copy-of-{orders}")
        exec(compile(text, str(PAGE), "exec"), names)
    assert names["orders"].count() == 41
    assert {record.value() for record in records(bad)} == {b"not JSON"}
    # Shouted once by the stream, and once more by two calls for the same batch.
    assert len(records(shouted)) == 2 * 41
    assert names["source"]["endOffset"] == names["source"]["latestOffset"]
