"""Fixtures that more than one kind of test uses: the brokers, unique names, what is missing here.

`broker` is one `penstock serve` for the whole run of a worker, in a process of its own. Set
PENSTOCK_TEST_BOOTSTRAP=host:port to run the same conformance tests against any other broker, for
example Apache Kafka: tests marked `own_broker`, which need to restart or inspect ours, are then
deselected, and the end of the run says so.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import support.effort  # noqa: F401 - chooses how hard random tests try
from support.broker import BrokerProcess, ForeignBroker
from support.naming import unique

# Installed, Penstock brings its fixtures along; these tests run from a checkout, too.
pytest_plugins = ["penstock.testing.plugin"]

# A shell that runs the tests in the background lets them ignore Ctrl-C, and what they start would
# inherit that: tests that interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FOREIGN = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
OTHERS_CLIENTS = [Path(__file__).parent / room for room in ("conformance", "crash")]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "own_broker: needs a Penstock process of its own (to restart, kill or inspect)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Clients of others leave sockets and loops to the garbage collector (kafka-python its wake-up
    # pair, for one), which finds them in whatever test comes next. Ours are in a process of their
    # own here.
    forgotten = pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <(ssl.|socket.|function BaseEventLoop)"
        ":pytest.PytestUnraisableExceptionWarning"
    )
    for item in items:
        if any(item.path.is_relative_to(room) for room in OTHERS_CLIENTS):
            item.add_marker(forgotten)
    if not FOREIGN:
        return
    ours = [item for item in items if item.get_closest_marker("own_broker")]
    if ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Celery sets the level of the root logger for good: other tests look for warnings."""
    root = logging.getLogger()
    before = root.level
    try:
        return (yield)
    finally:
        root.setLevel(before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadgroup":
        return None
    from support.scheduling import Rooms

    return Rooms(config, log)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this machine could not test, so that a green run does not hide it."""
    missing: dict[str, str] = {}
    if FOREIGN:
        missing["tests that restart, kill or inspect Penstock"] = (
            f"deselected, for PENSTOCK_TEST_BOOTSTRAP={FOREIGN} is not ours to do that to"
        )
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
        missing.setdefault(reason.removeprefix("Skipped: "), "")
    if missing:
        terminalreporter.section("not tested on this machine")
        for what, why in missing.items():
            terminalreporter.line(f"{what}: {why}" if why else what)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | ForeignBroker]:
    """The broker that conformance tests share. Use unique topics and groups."""
    if FOREIGN:
        yield ForeignBroker(FOREIGN)
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data").start()
    yield process
    assert process.running, f"the shared broker died:\n{process.log[-5000:]}"
    process.stop()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker of the test's own: start_broker(settings={...}, port=...)."""
    started: list[BrokerProcess] = []

    def start(data: Path | None = None, **options: object) -> BrokerProcess:
        process = BrokerProcess(data or tmp_path / "data", **options)  # type: ignore[arg-type]
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()
        print(process.last_words())


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """name("orders") is a topic, group or transactional id that nobody else uses."""
    return unique


@pytest.fixture
def bootstrap(broker: BrokerProcess | ForeignBroker) -> str:
    return broker.bootstrap
