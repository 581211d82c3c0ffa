"""Transactions in one log: what is open, what is stable, what was aborted, after appends, cuts, retention and restarts."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_log.errors import InvalidProducerEpoch, InvalidTransactionState, TransactionCoordinatorFenced
from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail import retiring, truncating
from barnabas_log.tail.aborted_transactions import AbortedTransaction, AbortedTransactions, encode
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import iterate_batches, iterate_records
from barnabas_wire.records.control import ControlRecordType, build_transaction_marker, decode_control_key
from tests.support.logs import DIRECTORY, NOW_MS, append, content, flush, make_batch, make_config, open_log


def write(log: UnifiedLog, producer_id: int, *, epoch: int = 0, sequence: int = -1, verified: bool = True) -> Offset:
    """A transactional batch of two records, as a producer whose partition is in the transaction writes it."""
    if verified and log.producers.needs_verification(producer_id, epoch):
        assert log.producers.confirm(producer_id, log.producers.begin_verification(producer_id, epoch))
    if sequence < 0:
        entry = log.producers.get(producer_id)
        sequence = entry.last.last_sequence + 1 if entry is not None and entry.epoch == epoch else 0
    batch = make_batch(2, is_transactional=True, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return append(log, batch)


def end(log: UnifiedLog, producer_id: int, *, epoch: int = 0, is_commit: bool, coordinator_epoch: int = 1) -> Offset:
    """A marker, as the coordinator's leader has it written."""
    marker = build_transaction_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=is_commit,
        now_ms=NOW_MS,
    )
    offset = log.tail.append_as_leader(marker, leader_epoch=Epoch(0), now_ms=NOW_MS, is_internal=True).first_offset
    log.tail.write_pending()
    return offset


class Model(NamedTuple):
    """What reading the log through says."""

    open_transactions: dict[int, int]
    ended: list[tuple[int, int]]
    aborted: list[tuple[int, int, int]]


def model_of(data: bytes) -> Model:
    open_transactions: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    aborted: list[tuple[int, int, int]] = []
    for position, header in iterate_batches(data):
        if header.producer_id < 0:
            continue
        if not header.is_control:
            if header.is_transactional:
                open_transactions.setdefault(header.producer_id, header.base_offset)
            continue
        (record,) = iterate_records(data[position : position + header.size_bytes])
        first = open_transactions.pop(header.producer_id, None)
        if first is not None:
            ended.append((first, header.base_offset))
            if decode_control_key(record.key or b"") == ControlRecordType.ABORT:
                aborted.append((header.producer_id, first, header.base_offset))
    return Model(open_transactions, ended, aborted)


def check(log: UnifiedLog) -> None:
    """The log agrees with the model, as far as both see the same: from the log start on."""
    model = model_of(content(log))
    start, high = log.log_start_offset, log.high_watermark
    spanning = {producer for producer, first in log.producers.open_transactions.items() if first < start}
    assert {p: first for p, first in log.producers.open_transactions.items() if p not in spanning} == {
        p: first for p, first in model.open_transactions.items() if p not in spanning and first >= start
    }
    known = {each[:3] for each in log.aborted if each.first_offset >= start}
    assert known == {each for each in model.aborted if each[1] >= start and not _spans(log, each)}
    unstable = [
        *log.producers.open_transactions.values(),
        *(first for first, marker in model.ended if marker >= high),
    ]
    if not spanning and all(ended.first_offset >= start for ended in log.producers.ended):
        assert log.last_stable_offset == min([high, *(first for first in unstable if first >= start)])
    assert start <= log.last_stable_offset <= high


def _spans(log: UnifiedLog, aborted: tuple[int, int, int]) -> bool:
    """Whether the transaction began before the log start, for the log knows that and the model does not."""
    return any(
        each.producer_id == aborted[0] and each.last_offset == aborted[2] and each.first_offset < log.log_start_offset
        for each in log.aborted
    )


def test_the_last_stable_offset_waits_for_open_transactions_and_for_markers_below_the_high_watermark() -> None:
    log = open_log(MemoryDisk())
    append(log)
    first = write(log, 7)
    second = write(log, 8)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == first
    end(log, 7, is_commit=True)
    assert log.last_stable_offset == first, "its marker is not committed yet"
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == second
    marker = end(log, 8, is_commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert list(log.aborted) == [AbortedTransaction(8, second, marker, marker + 1)]
    check(log)


def test_a_transaction_whose_producer_is_silent_is_known_until_its_marker() -> None:
    log = open_log(MemoryDisk())
    write(log, 1)
    (last_ms,) = {entry.last.timestamp_ms for entry in log.producers}
    assert not log.producers.has_transaction_silent_since(last_ms)
    assert log.producers.has_transaction_silent_since(last_ms + 1)
    end(log, 1, is_commit=False)
    assert not log.producers.has_transaction_silent_since(last_ms + 1)


def test_a_batch_that_would_open_a_transaction_is_refused_unless_verified_since_the_last_marker() -> None:
    log = open_log(MemoryDisk())
    with pytest.raises(InvalidTransactionState):
        write(log, 7, verified=False)
    guard = log.producers.begin_verification(7, 0)
    end(log, 7, is_commit=False)
    assert not log.producers.confirm(7, guard), "the transaction that was asked about has ended meanwhile"
    with pytest.raises(InvalidTransactionState):
        write(log, 7, verified=False)
    write(log, 7)
    write(log, 7, verified=False)
    with pytest.raises(InvalidTransactionState, match="not of it"):
        append(log, make_batch(1, producer_id=7, producer_epoch=0, base_sequence=4))


def test_a_batch_of_the_next_epoch_is_not_of_the_transaction_that_is_open() -> None:
    """The producer was told that its transaction is committed, and the marker is still on its way. A batch that came before it
    would take its place: the marker's epoch would be no higher any more, and refused for ever."""
    log = open_log(MemoryDisk())
    write(log, 7, epoch=0)
    with pytest.raises(InvalidTransactionState):
        write(log, 7, epoch=1, verified=False)
    log.producers.check_marker(producer_id=7, epoch=1, coordinator_epoch=0, bumps_epoch=True)
    write(log, 7, epoch=0, verified=False)


def test_markers_of_older_epochs_and_coordinators_are_refused() -> None:
    log = open_log(MemoryDisk())
    write(log, 7, epoch=3)
    judge = log.producers.check_marker
    with pytest.raises(InvalidProducerEpoch):
        judge(producer_id=7, epoch=2, coordinator_epoch=1, bumps_epoch=False)
    with pytest.raises(InvalidProducerEpoch):
        judge(producer_id=7, epoch=3, coordinator_epoch=1, bumps_epoch=True)
    judge(producer_id=7, epoch=4, coordinator_epoch=1, bumps_epoch=True)
    end(log, 7, epoch=4, is_commit=True, coordinator_epoch=5)
    judge(producer_id=7, epoch=4, coordinator_epoch=5, bumps_epoch=True)  # again, for the answer was lost
    with pytest.raises(TransactionCoordinatorFenced):
        judge(producer_id=7, epoch=4, coordinator_epoch=4, bumps_epoch=True)
    with pytest.raises(InvalidProducerEpoch):
        write(log, 7, epoch=3, sequence=2)
    assert write(log, 7, epoch=4, sequence=0) == log.log_end_offset - 2


def test_a_reader_learns_the_aborted_transactions_of_its_range_alone() -> None:
    index = AbortedTransactions(MemoryDisk(), DIRECTORY)
    for entry in ((1, 0, 10, 5), (2, 5, 20, 21), (3, 30, 40, 41)):
        index.add(AbortedTransaction(*entry), Offset(0))
    assert [each.producer_id for each in index.within(Offset(0), Offset(50))] == [1, 2, 3]
    assert [each.producer_id for each in index.within(Offset(11), Offset(30))] == [2]
    assert [each.producer_id for each in index.within(Offset(0), Offset(5))] == [1]
    assert index.within(Offset(41), Offset(60)) == []


@pytest.mark.parametrize(
    "torn", [b"\0" * 23, b"\0" * 57, bytes([0, 0, *([255] * 55)])], ids=["part", "zeroes", "garbage"]
)
def test_an_entry_is_found_again_that_follows_what_a_crash_left_of_another(torn: bytes) -> None:
    """It stood behind the rest, and the next start took it for torn too: an aborted record was read as committed."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    one, two = AbortedTransaction(1, 0, 3, 2), AbortedTransaction(2, 2, 4, 5)
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    disk.open(path, create=True).append([encode(one), torn])
    index = AbortedTransactions.load(disk, DIRECTORY, [Offset(0)], end_offset=Offset(4))
    assert list(index) == [one]
    index.add(two, Offset(0))
    assert len(list(index.write())) == 1
    assert list(AbortedTransactions.load(disk, DIRECTORY, [Offset(0)], end_offset=Offset(5))) == [one, two]


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "commit", "abort"]), st.integers(1, 4)),
        st.tuples(st.just("plain"), st.integers(1, 8)),
        st.tuples(st.sampled_from(["high", "cut", "start"]), st.integers(0, 100)),
        st.tuples(st.sampled_from(["flush", "close", "kill", "retain", "follow"]), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=1000, deadline=None)
@given(steps)
def test_a_log_knows_its_transactions_whatever_happens(actions: list[tuple[str, int]]) -> None:
    disk = MemoryDisk()
    config = make_config(segment_bytes=900, retention_ms=-1)
    log = open_log(disk, config=config)
    for action, number in actions:
        share = log.log_start_offset + (log.log_end_offset - log.log_start_offset) * number // 100
        if action == "write":
            write(log, number)
        elif action in ("commit", "abort"):
            end(log, number, is_commit=action == "commit")
        elif action == "plain":
            append(log, make_batch(number))
        elif action == "high":
            log.update_high_watermark(max(log.high_watermark, Offset(share)))
        elif action == "cut":
            truncating.truncate_to(log, max(Offset(share), log.high_watermark))
        elif action == "start":
            log.delete_records_before(min(Offset(share), log.high_watermark))
        elif action == "retain":
            flush(log)
            retiring.apply_retention(log, NOW_MS)
        elif action == "flush":
            flush(log)
        elif action == "follow":
            follower = open_log(MemoryDisk(), log_start_offset=log.log_start_offset)
            data = content(log)
            if data:
                first = next(iterate_batches(data))[1].base_offset
                truncating.truncate_fully_and_start_at(follower, first)
                follower.tail.append_as_follower(data, leader_epoch=Epoch(0))
                assert follower.producers.open_transactions.keys() <= log.producers.open_transactions.keys()
            continue
        else:
            high, start, point = log.high_watermark, log.log_start_offset, log.flushed_end_offset
            if action == "close":
                log.close()
                point = log.log_end_offset
            else:
                log.release_files()
            log = open_log(
                disk,
                config=config,
                recovery_point=point,
                log_start_offset=start,
                high_watermark=high,
                is_clean_shutdown=action == "close",
            )
        check(log)
    log.release_files()


def test_a_torn_or_foreign_entry_of_the_index_is_dropped_at_the_start() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    write(log, 7)
    end(log, 7, is_commit=False)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    whole = disk.read_file(path)
    assert len(whole) == 34
    for content_now in (whole + b"\0" * 20, whole + whole, whole + b"\0" * 34):
        file = disk.open(path)
        file.truncate(0)
        file.append([content_now])
        file.close()
        again = open_log(disk, recovery_point=log.log_end_offset, is_clean_shutdown=True)
        assert [each[:3] for each in again.aborted] == [(7, 0, 2)]
        again.release_files()


@pytest.mark.parametrize("epoch_after", [0, 1])
def test_offsets_committed_behind_the_marker_of_their_transaction_are_refused(epoch_after: int) -> None:
    """Between the coordinator's word and the append the transaction was ended: with the same epoch, or with a higher one (KIP-890)."""
    log = open_log(MemoryDisk())

    def verify(epoch: int) -> None:
        assert log.producers.confirm(7, log.producers.begin_verification(7, epoch))

    def take(batch: bytes) -> None:
        log.tail.append_as_leader(batch, leader_epoch=Epoch(0), now_ms=NOW_MS, is_internal=True)

    offsets = make_batch(1, producer_id=7, producer_epoch=0, is_transactional=True)
    with pytest.raises(InvalidTransactionState):
        take(offsets)  # nobody has asked
    verify(0)
    take(offsets)
    take(offsets)  # of the open transaction
    marker = build_transaction_marker(
        producer_id=7, producer_epoch=epoch_after, coordinator_epoch=0, is_commit=False, now_ms=NOW_MS
    )
    take(marker)
    with pytest.raises(InvalidProducerEpoch if epoch_after else InvalidTransactionState):
        take(offsets)
    assert not log.producers.open_transactions
    verify(epoch_after)
    take(make_batch(1, producer_id=7, producer_epoch=epoch_after, is_transactional=True))


def test_a_yes_to_a_former_epoch_confirms_nothing_of_the_later_one() -> None:
    """A deposed coordinator may still say it."""
    producers = open_log(MemoryDisk()).producers
    later = producers.begin_verification(7, 1)
    assert not producers.confirm(7, producers.begin_verification(7, 0))
    assert producers.needs_verification(7, 0) and producers.needs_verification(7, 1)
    assert producers.confirm(7, later)
    assert not producers.needs_verification(7, 1)
