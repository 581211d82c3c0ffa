"""Records of consumer groups: the bytes that the generated classes of Kafka 4.4.0's group coordinator write, and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.group.consumer.records import (
    AssignmentValue,
    ClassicOffer,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
    GroupValue,
    MemberMetadata,
    MemberState,
    RegexValue,
)
from barnabas_coordination.group.led_records import TargetValue
from barnabas_coordination.group.records import decode, encode
from barnabas_wire.kafka.ids import Uuid

NINE, TEN = (Uuid(bytes.fromhex("0102030405060708") + number.to_bytes(8, "big")) for number in (9, 10))
GOLDEN: list[tuple[ConsumerRecord, str, str]] = [
    (
        ConsumerGroupMetadataRecord("grp", GroupValue(5, -77)),
        "00030003677270",
        "000000000005010008ffffffffffffffb3",
    ),
    (ConsumerGroupMetadataRecord("grp", GroupValue(5)), "00030003677270", "00000000000500"),
    (
        ConsumerGroupMemberMetadataRecord(
            "grp",
            "m-1",
            MemberMetadata(
                instance_id="inst",
                client_id="cli",
                client_host="/127.0.0.1",
                topic_names=("a", "b"),
                topic_regex="f.*",
                rebalance_timeout_ms=300_000,
                server_assignor="uniform",
            ),
        ),
        "0005000367727000036d2d31",
        "000005696e73740004636c690b2f3132372e302e302e31030261026204662e2a000493e008756e69666f726d00",
    ),
    (
        ConsumerGroupMemberMetadataRecord(
            "grp",
            "m-1",
            MemberMetadata(
                client_id="cli",
                client_host="/h",
                topic_names=("a",),
                classic=ClassicOffer(session_timeout_ms=45_000, protocols=(("range", b"\x00\x01\x02"),)),
            ),
        ),
        "0005000367727000036d2d31",
        "0000000004636c69032f6802026100ffffffff00010012010000afc8020672616e6765040001020000",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataRecord("grp", TargetValue(5, 1_700_000_000_000)),
        "00060003677270",
        "0000000000050100080000018bcfe56800",
    ),
    (ConsumerGroupTargetAssignmentMetadataRecord("grp", TargetValue(5)), "00060003677270", "00000000000500"),
    (
        ConsumerGroupTargetAssignmentMemberRecord("grp", "m-1", {NINE: (0, 1, 7)}),
        "0007000367727000036d2d31",
        "00000201020304050607080000000000000009040000000000000001000000070000",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentRecord(
            "grp",
            "m-1",
            AssignmentValue(6, 5, MemberState.UNREVOKED_PARTITIONS, {NINE: {0: 5, 1: 6}}, {TEN: {3: 4}}),
        ),
        "0008000367727000036d2d31",
        "0000000000060000000501020102030405060708000000000000000903000000000000000101000903000000050000000602010203040506"
        "0708000000000000000a0200000003010005020000000400",
    ),
    (
        ConsumerGroupRegularExpressionRecord("grp", "f.*", RegexValue(("fa", "fb"), 44, 1_700_000_000_000)),
        "001000036772700003662e2a",
        "000003036661036662000000000000002c0000018bcfe5680000",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_a_record_has_kafkas_bytes(record: ConsumerRecord, key: str, value: str) -> None:
    assert tuple(data and data.hex() for data in encode(record)) == (key, value)
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize("record", [record for record, _, _ in GOLDEN])
def test_a_tombstone_has_the_key_alone(record: ConsumerRecord) -> None:
    gone = record._replace(value=None)  # type: ignore[call-arg]
    key, value = encode(gone)
    assert value is None
    assert decode(key, None) == gone


def test_partition_metadata_of_older_brokers_is_only_taken_away() -> None:
    key, value = encode(ConsumerGroupPartitionMetadataRecord("grp"))
    assert (key.hex(), value) == ("00040003677270", None)
    assert decode(key, None) == ConsumerGroupPartitionMetadataRecord("grp")
    assert decode(key, b"\x00\x00\x01\x00") == ConsumerGroupPartitionMetadataRecord("grp", is_tombstone=False)


def test_partitions_without_assignment_epochs_have_the_members() -> None:
    raw = bytes.fromhex(
        "00000000000600000005000201020304050607080000000000000009030000000000000001000100"  # as Kafka before 4.3 wrote it
    )
    assert decode(bytes.fromhex("0008000367727000036d2d31"), raw) == ConsumerGroupCurrentMemberAssignmentRecord(
        "grp", "m-1", AssignmentValue(6, 5, MemberState.STABLE, {NINE: {0: 6, 1: 6}}, {})
    )


def test_a_state_of_a_later_version_is_unknown_and_a_value_version_is_an_error() -> None:
    key = bytes.fromhex("0008000367727000036d2d31")
    found = decode(key, bytes.fromhex("000000000006000000050801010000"[:-2]))
    assert isinstance(found, ConsumerGroupCurrentMemberAssignmentRecord)
    assert found.value is not None
    assert found.value.state is MemberState.UNKNOWN
    with pytest.raises(CorruptRecord, match="version 1 is not known"):
        decode(key, bytes.fromhex("0001000000060000000500010100"))


@settings(max_examples=300)
@given(st.sampled_from(GOLDEN), st.data())
def test_hostile_bytes_are_corrupt_and_nothing_else(
    golden: tuple[ConsumerRecord, str, str], data: st.DataObject
) -> None:
    _, key, value = golden
    raw = bytearray.fromhex(value)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    try:
        decode(bytes.fromhex(key), bytes(raw[:cut]))
    except CorruptRecord:
        return
