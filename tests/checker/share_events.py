"""What members of a share group were given and told, as events of a history.

May touch:  nothing.                  Must not touch: clusters, clocks.
Invariants: those of data_history.py; a key is a partition of the topic that the group reads.
Read next:  data_history.py, which holds them; share_rules.py, which judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

ACCEPTED, RELEASED, REJECTED, RENEWED = "accept", "release", "reject", "renew"
DONE = (ACCEPTED, REJECTED)
"""What a record does not come back from."""
UNKNOWN_COUNT = 0
"""Of a client that does not tell delivery counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroup:
    """What was said to a share group before its first member came. `limit`: how often a record is delivered at most."""

    kind: ClassVar[str] = "share-group"
    group: str
    topic: str
    limit: int
    lock_s: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One call of a member. `records`: key -> (offset, delivery count)."""

    kind: ClassVar[str] = "delivered"
    client: str
    group: str
    begun: float
    ended: float
    records: Mapping[str, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Offsets of one key acknowledged by the member that had them. `offsets`: (offset, delivery count, one of the four types)."""

    kind: ClassVar[str] = "settled"
    client: str
    group: str
    key: str
    offsets: list[tuple[int, int, str]]
    begun: float
    ended: float
    outcome: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record of the dead letter topic, as its headers tell it."""

    kind: ClassVar[str] = "dead-letter"
    group: str
    key: str
    offset: int
    deliveries: int
    cause: str
