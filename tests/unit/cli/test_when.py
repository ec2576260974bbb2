"""Points in time on the command line."""

from __future__ import annotations

import time

import pytest
import typer

from penstock.cli.when import from_timestamp_ms, to_timestamp_ms


def test_digits_are_milliseconds_since_1970() -> None:
    assert to_timestamp_ms("1767225600000") == 1_767_225_600_000


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("-2h", 7200), ("3d ago", 259_200)])
def test_a_duration_is_that_long_ago(text: str, seconds: int) -> None:
    assert abs(to_timestamp_ms(text) - (time.time() - seconds) * 1000) < 2000


def test_a_date_with_a_zone_is_exact() -> None:
    assert to_timestamp_ms("2026-01-01T00:00:00+00:00") == 1_767_225_600_000


def test_a_time_prints_as_it_can_be_read() -> None:
    assert to_timestamp_ms(from_timestamp_ms(1_767_225_600_123)) == 1_767_225_600_123


@pytest.mark.parametrize("text", ["999999d", "9" * 30 + "d", "1066-10-14"])
def test_what_lies_before_1970_is_everything(text: str) -> None:
    assert to_timestamp_ms(text) == 0


@pytest.mark.parametrize("text", ["yesterday", "", "12:", "5 parsecs", "9" * 19, "9" * 5000])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not understood; write 2026"):
        to_timestamp_ms(text)
