"""DeleteRecords on the leader: move the log start, and wait until every replica that lives or may be elected has moved its own.

May touch:  asyncio, the logs' manager, partitions.      Must not touch: network, files.
Invariants: what is answered as deleted is deleted on every live replica and on every eligible one, and in the checkpoint files of
            all of them: no clean election and no kill brings it back; nothing above the high watermark is deleted; nothing is
            while an eligible replica is away.
Read next:  partition.py; barnabas_log/directories/checkpointing.py, `raise_log_starts`.

As in Kafka, a follower learns the leader's log start with a fetch answer and reports its own with a later fetch. Unlike Kafka's,
ours writes its checkpoint first: Kafka writes it once a minute, so records come back after a kill of all brokers.

While a deletion waits, the followers' log starts, which the leader keeps anyway, are looked at now and then: a fetch costs no
step more. This also sees brokers that are fenced meanwhile: a deletion waits for one only if it is in the ISR or
eligible (ELR); others move when they fetch again, and are taken into the ISR only then (isr_changes.py).

Retention needs none of this: whoever is elected applies it too. So it continues while an eligible replica is away, and
is the way to free disk then. But where it has moved a log start, that counts here like any other: it is saved first,
too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from barnabas_log.errors import OffsetOutOfRange, StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.errors import DeletionTimedOut, NotEnoughReplicas
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition

logger = logging.getLogger(__name__)

HIGH_WATERMARK = Offset(-1)
"""As an offset to delete before: everything that is committed."""
LOOK_MS = 20
LOOK_MS_PER_PARTITION = 0.1
"""Longer between two looks while many partitions wait, so that looking takes a few percent of the loop at most."""


def deletion_offset(partition: Partition, offset: Offset) -> Offset:
    """Where the log shall begin when the records before `offset` are deleted; -1 means before the high watermark.

    Raises check_leader's errors, OffsetOutOfRange past the high watermark, and POLICY_VIOLATION where the topic is compacted and
    not deleted from: there, as in Kafka, a record goes by a tombstone.
    """
    partition.check_leader()
    config = partition.log.config
    if config.is_compacted and not config.is_retention_on:
        raise KafkaError.of(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.topic_partition} has cleanup.policy=compact: write tombstones, or add delete to the policy",
        )
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(f"{offset} is not between 0 and the high watermark {partition.high_watermark}")
    return offset


def find_away(partition: Partition, eligible: Mapping[BrokerId, str | None]) -> NotEnoughReplicas | None:
    """The refusal while a replica that a clean election may take is away: it would bring back what is deleted. Logged.

    Args:
        eligible: see HostedPartitions.eligible_elsewhere.
    """
    away = [reason for reason in eligible.values() if reason is not None]
    if not away:
        return None
    refusal = NotEnoughReplicas(
        f"{partition.topic_partition}: nothing is deleted while an eligible replica is away, which could be elected and bring it "
        f"back: {', '.join(away)}. Bring it back, or reassign its replica to a broker that lives; to free disk meanwhile, "
        "lower retention.ms or retention.bytes of the topic, which every replica applies by itself"
    )
    logger.info("%s", refusal)  # Kafka's answer has no room for words
    return refusal


def awaited(
    partition: Partition, *, eligible: Collection[BrokerId], is_live: Callable[[BrokerId], bool]
) -> set[BrokerId]:
    """The followers that must have moved: those that live or that a clean election may take."""
    return {
        broker_id
        for broker_id in partition.remotes
        if broker_id in partition.isr.maximal or broker_id in eligible or is_live(broker_id)
    }


def low_watermark(partition: Partition, followers: Collection[BrokerId]) -> Offset:
    """The lowest log start of the leader and of those followers, as their fetches reported."""
    starts = [partition.remotes[broker_id].log_start_offset for broker_id in followers]
    return min([partition.log.log_start_offset, *starts])


class _Waiting(NamedTuple):
    offset: Offset
    leader_epoch: Epoch


async def delete_records(
    asked: Sequence[tuple[TopicPartition, Offset]],
    *,
    hosted: HostedPartitions,
    answer_followers: Callable[[Partition], None],
    raise_log_starts: Callable[[Mapping[UnifiedLog, Offset]], object],
    timeout_ms: int,
) -> list[Offset | KafkaError]:
    """Delete the records before each offset (-1: before the high watermark).

    Args:
        answer_followers: answers the parked fetches of its followers now, so that they hear of the new log start.
        raise_log_starts: see Checkpointing.raise_log_starts.
    Returns, in the order asked: the lowest log start of the replicas that live or may be elected, or why it is not known to be there.
    """
    results: list[Offset | KafkaError] = [Offset(0)] * len(asked)
    waiting: dict[int, _Waiting] = {}
    behind: dict[int, list[BrokerId]] = {}
    deadline_s = asyncio.get_running_loop().time() + max(0, timeout_ms) / 1000
    starts: dict[UnifiedLog, Offset] = {}
    refusals: dict[TopicPartition, NotEnoughReplicas | None] = {}
    """The refusal of each partition, or None, asked once however often the request names it."""
    for index, (topic_partition, offset) in enumerate(asked):
        try:
            partition = hosted.leader_partition(topic_partition)
            wanted = deletion_offset(partition, offset)
            if topic_partition not in refusals:
                refusals[topic_partition] = find_away(partition, hosted.eligible_elsewhere(partition))
            refusal = refusals[topic_partition]
            if refusal is not None:
                raise refusal
        except KafkaError as error:
            results[index] = error
            continue
        waiting[index] = _Waiting(wanted, partition.leader_epoch)
        starts[partition.log] = max(wanted, starts.get(partition.log, wanted))
    failed: Collection[UnifiedLog] = await raise_log_starts(starts)  # type: ignore[misc]
    for index in tuple(waiting):
        try:
            partition = hosted.leader_partition(asked[index][0], waiting[index].leader_epoch)
            if partition.log in failed:
                raise StorageFailed(f"{partition.topic_partition}: its log start could not be saved")
            answer_followers(partition)
        except KafkaError as error:
            results[index] = error
            del waiting[index]
    while True:
        lows: dict[Partition, tuple[set[BrokerId], Offset]] = {}
        for index in tuple(waiting):
            offset, epoch = waiting[index]
            try:
                partition = hosted.leader_partition(asked[index][0], epoch)
            except KafkaError as error:
                results[index] = error
                del waiting[index]
                continue
            if partition not in lows:
                followers = awaited(
                    partition,
                    eligible=hosted.eligible_elsewhere(partition).keys(),
                    is_live=lambda broker_id: hosted.active_broker_epoch(broker_id) is not None,
                )
                lows[partition] = followers, low_watermark(partition, followers)
            followers, low = lows[partition]
            if low >= offset:
                results[index] = low
                del waiting[index]
            else:
                behind[index] = [each for each in followers if partition.remotes[each].log_start_offset < offset]
        left_s = deadline_s - asyncio.get_running_loop().time()
        if not waiting or left_s <= 0:
            break
        await asyncio.sleep(min(left_s, max(LOOK_MS, len(waiting) * LOOK_MS_PER_PARTITION) / 1000))
    for index in waiting:
        results[index] = DeletionTimedOut(
            f"{asked[index][0]}: brokers {', '.join(map(str, sorted(behind[index])))} have not deleted the records yet; they do when "
            "they fetch, and until then one of them could be elected and bring the records back: ask again"
        )
    return results
