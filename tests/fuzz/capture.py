"""`python -m tests.fuzz.capture`: writes captured.txt anew, from what real clients and nodes say to each other on loopback.

May touch:  three nodes in this process, loopback, captured.txt.     Must not touch: other clusters.
Invariants: every word is one that a client of another house, a broker or a controller has sent here; of each sender, API and version the
            shortest and the longest are kept, none above FRAME_BYTES_MAX; passwords in it are of users made here.
Read next:  targets.py, whose seeds these are.

A proxy is in front of every Kafka listener, which advertises it; gRPC servers are given an interceptor. Each line of the file is a target,
who said it and what, and the input of the target in base64.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import grpc
import grpc.aio
import kafka
import kafka.admin
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, admin
from kafka.structs import OffsetAndMetadata

from barnabas_broker.api import registry
from barnabas_broker.main import main as server_main
from barnabas_broker.node import servers as node_servers
from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import split_descriptors
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import node_config
from barnabas_broker.node.real_world import RealWorld
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.produce import parse_produce_request
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from barnabas_wire.rpc.server import new_server
from tests.fuzz.targets import CALL_TYPES, CAPTURED, CLUSTER_ID, MECHANISMS, request_body

FRAME_BYTES_MAX = 1024
ATTRIBUTES_AT, CODEC_MASK = 22, 7
"""Of a record batch: the low byte of its attributes, and what of it names the codec."""
NODES = (1, 2, 3)
LISTENERS = ("OPEN", "LOGIN", "BROKERS")
USER, PASSWORD = "capture", "of-nobody"
TIMEOUT_S = 60.0
TOPIC = "captured"
OLD_KAFKA_PYTHON = ((0, 11), (1, 0), (1, 1), (2, 0), (2, 1), (2, 4), (2, 6), (2, 8), (3, 5))
OLD_LIBRDKAFKA = ("0.11.0", "1.0.0", "2.0.0")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Said = dict[tuple[str, str], list[bytes]]


class Ear:
    """What was heard, by target and by who said what."""

    def __init__(self) -> None:
        self.said: Said = defaultdict(list)

    def hear(self, target: str, what: str, data: bytes) -> None:
        """Keep the shortest and the longest."""
        if len(data) <= FRAME_BYTES_MAX:
            kept = self.said[target, what]
            kept.append(data)
            kept.sort(key=lambda each: (len(each), each))
            del kept[1:-1]

    def request(self, frame: bytes, listener: str) -> None:
        """A frame without its size."""
        kind, _, name_bytes = struct.unpack_from(">iih", frame)
        if kind not in registry.by_kind():
            return  # of a version that is refused by its number
        client = frame[10 : 10 + max(0, name_bytes)].decode().partition("-")[0] or "unnamed"
        sender = "broker" if listener == "BROKERS" else client
        self.hear("request", f"{sender}/{ApiKey(kind >> 16).name}-{kind & 0xFFFF}", frame)
        if kind >> 16 == ApiKey.PRODUCE:
            view, version = memoryview(frame), kind & 0xFFFF
            _, _, _, partitions = parse_produce_request(view, request_body(view, registry.by_kind()[kind]), version)
            for _, _, records in partitions:
                codec = records[ATTRIBUTES_AT] & CODEC_MASK
                self.hear("batch", f"{sender}/codec-{codec}", bytes(records))


class Login:
    """The login of one connection, as the target `sasl` takes it."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self._mechanism = ""
        self._steps: list[bytes] = []

    def see(self, frame: bytes) -> None:
        """One frame of the connection."""
        (kind,) = struct.unpack_from(">i", frame)
        if kind >> 16 not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            return
        api, view = registry.by_kind()[kind], memoryview(frame)
        request = registry.decode_request(api, kind & 0xFFFF, view, request_body(view, api))
        if isinstance(request, SaslHandshakeRequest):
            self._mechanism, self._steps = request.mechanism, []
        elif isinstance(request, SaslAuthenticateRequest):
            self._steps.append(bytes(request.auth_bytes))
            steps = b"".join(struct.pack(">H", len(step)) + step for step in self._steps)
            name = f"{self._mechanism}-{len(self._steps)}"
            self._ear.hear("sasl", name, bytes([MECHANISMS.index(self._mechanism)]) + steps)


class CallsHeard(grpc.aio.ServerInterceptor):
    """Keeps the bytes of every message of the calls that are fuzzed."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """See grpc.aio."""
        handler = await continuation(handler_call_details)
        name = handler_call_details.method.rpartition("/")[2]
        call = "HeartbeatMessage" if name == "Heartbeats" else f"{name}Call"
        index = next((i for i, each in enumerate(CALL_TYPES) if each.DESCRIPTOR.name == call), None)
        if handler is None or index is None:
            return handler

        def read(data: bytes) -> Any:
            self._ear.hear("rpc", name, bytes([index]) + data)
            return handler.request_deserializer(data)

        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(handler.stream_stream, read, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(handler.unary_unary, read, handler.response_serializer)


async def proxy(ear: Ear, listener: str, port: int, target: int) -> asyncio.Server:
    """Hands on what comes to `port`, and hears the requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", target)
            back = asyncio.create_task(hand_back(their_reader, writer))
            login = Login(ear)
            try:
                while True:
                    size = await reader.readexactly(4)
                    frame = await reader.readexactly(*struct.unpack(">i", size))
                    ear.request(frame, listener)
                    login.see(frame)
                    their_writer.write(size + frame)
                    await their_writer.drain()
            finally:
                their_writer.close()
                back.cancel()
                writer.close()

    async def hand_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextlib.asynccontextmanager
async def cluster(directory: Path, ear: Ear) -> AsyncIterator[dict[str, str]]:
    """Three nodes; the bootstrap servers by listener."""

    def heard(interceptors: Sequence[grpc.aio.ServerInterceptor] = (), **options: Any) -> grpc.aio.Server:
        return new_server([*interceptors, CallsHeard(ear)], **options)

    node_servers.new_server = heard  # type: ignore[attr-defined]
    ports = iter(free_ports(len(NODES) * (2 * len(LISTENERS) + 3)))
    real = {(node, name): next(ports) for node in NODES for name in LISTENERS}
    shown = {key: next(ports) for key in real}
    controllers = {node: next(ports) for node in NODES}
    ids = {node: str(Uuid(bytes([node] * 16))) for node in NODES}
    voters = ",".join(f"{node}@127.0.0.1:{port}:{ids[node]}" for node, port in controllers.items())
    lanes, running, stop = [], [], asyncio.Event()
    proxies = [await proxy(ear, name, shown[node, name], port) for (node, name), port in real.items()]
    try:
        for node in NODES:
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(node),
                "listeners": f"CONTROLLER://127.0.0.1:{controllers[node]},"
                + ",".join(f"{name}://127.0.0.1:{real[node, name]}" for name in LISTENERS),
                "advertised.listeners": ",".join(f"{name}://127.0.0.1:{shown[node, name]}" for name in LISTENERS),
                "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.login.plain.sasl.jaas.config": (
                    f'x.PlainLoginModule required user_{USER}="{PASSWORD}";'
                ),
                "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in controllers.values()),
                "admin.listeners": f"127.0.0.1:{next(ports)}",
                "metrics.listeners": f"127.0.0.1:{next(ports)}",
                "log.dirs": str(directory / f"node-{node}"),
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "group.initial.rebalance.delay.ms": "0",
                "delegation.token.secret.key": "no-secret-at-all",
            }
            path = directory / f"node-{node}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            path.chmod(0o600)
            words = ["--cluster-id", CLUSTER_ID, "--initial-controllers", voters]
            assert server_main(["format", "-c", str(path), *words]) == 0
            lanes.append(ControlLane())
            budget = split_descriptors(2048, connections_wanted=256, reserve_wanted=64)
            world = RealWorld(control=lanes[-1], descriptors=budget)
            running.append(asyncio.create_task(Node(node_config(properties), world).run(stop)))
        yield {name: ",".join(f"127.0.0.1:{shown[node, name]}" for node in NODES) for name in LISTENERS}
    finally:
        stop.set()
        await asyncio.wait(running, timeout=TIMEOUT_S)
        for server in proxies:
            server.close()
        for lane in lanes:
            lane.close()
    for task in running:
        task.result()


# -- the clients -------------------------------------------------------------------------------------------------------


def tried(*calls: Callable[[], Any]) -> None:
    """Requests that may be refused: they have been said."""
    for call in calls:
        with contextlib.suppress(KafkaException, kafka.errors.KafkaError):
            found = call()
            for future in found.values() if isinstance(found, dict) else [found]:
                if hasattr(future, "result"):
                    future.result(10)


def librdkafka(servers: str, **security: str) -> None:
    """By way of confluent-kafka: records in every codec, a group, a transaction, its admin client."""
    base: dict[str, Any] = {"bootstrap.servers": servers, "client.id": "librdkafka", "log_level": 0, **security}
    desk = admin.AdminClient(base)
    until(lambda: bool(desk.list_topics(timeout=5).brokers))
    tried(lambda: desk.create_topics([admin.NewTopic(TOPIC, 2, 3, config={"retention.ms": "3600000"})]))
    until(lambda: TOPIC in desk.list_topics(timeout=5).topics)
    for codec in CODECS:
        producer = Producer({**base, "compression.type": codec, "acks": "all", "linger.ms": 20})
        for number in range(5):
            producer.produce(TOPIC, b"value " * 5, key=str(number), partition=0, headers={"h": b"1"})
        producer.flush(TIMEOUT_S)
    sure = Producer({**base, "transactional.id": "librdkafka"})
    sure.init_transactions(TIMEOUT_S)
    group = {"group.id": "librdkafka", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**base, **group, "isolation.level": "read_committed", "client.rack": "one"})
    consumer.subscribe([TOPIC])
    until(lambda: bool(consumer.consume(5, 5)))
    sure.begin_transaction()
    sure.produce(TOPIC, b"sure", partition=1)
    sure.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 3)], consumer.consumer_group_metadata(), TIMEOUT_S)
    sure.commit_transaction(TIMEOUT_S)
    sure.begin_transaction()
    sure.produce(TOPIC, b"not sure", partition=1)
    sure.flush(TIMEOUT_S)
    sure.abort_transaction(TIMEOUT_S)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 2)], asynchronous=False)
    consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
    consumer.offsets_for_times([TopicPartition(TOPIC, 0, int(time.time() * 1000) - 60_000)], TIMEOUT_S)
    consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), TIMEOUT_S)
    consumer.close()
    topic, broker = admin.ConfigResource("topic", TOPIC), admin.ConfigResource("broker", "1")
    change = admin.ConfigEntry("retention.ms", "7200000", incremental_operation=admin.AlterConfigOpType.SET)
    acl = admin.AclBinding(
        admin.ResourceType.TOPIC, TOPIC, admin.ResourcePatternType.LITERAL, "User:ann", "*", admin.AclOperation.READ,
        admin.AclPermissionType.ALLOW,
    )  # fmt: skip
    acls = admin.AclBindingFilter(
        admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, None, None, admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )  # fmt: skip
    scram = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, 4096)
    tried(
        lambda: desk.create_partitions([admin.NewPartitions(TOPIC, 3)]),
        lambda: desk.describe_configs([topic, broker]),
        lambda: desk.incremental_alter_configs([admin.ConfigResource("topic", TOPIC, incremental_configs=[change])]),
        lambda: desk.alter_configs([admin.ConfigResource("topic", TOPIC, set_config={"retention.ms": "3600000"})]),
        lambda: desk.create_acls([acl]),
        lambda: desk.describe_acls(acls),
        lambda: desk.delete_acls([acls]),
        lambda: desk.alter_user_scram_credentials(
            [admin.UserScramCredentialUpsertion(USER, scram, PASSWORD.encode(), b"salt" * 4)]
        ),
        lambda: desk.describe_user_scram_credentials([USER]),
        lambda: desk.list_consumer_groups(),
        lambda: desk.describe_consumer_groups(["librdkafka"]),
        lambda: desk.list_consumer_group_offsets([_group_offsets()]),
        lambda: desk.alter_consumer_group_offsets([_group_offsets(TopicPartition(TOPIC, 0, 1))]),
        lambda: desk.describe_cluster(),
        lambda: desk.describe_topics(_topics()),
        lambda: desk.list_offsets({TopicPartition(TOPIC, 0): admin.OffsetSpec.latest()}),
        lambda: desk.delete_records([TopicPartition(TOPIC, 0, 1)]),
        lambda: desk.elect_leaders(_preferred(), [TopicPartition(TOPIC, 0)]),
        lambda: desk.delete_consumer_groups(["librdkafka"]),
    )


def _group_offsets(*partitions: TopicPartition) -> Any:
    from confluent_kafka import ConsumerGroupTopicPartitions

    return ConsumerGroupTopicPartitions("librdkafka", list(partitions) or None)


def _topics() -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection([TOPIC])


def _preferred() -> Any:
    from confluent_kafka import ElectionType

    return ElectionType.PREFERRED


def old_librdkafka(servers: str, version: str) -> None:
    """As it speaks to brokers of that age."""
    base: dict[str, Any] = {
        "bootstrap.servers": servers,
        "client.id": "librdkafka",
        "api.version.request": False,
        "broker.version.fallback": version,
        "log_level": 0,
    }
    producer = Producer(base)
    producer.produce(TOPIC, b"old", partition=0)
    producer.flush(10)
    consumer = Consumer({**base, "group.id": f"old-{version}", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    consumer.consume(1, 8)
    consumer.close()


def kafka_python(servers: str, version: tuple[int, ...] | None, **security: str) -> None:
    """Produces, consumes in a group, administers."""
    base: dict[str, Any] = {
        "bootstrap_servers": servers,
        "client_id": "kafka_python",
        "api_version": version,
        **security,
    }
    for codec in CODECS if version is None else (None,):
        producer = kafka.KafkaProducer(**base, acks="all", compression_type=None if codec == "none" else codec)
        producer.send(TOPIC, b"value " * 5, key=b"k", headers=[("h", b"1")], partition=0).get(TIMEOUT_S)
        producer.close(5)
    consumer = kafka.KafkaConsumer(TOPIC, **base, group_id=f"python-{version}", auto_offset_reset="earliest")
    until(lambda: bool(consumer.poll(5000, max_records=2)))
    partition = kafka.TopicPartition(TOPIC, 0)
    tried(
        lambda: consumer.commit({partition: OffsetAndMetadata(1, "m", -1)}),
        lambda: consumer.offsets_for_times({partition: 0}),
        lambda: consumer.end_offsets([partition]),
    )
    consumer.close()
    desk = kafka.KafkaAdminClient(**base)
    tried(
        lambda: desk.list_topics(),
        lambda: desk.describe_topics([TOPIC]),
        lambda: desk.create_topics([kafka.admin.NewTopic(f"python-{version}".replace(" ", ""), 1, 1)]),
        lambda: desk.describe_configs([kafka.admin.ConfigResource("TOPIC", TOPIC)]),
        lambda: desk.list_groups(),
        lambda: desk.describe_groups([f"python-{version}"]),
        lambda: desk.delete_topics([f"python-{version}".replace(" ", "")]),
        lambda: desk.describe_log_dirs(),
    )
    if version is None:  # its answers of former versions it does not understand itself
        desk.describe_cluster()
        tried(
            lambda: desk.describe_metadata_quorum(),
            lambda: desk.describe_producers([partition]),
            lambda: desk.describe_topic_partitions([TOPIC]),
            lambda: desk.describe_transactions(["librdkafka"]),
            lambda: desk.list_transactions(),
            lambda: desk.list_config_resources(),
            lambda: desk.list_partition_reassignments([partition]),
            lambda: desk.alter_partition_reassignments({partition: [2, 3, 1]}),
            lambda: desk.update_features({}),
            lambda: desk.delete_group_offsets("librdkafka", [partition]),
            lambda: desk.list_group_offsets({f"python-{version}": None}),
        )
    desk.close()


async def with_aiokafka(servers: str, **security: str) -> None:
    """Produces in every codec and in a transaction, consumes in a group."""
    base: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "aiokafka", **security}
    for codec in CODECS:
        producer = aiokafka.AIOKafkaProducer(**base, compression_type=None if codec == "none" else codec)
        async with producer:
            await producer.send_and_wait(TOPIC, b"value " * 5, key=b"k", headers=[("h", b"1")])
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC, **base, group_id="aiokafka", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    async with consumer, aiokafka.AIOKafkaProducer(**base, transactional_id="aiokafka") as producer:
        async with asyncio.timeout(TIMEOUT_S):
            await consumer.getone()
        async with producer.transaction():
            await producer.send(TOPIC, b"sure")
            await producer.send_offsets_to_transaction({aiokafka.TopicPartition(TOPIC, 0): 1}, "aiokafka")
        await consumer.commit()


def until(condition: Callable[[], bool]) -> None:
    """Ask again until it is true; a broker may not answer yet."""
    ends = time.monotonic() + TIMEOUT_S
    while time.monotonic() < ends:
        with contextlib.suppress(KafkaException):
            if condition():
                return
        time.sleep(0.1)
    raise TimeoutError("the cluster does not come to it")


def login(mechanism: str, *, dotted: bool) -> dict[str, str]:
    """The settings of librdkafka, or of the two in Python."""
    if dotted:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


async def capture(ear: Ear) -> None:
    """Everybody has their say."""
    registry.load_handlers()
    with tempfile.TemporaryDirectory() as directory:
        async with cluster(Path(directory), ear) as servers:
            plain, secured = servers["OPEN"], servers["LOGIN"]
            await asyncio.to_thread(librdkafka, plain)
            for old in OLD_LIBRDKAFKA:
                await asyncio.to_thread(old_librdkafka, plain, old)
            await asyncio.to_thread(kafka_python, plain, None)
            for version in OLD_KAFKA_PYTHON:
                await asyncio.to_thread(kafka_python, plain, version)
            await with_aiokafka(plain)
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                await asyncio.to_thread(librdkafka, secured, **login(mechanism, dotted=True))
                await asyncio.to_thread(kafka_python, secured, None, **login(mechanism, dotted=False))
                await with_aiokafka(secured, **login(mechanism, dotted=False))


def lines(said: Said) -> Iterator[str]:
    """The file's."""
    for (target, what), kept in sorted(said.items()):
        for data in kept:
            yield f"{target} {what} {base64.b64encode(data).decode()}\n"


def main() -> None:
    """See above."""
    logging.basicConfig(level=logging.ERROR)
    ear = Ear()
    asyncio.run(capture(ear))
    CAPTURED.write_text("".join(lines(ear.said)))
    print(f"{CAPTURED}: {len(ear.said)} senders and messages, {CAPTURED.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
