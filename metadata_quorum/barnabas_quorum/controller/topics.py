"""Topics: create, delete, grow. Image in, records out.

May touch:  image, placement, configs.   Must not touch: everything that waits.
Invariants: a topic is created completely or not at all (all its records in one batch); a name is taken from its TopicRecord
            to its RemoveTopicRecord, an id is never reused; partitions are only ever added, to the topics of coordinators never.
Read next:  placement.py, image/topics.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from barnabas_quorum.controller.configs import validated_topic_configs
from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.limits import check_limits
from barnabas_quorum.controller.partition_rules import replica_directory
from barnabas_quorum.controller.placement import PlaceableBroker, place_replicas
from barnabas_quorum.controller.requests import (
    CreatableTopic,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsReply,
    GrownTopic,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicImage, metric_name_of
from barnabas_quorum.records import (
    EPOCHS_PER_RECOVERY,
    FIRST_LEADER_EPOCH,
    ConfigRecord,
    ConfigResourceType,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, BrokerId, Epoch, Uuid

TOPIC_NAME_CHARS_MAX = 249
"""So that `<name>-<partition>` and its suffixes fit into a file name of 255 bytes."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_RESERVED_TOPIC_IDS = 100
"""Topic ids below this number are reserved: zero means none, one is the metadata topic."""


@decides(CreateTopics)
def create_topics(
    image: MetadataImage, request: CreateTopics, context: DecisionContext
) -> ControllerResult[CreateTopicsReply]:
    """Each topic succeeds or fails on its own: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION, INVALID_REQUEST."""
    names = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    replies: list[CreatedTopic] = []
    placed: list[tuple[BrokerId, ...]] = []
    taken: dict[str, str] = {}
    for topic in request.topics:
        try:
            if names[topic.name] > 1:
                raise KafkaError.of(
                    ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice in one request; name it once"
                )
            check_topic_name(topic.name)
            _check_name_is_free(image, topic.name, taken)
            assignments = _assignments(image, topic, context)
            check_limits(image, context.limits, topic.name, assignments, present=0, also=placed)
            configs = validated_topic_configs(image, topic.name, topic.configs, context.validators)
            _check_size(len(records) + 1 + len(assignments) + len(topic.configs), context)
        except KafkaError as refusal:
            replies.append(CreatedTopic(name=topic.name, error=refusal))
            continue
        placed += assignments
        taken[metric_name_of(topic.name)] = topic.name
        topic_id = new_topic_id(image, context.random)
        records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        records += _partition_records(image, topic_id, assignments, first_index=0)
        records += _config_records(topic.name, configs)
        replies.append(
            CreatedTopic(
                name=topic.name,
                topic_id=topic_id,
                partition_count=len(assignments),
                replication_factor=len(assignments[0]),
                configs=configs,
            )
        )
    return ControllerResult(
        records=[] if request.validate_only else records, response=CreateTopicsReply(topics=tuple(replies))
    )


@decides(DeleteTopics)
def delete_topics(
    image: MetadataImage, request: DeleteTopics, context: DecisionContext
) -> ControllerResult[DeleteTopicsReply]:
    """Each topic succeeds or fails on its own: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST."""
    records: list[Record] = []
    replies: list[DeletedTopic] = []
    gone: set[Uuid] = set()
    for reference in request.topics:
        try:
            topic = _find(image, reference)
            if topic.id in gone:
                raise KafkaError.of(
                    ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice in one request; name it once"
                )
        except KafkaError as refusal:
            replies.append(DeletedTopic(name=reference.name, topic_id=reference.topic_id, error=refusal))
            continue
        gone.add(topic.id)
        records.append(RemoveTopicRecord(topic_id=topic.id))
        replies.append(DeletedTopic(name=topic.name, topic_id=topic.id))
    return ControllerResult(records=records, response=DeleteTopicsReply(topics=tuple(replies)))


@decides(CreatePartitions)
def create_partitions(
    image: MetadataImage, request: CreatePartitions, context: DecisionContext
) -> ControllerResult[CreatePartitionsReply]:
    """Each topic succeeds or fails on its own: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, POLICY_VIOLATION, INVALID_REQUEST."""
    names = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    replies: list[GrownTopic] = []
    placed: list[tuple[BrokerId, ...]] = []
    for growth in request.topics:
        try:
            if names[growth.name] > 1:
                raise KafkaError.of(
                    ErrorCode.INVALID_REQUEST, f"topic {growth.name!r} is named twice in one request; name it once"
                )
            topic = _find(image, TopicReference(name=growth.name))
            _check_may_grow(topic)
            assignments = _growth_assignments(image, topic, growth, context)
            check_limits(image, context.limits, topic.name, assignments, present=len(topic.partitions), also=placed)
            _check_size(len(records) + len(assignments), context)
        except KafkaError as refusal:
            replies.append(GrownTopic(name=growth.name, error=refusal))
            continue
        placed += assignments
        records += _partition_records(
            image, topic.id, assignments, first_index=len(topic.partitions), leader_epoch=_epoch_of_growth(topic)
        )
        replies.append(GrownTopic(name=growth.name))
    return ControllerResult(
        records=[] if request.validate_only else records, response=CreatePartitionsReply(topics=tuple(replies))
    )


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION if no topic may have that name, INVALID_REQUEST if it is the quorum's."""

    def refuse(reason: str) -> KafkaError:
        return KafkaError.of(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r} {reason}")

    if not name:
        raise refuse("is empty; give it at least one character")
    if name in (".", ".."):
        raise refuse("means a directory; choose another")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise refuse(f"has {len(name)} characters; at most {TOPIC_NAME_CHARS_MAX} fit")
    if _LEGAL_NAME.fullmatch(name) is None:
        raise refuse("has a character other than a-z A-Z 0-9 . _ -; remove it")
    if name == METADATA_TOPIC:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"topic {name!r} is the cluster's metadata log; choose another name"
        )


def new_topic_id(image: MetadataImage, random: Random) -> Uuid:
    """A random id that no topic has. Its text never begins with '-', which command lines would read as an option."""
    while True:
        topic_id = Uuid(random.randbytes(16))
        is_reserved = int.from_bytes(topic_id, "big") < _RESERVED_TOPIC_IDS or topic_id == METADATA_TOPIC_ID
        if not is_reserved and not str(topic_id).startswith("-") and image.topics.get_by_id(topic_id) is None:
            return topic_id


def _check_name_is_free(image: MetadataImage, name: str, also_taken: Mapping[str, str]) -> None:
    """`also_taken`: names that the same request uses already, by metric name."""
    if image.topics.get(name) is not None:
        raise KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    if "." not in name and "_" not in name:
        return
    # two such topics would share their metrics
    metric_name = metric_name_of(name)
    other = image.topics.names_by_metric.get(metric_name) or also_taken.get(metric_name)
    if other is not None:
        raise KafkaError.of(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} differs from topic {other!r} only in '.' and '_'; choose another",
        )


def _assignments(image: MetadataImage, topic: CreatableTopic, context: DecisionContext) -> list[tuple[BrokerId, ...]]:
    if topic.assignments:
        if topic.partition_count != -1 or topic.replication_factor != -1:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name!r} has both replica assignments and counts; set the counts to -1",
            )
        if sorted(topic.assignments) != list(range(len(topic.assignments))):
            raise KafkaError.of(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic {topic.name!r}: the assigned partitions {sorted(topic.assignments)} are not 0, 1, 2, …; leave no gap",
            )
        chosen = [tuple(topic.assignments[index]) for index in range(len(topic.assignments))]
        _check_assignments(image, chosen, replication_factor=len(chosen[0]))
        return chosen
    if topic.partition_count < 1:
        raise KafkaError.of(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r}: {topic.partition_count} partitions; at least 1 is needed",
        )
    if topic.replication_factor < 1:
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r}: replication factor {topic.replication_factor}; at least 1 is needed",
        )
    _check_size(topic.partition_count, context)
    return place_replicas(
        _placeable(image),
        partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        random=context.random,
    )


def _check_may_grow(topic: TopicImage) -> None:
    """Coordinators find a group or a transactional id by its hash modulo the count: with another count they would look for nearly
    all of them where nothing is, and begin again there. Kafka lets such a topic grow."""
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError.of(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} keeps its {len(topic.partitions)} partitions: with more of them, groups and transactions would be "
            "looked for where they are not; size it before it is made, by offsets.topic.num.partitions, "
            "transaction.state.log.num.partitions or share.coordinator.state.topic.num.partitions",
        )


def _growth_assignments(
    image: MetadataImage, topic: TopicImage, growth: TopicGrowth, context: DecisionContext
) -> list[tuple[BrokerId, ...]]:
    more = growth.partition_count - len(topic.partitions)
    if more <= 0:
        raise KafkaError.of(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {len(topic.partitions)} partitions and can only grow, "
            f"not become {growth.partition_count}",
        )
    _check_size(more, context)
    replication_factor = len(topic.partitions[0].replicas)
    if not growth.assignments:
        return place_replicas(
            _placeable(image), partition_count=more, replication_factor=replication_factor, random=context.random
        )
    if len(growth.assignments) != more:
        raise KafkaError.of(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name!r} gains {more} partitions, but {len(growth.assignments)} are assigned",
        )
    chosen = [tuple(replicas) for replicas in growth.assignments]
    _check_assignments(image, chosen, replication_factor=replication_factor)
    return chosen


def _check_assignments(
    image: MetadataImage, assignments: Sequence[tuple[BrokerId, ...]], *, replication_factor: int
) -> None:
    for replicas in assignments:
        unknown = [replica for replica in replicas if image.cluster.broker(replica) is None]
        reason = None
        if not replicas:
            reason = "is empty; name at least one broker"
        elif len(set(replicas)) != len(replicas):
            reason = "names a broker twice"
        elif len(replicas) != replication_factor:
            reason = f"must have {replication_factor} replicas like the topic's other partitions"
        elif unknown:
            reason = f"names brokers that are not registered: {unknown}"
        elif not any(image.cluster.is_active(replica) for replica in replicas):
            reason = "names only fenced brokers, so nobody could lead; wait for one to come up"
        if reason is not None:
            raise KafkaError.of(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"assignment {list(replicas)} {reason}")


def _check_size(records: int, context: DecisionContext) -> None:
    if records > context.transaction_records_max:
        raise KafkaError.of(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create at most {context.transaction_records_max} topics, partitions and configs together; "
            "split it into several",
        )


def _placeable(image: MetadataImage) -> list[PlaceableBroker]:
    return [
        PlaceableBroker(broker.id, broker.rack, broker.is_active and not broker.is_in_maintenance, broker.host)
        for broker in image.cluster.sorted_brokers()
    ]


def _epoch_of_growth(topic: TopicImage) -> Epoch:
    """The leader epoch of a topic's new partitions. Voters that a recovery left behind may have grown the same topic with other
    records. Their epochs are below the gap that the recovery put before this topic's partitions."""
    highest = max(partition.leader_epoch for partition in topic.partitions.values())
    return Epoch(highest // EPOCHS_PER_RECOVERY * EPOCHS_PER_RECOVERY)


def _partition_records(
    image: MetadataImage,
    topic_id: Uuid,
    assignments: Sequence[tuple[BrokerId, ...]],
    *,
    first_index: int,
    leader_epoch: Epoch = FIRST_LEADER_EPOCH,
) -> list[Record]:
    """Active replicas are in the first ISR; the first of them leads. The caller has checked that there is one."""
    records: list[Record] = []
    for offset, replicas in enumerate(assignments):
        isr = tuple(replica for replica in replicas if image.cluster.is_active(replica))
        records.append(
            PartitionRecord(
                topic_id=topic_id,
                partition_id=first_index + offset,
                replicas=replicas,
                directories=tuple(replica_directory(image, replica) for replica in replicas),
                isr=isr,
                leader=isr[0],
                leader_epoch=leader_epoch,
            )
        )
    return records


def _config_records(topic: str, configs: Mapping[str, str]) -> list[Record]:
    return [
        ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic, key=key, value=configs[key])
        for key in sorted(configs)
    ]


def _find(image: MetadataImage, reference: TopicReference) -> TopicImage:
    if reference.name is not None and reference.topic_id != ZERO_UUID:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id, not by both")
    if reference.name is not None:
        topic = image.topics.get(reference.name)
        if topic is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {reference.name!r} does not exist")
        return topic
    topic = image.topics.get_by_id(reference.topic_id)
    if topic is None:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {reference.topic_id}")
    return topic
