"""A running Kafka listener over a replica manager that only remembers, and a raw client for it."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas_broker.api import registry
from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.listener import KafkaServer, ListenAddress
from barnabas_broker.quota import QuotaConfig
from barnabas_broker.security.listener_security import ListenerSecurity
from barnabas_log.disk import File, FileRange, RealDisk
from barnabas_quorum.driver.quorum_description import QuorumDescription
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from barnabas_replication.requests import AppendEntry, AppendOutcome, FetchOutcome, FetchPartitionSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import decode_response, encode_request, message_classes

CLUSTER_ID = "barnabas-test-cluster"
NODE_ID = BrokerId(1)
TOPIC = "flights"
TOPIC_ID = Uuid(b"flights-topic-id")
LISTENER = "PLAINTEXT"


def make_image(*, port: int = 9092, partitions: int = 3) -> MetadataImage:
    """One broker, a second one that is fenced, and one topic."""
    delta = MetadataDelta(MetadataImage.EMPTY)
    for broker_id, is_fenced in ((1, False), (2, True)):
        delta.replay(
            RegisterBrokerRecord(
                broker_id=BrokerId(broker_id),
                incarnation_id=Uuid(bytes(15) + bytes((broker_id,))),
                broker_epoch=broker_id,
                endpoints=(
                    Endpoint(LISTENER, "127.0.0.1", port),
                    Endpoint("OTHER", "other.example", 1000 + broker_id),
                ),
                rack=None,
                is_fenced=is_fenced,
                is_in_controlled_shutdown=False,
                directories=(),
                features=(),
            )
        )
    delta.replay(TopicRecord(name=TOPIC, topic_id=TOPIC_ID))
    for index in range(partitions):
        delta.replay(
            PartitionRecord(
                topic_id=TOPIC_ID,
                partition_id=index,
                replicas=(BrokerId(1), BrokerId(2)),
                directories=(Uuid(bytes(16)), Uuid(bytes(16))),
                isr=(BrokerId(1),),
                leader=BrokerId(1),
                leader_epoch=Epoch(4),
                partition_epoch=0,
            )
        )
    return delta.apply(Offset(10), Epoch(1), 1_000)


class RememberingReplicas:
    """Stands for the replica manager: keeps copies of appended bytes, answers when told, serves one file."""

    def __init__(self) -> None:
        self.appended: list[tuple[str, int, bytes]] = []
        self.waiting: list[Callable[[], None]] = []
        self.is_withholding = False
        self.error: KafkaError | None = None
        self.file: File | None = None
        self.ranges: list[tuple[int, int]] = []
        self.is_parking = False
        self.parked: list[Callable[[list[FetchOutcome]], None]] = []
        self.cancelled = 0
        self.fetched: list[tuple[Any, Any]] = []
        self.appends = self.fetches = self

    def append_records(
        self,
        entries: Sequence[AppendEntry],
        *,
        required_acks: int,
        timeout_ms: int,
        respond: Callable[[list[AppendOutcome]], None],
        scrutiny: Any = None,
    ) -> None:
        outcomes = []
        for topic, partition, batches in entries:
            if self.error is not None:
                outcomes.append(AppendOutcome(topic, partition, self.error))
                continue
            outcomes.append(AppendOutcome(topic, partition, None, Offset(len(self.appended)), -1, Offset(0)))
            self.appended.append((topic, partition, bytes(batches)))
        if self.is_withholding:
            self.waiting.append(lambda: respond(outcomes))
        else:
            respond(outcomes)

    def fetch(
        self, request: Any, partitions: Sequence[Any], respond: Callable[[list[FetchOutcome]], None]
    ) -> Callable[[], None]:
        partitions = [FetchPartitionSpec(*spec) for spec in partitions]  # plain tuples serve as well
        self.fetched.append((request, partitions))
        if self.is_parking:
            self.parked.append(respond)
            return self._cancel
        respond(self.outcomes(partitions))
        return self._cancel

    def fetch_one(self, request: Any, spec: Any, respond: Callable[[list[FetchOutcome]], None]) -> Callable[[], None]:
        return self.fetch(request, (spec,), respond)

    def _cancel(self) -> None:
        self.cancelled += 1

    def outcomes(self, partitions: Sequence[Any]) -> list[FetchOutcome]:
        """What a fetch of these partitions gives: the file's ranges to the first, nothing to the others."""
        found = []
        for index, spec in enumerate(partitions):
            parts: list[FileRange] = []
            if index == 0 and self.file is not None:
                for position, size in self.ranges:
                    self.file.acquire()
                    parts.append(FileRange(self.file, position, size))
            size_bytes = sum(part.size for part in parts)
            found.append(
                FetchOutcome(
                    spec.topic,
                    spec.topic_id,
                    spec.partition,
                    None,
                    Offset(7),
                    Offset(7),
                    Offset(0),
                    None,
                    tuple(parts),
                    size_bytes,
                )
            )
        return found


class NoController:
    """Refuses everything, as while no controller is known."""

    def __getattr__(self, name: str) -> Any:
        async def refuse(*asked: Any, **options: Any) -> Any:
            raise KafkaError.of(ErrorCode.NOT_CONTROLLER, "no controller")

        return refuse


class CountingProducerIds:
    """Producer ids 1000, 1001, …; waits for `gate` before each."""

    def __init__(self) -> None:
        self._next = itertools.count(1000)
        self.gate = asyncio.Event()
        self.gate.set()

    async def next_id(self) -> int:
        await self.gate.wait()
        return next(self._next)


async def no_quorum() -> QuorumDescription:
    """Of a broker without a quorum."""
    raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, "no quorum here")


def make_services(**changes: Any) -> BrokerServices:
    """A bundle whose parts remember or refuse; any part may be given."""
    parts: dict[str, Any] = {
        "node_id": NODE_ID,
        "cluster_id": CLUSTER_ID,
        "config": ApiConfig(),
        "replica_manager": RememberingReplicas(),
        "metadata": MetadataCache(make_image()),
        "controller": NoController(),
        "groups": None,
        "transactions": None,
        "transactional": None,
        "share_state": None,
        "shares": None,
        "producer_ids": CountingProducerIds(),
        "clock_ms": lambda: 1_700_000_000_000,
        "quorum_description": no_quorum,
        "broker_keys": lambda: (),
    }
    parts.update(changes)
    return BrokerServices(**parts)


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until the condition holds; the test's own time-out bounds it."""
    while not condition():
        await asyncio.sleep(0)


@asynccontextmanager
async def running_server(
    services: BrokerServices,
    config: NetworkConfig | None = None,
    listener: str = LISTENER,
    security: ListenerSecurity | None = None,
    quota_config: QuotaConfig | None = None,
    wrap: Callable[[registry.Api], registry.Api] | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[KafkaServer]:
    """A server that accepts; it is stopped at the end, and an error it ended with is raised."""
    registry.load_handlers()  # as barnabas-server does: what a test measures is no import
    server = KafkaServer(
        addresses=[ListenAddress(listener, host, 0, security)],
        config=config or NetworkConfig(),
        services=services,
        quota_config=quota_config,
        wrap=wrap,
    )
    await server.start()
    task = asyncio.create_task(server.run())
    await until(lambda: server.is_accepting)
    try:
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class RawClient:
    """Frames by hand over asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_ids = itertools.count(1)

    @classmethod
    async def connect(
        cls, server: KafkaServer, listener: str = LISTENER, tls: ssl.SSLContext | None = None, *, host: str = ""
    ) -> RawClient:
        bound, port = server.bound[listener]
        return cls(*await asyncio.open_connection(host or bound, port, ssl=tls))

    def frame(self, request: Any, version: int) -> tuple[int, bytes]:
        """(correlation id, whole frame) of a declared request."""
        correlation_id = next(self._correlation_ids)
        out = bytearray(struct.pack(">ihhih", 0, request.API_KEY, version, correlation_id, 4) + b"test")
        if version >= request.FLEXIBLE_FROM:
            out.append(0)
        encode_request(request, version, out)
        struct.pack_into(">i", out, 0, len(out) - 4)
        return correlation_id, bytes(out)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_frame(self) -> bytes:
        """The next answer without its size; raises IncompleteReadError when the server closed."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def call(self, request: Any, version: int) -> Any:
        """One request, its decoded answer."""
        correlation_id, frame = self.frame(request, version)
        await self.send(frame)
        return self.decode(request.API_KEY, version, correlation_id, await self.read_frame())

    @staticmethod
    def decode(api_key: ApiKey, version: int, correlation_id: int, answer: bytes) -> Any:
        """Check the answer's header, decode its body."""
        assert struct.unpack_from(">i", answer)[0] == correlation_id
        position = 4
        if api_key != ApiKey.API_VERSIONS and version >= registry.APIS[api_key].flexible_from:
            assert answer[4] == 0
            position = 5
        return decode_response(message_classes(api_key)[1], version, memoryview(answer), position)

    async def is_closed_by_server(self) -> bool:
        """Whether the server ends the connection without another byte."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


def open_file(path: Path, data: bytes) -> File:
    """A file of the real disk with that content."""
    path.write_bytes(data)
    return RealDisk().open(path)


@asynccontextmanager
async def connected(
    services: BrokerServices, config: NetworkConfig | None = None, **more: Any
) -> AsyncIterator[tuple[KafkaServer, RawClient]]:
    """running_server, and a client of it."""
    async with running_server(services, config, **more) as server:
        yield server, await RawClient.connect(server, more.get("listener", LISTENER))
