"""A whole cluster from one seed: nodes, clients, what goes wrong when, and the laws after every step.

May touch:  the virtual loop.         Must not touch: the real clock, real files, sockets.
Invariants: one seed gives one run, message for message, in any process (`trace_hash`); a run in which no produce was
            acknowledged or nothing crashed is void, not passed.
Read next:  invariants.py, workload.py.

Phases: start, create the topic, faults under load for so many steps, then heal everything and wait: every node must be up,
every broker unfenced, every replica in sync and every produce answered within a bound, and the history must be clean.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from random import Random

from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid
from tests.simulation.disk import DiskFaults, SimulatedDisk
from tests.simulation.invariants import Invariants, LawBroken
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import LinkFaults, Network
from tests.simulation.nodes import SimulatedNode
from tests.simulation.workload import Client

TOPIC = "records"
PARTITIONS = 2
SETTLE_S = 60.0
"""Virtual seconds after healing within which everything must be well again."""
START_S = 30.0
CLEAN_UP_ROUNDS = 10
DEEP_CHECK_TURNS = 2_000
"""Turns of the loop between two comparisons of whole logs and images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The intensities of one seed: some runs have much of one fault and nothing of another."""

    links: LinkFaults
    disks: DiskFaults
    crash_every_s: float
    """Mean virtual time between crashes; also crashes right after an acknowledgement, with probability `crash_on_ack`."""
    crash_on_ack: float
    restart_s: float
    partition_every_s: float
    partition_s: float
    is_one_way: bool
    think_s: float
    """Most time between an acknowledgement and the next batch of a client."""

    @classmethod
    def draw(cls, random: Random) -> Swarm:
        """Draw each intensity; zero is one of its values."""
        choose = random.choice
        return cls(
            links=LinkFaults(
                loss=choose([0.0, 0.0, 0.01, 0.05]),
                duplicate=choose([0.0, 0.02, 0.1]),
                delay_s=choose([0.0002, 0.001, 0.005]),
                slow=choose([0.0, 0.01, 0.1]),
                slow_s=choose([0.05, 0.3]),
            ),
            disks=DiskFaults(
                flush_s=choose([0.0002, 0.001, 0.005]), slow=choose([0.0, 0.01, 0.1]), slow_s=choose([0.05, 0.5])
            ),
            crash_every_s=choose([0.7, 2.0, 6.0]),
            crash_on_ack=choose([0.0, 0.001, 0.02]),
            restart_s=choose([0.01, 0.3, 4.0]),
            partition_every_s=choose([0.0, 3.0, 10.0]),
            partition_s=choose([0.3, 2.0, 6.0]),
            is_one_way=random.random() < 0.5,
            think_s=choose([0.02, 0.1, 0.3]),
        )


@dataclass(slots=True)
class Figures:
    """What a run was worth."""

    steps: int = 0
    messages: int = 0
    virtual_s: float = 0.0
    crashes: int = 0
    partitions: int = 0
    acknowledged: int = 0
    sent: int = 0
    elections: int = 0
    trace_hash: str = ""

    @property
    def is_void(self) -> bool:
        """Nothing was put to the test."""
        return self.acknowledged == 0 or self.crashes == 0


class Cluster:
    """One run."""

    def __init__(self, seed: int, *, steps: int, nodes: int = 3, trace: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.figures = Figures()
        self.loop = VirtualLoop()
        self.swarm = Swarm.draw(self.random)
        self.network = Network(self.random, self._note)
        self._steps = steps
        self._is_traced = trace
        self._hash = hashlib.blake2b(digest_size=8)
        voters = VoterSet(
            [Voter(ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)), f"node-{i}", 1) for i in range(1, nodes + 1)]
        )
        for key in voters.keys:
            disk = SimulatedDisk(self.swarm.disks, self.random)
            self.network.nodes[key.id] = SimulatedNode(self, key.id, voters, disk)
        self.nodes = list(self.network.nodes.values())
        self.invariants = Invariants(self)
        self.clients = [Client(self, TOPIC, partition) for partition in range(PARTITIONS)]
        self._is_calm = False
        self._turns = 0

    def run(self) -> Figures:
        """The whole run. Raises LawBroken, and whatever the real code raised where nothing explains it."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._run())
        finally:
            self.loop.after_turn = lambda: None
            self.loop.set_exception_handler(lambda loop, context: None)
            for _ in range(CLEAN_UP_ROUNDS):
                left = asyncio.all_tasks(self.loop)
                if not left:
                    break
                for task in left:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(left, timeout=1.0))
            self.loop.close()
        figures = self.figures
        figures.steps = self.loop.steps
        figures.virtual_s = self.loop.time()
        figures.sent = sum(client.sent for client in self.clients)
        figures.acknowledged = sum(len(client.acknowledged) for client in self.clients)
        figures.elections = self.invariants.elections
        figures.trace_hash = self._hash.hexdigest()
        return figures

    async def _run(self) -> None:
        self.loop.set_exception_handler(self._on_loop_error)
        self.loop.after_turn = self._after_turn
        for node in self.nodes:
            node.start()
        async with asyncio.timeout(START_S):
            await self._create_topic()
        self.network.faults = self.swarm.links
        for client in self.clients:
            client.start()
        trouble = [asyncio.ensure_future(self._crash_now_and_then())]
        if self.swarm.partition_every_s:
            trouble.append(asyncio.ensure_future(self._partition_now_and_then()))
        while self.loop.steps < self._steps:
            await asyncio.sleep(0.05)
        for task in trouble:
            task.cancel()
        await self._calm()

    # -- what goes wrong -------------------------------------------------------------------------------------------

    async def _crash_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / self.swarm.crash_every_s))
            self.crash(self.random.choice(self.nodes))

    def crash(self, node: SimulatedNode) -> None:
        """Power off a node that is up, and on again later."""
        if not node.is_up or self._is_calm:
            return
        self.figures.crashes += 1
        self._note("crash", node.id, node.life)
        node.crash()
        self.loop.call_later(self.swarm.restart_s * (0.5 + self.random.random()), self._restart, node, node.life)

    def _restart(self, node: SimulatedNode, life: int) -> None:
        if node.life == life:
            self._note("restart", node.id, life)
            node.start()

    def after_acknowledgement(self, leader: SimulatedNode) -> None:
        """The telling moment: what was just promised must survive this."""
        if self.swarm.crash_on_ack and self.random.random() < self.swarm.crash_on_ack:
            victims = self.nodes if self.random.random() < 0.3 else [leader]
            for victim in victims:  # sometimes the lights go out everywhere
                self.crash(victim)

    async def _partition_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / self.swarm.partition_every_s))
            lonely = self.random.choice(self.nodes).id
            links = [(lonely, node.id) for node in self.nodes if node.id != lonely]
            if not self.swarm.is_one_way:
                links += [(target, source) for source, target in links]
            elif self.random.random() < 0.5:
                links = [(target, source) for source, target in links]
            self.figures.partitions += 1
            self._note("partition", lonely, len(links))
            self.network.cut(links)
            await asyncio.sleep(self.random.expovariate(1 / self.swarm.partition_s))
            self.network.cut_links.clear()

    # -- calm ------------------------------------------------------------------------------------------------------

    async def _calm(self) -> None:
        """Heal everything; the cluster must come back by itself, and the history must be clean."""
        self._is_calm = True
        self._note("calm", 0, 0)
        self.network.heal()
        self.swarm.disks.slow = 0.0
        for client in self.clients:
            client.stop()
        deadline = self.loop.time() + SETTLE_S
        while (reason := self.invariants.unsettled()) is not None:
            if self.loop.time() > deadline:
                raise LawBroken("liveness", f"{SETTLE_S:.0f} s after everything healed: {reason}")
            await asyncio.sleep(0.2)
        self.invariants.judge_histories()

    async def _create_topic(self) -> None:
        """Ask whoever is active, until it is done."""
        topic = CreatableTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=len(self.nodes))
        while True:
            await asyncio.sleep(0.2)
            active = [node for node in self.nodes if node.is_up and node.driver.is_active]
            if not active or any(broker.is_fenced for broker in active[0].loader.image.cluster.brokers.values()):
                continue
            if len(active[0].loader.image.cluster.brokers) < len(self.nodes):
                continue
            try:
                reply = await active[0].driver.handle(
                    CreateTopics(topics=(topic,), validate_only=False), principal="User:simulated"
                )
            except KafkaError:
                continue
            error = reply.topics[0].error  # type: ignore[union-attr]
            if error is None or error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return

    # -- watching --------------------------------------------------------------------------------------------------

    def _after_turn(self) -> None:
        """Cheap laws after every turn of the loop, deep ones now and then."""
        if self.network.failures:
            raise self.network.failures[0] or RuntimeError("a task failed")
        self._turns += 1
        self.invariants.check(is_deep=self._turns % DEEP_CHECK_TURNS == 0)

    def _note(self, kind: str, source: int, target: int) -> None:
        line = f"{self.loop.time():.6f} {kind} {source} {target}"
        self._hash.update(line.encode())
        self.figures.messages += 1
        if self._is_traced:
            print(line)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, KafkaError | OSError):
            self.network.failures.append(error)
