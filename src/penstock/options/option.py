"""What an option is, and how a value for it is read.

An option is declared once, as a field of one of the frozen dataclasses beside this module:

    num_partitions: int = integer(4, "Partitions of a topic ...", minimum=1, dynamic=True)

From the field come its name in files and in the protocol (`num.partitions`), in the environment
(`PENSTOCK_NUM_PARTITIONS`), on the command line (`--num-partitions`), its line in `--help` and its
row in the reference page. A wrong value raises `ConfigurationError` with a sentence that says
which option, what was given and what would be right. Nothing here reads files or the environment.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from penstock.errors import ConfigurationError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MIB = 2**20
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Address(NamedTuple):
    """Where a door listens, or is reached. Port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One declared option. `kind` is one of Kafka's configuration types in small letters."""

    attribute: str
    kind: str
    default: Any
    doc: str
    group: str
    minimum: int | float | None = None
    maximum: int | float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    dynamic: bool = False
    headline: bool = False
    topic: str | None = None
    parse: Callable[[Any], Any]

    @property
    def name(self) -> str:
        """As in files and in the protocol: `num.partitions`."""
        return self.attribute.replace("_", ".")

    @property
    def environment(self) -> str:
        return "PENSTOCK_" + self.attribute.upper()

    @property
    def flag(self) -> str:
        return "--" + self.attribute.replace("_", "-")

    @property
    def default_text(self) -> str:
        return to_text(self.default)

    @property
    def valid_text(self) -> str:
        """What may be given, in a few words."""
        if self.choices:
            several = "any of " if self.kind == "list" else ""
            return several + ", ".join(self.choices)
        if self.kind == "boolean":
            return "true, false"
        low, high = self.minimum, self.maximum
        if high is not None and high not in (INT_MAX, LONG_MAX):
            return f"{low} to {high}"
        return f"{low} or more" if low is not None else ""

    def read(self, value: Any) -> Any:
        """The value in its own type, from whatever a file, a variable or a flag gave."""
        try:
            found = self.parse(value)
        except (ValueError, TypeError) as failure:
            raise ConfigurationError(f"{self.name} cannot be {value!r}: {failure}.") from None
        self.check(found)
        return found

    def check(self, value: Any) -> None:
        """Refuse a value that is out of bounds or not among the choices."""
        if self.kind in ("int", "long", "double"):
            low, high = self.minimum, self.maximum
            if (low is not None and value < low) or (high is not None and value > high):
                is_too_large = high in (INT_MAX, LONG_MAX) and value > high
                bounds = f"at most {high}" if is_too_large else self.valid_text
                raise ConfigurationError(f"{self.name} cannot be {value}: it must be {bounds}.")
        elif self.choices:
            several = isinstance(value, tuple)
            valid = self.valid_text if several else " or ".join(self.choices)
            for item in value if several else (value,):
                if item not in self.choices:
                    raise ConfigurationError(f"{self.name} cannot be {item!r}: it must be {valid}.")


def to_text(value: Any) -> str:
    """A value as Kafka's tools and our files write it."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(value)
    return str(value)


# --- reading values -------------------------------------------------------------------------------

_FACTORS = {
    "bytes": {
        "": 1, "b": 1, "k": 2**10, "kb": 10**3, "kib": 2**10, "m": 2**20, "mb": 10**6,
        "mib": 2**20, "g": 2**30, "gb": 10**9, "gib": 2**30,
    },
    "ms": {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
}  # fmt: skip
_QUANTITY = re.compile(r"(-?\d+)\s*([A-Za-z]*)")


def _whole_number(unit: str) -> Callable[[Any], int]:
    factors = _FACTORS.get(unit, {"": 1})

    def parse(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        match = _QUANTITY.fullmatch(str(value).strip())
        if match is None or match[2].lower() not in factors:
            more = {"bytes": ", or one with KiB, MiB or GiB", "ms": ", or one with s, min, h or d"}
            raise ValueError("it must be a whole number" + more.get(unit, ""))
        return int(match[1]) * factors[match[2].lower()]

    return parse


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("it must be a number") from None


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("it must be true or false")


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    return tuple(text for part in parts if (text := str(part).strip()))


def _path(value: Any) -> Path:
    if not str(value):  # it would be the directory that the process happens to be in
        raise ValueError("it must be a path; . is the directory you are in")
    try:
        return Path(value).expanduser()  # a file and Python have no shell to do it
    except RuntimeError:
        raise ValueError("there is no such user") from None


def parse_address(value: Any) -> Address | None:
    """`HOST:PORT`, `[IPv6]:PORT`, or `off`."""
    if value is None or isinstance(value, Address):
        return value
    text = str(value).strip()
    if text.lower() == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("it must look like 127.0.0.1:9092, or be off")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address goes in brackets, like [::1]:9092")
    if not host:
        raise ValueError("the host is missing; 0.0.0.0 listens on every interface")
    return Address(host, int(port))


# --- declaring options ----------------------------------------------------------------------------


def _declare(kind: str, default: Any, doc: str, parse: Callable[[Any], Any], **more: Any) -> Any:
    details = {"kind": kind, "default": default, "doc": doc, "parse": parse, **more}
    return dataclasses.field(default=default, metadata={"option": details})


def integer(default: int, doc: str, **more: Any) -> int:
    """A 32-bit number; at most 2^31-1 unless said otherwise."""
    more = {"maximum": INT_MAX, **more}
    return cast(int, _declare("int", default, doc, _whole_number(more.get("unit", "")), **more))


def long(default: int, doc: str, **more: Any) -> int:
    """A 64-bit number."""
    more = {"maximum": LONG_MAX, **more}
    return cast(int, _declare("long", default, doc, _whole_number(more.get("unit", "")), **more))


def double(default: float, doc: str, **more: Any) -> float:
    return cast(float, _declare("double", default, doc, _number, **more))


def boolean(default: bool, doc: str, **more: Any) -> bool:
    return cast(bool, _declare("boolean", default, doc, _truth, **more))


def text(default: str, doc: str, **more: Any) -> str:
    return cast(str, _declare("string", default, doc, str, **more))


def names(default: tuple[str, ...], doc: str, **more: Any) -> tuple[str, ...]:
    """Several words, separated by commas."""
    return cast("tuple[str, ...]", _declare("list", default, doc, _names, **more))


def address(default: Address | None, doc: str, **more: Any) -> Address | None:
    return cast("Address | None", _declare("string", default, doc, parse_address, **more))


def path(default: str, doc: str, **more: Any) -> Path:
    return cast(Path, _declare("string", Path(default), doc, _path, **more))


def options_of(tables: Sequence[type]) -> dict[str, Option]:
    """Every option of these dataclasses by dotted name, in their order."""
    found: dict[str, Option] = {}
    for table in tables:
        for field in dataclasses.fields(table):
            details = field.metadata["option"]
            option = Option(
                attribute=field.name, group=(table.__doc__ or "").rstrip("."), **details
            )
            found[option.name] = option
    return found
