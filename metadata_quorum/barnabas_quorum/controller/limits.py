"""How many partitions and replicas there may be: of a topic, of the cluster, on a broker.

May touch:  image.                     Must not touch: the caller's identity, everything that waits.
Invariants: limits apply to additions, never to what exists; 0 means no limit; a refusal names the key.
Read next:  topics.py, which checks before it adds partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLimits:
    """0 = no limit."""

    topic_partitions_max: int = 0
    cluster_partitions_max: int = 0
    broker_replicas_max: int = 0


def check_limits(
    image: MetadataImage,
    limits: PartitionLimits,
    topic: str,
    added: Sequence[Sequence[BrokerId]],
    *,
    present: int,
    also: Sequence[Sequence[BrokerId]],
) -> None:
    """Raise KafkaError POLICY_VIOLATION when the replica lists in `added` would exceed a limit.

    Args:
        present: the number of partitions the topic has.
        also: replica lists that the same request adds before these.
    """
    total = present + len(added)
    if 0 < limits.topic_partitions_max < total:
        raise _refusal(
            f"topic {topic!r} would have {total} partitions; topic.partitions.max={limits.topic_partitions_max} allows no "
            "more: ask for fewer, or raise it on the controllers"
        )
    whole = image.topics.partition_count + len(also) + len(added)
    if 0 < limits.cluster_partitions_max < whole:
        raise _refusal(
            f"topic {topic!r} would bring the cluster to {whole} partitions; "
            f"cluster.partitions.max={limits.cluster_partitions_max} allows no more: delete topics, or raise it on the "
            "controllers"
        )
    if limits.broker_replicas_max > 0:
        new = Counter(replica for replicas in (*also, *added) for replica in replicas)
        for broker_id in sorted(new):
            held = image.topics.replica_counts.get(broker_id, 0) + new[broker_id]
            if held > limits.broker_replicas_max:
                raise _refusal(
                    f"topic {topic!r} would bring broker {broker_id} to {held} replicas; "
                    f"broker.replicas.max={limits.broker_replicas_max} allows no more: add brokers, or raise it on the "
                    "controllers"
                )


def _refusal(message: str) -> KafkaError:
    return KafkaError.of(ErrorCode.POLICY_VIOLATION, message)
