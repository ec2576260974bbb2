"""TLS and logins, at servers that have them: Apache Kafka and RabbitMQ, and ours, which has not.

Apache Kafka comes from Maven, RabbitMQ is Debian's, certificates are made with openssl; where one
of them cannot be had the end of the run says so.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import Client, QueueMessage
from support import certificates
from support.certificates import Authority
from support.naming import unique
from support.waiting import eventually

pytestmark = [pytest.mark.own_broker, pytest.mark.xdist_group("secured servers")]

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.amqp_peers import rabbitmq  # noqa: E402  found by the line above
from benchmarks.peers import Unavailable, apache_kafka, free_port  # noqa: E402  the same

Options = dict[str, Any]
BOB: Options = {"username": "bob", "password": "builder", "sasl_mechanism": "scram-sha-256"}
JAAS = "org.apache.kafka.common.security"


class Papers(NamedTuple):
    """Who vouches for whom."""

    ca: Path
    stranger: Path
    server: tuple[Path, Path]
    ann: Options
    locked: Options

    @property
    def trusting_ann(self) -> Options:
        return {"ca": self.ca, "username": "ann", "password": "secret"}


class Doors(NamedTuple):
    """Addresses of one Apache Kafka."""

    plain: str
    logins: str
    mutual: str


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    if reason := certificates.missing():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("certificates")
    ca, stranger = Authority(directory), Authority(directory, "stranger")
    ann, locked = ca.issue("ann"), ca.issue("locked", password="sesame")
    return Papers(
        ca.certificate,
        stranger.certificate,
        ca.issue("server"),
        {"certificate": ann[0], "private_key": ann[1]},
        {"certificate": locked[0], "private_key": locked[1]},
    )


@pytest.fixture(scope="module")
def kafka(papers: Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    store = tmp_path_factory.mktemp("kafka") / "server.pem"
    store.write_text(papers.server[1].read_text() + papers.server[0].read_text())
    doors = {"SASL_SSL": free_port(), "SSL": free_port()}
    properties = "\n".join(
        [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={store}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={papers.ca}",
            "ssl.client.auth=required",
            "listener.name.sasl_ssl.ssl.client.auth=none",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_ssl.plain.sasl.jaas.config="
            f'{JAAS}.plain.PlainLoginModule required user_ann="secret";',
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config="
            f"{JAAS}.scram.ScramLoginModule required;",
        ]
    )
    users = ["SCRAM-SHA-256=[name=bob,password=builder]"]
    try:
        with apache_kafka(doors=doors, properties=properties, users=users) as running:
            yield Doors(
                running.bootstrap,
                f"127.0.0.1:{doors['SASL_SSL']}",
                f"127.0.0.1:{doors['SSL']}",
            )
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def rabbit(papers: Papers) -> Iterator[str]:
    port = free_port()
    certificate, key = papers.server
    configuration = "\n".join(
        [
            f"listeners.ssl.1 = 127.0.0.1:{port}",
            f"ssl_options.cacertfile = {papers.ca}",
            f"ssl_options.certfile = {certificate}",
            f"ssl_options.keyfile = {key}",
            "default_user = ann",
            "default_pass = secret\n",
        ]
    )
    try:
        with rabbitmq(configuration):
            yield f"127.0.0.1:{port}"
    except Unavailable as reason:
        pytest.skip(str(reason))


def try_everything(mq: Client) -> None:
    """Each of librdkafka's clients that the library makes has to log in by itself."""
    topic = unique("topic")
    mq.admin.create_topic(topic, partitions=1)
    mq.publish(topic, "published")
    with mq.transaction(unique("tx")) as tx:
        tx.publish(topic, "in a transaction")
    with mq.subscribe(topic, group=unique("group")) as messages:
        assert [next(messages).text for _ in range(2)] == ["published", "in a transaction"]
    assert [message.text for message in mq.read(topic, limit=1)] == ["published"]


# --- Apache Kafka: what is right ------------------------------------------------------------------


def test_a_name_and_a_password_log_in_by_plain_over_tls(kafka: Doors, papers: Papers) -> None:
    with penstock.connect(kafka.logins, **papers.trusting_ann) as mq:
        try_everything(mq)


def test_scram_logs_in_over_tls(kafka: Doors, papers: Papers) -> None:
    with penstock.connect(kafka.logins, ca=papers.ca, **BOB) as mq:
        try_everything(mq)


def test_a_certificate_is_enough_where_the_server_asks_for_one(
    kafka: Doors, papers: Papers
) -> None:
    with penstock.connect(kafka.mutual, ca=str(papers.ca), **papers.ann) as mq:
        try_everything(mq)


def test_a_private_key_may_have_a_password_or_lie_with_its_certificate(
    kafka: Doors, papers: Papers, tmp_path: Path
) -> None:
    locked = {**papers.locked, "private_key_password": "sesame"}
    with penstock.connect(kafka.mutual, ca=papers.ca, **locked) as mq:
        assert mq.publish("one", "a", partition=0).offset >= 0
    both = tmp_path / "both.pem"
    both.write_text("".join(file.read_text() for file in papers.ann.values()))
    with penstock.connect(kafka.mutual, ca=papers.ca, certificate=both) as mq:
        assert mq.publish("one", "b", partition=0).offset >= 0


def test_the_same_arguments_serve_the_async_client(kafka: Doors, papers: Papers) -> None:
    async def go() -> str:
        async with penstock.aio.connect(kafka.logins, ca=papers.ca, **BOB) as mq:
            topic = unique("topic")
            await mq.publish(topic, "a", partition=0)
            async with mq.subscribe(topic, group=unique("group")) as messages:
                return (await anext(messages)).text

    assert asyncio.run(go()) == "a"

    async def refused() -> None:
        wrong = {**papers.trusting_ann, "password": "guess"}
        with pytest.raises(penstock.Denied, match="does not let ann in"):
            await penstock.aio.connect(kafka.logins, **wrong)

    asyncio.run(refused())


def test_the_name_of_the_server_is_looked_at_unless_told_not_to(
    kafka: Doors, papers: Papers
) -> None:
    other_name = kafka.logins.replace("127.0.0.1", "localhost")
    with pytest.raises(penstock.Denied, match="verify_hostname=False"):
        penstock.connect(other_name, **papers.trusting_ann)
    with penstock.connect(other_name, verify_hostname=False, **papers.trusting_ann) as mq:
        assert mq.publish("one", "c", partition=0).offset >= 0


# --- Apache Kafka: what is wrong is said at once --------------------------------------------------

# Each has the default time-out of half a minute: only the first refusal can have been the answer,
# for librdkafka would have tried until the end and called it a time-out.


@pytest.mark.parametrize(
    ("login", "words"),
    [
        ({"username": "ann", "password": "guess"}, "does not let ann in.*[Ii]nvalid"),
        ({**BOB, "password": "guess"}, "does not let bob in.*invalid credentials"),
        ({**BOB, "sasl_mechanism": "SCRAM-SHA-512"}, "supported mechanisms: PLAIN,SCRAM-SHA-256"),
        ({}, "wants a login; give username= and password="),
    ],
    ids=["plain", "scram", "mechanism", "nobody"],
)
def test_a_wrong_login_is_denied(kafka: Doors, papers: Papers, login: Options, words: str) -> None:
    with pytest.raises(penstock.Denied, match=words):
        penstock.connect(kafka.logins, ca=papers.ca, **login)


def test_an_unknown_authority_is_not_trusted(kafka: Doors, papers: Papers) -> None:
    with pytest.raises(penstock.Denied, match=r"not trusted: .*ca= names the authority"):
        penstock.connect(kafka.logins, **{**papers.trusting_ann, "ca": papers.stranger})
    with pytest.raises(penstock.Denied, match="not trusted"):
        penstock.connect(kafka.mutual, tls=True, **papers.ann)


def test_no_certificate_is_denied_where_one_is_wanted(kafka: Doors, papers: Papers) -> None:
    with pytest.raises(penstock.Denied, match="give certificate= and private_key="):
        penstock.connect(kafka.mutual, ca=papers.ca)


@pytest.mark.parametrize("door", ["logins", "mutual"])
def test_without_tls_one_is_told_that_the_server_speaks_it(kafka: Doors, door: str) -> None:
    with pytest.raises(penstock.Unavailable, match="speaks TLS: give tls=True"):
        penstock.connect(getattr(kafka, door))


def test_with_too_much_one_is_told_what_to_leave_out(kafka: Doors, papers: Papers) -> None:
    with pytest.raises(penstock.Unavailable, match="does not speak TLS; connect without"):
        penstock.connect(kafka.plain, ca=papers.ca)
    with pytest.raises(penstock.Denied, match="wants no login here"):
        penstock.connect(kafka.plain, username="ann", password="secret")


# --- files ----------------------------------------------------------------------------------------


def test_files_that_cannot_be_used_are_named(papers: Papers) -> None:
    nowhere = "127.0.0.1:1"
    for options, words in (
        ({"ca": papers.server[1]}, "server.key' holds no certificate"),
        ({"ca": "/no/such/file"}, "there is no file '/no/such/file'"),
        ({"private_key": papers.ann["private_key"]}, "private_key needs the certificate"),
        (papers.locked, "is private_key_password right"),  # and nobody is asked at the terminal
        ({**papers.locked, "private_key_password": "guess"}, "is private_key_password right"),
        ({"certificate": papers.ann["certificate"]}, "private key .*ann.pem' cannot be used"),
        ({**papers.ann, "private_key": papers.server[1]}, "do they belong together"),
        ({"sasl_mechanism": "PLAIN"}, "needs username and password"),
        ({"settings": {"security.protocol": "SSL"}}, "follows from tls, ca"),
    ):
        with pytest.raises(penstock.InvalidArgument, match=words):
            penstock.connect(nowhere, **options)


# --- queues ---------------------------------------------------------------------------------------


def test_queues_go_over_tls_to_rabbitmq(kafka: Doors, rabbit: str, papers: Papers) -> None:
    with penstock.connect(kafka.logins, amqp=rabbit, **papers.trusting_ann) as mq:
        queue, found = mq.queue(unique("work")), []
        queue.publish("a")
        message = queue.get(20)
        assert message is not None
        assert message.text == "a"
        message.ack()

        @mq.worker(queue)
        def handle(message: QueueMessage) -> None:
            found.append(message.text)

        queue.publish("b")
        eventually(lambda: found == ["b"])


def test_what_is_wrong_with_queues_over_tls_is_said_too(
    kafka: Doors, rabbit: str, papers: Papers
) -> None:
    with (
        penstock.connect(kafka.logins, amqp=rabbit, ca=papers.ca, **BOB) as mq,
        pytest.raises(penstock.Denied, match=r"[Ll]ogin was refused"),
    ):
        mq.queue("work")
    with (
        penstock.connect(kafka.plain, amqp=rabbit) as mq,
        pytest.raises(penstock.Unavailable, match="does it want tls=True"),
    ):
        mq.queue("work")
    other_name = rabbit.replace("127.0.0.1", "localhost")
    with (
        penstock.connect(kafka.logins, amqp=other_name, **papers.trusting_ann) as mq,
        pytest.raises(penstock.Denied, match="not trusted"),
    ):
        mq.queue("work")


# --- Penstock, whose Kafka door has neither yet ---------------------------------------------------


def test_a_login_is_for_the_other_doors_where_kafkas_has_none() -> None:
    here = "127.0.0.1:0"
    guest: Options = {"username": "guest", "password": "guest"}
    with penstock.open(None, kafka=here, amqp=here) as server:
        address = server.kafka or ""
        with penstock.connect(address, amqp=server.amqp, **guest) as mq:
            mq.publish("log", "a", partition=0)
            mq.queue("work").publish("a")
        wrong = {**guest, "password": "x"}
        with (
            penstock.connect(address, amqp=server.amqp, **wrong) as mq,
            pytest.raises(penstock.Denied),
        ):
            mq.queue("work")
        with pytest.raises(penstock.NotSupported, match="no logins at its Kafka door"):
            penstock.connect(address, sasl_mechanism="PLAIN", **guest)


def test_tls_with_a_server_that_has_none_says_so() -> None:
    with (
        penstock.open(None, kafka="127.0.0.1:0") as server,
        pytest.raises(penstock.Unavailable, match="does not speak TLS"),
    ):
        penstock.connect(server.kafka or "", tls=True)
