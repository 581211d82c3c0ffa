"""The one reader of committed records: what concerns a question, transactions, and what it cannot read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from barnabas_quorum.driver.committed_history import find_start_of_last, read_history, read_slice
from barnabas_quorum.driver.log_entries import BAD, NO_OP
from barnabas_quorum.explain.history import (
    QuorumLeaderElected,
    concerns_broker,
    concerns_leadership,
    concerns_partition,
    is_of_other_topic,
    is_of_partition,
)
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_quorum.record_codec import RECORD_TYPES, encode, head_of
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid
from barnabas_wire.records.batch import iterate_records
from tests.metadata_quorum.golden_values import RECORDS
from tests.metadata_quorum.test_image_history import GARBAGE, FakeLog, config
from tests.metadata_quorum.test_record_codec import records


@pytest.fixture
def log() -> Any:
    made = FakeLog()
    made.size_bytes = 0  # type: ignore[attr-defined]
    return made


def rot(log: Any, index: int, *, word: bytes, into: bytes) -> None:
    """The disk gives back another word than was written."""
    batch = log.batches[index]
    assert batch.data.count(word) == 1
    log.batches[index] = StoredBatch(batch.base_offset, batch.end_offset, batch.epoch, batch.data.replace(word, into))


async def keys(log: Any, *, high_watermark: int | None = None) -> list[object]:
    end = log.end if high_watermark is None else Offset(high_watermark)
    found = await read_history(log, high_watermark=end, concerns=lambda record: True)
    return [
        each.record.key if isinstance(each.record, ConfigRecord) else type(each.record).__name__
        for each in found.entries
    ]


async def test_what_is_committed_comes_in_order_and_nothing_above(log: Any) -> None:
    log.elect()
    log.add(NoOpRecord(), config("a"))
    log.add(config("b"))
    assert await keys(log) == [QuorumLeaderElected.__name__, "a", "b"]
    assert await keys(log, high_watermark=log.end - 1) == [QuorumLeaderElected.__name__, "a"]


async def test_a_transaction_comes_when_it_ends_or_not_at_all(log: Any) -> None:
    log.add(BeginTransactionRecord(name="n"), config("a"))
    assert await keys(log) == []
    log.add(EndTransactionRecord())
    log.add(BeginTransactionRecord(name="n"), config("b"), AbortTransactionRecord(reason="r"))
    assert await keys(log) == ["a"]


async def test_an_explanation_goes_on_behind_what_cannot_be_read_and_tells_of_it(log: Any) -> None:
    """While a bad record holds the metadata is when one wants to know why."""
    log.add(config("a"))
    bad = log.add(config("b"), GARBAGE, config("c"))
    rotten = log.add(config("lost"))
    rot(log, -1, word=b"lost", into=b"most")
    log.add(config("d"))
    assert await keys(log) == ["a", "b", "c", "d"]
    found = await read_history(log, high_watermark=log.end, concerns=lambda record: True)
    assert found.unreadable == (bad + 1, rotten)
    kinds: list[str] = []
    at = Offset(0)
    while at < log.end:
        read = read_slice(log, at, high_watermark=log.end)
        kinds += [entry.kind for entry in read.entries]
        at = read.end_offset
    assert kinds == ["ConfigRecord", "ConfigRecord", BAD, "ConfigRecord", BAD, "ConfigRecord"]


async def test_a_log_that_was_cleaned_says_so_and_where_it_begins(log: Any) -> None:
    log.add(config("a"))
    log.add(config("b"))
    log.cut_at_end()
    log.add(config("c"))
    cut = read_slice(log, Offset(0), high_watermark=log.end)
    assert (cut.entries, cut.end_offset, cut.is_cut) == ([], log.log_start_offset, True)
    found = await read_history(log, high_watermark=log.end, concerns=lambda record: isinstance(record, ConfigRecord))
    assert [record.key for record in found.base if isinstance(record, ConfigRecord)] == ["a", "b"]
    assert (await keys(log), found.first_offset) == (["c"], log.log_start_offset)


async def test_a_slice_begins_with_the_record_that_is_asked_for_and_opens_none_before_it(log: Any) -> None:
    log.add(GARBAGE, config("a"), GARBAGE, config("b"))
    log.elect()
    found = read_slice(log, Offset(3), high_watermark=log.end).entries
    assert [(each.offset, each.kind) for each in found] == [(3, "ConfigRecord"), (4, "LeaderChange")]
    assert [each.offset for each in read_slice(log, Offset(4), high_watermark=log.end).entries] == [4]


@given(records)
def test_no_record_that_concerns_a_question_is_skipped_unopened(record: Any) -> None:
    data = encode(record)
    assert is_of_partition(data) == isinstance(record, PartitionRecord | PartitionChangeRecord)
    assert not (is_of_partition(data) and (concerns_leadership(record) or concerns_broker(BrokerId(1))(record)))
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        assert concerns_partition("t", record.topic_id, record.partition_id)(record)
        assert not is_of_other_topic(record.topic_id)(data)
        assert is_of_other_topic(Uuid(b"\xfe" * 16))(data)
    else:
        assert not is_of_other_topic(Uuid(b"\xfe" * 16))(data)


def test_every_kind_of_record_begins_in_its_own_way() -> None:
    heads = {kind: head_of(kind) for kind in RECORD_TYPES}
    for record in RECORDS:
        matching = [kind for kind, head in heads.items() if encode(record).startswith(head)]
        assert matching == [type(record)]


async def test_what_is_skipped_is_not_opened_and_its_offset_is_passed(log: Any) -> None:
    log.add(config("a"))
    log.add(config("b"), GARBAGE)
    end = log.add(config("c"))
    asked: list[bytes] = []
    garbage = value_of_garbage(log)

    def skips(data: bytes) -> bool:
        asked.append(data)
        return b"b" in data or data == garbage

    found = await read_history(log, high_watermark=log.end, concerns=lambda record: True, skips=skips)
    assert [each.record.key for each in found.entries] == ["a", "c"]  # type: ignore[union-attr]
    assert found.unreadable == () and found.end_offset == log.end and len(asked) == 4 and end == log.end - 1


def value_of_garbage(log: Any) -> bytes:
    """The value that cannot be read, as it lies in the log."""
    values = [record.value or b"" for batch in log.batches for record in iterate_records(batch.data)]
    return next(value for value in values if value not in {encode(config(name)) for name in "abc"})


@pytest.mark.parametrize("is_cut", [False, True])
async def test_the_newest_records_begin_where_a_reader_of_all_would_begin(log: Any, is_cut: bool) -> None:
    log.elect()
    if is_cut:
        log.add(config("gone"))
        log.cut_at_end()
    for number in range(12):
        log.add(*[NoOpRecord()] * (number % 5), config("a"), *[NoOpRecord()] * (number % 3))
    log.add(config("b"), GARBAGE)
    log.add(config("lost"))
    rot(log, -1, word=b"lost", into=b"most")
    log.add(*[NoOpRecord()] * 40)
    log.elect()
    entries = []
    at = log.log_start_offset
    while at < log.end:
        read = read_slice(log, at, high_watermark=log.end)
        entries += read.entries
        at = read.end_offset
    for with_noops in (False, True):
        offsets = [each.offset for each in entries if with_noops or each.kind != NO_OP]
        for count in range(1, len(offsets) + 1):
            found = await find_start_of_last(log, count, high_watermark=log.end, with_noops=with_noops)
            assert found == offsets[-count], (count, with_noops)
        for count, start in ((0, log.end), (len(offsets) + 1, log.log_start_offset)):
            found = await find_start_of_last(log, count, high_watermark=log.end, with_noops=with_noops)
            assert found == start


async def test_no_piece_of_the_log_is_read_twice_for_the_newest_records(log: Any) -> None:
    log.add(config("a"))
    log.add(config("b"))
    for _ in range(200):
        log.add(NoOpRecord())
    read: list[int] = []
    real = log.read

    def counted(offset: Offset, **how: Any) -> Any:
        found = real(offset, **how)
        read.extend(each.base_offset for each in found)
        return found

    log.read = counted
    assert await find_start_of_last(log, 2, high_watermark=log.end, with_noops=False) == 0
    assert len(read) <= len(set(read)) + 5, "but for a batch over the edge of each piece"
