"""Elections on request and by the controller's periodic work: leaderless, preferred, unclean.

May touch:  image, partition_change.   Must not touch: sessions (their verdict is an argument), everything that waits.
Invariants: every change names a leader that may lead; a run makes a limited number of changes; partitions are visited by
            topic name and number, so that one image gives one list of records.
Read next:  partition_change.py.

A broker gets a leadership back when it is in sync in *every* partition it holds and has been in service for
leader.imbalance.settle.ms: while it catches up elsewhere it needs its disk and network for that (KIP-1358 describes the
problem in Kafka). A broker with a replica that never catches up does not wait for ever: after SETTLE_PATIENCE times as long,
being in sync in the partition itself is enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX, DecisionContext, decides
from barnabas_quorum.controller.partition_change import Election, build_change
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable
from barnabas_quorum.controller.partitions import PlacedPartition, unsettled_partitions
from barnabas_quorum.controller.requests_partitions import (
    ElectedPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.directories import is_directory_online
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import PartitionChangeRecord, Record, ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId

SETTLE_PATIENCE = 20
"""After this many settle times a broker gets leaderships back although it is out of sync somewhere else."""


def elect_leaderless(
    image: MetadataImage, *, rules: PartitionRules, records_max: int, joining: BrokerId | None = None
) -> list[Record]:
    """Elect leaders for partitions that have none or a corrupt one, where a replica may lead; at most `records_max` changes.
    `joining` is a broker that is being unfenced."""
    changes: list[Record] = []
    spared = image.cluster.in_maintenance
    for topic, index, partition in unsettled_partitions(image):
        if partition.leader != NO_BROKER and partition.fault_of(partition.leader) is not ReplicaFault.CORRUPT:
            continue
        if len(changes) == records_max:
            break
        change = build_change(
            partition,
            topic_id=topic.id,
            partition_id=index,
            is_acceptable=acceptable(image, partition, joining=joining),
            min_insync_replicas=rules.min_insync_replicas(topic.name),
            spared=spared,
            allows_unclean=rules.allows_unclean(topic.name),
            domains_of=image.cluster.domains_of,
        )
        if change is not None:
            changes.append(change)
    return changes


def balance_leaders(
    image: MetadataImage,
    *,
    rules: PartitionRules,
    unfenced_since_ms: Mapping[BrokerId, int],
    settle_ms: int,
    now_ms: int,
    records_max: int,
) -> list[Record]:
    """Hand partitions back to their preferred leaders where those have settled; at most `records_max` changes.

    Args:
        unfenced_since_ms: since when each broker serves, as far as this controller knows; a missing broker is new.
    """
    settled = settled_brokers(image, unfenced_since_ms=unfenced_since_ms, settle_ms=settle_ms, now_ms=now_ms)
    changes: list[Record] = []
    for placed in unsettled_partitions(image):
        if len(changes) == records_max:
            break
        preferred = placed.partition.preferred_leader
        if placed.partition.leader == preferred or preferred not in settled:
            continue
        change = _preferred_change(image, placed, rules=rules)
        if change is not None:
            changes.append(change)
    return changes


def settled_brokers(
    image: MetadataImage, *, unfenced_since_ms: Mapping[BrokerId, int], settle_ms: int, now_ms: int
) -> frozenset[BrokerId]:
    """Brokers that may get leaderships back (see above)."""
    catching_up = {
        replica
        for _, _, partition in unsettled_partitions(image)
        for replica in partition.replicas
        if replica not in partition.isr
        and replica not in partition.adding_replicas
        and is_directory_online(image, partition, replica)
        and partition.fault_of(replica) is None
    }

    def is_settled(broker_id: BrokerId) -> bool:
        in_service_ms = now_ms - unfenced_since_ms.get(broker_id, now_ms)
        wanted_ms = settle_ms * SETTLE_PATIENCE if broker_id in catching_up else settle_ms
        return in_service_ms >= wanted_ms

    return frozenset(
        broker.id
        for broker in image.cluster.sorted_brokers()
        if broker.is_active and not broker.is_in_maintenance and is_settled(broker.id)
    )


@decides(ElectLeaders)
def elect_leaders(
    image: MetadataImage, request: ElectLeaders, context: DecisionContext
) -> ControllerResult[ElectLeadersReply]:
    """Elect leaders on an operator's request (KIP-183, KIP-460). Each partition succeeds or fails on its own:
    UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    POLICY_VIOLATION.

    When the request is for all partitions, the reply leaves out those that need no election.
    """
    elect = _elect_preferred if request.election_type is ElectionType.PREFERRED else _elect_unclean
    asked = request.partitions
    if asked is None:
        # the others have their preferred leader
        asked = tuple((topic.name, index) for topic, index, _ in unsettled_partitions(image))
    records: list[Record] = []
    replies: list[ElectedPartition] = []
    done: set[tuple[str, int]] = set()
    for topic_name, index in asked:
        error: KafkaError | None = None
        leader = NO_BROKER
        try:
            if (topic_name, index) in done:
                raise KafkaError.of(
                    ErrorCode.INVALID_REQUEST, f"{topic_name}-{index} is named twice in one request; name it once"
                )
            done.add((topic_name, index))
            change = elect(image, _find(image, topic_name, index), context.rules)
            if len(records) == RECORDS_PER_BATCH_MAX:
                raise KafkaError.of(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request may contain at most {RECORDS_PER_BATCH_MAX} elections; send the rest in another",
                )
            records.append(change)
            leader = change.leader if change.leader is not None else NO_BROKER
        except KafkaError as refusal:
            if request.partitions is None and refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            error = refusal
        replies.append(ElectedPartition(topic=topic_name, partition_id=index, leader=leader, error=error))
    return ControllerResult(records=records, response=ElectLeadersReply(partitions=tuple(replies)), is_atomic=False)


def _elect_preferred(image: MetadataImage, placed: PlacedPartition, rules: PartitionRules) -> PartitionChangeRecord:
    topic, index, partition = placed
    preferred = partition.preferred_leader
    if partition.leader == preferred:
        raise KafkaError.of(
            ErrorCode.ELECTION_NOT_NEEDED, f"the preferred leader {preferred} of {topic.name}-{index} leads already"
        )
    change = _preferred_change(image, placed, rules=rules)
    if change is None:
        if not image.cluster.is_active(preferred):
            reason = "is not in service: start it, or reassign the partition"
        elif preferred in image.cluster.in_maintenance:
            reason = f"is in maintenance: `barnabas broker undrain {preferred}` ends that"
        elif not is_directory_online(image, partition, preferred):
            reason = "has lost the log directory of its replica: repair the disk, or reassign the partition"
        elif (fault := partition.fault_of(preferred)) is not None:
            reason = f"has a faulty replica ({fault.name}): `barnabas explain partition {topic.name} {index}` shows the remedy"
        else:
            reason = f"is not among the in-sync replicas {list(partition.isr)}: wait until it has caught up"
        raise KafkaError.of(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"{topic.name}-{index}: the preferred leader, broker {preferred}, {reason}",
        )
    return change


def _preferred_change(
    image: MetadataImage, placed: PlacedPartition, *, rules: PartitionRules
) -> PartitionChangeRecord | None:
    """The change that makes the preferred leader lead, or None when it may not."""
    topic, index, partition = placed
    change = build_change(
        partition,
        topic_id=topic.id,
        partition_id=index,
        is_acceptable=acceptable(image, partition),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        election=Election.PREFERRED,
        spared=image.cluster.in_maintenance,
    )
    return change if change is not None and change.leader == partition.preferred_leader else None


def _elect_unclean(image: MetadataImage, placed: PlacedPartition, rules: PartitionRules) -> PartitionChangeRecord:
    topic, index, partition = placed
    if partition.leader != NO_BROKER:
        raise KafkaError.of(
            ErrorCode.ELECTION_NOT_NEEDED,
            f"{topic.name}-{index} has a leader, broker {partition.leader}; an unclean election is only for a partition without one",
        )
    change = build_change(
        partition,
        topic_id=topic.id,
        partition_id=index,
        is_acceptable=acceptable(image, partition),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        spared=image.cluster.in_maintenance,
        allows_unclean=True,
        domains_of=image.cluster.domains_of,
    )
    if change is None or change.leader is None or change.leader == NO_BROKER:
        raise KafkaError.of(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"{topic.name}-{index}: none of its replicas {list(partition.replicas)} is in service with a working log "
            "directory; start one of these brokers, or reassign the partition to a running one and elect again",
        )
    return change


def _find(image: MetadataImage, topic_name: str, index: int) -> PlacedPartition:
    topic = image.topics.get(topic_name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise KafkaError.of(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{topic_name}-{index} does not exist; `barnabas topic list` shows the topics",
        )
    return PlacedPartition(topic, index, partition)
