"""One controller for the benchmark: the product's quorum member, controller and gRPC services, on one loop.

May touch:  a directory, a port of loopback.   Must not touch: the table, targets.
Invariants: wired as broker/node/node.py wires a controller; nobody is fenced for silence, since the brokers are only
            registrations.
Read next:  one_size.py, which holds one in its own process; failover.py, which runs three of these as processes.

    python -m tests.bench.metadata.member DIRECTORY ID PORT PORT PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import grpc.aio

from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_log.disk import RealDisk
from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.requests import BrokerHeartbeat, RegisterBroker
from barnabas_quorum.driver.broker_probe import reach_of
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.controller_service import ControllerService
from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.driver.metadata_listener import MetadataListener
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from barnabas_wire.rpc.options import SERVER_OPTIONS

CLUSTER_ID = "5L6g3nShTAeMCtK__X86sw"
HOST = "127.0.0.1"
FOR_EVER_MS = 3_600_000
REPORT_S = 0.02
QUORUM = QuorumConfig(snapshot_after_bytes=1 << 40)
"""Kafka's timers. Snapshots are measured by themselves, and would otherwise fall into what else is measured."""


def accept_any(name: str, key: str, value: str) -> str:
    """Stands for the validators of the rooms that own the config keys."""
    return value


def voters_of(ports: Sequence[int]) -> VoterSet:
    """Controllers 1, 2, … on these ports of loopback."""
    keys = [ReplicaKey(BrokerId(index), Uuid(bytes([index]) * 16)) for index in range(1, len(ports) + 1)]
    return VoterSet([Voter(key, HOST, port) for key, port in zip(keys, ports, strict=True)], kraft_version=1)


def registration(broker_id: int, port: int) -> RegisterBroker:
    """What a broker with one log directory sends."""
    return RegisterBroker(
        broker_id=BrokerId(broker_id),
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid((1000 + broker_id).to_bytes(16, "big")),
        endpoints=(Endpoint("PLAINTEXT", HOST, port),),
        rack=None,
        directories=(directory_id(broker_id),),
        features=SUPPORTED_FEATURES,
    )


def directory_id(broker_id: int) -> Uuid:
    """As random as a real one, but the same in every process."""
    return Uuid(Random(broker_id).randbytes(16))


def wall_ms() -> int:
    """ms since 1970."""
    return time.time_ns() // 1_000_000


class ControllerMember:
    """Open with `open`, use as a context manager."""

    def __init__(self, directory: Path, me: ReplicaKey, voters: VoterSet, log: MetadataLog) -> None:
        self.directory = directory
        self.log = log
        self.loader = MetadataLoader()
        self.driver = ControllerDriver(
            Controller(
                config=ControllerConfig(session_timeout_ms=FOR_EVER_MS, disconnect_grace_ms=FOR_EVER_MS),
                cluster_id=CLUSTER_ID,
                random=Random(me.id),
                validators=ConfigValidators(
                    topic=accept_any,
                    broker=accept_any,
                    group=accept_any,
                    client_metrics=accept_any,
                    topic_as_whole=lambda *_: None,
                    levels_of_keys={},
                ),
            ),
            node_id=me.id,
            clock_ms=wall_ms,
            probe=reach_of,
        )
        self.loader.publishers = (self.driver,)
        self.listener = MetadataListener(self.loader, leader_observers=(self.driver.on_leader_change,))
        voter = next(voter for voter in voters if voter.key == me)
        self.quorum = QuorumNode(
            config=QUORUM,
            replica=me,
            voters=voters,
            log=log,
            transport=GrpcTransport(cluster_id=CLUSTER_ID),
            clock_ms=wall_ms,
            random=Random(),
            listener=self.listener,
            endpoint=(voter.host, voter.port),
        )
        self.driver.attach(self.quorum, loader=self.loader)
        self._voter = voter
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._running: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, directory: Path, me: ReplicaKey, voters: VoterSet) -> ControllerMember:
        """Open or make the journal in a directory that exists."""
        log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(directory), now_ms=wall_ms())
        return cls(directory, me, voters, log)

    async def __aenter__(self) -> ControllerMember:
        QuorumServicer(
            cluster_id=CLUSTER_ID,
            handle=self.quorum.handle,
            identity=self.quorum.identity,
            change_voters=self.quorum.change_voters,
        ).add_to(self._server)
        ControllerService(self.driver).add_to_server(self._server)
        self._server.add_insecure_port(f"{self._voter.host}:{self._voter.port}")
        await self._server.start()
        self._running = [asyncio.create_task(self.quorum.run()), asyncio.create_task(self.driver.run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._server.stop(None)
        await self.log.close()

    async def until_active(self) -> None:
        """Wait until this controller leads; raises what ended it otherwise."""
        while not self.driver.is_active:
            for task in self._running:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def start_broker(self, broker_id: int) -> int:
        """Register and unfence a broker that is a registration only; its epoch."""
        reply = await self.driver.handle(registration(broker_id, 9), principal="bench")
        epoch: int = reply.broker_epoch
        await self.heartbeat(broker_id, epoch)
        return epoch

    async def heartbeat(self, broker_id: int, epoch: int, *, want_fence: bool = False) -> None:
        """One heartbeat of a broker that has read all metadata."""
        await self.driver.heartbeat(
            BrokerHeartbeat(
                broker_id=BrokerId(broker_id),
                broker_epoch=epoch,
                metadata_offset=self.loader.image.offset,
                want_fence=want_fence,
                want_shutdown=False,
            )
        )


async def serve(directory: Path, node_id: int, ports: Sequence[int]) -> None:
    """Be one controller until killed; tells on stdout how far it has applied and whether it is active."""
    voters = voters_of(ports)
    me = next(voter.key for voter in voters if voter.key.id == node_id)
    async with await ControllerMember.open(directory, me, voters) as member:
        reported: tuple[int, bool] | None = None
        while True:
            known = (member.loader.image.offset, member.driver.is_active)
            if known != reported:
                reported = known
                print(json.dumps(known), flush=True)
            await asyncio.sleep(REPORT_S)


if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), [int(port) for port in sys.argv[3:]]))
