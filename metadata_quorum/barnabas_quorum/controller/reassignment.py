"""Reassignment: a partition changes its replicas while it is served (KIP-455, KIP-860).

May touch:  image, partition_change.   Must not touch: everything that waits.
Invariants: until it is complete, the replicas are the wanted ones and those to be removed; the original replicas are always
            known (replicas less adding), so that a cancel or another target starts from them; no in-sync replica is
            dropped before all wanted replicas are in sync, unless the operator cancels.
Read next:  partition_change.py (`completed_reassignment`), partitions.py, where an ISR change completes one.

Differs from Kafka: a new target for a reassignment under way starts from the original replicas, so that a later cancel
returns to them; replicas that only the former target wanted are dropped at once. A cancel or another target never drops the
only replica known to hold the committed records, even while it is down (Kafka looks at the ISR only).
"""

from __future__ import annotations

from functools import partial

from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX, DecisionContext, decides
from barnabas_quorum.controller.elr import known_holders
from barnabas_quorum.controller.partition_change import Replicas, build_change
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable, replica_directory
from barnabas_quorum.controller.partitions import unsettled_partitions
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    OngoingReassignment,
    PartitionReassignment,
    ReassignedPartition,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.topics import TopicImage
from barnabas_quorum.records import PartitionChangeRecord, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId


def is_reassigning(partition: PartitionRegistration) -> bool:
    """Whether replicas are being added or removed."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def original_replicas(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    """The replicas before the reassignment under way."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def reassigned_replicas(partition: PartitionRegistration, target: tuple[BrokerId, ...]) -> Replicas:
    """The replicas while the partition moves to `target`: the wanted ones in their order, then those to be removed."""
    original = original_replicas(partition)
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    return Replicas((*target, *removing), adding, removing)


@decides(AlterPartitionReassignments)
def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignments, context: DecisionContext
) -> ControllerResult[AlterPartitionReassignmentsReply]:
    """Each partition succeeds or fails on its own: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION, INVALID_REQUEST."""
    records: list[Record] = []
    replies: list[ReassignedPartition] = []
    done: set[tuple[str, int]] = set()
    for item in request.partitions:
        error: KafkaError | None = None
        name = f"{item.topic}-{item.partition_id}"
        try:
            if (item.topic, item.partition_id) in done:
                raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{name} is named twice in one request; name it once")
            done.add((item.topic, item.partition_id))
            topic = image.topics.get(item.topic)
            partition = None if topic is None else topic.partitions.get(item.partition_id)
            if topic is None or partition is None:
                raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist")
            if item.replicas is None:
                change = _cancel(image, topic, item, partition, context.rules)
            else:
                _check_target(
                    image, name, partition, item.replicas, is_growth_allowed=request.allow_replication_factor_change
                )
                change = _reassign(
                    image, topic, item, partition, reassigned_replicas(partition, item.replicas), context.rules
                )
            if len(records) == RECORDS_PER_BATCH_MAX and change is not None:
                raise KafkaError.of(
                    ErrorCode.POLICY_VIOLATION,
                    f"one request may change at most {RECORDS_PER_BATCH_MAX} partitions; send the rest in another",
                )
            if change is not None:
                records.append(change)
        except KafkaError as refusal:
            error = refusal
        replies.append(ReassignedPartition(topic=item.topic, partition_id=item.partition_id, error=error))
    return ControllerResult(
        records=[] if request.validate_only else records,
        response=AlterPartitionReassignmentsReply(partitions=tuple(replies)),
        is_atomic=False,
    )


@decides(ListPartitionReassignments)
def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignments, context: DecisionContext
) -> ControllerResult[ListPartitionReassignmentsReply]:
    """The requested reassignments that are under way; partitions that do not exist are skipped, as in Kafka."""
    wanted = None if request.partitions is None else set(request.partitions)
    found = [
        OngoingReassignment(
            topic=topic.name,
            partition_id=index,
            replicas=partition.replicas,
            adding=partition.adding_replicas,
            removing=partition.removing_replicas,
            isr=partition.isr,
        )
        for topic, index, partition in unsettled_partitions(image)
        if is_reassigning(partition) and (wanted is None or (topic.name, index) in wanted)
    ]
    return ControllerResult(records=[], response=ListPartitionReassignmentsReply(partitions=tuple(found)))


def _check_target(
    image: MetadataImage,
    name: str,
    partition: PartitionRegistration,
    target: tuple[BrokerId, ...],
    *,
    is_growth_allowed: bool,
) -> None:
    reason = None
    unknown = [replica for replica in target if image.cluster.broker(replica) is None]
    if not target:
        reason = "is empty; name at least one broker, or null to cancel"
    elif len(set(target)) != len(target):
        reason = "names a broker twice; name it once"
    elif unknown:
        reason = f"names brokers that are not registered: {unknown}; `barnabas broker list` shows those that are"
    elif not any(image.cluster.is_active(replica) for replica in target):
        reason = "names no broker that is in service, so it could never complete; start one of them"
    if reason is not None:
        raise KafkaError.of(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}: assignment {list(target)} {reason}")
    present = len(original_replicas(partition))
    if len(target) != present and not is_growth_allowed:
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} has {present} replicas and {list(target)} has {len(target)}, which the request forbids; set "
            "allow_replication_factor_change, or name as many brokers as it has replicas",
        )


def _reassign(
    image: MetadataImage,
    topic: TopicImage,
    item: PartitionReassignment,
    partition: PartitionRegistration,
    wanted: Replicas,
    rules: PartitionRules,
) -> PartitionChangeRecord | None:
    """The first step to the wanted replicas, which is also the last if all are in sync."""
    isr = tuple(member for member in partition.isr if member in wanted.all)
    if _forgets(partition, wanted.all, isr):
        dropped = [replica for replica in partition.replicas if replica not in wanted.all]
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic.name}-{item.partition_id}: without {dropped}, which the reassignment under way had added, no remaining "
            "replica is known to hold every committed record; name it too, or wait until another replica is in sync",
        )
    return build_change(
        partition,
        topic_id=topic.id,
        partition_id=item.partition_id,
        is_acceptable=acceptable(image, partition),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        target_isr=isr,
        target_replicas=wanted,
        directory_for=partial(replica_directory, image),
        spared=image.cluster.in_maintenance,
        allows_unclean=rules.allows_unclean(topic.name),
        domains_of=image.cluster.domains_of,
    )


def _forgets(partition: PartitionRegistration, kept: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]) -> bool:
    """Whether committed records could be lost with only these replicas, of which `isr` are in sync. A dropped replica deletes
    its log, even if its broker returns only later."""
    holders = known_holders(partition)
    return bool(partition.isr and not isr) or bool(holders and holders.isdisjoint(kept))


def _cancel(
    image: MetadataImage,
    topic: TopicImage,
    item: PartitionReassignment,
    partition: PartitionRegistration,
    rules: PartitionRules,
) -> PartitionChangeRecord | None:
    """Return to the original replicas."""
    name = f"{topic.name}-{item.partition_id}"
    if not is_reassigning(partition):
        raise KafkaError.of(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being reassigned, so there is nothing to cancel"
        )
    original = original_replicas(partition)
    isr = tuple(member for member in partition.isr if member in original)
    if _forgets(partition, original, isr) and not rules.allows_unclean(topic.name):
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name}: none of its original replicas {list(original)} is in sync, so going back could lose records; let the "
            "reassignment finish, wait for one of them, or set unclean.leader.election.enable=true on the topic",
        )
    return build_change(
        partition,
        topic_id=topic.id,
        partition_id=item.partition_id,
        is_acceptable=acceptable(image, partition),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        target_isr=isr,
        target_replicas=Replicas(original),
        spared=image.cluster.in_maintenance,
        allows_unclean=rules.allows_unclean(topic.name),
        domains_of=image.cluster.domains_of,
    )
