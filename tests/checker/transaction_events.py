"""What transactional clients did and were told, as events of a history.

May touch:  nothing.                  Must not touch: clusters, clocks.
Invariants: those of data_history.py; a client writes its transaction when it begins, before it asks for its end and when it has the
            answer, so that what is known of one whose client was killed is true.
Read next:  data_history.py, which holds them; transaction_rules.py, which judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A producer has a transactional id: its InitProducerId was answered. `owner` rises with each of them."""

    kind: ClassVar[str] = "taken"
    transactional_id: str
    owner: int
    at: float


class Written(NamedTuple):
    """One record of a transaction. `sequence` counts what its owner sent to this key."""

    key: str
    value: str
    sequence: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction, as far as its client had got; of several with one id, owner and number the last counts.

    `outcome`: "ok" is committed; "fail" is aborted, or its commit was never asked for; "info" is asked for and not answered.
    """

    kind: ClassVar[str] = "transaction"
    transactional_id: str
    owner: int
    number: int
    """Counted by its owner."""
    writes: list[Written]
    begun: float
    outcome: str
    opened: float = float("inf")
    """When its first record was acknowledged, where the client says so."""
    asked: float = float("inf")
    """When its end was asked for; infinite where that never was."""
    ended: float = float("inf")
    """When that was answered, or given up."""
    consumed: list[str] = field(default_factory=list)
    """Of a copy: the value that each of `writes` was made from."""
    source: list[str] = field(default_factory=list)
    """Of a copy: the key that each of `consumed` was read from, whose every value it copies; empty: it is no copy."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Source key -> where the group goes on if this commits."""
    group: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """In words, for findings."""
        return f"transaction {self.number} of {self.transactional_id}, owner {self.owner}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An EndTxn that the network kept back: when it came, when it went on to its broker, and what that answered (-1: nothing)."""

    kind: ClassVar[str] = "held"
    transactional_id: str
    is_commit: bool
    came: float
    went: float
    answer: int
