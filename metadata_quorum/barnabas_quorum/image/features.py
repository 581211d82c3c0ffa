"""Finalized feature levels of the cluster: image and delta.

May touch:  records.   Must not touch: asyncio, clock, files, controller.
Invariants: level 0 means absent.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import singledispatchmethod

from barnabas_quorum.records import FeatureLevelRecord, FeatureRange, Record
from barnabas_wire.lazy_dataclass import dataclass

METADATA_VERSION = "metadata.version"
"""The feature that says which records the metadata log may hold, and how brokers speak with each other."""
METADATA_VERSION_LATEST = 8
"""The level this code writes and the highest it reads. Level 1: brokers, topics, partitions, configs, producer ids.
Level 2: also transactions, ACLs, SCRAM credentials, delegation tokens, client quotas, gone controllers, image hashes and
sign-offs of bad records. Level 3: no record more; a leader counts a follower up to the flushed offset that its fetch names.
Level 4: partitions name their faulty replicas, and brokers report them. Level 5: no record more; followers take batches with
offsets missing between them, so leaders may compact. Level 6: brokers may be in maintenance. Level 7: what nodes tell each other
so that nothing is given up without proof. Level 8: configs of what clients push of their metrics."""
METADATA_VERSION_SECURITY = 2
METADATA_VERSION_TRANSACTIONS = 2
METADATA_VERSION_INTEGRITY = 2
METADATA_VERSION_FLUSHED_OFFSETS = 3
METADATA_VERSION_REPLICA_FAULTS = 4
METADATA_VERSION_COMPACTION = 5
METADATA_VERSION_MAINTENANCE = 6
METADATA_VERSION_PROOF = 7
METADATA_VERSION_CLIENT_METRICS = 8
KRAFT_VERSION = "kraft.version"
"""1: voters may come and go. Never raised but by name (KAFKA-18979)."""
ELR_VERSION = "eligible.leader.replicas.version"
"""1: partitions keep eligible leader replicas (KIP-966), and one min.insync.replicas holds for all brokers. This version keeps
them whatever the level; clusters that were made before it reach the level by an upgrade."""
TRANSACTION_VERSION = "transaction.version"
"""1: transactions are served; 0: not yet, for clusters that were made before nodes could, until all of them can. 2: clients end each
transaction with an epoch of its own, and add partitions by writing to them (KIP-890)."""
TRANSACTION_VERSION_LATEST = 2
GROUP_VERSION = "group.version"
"""1: groups of the consumer protocol are served (KIP-848), whose records in __consumer_offsets nodes of level 0 skip."""
STREAMS_VERSION = "streams.version"
"""1: Streams groups are served (KIP-1071), whose records in __consumer_offsets nodes of level 0 skip."""
SHARE_VERSION = "share.version"
"""1: share groups are served (KIP-932), whose records in __consumer_offsets nodes of level 0 skip; 2: with dead letters (KIP-1191),
whose state ARCHIVING leaders of level 1 do not know."""
HOST_VERSION = "barnabas.host.version"
"""1: registrations name the broker's host, which nodes of level 0 skip."""
TWO_PHASE_VERSION = "barnabas.two.phase.version"
"""1: a transaction may be prepared, which __transaction_state then says with a status that nodes of level 0 do not know."""

SUPPORTED_FEATURES: tuple[FeatureRange, ...] = (
    FeatureRange(HOST_VERSION, 0, 1),
    FeatureRange(TWO_PHASE_VERSION, 0, 1),
    FeatureRange(ELR_VERSION, 0, 1),
    FeatureRange(GROUP_VERSION, 0, 1),
    FeatureRange(KRAFT_VERSION, 0, 1),
    FeatureRange(METADATA_VERSION, 1, METADATA_VERSION_LATEST),
    FeatureRange(SHARE_VERSION, 0, 2),
    FeatureRange(STREAMS_VERSION, 0, 1),
    FeatureRange(TRANSACTION_VERSION, 0, TRANSACTION_VERSION_LATEST),
)
"""What this code serves, by name: every node registers with it. A highest level of 0 says that what Kafka puts under that
feature is not built: clients must not hear that it is."""

BOOTSTRAP_LEVELS: Mapping[str, int] = {
    METADATA_VERSION: METADATA_VERSION_LATEST,
    KRAFT_VERSION: 1,
    ELR_VERSION: 1,
    GROUP_VERSION: 1,
    STREAMS_VERSION: 1,
    SHARE_VERSION: 2,
    TRANSACTION_VERSION: TRANSACTION_VERSION_LATEST,
    TWO_PHASE_VERSION: 1,
    HOST_VERSION: 1,
}
"""What a new cluster begins with: as Kafka, the latest of everything; format has written voter sets of kraft.version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesImage:
    """Feature name -> level."""

    levels: Mapping[str, int]

    @property
    def metadata_version(self) -> int:
        """0 before the first controller has written its bootstrap records."""
        return self.levels.get(METADATA_VERSION, 0)

    @property
    def has_transactions(self) -> bool:
        """Whether every node reads metadata transactions."""
        return self.metadata_version >= METADATA_VERSION_TRANSACTIONS

    @property
    def has_integrity_records(self) -> bool:
        """Whether every node reads image hashes and sign-offs."""
        return self.metadata_version >= METADATA_VERSION_INTEGRITY

    @property
    def has_flushed_offsets(self) -> bool:
        """Whether every leader reads the flushed offset in a follower's fetch, and does not take the fetch offset for it."""
        return self.metadata_version >= METADATA_VERSION_FLUSHED_OFFSETS

    @property
    def has_replica_faults(self) -> bool:
        """Whether every node reads the faults of replicas in partition records, and every controller answers reports of them."""
        return self.metadata_version >= METADATA_VERSION_REPLICA_FAULTS

    @property
    def has_compaction(self) -> bool:
        """Whether every follower takes batches with offsets missing between them."""
        return self.metadata_version >= METADATA_VERSION_COMPACTION

    @property
    def has_proof(self) -> bool:
        """Whether every node reads the records, fields and answers of level 7."""
        return self.metadata_version >= METADATA_VERSION_PROOF

    @property
    def is_elr_enabled(self) -> bool:
        """Whether partitions keep eligible leader replicas."""
        return self.levels.get(ELR_VERSION, 0) >= 1

    @property
    def has_consumer_groups(self) -> bool:
        """Whether every node reads the records of groups of the consumer protocol."""
        return self.levels.get(GROUP_VERSION, 0) >= 1

    @property
    def has_streams_groups(self) -> bool:
        """Whether every node reads the records of Streams groups."""
        return self.levels.get(STREAMS_VERSION, 0) >= 1

    @property
    def share_version(self) -> int:
        """0: share groups are off."""
        return self.levels.get(SHARE_VERSION, 0)

    @property
    def has_hosts(self) -> bool:
        """Whether every node reads the host of a registration."""
        return self.levels.get(HOST_VERSION, 0) >= 1

    @property
    def has_prepared_transactions(self) -> bool:
        """Whether every node knows the state of a prepared transaction."""
        return self.levels.get(TWO_PHASE_VERSION, 0) >= 1

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for name in sorted(self.levels):
            yield FeatureLevelRecord(name=name, level=self.levels[name])


EMPTY_FEATURES = FeaturesImage(levels={})


class FeaturesDelta:
    """Features that changed since an image; level 0 = gone."""

    __slots__ = ("changed", "image")

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changed: dict[str, int] = {}

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"features have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: FeatureLevelRecord) -> None:
        self.changed[record.name] = record.level

    @classmethod
    def between(cls, before: FeaturesImage, after: FeaturesImage) -> FeaturesDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for name in sorted(before.levels.keys() | after.levels.keys()):
            level = after.levels.get(name, 0)
            if before.levels.get(name, 0) != level:
                delta.changed[name] = level
        return delta

    def apply(self) -> FeaturesImage:
        """The image after the delta."""
        levels = {**self.image.levels, **self.changed}
        return FeaturesImage(levels={name: level for name, level in levels.items() if level != 0})
