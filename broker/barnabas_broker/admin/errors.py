"""How an error of the admin service travels: a gRPC status, and code, message, hint and retriability beside it.

May touch:  grpc.aio's context.       Must not touch: everything else.
Invariants: every refusal carries the controller's own words; a hint is a command where there is one.
Read next:  service.py.
"""

from __future__ import annotations

from typing import Any

import grpc

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import admin_pb2

ERROR_METADATA_KEY = "barnabas-error-bin"

_HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`barnabas topic list` shows the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`barnabas topic describe NAME` shows it; --if-not-exists accepts it",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`barnabas broker list` shows how many brokers are in service",
    ErrorCode.INVALID_CONFIG: "`barnabas topic config NAME` shows the keys, with -o json what they mean too",
    ErrorCode.NOT_CONTROLLER: "an election is under way: try again, or see `barnabas quorum status`",
    ErrorCode.REQUEST_TIMED_OUT: "see `barnabas cluster health`; the change may still happen",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "`barnabas broker list` shows the brokers",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "`barnabas topic reassignments` shows what is under way",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`barnabas broker list` shows the brokers that may hold replicas",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "`barnabas topic describe TOPIC` shows who is in sync",
    ErrorCode.VOTER_NOT_FOUND: "`barnabas quorum replicas` lists voters and observers",
    ErrorCode.DUPLICATE_VOTER: "`barnabas quorum replicas` lists voters and observers",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "`barnabas broker list` shows who is out of service",
}
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: grpc.StatusCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: grpc.StatusCode.NOT_FOUND,
    ErrorCode.BROKER_ID_NOT_REGISTERED: grpc.StatusCode.NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.VOTER_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorCode.DUPLICATE_VOTER: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.TOPIC_ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.NOT_CONTROLLER: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.UNKNOWN_SERVER_ERROR: grpc.StatusCode.INTERNAL,
}


def detail_of(error: KafkaError | None) -> admin_pb2.ErrorDetail | None:
    """The error of a call, or of one item, as it travels; None for none."""
    if error is None:
        return None
    return admin_pb2.ErrorDetail(
        code=error.code,
        name=error.code.name,
        message=error.message or error.code.name.replace("_", " ").lower(),
        hint=_HINTS.get(error.code, ""),
        retriable=error.is_retriable,
    )


async def abort(context: Any, error: KafkaError) -> None:
    """End the call with the status for the code; the whole error goes into the trailing metadata."""
    detail = detail_of(error)
    assert detail is not None
    status = _STATUS.get(error.code, grpc.StatusCode.INVALID_ARGUMENT)
    trailer = ((ERROR_METADATA_KEY, detail.SerializeToString()),)
    await context.abort(status, f"{detail.name}: {detail.message}", trailer)


def unknown_topic(name: str) -> KafkaError:
    """For a name that no topic has."""
    return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
