"""Plays a scenario: does to the nodes, links and disks of a run what its script says, when it says it, and nothing else.

May touch:  the nodes' power, the network, the disks, the code of `quorum recover`.   Must not touch: the state of a node otherwise.
Invariants: every deed is written into the journal before its consequences are; which node it strikes is decided by what holds then.
Read next:  scenarios.py, the scripts; faults.py, whose random trouble this leaves out.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from barnabas_broker.offline.quorum_recovery import carry_out, inspect, lost_voters, plan_recovery
from barnabas_quorum.controller.requests_partitions import ElectionType, ElectLeaders
from barnabas_quorum.raft.messages import ReplyError, VoterChange, VoterChangeKind
from barnabas_simulation import reasons
from barnabas_simulation.disk import LOGS
from barnabas_simulation.faults import Faults
from barnabas_simulation.invariants import Invariants
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.nodes import SimulatedNode
from barnabas_simulation.reasons import Reason, numbers
from barnabas_simulation.run import Run
from barnabas_simulation.scenarios import Act, Deed, Scenario, Whom
from barnabas_simulation.watch import Watch
from barnabas_wire.kafka.ids import TopicPartition, Uuid
from barnabas_wire.records.batch import CRC_START, iterate_batches

TRY_AGAIN_S = 0.2
TRIES_MAX = 50
"""How often an operator asks at most for what was not done."""


class ScenarioRun(Run, Protocol):
    """A run that can be watched, and ended."""

    scenario: Scenario
    watch: Watch
    nodes: list[SimulatedNode]
    invariants: Invariants

    @property
    def client_partition(self) -> TopicPartition:
        """What the client writes to."""

    def end_trouble(self) -> None:
        """Heal everything now."""


class Script(Faults):
    """One scenario, being played."""

    def __init__(self, run: ScenarioRun) -> None:
        super().__init__(run, run.swarm)
        self._run = run
        self._struck: SimulatedNode | None = None
        self._lost: list[SimulatedNode] = []

    def start(self) -> None:
        """Let it begin."""
        self.is_calm = False
        playing = asyncio.ensure_future(self._play())
        playing.add_done_callback(self._on_end)
        self._trouble.append(playing)

    def _on_end(self, playing: asyncio.Task[None]) -> None:
        if not playing.cancelled() and playing.exception() is not None:
            self._run.network.failures.append(playing.exception())

    async def _play(self) -> None:
        loop, scenario = self._run.loop, self._run.scenario
        began_s = loop.time()
        for act in scenario.acts:
            await asyncio.sleep(max(0.0, began_s + act.at_s - loop.time()))
            await self._do(act)
        await asyncio.sleep(max(0.0, began_s + scenario.ends_s - loop.time()))
        self._run.end_trouble()

    async def _do(self, act: Act) -> None:
        nodes = self._run.nodes if act.whom is Whom.EVERYBODY else [await self._find(act.whom)]
        self._struck = nodes[0]
        for node in nodes:
            match act.deed:
                case Deed.POWER_OFF:
                    self._power_off(node)
                case Deed.POWER_ON:
                    self._tell("mended", node, f"Node {node.id} has power again", reasons.MENDED)
                    node.start()
                case Deed.CUT_OFF:
                    self._cut_off(node)
                case Deed.MEND:
                    self._run.network.unheard.clear()
                    self._run.network.heal()
                    self._tell("mended", node, f"The links of node {node.id} are open again", reasons.MENDED)
                case Deed.LOSE_FETCHES:
                    self._lose_fetches(node)
                case Deed.FLIP_A_BIT:
                    self._flip_a_bit(node)
                case Deed.LOSE_MACHINES:
                    self._lose_machines(node)
                case Deed.RECOVER:
                    await self._recover(node)
                case Deed.ELECT:
                    await self._elect(node)
                case Deed.NEW_MACHINE:
                    self._bring_new_machine(node)
                case Deed.ADD_VOTER:
                    await self._add_voter(node)

    def _tell(self, kind: str, node: NodeParts, what: str, reason: Reason) -> None:
        self._run.watch.note(kind, node.id, what, reason)

    # -- whom ------------------------------------------------------------------------------------------------------

    async def _find(self, whom: Whom) -> SimulatedNode:
        """Wait for it, for a moment: between two leaders there is none."""
        for _ in range(TRIES_MAX):
            found = self._look_for(whom)
            if found is not None:
                return found
            await asyncio.sleep(TRY_AGAIN_S)
        raise TimeoutError(f"{whom.value} was not there within {TRIES_MAX * TRY_AGAIN_S:.0f} s")

    def _look_for(self, whom: Whom) -> SimulatedNode | None:
        nodes = self._run.nodes
        partition_leader = self._partition_leader()
        quorum_leader = self._quorum_leader()
        match whom:
            case Whom.PARTITION_LEADER:
                return partition_leader
            case Whom.QUORUM_LEADER:
                return quorum_leader
            case Whom.FOLLOWER:
                return next((node for node in nodes if node.is_up and node is not partition_leader), None)
            case Whom.THE_SAME:
                return self._struck
            case Whom.FIRST_LOST:
                return self._lost[0]
            case Whom.SECOND_LOST:
                return self._lost[1]
            case Whom.SURVIVOR if self._lost:
                return next(node for node in nodes if node not in self._lost)
            case Whom.SURVIVOR if quorum_leader is not None and partition_leader is not None:
                return max(nodes, key=lambda node: (node is not quorum_leader, node is not partition_leader, -node.id))
            case _:
                return None

    def _partition_leader(self) -> SimulatedNode | None:
        led = [each for each in self._run.invariants.newest_registrations() if each.has_leader]
        node = next((node for node in self._run.nodes if led and node.id == led[0].leader), None)
        return node if node is not None and node.is_up else None

    def _quorum_leader(self) -> SimulatedNode | None:
        return next((node for node in self._run.nodes if node.is_up and node.driver.is_active), None)

    # -- trouble ---------------------------------------------------------------------------------------------------

    def _power_off(self, node: SimulatedNode) -> None:
        self._run.figures.crashes += 1
        node.crash()
        self._run.watch.look_away(node)
        self._tell("fault", node, f"Node {node.id} loses its power", reasons.NOTHING_ASKED)

    def _cut_off(self, node: SimulatedNode) -> None:
        others = [other.id for other in self._run.nodes if other is not node]
        self._run.network.cut([link for other in others for link in ((node.id, other), (other, node.id))])
        self._tell("fault", node, f"Node {node.id} is cut off from nodes {numbers(others)}, both ways", reasons.NO_LINK)

    def _lose_fetches(self, node: SimulatedNode) -> None:
        leader = self._partition_leader()
        assert leader is not None, "a follower has one"
        self._run.network.unheard.add((node.id, leader.id))
        what = f"What node {node.id} asks its leader, node {leader.id}, for is lost from now on"
        self._tell("fault", node, what, reasons.NO_LINK)

    def _flip_a_bit(self, node: SimulatedNode) -> None:
        path, inode = next(
            (path, inode)
            for path, inode in sorted(node.disk.names.items())
            if LOGS in path and path.endswith(".log") and inode.content
        )
        position, header = next(iter(iterate_batches(bytes(inode.content))))
        place = position + self._run.rot.randrange(CRC_START, header.size_bytes)
        inode.rot[place] = 1 << self._run.rot.randrange(8)
        self._run.figures.bits_flipped += 1
        what = f"A bit flips on the disk of node {node.id}: byte {place} of {path.rpartition('/')[2]}, within record {header.base_offset}"
        self._tell("fault", node, what, reasons.damaged_unseen(header.base_offset))

    def after_stop(self, node: NodeParts) -> None:
        """See Faults.after_stop. No node is asked to stop here: a node that ended has no directory left that works."""
        self._tell("fault", node, f"Node {node.id} has ended by itself", reasons.NOTHING_ASKED)
        super().after_stop(node)

    # -- a majority is lost ----------------------------------------------------------------------------------------

    def _lose_machines(self, survivor: SimulatedNode) -> None:
        self._lost = [node for node in self._run.nodes if node is not survivor]
        for node in self._lost:
            self._run.figures.crashes += 1
            node.crash()
            self._run.watch.look_away(node)
            self._tell("fault", node, f"Node {node.id} is lost, with its disks", reasons.lost_machine(survivor.id))

    async def _recover(self, node: SimulatedNode) -> None:
        """As `barnabas-server quorum recover` does on the survivor's host."""
        run = self._run
        node.crash()
        run.watch.look_away(node)
        stopped = (
            f"The operator stops node {node.id} and looks at its metadata directory: barnabas-server quorum recover"
        )
        self._tell("operator", node, stopped, reasons.NOTHING_ASKED)
        directory = f"node-{node.id}"
        report = await inspect(directory, open_disk=lambda: node.disk, clock_ms=run.wall_ms)
        plan = plan_recovery([report], chosen=report, recovery_id=Uuid(run.random.randbytes(16)))
        await carry_out(plan, open_disk=lambda: node.disk, clock_ms=run.wall_ms)
        run.invariants.on_recovery(report.log_end_offset)
        run.watch.forget(report.log_end_offset)
        self._tell(
            "operator",
            node,
            f"The operator begins the quorum anew from node {node.id}: the voters are {numbers({node.id})}, without "
            f"{numbers(lost_voters(plan))}, from epoch {plan.epoch}",
            reasons.recovered(end=report.log_end_offset, uncertain=plan.uncertain_records, epoch=plan.epoch),
        )
        node.start()

    async def _elect(self, node: SimulatedNode) -> None:
        """As `barnabas topic elect --unclean` does."""
        run = self._run
        topic, partition = run.client_partition
        what = f"The operator lets node {node.id} lead {topic}-{partition}: barnabas topic elect --unclean"
        self._tell("operator", node, what, reasons.VOUCHED)
        run.invariants.vouched_for.add(node.id)
        request = ElectLeaders(election_type=ElectionType.UNCLEAN, partitions=((topic, partition),))
        for _ in range(TRIES_MAX):
            leader = self._quorum_leader()
            if leader is not None:
                reply = await leader.driver.handle(request, principal="User:operator")
                if reply.partitions[0].error is None:
                    return
            await asyncio.sleep(TRY_AGAIN_S)
        raise TimeoutError(f"node {node.id} was not elected")

    def _bring_new_machine(self, node: SimulatedNode) -> None:
        self.wiped = node
        node.replace_machine(Uuid(self._run.random.randbytes(16)))
        self._run.watch.on_new_disk(node)
        self._tell(
            "operator", node, f"Node {node.id} is there again, on a new machine with empty disks", reasons.NEW_MACHINE
        )
        node.start()

    async def _add_voter(self, node: SimulatedNode) -> None:
        self._tell("operator", node, f"The operator adds node {node.id} to the voters", reasons.ADDED)
        for _ in range(TRIES_MAX):
            leader = self._quorum_leader()
            if leader is not None:
                change = VoterChange(VoterChangeKind.ADD, node.member, 0)
                if (await leader.quorum.change_voters(change)).error is ReplyError.NONE:
                    return
            await asyncio.sleep(TRY_AGAIN_S)
        raise TimeoutError(f"node {node.id} was not added to the voters")
