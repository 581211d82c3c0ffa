"""DescribeCluster v0-2 and DescribeQuorum v0-2: the brokers, and the metadata quorum.

May touch:  the image, the quorum's description.    Must not touch: the quorum itself.
Invariants: addresses are of the listener that the request came in on.
Read next:  metadata.py.

Behaviour: DescribeCluster answers brokers (endpoint type 1); controllers speak gRPC, so type 2 is refused. Only the
active controller knows how far the replicas of the quorum are: elsewhere their offsets are -1. Differences from Kafka:
`controller_id` names the answering broker, since any broker forwards to the controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.operations import CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN
from barnabas_broker.api.registry import handles
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.security.access import Access
from barnabas_quorum.driver.quorum_description import QuorumDescription, ReplicaDescription
from barnabas_quorum.image.rights import CLUSTER, DESCRIBE
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import METADATA_TOPIC
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas_wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

BROKERS = 1
CONTROLLERS = 2
CONTROLLER_LISTENER = "CONTROLLER"
"""What Kafka's tools call the address of a voter; gRPC is spoken there."""


@handles(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2))
def describe_cluster(
    services: BrokerServices, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The brokers that a client can reach over its listener."""
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError.of(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker: controllers speak gRPC only")
    if request.endpoint_type != BROKERS:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type}")
    brokers = []
    for broker in services.metadata.image.cluster.sorted_brokers():
        endpoint = context.endpoint_of(broker, node_id=services.node_id)
        if endpoint is None or (broker.is_fenced and not request.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
        )
    live = [broker.broker_id for broker in brokers if not broker.is_fenced]
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=services.cluster_id,
        controller_id=services.node_id if services.node_id in live else min(live, default=-1),
        brokers=brokers,
        cluster_authorized_operations=(
            cluster_operations(context.access) if request.include_cluster_authorized_operations else OPERATIONS_UNKNOWN
        ),
    )


def cluster_operations(access: Access) -> int:
    """The authorized operations on the cluster as a bit set; 0 without the right to describe it (KIP-430)."""
    if not access.may(DESCRIBE, CLUSTER, is_noted=False):
        return 0
    return access.operations(CLUSTER_OPERATIONS, CLUSTER)


def _quorum_error(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message or None)


@handles(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), on_error=_quorum_error)
async def describe_quorum(
    services: BrokerServices, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The state of the one Raft group of the cluster, __cluster_metadata-0."""
    description = await services.quorum_description()
    topics = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _partition(description)
                if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0
                else _no_quorum(partition.partition_index)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(
        error_message=None,
        topics=topics,
        nodes=[
            Node(
                node_id=voter.key.id,
                listeners=[Listener(name=CONTROLLER_LISTENER, host=voter.host, port=voter.port)],
            )
            for voter in services.voters()
        ],
    )


def _partition(description: QuorumDescription) -> PartitionData:
    return PartitionData(
        error_message=None,
        leader_id=description.leader_id,
        leader_epoch=description.epoch,
        high_watermark=description.high_watermark,
        current_voters=_replicas(description.voters),
        observers=_replicas(description.observers),
    )


def _replicas(replicas: Iterable[ReplicaDescription]) -> list[ReplicaState]:
    return [
        ReplicaState(
            replica_id=replica.key.id,
            replica_directory_id=replica.key.directory_id,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=replica.last_fetch_ms,
            last_caught_up_timestamp=replica.last_caught_up_ms,
        )
        for replica in replicas
    ]


def _no_quorum(partition: int) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"only {METADATA_TOPIC}-0 is a quorum",
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
    )
