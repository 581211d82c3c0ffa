"""Real QuorumNodes on loopback: real gRPC, real files, one event loop. What the driver's tests share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import grpc.aio

from barnabas_broker.node.metadata_log import MetadataLog
from barnabas_log.disk import RealDisk
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.driver.node import CommittedBatch, LeaderAndEpoch, QuorumNode
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid
from barnabas_wire.rpc.options import SERVER_OPTIONS

CLUSTER_ID = "5L6g3nShTAeMCtK__X86sw"
SETTLE_S = 20.0
FAST = QuorumConfig(
    election_timeout_ms=150,
    fetch_timeout_ms=400,
    election_backoff_ms_max=100,
    request_timeout_ms=400,
    fetch_wait_ms_max=100,
)


class Listener:
    """Remembers what it was told, and the order."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.leaders: list[tuple[LeaderAndEpoch, Offset]] = []
        self.offset_at_leader_change: list[int] = []

    @property
    def records(self) -> list[bytes]:
        return [record for batch in self.batches for record in batch.records]

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.batches.extend(batches)

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        self.leaders.append((leader, next_offset))
        self.offset_at_leader_change.append(self.batches[-1].last_offset if self.batches else -1)


class Member:
    """One node, started and stopped."""

    def __init__(self, cluster: Cluster, key: ReplicaKey) -> None:
        self._cluster = cluster
        self.key = key
        self.listener = Listener()
        self.node: QuorumNode
        self.log: MetadataLog
        self._server: grpc.aio.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    async def start(self) -> None:
        cluster = self._cluster
        directory = cluster.directory / f"node-{self.key.id}"
        directory.mkdir(exist_ok=True)
        self.listener = Listener()
        self.log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(directory), now_ms=wall_ms())
        self.node = QuorumNode(
            config=cluster.config,
            replica=self.key,
            voters=cluster.voters,
            log=self.log,
            transport=GrpcTransport(cluster_id=CLUSTER_ID),
            clock_ms=wall_ms,
            random=Random(self.key.id),
            listener=self.listener,
        )
        voter = cluster.voters.by_id(self.key.id)
        if voter is not None:
            self._server = grpc.aio.server(options=SERVER_OPTIONS)
            QuorumServicer(cluster_id=CLUSTER_ID, handle=self.node.handle).add_to(self._server)
            assert self._server.add_insecure_port(f"127.0.0.1:{voter.port}") == voter.port
            await self._server.start()
        self._task = asyncio.create_task(self.node.run())

    async def kill(self) -> None:
        """Stop at once, telling nobody."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        await self.log.close()

    async def stop(self) -> None:
        """Stop in good order."""
        await self.node.resign()
        await self.kill()


class Cluster:
    """Voters 1…n and observers n+1…, below one directory."""

    def __init__(self, directory: Path, *, voters: int, observers: int = 0, config: QuorumConfig = FAST) -> None:
        self.directory = directory
        self.config = config
        keys = [ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, voters + observers + 1)]
        ports = free_ports(voters)
        self.voters = VoterSet([Voter(key, "127.0.0.1", port) for key, port in zip(keys[:voters], ports, strict=True)])
        self.members = [Member(self, key) for key in keys]

    async def __aenter__(self) -> Cluster:
        for member in self.members:
            await member.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for member in self.members:
            if member.is_running:
                await member.kill()

    def leader_now(self) -> Member | None:
        """The member that has announced itself to its listener and still leads."""
        for member in self.members:
            if member.is_running and member.listener.leaders:
                announced = member.listener.leaders[-1][0]
                if announced.leader_id == member.key.id and announced == member.node.leader_and_epoch:
                    return member
        return None

    async def leader(self, *, other_than: Member | None = None) -> Member:
        """Wait for a leader."""
        await until(lambda: self.leader_now() not in (None, other_than))
        leader = self.leader_now()
        assert leader is not None
        return leader

    async def all_have(self, records: Sequence[bytes]) -> None:
        """Wait until every listener has heard exactly these."""
        await until(lambda: all(member.listener.records == records for member in self.members))

    async def commit(self, leader: Member, records: Sequence[bytes]) -> Offset:
        """Propose, and wait until the leader's listener has it."""
        offset = leader.node.propose(records, epoch=leader.node.leader_and_epoch.epoch)
        await until(lambda: bool(leader.listener.batches) and leader.listener.batches[-1].last_offset >= offset)
        return offset


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the limit only keeps a broken test from hanging."""
    async with asyncio.timeout(SETTLE_S):
        while not condition():
            await asyncio.sleep(0.002)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
