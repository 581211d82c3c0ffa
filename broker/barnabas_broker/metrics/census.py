"""How well the cluster is, counted from one metadata image.

May touch:  its arguments.            Must not touch: asyncio, clock, files, network.
Invariants: a partition without a leader is leaderless whatever its ISR; internal topics count like others; a replica that a
            reassignment adds is not missing while it catches up (as in Kafka).
Read next:  ../admin/service.py, controller.py and replicas.py, which report it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field

from barnabas_quorum.controller.reassignment import original_replicas
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass

MIN_INSYNC_REPLICAS = "min.insync.replicas"

UNDER_REPLICATED = "under-replicated"
UNDER_MIN_ISR = "under-min-isr"
AT_MIN_ISR = "at-min-isr"
LEADERLESS = "leaderless"
NOT_PREFERRED = "not-preferred"
CORRUPT = "corrupt"
NO_ROOM = "no-room"
LOST = "lost"
_FAULTS = {ReplicaFault.CORRUPT: CORRUPT, ReplicaFault.NO_ROOM: NO_ROOM, ReplicaFault.LOST: LOST}


@dataclass(slots=True, kw_only=True)
class Census:
    """Counts over all partitions of an image; `led` and `held` by broker id."""

    topics: int = 0
    partitions: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    """Flag (the constants above) -> partitions that have it."""
    led: Counter[BrokerId] = field(default_factory=Counter)
    held: Counter[BrokerId] = field(default_factory=Counter)
    faulty: Counter[ReplicaFault] = field(default_factory=Counter)
    """Replicas by what is wrong with them."""


def min_insync_replicas(image: MetadataImage, topic: str, *, static_default: int) -> int:
    """min.insync.replicas of a topic: its own override, else the cluster's, else the node's properties."""
    for overrides in (image.configs.topic(topic), image.configs.cluster_default):
        text = overrides.get(MIN_INSYNC_REPLICAS)
        if text is not None:
            return int(text)
    return static_default


def is_under_replicated(partition: PartitionRegistration) -> bool:
    """Whether a replica that should be in sync is not. One that a reassignment is adding is on its way."""
    if len(partition.isr) == len(
        partition.replicas
    ):  # in-sync ones are replicas: none lacks, as of nearly all partitions
        return False
    return not set(original_replicas(partition)) <= set(partition.isr)


def partition_flags(partition: PartitionRegistration, *, min_isr: int) -> list[str]:
    """What is wrong or noteworthy with a partition; empty when all is well. A min ISR above the replicas counts as theirs."""
    flags = []
    needed = min(min_isr, len(partition.replicas))
    in_sync = len(partition.isr)
    if not partition.has_leader:
        flags.append(LEADERLESS)
    if is_under_replicated(partition):
        flags.append(UNDER_REPLICATED)
    if in_sync < needed:
        flags.append(UNDER_MIN_ISR)
    elif in_sync == needed < len(partition.replicas):
        flags.append(AT_MIN_ISR)
    if partition.has_leader and partition.leader != partition.preferred_leader:
        flags.append(NOT_PREFERRED)
    if partition.faults:
        flags += sorted({_FAULTS[fault] for _, fault in partition.faults})
    return flags


def take_census(image: MetadataImage, *, static_min_isr: int) -> Census:
    """Count every partition of the image once."""
    census = Census()
    topics: Mapping[str, object] = image.topics.topics
    census.topics = len(topics)
    flags, held, led = census.flags, census.held, census.led
    for topic in image.topics.topics.values():
        min_isr = min_insync_replicas(image, topic.name, static_default=static_min_isr)
        census.partitions += len(topic.partitions)
        for partition in topic.partitions.values():
            # Counted one by one: Counter.update takes five times as long for a few, and there are many partitions.
            for flag in partition_flags(partition, min_isr=min_isr):
                flags[flag] += 1
            for broker in partition.replicas:
                held[broker] += 1
            for _, fault in partition.faults:
                census.faulty[fault] += 1
            if partition.has_leader:
                led[partition.leader] += 1
    return census
