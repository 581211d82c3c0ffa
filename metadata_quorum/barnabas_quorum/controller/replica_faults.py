"""Faulty replicas: the consequences when a broker reports that a replica is corrupt, out of room, or healthy again.

May touch:  image, partition_change.   Must not touch: everything that waits.
Invariants: only the broker that holds a replica reports on it; a fault stays until its broker clears it, or the replica is
            dropped or created again; a report that changes nothing writes nothing.
Read next:  partition_change.py, which describes the effect of a fault on leader, ISR and ELR;
            barnabas_broker/metadata/replica_reports.py, which reports.

Differs from Kafka, which knows only faulty directories (KIP-858): rot harms one replica, and a full disk does not harm reads.
"""

from __future__ import annotations

from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.directories import find_replica
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.partition_change import build_change, faults_with
from barnabas_quorum.controller.partition_rules import PartitionRules, acceptable
from barnabas_quorum.controller.partitions import registered_broker
from barnabas_quorum.controller.requests_partitions import (
    AlterReplicaFaults,
    AlterReplicaFaultsReply,
    PlacedReplica,
    ReplicaFaultReport,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import METADATA_VERSION_PROOF, METADATA_VERSION_REPLICA_FAULTS
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import PartitionChangeRecord, Record, ReplicaFault
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid


@decides(AlterReplicaFaults)
def alter_replica_faults(
    image: MetadataImage, request: AlterReplicaFaults, context: DecisionContext
) -> ControllerResult[AlterReplicaFaultsReply]:
    """Each replica succeeds or fails on its own: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
    INVALID_REQUEST. Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNSUPPORTED_VERSION for the whole request."""
    registered_broker(image, request.broker_id, request.broker_epoch)
    require_metadata_version(image, METADATA_VERSION_REPLICA_FAULTS, "faults of replicas")
    records: list[Record] = []
    replies: list[PlacedReplica] = []
    done: set[tuple[Uuid, int]] = set()
    for report in request.reports:
        error: KafkaError | None = None
        try:
            if (report.topic_id, report.partition_id) in done:
                raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a replica has one state; name it once")
            done.add((report.topic_id, report.partition_id))
            change = _alter(image, request.broker_id, report, context.rules)
            if change is not None:
                records.append(change)
        except KafkaError as refusal:
            error = refusal
        replies.append(PlacedReplica(topic_id=report.topic_id, partition_id=report.partition_id, error=error))
    return ControllerResult(records=records, response=AlterReplicaFaultsReply(replicas=tuple(replies)), is_atomic=False)


def _alter(
    image: MetadataImage, broker_id: BrokerId, report: ReplicaFaultReport, rules: PartitionRules
) -> PartitionChangeRecord | None:
    topic, index, partition = find_replica(image, broker_id, topic_id=report.topic_id, partition_id=report.partition_id)
    if report.fault is ReplicaFault.LOST:
        require_metadata_version(image, METADATA_VERSION_PROOF, "replicas that have lost records")
    if partition.fault_of(broker_id) is report.fault:
        return None
    return build_change(
        partition,
        topic_id=topic.id,
        partition_id=index,
        is_acceptable=acceptable(image, partition),
        min_insync_replicas=rules.min_insync_replicas(topic.name),
        target_faults=faults_with(partition, [broker_id], report.fault),
        spared=image.cluster.in_maintenance,
        allows_unclean=rules.allows_unclean(topic.name),
        domains_of=image.cluster.domains_of,
    )
