"""Requests that brokers make for themselves, decided with the help of their sessions.

May touch:  brokers.py, sessions.      Must not touch: everything that waits.
Invariants: only these decisions touch sessions; a heartbeat renews the session whatever its outcome.
Read next:  brokers.py for the rules; sessions.py for who is alive.
"""

from __future__ import annotations

from barnabas_quorum.controller import brokers
from barnabas_quorum.controller.decisions import DecisionContext, decides
from barnabas_quorum.controller.partitions import registered_broker
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    RegisterBroker,
    RegisterBrokerReply,
)
from barnabas_quorum.controller.requests_partitions import UnregisterBroker, UnregisterBrokerReply
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.controller.sessions import least_session_ms
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import Offset


@decides(RegisterBroker)
def register_broker(
    image: MetadataImage, request: RegisterBroker, context: DecisionContext
) -> ControllerResult[RegisterBrokerReply]:
    """See brokers.register_broker."""
    registered = image.cluster.broker(request.broker_id)
    least_ms = 0 if registered is None else least_session_ms(registered.features)
    return brokers.register_broker(
        image,
        request,
        cluster_id=context.cluster_id,
        next_offset=context.next_offset,
        has_live_session=context.sessions.is_live(request.broker_id, now_ms=context.now_ms, at_least_ms=least_ms),
        rules=context.rules,
    )


@decides(BrokerHeartbeat)
def heartbeat(
    image: MetadataImage, request: BrokerHeartbeat, context: DecisionContext
) -> ControllerResult[BrokerHeartbeatReply]:
    """See brokers.heartbeat."""
    sessions, now_ms = context.sessions, context.now_ms
    registered_broker(image, request.broker_id, request.broker_epoch)
    sessions.touch(request.broker_id, request.broker_epoch, metadata_offset=request.metadata_offset, now_ms=now_ms)
    session = sessions.get(request.broker_id)
    assert session is not None, "touch creates a session"
    others = [
        broker.id for broker in image.cluster.sorted_brokers() if broker.is_active and broker.id != request.broker_id
    ]
    result = brokers.heartbeat(
        image,
        request,
        lowest_active_offset=sessions.lowest_offset(others, default=context.next_offset),
        shutdown_offset=session.shutdown_offset,
        rules=context.rules,
    )
    if result.response.is_fenced:
        sessions.note_fenced(request.broker_id)
    else:
        sessions.note_unfenced(request.broker_id, now_ms=now_ms)
    if request.want_shutdown and result.records and not result.response.should_shutdown:
        session.shutdown_offset = Offset(context.next_offset + len(result.records) - 1)
    return result


@decides(UnregisterBroker)
def unregister_broker(
    image: MetadataImage, request: UnregisterBroker, context: DecisionContext
) -> ControllerResult[UnregisterBrokerReply]:
    """See brokers.unregister_broker."""
    result = brokers.unregister_broker(image, request, rules=context.rules)
    context.sessions.forget(request.broker_id)
    return result
