"""A replica that missed deletions is refilled from its leader: a second log beside the first, then the swap.

May touch:  the partition, its second log, peers.      Must not touch: the controller, loop timers.
Invariants: what is read is committed, and of one leader in one epoch under one offset of what it has forgotten; the first log serves
            and stays as it is until the second has all that was committed when it began; nothing is done after an await unless
            the partition is hosted, and follows that leader in that epoch, still.
Read next:  missed_deletions.py for why; repair.py, which calls this; barnabas_log/directories/refills.py for the files.

The replica is known as corrupt and out of the ISR meanwhile, so no other node counts on it; when the leader dies it
still has what it had, and leads as whoever leads for want of a better one.

Not obvious:
- The leader reads from behind the swap of its compaction: a value that a tombstone took is gone before the tombstone. So if the
  offset rises while we read, we begin again; if it does not, we have met all that matters.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from barnabas_log.directories.manager import LogManager
from barnabas_log.forgotten import Copied
from barnabas_replication.follower.peer import FetchedPartition, Peer, PeerFactory
from barnabas_replication.hosting.hosting import Hosting
from barnabas_replication.partition import Partition
from barnabas_replication.requests import FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Endpoint, Epoch, Offset
from barnabas_wire.records.batch import read_header

logger = logging.getLogger(__name__)

FETCH_BYTES = 2 * 1024 * 1024
FETCH_TIMEOUT_S = 10.0


class _Goal(NamedTuple):
    """What a second log is filled with."""

    copied: Copied
    start: Offset
    end: Offset
    """It is whole once it has come that far."""


async def fill_anew(
    partition: Partition, *, hosting: Hosting, logs: LogManager, leader: Endpoint | None, peers: PeerFactory
) -> bool:
    """Fill a second log and let it take the first one's place; returns whether that was done.

    leader: where it listens for other brokers. Raises KafkaError, OSError or TimeoutError where it is to be tried again.
    """
    leader_id, epoch = partition.leader_id, partition.leader_epoch
    if leader is None:
        raise ConnectionError(f"broker {leader_id} has no listener for other brokers")

    def is_wanted() -> bool:
        return (
            hosting.is_hosted(partition)
            and (partition.leader_id, partition.leader_epoch) == (leader_id, epoch)
            and not partition.is_leader
            and partition.storage_error is None
            and partition.has_space
            and partition.is_known_out_of_sync
        )

    refill = await logs.refills.begin(partition.log)
    peer = peers(leader_id, leader)
    try:
        goal: _Goal | None = None
        begin = partition.log.log_start_offset
        while goal is None or refill.new.log_end_offset < goal.end:
            if not is_wanted():
                return False
            offset = begin if goal is None else max(refill.new.log_end_offset, goal.start)
            fetched = await _fetch(peer, partition, epoch, offset)
            if fetched.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
                begin, goal = fetched.log_start_offset, None
                continue
            if goal is None or _has_forgotten_more(fetched, goal, offset):
                goal = _goal_of(partition, fetched, epoch)
                await logs.refills.begin_copy(refill, goal.copied, goal.start)
                continue
            if not len(fetched.records):
                raise KafkaError.of(ErrorCode.OFFSET_NOT_AVAILABLE, f"the leader gives nothing at {offset} yet")
            records = bytes(fetched.records)
            first = read_header(records).base_offset
            if refill.new.log_start_offset == refill.new.log_end_offset and first < goal.start:
                goal = goal._replace(start=first)  # leaders send whole batches
                await logs.refills.begin_copy(refill, goal.copied, goal.start)
            await logs.refills.append(refill, records, goal.copied)
        await logs.refills.seal(refill)
        if not is_wanted():
            return False
        logs.refills.put_in_place(refill)
        hosting.host_again(partition)
        return True
    finally:
        await peer.close()
        await logs.refills.drop(refill)


def _goal_of(partition: Partition, fetched: FetchedPartition, epoch: Epoch) -> _Goal:
    below = max(fetched.forgotten_below, Offset(0))
    # The rest comes with the next fetches of a follower, as a copy still. A leader that doubts what it has forgotten names its log's end:
    # its high watermark may wait for this replica to be in sync.
    end = max(fetched.high_watermark, partition.log.log_start_offset)
    return _Goal(Copied(epoch, below), max(fetched.log_start_offset, Offset(0)), end)


def _has_forgotten_more(fetched: FetchedPartition, goal: _Goal, offset: Offset) -> bool:
    """Whether the leader has forgotten more since we began, of what we have not read yet."""
    return fetched.forgotten_below > offset and fetched.forgotten_below != goal.copied.below


async def _fetch(peer: Peer, partition: Partition, epoch: Epoch, offset: Offset) -> FetchedPartition:
    """As a consumer, so that the leader's view of us as a follower does not change. An offset out of range is an answer too."""
    spec = FetchPartitionSpec(
        *(partition.topic_partition.topic, partition.topic_id, partition.topic_partition.partition),
        current_leader_epoch=epoch,
        fetch_offset=offset,
        max_bytes=FETCH_BYTES,
        flushed_offset=offset,
    )
    async with asyncio.timeout(FETCH_TIMEOUT_S):
        ((fetched,), _) = await peer.fetch(FetchSpec(max_bytes=FETCH_BYTES), [spec])
    is_range = fetched.error_code is ErrorCode.OFFSET_OUT_OF_RANGE and fetched.log_start_offset >= 0
    if fetched.error_code is not ErrorCode.NONE and not is_range:
        raise KafkaError.of(fetched.error_code, f"the leader does not give offset {offset}")
    return fetched
