"""What this broker asks the active controller for itself, in its own name and epoch.

May touch:  the controller client, by its one method.     Must not touch: the image, logs.
Invariants: each request carries the broker epoch of the moment in which it is asked.
Read next:  barnabas_quorum/controller/request.py; lifecycle.py, which keeps the epoch and registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas_broker.controller_client.producer_ids import ProducerIdBlock
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    IsrMemberEpoch,
    PartitionAlteration,
)
from barnabas_quorum.controller.requests_partitions import (
    AlterReplicaFaults,
    AssignReplicasToDirectories,
    PlacedReplica,
    ReplicaFaultReport,
    ReplicaPlacement,
)
from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome
from barnabas_wire.kafka.ids import BrokerId


class BrokerRequests:
    """Asks for one broker. May be awaited from any lane that the client may be asked from."""

    def __init__(self, controller: ActiveController, *, broker_id: BrokerId, broker_epoch: Callable[[], int]) -> None:
        """`broker_epoch` is the lifecycle's."""
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def alter_partition(self, requests: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionOutcome]:
        """barnabas_replication.controller.AlterPartitionChannel."""
        reply = await self._controller.ask(
            AlterPartition(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                partitions=tuple(
                    PartitionAlteration(
                        topic_id=item.topic_id,
                        partition_id=item.partition,
                        leader_epoch=item.leader_epoch,
                        partition_epoch=item.partition_epoch,
                        new_isr=tuple(
                            IsrMemberEpoch(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                            for member in item.new_isr
                        ),
                    )
                    for item in requests
                ),
            )
        )
        return [
            AlterPartitionOutcome(
                topic_id=item.topic_id,
                partition=item.partition_id,
                error=item.error,
                leader_id=item.leader,
                leader_epoch=item.leader_epoch,
                isr=item.isr,
                partition_epoch=item.partition_epoch,
            )
            for item in reply.partitions
        ]

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids that no other broker has. Raises a retriable KafkaError while none answers."""
        reply = await self._controller.ask(
            AllocateProducerIds(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        )
        return ProducerIdBlock(reply.first, reply.count)

    async def assign_replicas_to_directories(self, placements: Sequence[ReplicaPlacement]) -> Sequence[PlacedReplica]:
        """Report where replicas of this broker are (KIP-858); one outcome each. Raises KafkaError (STALE_BROKER_EPOCH,
        REQUEST_TIMED_OUT)."""
        reply = await self._controller.ask(
            AssignReplicasToDirectories(
                broker_id=self._broker_id, broker_epoch=self._broker_epoch(), placements=tuple(placements)
            )
        )
        return reply.replicas

    async def alter_replica_faults(self, reports: Sequence[ReplicaFaultReport]) -> Sequence[PlacedReplica]:
        """Report faulty replicas of this broker, and those that are whole again; one outcome each. Raises KafkaError
        (STALE_BROKER_EPOCH, UNSUPPORTED_VERSION, REQUEST_TIMED_OUT)."""
        reply = await self._controller.ask(
            AlterReplicaFaults(broker_id=self._broker_id, broker_epoch=self._broker_epoch(), reports=tuple(reports))
        )
        return reply.replicas
