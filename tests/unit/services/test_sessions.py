"""Users, permissions, virtual hosts, exchanges and direct replies."""

from __future__ import annotations

import pytest

from penstock.errors import (
    AccessRefused,
    InvalidRegularExpression,
    LoginRefused,
    NotAllowed,
    NotFound,
    PreconditionFailed,
)
from penstock.model.queue_record import Message
from penstock.services.users import User, hash_password, password_is_right
from support.queue_world import World, bodies, in_world, take


@in_world
async def test_the_guest_may_come_from_this_machine_only(world: World) -> None:
    authenticate = world.messaging.authenticate
    for _ in range(2):  # the second time from memory
        user = await authenticate("guest", b"guest", loopback=True)
        assert user == User("guest", ("administrator",))
        with pytest.raises(LoginRefused):
            await authenticate("guest", "guest", loopback=False)
        with pytest.raises(LoginRefused):
            await authenticate("guest", "wrong", loopback=True)
    with pytest.raises(LoginRefused):
        await authenticate("nobody", "", loopback=True)


@in_world
async def test_a_changed_password_counts_at_once(world: World) -> None:
    users = world.messaging.users
    await users.put("bob", "one", tags=("monitoring",))
    assert (await users.authenticate("bob", "one", loopback=False)).tags == ("monitoring",)
    await users.put("bob", "two")
    with pytest.raises(LoginRefused):
        await users.authenticate("bob", "one", loopback=False)
    await world.restart()
    users = world.messaging.users
    assert await users.authenticate("bob", "two", loopback=False)
    await users.delete("bob")
    with pytest.raises(LoginRefused):
        await users.authenticate("bob", "two", loopback=False)


def test_passwords_are_salted() -> None:
    one, other = hash_password(b"secret"), hash_password(b"secret")
    assert one != other
    assert password_is_right(b"secret", one)
    assert not password_is_right(b"Secret", one)
    assert not password_is_right(b"secret", "md5$abc$def")


@in_world
async def test_permissions_are_patterns_of_names(world: World) -> None:
    users = world.messaging.users
    await users.put("bob", "b")
    with pytest.raises(NotAllowed, match="access to vhost '/' refused for user 'bob'"):
        await world.open("bob")
    await users.set_permissions("bob", "/", "^bob\\.", "^bob\\.|^amq\\.default$", "^bob\\.")
    bob = await world.open("bob")
    await bob.declare_queue("bob.q", durable=True)
    bob.check_publish("")
    refused = [
        bob.declare_queue("other"),
        bob.declare_exchange("other"),
        bob.bind_queue("bob.q", "amq.direct", "k"),
        bob.delete_queue("other"),
        bob.purge_queue("other"),
        bob.get("other"),
        bob.subscribe("other", tag="t"),
        bob.declare_queue("bob.q2", arguments={"x-dead-letter-exchange": "other"}),
        bob.declare_exchange("bob.x", arguments={"alternate-exchange": "other"}),
    ]
    for attempt in refused:
        with pytest.raises(AccessRefused, match="refused for user 'bob'"):
            await attempt
    with pytest.raises(AccessRefused, match=r"exchange 'amq\.direct' in vhost '/'"):
        bob.check_publish("amq.direct")
    await users.set_permissions("bob", "/", "", "", ".*")
    with pytest.raises(AccessRefused):
        await bob.declare_queue("bob.q", durable=True)
    with pytest.raises(InvalidRegularExpression):
        await users.set_permissions("bob", "/", "(", "", "")


@in_world
async def test_virtual_hosts_know_nothing_of_each_other(world: World) -> None:
    with pytest.raises(NotAllowed, match="vhost shop not found"):
        await world.open(vhost="shop")
    await world.messaging.create_vhost("shop")
    await world.messaging.users.set_permissions("guest", "shop", ".*", ".*", ".*")
    shop = await world.open(vhost="shop")
    await shop.declare_queue("q", durable=True)
    with pytest.raises(NotFound):
        await world.session.declare_queue("q", passive=True)
    await world.declare("q")
    await shop.publish([Message("", "q", b"\0\0", b"in the shop")]).settled()
    assert (await world.live("q")).machine.unsettled == 0
    assert sorted(world.topics.names()) == ["q", "shop_xV_q"]
    await world.restart()
    shop = await world.open(vhost="shop")
    consumer = await shop.subscribe("q", tag="t")
    assert bodies(await take(consumer)) == ["in the shop"]
    await world.messaging.delete_vhost("shop")
    assert sorted(world.topics.names()) == ["q"]


# --- exchanges ------------------------------------------------------------------------------------


@in_world
async def test_exchanges_and_bindings_survive(world: World) -> None:
    session = world.session
    await session.declare_exchange("x", "topic", durable=True)
    await session.declare_exchange("y", "fanout", durable=True)
    await session.declare_exchange("passing", "fanout")
    await world.declare("q")
    await session.bind_exchange("y", "x", "a.#")
    await session.bind_queue("q", "y", "", {"odd": b"\xff"})
    await session.bind_queue("q", "passing", "")
    await world.restart()
    await world.publish("a.b", "through both", exchange="x")
    assert bodies(await take(await world.consume("q"))) == ["through both"]
    with pytest.raises(NotFound):
        await world.session.declare_exchange("passing", passive=True)
    await world.session.unbind_queue("q", "y", "", {"odd": b"\xff"})
    publication = world.session.publish([Message("x", "a.b", b"\0\0", b"")])
    assert list(publication.unrouted) == [0]


@in_world
async def test_declaring_an_exchange_follows_the_rules(world: World) -> None:
    session = world.session
    await session.declare_exchange("x", "topic", durable=True)
    await session.declare_exchange("x", "topic", durable=True)
    with pytest.raises(PreconditionFailed, match="received 'direct' but current is 'topic'"):
        await session.declare_exchange("x", "direct", durable=True)
    with pytest.raises(PreconditionFailed, match="unknown exchange type 'zork'"):
        await session.declare_exchange("z", "zork")
    with pytest.raises(AccessRefused, match="reserved prefix"):
        await session.declare_exchange("amq.mine")
    for attempt in (
        session.declare_exchange(""),
        session.delete_exchange(""),
        session.bind_queue("q", "", "k"),
    ):
        with pytest.raises(AccessRefused, match="default exchange"):
            await attempt
    with pytest.raises(AccessRefused, match=r"deletion of system exchange 'amq\.direct'"):
        await session.delete_exchange("amq.direct")
    await session.delete_exchange("missing")
    with pytest.raises(NotFound, match="no exchange 'missing' in vhost '/'"):
        session.check_publish("missing")
    await session.declare_exchange("inside", internal=True)
    with pytest.raises(AccessRefused, match="cannot publish to internal exchange"):
        session.check_publish("inside")


@in_world
async def test_an_exchange_in_use_can_be_spared(world: World) -> None:
    await world.declare("q")
    await world.session.declare_exchange("x", "fanout")
    await world.session.bind_queue("q", "x", "")
    with pytest.raises(PreconditionFailed, match="exchange 'x' in vhost '/' in use"):
        await world.session.delete_exchange("x", if_unused=True)
    await world.session.delete_exchange("x")
    with pytest.raises(NotFound):
        await world.session.bind_queue("q", "x", "")


@in_world
async def test_copies_go_to_more_queues_and_blind_ones_in_secret(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.declare(name)
    await world.publish("a", "x", headers={"CC": ["b"], "BCC": ["c"]})
    for name in ("a", "b", "c"):
        (got,) = await take(await world.consume(name))
        assert b"BCC" not in got.properties
        assert b"CC" in got.properties


# --- direct replies -------------------------------------------------------------------------------


@in_world
async def test_a_direct_reply_needs_no_queue(world: World) -> None:
    client = await world.consume("amq.rabbitmq.reply-to", no_ack=True)
    server = await world.open()
    assert (await server.declare_queue(client.reply_to, passive=True)).consumer_count == 1
    publication = server.publish([Message("", client.reply_to, b"\0\0", b"answer")])
    assert list(publication.unrouted) == []
    assert bodies(await take(client)) == ["answer"]
    client.cancel()
    publication = server.publish([Message("", client.reply_to, b"\0\0", b"too late")])
    assert list(publication.unrouted) == [0]
