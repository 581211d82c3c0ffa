"""Records of __share_group_state: golden bytes, what is ours and what is left out, hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.share_state.messages import DeliveryState, ShareKey, StateBatch
from barnabas_coordination.share_state.records import decode, encode
from barnabas_coordination.share_state.state import KeptState, ShareRecord, ShareSnapshot, ShareUpdate
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset, Uuid
from tests.broker.coordinator.test_share_state import WRITTEN

KEY = ShareKey("grp", Uuid(bytes(range(16))), 3)
KEY_BODY = bytes.fromhex("0003677270" "000102030405060708090a0b0c0d0e0f" "00000003")  # fmt: skip
DONE = StateBatch(Offset(7), Offset(9), DeliveryState.ACKNOWLEDGED, 1)
WAITING = StateBatch(Offset(10), Offset(10), DeliveryState.AVAILABLE, 2, 1_700_000_000_000)
BEGUN = ShareSnapshot(KEY, KeptState(0, Epoch(2), Epoch(0), NO_OFFSET, -1, 1_700_000_000_000, 1_700_000_000_001))
WHOLE = ShareSnapshot(
    KEY, KeptState(5, Epoch(2), Epoch(6), Offset(7), 3, 1_700_000_000_000, 1_700_000_000_000, (DONE, WAITING))
)
GOLDEN: dict[str, tuple[ShareRecord, str]] = {
    "begun": (
        BEGUN,
        "0000" "00000000" "00000002" "00000000" "ffffffffffffffff" "0000018bcfe56800" "0000018bcfe56801" "01" "00",
    ),
    "a whole state, and ours": (
        WHOLE,
        "0000" "00000005" "00000002" "00000006" "0000000000000007" "0000018bcfe56800" "0000018bcfe56800" "03"
        "0000000000000007" "0000000000000009" "02" "0001" "00"
        "000000000000000a" "000000000000000a" "00" "0002" "01" "904e" "08" "0000018bcfe56800"
        "01" "00" "04" "00000003",
    ),
    "an update": (
        ShareUpdate(KEY, 5, Epoch(6), Offset(7), 3, (DONE,)),
        "0000" "00000005" "00000006" "0000000000000007" "02"
        "0000000000000007" "0000000000000009" "02" "0001" "00"
        "01" "00" "04" "00000003",
    ),
    "a new leader alone": (
        ShareUpdate(KEY, 0, Epoch(6), NO_OFFSET, -1),
        "0000" "00000000" "00000006" "ffffffffffffffff" "01" "00",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_records_are_kafkas_to_the_byte(name: str) -> None:
    """Field by field from Kafka 4.4's ShareSnapshotValue.json and ShareUpdateValue.json; tests/oracle has its tool read them."""
    record, value = GOLDEN[name]
    kind = b"\0\1" if isinstance(record, ShareUpdate) else b"\0\0"
    assert encode(record) == (kind + KEY_BODY, bytes.fromhex(value))
    assert decode(kind + KEY_BODY, bytes.fromhex(value)) == record


def test_a_tombstone_is_a_snapshots_key_without_a_value() -> None:
    assert encode(ShareSnapshot(KEY, None)) == (b"\0\0" + KEY_BODY, None)
    assert decode(b"\0\0" + KEY_BODY, None) == ShareSnapshot(KEY, None)
    assert decode(b"\0\1" + KEY_BODY, None) is None


def test_what_a_later_release_wrote_is_left_alone_or_stops_the_load() -> None:
    assert decode(b"\0\2" + KEY_BODY, b"\0\0anything") is None
    _, value = encode(WHOLE)
    assert value is not None
    with pytest.raises(CorruptRecord, match="later release"):
        decode(b"\0\0" + KEY_BODY, b"\0\1" + value[2:])
    unknown_state = bytearray(value)
    unknown_state[2 + 36 + 1 + 16] = 9
    with pytest.raises(CorruptRecord):
        decode(b"\0\0" + KEY_BODY, bytes(unknown_state))
    unknown_tag = value[:-7] + bytes.fromhex("02" "00" "04" "00000003" "05" "01" "ff")  # fmt: skip
    assert decode(b"\0\0" + KEY_BODY, unknown_tag) == WHOLE


def test_what_does_not_fit_a_record_is_refused() -> None:
    with pytest.raises(KafkaError) as error:
        encode(ShareUpdate(KEY._replace(group_id="g" * 40_000), 5, Epoch(6), Offset(7), 3))
    assert error.value.code is ErrorCode.INVALID_REQUEST


batches = st.builds(
    StateBatch,
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(WRITTEN),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**62),
)


@given(st.integers(0, 9), st.integers(-1, 2**62), st.integers(-1, 9), st.lists(batches, max_size=4))
def test_what_is_written_is_read_back(number: int, start: int, count: int, written: list[StateBatch]) -> None:
    offset, epoch, both = Offset(start), Epoch(number), tuple(written)
    for record in (
        ShareUpdate(KEY, number, epoch, offset, count, both),
        ShareSnapshot(KEY, KeptState(number, epoch, epoch, offset, count, number, 7, both)),
    ):
        assert decode(*encode(record)) == record


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_that_is_cut_anywhere_is_refused_as_such(name: str) -> None:
    key, value = encode(GOLDEN[name][0])
    assert value is not None
    for end in range(len(value)):
        with pytest.raises(CorruptRecord):
            decode(key, value[:end])
    for end in range(len(key)):
        with pytest.raises(CorruptRecord):
            decode(key[:end], value)
