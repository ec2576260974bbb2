"""The examples in the words of the library: each public call has one, and each is run.

They may use an open client `mq`, a topic `orders` of one partition with the messages a (whose key
is user-1), b and c, its subscription `messages` by the group billing, and a queue `queue` named
work with one message, job.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.testing
from penstock.client.admin import Admin
from support.broker import SOURCES

ROOMS = ("client", "testing")
MODULES = sorted(
    ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    for room in ROOMS
    for path in (SOURCES / "penstock" / room).glob("*.py")
    if ">>>" in path.read_text()
)
MODULES_OF_IT = ("aio", "embedded", "sql", "testing")
PUBLIC: list[Any] = [
    Admin,
    *(getattr(penstock, name) for name in penstock.__all__ if name not in MODULES_OF_IT),
    *(getattr(penstock.testing, name) for name in penstock.testing.__all__),
]


@contextlib.contextmanager
def surroundings() -> Iterator[dict[str, Any]]:
    with penstock.open(None, num_partitions=1) as mq:
        mq.publish("orders", "a", key="user-1")
        mq.publish_many("orders", ["b", "c"])
        queue = mq.queue("work")
        queue.publish("job")
        messages = mq.subscribe("orders", group="billing")
        try:
            yield {"mq": mq, "messages": messages, "queue": queue, "penstock": penstock}
        finally:
            if not mq.is_closed:
                messages.close()


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    module = import_module(name)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        if example.examples:
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            with surroundings() as globs:
                example.globs.update(globs)
                runner.run(example)
            assert runner.failures == 0, f"the example of {example.name} is not true"


def _calls(thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    if inspect.isfunction(thing):
        yield thing.__name__, thing
    elif inspect.isclass(thing) and not issubclass(thing, Exception):
        for name in dir(thing):
            call = getattr(thing, name)
            ours = (getattr(call, "__module__", None) or "").startswith("penstock")
            if not name.startswith("_") and ours and inspect.isroutine(call):
                yield f"{thing.__name__}.{name}", call


def test_every_public_call_has_an_example() -> None:
    without = [
        name
        for thing in PUBLIC
        for name, call in _calls(thing)
        if ">>>" not in (call.__doc__ or "")
    ]
    assert not without


def test_every_public_name_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "library.md").read_text()
    names = [*penstock.__all__, *penstock.aio.__all__, *penstock.testing.__all__]
    names += [*penstock.embedded.__all__, *penstock.sql.__all__]
    assert [name for name in names if f"`{name}" not in page and name not in MODULES_OF_IT] == []
    assert all(f"## penstock.{name}" in page for name in MODULES_OF_IT)
