"""AMQP queues as sources: a queue's messages are a topic, and reading it takes nothing away.

`queue` and `vhost` name it as AMQP does; the topic's name follows from them (docs/spark.md):

    any byte (of UTF-8) that is not a letter, a digit, `.`, `_` or `-`       _xHH
    `_` before `x`; the first `_` of a name that begins with `__`            _x5F
    a virtual host other than `/`, before the queue                          <vhost>_xV_<queue>

The broker moves old messages that pin disk space to the end of the log: a copy carries the offset
of its original in a header. A query that began at or before the original has read the message
already, so it leaves the copy out; one that began later reads the copy.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

DEFAULT_VHOST = "/"
COPY_OF = "penstock.copy-of"
_MOST = 249
_ODD = re.compile(rb"[^A-Za-z0-9._-]|_(?=x)")


def topic_of_queue(vhost: str, queue: str) -> str:
    """The topic that holds a queue's messages."""
    topic = _spell(queue)
    if vhost != DEFAULT_VHOST:
        topic = f"{_spell(vhost)}_xV_{topic}"
    if len(topic) > _MOST:
        digest = hashlib.blake2b(f"{vhost}\0{queue}".encode("utf-8", "surrogateescape"))
        return f"{_spell(queue)[: _MOST - 36]}_xL_{digest.hexdigest()[:32]}"
    return topic


def _spell(name: str) -> str:
    data = name.encode("utf-8", "surrogateescape")
    text = _ODD.sub(lambda odd: b"_x%02X" % odd.group()[0], data).decode("ascii")
    if text in (".", ".."):
        return "_x2E" + text[1:]
    return "_x5F" + text[1:] if text.startswith("__") else text


def is_seen_copy(record: Any, began: int) -> bool:
    """Whether a record only repeats a message that lies at or after offset `began`."""
    for name, value in record.headers:
        if name == COPY_OF and value is not None and value.isdigit():
            return int(value) >= began
    return False
