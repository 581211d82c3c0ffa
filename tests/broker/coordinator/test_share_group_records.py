"""Records of share groups: their layout byte by byte, what Kafka leaves out, and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.group.led_records import TargetValue
from barnabas_coordination.group.records import decode, encode
from barnabas_coordination.group.share.records import (
    Beginning,
    Begun,
    ShareAssignmentValue,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    ShareGroupValue,
    ShareMemberMetadata,
    ShareRecord,
    StatePartitions,
)
from barnabas_wire.kafka.ids import NO_OFFSET, Offset, Uuid

ONE, TWO = Uuid(bytes(15) + b"\1"), Uuid(bytes(15) + b"\2")
FLIGHTS = "08666c6967687473"
WEATHER = "0877656174686572"
GOLDEN: list[tuple[ShareRecord, str, str]] = [
    (
        ShareGroupMemberMetadataRecord(
            "grp",
            "m-1",
            ShareMemberMetadata(
                rack_id="r", client_id="cli", client_host="/127.0.0.1", topic_names=("flights", "weather")
            ),
        ),
        "000a000367727000036d2d31",
        f"0000 0272 04636c69 0b2f3132372e302e302e31 03{FLIGHTS}{WEATHER} 00",
    ),
    (
        ShareGroupMemberMetadataRecord("grp", "m-1", ShareMemberMetadata(client_id="cli", client_host="/h")),
        "000a000367727000036d2d31",
        "0000 00 04636c69 032f68 01 00",
    ),
    (
        ShareGroupMetadataRecord("grp", ShareGroupValue(5, -77)),
        "000b0003677270",
        "0000 00000005 ffffffffffffffb3 00",
    ),
    (
        ShareGroupTargetAssignmentMetadataRecord("grp", TargetValue(5, 1_700_000_000_000)),
        "000c0003677270",
        "0000 00000005 01 00 08 0000018bcfe56800",
    ),
    (
        ShareGroupTargetAssignmentMemberRecord("grp", "m-1", {ONE: (0, 1, 7)}),
        "000d000367727000036d2d31",
        f"0000 02 {ONE.hex()} 04 00000000 00000001 00000007 00 00",
    ),
    (
        ShareGroupCurrentMemberAssignmentRecord("grp", "m-1", ShareAssignmentValue(6, 5, {ONE: (0, 1)})),
        "000e000367727000036d2d31",
        f"0000 00000006 00000005 00 02 {ONE.hex()} 03 00000000 00000001 00 00",
    ),
    (
        ShareGroupStatePartitionMetadataRecord(
            "grp",
            StatePartitions(
                {ONE: Beginning("flights", {2: NO_OFFSET, 3: NO_OFFSET})},
                {ONE: Begun("flights", frozenset({0, 1}))},
                {TWO: "weather"},
            ),
        ),
        "000f0003677270",
        f"0000 02 {ONE.hex()} {FLIGHTS} 03 00000002 00000003 00 02 {ONE.hex()} {FLIGHTS} 03 00000000 00000001 00 "
        f"02 {TWO.hex()} {WEATHER} 00 00",
    ),
    (
        ShareGroupStatePartitionMetadataRecord(
            "grp", StatePartitions({ONE: Beginning("flights", {2: Offset(0), 3: Offset(7)})})
        ),
        "000f0003677270",
        f"0000 02 {ONE.hex()} {FLIGHTS} 03 00000002 00000003 01 40 11 03 0000000000000000 0000000000000007 01 01 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_a_record_has_its_layout(record: ShareRecord, key: str, value: str) -> None:
    assert tuple(data and data.hex() for data in encode(record)) == (key, value.replace(" ", ""))
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize("record", [record for record, _, _ in GOLDEN])
def test_a_tombstone_has_the_key_alone(record: ShareRecord) -> None:
    gone = record._replace(value=None)
    key, value = encode(gone)
    assert value is None
    assert decode(key, None) == gone


@settings(max_examples=300)
@given(st.sampled_from(GOLDEN), st.data())
def test_hostile_bytes_are_corrupt_and_nothing_else(golden: tuple[ShareRecord, str, str], data: st.DataObject) -> None:
    _, key, value = golden
    raw = bytearray.fromhex(value)
    at = data.draw(st.integers(0, len(raw) - 1))
    mutated = raw[:at] + data.draw(st.binary(max_size=6)) + raw[at + data.draw(st.integers(0, 3)) :]
    try:
        decode(bytes.fromhex(key), bytes(mutated))
    except CorruptRecord:
        return
