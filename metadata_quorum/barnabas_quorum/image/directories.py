"""Which log directory holds a replica, as the cluster knows it (KIP-858).

May touch:  its arguments.            Must not touch: everything else.
Invariants: an id below RESERVED_DIRECTORY_IDS is no directory of any broker; a replica that nobody has reported is in the
            unassigned one.
Read next:  topics.py; controller/partition_rules.py, what follows from it for who may lead.
"""

from __future__ import annotations

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import BrokerId, Uuid

RESERVED_DIRECTORY_IDS = 100
"""Directory ids below this number mean something else than a directory (KIP-858): MIGRATING, UNASSIGNED, LOST, …"""
UNASSIGNED_DIRECTORY = Uuid((1).to_bytes(16, "big"))
"""The directory of a replica whose broker has more than one and has not said which (KIP-858)."""
LOST_DIRECTORY = Uuid((2).to_bytes(16, "big"))
"""The directory of a replica that is known to be in none that works (KIP-858)."""
DOUBTED_DIRECTORY = Uuid((3).to_bytes(16, "big"))
"""The directory of a replica whose broker had not said which when one of them failed: it may have been that. Kafka has no such id:
there the broker must report first, and one that dies before it has is taken to have the replica still."""


def directory_of(partition: PartitionRegistration, broker_id: BrokerId) -> Uuid:
    """Where the broker keeps its replica, as far as the cluster knows."""
    for replica, directory in zip(partition.replicas, partition.directories, strict=False):
        if replica == broker_id:
            return directory
    return UNASSIGNED_DIRECTORY


def is_reserved(directory: Uuid) -> bool:
    """Whether the id stands for no directory of any broker."""
    return int.from_bytes(directory, "big") < RESERVED_DIRECTORY_IDS


def is_directory_online(image: MetadataImage, partition: PartitionRegistration, broker_id: BrokerId) -> bool:
    """Whether the directory of that replica works; an unreported one does, a lost one does not."""
    directory = directory_of(partition, broker_id)
    if is_reserved(directory):
        return directory != LOST_DIRECTORY
    broker = image.cluster.broker(broker_id)
    return broker is not None and directory in broker.directories
