"""A quorum of real controllers from one seed: log, snapshots, images, decisions and membership, on fake disks and network.

May touch:  the virtual loop.         Must not touch: the real clock, real files, sockets.
Invariants: one seed gives one run in any process (`trace_hash`); a run in which nothing was acknowledged or nothing crashed
            is void.
Read next:  controller_laws.py (what must hold), controller_workload.py (who asks for what); cluster.py, whole nodes.

What is real: QuorumNode, MetadataLog with its snapshots, MetadataLoader, Controller and its driver. What is not: gRPC, and the
brokers, whom the workload plays. Batches are cut after a few records, so that most decisions are metadata transactions, and
snapshots come every few hundred bytes. Crashes come at random, and more often right at a boundary of the disk (a rename, a
flush, a file replaced) or right after an acknowledgement.

`python -m tests.simulation.controllers --seed N --steps N --seeds K` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from barnabas_broker.node import incarnation_watch
from barnabas_quorum.driver import metadata_batches
from barnabas_quorum.image.features import BOOTSTRAP_LEVELS
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_simulation.disk import DiskFaults
from barnabas_simulation.fault_list import FaultList, Without
from barnabas_simulation.loop import WALL_START_MS, VirtualLoop
from barnabas_simulation.network import LinkFaults, Network
from barnabas_simulation.partition_model import LawBroken
from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, Uuid
from tests.simulation.controller_laws import ControllerLaws
from tests.simulation.controller_node import SEGMENT_BYTES, SNAPSHOT_AFTER_BYTES, ControllerNode
from tests.simulation.controller_recovery import MajorityLoss, QuorumRecovery, Steering, format_disk
from tests.simulation.controller_workload import FIRST_ASKER, Asker
from tests.simulation.raft import print_shrunken
from tests.simulation.shrinking import Broken, Shrunken, law_of, shrink
from tests.simulation.watchdog import watched

RECORDS_PER_BATCH = len(BOOTSTRAP_LEVELS) + 1
"""The least that a new cluster's bootstrap fits into: larger changes are written as transactions of several batches."""
SETTLE_S = 60.0
"""Virtual seconds after healing within which everything must be well again."""
RESTART_WITHOUT_SPACE_S = 0.1
LOOK_TIMEOUT_S = 0.01
"""For which a start waits for another's incarnation where there is but one: a node is back within milliseconds of its crash."""
STEPS = 6_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSwarm:
    """Intensities of one run; zero leaves a fault out."""

    voters: int
    observers: int
    links: LinkFaults
    disks: DiskFaults
    crash_every_s: float
    restart_s: float
    crash_at_disk: float
    """Probability of a crash right after a rename, a flush or a replaced file."""
    crash_after_answer: float
    all_share: float
    """Of the crashes after an acknowledgement, those that are a power cut of all nodes."""
    partition_every_s: float
    partition_s: float
    is_one_way: bool
    change_voters_s: float
    think_s: float
    askers: int
    has_cleaning: bool
    crossing_s: float = 0.0005
    """See Swarm."""
    flip: float = 0.0
    """Probability that a crash leaves a flipped bit in a flushed part of the log, where the others can bear it."""
    full_disk_every_s: float = 0.0
    full_disk_s: float = 0.0
    loss: MajorityLoss | None = None
    segment_bytes: int = SEGMENT_BYTES
    """What is committed is delivered segment by segment."""
    snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES

    @classmethod
    def draw(cls, random: Random) -> ControllerSwarm:
        """A swarm member. The loss of a majority is drawn beside: runs without one are what they were before there were any."""
        choose = random.choice
        beside = copy(random)
        beside.seed(beside.getrandbits(64))
        loss = MajorityLoss.draw(beside)
        voters = choose((1, 2, 3, 3, 3, 5))
        swarm = cls(
            voters=max(voters, 2) if loss is not None else voters,
            observers=choose((0, 1, 2)),
            links=LinkFaults(
                loss=choose((0.0, 0.0, 0.01, 0.05)),
                duplicate=choose((0.0, 0.05)),
                delay_s=choose((0.0002, 0.001, 0.005)),
                slow=choose((0.0, 0.02, 0.1)),
                slow_s=choose((0.05, 0.5)),
                late_s=choose((0.05, 1.0)),
            ),
            disks=DiskFaults(
                flush_s=choose((0.0002, 0.002, 0.01)), slow=choose((0.0, 0.02)), slow_s=choose((0.05, 0.5))
            ),
            crash_every_s=choose((0.0, 0.7, 3.0)),
            restart_s=choose((0.005, 0.02, 0.5, 3.0)),
            crash_at_disk=choose((0.0, 0.002, 0.02)),
            crash_after_answer=choose((0.0, 0.02, 0.1)),
            all_share=choose((0.0, 0.3, 1.0)),
            partition_every_s=choose((0.0, 1.5, 6.0)),
            partition_s=choose((0.3, 2.5)),
            is_one_way=choose((False, True)),
            change_voters_s=choose((0.0, 1.0, 4.0)),
            think_s=choose((0.005, 0.03, 0.2)),
            askers=choose((1, 2, 4)),
            has_cleaning=choose((True, True, False)),
            flip=choose((0.0, 0.1, 0.5)),
            full_disk_every_s=choose((0.0, 0.0, 1.5, 5.0)),
            full_disk_s=choose((0.02, 0.3, 2.0)),
            loss=loss,
        )
        if loss is not None and loss.steering is Steering.UNCERTAIN_END:
            return replace(swarm, think_s=0.005, askers=4, segment_bytes=SEGMENT_BYTES // 3, snapshot_after_bytes=1_200)
        return swarm


@dataclass(slots=True)
class ControllerFigures:
    """What a run was worth."""

    events: int = 0
    messages: int = 0
    simulated_us: int = 0
    crashes: int = 0
    partitions: int = 0
    acknowledged: int = 0
    leaders: int = 0
    snapshots_loaded: int = 0
    voter_changes: int = 0
    transactions: int = 0
    flips: int = 0
    full_disks: int = 0
    """Nodes that stopped because a write found no space."""
    recoveries: int = 0
    """Of the quorum, from one survivor."""
    trace_hash: str = ""

    @property
    def is_void(self) -> bool:
        """Nothing was put to the test."""
        return self.acknowledged == 0 or self.crashes == 0


class Quorum:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int,
        fault_list: FaultList | None = None,
        trace: bool = False,
        outcomes_only: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.figures = ControllerFigures()
        self.fault_list = fault_list or FaultList(only_count=True)
        self.loop = VirtualLoop()
        self.swarm = ControllerSwarm.draw(self.random)
        self.network = Network(self.random, self.note)
        self.network.strikes = self.strikes
        self.is_calm = False
        self._steps = steps
        self._is_traced = trace
        self._hash = hashlib.blake2b(digest_size=8)
        self._trouble: list[asyncio.Future[None]] = []
        count = self.swarm.voters + self.swarm.observers
        members = [Voter(ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)), f"node-{i}", 1) for i in range(1, count + 1)]
        voters = VoterSet(members[: self.swarm.voters], kraft_version=1)
        self.recovery: QuorumRecovery | None = None
        self.bootstrap_servers = [(member.host, member.port) for member in members]
        self.nodes = [ControllerNode(self, member, voters) for member in members]
        for node in self.nodes:
            self.network.nodes[node.id] = node  # type: ignore[assignment]
        self.laws = ControllerLaws(self, checks_mechanisms=not outcomes_only)
        self.network.on_quorum_reply = self.laws.on_quorum_reply  # type: ignore[assignment]
        self.askers = [Asker(self, number) for number in range(self.swarm.askers)]
        if self.swarm.loss is not None:
            self.recovery = QuorumRecovery(self, self.swarm.loss)
        for node in self.nodes:
            format_disk(node)

    def run(self) -> ControllerFigures:
        """The whole run. Raises LawBroken, and whatever the real code raised where nothing explains it."""
        asyncio.set_event_loop(self.loop)
        try:
            with _small_sizes(
                look_timeout_s=LOOK_TIMEOUT_S if self.recovery is None else incarnation_watch.LOOK_TIMEOUT_S
            ):
                self.loop.run_until_complete(self._run())
        finally:
            self.loop.end()
        figures = self.figures
        figures.events = self.loop.steps
        figures.simulated_us = int(self.loop.time() * 1e6)
        figures.leaders = self.laws.epochs_led
        figures.trace_hash = self._hash.hexdigest()
        return figures

    async def _run(self) -> None:
        self.loop.set_exception_handler(self._on_loop_error)
        self.loop.after_turn = self._after_turn
        for node in self.nodes:
            node.start()
        swarm = self.swarm
        self.network.faults = swarm.links
        for asker in self.askers:
            asker.start()
        for every_s, trouble in (
            (swarm.crash_every_s, self._crash_now_and_then),
            (swarm.partition_every_s, self._partition_now_and_then),
            (swarm.change_voters_s, self._change_voters_now_and_then),
            (swarm.full_disk_every_s, self._fill_disks_now_and_then),
        ):
            if every_s:
                self._trouble.append(asyncio.ensure_future(trouble(every_s)))
        if self.recovery is not None:
            self.recovery.begin()
        while self.loop.steps < self._steps:
            await asyncio.sleep(0.05)
        await self._calm()

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def strikes(self, kind: str, source: int, target: int = -1) -> bool:
        """A fault is about to happen; False when this one is left out."""
        if kind == "doubled" and source >= FIRST_ASKER:
            return False  # nobody could say what is true of a topic whose creation may come true once more
        return not self.is_calm and self.fault_list.strikes(int(self.loop.time() * 1e6), kind, source, target)

    def wall_ms(self) -> int:
        """Wall time, the same everywhere."""
        return WALL_START_MS + int(self.loop.time() * 1000)

    def crash(self, node: ControllerNode, kind: str) -> None:
        """Power off; it comes back by itself."""
        if not node.is_up or not self.strikes(kind, node.id):
            return
        self.figures.crashes += 1
        self.note(kind, node.id, node.life)
        self.stop(node)

    def stop(self, node: ControllerNode) -> None:
        """Power off, and on again after a while."""
        node.crash()
        self._flip(node)
        delay_s = self.random.random() * self.swarm.restart_s + (RESTART_WITHOUT_SPACE_S if node.disk.is_full else 0.0)
        self.loop.call_later(delay_s, self._restart, node, node.life)

    def _flip(self, node: ControllerNode) -> None:
        """A bit of what was flushed is another one now. Not where it would be one of a majority that lacks records, whatever
        voter set anybody may come back to."""
        if self.is_calm or not self.swarm.flip or self.random.random() >= self.swarm.flip:
            return
        if any(other.lacks_records or other.has_forgotten for other in self.nodes if other is not node):
            return
        known = [other.quorum.voters for other in self.nodes if hasattr(other, "quorum")]
        loss = self.swarm.loss
        changes = self.swarm.change_voters_s or (loss is not None and loss.steering is Steering.UNSEEN_CHANGE)
        if not known or changes or any(len(voters) < 3 for voters in known):
            return
        if self.strikes("bit flips", node.id):
            self.figures.flips += node.flip_a_bit()

    async def _fill_disks_now_and_then(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / every_s))
            node = self.random.choice(self.nodes)
            if not node.disk.is_full and self.strikes("disk full", node.id):
                self.note("disk full", node.id, node.life)
                node.disk.is_full = True
                self.loop.call_later(self.random.expovariate(1 / self.swarm.full_disk_s), self._free_space, node)

    def _free_space(self, node: ControllerNode) -> None:
        node.disk.is_full = False

    def stopped_without_space(self, node: ControllerNode) -> None:
        """A write failed, so the process ended; whoever watches it starts it again, space or not."""
        self.figures.full_disks += 1
        self.note("stopped without space", node.id, node.life)
        self.stop(node)

    def _restart(self, node: ControllerNode, life: int) -> None:
        if node.life == life and not node.is_kept_down:
            node.start()

    def at_disk(self, node: ControllerNode) -> None:
        """Something has just become durable, or half of it."""
        if self.recovery is not None:
            self.recovery.at_disk(node)
        if self.swarm.crash_at_disk and not self.is_calm and self.random.random() < self.swarm.crash_at_disk:
            self.loop.call_soon(self.crash, node, "crash at the disk")

    def after_answer(self, node: ControllerNode) -> None:
        """What was just promised must survive this."""
        if self.swarm.crash_after_answer and not self.is_calm and self.random.random() < self.swarm.crash_after_answer:
            is_power_cut = self.random.random() < self.swarm.all_share
            for victim in self.nodes if is_power_cut else [node]:
                self.crash(victim, "crash after an answer")

    async def _crash_now_and_then(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / every_s))
            self.crash(self.random.choice(self.nodes), "crash")

    async def _partition_now_and_then(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / every_s))
            active = [node for node in self.nodes if node.is_up and node.driver.is_active]
            lonely = self.random.choice(active if active and self.random.random() < 0.6 else self.nodes).id
            links = [(lonely, node.id) for node in self.nodes if node.id != lonely]
            if not self.swarm.is_one_way:
                links += [(target, source) for source, target in links]
            elif self.random.random() < 0.5:
                links = [(target, source) for source, target in links]
            if not self.strikes("isolated", lonely):
                continue
            self.figures.partitions += 1
            self.note("partition", lonely, len(links))
            self.network.cut(links)
            await asyncio.sleep(self.random.expovariate(1 / self.swarm.partition_s))
            self.network.mend(links)

    async def _change_voters_now_and_then(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / every_s))
            leaders = [node for node in self.nodes if node.is_up and node.driver.is_active]
            if not leaders:
                continue
            leader = self.random.choice(leaders)
            voters = leader.quorum.voters
            joining = [node for node in self.nodes if voters.by_id(node.id) is None]
            if joining and (len(voters) == 1 or self.random.random() < 0.5):
                change = VoterChange(VoterChangeKind.ADD, self.random.choice(joining).member, 0)
            elif len(voters) > 1:
                change = VoterChange(VoterChangeKind.REMOVE, self.random.choice(voters.voters), 0)
            else:
                continue
            self._trouble.append(asyncio.ensure_future(self.change_voters(leader, change)))

    async def change_voters(self, leader: ControllerNode, change: VoterChange) -> None:
        """Ask a leader for another voter set, and count it when it agrees."""
        answer = await leader.quorum.change_voters(change)
        self.note(f"{change.kind.value} {answer.error.name}", leader.id, change.voter.key.id)
        self.figures.voter_changes += answer.error.value == 0

    # -- calm ------------------------------------------------------------------------------------------------------

    async def _calm(self) -> None:
        """Heal everything; the quorum must come back by itself, and nothing acknowledged may be absent."""
        self.note("calm", 0, 0)
        self.is_calm = True
        for task in self._trouble:
            task.cancel()
        self.network.heal()
        if self.recovery is not None:
            await self.recovery.finish()
        for node in self.nodes:
            node.disk_faults.slow = 0.0
            node.disk.is_full = False
            if not node.is_up and not node.is_starting:
                node.start()
        for asker in self.askers:
            asker.stop()
        deadline = self.loop.time() + SETTLE_S
        while (reason := self.laws.unsettled()) is not None:
            if self.loop.time() > deadline:
                raise LawBroken("R17 liveness", f"{SETTLE_S:.0f} s after everything healed: {reason}")
            await asyncio.sleep(0.2)
        self.laws.at_end()

    # -- watching --------------------------------------------------------------------------------------------------

    def _after_turn(self) -> None:
        if self.network.failures:
            raise self.network.failures[0] or RuntimeError("a task failed")
        self.laws.check()

    def note(self, kind: str, source: int, target: int) -> None:
        """One line of the trace, and of its hash."""
        line = f"{self.loop.time():.6f} {kind} {source} {target}"
        self._hash.update(line.encode())
        self.figures.messages += 1
        if self._is_traced:
            print(line)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, KafkaError | OSError):
            self.network.failures.append(error)


@contextmanager
def _small_sizes(*, look_timeout_s: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", RECORDS_PER_BATCH)
        patch.setattr(incarnation_watch, "LOOK_TIMEOUT_S", look_timeout_s)
        yield


def find(seed: int, *, steps: int, without: Without, outcomes_only: bool = False) -> Broken | None:
    """One seed with its list of faults; None when it keeps all laws."""
    faults = FaultList(without)
    try:
        Quorum(seed, steps=steps, fault_list=faults, outcomes_only=outcomes_only).run()
    except Exception as error:
        return Broken(law_of(error), faults)
    return None


def shrink_seed(seed: int, *, steps: int, cpu_limit_s: float, outcomes_only: bool = False) -> tuple[Broken, Shrunken]:
    """The faults of a failing seed, and fewer of them that break the same law. Raises ValueError when it does not fail."""
    first = find(seed, steps=steps, without=Without(), outcomes_only=outcomes_only)
    if first is None:
        raise ValueError(f"seed {seed} keeps all laws in {steps} steps")
    return first, shrink(
        lambda without: find(seed, steps=steps, without=without, outcomes_only=outcomes_only),
        first,
        cpu_limit_s=cpu_limit_s,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run, print figures, return the exit status: 1 when a law breaks, 2 when every run was void."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.controllers", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps per seed before everything heals")
    parser.add_argument("--outcomes-only", action="store_true", help="check only what a client could see")
    parser.add_argument("--trace", action="store_true", help="print every message")
    parser.add_argument(
        "--without", type=Without.parse, default=Without(), help="faults to leave out, such as 3,7-12,40-"
    )
    parser.add_argument("--shrink", type=float, default=0.0, metavar="CPU_S", help="shrink a failing seed's faults")
    parser.add_argument("--cpu", type=float, default=float("inf"), help="begin no seed after so many CPU seconds")
    parser.add_argument("--running", type=Path, metavar="FILE", help="write there which seed is running")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    done = voids = events = simulated_us = 0
    counts: dict[str, int] = {}
    digest = hashlib.blake2b(digest_size=8)
    for seed in range(options.seed, options.seed + options.seeds):
        if time.process_time() - started >= options.cpu:
            break
        quorum = Quorum(
            seed,
            steps=options.steps,
            fault_list=FaultList(options.without, only_count=True),
            trace=options.trace,
            outcomes_only=options.outcomes_only,
        )
        try:
            with watched(seed, running=options.running):
                figures = quorum.run()
        except Exception as error:
            broken = first_error(error)
            print(f"FOUND seed {seed} at {quorum.loop.time():.3f} s: {type(broken).__name__}: {broken}")
            print(f"cpu {time.process_time() - started:.2f} s, seeds tried {seed - options.seed + 1}")
            command = f"python -m tests.simulation.controllers --seed {seed} --steps {options.steps}"
            if options.outcomes_only:
                command += " --outcomes-only"
            left_out = f" --without {options.without}" if str(options.without) else ""
            print(f"again: {command}{left_out} --trace")
            if options.trace:
                raise
            if options.shrink:
                print_shrunken(
                    command,
                    *shrink_seed(
                        seed, steps=options.steps, cpu_limit_s=options.shrink, outcomes_only=options.outcomes_only
                    ),
                )
            return 1
        done += 1
        voids += figures.is_void
        events += figures.events
        simulated_us += figures.simulated_us
        for name, value in {
            "messages": figures.messages,
            "operations acknowledged": figures.acknowledged,
            "leaders": figures.leaders,
            "crashes": figures.crashes,
            "partitions": figures.partitions,
            "snapshots loaded": figures.snapshots_loaded,
            "voter changes": figures.voter_changes,
            "bits flipped": figures.flips,
            "stops for want of space": figures.full_disks,
            "quorums recovered": figures.recoveries,
        }.items():
            counts[name] = counts.get(name, 0) + value
        digest.update(figures.trace_hash.encode())
    cpu_s = max(time.process_time() - started, 0.001)
    told = ", ".join(f"{value} {name}" for name, value in counts.items())
    print(f"{done} seeds, {events} events, {simulated_us / 3.6e9:.2f} simulated hours, {told}, {voids} void runs")
    print(
        f"cpu {cpu_s:.2f} s: {events / cpu_s:,.0f} events/s, {simulated_us / 3.6e9 / cpu_s * 60:.2f} simulated hours per CPU "
        "minute"
    )
    print(f"trace hash {digest.hexdigest()}")
    return 2 if voids == done else 0


if __name__ == "__main__":
    sys.exit(main())
