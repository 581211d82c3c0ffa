"""How an error of the admin service ends a call: a gRPC status, and code, message, hint and retriability beside it.

May touch:  grpc.aio's context.       Must not touch: everything else.
Invariants: every refusal carries the controller's own words.
Read next:  service.py; barnabas_wire/rpc/error_details.py (the hints).
"""

from __future__ import annotations

from typing import Any

import grpc

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc.error_details import detail_of

ERROR_METADATA_KEY = "barnabas-error-bin"

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


async def abort(context: Any, error: KafkaError) -> None:
    """End the call with the status for the code; the whole error goes into the trailing metadata."""
    detail = detail_of(error)
    assert detail is not None
    status = _STATUS.get(error.code, grpc.StatusCode.INVALID_ARGUMENT)
    trailer = ((ERROR_METADATA_KEY, detail.SerializeToString()),)
    await context.abort(status, f"{detail.name}: {detail.message}", trailer)


def unknown_topic(name: str) -> KafkaError:
    """The error for a name that no topic has."""
    return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
