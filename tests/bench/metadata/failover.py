"""How long nobody answers a metadata write when the active controller is killed: three processes, real gRPC, Kafka's timers.

May touch:  processes it starts, a temporary directory.   Must not touch: targets.
Invariants: the time begins with SIGKILL and ends with the first new write that is answered as committed; before each kill all
            three controllers are up and have applied the same, so that a kill never waits for the one before it.
Read next:  member.py, the process; one_size.py.

Most of it is Kafka's timers, drawn at random: a follower looks for another leader at once when its leader's connection breaks,
and campaigns after its election timer. What this shows is whether anything else grows with the metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.controller_client.client import ControllerUnreachable
from barnabas_broker.controller_client.grpc_transport import GrpcControllerTransport
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    CreatableTopic,
    CreateTopics,
    NotActiveController,
)
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset
from tests.bench.metadata.member import HOST, registration
from tests.bench.metadata.one_size import REMOTE_BROKERS, REPLICATION_FACTOR, create_topics, topics_of

CONTROLLERS = 3
ATTEMPT_MS = 30_000
"""A request that makes 1 000 partitions in three processes on two cores may take its time."""
PROBE_ATTEMPT_MS = 1_000
RETRY_S = 0.01
SETTLE_S = 120.0
LAG_MAX = 2
"""Records by which a controller may be behind, when it has applied "the same": the idle quorum writes two a second."""


class Process:
    """One controller."""

    def __init__(self, directory: Path, node_id: int, ports: Sequence[int]) -> None:
        self.node_id = node_id
        self.applied = -1
        self.is_active = False
        self._arguments = [str(directory / f"controller-{node_id}"), str(node_id), *map(str, ports)]
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, and listen to what it says of itself."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.metadata.member", *self._arguments, stdout=asyncio.subprocess.PIPE
        )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None, "start comes first"
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        assert self._listening is not None, "start comes first"
        await self._listening

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "it has a pipe"
        async for line in process.stdout:
            self.applied, self.is_active = json.loads(line)
        self.applied, self.is_active = -1, False


class Quorum:
    """Three of them, and a client."""

    def __init__(self, directory: Path) -> None:
        ports = _free_ports(CONTROLLERS)
        self.processes = [Process(directory, index, ports) for index in range(1, CONTROLLERS + 1)]
        self._transport = GrpcControllerTransport(
            {BrokerId(index): (HOST, port) for index, port in enumerate(ports, 1)}
        )
        self._asked = BrokerId(1)

    async def close(self) -> None:
        """Kill them all."""
        await self._transport.close()
        for process in self.processes:
            await process.kill()

    async def ask(self, request: Request[Any], *, attempt_ms: int = ATTEMPT_MS) -> Any:
        """Ask until an active controller answers. Raises the KafkaError of one that refuses."""
        while True:
            try:
                return await self._transport.call(self._asked, request, principal="bench", timeout_ms=attempt_ms)
            except NotActiveController:
                await asyncio.sleep(RETRY_S)
            except (ControllerUnreachable, TimeoutError):
                await asyncio.sleep(RETRY_S)
            self._asked = BrokerId(self._asked % CONTROLLERS + 1)

    async def start_broker(self, broker_id: int, port: int) -> None:
        """Register and unfence a broker that is a registration and a listener."""
        reply = await self.ask(registration(broker_id, port))
        stream = await self._transport.open_heartbeats(self._asked)
        await stream.send(
            BrokerHeartbeat(
                broker_id=BrokerId(broker_id),
                broker_epoch=reply.broker_epoch,
                metadata_offset=Offset(reply.broker_epoch),
                want_fence=False,
                want_shutdown=False,
            )
        )
        assert not (await stream.receive()).is_fenced, "it has read all that it must"
        await stream.close()

    async def settle(self) -> Process:
        """Wait until all have applied the same; the active one."""
        async with asyncio.timeout(SETTLE_S):
            while True:
                applied = [process.applied for process in self.processes]
                active = [process for process in self.processes if process.is_active]
                if len(active) == 1 and min(applied) >= max(0, max(applied) - LAG_MAX):
                    return active[0]
                await asyncio.sleep(0.05)


async def measure_failover(directory: Path, partitions: int, per_topic: int, kills: int) -> dict[str, Any]:
    """Seconds without an answer, one per kill."""
    quorum = Quorum(directory)
    listener = socket.create_server((HOST, 0), backlog=1000)  # a new controller looks whether its brokers live
    try:
        for process in quorum.processes:
            (directory / f"controller-{process.node_id}").mkdir()
            await process.start()
        for broker_id in REMOTE_BROKERS:
            await quorum.start_broker(broker_id, listener.getsockname()[1])
        started = time.perf_counter()
        await create_topics(quorum.ask, topics_of(partitions, per_topic), per_topic)
        create_s = time.perf_counter() - started
        seconds = []
        for number in range(kills):
            active = await quorum.settle()
            await asyncio.sleep(1.0)
            topic = CreatableTopic(
                name=f"after-kill-{number}", partition_count=1, replication_factor=REPLICATION_FACTOR
            )
            killed = time.perf_counter()
            await active.kill()
            reply = await quorum.ask(CreateTopics(topics=(topic,)), attempt_ms=PROBE_ATTEMPT_MS)
            seconds.append(time.perf_counter() - killed)
            if reply.topics[0].error is not None:
                raise KafkaError.of(reply.topics[0].error.code, str(reply.topics[0].error))
            await active.start()
        return {"failover_s": seconds, "quorum_create_per_s": partitions / create_s}
    finally:
        listener.close()
        await quorum.close()


def _free_ports(count: int) -> list[int]:
    """All held at once, or two could be the same."""
    with contextlib.ExitStack() as held:
        return [held.enter_context(socket.create_server((HOST, 0))).getsockname()[1] for _ in range(count)]


if __name__ == "__main__":
    where, *sizes = sys.argv[1:]
    print(json.dumps(asyncio.run(measure_failover(Path(where), *map(int, sizes)))))
