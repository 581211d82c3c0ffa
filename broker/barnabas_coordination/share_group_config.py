"""Keys of share groups, by their Kafka names; a group's own `share.…` come first.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field is a documented Kafka key; the value of a key that groups may set lies within its own bounds.
Read next:  share_settings.py, which puts a group's own configs in their place.
"""

from __future__ import annotations

from typing import Final

from barnabas_coordination.group_bounds import bounds_of, check_bounds, least_key, most_key
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

ASSIGNORS: Final = ("simple",)
"""The assignors that exist."""
BOUNDED: Final = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "assignment_interval_ms",
    "record_lock_duration_ms",
    "delivery_count_limit",
    "partition_max_record_locks",
)
"""What a group may set for itself, within bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """What coordinators and leaders take from the node's properties for share groups (KIP-932, KIP-1191)."""

    group_share_session_timeout_ms: int = config_key(
        "group.share.session.timeout.ms",
        45_000,
        "How long a member of a share group (KIP-932) may be silent before it is out, in ms; a group's own "
        "share.session.timeout.ms comes first.",
    )
    group_share_min_session_timeout_ms: int = least_key("share.session.timeout.ms", 45_000)
    group_share_max_session_timeout_ms: int = most_key("share.session.timeout.ms", 60_000)
    group_share_heartbeat_interval_ms: int = config_key(
        "group.share.heartbeat.interval.ms",
        5_000,
        "How often members of share groups are to be heard, in ms; a group's own share.heartbeat.interval.ms comes first.",
    )
    group_share_min_heartbeat_interval_ms: int = least_key("share.heartbeat.interval.ms", 5_000)
    group_share_max_heartbeat_interval_ms: int = most_key("share.heartbeat.interval.ms", 15_000)
    group_share_assignment_interval_ms: int = config_key(
        "group.share.assignment.interval.ms",
        1_000,
        "Least time between two assignments of a share group, in ms (KIP-1263); a group's own "
        "share.assignment.interval.ms comes first.",
    )
    group_share_min_assignment_interval_ms: int = least_key("share.assignment.interval.ms", 0)
    group_share_max_assignment_interval_ms: int = most_key("share.assignment.interval.ms", 15_000)
    group_share_record_lock_duration_ms: int = config_key(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a member of a share group has a record for itself before another may get it, in ms; a group's own "
        "share.record.lock.duration.ms comes first.",
    )
    group_share_min_record_lock_duration_ms: int = least_key("share.record.lock.duration.ms", 15_000)
    group_share_max_record_lock_duration_ms: int = most_key("share.record.lock.duration.ms", 60_000)
    group_share_delivery_count_limit: int = config_key(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered to a share group before it is given up; a group's own share.delivery.count.limit "
        "comes first.",
    )
    group_share_min_delivery_count_limit: int = least_key("share.delivery.count.limit", 2)
    group_share_max_delivery_count_limit: int = most_key("share.delivery.count.limit", 10)
    group_share_partition_max_record_locks: int = config_key(
        "group.share.partition.max.record.locks",
        2_000,
        "Most offsets of a partition from a share group's start offset to the last record delivered; a group's own "
        "share.partition.max.record.locks comes first.",
    )
    group_share_min_partition_max_record_locks: int = least_key("share.partition.max.record.locks", 100)
    group_share_max_partition_max_record_locks: int = most_key("share.partition.max.record.locks", 4_000)
    group_share_max_size: int = config_key("group.share.max.size", 200, "Most members of one share group.")
    group_share_assignors: tuple[str, ...] = config_key(
        "group.share.assignors", ASSIGNORS, "The assignor of share groups. Only simple is built."
    )
    group_share_initialize_retry_interval_ms: int = config_key(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "After how long a share group's partition whose state was not known to be set up is set up again, in ms.",
    )
    group_share_max_share_sessions: int = config_key(
        "group.share.max.share.sessions", 2_000, "Most share sessions on this broker: one for each member that fetches."
    )
    errors_deadletterqueue_topic_name_prefix: str = config_key(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        "What the name of a topic for dead letters must begin with (KIP-1191); empty: any name will do.",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = config_key(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        "Whether a group's topic for dead letters is made when it is missing.",
    )

    @property
    def share_bounds(self) -> dict[str, tuple[int, int]]:
        """Least and most of what a share group may set for itself."""
        return bounds_of(self, "share", BOUNDED)

    def __post_init__(self) -> None:
        check_bounds(self, "share", self.share_bounds)
        for name, (least, most) in _RANGES.items():
            value = getattr(self, f"group_share_{name}")
            if not least <= value <= most:
                raise ValueError(f"group.share.{name.replace('_', '.')}={value} must be from {least} to {most}")
        if len(self.group_share_assignors) != 1 or self.group_share_assignors[0] not in ASSIGNORS:
            raise ValueError(f"group.share.assignors: name one of {', '.join(ASSIGNORS)}")


_INT_MAX: Final = 2**31 - 1
_RANGES: Final = {
    "min_session_timeout_ms": (1, _INT_MAX),
    "min_heartbeat_interval_ms": (1, _INT_MAX),
    "min_assignment_interval_ms": (0, _INT_MAX),
    "record_lock_duration_ms": (1_000, 3_600_000),
    "min_record_lock_duration_ms": (1_000, 30_000),
    "max_record_lock_duration_ms": (30_000, 3_600_000),
    "delivery_count_limit": (2, 10),
    "min_delivery_count_limit": (2, 5),
    "max_delivery_count_limit": (5, 25),
    "partition_max_record_locks": (100, 10_000),
    "min_partition_max_record_locks": (100, 2_000),
    "max_partition_max_record_locks": (2_000, 10_000),
    "max_size": (1, 1_000),
    "initialize_retry_interval_ms": (1, _INT_MAX),
    "max_share_sessions": (1, _INT_MAX),
}
"""Bounds of the keys themselves, as Kafka has them."""
