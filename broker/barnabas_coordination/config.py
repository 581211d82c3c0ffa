"""Keys of the group coordinator and of its topic `__consumer_offsets`, by their Kafka names.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field with a `key` is a documented Kafka key; time-outs are milliseconds unless the key says minutes.
Read next:  group/service.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GROUP_MAX_SIZE_UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """What the group coordinator takes from the node's properties."""

    offsets_topic_num_partitions: int = field(
        default=50,
        metadata={
            "key": "offsets.topic.num.partitions",
            "doc": "Partitions of __consumer_offsets. Used once, when the topic is created: a group belongs to the "
            "partition its id hashes to.",
        },
    )
    offsets_topic_replication_factor: int = field(
        default=3,
        metadata={
            "key": "offsets.topic.replication.factor",
            "doc": "Replicas of each __consumer_offsets partition. With fewer unfenced brokers the topic is not created "
            "and groups answer COORDINATOR_NOT_AVAILABLE.",
        },
    )
    offsets_topic_segment_bytes: int = field(
        default=100 * 1024 * 1024,
        metadata={
            "key": "offsets.topic.segment.bytes",
            "doc": "Segment size of __consumer_offsets, in bytes.",
        },
    )
    offsets_retention_minutes: int = field(
        default=10_080,
        metadata={
            "key": "offsets.retention.minutes",
            "doc": "Minutes that committed offsets are kept after a group became empty (or, for a consumer without group "
            "membership and for topics no longer subscribed, after the last commit).",
        },
    )
    offsets_retention_check_interval_ms: int = field(
        default=600_000,
        metadata={
            "key": "offsets.retention.check.interval.ms",
            "doc": "How often expired offsets and empty groups are looked for, in ms.",
        },
    )
    offsets_commit_timeout_ms: int = field(
        default=5_000,
        metadata={
            "key": "offsets.commit.timeout.ms",
            "doc": "How long an answer waits for the group's records to be replicated, in ms; then COORDINATOR_NOT_AVAILABLE.",
        },
    )
    offsets_load_buffer_size: int = field(
        default=5 * 1024 * 1024,
        metadata={
            "key": "offsets.load.buffer.size",
            "doc": "Bytes read at a time while a newly led __consumer_offsets partition is loaded.",
        },
    )
    offset_metadata_max_bytes: int = field(
        default=4_096,
        metadata={
            "key": "offset.metadata.max.bytes",
            "doc": "Longest metadata string of one committed offset, in UTF-16 units as in Kafka (not bytes, whatever the name says).",
        },
    )
    group_initial_rebalance_delay_ms: int = field(
        default=3_000,
        metadata={
            "key": "group.initial.rebalance.delay.ms",
            "doc": "How long the first rebalance of an empty group waits for more members, in ms.",
        },
    )
    group_min_session_timeout_ms: int = field(
        default=6_000,
        metadata={
            "key": "group.min.session.timeout.ms",
            "doc": "Shortest session time-out a member may ask for, in ms.",
        },
    )
    group_max_session_timeout_ms: int = field(
        default=1_800_000,
        metadata={
            "key": "group.max.session.timeout.ms",
            "doc": "Longest session time-out a member may ask for, in ms.",
        },
    )
    group_max_size: int = field(
        default=GROUP_MAX_SIZE_UNLIMITED,
        metadata={"key": "group.max.size", "doc": "Most members of one group."},
    )

    def __post_init__(self) -> None:
        at_least_one = (
            "offsets_topic_num_partitions",
            "offsets_topic_replication_factor",
            "offsets_topic_segment_bytes",
            "offsets_retention_minutes",
            "offsets_retention_check_interval_ms",
            "offsets_commit_timeout_ms",
            "offsets_load_buffer_size",
            "group_min_session_timeout_ms",
            "group_max_size",
        )
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', '.')} must be at least 1")
        for name in ("offset_metadata_max_bytes", "group_initial_rebalance_delay_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name.replace('_', '.')} must be at least 0")
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise ValueError("group.max.session.timeout.ms must be at least group.min.session.timeout.ms")
