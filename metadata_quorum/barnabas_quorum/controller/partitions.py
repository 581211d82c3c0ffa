"""Partition changes when brokers join or leave, and when leaders propose ISRs: image in, change records out.

May touch:  image, partition_change.   Must not touch: sessions, everything that waits.
Invariants: AlterPartition makes every check before its first record; partitions are visited in the order of topic
            names and numbers, so that one image gives one list of records.
Read next:  partition_change.py, then brokers.py, elections.py and reassignment.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.partition_change import build_change, faults_with
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable
from barnabas_quorum.controller.requests import (
    NO_BROKER_EPOCH,
    AlterPartition,
    AlterPartitionReply,
    PartitionAlteration,
    PartitionAlterationReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.directories import is_directory_online
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.topics import TopicImage
from barnabas_quorum.records import LeaderRecoveryState, PartitionChangeRecord, Record, ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid


class PlacedPartition(NamedTuple):
    """A partition with its place in the image."""

    topic: TopicImage
    partition_id: int
    partition: PartitionRegistration


def held_partitions(image: MetadataImage, *broker_ids: BrokerId) -> Iterator[PlacedPartition]:
    """Every partition of which one of the brokers holds a replica, once, by topic name and number. Visits only these brokers' topics."""
    holders = frozenset(broker_ids)
    held = {topic_id for broker_id in holders for topic_id in image.topics.index.topic_ids_of(broker_id)}
    found = (image.topics.get_by_id(topic_id) for topic_id in held)
    for topic in sorted((topic for topic in found if topic is not None), key=lambda topic: topic.name):
        for index in sorted(topic.partitions):
            partition = topic.partitions[index]
            if not holders.isdisjoint(partition.replicas):
                yield PlacedPartition(topic, index, partition)


def unsettled_partitions(image: MetadataImage) -> Iterator[PlacedPartition]:
    """Every partition that is not settled (image/partition_index.py, is_settled), by topic name and number. In a healthy
    cluster these are few or none, however many partitions there are."""
    keys = [
        (topic.name, index, topic)
        for topic_id, index in image.topics.index.unsettled
        if (topic := image.topics.get_by_id(topic_id)) is not None
    ]
    for _, index, topic in sorted(keys, key=lambda key: key[:2]):
        yield PlacedPartition(topic, index, topic.partitions[index])


def registered_broker(image: MetadataImage, broker_id: BrokerId, broker_epoch: int) -> BrokerRegistration:
    """The broker, if the epoch is that of its registration. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
    broker = image.cluster.broker(broker_id)
    if broker is None:
        raise KafkaError.of(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered; it must register first"
        )
    if broker.epoch != broker_epoch:
        raise KafkaError.of(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} sent epoch {broker_epoch} but is registered with {broker.epoch}: "
            "a newer registration replaced it; it must register again",
        )
    return broker


def leads_any(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Whether the broker leads a partition."""
    return broker_id in image.topics.index.leader_counts


def leave_partitions(
    image: MetadataImage,
    leaving: Collection[BrokerId],
    *,
    rules: PartitionRules,
    is_lost: Callable[[PlacedPartition], bool] = lambda placed: False,
    is_gone: Callable[[PlacedPartition], bool] = lambda placed: False,
    is_copied: Callable[[PlacedPartition], bool] = lambda placed: False,
) -> list[Record]:
    """The brokers leave every ISR and lead nothing, with one change for each partition, however many of them it is on. Where an ISR
    falls below min.insync.replicas they stay eligible to lead again, unless their records cannot be trusted (is_lost), are
    certainly gone (is_gone; elr.py), or are those of an older copy of the directory (is_copied): such a replica is faulty until it
    is refilled."""
    changes: list[Record] = []
    spared = image.cluster.in_maintenance
    for placed in held_partitions(image, *leaving):
        topic, index, partition = placed
        here = {replica for replica in partition.replicas if replica in leaving}
        gone = here if is_gone(placed) else ()
        lost = here if is_lost(placed) else gone
        is_in_sync = partition.leader in here or not here.isdisjoint(partition.isr)
        is_older = is_copied(placed) and not gone
        counts = is_in_sync or not here.isdisjoint((*partition.elr, *partition.last_known_elr))
        is_struck = (
            (is_older and counts)
            or (lost and not here.isdisjoint(partition.elr))
            or (gone and not here.isdisjoint((*partition.last_known_elr, *dict(partition.faults))))
        )
        if not is_in_sync and not is_struck:
            continue
        change = build_change(
            partition,
            topic_id=topic.id,
            partition_id=index,
            is_acceptable=acceptable(image, partition, leaving=here),
            min_insync_replicas=rules.min_insync_replicas(topic.name),
            target_isr=tuple(member for member in partition.isr if member not in here),
            lost=lost,
            gone=gone,
            spared=spared,
            allows_unclean=rules.allows_unclean(topic.name),
            domains_of=image.cluster.domains_of,
            target_faults=faults_with(partition, here, ReplicaFault.LOST) if is_older and counts else None,
        )
        if change is not None:
            changes.append(change)
    return changes


@decides(AlterPartition)
def alter_partition(
    image: MetadataImage, request: AlterPartition, context: DecisionContext
) -> ControllerResult[AlterPartitionReply]:
    """ISR changes that leaders propose (KIP-497, 704, 903). Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH for the
    whole request; every other error is for one partition."""
    registered_broker(image, request.broker_id, request.broker_epoch)
    records: list[Record] = []
    replies: list[PartitionAlterationReply] = []
    altered: set[tuple[Uuid, int]] = set()
    for item in request.partitions:
        try:
            key = (item.topic_id, item.partition_id)
            if key in altered:
                raise KafkaError.of(
                    ErrorCode.INVALID_REQUEST,
                    f"partition {item.partition_id} of {item.topic_id} is named twice in one request; name it once",
                )
            altered.add(key)
            partition, change = _alter_one(image, request.broker_id, item, context.rules)
        except KafkaError as error:
            replies.append(
                PartitionAlterationReply(topic_id=item.topic_id, partition_id=item.partition_id, error=error)
            )
            continue
        if change is not None:
            records.append(change)
            partition = partition.merge(change)
        if partition.leader != request.broker_id:
            moved = KafkaError.of(
                ErrorCode.NEW_LEADER_ELECTED,
                f"partition {item.partition_id} of {item.topic_id} was reassigned or its leader was faulty: the ISR is "
                f"accepted, and broker {partition.leader} leads it now",
            )
            replies.append(
                PartitionAlterationReply(topic_id=item.topic_id, partition_id=item.partition_id, error=moved)
            )
            continue
        replies.append(
            PartitionAlterationReply(
                topic_id=item.topic_id,
                partition_id=item.partition_id,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=partition.isr,
                leader_recovery_state=partition.leader_recovery_state,
                partition_epoch=partition.partition_epoch,
            )
        )
    return ControllerResult(records=records, response=AlterPartitionReply(partitions=tuple(replies)), is_atomic=False)


def _alter_one(
    image: MetadataImage, sender: BrokerId, item: PartitionAlteration, rules: PartitionRules
) -> tuple[PartitionRegistration, PartitionChangeRecord | None]:
    """The checks in the order of Kafka's ReplicationControlManager.validateAlterPartitionData, then the change."""
    topic = image.topics.get_by_id(item.topic_id)
    if topic is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {item.topic_id}; it may have been deleted")
    partition = topic.partitions.get(item.partition_id)
    name = f"{topic.name}-{item.partition_id}"
    if partition is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist")
    if item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.partition_epoch:
        raise KafkaError.of(
            ErrorCode.NOT_CONTROLLER,
            f"the proposal for {name} has leader epoch {item.leader_epoch}, partition epoch {item.partition_epoch}, but this "
            f"controller knows only {partition.leader_epoch} and {partition.partition_epoch}: ask the newer controller",
        )
    if item.leader_epoch < partition.leader_epoch:
        raise KafkaError.of(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name} has leader epoch {partition.leader_epoch}, not {item.leader_epoch}: "
            f"broker {partition.leader} leads it now",
        )
    if partition.leader != sender:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"broker {partition.leader} leads {name}; only the leader may alter its ISR"
        )
    if item.partition_epoch < partition.partition_epoch:
        raise KafkaError.of(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} has partition epoch {partition.partition_epoch}, not {item.partition_epoch}: "
            "read the newer metadata and propose again",
        )
    new_isr = tuple(member.broker_id for member in item.new_isr)
    _check_isr(name, partition, new_isr)
    _check_recovery(name, partition, new_isr, item.leader_recovery_state)
    _check_members(image, name, partition, item)
    may_lead = acceptable(image, partition)
    change = build_change(
        partition,
        topic_id=item.topic_id,
        partition_id=item.partition_id,
        # The leader is in the new ISR and keeps leading, even while it shuts down: another decision handles that. Another
        # broker leads only when this ISR completes a reassignment that removes the present leader, or adds the first
        # healthy member beside a faulty leader or one in maintenance.
        is_acceptable=lambda candidate: candidate == sender or may_lead(candidate),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        target_isr=new_isr,
        spared=image.cluster.in_maintenance,
        leader_recovery_state=item.leader_recovery_state,
    )
    return partition, change


def _check_isr(name: str, partition: PartitionRegistration, new_isr: tuple[BrokerId, ...]) -> None:
    if len(set(new_isr)) != len(new_isr):
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name}: the proposed ISR {new_isr} contains a broker twice")
    strangers = [member for member in new_isr if member not in partition.replicas]
    if strangers:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"{name}: brokers {strangers} of the proposed ISR are not among its replicas {partition.replicas}",
        )
    if partition.leader not in new_isr:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"{name}: the proposed ISR {new_isr} lacks the leader {partition.leader}"
        )


def _check_recovery(
    name: str, partition: PartitionRegistration, new_isr: tuple[BrokerId, ...], proposed: LeaderRecoveryState
) -> None:
    if proposed is not LeaderRecoveryState.RECOVERING:
        return
    if len(new_isr) > 1:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"{name}: a leader that is recovering from an unclean election must be alone in the ISR, not {new_isr}",
        )
    if partition.leader_recovery_state is LeaderRecoveryState.RECOVERED:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name}: its leader has recovered and cannot recover again")


def _check_members(
    image: MetadataImage, name: str, partition: PartitionRegistration, item: PartitionAlteration
) -> None:
    """Every member must be able to lead, and be the process that the leader knows (KIP-903)."""
    for member in item.new_isr:
        broker = image.cluster.broker(member.broker_id)
        fault = partition.fault_of(member.broker_id)
        if broker is None:
            reason = "is not registered"
        elif broker.is_fenced:
            reason = "is fenced"
        elif broker.is_in_controlled_shutdown:
            reason = "is shutting down"
        elif not is_directory_online(image, partition, member.broker_id):
            reason = "has lost the log directory of its replica"
        elif fault is not None and member.broker_id != partition.leader:
            # the leader may be faulty while no healthy replica is in sync, and this ISR may add the first one
            reason = f"has a faulty replica ({fault.name})"
        elif member.broker_epoch not in (NO_BROKER_EPOCH, broker.epoch):
            reason = f"is registered with epoch {broker.epoch}, not {member.broker_epoch}: it has restarted"
        else:
            continue
        raise KafkaError.of(
            ErrorCode.INELIGIBLE_REPLICA,
            f"{name}: broker {member.broker_id} cannot be in the ISR, it {reason}; propose again without it",
        )
