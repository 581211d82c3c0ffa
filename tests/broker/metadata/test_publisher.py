"""The crossing to the data lane: what crosses, and in which order it is told to have been applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher
from barnabas_broker.metadata.readiness import Readiness
from barnabas_broker.node.topic_settings import TopicSettings
from barnabas_log.config import LogConfig
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas_replication.errors import NotEnoughReplicasAfterAppend
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Epoch, Offset, TopicPartition, Uuid
from tests.support.replicas import MiniCluster, batch, eventually, topic_id_of


class Stand:
    """A publisher on one loop, and what its parts were told."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.image = MetadataImage.EMPTY
        self.applied: list[int] = []
        self.error: Exception | None = None
        self.is_slow = False
        self.placing: list[Callable[[], None]] = []
        """While it is slow: to be called once logs are made."""
        self.reported: list[BaseException] = []
        self.crossed: list[int] = []
        self.cache = MetadataCache(self.image)
        self.publisher = BrokerMetadataPublisher(
            broker_id=1,
            replicas=self,
            coordinators=[],
            changed_settings=lambda delta, image: {},
            update_throttles=lambda delta, image: None,
            update_quotas=lambda image: None,
            cache=self.cache,
            readiness=Readiness(broker_id=BrokerId(1), incarnation_id=ZERO_UUID, on_registered=lambda: None),
            control_loop=loop,
            data_loop=loop,
            on_applied=self.applied.append,
            on_error=self.reported.append,
        )

    def apply_delta(
        self, delta: Any, image: MetadataImage, *, settings: Mapping[str, LogConfig], when_placed: Callable[[], None]
    ) -> None:
        if self.error is not None:
            raise self.error
        self.crossed.append(image.offset)
        if self.is_slow:
            self.placing.append(when_placed)
        else:
            when_placed()

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


def publisher_of(cluster: MiniCluster, broker_id: int) -> BrokerMetadataPublisher:
    """Metadata crosses to a real replica manager, with the settings as a node resolves them."""
    loop = asyncio.get_running_loop()
    replicas = cluster[broker_id].manager
    assert replicas is not None

    def fail(error: BaseException) -> None:
        raise error

    return BrokerMetadataPublisher(
        broker_id=broker_id,
        replicas=replicas,
        coordinators=[],
        changed_settings=TopicSettings(broker_id=BrokerId(broker_id), properties={}).changed_log_configs,
        update_throttles=lambda delta, image: None,
        update_quotas=lambda image: None,
        cache=MetadataCache(MetadataImage.EMPTY),
        readiness=Readiness(broker_id=BrokerId(broker_id), incarnation_id=ZERO_UUID, on_registered=lambda: None),
        control_loop=loop,
        data_loop=loop,
        on_applied=lambda offset: None,
        on_error=fail,
    )


def minimum(topic: str, value: int) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, key="min.insync.replicas", value=str(value)
    )


async def test_a_higher_minimum_judges_the_isr_that_comes_with_it(tmp_path: Path) -> None:
    """The leader stood still; the minimum rose, and both followers died, of whom the controller keeps one as eligible: it
    may be elected without what the leader has alone, so nobody may hear of that as committed."""
    async with MiniCluster(tmp_path) as cluster:
        controller = cluster.controller
        controller.create("t")
        assert (await cluster[1].produce("t", batch())).error is None
        cluster.cut_links |= {frozenset((1, 2)), frozenset((1, 3))}
        produced = asyncio.create_task(cluster[1].produce("t", batch(), timeout_ms=10_000))
        await eventually(lambda: cluster[1].partition("t").log.flushed_end_offset == 2)
        controller.reports = False
        dead = [
            BrokerRegistrationChangeRecord(broker_id=BrokerId(id), broker_epoch=cluster[id].epoch, is_fenced=True)
            for id in (2, 3)
        ]
        smaller = PartitionChangeRecord(topic_id=topic_id_of("t"), partition_id=0, isr=(BrokerId(1),))
        controller.commit(minimum("t", 2), *dead, smaller)
        publisher_of(cluster, 1).on_metadata_update(*controller.unreported[0])
        assert isinstance((await produced).error, NotEnoughReplicasAfterAppend)
        assert cluster[1].partition("t").high_watermark == 1


async def test_settings_do_not_touch_the_log_of_a_topic_that_had_the_name_before(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path) as cluster:
        controller = cluster.controller
        controller.create("t")
        assert (await cluster[1].produce("t", batch())).error is None
        former = cluster[1].partition("t").log
        controller.reports = False
        again = Uuid(b"made again".ljust(16))
        holders = (BrokerId(1), BrokerId(2), BrokerId(3))
        controller.commit(
            RemoveTopicRecord(topic_id=topic_id_of("t")),
            TopicRecord(name="t", topic_id=again),
            PartitionRecord(
                topic_id=again,
                partition_id=0,
                replicas=holders,
                directories=(ZERO_UUID,) * 3,
                isr=holders,
                leader=BrokerId(1),
                leader_epoch=Epoch(0),
                partition_epoch=0,
            ),
            minimum("t", 2),
        )
        publisher_of(cluster, 1).on_metadata_update(*controller.unreported[0])
        manager = cluster[1].manager
        assert manager is not None
        name = TopicPartition("t", 0)
        await eventually(lambda: (found := manager.partition(name)) is not None and found.topic_id == again)
        assert former.config.min_insync_replicas == 1
