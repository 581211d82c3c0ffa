"""Real QuorumNodes on loopback: real gRPC, real files, one event loop. What the driver's tests share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import grpc.aio

from barnabas_broker.metadata.metadata_log import SEGMENT_BYTES, MetadataLog
from barnabas_log.disk import RealDisk
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.driver.membership import OnVotersChanged, VotersGuard
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.driver.snapshots import LoadedSnapshot, SnapshotSource
from barnabas_quorum.driver.transport import Transport
from barnabas_quorum.raft.messages import CommittedBatch, LeaderAndEpoch
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid
from barnabas_wire.rpc.options import SERVER_OPTIONS

CLUSTER_ID = "5L6g3nShTAeMCtK__X86sw"
SETTLE_S = 60.0
FAST = QuorumConfig(
    election_timeout_ms=150,
    fetch_timeout_ms=2_000,
    election_backoff_ms_max=100,
    request_timeout_ms=400,
    fetch_wait_ms_max=100,
)


class Listener:
    """Remembers what it was told, and the order."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.last_offset = Offset(-1)
        self.snapshots_loaded = 0
        self.leaders: list[tuple[LeaderAndEpoch, Offset]] = []
        self.offset_at_leader_change: list[int] = []

    @property
    def records(self) -> list[bytes]:
        return [record for batch in self.batches for record in batch.records]

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.batches.extend(batches)
        self.last_offset = batches[-1].last_offset

    def on_load_snapshot(self, snapshot: LoadedSnapshot) -> Iterator[None]:
        """The image of these tests is the list of all records."""
        records: list[bytes] = []
        for group in snapshot.groups():
            records += group
            yield
        self.batches = [
            CommittedBatch(Offset(snapshot.end_offset - 1), snapshot.epoch, snapshot.timestamp_ms, tuple(records))
        ]
        self.last_offset = Offset(snapshot.end_offset - 1)
        self.snapshots_loaded += 1

    def take_snapshot(self) -> SnapshotSource | None:
        if not self.batches:
            return None
        last = self.batches[-1]
        groups = [self.records[start : start + 50] for start in range(0, len(self.records), 50)]
        return SnapshotSource(self.last_offset, last.epoch, last.append_timestamp_ms, iter(groups))

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        self.leaders.append((leader, next_offset))
        self.offset_at_leader_change.append(self.last_offset)


class Member:
    """One node, started and stopped."""

    def __init__(self, cluster: Cluster, key: ReplicaKey, *, port: int | None, is_spare: bool = False) -> None:
        """`port` of the controller listener, None on a broker; `is_spare`: a controller formatted without voters."""
        self._cluster = cluster
        self.key = key
        self.port = port
        self.is_spare = is_spare
        self.listener = Listener()
        self.node: QuorumNode
        self.log: MetadataLog
        self._server: grpc.aio.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def voter(self) -> Voter:
        """This controller as a voter."""
        assert self.port is not None, "a broker does not vote"
        return Voter(self.key, "127.0.0.1", self.port)

    @property
    def is_running(self) -> bool:
        return self._task is not None

    async def start(self) -> None:
        cluster = self._cluster
        directory = cluster.directory / f"node-{self.key}"
        directory.mkdir(exist_ok=True)
        self.listener = Listener()
        self.log = await MetadataLog.open(
            disk=RealDisk(), metadata_directory=str(directory), now_ms=wall_ms(), segment_bytes=cluster.segment_bytes
        )
        transport = GrpcTransport(cluster_id=CLUSTER_ID)
        self.node = QuorumNode(
            config=cluster.config,
            replica=self.key,
            voters=VoterSet.unknown() if self.is_spare else cluster.voters,
            log=self.log,
            transport=cluster.wrap(transport, self.key.id),
            clock_ms=wall_ms,
            random=Random(self.key.id),
            listener=self.listener,
            endpoint=None if self.port is None else ("127.0.0.1", self.port),
            bootstrap_servers=[(voter.host, voter.port) for voter in cluster.voters],
            voters_guard=cluster.voters_guard,
            on_voters_changed=cluster.on_voters_changed,
        )
        if self.port is not None:
            self._server = grpc.aio.server(options=SERVER_OPTIONS)
            QuorumServicer(
                cluster_id=CLUSTER_ID,
                handle=self.node.handle,
                identity=self.node.identity,
                change_voters=self.node.change_voters,
            ).add_to(self._server)
            assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
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
    """Voters 1…n, observers n+1… and after them spare controllers that may come to vote, below one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        voters: int,
        observers: int = 0,
        spares: int = 0,
        config: QuorumConfig = FAST,
        segment_bytes: int = SEGMENT_BYTES,
        kraft_version: int = 1,
        voters_guard: VotersGuard | None = None,
        on_voters_changed: OnVotersChanged | None = None,
    ) -> None:
        self.directory = directory
        self.voters_guard, self.on_voters_changed = voters_guard, on_voters_changed
        self.config = config
        self.segment_bytes = segment_bytes
        self.wrap: Callable[[Transport, BrokerId], Transport] = lambda transport, node_id: transport
        """What a test puts between a member and its transport."""
        keys = [ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, voters + observers + spares + 1)]
        ports = free_ports(voters + spares)
        self.voters = VoterSet(
            [Voter(key, "127.0.0.1", port) for key, port in zip(keys[:voters], ports[:voters], strict=True)],
            kraft_version=kraft_version,
        )
        self.members = [Member(self, voter.key, port=voter.port) for voter in self.voters]
        self.members += [Member(self, key, port=None) for key in keys[voters : voters + observers]]
        self.members += [
            Member(self, key, port=port, is_spare=True)
            for key, port in zip(keys[voters + observers :], ports[voters:], strict=True)
        ]

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
        await until(lambda: leader.listener.last_offset >= offset)
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
