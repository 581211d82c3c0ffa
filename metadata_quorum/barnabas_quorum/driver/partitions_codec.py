"""Requests about partitions and their replicas to protobuf and back: the part of the table that requests_partitions.py needs.

May touch:  controller.requests_partitions, barnabas_wire.rpc.controller_pb2.   Must not touch: asyncio, gRPC, images.
Invariants: those of controller_codec.py; "no partitions named" and "all partitions" never become each other.
Read next:  controller_codec.py, which takes these verbs into its table.
"""

from __future__ import annotations

from typing import Any

from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    AlterReplicaFaults,
    AlterReplicaFaultsReply,
    AssignReplicasToDirectories,
    AssignReplicasToDirectoriesReply,
    ElectedPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    OngoingReassignment,
    PartitionReassignment,
    PlacedReplica,
    ReassignedPartition,
    ReplicaFaultReport,
    ReplicaPlacement,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from barnabas_quorum.driver.controller_verb import Verb, brokers_in, optional_error, optional_fault
from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.rpc import controller_pb2 as pb


def _names_out(names: tuple[tuple[str, int], ...] | None) -> Any:
    if names is None:
        return None
    return pb.PartitionNames(names=[pb.PartitionName(topic=topic, partition_id=index) for topic, index in names])


def _names_in(message: Any) -> tuple[tuple[str, int], ...] | None:
    if not message.HasField("partitions"):
        return None
    return tuple((name.topic, name.partition_id) for name in message.partitions.names)


def _elect_in(message: Any) -> ElectLeaders:
    return ElectLeaders(election_type=ElectionType(message.election_type), partitions=_names_in(message))


def _elect_answer_out(reply: ElectLeadersReply) -> dict[str, Any]:
    return {
        "partitions": [
            pb.ElectedLeader(
                fault=optional_fault(item.error), topic=item.topic, partition_id=item.partition_id, leader=item.leader
            )
            for item in reply.partitions
        ]
    }


def _elect_answer_in(message: Any) -> ElectLeadersReply:
    return ElectLeadersReply(
        partitions=tuple(
            ElectedPartition(
                topic=m.topic, partition_id=m.partition_id, leader=BrokerId(m.leader), error=optional_error(m)
            )
            for m in message.partitions
        )
    )


def _reassign_out(request: AlterPartitionReassignments) -> dict[str, Any]:
    return {
        "partitions": [
            pb.WantedReplicas(
                topic=item.topic,
                partition_id=item.partition_id,
                replicas=None if item.replicas is None else pb.Replicas(broker_ids=item.replicas),
            )
            for item in request.partitions
        ],
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "validate_only": request.validate_only,
    }


def _reassign_in(message: Any) -> AlterPartitionReassignments:
    return AlterPartitionReassignments(
        partitions=tuple(
            PartitionReassignment(
                topic=m.topic,
                partition_id=m.partition_id,
                replicas=brokers_in(m.replicas.broker_ids) if m.HasField("replicas") else None,
            )
            for m in message.partitions
        ),
        allow_replication_factor_change=message.allow_replication_factor_change,
        validate_only=message.validate_only,
    )


def _reassign_answer_out(reply: AlterPartitionReassignmentsReply) -> dict[str, Any]:
    return {
        "partitions": [
            pb.ReassignedReplicas(fault=optional_fault(item.error), topic=item.topic, partition_id=item.partition_id)
            for item in reply.partitions
        ]
    }


def _reassign_answer_in(message: Any) -> AlterPartitionReassignmentsReply:
    return AlterPartitionReassignmentsReply(
        partitions=tuple(
            ReassignedPartition(topic=m.topic, partition_id=m.partition_id, error=optional_error(m))
            for m in message.partitions
        )
    )


def _list_answer_out(reply: ListPartitionReassignmentsReply) -> dict[str, Any]:
    return {
        "partitions": [
            pb.ReassignmentState(
                topic=item.topic,
                partition_id=item.partition_id,
                replicas=item.replicas,
                adding=item.adding,
                removing=item.removing,
                isr=item.isr,
            )
            for item in reply.partitions
        ]
    }


def _list_answer_in(message: Any) -> ListPartitionReassignmentsReply:
    return ListPartitionReassignmentsReply(
        partitions=tuple(
            OngoingReassignment(
                topic=m.topic,
                partition_id=m.partition_id,
                replicas=brokers_in(m.replicas),
                adding=brokers_in(m.adding),
                removing=brokers_in(m.removing),
                isr=brokers_in(m.isr),
            )
            for m in message.partitions
        )
    )


def _assign_out(request: AssignReplicasToDirectories) -> dict[str, Any]:
    return {
        "broker_id": request.broker_id,
        "broker_epoch": request.broker_epoch,
        "placements": [
            pb.ReplicaInDirectory(
                topic_id=bytes(item.topic_id),
                partition_id=item.partition_id,
                directory_id=bytes(item.directory_id),
            )
            for item in request.placements
        ],
    }


def _assign_in(message: Any) -> AssignReplicasToDirectories:
    return AssignReplicasToDirectories(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=message.broker_epoch,
        placements=tuple(
            ReplicaPlacement(topic_id=Uuid(m.topic_id), partition_id=m.partition_id, directory_id=Uuid(m.directory_id))
            for m in message.placements
        ),
    )


def _assign_answer_out(reply: AssignReplicasToDirectoriesReply | AlterReplicaFaultsReply) -> dict[str, Any]:
    return {
        "replicas": [
            pb.PlacedReplicaState(
                fault=optional_fault(item.error), topic_id=bytes(item.topic_id), partition_id=item.partition_id
            )
            for item in reply.replicas
        ]
    }


def _assign_answer_in(message: Any) -> AssignReplicasToDirectoriesReply:
    return AssignReplicasToDirectoriesReply(replicas=_placed_in(message))


def _placed_in(message: Any) -> tuple[PlacedReplica, ...]:
    return tuple(
        PlacedReplica(topic_id=Uuid(m.topic_id), partition_id=m.partition_id, error=optional_error(m))
        for m in message.replicas
    )


def _faults_out(request: AlterReplicaFaults) -> dict[str, Any]:
    return {
        "broker_id": request.broker_id,
        "broker_epoch": request.broker_epoch,
        "reports": [
            pb.ReplicaFaultReport(
                topic_id=bytes(item.topic_id),
                partition_id=item.partition_id,
                replica_fault=0 if item.fault is None else int(item.fault),
            )
            for item in request.reports
        ],
    }


def _faults_in(message: Any) -> AlterReplicaFaults:
    return AlterReplicaFaults(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=message.broker_epoch,
        reports=tuple(
            ReplicaFaultReport(
                topic_id=Uuid(m.topic_id),
                partition_id=m.partition_id,
                fault=ReplicaFault(m.replica_fault) if m.replica_fault else None,
            )
            for m in message.reports
        ),
    )


PARTITION_VERBS: tuple[Verb, ...] = (
    Verb(
        method="ElectLeaders",
        request_type=ElectLeaders,
        call_type=pb.ElectLeadersCall,
        answer_type=pb.ElectLeadersAnswer,
        write_call=lambda request: {
            "election_type": int(request.election_type),
            "partitions": _names_out(request.partitions),
        },
        read_call=_elect_in,
        write_answer=_elect_answer_out,
        read_answer=_elect_answer_in,
    ),
    Verb(
        method="AlterPartitionReassignments",
        request_type=AlterPartitionReassignments,
        call_type=pb.AlterPartitionReassignmentsCall,
        answer_type=pb.AlterPartitionReassignmentsAnswer,
        write_call=_reassign_out,
        read_call=_reassign_in,
        write_answer=_reassign_answer_out,
        read_answer=_reassign_answer_in,
    ),
    Verb(
        method="ListPartitionReassignments",
        request_type=ListPartitionReassignments,
        call_type=pb.ListPartitionReassignmentsCall,
        answer_type=pb.ListPartitionReassignmentsAnswer,
        write_call=lambda request: {"partitions": _names_out(request.partitions)},
        read_call=lambda m: ListPartitionReassignments(partitions=_names_in(m)),
        write_answer=_list_answer_out,
        read_answer=_list_answer_in,
    ),
    Verb(
        method="AssignReplicasToDirectories",
        request_type=AssignReplicasToDirectories,
        call_type=pb.AssignReplicasToDirectoriesCall,
        answer_type=pb.AssignReplicasToDirectoriesAnswer,
        write_call=_assign_out,
        read_call=_assign_in,
        write_answer=_assign_answer_out,
        read_answer=_assign_answer_in,
    ),
    Verb(
        method="AlterReplicaFaults",
        request_type=AlterReplicaFaults,
        call_type=pb.AlterReplicaFaultsCall,
        answer_type=pb.AlterReplicaFaultsAnswer,
        write_call=_faults_out,
        read_call=_faults_in,
        write_answer=_assign_answer_out,
        read_answer=lambda m: AlterReplicaFaultsReply(replicas=_placed_in(m)),
    ),
    Verb(
        method="UnregisterBroker",
        request_type=UnregisterBroker,
        call_type=pb.UnregisterBrokerCall,
        answer_type=pb.UnregisterBrokerAnswer,
        write_call=lambda request: {"broker_id": request.broker_id},
        read_call=lambda m: UnregisterBroker(broker_id=BrokerId(m.broker_id)),
        write_answer=lambda reply: {},
        read_answer=lambda m: UnregisterBrokerReply(),
    ),
)
