"""The rules for a partition beyond its own state: its topic's settings, and which of its replicas may lead.

May touch:  the image, configs.       Must not touch: sessions, everything that waits.
Invariants: a replica may lead when its broker is registered, unfenced and not leaving, and the log directory that
            holds it works (KIP-858); a directory that the broker has not reported yet counts as working. A faulty one
            leads only where no healthy one may: partition_change.py decides that.
Read next:  partition_change.py, which uses these rules; brokers.py and elections.py, which pass them on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import allows_unclean_election
from barnabas_quorum.image.directories import (
    DOUBTED_DIRECTORY,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    directory_of,
    is_directory_online,
    is_reserved,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.lazy_dataclass import dataclass

MIN_INSYNC_REPLICAS = "min.insync.replicas"
FLUSH_ON_ACKS = "log.flush.on.acks"
PAGE_CACHE = "page-cache"

Acceptable = Callable[[BrokerId], bool]
"""Whether a broker's replica of one given partition may lead it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """The effective settings of topics, by topic name."""

    allows_unclean: Callable[[str], bool]
    """unclean.leader.election.enable."""
    min_insync_replicas: Callable[[str], int]
    """min.insync.replicas, not yet limited to the number of replicas."""
    is_durable: Callable[[str], bool]
    """log.flush.on.acks=fsync: what counted is on disk, so a broker that stopped uncleanly still has it."""


def rules_of(image: MetadataImage, config: ControllerConfig) -> PartitionRules:
    """The settings of topics in an image: a topic's own, else those of all brokers, else this controller's properties. A
    min.insync.replicas for a single broker is refused (configs), or its leaders would decide differently from the controller."""

    def setting(topic: str, key: str, default: str) -> str:
        value = image.configs.topic(topic).get(key)
        if value is None:
            value = image.configs.cluster_default.get(key)
        return default if value is None else value

    return PartitionRules(
        allows_unclean=lambda topic: allows_unclean_election(
            image, topic, default=config.unclean_leader_election_enable
        ),
        min_insync_replicas=lambda topic: int(setting(topic, MIN_INSYNC_REPLICAS, str(config.min_insync_replicas))),
        is_durable=lambda topic: setting(topic, FLUSH_ON_ACKS, config.log_flush_on_acks) != PAGE_CACHE,
    )


def replica_directory(image: MetadataImage, broker_id: BrokerId) -> Uuid:
    """The directory a new replica on that broker will be in: its only one, or unassigned."""
    broker = image.cluster.broker(broker_id)
    if broker is not None and len(broker.directories) == 1:
        return broker.directories[0]
    return UNASSIGNED_DIRECTORY


def is_replica_gone(
    partition: PartitionRegistration,
    broker_id: BrokerId,
    *,
    before: Collection[Uuid],
    now: Collection[Uuid],
    has_offline: bool,
) -> bool:
    """Whether the records of a replica are gone when its broker registers again. A directory.id stands for its contents.

    Args:
        before: the directories of the broker's last registration.
        now: its working directories.
        has_offline: it also has directories that do not work now; a missing one may be among them, and come back.
    """
    directory = directory_of(partition, broker_id)
    if not is_reserved(directory):
        return directory not in now and not has_offline
    if directory == LOST_DIRECTORY:
        return True
    if directory == DOUBTED_DIRECTORY:
        # The replica is in one of the earlier directories or in the failed one: no other may have taken its place.
        return set(before) != set(now) or not has_offline
    # The broker never reported where it is. It may be in any of them, so all must still be there. It is in no other: a broker
    # that registers without one of its directories loses the replica here, and a later failure marks it as doubted.
    return not set(before) <= set(now)


def acceptable(
    image: MetadataImage,
    partition: PartitionRegistration,
    *,
    joining: BrokerId | None = None,
    leaving: Collection[BrokerId] = (),
) -> Acceptable:
    """Which brokers may lead the partition. `joining` counts as active and those of `leaving` do not, whatever the image says."""

    def is_acceptable(candidate: BrokerId) -> bool:
        if candidate in leaving:
            return False
        is_active = candidate == joining or image.cluster.is_active(candidate)
        return is_active and is_directory_online(image, partition, candidate)

    return is_acceptable
