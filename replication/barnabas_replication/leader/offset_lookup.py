"""Offsets that times and epochs stand for (ListOffsets, OffsetForLeaderEpoch), on the partition's leader.

May touch:  the partition, its log, threads of the disk through `run_blocking`.   Must not touch: the network, clocks.
Invariants: an answer is of the leader epoch that it was asked in; no offset at or above the HW is named by time.
Read next:  barnabas_log/read/time_search.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from barnabas_log.read.batch_times import BatchTimes, SearchExhausted, SearchStopped
from barnabas_log.read.time_search import run_to_end, search_by_time
from barnabas_replication.errors import OffsetNotAvailable, RequestTimedOut
from barnabas_replication.follower.truncation import EpochEnd
from barnabas_replication.partition import Partition
from barnabas_replication.requests import ListedOffset
from barnabas_wire.kafka.ids import (
    NO_EPOCH,
    NO_OFFSET,
    Epoch,
    Offset,
)

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
SEARCHES_MAX = 8
"""Searches for one time, each of which finds out that headers of further segments lie."""
RunBlocking = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments in a thread of the disk."""


def list_offset(
    partition: Partition,
    timestamp_ms: int,
    *,
    current_leader_epoch: Epoch = NO_EPOCH,
    is_read_committed: bool = False,
) -> ListedOffset:
    """Offset that a special time stands for: -1 latest, -2 earliest, -4 earliest local, -5 latest tiered.

    is_read_committed: the latest is the last stable offset, else the high watermark.

    Raises OffsetNotAvailable while a new leader's HW is behind its epoch (KIP-207), while damage may hide the end of a
    transaction and while the log's start is in doubt, and check_leader's errors.
    """
    partition.check_leader(current_leader_epoch)
    log = partition.log
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        partition.check_log_start()
        return ListedOffset(-1, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset))
    if timestamp_ms == LATEST_TIERED_TIMESTAMP:
        return ListedOffset(-1, Offset(-1), NO_EPOCH)
    if timestamp_ms == LATEST_TIMESTAMP:
        if partition.high_watermark < partition.leader_epoch_start_offset:
            raise _offset_not_available(partition)
        return ListedOffset(
            -1,
            _last_stable_offset(partition) if is_read_committed else partition.high_watermark,
            partition.leader_epoch,
        )
    raise ValueError(f"{timestamp_ms} stands for no offset by itself: list_offset_by_time looks times up")


def _last_stable_offset(partition: Partition) -> Offset:
    """Where readers of committed records stop.

    Raises OffsetNotAvailable where a damaged batch may be the marker that ends the first open transaction: the offset may then be lower
    than one that was answered before. A partition of one replica is never repaired, so it answers what it knows.
    """
    log = partition.log
    offset = log.last_stable_offset
    if offset < partition.high_watermark and log.doubted_from != NO_OFFSET and not log.tail.is_sole_copy:
        raise OffsetNotAvailable(
            f"{partition.topic_partition}: damage from offset {log.doubted_from} on may hide the end of the transaction at {offset}; "
            "it is repaired once another replica is in sync"
        )
    return offset


async def list_offset_by_time(
    partition: Partition,
    timestamp_ms: int,
    *,
    run_blocking: RunBlocking,
    new_times: Callable[[], BatchTimes] = BatchTimes,
    current_leader_epoch: Epoch = NO_EPOCH,
    is_read_committed: bool = False,
) -> ListedOffset:
    """Offset of the first record at or after a time, or of the largest timestamp (-3), looked up off the loop. Cancelled, it is over
    once the thread that searches has stopped.

    new_times: opens the batches of one search. Raises what list_offset raises, CorruptBatch, StorageFailed, OutOfDescriptors, and
    RequestTimedOut where it opened as many records as one search may.
    """
    partition.check_leader(current_leader_epoch)
    partition.check_log_start()
    led_epoch = partition.leader_epoch
    try:
        found = await _search(partition, timestamp_ms, run_blocking, new_times)
    except FileNotFoundError:  # retention has passed the search; once more, it is quicker than that
        partition.check_leader(current_leader_epoch)
        try:
            found = await _search(partition, timestamp_ms, run_blocking, new_times)
        except OSError as error:
            raise partition.log.tail.failed_by(error) from error
    except OSError as error:
        raise partition.log.tail.failed_by(error) from error
    partition.check_leader(current_leader_epoch)
    if partition.leader_epoch != led_epoch:
        raise partition.not_leader()
    if found is not None:
        offset, found_ms = found
        if offset < (partition.log.last_stable_offset if is_read_committed else partition.high_watermark):
            return ListedOffset(found_ms, offset, partition.log.leader_epochs.epoch_at(offset))
    if partition.high_watermark < partition.leader_epoch_start_offset:
        raise _offset_not_available(partition)
    return ListedOffset(-1, Offset(-1), NO_EPOCH)


async def _search(
    partition: Partition, timestamp_ms: int, run_blocking: RunBlocking, new_times: Callable[[], BatchTimes]
) -> tuple[Offset, int] | None:
    is_greatest = timestamp_ms == MAX_TIMESTAMP
    found: tuple[Offset, int] | None = None
    for _ in range(SEARCHES_MAX):
        search = search_by_time(partition.log, None if is_greatest else timestamp_ms, new_times())
        searching = run_blocking(search.of_greatest) if is_greatest else run_blocking(search.first_at, timestamp_ms)
        try:
            found = await run_to_end(search, searching)
        except (SearchExhausted, SearchStopped):
            raise RequestTimedOut(
                f"{partition.topic_partition}: too many records were opened to find that time; ask again, it goes on from there"
            ) from None
        if found is not None or not search.is_open:
            break
    return found


def end_offset_for_epoch(partition: Partition, epoch: Epoch, *, current_leader_epoch: Epoch = NO_EPOCH) -> EpochEnd:
    """Largest epoch not above the asked one and its end; (-1, -1) when none is known (OffsetForLeaderEpoch)."""
    partition.check_leader(current_leader_epoch)
    return EpochEnd(*partition.log.end_offset_for_epoch(epoch))


def _offset_not_available(partition: Partition) -> OffsetNotAvailable:
    return OffsetNotAvailable(
        f"{partition.topic_partition}: high watermark {partition.high_watermark} has not reached the start "
        f"{partition.leader_epoch_start_offset} of leader epoch {partition.leader_epoch}"
    )
