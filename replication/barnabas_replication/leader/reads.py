"""What a fetch gets of one partition: a consumer up to the HW, a follower up to the LEO, which also says how far it is.

May touch:  the partition and its log.   Must not touch: the network, the controller, clocks.
Invariants: an error is part of the outcome; a follower's offset counts only from an incarnation that the image knows,
            and only at the first look; a leader asks no follower to cut its log unless it knows the epoch asked for.
Read next:  fetches.py, which parks what finds nothing; truncation.py for where histories part.
"""

from __future__ import annotations

from barnabas_log.disk import FileRange
from barnabas_log.errors import InconsistentTopicId, OffsetOutOfRange, StorageFailed
from barnabas_replication.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from barnabas_replication.follower.truncation import EpochEnd, find_divergence, must_begin_anew
from barnabas_replication.leader import isr_changes
from barnabas_replication.leader.read_replica import RACK_AWARE_SELECTOR, preferred_read_replica
from barnabas_replication.leader.replica_state import replica_after_fetch
from barnabas_replication.partition import Partition
from barnabas_replication.requests import (
    DivergingEpoch,
    FetchOutcome,
    FetchPartitionSpec,
    FetchSpec,
)
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import (
    NO_BROKER,
    NO_EPOCH,
    NO_OFFSET,
    ZERO_UUID,
    BrokerId,
    Epoch,
    Offset,
)
from barnabas_wire.tuples import new_tuple

SUSPECT_REPEATS = 5
"""A follower that is sent the same offset this often in a row, and asks again, is taken to refuse what it gets."""


def fetch_from(
    partition: Partition,
    spec: FetchPartitionSpec,
    request: FetchSpec,
    *,
    bytes_max: int,
    is_one_batch_due: bool,
    is_first_look: bool,
    now_ms: int,
) -> FetchOutcome:
    """Read for a consumer (up to the HW) or a follower (up to the LEO). Errors come back inside the outcome.

    bytes_max: what is left of the whole answer. is_one_batch_due: give one batch even if it is larger. is_first_look:
    False when a parked fetch is looked at again; only the first look says where the follower is.
    """
    _, topic_id, _, known_epoch, offset, asked_epoch, follower_start, partition_bytes_max, flushed = spec
    log = partition.log
    log_start, log_end = log.log_start_offset, log.log_end_offset
    topic, number = partition.topic_partition
    is_repeat = False
    is_consumer = request.replica_id < 0
    aborted: tuple[tuple[int, int], ...] = ()
    try:
        if (
            not partition.is_leader
            or partition.storage_error
            or (known_epoch != NO_EPOCH and known_epoch != partition.leader_epoch)
        ):
            if partition.is_leader or not request.may_read_follower or not is_consumer:
                partition.check_leader(known_epoch)  # says why not
            _check_follower_read(partition, known_epoch, offset)
        if topic_id != partition.topic_id and topic_id != ZERO_UUID:
            raise InconsistentTopicId(f"{partition.topic_partition} has topic id {partition.topic_id}")
        if asked_epoch >= 0 and (asked_epoch != log.latest_epoch or offset > log_end):
            divergence = _divergence(partition, asked_epoch, offset, None if is_consumer else follower_start)
            if divergence is not None:
                high_watermark = partition.high_watermark
                return FetchOutcome(
                    topic, partition.topic_id, number, None, high_watermark, high_watermark, log_start, divergence
                )
        if not log_start <= offset <= log_end:
            raise OffsetOutOfRange(f"{partition.topic_partition} holds {log_start} to {log_end}, not {offset}")
        if is_consumer:
            if log.is_start_doubted:
                partition.check_log_start()
            end = log.last_stable_offset if request.is_read_committed else partition.high_watermark
            if request.rack and partition.is_leader:
                preferred = _preferred_read_replica(partition, request.rack, offset)
                if preferred is not None:
                    marks = (partition.high_watermark, log.last_stable_offset, log_start)
                    return FetchOutcome(
                        topic, partition.topic_id, number, None, *marks, preferred_read_replica=preferred
                    )
        else:
            end = log_end
            if is_first_look:
                # What it has not flushed yet is no promise: a power cut would take it.
                durable_end = flushed if NO_OFFSET < flushed < offset else offset
                is_repeat = _note_follower(partition, request, durable_end, follower_start, now_ms)
        high_watermark = partition.high_watermark
        if partition_bytes_max < bytes_max:
            bytes_max = partition_bytes_max
        parts: tuple[FileRange, ...] = ()
        size_bytes = 0
        if offset < end and (bytes_max > 0 or is_one_batch_due):
            parts, size_bytes, base_offset, next_offset = log.read(
                offset, bytes_max=bytes_max, end=end, at_least_one_batch=is_one_batch_due
            )
            if request.is_read_committed and parts and log.aborted:
                aborted = tuple(each[:2] for each in log.aborted.within(base_offset, next_offset))
            if is_repeat and parts:  # none: the answers before this one filled what the whole may bring
                _note_repeat(partition, request.replica_id, offset)
        forgotten_below = NO_OFFSET
        # What was read is of before a swap that takes deletions away, or of after it: so is the offset, in this very
        # turn. A replica in sync has had all that is committed, and nothing else is compacted; only a guess may reach
        # further. Our high watermark is no bound for it: a new leader's may be older than the compaction of its log.
        if offset < log.forgotten.below:
            is_asked = flushed > NO_OFFSET if is_consumer else request.replica_id not in partition.isr.committed
            if is_asked:
                forgotten_below = log.forgotten.below
        marks = (high_watermark, log.last_stable_offset if is_consumer else high_watermark, log_start)
        outcome = (topic, partition.topic_id, number, None, *marks, None, parts, size_bytes, None, NO_BROKER, aborted)
        return new_tuple(FetchOutcome, (*outcome, forgotten_below))
    except KafkaError as error:
        return FetchOutcome(
            topic,
            partition.topic_id,
            number,
            error,
            log_start_offset=log.log_start_offset if isinstance(error, OffsetOutOfRange) else Offset(-1),
            current_leader=partition.current_leader
            if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch | UnknownLeaderEpoch)
            else None,
        )
    except OSError as error:
        failure = StorageFailed(f"{partition.topic_partition} cannot be read: {error}")
        return FetchOutcome(topic, partition.topic_id, number, failure)


def _check_follower_read(partition: Partition, known_epoch: Epoch, offset: Offset) -> None:
    """Raise where a follower cannot serve a consumer that was sent to it."""
    partition.check_epoch(known_epoch)
    if partition.storage_error is not None:
        raise partition.storage_error
    if not partition.is_leader and offset > partition.log.log_end_offset:
        raise OffsetNotAvailable(
            f"{partition.topic_partition} ends at {partition.log.log_end_offset} on this follower so far"
        )


def _preferred_read_replica(partition: Partition, client_rack: str, offset: Offset) -> BrokerId | None:
    if partition.config.replica_selector_class != RACK_AWARE_SELECTOR:
        return None
    return preferred_read_replica(
        client_rack=client_rack,
        leader_id=partition.leader_id,
        racks=partition.cluster.racks(partition.replicas),
        replicas=partition.remotes.values(),
        in_sync=partition.isr.committed,
        fetch_offset=offset,
    )


def _divergence(
    partition: Partition, asked_epoch: Epoch, offset: Offset, follower_start: Offset | None
) -> DivergingEpoch | None:
    """Where the asker's history leaves ours, if it does. Raises UnknownLeaderEpoch or OffsetOutOfRange when that cannot be known.

    follower_start: where the follower's log begins; None for a consumer, which keeps nothing that could come to light.
    """
    log = partition.log
    log_start = log.log_start_offset
    local = EpochEnd(*log.end_offset_for_epoch(asked_epoch))
    if local.epoch < 0:
        # Records of an epoch newer than all ours: it is we who are behind, so no replica may cut its log for us.
        raise UnknownLeaderEpoch(f"{partition.topic_partition} knows no epoch {asked_epoch}")
    if follower_start is not None and must_begin_anew(
        log_start_offset=log_start, local=local, asker_start_offset=follower_start, fetch_offset=offset
    ):
        raise OffsetOutOfRange(f"{partition.topic_partition} starts at {log_start}, after leader epoch {asked_epoch}")
    divergence = find_divergence(asked_epoch=asked_epoch, fetch_offset=offset, local=local)
    return None if divergence is None else DivergingEpoch(*divergence)


def _note_repeat(partition: Partition, replica_id: BrokerId, offset: Offset) -> None:
    """A follower is sent once more what it was sent before. It says so in no other way when it refuses a batch."""
    known, count = partition.repeats.get(replica_id, (offset, 0))
    count = count + 1 if known == offset else 1
    partition.repeats[replica_id] = (offset, count % SUSPECT_REPEATS)
    if count == SUSPECT_REPEATS:
        partition.events.suspect(partition, offset)


def _note_follower(
    partition: Partition, request: FetchSpec, durable_end: Offset, log_start_offset: Offset, now_ms: int
) -> bool:
    """Returns whether the follower has not moved since its last fetch and is below our end."""
    replica_id = request.replica_id
    replica = partition.remotes.get(replica_id)
    if replica is None:
        raise NotLeaderOrFollower(f"broker {replica_id} is no replica of {partition.topic_partition}")
    if not partition.is_known_incarnation(replica_id, request.replica_epoch):
        return False
    moved = replica_after_fetch(
        replica,
        durable_end=durable_end,
        log_start_offset=log_start_offset,
        leader_end_offset=partition.log.log_end_offset,
        now_ms=now_ms,
        broker_epoch=request.replica_epoch,
    )
    partition.remotes[replica_id] = moved
    if replica_id not in partition.isr.maximal:
        isr_changes.expand_isr(partition, moved)
    if partition.log.is_start_doubted:
        partition.settle_log_start()
    if durable_end != replica.end_offset:
        partition.advance_high_watermark(now_ms)
        return False
    return durable_end < partition.log.log_end_offset
