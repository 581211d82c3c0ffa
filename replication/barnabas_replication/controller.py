"""The conversation with the active controller that changes an ISR. Implemented by the broker's controller client.

May touch:  its own types.                Must not touch: how the controller is found or spoken to.
Invariants: one outcome per item, in order; an outcome speaks of the partition epoch that its item proposed from.
Read next:  alter_partition.py, which keeps one batch of items in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, Uuid


class IsrMember(NamedTuple):
    """A proposed in-sync replica and the broker epoch the leader knows it by (-1: not yet known; KIP-903)."""

    broker_id: BrokerId
    broker_epoch: int


class AlterPartitionItem(NamedTuple):
    """One proposed ISR: valid only against exactly this leader epoch and partition epoch."""

    topic_id: Uuid
    topic: str
    partition: int
    leader_epoch: Epoch
    new_isr: tuple[IsrMember, ...]
    partition_epoch: int


class AlterPartitionOutcome(NamedTuple):
    """The controller's word on one item: an error, or the state that is now committed."""

    topic_id: Uuid
    partition: int
    error: KafkaError | None
    leader_id: BrokerId = BrokerId(-1)
    leader_epoch: Epoch = NO_EPOCH
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: int = -1


class AlterPartitionChannel(Protocol):
    """Carries proposals to the active controller."""

    async def alter_partition(self, requests: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionOutcome]:
        """Propose all; answers after the controller has committed (or refused) each.

        Raises KafkaError when the whole request was refused (NOT_CONTROLLER, STALE_BROKER_EPOCH) and
        OSError or TimeoutError when no controller answered; all of these are tried again.
        """
        ...
