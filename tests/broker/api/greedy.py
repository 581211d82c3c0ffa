"""What the greediest request of each API costs a node: turns of its two loops, and memory.

May touch:  one node in this process, the profile hooks of its two threads.   Must not touch: other nodes.
Invariants: every API of the handler table is measured in its lowest and highest version; work is counted, not timed; a request that is
            refused counts as well.
Read next:  greedy_requests.py; test_greedy_requests.py, which holds it against the bounds in the handler table.

    python -m tests.broker.api.greedy [API …]     prints the table, with times (which no test looks at)

A turn is one callback of a loop; its work is the Python and C calls in it, about 5 to 10 million a second without the hook. What one
C call does is seen in the memory and in the times only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas_broker.api import registry
from barnabas_broker.main import main as server_main
from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import split_descriptors
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import node_config
from barnabas_broker.node.real_world import RealWorld
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.schema import decode_response, encode_request, message_classes
from tests.broker.api.greedy_requests import Shape, shapes

SIZES = (64 * 1024, 1024 * 1024)
PROBE_BYTES = 1024
NAME = "1"
"""Of the topic that exists, and of the broker: a request that means either finds it."""
PROBE_TIMEOUT_S = 2.0
TIMEOUT_S = 60.0
EVERYWHERE = {"timeout_ms": 2_000, "max_wait_ms": 0, "session_epoch": -1, "replica_id": 7, "acks": 1}
FIXED: dict[ApiKey, dict[str, Any]] = {
    ApiKey.JOIN_GROUP: {
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 100,
        "protocol_type": "consumer",
        "member_id": "",
    },
    ApiKey.OFFSET_COMMIT: {"group_id": NAME, "generation_id_or_member_epoch": -1, "member_id": ""},
    ApiKey.OFFSET_FETCH: {"group_id": NAME, "member_epoch": -1},
    ApiKey.OFFSET_DELETE: {"group_id": NAME},
    ApiKey.REMOVE_RAFT_VOTER: {"voter_id": 77},
    ApiKey.UNREGISTER_BROKER: {"broker_id": 77},
    ApiKey.UNREGISTER_CONTROLLER: {"controller_id": 77},
}
"""Without these a request would stop at its first check, or wait, or take the node apart."""


class Turns:
    """A profile hook that counts the calls in each turn of its thread's loop."""

    _TURN = asyncio.events.Handle._run.__code__

    def __init__(self) -> None:
        self._calls = self._began = 0
        self.longest = 0
        """Calls of the longest turn since `clear`."""

    def __call__(self, frame: Any, event: str, argument: object) -> None:
        if event == "call":
            if frame.f_code is self._TURN:
                self._began = self._calls
            self._calls += 1
        elif event == "c_call":
            self._calls += 1
        elif event == "return" and frame.f_code is self._TURN:
            self.longest = max(self.longest, self._calls - self._began)

    def clear(self) -> None:
        """Forget what was counted."""
        self._calls = self._began = self.longest = 0


@dataclass(slots=True)
class Cost:
    """Of one request."""

    size: int
    calls: int = 0
    """Longest turn of the data lane."""
    control_calls: int = 0
    memory_bytes: int = 0
    """At most at any moment, besides what was there before; the request and its answer are in it, in client and broker."""
    answer: str = ""
    """Bytes of it, or how the connection ended."""
    data_ms: float = 0.0
    control_ms: float = 0.0


@dataclass(slots=True)
class Row:
    """One API in one version."""

    api: registry.Api
    shape: Shape
    calls_of_probe: int


class GreedyClient:
    """Sends greedy requests to one node in this process and counts."""

    def __init__(self, port: int, control: ControlLane) -> None:
        self._port = port
        self.admin_port = 0
        """Of the node's admin listener."""
        self._control = control
        self._data_turns, self._control_turns = Turns(), Turns()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._topic_id = bytes(16)
        self._groups = 0

    async def set_up(self) -> None:
        """Wait until the node serves, then make what requests name."""
        await _until_true(self._is_serving)
        await self._create_topic()
        await _until_true(self._has_coordinator)

    async def search(self, key: int) -> list[Row]:
        """The greediest shape of an API in its lowest and its highest version, by counted work at a small size."""
        api = registry.APIS[key]
        cls = message_classes(key)[0]
        rows = []
        for version in sorted({max(api.min_version, cls.MIN_VERSION), api.max_version}):
            found: tuple[int, Shape] | None = None
            fixed = EVERYWHERE | FIXED.get(api.key, {})
            for alike in shapes(cls, version, name=NAME, topic_id=self._topic_id, fixed=fixed):
                # First the numbers with the name that exists, then the texts with the worst of these.
                best: tuple[int, Shape] | None = None
                for shape in (s for s in alike if s.text == NAME):
                    best = max(best or (-1, shape), (await self._probe(api, shape), shape), key=_first)
                assert best is not None
                for shape in (s for s in alike if s.text != NAME and s.number == best[1].number):
                    best = max(best, (await self._probe(api, shape), shape), key=_first)
                found = max(found or best, best, key=_first)
            assert found is not None
            rows.append(Row(api, found[1], found[0]))
        return rows

    async def _probe(self, api: registry.Api, shape: Shape) -> int:
        cost = await self.send(api, shape, PROBE_BYTES, timeout_s=PROBE_TIMEOUT_S)
        return max(cost.calls, cost.control_calls)

    async def send(
        self, api: registry.Api, shape: Shape, size: int, *, timeout_s: float = TIMEOUT_S, is_traced: bool = False
    ) -> Cost:
        """Send one request and count its calls or, if `is_traced`, its memory: each makes the other ten times as slow."""
        frame = self._frame(api, shape, size)
        cost = Cost(len(frame))
        if not is_traced:
            await self._hook(self._data_turns, self._control_turns)
        if is_traced:
            tracemalloc.start()
        cost.answer = await self._ask(frame, timeout_s)
        await asyncio.sleep(0)
        if is_traced:
            cost.memory_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        else:
            cost.calls, cost.control_calls = self._data_turns.longest, self._control_turns.longest
            await self._hook(None, None)
        await self._mend(api)
        return cost

    async def ask(self, api: registry.Api, shape: Shape, size: int, *, client_id: str) -> str:
        """Send one request, and count nothing."""
        return await self._ask(self._frame(api, shape, size, client_id), PROBE_TIMEOUT_S)

    async def time(self, api: registry.Api, shape: Shape, size: int) -> tuple[float, float]:
        """Milliseconds of the longest turns of the data and the control lane, without any hook. The data lane's include what this
        client does."""
        frame = self._frame(api, shape, size)
        longest: dict[int, float] = {}
        run: Callable[[Any], None] = asyncio.events.Handle._run

        def timed(handle: Any) -> None:
            began_s = time.perf_counter()
            run(handle)
            thread = threading.get_ident()
            longest[thread] = max(longest.get(thread, 0.0), time.perf_counter() - began_s)

        asyncio.events.Handle._run = timed  # type: ignore[assignment]
        try:
            await self._ask(frame, TIMEOUT_S)
        finally:
            asyncio.events.Handle._run = run  # type: ignore[assignment]
        await self._mend(api)
        data_s = longest.pop(threading.get_ident(), 0.0)
        return data_s * 1000, max(longest.values(), default=0.0) * 1000

    async def close(self) -> None:
        """Give the connection up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    def _frame(self, api: registry.Api, shape: Shape, size: int, client_id: str | None = None) -> bytes:
        name = b"" if client_id is None else client_id.encode()
        header = struct.pack(">hhih", api.key, shape.version, 1, -1 if client_id is None else len(name)) + name
        header += b"\0" if shape.is_flexible else b""
        if api.key is ApiKey.JOIN_GROUP:  # who joins a group of others waits for them
            self._groups += 1
            shape = Shape(
                *(shape.cls, shape.version, shape.path, shape.text, shape.number, shape.topic_id),
                {**shape.fixed, "group_id": f"group-{self._groups}"},
            )
        body = shape.body(size - len(header) + len(name) - 4, api.elements_max)
        return struct.pack(">i", len(header) + len(body)) + header + body

    async def _hook(self, data: Turns | None, control: Turns | None) -> None:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hook_control() -> None:
            sys.setprofile(control)
            loop.call_soon_threadsafe(done.set)

        self._control.loop.call_soon_threadsafe(hook_control)
        await done.wait()
        self._data_turns.clear()
        self._control_turns.clear()
        sys.setprofile(data)
        await asyncio.sleep(0)

    async def _ask(self, frame: bytes, timeout_s: float) -> str:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(frame)
        try:
            async with asyncio.timeout(timeout_s):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                left = size
                while left:
                    data = await reader.read(left)
                    if not data:
                        raise ConnectionError("cut off")
                    left -= len(data)
                return f"{size:,} B"
        except TimeoutError:
            await self.close()
            return "no answer"
        except (ConnectionError, asyncio.IncompleteReadError):
            await self.close()
            return "closed"

    async def _mend(self, api: registry.Api) -> None:
        """Make anew what a request took away."""
        if api.key is ApiKey.DELETE_TOPICS:
            await self._create_topic()

    async def call(self, request: Any, version: int) -> Any:
        """Send a declared request and wait for its answer."""
        is_flexible = version >= request.FLEXIBLE_FROM
        out = bytearray(struct.pack(">hhih", request.API_KEY, version, 1, -1) + (b"\0" if is_flexible else b""))
        encode_request(request, version, out)
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(struct.pack(">i", len(out)) + out)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(size)
        return decode_response(message_classes(request.API_KEY)[1], version, memoryview(answer), 4 + is_flexible)

    async def _is_serving(self) -> bool:
        try:
            return bool((await self.call(MetadataRequest(topics=None), 12)).brokers)
        except (OSError, asyncio.IncompleteReadError):
            await self.close()
            return False

    async def create_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """A topic with settings of its own, and wait until it is served."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
        (made,) = (await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)).topics
        assert made.error_code == ErrorCode.NONE, made.error_message

        async def is_led() -> bool:
            asked = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
            (found,) = (await self.call(ListOffsetsRequest(topics=[asked]), 6)).topics
            return bool(found.partitions[0].error_code == ErrorCode.NONE)

        await _until_true(is_led)

    async def _create_topic(self) -> None:
        topic = CreatableTopic(name=NAME, num_partitions=8, replication_factor=1)
        await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)

        async def is_there() -> bool:
            (found,) = (await self.call(MetadataRequest(topics=[MetadataRequestTopic(name=NAME)]), 12)).topics
            self._topic_id = bytes(found.topic_id)
            return bool(found.error_code == ErrorCode.NONE)

        await _until_true(is_there)

    async def _has_coordinator(self) -> bool:
        return bool((await self.call(FindCoordinatorRequest(key=NAME), 3)).error_code == ErrorCode.NONE)


async def _until_true(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.02)


def _first(pair: tuple[int, Shape]) -> int:
    return pair[0]


@contextlib.asynccontextmanager
async def greedy_client(directory: Path, more: Mapping[str, str] | None = None) -> AsyncIterator[GreedyClient]:
    """A client of a node of its own, broker and controller, that runs in this process. `more`: properties of it."""
    registry.load_handlers()
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
    kafka, controller, admin, metrics = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    properties = {
        "process.roles": "broker,controller",
        "node.id": NAME,
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "admin.listeners": f"127.0.0.1:{admin}",
        "metrics.listeners": f"127.0.0.1:{metrics}",
        "log.dirs": str(directory / "data"),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(more or {}),
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    cluster_id = str(Uuid(bytes(range(16))))
    assert server_main(["format", "-c", str(path), "--cluster-id", cluster_id, "--standalone"]) == 0
    control, stop = ControlLane(), asyncio.Event()
    running = asyncio.create_task(
        Node(
            node_config(properties),
            RealWorld(control=control, descriptors=split_descriptors(1024, connections_wanted=10, reserve_wanted=32)),
        ).run(stop)
    )
    client = GreedyClient(kafka, control)
    client.admin_port = admin
    try:
        await client.set_up()
        yield client
    finally:
        await client.close()
        stop.set()
        await asyncio.wait_for(running, TIMEOUT_S)
        control.close()


async def print_table(names: Iterable[str]) -> None:
    """Measure and time each API, or those that are named."""
    print(
        f"{'API':32s} {'':3s} {'bytes':>9s} {'calls':>8s} {'ms':>7s} {'control':>8s} {'ms':>7s} {'MB':>6s} {'answer':>13s}  greediest shape"
    )
    with tempfile.TemporaryDirectory() as directory:
        async with greedy_client(Path(directory)) as client:
            for key in sorted(registry.APIS):
                if names and ApiKey(key).name not in names:
                    continue
                for row in await client.search(key):
                    for size in SIZES:
                        cost = await client.send(row.api, row.shape, size)
                        cost.memory_bytes = (await client.send(row.api, row.shape, size, is_traced=True)).memory_bytes
                        cost.data_ms, cost.control_ms = await client.time(row.api, row.shape, size)
                        print(
                            f"{row.api.key.name:32s} v{row.shape.version:<2d} {cost.size:9,d} {cost.calls:8,d} {cost.data_ms:7.1f} "
                            f"{cost.control_calls:8,d} {cost.control_ms:7.1f} {cost.memory_bytes / 1e6:6.1f} {cost.answer:>13s} "
                            f"{row.shape}",
                            flush=True,
                        )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(print_table(frozenset(sys.argv[1:])))
