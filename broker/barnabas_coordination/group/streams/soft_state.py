"""What a coordinator knows of a Streams group beside its records: a new one begins without it.

May touch:  nothing.                  Must not touch: everything.
Invariants: losing it costs work, never truth.
Read next:  group.py; heartbeat.py, which fills it; internal_topics.py.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from barnabas_coordination.group.consumer.subscription import metadata_hash
from barnabas_coordination.group.led_targets import TargetJob
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology, configure
from barnabas_coordination.group.streams.tasks import Task
from barnabas_coordination.group.streams.topology import Topology
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.lazy_dataclass import dataclass


class TaskOffsets(NamedTuple):
    """How far the stores of a member's tasks are, and how far they could be; summed over the changelogs of each."""

    reached: dict[Task, int]
    ends: dict[Task, int]

    @property
    def size(self) -> int:
        """How many offsets both have together."""
        return len(self.reached) + len(self.ends)


NO_OFFSETS = TaskOffsets({}, {})


@dataclass(slots=True)
class StreamsSoftState:
    """What one group has in memory alone: it is gone after a failover."""

    configured: ConfiguredTopology | None = None
    """What came of the topology by `seen`; None: not yet."""
    seen: tuple[Topology, TopicsImage] | None = None
    metadata_hash: int = 0
    """The hash of the topics in `seen`."""
    endpoint_epoch: int = 0
    """Rises whenever what is to be read where has changed."""
    is_delayed: bool = False
    """Whether the first members of the group wait for more."""
    shutdown_by: str | None = None
    """The member that asked for the end of the application."""
    offsets: dict[str, TaskOffsets] = field(default_factory=dict)
    """The offsets of a member's tasks, by its id."""
    target_job: TargetJob | None = None

    def look_at(self, topology: Topology, topics: TopicsImage) -> ConfiguredTopology:
        """What the topology comes to by these topics; worked out again where one of either has changed. Raises
        InvalidTopology."""
        if self.seen is None or self.seen[0] is not topology or self.seen[1] is not topics:
            found = metadata_hash(topology.topics, topics)
            if self.configured is None or self.seen is None or (self.seen[0], self.metadata_hash) != (topology, found):
                self.configured = configure(topology, topics)
            self.seen, self.metadata_hash = (topology, topics), found
        assert self.configured is not None, "it was looked at"
        return self.configured
