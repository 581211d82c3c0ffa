"""The consensus core alone, many replicas in one process, on virtual time, with everything that can go wrong.

May touch:  the core, its own heap.   Must not touch: asyncio, clock, files, sets or dicts whose order could differ.
Invariants: one seed gives one run, event for event, in any process (`trace hash`); raft_invariants.py after each event.
Read next:  raft_invariants.py (the laws), raft_faults.py (what goes wrong), raft_calm.py (the end of a run), raft.py (the
            command), mutants/ (the proof that the laws bite).

This file is the driver's part and the network: it obeys Ready as ../../metadata_quorum/…/driver/node.py does, with a disk
(raft_disk.py) that answers every save, flush, truncation and installation later, on a virtual timer.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import Any

from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.messages import (
    Append,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    LeaderChange,
    Ready,
    ReplyError,
    SnapshotId,
    Unreachable,
    VoterChange,
    VoteReply,
    VoteRequest,
    Voters,
)
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_simulation.fault_list import FaultList
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid
from tests.simulation.raft_calm import Calm
from tests.simulation.raft_disk import (
    EPOCH_SHIFT,
    HASH_MASK,
    INNER_BIT,
    VOTERS_BIT,
    LawBroken,
    SimulatedNode,
    Slice,
    Snapshot,
)
from tests.simulation.raft_faults import Faults
from tests.simulation.raft_invariants import Invariants
from tests.simulation.raft_swarm import NEVER_US, Swarm

__all__ = ["HASH_MASK", "NEVER_US", "Figures", "LawBroken", "Simulation", "Swarm"]

# Kinds of events of a replica. On the heap: (time_us, sequence, kind, node, its incarnation, what); the sequence makes the
# order total. Kinds from FAULT on belong to raft_faults.py and to no replica.
DELIVER, TICK, SAVED, FLUSHED, SNAPSHOT_WRITTEN, ASK, RESTART, RESUME, PROPOSE, FAULT = range(10)
KIND_NAMES = ["deliver", "tick", "saved", "flushed", "snapshot", "ask", "restart", "resume", "propose", "fault"]

INCARNATION_SHIFT = 32
ANY_LIFE = -1
REQUESTS = frozenset({VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest})
BYTES_PER_SLICE = 100


@dataclass(slots=True)
class Figures:
    """What a run did."""

    events: int = 0
    crashes: int = 0
    telling_crashes: int = 0
    partitions: int = 0
    messages: int = 0
    leaders: int = 0
    committed: int = 0
    epochs: int = 0
    snapshots: int = 0
    installs: int = 0
    voter_changes: int = 0
    new_disks: int = 0
    flips: int = 0
    """Bits that flipped in what was flushed, by which acknowledged records were lost."""
    regained: int = 0
    """Times that a replica had all back which a flip had cost it."""
    emptied: int = 0
    """Directories that were emptied and kept their ids."""
    full_disks: int = 0
    """Writes that found no space; each stopped its replica."""
    simulated_us: int = 0
    heal_us: int = 0
    trace_hash: int = 0

    @property
    def is_void(self) -> bool:
        """A run in which nothing was committed or nothing crashed says nothing."""
        return self.committed == 0 or self.crashes == 0


class Simulation:
    """One seed. `run` raises LawBroken (or the core's own AssertionError) when the code is wrong."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int,
        swarm: Swarm | None = None,
        checks_mechanisms: bool = True,
        ends_calm: bool = True,
        trace: bool = False,
        fault_list: FaultList | None = None,
    ) -> None:
        self.fault_list = fault_list or FaultList(only_count=True)
        self.seed = seed
        self.random = Random(seed)
        self.swarm = swarm or Swarm.draw(self.random)
        self._steps = steps
        self._trace = trace
        self._ends_calm = ends_calm
        self.figures = Figures()
        self.now_us = 1_000_000
        self._sequence = 0
        self._heap: list[tuple[int, int, int, Any, Any, Any]] = []
        self._unique = 0
        self._files = 0
        self._hash = seed
        self.is_calm = False
        self.is_quiet = False
        """Nobody proposes, operates or takes snapshots."""
        self._fetch_records_max = self.swarm.fetch_records_max
        count = self.swarm.voters + self.swarm.observers
        keys = [ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, count + 1)]
        members = [Voter(key, "localhost", 9000 + key.id) for key in keys]
        voters = VoterSet(members[: self.swarm.voters], kraft_version=self.swarm.kraft_version)
        self.bootstrap = tuple(
            Voter(ReplicaKey(BrokerId(-1 - member.key.id), Uuid(bytes(16))), "localhost", member.port)
            for member in members
        )
        self.nodes = [
            SimulatedNode(key, voters if key in voters or self.swarm.knows_voters else VoterSet.unknown())
            for key in keys
        ]
        for node in self.nodes:
            node.has_to_prove = self.swarm.empty_disk_us != NEVER_US
        self._by_id: dict[int, SimulatedNode] = {node.id: node for node in self.nodes}
        self._by_id.update({-1 - node.id: node for node in self.nodes})
        self.blocked = [[False] * (count + 1) for _ in range(count + 1)]
        self.clogged_until_us = [[0] * (count + 1) for _ in range(count + 1)]
        self.voter_sets: dict[int, VoterSet] = {}
        """Voters record -> its set."""
        self._changes: dict[int, VoterSet] = {}
        """Correlation of a change that was begun -> the set it makes."""
        self.invariants = Invariants(self.nodes, voter_sets=self.voter_sets, checks_mechanisms=checks_mechanisms)
        self.faults = Faults(self)

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> Figures:
        """The safety phase of `steps` events, then calm, in which a leader must be found and a record commit."""
        for node in self.nodes:
            self.faults.set_clock(node)
            self.start(node)
        self._push_later(PROPOSE, self.swarm.propose_us)
        self.faults.begin()
        self.loop(self._steps, NEVER_US)
        if self._ends_calm:
            started_us = self.now_us
            self._fetch_records_max = 10_000
            calm = Calm(self)
            calm.settle()
            self.figures.heal_us = self.now_us - started_us
            calm.try_leadership()
        self.invariants.at_end()
        figures = self.figures
        figures.committed = len(self.invariants.committed)
        figures.leaders = self.invariants.epochs_led
        figures.voter_changes = len(self.invariants.committed_sets)
        figures.epochs = max(node.core.epoch for node in self.nodes)
        figures.simulated_us = self.now_us - 1_000_000
        figures.trace_hash = self._hash
        return figures

    def loop(self, steps: int, until_us: int) -> None:
        """So many events, or those until then."""
        heap = self._heap
        pop = heapq.heappop
        events = 0
        trace_hash = self._hash
        faults = self.faults
        while events < steps and heap[0][0] <= until_us:
            time_us, _, kind, node, life, what = pop(heap)
            self.now_us = time_us
            if node is None:
                if not (self._propose() if kind == PROPOSE else faults.happen(kind)):
                    continue
            elif kind == RESTART:
                if not node.is_alive and life == node.incarnation:
                    self.start(node)
            elif kind == RESUME:
                self.resume(node, life)
            elif (
                not node.is_alive
                or (life != node.incarnation and life != ANY_LIFE)
                or (kind == TICK and not self._is_due(node, time_us))
            ):
                continue
            elif node.is_paused or (node.waiting is not None and kind != SAVED):
                if kind != TICK:
                    node.inbox.append((kind, what))
                continue
            else:
                self._handle(node, kind, what)
            events += 1
            if node is not None:
                core = node.core
                trace_hash = (
                    trace_hash * 1_000_003
                    + (time_us ^ core.end_offset << 20 ^ core.high_watermark << 32)
                    + kind * 7919
                    + core.epoch * 104_729
                    + core.log_start * 31
                    + node.id
                ) & HASH_MASK
            if faults.doomed is not None:
                faults.crash_doomed()
        self._hash = trace_hash
        self.figures.events += events

    def _is_due(self, node: SimulatedNode, time_us: int) -> bool:
        """Timers are lazy: one that was moved on since it was armed only arms itself again."""
        if time_us != node.armed_us:
            return False
        node.armed_us = NEVER_US
        if node.waiting is not None or node.is_paused:
            return False
        if node.core.deadline_ms() > self.clock_ms(node):
            self.arm(node)
            return False
        return True

    def clock_ms(self, node: SimulatedNode) -> int:
        """What the replica's own monotonic clock says: it drifts, and it jumps ahead."""
        return node.clock_ms + int((self.now_us - node.clock_us) * node.clock_rate) // 1000

    def arm(self, node: SimulatedNode) -> None:
        """Set its timer, in true time."""
        delay_ms = node.core.deadline_ms() - node.clock_ms
        if node.clock_rate == 1.0:
            due_us = node.clock_us + delay_ms * 1000
        else:
            due_us = node.clock_us + int(min(delay_ms, NEVER_US // 2000) * 1000 / node.clock_rate) + 1000
        if due_us < node.armed_us:
            if due_us < self.now_us:
                due_us = self.now_us
            node.armed_us = due_us
            self._sequence += 1
            heapq.heappush(self._heap, (due_us, self._sequence, TICK, node, node.incarnation, None))

    def _handle(self, node: SimulatedNode, kind: int, what: Any) -> None:
        """Give a core one event, and those that it kept waiting; obey what it says, check the laws."""
        self._take(node, kind, what)
        while node.inbox and node.waiting is None and node.is_alive:
            self._take(node, *node.inbox.popleft())
        if node.is_alive:
            self.arm(node)

    def _take(self, node: SimulatedNode, kind: int, what: Any) -> None:
        core = node.core
        now_ms = self.clock_ms(node)
        if self._trace:
            print(f"{self.now_us / 1e6:.6f} {node} {core.role.__class__.__name__} {KIND_NAMES[kind]} {what}")
        if kind == DELIVER:
            core.step(what, now_ms)
        elif kind == TICK:
            core.tick(now_ms)
        elif kind == FLUSHED:
            if self.faults.flush_fails(node):
                return
            node.marked_end = node.durable_end
            node.durable_end = max(node.durable_end, what)
            node.flushing_to = -1
            core.flushed(Offset(what), now_ms)
            if node.missing is not None:
                self.faults.look_for_missing(node)
            if node.durable_end < node.base + len(node.log):
                self._start_flush(node)
        elif kind == SNAPSHOT_WRITTEN:
            self._freeze_own(node, now_ms)
        elif kind == ASK:
            self.change_voters(node, what)
        else:
            ready = node.waiting
            assert kind == SAVED and ready is not None
            if node.full_until_us > self.now_us:
                self.faults.disk_is_full(node)
                return
            node.waiting = None
            self.persist(node, ready)
            self._obey(node, ready)
        if node.is_alive:  # a full disk stops it here, and may damage what the dead core knew
            self.pump(node)

    def pump(self, node: SimulatedNode) -> None:
        """Do all that the core says, until it says nothing or has to wait for the disk."""
        core = node.core
        invariants = self.invariants
        while True:
            ready = core.ready()
            if core.role is not node.seen_role or core.epoch != node.seen_epoch or core.leader_id != node.seen_leader:
                became_leader = core.is_leader and node.seen_role is not core.role
                invariants.on_role(node)
                if became_leader and not self.is_calm:
                    self.faults.on_new_leader(node)
            if ready is None:
                break
            if ready.hard_state is not None or ready.truncate_to is not None or ready.install is not None:
                node.waiting = ready
                if ready.install is not None:
                    self.faults.on_loading(node)
                self.push_to(node, self._spread(self.swarm.save_us), SAVED, None)
                return
            self._obey(node, ready)
            if not node.is_alive:
                return
        if node.is_emptied and core.lost_end is None:
            node.is_emptied = False
            invariants.on_regained(node)
        if core.high_watermark != node.seen_high_watermark:
            invariants.on_high_watermark(node)
            if self.swarm.flush_stall_rate:
                self.faults.on_commit(node)
        invariants.on_boundary(node)

    # --- the driver's part --------------------------------------------------------------------------------------------

    def persist(self, node: SimulatedNode, ready: Ready, *, stages: int = 9) -> None:
        """What must be durable before anything else, in the order that Ready states; a crash may stop between two."""
        if ready.hard_state is not None and stages > 0:
            self.invariants.on_saved(node, ready.hard_state)
            node.hard_state = ready.hard_state
            self.faults.on_saved(node)
        if ready.truncate_to is not None and stages > 1:
            self.invariants.on_truncate(node, ready.truncate_to)
            assert node.flushing_to < 0, "a cut meets a flush in flight"
            node.truncate(ready.truncate_to)
        if ready.install is not None and stages > 2:
            self._install(node, ready, is_log_restarted=stages > 3)

    def _install(self, node: SimulatedNode, ready: Ready, *, is_log_restarted: bool) -> None:
        assert ready.install is not None and node.flushing_to < 0, "a snapshot meets a flush in flight"
        snapshot_id = ready.install.snapshot_id
        self.invariants.on_install(node, snapshot_id)
        for part in ready.snapshot_parts:
            node.write_part(part)
        if self.faults.is_download_damaged(node):
            node.download = []
            ready.install.is_damaged = True
            return
        snapshot = node.freeze_download(snapshot_id)
        ready.install.voters = snapshot.voters
        self.invariants.on_snapshot(node, snapshot)
        self.faults.moment(node)
        self.figures.installs += 1
        if is_log_restarted:
            node.restart_at(snapshot)

    def _obey(self, node: SimulatedNode, ready: Ready) -> None:
        """The rest of a Ready; hard state, truncation and installation are done already."""
        core = node.core
        if ready.snapshot_parts and ready.install is None:
            for part in ready.snapshot_parts:
                node.write_part(part)
        if ready.appends:
            if node.full_until_us > self.now_us:
                self.faults.disk_is_full(node)
                return
            for append in ready.appends:
                if append.base_offset != node.end:
                    raise LawBroken(f"{node} appends at {append.base_offset}, its log ends at {node.end}")
                self._write(node, append)
            if core.high_watermark != node.seen_high_watermark and ready.install is None:
                self.invariants.on_high_watermark(node)
            if node.flushing_to < 0:
                self._start_flush(node)
            self.faults.moment(node)
        message: Any  # told apart by class, which is faster than isinstance and which mypy does not follow
        for message in ready.send:
            kind = message.__class__
            if kind is FetchReply:
                if message.end_offset > message.base_offset:
                    self._read_for(message, node)
            elif kind is VoteReply:
                if message.is_granted:
                    self.faults.moment(node)
            elif kind is FetchSnapshotReply and message.error is ReplyError.NONE:
                self._read_snapshot_for(message, node)
                self.faults.moment(node)
            self.invariants.on_send(node, message)
            self._send(node, message, kind)
        core.advance(ready)
        if ready.install is not None:
            node.seen_high_watermark = max(node.seen_high_watermark, node.base)
            self.invariants.on_log_start(node)
        if ready.finished and core.high_watermark != node.seen_high_watermark:
            self.invariants.on_high_watermark(node)
        for result in ready.finished:
            if result.error is ReplyError.NONE:
                self.invariants.on_change_done(node, self._changes[result.correlation])

    def _write(self, node: SimulatedNode, append: Append) -> None:
        payload = append.payload
        if payload.__class__ is LeaderChange:
            payload = (self._next_record(append.epoch),)
        elif payload.__class__ is Voters:
            payload = self._voters_records(payload, append.epoch)
            self.faults.on_voters_written(node)
        if node.core.is_leader and append.epoch == node.core.epoch:
            for offset, value in enumerate(payload, append.base_offset):
                self.invariants.on_leader_append(node, offset, append.epoch, value)
        node.log.extend(payload)
        if node.end != append.end_offset:
            raise LawBroken(f"{node} wrote up to {node.end}, the core says {append.end_offset}")
        for offset, value in enumerate(payload, append.base_offset):
            if value & VOTERS_BIT:
                node.sets.append((offset, self.voter_sets[value]))
                self.invariants.on_voters_written(node)

    def _next_record(self, epoch: int) -> int:
        self._unique += 1
        return epoch << EPOCH_SHIFT | self._unique

    def _voters_records(self, payload: Voters, epoch: int) -> tuple[int, ...]:
        version = (self._next_record(epoch),) if payload.writes_version else ()
        record = self._next_record(epoch) | VOTERS_BIT | (INNER_BIT if version else 0)
        self.voter_sets[record] = payload.voter_set
        return (*version, record)

    def _read_for(self, reply: FetchReply, node: SimulatedNode) -> None:
        start = reply.base_offset - node.base
        if start < 0:
            raise LawBroken(f"{node} gives records from {reply.base_offset}, its log begins at {node.base}")
        end = min(reply.end_offset - node.base, start + self._fetch_records_max)
        while end < len(node.log) and node.log[end] & INNER_BIT:
            end += 1
        values = node.log[start:end]
        base = reply.base_offset
        epochs = []
        last_epoch = -1
        for index, value in enumerate(values):
            epoch = value >> EPOCH_SHIFT
            if epoch != last_epoch:
                epochs.append(EpochStart(epoch, base + index))  # type: ignore[arg-type]
                last_epoch = epoch
            if value & VOTERS_BIT:
                reply.voter_sets = (*reply.voter_sets, (Offset(base + index), self.voter_sets[value]))
        reply.epochs = tuple(epochs)
        reply.end_offset = Offset(base + len(values))
        reply.payload = values

    def _read_snapshot_for(self, reply: FetchSnapshotReply, node: SimulatedNode) -> None:
        snapshot = node.snapshot(reply.snapshot_id)
        if snapshot is None:
            reply.error = ReplyError.SNAPSHOT_NOT_FOUND
        elif reply.position >= snapshot.size:
            reply.error = ReplyError.POSITION_OUT_OF_RANGE
        else:
            length = min(reply.bytes_max, snapshot.size - reply.position)
            length = max(1, int(length * (0.5 + self.random.random() / 2)))
            reply.size = snapshot.size
            reply.payload = Slice(snapshot, reply.position, length)

    def _start_flush(self, node: SimulatedNode) -> None:
        node.flushing_to = node.base + len(node.log)
        delay_us = self._spread(self.swarm.flush_us)
        if (
            self.swarm.flush_stall_rate
            and self.random.random() < self.swarm.flush_stall_rate
            and self.strikes("flush stalls", node.id)
        ):
            delay_us += 300_000
        self.push_to(node, delay_us, FLUSHED, node.flushing_to)

    def _propose(self) -> bool:
        self._push_later(PROPOSE, self.swarm.propose_us)
        leaders = [] if self.is_quiet else self.ready_leaders()
        for node in leaders:
            count = 1 if self.swarm.proposal_records_max == 1 else 1 + int(self.random.random() * 3)
            first = self._next_record(node.core.epoch)
            values = (first, *(self._next_record(node.core.epoch) | INNER_BIT for _ in range(count - 1)))
            node.core.propose(
                values, record_count=count, now_ms=self.clock_ms(node), is_urgent=self.random.random() < 0.8
            )
            self.pump(node)
            self.arm(node)
        return bool(leaders)

    def strikes(self, kind: str, source: int, target: int = -1) -> bool:
        """A fault is about to happen here; False when this one is left out."""
        return self.fault_list.strikes(self.now_us, kind, source, target)

    def ready_leaders(self) -> list[SimulatedNode]:
        """Who leads, or believes so, and can take an event."""
        return [node for node in self.nodes if self.is_ready(node) and node.core.is_leader]

    def is_ready(self, node: SimulatedNode) -> bool:
        """Whether it can take an event now."""
        return node.is_alive and node.waiting is None and not node.is_paused

    # --- snapshots and voters -----------------------------------------------------------------------------------------

    def take_snapshot(self, node: SimulatedNode, end: int) -> None:
        """Begin to write what is committed below end; it will be frozen later."""
        epoch = node.core.history.epoch_before(Offset(end))
        snapshot_id = SnapshotId(Offset(end), epoch)
        if node.taking is not None or node.core.snapshot_refusal(snapshot_id) is not None:
            return
        voters = node.set_before(end)
        self._files += 1
        digest = node.digest_before(end)
        # Equal contents make files of equal size, whose bytes may differ all the same (their order, their timestamps).
        size = 1 + digest % (self.swarm.snapshot_slices_max * BYTES_PER_SLICE)
        node.taking = Snapshot(snapshot_id, digest, voters if voters.kraft_version else None, self._files, size)
        self.push_to(node, self._spread(4 * self.swarm.save_us), SNAPSHOT_WRITTEN, None)

    def _freeze_own(self, node: SimulatedNode, now_ms: int) -> None:
        snapshot = node.taking
        assert snapshot is not None
        if node.full_until_us > self.now_us:
            self.faults.disk_is_full(node)
            return
        end = snapshot.snapshot_id.end_offset
        if node.core.snapshot_refusal(snapshot.snapshot_id) is None and node.core.flushed_end < end:
            self.push_to(node, self.swarm.flush_us, SNAPSHOT_WRITTEN, None)  # it waits for the flush
            return
        node.taking = None
        if node.core.snapshot_taken(snapshot.snapshot_id, now_ms):
            node.add_snapshot(snapshot)
            self.figures.snapshots += 1
            self.invariants.on_snapshot(node, snapshot)
            self.invariants.on_log_start(node)
        self.faults.moment(node)

    def clean(self, node: SimulatedNode, offset: int) -> None:
        """Let the log begin at the end of one of its snapshots."""
        node.core.log_start_moved(Offset(offset), self.clock_ms(node))
        node.delete_before(offset)
        self.invariants.on_log_start(node)

    def change_voters(self, node: SimulatedNode, change: VoterChange) -> None:
        """Ask a replica, which may not lead any more."""
        if not self.faults.is_wise(node, change):
            return
        refusal = node.core.change_voters(change, self.clock_ms(node))
        if refusal is None:
            self._changes[change.correlation] = node.core.voters
            if change.joiner is None and change.voter.key in node.core.voters:
                self.invariants.on_operator_added(change.voter.key)
        elif not refusal.reason:
            raise LawBroken(f"{node} refuses {change} without a reason")
        elif refusal.error in (ReplyError.REQUEST_TIMED_OUT, ReplyError.NOT_LEADER_OR_FOLLOWER):
            self.faults.try_again(change)

    # --- time and network ---------------------------------------------------------------------------------------------

    def push(self, delay_us: int, kind: int) -> None:
        """Something that happens to the cluster."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, kind, None, 0, None))

    def push_to(self, node: SimulatedNode, delay_us: int, kind: int, what: Any) -> None:
        """Something that happens to this life of a replica."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, kind, node, node.incarnation, what))

    def _push_later(self, kind: int, mean_us: int) -> None:
        if mean_us != NEVER_US:
            self.push(int(self.random.expovariate(1.0) * mean_us), kind)

    def _spread(self, mean_us: int) -> int:
        return int(mean_us * (0.5 + self.random.random()))

    def _send(self, node: SimulatedNode, message: Any, kind: type) -> None:
        self.figures.messages += 1
        target = self._by_id[message.target.id]
        is_request = kind in REQUESTS
        if is_request:
            self.invariants.on_request(node, message.target)
        elif message.correlation >> INCARNATION_SHIFT != target.incarnation:
            return  # the one who asked is dead; its connection died with it
        swarm = self.swarm
        random = self.random.random
        luck = random()
        is_calm = self.is_calm
        if (
            not target.is_alive
            or self.blocked[node.id][target.id]
            or (luck < swarm.loss_rate and not is_calm and self.strikes("lost", node.id, target.id))
        ):
            if is_request and random() < swarm.refusal_rate:
                self.push_to(node, swarm.delay_us, DELIVER, Unreachable(message.correlation, message.target))
            return
        delay_us = swarm.delay_us + int(luck * swarm.delay_spread_us)
        if not is_calm:
            if (
                not is_request
                and swarm.reset_rate
                and random() < swarm.reset_rate
                and self.strikes("reply lost with its connection", node.id, target.id)
            ):
                self.push_to(target, delay_us, DELIVER, Unreachable(message.correlation, message.source))
                return
            clogged_us = self.clogged_until_us[node.id][target.id] - self.now_us
            if clogged_us > 0:
                delay_us += clogged_us
            if swarm.slow_rate and random() < swarm.slow_rate and self.strikes("late", node.id, target.id):
                delay_us += int(random() * swarm.slow_us)
            if swarm.duplicate_rate and random() < swarm.duplicate_rate and self.strikes("doubled", node.id, target.id):
                again_us = delay_us + int(random() * swarm.slow_us)
                self._push_message(target, again_us, message, is_request)
        self._push_message(target, delay_us, message, is_request)

    def _push_message(self, target: SimulatedNode, delay_us: int, message: Any, is_request: bool) -> None:
        self._sequence += 1
        # A delayed request may reach the next life of its target; a reply goes only to the life that asked.
        life = ANY_LIFE if is_request else target.incarnation
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, DELIVER, target, life, message))

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, node: SimulatedNode) -> None:
        """Open what the disk holds, and run."""
        lost_end = node.recover()
        node.core = QuorumCore(
            timing=self.swarm.config,
            me=node.key,
            voters=node.bootstrap_voters,
            hard_state=node.hard_state,
            epoch_starts=node.epoch_starts(),
            end_offset=Offset(node.end),
            draw=self.random.random,
            now_ms=self.clock_ms(node),
            first_correlation=node.incarnation << INCARNATION_SHIFT,
            log_start=Offset(node.base),
            snapshots=[each.snapshot_id for each in node.snapshots],
            voter_sets=[(Offset(at), voters) for at, voters in node.sets if at >= 0],
            bootstrap=[voter for voter in self.bootstrap if voter.key.id != -1 - node.id],
            lost_end=lost_end,
            life=1 + node.incarnation,
        )
        node.is_alive = True
        node.armed_us = NEVER_US
        node.seen_role = None
        node.seen_epoch = node.hard_state.epoch
        node.seen_high_watermark = node.snapshots[-1].snapshot_id.end_offset if node.snapshots else 0
        self.invariants.on_log_start(node)
        self.pump(node)
        self.arm(node)

    def die(self, node: SimulatedNode) -> Ready | None:
        """Stop at once; returns what the disk was doing."""
        node.is_alive = False
        node.is_paused = False
        node.incarnation += 1
        ready, node.waiting = node.waiting, None
        node.inbox.clear()
        return ready

    def restart_later(self, node: SimulatedNode, delay_us: int) -> None:
        """This death ends then."""
        self.push_to(node, delay_us, RESTART, None)

    def resume(self, node: SimulatedNode, incarnation: int) -> None:
        """End a pause: everything that came meanwhile is handled at once, in order."""
        if not node.is_paused or incarnation != node.incarnation:
            return
        node.is_paused = False
        queued = list(node.inbox)
        node.inbox.clear()
        for kind, what in queued:
            if not node.is_alive:
                return
            if node.waiting is None or kind == SAVED:
                self._handle(node, kind, what)
            else:
                node.inbox.append((kind, what))
        if node.is_alive:
            self.arm(node)
