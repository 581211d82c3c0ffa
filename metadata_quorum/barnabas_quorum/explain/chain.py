"""An explanation: what is so, the causes that led to it, how things stand now, and what to do.

May touch:  image/bad_records.py, its arguments.   Must not touch: everything else.
Invariants: causes stand oldest first, of records that were decided together the cause first; an offset of -1 means that no
            record of the metadata log states the cause.
Read next:  history.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from barnabas_quorum.image.bad_records import Blocked
from barnabas_wire.kafka.ids import NO_BROKER, NO_OFFSET, BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass

CAUSES_MAX = 20
"""So many causes are shown, the newest; a broker that flaps would fill pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One event, and why it came."""

    what: str
    reason: str = ""
    """Empty when the event speaks for itself, or nothing is known."""
    is_guess: bool = False
    """The reason is inferred from neighbours in the log or from what is seen live."""
    offset: Offset = NO_OFFSET
    """The offset of its record in the metadata log."""
    timestamp_ms: int = -1
    """Wall clock of the active controller; -1 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What to do."""

    purpose: str
    command: str = ""
    """To be typed as it stands; empty when it is no command (start a machine)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer."""

    subject: str
    status: str
    """One stable word for programs: healthy, fenced, leaderless, …"""
    summary: str
    causes: tuple[Cause, ...] = ()
    facts: tuple[str, ...] = ()
    """How things stand now."""
    next: tuple[NextStep, ...] = ()


def with_blocked(found: Explanation, blocked: Blocked | None) -> Explanation:
    """The explanation of a node whose metadata stands still before a bad record: that comes before all else, for what was
    decided behind it (a broker that registered, a new leader) does not count before its sign-off."""
    if blocked is None:
        return found
    offset = blocked.record.offset
    return replace(
        found,
        facts=(
            f"the metadata stands still before the record at offset {offset}, which cannot be replayed ({blocked.record.error}): "
            "no broker can register and nothing can be changed until it is signed off",
            *found.facts,
        ),
        next=(
            NextStep(purpose="look at the record that blocks the metadata", command="barnabas quorum quarantine list"),
            NextStep(
                purpose="if what it says may be lost, put it aside",
                command=f"barnabas quorum quarantine sign-off {offset} --reason WHY --yes",
            ),
            *found.next,
        ),
    )


def newest(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """The causes that are shown: all, or the newest behind a line that says how many were left out."""
    if len(causes) <= CAUSES_MAX:
        return tuple(causes)
    left_out = len(causes) - CAUSES_MAX + 1
    return (Cause(what=f"({left_out} earlier events are left out)"), *causes[left_out:])


def seconds(ms: int) -> str:
    """A duration for people."""
    if ms < 1000:
        return f"{max(0, ms)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    if ms < 2 * 3_600_000:
        return f"{ms / 60_000:.0f} min"
    return f"{ms / 3_600_000:.1f} h"


def ids(brokers: Sequence[BrokerId]) -> str:
    """A set of brokers: {1,2}, or {} for nobody."""
    return "{" + ",".join(str(broker) for broker in brokers) + "}"


def leader_name(leader: BrokerId) -> str:
    """A leader, or none."""
    return "none" if leader == NO_BROKER else str(leader)


def plural(count: int, noun: str) -> str:
    """1 record, 2 records."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
