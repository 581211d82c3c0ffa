"""The admin service's verbs on partitions and brokers: elections, reassignments, unregistering.

May touch:  the controller client, an image.    Must not touch: grpc, logs, the data lane.
Invariants: what is decided is the controller's; a list of reassignments is the controller's too, the image only tells which
            brokers are out of service.
Read next:  admin_rpc.py, which serves these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas_broker.admin_errors import detail_of
from barnabas_quorum.controller.requests_partitions import (
    ElectedPartition,
    ElectionType,
    OngoingReassignment,
    PartitionReassignment,
    ReassignedPartition,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import admin_pb2


class PartitionChannel(Protocol):
    """What is forwarded to the active controller. Each is answered once committed, and raises KafkaError when refused whole
    or when no controller answered in time."""

    async def elect_leaders(
        self, election_type: ElectionType, partitions: tuple[tuple[str, int], ...] | None = None, *, timeout_ms: int
    ) -> Sequence[ElectedPartition]:
        """One outcome per partition; None = all that need one."""
        ...

    async def alter_partition_reassignments(
        self, partitions: Sequence[PartitionReassignment], *, validate_only: bool = False, timeout_ms: int
    ) -> Sequence[ReassignedPartition]:
        """One outcome per partition, in order."""
        ...

    async def list_partition_reassignments(
        self, partitions: tuple[tuple[str, int], ...] | None = None, *, timeout_ms: int
    ) -> Sequence[OngoingReassignment]:
        """What is under way."""
        ...

    async def unregister_broker(self, broker_id: BrokerId, *, timeout_ms: int) -> None:
        """Forget a broker."""
        ...


async def elect_leaders(
    controller: PartitionChannel, request: admin_pb2.ElectLeadersRequest, *, timeout_ms: int
) -> admin_pb2.ElectLeadersResponse:
    """See controller/elections.py."""
    names = None if request.all else tuple((item.topic, item.partition) for item in request.partitions)
    kind = ElectionType.UNCLEAN if request.unclean else ElectionType.PREFERRED
    outcomes = await controller.elect_leaders(kind, names, timeout_ms=timeout_ms)
    return admin_pb2.ElectLeadersResponse(
        partitions=[
            admin_pb2.PartitionOutcome(
                topic=item.topic, partition=item.partition_id, leader=item.leader, error=detail_of(item.error)
            )
            for item in outcomes
        ]
    )


async def alter_reassignments(
    controller: PartitionChannel, request: admin_pb2.AlterReassignmentsRequest, *, timeout_ms: int
) -> admin_pb2.AlterReassignmentsResponse:
    """See controller/reassignment.py."""
    wanted = [
        PartitionReassignment(
            topic=item.topic,
            partition_id=item.partition,
            replicas=tuple(BrokerId(replica) for replica in item.replicas) or None,
        )
        for item in request.reassignments
    ]
    outcomes = await controller.alter_partition_reassignments(
        wanted, validate_only=request.validate_only, timeout_ms=timeout_ms
    )
    return admin_pb2.AlterReassignmentsResponse(
        partitions=[
            admin_pb2.PartitionOutcome(topic=item.topic, partition=item.partition_id, error=detail_of(item.error))
            for item in outcomes
        ]
    )


async def list_reassignments(
    controller: PartitionChannel, request: admin_pb2.ListReassignmentsRequest, image: MetadataImage, *, timeout_ms: int
) -> admin_pb2.ListReassignmentsResponse:
    """What is under way, and whom it waits for."""
    found = await controller.list_partition_reassignments(timeout_ms=timeout_ms)
    topics = set(request.topics)
    answered = []
    for item in found:
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


async def unregister_broker(
    controller: PartitionChannel, request: admin_pb2.UnregisterBrokerRequest, *, timeout_ms: int
) -> admin_pb2.UnregisterBrokerResponse:
    """See controller/brokers.py."""
    await controller.unregister_broker(BrokerId(request.broker_id), timeout_ms=timeout_ms)
    return admin_pb2.UnregisterBrokerResponse()
