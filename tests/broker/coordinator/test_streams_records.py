"""Records of Streams groups: the bytes that the generated classes of Kafka 4.4.0's group coordinator write, and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.group.led_records import TargetValue
from barnabas_coordination.group.records import decode, encode
from barnabas_coordination.group.streams.records import (
    AssignmentValue,
    Endpoint,
    GroupValue,
    MemberMetadata,
    MemberState,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
    StreamsRecord,
)
from barnabas_coordination.group.streams.tasks import HeldTasks, Task, Tasks
from barnabas_coordination.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology

GOLDEN: list[tuple[StreamsRecord, str, str]] = [
    (
        StreamsGroupMetadataRecord("grp", GroupValue(5, -77, 2, (("num.standby.replicas", "1"),))),
        "00110003677270",
        "000000000005ffffffffffffffb302000400000002011902156e756d2e7374616e6462792e7265706c69636173023100",
    ),
    (
        StreamsGroupMetadataRecord("grp", GroupValue(5)),
        "00110003677270",
        "000000000005000000000000000000",
    ),
    (
        StreamsGroupMemberMetadataRecord(
            "grp",
            "m-1",
            MemberMetadata(
                instance_id="inst",
                rack_id="r",
                client_id="cli",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=300_000,
                topology_epoch=2,
                process_id="p",
                endpoint=Endpoint("h", 65_000),
                client_tags=(("zone", "a"),),
            ),
        ),
        "0013000367727000036d2d31",
        "000005696e7374027204636c690b2f3132372e302e302e31000493e0000000020270010268fde80002057a6f6e6502610000",
    ),
    (
        StreamsGroupMemberMetadataRecord(
            "grp", "m-1", MemberMetadata(client_id="cli", client_host="/h", process_id="p")
        ),
        "0013000367727000036d2d31",
        "0000000004636c69032f68ffffffff000000000270ff0100",
    ),
    (
        StreamsGroupTargetAssignmentMetadataRecord("grp", TargetValue(5, 1_700_000_000_000)),
        "00140003677270",
        "0000000000050100080000018bcfe56800",
    ),
    (
        StreamsGroupTargetAssignmentMetadataRecord("grp", TargetValue(5)),
        "00140003677270",
        "00000000000500",
    ),
    (
        StreamsGroupTargetAssignmentMemberRecord(
            "grp",
            "m-1",
            Tasks(frozenset({Task("0", 0), Task("0", 1), Task("0", 7)}), frozenset({Task("1", 2)})),
        ),
        "0015000367727000036d2d31",
        "000002023004000000000000000100000007000202310200000002000100",
    ),
    (
        StreamsGroupCurrentMemberAssignmentRecord(
            "grp",
            "m-1",
            AssignmentValue(
                6,
                5,
                MemberState.UNREVOKED_TASKS,
                HeldTasks({Task("0", 0): 5, Task("0", 1): 6}, frozenset({Task("0", 3)})),
                HeldTasks({Task("1", 3): 4}, frozenset({Task("1", 2)})),
            ),
        ),
        "0016000367727000036d2d31",
        "0000000000060000000502020230030000000000000001010009030000000500000006020230020000000300010202310200"
        "00000301000502000000040202310200000002000100",
    ),
    (
        StreamsGroupTopologyRecord(
            "grp",
            Topology(
                3,
                (
                    Subtopology(
                        subtopology_id="0",
                        source_topics=("in",),
                        changelogs=(InternalTopic("c", 0, 3, (("cleanup.policy", "compact"),)),),
                        repartition_sinks=("rep",),
                        repartition_sources=(InternalTopic("rep2", 4),),
                        copartitions=(CopartitionGroup((0,), (), (0,)),),
                    ),
                ),
            ),
        ),
        "00170003677270",
        "0000000000030202300203696e01020263000000000003020f636c65616e75702e706f6c69637908636f6d70616374000002"
        "0472657002057265703200000004000001000202000001020000000000",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_a_record_has_kafkas_bytes(record: StreamsRecord, key: str, value: str) -> None:
    assert tuple(data and data.hex() for data in encode(record)) == (key, value)
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize("record", [record for record, _, _ in GOLDEN])
def test_a_tombstone_has_the_key_alone(record: StreamsRecord) -> None:
    gone = record._replace(value=None)
    key, value = encode(gone)
    assert value is None
    assert decode(key, None) == gone


def test_what_a_plugin_did_with_descriptions_is_read_and_forgotten() -> None:
    written = bytes.fromhex("0000000000050000000000000001030004000000000204fffffffe030400000003")
    assert decode(bytes.fromhex("00110003677270"), written) == StreamsGroupMetadataRecord("grp", GroupValue(5, 1, 0))


def test_a_state_of_a_later_version_is_unknown() -> None:
    found = decode(
        bytes.fromhex("0016000367727000036d2d31"), bytes.fromhex("00000000000600000005090101010101010000"[:-2])
    )
    assert isinstance(found, StreamsGroupCurrentMemberAssignmentRecord)
    assert found.value is not None
    assert found.value.state is MemberState.UNKNOWN


@settings(max_examples=300)
@given(st.sampled_from(GOLDEN), st.data())
def test_hostile_bytes_are_corrupt_and_nothing_else(
    golden: tuple[StreamsRecord, str, str], data: st.DataObject
) -> None:
    _, key, value = golden
    raw = bytearray.fromhex(value)
    at = data.draw(st.integers(0, len(raw) - 1))
    mutated = raw[:at] + data.draw(st.binary(max_size=6)) + raw[at + data.draw(st.integers(0, 3)) :]
    try:
        decode(bytes.fromhex(key), bytes(mutated))
    except CorruptRecord:
        return
