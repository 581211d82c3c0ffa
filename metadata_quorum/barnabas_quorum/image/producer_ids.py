"""How far the producer ids of the cluster are spent: image and delta.

May touch:  records.   Must not touch: asyncio, clock, files, controller.
Invariants: the next producer id strictly grows, so no two blocks overlap (C8).
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatchmethod

from barnabas_quorum.records import ProducerIdsRecord, QuorumRecoveryRecord, Record
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsImage:
    """All ids below `next_producer_id` are given away."""

    next_producer_id: int
    last_broker_id: BrokerId
    """Who got the last block, and in which registration; -1 before the first."""
    last_broker_epoch: int

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image."""
        if self.next_producer_id > 0:
            yield ProducerIdsRecord(
                broker_id=self.last_broker_id,
                broker_epoch=self.last_broker_epoch,
                next_producer_id=self.next_producer_id,
            )


EMPTY_PRODUCER_IDS = ProducerIdsImage(next_producer_id=0, last_broker_id=NO_BROKER, last_broker_epoch=-1)


class ProducerIdsDelta:
    """Where the next producer id moved since an image."""

    __slots__ = ("current",)

    def __init__(self, image: ProducerIdsImage) -> None:
        self.current = image

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"producer ids have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id <= self.current.next_producer_id:
            raise InvariantViolated(
                f"next producer id goes from {self.current.next_producer_id} to {record.next_producer_id}"
            )
        self.current = ProducerIdsImage(
            next_producer_id=record.next_producer_id,
            last_broker_id=record.broker_id,
            last_broker_epoch=record.broker_epoch,
        )

    @replay.register
    def _(self, record: QuorumRecoveryRecord) -> None:
        self.current = replace(self.current, next_producer_id=self.current.next_producer_id + record.producer_id_gap)

    @classmethod
    def between(cls, before: ProducerIdsImage, after: ProducerIdsImage) -> ProducerIdsDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        return cls(after)

    def apply(self) -> ProducerIdsImage:
        """The image after the delta."""
        return self.current
