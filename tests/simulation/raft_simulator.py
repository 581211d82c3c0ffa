"""The consensus core alone, many replicas in one process, on virtual time, with everything that can go wrong.

May touch:  the core, its own heap.   Must not touch: asyncio, clock, files, sets or dicts whose order could differ.
Invariants: one seed gives one run, event for event, in any process (`trace hash`); raft_invariants.py after each event.
Read next:  raft_invariants.py (the laws), raft.py (the command), mutants/ (the proof that the laws bite).

What goes wrong, with intensities drawn anew for each seed (swarm testing, so that some runs have much of one and nothing
of another): messages lost, delayed, duplicated, overtaken; partitions, also in one direction; a leader cut off at the
moment of its election; pauses; crashes at random and, more often, right after a *telling moment* (a vote given, a log
written but not flushed, a hard state just saved), with a restart within 20 ms so that the peers have noticed nothing.
A crash keeps a random part of what was not flushed. Uniform faults alone find neither a lost vote nor figure 8 of Raft.

A log is a list of integers, `epoch << 40 | unique`; flushes and saves are answered later, on a virtual timer.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE
from barnabas_quorum.raft.messages import (
    Append,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochStart,
    FetchReply,
    FetchRequest,
    LeaderChange,
    Ready,
    Unreachable,
    VoteReply,
    VoteRequest,
)
from barnabas_quorum.raft.roles import NEVER_MS, Role
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import BrokerId, Offset, Uuid
from tests.simulation.raft_invariants import Invariants, LawBroken

# Kinds of events. On the heap: (time_us, sequence, kind, node, its incarnation, what); the sequence makes the order total.
DELIVER, TICK, SAVED, FLUSHED, PROPOSE, CRASH, RESTART, PARTITION, HEAL, PAUSE, RESUME, RESIGN = range(12)
KIND_NAMES = [
    "deliver",
    "tick",
    "saved",
    "flushed",
    "propose",
    "crash",
    "restart",
    "partition",
    "heal",
    "pause",
    "resume",
    "resign",
]

EPOCH_SHIFT = 40
INCARNATION_SHIFT = 32
NEVER_US = NEVER_MS * 1000
ANY_LIFE = -1
CALM_FACTOR = 20
"""Within so many (election + fetch time-outs) of calm the cluster must have settled (R17)."""
HASH_MASK = (1 << 61) - 1
REQUESTS = frozenset({VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest})


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The intensities of one run. Times in µs, rates as probabilities, `*_moments` as a mean count between two."""

    voters: int
    observers: int
    config: QuorumConfig
    delay_us: int
    delay_spread_us: int
    slow_rate: float
    slow_us: int
    loss_rate: float
    duplicate_rate: float
    refusal_rate: float
    flush_us: int
    flush_stall_rate: float
    save_us: int
    propose_us: int
    proposal_records_max: int
    fetch_records_max: int
    crash_us: int
    crash_moments: int
    quick_restart_rate: float
    restart_us: int
    partition_us: int
    partition_length_us: int
    one_way_rate: float
    cut_new_leader_rate: float
    pause_us: int
    resign_us: int

    @classmethod
    def draw(cls, random: Random) -> Swarm:
        """A swarm member."""
        pick = random.choice
        scale = pick((1, 1, 4, 10))
        config = QuorumConfig(
            election_timeout_ms=1000 // scale,
            fetch_timeout_ms=2000 // scale,
            election_backoff_ms_max=1000 // scale,
            request_timeout_ms=2000 // scale,
            retry_backoff_ms=20,
            fetch_wait_ms_max=500 // scale,
        )
        unit_us = 1_000_000 // scale
        return cls(
            voters=pick((1, 2, 3, 3, 3, 3, 3, 3, 4, 5)),
            observers=pick((0, 0, 1, 2)),
            config=config,
            delay_us=pick((100, 300, 1000)),
            delay_spread_us=pick((100, 1000, 10_000)),
            slow_rate=pick((0.0, 0.01, 0.1)),
            slow_us=pick((20_000, 200_000, 2_000_000)) // scale,
            loss_rate=pick((0.0, 0.0, 0.01, 0.1, 0.3)),
            duplicate_rate=pick((0.0, 0.01, 0.1)),
            refusal_rate=pick((0.0, 0.5, 1.0)),
            flush_us=pick((200, 2000, 20_000)),
            flush_stall_rate=pick((0.0, 0.0, 0.02)),
            save_us=pick((200, 2000, 20_000)),
            propose_us=pick((3000, 10_000, 50_000)),
            proposal_records_max=pick((1, 3)),
            fetch_records_max=pick((1, 1, 2, 8, 1000)),
            crash_us=pick((NEVER_US, unit_us, 3 * unit_us, 10 * unit_us)),
            crash_moments=pick((0, 3, 10, 30, 100)),
            quick_restart_rate=pick((0.0, 0.5, 0.9, 1.0)),
            restart_us=pick((unit_us // 4, 2 * unit_us, 6 * unit_us)),
            partition_us=pick((NEVER_US, unit_us, 4 * unit_us, 12 * unit_us)),
            partition_length_us=pick((unit_us // 2, 3 * unit_us)),
            one_way_rate=pick((0.0, 0.3, 1.0)),
            cut_new_leader_rate=pick((0.0, 0.0, 0.3, 0.8)),
            pause_us=pick((NEVER_US, NEVER_US, 3 * unit_us)),
            resign_us=pick((NEVER_US, NEVER_US, 5 * unit_us)),
        )


class SimulatedNode:
    """One replica: its core, its disk, and what the laws last saw of it."""

    __slots__ = (
        "armed_us",
        "core",
        "durable_end",
        "flushing_to",
        "hard_state",
        "id",
        "inbox",
        "incarnation",
        "is_alive",
        "is_paused",
        "key",
        "log",
        "seen_epoch",
        "seen_high_watermark",
        "seen_leader",
        "seen_role",
        "waiting",
    )

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.id = key.id
        self.core: QuorumCore
        self.hard_state = INITIAL_HARD_STATE
        self.log: list[int] = []
        self.durable_end = 0
        """How much of the log a crash cannot take; between life and death also what is in the file."""
        self.flushing_to = -1
        """The end that the flush in flight covers, -1 when there is none."""
        self.waiting: Ready | None = None
        """A Ready whose hard state or truncation is on its way to the disk; no event is taken meanwhile."""
        self.inbox: deque[Any] = deque()
        self.incarnation = 0
        self.is_alive = False
        self.is_paused = False
        self.armed_us = NEVER_US
        self.seen_role: Role | None = None
        self.seen_epoch = 0
        self.seen_leader = -1
        self.seen_high_watermark = 0

    def __repr__(self) -> str:
        return f"replica {self.id}"


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
    ) -> None:
        self.seed = seed
        self._random = Random(seed)
        self.swarm = swarm or Swarm.draw(self._random)
        self._steps = steps
        self._trace = trace
        self._ends_calm = ends_calm
        self.figures = Figures()
        self.now_us = 1_000_000
        self._sequence = 0
        self._heap: list[tuple[int, int, int, Any, Any, Any]] = []
        self._unique = 0
        self._hash = seed
        self._is_calm = False
        self._fetch_records_max = self.swarm.fetch_records_max
        self._moments_left = NEVER_US
        self._doomed: SimulatedNode | None = None
        count = self.swarm.voters + self.swarm.observers
        keys = [ReplicaKey(BrokerId(i), Uuid(bytes([i]) * 16)) for i in range(1, count + 1)]
        self._voters = VoterSet([Voter(key, "localhost", 9000 + key.id) for key in keys[: self.swarm.voters]])
        self.nodes = [SimulatedNode(key) for key in keys]
        self._by_key = {node.key: node for node in self.nodes}
        self._blocked = [[False] * (count + 1) for _ in range(count + 1)]
        self.invariants = Invariants(self.nodes, voter_count=self.swarm.voters, checks_mechanisms=checks_mechanisms)

    # --- the run ------------------------------------------------------------------------------------------------------

    def run(self) -> Figures:
        """The safety phase of `steps` events, then calm, in which a leader must be found and a record commit."""
        swarm = self.swarm
        for node in self.nodes:
            self._start(node)
        self._push(swarm.propose_us, PROPOSE)
        for kind, mean_us in (
            (CRASH, swarm.crash_us),
            (PARTITION, swarm.partition_us),
            (PAUSE, swarm.pause_us),
            (RESIGN, swarm.resign_us),
        ):
            self._push_later(kind, mean_us)
        self._draw_moments()
        self._loop(self._steps, NEVER_US)
        if self._ends_calm:
            started_us = self.now_us
            self._calm_down()
            self.figures.heal_us = self.now_us - started_us
        self.invariants.at_end()
        figures = self.figures
        figures.committed = len(self.invariants.committed)
        figures.leaders = self.invariants.epochs_led
        figures.epochs = max(node.core.epoch for node in self.nodes)
        figures.simulated_us = self.now_us - 1_000_000
        figures.trace_hash = self._hash
        return figures

    def _loop(self, steps: int, until_us: int) -> None:
        heap = self._heap
        pop = heapq.heappop
        events = 0
        trace_hash = self._hash
        while events < steps and heap[0][0] <= until_us:
            time_us, _, kind, node, life, what = pop(heap)
            self.now_us = time_us
            if node is None:
                if not self._disturb(kind):
                    continue
            elif kind == RESTART:
                self._restart(node, life)
            elif kind == RESUME:
                self._resume(node, life)
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
                    + node.id
                ) & HASH_MASK
            if self._doomed is not None:
                self._crash_doomed()
        self._hash = trace_hash
        self.figures.events += events

    def _is_due(self, node: SimulatedNode, time_us: int) -> bool:
        """Timers are lazy: one that was moved on since it was armed only arms itself again."""
        if time_us != node.armed_us:
            return False
        node.armed_us = NEVER_US
        if node.waiting is not None or node.is_paused:
            return False
        if node.core.deadline_ms() * 1000 > time_us:
            self._arm(node)
            return False
        return True

    def _handle(self, node: SimulatedNode, kind: int, what: Any) -> None:
        """Give a core one event, and those that it kept waiting; obey what it says, check the laws."""
        self._take(node, kind, what)
        while node.inbox and node.waiting is None:
            self._take(node, *node.inbox.popleft())
        self._arm(node)

    def _take(self, node: SimulatedNode, kind: int, what: Any) -> None:
        core = node.core
        now_ms = self.now_us // 1000
        if self._trace:
            print(f"{self.now_us / 1e6:.6f} {node} {core.role.__class__.__name__} {KIND_NAMES[kind]} {what}")
        if kind == DELIVER:
            core.step(what, now_ms)
        elif kind == TICK:
            core.tick(now_ms)
        elif kind == FLUSHED:
            node.durable_end = max(node.durable_end, what)
            node.flushing_to = -1
            core.flushed(Offset(what), now_ms)
            if node.durable_end < len(node.log):
                self._start_flush(node)
        else:
            ready = node.waiting
            assert kind == SAVED and ready is not None
            node.waiting = None
            self._persist(node, ready)
            self._obey(node, ready)
        self._pump(node)

    def _pump(self, node: SimulatedNode) -> None:
        core = node.core
        invariants = self.invariants
        while True:
            ready = core.ready()
            if core.role is not node.seen_role or core.epoch != node.seen_epoch or core.leader_id != node.seen_leader:
                became_leader = core.is_leader and node.seen_role is not core.role
                invariants.on_role(node)
                if became_leader and not self._is_calm:
                    self._on_new_leader(node)
            if ready is None:
                break
            if ready.hard_state is not None or ready.truncate_to is not None:
                node.waiting = ready
                self._push_to(node, self._spread(self.swarm.save_us), SAVED, None)
                return
            self._obey(node, ready)
        if core.high_watermark != node.seen_high_watermark:
            invariants.on_high_watermark(node)
        invariants.on_boundary(node)

    def _persist(self, node: SimulatedNode, ready: Ready) -> None:
        if ready.hard_state is not None:
            self.invariants.on_saved(node, ready.hard_state)
            node.hard_state = ready.hard_state
            self._moment(node)
        if ready.truncate_to is not None:
            self.invariants.on_truncate(node, ready.truncate_to)
            assert node.flushing_to < 0, "a cut meets a flush in flight"
            del node.log[ready.truncate_to :]
            node.durable_end = len(node.log)

    def _obey(self, node: SimulatedNode, ready: Ready) -> None:
        """The driver's part, in the order that Ready states; hard state and truncation are done already."""
        core = node.core
        log = node.log
        if ready.appends:
            for append in ready.appends:
                if append.base_offset != len(log):
                    raise LawBroken(f"{node} appends at {append.base_offset}, its log ends at {len(log)}")
                self._write(node, append)
            if core.high_watermark != node.seen_high_watermark:
                self.invariants.on_high_watermark(node)
            if node.flushing_to < 0:
                self._start_flush(node)
            self._moment(node)
        message: Any  # told apart by class, which is faster than isinstance and which mypy does not follow
        for message in ready.send:
            kind = message.__class__
            if kind is FetchReply:
                if message.end_offset > message.base_offset:
                    self._read_for(message, log)
            elif kind is VoteReply and message.is_granted:
                self._moment(node)
            self.invariants.on_send(node, message)
            self._send(node, message, kind)
        core.advance(ready)

    def _write(self, node: SimulatedNode, append: Append) -> None:
        payload = append.payload
        log = node.log
        if payload.__class__ is LeaderChange:
            self._unique += 1
            payload = (append.epoch << EPOCH_SHIFT | self._unique,)
        if node.core.is_leader and append.epoch == node.core.epoch:
            for offset, value in enumerate(payload, append.base_offset):
                self.invariants.on_leader_append(node, offset, append.epoch, value)
        log.extend(payload)
        if len(log) != append.end_offset:
            raise LawBroken(f"{node} wrote up to {len(log)}, the core says {append.end_offset}")

    def _read_for(self, reply: FetchReply, log: list[int]) -> None:
        base = reply.base_offset
        values = log[base : min(reply.end_offset, base + self._fetch_records_max)]
        epochs = []
        last_epoch = -1
        for index, value in enumerate(values):
            epoch = value >> EPOCH_SHIFT
            if epoch != last_epoch:
                epochs.append(EpochStart(epoch, base + index))  # type: ignore[arg-type]
                last_epoch = epoch
        reply.epochs = tuple(epochs)
        reply.end_offset = Offset(base + len(values))
        reply.payload = values

    def _start_flush(self, node: SimulatedNode) -> None:
        node.flushing_to = len(node.log)
        delay_us = self._spread(self.swarm.flush_us)
        if self.swarm.flush_stall_rate and self._random.random() < self.swarm.flush_stall_rate:
            delay_us += 300_000
        self._push_to(node, delay_us, FLUSHED, node.flushing_to)

    # --- time and network ---------------------------------------------------------------------------------------------

    def _push(self, delay_us: int, kind: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, kind, None, 0, None))

    def _push_to(self, node: SimulatedNode, delay_us: int, kind: int, what: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, kind, node, node.incarnation, what))

    def _push_later(self, kind: int, mean_us: int) -> None:
        if mean_us != NEVER_US:
            self._push(int(self._random.expovariate(1.0) * mean_us), kind)

    def _spread(self, mean_us: int) -> int:
        return int(mean_us * (0.5 + self._random.random()))

    def _arm(self, node: SimulatedNode) -> None:
        due_us = node.core.deadline_ms() * 1000
        if due_us < node.armed_us:
            if due_us < self.now_us:
                due_us = self.now_us
            node.armed_us = due_us
            self._sequence += 1
            heapq.heappush(self._heap, (due_us, self._sequence, TICK, node, node.incarnation, None))

    def _send(self, node: SimulatedNode, message: Any, kind: type) -> None:
        self.figures.messages += 1
        target = self._by_key[message.target]
        incarnation = target.incarnation
        is_request = kind in REQUESTS
        if not is_request and message.correlation >> INCARNATION_SHIFT != incarnation:
            return  # the one who asked is dead; its connection died with it
        swarm = self.swarm
        luck = self._random.random()
        if not target.is_alive or self._blocked[node.id][target.id] or (luck < swarm.loss_rate and not self._is_calm):
            if is_request and self._random.random() < swarm.refusal_rate:
                failure = Unreachable(message.correlation, message.target)
                self._push_to(node, swarm.delay_us, DELIVER, failure)
            return
        delay_us = swarm.delay_us + int(luck * swarm.delay_spread_us)
        if not self._is_calm:
            if swarm.slow_rate and self._random.random() < swarm.slow_rate:
                delay_us += int(self._random.random() * swarm.slow_us)
            if swarm.duplicate_rate and self._random.random() < swarm.duplicate_rate:
                again_us = delay_us + int(self._random.random() * swarm.slow_us)
                self._push_message(target, again_us, message, is_request)
        self._push_message(target, delay_us, message, is_request)

    def _push_message(self, target: SimulatedNode, delay_us: int, message: Any, is_request: bool) -> None:
        self._sequence += 1
        # A delayed request may reach the next life of its target; a reply goes only to the life that asked.
        life = ANY_LIFE if is_request else target.incarnation
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, DELIVER, target, life, message))

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _disturb(self, kind: int) -> bool:
        """A fault or a proposal; False when it met nobody, which is no event."""
        swarm = self.swarm
        if kind == PROPOSE:
            self._push_later(PROPOSE, swarm.propose_us)
            return self._propose()
        if self._is_calm:
            return False
        if kind == CRASH:
            self._push_later(CRASH, swarm.crash_us)
            self._crash(self._random.choice(self.nodes))
        elif kind == PARTITION:
            self._push_later(HEAL, swarm.partition_length_us)
            self._partition()
        elif kind == HEAL:
            self._push_later(PARTITION, swarm.partition_us)
            self._heal()
        elif kind == PAUSE:
            self._push_later(PAUSE, swarm.pause_us)
            self._pause(self._random.choice(self.nodes))
        elif kind == RESIGN:
            self._push_later(RESIGN, swarm.resign_us)
            for node in self._ready_leaders():
                node.core.resign(self.now_us // 1000)
                self._pump(node)
                self._arm(node)
        return True

    def _ready_leaders(self) -> list[SimulatedNode]:
        return [
            node
            for node in self.nodes
            if node.is_alive and node.waiting is None and not node.is_paused and node.core.is_leader
        ]

    def _propose(self) -> bool:
        leaders = self._ready_leaders()
        for node in leaders:
            epoch = node.core.epoch << EPOCH_SHIFT
            count = 1 if self.swarm.proposal_records_max == 1 else 1 + int(self._random.random() * 3)
            values = range(epoch | self._unique + 1, (epoch | self._unique + 1) + count)
            self._unique += count
            node.core.propose(values, record_count=count, now_ms=self.now_us // 1000)
            self._pump(node)
            self._arm(node)
        return bool(leaders)

    def _draw_moments(self) -> None:
        mean = self.swarm.crash_moments
        self._moments_left = 1 + int(self._random.expovariate(1.0) * mean) if mean else NEVER_US

    def _moment(self, node: SimulatedNode) -> None:
        self._moments_left -= 1
        if self._moments_left <= 0 and not self._is_calm:
            self._doomed = node

    def _crash_doomed(self) -> None:
        node = self._doomed
        self._doomed = None
        self._draw_moments()
        if node is not None and node.is_alive and not self._is_calm:
            self.figures.telling_crashes += 1
            self._crash(node)

    def _on_new_leader(self, node: SimulatedNode) -> None:
        if self.swarm.cut_new_leader_rate and self._random.random() < self.swarm.cut_new_leader_rate:
            self._isolate(node, one_way=False)
            self._push_later(HEAL, self.swarm.partition_length_us)
        self._moment(node)

    def _crash(self, node: SimulatedNode) -> None:
        if not node.is_alive:
            return
        self.figures.crashes += 1
        random = self._random
        node.is_alive = False
        node.is_paused = False
        node.incarnation += 1
        ready = node.waiting
        node.waiting = None
        node.inbox.clear()
        if ready is not None and random.random() < 0.5:
            # The disk had finished, only the answer had not come.
            self._persist(node, ready)
        kept = node.durable_end + int(random.random() * (len(node.log) - node.durable_end + 1))
        del node.log[kept:]
        node.durable_end = kept
        node.flushing_to = -1
        if random.random() < self.swarm.quick_restart_rate:
            delay_us = int(random.random() * 20_000)
        else:
            delay_us = int(random.expovariate(1.0) * self.swarm.restart_us)
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, RESTART, node, node.incarnation, None))

    def _restart(self, node: SimulatedNode, incarnation: int) -> None:
        if not node.is_alive and incarnation == node.incarnation:
            self._start(node)

    def _start(self, node: SimulatedNode) -> None:
        epoch_starts = []
        last_epoch = -1
        for offset, value in enumerate(node.log):
            epoch = value >> EPOCH_SHIFT
            if epoch != last_epoch:
                epoch_starts.append(EpochStart(epoch, offset))  # type: ignore[arg-type]
                last_epoch = epoch
        node.core = QuorumCore(
            timing=self.swarm.config,
            me=node.key,
            voters=self._voters,
            hard_state=node.hard_state,
            epoch_starts=epoch_starts,
            end_offset=Offset(len(node.log)),
            draw=self._random.random,
            now_ms=self.now_us // 1000,
            first_correlation=node.incarnation << INCARNATION_SHIFT,
        )
        node.is_alive = True
        node.armed_us = NEVER_US
        node.seen_role = None
        node.seen_epoch = node.hard_state.epoch
        node.seen_high_watermark = 0
        self._pump(node)
        self._arm(node)

    def _pause(self, node: SimulatedNode) -> None:
        if node.is_alive and not node.is_paused:
            node.is_paused = True
            delay_us = int(self._random.expovariate(1.0) * self.swarm.config.fetch_timeout_ms * 1000)
            self._sequence += 1
            heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, RESUME, node, node.incarnation, None))

    def _resume(self, node: SimulatedNode, incarnation: int) -> None:
        """Everything that came meanwhile is handled at once, in order."""
        if not node.is_paused or incarnation != node.incarnation:
            return
        node.is_paused = False
        queued = list(node.inbox)
        node.inbox.clear()
        for kind, what in queued:
            if node.waiting is None or kind == SAVED:
                self._handle(node, kind, what)
            else:
                node.inbox.append((kind, what))
        self._arm(node)

    def _partition(self) -> None:
        self.figures.partitions += 1
        random = self._random
        one_way = random.random() < self.swarm.one_way_rate
        if random.random() < 0.5:
            self._isolate(random.choice(self.nodes), one_way=one_way)
            return
        side = [random.random() < 0.5 for _ in range(len(self.nodes) + 1)]
        for a in range(1, len(side)):
            for b in range(1, len(side)):
                if side[a] and not side[b]:
                    self._blocked[a][b] = True
                    if not one_way:
                        self._blocked[b][a] = True

    def _isolate(self, node: SimulatedNode, *, one_way: bool) -> None:
        is_deaf = one_way and self._random.random() < 0.5
        for other in range(1, len(self._blocked)):
            if other != node.id:
                if not is_deaf:
                    self._blocked[node.id][other] = True
                if is_deaf or not one_way:
                    self._blocked[other][node.id] = True

    def _heal(self) -> None:
        for row in self._blocked:
            for index in range(len(row)):
                row[index] = False

    # --- the end ------------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """Everything works again: within a bound there must be a leader, and what it writes must commit everywhere."""
        self._is_calm = True
        self._fetch_records_max = 10_000
        self._heal()
        for node in self.nodes:
            if not node.is_alive:
                self._start(node)
            self._resume(node, node.incarnation)
        config = self.swarm.config
        bound_us = self.now_us + 1000 * CALM_FACTOR * (config.election_timeout_ms + config.fetch_timeout_ms)
        target: int | None = None
        while self.now_us < bound_us:
            self._loop(1_000_000, min(bound_us, self.now_us + config.election_timeout_ms * 250))
            self.now_us = min(bound_us, self.now_us + config.election_timeout_ms * 250)
            leaders = [node for node in self.nodes if node.core.is_leader]
            if target is None:
                if leaders and max(node.core.epoch for node in self.nodes) == leaders[-1].core.epoch:
                    target = len(leaders[-1].log) + 1
            elif all(node.core.high_watermark >= target for node in self.nodes):
                return
        raise LawBroken(
            f"R17: after {CALM_FACTOR} × (election + fetch time-out) of calm the cluster has not settled: "
            + ", ".join(
                f"{node} {node.core.role.__class__.__name__} epoch {node.core.epoch} HW {node.core.high_watermark}"
                for node in self.nodes
            )
        )
