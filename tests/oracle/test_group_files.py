"""What a group of the consumer protocol leaves in __consumer_offsets: the same steps at both brokers, Kafka's records read and written
again by our codec, ours read by Kafka's dump tool."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.local_cluster import find_base_port
from barnabas_coordination.group.records import decode, encode
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.records.batch import iterate_batches, iterate_records
from tests.compat.samples import DEADLINE_S, until
from tests.oracle import apache
from tests.oracle.answers import Side
from tests.oracle.conftest import APACHE_PORT_OFFSET, SHARED, both_running
from tests.oracle.test_dump_log_segments import dump
from tests.support.clusters import ForkedCluster

GROUP = "filed"
CONSUMER_RECORDS = frozenset((3, 5, 6, 7, 8, 16))
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
INTERVAL_S = 1.1
"""A little more than the interval between two assignments."""
Record = tuple[bytes, bytes | None]


def live(side: Side) -> None:
    """A member has all, a second one gets half of it, a static one leaves for a while and returns, the second leaves for good."""
    topic = side.topic("filed-topic", 4)
    epochs: dict[str, int] = {}

    def beat(member: str, epoch: int | None = None, **named: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member, member_epoch=epochs[member] if epoch is None else epoch, **named
        )
        deadline = time.monotonic() + DEADLINE_S
        while (answer := side.call(request, version=1)).error_code in LOADING and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer.error_code == 0, (side.name, member, answer)
        epochs[member] = answer.member_epoch
        return answer

    def join(member: str, **named: Any) -> Any:
        said = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}
        return beat(member, 0, **said, **named)

    def owns(member: str, *partitions: int) -> Any:
        return beat(member, topic_partitions=[TopicPartitions(side.topic_ids[topic], list(partitions))])

    until(
        lambda: side.call(FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP])).coordinators[0].error_code == 0,
        lambda: time.sleep(0.2),
    )
    join("a", instance_id="one", rack_id="r1", server_assignor="range")
    time.sleep(INTERVAL_S)
    join("b")
    beat("a", instance_id="one")
    owns("a", 0, 1)
    beat("b")
    beat("a", -2, instance_id="one")
    join("c", instance_id="one", rack_id="r1", server_assignor="range")
    beat("b", -1)
    time.sleep(INTERVAL_S)
    beat("c", instance_id="one")


def records_of(data: Path) -> list[Record]:
    """Key and value of each record about the group, in the order in which they were written."""
    found: list[Record] = []
    for log in sorted(data.glob("__consumer_offsets-*/*.log")):
        content = log.read_bytes()
        for position, header in iterate_batches(content):
            batch = content[position : position + header.size_bytes]
            found += [(bytes(record.key or b""), record.value) for record in iterate_records(batch)]
    return [(key, value) for key, value in found if int.from_bytes(key[:2], "big") in CONSUMER_RECORDS]


@pytest.fixture(scope="module")
def files(jars: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data of Kafka and of ours, both stopped."""
    directory = tmp_path_factory.mktemp("filed")
    base_port = find_base_port()
    theirs = apache.ApacheBroker(directory / "apache", port=base_port + APACHE_PORT_OFFSET, overrides=SHARED)
    ours = ForkedCluster(directory / "barnabas", nodes=1, base_port=base_port, overrides=SHARED)
    with both_running(theirs, ours):
        for side in (Side("apache", apache.HOST, theirs.port), Side("barnabas", apache.HOST, base_port)):
            live(side)
            side.close()
    return theirs.data, ours.nodes[1].data_directory


def test_kafkas_records_are_read_and_come_out_again_byte_for_byte(files: tuple[Path, Path]) -> None:
    theirs, _ = files
    found = records_of(theirs)
    assert {int.from_bytes(key[:2], "big") for key, _ in found} == CONSUMER_RECORDS - {16}
    for key, value in found:
        record = decode(key, value)
        assert record is not None
        assert encode(record) == (key, value), record


def test_the_same_steps_leave_the_same_records(files: tuple[Path, Path]) -> None:
    """But for topic ids, hashes of the metadata and times."""
    theirs, ours = (list(map(_shown, records_of(data))) for data in files)
    assert ours == theirs


def test_kafkas_tool_reads_ours(files: tuple[Path, Path]) -> None:
    _, ours = files
    logs = [log for log in ours.glob("__consumer_offsets-*/*.log") if log.stat().st_size]
    said = dump(*logs, flags=("--offsets-decoder",))
    decoded = [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in re.findall(r"key: (\{.*?\}) payload: (.*)$", said, re.MULTILINE)
    ]
    assert [int(key["type"]) for key, _ in decoded] == [int.from_bytes(key[:2], "big") for key, _ in records_of(ours)]
    members = {
        key["data"]["memberId"]: value["data"] for key, value in decoded if key["type"] == "5" and value is not None
    }
    assert (members["a"]["instanceId"], members["a"]["rackId"], members["a"]["serverAssignor"]) == (
        "one",
        "r1",
        "range",
    )
    current = [value["data"] for key, value in decoded if key["type"] == "8" and value is not None]
    assert max(each["memberEpoch"] for each in current) >= 4
    assert any(each["memberEpoch"] == -2 for each in current)


def _shown(record: Record) -> tuple[str, str]:
    """What both must have alike."""
    found: Any = decode(*record)
    words = re.sub(r"Uuid\([^)]*\)|[A-Za-z0-9_-]{22}(?=['\":, }\]])", "<id>", repr(found))
    words = re.sub(r"metadata_hash=-?\d+", "<hash>", words)
    return type(found).__name__, re.sub(r"timestamp_ms=\d{10,}", "<time>", words)
