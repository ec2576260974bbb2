"""The broker's configuration: every option, put together from file, environment and flags.

The options themselves are declared in `options/`, one table per area.

An option has Kafka's name where Kafka has the same option; `num_partitions` here is
`num.partitions` in a file and in DescribeConfigs. Later sources win: the default, the TOML file,
the environment, the flags of `penstock serve`.

`BrokerConfig` is frozen: what may change while the broker runs changes by `with_dynamic()`, which
gives a new one. Every value in it has been checked, so nobody checks again.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock.errors import ConfigurationError
from penstock.options.amqp import AmqpOptions
from penstock.options.groups import GroupsOptions
from penstock.options.log import LogOptions
from penstock.options.network import NetworkOptions
from penstock.options.node import NodeOptions
from penstock.options.offsets import OffsetsOptions
from penstock.options.option import Address, Option, options_of, to_text
from penstock.options.topics import TopicsOptions
from penstock.options.transactions import TransactionsOptions


class ConfigEntry(NamedTuple):
    """One option for DescribeConfigs. `source`: default, file, environment, flag or dynamic."""

    name: str
    value: str
    source: str
    read_only: bool
    kind: str
    doc: str


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    NodeOptions,
    TopicsOptions,
    LogOptions,
    OffsetsOptions,
    GroupsOptions,
    TransactionsOptions,
    NetworkOptions,
    AmqpOptions,
):
    """The options of one broker. Build it with `load()`, or by keyword in tests."""

    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for option in OPTIONS.values():
            option.check(getattr(self, option.attribute))
        for low, high in _ORDERED:
            if getattr(self, low) > getattr(self, high):
                raise ConfigurationError(
                    f"{low.replace('_', '.')} cannot be greater than {high.replace('_', '.')}."
                )

    @classmethod
    def load(
        cls,
        *,
        flags: Mapping[str, Any] | None = None,
        file: Path | str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """Put the sources together. `flags` is keyed by dotted name; None means not given."""
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}

        def take(name: str, raw: Any, source: str) -> None:
            option = find_option(name)
            values[option.attribute] = option.read(raw)
            sources[option.name] = source

        for name, raw in (_read_toml(Path(file)) if file is not None else {}).items():
            take(name, raw, "file")
        for option in OPTIONS.values():
            if option.environment in environ:
                take(option.name, environ[option.environment], "environment")
        given = {name: raw for name, raw in (flags or {}).items() if raw is not None}
        if "data" in given and given.get("memory"):
            raise ConfigurationError("--data and --memory exclude each other.")
        for name, raw in given.items():
            take(name, raw, "flag")
        return cls(**values, sources=sources)

    def with_dynamic(self, overrides: Mapping[str, str]) -> Self:
        """This (static) configuration with options that were set while the broker runs on top.

        `overrides` is all of them, so that taking one away gives back what was there before.
        """
        values: dict[str, Any] = {}
        for name, raw in overrides.items():
            option = find_option(name)
            if not option.dynamic:
                raise ConfigurationError(f"{name} cannot change while the broker runs.")
            values[option.attribute] = option.read(raw)
        sources = {**self.sources, **dict.fromkeys(overrides, "dynamic")}
        return dataclasses.replace(self, **values, sources=sources)

    def text_of(self, name: str) -> str:
        """The value of an option as text, by dotted name."""
        return to_text(getattr(self, find_option(name).attribute))

    def topic_defaults(self) -> dict[str, str]:
        """What a topic that says nothing gets, by the topic's names (`retention.ms`)."""
        return {
            option.topic: to_text(getattr(self, option.attribute))
            for option in OPTIONS.values()
            if option.topic is not None
        }

    def describe(self) -> list[ConfigEntry]:
        """Every option for DescribeConfigs, and Kafka's own names for what tools look for there."""
        entries = [
            ConfigEntry(
                option.name,
                to_text(getattr(self, option.attribute)),
                self.sources.get(option.name, "default"),
                not option.dynamic,
                option.kind,
                option.doc,
            )
            for option in OPTIONS.values()
        ]
        advertised = self.advertised_kafka or self.kafka
        derived = (
            ("broker.id", str(self.node_id), "The same as node.id."),
            ("listeners", _listener(self.kafka), "From kafka."),
            ("advertised.listeners", _listener(advertised), "From advertised.kafka."),
            ("log.dirs", "" if self.memory else str(self.data), "From data."),
        )
        for name, value, doc in derived:
            entries.append(ConfigEntry(name, value, "default", True, "string", doc))
        return entries


OPTIONS: dict[str, Option] = options_of(
    [
        NodeOptions,
        TopicsOptions,
        LogOptions,
        OffsetsOptions,
        GroupsOptions,
        TransactionsOptions,
        NetworkOptions,
        AmqpOptions,
    ]
)
_ORDERED = (
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
    ("group_consumer_min_session_timeout_ms", "group_consumer_max_session_timeout_ms"),
    ("group_consumer_min_heartbeat_interval_ms", "group_consumer_max_heartbeat_interval_ms"),
    ("group_consumer_heartbeat_interval_ms", "group_consumer_session_timeout_ms"),
    ("group_share_min_session_timeout_ms", "group_share_max_session_timeout_ms"),
    ("group_share_min_heartbeat_interval_ms", "group_share_max_heartbeat_interval_ms"),
    ("group_share_heartbeat_interval_ms", "group_share_session_timeout_ms"),
    ("group_share_min_record_lock_duration_ms", "group_share_max_record_lock_duration_ms"),
    ("group_share_min_delivery_count_limit", "group_share_max_delivery_count_limit"),
    ("group_share_min_partition_max_record_locks", "group_share_max_partition_max_record_locks"),
)


def _listener(place: Address | None) -> str:
    return f"PLAINTEXT://{place}" if place else ""


def find_option(name: str) -> Option:
    """The option of that dotted name, or a sentence that offers the nearest one."""
    option = OPTIONS.get(name)
    if option is None:
        near = difflib.get_close_matches(name, OPTIONS, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ConfigurationError(f"there is no option {name}{hint}")
    return option


def _read_toml(file: Path) -> dict[str, Any]:
    """The options in a file by dotted name: `a.b = 1`, `[a]` `b = 1` and `"a.b" = 1` are one."""
    import tomllib  # only brokers with a file pay for it

    try:
        with file.open("rb") as stream:
            tree = tomllib.load(stream)
    except OSError as failure:
        raise ConfigurationError(f"cannot read {file}: {failure.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise ConfigurationError(f"{file} is not TOML: {failure}.") from None
    flat: dict[str, Any] = {}

    def walk(prefix: str, node: Mapping[str, Any]) -> None:
        for key, value in node.items():
            if isinstance(value, dict):
                walk(f"{prefix}{key}.", value)
            else:
                flat[prefix + key] = value

    walk("", tree)
    return flat
