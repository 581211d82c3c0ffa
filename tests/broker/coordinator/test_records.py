"""Records of __consumer_offsets: golden bytes, kio as second implementation, hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.group.records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberValue,
    OffsetCommitRecord,
    OffsetValue,
    decode,
    encode,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, ZERO_UUID, Epoch, Offset, Uuid
from tests.broker.coordinator.kafka_schemas import GROUP_METADATA_VALUE, OFFSET_COMMIT_VALUE, encode_value

OFFSET = OffsetCommitRecord("grp", "flights", 3, OffsetValue(Offset(42), Epoch(7), "note", 1_700_000_000_000))
OFFSET_KEY = bytes.fromhex("000100036772700007666c696768747300000003")
OFFSET_V3 = bytes.fromhex("0003000000000000002a0000000700046e6f74650000018bcfe56800")
GROUP = GroupMetadataRecord(
    "grp",
    GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m-1",
        state_timestamp_ms=1_700_000_000_000,
        members=(MemberValue("m-1", None, "cli", "/127.0.0.1", 300_000, 45_000, b"\x00\x01", b"\xff"),),
    ),
)
GROUP_KEY = bytes.fromhex("00020003677270")
GROUP_V3 = bytes.fromhex(
    "0003" "0008636f6e73756d6572" "00000005" "000572616e6765" "00036d2d31" "0000018bcfe56800" "00000001"
    "00036d2d31" "ffff" "0003636c69" "000a2f3132372e302e302e31" "000493e0" "0000afc8" "000000020001" "00000001ff"
)  # fmt: skip


def test_an_offset_is_written_in_kafkas_version_4() -> None:
    assert OFFSET.value is not None
    named = OFFSET._replace(value=OFFSET.value._replace(topic_id=Uuid(bytes(range(16)))))
    # These bytes are those that the OffsetCommitValue of Kafka 4.2.1's group coordinator writes.
    plain = bytes.fromhex("0004000000000000002a00000007056e6f74650000018bcfe56800")
    for record, value in ((OFFSET, plain + b"\x00"), (named, plain + b"\x01\x00\x10" + bytes(range(16)))):
        assert encode(record) == (OFFSET_KEY, value)
        assert decode(OFFSET_KEY, value) == record
    assert decode(OFFSET_KEY, OFFSET_V3) == OFFSET


def test_an_offset_with_its_own_retention_is_written_in_version_1() -> None:
    record = OffsetCommitRecord("g", "t", 0, OffsetValue(Offset(1), NO_EPOCH, "", 2, 3))
    key, value = encode(record)
    assert value == bytes.fromhex("00010000000000000001000000000000000000020000000000000003")
    assert decode(key, value) == record


def test_a_group_is_written_in_kafkas_version_3() -> None:
    assert encode(GROUP) == (GROUP_KEY, GROUP_V3)


def test_tombstones_have_no_value() -> None:
    for record in (OFFSET._replace(value=None), GROUP._replace(value=None)):
        key, value = encode(record)
        assert value is None
        assert decode(key, value) == record


def test_key_version_0_of_offsets_is_read_like_version_1() -> None:
    assert decode(b"\x00\x00" + OFFSET_KEY[2:], OFFSET_V3) == OFFSET


@pytest.mark.parametrize("key_version", [9, 18, 24])
def test_records_of_newer_protocols_are_not_ours(key_version: int) -> None:
    assert decode(key_version.to_bytes(2, "big") + b"\x00\x03grp", b"\x00\x00") is None


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_that_kafka_writes_are_read(version: int) -> None:
    raw = encode_value(
        OFFSET_COMMIT_VALUE,
        version,
        {
            "offset": 42,
            "leader_epoch": 7,
            "metadata": "grün",
            "commit_timestamp": 1_700_000_000_000,
            "expire_timestamp": 1_700_000_000_001,
        },
    )
    epoch = Epoch(7) if version >= 3 else NO_EPOCH
    expires = 1_700_000_000_001 if version == 1 else -1
    assert decode(OFFSET_KEY, raw) == OffsetCommitRecord(
        "grp", "flights", 3, OffsetValue(Offset(42), epoch, "grün", 1_700_000_000_000, expires)
    )


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_that_kafka_writes_are_read(version: int) -> None:
    member = {
        "group_instance_id": "inst",
        "client_id": "cli",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 300_000,
        "session_timeout": 45_000,
        "subscription": b"s" * 200,
        "assignment": b"",
    }
    raw = encode_value(
        GROUP_METADATA_VALUE,
        version,
        {
            "protocol_type": "consumer",
            "generation": 5,
            "protocol": None,
            "leader": "m-1",
            "current_state_timestamp": 1_700_000_000_000,
            "members": [member | {"member_id": "m-1"}, member | {"member_id": "m-2"}],
        },
    )
    record = decode(GROUP_KEY, raw)
    assert isinstance(record, GroupMetadataRecord)
    assert record.value == GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol=None,
        leader="m-1",
        state_timestamp_ms=1_700_000_000_000 if version >= 2 else -1,
        members=tuple(
            MemberValue(
                member_id,
                "inst" if version >= 3 else None,
                "cli",
                "/127.0.0.1",
                300_000 if version >= 1 else 45_000,
                45_000,
                b"s" * 200,
                b"",
            )
            for member_id in ("m-1", "m-2")
        ),
    )


def test_what_we_write_is_what_kio_writes() -> None:
    assert (
        encode_value(
            OFFSET_COMMIT_VALUE,
            3,
            {"offset": 42, "leader_epoch": 7, "metadata": "note", "commit_timestamp": 1_700_000_000_000},
        )
        == OFFSET_V3
    )


@pytest.mark.parametrize("value", [OFFSET_V3, GROUP_V3])
def test_a_value_cut_at_any_byte_is_corrupt(value: bytes) -> None:
    key = OFFSET_KEY if value is OFFSET_V3 else GROUP_KEY
    for end in range(len(value)):
        with pytest.raises(CorruptRecord):
            decode(key, value[:end])


def test_a_member_count_beyond_the_bytes_is_refused_before_anything_is_built() -> None:
    count = GROUP_V3.index(bytes.fromhex("0000018bcfe56800")) + 8
    for hostile in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"):
        with pytest.raises(CorruptRecord):
            decode(GROUP_KEY, GROUP_V3[:count] + hostile + GROUP_V3[count + 4 :])


def test_a_string_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        encode(OFFSET._replace(group_id="x" * 40_000))
    assert raised.value.code is ErrorCode.INVALID_REQUEST


texts = st.text(max_size=12)
times = st.integers(-1, 2**62)
members = st.builds(
    MemberValue,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=20),
    st.binary(max_size=20),
)
topic_ids = st.binary(min_size=16, max_size=16).map(Uuid)
records = st.builds(
    OffsetCommitRecord,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    st.none()
    | st.builds(OffsetValue, times, st.integers(-1, 2**31 - 1), texts, times, st.just(-1), topic_ids)
    | st.builds(OffsetValue, times, st.just(-1), texts, times, times, st.just(ZERO_UUID)),
) | st.builds(
    GroupMetadataRecord,
    texts,
    st.none()
    | st.builds(
        GroupMetadataValue,
        protocol_type=texts,
        generation=st.integers(0, 2**31 - 1),
        protocol=st.none() | texts,
        leader=st.none() | texts,
        state_timestamp_ms=st.integers(-1, 2**62),
        members=st.lists(members, max_size=3).map(tuple),
    ),
)


@settings(max_examples=150, deadline=None)
@given(records)
def test_decode_undoes_encode(record: OffsetCommitRecord | GroupMetadataRecord) -> None:
    assert decode(*encode(record)) == record


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=120))
def test_garbage_is_a_record_or_a_refusal_and_nothing_else(key: bytes, value: bytes) -> None:
    try:
        decode(key, value)
    except CorruptRecord:
        return
