"""What is wrong in a pipeline's file is said with its line, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.pipeline import load
from penstock.spark.pipeline.document import PipelineInvalid

FLOW = """checkpoint = "c"
[source]
topic = "orders"
[decode]
schema = "id BIGINT, amount DOUBLE, at TIMESTAMP"
on_error = "drop"
[sink]
kind = "delta"
path = "lake"
"""
TIMED = 'watermark = "at 1 minute"\n' + FLOW
TOPIC = FLOW.replace('kind = "delta"\npath = "lake"', 'kind = "topic"\ntopic = "out"')
WINDOW = '[aggregate]\ntime = "at"\nwindow = "5 minutes"\n'
COUNT = 'select = { n = "count(*)" }\n'
REDRIVE = 'kind = "redrive"\ncheckpoint = "c"\ntopic = "q"\n'
REPLAY = 'kind = "replay"\nX\n[source]\ntopic = "a"\nY\n[sink]\nkind = "parquet"\npath = "p"\n'
MIRROR = 'kind = "mirror"\ncheckpoint = "c"\ntopics = ".*"\nX\n[source]\nY\n[target]\nZ\n'
TRAFFIC = 'kind = "traffic"\nreport = "r"\n'
UPKEEP = 'kind = "upkeep"\n[[tables]]\npath = "lake"\n'
ONE, TWO = 'bootstrap = "127.0.0.1:1"', 'bootstrap = "127.0.0.1:2"'


def _refusal(tmp_path: Path, text: str | bytes, ending: str = "toml") -> str:
    file = tmp_path / f"x.{ending}"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(PipelineInvalid) as caught:
        load(file)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            FLOW.replace("topic", "pattern").replace("orders", "("),
            "x.toml:3: source.pattern: is",
        ),
        (
            FLOW.replace("[decode]", 'start = "soon"\n[decode]'),
            "x.toml:4: source.start: is",
        ),
        (FLOW.replace("[decode]", 'start = "group"\n[decode]'), "group needs group"),
        (FLOW.replace("[decode]", 'bootstrap = "here"\n[decode]'), "'here' is not HOST:PORT"),
        (FLOW.replace("[decode]", "max_rows_per_batch = -1\n[decode]"), "cannot be negative"),
        (FLOW + 'keys = ["id"]\n', 'x.toml:10: sink.keys: does nothing without mode = "upsert"'),
        (FLOW + 'order_by = "id"\n', "sink.order_by: does nothing without"),
        (FLOW + "target_file_bytes = 0\n", "is at least 1"),
        (FLOW + "options = { a = { b = 1 } }\n", "sink.options.a: is not a plain value"),
        (FLOW + '[quarantine]\ntopic = "orders"\n', "quarantine.topic: is read by this pipeline"),
        (FLOW + '[quarantine]\ntopic = ""\n', "quarantine.topic: is empty"),
        (TOPIC + '[quarantine]\ntopic = "out"\n', "good and bad rows need two topics"),
        (TOPIC.replace('"out"', '"orders"'), "sink.topic: is read by this pipeline"),
        (
            TOPIC.replace('topic = "orders"', 'pattern = "o.*"'),
            "sink.topic: is read by this pipeline",
        ),
        (
            FLOW + '[[quality]]\nrule = "id > 0"\n' * 2 + '[quarantine]\ntopic = "q"\n',
            "x.toml:12: quality.1: 'id > 0' is there twice",
        ),
        (
            FLOW + '[[quality]]\nrule = " "\n[quarantine]\ntopic = "q"\n',
            "x.toml:11: quality.0.rule: is empty",
        ),
        (FLOW + '[[steps]]\npython = "no.py:f"\n', "steps.0.python: there is no file no.py"),
        ("restarts = -1\n" + FLOW, "x.toml:1: restarts: cannot be negative"),
        (FLOW + WINDOW + COUNT, "aggregate: needs watermark"),
        (TIMED + WINDOW + 'slide = "6 minutes"\n' + COUNT, "slide: is longer than the window"),
        (TIMED + WINDOW + 'select = { start = "count(*)" }\n', "'start' is a column of the group"),
        (TIMED + WINDOW + COUNT + "top = -1\n", "aggregate.top: cannot be negative"),
        (TIMED + WINDOW + COUNT + 'rank_by = "n"\n', "aggregate.rank_by: needs top"),
        (
            'output = "update"\n' + TIMED + WINDOW + COUNT + 'top = 1\nrank_by = "n"\n',
            'is known when a window ends: output = "append"',
        ),
        (
            FLOW.replace("[decode]", '[decode]\nformat = "avro"'),
            "decode.schema: is no Avro schema of a record",
        ),
        (REDRIVE + 'since = "2026-01-02"\nuntil = "2026-01-01"\n', "x.toml:5: until: is not after"),
        (REDRIVE + 'bootstrap = "x"\n', "x.toml:4: bootstrap: 'x' is not HOST:PORT"),
        (REPLAY.replace("X", "keep_partitions = true"), "is for a topic as the sink"),
        (REPLAY.replace("Y", 'start = "latest"'), "there is nothing after it"),
        (REPLAY.replace("Y", 'end = "earliest"'), "there is nothing before it"),
        (MIRROR.replace("Y", 'bootstrap = "x"').replace("Z", TWO), "source.bootstrap: 'x' is not"),
        (MIRROR.replace("X", 'prefix = "a b"').replace("Y", ONE).replace("Z", ONE), "prefix: may"),
        (MIRROR.replace("X", 'queues = ["q"]').replace("Y", ONE).replace("Z", TWO), "are of AMQP"),
        (
            'kind = "mirror"\nqueues = ["q"]\n[source]\namqp = "http://x"\n[target]\namqp = "b"\n',
            "x.toml:4: source.amqp: is not amqp://",
        ),
        (TRAFFIC + 'bucket = "0 minutes"\n', "bucket: is not a stretch of time"),
        (TRAFFIC + 'topics = "("\n', "topics: is no regular expression"),
        (TRAFFIC.replace('"r"', '""'), "report: is a directory"),
        (UPKEEP + 'older_than = "0 days"\ntime_column = "at"\n', "would be every row"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    kept = [line for line in text.splitlines() if line not in ("X", "Y", "Z")]
    assert words in _refusal(tmp_path, "\n".join(kept))


@pytest.mark.parametrize(
    ("text", "ending", "words"),
    [
        (b"checkpoint = 'c'\nname = '\xff'", "toml", "x.toml:2: is not text in UTF-8"),
        (b"name: \xe9", "yaml", "x.yaml:1: is not text in UTF-8"),
        (b"name: \x01", "yaml", "x.yaml:1: unacceptable character"),
        (b"name: a\ncheckpoint: b\nname: c", "yaml", "x.yaml:3: name: is there twice"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_too(
    tmp_path: Path, text: bytes, ending: str, words: str
) -> None:
    assert words in _refusal(tmp_path, text, ending)


def test_a_time_needs_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(REDRIVE + "since = 2026-11-15T10:00:00Z\nuntil = 2026-11-16\n")
    said = load(file)
    assert (said.since, said.until) == ("2026-11-15T10:00:00+00:00", "2026-11-16")


def test_a_watermark_may_come_from_a_step(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    (tmp_path / "steps.py").write_text("")
    step = f'[[steps]]\npython = "{tmp_path}/steps.py:f"\n'
    file.write_text(FLOW + step + WINDOW + COUNT)
    assert load(file).aggregate is not None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[decode]\nschema = "id BIGINT"\n', "decode: a replay has no quarantine: on_error is"),
        ('[decode]\nformat = "xml"\n', "decode.format: is none of"),
    ],
)
def test_a_replay_says_what_becomes_of_what_cannot_be_decoded(
    tmp_path: Path, more: str, words: str
) -> None:
    text = REPLAY.replace("X\n", "").replace("Y\n", "") + more
    assert words in _refusal(tmp_path, text)


def test_a_replay_ends_after_it_starts(tmp_path: Path) -> None:
    span = 'start = "2026-01-02"\nend = "2026-01-01T00:00:00Z"\n'
    text = REPLAY.replace("X\n", "").replace("Y\n", span)
    assert "source.end: is not after start" in _refusal(tmp_path, text)
