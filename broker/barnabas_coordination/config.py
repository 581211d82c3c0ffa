"""Keys of the group coordinator and of its topic `__consumer_offsets`, by their Kafka names.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field with a `key` is a documented Kafka key; time-outs are milliseconds unless the key says minutes.
Read next:  group/service.py.
"""

from __future__ import annotations

from barnabas_coordination.group_bounds import bounds_of, check_bounds, least_key, most_key
from barnabas_coordination.streams_config import StreamsGroupConfig
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

GROUP_MAX_SIZE_UNLIMITED = 2**31 - 1
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
REBALANCE_PROTOCOLS = ("classic", "consumer", "streams", "share")
"""The protocols that Kafka knows."""
CONSUMER_ASSIGNORS = ("uniform", "range", "uniform-rack")
"""Those that are built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig(StreamsGroupConfig):
    """What the group coordinator takes from the node's properties."""

    offsets_topic_num_partitions: int = config_key(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets. Used once, when the topic is created: a group belongs to the partition its id hashes to.",
    )
    offsets_topic_replication_factor: int = config_key(
        "offsets.topic.replication.factor",
        3,
        "Replicas of each __consumer_offsets partition. With fewer unfenced brokers the topic is not created and groups answer "
        "COORDINATOR_NOT_AVAILABLE.",
    )
    offsets_topic_segment_bytes: int = config_key(
        "offsets.topic.segment.bytes", 100 * 1024 * 1024, "Segment size of __consumer_offsets, in bytes."
    )
    offsets_retention_minutes: int = config_key(
        "offsets.retention.minutes",
        10_080,
        "Minutes that committed offsets are kept after a group became empty (or, for a consumer without group membership and for topics "
        "no longer subscribed, after the last commit).",
    )
    offsets_retention_check_interval_ms: int = config_key(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often expired offsets and empty groups are looked for, in ms.",
    )
    offsets_commit_timeout_ms: int = config_key(
        "offsets.commit.timeout.ms",
        5_000,
        "How long an answer waits for the group's records to be replicated, in ms; then COORDINATOR_NOT_AVAILABLE.",
    )
    offsets_load_buffer_size: int = config_key(
        "offsets.load.buffer.size",
        5 * 1024 * 1024,
        "Bytes read at a time while a newly led __consumer_offsets partition is loaded.",
    )
    offset_metadata_max_bytes: int = config_key(
        "offset.metadata.max.bytes",
        4_096,
        "Longest metadata string of one committed offset, in UTF-16 units as in Kafka (not bytes, whatever the name says).",
    )
    group_initial_rebalance_delay_ms: int = config_key(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long the first rebalance of an empty group waits for more members, in ms.",
    )
    group_min_session_timeout_ms: int = config_key(
        "group.min.session.timeout.ms", 6_000, "Shortest session time-out a member may ask for, in ms."
    )
    group_max_session_timeout_ms: int = config_key(
        "group.max.session.timeout.ms", 1_800_000, "Longest session time-out a member may ask for, in ms."
    )
    group_max_size: int = config_key(
        "group.max.size", GROUP_MAX_SIZE_UNLIMITED, "Most members of one group of the classic protocol."
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = config_key(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        "Protocols of groups that are served: without consumer or streams, that group.protocol is refused. share is read, too, and has no "
        "effect: share.version alone governs share groups. Kafka calls the key deprecated: group.version and streams.version say the "
        "same for the whole cluster.",
    )
    group_consumer_session_timeout_ms: int = config_key(
        "group.consumer.session.timeout.ms",
        45_000,
        "How long a member of the consumer protocol (KIP-848) may be silent before it is out, in ms; a group's own "
        "consumer.session.timeout.ms comes first.",
    )
    group_consumer_min_session_timeout_ms: int = least_key("consumer.session.timeout.ms", 45_000)
    group_consumer_max_session_timeout_ms: int = most_key("consumer.session.timeout.ms", 60_000)
    group_consumer_heartbeat_interval_ms: int = config_key(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members of the consumer protocol are to be heard, in ms; a group's own consumer.heartbeat.interval.ms comes first.",
    )
    group_consumer_min_heartbeat_interval_ms: int = least_key("consumer.heartbeat.interval.ms", 5_000)
    group_consumer_max_heartbeat_interval_ms: int = most_key("consumer.heartbeat.interval.ms", 15_000)
    group_consumer_assignment_interval_ms: int = config_key(
        "group.consumer.assignment.interval.ms",
        1_000,
        "Least time between two assignments of a group, in ms (KIP-1263): members that come at once cost one; a group's own "
        "consumer.assignment.interval.ms comes first.",
    )
    group_consumer_min_assignment_interval_ms: int = least_key("consumer.assignment.interval.ms", 0)
    group_consumer_max_assignment_interval_ms: int = most_key("consumer.assignment.interval.ms", 15_000)
    group_consumer_max_size: int = config_key(
        "group.consumer.max.size", GROUP_MAX_SIZE_UNLIMITED, "Most members of one group of the consumer protocol."
    )
    group_consumer_assignors: tuple[str, ...] = config_key(
        "group.consumer.assignors",
        CONSUMER_ASSIGNORS,
        "Assignors that members of the consumer protocol may ask for (group.remote.assignor); the first serves those that do not ask. "
        "uniform-rack is ours: as uniform, and as many partitions as possible go where a replica is in the member's rack.",
    )
    group_consumer_migration_policy: str = config_key(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether groups with members move between the protocols: upgrade (a classic group becomes a consumer group with its first "
        "member of that protocol), downgrade (back, with the last one), bidirectional or disabled.",
    )
    group_consumer_regex_refresh_interval_ms: int = config_key(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often the regular expressions that members subscribe by are resolved anew where no topic came, in ms.",
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
            "group_consumer_max_size",
            "group_consumer_min_session_timeout_ms",
            "group_consumer_min_heartbeat_interval_ms",
        )
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', '.')} must be at least 1")
        for name in (
            "offset_metadata_max_bytes",
            "group_initial_rebalance_delay_ms",
            "group_consumer_min_assignment_interval_ms",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name.replace('_', '.')} must be at least 0")
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise ValueError("group.max.session.timeout.ms must be at least group.min.session.timeout.ms")
        check_bounds(self, "consumer", self.consumer_bounds)
        self.check_streams()
        if self.group_consumer_regex_refresh_interval_ms < 10_000:
            raise ValueError("group.consumer.regex.refresh.interval.ms must be at least 10000")
        if self.group_consumer_migration_policy.lower() not in MIGRATION_POLICIES:
            raise ValueError(f"group.consumer.migration.policy must be one of {', '.join(MIGRATION_POLICIES)}")
        protocols = self.group_coordinator_rebalance_protocols
        if "classic" not in protocols or not set(protocols) <= set(REBALANCE_PROTOCOLS):
            raise ValueError(
                f"group.coordinator.rebalance.protocols={','.join(protocols)}: name classic, and which others of "
                f"{', '.join(REBALANCE_PROTOCOLS)} are to be served"
            )
        unknown = [name for name in self.group_consumer_assignors if name not in CONSUMER_ASSIGNORS]
        if unknown or not self.group_consumer_assignors:
            raise ValueError(
                f"group.consumer.assignors={','.join(self.group_consumer_assignors)}: name one or more of "
                f"{', '.join(CONSUMER_ASSIGNORS)}"
            )

    @property
    def consumer_bounds(self) -> dict[str, tuple[int, int]]:
        """Least and most of what a group of the consumer protocol may set for itself."""
        return bounds_of(self, "consumer", ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"))
