"""What an operator asks that Kafka has an API for: each verb as the Kafka requests that carry it, and what comes of their answers.

May touch:  Kafka's messages, admin_pb2.   Must not touch: sockets, gRPC, asyncio, who is asked.
Invariants: sans-IO: a verb yields one request after the other, gets each response, and returns the message of admin.proto that its
            callers know; an error of an item stands with the item, one of the whole is raised.
Read next:  admin.proto (CallKafka); the admin room's client.py and the broker room's admin/service.py, which drive these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import alter_partition_reassignments as reassign
from barnabas_wire.kafka.messages import create_partitions as grow
from barnabas_wire.kafka.messages import create_topics as create
from barnabas_wire.kafka.messages import delete_topics as delete
from barnabas_wire.kafka.messages import describe_configs as configs
from barnabas_wire.kafka.messages import describe_topic_partitions as describe
from barnabas_wire.kafka.messages import elect_leaders as elect
from barnabas_wire.kafka.messages import incremental_alter_configs as alter
from barnabas_wire.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas_wire.kafka.messages.unregister_broker import UnregisterBrokerRequest
from barnabas_wire.kafka.schema import Message
from barnabas_wire.rpc import admin_pb2 as pb
from barnabas_wire.rpc.error_details import detail_of

Answer = TypeVar("Answer")
Asking = Generator[Message, Any, Answer]
"""Yields requests, is sent their responses, returns a message of admin.proto. Raises KafkaError."""

VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.UNREGISTER_BROKER: 0,
}
"""In which each request is asked: the one whose fields are used here, so that nodes of other versions answer it too."""

CONFIG_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "static", 5: "default"}
HIDDEN = "(hidden)"
"""In the place of a secret."""
INTERNAL_TOPIC_PREFIX = "__"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
_SET, _DELETE = 0, 1
_KINDS: Mapping[int, int] = {pb.RESOURCE_TYPE_TOPIC: 2, pb.RESOURCE_TYPE_BROKER: 4}
"""Kafka's numbers of config resources."""


def error_of(item: Any) -> KafkaError | None:
    """The error that an answer, or one item of it, carries."""
    if not item.error_code:
        return None
    known = item.error_code in ErrorCode._value2member_map_
    code = ErrorCode(item.error_code) if known else ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError.of(code, getattr(item, "error_message", None) or "")


def _check(item: Any) -> None:
    error = error_of(item)
    if error is not None:
        raise error


def _by_topic(items: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        found[item.topic].append(item)
    return found


# --- topics -----------------------------------------------------------------------------------------------------------


def create_topics(request: pb.CreateTopicsRequest) -> Asking[pb.CreateTopicsResponse]:
    """One outcome for each topic."""
    response = yield create.CreateTopicsRequest(
        topics=[
            create.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=min(topic.replication_factor, 0x7FFF),
                configs=[create.CreatableTopicConfig(*each) for each in topic.configs.items()],
            )
            for topic in request.topics
        ],
        validate_only=request.validate_only,
    )
    return pb.CreateTopicsResponse(
        topics=[
            pb.TopicOutcome(name=topic.name, error=detail_of(error_of(topic)))
            if topic.error_code
            else pb.TopicOutcome(
                name=topic.name,
                id=str(topic.topic_id),
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
            )
            for topic in response.topics
        ]
    )


def delete_topics(request: pb.DeleteTopicsRequest) -> Asking[pb.DeleteTopicsResponse]:
    """One outcome for each topic."""
    response = yield delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name=name) for name in request.names])
    return pb.DeleteTopicsResponse(
        topics=[
            pb.TopicOutcome(
                name=topic.name or "",
                id="" if topic.topic_id == ZERO_UUID else str(topic.topic_id),
                error=detail_of(error_of(topic)),
            )
            for topic in response.responses
        ]
    )


def add_partitions(request: pb.AddPartitionsRequest) -> Asking[pb.AddPartitionsResponse]:
    """Raises what refuses it."""
    response = yield grow.CreatePartitionsRequest(
        topics=[grow.CreatePartitionsTopic(name=request.name, count=request.total, assignments=None)],
        validate_only=request.validate_only,
    )
    (result,) = response.results
    _check(result)
    return pb.AddPartitionsResponse(topic=pb.TopicOutcome(name=result.name, partitions=request.total))


def _described(names: Sequence[str]) -> Asking[dict[str, Any]]:
    """DescribeTopicPartitions, page by page: topics by name; no names = all."""
    found: dict[str, Any] = {}
    cursor = None
    while True:
        page = yield describe.DescribeTopicPartitionsRequest(
            topics=[describe.TopicRequest(name) for name in names], cursor=cursor
        )
        for topic in page.topics:
            known = found.setdefault(topic.name, topic)
            if known is not topic:
                known.partitions += topic.partitions
        if page.next_cursor is None:
            return found
        cursor = describe.DescribeTopicPartitionsRequestCursor(
            page.next_cursor.topic_name, page.next_cursor.partition_index
        )


def list_topics(request: pb.ListTopicsRequest) -> Asking[pb.ListTopicsResponse]:
    """The topics without what only the cluster's own view has: a replica that is being added counts as missing."""
    found = yield from _described(())
    return pb.ListTopicsResponse(
        topics=[
            pb.TopicSummary(
                name=name,
                id=str(topic.topic_id),
                partitions=len(topic.partitions),
                replication_factor=len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
                internal=name.startswith(INTERNAL_TOPIC_PREFIX),
                under_replicated=sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions),
                leaderless=sum(each.leader_id < 0 for each in topic.partitions),
            )
            for name, topic in sorted(found.items())
            if request.include_internal or not name.startswith(INTERNAL_TOPIC_PREFIX)
        ]
    )


def describe_topics(request: pb.DescribeTopicsRequest) -> Asking[pb.DescribeTopicsResponse]:
    """The topics without what only the cluster's own view has: faults of replicas, and configs that the caller may not see."""
    if not request.names:
        return pb.DescribeTopicsResponse()
    found = yield from _described(list(dict.fromkeys(request.names)))
    names = [name for name in found if not found[name].error_code]
    values: dict[str, dict[str, Any]] = {}
    if names:
        resources = [configs.DescribeConfigsResource(2, name, None) for name in names]
        response = yield configs.DescribeConfigsRequest(resources=resources)
        values = {each.resource_name: {entry.name: entry for entry in each.configs} for each in response.results}
    return pb.DescribeTopicsResponse(topics=[_topic(name, found[name], values.get(name, {})) for name in request.names])


def _topic(name: str, topic: Any, entries: Mapping[str, Any]) -> pb.Topic:
    if topic.error_code:
        words = {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: f"topic {name!r} does not exist",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"you may not DESCRIBE topic {name}: an ACL must allow it",
        }
        code = error_of(topic) or KafkaError()
        return pb.Topic(name=name, error=detail_of(KafkaError.of(code.code, words.get(code.code, ""))))
    least = int(entries[MIN_INSYNC_REPLICAS].value) if MIN_INSYNC_REPLICAS in entries else 0
    return pb.Topic(
        name=name,
        id=str(topic.topic_id),
        internal=name.startswith(INTERNAL_TOPIC_PREFIX),
        partitions=[
            pb.Partition(
                partition=each.partition_index,
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=each.replica_nodes,
                isr=each.isr_nodes,
                elr=each.eligible_leader_replicas or (),
                offline_replicas=each.offline_replicas,
                flags=_flags(each, least),
            )
            for each in topic.partitions
        ],
        overrides={key: entry.value or "" for key, entry in entries.items() if entry.config_source == 1},
    )


def _flags(partition: Any, least: int) -> list[str]:
    """As the cluster's own view has them; least: min.insync.replicas, 0 where it is not known."""
    in_sync, replicas = len(partition.isr_nodes), len(partition.replica_nodes)
    needed = min(least, replicas)
    found = {
        "leaderless": partition.leader_id < 0,
        "under-replicated": in_sync < replicas,
        "under-min-isr": in_sync < needed,
        "at-min-isr": in_sync == needed < replicas,
        "not-preferred": 0 <= partition.leader_id != partition.replica_nodes[0],
    }
    return [flag for flag, is_so in found.items() if is_so]


# --- configs ----------------------------------------------------------------------------------------------------------


def describe_configs(request: pb.DescribeConfigsRequest) -> Asking[pb.DescribeConfigsResponse]:
    """Each key with its value and where that comes from. Raises what refuses it."""
    resource = configs.DescribeConfigsResource(_kind(request.type), request.name, None)
    response = yield configs.DescribeConfigsRequest(resources=[resource], include_documentation=True)
    (result,) = response.results
    _check(result)
    entries = [
        pb.ConfigEntry(
            key=entry.name,
            value=(HIDDEN if entry.is_sensitive else "") if entry.value is None else entry.value,
            source=CONFIG_SOURCES.get(entry.config_source, "unknown"),
            doc=entry.documentation or "",
        )
        for entry in result.configs
    ]
    own = "topic" if request.type == pb.RESOURCE_TYPE_TOPIC else "broker" if request.name else "cluster"
    return pb.DescribeConfigsResponse(
        entries=[entry for entry in entries if not request.only_overrides or entry.source == own]
    )


def alter_configs(request: pb.AlterConfigsRequest) -> Asking[pb.AlterConfigsResponse]:
    """All or none. Raises what refuses it."""
    if not request.changes:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "no config change is named")
    changes = [
        alter.AlterableConfig(each.key, *((_SET, each.value) if each.HasField("value") else (_DELETE, None)))
        for each in request.changes
    ]
    resource = alter.AlterConfigsResource(_kind(request.type), request.name, changes)
    response = yield alter.IncrementalAlterConfigsRequest(resources=[resource], validate_only=request.validate_only)
    (result,) = response.responses
    _check(result)
    return pb.AlterConfigsResponse()


def _kind(number: int) -> int:
    if number not in _KINDS:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"resource type {number} has no configs")
    return _KINDS[number]


# --- who holds and leads ----------------------------------------------------------------------------------------------


def elect_leaders(request: pb.ElectLeadersRequest) -> Asking[pb.ElectLeadersResponse]:
    """One outcome for each partition."""
    names = [
        elect.TopicPartitions(topic, [each.partition for each in items])
        for topic, items in _by_topic(request.partitions).items()
    ]
    response = yield elect.ElectLeadersRequest(
        election_type=int(request.unclean), topic_partitions=None if request.all else names
    )
    found = {
        (topic.topic, each.partition_id): each
        for topic in response.replica_election_results
        for each in topic.partition_result
    }
    asked = list(found) if request.all else [(each.topic, each.partition) for each in request.partitions]
    return pb.ElectLeadersResponse(partitions=_outcomes(asked, found))


def alter_reassignments(request: pb.AlterReassignmentsRequest) -> Asking[pb.AlterReassignmentsResponse]:
    """One outcome for each partition."""
    response = yield reassign.AlterPartitionReassignmentsRequest(
        topics=[
            reassign.ReassignableTopic(
                topic, [reassign.ReassignablePartition(each.partition, list(each.replicas) or None) for each in items]
            )
            for topic, items in _by_topic(request.reassignments).items()
        ]
    )
    _check(response)
    found = {(topic.name, each.partition_index): each for topic in response.responses for each in topic.partitions}
    asked = [(each.topic, each.partition) for each in request.reassignments]
    return pb.AlterReassignmentsResponse(partitions=_outcomes(asked, found))


def _outcomes(asked: Iterable[tuple[str, int]], found: Mapping[tuple[str, int], Any]) -> list[pb.PartitionOutcome]:
    return [
        pb.PartitionOutcome(topic=name[0], partition=name[1], error=detail_of(error_of(found[name])))
        for name in asked
        if name in found
    ]


def list_reassignments(request: pb.ListReassignmentsRequest) -> Asking[pb.ListReassignmentsResponse]:
    """What is under way, and whom it waits for."""
    response = yield ListPartitionReassignmentsRequest()
    _check(response)
    moving = [topic for topic in response.topics if not request.topics or topic.name in request.topics]
    described = (yield from _described([topic.name for topic in moving])) if moving else {}
    found = []
    for topic in moving:
        states = {each.partition_index: each for each in described[topic.name].partitions}
        for item in topic.partitions:
            state = states.get(item.partition_index)
            isr, offline = ((), ()) if state is None else (state.isr_nodes, state.offline_replicas)
            waiting_for = [each for each in item.replicas if each not in item.removing_replicas and each not in isr]
            found.append(
                pb.OngoingReassignment(
                    topic=topic.name,
                    partition=item.partition_index,
                    replicas=item.replicas,
                    adding=item.adding_replicas,
                    removing=item.removing_replicas,
                    isr=isr,
                    waiting_for=waiting_for,
                    fenced=[each for each in waiting_for if each in offline],
                )
            )
    return pb.ListReassignmentsResponse(reassignments=found)


def unregister_broker(request: pb.UnregisterBrokerRequest) -> Asking[pb.UnregisterBrokerResponse]:
    """Raises what refuses it."""
    response = yield UnregisterBrokerRequest(broker_id=request.broker_id)
    _check(response)
    return pb.UnregisterBrokerResponse()


CARRIED_VERBS: Mapping[str, Callable[[Any], Asking[Any]]] = {
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "AddPartitions": add_partitions,
    "DescribeConfigs": describe_configs,
    "AlterConfigs": alter_configs,
    "ElectLeaders": elect_leaders,
    "AlterReassignments": alter_reassignments,
    "ListReassignments": list_reassignments,
    "UnregisterBroker": unregister_broker,
}
"""Verbs that have no typed call but the former version's, by the name of that."""


def is_dry(request: Any, message: Message) -> bool:
    """Whether nothing may be changed, where Kafka's message cannot say so."""
    return message.API_KEY == ApiKey.ALTER_PARTITION_REASSIGNMENTS and bool(request.validate_only)
