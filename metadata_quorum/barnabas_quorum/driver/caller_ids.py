"""Which node each call to a controller says that it comes from.

May touch:  the generated types.      Must not touch: gRPC, images, decisions.
Invariants: every call that a node makes in its own name is in here, found by its fields and by the requests' `is_nodes_own`; a call
            that carries out somebody else's wish (CreateTopics) claims nothing: its principal is checked where it is carried out.
            A change of voters is a node's own where VoterChange.is_replicas_own says so.
Read next:  barnabas_wire/rpc/peers.py, whose guard compares the claim with the caller's certificate.
"""

from __future__ import annotations

from typing import Any

from barnabas_quorum.driver.verbs import VERBS
from barnabas_wire.rpc import controller_pb2, quorum_pb2

_OWN_ID_FIELDS = ("broker_id", "controller_id")
_FIELD_BY_CALL: dict[type, str] = {
    verb.call_type: next(field for field in _OWN_ID_FIELDS if field in verb.call_type.DESCRIPTOR.fields_by_name)
    for verb in VERBS
    if verb.request_type.is_nodes_own
}
_WITH_HEADER = tuple(
    getattr(quorum_pb2, name)
    for name in ("VoteCall", "BeginQuorumEpochCall", "EndQuorumEpochCall", "FetchCall", "FetchSnapshotCall")
)


def claimed_node_id(message: Any) -> int | None:
    """The node that a call says it is of; None for one that says nothing of it."""
    if isinstance(message, _WITH_HEADER):
        return int(message.header.source.id)
    if isinstance(message, controller_pb2.HeartbeatMessage):
        return int(message.broker_id)
    if isinstance(message, quorum_pb2.ChangeVotersCall):
        if message.HasField("joiner"):
            return int(message.joiner.id)
        return int(message.voter.replica.id) if message.kind == quorum_pb2.ChangeVotersCall.UPDATE else None
    field = _FIELD_BY_CALL.get(type(message))
    return None if field is None else int(getattr(message, field))
