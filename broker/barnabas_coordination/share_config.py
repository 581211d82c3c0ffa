"""Keys of the share coordinator and of its topic `__share_group_state`, by their Kafka names.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field is a Kafka key; times are milliseconds.
Read next:  share_state/service.py; the keys of share groups are elsewhere, with those of the other groups.
"""

from __future__ import annotations

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

UPDATES_MAX = 500
"""Kafka's bound of the updates between two snapshots: a load reads that many for each share partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorConfig:
    """What the share coordinator takes from the node's properties."""

    state_topic_num_partitions: int = config_key(
        "share.coordinator.state.topic.num.partitions",
        50,
        "Partitions of __share_group_state. Used once, when the topic is created: each partition of a share group's topics belongs to "
        "the one that it hashes to.",
    )
    state_topic_replication_factor: int = config_key(
        "share.coordinator.state.topic.replication.factor",
        3,
        "Replicas of each __share_group_state partition. With fewer unfenced brokers the topic is not created and share groups "
        "deliver nothing.",
    )
    state_topic_min_isr: int = config_key(
        "share.coordinator.state.topic.min.isr",
        2,
        "min.insync.replicas of __share_group_state, used once, when the topic is created; never above its replication factor.",
    )
    state_topic_segment_bytes: int = config_key(
        "share.coordinator.state.topic.segment.bytes",
        100 * 1024 * 1024,
        "Segment size of __share_group_state, in bytes.",
    )
    load_buffer_size: int = config_key(
        "share.coordinator.load.buffer.size",
        5 * 1024 * 1024,
        "Bytes read at a time while a newly led __share_group_state partition is loaded.",
    )
    snapshot_update_records_per_snapshot: int = config_key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "How many changes of a share partition are written as such before its whole state is written again, 0 to 500.",
    )
    write_timeout_ms: int = config_key(
        "share.coordinator.write.timeout.ms",
        5_000,
        "How long an answer waits for share state to be replicated, in ms; then COORDINATOR_NOT_AVAILABLE.",
    )
    prune_interval_ms: int = config_key(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often share state that later snapshots have made redundant is deleted, in ms.",
    )
    cold_snapshot_interval_ms: int = config_key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "After how long the unchanged state of a share partition is written again, in ms, so that what came before it can be deleted.",
    )

    def __post_init__(self) -> None:
        for name, each in self.__dataclass_fields__.items():
            least = 0 if name == "snapshot_update_records_per_snapshot" else 1
            if getattr(self, name) < least:
                raise ValueError(f"{each.metadata['key']} must be at least {least}")
        if self.snapshot_update_records_per_snapshot > UPDATES_MAX:
            raise ValueError(f"share.coordinator.snapshot.update.records.per.snapshot must be at most {UPDATES_MAX}")
