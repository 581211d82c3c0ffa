"""What an image asks of this broker's replicas: which to remove, lead, follow, postpone, and which logs to set aside. Pure.

May touch:  its arguments.                Must not touch: logs, partitions, asyncio.
Invariants: nothing on disk is given up on the word of an image that does not know this incarnation of the broker; every
            change ends in exactly one list of the plan.
Read next:  hosting.py, which obeys in the order remove, postpone, lead, follow; log_placement.py for new logs.

Not obvious:
- A restarted broker gets older images first. In them a topic may be the one before the one that its log is of, or its
  replicas others. What such an image would have us remove is postponed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas_quorum.image.cluster import ClusterImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.topics import TopicsDelta, TopicsImage
from barnabas_replication.hosting.log_placement import is_stray
from barnabas_wire.kafka.ids import BrokerId, TopicPartition, Uuid


class Change(NamedTuple):
    """One partition as the image now has it."""

    topic_partition: TopicPartition
    topic_id: Uuid
    registration: PartitionRegistration


class Removal(NamedTuple):
    """A partition of that topic that this broker has no replica of any more."""

    topic_partition: TopicPartition
    topic_id: Uuid


class Plan(NamedTuple):
    """What is to be done about the changes, in the order of the fields."""

    remove: list[Removal]
    postpone: list[TopicPartition]
    """Partitions to be looked at again under a newer image."""
    lead: list[Change]
    follow: list[Change]


def plan(
    changes: Iterable[Change],
    *,
    broker_id: BrokerId,
    log_topic_id: Callable[[TopicPartition], Uuid | None],
    is_present: bool,
) -> Plan:
    """Sort the changes by what they ask for.

    Args:
        log_topic_id: the topic that the partition's log on disk is of; None without a log.
        is_present: whether the image knows this incarnation of the broker, see `is_present_incarnation`.
    """
    found = Plan([], [], [], [])
    for change in changes:
        topic_partition, topic_id, registration = change
        if broker_id not in registration.replicas:
            if not is_present and log_topic_id(topic_partition) == topic_id:
                found.postpone.append(topic_partition)
            else:
                found.remove.append(Removal(topic_partition, topic_id))
        elif registration.leader == broker_id:
            found.lead.append(change)
        else:
            found.follow.append(change)
    return found


def changes_of(delta: TopicsDelta) -> Iterator[Change]:
    """Every partition that the delta makes or changes."""
    for topic in delta.changed.values():
        for number, registration in topic.changed.items():
            yield Change(TopicPartition(topic.name, number), topic.id, registration)


def deleted_of(delta: TopicsDelta) -> Iterator[Removal]:
    """Every partition of the topics that the delta deletes."""
    for gone in delta.deleted.values():
        for number in sorted(gone.partitions):
            yield Removal(TopicPartition(gone.name, number), gone.id)


def as_of(topics: TopicsImage, postponed: Iterable[TopicPartition]) -> Iterator[Change]:
    """The postponed partitions as the image has them now, without those that are gone."""
    for topic_partition in postponed:
        topic = topics.get(topic_partition.topic)
        registration = None if topic is None else topic.partitions.get(topic_partition.partition)
        if topic is not None and registration is not None:
            yield Change(topic_partition, topic.id, registration)


def strays(
    log_topic_ids: Mapping[TopicPartition, Uuid],
    topics: TopicsImage,
    *,
    broker_id: BrokerId,
    is_hosted: Callable[[TopicPartition], bool],
) -> list[TopicPartition]:
    """Logs on disk to be set aside: no delta names topics that were deleted, and partitions that moved away, while this
    broker was down. Ask only with an image that knows this incarnation."""
    found = []
    for topic_partition, log_topic_id in log_topic_ids.items():
        if is_hosted(topic_partition):
            continue
        topic = topics.get(topic_partition.topic)
        if is_stray(
            log_topic_id,
            topic_id=None if topic is None else topic.id,
            partition=None if topic is None else topic.partitions.get(topic_partition.partition),
            broker_id=broker_id,
        ):
            found.append(topic_partition)
    return found


def is_present_incarnation(cluster: ClusterImage, broker_id: BrokerId, broker_epoch: int) -> bool:
    """Whether the image knows the registration of this very process, and so all that an earlier incarnation saw."""
    me = cluster.brokers.get(broker_id)
    return me is not None and me.epoch == broker_epoch


def was_made_since(first: TopicsImage | None, topics: TopicsImage, topic_partition: TopicPartition) -> bool:
    """Whether the partition was made after `first`, the first image that knew this incarnation (None before there is one):
    no earlier incarnation can have had a log of it."""
    topic = topics.get(topic_partition.topic)
    if first is None or topic is None:
        return False
    then = first.get_by_id(topic.id)
    return then is None or topic_partition.partition not in then.partitions
