"""What a follower does to its log: append what the leader sent, cut what the leader does not have, start an empty log.

May touch:  the partition and its log.   Must not touch: peers, clocks.
Invariants: the HW never passes the log's end; a log is cut below its HW only after an unclean election, or where no
            other node counts on it.
Read next:  fetcher_partitions.py, which calls this; truncation.py for where to cut (KIP-101, KIP-279).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from barnabas_log.forgotten import Copied
from barnabas_log.tail import truncating
from barnabas_replication.follower.truncation import EpochEnd, truncation_offset
from barnabas_replication.partition import Partition
from barnabas_replication.requests import Buffer
from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.records.batch import read_header

logger = logging.getLogger(__name__)


class TruncationStep(NamedTuple):
    """What a follower did about a diverging epoch."""

    offset: Offset
    is_below_high_watermark: bool


def append_as_follower(
    partition: Partition, batches: Buffer, *, high_watermark: Offset, log_start_offset: Offset
) -> bool:
    """Take in what the leader sent (possibly nothing); returns whether the log grew. Raises what the log refuses."""
    log = partition.log
    has_grown = len(batches) > 0
    if has_grown:
        if log.log_start_offset == log.log_end_offset:
            _begin_where_its_first_batch_does(partition, batches)
        log.tail.append_as_follower(batches, leader_epoch=partition.leader_epoch)
        log.tail.write_pending()
    if partition.is_lost and partition.durable_end_offset >= high_watermark:
        partition.is_refilled = True
    following = min(high_watermark, log.log_end_offset)
    if following > partition.high_watermark:
        partition.set_high_watermark(following)
        if partition.consumer_fetches:
            partition.consumer_fetches.wake()
    if log.is_start_doubted and 0 <= log_start_offset <= log.log_start_offset:
        log.is_start_doubted = False  # its leader's decides
    if log_start_offset > log.log_start_offset and partition.high_watermark > log.log_start_offset:
        partition.events.raise_log_start(partition, min(log_start_offset, partition.high_watermark))
    return has_grown


def note_forgotten(partition: Partition, below: Offset, *, is_copy: bool) -> None:
    """What is taken in from here on lacks deletions below that offset, as the leader says. Blocks for a flush, once for each offset.

    is_copy: our log holds nothing yet. Raises StorageFailed, OutOfDescriptors.
    """
    log = partition.log
    try:
        if is_copy:
            log.forgotten.begin_copy(Copied(partition.leader_epoch, below))
        else:
            log.forgotten.save(below)
            log.forgotten.publish(below)
    except OSError as error:
        raise log.tail.failed_by(error) from error


def refuse_forgotten(partition: Partition, below: Offset) -> None:
    """The leader has forgotten deletions below that offset which this replica may never have had: it takes nothing more in, and
    must be refilled."""
    if partition.missed_below == NO_OFFSET:
        logger.warning(
            "%s: broker %d has compacted away deletions below %d, and this replica ends at %d: it may hold what was deleted, "
            "so it is out of the ISR and eligible for nothing until it is filled anew",
            partition.topic_partition,
            partition.leader_id,
            below,
            partition.log.log_end_offset,
        )
    partition.missed_below = below
    partition.events.on_lacking(partition)


def doubt_deletions(partition: Partition) -> None:
    """The leader does not say which deletions it has forgotten: any may be. Raises StorageFailed, OutOfDescriptors."""
    log = partition.log
    try:
        log.forgotten.doubt(log.log_end_offset)
    except OSError as error:
        raise log.tail.failed_by(error) from error


def _begin_where_its_first_batch_does(partition: Partition, batches: Buffer) -> None:
    """Our log is empty. It may begin within a batch, since DeleteRecords may name any record; leaders send whole batches."""
    log = partition.log
    first = read_header(batches)
    if first.base_offset < log.log_end_offset <= first.last_offset:
        truncating.truncate_fully_and_start_at(log, first.base_offset)
        partition.set_high_watermark(first.base_offset)


def truncate_for(partition: Partition, leader: EpochEnd) -> TruncationStep | None:
    """Cut to where our history parts from the leader's; another round may cut further (KIP-279).

    None when the cut falls within damage and has to wait. It would take the whole damaged range, of which the part before the cut
    may be committed; where the damage is gone with it, nothing shows that, so the cluster must know of the damage first.
    """
    log = partition.log
    local = EpochEnd(*log.end_offset_for_epoch(leader.epoch))
    offset = truncation_offset(leader=leader, local=local, log_end_offset=log.log_end_offset)
    is_in_damage = any(damage.first_offset < offset < damage.end_offset for damage in log.damage)
    if is_in_damage and not partition.is_known_out_of_sync:
        return None
    truncating.truncate_to(log, offset)
    end = log.log_end_offset
    is_below = end < partition.high_watermark
    if is_below:
        # Legal only after an unclean election; then the new leader's history is the truth.
        logger.warning("%s: truncated to %d, below HW %d", partition.topic_partition, end, partition.high_watermark)
        partition.set_high_watermark(end)
    return TruncationStep(end, is_below)


def cut_before_damage(partition: Partition, offset: Offset) -> None:
    """End the log at `offset`, below which all is sound: for a replica that no node counts on. Raises StorageFailed."""
    truncating.truncate_to(partition.log, offset)
    partition.set_high_watermark(min(partition.high_watermark, partition.log.log_end_offset))


def restart_at(partition: Partition, offset: Offset) -> None:
    """Our whole log lies outside the leader's: drop it and begin at the leader's start."""
    truncating.truncate_fully_and_start_at(partition.log, offset)
    partition.set_high_watermark(offset)
