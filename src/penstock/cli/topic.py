"""`penstock topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import sys
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import topic_names
from penstock.cli.connection import (
    DEFAULT_BOOTSTRAP,
    TIMEOUT_S,
    Bootstrap,
    Json,
    admin_client,
    broker_errors,
    each_result,
    result_of,
)
from penstock.cli.offsets import log_ends
from penstock.cli.output import (
    Columns,
    Failure,
    confirm,
    emit_json,
    emit_rows,
    emit_table,
    family,
    is_given,
    say,
)
from penstock.cli.settings import Config, Unset, change_settings, settings_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicMetadata

MOST_PARTITIONS = 100_000  # that librdkafka asks for

app = family("Create, list, describe, alter and delete topics.")

Name = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, callback=is_given)
]
Names = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", autocompletion=topic_names, callback=is_given)
]


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=MOST_PARTITIONS,
            metavar="N",
            help="The broker decides if not given.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", min=1, max=10_000, metavar="N", help="Copies of each partition."
        ),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic that is there as it is.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Create topics.

    \b
    Examples:
      penstock topic create orders
      penstock topic create orders payments --partitions 12
      penstock topic create prices --config cleanup.policy=compact --config retention.ms=86400000
    """
    settings = settings_of(config)
    admin = admin_client(bootstrap)
    from confluent_kafka.admin import NewTopic

    with broker_errors(bootstrap):
        wanted = [
            NewTopic(name, partitions or -1, replication_factor or -1, config=dict(settings))
            for name in names
        ]
        futures = admin.create_topics(wanted, request_timeout=TIMEOUT_S)
    if if_not_exists:
        for name in [name for name, creation in futures.items() if _is_there(creation)]:
            say(f"{name} exists already")
            del futures[name]
    for name in each_result(futures, list(futures), bootstrap, "cannot create"):
        topic = _metadata_with(admin, bootstrap, [name])[name]
        say(f"created {name} with {_count(len(topic.partitions), 'partition')}")
    if json:
        topics = _metadata_with(admin, bootstrap, names)
        emit_json([_summary(topics[name]) for name in names])


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Show the broker's own topics too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List topics.

    \b
    Examples:
      penstock topic list
      penstock topic list --json | jq -r '.[].name'
    """
    topics = _metadata(admin_client(bootstrap), bootstrap)
    shown = [_summary(topics[name]) for name in sorted(topics) if internal or name[:2] != "__"]
    columns: Columns = {
        "topic": itemgetter("name"),
        "partitions": itemgetter("partitions"),
        "replicas": itemgetter("replicas"),
    }
    nothing = "there are no topics; create one with `penstock topic create NAME`"
    emit_rows(shown, columns, as_json=json, nothing=nothing)


@app.command()
def describe(
    names: Names,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show partitions, offsets and settings of topics.

    \b
    Examples:
      penstock topic describe orders
      penstock topic describe orders --json | jq '.[0].partitions[].end'
    """
    admin = admin_client(bootstrap)
    topics = _metadata(admin, bootstrap)
    described = [_described(admin, bootstrap, _known(topics, name)) for name in names]
    if json:
        emit_json(described)
        return
    for topic in described:
        emit_table(
            ("partition", "leader", "replicas", "in sync", "start", "end", "records"),
            [
                [
                    part["partition"],
                    part["leader"],
                    ",".join(map(str, part["replicas"])),
                    ",".join(map(str, part["in_sync"])),
                    part["start"],
                    part["end"],
                    part["end"] - part["start"],
                ]
                for part in topic["partitions"]
            ],
            title=topic["name"],
        )
        for name, value in sorted(topic["config"].items()):
            sys.stdout.write(f"  {name}={value}\n")


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=MOST_PARTITIONS,
            metavar="N",
            help="Grow to this many.",
        ),
    ] = None,
    config: Config = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the settings of a topic, or give it more partitions.

    \b
    Examples:
      penstock topic alter orders --config retention.ms=3600000
      penstock topic alter orders --unset retention.ms
      penstock topic alter orders --partitions 8
    """
    changes = settings_of(config)
    if partitions is None and not changes and not unset:
        raise typer.BadParameter("say what to change: --partitions, --config or --unset")
    admin = admin_client(bootstrap)
    if changes or unset:
        change_settings(admin, bootstrap, "TOPIC", name, changes, unset or ())
    if partitions is not None:
        from confluent_kafka.admin import NewPartitions

        what = f"cannot change {name}"
        with broker_errors(bootstrap, what):
            [future] = admin.create_partitions([NewPartitions(name, partitions)]).values()
        result_of(future, bootstrap, what)
    say(f"changed {name}")


@app.command()
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics and everything in them.

    \b
    Examples:
      penstock topic delete orders
      penstock topic delete orders payments --yes
    """
    confirm(f"Delete {', '.join(names)} with all records?", yes)
    admin = admin_client(bootstrap)
    with broker_errors(bootstrap):
        futures = admin.delete_topics(names, request_timeout=TIMEOUT_S)
    for name in each_result(futures, names, bootstrap, "cannot delete"):
        say(f"deleted {name}")


def _metadata(admin: AdminClient, bootstrap: str) -> dict[str, TopicMetadata]:
    with broker_errors(bootstrap):
        topics: dict[str, TopicMetadata] = admin.list_topics(timeout=TIMEOUT_S).topics
        return topics


def _metadata_with(
    admin: AdminClient, bootstrap: str, names: list[str]
) -> dict[str, TopicMetadata]:
    """Apache Kafka tells of a new topic a moment after it has created it, so ask again."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        topics = _metadata(admin, bootstrap)
        missing = [name for name in names if name not in topics or not topics[name].partitions]
        if not missing:
            return topics
        if time.monotonic() > deadline:
            raise Failure(f"{missing[0]} was created, but the broker does not tell of it yet")
        time.sleep(0.05)


def _is_there(creation: Any) -> bool:
    """Whether a topic could not be created because there is one."""
    failure = creation.exception()  # which comes within the request's time
    return bool(failure and failure.args[0].name() == "TOPIC_ALREADY_EXISTS")


def _known(topics: dict[str, TopicMetadata], name: str) -> TopicMetadata:
    if name not in topics:
        raise Failure(f"there is no topic {name}; `penstock topic list` shows what there is")
    return topics[name]


def _summary(topic: TopicMetadata) -> dict[str, Any]:
    replicas = max((len(part.replicas) for part in topic.partitions.values()), default=0)
    return {"name": topic.topic, "partitions": len(topic.partitions), "replicas": replicas}


def _described(admin: AdminClient, bootstrap: str, topic: TopicMetadata) -> dict[str, Any]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    name = str(topic.topic)
    resource = ConfigResource(ResourceType.TOPIC, name)
    with broker_errors(bootstrap):
        [future] = admin.describe_configs([resource]).values()
    config = result_of(future, bootstrap, f"cannot describe {name}")
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    ends = log_ends(admin, bootstrap, [(name, number) for number in topic.partitions])
    partitions = []
    for number, part in sorted(topic.partitions.items()):
        start, end = ends[name, number]
        partitions.append(
            {
                "partition": number,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "in_sync": list(part.isrs),
                "start": start,
                "end": end,
            }
        )
    settings = {key: entry.value for key, entry in config.items() if entry.source == own}
    return {"name": name, "partitions": partitions, "config": settings}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
