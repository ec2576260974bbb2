"""Which topic holds the messages of a queue: one name from the other, both ways.

A queue of the virtual host `/` has the topic of its own name where that is a legal name of a topic.
Anything else is spelled with what a topic's name may contain:

    any byte (of UTF-8) that is not a letter, a digit, `.`, `_` or `-`       _xHH
    `_` before `x`; the first `_` of a name that begins with `__`            _x5F
    `.` of the names `.` and `..`                                            _x2E
    a virtual host other than `/`, before the queue                          <vhost>_xV_<queue>

`_x` never stands for itself, so the spelling can be read back. Names that would be too long for a
topic are cut and told apart by a hash, `_xL_`; only the catalogue knows what they were.
"""

from __future__ import annotations

import hashlib
import re

DEFAULT_VHOST = "/"
MAX_TOPIC_LENGTH = 249

_VHOST_END = "_xV_"
_CUT = "_xL_"
_HASH_LENGTH = 32
_ODD = re.compile(rb"[^A-Za-z0-9._-]|_(?=x)")
_SPELLED = re.compile(rb"_x([0-9A-F]{2})")


def topic_of_queue(vhost: str, queue: str) -> str:
    """The name of the topic that holds a queue's messages."""
    topic = _spell(queue)
    if vhost != DEFAULT_VHOST:
        topic = f"{_spell(vhost)}{_VHOST_END}{topic}"
    if len(topic) > MAX_TOPIC_LENGTH:
        return cut_name(vhost, queue)
    return topic


def cut_name(vhost: str, queue: str) -> str:
    """A topic for a queue whose proper one is too long, or taken by a name that looks alike."""
    digest = hashlib.blake2b(f"{vhost}\0{queue}".encode("utf-8", "surrogateescape"))
    kept = _spell(queue)[: MAX_TOPIC_LENGTH - len(_CUT) - _HASH_LENGTH]
    return f"{kept}{_CUT}{digest.hexdigest()[:_HASH_LENGTH]}"


def queue_of_topic(topic: str) -> tuple[str, str] | None:
    """(virtual host, queue) that `topic_of_queue` would name so; None when none would."""
    if _CUT in topic:
        return None
    head, end, tail = topic.partition(_VHOST_END)  # the first: a queue may begin with `xV_`
    vhost, queue = (head, tail) if end else ("", head)
    found = (_unspell(vhost) if end else DEFAULT_VHOST, _unspell(queue))
    return found if topic_of_queue(*found) == topic else None


def _spell(name: str) -> str:
    data = name.encode("utf-8", "surrogateescape")
    text = _ODD.sub(lambda odd: b"_x%02X" % odd.group()[0], data).decode("ascii")
    if text in (".", ".."):
        return "_x2E" + text[1:]
    if text.startswith("__"):  # the broker's own topics begin so
        return "_x5F" + text[1:]
    return text


def _unspell(text: str) -> str:
    data = _SPELLED.sub(lambda byte: bytes((int(byte.group(1), 16),)), text.encode())
    return data.decode("utf-8", "surrogateescape")
