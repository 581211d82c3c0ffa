"""Metadata v0-13 and DescribeTopicPartitions v0: brokers, topics, leaders; topics that a client names may be created.

May touch:  the image, the controller client (auto-creation).    Must not touch: logs, partitions' state.
Invariants: every named topic is answered once; addresses are of the listener that the request came in on.
Read next:  topics.py (creation when asked for), metadata_bodies.py.

Behaviour: null topics (v0: an empty list) means all. An unknown topic is created when the request allows it and
auto.create.topics.enable is set; until this broker has seen it, it is answered LEADER_NOT_AVAILABLE. `controller_id`
names the answering broker: any broker forwards to the controller. A topic that is named twice is answered once; an id
may be asked for from v12 on. Differences from Kafka: the answer to a request that creates a topic waits for it, but no longer
than CREATION_WAIT_S; one request creates at most CREATED_TOPICS_MAX topics, and the client asks again for the others; where
every broker is fenced, the one that answers names itself, since some clients (librdkafka) never ask again once they know none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable

from barnabas_broker.api.cluster import cluster_operations
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.operations import OPERATIONS_UNKNOWN, TOPIC_OPERATIONS
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import BrokerServices, ControlServices
from barnabas_broker.security.access import Access
from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics, CreateTopicsReply
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.rights import CLUSTER, CREATE, DESCRIBE, TOPIC
from barnabas_quorum.image.topics import TopicImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, METADATA_TOPIC, ZERO_UUID, BrokerId
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas_wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_wire.kafka.schema import encode_response

logger = logging.getLogger(__name__)

TOPIC_NAME_MAX = 249
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
TOPIC_IDS_FROM = 12
"""v10 and v11 have the field, but not yet the answer for an id that is unknown (KIP-516)."""
NAMED_TOPICS_MAX = 16_384
"""The most topics that one request names. A client that wants more asks for all."""
CREATION_WAIT_S = 0.5
"""How long an answer waits for topics that its request creates. Without a controller it is the whole wait, and the requests behind
it on the same connection wait, too."""
CREATED_TOPICS_MAX = 100
"""Topics that one request may bring into being by naming them."""
CACHED_TOPICS_MAX = 1000
"""A request that names more topics than this is answered without the cache, whose key would be as long."""


def _error(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or []
    ]
    return MetadataResponse(topics=topics, error_code=error.code)


@handles(
    ApiKey.METADATA,
    versions=(0, 13),
    on_error=_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=NAMED_TOPICS_MAX,
)
def metadata(
    services: BrokerServices, context: RequestContext, request: MetadataRequest
) -> bytes | Awaitable[MetadataResponse]:
    """Answer from the image; go to the controller first when topics shall be created."""
    image = services.metadata.image
    asked = request.topics
    if context.api_version == 0 and not asked:
        asked = None
    if asked:
        if context.api_version < TOPIC_IDS_FROM and any(t.name is None or t.topic_id != ZERO_UUID for t in asked):
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"topics are named by id from v{TOPIC_IDS_FROM} on")
        if len(asked) > 1:
            asked = list({(topic.name, topic.topic_id): topic for topic in asked}.values())
    if asked and request.allow_auto_topic_creation and services.config.auto_create_topics_enable:
        missing = [name for name in _creatable(image, asked) if context.access.may(DESCRIBE, TOPIC, name)]
        if missing:
            return _create_and_answer(services, context, request, asked, missing)
    key = (
        None
        if (asked is not None and len(asked) > CACHED_TOPICS_MAX) or not context.access.is_open
        else (
            context.api_version,
            (context.listener_name, context.reached_at),
            None if asked is None else tuple([(topic.name, topic.topic_id) for topic in asked]),
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
        )
    )
    if key is not None:
        body = services.metadata_bodies.get(image, key)
        if body is not None:
            return body
    out = bytearray()
    encode_response(_answer(services, context, request, image, asked), context.api_version, out)
    body = bytes(out)
    if key is not None:
        services.metadata_bodies.put(image, key, body)
    return body


def is_valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 letters, digits, dots, underscores and dashes; neither "." nor ".."."""
    return 0 < len(name) <= TOPIC_NAME_MAX and name not in (".", "..") and _NAME_CHARACTERS.issuperset(name)


def _creatable(image: MetadataImage, asked: Iterable[MetadataRequestTopic]) -> list[str]:
    """Names that do not exist and that a client may bring into being by asking. Internal topics are not among them."""
    found: dict[str, None] = {}
    known = image.topics.topics
    for topic in asked:
        name = topic.name
        if (
            name is not None
            and name not in known
            and topic.topic_id == ZERO_UUID
            and name not in INTERNAL_TOPICS
            and name != METADATA_TOPIC
            and is_valid_topic_name(name)
        ):
            found[name] = None
    return list(found)


async def _create_and_answer(
    services: BrokerServices,
    context: RequestContext,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    missing: list[str],
) -> MetadataResponse:
    config = services.config
    access = context.access
    refused = dict.fromkeys(missing, int(ErrorCode.LEADER_NOT_AVAILABLE))  # retriable: the client asks again
    if not access.may(CREATE, CLUSTER, is_noted=False):
        for name in missing:
            if not access.may(CREATE, TOPIC, name):
                refused[name] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        missing = [name for name in missing if refused[name] != ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    wanted = tuple(
        CreatableTopic(
            name=name, partition_count=config.num_partitions, replication_factor=config.default_replication_factor
        )
        for name in missing[:CREATED_TOPICS_MAX]
    )
    try:
        async with asyncio.timeout(CREATION_WAIT_S):
            reply = CreateTopicsReply(topics=())
            if wanted:
                reply = await services.ask(context, CreateTopics(topics=wanted))
    except (KafkaError, TimeoutError) as error:
        logger.debug("topics are not created yet for a client that named them: %r", error)
    else:
        for topic in reply.topics:
            exists = topic.error is None or topic.error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            refused[topic.name] = int(ErrorCode.LEADER_NOT_AVAILABLE if exists else topic.error.code)  # type: ignore[union-attr]
    response = _answer(services, context, request, services.metadata.image, asked)
    for entry in response.topics:
        if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and entry.name in refused:
            entry.error_code = refused[entry.name]
    return response


def _answer(
    services: BrokerServices,
    context: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    asked: list[MetadataRequestTopic] | None,
) -> MetadataResponse:
    brokers = []
    reachable = set()
    registered = image.cluster.sorted_brokers()
    named = [broker for broker in registered if not broker.is_fenced]
    for broker in named or [broker for broker in registered if broker.id == services.node_id]:
        endpoint = context.endpoint_of(broker, node_id=services.node_id)
        if endpoint is not None:
            reachable.add(broker.id)
            brokers.append(
                MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    if asked is None:
        topics = [
            _topic(topic, image, reachable)
            for topic in image.topics.sorted_topics()
            if context.access.may(DESCRIBE, TOPIC, topic.name, is_noted=False)
        ]
    else:
        topics = [_asked_topic(context.access, entry, image, reachable) for entry in asked]
    if request.include_topic_authorized_operations:
        for answered in topics:
            if answered.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                answered.topic_authorized_operations = context.access.operations(
                    TOPIC_OPERATIONS, TOPIC, answered.name or ""
                )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=services.cluster_id,
        controller_id=services.node_id if services.node_id in reachable else min(reachable, default=-1),
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context.access) if request.include_cluster_authorized_operations else OPERATIONS_UNKNOWN
        ),
    )


def _asked_topic(
    access: Access, entry: MetadataRequestTopic, image: MetadataImage, reachable: set[BrokerId]
) -> MetadataResponseTopic:
    if entry.name is None or entry.topic_id != ZERO_UUID:
        topic = image.topics.get_by_id(entry.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=entry.topic_id)
        if not access.may(DESCRIBE, TOPIC, topic.name):
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=entry.topic_id
            )
        return _topic(topic, image, reachable)
    if not access.may(DESCRIBE, TOPIC, entry.name):  # whether it is there or not
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=entry.name)
    topic = image.topics.get(entry.name)
    if topic is not None:
        return _topic(topic, image, reachable)
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid_topic_name(entry.name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return MetadataResponseTopic(error_code=code, name=entry.name)


def _topic(topic: TopicImage, image: MetadataImage, reachable: set[BrokerId]) -> MetadataResponseTopic:
    partitions = []
    for index in sorted(topic.partitions):
        partition = topic.partitions[index]
        partitions.append(
            MetadataResponsePartition(
                error_code=_partition_error(partition, reachable),
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=_offline(partition, image),
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )


def _partition_error(partition: PartitionRegistration, reachable: set[BrokerId]) -> int:
    if not partition.has_leader:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if partition.leader in reachable else ErrorCode.LISTENER_NOT_FOUND


def _offline(partition: PartitionRegistration, image: MetadataImage) -> list[int]:
    offline: list[int] = []
    for replica in partition.replicas:
        broker = image.cluster.broker(replica)
        if broker is None or broker.is_fenced:
            offline.append(replica)
    return offline


@handles(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    on_error=lambda request, error: DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics
        ]
    ),
)
def describe_topic_partitions(
    services: ControlServices, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Partitions page by page, topics in order of name; `next_cursor` says where the next page begins (KIP-966)."""
    image = services.metadata.image
    reachable = {
        broker.id
        for broker in image.cluster.sorted_brokers()
        if not broker.is_fenced and broker.endpoint(context.listener_name) is not None
    }
    names = {topic.name for topic in request.topics} or {
        name for name in image.topics.topics if context.access.may(DESCRIBE, TOPIC, name, is_noted=False)
    }
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "the cursor names no partition of the topics asked for")
        names = {name for name in names if name >= cursor.topic_name}
    left = max(1, min(request.response_partition_limit, services.config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        if not context.access.may(DESCRIBE, TOPIC, name):
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    name=name,
                    topic_id=ZERO_UUID,
                    topic_authorized_operations=OPERATIONS_UNKNOWN,
                )
            )
            continue
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_undescribed(context.access, name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        indexes = [index for index in sorted(topic.partitions) if index >= start]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=[_described(index, topic.partitions[index], image, reachable) for index in indexes[:left]],
                topic_authorized_operations=context.access.operations(TOPIC_OPERATIONS, TOPIC, name),
            )
        )
        if len(indexes) > left:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
    return response


def _undescribed(access: Access, name: str) -> DescribeTopicPartitionsResponseTopic:
    is_valid = is_valid_topic_name(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        topic_authorized_operations=access.operations(TOPIC_OPERATIONS, TOPIC, name)
        if is_valid
        else OPERATIONS_UNKNOWN,
    )


def _described(
    index: int, partition: PartitionRegistration, image: MetadataImage, reachable: set[BrokerId]
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=_partition_error(partition, reachable),
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=_offline(partition, image),
    )
