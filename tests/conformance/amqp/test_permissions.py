"""Virtual hosts, users, permissions and policies, as AMQP clients meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from support.amqp_pika import drain, get, is_empty, put, settle_for, waiting
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker
Connect = Callable[..., pika.BlockingConnection]


class Management:
    """The management API, as `guest`."""

    def __init__(self, base: str) -> None:
        self.http = httpx.Client(base_url=base, auth=("guest", "guest"))

    def put(self, *path: str, **body: Any) -> None:
        self.http.put(_path(path), json=body).raise_for_status()

    def delete(self, *path: str) -> None:
        self.http.delete(_path(path)).raise_for_status()


def _path(parts: tuple[str, ...]) -> str:
    return "/api/" + "/".join(quote(part, safe="") for part in parts)


@pytest.fixture
def management(broker: Any) -> Iterator[Management]:
    one = Management(broker.http)
    yield one
    one.http.close()


@pytest.fixture
def vhost(management: Management) -> Iterator[str]:
    """A virtual host of the test's own, which guest may use."""
    name = unique("vhost")
    management.put("vhosts", name)
    management.put("permissions", name, "guest", configure=".*", write=".*", read=".*")
    yield name
    management.delete("vhosts", name)


@pytest.fixture
def user(management: Management, vhost: str) -> Iterator[Callable[..., pika.PlainCredentials]]:
    """user(configure=..., write=..., read=...) may do that in the virtual host, no more."""
    made: list[str] = []

    def make(configure: str = "", write: str = "", read: str = "") -> pika.PlainCredentials:
        made.append(unique("user"))
        management.put("users", made[-1], password="pass", tags="")
        management.put("permissions", vhost, made[-1], configure=configure, write=write, read=read)
        return pika.PlainCredentials(made[-1], "pass")

    yield make
    for name in made:
        management.delete("users", name)


def test_virtual_hosts_are_worlds_of_their_own(connect: Connect, vhost: str) -> None:
    here, there = connect().channel(), connect(virtual_host=vhost).channel()
    queue = unique("same")
    for channel in (here, there):
        channel.queue_declare(queue, durable=True)
    put(there, queue, b"there")
    assert is_empty(here, queue)
    assert get(there, queue).body == b"there"
    here.queue_delete(queue)
    assert there.queue_declare(queue, passive=True).method.queue == queue


def test_a_virtual_host_has_the_exchanges_of_the_specification(
    connect: Connect, vhost: str
) -> None:
    channel = connect(virtual_host=vhost).channel()
    for kind in ("direct", "fanout", "topic", "headers", "match"):
        channel.exchange_declare(f"amq.{kind}", passive=True)


def test_a_user_enters_only_where_they_may(
    connect: Connect, user: Callable[..., pika.PlainCredentials]
) -> None:
    with pytest.raises(ProbableAccessDeniedError) as refused:
        connect(credentials=user(), virtual_host="/")
    assert "refused for user" in str(refused.value)


def test_a_wrong_password_is_refused(connect: Connect) -> None:
    with pytest.raises(ProbableAuthenticationError):
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(ProbableAuthenticationError):
        connect(credentials=pika.PlainCredentials("nobody", "guest"))


CASES: dict[str, tuple[dict[str, str], Callable[[BlockingChannel], Any]]] = {
    "declare a queue": ({"write": ".*", "read": ".*"}, lambda c: c.queue_declare("mine")),
    "declare a queue that the server names": (
        {"configure": "^mine", "write": ".*", "read": ".*"},
        lambda c: c.queue_declare("", exclusive=True),
    ),
    "delete a queue": ({"write": ".*", "read": ".*"}, lambda c: c.queue_delete("theirs")),
    "declare an exchange": ({"write": ".*", "read": ".*"}, lambda c: c.exchange_declare("mine")),
    "delete an exchange": ({"write": ".*", "read": ".*"}, lambda c: c.exchange_delete("theirs")),
    "publish": (
        {"configure": ".*", "read": ".*"},
        lambda c: (c.basic_publish("theirs", "k", b"x"), c.queue_declare("theirs", passive=True)),
    ),
    "publish to the default exchange": (
        {"configure": ".*", "write": "^$", "read": ".*"},
        lambda c: (c.basic_publish("", "k", b"x"), c.queue_declare("theirs", passive=True)),
    ),
    "publish to nowhere": (
        {"configure": ".*", "read": ".*"},
        lambda c: (c.basic_publish("nowhere", "k", b"x"), c.queue_declare("theirs", passive=True)),
    ),
    "bind without writing the queue": (
        {"configure": ".*", "read": ".*"}, lambda c: c.queue_bind("theirs", "theirs", "k")),
    "bind without reading the exchange": (
        {"configure": ".*", "write": ".*"}, lambda c: c.queue_bind("theirs", "theirs", "k")),
    "consume": (
        {"configure": ".*", "write": ".*"}, lambda c: c.basic_consume("theirs", lambda *_: None)),
    "get": ({"configure": ".*", "write": ".*"}, lambda c: c.basic_get("theirs")),
    "purge": ({"configure": ".*", "write": ".*"}, lambda c: c.queue_purge("theirs")),
    "dead-letter to what may not be written": (
        {"configure": ".*", "read": ".*"},
        lambda c: c.queue_declare("mine", arguments={"x-dead-letter-exchange": "theirs"})),
    "dead-letter from a queue that the server names": (
        {"configure": ".*", "read": ".*"},
        lambda c: c.queue_declare("", arguments={"x-dead-letter-exchange": "theirs"})),
}  # fmt: skip


@pytest.mark.parametrize(("allowed", "act"), CASES.values(), ids=list(CASES))
def test_what_a_user_may_not_do_is_refused(
    connect: Connect,
    vhost: str,
    user: Callable[..., pika.PlainCredentials],
    allowed: dict[str, str],
    act: Callable[[BlockingChannel], Any],
) -> None:
    owner = connect(virtual_host=vhost).channel()
    owner.queue_declare("theirs", durable=True)
    owner.exchange_declare("theirs")
    credentials = user(**allowed)
    channel = connect(virtual_host=vhost, credentials=credentials).channel()
    with pytest.raises(ChannelClosedByBroker) as refused:
        act(channel)
    assert refused.value.reply_code == 403
    assert f"in vhost '{vhost}' refused for user '{credentials.username}'" in str(refused.value)


def test_permissions_are_patterns_of_names(
    connect: Connect, vhost: str, user: Callable[..., pika.PlainCredentials]
) -> None:
    credentials = user(configure="^mine-", write="^(mine-|amq\\.default$)", read="^mine-")
    connection = connect(virtual_host=vhost, credentials=credentials)
    channel = connection.channel()
    channel.queue_declare("mine-1", durable=True)
    channel.exchange_declare("mine-x")
    channel.queue_bind("mine-1", "mine-x", "k")
    put(channel, "k", b"x", exchange="mine-x")
    assert get(channel, "mine-1").body == b"x"
    with pytest.raises(ChannelClosedByBroker):
        connection.channel().queue_declare("other")


def test_a_permission_taken_away_is_gone_at_once(
    connect: Connect, vhost: str, management: Management, user: Callable[..., pika.PlainCredentials]
) -> None:
    credentials = user(configure=".*", write=".*", read=".*")
    channel = connect(virtual_host=vhost, credentials=credentials).channel()
    channel.queue_declare("q")
    put(channel, "q", b"1")
    assert get(channel, "q").body == b"1"
    name = credentials.username
    management.put("permissions", vhost, name, configure=".*", write="", read=".*")
    with pytest.raises(ChannelClosedByBroker):
        channel.queue_bind("q", "amq.direct", "k")


def test_only_an_impersonator_publishes_for_somebody_else(
    connect: Connect, vhost: str, management: Management
) -> None:
    name = unique("impersonator")
    management.put("users", name, password="pass", tags="impersonator")
    management.put("permissions", vhost, name, configure=".*", write=".*", read=".*")
    credentials = pika.PlainCredentials(name, "pass")
    channel = connect(virtual_host=vhost, credentials=credentials).channel()
    channel.queue_declare("q")
    put(channel, "q", b"x", user_id="somebody")
    assert get(channel, "q").properties.user_id == "somebody"
    management.delete("users", name)


def test_a_policy_is_applied_to_queues_that_are_there_and_those_to_come(
    connect: Connect, vhost: str, management: Management
) -> None:
    channel = connect(virtual_host=vhost).channel()
    channel.queue_declare("work-old", durable=True)
    management.put(
        "policies", vhost, "short", pattern="^work-", definition={"max-length": 2}, priority=1
    )
    channel.queue_declare("work-new", durable=True)
    channel.queue_declare("other", durable=True)
    for queue, left in (("work-old", 2), ("work-new", 2), ("other", 5)):
        put(channel, queue, *[b"%d" % number for number in range(5)])
        eventually(lambda q=queue, n=left: waiting(channel, q) == n, within=5)
    management.delete("policies", vhost, "short")
    put(channel, "work-old", b"a", b"b", b"c")
    assert len(drain(channel, "work-old", 5)) == 5


def test_a_policy_sends_the_dead_somewhere(
    connect: Connect, vhost: str, management: Management
) -> None:
    channel = connect(virtual_host=vhost).channel()
    channel.queue_declare("grave", durable=True)
    channel.queue_declare("work", durable=True)
    definition = {
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "grave",
        "message-ttl": 100,
    }
    management.put("policies", vhost, "dead", pattern="^work$", definition=definition)
    put(channel, "work", b"x")
    assert get(channel, "grave").body == b"x"


def test_a_virtual_host_that_is_deleted_takes_its_connections_along(
    connect: Connect, management: Management
) -> None:
    name = unique("short-lived")
    management.put("vhosts", name)
    management.put("permissions", name, "guest", configure=".*", write=".*", read=".*")
    connection = connect(virtual_host=name)
    connection.channel().queue_declare("q", durable=True)
    management.delete("vhosts", name)
    with pytest.raises(ConnectionClosedByBroker, match="is deleted") as closed:
        settle_for(connection, 5)
    assert closed.value.reply_code == 320
    with pytest.raises(ProbableAccessDeniedError):
        connect(virtual_host=name)


def test_a_user_who_is_deleted_is_gone(
    connect: Connect, management: Management, vhost: str
) -> None:
    name = unique("leaver")
    management.put("users", name, password="pass", tags="")
    management.put("permissions", vhost, name, configure=".*", write=".*", read=".*")
    credentials = pika.PlainCredentials(name, "pass")
    connection = connect(virtual_host=vhost, credentials=credentials)
    management.delete("users", name)
    with pytest.raises(ConnectionClosedByBroker, match="is deleted"):
        settle_for(connection, 5)
    with pytest.raises(ProbableAuthenticationError):
        connect(virtual_host=vhost, credentials=credentials)
