"""`penstock group`: list, describe, reset and delete groups, of consumers and of sharers."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import group_names
from penstock.cli.connection import (
    DEFAULT_BOOTSTRAP,
    TIMEOUT_S,
    Bootstrap,
    Json,
    admin_client,
    broker_errors,
    each_result,
    meaning_of,
    result_of,
)
from penstock.cli.offsets import log_ends, look_up
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
from penstock.cli.share_group import describe_share_group, move_share_group, share_groups_at
from penstock.cli.when import to_timestamp_ms

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = family("List, describe, alter, reset and delete consumer groups and share groups.")

Name = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=group_names, callback=is_given)
]
Names = Annotated[
    list[str], typer.Argument(metavar="GROUP...", autocompletion=group_names, callback=is_given)
]


@app.command("list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List groups and their states.

    \b
    Examples:
      penstock group list
      penstock group list --json | jq -r '.[] | select(.state == "Empty").group'
    """
    admin = admin_client(bootstrap)
    with broker_errors(bootstrap):
        future = admin.list_consumer_groups(request_timeout=TIMEOUT_S)
        brokers = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
    found = result_of(future, bootstrap, "cannot list groups")
    shares: dict[str, str] = {}
    for broker in brokers:
        shares.update(share_groups_at(str(broker.host), broker.port))
    rows = {group.group_id: (_word(group.state), _word(group.type)) for group in found.valid}
    rows.update({name: (state, "Share") for name, state in shares.items()})
    shown = [
        {"group": name, "state": state, "protocol": protocol}
        for name, (state, protocol) in sorted(rows.items())
    ]
    columns: Columns = {name: itemgetter(name) for name in ("group", "state", "protocol")}
    emit_rows(shown, columns, as_json=json, nothing="there are no groups")


@app.command()
def describe(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show the members of a group, its committed offsets and its lag.

    Of a share group, committed is where it starts: all before that is settled.

    \b
    Examples:
      penstock group describe billing
      penstock group describe billing --json | jq '[.offsets[].lag] | add'
    """
    admin = admin_client(bootstrap)
    share = describe_share_group(bootstrap, name)
    if share is None:
        group = _described(admin, bootstrap, name)
    else:
        group = _described_share(admin, bootstrap, share)
    if json:
        emit_json(group)
        return
    emit_table(
        ("topic", "partition", "committed", "end", "lag", "member"),
        [list(row.values()) for row in group["offsets"]],
        title=f"{name}: {group['state']}, {group['protocol']} protocol",
    )
    if group["members"]:
        emit_table(
            ("member", "client", "host", "partitions"),
            [
                [m["member"], m["client"], m["host"], " ".join(m["partitions"])]
                for m in group["members"]
            ],
        )


@app.command()
def reset(
    name: Name,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="The topic, or topic:partition.",
            callback=is_given,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="WHERE", help="earliest, latest, an offset, +N, -N, or a time."
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Move the committed offsets of a group that has no members, or where a share group starts.

    \b
    Examples:
      penstock group reset billing --topic orders --to earliest
      penstock group reset billing --topic orders --to 2026-05-01T12:00
      penstock group reset billing --topic orders --to 15m        what came in the last 15 minutes
      penstock group reset billing --topic orders:3 --to 1042
      penstock group reset billing --topic orders --to -100       the last 100 once more
    """
    admin = admin_client(bootstrap)
    places = _places(admin, bootstrap, topic)
    share = describe_share_group(bootstrap, name)
    if share is None:
        now = _committed(admin, bootstrap, name) if to[:1] in "+-" else {}
        targets = _targets(admin, bootstrap, now, places, to)
        _commit(admin, bootstrap, name, targets)
    else:
        targets = _targets(admin, bootstrap, share["starts"], places, to)
        move_share_group(bootstrap, name, targets)
    rows = [(*place, offset) for place, offset in targets.items()]
    if json:
        emit_json([dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows])
    else:
        emit_table(("topic", "partition", "offset"), rows)


def _commit(
    admin: AdminClient, bootstrap: str, name: str, targets: dict[tuple[str, int], int]
) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    wanted = [TopicPartition(*place, offset) for place, offset in targets.items()]
    what = f"cannot reset {name}"
    with broker_errors(bootstrap, what):
        request = [ConsumerGroupTopicPartitions(name, wanted)]
        [future] = admin.alter_consumer_group_offsets(request).values()
    for place in result_of(future, bootstrap, what).topic_partitions:
        if place.error is not None:
            raise Failure(f"{what} in {place.topic}-{place.partition}: {meaning_of(place.error)}")


@app.command()
def alter(
    name: Name,
    config: Config = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the settings of a group, which it may have before it has members.

    \b
    Examples:
      penstock group alter billing --config share.auto.offset.reset=earliest
      penstock group alter billing -c share.delivery.count.limit=3 \\
        -c errors.deadletterqueue.topic.name=dlq.billing
      penstock group alter billing --unset share.delivery.count.limit
    """
    changes = settings_of(config)
    if not changes and not unset:
        raise typer.BadParameter("say what to change: --config or --unset")
    change_settings(admin_client(bootstrap), bootstrap, "GROUP", name, changes, unset or ())
    say(f"changed {name}")


@app.command()
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups that have no members, with their offsets.

    \b
    Example:
      penstock group delete billing --yes
    """
    confirm(f"Delete {', '.join(names)} with all committed offsets?", yes)
    admin = admin_client(bootstrap)
    with broker_errors(bootstrap):
        futures = admin.delete_consumer_groups(names, request_timeout=TIMEOUT_S)
    for name in each_result(futures, names, bootstrap, "cannot delete"):
        say(f"deleted {name}")


def _word(state: Any) -> str:
    """`PREPARING_REBALANCING` -> `PreparingRebalancing`."""
    return "".join(part.capitalize() for part in state.name.split("_"))


def _described(admin: AdminClient, bootstrap: str, name: str) -> dict[str, Any]:
    what = f"cannot describe {name}"
    with broker_errors(bootstrap, what):
        [future] = admin.describe_consumer_groups([name], request_timeout=TIMEOUT_S).values()
    group = result_of(future, bootstrap, what)
    committed = _committed(admin, bootstrap, name)
    if group.state.name == "DEAD" and not committed:
        raise Failure(f"there is no group {name}; `penstock group list` shows what there is")
    members, owners = [], {}
    for member in group.members:
        mine = [(p.topic, p.partition) for p in member.assignment.topic_partitions]
        owners.update(dict.fromkeys(mine, member.member_id))
        members.append(
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [f"{topic}-{number}" for topic, number in sorted(mine)],
            }
        )
    places = sorted(set(committed) | set(owners))
    ends = log_ends(admin, bootstrap, places)
    offsets = []
    for place in places:
        at, end = committed.get(place), ends[place][1]
        lag = None if at is None else max(0, end - at)
        row = (*place, at, end, lag, owners.get(place))
        names = ("topic", "partition", "committed", "end", "lag", "member")
        offsets.append(dict(zip(names, row, strict=True)))
    return {
        "group": name,
        "state": _word(group.state),
        "protocol": _word(group.type),
        "assignor": group.partition_assignor,
        "members": members,
        "offsets": offsets,
    }


def _described_share(admin: AdminClient, bootstrap: str, share: dict[str, Any]) -> dict[str, Any]:
    """A share group as other groups are shown; a partition has any number of members."""
    starts: dict[tuple[str, int], int] = share.pop("starts")
    ends = log_ends(admin, bootstrap, sorted(starts))
    share["offsets"] = [
        {
            "topic": topic,
            "partition": number,
            "committed": start if start >= 0 else None,
            "end": ends[topic, number][1],
            "lag": max(0, ends[topic, number][1] - start) if start >= 0 else None,
            "member": None,
        }
        for (topic, number), start in sorted(starts.items())
    ]
    return share


def _committed(admin: AdminClient, bootstrap: str, name: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    what = f"cannot read the offsets of {name}"
    with broker_errors(bootstrap, what):
        request = [ConsumerGroupTopicPartitions(name)]
        [future] = admin.list_consumer_group_offsets(request).values()
    found = result_of(future, bootstrap, what).topic_partitions
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def _places(admin: AdminClient, bootstrap: str, topic: str) -> list[tuple[str, int]]:
    """The partitions that `orders` or `orders:3` means."""
    name, _, number = topic.partition(":")
    with broker_errors(bootstrap):
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
    if name not in topics:
        raise Failure(f"there is no topic {name}; `penstock topic list` shows what there is")
    partitions = sorted(topics[name].partitions)
    if number:
        if not number.isdecimal() or int(number) not in partitions:
            raise Failure(f"topic {name} has no partition {number}")
        partitions = [int(number)]
    return [(name, partition) for partition in partitions]


def _targets(
    admin: AdminClient,
    bootstrap: str,
    now: dict[tuple[str, int], int],
    places: list[tuple[str, int]],
    to: str,
) -> dict[tuple[str, int], int]:
    """The new offset of each partition, kept within its log; `now` is where the group stands."""
    from confluent_kafka.admin import OffsetSpec

    ends = log_ends(admin, bootstrap, places)
    if to == "earliest":
        return {place: ends[place][0] for place in places}
    if to == "latest":
        return {place: ends[place][1] for place in places}
    if to[:1] in "+-" and to[1:].isdecimal():
        wanted = {place: now.get(place, ends[place][1]) + int(to) for place in places}
    elif to.isdecimal() and len(to) < 13:  # thirteen digits are milliseconds since 1970
        wanted = {place: int(to) for place in places}
    else:
        words = "earliest, latest, an offset, +N, -N, or a time like 2026-05-01T12:00 or 15m (ago)"
        spec = OffsetSpec.for_timestamp(to_timestamp_ms(to, words, "--to"))
        found = look_up(admin, bootstrap, places, spec)
        wanted = {p: found[p] if found[p] >= 0 else ends[p][1] for p in places}
    return {p: min(max(wanted[p], ends[p][0]), ends[p][1]) for p in places}
