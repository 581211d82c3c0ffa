"""Keys that the API handlers read: topic creation defaults and bounds of one request.

May touch:  its fields.               Must not touch: files, environment.
Invariants: every field with a `key` is a documented Kafka key.
Read next:  services.py.
"""

from __future__ import annotations

from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """What the Kafka API handlers take from the node's properties."""

    auto_create_topics_enable: bool = config_key(
        "auto.create.topics.enable",
        True,
        "Create a topic that a client names in a Metadata request and that does not exist yet.",
    )
    num_partitions: int = config_key("num.partitions", 1, "Partitions of a topic whose creator did not say how many.")
    default_replication_factor: int = config_key(
        "default.replication.factor", 1, "Replicas per partition of a topic whose creator did not say how many."
    )
    delete_topic_enable: bool = config_key(
        "delete.topic.enable", True, "Allow topics to be deleted through the Kafka API."
    )
    delegation_token_secret_key: str | None = config_key(
        "delegation.token.secret.key",
        None,
        "Secret from which the HMACs of delegation tokens follow; the same on every node. Without it there are no tokens.",
        sensitive=True,
    )
    max_request_partition_size_limit: int = config_key(
        "max.request.partition.size.limit", 2000, "Most partitions in one DescribeTopicPartitions response."
    )

    def __post_init__(self) -> None:
        for name in ("num_partitions", "default_replication_factor", "max_request_partition_size_limit"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.replace('_', '.')} must be at least 1")
