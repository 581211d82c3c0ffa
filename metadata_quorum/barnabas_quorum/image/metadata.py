"""The whole metadata of the cluster at one offset of the metadata log: image, and the delta between two.

May touch:  records and the other files of image/.   Must not touch: asyncio, clock, files, controller.
Invariants: images are immutable; equal records up to equal offsets give equal images on every node (C1), and an
            image written as records and replayed is the same image (C2); an unknown record holds the image.
Read next:  loader.py, which makes images from committed batches; topics.py for the biggest part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import singledispatchmethod
from typing import ClassVar

from barnabas_quorum.image.acls import EMPTY_ACLS, AclsDelta, AclsImage
from barnabas_quorum.image.cluster import EMPTY_CLUSTER, ClusterDelta, ClusterImage
from barnabas_quorum.image.configs import EMPTY_CONFIGS, ConfigsDelta, ConfigsImage
from barnabas_quorum.image.features import EMPTY_FEATURES, FeaturesDelta, FeaturesImage
from barnabas_quorum.image.hashing import EMPTY_HASH, PARTS, ImageHash, PartChange, hash_after
from barnabas_quorum.image.producer_ids import EMPTY_PRODUCER_IDS, ProducerIdsDelta, ProducerIdsImage
from barnabas_quorum.image.quotas import EMPTY_QUOTAS, QuotasDelta, QuotasImage
from barnabas_quorum.image.scram import EMPTY_SCRAM, ScramDelta, ScramImage
from barnabas_quorum.image.tokens import EMPTY_TOKENS, TokensDelta, TokensImage
from barnabas_quorum.image.topics import EMPTY_TOPICS, TopicsDelta, TopicsImage
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuorumRecoveryRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from barnabas_quorum.records_integrity import ImageHashRecord, QuarantineRecord
from barnabas_quorum.records_security import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Everything the cluster has agreed on, up to and including the record at `offset`."""

    EMPTY: ClassVar[MetadataImage]

    offset: Offset
    """The offset of the last record in it; -1 in the empty image."""
    epoch: Epoch
    """Controller epoch of that record."""
    timestamp_ms: int
    """When its batch was appended on the active controller; -1 in the empty image."""
    features: FeaturesImage
    cluster: ClusterImage
    topics: TopicsImage
    configs: ConfigsImage
    producer_ids: ProducerIdsImage
    acls: AclsImage
    quotas: QuotasImage
    scram: ScramImage
    tokens: TokensImage
    hash: ImageHash = field(default=EMPTY_HASH, compare=False)
    """The hash of the content, kept up by every delta: equal on all nodes at equal offset (C1)."""

    def to_records(self) -> Iterator[Record]:
        """Records that, replayed on the empty image, give this content; in one canonical order."""
        yield from self.features.to_records()
        yield from self.cluster.to_records()
        yield from self.topics.to_records()
        yield from self.configs.to_records()
        yield from self.producer_ids.to_records()
        yield from self.acls.to_records()
        yield from self.quotas.to_records()
        yield from self.scram.to_records()
        yield from self.tokens.to_records()

    def content_hash(self) -> bytes:
        """16 bytes over offset, epoch and content."""
        position = b"%d,%d;" % (self.offset, self.epoch)
        return hashlib.blake2b(position + self.hash.digest, digest_size=16).digest()


MetadataImage.EMPTY = MetadataImage(
    offset=NO_OFFSET,
    epoch=NO_EPOCH,
    timestamp_ms=-1,
    features=EMPTY_FEATURES,
    cluster=EMPTY_CLUSTER,
    topics=EMPTY_TOPICS,
    configs=EMPTY_CONFIGS,
    producer_ids=EMPTY_PRODUCER_IDS,
    acls=EMPTY_ACLS,
    quotas=EMPTY_QUOTAS,
    scram=EMPTY_SCRAM,
    tokens=EMPTY_TOKENS,
)


class MetadataDelta:
    """What records changed since an image. A part that no record touched is None."""

    __slots__ = (
        "_replay_of_topics",
        "acls",
        "cluster",
        "configs",
        "features",
        "image",
        "producer_ids",
        "quotas",
        "scram",
        "tokens",
        "topics",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.features: FeaturesDelta | None = None
        self.cluster: ClusterDelta | None = None
        self.topics: TopicsDelta | None = None
        self.configs: ConfigsDelta | None = None
        self.producer_ids: ProducerIdsDelta | None = None
        self.acls: AclsDelta | None = None
        self.quotas: QuotasDelta | None = None
        self.scram: ScramDelta | None = None
        self.tokens: TokensDelta | None = None
        self._replay_of_topics: Callable[[Record], None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no record changed anything (NoOpRecord)."""
        return all(getattr(self, part) is None for part in PARTS)

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record, in log order. Raises TypeError on a record it does not know, InvariantViolated on one
        that does not fit: what it left half done goes with the delta (loader.py)."""
        raise TypeError(f"no replay for {type(record).__name__}")

    @replay.register(NoOpRecord)
    @replay.register(BeginTransactionRecord)
    @replay.register(EndTransactionRecord)
    @replay.register(AbortTransactionRecord)
    @replay.register(ImageHashRecord)
    @replay.register(QuarantineRecord)
    def _(self, record: Record) -> None:
        """No content. What a transaction holds back, or undoes, what is compared and passed over is the loader's business."""
        return None

    @replay.register(FeatureLevelRecord)
    def _(self, record: FeatureLevelRecord) -> None:
        if self.features is None:
            self.features = FeaturesDelta(self.image.features)
        self.features.replay(record)

    @replay.register(RegisterBrokerRecord)
    @replay.register(UnregisterBrokerRecord)
    @replay.register(BrokerRegistrationChangeRecord)
    @replay.register(RegisterControllerRecord)
    @replay.register(UnregisterControllerRecord)
    def _(self, record: Record) -> None:
        if self.cluster is None:
            self.cluster = ClusterDelta(self.image.cluster)
        self.cluster.replay(record)

    @replay.register(TopicRecord)
    @replay.register(PartitionRecord)
    @replay.register(PartitionChangeRecord)
    @replay.register(ClearElrRecord)
    def _(self, record: Record) -> None:
        replay = self._replay_of_topics
        if replay is None:  # looked up once: a singledispatchmethod makes a wrapper each time, 2 of a record's 7 us
            replay = self._replay_of_topics = self._topics().replay
        replay(record)

    @replay.register
    def _(self, record: RemoveTopicRecord) -> None:
        name = self._topics().remove(record.topic_id)
        if self.configs is None:
            self.configs = ConfigsDelta(self.image.configs)
        self.configs.remove_topic(name)

    @replay.register
    def _(self, record: ConfigRecord) -> None:
        if self.configs is None:
            self.configs = ConfigsDelta(self.image.configs)
        self.configs.replay(record)

    @replay.register
    def _(self, record: QuorumRecoveryRecord) -> None:
        self._topics().replay(record)
        self._producer_ids().replay(record)

    @replay.register
    def _(self, record: ProducerIdsRecord) -> None:
        self._producer_ids().replay(record)

    @replay.register(AccessControlEntryRecord)
    @replay.register(RemoveAccessControlEntryRecord)
    def _(self, record: Record) -> None:
        if self.acls is None:
            self.acls = AclsDelta(self.image.acls)
        self.acls.replay(record)

    @replay.register
    def _(self, record: ClientQuotaRecord) -> None:
        if self.quotas is None:
            self.quotas = QuotasDelta(self.image.quotas)
        self.quotas.replay(record)

    @replay.register(UserScramCredentialRecord)
    @replay.register(RemoveUserScramCredentialRecord)
    def _(self, record: Record) -> None:
        if self.scram is None:
            self.scram = ScramDelta(self.image.scram)
        self.scram.replay(record)

    @replay.register(DelegationTokenRecord)
    @replay.register(RemoveDelegationTokenRecord)
    def _(self, record: Record) -> None:
        if self.tokens is None:
            self.tokens = TokensDelta(self.image.tokens)
        self.tokens.replay(record)

    def _producer_ids(self) -> ProducerIdsDelta:
        if self.producer_ids is None:
            self.producer_ids = ProducerIdsDelta(self.image.producer_ids)
        return self.producer_ids

    def _topics(self) -> TopicsDelta:
        if self.topics is None:
            self.topics = TopicsDelta(self.image.topics)
        return self.topics

    def apply(self, offset: Offset, epoch: Epoch, timestamp_ms: int) -> MetadataImage:
        """The image after the delta. `offset` is that of the last record replayed, `epoch` its controller epoch,
        `timestamp_ms` the append time of its batch."""
        image = self.image
        after = replace(
            image,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            features=image.features if self.features is None else self.features.apply(),
            cluster=image.cluster if self.cluster is None else self.cluster.apply(),
            topics=image.topics if self.topics is None else self.topics.apply(),
            configs=image.configs if self.configs is None else self.configs.apply(),
            producer_ids=image.producer_ids if self.producer_ids is None else self.producer_ids.apply(),
            acls=image.acls if self.acls is None else self.acls.apply(),
            quotas=image.quotas if self.quotas is None else self.quotas.apply(),
            scram=image.scram if self.scram is None else self.scram.apply(),
            tokens=image.tokens if self.tokens is None else self.tokens.apply(),
        )
        changes = {
            part: PartChange(delta, getattr(image, part), getattr(after, part))
            for part in PARTS
            if (delta := getattr(self, part)) is not None
        }
        return replace(after, hash=hash_after(image.hash, changes)) if changes else after
