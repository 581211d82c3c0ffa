"""CreateTopics v2-7, DeleteTopics v1-6, CreatePartitions v0-3: checked for shape here, decided by the controller.

May touch:  the controller client, defaults of ApiConfig.    Must not touch: the image beyond reading, logs.
Invariants: every topic of a request is answered once; a name given twice is refused and not sent.
Read next:  metadata_quorum/controller/topics.py, which decides.

Behaviour: any broker takes these requests and forwards them; -1 for partitions or replicas means the broker's default
(KIP-464). A topic that one request names twice, be it by name and by id, is left alone. Answers come when the change is
committed, or REQUEST_TIMED_OUT after the client's time-out. Differences from Kafka: CreateTopics v5+ lists the effective
configs like DescribeConfigs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable
from typing import TypeVar

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.config_entries import TopicEntries
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import ControlServices
from barnabas_quorum.controller.requests import (
    CreatableTopic,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.image.rights import ALTER, CLUSTER, CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, TOPIC
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import create_topics as create_messages
from barnabas_wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas_wire.kafka.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas_wire.kafka.schema import encode_element, join_elements

T = TypeVar("T")

STRICT_CREATION_FROM, STRICT_DELETION_FROM, STRICT_GROWTH_FROM = 6, 5, 3
"""First versions whose clients know THROTTLING_QUOTA_EXCEEDED."""
CREATED_PER_TURN = 50
"""Created topics described before other requests get their turn: each lists forty configs."""
ASSIGNMENT_ELEMENTS_MAX = 16_384
"""Topics, partitions and configs of one request: the controller writes at most 10,000 records for it."""


@handles(
    ApiKey.CREATE_TOPICS,
    versions=(2, 7),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=ASSIGNMENT_ELEMENTS_MAX,
    calls_max=800_000,  # on the control lane: deciding and loading thousands of topics may fall into one turn, as one change does
    on_error=lambda request, error: CreateTopicsResponse(
        topics=[_not_created(name, error) for name in dict.fromkeys(topic.name for topic in request.topics)]
    ),
)
async def create_topics(services: ControlServices, context: RequestContext, request: CreateTopicsRequest) -> bytes:
    """Create topics, or only check that they could be."""
    times = Counter(topic.name for topic in request.topics)
    refused: dict[str, KafkaError] = {}
    wanted: dict[str, CreatableTopic] = {}
    for topic in request.topics:
        if times[topic.name] > 1:
            refused[topic.name] = _invalid(f"topic {topic.name} is named more than once in the request")
            continue
        try:
            if not context.access.may(CREATE, CLUSTER, is_noted=False):
                context.access.require(CREATE, TOPIC, topic.name)
            wanted[topic.name] = _creatable(services, topic)
        except KafkaError as error:
            refused[topic.name] = error
    created: dict[str, CreatedTopic] = {}
    _take_mutations(
        context,
        sum(len(topic.assignments) or topic.partition_count for topic in wanted.values()),
        is_validation=request.validate_only,
        strict_from=STRICT_CREATION_FROM,
    )
    if wanted:
        call = services.ask(context, CreateTopics(topics=tuple(wanted.values()), validate_only=request.validate_only))
        created = {topic.name: topic for topic in (await within(call, request.timeout_ms)).topics}
    elements: list[bytes] = []
    entries = TopicEntries(services)
    for name in times:
        topic_reply = created.get(name)
        if topic_reply is None:
            result = _not_created(name, refused.get(name) or KafkaError("the controller gave no answer"))
        elif topic_reply.error is not None:
            result = _not_created(name, topic_reply.error)
        elif context.access.may(DESCRIBE_CONFIGS, TOPIC, name, is_noted=False):
            result = _created(entries, topic_reply)
        else:
            result = _created_unseen(topic_reply)
        # Each is encoded at once: with forty configs it is five times its bytes as objects.
        elements.append(encode_element(result, CreateTopicsResponse, context.api_version))
        if len(elements) % CREATED_PER_TURN == 0:
            await asyncio.sleep(0)
    return join_elements(CreateTopicsResponse, context.api_version, elements)


def _take_mutations(context: RequestContext, count: int, *, strict_from: int, is_validation: bool = False) -> None:
    """Charge partitions that come or go (KIP-599). Raises THROTTLING_QUOTA_EXCEEDED for clients of versions that know it."""
    charge = context.charge
    if charge is None or is_validation or not count:
        return
    if not charge.take_mutations(count, is_strict=context.api_version >= strict_from):
        raise KafkaError.of(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota controller_mutation_rate is used up: wait, and ask again"
        )


async def within(work: Awaitable[T], timeout_ms: int) -> T:
    """Wait for the controller as long as the client does; raises REQUEST_TIMED_OUT. The change may still happen."""
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            return await work
    except TimeoutError:
        raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout_ms} ms; it may yet be") from None


def _creatable(services: ControlServices, topic: create_messages.CreatableTopic) -> CreatableTopic:
    configs = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"config {config.name} has no value")
        configs[config.name] = config.value
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise _invalid("a replica assignment excludes partitions and replication factor: leave both at -1")
        assignments = {
            assignment.partition_index: tuple(BrokerId(broker) for broker in assignment.broker_ids)
            for assignment in topic.assignments
        }
        if len(assignments) != len(topic.assignments):
            raise KafkaError.of(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
        return CreatableTopic(name=topic.name, assignments=assignments, configs=configs)
    defaults = services.config
    return CreatableTopic(
        name=topic.name,
        partition_count=defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions,
        replication_factor=(
            defaults.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        ),
        configs=configs,
    )


def _created(entries: TopicEntries, topic: CreatedTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name, value=entry.value, config_source=entry.source, read_only=False, is_sensitive=False
            )
            for entry in entries.of(topic.configs)
        ],
    )


def _created_unseen(topic: CreatedTopic) -> CreatableTopicResult:
    """The result for a client that may make the topic and not see its configs (KIP-525)."""
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=-1,
        replication_factor=-1,
        configs=None,
    )


def _not_created(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, **error_fields(error))


def _invalid(message: str) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REQUEST, message)


def _references(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Topics by name or id, whichever version asked."""
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _delete_error(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_not_deleted(state, error) for state in _references(request)])


@handles(ApiKey.DELETE_TOPICS, versions=(1, 6), on_error=_delete_error)
async def delete_topics(
    services: ControlServices, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics by name or, from v6 on, by id."""
    if not services.config.delete_topic_enable:
        raise KafkaError.of(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable=false")
    states = _references(request)
    by_topic: dict[tuple[str | None, Uuid], list[DeleteTopicState]] = defaultdict(list)
    for state in states:
        by_topic[_named_topic(services, state)].append(state)
    answers: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    wanted = []
    for (name, _), same in by_topic.items():
        if len(same) != 1 or not _names_one(same[0]):
            continue
        state = same[0]
        if name is not None and not (
            context.access.may(DELETE, TOPIC, name) and context.access.may(DESCRIBE, TOPIC, name)
        ):
            # As it was named: a client that may not see a topic does not learn its name from its id.
            answers[(state.name, state.topic_id)] = _not_deleted(
                state, context.access.refusal(DELETE, TOPIC, state.name or "")
            )
            continue
        wanted.append(state)
    topics = services.metadata.image.topics
    known = [topics.get_by_id(s.topic_id) if s.name is None else topics.get(s.name) for s in wanted]
    _take_mutations(
        context, sum(len(topic.partitions) for topic in known if topic is not None), strict_from=STRICT_DELETION_FROM
    )
    if wanted:
        references = tuple(TopicReference(name=s.name, topic_id=s.topic_id) for s in wanted)
        call = services.ask(context, DeleteTopics(topics=references))
        for state, deleted in zip(wanted, (await within(call, request.timeout_ms)).topics, strict=True):
            answers[(state.name, state.topic_id)] = DeletableTopicResult(
                name=deleted.name if deleted.name is not None else state.name,
                topic_id=deleted.topic_id,
                **error_fields(deleted.error),
            )
    refusal = _invalid("name each topic once, by name or by id but not by both")
    return DeleteTopicsResponse(
        responses=[
            answers.get((same[0].name, same[0].topic_id)) or _not_deleted(_told(topic, same), refusal)
            for topic, same in by_topic.items()
        ]
    )


def _named_topic(services: ControlServices, state: DeleteTopicState) -> tuple[str | None, Uuid]:
    """Name and id, the same for a topic whichever way it is named; what was said if there is no such topic."""
    topics = services.metadata.image.topics
    if _names_one(state):
        topic = topics.get_by_id(state.topic_id) if state.name is None else topics.get(state.name)
        if topic is not None:
            return topic.name, topic.id
    return state.name, state.topic_id


def _told(topic: tuple[str | None, Uuid], same: list[DeleteTopicState]) -> DeleteTopicState:
    """How a topic that was named several times is named in the answer."""
    return same[0] if all(state == same[0] for state in same) else DeleteTopicState(*topic)


def _names_one(state: DeleteTopicState) -> bool:
    return (state.name is None) != (state.topic_id == ZERO_UUID)


def _not_deleted(state: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, **error_fields(error))


@handles(
    ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=ASSIGNMENT_ELEMENTS_MAX,
    on_error=lambda request, error: CreatePartitionsResponse(
        results=[_grown(name, error) for name in dict.fromkeys(topic.name for topic in request.topics)]
    ),
)
async def create_partitions(
    services: ControlServices, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Give topics more partitions."""
    times = Counter(topic.name for topic in request.topics)
    errors: dict[str, KafkaError | None] = {
        # null leaves the choice to the controller, an empty list chooses nothing
        topic.name: KafkaError.of(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name} gets partitions on no broker"
        )
        for topic in request.topics
        if topic.assignments == [] and times[topic.name] == 1
    }
    wanted = [
        TopicGrowth(
            name=topic.name,
            partition_count=topic.count,
            assignments=tuple(
                tuple(BrokerId(broker) for broker in assignment.broker_ids) for assignment in topic.assignments or ()
            ),
        )
        for topic in request.topics
        if times[topic.name] == 1 and topic.name not in errors
    ]
    for name in [topic.name for topic in wanted if not context.access.may(ALTER, TOPIC, topic.name)]:
        errors[name] = context.access.refusal(ALTER, TOPIC, name)
    wanted = [topic for topic in wanted if topic.name not in errors]
    image = services.metadata.image
    _take_mutations(
        context,
        sum(
            max(0, topic.partition_count - len(present.partitions))
            for topic in wanted
            if (present := image.topics.get(topic.name)) is not None
        ),
        is_validation=request.validate_only,
        strict_from=STRICT_GROWTH_FROM,
    )
    if wanted:
        call = services.ask(context, CreatePartitions(topics=tuple(wanted), validate_only=request.validate_only))
        errors |= {grown.name: grown.error for grown in (await within(call, request.timeout_ms)).topics}
    results = []
    for name in times:
        error = errors.get(name, _invalid(f"topic {name} is named more than once in the request"))
        results.append(_grown(name, error))
    return CreatePartitionsResponse(results=results)


def _grown(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, **error_fields(error))
