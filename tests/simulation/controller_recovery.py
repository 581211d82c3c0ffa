"""A majority of the voters is lost, and an operator recovers the quorum from a survivor with the code of `quorum recover`.

May touch:  the simulated nodes' power, disks and links, as an operator can; their state read only, to judge.
Must not touch: the rules of a recovery: broker/offline/quorum_recovery.py has them.
Invariants: a disk is lost for good only when the recovery is written; the lost voters come back before the run ends, with old
            disks or empty ones; a node that was told that the quorum was recovered without it rejoins by hand.
Read next:  controller_laws.py; barnabas_broker/offline/quorum_recovery.py, barnabas_quorum/driver/incarnation.py.

Lost voters are switched off, or run on as an island: a majority of the former set that elects and answers the askers on its
side. What it promises from then on is lost, and so is what was committed without the survivors. How much must stay follows
from Raft alone: a log whose last record is of epoch l has all that leaders of epochs up to l committed, as far as it reaches.

Two things chance made too seldom (a planted bug of each outlived two thousand seeds, or hundreds), so some runs steer to them:
- Half of an even set commits without the other half, which never sees the change of voters that lets it. Such a run evens the
  set out, cuts the leader off with half of it, and asks it for a change before it resigns.
- A snapshot is taken within the survivor's uncertain end, and a node with an empty disk begins with it. Such a run lets the leader
  survive alone with what it writes, has small segments, since the survivor delivers one at a time, and lets nobody ask from then
  on until who comes back has begun: what is asked brings the next snapshot, which would be given in its place.

Laws, of what an operator could see
  R18  a voter of the former quorum takes no part in the recovered one, nor does who follows that lead in a former epoch
  R19  the plan tells what is missing, and calls nothing committed that was not; the best survivor has all that any has; a
       recovery that is complete is on the disk whole
  R20  what may have been decided otherwise is told as committed only to who has the gap too
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from barnabas_broker.metadata.incarnation_file import load_incarnation
from barnabas_broker.metadata.meta_properties import META_PROPERTIES, MetaProperties, StorageError
from barnabas_broker.metadata.snapshot_files import BOOTSTRAP_ID, checkpoint_name
from barnabas_broker.offline.quorum_recovery import (
    RecoveryPlan,
    SurvivorReport,
    carry_out,
    inspect,
    plan_recovery,
    rank,
    rejoin,
)
from barnabas_log.memory_disk import MemoryDisk
from barnabas_quorum.driver.incarnation import FIRST
from barnabas_quorum.driver.snapshot_content import bootstrap_snapshot
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_simulation.partition_model import LawBroken
from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.ids import METADATA_TOPIC, BrokerId, Uuid

if TYPE_CHECKING:
    from tests.simulation.controller_node import ControllerNode
    from tests.simulation.controllers import Quorum

SHARE = 0.25
"""Of the seeds, those that lose a majority."""
TRIES_MAX = 6
POWER_CUTS_MAX = 3
MOMENTS_MAX = 14
"""Of the disk, while a recovery is written."""
GROW_S = 0.3
CALL_TIMEOUT_S = 2.0
BEGIN_S = 0.3
"""Whoever comes back with an empty disk has downloaded a snapshot by then."""
SNAPSHOT_POLL_S = 0.005
SNAPSHOT_POLLS = 200
UNSEEN_CHANGE_S = 0.5
"""A leader that was cut off resigns soon after."""


class Steering(Enum):
    """What some runs are steered to."""

    UNSEEN_CHANGE = "unseen change"
    """Half of an even set is lost, and changes the set before that."""
    UNCERTAIN_END = "uncertain end"
    """The leader survives and writes what nobody else gets; those who come back begin with what it has by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityLoss:
    """When and how a run loses a majority of its voters."""

    at_s: float
    stand_s: float
    """From the loss to the recovery."""
    apart_s: float
    """From the recovery to the return of the lost."""
    island: float
    """Probability that a lost voter runs on, cut off; the others are switched off."""
    wiped: float
    """Of those that are switched off, whose disks are lost for good."""
    power_cut: float
    """Probability that the power fails while a recovery is written."""
    poorer: float
    """Probability that the operator does not take the best survivor."""
    steering: Steering | None = None
    """To what chance hardly makes."""

    @classmethod
    def draw(cls, random: Random) -> MajorityLoss | None:
        """Most runs lose none."""
        choose = random.choice
        if random.random() >= SHARE:
            return None
        loss = cls(
            at_s=choose((0.3, 1.0, 2.0)),
            stand_s=choose((0.05, 0.3, 1.0)),
            apart_s=choose((0.0, 0.5, 2.0)),
            island=choose((0.0, 1.0, 1.0, 0.7)),
            wiped=choose((0.0, 0.5, 1.0)),
            power_cut=choose((0.0, 0.5, 0.9)),
            poorer=choose((0.0, 0.0, 0.3)),
        )
        match choose((None, None, Steering.UNSEEN_CHANGE, Steering.UNCERTAIN_END, None)):
            case Steering.UNSEEN_CHANGE:
                return replace(loss, steering=Steering.UNSEEN_CHANGE, island=1.0)
            case Steering.UNCERTAIN_END:
                return replace(
                    loss, steering=Steering.UNCERTAIN_END, at_s=0.3, stand_s=1.0, island=0.0, wiped=1.0, poorer=0.0
                )
        return loss


def format_disk(node: ControllerNode) -> None:
    """As `storage format` leaves it."""
    meta = MetaProperties(cluster_id=node.cluster_id, node_id=node.id, directory_id=node.member.key.directory_id)
    directory = f"{node.directory}/{METADATA_TOPIC}-0"
    node.disk.make_directory(directory)
    files = {f"{node.directory}/{META_PROPERTIES}": meta.encode()}
    if node.voters.voters:
        files[f"{directory}/{checkpoint_name(BOOTSTRAP_ID)}"] = bootstrap_snapshot(node.voters)
    for path, data in files.items():
        MemoryDisk.write_file_atomically(node.disk, path, data)


class QuorumRecovery:
    """The loss, the operator, and what must hold afterwards, in one run."""

    def __init__(self, run: Quorum, loss: MajorityLoss) -> None:
        self.plan: RecoveryPlan | None = None
        """Since the recovery is complete."""
        self.first_epoch = 0
        """From this epoch on records are of the recovered quorum."""
        self.begins_at = 0
        """Where the survivor's log ended: its new voters stand from here on."""
        self.retained = 0
        """Everything that was committed below is in the survivor's log."""
        self._run = run
        self._loss = loss
        self._random = run.random
        self._committed: dict[int, int] = {}
        """By epoch, how far its leader committed."""
        self._away: list[ControllerNode] = []
        """Lost: off or on the island."""
        self._hurry = asyncio.Event()
        self._work: asyncio.Future[None] | None = None
        self._writer: ControllerNode | None = None
        self._moments_left = 0
        self._writing: asyncio.Future[None] | None = None
        self._is_cut = False

    # -- the operator ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let it happen."""
        self._work = asyncio.ensure_future(self._happen())

    async def finish(self) -> None:
        """Bring to an end what has begun: the lost come back."""
        self._hurry.set()
        assert self._work is not None, "it has begun"
        await self._work

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _happen(self) -> None:
        await self._rest(self._loss.at_s)
        while not await self._lose():
            if self._hurry.is_set():
                return
            await self._rest(0.1)
        await self._rest(self._random.expovariate(1 / self._loss.stand_s))
        is_uncertain = self._loss.steering is Steering.UNCERTAIN_END
        if is_uncertain:
            self._cut_askers_off()
        is_recovered = not self._hurry.is_set() and await self._recover()
        if is_recovered and is_uncertain:
            await self._await_snapshot()
        elif is_recovered:
            await self._rest(self._random.expovariate(1 / self._loss.apart_s) if self._loss.apart_s else 0.0)
        self._come_back()
        if is_recovered and is_uncertain:
            self._cut_askers_off()
            await self._rest(BEGIN_S)
            self._run.network.walls.clear()
        if is_recovered:
            await self._grow()

    async def _lose(self) -> bool:
        run, random = self._run, self._random
        leaders = [node for node in run.nodes if node.is_up and node.driver.is_active]
        if not leaders:
            return False
        leader = random.choice(leaders)
        voters = leader.quorum.voters
        steering = self._loss.steering
        if steering is Steering.UNSEEN_CHANGE and len(voters) % 2:
            await self._change(leader, self._any_change(leader, others=run.nodes))
            return False
        if len(voters) < 2 or not run.strikes("majority lost", voters.voters[0].key.id):
            return False
        ids = [voter.key.id for voter in voters]
        others = [each for each in ids if each != leader.id]
        count_min, count_max = len(voters) - voters.majority + 1, len(voters) - 1
        if steering is Steering.UNSEEN_CHANGE:
            lost = {leader.id, *random.sample(others, len(ids) // 2 - 1)}
        elif steering is Steering.UNCERTAIN_END:
            lost = set(random.sample(others, random.randint(count_min, count_max)))
        else:
            lost = set(random.sample(ids, random.randint(count_min, count_max)))
        island: set[int] = set()
        for node in run.nodes:
            is_voter = voters.by_id(node.id) is not None
            if node.id in lost or (not is_voter and random.random() < 0.5):
                self._away.append(node)
                if random.random() < self._loss.island:
                    island.add(node.id)
                else:
                    run.note("switched off", node.id, node.life)
                    self._switch_off(node)
        askers = {asker.id for asker in run.askers if random.random() < 0.5} if island & lost else set()
        inside = island | askers
        outside = {node.id for node in run.nodes} | {asker.id for asker in run.askers}
        outside -= inside
        run.note("majority lost", min(lost), len(island))
        run.network.walls.update(
            (a, b) for pair in ((inside, outside), (outside, inside)) for a in pair[0] for b in pair[1]
        )
        if steering is Steering.UNSEEN_CHANGE:
            await self._change(leader, self._any_change(leader, others=self._away))
        return True

    def _any_change(self, leader: ControllerNode, *, others: list[ControllerNode]) -> VoterChange:
        """One of the others joins, or a voter leaves that is not among them; where all are, any but the leader."""
        voters = leader.quorum.voters
        joining = [node.member for node in others if voters.by_id(node.id) is None]
        here = {node.id for node in others}
        leaving = [voter for voter in voters if voter.key.id not in here]
        leaving = leaving or [voter for voter in voters if voter.key.id != leader.id]
        if joining and (not leaving or self._random.random() < 0.5):
            return VoterChange(VoterChangeKind.ADD, self._random.choice(joining), 0)
        return VoterChange(VoterChangeKind.REMOVE, self._random.choice(leaving), 0)

    async def _change(self, leader: ControllerNode, change: VoterChange) -> None:
        """Whether it comes to its end is not known."""
        try:
            async with asyncio.timeout(UNSEEN_CHANGE_S):
                await self._run.change_voters(leader, change)
        except TimeoutError:
            return

    def _switch_off(self, node: ControllerNode) -> None:
        node.crash()
        node.is_kept_down = True

    async def _recover(self) -> bool:
        """False when the code refuses: then nothing needs to be given up, or nobody that is left votes."""
        survivors = [node for node in self._run.nodes if node not in self._away]
        known = {node.id: self._flushed_by(node) for node in survivors}
        for node in survivors:
            self._switch_off(node)
        first: RecoveryPlan | None = None
        done: RecoveryPlan | None = None
        cuts_left = POWER_CUTS_MAX
        for _ in range(TRIES_MAX):
            for node in survivors:
                node.disk.is_full = False
            try:
                reports = [await self._inspect(node) for node in survivors]
                plan = plan_recovery(
                    reports, chosen=self._choose(reports), recovery_id=Uuid(self._random.randbytes(16))
                )
                if first is None or not plan.chosen.is_unfinished:
                    # The power can fail before a recovery has begun on the disk: the operator looks again, may take another
                    # survivor, and accepts what that one's plan says is lost. An unfinished one keeps its first plan's word.
                    first = plan
                    self._judge(plan, known)
                is_cut = cuts_left > 0 and self._random.random() < self._loss.power_cut
                cuts_left -= is_cut
                if await self._carry_out(plan, is_cut=is_cut):
                    done = plan
                    break
            except StorageError as error:
                if first is not None:
                    raise LawBroken("R19 a recovery can be given again", str(error)) from error
                self._run.note("recovery refused", 0, 0)
                self._start(survivors)
                return False
            except OSError:
                continue
        if first is None or done is None:
            raise LawBroken("R19 a recovery can be given again", f"not after {TRIES_MAX} times")
        await self._begin_anew(first, done)
        self._start(survivors)
        return True

    def _start(self, nodes: list[ControllerNode]) -> None:
        for node in nodes:
            node.is_kept_down = False
            node.start()

    def _flushed_by(self, node: ControllerNode) -> tuple[int, int] | None:
        """(last epoch, flushed end) as the node knows them itself, of which its disk loses nothing."""
        if not node.is_up or node.lacks_records:
            return None
        own = node.quorum.describe_own()
        return own.last_epoch, own.flushed_end_offset

    async def _inspect(self, node: ControllerNode) -> SurvivorReport:
        while True:
            try:
                return await inspect(node.directory, open_disk=lambda: node.disk, clock_ms=node.clock_ms)
            except OSError:
                if not node.disk.is_full:
                    raise
                node.disk.is_full = False

    def _choose(self, reports: list[SurvivorReport]) -> SurvivorReport:
        voters = [report for report in rank(reports) if report.is_voter]
        if not voters:
            raise StorageError("nobody that is left votes")
        begun = [report for report in voters if report.is_unfinished]
        if begun:
            return begun[0]
        return self._random.choice(voters) if self._random.random() < self._loss.poorer else voters[0]

    async def _carry_out(self, plan: RecoveryPlan, *, is_cut: bool) -> bool:
        """Whether it came to its end; the power fails at some moment of the disk, or afterwards."""
        node = self._node(plan)
        disk = node.disk
        self._writer, self._is_cut = node, False
        self._moments_left = self._random.randint(1, MOMENTS_MAX) if is_cut else 0
        self._writing = asyncio.ensure_future(carry_out(plan, open_disk=lambda: disk, clock_ms=node.clock_ms))
        try:
            await asyncio.wait((self._writing,))
        finally:
            self._writer = None
        if self._is_cut:
            return False
        self._writing.result()
        if self._random.random() < 0.5:
            node.disk = node.disk.after_power_cut(self._random)
        return True

    def at_disk(self, node: ControllerNode) -> None:
        """Something has just become durable, or half of it; the power may fail here."""
        if node is not self._writer or self._moments_left == 0:
            return
        self._moments_left -= 1
        if self._moments_left == 0 and self._writing is not None:
            self._is_cut = True
            self._run.note("power fails in the recovery", node.id, node.life)
            node.disk = node.disk.after_power_cut(self._random)
            self._writing.cancel()  # what it still does goes to the disk that is no more

    async def _begin_anew(self, first: RecoveryPlan, done: RecoveryPlan) -> None:
        run = self._run
        found = await self._inspect(self._node(done))
        told = (found.incarnation, found.voters, found.last_epoch, found.is_unfinished)
        if told != (str(done.incarnation), str(done.voters), done.epoch, False):
            raise LawBroken("R19 a recovery that is complete is on the disk", f"{told} after {done}")
        self.first_epoch, self.begins_at, self.plan = first.epoch, first.chosen.log_end_offset, done
        run.figures.recoveries += 1
        run.note("recovered", self._node(done).id, self.retained)
        for asker in run.askers:
            asker.on_recovery(self.retained)

    def _cut_askers_off(self) -> None:
        """What they write would bring the survivor's next snapshot, and those who come back would begin with that."""
        run = self._run
        pairs = [(asker.id, node.id) for asker in run.askers for node in run.nodes]
        run.network.walls.update(pairs, ((node, asker) for asker, node in pairs))

    async def _await_snapshot(self) -> None:
        """The first that the survivor takes."""
        assert self.plan is not None, "the recovery is complete"
        node = self._node(self.plan)
        for _ in range(SNAPSHOT_POLLS):
            if self._hurry.is_set() or (node.is_up and node.quorum.snapshot_stats.taken):
                return
            await self._rest(SNAPSHOT_POLL_S)

    def _come_back(self) -> None:
        """With the old disk, or a new one."""
        self._run.network.walls.clear()
        for node in self._away:
            if not node.is_kept_down:
                continue
            if self.plan is not None and self._random.random() < self._loss.wiped:
                self._run.note("new disk", node.id, node.life)
                node.replace_disk(Uuid(self._random.randbytes(16)))
                format_disk(node)
            node.is_kept_down = False
            node.start()

    async def _grow(self) -> None:
        """Until there are as many voters as before."""
        run = self._run
        assert self.plan is not None, "the recovery is complete"
        while not self._hurry.is_set():
            await self._rest(GROW_S)
            ours = [node for node in run.nodes if node.is_up and node.incarnation.current == self.plan.incarnation]
            leader = next((node for node in ours if node.driver.is_active), None)
            if leader is None or len(leader.quorum.voters) >= run.swarm.voters:
                continue
            joining = [node for node in ours if leader.quorum.voters.by_id(node.id) is None]
            if joining:
                change = VoterChange(VoterChangeKind.ADD, self._random.choice(joining).member, 0)
                try:
                    async with asyncio.timeout(CALL_TIMEOUT_S):
                        await run.change_voters(leader, change)
                except TimeoutError:
                    continue

    # -- nodes that end --------------------------------------------------------------------------------------------

    def explains(self, node: ControllerNode, error: BaseException) -> bool:
        """Whether a node had to end; it is brought back."""
        if load_incarnation(node.disk, node.directory).superseded_by != FIRST:
            self._run.note("superseded", node.id, node.life)
            node.crash()
            self._run.loop.call_later(self._random.random() * self._run.swarm.restart_s, self._rejoin, node, node.life)
            return True
        # who had applied what is lost stops once, and begins with an empty log
        if node.has_gone_over and isinstance(first_error(error), AssertionError):
            own = node.quorum.describe_own()
            if own.high_watermark > self.retained and own.last_epoch < self.first_epoch:
                self._run.note("stops for what is lost", node.id, node.life)
                self._run.stop(node)
                return True
        return False

    def _rejoin(self, node: ControllerNode, life: int) -> None:
        if node.life != life or node.is_kept_down:
            return
        node.disk.is_full = False
        rejoin(node.disk, node.directory)
        node.forget_log()
        node.start()

    def _node(self, plan: RecoveryPlan) -> ControllerNode:
        return next(node for node in self._run.nodes if node.id == plan.chosen.node_id)

    # -- the laws --------------------------------------------------------------------------------------------------

    def is_of(self, epoch: int) -> bool:
        """Whether a record of this epoch is of the quorum that counts."""
        return self.plan is None or epoch >= self.first_epoch

    def _holds(self, last_epoch: int, end_offset: int) -> int:
        """How far a log with this end has all that was committed, by Raft's rules."""
        return min(end_offset, max((end for epoch, end in self._committed.items() if epoch <= last_epoch), default=0))

    def _judge(self, plan: RecoveryPlan, known: dict[BrokerId, tuple[int, int] | None]) -> None:
        """R19, before anything is written. `known`: by node, what it had flushed as it knew itself."""
        holds = {
            each.node_id: max(
                self._holds(*each.end),
                self._holds(*(known[BrokerId(each.node_id)] or (0, 0))),
                each.committed_offset,
            )
            for each in plan.ranked
        }
        chosen = plan.chosen
        best, committed = max(holds.values()), max(self._committed.values(), default=0)
        self.retained = holds[chosen.node_id] if plan.missing_records else best
        told = f"{plan} with {holds} of {self._committed}"
        if holds[chosen.node_id] < self.retained:
            raise LawBroken("R19 the plan tells what a better survivor has", told)
        if self.retained < committed and not (plan.can_have_lost or plan.missing_records or plan.damaged_records):
            raise LawBroken("R19 the plan tells what may be lost", told)
        if chosen.committed_offset > committed:
            raise LawBroken("R19 nothing is called committed that was not", told)
        if chosen.log_end_offset - plan.uncertain_records != chosen.committed_offset:
            raise LawBroken("R19 the plan tells what is uncertain", told)

    def check(self, node: ControllerNode) -> None:
        """R18, after every turn, of a node that is up."""
        leader = node.quorum.leader_and_epoch
        leads = leader.leader_id == node.id
        if leads:
            self._committed[leader.epoch] = node.quorum.high_watermark
        if self.plan is None:
            return
        is_ours = node.incarnation.current == self.plan.incarnation
        if leader.epoch >= self.first_epoch and not is_ours:
            raise LawBroken("R18 a former voter takes no part in the recovered quorum", f"node {node.id}: {leader}")
        if leads and is_ours and leader.epoch < self.first_epoch:
            raise LawBroken("R18 nobody of the recovered quorum leads in a former epoch", f"node {node.id}: {leader}")

    def is_followed_by(self, node: ControllerNode) -> bool:
        """Whether what the node shows is of the recovered quorum."""
        if self.plan is None:
            return True
        return node.incarnation.current == self.plan.incarnation and node.loader.image.epoch >= self.first_epoch

    def is_uncertain(self, node: ControllerNode, image: MetadataImage) -> bool:
        """R20. Whether others may have decided otherwise what this image of a node of the recovered quorum shows."""
        if self.plan is None or image.epoch >= self.first_epoch or image.offset < self.retained:
            return False
        if node.incarnation.current != self.plan.incarnation:
            return False
        core = node.quorum._core
        # It may still load what the former quorum had told it.
        was_committed = any(
            image.epoch <= epoch < self.first_epoch and image.offset < end for epoch, end in self._committed.items()
        )
        if core.history.last_epoch < self.first_epoch and not was_committed:
            raise LawBroken(
                "R20 what is uncertain is told only with the gap",
                f"node {node.id} at {image.offset} of {image.epoch}, its log {core.history.starts()}",
            )
        return True
