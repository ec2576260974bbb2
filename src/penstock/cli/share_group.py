"""Share groups for `penstock group`: what librdkafka's admin client cannot ask.

Plain Kafka requests over a socket of our own, encoded by kio: find the coordinator, describe the
group and where it stands, move it. The versions are those that every broker with share groups has.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.connection import TIMEOUT_S, check_reachable
from penstock.cli.output import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[str, int]  # topic and partition


class _Closed(OSError):
    """What brokers without share groups do when they are asked for them."""


class Coordinator:
    """A connection to the broker that looks after a group."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, answer: Any) -> Any:
        """Send a request of kio's; `answer` is the class of its response."""
        from kio.serial import entity_reader, entity_writer
        from kio.static.primitive import i16, i32

        header = request.__header_schema__(
            request_api_key=i16(request.__api_key__),
            request_api_version=i16(request.__version__),
            correlation_id=i32(1),
            client_id="penstock",
        )
        out = io.BytesIO()
        entity_writer(type(header))(out, header)
        entity_writer(type(request))(out, request)
        self._socket.sendall(struct.pack(">i", out.tell()) + out.getvalue())
        data = self._read(struct.unpack(">i", self._read(4))[0])
        _, size = entity_reader(answer.__header_schema__)(data, 0)
        return entity_reader(answer)(data, size)[0]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self._socket.recv(size - len(data))
            if not got:
                raise _Closed("the broker closed the connection")
            data += got
        return data


@contextmanager
def coordinator_of(bootstrap: str, group: str) -> Iterator[Coordinator]:
    """The group's coordinator; failures of the network are said in words."""
    from kio.schema.find_coordinator.v4 import FindCoordinatorRequest, FindCoordinatorResponse

    check_reachable(bootstrap)
    opened: list[Coordinator] = []
    try:
        host, _, port = bootstrap.split(",")[0].strip().rpartition(":")
        opened.append(Coordinator(host.strip("[]"), int(port)))
        request = FindCoordinatorRequest(coordinator_keys=(group,))
        [found] = opened[0].ask(request, FindCoordinatorResponse).coordinators
        _check(found, f"cannot find the coordinator of {group}")
        opened.append(Coordinator(found.host, found.port))
        yield opened[1]
    except OSError as failure:
        raise Failure(f"the broker at {bootstrap} does not answer ({failure})") from None
    finally:
        for one in opened:
            one.close()


def share_groups_at(host: str, port: int) -> dict[str, str]:
    """The share groups that one broker looks after, with their states."""
    from kio.schema.list_groups.v5 import ListGroupsRequest, ListGroupsResponse

    broker = Coordinator(host, port)
    try:
        request = ListGroupsRequest(states_filter=(), types_filter=("share",))
        answer = broker.ask(request, ListGroupsResponse)
    except _Closed:
        return {}
    except OSError as failure:
        raise Failure(f"the broker at {host}:{port} does not answer ({failure})") from None
    finally:
        broker.close()
    _check(answer, "cannot list share groups")
    return {group.group_id: group.group_state for group in answer.groups}


def describe_share_group(bootstrap: str, group: str) -> dict[str, Any] | None:
    """The group's state, members and where it stands; None when it is no share group."""
    from kio.schema.describe_share_group_offsets import v0 as offsets
    from kio.schema.share_group_describe import v1 as describe
    from kio.schema.types import GroupId

    with coordinator_of(bootstrap, group) as coordinator:
        request = describe.ShareGroupDescribeRequest(
            group_ids=(GroupId(group),), include_authorized_operations=False
        )
        try:
            [found] = coordinator.ask(request, describe.ShareGroupDescribeResponse).groups
        except _Closed:
            return None
        if found.error_code.name == "group_id_not_found":
            return None
        _check(found, f"cannot describe {group}")
        asked = offsets.request.DescribeShareGroupOffsetsRequestGroup(
            group_id=GroupId(group), topics=None
        )
        places = offsets.DescribeShareGroupOffsetsRequest(groups=(asked,))
        [at] = coordinator.ask(places, offsets.DescribeShareGroupOffsetsResponse).groups
        _check(at, f"cannot read the offsets of {group}")
    return {
        "group": group,
        "state": found.group_state,
        "protocol": "Share",
        "assignor": found.assignor_name,
        "members": [_member(member) for member in found.members],
        "starts": {
            (topic.topic_name, partition.partition_index): partition.start_offset
            for topic in at.topics
            for partition in topic.partitions
        },
    }


def _member(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": None,
        "client": member.client_id,
        "host": member.client_host,
        "partitions": sorted(
            f"{topic.topic_name}-{number}"
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        ),
    }


def move_share_group(bootstrap: str, group: str, targets: Mapping[Place, int]) -> None:
    """Have the group begin anew from these offsets."""
    from kio.schema.alter_share_group_offsets import v0
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    topics: dict[str, list[Any]] = {}
    for (topic, number), offset in targets.items():
        partition = v0.request.AlterShareGroupOffsetsRequestPartition(
            partition_index=i32(number), start_offset=i64(offset)
        )
        topics.setdefault(topic, []).append(partition)
    wanted = tuple(
        v0.request.AlterShareGroupOffsetsRequestTopic(
            topic_name=TopicName(name), partitions=tuple(partitions)
        )
        for name, partitions in topics.items()
    )
    request = v0.AlterShareGroupOffsetsRequest(group_id=GroupId(group), topics=wanted)
    with coordinator_of(bootstrap, group) as coordinator:
        answer = coordinator.ask(request, v0.AlterShareGroupOffsetsResponse)
    _check(answer, f"cannot reset {group}")
    for topic in answer.responses:
        for partition in topic.partitions:
            where = f"{topic.topic_name}-{partition.partition_index}"
            _check(partition, f"cannot reset {group}: {where}")


_MEANINGS = {
    "non_empty_group": "it still has members; stop them first",
    "group_id_not_found": "there is no such group",
    "unsupported_version": "the broker has no share groups",
}


def _check(answer: Any, what: str) -> None:
    error = answer.error_code.name
    if error != "none":
        told = getattr(answer, "error_message", None)
        words = _MEANINGS.get(error) or told or error.replace("_", " ")
        raise Failure(f"{what}: {words}")
