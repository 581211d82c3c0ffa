"""Controller requests and replies to protobuf and back, for both ends of the wire.

May touch:  controller.requests, barnabas_wire.rpc.controller_pb2.   Must not touch: asyncio, gRPC, images.
Invariants: reading what was written gives an equal value; a frame that does not fit (a uuid of another length, an
            unknown enum number, a missing fault code) raises INVALID_REQUEST and nothing else.
Read next:  partitions_codec.py (verbs on partitions); controller_service.py (server end) and
            barnabas_broker/controller_client/client.py (client end).
"""

from __future__ import annotations

from typing import Any

from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlteredConfig,
    AlterPartition,
    AlterPartitionReply,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
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
    IncrementalAlterConfigs,
    IncrementalAlterConfigsReply,
    IsrMemberEpoch,
    PartitionAlteration,
    PartitionAlterationReply,
    RegisterBroker,
    RegisterBrokerReply,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.driver.controller_codec_cluster import CLUSTER_VERBS
from barnabas_quorum.driver.controller_verb import (
    Verb,
    brokers_in,
    error_of,
    optional_error,
    optional_fault,
)
from barnabas_quorum.driver.integrity_codec import INTEGRITY_VERBS
from barnabas_quorum.driver.partitions_codec import PARTITION_VERBS
from barnabas_quorum.records import ConfigResourceType, FeatureRange, LeaderRecoveryState
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid
from barnabas_wire.rpc import controller_pb2 as pb


def write_call(verb: Verb, request: Request[Any], *, principal: str) -> Any:
    """The protobuf message of a request."""
    return verb.call_type(caller=pb.Caller(principal=principal), **verb.write_call(request))


def read_call(verb: Verb, message: Any) -> Request[Any]:
    """The request in a protobuf message. Raises KafkaError INVALID_REQUEST on what does not fit."""
    try:
        return verb.read_call(message)
    except ValueError as error:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, f"{verb.method}: {error}") from error


def write_answer(verb: Verb, reply: Any) -> Any:
    """The protobuf message of a reply."""
    return verb.answer_type(**verb.write_answer(reply))


def read_answer(verb: Verb, message: Any) -> Any:
    """The reply in a protobuf message. Raises KafkaError UNKNOWN_SERVER_ERROR on what does not fit."""
    try:
        return verb.read_answer(message)
    except ValueError as error:
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"answer of {verb.method}: {error}") from error


def write_heartbeat(heartbeat: BrokerHeartbeat) -> Any:
    """A heartbeat as it travels."""
    return pb.HeartbeatMessage(
        broker_id=heartbeat.broker_id,
        broker_epoch=heartbeat.broker_epoch,
        metadata_offset=heartbeat.metadata_offset,
        want_fence=heartbeat.want_fence,
        want_shutdown=heartbeat.want_shutdown,
        offline_directories=[bytes(directory) for directory in heartbeat.offline_directories],
    )


def read_heartbeat(message: Any) -> BrokerHeartbeat:
    """The heartbeat that travelled."""
    return BrokerHeartbeat(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=message.broker_epoch,
        metadata_offset=Offset(message.metadata_offset),
        want_fence=message.want_fence,
        want_shutdown=message.want_shutdown,
        offline_directories=tuple(Uuid(directory) for directory in message.offline_directories),
    )


def write_heartbeat_answer(reply: BrokerHeartbeatReply) -> Any:
    """A heartbeat's reply as it travels."""
    return pb.HeartbeatAnswer(
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shutdown=reply.should_shutdown,
        report_offset=reply.report_offset,
    )


def read_heartbeat_answer(message: Any) -> BrokerHeartbeatReply:
    """The reply that travelled. Raises KafkaError when it carries a fault."""
    if message.HasField("fault"):
        raise error_of(message.fault)
    return BrokerHeartbeatReply(
        is_caught_up=message.is_caught_up,
        is_fenced=message.is_fenced,
        should_shutdown=message.should_shutdown,
        report_offset=Offset(message.report_offset),
    )


# --- register -----------------------------------------------------------------------------------------------------------


def _register_out(request: RegisterBroker) -> dict[str, Any]:
    return {
        "broker_id": request.broker_id,
        "cluster_id": request.cluster_id,
        "incarnation_id": bytes(request.incarnation_id),
        "listeners": [
            pb.Listener(name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.endpoints
        ],
        "rack": request.rack,
        "directories": [bytes(directory) for directory in request.directories],
        "has_offline_directories": request.has_offline_directories,
        "features": [pb.Feature(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in request.features],
        "previous_broker_epoch": request.previous_broker_epoch,
    }


def _register_in(message: Any) -> RegisterBroker:
    return RegisterBroker(
        broker_id=BrokerId(message.broker_id),
        cluster_id=message.cluster_id,
        incarnation_id=Uuid(message.incarnation_id),
        endpoints=tuple(Endpoint(m.name, m.host, m.port, m.security_protocol) for m in message.listeners),
        rack=message.rack if message.HasField("rack") else None,
        directories=tuple(Uuid(directory) for directory in message.directories),
        has_offline_directories=message.has_offline_directories,
        features=tuple(FeatureRange(m.name, m.min_level, m.max_level) for m in message.features),
        previous_broker_epoch=message.previous_broker_epoch,
    )


# --- alter partition ----------------------------------------------------------------------------------------------------


def _alter_partition_out(request: AlterPartition) -> dict[str, Any]:
    return {
        "broker_id": request.broker_id,
        "broker_epoch": request.broker_epoch,
        "partitions": [
            pb.PartitionProposal(
                topic_id=bytes(item.topic_id),
                partition_id=item.partition_id,
                leader_epoch=item.leader_epoch,
                partition_epoch=item.partition_epoch,
                new_isr=[pb.IsrMember(broker_id=m.broker_id, broker_epoch=m.broker_epoch) for m in item.new_isr],
                leader_recovery_state=int(item.leader_recovery_state),
            )
            for item in request.partitions
        ],
    }


def _alter_partition_in(message: Any) -> AlterPartition:
    return AlterPartition(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=message.broker_epoch,
        partitions=tuple(
            PartitionAlteration(
                topic_id=Uuid(m.topic_id),
                partition_id=m.partition_id,
                leader_epoch=Epoch(m.leader_epoch),
                partition_epoch=m.partition_epoch,
                new_isr=tuple(
                    IsrMemberEpoch(broker_id=BrokerId(n.broker_id), broker_epoch=n.broker_epoch) for n in m.new_isr
                ),
                leader_recovery_state=LeaderRecoveryState(m.leader_recovery_state),
            )
            for m in message.partitions
        ),
    )


def _alter_partition_answer_out(reply: AlterPartitionReply) -> dict[str, Any]:
    return {
        "partitions": [
            pb.PartitionState(
                fault=optional_fault(item.error),
                topic_id=bytes(item.topic_id),
                partition_id=item.partition_id,
                leader=item.leader,
                leader_epoch=item.leader_epoch,
                isr=item.isr,
                leader_recovery_state=int(item.leader_recovery_state),
                partition_epoch=item.partition_epoch,
            )
            for item in reply.partitions
        ]
    }


def _alter_partition_answer_in(message: Any) -> AlterPartitionReply:
    return AlterPartitionReply(
        partitions=tuple(
            PartitionAlterationReply(
                topic_id=Uuid(m.topic_id),
                partition_id=m.partition_id,
                error=optional_error(m),
                leader=BrokerId(m.leader),
                leader_epoch=Epoch(m.leader_epoch),
                isr=brokers_in(m.isr),
                leader_recovery_state=LeaderRecoveryState(m.leader_recovery_state),
                partition_epoch=m.partition_epoch,
            )
            for m in message.partitions
        )
    )


# --- topics -------------------------------------------------------------------------------------------------------------


def _create_topics_out(request: CreateTopics) -> dict[str, Any]:
    return {
        "topics": [
            pb.NewTopic(
                name=topic.name,
                partition_count=topic.partition_count,
                replication_factor=topic.replication_factor,
                assignments={i: pb.Replicas(broker_ids=ids) for i, ids in topic.assignments.items()},
                configs=dict(topic.configs),
            )
            for topic in request.topics
        ],
        "validate_only": request.validate_only,
    }


def _create_topics_in(message: Any) -> CreateTopics:
    return CreateTopics(
        topics=tuple(
            CreatableTopic(
                name=m.name,
                partition_count=m.partition_count,
                replication_factor=m.replication_factor,
                # protobuf maps have no order of their own; a decision must not depend on it
                assignments={index: brokers_in(m.assignments[index].broker_ids) for index in sorted(m.assignments)},
                configs={key: m.configs[key] for key in sorted(m.configs)},
            )
            for m in message.topics
        ),
        validate_only=message.validate_only,
    )


def _create_topics_answer_out(reply: CreateTopicsReply) -> dict[str, Any]:
    return {
        "topics": [
            pb.MadeTopic(
                fault=optional_fault(topic.error),
                name=topic.name,
                topic_id=bytes(topic.topic_id),
                partition_count=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=dict(topic.configs),
            )
            for topic in reply.topics
        ]
    }


def _create_topics_answer_in(message: Any) -> CreateTopicsReply:
    return CreateTopicsReply(
        topics=tuple(
            CreatedTopic(
                name=m.name,
                error=optional_error(m),
                topic_id=Uuid(m.topic_id),
                partition_count=m.partition_count,
                replication_factor=m.replication_factor,
                configs={key: m.configs[key] for key in sorted(m.configs)},
            )
            for m in message.topics
        )
    )


def _delete_topics_out(request: DeleteTopics) -> dict[str, Any]:
    return {"topics": [pb.TopicKey(name=topic.name, topic_id=bytes(topic.topic_id)) for topic in request.topics]}


def _delete_topics_in(message: Any) -> DeleteTopics:
    return DeleteTopics(
        topics=tuple(
            TopicReference(name=m.name if m.HasField("name") else None, topic_id=Uuid(m.topic_id))
            for m in message.topics
        )
    )


def _delete_topics_answer_out(reply: DeleteTopicsReply) -> dict[str, Any]:
    return {
        "topics": [
            pb.GoneTopic(fault=optional_fault(topic.error), name=topic.name, topic_id=bytes(topic.topic_id))
            for topic in reply.topics
        ]
    }


def _delete_topics_answer_in(message: Any) -> DeleteTopicsReply:
    return DeleteTopicsReply(
        topics=tuple(
            DeletedTopic(
                name=m.name if m.HasField("name") else None, topic_id=Uuid(m.topic_id), error=optional_error(m)
            )
            for m in message.topics
        )
    )


def _create_partitions_out(request: CreatePartitions) -> dict[str, Any]:
    return {
        "topics": [
            pb.MorePartitions(
                name=topic.name,
                partition_count=topic.partition_count,
                assignments=[pb.Replicas(broker_ids=ids) for ids in topic.assignments],
            )
            for topic in request.topics
        ],
        "validate_only": request.validate_only,
    }


def _create_partitions_in(message: Any) -> CreatePartitions:
    return CreatePartitions(
        topics=tuple(
            TopicGrowth(
                name=m.name,
                partition_count=m.partition_count,
                assignments=tuple(brokers_in(replicas.broker_ids) for replicas in m.assignments),
            )
            for m in message.topics
        ),
        validate_only=message.validate_only,
    )


def _create_partitions_answer_out(reply: CreatePartitionsReply) -> dict[str, Any]:
    return {
        "topics": [pb.GrownTopicState(fault=optional_fault(topic.error), name=topic.name) for topic in reply.topics]
    }


def _create_partitions_answer_in(message: Any) -> CreatePartitionsReply:
    return CreatePartitionsReply(topics=tuple(GrownTopic(name=m.name, error=optional_error(m)) for m in message.topics))


# --- configs ------------------------------------------------------------------------------------------------------------


def _alter_configs_out(request: IncrementalAlterConfigs) -> dict[str, Any]:
    return {
        "resources": [
            pb.ConfigEdits(
                resource_type=int(resource.resource_type),
                resource_name=resource.resource_name,
                edits=[
                    pb.ConfigEdit(key=change.key, operation=int(change.operation), value=change.value)
                    for change in resource.changes
                ],
            )
            for resource in request.resources
        ],
        "validate_only": request.validate_only,
    }


def _alter_configs_in(message: Any) -> IncrementalAlterConfigs:
    return IncrementalAlterConfigs(
        resources=tuple(
            ConfigAlteration(
                resource_type=ConfigResourceType(m.resource_type),
                resource_name=m.resource_name,
                changes=tuple(
                    ConfigChange(
                        key=edit.key,
                        operation=ConfigOperation(edit.operation),
                        value=edit.value if edit.HasField("value") else None,
                    )
                    for edit in m.edits
                ),
            )
            for m in message.resources
        ),
        validate_only=message.validate_only,
    )


def _alter_configs_answer_out(reply: IncrementalAlterConfigsReply) -> dict[str, Any]:
    return {
        "resources": [
            pb.EditedConfig(
                fault=optional_fault(resource.error),
                resource_type=int(resource.resource_type),
                resource_name=resource.resource_name,
            )
            for resource in reply.resources
        ]
    }


def _alter_configs_answer_in(message: Any) -> IncrementalAlterConfigsReply:
    return IncrementalAlterConfigsReply(
        resources=tuple(
            AlteredConfig(
                resource_type=ConfigResourceType(m.resource_type),
                resource_name=m.resource_name,
                error=optional_error(m),
            )
            for m in message.resources
        )
    )


VERBS: tuple[Verb, ...] = (
    Verb(
        method="RegisterBroker",
        request_type=RegisterBroker,
        call_type=pb.RegisterBrokerCall,
        answer_type=pb.RegisterBrokerAnswer,
        write_call=_register_out,
        read_call=_register_in,
        write_answer=lambda reply: {"broker_epoch": reply.broker_epoch},
        read_answer=lambda m: RegisterBrokerReply(broker_epoch=m.broker_epoch),
    ),
    Verb(
        method="AlterPartition",
        request_type=AlterPartition,
        call_type=pb.AlterPartitionCall,
        answer_type=pb.AlterPartitionAnswer,
        write_call=_alter_partition_out,
        read_call=_alter_partition_in,
        write_answer=_alter_partition_answer_out,
        read_answer=_alter_partition_answer_in,
    ),
    Verb(
        method="CreateTopics",
        request_type=CreateTopics,
        call_type=pb.CreateTopicsCall,
        answer_type=pb.CreateTopicsAnswer,
        write_call=_create_topics_out,
        read_call=_create_topics_in,
        write_answer=_create_topics_answer_out,
        read_answer=_create_topics_answer_in,
    ),
    Verb(
        method="DeleteTopics",
        request_type=DeleteTopics,
        call_type=pb.DeleteTopicsCall,
        answer_type=pb.DeleteTopicsAnswer,
        write_call=_delete_topics_out,
        read_call=_delete_topics_in,
        write_answer=_delete_topics_answer_out,
        read_answer=_delete_topics_answer_in,
    ),
    Verb(
        method="CreatePartitions",
        request_type=CreatePartitions,
        call_type=pb.CreatePartitionsCall,
        answer_type=pb.CreatePartitionsAnswer,
        write_call=_create_partitions_out,
        read_call=_create_partitions_in,
        write_answer=_create_partitions_answer_out,
        read_answer=_create_partitions_answer_in,
    ),
    Verb(
        method="IncrementalAlterConfigs",
        request_type=IncrementalAlterConfigs,
        call_type=pb.IncrementalAlterConfigsCall,
        answer_type=pb.IncrementalAlterConfigsAnswer,
        write_call=_alter_configs_out,
        read_call=_alter_configs_in,
        write_answer=_alter_configs_answer_out,
        read_answer=_alter_configs_answer_in,
    ),
    Verb(
        method="AllocateProducerIds",
        request_type=AllocateProducerIds,
        call_type=pb.AllocateProducerIdsCall,
        answer_type=pb.AllocateProducerIdsAnswer,
        write_call=lambda request: {"broker_id": request.broker_id, "broker_epoch": request.broker_epoch},
        read_call=lambda m: AllocateProducerIds(broker_id=BrokerId(m.broker_id), broker_epoch=m.broker_epoch),
        write_answer=lambda reply: {"first": reply.first, "count": reply.count},
        read_answer=lambda m: AllocateProducerIdsReply(first=m.first, count=m.count),
    ),
    *PARTITION_VERBS,
    *CLUSTER_VERBS,
    *INTEGRITY_VERBS,
)
"""Every unary call of the service, in its order."""

COMMITTED_OFFSET_KEY = "barnabas-committed-offset"
"""Trailing metadata of every answer: the metadata offset that the controller had committed when it answered."""

VERB_BY_REQUEST: dict[type, Verb] = {verb.request_type: verb for verb in VERBS}
