"""Keys of Streams groups, by their Kafka names; a group's own `streams.…` come first.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field is a documented Kafka key.
Read next:  config.py, which these are part of; group/streams/settings.py, which puts a group's own configs in their place.
"""

from __future__ import annotations

from typing import Final

from barnabas_coordination.group_bounds import bounds_of, check_bounds, least_key, most_key
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

ASSIGNORS: Final = ("sticky",)
"""The assignors that exist."""
BOUNDED: Final = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""What a group may set for itself, within bounds."""
UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupConfig:
    """What the group coordinator takes from the node's properties for Streams groups."""

    group_streams_session_timeout_ms: int = config_key(
        "group.streams.session.timeout.ms",
        45_000,
        "How long a member of a Streams group (KIP-1071) may be silent before it is out, in ms; a group's own "
        "streams.session.timeout.ms comes first.",
    )
    group_streams_min_session_timeout_ms: int = least_key("streams.session.timeout.ms", 45_000)
    group_streams_max_session_timeout_ms: int = most_key("streams.session.timeout.ms", 60_000)
    group_streams_heartbeat_interval_ms: int = config_key(
        "group.streams.heartbeat.interval.ms",
        5_000,
        "How often members of Streams groups are to be heard, in ms; a group's own streams.heartbeat.interval.ms comes first.",
    )
    group_streams_min_heartbeat_interval_ms: int = least_key("streams.heartbeat.interval.ms", 5_000)
    group_streams_max_heartbeat_interval_ms: int = most_key("streams.heartbeat.interval.ms", 15_000)
    group_streams_assignment_interval_ms: int = config_key(
        "group.streams.assignment.interval.ms",
        1_000,
        "Least time between two assignments of a Streams group, in ms (KIP-1263); a group's own "
        "streams.assignment.interval.ms comes first.",
    )
    group_streams_min_assignment_interval_ms: int = least_key("streams.assignment.interval.ms", 0)
    group_streams_max_assignment_interval_ms: int = most_key("streams.assignment.interval.ms", 15_000)
    group_streams_initial_rebalance_delay_ms: int = config_key(
        "group.streams.initial.rebalance.delay.ms",
        3_000,
        "How long the first member of an empty Streams group waits for more before tasks are handed out, in ms; a group's own "
        "streams.initial.rebalance.delay.ms comes first.",
    )
    group_streams_num_standby_replicas: int = config_key(
        "group.streams.num.standby.replicas",
        0,
        "Standby copies of each task with stores, in other instances; a group's own streams.num.standby.replicas comes first.",
    )
    group_streams_max_standby_replicas: int = config_key(
        "group.streams.max.standby.replicas",
        2,
        "Most streams.num.standby.replicas of a group; what is more counts as this.",
    )
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = config_key(
        "group.streams.rack.aware.assignment.tags",
        (),
        "Names of tags (client.tag.…) that members are to have; one without is told so. No assignor looks at their values "
        "yet, as in Kafka 4.4.",
    )
    group_streams_task_offset_interval_ms: int = config_key(
        "group.streams.task.offset.interval.ms",
        60_000,
        "How often members report how far their stores are, in ms.",
    )
    group_streams_acceptable_recovery_lag: int = config_key(
        "group.streams.acceptable.recovery.lag",
        10_000,
        "How many records a copy of a store may be behind and still count as caught up.",
    )
    group_streams_max_size: int = config_key(
        "group.streams.max.size",
        UNLIMITED,
        "Most members of one Streams group.",
    )
    group_streams_assignors: tuple[str, ...] = config_key(
        "group.streams.assignors",
        ASSIGNORS,
        "Assignors of tasks; the first serves. Only sticky is built.",
    )

    @property
    def streams_bounds(self) -> dict[str, tuple[int, int]]:
        """Least and most of what a Streams group may set for itself."""
        return bounds_of(self, "streams", BOUNDED)

    def check_streams(self) -> None:
        """Raises ValueError for keys that contradict each other."""
        check_bounds(self, "streams", self.streams_bounds)
        for name in ("initial_rebalance_delay_ms", "acceptable_recovery_lag", "min_assignment_interval_ms"):
            if getattr(self, f"group_streams_{name}") < 0:
                raise ValueError(f"group.streams.{name.replace('_', '.')} must be at least 0")
        for name in ("max_size", "task_offset_interval_ms", "min_session_timeout_ms", "min_heartbeat_interval_ms"):
            if getattr(self, f"group_streams_{name}") < 1:
                raise ValueError(f"group.streams.{name.replace('_', '.')} must be at least 1")
        if not 0 <= self.group_streams_num_standby_replicas <= self.group_streams_max_standby_replicas:
            raise ValueError(
                f"group.streams.num.standby.replicas={self.group_streams_num_standby_replicas} must be from 0 to "
                f"group.streams.max.standby.replicas={self.group_streams_max_standby_replicas}"
            )
        unknown = [name for name in self.group_streams_assignors if name not in ASSIGNORS]
        if unknown or not self.group_streams_assignors:
            raise ValueError(f"group.streams.assignors: name one or more of {', '.join(ASSIGNORS)}")
