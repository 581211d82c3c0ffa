"""Maintenance of a broker: it hands its leaderships over and stays in sync. Image in, records out.

May touch:  image, partition_change.   Must not touch: sessions, everything that waits.
Invariants: a broker in maintenance leads a partition only while no other healthy replica may; asking twice changes nothing
            more, and hands over what could not be handed over before.
Read next:  partition_change.py, where spared brokers come last in every election; brokers.py for shutdown, which also leaves ISRs.

Kafka has no such state: there a broker is stopped, and its leaderships come back as soon as it has settled. Maintenance outlives
restarts. What is led by the broker because nobody else was in sync goes to the first who is, with the ISR change that adds it
(partitions.py). When maintenance ends, leaderships come back by the controller's periodic work.
"""

from __future__ import annotations

from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.features import require_metadata_version
from barnabas_quorum.controller.partition_change import build_change
from barnabas_quorum.controller.partition_rules import acceptable
from barnabas_quorum.controller.partitions import held_partitions
from barnabas_quorum.controller.requests_partitions import AlterMaintenance, AlterMaintenanceReply
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.features import METADATA_VERSION_MAINTENANCE
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import BrokerRegistrationChangeRecord, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError


@decides(AlterMaintenance)
def alter_maintenance(
    image: MetadataImage, request: AlterMaintenance, context: DecisionContext
) -> ControllerResult[AlterMaintenanceReply]:
    """Raises BROKER_ID_NOT_REGISTERED, and UNSUPPORTED_VERSION while some node may not know such records."""
    broker = image.cluster.broker(request.broker_id)
    if broker is None:
        raise KafkaError.of(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {request.broker_id} is not registered; `barnabas broker list` shows those that are",
        )
    require_metadata_version(image, METADATA_VERSION_MAINTENANCE, "brokers in maintenance")
    records: list[Record] = []
    if broker.is_in_maintenance != request.is_in_maintenance:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, is_in_maintenance=request.is_in_maintenance
            )
        )
    handed_over = kept = 0
    if request.is_in_maintenance:
        spared = image.cluster.in_maintenance | {broker.id}
        for topic, index, partition in held_partitions(image, broker.id):
            if partition.leader != broker.id:
                continue
            change = build_change(
                partition,
                topic_id=topic.id,
                partition_id=index,
                is_acceptable=acceptable(image, partition),
                min_insync_replicas=context.rules.min_insync_replicas(topic.name),
                spared=spared,
            )
            if change is None or change.leader is None:
                kept += 1
                continue
            records.append(change)
            handed_over += 1
    return ControllerResult(
        records=records, response=AlterMaintenanceReply(handed_over=handed_over, kept=kept), is_atomic=False
    )
