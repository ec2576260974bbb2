"""Dead letters go back where they died: chosen, counted, not too often, not round and round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipeline import dry_run, load, run
from penstock.spark.pipeline.document import PipelineInvalid


def _letter(value: bytes, reason: str, origin: str, attempts: int = 0, **more: Any) -> Any:
    said = {"penstock.reason": reason, "penstock.pipeline": "p", "penstock.topic": origin}
    headers = [("trace", b"t1"), *((name, text.encode()) for name, text in said.items())]
    if attempts:
        headers.append(("penstock.attempts", str(attempts).encode()))
    return {"value": value, "headers": headers, **more}


@pytest.fixture
def places(topic: Any, fill: Any, name: Any) -> tuple[str, str, str]:
    """A topic, its dead letters of all sorts, and where worn-out ones are parked."""
    home, dead, parked = topic("home", 1), topic("dead", 1), name("parked")
    letters = [
        *[_letter(f"n{at}".encode(), "negative", home, key=f"k{at % 2}") for at in range(6)],
        _letter(b"j", "no json", home, key="k0"),
        _letter(b"\xff\x00 raw", "negative", home, key=b"\xfe"),
        _letter(b"tired", "negative", home, attempts=3, key="k0"),
        _letter(b"once more", "negative", home, attempts=2, key="k0"),
        _letter(b"round", "negative", dead, key="k0"),
        {"value": b"lost", "headers": [("penstock.reason", b"negative")], "key": "k0"},
    ]
    fill(dead, letters)
    return home, dead, parked


def _file(dead: str, more: str = "") -> str:
    return f"""
kind = "redrive"
bootstrap = "BOOTSTRAP"
checkpoint = "DIR/checkpoint"
topic = "{dead}"
{more}
"""


def test_letters_go_back_once_with_one_more_attempt_and_without_what_killed_them(
    spark: Any, places: Any, records: Callable[..., Any], pipeline: Any, fill: Any
) -> None:
    home, dead, parked = places
    said = pipeline(_file(dead, f'reasons = ["neg%"]\nparked = "{parked}"'))
    seen = dry_run(said, spark)["verdicts"]
    assert seen == {"redriven": 8, "not chosen": 1, "worn out": 1, "homeless": 1, "loop": 1}
    assert records(home, 1) == []
    done = run(said, spark=spark)
    assert done == (12, 8, 1, 1, 1, 1)
    back = {record.value(): record for record in records(home, 1)}
    assert set(back) == {*(f"n{at}".encode() for at in range(6)), b"\xff\x00 raw", b"once more"}
    assert dict(back[b"n1"].headers()) == {"trace": b"t1", "penstock.attempts": b"1"}
    assert dict(back[b"once more"].headers())["penstock.attempts"] == b"3"
    assert back[b"\xff\x00 raw"].key() == b"\xfe"
    [tired] = records(parked, 1)
    assert dict(tired.headers())["penstock.reason"] == b"negative"
    # Again: only what died since is looked at.
    fill(dead, [_letter(b"late", "negative", home)])
    assert run(said, spark=spark)[:2] == (1, 1)
    assert len(records(home, 1)) == 9


def test_letters_are_chosen_by_key_and_time_and_sql_and_mended_at_a_rate(
    spark: Any, places: Any, records: Callable[..., Any], pipeline: Any, name: Any
) -> None:
    _, dead, _ = places
    target = name("mended")
    more = f"""
to = "{target}"
keys = ["k0"]
since = "2020-01-01T00:00:00Z"
until = "2100-01-01T00:00:00Z"
where = "value LIKE 'n%' AND reason <> 'no json'"
value = "concat(value, '!')"
rate = 4
"""
    done = run(pipeline(_file(dead, more)), spark=spark)
    assert (done.read, done.redriven) == (12, 3)
    assert sorted(record.value() for record in records(target, 1)) == [b"n0!", b"n2!", b"n4!"]


def test_a_redrive_into_its_own_source_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('kind = "redrive"\ntopic = "dead"\ncheckpoint = "c"\nto = "dead"\n')
    with pytest.raises(PipelineInvalid, match=r"r\.toml:4: to: is the topic that is read"):
        load(file)
