"""The crossing to the data lane: what crosses, and in which order it is told to have been applied."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher
from barnabas_broker.metadata.service_gate import ServiceGate
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import NoOpRecord, ProducerIdsRecord, Record
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Epoch, Offset


class Stand:
    """A publisher on one loop, and what its parts were told."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.image = MetadataImage.EMPTY
        self.applied: list[int] = []
        self.error: Exception | None = None
        self.reported: list[BaseException] = []
        self.crossed: list[int] = []
        self.cache = MetadataCache(self.image)
        self.publisher = BrokerMetadataPublisher(
            broker_id=1,
            replicas=self,
            coordinators=[],
            update_configs=lambda delta, image: None,
            update_quotas=lambda image: None,
            cache=self.cache,
            gate=ServiceGate(broker_id=BrokerId(1), incarnation_id=ZERO_UUID, on_registered=lambda: None),
            control_loop=loop,
            data_loop=loop,
            on_applied=self.applied.append,
            on_error=self.reported.append,
        )

    def apply_delta(self, delta: Any, image: MetadataImage) -> None:
        if self.error is not None:
            raise self.error
        self.crossed.append(image.offset)

    def publish(self, record: Record) -> None:
        delta = MetadataDelta(self.image)
        delta.replay(record)
        self.image = delta.apply(Offset(self.image.offset + 1), Epoch(1), 0)
        self.publisher.on_metadata_update(delta, self.image)


def a_change(first: int) -> Record:
    return ProducerIdsRecord(broker_id=BrokerId(1), broker_epoch=1, next_producer_id=first)


async def test_a_no_op_counts_as_applied_and_wakes_nobody() -> None:
    stand = Stand()
    stand.publish(a_change(1000))
    await asyncio.sleep(0.01)
    stand.publish(NoOpRecord())
    assert stand.applied == [0, 1]
    await asyncio.sleep(0.01)
    assert (stand.crossed, stand.cache.image.offset) == ([0], 0)
    stand.publish(a_change(2000))
    await asyncio.sleep(0.01)
    assert (stand.crossed, stand.applied, stand.cache.image) == ([0, 2], [0, 1, 2], stand.image)


async def test_a_no_op_behind_a_change_on_its_way_waits_for_it() -> None:
    stand = Stand()
    stand.publish(a_change(1000))
    stand.publish(NoOpRecord())
    assert stand.applied == []
    await asyncio.sleep(0.01)
    assert stand.applied == [0, 1]


async def test_a_broker_that_closes_its_logs_takes_no_more_metadata() -> None:
    stand = Stand()
    stand.publish(a_change(1000))
    await asyncio.sleep(0.01)
    stand.publish(a_change(2000))
    stand.publisher.stop()
    stand.publish(a_change(3000))
    await asyncio.sleep(0.01)
    assert (stand.crossed, stand.applied) == ([0], [0])


async def test_an_error_on_the_data_lane_is_reported_and_nothing_goes_on_behind_it() -> None:
    """The node ends with it: what half was taken in nobody knows (image/publisher.py)."""
    stand = Stand()
    stand.publish(a_change(1000))
    stand.publish(a_change(2000))
    stand.error = RuntimeError("a bug")
    await asyncio.sleep(0.01)
    stand.error = None
    stand.publish(a_change(3000))
    stand.publish(NoOpRecord())
    await asyncio.sleep(0.01)
    assert [str(error) for error in stand.reported] == ["a bug"]
    assert (stand.crossed, stand.applied, stand.cache.image) == ([], [], MetadataImage.EMPTY)
