"""Log directories: where a broker keeps each replica, and the consequences when a directory fails (KIP-858).

May touch:  image, partition_change.   Must not touch: everything that waits.
Invariants: the registration lists the directories that work; a replica in another one is in no ISR and leads nothing; a
            replica that was created again because its directory is gone counts as having lost its records.
Read next:  partition_rules.py (who may lead), brokers.py (the heartbeat that reports a failure).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.partition_change import build_change
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable
from barnabas_quorum.controller.partitions import PlacedPartition, held_partitions, registered_broker
from barnabas_quorum.controller.requests_partitions import (
    AssignReplicasToDirectories,
    AssignReplicasToDirectoriesReply,
    PlacedReplica,
    ReplicaPlacement,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.directories import DOUBTED_DIRECTORY, LOST_DIRECTORY, directory_of, is_reserved
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import BrokerRegistrationChangeRecord, PartitionChangeRecord, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid


def fail_directories(
    image: MetadataImage, broker: BrokerRegistration, offline: Collection[Uuid], *, rules: PartitionRules
) -> list[Record]:
    """The broker reports failed directories. Replicas in them leave their ISRs and lead nothing. Replicas whose
    directory it has not reported are marked as doubted. Then the directories leave the registration. No records when all of
    that is known already."""
    failed = [directory for directory in broker.directories if directory in offline]
    if not failed:
        return []
    records: list[Record] = []
    for placed in held_partitions(image, broker.id):
        directory = directory_of(placed.partition, broker.id)
        if directory in failed:
            change = _leave(image, placed, broker.id, rules=rules)
            if change is not None:
                records.append(change)
        elif is_reserved(directory) and directory not in (LOST_DIRECTORY, DOUBTED_DIRECTORY):
            directories = _moved(placed.partition, broker.id, DOUBTED_DIRECTORY)
            records.append(
                PartitionChangeRecord(
                    topic_id=placed.topic.id, partition_id=placed.partition_id, directories=directories
                )
            )
    left = tuple(directory for directory in broker.directories if directory not in failed)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, directories=left))
    return records


@decides(AssignReplicasToDirectories)
def assign_directories(
    image: MetadataImage, request: AssignReplicasToDirectories, context: DecisionContext
) -> ControllerResult[AssignReplicasToDirectoriesReply]:
    """Each replica succeeds or fails on its own: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
    INVALID_REQUEST. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH for the whole request."""
    broker = registered_broker(image, request.broker_id, request.broker_epoch)
    records: list[Record] = []
    replies: list[PlacedReplica] = []
    done: set[tuple[Uuid, int]] = set()
    for placement in request.placements:
        error: KafkaError | None = None
        try:
            if (placement.topic_id, placement.partition_id) in done:
                raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a replica is in one directory only; name it once")
            done.add((placement.topic_id, placement.partition_id))
            change = _assign(image, broker, placement, rules=context.rules)
            if change is not None:
                records.append(change)
        except KafkaError as refusal:
            error = refusal
        replies.append(PlacedReplica(topic_id=placement.topic_id, partition_id=placement.partition_id, error=error))
    return ControllerResult(
        records=records, response=AssignReplicasToDirectoriesReply(replicas=tuple(replies)), is_atomic=False
    )


def _assign(
    image: MetadataImage, broker: BrokerRegistration, placement: ReplicaPlacement, *, rules: PartitionRules
) -> PartitionChangeRecord | None:
    placed = find_replica(image, broker.id, topic_id=placement.topic_id, partition_id=placement.partition_id)
    if is_reserved(placement.directory_id):
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"directory {placement.directory_id} is reserved and contains no replica"
        )
    topic, index, partition = placed
    before = directory_of(partition, broker.id)
    if before == placement.directory_id:
        return None
    directories = _moved(partition, broker.id, placement.directory_id)
    gone: tuple[BrokerId, ...] = ()
    if placement.directory_id not in broker.directories:
        # the directory failed before the broker could report that the replica was there
        left = _leave(image, placed, broker.id, rules=rules)
        if left is not None:
            return replace(left, directories=directories)
    elif before == LOST_DIRECTORY or (not is_reserved(before) and before not in broker.directories):
        # created again, empty: the cluster's knowledge of its records is void
        gone = (broker.id,)
    moved = replace(partition, directories=directories)
    change = build_change(
        moved,
        topic_id=topic.id,
        partition_id=index,
        is_acceptable=acceptable(image, moved),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        gone=gone,
        spared=image.cluster.in_maintenance,
        allows_unclean=rules.allows_unclean(topic.name),
        domains_of=image.cluster.domains_of,
    )
    if change is None:
        return PartitionChangeRecord(topic_id=topic.id, partition_id=index, directories=directories)
    return replace(change, directories=directories)


def _moved(partition: PartitionRegistration, broker_id: BrokerId, directory: Uuid) -> tuple[Uuid, ...]:
    """The replicas' directories, with the new one for this broker's replica."""
    return tuple(
        directory if replica == broker_id else directory_of(partition, replica) for replica in partition.replicas
    )


def _leave(
    image: MetadataImage, placed: PlacedPartition, broker_id: BrokerId, *, rules: PartitionRules
) -> PartitionChangeRecord | None:
    """The replica leaves the ISR and no longer leads. It stays eligible: a disk that works again still has its records."""
    topic, index, partition = placed
    return build_change(
        partition,
        topic_id=topic.id,
        partition_id=index,
        is_acceptable=acceptable(image, partition, leaving=(broker_id,)),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        target_isr=_without(partition.isr, broker_id),
        spared=image.cluster.in_maintenance,
        allows_unclean=rules.allows_unclean(topic.name),
        domains_of=image.cluster.domains_of,
    )


def _without(members: tuple[BrokerId, ...], broker_id: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member != broker_id)


def find_replica(image: MetadataImage, broker_id: BrokerId, *, topic_id: Uuid, partition_id: int) -> PlacedPartition:
    """The partition, of which the broker must hold a replica. Raises UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER."""
    topic = image.topics.get_by_id(topic_id)
    if topic is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic_id}; it may have been deleted")
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{partition_id} does not exist")
    if broker_id not in partition.replicas:
        raise KafkaError.of(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {broker_id} holds no replica of {topic.name}-{partition_id}",
        )
    return PlacedPartition(topic, partition_id, partition)
