"""What a coordinator knows of a consumer group beside its records: a new one begins without it.

May touch:  nothing.                  Must not touch: everything.
Invariants: losing it costs work, never truth.
Read next:  slices.py, which does the work; group.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from typing import NamedTuple

from barnabas_coordination.group.led_targets import TargetJob
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.lazy_dataclass import dataclass

Resolving = Generator[None, None, dict[str, tuple[str, ...]]]
"""Gives way now and then; returns the topics of each regular expression."""


@dataclass(slots=True)
class RegexJob:
    """A resolution of regular expressions under way."""

    topics: TopicsImage
    version: int
    """Offset of the metadata."""
    started_ms: int
    may_describe: Callable[[str], bool]
    """Whether the member whose heartbeat began it may describe a topic."""
    resolving: Resolving | None = None
    """None before the first slice."""


class Revoking(NamedTuple):
    """How long a member has had to give something up, and until when it may."""

    since_ms: int
    until_ms: int


@dataclass(slots=True)
class SoftState:
    """What one group has in memory alone: it is gone after a failover."""

    topics_seen: TopicsImage | None = None
    """The topics of the image by which the metadata was last looked at; None: not yet."""
    regex_refreshed_ms: int | None = None
    """When the regular expressions were last begun to be resolved."""
    regex_names_seen: TopicsImage | None = None
    """The topics of the image by which they were resolved; None: not yet, or the result could not be appended."""
    regex_job: RegexJob | None = None
    target_job: TargetJob | None = None
    joining: set[str] = field(default_factory=set)
    """Classic members that heard that they are to join again."""
    last_heartbeat_ms: dict[str, int] = field(default_factory=dict)
    """When each member was last heard."""
    revoking: dict[str, Revoking] = field(default_factory=dict)

    def forget(self, member_id: str) -> None:
        """The member goes."""
        self.joining.discard(member_id)
        self.last_heartbeat_ms.pop(member_id, None)
        self.revoking.pop(member_id, None)
