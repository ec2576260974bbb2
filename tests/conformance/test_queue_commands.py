"""The commands for queues against a running broker, with pika on the other side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.cli.demo.queue import play_queue
from penstock.cli.demo.stage import Stage
from support.broker import BrokerProcess
from support.command import Outcome, penstock
from support.waiting import eventually

Run = Callable[..., Outcome]
Name = Callable[[str], str]

pytestmark = pytest.mark.own_broker


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    address = broker.http.removeprefix("http://")

    def command(*arguments: str, stdin: str | bytes = b"", **settings: str) -> Outcome:
        return penstock(*arguments, stdin=stdin, env={"PENSTOCK_HTTP": address, **settings})

    return command


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters(broker.host, broker.amqp_port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def queue(channel: BlockingChannel, name: Name) -> str:
    """A queue with the messages 0 to 4 and a place for dead letters, named queue.dead."""
    queue = name("jobs")
    channel.queue_declare(f"{queue}.dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}.dead"}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    properties = pika.BasicProperties(headers={"attempt": 1}, content_type="text/plain")
    for number in range(5):
        channel.basic_publish("", queue, str(number).encode(), properties)
    return queue


def ready(channel: BlockingChannel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def reject_all(channel: BlockingChannel, queue: str) -> None:
    while (got := channel.basic_get(queue))[0] is not None:
        channel.basic_reject(got[0].delivery_tag, requeue=False)


def bodies(outcome: Outcome) -> list[str]:
    return [message["payload"] for message in outcome.json]


def test_a_queue_is_declared_listed_described_purged_and_deleted(
    run: Run, channel: BlockingChannel, name: Name
) -> None:
    queue = name("orders")
    declared = run("queue", "declare", queue, "--max-length", "10", "-a", "x-max-priority=5")
    assert (declared.code, declared.out, declared.err) == (0, "", f"declared {queue}\n")
    channel.basic_publish("", queue, b"hello")
    listed = {row["name"]: row for row in run("queue", "list", "--json").json}
    assert listed[queue]["arguments"] == {"x-max-length": 10, "x-max-priority": 5}
    assert listed[queue]["messages_ready"] == 1
    assert listed[queue]["message_bytes"] > 5
    assert queue in run("queue", "list").out

    assert run("queue", "purge", queue, "--yes").err == f"purged {queue} of 1 message\n"
    assert run("queue", "describe", queue, "--json").json["messages"] == 0
    assert run("queue", "delete", queue, "--yes").err == f"deleted {queue} with 0 messages\n"
    gone = run("queue", "describe", queue)
    assert (gone.code, gone.out) == (1, "")
    assert gone.err == f"penstock: no queue '{queue}' in vhost '/'\n"


def test_a_queue_that_is_there_otherwise_is_not_declared_again(run: Run, queue: str) -> None:
    refused = run("queue", "declare", queue, "--max-length", "5")
    assert refused.code == 1
    assert "inequivalent arg" in refused.err
    assert "Traceback" not in refused.err


def test_a_queue_is_deleted_only_if_empty_when_so_asked(run: Run, queue: str) -> None:
    refused = run("queue", "delete", queue, "--if-empty", "--yes")
    assert refused.code == 1
    assert "not empty" in refused.err


def test_peeking_takes_nothing_and_counts_nothing(
    run: Run, channel: BlockingChannel, queue: str
) -> None:
    assert bodies(run("queue", "peek", queue, "--json")) == ["0", "1", "2", "3", "4"]
    assert bodies(run("queue", "peek", queue, "-n", "2", "--offset", "1", "--json")) == ["1", "2"]
    assert ready(channel, queue) == 5
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, properties.headers, body) == (False, {"attempt": 1}, b"0")


def test_peeking_shows_what_a_consumer_holds(
    run: Run, channel: BlockingChannel, queue: str
) -> None:
    method, _, _ = channel.basic_get(queue)
    shown = run("queue", "peek", queue, "-n", "2", "--json").json
    assert [message["state"] for message in shown] == ["unacknowledged", "ready"]
    assert run("queue", "describe", queue, "--json").json["messages_unacknowledged"] == 1
    channel.basic_ack(method.delivery_tag)


def test_peeking_shows_properties_headers_and_bytes(
    run: Run, channel: BlockingChannel, name: Name
) -> None:
    queue = name("bytes")
    channel.queue_declare(queue, durable=True)
    properties = pika.BasicProperties(priority=3, headers={"n": 1, "list": [1, "a"], "b": b"\xff"})
    channel.basic_publish("", queue, b"\xff\x00", properties)
    [message] = run("queue", "peek", queue, "--json").json
    assert message["payload_encoding"] == "base64"
    assert (message["payload"], message["payload_bytes"]) == ("/wA=", 2)
    assert message["properties"]["priority"] == 3
    assert message["properties"]["headers"]["list"] == [1, "a"]


def test_getting_takes_in_order_and_leaves_the_rest(
    run: Run, channel: BlockingChannel, queue: str
) -> None:
    assert run("queue", "get", queue, "-n", "2").lines == ["0", "1"]
    assert run("queue", "get", queue, "--requeue").lines == ["2"]
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"2")
    assert run("queue", "get", queue, "-n", "9").lines == ["3", "4"]
    empty = run("queue", "get", queue)
    assert (empty.code, empty.out, empty.err) == (0, "", f"nothing waits in {queue}\n")


def test_what_is_published_reaches_a_consumer_with_properties(
    run: Run, channel: BlockingChannel, name: Name
) -> None:
    queue = name("published")
    run("queue", "declare", queue)
    words = ("-p", "content_type=text/plain", "-p", "priority=7", "-H", "n=1", "-H", "s=x")
    assert run("queue", "publish", queue, "-m", "ké", *words).err == "published 1 message\n"
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    assert body == "ké".encode()
    assert (properties.content_type, properties.priority) == ("text/plain", 7)
    assert properties.headers == {"n": 1, "s": "x"}


def test_lines_of_standard_input_are_published_byte_for_byte(run: Run, name: Name) -> None:
    queue = name("lines")
    run("queue", "declare", queue)
    assert run("queue", "publish", queue, stdin=b"one\n\xff\xfe\n").err == "published 2 messages\n"
    shown = run("queue", "peek", queue, "--json").json
    assert [message["payload_bytes"] for message in shown] == [3, 2]


def test_publishing_where_nothing_is_bound_fails(run: Run, name: Name) -> None:
    exchange = name("nowhere")
    run("exchange", "declare", exchange, "--type", "topic")
    lost = run("queue", "publish", "-e", exchange, "-k", "a.b", "-m", "x")
    assert lost.code == 1
    assert "no queue took 1 message of 1" in lost.err
    missing = run("queue", "publish", name("missing"), "-m", "x")
    assert missing.code == 1
    assert "no queue" in missing.err


def test_a_full_queue_says_so(run: Run, name: Name) -> None:
    queue = name("full")
    run("queue", "declare", queue, "--max-length", "1", "-a", "x-overflow=reject-publish")
    refused = run("queue", "publish", queue, "-m", "a", "-m", "b", "-m", "c")
    assert refused.code == 1
    assert "refused: the queue is full" in refused.err


def test_exchanges_and_bindings_route_what_pika_publishes(
    run: Run, channel: BlockingChannel, queue: str, name: Name
) -> None:
    exchange = name("logs")
    assert run("exchange", "declare", exchange, "--type", "topic").code == 0
    assert run("binding", "add", exchange, queue, "-k", "*.error").code == 0
    headers = name("headers")
    run("exchange", "declare", headers, "--type", "headers")
    run("binding", "add", headers, queue, "-a", "x-match=all", "-a", "kind=mail")
    channel.basic_publish(exchange, "app.error", b"by key")
    mail = pika.BasicProperties(headers={"kind": "mail"})
    channel.basic_publish(headers, "", b"by header", mail)
    assert bodies(run("queue", "peek", queue, "--json"))[5:] == ["by key", "by header"]

    rows = run("binding", "list", "--queue", queue, "--json").json
    assert {row["source"] for row in rows} == {exchange, headers}
    assert run("binding", "remove", exchange, queue, "-k", "*.error").code == 0
    assert run("binding", "remove", headers, queue, "-a", "x-match=all").code == 1
    arguments = ("-a", "kind=mail", "-a", "x-match=all")
    assert run("binding", "remove", headers, queue, *arguments).code == 0
    assert run("binding", "list", "--queue", queue, "--json").json == []
    kinds = {row["name"]: row["type"] for row in run("exchange", "list", "--json").json}
    assert (kinds[""], kinds[exchange]) == ("direct", "topic")
    assert run("exchange", "delete", exchange, "--yes").code == 0


# --- dead letters ---------------------------------------------------------------------------------


def test_dead_letters_are_listed_shown_and_redriven(
    run: Run, channel: BlockingChannel, queue: str
) -> None:
    reject_all(channel, queue)
    dead = f"{queue}.dead"
    eventually(lambda: ready(channel, dead) == 5)
    places = {row["name"]: row for row in run("dlq", "list", "--json").json}
    assert places[dead]["sources"] == [queue]
    assert places[dead]["messages"] == 5
    letters = run("dlq", "peek", dead, "--json").json
    assert {(one["death"]["queue"], one["death"]["reason"]) for one in letters} == {
        (queue, "rejected")
    }
    assert "rejected" in run("dlq", "peek", dead).out

    done = run("dlq", "redrive", dead, "--json")
    assert (done.json["moved"], done.err) == (5, "sent 5 messages back\n")
    assert (ready(channel, dead), ready(channel, queue)) == (0, 5)
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered, method.routing_key) == (b"0", False, queue)
    assert properties.headers == {"attempt": 1}
    assert properties.content_type == "text/plain"


def test_a_redrive_can_choose(run: Run, channel: BlockingChannel, queue: str, name: Name) -> None:
    reject_all(channel, queue)
    dead = f"{queue}.dead"
    eventually(lambda: ready(channel, dead) == 5)
    assert run("dlq", "redrive", dead, "--reason", "expired", "--json").json["moved"] == 0
    assert run("dlq", "redrive", dead, "--from", "elsewhere", "--json").json["moved"] == 0
    assert run("dlq", "redrive", dead, "--contains", "3", "--json").json["moved"] == 1
    assert run("dlq", "redrive", dead, "--limit", "1", "--json").json["moved"] == 1
    assert bodies(run("queue", "peek", queue, "--json")) == ["3", "0"]
    last = run("dlq", "peek", dead, "--json").json[-1]
    other = name("other")
    run("queue", "declare", other)
    chosen = ("--offset", str(last["offset"]), "--to", other)
    assert run("dlq", "redrive", dead, *chosen, "--json").json["moved"] == 1
    assert bodies(run("queue", "peek", other, "--json")) == ["4"]
    left = run("queue", "peek", dead, "--json").json
    assert [message["payload"] for message in left] == ["1", "2"]
    assert not any(message["redelivered"] for message in left), "looking at them is not counted"


def test_dead_letters_whose_queue_is_gone_stay(
    run: Run, channel: BlockingChannel, queue: str
) -> None:
    reject_all(channel, queue)
    dead = f"{queue}.dead"
    eventually(lambda: ready(channel, dead) == 5)
    run("queue", "delete", queue, "--yes")
    stuck = run("dlq", "redrive", dead)
    assert stuck.code == 1
    assert "5 messages stayed: the queue they died in is gone" in stuck.err
    assert ready(channel, dead) == 5


def test_what_a_consumer_holds_is_not_redriven(
    run: Run, channel: BlockingChannel, queue: str
) -> None:
    reject_all(channel, queue)
    dead = f"{queue}.dead"
    eventually(lambda: ready(channel, dead) == 5)
    method, _, body = channel.basic_get(dead)
    assert body == b"0"
    assert run("dlq", "redrive", dead, "--json").json["moved"] == 4
    channel.basic_nack(method.delivery_tag, requeue=True)
    eventually(lambda: ready(channel, dead) == 1)


# --- policies, virtual hosts, users ---------------------------------------------------------------


def test_a_policy_holds_at_once_and_no_longer_than_it_lasts(
    run: Run, queue: str, name: Name
) -> None:
    policy = name("short")
    assert run("policy", "set", policy, f"^{queue}$", "message-ttl=1").code == 0
    assert run("queue", "describe", queue, "--json").json["policy"] == policy
    eventually(lambda: run("queue", "describe", queue, "--json").json["messages_ready"] == 0)
    [row] = [one for one in run("policy", "list", "--json").json if one["name"] == policy]
    assert (row["pattern"], row["definition"]) == (f"^{queue}$", {"message-ttl": 1})
    assert run("policy", "delete", policy, "--yes").code == 0
    assert run("queue", "describe", queue, "--json").json["policy"] is None
    wrong = run("policy", "set", policy, ".*", "no-such=1")
    assert (wrong.code, "no-such" in wrong.err) == (1, True)


def test_a_user_may_do_what_the_patterns_say(run: Run, name: Name) -> None:
    vhost, user = name("vhost"), name("user")
    assert run("vhost", "add", vhost).code == 0
    assert run("user", "add", user, stdin="secret\n").err == f"added {user}\n"
    again = run("user", "add", user, stdin="other\n")
    assert (again.code, "already" in again.err) == (1, True)
    mine = {"PENSTOCK_USER": user, "PENSTOCK_PASSWORD": "secret", "PENSTOCK_VHOST": vhost}
    shut = run("queue", "list", **mine)
    assert shut.code == 1
    assert f"access to vhost '{vhost}' refused" in shut.err
    run("queue", "declare", "in", "out", "--vhost", vhost)
    run("user", "permit", user, "-v", vhost, "--configure", "^$", "--write", "^amq.default$",
        "--read", "^in$")  # fmt: skip
    assert run("queue", "publish", "in", "-m", "x", **mine).code == 0
    assert bodies(run("queue", "peek", "in", "--json", **mine)) == ["x"]
    for words in (["peek", "out"], ["declare", "more"], ["delete", "in", "--yes"]):
        refused = run("queue", *words, **mine)
        assert refused.code == 1
        assert "refused for user" in refused.err
    for words in (["user", "list"], ["vhost", "delete", vhost, "--yes"]):
        assert run(*words, **mine).code == 1

    assert run("user", "password", user, "--new-password", "new").code == 0
    wrong = run("queue", "list", **mine)
    assert (wrong.code, "invalid credentials" in wrong.err) == (1, True)
    assert run("queue", "list", **{**mine, "PENSTOCK_PASSWORD": "new"}).code == 0
    listed = {row["name"]: row for row in run("user", "list", "--json").json}
    assert listed[user]["permissions"][0]["read"] == "^in$"
    assert "secret" not in json.dumps(listed)
    assert run("user", "delete", user, "--yes").code == 0
    assert run("vhost", "delete", vhost, "--yes").code == 0
    assert vhost not in [row["name"] for row in run("vhost", "list", "--json").json]


def test_a_user_of_the_command_line_can_log_in_over_amqp(
    run: Run, broker: BrokerProcess, name: Name
) -> None:
    user = name("user")
    run("user", "add", user, "--new-password", "secret")
    run("user", "permit", user)
    credentials = pika.PlainCredentials(user, "secret")
    parameters: Any = pika.ConnectionParameters(
        broker.host, broker.amqp_port, credentials=credentials
    )
    pika.BlockingConnection(parameters).close()
    run("user", "delete", user, "--yes")


def test_a_broker_that_is_not_there_is_told_in_a_sentence(run: Run) -> None:
    outcome = run("queue", "list", "--http", "127.0.0.1:1")
    assert outcome.code == 1
    assert outcome.err.startswith("penstock: no broker answers at 127.0.0.1:1; start one with")
    assert run("queue", "list", "--http", "nonsense").code == 2


def test_the_demonstration_shows_one_queue_through_two_doors(
    start_broker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    doors = SimpleNamespace(
        kafka=broker.bootstrap,
        amqp=f"{broker.host}:{broker.amqp_port}",
        http=broker.http.removeprefix("http://"),
    )
    for _ in range(2):  # also where an earlier one has left its queues
        play_queue(Stage(), doors)  # type: ignore[arg-type]
        shown = capsys.readouterr().out
        assert "dead letter in jobs.failed: 'job 13', rejected in jobs" in shown
        assert "all 500 jobs, each once" in shown


def test_a_redrive_survives_kill_9_and_respects_priorities(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()

    def run(*arguments: str) -> Outcome:
        return penstock(*arguments, env={"PENSTOCK_HTTP": broker.http.removeprefix("http://")})

    run("queue", "declare", "dead", "--max-priority", "5")
    run("queue", "declare", "work", "--dead-letter-to", "dead")
    for number in range(4):
        run("queue", "publish", "work", "-m", str(number), "-p", f"priority={number}")
    assert run("queue", "get", "work", "-n", "4", "--reject").lines == ["0", "1", "2", "3"]
    eventually(lambda: run("queue", "describe", "dead", "--json").json["messages_ready"] == 4)
    assert run("dlq", "redrive", "dead", "--contains", "1", "--json").json["moved"] == 1
    assert run("dlq", "redrive", "dead", "--limit", "1", "--json").json["moved"] == 1
    broker.kill()
    broker.start()
    assert bodies(run("queue", "peek", "work", "--json")) == ["1", "3"]
    assert run("queue", "get", "dead", "-n", "9").lines == ["2", "0"]
