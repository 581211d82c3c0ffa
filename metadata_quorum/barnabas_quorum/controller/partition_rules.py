"""What decides about a partition beside the partition itself: its topic's settings, and who of its replicas may lead.

May touch:  the image, configs.       Must not touch: sessions, everything that waits.
Invariants: a replica may lead when its broker is registered, unfenced and not leaving, and the log directory that
            holds it works (KIP-858); a directory that nobody has told yet counts as working. Of those, one that is faulty
            leads only where no whole one may: partition_change.py weighs that.
Read next:  partition_change.py, which asks these; brokers.py and elections.py, which hand them on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import allows_unclean_election
from barnabas_quorum.image.directories import (
    DOUBTED_DIRECTORY,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    directory_of,
    is_reserved,
)
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import BrokerId, Uuid

MIN_INSYNC_REPLICAS = "min.insync.replicas"
FLUSH_ON_ACKS = "log.flush.on.acks"
PAGE_CACHE = "page-cache"

Acceptable = Callable[[BrokerId], bool]
"""Whether a broker's replica of one certain partition may lead it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """The effective settings of topics, by topic name."""

    allows_unclean: Callable[[str], bool]
    """unclean.leader.election.enable."""
    min_insync_replicas: Callable[[str], int]
    """min.insync.replicas, not yet cut to the number of replicas."""
    is_durable: Callable[[str], bool]
    """log.flush.on.acks=fsync: what counted is on disk, so a broker that stopped uncleanly has it still."""


def rules_of(image: MetadataImage, config: ControllerConfig) -> PartitionRules:
    """The settings of topics under an image: a topic's own, else those of all brokers, else this controller's properties.
    One broker's own min.insync.replicas is refused (configs), or its leaders would judge otherwise than the controller."""

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
    """Whether the records of a replica are gone when its broker registers anew: a directory.id stands for what is in it.

    Args:
        before: the directories that the broker was last registered with.
        now: those it has.
        has_offline: it has others that do not work now; what is missing may be in one of them, and come back.
    """
    directory = directory_of(partition, broker_id)
    if not is_reserved(directory):
        return directory not in now and not has_offline
    if directory == LOST_DIRECTORY:
        return True
    if directory == DOUBTED_DIRECTORY:
        # In one of those before, or in the one that failed: another must not have taken its place.
        return set(before) != set(now) or not has_offline
    # Nobody has told where it is: in any of them, so all must be there still. In no other: who registers without one of
    # those it had loses the replica here, and with one that fails later it is doubted.
    return not set(before) <= set(now)


def is_directory_online(image: MetadataImage, partition: PartitionRegistration, broker_id: BrokerId) -> bool:
    """Whether the directory of that replica works; an untold one does, a lost one does not."""
    directory = directory_of(partition, broker_id)
    if is_reserved(directory):
        return directory != LOST_DIRECTORY
    broker = image.cluster.broker(broker_id)
    return broker is not None and directory in broker.directories


def acceptable(
    image: MetadataImage,
    partition: PartitionRegistration,
    *,
    joining: BrokerId | None = None,
    leaving: BrokerId | None = None,
) -> Acceptable:
    """Who may lead the partition. `joining` counts as active and `leaving` does not, whatever the image still says."""

    def is_acceptable(candidate: BrokerId) -> bool:
        if candidate == leaving:
            return False
        is_active = candidate == joining or image.cluster.is_active(candidate)
        return is_active and is_directory_online(image, partition, candidate)

    return is_acceptable
