"""A GroupCoordinator on a fake log and a metadata image, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.group.messages import JoinOutcome, JoinRequest, MemberRef, SyncOutcome, SyncRequest
from barnabas_coordination.group.service import OFFSETS_TOPIC, GroupCoordinator
from barnabas_coordination.runtime import ShardState
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_quorum.controller.requests import CreatableTopic, CreatedTopic, CreateTopics, CreateTopicsReply
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch
from barnabas_wire.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.broker.coordinator.fake_log import FakeLog
from tests.broker.coordinator.group_driver import RANGE
from tests.support import virtual_loop
from tests.support.images import make_image
from tests.support.share_states import MemoryPersister

PARTITIONS = 3
TOPICS = {
    "flights": [((1, 2, 3), (1, 2, 3), 1)] * 4,
    "weather": [((1, 2, 3), (1, 2, 3), 2)],
    OFFSETS_TOPIC: [((1, 2, 3), (1, 2, 3), 1)] * PARTITIONS,
}
CONFIG = GroupCoordinatorConfig(offsets_topic_num_partitions=PARTITIONS, group_initial_rebalance_delay_ms=100)


class FakeMetadata:
    """Holds an image."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image


class FakeController:
    """Makes topics when the test says so."""

    def __init__(self) -> None:
        self.asked: list[CreatableTopic] = []
        self.error: KafkaError | None = None
        self.unreachable: KafkaError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, request: Any, **options: Any) -> Any:
        assert isinstance(request, CreateTopics)
        self.asked.extend(request.topics)
        await self.gate.wait()
        if self.unreachable is not None:
            raise self.unreachable
        return CreateTopicsReply(
            topics=tuple(CreatedTopic(name=topic.name, error=self.error) for topic in request.topics)
        )


class FakeBrokers:
    """Every broker leads what it is asked about, up to one offset. Meets Brokers."""

    def __init__(self) -> None:
        self.end = 100
        self.is_reachable = True

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        assert isinstance(request, ListOffsetsRequest), request
        if not self.is_reachable:
            raise OSError("no route")
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=self.end)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class GroupBench:
    """The coordinator of one broker, which leads every partition of the topic."""

    def __init__(
        self,
        log: FakeLog | None = None,
        *,
        image: MetadataImage | None = None,
        config: GroupCoordinatorConfig = CONFIG,
    ) -> None:
        self.log = log or FakeLog()
        self.metadata = FakeMetadata(image or make_image(topics=TOPICS))
        self.controller = FakeController()
        self.persister = MemoryPersister()
        self.brokers = FakeBrokers()
        ids = itertools.count(1)
        self.groups = GroupCoordinator(
            config=config,
            log=self.log,
            metadata=self.metadata,
            controller=self.controller,
            persister=self.persister,
            brokers=self.brokers,
            share_config=ShareGroupConfig(group_share_assignment_interval_ms=0),
            clock_ms=virtual_loop.now_ms,
            new_id=lambda: str(next(ids)),
        )

    async def lead(self, epoch: int = 1) -> None:
        """Lead every partition and wait until all are loaded."""
        for partition in range(PARTITIONS):
            self.groups.on_elected(partition, Epoch(epoch))
        while set(self.groups.partitions.values()) != {ShardState.ACTIVE}:
            await asyncio.sleep(0.01)

    async def join(self, group_id: str = "g", **named: Any) -> JoinOutcome:
        """Join as a new member, whose id is known without asking."""
        return await self.groups.join_group(join_request(group_id, requires_member_id=False, **named))

    async def stable_member(self, group_id: str = "g", assignment: bytes = b"all") -> JoinOutcome:
        """Be the one member of a stable group."""
        joined = await self.join(group_id)
        await self.sync(joined, group_id, {joined.member_id: assignment})
        return joined

    async def sync(
        self, joined: JoinOutcome, group_id: str = "g", assignments: dict[str, bytes] | None = None
    ) -> SyncOutcome:
        """Sync as the member that joined."""
        return await self.groups.sync_group(
            SyncRequest(member=ref(joined, group_id), assignments=tuple((assignments or {}).items()))
        )


def join_request(group_id: str = "g", **named: Any) -> JoinRequest:
    """A consumer's JoinGroup."""
    return JoinRequest(
        **{
            "group_id": group_id,
            "member_id": "",
            "instance_id": None,
            "client_id": "client",
            "client_host": "127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
        }
        | named
    )


def ref(joined: JoinOutcome, group_id: str = "g") -> MemberRef:
    """The member that joined, in its generation."""
    return MemberRef(group_id=group_id, member_id=joined.member_id, generation=joined.generation)


@asynccontextmanager
async def group_bench(log: FakeLog | None = None, **named: Any) -> AsyncIterator[GroupBench]:
    """A coordinator whose owner task runs; nothing is led yet."""
    bench = GroupBench(log, **named)
    owner = asyncio.create_task(bench.groups.run())
    try:
        yield bench
    finally:
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)
