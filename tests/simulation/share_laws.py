"""What must hold of a share partition, judged by what members, the dead-letter topic and the share coordinator saw.

May touch:  the simulated log, what it is told.      Must not touch: the product's share partition, chance.
Invariants: a law is judged by outcomes, but for those that name the window or a record's state, which are asked of the leader.
Read next:  share_simulator.py, which tells; barnabas_coordination/share, which is judged.

S1   a record whose acknowledgement was answered without error is delivered again by no leader of that term or a later one, until
     offsets are altered
S2   no record is locked by two at once on one leader
S3   a delivery counts one more than the one before it on that leader, or than what the leader read; at most the limit
S4   the start offset never falls, neither on a leader nor at the share coordinator, until offsets are altered, and no leader begins
     below what is kept; what is below it is not delivered
S5   every record is delivered at least once, or the log's start passed it, or it is aborted or no record; in the end all are done
S6   an acknowledgement counts only from who holds the lock, and one that is refused changes nothing
S7   a lock ends
S8   the window's end never passes its bound: locks and delayed records together, and the rest of a batch
S9   at most max records in strict mode; less than one batch more in the other
S10  no record of an aborted transaction, nor beyond the last stable offset, where the group reads committed
S11  a leader whose term is over writes nothing
S12  what the share coordinator keeps is what its accepted writes come to, after every move of it
S13  each rejected or exhausted record is among the dead letters at least once; twice only beside a leader that was lost or a write whose
     outcome nobody knew; none that was accepted; archived only once it is there, where failures hold
S14  nothing is delivered before its time: neither by its header nor by its back-off, whoever leads
S15  who closed its session holds nothing
S16  lag is never below zero
S17  the first record of the window is never done once nothing is being written

Where the laws let go, for the core does (a line here to take out when it no longer does):
- S5: until something is kept of a group each leader begins where share.auto.offset.reset says at its time, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from barnabas_coordination.share_state.messages import DeliveryState, ShareState, StateBatch
from barnabas_wire.kafka.ids import NO_OFFSET
from tests.simulation.share_log import SimulatedLog

DONE = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class LawBroken(AssertionError):
    """A law does not hold; says which."""


def require(holds: bool, law: str, what: str) -> None:
    """Raise LawBroken where it does not hold."""
    if not holds:
        raise LawBroken(f"{law}: {what}")


@dataclass(slots=True)
class Rules:
    """What the group's settings say, as a law needs it."""

    limit: int
    lock_ms: int
    locks_max: int
    delayed_max: int
    is_read_committed: bool
    has_dead_letters: bool
    holds: bool
    backoff_ms: int
    has_due_header: bool
    slack_ms: int
    """How late a lock may end."""


@dataclass(slots=True)
class Lock:
    """A delivery that is not answered."""

    member: str
    until_ms: int
    count: int


@dataclass(slots=True)
class Term:
    """What was seen of one leader."""

    epoch: int
    start: int
    counts: dict[int, int]
    """Deliveries by offset: as read at the beginning, then as delivered."""
    locks: dict[int, Lock] = field(default_factory=dict)


class PartitionHistory:
    """One share partition of one group from its beginning, or from when its offsets were altered."""

    def __init__(self, name: str, log: SimulatedLog, rules: Rules) -> None:
        self.name = name
        self.log = log
        self.rules = rules
        self.begin()

    def begin(self) -> None:
        """Offsets were altered, or the group begins: what was is over."""
        self.first: int | None = None
        self.terms: dict[int, Term] = {}
        self.done: dict[int, tuple[str, int]] = {}
        """Offset -> how it was acknowledged without error, and in which term."""
        self.asked: dict[int, set[str]] = {}
        """How holders acknowledged an offset, answered or not."""
        self.delivered: set[int] = set()
        self.backoff: dict[int, tuple[int, int]] = {}
        """Released offset -> until when it waits at least, and in which term that was answered."""
        self.dead: Counter[int] = Counter()
        self.doubles_allowed: Counter[int] = Counter()
        """By offset: writes of dead letters whose outcome nobody knew, and leaders that were lost beside one."""
        self.exhausted: set[int] = set()
        """Delivered as often as allowed."""
        self.start = -1
        self.persisted_start = -1

    # ---- leaders -------------------------------------------------------------------------------------------------

    def on_term(self, epoch: int, *, start: int, state: ShareState) -> None:
        """A leader begins, with what it read."""
        require(epoch not in self.terms, "S11", f"{self.name}: two leaders of term {epoch}")
        counts: dict[int, int] = {}
        kept: dict[int, DeliveryState] = {}
        for batch in state.batches:
            for offset in range(batch.first, batch.last + 1):
                counts[offset], kept[offset] = batch.deliveries, batch.state
                if batch.state is DeliveryState.ARCHIVING:  # its letter may be there, written by who is lost
                    self.doubles_allowed[offset] += 1
        require(
            start >= self.persisted_start,
            "S4",
            f"{self.name}: term {epoch} begins at {start}, {self.persisted_start} is kept",
        )
        if (
            self.first is None or state.start_offset == NO_OFFSET
        ):  # until something is kept each leader here resets anew, as in Kafka
            self.first = start
        self.start = max(self.start, start)
        self.terms[epoch] = Term(epoch, start, counts)
        for offset, (how, _) in self.done.items():
            if offset >= start:
                require(
                    kept.get(offset) in DONE or (how == "reject" and kept.get(offset) is DeliveryState.ARCHIVING),
                    "S1",
                    f"{self.name}: {offset} was acknowledged ({how}) and is {kept.get(offset)} to term {epoch}",
                )

    def on_start(self, epoch: int, start: int) -> None:
        """The leader's start offset is now this."""
        term = self.terms[epoch]
        require(
            start >= term.start, "S4", f"{self.name}: start offset of term {epoch} falls from {term.start} to {start}"
        )
        term.start = start
        if epoch == max(self.terms):
            self.start = max(self.start, start)

    def on_window(self, epoch: int, *, start: int, end: int, batch_max: int) -> None:
        """The leader's window, inclusive at both ends; end below start: empty."""
        bound = self.rules.locks_max + self.rules.delayed_max + batch_max - 1
        require(end - start + 1 <= bound, "S8", f"{self.name}: window {start}..{end} of term {epoch} passes {bound}")

    # ---- members -------------------------------------------------------------------------------------------------

    def on_delivered(
        self, epoch: int, member: str, ranges: Sequence[tuple[int, int, int]], *, now_ms: int, lock_ms: int
    ) -> None:
        """The leader acquired ranges (first, last, count) for the member."""
        term = self.terms[epoch]
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                self._check_delivery(term, member, offset, count, now_ms)
                term.counts[offset] = count
                term.locks[offset] = Lock(member, now_ms + lock_ms, count)
                if self.backoff.get(offset, (0, epoch + 1))[1] <= epoch:
                    del self.backoff[offset]
                self.delivered.add(offset)
                if count >= self.rules.limit:
                    self.exhausted.add(offset)

    def _check_delivery(self, term: Term, member: str, offset: int, count: int, now_ms: int) -> None:
        where = f"{self.name}: {offset} for {member} in term {term.epoch}"
        how = self.done.get(offset)
        require(how is None or how[1] > term.epoch, "S1", f"{where}: it was acknowledged ({how})")
        lock = term.locks.get(offset)
        require(lock is None or lock.until_ms <= now_ms, "S2", f"{where}: {lock} holds it")
        before = term.counts.get(offset, 0)
        require(count == before + 1, "S3", f"{where}: delivery {count} after {before}")
        require(1 <= count <= self.rules.limit, "S3", f"{where}: delivery {count} of at most {self.rules.limit}")
        reached = max(term.start, self.persisted_start) if term.epoch == max(self.terms) else term.start
        require(offset >= reached, "S4", f"{where}: it lies below the start {reached}")
        if self.rules.is_read_committed:
            require(offset < self.log.last_stable_offset, "S10", f"{where}: beyond {self.log.last_stable_offset}")
        batch = self.log.batch_of(offset)
        if batch is not None:
            if self.rules.is_read_committed and not batch.is_control:
                require(not self.log.is_aborted(batch), "S10", f"{where}: its transaction was aborted")
            if self.rules.has_due_header:
                due_ms = batch.due.get(offset, 0)
                require(due_ms <= now_ms, "S14", f"{where}: it is due in {due_ms - now_ms} ms")
        until_ms, released_in = self.backoff.get(offset, (0, 0))
        require(
            until_ms <= now_ms or released_in > term.epoch,
            "S14",
            f"{where}: {until_ms - now_ms} ms of its back-off are left",
        )

    def holds(self, epoch: int, member: str, offset: int, now_ms: int) -> bool:
        """Whether the member holds the offset's lock on that leader, as far as answers say."""
        lock = self.terms[epoch].locks.get(offset)
        return lock is not None and lock.member == member and lock.until_ms > now_ms

    def on_asked(self, epoch: int, member: str, offset: int, how: str, *, now_ms: int) -> bool:
        """An acknowledgement came and is not refused; returns whether it will count once it is kept."""
        term = self.terms[epoch]
        where = f"{self.name}: {how} of {offset} by {member} in term {epoch}"
        if offset < term.start:
            require(offset < self.log.start, "S6", f"{where} is not refused, and the start offset is {term.start}")
            return False  # taken, and without effect
        lock = term.locks.get(offset)
        if lock is None and not self.has_record(offset):
            return False
        require(lock is not None and lock.member == member, "S6", f"{where} counts, and it is held by {lock}")
        assert lock is not None
        require(lock.until_ms + self.rules.slack_ms >= now_ms, "S6", f"{where} counts {now_ms - lock.until_ms} ms late")
        if how == "renew":
            lock.until_ms = now_ms + self.rules.lock_ms
        else:
            self.asked.setdefault(offset, set()).add(how)
        return True

    def has_record(self, offset: int) -> bool:
        """Whether there is something to deliver at the offset."""
        batch = self.log.batch_of(offset)
        return batch is not None and not (self.rules.is_read_committed and self.log.is_aborted(batch))

    def on_answered(self, epoch: int, member: str, offset: int, how: str, *, asked_ms: int) -> None:
        """An acknowledgement that came at asked_ms was answered without error. how: accept, reject, gap, release."""
        term = self.terms[epoch]
        lock = term.locks.get(offset)
        if lock is not None and lock.member == member:
            del term.locks[offset]
        if how != "release":
            self.done[offset] = how, epoch
        elif self.rules.backoff_ms and term.counts.get(offset, 0) < self.rules.limit:
            self.backoff[offset] = asked_ms + self.rules.backoff_ms, epoch

    def on_member_gone(self, epoch: int, member: str) -> None:
        """Its session is ending, and all its locks with it: where a write of what it acknowledged fails, nobody has the record."""
        locks = self.terms[epoch].locks
        for offset in [offset for offset, lock in locks.items() if lock.member == member]:
            del locks[offset]

    def check_locks(self, epoch: int, held: Iterable[tuple[int, str]], *, now_ms: int) -> None:
        """held: offsets that the leader has as acquired, with their members."""
        locks = self.terms[epoch].locks
        for offset, member in held:
            lock = locks.get(offset)
            require(
                lock is not None and lock.member == member and lock.until_ms + self.rules.slack_ms >= now_ms,
                "S7",
                f"{self.name}: {offset} is locked by {member} in term {epoch} at {now_ms}, {lock} was told",
            )

    def check_closed(self, epoch: int, member: str, held: Iterable[tuple[int, str]]) -> None:
        """After the member's session has ended."""
        left = [offset for offset, holder in held if holder == member]
        require(not left, "S15", f"{self.name}: {member} is gone and holds {left} in term {epoch}")

    # ---- the share coordinator -----------------------------------------------------------------------------------

    def on_persisted(self, *, leader_epoch: int, leader_known: int, start: int, complete: int) -> None:
        """A write was accepted; leader_known: the highest term that has read."""
        require(
            leader_epoch >= leader_known,
            "S11",
            f"{self.name}: term {leader_epoch} writes after {leader_known} has read",
        )
        require(
            start >= self.persisted_start,
            "S4",
            f"{self.name}: the kept start falls from {self.persisted_start} to {start}",
        )
        self.persisted_start = start
        if start >= 0 and complete >= 0:
            require(
                self.log.end - start - complete >= 0,
                "S16",
                f"{self.name}: {complete} done from {start}, the log ends at {self.log.end}",
            )

    # ---- dead letters --------------------------------------------------------------------------------------------

    def on_dead_letter(self, offset: int, count: int) -> None:
        """A letter is in the topic."""
        require(self.rules.has_dead_letters, "S13", f"{self.name}: a dead letter of {offset}, the group wants none")
        self.dead[offset] += 1
        how = self.done.get(offset)
        require(
            how is None or how[0] not in ("accept", "gap"),
            "S13",
            f"{self.name}: {offset} was acknowledged ({how}) and is dead",
        )
        require(offset in self.delivered, "S13", f"{self.name}: {offset} is dead and was never delivered")
        require(count <= self.rules.limit, "S13", f"{self.name}: {offset} is dead after {count} deliveries")
        require(
            self.dead[offset] <= 1 + self.doubles_allowed[offset],
            "S13",
            f"{self.name}: {self.dead[offset]} dead letters of {offset}, {self.doubles_allowed[offset]} writes were in doubt",
        )

    # ---- in the end ----------------------------------------------------------------------------------------------

    def check_all_done(self, epoch: int, *, start: int, log_starts_passed: int, failures_archived: set[int]) -> None:
        """Everything healed, members took all that there was, and nothing is left to do.

        log_starts_passed: the log's start; failures_archived: offsets whose letters failed where the group says archive.
        """
        end = self.log.last_stable_offset if self.rules.is_read_committed else self.log.high_watermark
        require(
            start == end or self.first is None,
            "S5",
            f"{self.name}: the start offset stays at {start}, the log ends at {end}",
        )
        for batch in self.log.batches:
            for offset in range(max(batch.base, self.first or 0, log_starts_passed), batch.last + 1):
                if offset >= end or batch.is_control or (self.rules.is_read_committed and self.log.is_aborted(batch)):
                    continue
                require(offset in self.delivered, "S5", f"{self.name}: {offset} was never delivered")
                how, asked = self.done.get(offset), self.asked.get(offset, set())
                if how is None:  # of what was asked and not answered anything may have counted
                    is_known = offset in self.exhausted or bool(asked & {"accept", "gap", "reject"})
                    require(is_known, "S5", f"{self.name}: {offset} is over, and nobody knows why")
                is_out = how[0] == "reject" if how is not None else not asked & {"accept", "gap"}
                if is_out and self.rules.has_dead_letters and offset not in failures_archived:
                    require(
                        self.dead[offset] >= 1, "S13", f"{self.name}: {offset} is over ({how}) without a dead letter"
                    )


class StateOracle:
    """What the share coordinator has to keep of one key: each offset's state by itself, under the rule of KIP-932.

    Of two states of an offset the one with more deliveries counts, then the one with the higher number, then (ours) the later due time;
    nothing is kept below the start.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.offsets: dict[int, tuple[int, int, int]] = {}
        """Offset -> deliveries, state, due_ms."""

    def write(self, start: int, batches: Iterable[StateBatch]) -> None:
        """An accepted write."""
        self.start = max(self.start, start)
        for first, last, state, deliveries, due_ms in batches:
            for offset in range(first, last + 1):
                self.offsets[offset] = max(self.offsets.get(offset, (-1, 0, 0)), (deliveries, int(state), due_ms))
        self.offsets = {offset: state for offset, state in self.offsets.items() if offset >= self.start}

    def check(self, name: str, start: int, batches: Iterable[StateBatch]) -> None:
        """S12: what is read is what was written."""
        require(start == self.start, "S12", f"{name}: the start is {start}, writes come to {self.start}")
        found: dict[int, tuple[int, int, int]] = {}
        before = -1
        for first, last, state, deliveries, due_ms in batches:
            require(before < first <= last, "S12", f"{name}: a batch from {first} to {last} behind {before}")
            before = last
            for offset in range(first, last + 1):
                found[offset] = deliveries, int(state), due_ms
        if found != self.offsets:
            differing = sorted(found.items() ^ self.offsets.items())
            raise LawBroken(f"S12: {name}: kept and written differ: {differing}")
