"""The bytes of `__transaction_state` are Kafka's, and nothing else is read as them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.errors import CorruptRecord
from barnabas_coordination.transaction.records import TransactionRecord, decode, encode
from barnabas_coordination.transaction.state import TransactionState, TransactionStatus
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

KEY = bytes.fromhex("000000026964")
ENDING = TransactionState(
    producer_id=5,
    previous_producer_id=5,
    next_producer_id=9,
    producer_epoch=0x7FFF,
    timeout_ms=60_000,
    status=TransactionStatus.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("t", 3), TopicPartition("t", 1), TopicPartition("s", 0)}),
    start_ms=1_000,
    update_ms=2_000,
    client_version=2,
)
# Field by field from Kafka's TransactionLogValue.json.
PLAIN = bytes.fromhex(
    "0000" "0000000000000005" "7fff" "0000ea60" "02"
    "00000002" "0001" "73" "00000001" "00000000" "0001" "74" "00000002" "00000001" "00000003"
    "00000000000007d0" "00000000000003e8"
)  # fmt: skip
FLEXIBLE = bytes.fromhex(
    "0001" "0000000000000005" "7fff" "0000ea60" "02"
    "03" "02" "73" "02" "00000000" "00" "02" "74" "03" "00000001" "00000003" "00"
    "00000000000007d0" "00000000000003e8"
    "03" "00" "08" "0000000000000005" "01" "08" "0000000000000009" "02" "02" "0002"
)  # fmt: skip


def test_values_are_kafkas_in_both_versions() -> None:
    record = TransactionRecord("id", ENDING)
    assert encode(record, value_version=0) == (KEY, PLAIN)
    assert encode(record, value_version=1) == (KEY, FLEXIBLE)
    assert decode(KEY, FLEXIBLE) == record
    plain = decode(KEY, PLAIN)
    assert plain is not None
    assert plain.state is not None
    assert (plain.state.next_producer_id, plain.state.previous_producer_id, plain.state.client_version) == (-1, -1, 0)


def test_an_empty_one_has_no_partitions_and_no_tags_at_their_defaults() -> None:
    state = TransactionState(
        producer_id=5, producer_epoch=0, timeout_ms=60_000, status=TransactionStatus.EMPTY, update_ms=2_000
    )
    plain = "0000000000000000000500000000ea6000ffffffff00000000000007d0ffffffffffffffff"
    flexible = "0001000000000000000500000000ea60000000000000000007d0ffffffffffffffff00"
    for version, text in enumerate((plain, flexible)):
        assert encode(TransactionRecord("id", state), value_version=version) == (KEY, bytes.fromhex(text))
        assert decode(KEY, bytes.fromhex(text)) == TransactionRecord("id", state)


def test_a_tombstone_forgets_and_later_keys_are_skipped() -> None:
    assert encode(TransactionRecord("id", None), value_version=1) == (KEY, None)
    assert decode(KEY, None) == TransactionRecord("id", None)
    assert decode(b"\0\1later", b"") is None


@pytest.mark.parametrize("value", [PLAIN, FLEXIBLE])
def test_a_value_cut_at_any_byte_is_corrupt(value: bytes) -> None:
    for end in range(len(value)):
        with pytest.raises(CorruptRecord):
            decode(KEY, value[:end])


def test_a_status_or_a_version_that_is_not_known_is_corrupt() -> None:
    for broken in (PLAIN[:16] + b"\x09" + PLAIN[17:], b"\0\2" + FLEXIBLE[2:]):
        with pytest.raises(CorruptRecord):
            decode(KEY, broken)


def test_a_string_too_long_for_its_length_is_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        encode(TransactionRecord("x" * 40_000, None), value_version=1)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


partitions = st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1))
states = st.builds(
    TransactionState,
    producer_id=st.integers(0, 2**62),
    previous_producer_id=st.integers(-1, 2**62),
    next_producer_id=st.integers(-1, 2**62),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    status=st.sampled_from([status for status in TransactionStatus if status is not TransactionStatus.EMPTY]),
    partitions=st.frozensets(partitions, max_size=5),
    start_ms=st.integers(-1, 2**62),
    update_ms=st.integers(0, 2**62),
    client_version=st.sampled_from([0, 2]),
)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=12), st.none() | states)
def test_decode_undoes_encode(transactional_id: str, state: TransactionState | None) -> None:
    record = TransactionRecord(transactional_id, state)
    assert decode(*encode(record, value_version=1)) == record


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=120))
def test_garbage_is_a_record_or_a_refusal_and_nothing_else(key: bytes, value: bytes) -> None:
    try:
        decode(key, value)
    except CorruptRecord:
        return
