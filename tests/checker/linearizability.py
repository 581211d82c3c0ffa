"""Is a history linearizable? A search per key for one order of operations that explains every answer.

May touch:  its arguments.            Must not touch: clocks, files, what is being judged.
Invariants: an operation with a known outcome takes effect once, between its invocation and its return; one with an unknown
            outcome takes effect once at any time after its invocation, or never; a refusal is an answer like any other.
Read next:  metadata_history.py, the model of a topic.

The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory of configurations seen
("Testing for linearizability", 2017); a history is split by key first, since linearizability is local (Herlihy and Wing).
It is bounded: a key that needs more configurations than `budget` is UNDECIDED, which is no pass.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

CONFIGURATIONS_MAX = 200_000
"""Search budget of one key."""

State = Hashable
Step = Callable[[State, Any], "tuple[bool, State]"]
"""(state, operation) -> (may it have that outcome in this state, state afterwards)."""


class Outcome(Enum):
    """What the client knows about one operation."""

    OK = "ok"
    REFUSED = "refused"
    """Certainly had no effect; the refusal itself may tell about the state."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of one client. Times are in s on one monotonic clock."""

    key: str
    verb: str
    invoked: float
    returned: float
    outcome: Outcome
    argument: str | None = None
    """What it writes."""
    answer: str | None = None
    """What it was told: the value read, or the refusal's name."""
    client: str = ""

    @property
    def deadline(self) -> float:
        """The latest time at which it took effect; infinite while nobody knows whether it did."""
        return math.inf if self.outcome is Outcome.UNKNOWN else self.returned

    def __str__(self) -> str:
        reported = f" -> {self.answer}" if self.answer is not None else ""
        return (
            f"[{self.invoked:9.3f} {self.returned:9.3f}] {self.client:<12} {self.verb}({self.key}"
            f"{'' if self.argument is None else ', ' + self.argument}) {self.outcome.value}{reported}"
        )


class KeyVerdict(NamedTuple):
    """One key's history."""

    key: str
    operations: int
    configurations: int
    is_linearizable: bool | None
    """None: the budget ended first."""
    longest: tuple[Operation, ...]
    """The longest explained beginning of a history that is not linearizable, in the order found."""
    stuck: tuple[Operation, ...]
    """Operations of which none could come next after `longest`."""


class HistoryVerdict(NamedTuple):
    """All keys."""

    operations: int
    keys: int
    configurations: int
    broken: tuple[KeyVerdict, ...]
    undecided: tuple[KeyVerdict, ...]

    @property
    def is_linearizable(self) -> bool:
        """Every key has an order that explains it."""
        return not self.broken and not self.undecided

    def __str__(self) -> str:
        found = f"{self.operations} operations on {self.keys} keys, {self.configurations} configurations searched: "
        if self.is_linearizable:
            return found + "linearizable"
        return found + f"{len(self.broken)} keys NOT linearizable, {len(self.undecided)} undecided"


def check_history(
    operations: Iterable[Operation], *, step: Step, initial: State, budget: int = CONFIGURATIONS_MAX
) -> HistoryVerdict:
    """Judge every key alone.

    Args:
        operations: in any order.
        step: the model; see Step.
        initial: the state of a key before its first operation.
        budget: configurations searched per key at most.
    """
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    verdicts = [check_key(key, by_key[key], step=step, initial=initial, budget=budget) for key in sorted(by_key)]
    return HistoryVerdict(
        operations=sum(verdict.operations for verdict in verdicts),
        keys=len(verdicts),
        configurations=sum(verdict.configurations for verdict in verdicts),
        broken=tuple(verdict for verdict in verdicts if verdict.is_linearizable is False),
        undecided=tuple(verdict for verdict in verdicts if verdict.is_linearizable is None),
    )


def check_key(
    key: str, operations: Sequence[Operation], *, step: Step, initial: State, budget: int = CONFIGURATIONS_MAX
) -> KeyVerdict:
    """Depth first through the configurations (which operations took effect, and the state they led to)."""
    # The likeliest order first: by return; what nobody heard of is tried only where nothing else explains the answers.
    entries = sorted(operations, key=lambda entry: (entry.deadline, entry.invoked))
    must = sum(1 << index for index, entry in enumerate(entries) if entry.outcome is not Outcome.UNKNOWN)
    seen: set[tuple[int, State]] = {(0, initial)}
    path: list[int] = []
    stack = [(0, initial, _next_steps(entries, 0, must, initial, step))]
    best: tuple[int, tuple[int, ...], int] = (-1, (), 0)
    while stack:
        done, _, following = stack[-1]
        if done & must == must:
            return KeyVerdict(key, len(entries), len(seen), True, (), ())
        if (explained := (done & must).bit_count()) > best[0]:
            best = (explained, tuple(path), done)
        if len(seen) >= budget:
            return KeyVerdict(key, len(entries), len(seen), None, (), ())
        while following:
            index, state = following.pop()
            configuration = (done | 1 << index, state)
            if configuration not in seen:
                seen.add(configuration)
                path.append(index)
                stack.append((*configuration, _next_steps(entries, configuration[0], must, state, step)))
                break
        else:
            stack.pop()
            if path:
                path.pop()
    _, order, done = best
    stuck = [entries[index] for index in _candidates(entries, done)]
    return KeyVerdict(key, len(entries), len(seen), False, tuple(entries[index] for index in order), tuple(stuck))


def _candidates(entries: Sequence[Operation], done: int) -> list[int]:
    """Whatever was invoked before the first return of what has not taken effect yet."""
    first_return = math.inf
    for index, entry in enumerate(entries):
        if not done >> index & 1:
            first_return = entry.deadline  # entries are in the order of their deadlines
            break
    return [index for index, entry in enumerate(entries) if not done >> index & 1 and entry.invoked <= first_return]


def _next_steps(
    entries: Sequence[Operation], done: int, must: int, state: State, step: Step
) -> list[tuple[int, State]]:
    """What may take effect next, the likeliest last. Reading operations that fit go alone: taking them now is never
    wrong, since they change nothing and their turn can only become worse."""
    found: list[tuple[int, State]] = []
    for index in _candidates(entries, done):
        is_possible, after = step(state, entries[index])
        if not is_possible:
            continue
        is_known = must >> index & 1
        if after == state:
            if is_known:
                return [(index, state)]
            continue  # an unknown operation without effect need not take effect at all
        found.append((index, after))
    found.reverse()
    return found
