"""Topics and their partitions as the cluster has agreed on them: image and delta.

May touch:  records, barnabas_wire.kafka.ids, rpds.   Must not touch: asyncio, clock, files, controller.
Invariants: a topic is under its name and under its id, or under neither; maps iterate in no particular order (rpds seeds its
            hash per process), so whoever iterates to decide something sorts first.
Read next:  partition.py, metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import singledispatchmethod

from rpds import HashTrieMap

from barnabas_quorum.image.partition import PartitionRegistration, checked
from barnabas_quorum.image.partition_index import EMPTY_INDEX, PartitionIndex, PartitionIndexDelta
from barnabas_quorum.image.partition_table import updated
from barnabas_quorum.records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuorumRecoveryRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import BrokerId, TopicPartition, Uuid
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic."""

    name: str
    id: Uuid
    partitions: Mapping[int, PartitionRegistration]

    def to_records(self) -> Iterator[Record]:
        """TopicRecord, then its partitions by number."""
        yield TopicRecord(name=self.name, topic_id=self.id)
        for index in sorted(self.partitions):
            yield self.partitions[index].to_record(topic_id=self.id, partition_id=index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsImage:
    """All topics, by name and by id."""

    topics: HashTrieMap[str, TopicImage]
    topics_by_id: HashTrieMap[Uuid, TopicImage]
    index: PartitionIndex = EMPTY_INDEX
    """What is known of all partitions without visiting them."""
    names_by_metric: HashTrieMap[str, str] = field(default_factory=HashTrieMap, compare=False)
    """Topics with '.' or '_' in their names, by the name their metrics go by: no two may share one."""

    @property
    def partition_count(self) -> int:
        """How many partitions all topics have."""
        return self.index.partition_count

    @property
    def replica_counts(self) -> Mapping[BrokerId, int]:
        """How many replicas each broker holds; a broker without any is not in it."""
        return self.index.replica_counts

    def get(self, name: str) -> TopicImage | None:
        """The topic of that name, or None."""
        topic: TopicImage | None = self.topics.get(name)
        return topic

    def get_by_id(self, topic_id: Uuid) -> TopicImage | None:
        """The topic with that id, or None."""
        topic: TopicImage | None = self.topics_by_id.get(topic_id)
        return topic

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """The partition of that topic name and number, or None."""
        topic = self.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def absent(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that are not there. A request may name tens of thousands of one topic: that is looked up once."""
        found: list[TopicPartition] = []
        name: str | None = None
        partitions: Mapping[int, PartitionRegistration] = {}
        for each in wanted:
            if each.topic != name:
                name = each.topic
                topic = self.get(name)
                partitions = {} if topic is None else topic.partitions
            if each.partition not in partitions:
                found.append(each)
        return found

    def sorted_topics(self) -> list[TopicImage]:
        """All topics by name: the order for whoever decides or prints."""
        return sorted(self.topics.values(), key=lambda topic: topic.name)

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for topic in self.sorted_topics():
            yield from topic.to_records()


EMPTY_TOPICS = TopicsImage(topics=HashTrieMap(), topics_by_id=HashTrieMap())


@dataclass(slots=True, kw_only=True)
class TopicDelta:
    """What changed in one topic that exists after the delta."""

    name: str
    id: Uuid
    before: TopicImage | None
    """None when the topic is new."""
    changed: dict[int, PartitionRegistration] = field(default_factory=dict)
    """Partitions that are new or changed, as they are after the delta, in the order of their first change."""

    @property
    def is_new(self) -> bool:
        """Whether the topic did not exist before."""
        return self.before is None

    def partition(self, index: int) -> PartitionRegistration | None:
        """The partition as it is now."""
        found = self.changed.get(index)
        if found is None and self.before is not None:
            return self.before.partitions.get(index)
        return found

    def apply(self) -> TopicImage:
        """The topic after the delta."""
        before = self.before.partitions if self.before is not None else {}
        return TopicImage(name=self.name, id=self.id, partitions=updated(before, self.changed))


class TopicsDelta:
    """Topics that changed, and topics that went, since an image."""

    __slots__ = ("_new_ids", "changed", "deleted", "image")

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self._new_ids: dict[str, Uuid] = {}
        """By name: a delta may hold ten thousand new topics, and each new one asks whether its name is free."""
        self.changed: dict[Uuid, TopicDelta] = {}
        self.deleted: dict[Uuid, TopicImage] = {}
        """As they were in the image before. A topic that came and went within the delta is in neither map."""

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record; a record that does not fit the image is a broken invariant, never skipped."""
        raise TypeError(f"topics have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: TopicRecord) -> None:
        if record.topic_id in self.changed or (
            record.topic_id in self.image.topics_by_id and record.topic_id not in self.deleted
        ):
            raise InvariantViolated(f"topic id {record.topic_id} of {record.name!r} exists already")
        if self.name_is_taken(record.name):
            raise InvariantViolated(f"topic {record.name!r} exists already")
        self.changed[record.topic_id] = TopicDelta(name=record.name, id=record.topic_id, before=None)
        self._new_ids[record.name] = record.topic_id

    @replay.register
    def _(self, record: RemoveTopicRecord) -> None:
        self.remove(record.topic_id)

    @replay.register
    def _(self, record: PartitionRecord) -> None:
        topic = self.topic_delta(record.topic_id)
        if topic.partition(record.partition_id) is not None:
            raise InvariantViolated(f"partition {topic.name}-{record.partition_id} exists already")
        topic.changed[record.partition_id] = checked(PartitionRegistration.of(record))

    @replay.register
    def _(self, record: PartitionChangeRecord) -> None:
        topic = self.topic_delta(record.topic_id)
        partition = topic.partition(record.partition_id)
        if partition is None:
            raise InvariantViolated(f"partition {topic.name}-{record.partition_id} changes but does not exist")
        topic.changed[record.partition_id] = checked(partition.merge(record))

    @replay.register
    def _(self, record: ClearElrRecord) -> None:
        """min.insync.replicas changed. A partition whose ISR is empty keeps its ELR: without a leader no high watermark
        moves, so what it says stays true. The others get a new partition epoch: one state per epoch."""
        for topic_id in self._with_elrs() if record.topic_name == "" else (self._id_of(record.topic_name),):
            if topic_id is None:
                raise InvariantViolated(f"the ELRs of topic {record.topic_name!r} are cleared but it does not exist")
            for index, partition in self._partitions(topic_id):
                if partition.isr and (partition.elr or partition.last_known_elr):
                    self.topic_delta(topic_id).changed[index] = checked(
                        replace(partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1)
                    )

    @replay.register
    def _(self, record: QuorumRecoveryRecord) -> None:
        """Every partition: the only record that costs what the cluster is and not what changes."""
        names = {topic.name: topic.id for topic in self.image.topics.values() if topic.id not in self.deleted}
        names |= {delta.name: topic_id for topic_id, delta in self.changed.items()}
        for name in sorted(names):
            for index, partition in self._partitions(names[name]):
                self.topic_delta(names[name]).changed[index] = partition.after_recovery(record.epoch_gap)

    def _partitions(self, topic_id: Uuid) -> list[tuple[int, PartitionRegistration]]:
        """The partitions of a living topic, as they are now, by number."""
        before, delta = self.image.get_by_id(topic_id), self.changed.get(topic_id)
        partitions = {**(before.partitions if before is not None else {}), **(delta.changed if delta else {})}
        return sorted(partitions.items())

    def _with_elrs(self) -> list[Uuid]:
        """Topics that may have a partition with an ELR: such a partition is not settled. By name."""
        names: dict[str, Uuid] = {delta.name: topic_id for topic_id, delta in self.changed.items()}
        for topic_id, _ in self.image.index.unsettled:
            topic = self.image.get_by_id(topic_id)
            if topic is not None and topic_id not in self.deleted:
                names[topic.name] = topic_id
        return [names[name] for name in sorted(names)]

    def _id_of(self, name: str) -> Uuid | None:
        new_id = self._new_ids.get(name)
        if new_id is not None:
            return new_id
        before = self.image.get(name)
        return None if before is None or before.id in self.deleted else before.id

    def remove(self, topic_id: Uuid) -> str:
        """Replay the removal of a topic; returns its name."""
        before: TopicImage | None = None if topic_id in self.deleted else self.image.get_by_id(topic_id)
        delta = self.changed.pop(topic_id, None)
        if delta is not None and delta.is_new:
            del self._new_ids[delta.name]
        if before is not None:
            self.deleted[topic_id] = before
            return before.name
        if delta is None:
            raise InvariantViolated(f"topic id {topic_id} is removed but does not exist")
        return delta.name

    def topic_delta(self, topic_id: Uuid) -> TopicDelta:
        """The delta of a living topic, begun if need be."""
        delta = self.changed.get(topic_id)
        if delta is None:
            before = None if topic_id in self.deleted else self.image.get_by_id(topic_id)
            if before is None:
                raise InvariantViolated(f"topic id {topic_id} changes but does not exist")
            delta = self.changed[topic_id] = TopicDelta(name=before.name, id=topic_id, before=before)
        return delta

    def compare(self, after: TopicsImage, *, topics_per_step: int) -> Iterator[None]:
        """Make this delta lead from its image to `after`, for whoever loads a snapshot; yields between steps."""
        before = self.image
        for number, topic in enumerate(before.topics.values()):
            if after.get_by_id(topic.id) is None:
                self.deleted[topic.id] = topic
            if number % topics_per_step == 0:
                yield
        for number, topic in enumerate(after.sorted_topics()):
            known = before.get_by_id(topic.id)
            known_partitions = {} if known is None else known.partitions
            changed = {
                index: topic.partitions[index]
                for index in sorted(topic.partitions)
                if known_partitions.get(index) != topic.partitions[index]
            }
            if known is None or changed:
                self.changed[topic.id] = TopicDelta(name=topic.name, id=topic.id, before=known, changed=changed)
            if known is None:
                self._new_ids[topic.name] = topic.id
            if number % topics_per_step == 0:
                yield

    def name_is_taken(self, name: str) -> bool:
        """Whether a topic of that name exists after what was replayed so far."""
        before = self.image.get(name)
        if before is not None and before.id not in self.deleted:
            return True
        return name in self._new_ids

    def apply(self) -> TopicsImage:
        """The image after the delta."""
        topics, topics_by_id = self.image.topics, self.image.topics_by_id
        names_by_metric = self.image.names_by_metric
        index = PartitionIndexDelta(self.image.index)
        for topic_id, gone in self.deleted.items():
            topics = topics.remove(gone.name)
            topics_by_id = topics_by_id.remove(topic_id)
            metric_name = metric_name_of(gone.name)
            if names_by_metric.get(metric_name) == gone.name:
                names_by_metric = names_by_metric.remove(metric_name)
            for number, partition in gone.partitions.items():
                index.change(topic_id, number, partition, None)
        for delta in self.changed.values():
            before = {} if delta.before is None else delta.before.partitions
            for number, partition in delta.changed.items():
                index.change(delta.id, number, before.get(number), partition)
            topic = delta.apply()
            topics = topics.insert(topic.name, topic)
            topics_by_id = topics_by_id.insert(topic.id, topic)
            if delta.is_new and ("." in topic.name or "_" in topic.name):
                names_by_metric = names_by_metric.insert(metric_name_of(topic.name), topic.name)
        return TopicsImage(
            topics=topics, topics_by_id=topics_by_id, index=index.apply(), names_by_metric=names_by_metric
        )


def metric_name_of(name: str) -> str:
    """What metrics call a topic: they know no '.'."""
    return name.replace(".", "_")
