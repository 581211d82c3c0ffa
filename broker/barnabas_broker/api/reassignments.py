"""AlterPartitionReassignments v0-1, ListPartitionReassignments v0, ElectLeaders v0-2, UnregisterBroker v0.

May touch:  the controller client.    Must not touch: the image, logs.
Invariants: every partition of a request is answered once, under its topic; a partition named twice is refused and not sent.
Read next:  metadata_quorum/controller/reassignment.py, elections.py and brokers.py, which decide.

Behaviour: any broker takes these and forwards them. A list of reassignments comes from the active controller, so it shows
what another broker was just asked for. Null partitions mean all: then ElectLeaders leaves out those that need no election.
Null replicas cancel. Times out like CreateTopics; the change may still happen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from barnabas_broker.api.answers import error_fields
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.registry import PARTITION_ELEMENTS_MAX, PARTITIONS_BYTES_MAX, handles
from barnabas_broker.api.services import ControlServices
from barnabas_broker.api.topics import within
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    ListPartitionReassignments,
    PartitionReassignment,
    UnregisterBroker,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas_wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas_wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas_wire.kafka.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

PartitionName = tuple[str, int]


@handles(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
    calls_max=800_000,  # the controller weighs each partition alone, in one turn: all of a request is one change
)
async def alter_partition_reassignments(
    services: ControlServices, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin, change or cancel reassignments."""
    asked = [
        PartitionReassignment(
            topic=topic.name,
            partition_id=partition.partition_index,
            replicas=None if partition.replicas is None else tuple(BrokerId(b) for b in partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    times = Counter((item.topic, item.partition_id) for item in asked)
    wanted = [item for item in asked if times[item.topic, item.partition_id] == 1]
    errors: dict[PartitionName, KafkaError | None] = {}
    if wanted:
        call = services.ask(
            context,
            AlterPartitionReassignments(
                partitions=tuple(wanted),
                allow_replication_factor_change=request.allow_replication_factor_change,
                validate_only=context.is_dry,
            ),
        )
        outcomes = (await within(call, request.timeout_ms)).partitions
        errors = {(done.topic, done.partition_id): done.error for done in outcomes}
    by_topic: dict[str, list[ReassignablePartitionResponse]] = defaultdict(list)
    for name in times:
        error = _named_twice(name) if times[name] > 1 else errors.get(name)
        by_topic[name[0]].append(ReassignablePartitionResponse(partition_index=name[1], **error_fields(error)))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[ReassignableTopicResponse(name=name, partitions=found) for name, found in by_topic.items()],
    )


@handles(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def list_partition_reassignments(
    services: ControlServices, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """What is under way. The request's time-out bounds nothing, as in Kafka: some clients send 0."""
    names = None
    if request.topics is not None:
        names = tuple((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    reply = await services.ask(context, ListPartitionReassignments(partitions=names))
    by_topic: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for found in reply.partitions:
        by_topic[found.topic].append(
            OngoingPartitionReassignment(
                partition_index=found.partition_id,
                replicas=list(found.replicas),
                adding_replicas=list(found.adding),
                removing_replicas=list(found.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name=name, partitions=found) for name, found in by_topic.items()]
    )


def _elect_error(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    names = _election_names(request) or ()
    return ElectLeadersResponse(
        error_code=error.code, replica_election_results=_election_results([(name, error) for name in names])
    )


@handles(
    ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    on_error=_elect_error,
    request_bytes_max=PARTITIONS_BYTES_MAX,
    elements_max=PARTITION_ELEMENTS_MAX,
)
async def elect_leaders(
    services: ControlServices, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Make preferred leaders lead, or any live replica (unclean)."""
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is neither 0 (preferred) nor 1 (unclean)"
        ) from None
    names = _election_names(request)
    if names is not None and not names:
        return ElectLeadersResponse()
    wanted = ElectLeaders(election_type=election_type, partitions=names)
    call = services.ask(context, wanted)
    outcomes = (await within(call, request.timeout_ms)).partitions
    return ElectLeadersResponse(
        replica_election_results=_election_results([((item.topic, item.partition_id), item.error) for item in outcomes])
    )


def _election_names(request: ElectLeadersRequest) -> tuple[PartitionName, ...] | None:
    """Each once, in the order of the request; None for all."""
    if request.topic_partitions is None:
        return None
    return tuple(
        dict.fromkeys((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
    )


def _election_results(outcomes: Sequence[tuple[PartitionName, KafkaError | None]]) -> list[ReplicaElectionResult]:
    by_topic: dict[str, list[PartitionResult]] = defaultdict(list)
    for (topic, index), error in outcomes:
        by_topic[topic].append(PartitionResult(partition_id=index, **error_fields(error)))
    return [ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in by_topic.items()]


@handles(ApiKey.UNREGISTER_BROKER, versions=(0, 0))
async def unregister_broker(
    services: ControlServices, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Forget a broker that is out of service."""
    wanted = UnregisterBroker(broker_id=BrokerId(request.broker_id))
    await services.ask(context, wanted)
    return UnregisterBrokerResponse()


def _named_twice(name: PartitionName) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_REQUEST, f"partition {name[0]}-{name[1]} is named more than once")
