"""Share partitions under seeds of faults: members, leaders that come and go, a share coordinator that loses answers, a log that moves.

May touch:  the real share partition and the real rules of share state, a seeded random generator.    Must not touch: asyncio, sockets,
            the real clock.
Invariants: a run depends on its seed, its steps, what is left out and the code alone; time is virtual; every fault has a number.
Read next:  share_leader.py (a leader around the real core), share_coordinator.py (the real state rules), share_laws.py (the judge).

One share partition of one group a run. What a run has (transactions, dead letters, due times, back-off, tight windows) is drawn by
its seed, so that most runs have some and none has all.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from random import Random

from barnabas_coordination.share.acquiring import AcquireRequest
from barnabas_coordination.share.partition import Write
from barnabas_coordination.share.waiting_letters import Letter
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_simulation.fault_list import FaultList
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset, Uuid
from tests.simulation.share_coordinator import SimulatedCoordinator
from tests.simulation.share_laws import PartitionHistory, Rules, require
from tests.simulation.share_leader import Leader, Told
from tests.simulation.share_log import SimulatedLog

GROUP, TOPIC_ID = "workers", Uuid(b"orders-id-012345")
PERSIST_ATTEMPTS_MAX = 2
SETTLE_MS_MAX = 600_000
"""Virtual time within which all must be done once everything is healed."""
MEMBERS_MAX = 4
WALL_MS = 1_700_000_000_000


@dataclass(slots=True)
class Figures:
    """What a run was worth."""

    events: int = 0
    deliveries: int = 0
    acknowledged: int = 0
    refused: int = 0
    leaders: int = 0
    coordinators: int = 0
    faults: int = 0
    dead_letters: int = 0
    letters_failed: int = 0
    locks_ended: int = 0
    virtual_ms: int = 0
    trace_hash: str = ""
    is_void: bool = False

    def add(self, other: Figures) -> None:
        """Of another run."""
        for each in fields(self):
            if each.name not in ("trace_hash", "is_void"):
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class Swarm:
    """What a run has, drawn from its seed."""

    members: int
    settings: ShareSettings
    lost_rate: float
    """Of requests to the share coordinator and of its answers, each."""
    late_rate: float
    """Of the lost ones, those that arrive later after all."""
    letter_failure_rate: float
    zombie_rate: float
    """How often a member asks a leader whose term is over, while that has not heard."""
    hostile_rate: float
    transaction_rate: float
    reject_rate: float
    release_rate: float
    silence_rate: float
    """Deliveries that are never answered."""
    move_weight: float
    delete_weight: float
    alter_weight: float
    batch_max: int

    @classmethod
    def draw(cls, random: Random) -> Swarm:
        """One of each."""
        wants_letters = random.random() < 0.6
        settings = ShareSettings(
            record_lock_duration_ms=random.choice((1_000, 3_000)),
            delivery_count_limit=random.choice((2, 3, 5)),
            partition_max_record_locks=random.choice((4, 12, 40)),
            auto_offset_reset=random.choice(("earliest", "latest")),
            is_read_committed=random.random() < 0.4,
            dead_letter_topic="dlq.orders" if wants_letters else "",
            holds_on_dead_letter_failure=random.random() < 0.7,
            retry_backoff_ms=random.choice((0, 0, 400)),
            retry_backoff_factor=random.choice((1.0, 2.0)),
            retry_backoff_max_ms=2_000,
            deliver_at_header=random.choice(("", "due")),
            delayed_records_max=random.choice((2, 20)),
        )
        return cls(
            members=random.randint(1, MEMBERS_MAX),
            settings=settings,
            lost_rate=random.choice((0.0, 0.02, 0.15)),
            late_rate=random.choice((0.0, 0.7)),
            letter_failure_rate=random.choice((0.0, 0.2, 0.7)),
            zombie_rate=random.choice((0.0, 0.3)),
            hostile_rate=random.choice((0.0, 0.1)),
            transaction_rate=random.choice((0.0, 0.5)),
            reject_rate=random.choice((0.0, 0.05, 0.3)),
            release_rate=random.choice((0.0, 0.1, 0.4)),
            silence_rate=random.choice((0.0, 0.05, 0.3)),
            move_weight=random.choice((0.0, 0.5, 2.0)),
            delete_weight=random.choice((0.0, 0.3, 1.0)),
            alter_weight=random.choice((0.0, 0.0, 0.1)),
            batch_max=random.choice((1, 4, 9)),
        )


@dataclass(slots=True, eq=False)
class Member:
    """A consumer that takes records and says what became of them."""

    name: str
    is_open: bool = True
    life: int = 0
    """Answers of an earlier life go nowhere."""


class ShareSimulation:
    """One seed."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int,
        fault_list: FaultList | None = None,
        is_traced: bool = False,
        swarm: Swarm | None = None,
    ) -> None:
        """steps: events before everything heals."""
        self.random = Random(seed)
        self.swarm = swarm or Swarm.draw(self.random)
        self.settings = self.swarm.settings
        self.steps = steps
        self.faults = fault_list or FaultList(only_count=True)
        self.figures = Figures()
        self.now_ms = WALL_MS
        self.is_healing = False
        self._is_traced = is_traced
        self._digest = hashlib.blake2b(digest_size=16)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.log = SimulatedLog()
        self.history = PartitionHistory(
            "orders-0",
            self.log,
            Rules(
                limit=self.settings.delivery_count_limit,
                lock_ms=self.settings.record_lock_duration_ms,
                locks_max=self.settings.partition_max_record_locks,
                delayed_max=self.settings.delayed_records_max,
                is_read_committed=self.settings.is_read_committed,
                has_dead_letters=bool(self.settings.dead_letter_topic),
                holds=self.settings.holds_on_dead_letter_failure,
                backoff_ms=self.settings.retry_backoff_ms,
                has_due_header=bool(self.settings.deliver_at_header),
                slack_ms=0,
            ),
        )
        self.coordinator = SimulatedCoordinator(
            self.history,
            ShareKey(GROUP, TOPIC_ID, 0),
            updates_per_snapshot=self.random.choice((0, 3, 500)),
            now_ms=lambda: self.now_ms,
        )
        self.state_epoch = 1
        self.coordinator.initialize(state_epoch=1, start_offset=-1)
        self.members = [Member(f"member-{number}") for number in range(self.swarm.members)]
        self.leader_epoch = 0
        self.leaders: list[Leader] = []
        """Those that run, the one of the newest term last."""
        self.letters_archived: set[int] = set()
        """Offsets whose dead letters failed where the group says archive."""

    # ---- time ----------------------------------------------------------------------------------------------------

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do it later."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + max(0, int(delay_ms)), self._sequence, action))

    def note(self, what: str) -> None:
        """Into the trace."""
        self._digest.update(f"{self.now_ms} {what}\n".encode())
        if self._is_traced:
            print(f"{self.now_ms - WALL_MS:>9} {what}")

    def strikes(self, kind: str, rate: float) -> bool:
        """Whether a fault of this kind strikes now."""
        if self.is_healing or self.random.random() >= rate:
            return False
        struck = self.faults.strikes((self.now_ms - WALL_MS) * 1_000, kind, 0)
        self.figures.faults += struck
        return struck

    def step(self) -> None:
        """One event."""
        due_ms, _, action = heapq.heappop(self._queue)
        self.now_ms = max(self.now_ms, due_ms)
        action()
        self.figures.events += 1
        for leader in self.leaders:
            self.check(leader)

    def run(self) -> Figures:
        """To the end. Raises LawBroken."""
        self._begin_term()
        self.after(0, self._act)
        for member in self.members:
            self.after(self.random.random() * 50, partial(self._poll, member, member.life))
        while self.figures.events < self.steps:
            self.step()
        figures = self.figures
        figures.is_void = figures.deliveries < 20 or figures.acknowledged < 10
        self._settle()
        figures.virtual_ms = self.now_ms - WALL_MS
        figures.trace_hash = self._digest.hexdigest()
        return figures

    def _settle(self) -> None:
        self.is_healing = True
        self.note("healing")
        for producer in self.log.open_producers:
            self.log.end_transaction(producer, is_aborted=self.random.random() < 0.5)
        self.log.high_watermark = self.log.end
        self.leaders = self.leaders[-1:]
        if not self.leaders:
            self._begin_term()
        for member in self.members:
            if not member.is_open:
                self._open(member)
        until_ms = self.now_ms + SETTLE_MS_MAX
        while not self._is_done():
            require(
                self.now_ms < until_ms and bool(self._queue),
                "S5",
                f"not done after {SETTLE_MS_MAX} ms: {self.leaders[-1:]}",
            )
            self.step()
        leader = self.leaders[-1]
        self.history.check_all_done(
            leader.epoch, start=leader.start, log_starts_passed=self.log.start, failures_archived=self.letters_archived
        )
        self.coordinator.check()

    def _is_done(self) -> bool:
        if not self.leaders:
            return False
        leader = self.leaders[-1]
        end = self.log.last_stable_offset if self.settings.is_read_committed else self.log.high_watermark
        return leader.is_active and leader.loaded.is_at_rest and leader.start == end

    # ---- the world -----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Something happens in the world, and again a little later."""
        if self.is_healing:
            return
        swarm = self.swarm
        actions: list[tuple[float, Callable[[], None]]] = [
            (6.0, self._produce),
            (1.5, self._end_transaction),
            (4.0, self._advance_high_watermark),
            (swarm.delete_weight, self._delete_records),
            (swarm.move_weight, self._move_leader),
            (swarm.move_weight / 2, self._move_coordinator),
            (0.6, self._close_or_open),
            (swarm.alter_weight, self._alter_offsets),
        ]
        chosen = self.random.choices([each for _, each in actions], [weight for weight, _ in actions])[0]
        chosen()
        self.after(self.random.expovariate(1 / 60), self._act)

    def _produce(self) -> None:
        if self.log.end - self.history.start > 4 * self.settings.partition_max_record_locks + 40:
            return
        random = self.random
        count = random.randint(1, self.swarm.batch_max)
        producer = random.randint(1, 2) if random.random() < self.swarm.transaction_rate else None
        due = {}
        if self.settings.deliver_at_header and random.random() < 0.4:
            due = {place: self.now_ms + random.randint(-500, 4_000) for place in range(count) if random.random() < 0.5}
        batch = self.log.append(count, producer=producer, skip=random.choice((0, 0, 0, 0, 2)), due=due)
        self.note(f"produced {batch.base}..{batch.last} producer {producer} due {sorted(batch.due)}")

    def _end_transaction(self) -> None:
        producers = self.log.open_producers
        if producers:
            producer, is_aborted = self.random.choice(producers), self.random.random() < 0.4
            self.log.end_transaction(producer, is_aborted=is_aborted)
            self.note(f"transaction of {producer} {'aborted' if is_aborted else 'committed'} at {self.log.end - 1}")

    def _advance_high_watermark(self) -> None:
        self.log.high_watermark = self.log.end

    def _delete_records(self) -> None:
        if not self.strikes("delete records", 1.0):
            return
        before = self.log.start
        self.log.delete_before(min(self.log.high_watermark, self.random.randint(before, self.log.end)))
        self.note(f"log start {before} -> {self.log.start}")
        for leader in self.leaders:
            if leader.is_active:
                leader.log_starts_at(self.log.start)
                self._perform(leader)

    def _close_or_open(self) -> None:
        member = self.random.choice(self.members)
        if not member.is_open:
            self._open(member)
            return
        if not self.strikes("member closes", 1.0):
            return
        member.is_open = False
        member.life += 1
        self.note(f"{member.name} closes")
        for leader in self.leaders:
            if leader.is_active:
                self._release_member(leader, member.name)

    def _alter_offsets(self) -> None:
        """The group is emptied, begins anew elsewhere, and is joined again. What is under way of its former life counts no more."""
        if not self.strikes("offsets are altered", 1.0):
            return
        for member in self.members:
            if member.is_open:
                member.is_open = False
                member.life += 1
        self.state_epoch += 1
        start = self.random.randint(self.log.start, self.log.high_watermark)
        self.note(f"offsets altered to {start} in state epoch {self.state_epoch}")
        self.history.begin()
        self.letters_archived.clear()
        self.coordinator.initialize(state_epoch=self.state_epoch, start_offset=start)
        self.leaders.clear()  # without sessions a leader keeps nothing of a group
        self._new_leader()

    def _release_member(self, leader: Leader, name: str) -> None:
        leader.loaded.tick(self.now_ms)
        self.history.on_member_gone(leader.epoch, name)
        leader.loaded.release(name, now_ms=self.now_ms)
        self._perform(leader)
        self.history.check_closed(leader.epoch, name, leader.held())

    def _open(self, member: Member) -> None:
        member.is_open = True
        self.after(0, partial(self._poll, member, member.life))

    # ---- leaders -------------------------------------------------------------------------------------------------

    def _move_leader(self) -> None:
        if not self.strikes("leader moves", 1.0):
            return
        if self.random.random() < 0.5:  # the old one is gone at once
            self.note(f"leader {self.leader_epoch} dies")
            self.leaders.clear()
        else:  # it hears of it some time later
            for leader in self.leaders:
                self.after(self.random.random() * 3_000, partial(self._hears, leader))
        self._begin_term()

    def _hears(self, leader: Leader) -> None:
        if leader in self.leaders and leader is not self.leaders[-1]:
            self.note(f"leader {leader.epoch} hears that its term is over")
            self.leaders.remove(leader)

    def _begin_term(self) -> None:
        self.leader_epoch += 1
        self.figures.leaders += 1
        self._new_leader()

    def _new_leader(self) -> None:
        leader = Leader(self.leader_epoch, self.settings)
        self.leaders.append(leader)
        self.after(self.random.random() * 100, partial(self._load, leader))

    def _load(self, leader: Leader) -> None:
        if leader not in self.leaders or leader.is_active:
            return
        if self.strikes("read is lost", self.swarm.lost_rate):
            self.after(300, partial(self._load, leader))
            return
        state = self.coordinator.read(leader_epoch=leader.epoch)
        if state is None:  # a newer term has read
            self._fenced(leader)
            return
        if self.strikes("answer to a read is lost", self.swarm.lost_rate):
            self.after(300, partial(self._load, leader))
            return
        reset_to = self.log.high_watermark if self.settings.auto_offset_reset == "latest" else self.log.start
        leader.load(state, reset_to=reset_to)
        self.note(f"leader {leader.epoch} begins at {leader.start}, read {state}")
        self.history.on_term(leader.epoch, start=leader.start, state=state)
        self._perform(leader)

    def _fenced(self, leader: Leader) -> None:
        self.note(f"leader {leader.epoch} is fenced")
        if leader in self.leaders:
            self.leaders.remove(leader)

    def check(self, leader: Leader) -> None:
        """After every event."""
        if not leader.is_active:
            return
        self.history.on_start(leader.epoch, leader.start)
        self.history.on_window(leader.epoch, start=leader.start, end=leader.end, batch_max=self.swarm.batch_max)
        self.history.check_locks(leader.epoch, leader.held(), now_ms=self.now_ms)
        if not leader.is_sending and not leader.is_behind:
            require(
                not leader.is_first_done, "S17", f"{leader.start} is done and the start offset of term {leader.epoch}"
            )

    def _perform(self, leader: Leader) -> None:
        """Whatever the core wants done."""
        write = leader.take_write(self.now_ms)
        if write is not None:
            self.note(f"leader {leader.epoch} writes {write.start_offset} {write.complete_count} {write.batches}")
            self._send(leader, write, attempt=1)
        letters = leader.take_letters(self.now_ms)
        if letters:
            self.after(self.random.random() * 200, partial(self._write_letters, leader, letters))
        deadline_ms = leader.loaded.alarm_ms
        if deadline_ms is not None and (leader.timer_ms is None or deadline_ms < leader.timer_ms):
            leader.timer_ms = deadline_ms
            self.after(deadline_ms - self.now_ms, partial(self._tick, leader, deadline_ms))

    def _tick(self, leader: Leader, deadline_ms: int) -> None:
        if leader.timer_ms == deadline_ms:
            leader.timer_ms = None
        if leader in self.leaders and leader.is_active:
            before = len(leader.held())
            leader.loaded.tick(self.now_ms)
            self.figures.locks_ended += before - len(leader.held())
            self._perform(leader)

    # ---- the share coordinator -----------------------------------------------------------------------------------

    def _move_coordinator(self) -> None:
        if self.strikes("coordinator moves", 1.0):
            self.figures.coordinators += 1
            self.note("coordinator moves")
            self.coordinator.move(prunes=self.random.random() < 0.5)

    def _send(self, leader: Leader, write: Write, *, attempt: int) -> None:
        """One write, over a network that loses it, or its answer, or brings it later."""
        delay_ms = self.random.random() * 40
        if self.strikes("write is lost", self.swarm.lost_rate):
            if self.random.random() < self.swarm.late_rate:
                self.after(1_000 + self.random.random() * 6_000, partial(self._arrive, leader, write, answers=None))
            self.after(1_000, partial(self._again, leader, write, attempt))
            return
        self.after(delay_ms, partial(self._arrive, leader, write, answers=attempt))

    def _again(self, leader: Leader, write: Write, attempt: int) -> None:
        if attempt < PERSIST_ATTEMPTS_MAX:
            self._send(leader, write, attempt=attempt + 1)
        else:
            self._answered(leader, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _arrive(self, leader: Leader, write: Write, *, answers: int | None) -> None:
        """answers: the attempt that waits for the answer; None: nobody does."""
        error = self.coordinator.write(leader.change_of(write))
        self.note(f"write of {leader.epoch}: {error.name}")
        if answers is None:
            return
        if self.strikes("answer to a write is lost", self.swarm.lost_rate):
            self.after(1_000, partial(self._again, leader, write, answers))
            return
        self.after(self.random.random() * 40, partial(self._answered, leader, error))

    def _answered(self, leader: Leader, code: ErrorCode) -> None:
        if leader not in self.leaders:
            return
        self.note(f"answer to a write of {leader.epoch}: {code.name}")
        error = None if code is ErrorCode.NONE else KafkaError.of(code)
        for member, offset, how, asked_ms in leader.written(error, now_ms=self.now_ms):
            self.figures.acknowledged += 1
            self.history.on_answered(leader.epoch, member, offset, how, asked_ms=asked_ms)
        if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
            self._fenced(leader)
            return
        self._perform(leader)

    # ---- dead letters --------------------------------------------------------------------------------------------

    def _write_letters(self, leader: Leader, letters: Sequence[Letter]) -> None:
        """A leader that is gone may have written them all the same: it did not hear that its term is over."""
        if leader.state_epoch != self.state_epoch:
            return
        fails = self.strikes("dead letters fail", self.swarm.letter_failure_rate)
        is_there = not fails or self.random.random() < 0.3
        if is_there:
            for letter in letters:
                self.note(f"dead letter {letter.offset} after {letter.deliveries}")
                self.figures.dead_letters += 1
                self.history.on_dead_letter(letter.offset, letter.deliveries)
        if fails:
            self.figures.letters_failed += len(letters)
            for letter in letters:
                self.history.doubles_allowed[letter.offset] += is_there
                if not self.settings.holds_on_dead_letter_failure:
                    self.letters_archived.add(letter.offset)
        if leader in self.leaders:
            unwritten = {letter.offset for letter in letters} if fails else set()
            leader.loaded.posted(unwritten, now_ms=self.now_ms)
            self._perform(leader)

    # ---- members -------------------------------------------------------------------------------------------------

    def _leader_for_members(self) -> Leader | None:
        active = [leader for leader in self.leaders if leader.is_active]
        if not active:
            return None
        if len(active) > 1 and self.random.random() < self.swarm.zombie_rate:
            return active[0]
        return active[-1] if active[-1] is self.leaders[-1] or self.random.random() < self.swarm.zombie_rate else None

    def _poll(self, member: Member, life: int) -> None:
        if not member.is_open or member.life != life:
            return
        leader = self._leader_for_members()
        if leader is not None:
            if self.random.random() < self.swarm.hostile_rate and not self.is_healing:
                self._acknowledge_what_is_not_mine(leader, member)
            self._fetch(leader, member)
        self.after(5 + self.random.expovariate(1 / 80), partial(self._poll, member, life))

    def _fetch(self, leader: Leader, member: Member) -> None:
        random = self.random
        strict, max_records = random.random() < 0.5, random.randint(1, 2 * self.swarm.batch_max + 2)
        batch_size = random.randint(1, max_records)
        end = self.log.last_stable_offset if self.settings.is_read_committed else self.log.high_watermark
        request = AcquireRequest(member.name, max_records, batch_size, strict)
        ranges = leader.fetch(self.log, request, end=end, now_ms=self.now_ms)
        if ranges:
            self.note(f"leader {leader.epoch} delivers {ranges} to {member.name}")
            count = sum(last - first + 1 for first, last, _ in ranges)
            self.figures.deliveries += count
            bound = max_records if strict else max_records + self.swarm.batch_max - 1
            require(count <= bound, "S9", f"{count} records for at most {max_records}, strict: {strict}")
            self.history.on_delivered(
                leader.epoch, member.name, ranges, now_ms=self.now_ms, lock_ms=self.settings.record_lock_duration_ms
            )
        self._perform(leader)
        for first, last, _ in ranges:
            if self.is_healing or random.random() >= self.swarm.silence_rate:
                think_ms = random.random() * random.choice((50, 50, 400, 1.3 * self.settings.record_lock_duration_ms))
                life = member.life
                self.after(
                    10 if self.is_healing else think_ms,
                    partial(self._answer, leader, member, life, first, last),
                )

    def _answer(self, leader: Leader, member: Member, life: int, first: int, last: int) -> None:
        if member.life != life or leader not in self.leaders:
            return
        kinds: list[str] = []
        for offset in range(first, last + 1):
            batch = self.log.batch_of(offset)
            roll = self.random.random()
            if offset >= self.log.start and (batch is None or batch.is_control):
                kinds.append("gap")
            elif self.is_healing:
                kinds.append("accept")
            elif roll < self.swarm.reject_rate:
                kinds.append("reject")
            elif roll < self.swarm.reject_rate + self.swarm.release_rate:
                kinds.append("release")
            elif roll > 0.95:
                kinds.append("renew")
            else:
                kinds.append("accept")
        self._acknowledge(leader, member, first, kinds)
        if "renew" in kinds:
            for offset, how in enumerate(kinds, first):
                if how == "renew":
                    self.after(
                        self.random.random() * 1.2 * self.settings.record_lock_duration_ms,
                        partial(self._answer, leader, member, life, offset, offset),
                    )

    def _acknowledge(self, leader: Leader, member: Member, first: int, kinds: list[str]) -> None:
        leader.loaded.tick(self.now_ms)
        before, told = leader.snapshot(), Told()
        try:
            leader.acknowledge(member.name, first, kinds, told, now_ms=self.now_ms)
        except KafkaError as error:
            self.figures.refused += 1
            self.note(f"leader {leader.epoch} refuses {kinds} from {first} of {member.name}: {error}")
            same = leader.snapshot() == before
            require(
                same,
                "S6",
                f"{kinds} from {first} by {member.name} are refused and changed the state of term {leader.epoch}",
            )
        else:
            self.note(f"{member.name} says {kinds} from {first} to leader {leader.epoch}")
            for offset, how in enumerate(kinds, first):
                if self.history.on_asked(leader.epoch, member.name, offset, how, now_ms=self.now_ms) and how != "renew":
                    told.append((member.name, Offset(offset), how, self.now_ms))
        self._perform(leader)

    def _acknowledge_what_is_not_mine(self, leader: Leader, member: Member) -> None:
        if leader.end < leader.start:
            return
        first = self.random.randint(max(0, leader.start - 2), leader.end + 1)
        kinds = [self.random.choice(("accept", "release", "reject", "gap", "renew"))] * self.random.randint(1, 3)
        mine = [self.history.holds(leader.epoch, member.name, first + n, self.now_ms) for n in range(len(kinds))]
        if not all(mine):
            self._acknowledge(leader, member, first, kinds)
