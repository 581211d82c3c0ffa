"""A whole cluster from one seed: nodes, clients, what goes wrong when, and the laws after every step.

May touch:  the virtual loop.         Must not touch: the real clock, real files, sockets.
Invariants: one seed gives one run, message for message, in any process (`trace_hash`); a run in which no produce was
            acknowledged or nothing crashed is void, not passed.
Read next:  swarm.py, faults.py, workload.py, invariants.py.

Phases: start, create the topic, faults under load for so many steps, then heal everything and wait: every node must be up,
every broker unfenced, every replica in sync and every produce answered within a bound, and the history must be clean.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_replication.config import SESSIONLESS_SIZE
from barnabas_simulation.client_calls import DirectCalls
from barnabas_simulation.compaction import CompactingClient
from barnabas_simulation.fault_list import FaultList
from barnabas_simulation.faults import Faults
from barnabas_simulation.invariants import Invariants
from barnabas_simulation.loop import WALL_START_MS, VirtualLoop
from barnabas_simulation.network import Network
from barnabas_simulation.nodes import SimulatedNode
from barnabas_simulation.operators import Operators
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Calls, Figures
from barnabas_simulation.strangers import Listening
from barnabas_simulation.swarm import LISTENING_EVERY, Slant, Swarm
from barnabas_simulation.transactions import TransactionWorkload
from barnabas_simulation.workload import ChurningClient, Client, settings_of_topics
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid

TOPIC = "records"
PARTITIONS = 2
SETTLE_S = 60.0
"""Virtual seconds after healing within which everything must be well again."""
GOES_ON_S = 6.0
"""Virtual seconds after a follower counts as silent within which a write that waits for it alone is acknowledged: the fetch
that it is parked with, the controller, and a retry of the client."""
IN_SYNC_S = 20.0
"""Virtual seconds within which every replica that may be in sync is, after the first record that follows a rest."""
START_S = 30.0
ROT_SHARE = 0.12
"""The share of seeds in which bits flip in the logs of stopped nodes, and all nodes scrub theirs."""


class Cluster:
    """One run."""

    partitions = PARTITIONS
    """The number of partitions of the topic that is never deleted."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int,
        nodes: int = 3,
        trace: bool = False,
        outcomes_only: bool = False,
        fault_list: FaultList | None = None,
        slant: Slant = Slant.NONE,
    ) -> None:
        """slant: what there is, whatever the seed says."""
        self.seed = seed
        self.slant = slant
        self.fault_list = fault_list or FaultList(only_count=True)
        self.random = Random(seed)
        self.rot = Random(self.random.random())
        """Draws what rots, and nothing else."""
        self.has_rot = self.rot.random() < ROT_SHARE or slant is Slant.ROT
        self.sessionless_size = self.random.choice([0, SESSIONLESS_SIZE])
        """In half of the seeds followers fetch in sessions, though they follow few partitions."""
        self.figures = Figures()
        self.loop = VirtualLoop()
        self.swarm = self.draw_swarm()
        self.network = Network(self.random, self.note)
        self.faults = self.make_faults()
        self.operators = Operators(self, self.swarm)
        self.network.strikes = self.strikes
        self.network.on_proposal = self.faults.after_proposal
        self.network.on_double = self.faults.after_double
        self.listening: Listening | None = None
        if self.swarm.streams is not None:
            self.listening = Listening(self, TOPIC, streams=self.swarm.streams, trouble=self.swarm.members)
            self.loop.sockets = self.listening.sockets
        self._steps = steps
        self._is_traced = trace
        self._hash = hashlib.blake2b(digest_size=8)
        count = nodes + self.swarm.brokers_beside
        members = [Voter(ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)), f"node-{i}", 1) for i in range(1, count + 1)]
        voters = VoterSet(members[:nodes], kraft_version=1)
        self.nodes = [
            SimulatedNode(
                self,
                member,
                voters if number < nodes else None,
                replace(self.swarm.disks),
                members=members,
                directories=self.swarm.directories,
            )
            for number, member in enumerate(members)
        ]
        self.network.nodes.update({node.id: node for node in self.nodes})
        self.invariants = Invariants(self, outcomes_only=outcomes_only)
        self.clients = [
            Client(self, TOPIC, partition, producers=self.swarm.producers)
            for partition in range(self.partitions if self.swarm.members is None else 1)
        ]
        if self.listening is not None:
            self.clients += self.listening.clients
        if self.swarm.churn_s:
            self.clients += [ChurningClient(self, number) for number in range(self.swarm.churn_topics)]
        if self.swarm.is_compacting and not self.swarm.is_transacting and self.swarm.members is None:
            self.clients.append(CompactingClient(self))
        self.transacting = TransactionWorkload(self) if self.swarm.is_transacting else None
        if self.transacting is not None:
            self.clients += self.transacting.clients

    def draw_swarm(self) -> Swarm:
        """What the seed is like."""
        swarm = Swarm.draw(self.random, self.slant)
        has_members = self.slant in (Slant.MEMBERS, Slant.STREAMS)
        is_listening = has_members or self.slant is Slant.LISTENERS
        if is_listening or self.seed % LISTENING_EVERY == LISTENING_EVERY - 1:
            swarm = swarm.with_listeners(Random(f"{self.seed} listens"))
        if has_members:
            random = Random(f"{self.seed} has members")
            return swarm.with_members(random, is_streams=self.slant is Slant.STREAMS)
        return swarm

    def make_faults(self) -> Faults:
        """What breaks nodes, disks and links."""
        return Faults(self, self.swarm)

    def end_trouble(self) -> None:
        """Heal everything now, however many steps are left."""
        self._steps = self.loop.steps

    def run(self) -> Figures:
        """The whole run. Raises LawBroken, and whatever the real code raised where nothing explains it."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._run())
        finally:
            self.loop.end()
        figures = self.figures
        figures.steps = self.loop.steps
        figures.virtual_s = self.loop.time()
        figures.acknowledged = sum(len(each.acknowledged) for client in self.clients for each in client.producers)
        figures.elections = self.invariants.elections
        figures.hashes_compared = self.invariants.hashes_compared
        figures.trace_hash = self._hash.hexdigest()
        return figures

    async def _run(self) -> None:
        self.loop.set_exception_handler(self._on_loop_error)
        self.loop.after_turn = self._after_turn
        for node in self.nodes:
            node.start()
        async with asyncio.timeout(START_S):
            await self._create_topic()
            if self.listening is not None:
                await self.listening.prepare()
        if self.swarm.members is not None:
            self._steps += self.loop.steps
        for client in self.clients:
            client.start()
        if self.transacting is not None:
            await self._until_none(self.transacting.not_begun, "the clients began", within_s=START_S)
            self._steps += self.loop.steps
        self.faults.start()
        self.operators.start()
        if self.listening is not None:
            self.listening.start()
        while self.loop.steps < self._steps or self.faults.is_judging:
            await asyncio.sleep(0.05)
        await self._calm()

    # -- calm ------------------------------------------------------------------------------------------------------

    async def _calm(self) -> None:
        """Heal everything; the cluster must come back by itself, and the history must be clean."""
        self.note("calm", 0, 0)
        self.faults.calm()
        if self.listening is not None:
            self.listening.stop()
        for client in self.clients:
            client.stop()
        await self._until_none(self.invariants.led_where_it_failed, "power and network are back")
        self.faults.mend_all()
        async with asyncio.timeout(SETTLE_S):
            await self.operators.calm()
        await self._until_none(self.invariants.unsettled, "everything healed")
        await self._probe()
        await self._probe_unheard()
        if self.listening is not None and self.listening.members is not None:
            await self.listening.members.converge()
        self.invariants.judge_histories()

    async def _probe(self) -> None:
        """A replica that is stopped for good shows only by a record that it does not take: one to each partition, once retention
        has taken what it may of those at rest."""
        logs = self.swarm.logs
        if logs.topic_retention_ms is not None:
            await asyncio.sleep(logs.topic_retention_ms / 1000 + 2 * logs.checkpoint_s)
        for client in self.clients:
            if client.is_kept:
                client.probe()
        await self._until_none(self.invariants.unsettled, "the first record after a rest", within_s=IN_SYNC_S)

    async def _probe_unheard(self) -> None:
        """acks=all soon works without a follower that its leader hears nothing of, while slow ones would keep their
        place."""
        silence_s = self.swarm.replica_silence_ms / 1000
        if self.swarm.replica_lag_ms < 4 * self.swarm.replica_silence_ms:
            return
        for client in self.clients:
            found = self.invariants.registration(client) if client.is_kept and client.is_prompt else None
            if found is None or len(found.isr) <= self.invariants.minimum(client.topic):
                continue
            follower = self.random.choice([member for member in found.isr if member != found.leader])
            self.network.unheard.add((follower, found.leader))
            client.probe()
            await self._until_none(
                lambda client=client: None if client.is_done else f"{client} is not acknowledged",  # type: ignore[misc]
                f"follower {follower} is cut off from its leader",
                within_s=silence_s + GOES_ON_S,
            )
            self.network.unheard.clear()
        await self._until_none(self.invariants.unsettled, "it is cut off no more")

    async def _until_none(
        self, find_reason: Callable[[], str | None], when: str, *, within_s: float = SETTLE_S
    ) -> None:
        deadline = self.loop.time() + within_s
        while (reason := find_reason()) is not None:
            if self.loop.time() > deadline:
                raise LawBroken("liveness", f"{within_s:.0f} s after {when}: {reason}")
            await asyncio.sleep(0.2)

    async def _create_topic(self) -> None:
        """Ask whoever is active, until it is done."""
        topic = CreatableTopic(
            name=TOPIC,
            partition_count=self.partitions,
            replication_factor=self.swarm.replicas,
            configs=settings_of_topics(self.swarm),
        )
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
            error = reply.topics[0].error
            if error is None or error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return

    def calls(self) -> Calls:
        """How one more client reaches the brokers."""
        return DirectCalls(self) if self.listening is None else self.listening.calls()

    def strikes(self, kind: str, source: int, target: int = -1) -> bool:
        """A fault is about to happen; False when this one is left out."""
        return self.fault_list.strikes(int(self.loop.time() * 1e6), kind, source, target)

    def wall_ms(self) -> int:
        """The clock that all brokers and clients have."""
        return WALL_START_MS + int(self.loop.time() * 1000)

    # -- watching --------------------------------------------------------------------------------------------------

    def _after_turn(self) -> None:
        """All laws, after every turn of the loop."""
        if self.network.failures:
            raise self.network.failures[0] or RuntimeError("a task failed")
        self.faults.look()
        if self.listening is not None:
            self.listening.look()
        self.invariants.check()

    def note(self, kind: str, source: int, target: int) -> None:
        """One line of the trace, and of its hash."""
        line = f"{self.loop.time():.6f} {kind} {source} {target}"
        self._hash.update(line.encode())
        self.figures.messages += 1
        if self._is_traced:
            print(line)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, KafkaError | OSError):
            self.network.failures.append(error)
