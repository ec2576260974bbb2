"""Every snippet of the pipelines' index runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "pipelines" / "customers-latest.toml"


def _snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)


@pytest.fixture
def shop(bootstrap: str, topic: Any, fill: Any) -> str:
    """A topic of orders; the pages call it `orders`."""
    name = topic("orders", 2)
    rows = [
        {"id": at, "customer": f"c{at % 4}", "item": "tea", "amount": float(at - 1)}
        for at in range(40)
    ]
    fill(name, [json.dumps(row).encode() for row in rows])
    return str(name)


def _example(file: Path, bootstrap: str, shop: str, tmp_path: Path) -> Path:
    """The example with the test's own broker, topics and directories."""
    text = file.read_text().replace("127.0.0.1:9092", bootstrap)
    text = re.sub(r'"orders(\.\w+)?"', lambda found: f'"{shop}{found[1] or ""}"', text)
    text = re.sub(r'"(checkpoints|lake)/', rf'"{tmp_path}/\1/', text)
    text = text.replace('every = "5 seconds"', "available_now = true")
    if "[trigger]" not in text:
        text += "\n[trigger]\navailable_now = true\n"
    copy = tmp_path / file.name
    copy.write_text(text)
    return copy


def test_the_snippets_run_as_they_stand(
    spark: Any, bootstrap: str, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PIPELINES", str(tmp_path / "state"))
    names: dict[str, Any] = {
        "spark": spark,
        "BOOTSTRAP": bootstrap,
        "CHECKPOINT": str(tmp_path / "checkpoint"),
        "LAKE": str(tmp_path / "lake"),
        "PIPELINE": str(_example(EXAMPLE, bootstrap, shop, tmp_path)),
    }
    snippets = _snippets("pipelines/index.md")
    assert len(snippets) == 1
    for snippet in snippets:
        text = snippet.replace('"orders"', f'"{shop}"').replace('"shouted"', f'"{shop}.shouted"')
        exec(compile(text, "docs", "exec"), names)
    assert names["rows"] == 40
