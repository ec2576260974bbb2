"""The arguments with which queues are declared: which are known, what they may be, what they mean.

Unknown arguments are accepted and play no part in anything, as with RabbitMQ. Known ones are
checked; redeclaring a queue must repeat them. A policy (RabbitMQ's names, without `x-`) adds to the
arguments: of two limits the lower one holds, of two names the argument's.

`x-retention-ms` and `x-deduplication-window-ms` are ours: how long acknowledged messages stay in
the log for readers of the topic, and how long a message id must not come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeGuard

from penstock.errors import PreconditionFailed
from penstock.model.field_table import Timestamp
from penstock.model.queue_settings import Overflow, QueueSettings

Arguments = Mapping[str, object]
CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"

MOST_MS = 315_360_000_000  # ten years; beyond it a time is a mistake
_MOST = (1 << 63) - 1


# --- checks ---------------------------------------------------------------------------------------
# Each returns what is wrong, in RabbitMQ's words where it has some, or None.


def type_of(value: object) -> str:
    """RabbitMQ's word for the type of a value. How wide a number came is not kept: most clients
    send 32 bits where they suffice."""
    match value:
        case bool():
            return "bool"
        case Timestamp():
            return "timestamp"
        case int():
            return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
        case float():
            return "double"
        case str():
            return "longstr"
        case None:
            return "void"
        case list():
            return "array"
        case dict():
            return "table"
        case Decimal():
            return "decimal"
    return "binary"


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a client sent a number without a fraction; true and a time are none."""
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


def not_an_integer(value: object) -> str:
    return f'"expected integer, got {type_of(value)}"'


def _integer(
    low: int, high: int, too_large: str = "max_value_exceeded"
) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        if not is_integer(value):
            return not_an_integer(value)
        if value < min(low, 0):
            return f"{{value_negative,{value}}}"
        if value < low:
            return f"{{value_zero,{value}}}"
        if value > high:
            return f"{{{too_large},{value}}}"
        return None

    return check


def _milliseconds(low: int) -> Callable[[object], str | None]:
    return _integer(low, MOST_MS, "value_too_large")


def _text(value: object) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_of(value)}}}"


def _boolean(value: object) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{type_of(value)}}}"


def _one_of(problem: str, *allowed: str) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_of(value)}}}"
        return None if value in allowed else problem.format(value)

    return check


def _version(value: object) -> str | None:
    if not is_integer(value):
        return not_an_integer(value)
    return None if value in (1, 2) else f"\"unsupported queue version '{value}'\""


def _max_age(value: object) -> str | None:
    if not isinstance(value, str):
        return f"{{unacceptable_type,{type_of(value)}}}"
    return None if age_ms(value) is not None else "invalid_max_age"


_AGES = {"s": 1, "m": 60, "h": 3600, "D": 86_400, "M": 2_592_000, "Y": 31_536_000}


def age_ms(text: str) -> int | None:
    """Milliseconds of `7D`, `12h` and the like; None when it is not such a text."""
    number, unit = text[:-1], text[-1:]
    if unit not in _AGES or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return None
    return int(number) * _AGES[unit] * 1000


_KNOWN: Mapping[str, Callable[[object], str | None]] = {
    "x-expires": _milliseconds(1),
    "x-message-ttl": _milliseconds(0),
    "x-dead-letter-exchange": _text,
    "x-dead-letter-routing-key": _text,
    "x-dead-letter-strategy": _one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"),
    "x-max-length": _integer(0, _MOST),
    "x-max-length-bytes": _integer(0, _MOST),
    "x-overflow": _one_of("invalid_overflow", *Overflow),
    "x-max-priority": _integer(0, 255),
    "x-queue-mode": _one_of("\"unsupported queue mode '{}'\"", "default", "lazy"),
    "x-queue-type": _one_of("\"unsupported queue type '{}'\"", CLASSIC, QUORUM, STREAM),
    "x-queue-version": _version,
    "x-single-active-consumer": _boolean,
    "x-delivery-limit": _integer(-1, _MOST),
    "x-consumer-timeout": _milliseconds(1),
    "x-max-age": _max_age,
    "x-message-deduplication": _boolean,
    "x-deduplication-window-ms": _milliseconds(1),
    "x-cache-size": _integer(1, _MOST),
    "x-cache-ttl": _milliseconds(1),
    "x-retention-ms": _milliseconds(-1),
}


def check_arguments(arguments: Arguments, where: str) -> None:
    """Raises PreconditionFailed; `where` is `queue 'q' in vhost '/'`."""
    for name, value in arguments.items():
        check = _KNOWN.get(name)
        problem = check(value) if check is not None else None
        if problem is not None and name == "x-dead-letter-exchange":
            raise PreconditionFailed(f"invalid type '{type_of(value)}' for arg '{name}' in {where}")
        if problem is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {where}: {problem}")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise PreconditionFailed(
            f"invalid arg 'x-dead-letter-routing-key' for {where}: routing_key_but_no_dlx_defined"
        )


def check_equivalent(name: str, received: object, current: object, where: str) -> None:
    """Raises PreconditionFailed when a redeclaration says something else."""
    if received != current or type(received) is not type(current):
        one_is_missing = received is None or current is None
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {where}: received {_shown(received, one_is_missing)} "
            f"but current is {_shown(current, one_is_missing)}"
        )


def check_same_arguments(received: Arguments, current: Arguments, where: str) -> None:
    """Raises PreconditionFailed unless the known arguments are the same."""
    for name in _KNOWN:
        default = CLASSIC if name == "x-queue-type" else None
        check_equivalent(name, received.get(name, default), current.get(name, default), where)


def _shown(value: object, with_type: bool) -> str:
    if value is None:
        return "none"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"the value '{text}' of type '{type_of(value)}'" if with_type else f"'{text}'"


# --- meaning --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """What the arguments of a queue and the policy that fits it mean together."""

    settings: QueueSettings
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    expires_ms: int | None = None
    kind: str = CLASSIC
    retention_ms: int | None = None  # None: what is acknowledged can go
    retention_bytes: int | None = None  # of a stream
    deduplicates: bool = False
    deduplication_ms: int | None = None
    deduplication_size: int | None = None

    @property
    def shows_counts(self) -> bool:
        """Whether a redelivered message says how often it came back (as in quorum queues)."""
        return self.kind == QUORUM or self.settings.delivery_limit is not None


_RULES: dict[tuple[tuple[str, object], ...], QueueRules] = {}
_MOST_RULES = 4096


def rules_of(arguments: Arguments, policy: Arguments) -> QueueRules:
    """The rules. Queues with equal arguments and policies share one object."""
    if not arguments and not policy:
        return _NO_RULES
    relevant = {
        **{name: value for name, value in arguments.items() if name in _KNOWN},
        **{f"policy {name}": value for name, value in policy.items()},
    }
    try:
        key = tuple(sorted(relevant.items()))
        found = _RULES.get(key)
    except TypeError:  # a value that cannot be compared or hashed: build it anew
        return _build(arguments, policy)
    if found is None:
        found = _build(arguments, policy)
        if len(_RULES) >= _MOST_RULES:
            _RULES.clear()
        _RULES[key] = found
    return found


def _build(arguments: Arguments, policy: Arguments) -> QueueRules:
    def lower(name: str) -> int | None:
        given = [arguments.get(f"x-{name}"), policy.get(name)]
        limits = [one for one in given if isinstance(one, int) and not isinstance(one, bool)]
        return min(limits, default=None)

    def text(name: str) -> str | None:
        value = arguments.get(f"x-{name}", policy.get(name))
        return value if isinstance(value, str) else None

    exchange = text("dead-letter-exchange")
    overflow = text("overflow")
    limit = lower("delivery-limit")
    priority = arguments.get("x-max-priority")
    kind = arguments.get("x-queue-type")
    age = text("max-age")
    retention = arguments.get("x-retention-ms")
    if kind == STREAM:  # it is only read, so nothing that happens to messages happens to its own
        return QueueRules(
            settings=QueueSettings(),
            expires_ms=lower("expires"),
            kind=STREAM,
            retention_ms=_int(retention) if age is None else age_ms(age),
            retention_bytes=lower("max-length-bytes"),
        )
    settings = QueueSettings(
        max_priority=priority if isinstance(priority, int) else 0,
        message_ttl_ms=lower("message-ttl"),
        max_length=lower("max-length"),
        max_length_bytes=lower("max-length-bytes"),
        overflow=Overflow(overflow) if overflow in set(Overflow) else Overflow.DROP_HEAD,
        dead_letters=exchange is not None,
        delivery_limit=None if limit is None or limit < 0 else limit,
        lock_ms=_int(arguments.get("x-consumer-timeout")),
        single_active_consumer=arguments.get("x-single-active-consumer") is True,
    )
    return QueueRules(
        settings=settings,
        dead_letter_exchange=exchange,
        dead_letter_routing_key=text("dead-letter-routing-key"),
        expires_ms=lower("expires"),
        kind=kind if isinstance(kind, str) else CLASSIC,
        retention_ms=_int(retention) if age is None else age_ms(age),
        deduplicates=arguments.get("x-message-deduplication") is True,
        deduplication_ms=_int(
            arguments.get("x-deduplication-window-ms", arguments.get("x-cache-ttl"))
        ),
        deduplication_size=_int(arguments.get("x-cache-size")),
    )


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


_NO_RULES = _build({}, {})
