"""One call of the controller's service in both forms, and errors as they travel: what every table of verbs is made of.

May touch:  controller.requests, barnabas_wire.rpc.controller_pb2.   Must not touch: asyncio, gRPC, images.
Invariants: an error that travelled has the code and the message it left with.
Read next:  controller_codec.py, which composes the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from barnabas_quorum.controller.requests import NotActiveController
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc import controller_pb2 as pb


class Verb(NamedTuple):
    """One unary call: its name in the service and its four conversions."""

    method: str
    request_type: type
    call_type: Any
    """Protobuf message of the request."""
    answer_type: Any
    """Protobuf message of the reply; has a `fault`."""
    write_call: Callable[[Any], dict[str, Any]]
    read_call: Callable[[Any], Any]
    write_answer: Callable[[Any], dict[str, Any]]
    read_answer: Callable[[Any], Any]


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


def optional_fault(error: KafkaError | None) -> Any:
    """The fault of one item of a reply; None where it has none."""
    return None if error is None else fault_of(error)


def optional_error(message: Any) -> KafkaError | None:
    """The error of one item of a reply; None where it has none."""
    return error_of(message.fault) if message.HasField("fault") else None


def brokers_in(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    """Broker ids of a message."""
    return tuple(BrokerId(broker_id) for broker_id in ids)
