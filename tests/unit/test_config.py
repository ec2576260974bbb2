"""Options: declared once, read from everywhere, refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import OPTIONS, BrokerConfig
from penstock.errors import ConfigurationError
from penstock.model.topic_settings import SETTINGS
from penstock.options.option import Address, parse_address


def load(**sources: object) -> BrokerConfig:
    return BrokerConfig.load(**{"environ": {}, **sources})  # type: ignore[arg-type]


def test_defaults_are_those_promised_to_users() -> None:
    config = load()
    assert str(config.kafka) == "127.0.0.1:9092"
    assert str(config.http) == "127.0.0.1:8080"
    assert config.data == Path("penstock-data")
    assert config.num_partitions == 4
    assert config.durability == "fsync"
    assert config.socket_request_max_bytes == 100 * 1024 * 1024


def test_every_default_is_within_its_own_bounds() -> None:
    for option in OPTIONS.values():
        option.check(option.default)


def test_every_default_can_be_written_and_read_back() -> None:
    for option in OPTIONS.values():
        assert option.read(option.default_text) == option.default, option.name


def test_every_option_has_words_and_a_group() -> None:
    for option in OPTIONS.values():
        assert option.doc.endswith("."), option.name
        assert option.group, option.name


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('"num.partitions" = 2\n"node.id" = 2\n"durability" = "os"\n')
    environ = {"PENSTOCK_NUM_PARTITIONS": "3", "PENSTOCK_NODE_ID": "3"}
    config = load(file=file, environ=environ, flags={"num.partitions": "5", "data": None})
    assert (config.num_partitions, config.node_id, config.durability) == (5, 3, "os")
    assert config.sources == {
        "num.partitions": "flag",
        "node.id": "environment",
        "durability": "file",
    }


@pytest.mark.parametrize(
    "text", ["num.partitions = 8", "[num]\npartitions = 8", '"num.partitions" = "8"']
)
def test_a_file_may_nest_or_quote_names(tmp_path: Path, text: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    assert load(file=file).num_partitions == 8


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("log.retention.ms", "7d", 7 * 86_400_000),
        ("log.retention.ms", "90 s", 90_000),
        ("log.retention.ms", "-1", -1),
        ("log.segment.bytes", "64MiB", 64 * 2**20),
        ("log.segment.bytes", "1g", 2**30),
        ("log.cleanup.policy", "compact, delete", ("compact", "delete")),
        ("auto.create.topics.enable", "off", False),
        ("kafka", "[::1]:0", Address("::1", 0)),
        ("http", "off", None),
        ("data", "~/penstock", Path.home() / "penstock"),
    ],
)
def test_values_are_read_in_their_units(name: str, text: str, value: object) -> None:
    assert getattr(load(flags={name: text}), name.replace(".", "_")) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.partitions", "0", "it must be 1 or more"),
        ("num.partitions", "many", "it must be a whole number"),
        ("log.segment.bytes", "1 parsec", "KiB, MiB or GiB"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "it must be 0.0 to 1.0"),
        ("num.partitions", "99999999999", "it must be at most 2147483647"),
        ("durability", "maybe", "it must be fsync or os"),
        ("data", "", "it must be a path"),
        ("data", "~no-such-user/data", "there is no such user"),
        ("log.cleanup.policy", "shred", "any of delete, compact"),
        ("memory", "perhaps", "it must be true or false"),
        ("kafka", "nowhere", "like 127.0.0.1:9092"),
        ("kafka", "127.0.0.1:99999", "like 127.0.0.1:9092"),
        ("kafka", "::1:9092", "in brackets"),
        ("amqp", "nowhere", "like 127.0.0.1:9092"),
        ("amqp.frame.max", "100", "it must be 4"),
        ("num.partition", "1", "did you mean num.partitions?"),
        ("group.min.session.timeout.ms", "1h", "cannot be greater than group.max.session"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        load(flags={name: text})
    assert words in str(failure.value)


def test_data_and_memory_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        load(flags={"data": "somewhere", "memory": True})


@pytest.mark.parametrize("text", ["num.partitions =", "\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigurationError, match=r"penstock\.toml is not TOML"):
        load(file=file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(file=tmp_path / "missing.toml")


def test_values_are_checked_however_a_configuration_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"num\.partitions cannot be -1"):
        BrokerConfig(num_partitions=-1)


def test_a_dynamic_option_goes_on_top_and_comes_off_again() -> None:
    static = load(flags={"num.partitions": "6"})
    changed = static.with_dynamic({"num.partitions": "9"})
    assert (changed.num_partitions, changed.sources["num.partitions"]) == (9, "dynamic")
    assert static.with_dynamic({}).num_partitions == 6


def test_an_option_that_is_fixed_while_the_broker_runs_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot change while the broker runs"):
        load().with_dynamic({"node.id": "7"})


def test_describe_shows_every_option_and_what_kafka_tools_look_for() -> None:
    config = load(flags={"num.partitions": "6", "kafka": "127.0.0.1:1234"})
    entries = {entry.name: entry for entry in config.describe()}
    assert set(OPTIONS) <= set(entries)
    assert entries["num.partitions"][1:4] == ("6", "flag", False)
    assert entries["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:1234"
    assert entries["broker.id"].value == "1"


def test_topic_defaults_of_the_broker_are_those_of_the_topic_settings() -> None:
    """Two tables name the same defaults: the broker's options and the topic's settings."""
    for name, text in load().topic_defaults().items():
        setting = SETTINGS[name]
        assert setting.parse(text) == setting.parse(setting.default), name


def test_an_address_prints_as_it_is_written() -> None:
    for text in ("127.0.0.1:9092", "[::1]:9092", "mq.example:1"):
        assert str(parse_address(text)) == text
