"""Errors as they travel between a node and the active controller.

May touch:  controller.requests, barnabas_wire.rpc.controller_pb2.   Must not touch: asyncio, gRPC, images.
Invariants: an error that travelled has the code and the message it left with.
Read next:  verbs.py, which puts them into answers.
"""

from __future__ import annotations

from typing import Any

from barnabas_quorum.controller.requests import NotActiveController
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import controller_pb2 as pb


def fault_of(error: KafkaError) -> Any:
    """An error as it travels."""
    if not isinstance(error, NotActiveController):
        return pb.Fault(code=int(error.code), message=error.message)
    return pb.Fault(
        code=int(error.code), message=error.message, leader_id=error.leader_id, is_unsettled=error.is_unsettled
    )


def error_of(fault: Any) -> KafkaError:
    """The error that travelled; a code this version does not know becomes UNKNOWN_SERVER_ERROR."""
    try:
        code = ErrorCode(fault.code)
    except ValueError:
        return KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {fault.code}: {fault.message}")
    if code is ErrorCode.NOT_CONTROLLER:
        leader_id = BrokerId(fault.leader_id) if fault.HasField("leader_id") else None
        return NotActiveController(fault.message, leader_id=leader_id, is_unsettled=fault.is_unsettled)
    return KafkaError.of(code, fault.message)
