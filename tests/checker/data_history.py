"""What the clients of the data plane did and were told, one JSON line per event, and what the replicas held in the end.

May touch:  its arguments, the history's file.   Must not touch: clusters, clocks.
Invariants: a value is unique within its key, and a key is a partition as "topic-partition"; times are monotonic seconds of one
            machine; an outcome is "ok" (it happened), "fail" (it certainly did not) or "info" (nobody knows).
Read next:  data_rules.py, which judges a history.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, ClassVar, TextIO

from tests.checker.share_events import DeadLetter, Delivered, Settled, ShareGroup
from tests.checker.transaction_events import Held, Taken, Transaction, Written

OK = "ok"
FAIL = "fail"
INFO = "info"
ASSIGNED = "assign"
SUBSCRIBED = "group"
FINAL = "final"
"""Ways to read: partitions chosen by hand; by a group; by hand, after everything healed, from the log's start to its end."""
UNKNOWN_OFFSET = -1
CLIENTS_CUT = "clients cut off"
"""What a "fault" is of a broker whose connections of clients stay open while their packets are lost."""
BACK_OFF = 1.5
"""How long TCP may be silent once such a way is open again, as a multiple of how long the cluster was broken. A lost segment is sent
again after waits that double, so that the wait under way is at most as long as the cut plus the first wait (RFC 6298 5.5). The first
is as long as an earlier cut and more, for the acknowledgement that came after that counts as a round trip (2.3): 1.3 times was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One record handed to a producer. `sequence` counts what this producer sent to this key."""

    kind: ClassVar[str] = "send"
    client: str
    key: str
    value: str
    sequence: int
    begun: float
    ended: float
    outcome: str
    offset: int = UNKNOWN_OFFSET
    is_idempotent: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One call of a reader. `records`: key -> (offset, value) in the order of their delivery. `assignment` counts the
    reader's assignments."""

    kind: ClassVar[str] = "poll"
    client: str
    how: str
    begun: float
    ended: float
    records: Mapping[str, list[tuple[int, str]]] = field(default_factory=dict)
    assignment: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A reader was given these keys, by hand or by its group. `generation` is -1 where the client does not say it."""

    kind: ClassVar[str] = "assignment"
    client: str
    group: str
    assignment: int
    keys: list[str]
    at: float
    generation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An offset committed by a member of a group. `is_reset`: it was meant to go back."""

    kind: ClassVar[str] = "commit"
    client: str
    group: str
    key: str
    offset: int
    begun: float
    ended: float
    outcome: str
    generation: int = -1
    is_reset: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the coordinator said is committed (OffsetFetch); UNKNOWN_OFFSET is nothing."""

    kind: ClassVar[str] = "committed"
    client: str
    group: str
    key: str
    offset: int
    begun: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecords:
    """Records before an offset deleted. `log_start`: what the answer said."""

    kind: ClassVar[str] = "delete-records"
    client: str
    key: str
    before: int
    begun: float
    ended: float
    outcome: str
    log_start: int = UNKNOWN_OFFSET
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsets:
    """First and next offset of a key, and the leader epoch that the answer named (-1 = none)."""

    kind: ClassVar[str] = "list-offsets"
    client: str
    key: str
    start: int
    end: int
    begun: float
    ended: float
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What the harness did: "fault" (from here on the cluster is broken) or "healthy" (healed, and all replicas in sync)."""

    kind: ClassVar[str] = "phase"
    at: float
    name: str
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica's log as it lay on a stopped node's disk. `high_watermark`: the partition's, as clients were told it."""

    kind: ClassVar[str] = "replica"
    node: int
    key: str
    start: int
    end: int
    high_watermark: int
    epochs: list[tuple[int, int]] | None = None
    """(leader epoch, its first offset), as the replica's own checkpoint says; None where it says nothing, as a node's that was
    killed does not: it is made again from the batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch of a replica's log. `digest`: of all its bytes. Producer fields are -1 where there is no producer id."""

    kind: ClassVar[str] = "batch"
    node: int
    key: str
    base: int
    last: int
    digest: str
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_valid: bool = True
    """Whether its checksum is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A process ended unasked, wrote a traceback, or did not come back: found by the harness."""

    kind: ClassVar[str] = "fault"
    who: str
    what: str


Event = (
    Send
    | Poll
    | Assignment
    | Commit
    | Committed
    | DeleteRecords
    | ListOffsets
    | Phase
    | Replica
    | Batch
    | Taken
    | Transaction
    | Held
    | ShareGroup
    | Delivered
    | Settled
    | DeadLetter
    | Fault
)
_KINDS: dict[str, Any] = {
    event.kind: event
    for event in (
        Send,
        Poll,
        Assignment,
        Commit,
        Committed,
        DeleteRecords,
        ListOffsets,
        Phase,
        Replica,
        Batch,
        Taken,
        Transaction,
        Held,
        ShareGroup,
        Delivered,
        Settled,
        DeadLetter,
        Fault,
    )
}


def encode(event: Event) -> str:
    """One line of a history, without its end."""
    return json.dumps({"kind": event.kind, **asdict(event)}, separators=(",", ":"))


def decode(line: str) -> Event:
    """The event of a line. Raises ValueError for a line that is none."""
    try:
        fields = json.loads(line)
        made = _KINDS[fields.pop("kind")](**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event of a history ({error!r}): {line[:200]}") from error
    if isinstance(made, Poll | Delivered):
        pairs = {key: [(offset, value) for offset, value in records] for key, records in made.records.items()}
        object.__setattr__(made, "records", pairs)
    elif isinstance(made, Settled):
        object.__setattr__(made, "offsets", [(offset, count, how) for offset, count, how in made.offsets])
    elif isinstance(made, Replica) and made.epochs is not None:
        object.__setattr__(made, "epochs", [(epoch, start) for epoch, start in made.epochs])
    elif isinstance(made, Transaction):
        object.__setattr__(made, "writes", [Written(*written) for written in made.writes])
    return made


class HistoryWriter:
    """Appends events to a file, from any thread."""

    def __init__(self, path: Path) -> None:
        self._stream: TextIO = path.open("a", encoding="utf-8", buffering=1 << 16)
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Append one event."""
        line = encode(event) + "\n"
        with self._lock:
            self._stream.write(line)

    def flush(self) -> None:
        """Give what is buffered to the kernel: it outlives this process."""
        with self._lock:
            self._stream.flush()

    def close(self) -> None:
        """Write what is buffered."""
        self._stream.close()


def read_events(paths: Iterable[Path]) -> Iterator[Event]:
    """The events of all files, each file in its order. A last line without its end is one that a process was killed in, and no
    event. Raises ValueError for a line that is none."""
    for path in paths:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                if line.endswith("\n"):
                    yield decode(line)


class History:
    """All events of a run, and the views of them that several rules need."""

    def __init__(self, events: Iterable[Event]) -> None:
        of: dict[str, list[Any]] = defaultdict(list)
        for event in events:
            of[event.kind].append(event)
        last = {(each.transactional_id, each.owner, each.number): each for each in of[Transaction.kind]}
        self.transactions: list[Transaction] = sorted(last.values(), key=lambda each: each.begun)
        self.takings: list[Taken] = sorted(of[Taken.kind], key=lambda event: event.at)
        self.held: list[Held] = of[Held.kind]
        self.share_groups: list[ShareGroup] = of[ShareGroup.kind]
        self.delivered: list[Delivered] = sorted(of[Delivered.kind], key=lambda event: event.begun)
        self.settled: list[Settled] = sorted(of[Settled.kind], key=lambda event: event.ended)
        self.dead_letters: list[DeadLetter] = of[DeadLetter.kind]
        self.sends: list[Send] = [*of[Send.kind], *(send for each in self.transactions for send in _sends_of(each))]
        self.polls: list[Poll] = sorted(of[Poll.kind], key=lambda poll: poll.begun)
        self.assignments: list[Assignment] = sorted(of[Assignment.kind], key=lambda event: event.at)
        self.commits: list[Commit] = sorted(of[Commit.kind], key=lambda event: event.begun)
        self.committed: list[Committed] = sorted(of[Committed.kind], key=lambda event: event.begun)
        self.deletions: list[DeleteRecords] = of[DeleteRecords.kind]
        self.listed: list[ListOffsets] = sorted(of[ListOffsets.kind], key=lambda event: event.begun)
        self.phases: list[Phase] = sorted(of[Phase.kind], key=lambda event: event.at)
        self.replicas: list[Replica] = of[Replica.kind]
        self.batches: list[Batch] = of[Batch.kind]
        self.faults: list[Fault] = of[Fault.kind]

    @cached_property
    def senders(self) -> dict[tuple[str, str], Send]:
        """(key, value) -> who sent it."""
        return {(send.key, send.value): send for send in self.sends}

    @cached_property
    def read(self) -> dict[str, dict[int, set[str]]]:
        """Key -> offset -> every value that any poll showed there."""
        seen: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for poll in self.polls:
            for key, records in poll.records.items():
                places = seen[key]
                for offset, value in records:
                    places[offset].add(value)
        return seen

    @cached_property
    def places(self) -> dict[tuple[str, str], set[int]]:
        """(key, value) -> every offset at which any poll showed it."""
        found: dict[tuple[str, str], set[int]] = defaultdict(set)
        for key, offsets in self.read.items():
            for offset, values in offsets.items():
                for value in values:
                    found[(key, value)].add(offset)
        return found

    @cached_property
    def reads(self) -> dict[tuple[str, str, int], list[tuple[int, Poll]]]:
        """(client, key, assignment) -> (offset, poll) in the order of delivery."""
        found: dict[tuple[str, str, int], list[tuple[int, Poll]]] = defaultdict(list)
        for poll in self.polls:
            for key, records in poll.records.items():
                if records:
                    found[(poll.client, key, poll.assignment)] += [(offset, poll) for offset, _ in records]
        return found

    @cached_property
    def commits_by_key(self) -> dict[tuple[str, str], list[Commit]]:
        """(group, key) -> its commits, by their end."""
        found: dict[tuple[str, str], list[Commit]] = defaultdict(list)
        for commit in sorted(self.commits, key=lambda commit: commit.ended):
            found[(commit.group, commit.key)].append(commit)
        return found

    @cached_property
    def logs(self) -> dict[tuple[int, str], list[Batch]]:
        """(node, key) -> its batches in the order of the log's files."""
        found: dict[tuple[int, str], list[Batch]] = defaultdict(list)
        for batch in self.batches:
            found[(batch.node, batch.key)].append(batch)
        return found

    @cached_property
    def final_places(self) -> dict[tuple[str, str], set[int]]:
        """(key, value) -> where the last reader saw it; where no reader was the last, where anybody did."""
        if not any(poll.how == FINAL for poll in self.polls):
            return self.places
        found: dict[tuple[str, str], set[int]] = defaultdict(set)
        for key, records in self.final.items():
            for offset, value in records:
                found[(key, value)].add(offset)
        return found

    @cached_property
    def final(self) -> dict[str, list[tuple[int, str]]]:
        """Key -> its records as the last reader of all saw them."""
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for poll in self.polls:
            if poll.how == FINAL:
                for key, records in poll.records.items():
                    found[key] += records
        return found

    @cached_property
    def transacted(self) -> set[str]:
        """The keys that transactions write to."""
        return {written.key for transaction in self.transactions for written in transaction.writes}

    @cached_property
    def existing(self) -> dict[str, list[int]]:
        """Key -> every offset that certainly held a record, ascending: read, or acknowledged."""
        offsets: dict[str, set[int]] = defaultdict(set)
        for key, places in self.read.items():
            offsets[key].update(places)
        for send in self.sends:
            if send.outcome == OK and send.offset != UNKNOWN_OFFSET:
                offsets[send.key].add(send.offset)
        return {key: sorted(known) for key, known in offsets.items()}

    @cached_property
    def log_starts(self) -> dict[str, int]:
        """Key -> where its log began in the end. What lies before was deleted at some time, rightly or not."""
        return defaultdict(int, {key: answers[-1][0] for key, answers in self._starts_shown.items()})

    def gone_at(self, key: str, offset: int) -> float:
        """When an answer first showed that a log starts past an offset; infinity where none did."""
        answers = self._starts_shown.get(key, [])
        first = bisect_right(answers, offset, key=lambda answer: answer[0])
        return answers[first][1] if first < len(answers) else inf

    @cached_property
    def _starts_shown(self) -> dict[str, list[tuple[int, float]]]:
        """Of each log, the starts that answers showed, rising, each with when it was shown first."""
        shown: dict[str, list[tuple[int, float]]] = defaultdict(list)
        answers = [(event.ended, event.key, event.start) for event in self.listed]
        answers += [(event.ended, event.key, event.log_start) for event in self.deletions]
        for ended, key, start in sorted(answers):
            if start > (shown[key][-1][0] if key in shown else 0):
                shown[key].append((start, ended))
        return shown

    def healthy_spans(self) -> list[tuple[float, float]]:
        """When the cluster was whole: from each "healthy" to the next "fault"."""
        spans = []
        since: float | None = None
        for phase in self.phases:
            if phase.name == "healthy" and since is None:
                since = phase.at
            elif phase.name != "healthy" and since is not None:
                spans.append((since, phase.at))
                since = None
        if since is not None:
            spans.append((since, float("inf")))
        return spans

    def spans_within_reach(self) -> list[tuple[float, float]]:
        """The healthy spans, without the time after each in which TCP may still be waiting to send what a cut has lost."""
        spans, whole_until = [], 0.0
        for since, until in self.healthy_spans():
            cuts = [phase.at for phase in self.phases if whole_until <= phase.at < since and phase.what == CLIENTS_CUT]
            spans.append((since + BACK_OFF * (since - min(cuts, default=since)), until))
            whole_until = until
        return spans


def _sends_of(transaction: Transaction) -> Iterator[Send]:
    """Its records, as those of an idempotent producer: what became of the transaction became of each."""
    for key, value, sequence, offset in transaction.writes:
        yield Send(
            client=f"{transaction.transactional_id}#{transaction.owner}",
            key=key,
            value=value,
            sequence=sequence,
            begun=transaction.begun,
            ended=transaction.ended,
            outcome=transaction.outcome,
            offset=offset,
            error=transaction.error or ("its transaction was not committed" if transaction.outcome == FAIL else ""),
        )
