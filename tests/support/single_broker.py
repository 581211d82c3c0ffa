"""One broker without a controller process: the real listener, replica manager and logs, topics made on the spot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.listener import KafkaServer, ListenAddress
from barnabas_coordination.share.leader import SharePartitions
from barnabas_log.config import LogConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.disk import RealDisk
from barnabas_quorum.controller.requests import CreatedTopic, CreateTopics, CreateTopicsReply
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.manager import ReplicaManager
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid
from tests.support.listener import CLUSTER_ID, LISTENER, NODE_ID, CountingProducerIds, no_quorum, until
from tests.support.replicas import place_now


def now_ms() -> int:
    """Wall clock."""
    return time.time_ns() // 1_000_000


class SingleBroker:
    """Its parts, and the verbs of the controller that it needs itself."""

    def __init__(self, replicas: ReplicaManager, logs: LogManager) -> None:
        self.replicas = replicas
        self.logs = logs
        self.metadata = MetadataCache(MetadataImage.EMPTY)
        self.topic_ids: dict[str, Uuid] = {}
        self.server: KafkaServer
        self._random = Random(3)

    def register(self, port: int) -> None:
        """Tell the image that this broker lives at that port."""
        delta = MetadataDelta(self.metadata.image)
        delta.replay(
            RegisterBrokerRecord(
                broker_id=NODE_ID,
                incarnation_id=Uuid(bytes(15) + b"\1"),
                broker_epoch=1,
                endpoints=(Endpoint(LISTENER, "127.0.0.1", port),),
                rack=None,
                is_fenced=False,
                is_in_controlled_shutdown=False,
                directories=(),
                features=(),
            )
        )
        self._publish(delta)

    def create_topic(self, name: str, partitions: int = 1, *, followers: tuple[int, ...] = ()) -> Uuid:
        """Make a topic that this broker leads, alone or with followers, which are out of sync."""
        topic_id = self.topic_ids[name] = Uuid(self._random.randbytes(16))
        replicas = (NODE_ID, *map(BrokerId, followers))
        delta = MetadataDelta(self.metadata.image)
        delta.replay(TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            delta.replay(
                PartitionRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=replicas,
                    directories=(Uuid(bytes(16)),) * len(replicas),
                    isr=(NODE_ID,),
                    leader=NODE_ID,
                    leader_epoch=Epoch(0),
                    partition_epoch=0,
                )
            )
        self._publish(delta)
        return topic_id

    async def ask(self, request: Any, **options: Any) -> CreateTopicsReply:
        """See ActiveController; it makes topics and nothing else."""
        assert isinstance(request, CreateTopics), f"nobody here asks {request}"
        return CreateTopicsReply(
            topics=tuple(
                CreatedTopic(
                    name=topic.name,
                    topic_id=self.create_topic(topic.name, topic.partition_count),
                    partition_count=topic.partition_count,
                    replication_factor=1,
                )
                for topic in request.topics
            )
        )

    def _publish(self, delta: MetadataDelta) -> None:
        image = delta.apply(Offset(self.metadata.image.offset + 1), Epoch(1), now_ms())
        self.replicas.apply_delta(delta.topics, image)
        place_now(self.replicas)
        self.metadata.swap(image)


class _NoPeers:
    """A lone broker has no leader to follow."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a lone broker asks a peer to {name}")


class _NoGroups:
    """A lone broker coordinates no groups."""

    def __getattr__(self, name: str) -> Any:
        async def refuse(*args: Any, **rest: Any) -> Any:
            raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no groups here")

        return refuse


@asynccontextmanager
async def single_broker(
    directory: Path,
    *,
    topics: Mapping[str, int] | None = None,
    log_config: LogConfig | None = None,
    network: NetworkConfig | None = None,
    api: ApiConfig | None = None,
    port: int = 0,
    make_shares: Callable[[SingleBroker], SharePartitions] | None = None,
) -> AsyncIterator[SingleBroker]:
    """A broker that serves; stopped cleanly at the end. make_shares: its share partitions, if it is to have some."""
    config = log_config or LogConfig()
    disk = RealDisk()
    logs = LogManager(disk=disk, directories=[str(directory)], default_config=config, clock_ms=now_ms)
    await logs.load()
    replicas = ReplicaManager(
        broker_id=BrokerId(NODE_ID),
        broker_epoch=lambda: 1,
        config=ReplicationConfig(),
        logs=logs,
        log_config=lambda topic, image: config,
        controller=_NoPeers(),
        peers=_NoPeers(),  # type: ignore[arg-type]
        clock_ms=now_ms,
        random=Random(1),
    )
    broker = SingleBroker(replicas, logs)
    shares: Any = _NoGroups() if make_shares is None else make_shares(broker)
    services = BrokerServices(
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        config=api or ApiConfig(),
        replica_manager=replicas,
        metadata=broker.metadata,
        controller=broker,  # type: ignore[arg-type]
        groups=_NoGroups(),  # type: ignore[arg-type]
        transactions=_NoGroups(),  # type: ignore[arg-type]
        transactional=_NoGroups(),  # type: ignore[arg-type]
        share_state=_NoGroups(),  # type: ignore[arg-type]
        shares=shares,
        producer_ids=CountingProducerIds(),
        clock_ms=now_ms,
        quorum_description=no_quorum,
        broker_keys=lambda: (),
    )
    broker.server = server = KafkaServer(
        addresses=[ListenAddress(LISTENER, "127.0.0.1", port)], config=network or NetworkConfig(), services=services
    )
    await server.start()
    broker.register(server.bound[LISTENER][1])
    for name, partitions in (topics or {}).items():
        broker.create_topic(name, partitions)
    tasks = [asyncio.create_task(part.run()) for part in (server, replicas, logs, *([shares] if make_shares else ()))]
    await until(lambda: server.is_accepting)
    try:
        yield broker
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await replicas.close()
        await logs.close(broker_epoch=1)
        disk.close()
