"""The admin service's verbs on partitions and brokers: elections, reassignments, unregistering.

May touch:  the controller client, an image.    Must not touch: grpc, logs, the data lane.
Invariants: what is decided is the controller's; a list of reassignments is the controller's too, the image only says which
            brokers are out of service.
Read next:  service.py, which serves these.
"""

from __future__ import annotations

from barnabas_broker.admin.errors import detail_of
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests_partitions import (
    AlterMaintenance,
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    ListPartitionReassignments,
    PartitionReassignment,
    UnregisterBroker,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import admin_pb2


async def elect_leaders(
    controller: ActiveController, request: admin_pb2.ElectLeadersRequest, *, timeout_ms: int
) -> admin_pb2.ElectLeadersResponse:
    """See controller/elections.py."""
    names = None if request.all else tuple((item.topic, item.partition) for item in request.partitions)
    kind = ElectionType.UNCLEAN if request.unclean else ElectionType.PREFERRED
    reply = await controller.ask(ElectLeaders(election_type=kind, partitions=names), timeout_ms=timeout_ms)
    return admin_pb2.ElectLeadersResponse(
        partitions=[
            admin_pb2.PartitionOutcome(
                topic=item.topic, partition=item.partition_id, leader=item.leader, error=detail_of(item.error)
            )
            for item in reply.partitions
        ]
    )


async def alter_reassignments(
    controller: ActiveController, request: admin_pb2.AlterReassignmentsRequest, *, timeout_ms: int
) -> admin_pb2.AlterReassignmentsResponse:
    """See controller/reassignment.py."""
    wanted = tuple(
        PartitionReassignment(
            topic=item.topic,
            partition_id=item.partition,
            replicas=tuple(BrokerId(replica) for replica in item.replicas) or None,
        )
        for item in request.reassignments
    )
    reply = await controller.ask(
        AlterPartitionReassignments(partitions=wanted, validate_only=request.validate_only), timeout_ms=timeout_ms
    )
    return admin_pb2.AlterReassignmentsResponse(
        partitions=[
            admin_pb2.PartitionOutcome(topic=item.topic, partition=item.partition_id, error=detail_of(item.error))
            for item in reply.partitions
        ]
    )


async def list_reassignments(
    controller: ActiveController, request: admin_pb2.ListReassignmentsRequest, image: MetadataImage, *, timeout_ms: int
) -> admin_pb2.ListReassignmentsResponse:
    """What is under way, and whom it waits for."""
    reply = await controller.ask(ListPartitionReassignments(), timeout_ms=timeout_ms)
    topics = set(request.topics)
    answered = []
    for item in reply.partitions:
        if topics and item.topic not in topics:
            continue
        waiting_for = [r for r in item.replicas if r not in item.removing and r not in item.isr]
        answered.append(
            admin_pb2.OngoingReassignment(
                topic=item.topic,
                partition=item.partition_id,
                replicas=item.replicas,
                adding=item.adding,
                removing=item.removing,
                isr=item.isr,
                waiting_for=waiting_for,
                fenced=[replica for replica in waiting_for if not image.cluster.is_active(replica)],
            )
        )
    return admin_pb2.ListReassignmentsResponse(reassignments=answered)


async def alter_maintenance(
    controller: ActiveController, request: admin_pb2.AlterMaintenanceRequest, *, timeout_ms: int
) -> admin_pb2.AlterMaintenanceResponse:
    """See controller/maintenance.py."""
    wanted = AlterMaintenance(broker_id=BrokerId(request.broker_id), is_in_maintenance=request.in_maintenance)
    reply = await controller.ask(wanted, timeout_ms=timeout_ms)
    return admin_pb2.AlterMaintenanceResponse(handed_over=reply.handed_over, kept=reply.kept)


async def unregister_broker(
    controller: ActiveController, request: admin_pb2.UnregisterBrokerRequest, *, timeout_ms: int
) -> admin_pb2.UnregisterBrokerResponse:
    """See controller/brokers.py."""
    await controller.ask(UnregisterBroker(broker_id=BrokerId(request.broker_id)), timeout_ms=timeout_ms)
    return admin_pb2.UnregisterBrokerResponse()
