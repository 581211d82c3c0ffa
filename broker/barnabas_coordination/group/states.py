"""Names of the classic protocol: the states of a group, its timers, why it rebalances, what it counts.

May touch:  nothing.                  Must not touch: everything else.
Invariants: a state follows only those in `VALID_PREVIOUS`; a group has one timer of each kind, and one session for each member.
Read next:  classic.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from enum import Enum, StrEnum
from typing import NamedTuple

from barnabas_wire.lazy_dataclass import dataclass


class GroupState(StrEnum):
    """States by the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(set(GroupState) - {GroupState.DEAD}),
}


class TimerKind(Enum):
    """What a group waits for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    SYNC = "sync"
    TARGET = "target"
    """The next slice of the targets of a consumer group or Streams group."""
    JOIN = "join"
    """A classic member of a consumer group is to join again."""
    DOWNGRADE = "downgrade"
    """A consumer group may have classic members alone; a classic group that was one has to rebalance."""
    REGEX = "regex"
    """The next slice of resolving its regular expressions."""
    STATE = "state"
    """Share states that could not be begun or forgotten are asked for again."""
    INITIAL_DELAY = "initial_delay"
    """The first members of a Streams group wait for more."""


class TimerKey(NamedTuple):
    """Key of a group's timer; member id only for sessions, and for what a member of a consumer group has to give up."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


def session_timer(group_id: str, member_id: str) -> TimerKey:
    """Key of a member's session."""
    return TimerKey(TimerKind.SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    """Key of the time that a member has to give up what it must."""
    return TimerKey(TimerKind.REBALANCE, group_id, member_id)


@dataclass(slots=True)
class InitialDelay:
    """An empty group's wait for others to come, which newcomers lengthen up to the rebalance time-out (KIP-134)."""

    remaining_ms: int
    """By how much it may still be lengthened."""
    has_newcomer: bool = False
    """Whether somebody has come since it was armed."""


class RebalanceReason(Enum):
    """Why a rebalance began."""

    JOIN = "join"
    """A member came, came back, or offers something else."""
    LEAVE = "leave"
    SESSION_TIMEOUT = "session_timeout"
    SYNC_TIMEOUT = "sync_timeout"
    """A member of the generation did not ask for its assignment."""
    DOWNGRADE = "downgrade"
    """The group was one of the consumer protocol, of which the last member is gone."""
    WRITE_FAILED = "write_failed"
    """The assignment could not be written."""


@dataclass(slots=True)
class GroupStats:
    """Counters of one group since this coordinator has it."""

    rebalances: Counter[RebalanceReason] = field(default_factory=Counter)
    commits_done: int = 0
    commits_failed: int = 0
