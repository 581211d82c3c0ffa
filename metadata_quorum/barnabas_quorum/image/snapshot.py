"""An image as records and back: what a snapshot of the metadata holds, and what changed for whoever missed the records.

May touch:  record_codec, the other files of image/.   Must not touch: asyncio, clock, files, batches.
Invariants: an image written and read again is the same image (C2); the delta from an image to a loaded one names every
            removal too, so that a publisher which knew the old image knows the new one after it.
Read next:  loader.py.

Everything that is long is a generator of short steps: a node that loads 100 000 partitions must still answer its peers.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from barnabas_quorum.image.acls import AclsDelta
from barnabas_quorum.image.bad_records import FOLLOWING_MAX, BadRecord, UnreplayableSnapshot, bad_record_in_snapshot
from barnabas_quorum.image.cluster import ClusterDelta
from barnabas_quorum.image.configs import ConfigsDelta
from barnabas_quorum.image.features import FeaturesDelta
from barnabas_quorum.image.log_content import SnapshotContent
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.producer_ids import ProducerIdsDelta
from barnabas_quorum.image.quotas import QuotasDelta
from barnabas_quorum.image.scram import ScramDelta
from barnabas_quorum.image.tokens import TokensDelta
from barnabas_quorum.image.topics import TopicsDelta
from barnabas_quorum.record_codec import decode, encode
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, Offset

RECORDS_PER_GROUP = 200
"""Records of one batch of a snapshot: about 5 ms to encode (measured), which the control lane may stand still."""
GROUP_BYTES_MAX = 512 * 1024
GROUPS_PER_APPLY = 10
"""Groups that are replayed between two images on the way to the whole one."""
TOPICS_PER_STEP = 200
"""Topics that are compared between two rests."""

DELTAS: dict[str, Any] = {
    "features": FeaturesDelta,
    "cluster": ClusterDelta,
    "configs": ConfigsDelta,
    "producer_ids": ProducerIdsDelta,
    "acls": AclsDelta,
    "quotas": QuotasDelta,
    "scram": ScramDelta,
    "tokens": TokensDelta,
}
"""Every part of an image but the topics, which are many, with the class whose `between` compares two."""


def record_groups(image: MetadataImage) -> Iterator[list[bytes]]:
    """The encoded records of an image, in groups that one batch takes. The image is immutable: take your time."""
    group: list[bytes] = []
    size = 0
    for record in image.to_records():
        data = encode(record)
        if group and (len(group) == RECORDS_PER_GROUP or size + len(data) > GROUP_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(data)
        size += len(data)
    if group:
        yield group


class BadSnapshotRecord(Exception):
    """A record of a snapshot cannot be replayed."""

    def __init__(self, index: int, data: bytes, cause: Exception) -> None:
        super().__init__(f"record {index}: {cause}")
        self.index = index
        self.data = data
        self.cause = cause


def loaded_delta(
    groups: Iterable[Sequence[bytes]], without: Container[int] = ()
) -> Generator[None, None, MetadataDelta]:
    """Replay the groups of a snapshot on the empty image; yields after each, to rest between. Returns a delta that makes
    the whole image when it is applied; it is applied now and then on the way, or the last step would be a long one.

    Args:
        without: records to pass over, by their number in the snapshot.

    Raises BadSnapshotRecord; what the failed replay left half done goes with the delta.
    """
    delta = MetadataDelta(MetadataImage.EMPTY)
    index = -1
    for number, group in enumerate(groups, 1):
        replay = delta.replay  # a singledispatchmethod makes a wrapper each time it is looked up
        for data in group:
            index += 1
            if without and index in without:
                continue
            try:
                replay(decode(data))
            except Exception as error:  # the edge of one record, as in the loader
                raise BadSnapshotRecord(index, data, error) from error
        yield
        if number % GROUPS_PER_APPLY == 0:
            delta = MetadataDelta(delta.apply(NO_OFFSET, NO_EPOCH, -1))
            yield
    return delta


def difference(old: MetadataImage, new: MetadataImage) -> Generator[None, None, MetadataDelta]:
    """What leads from one image to another, returned after short steps with a yield between.

    `delta.image` is `old`; a part that is equal in both is None, as if no record had touched it.
    """
    delta = MetadataDelta(old)
    for name, kind in DELTAS.items():
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            setattr(delta, name, kind.between(before, after))
        yield
    topics = TopicsDelta(old.topics)
    yield from topics.compare(new.topics, topics_per_step=TOPICS_PER_STEP)
    if topics.changed or topics.deleted:
        delta.topics = topics
    return delta


def in_one_go(steps: Generator[None, None, MetadataDelta]) -> MetadataDelta:
    """What a generator of short steps returns, without a rest between them: for whoever has nothing else to do meanwhile."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            delta: MetadataDelta = end.value
            return delta


def image_of(snapshot: SnapshotContent) -> Generator[None, None, tuple[MetadataImage | None, list[BadRecord]]]:
    """What a snapshot makes, without the records that cannot be replayed, and those; no image when there are too many. Loads it
    again for each of them, so that nothing half done is left. Raises UnreplayableSnapshot when no image comes of it."""
    bad: dict[int, BadRecord] = {}
    while len(bad) <= FOLLOWING_MAX:
        try:
            loaded = yield from loaded_delta(snapshot.groups(), bad)
            image = loaded.apply(Offset(snapshot.end_offset - 1), snapshot.epoch, snapshot.timestamp_ms)
        except BadSnapshotRecord as failed:
            bad[failed.index] = bad_record_in_snapshot(snapshot, failed.index, failed.data, failed.cause)
        except (KafkaError, OSError):
            raise  # of `groups`
        except Exception as error:  # of one of its records, as in a delta of the log
            raise UnreplayableSnapshot(
                f"no image comes of snapshot {snapshot.end_offset}-{snapshot.epoch}: {error!r}"
            ) from error
        else:
            return image, list(bad.values())
    first, *others = bad.values()
    why = (
        f"{first.error}; and so it is with {FOLLOWING_MAX} or more others, too many to sign off: run the version of Barnabas that "
        "wrote this snapshot, or have another node lead that has read it"
    )
    return None, [replace(first, error=why), *others]
