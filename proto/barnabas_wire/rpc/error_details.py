"""How an error travels to an operator: its code, its words, and what mends it, as a command where there is one.

May touch:  error codes, admin_pb2.   Must not touch: everything else.
Invariants: one table of hints for the services of the admin listener and for their client.
Read next:  admin.proto, whose ErrorDetail this makes.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import admin_pb2

HINTS: Mapping[ErrorCode, str] = {
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


def detail_of(error: KafkaError | None) -> admin_pb2.ErrorDetail | None:
    """The error of a call, or of one item, as it travels; None for none."""
    if error is None:
        return None
    return admin_pb2.ErrorDetail(
        code=error.code,
        name=error.code.name,
        message=error.message or error.code.name.replace("_", " ").lower(),
        hint=HINTS.get(error.code, ""),
        retriable=error.is_retriable,
    )
