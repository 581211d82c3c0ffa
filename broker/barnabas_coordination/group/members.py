"""One member of a classic group: what it asked for, what it is assigned, which request of it is parked.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: what a record carries of a member is what `to_value` writes and `restored_member` reads; the rest is soft state.
Read next:  classic.py, which keeps the members.
"""

from __future__ import annotations

from barnabas_coordination.group.messages import JoinRequest
from barnabas_coordination.group.protocols import Offer
from barnabas_coordination.group.records import MemberValue
from barnabas_coordination.shard import Ticket
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ClassicMember:
    """One member and the request of it that is parked, if any."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Offer
    assignment: bytes = b""
    is_new: bool = False
    """Its first join is not answered yet."""
    awaiting_join: Ticket | None = None
    awaiting_sync: Ticket | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said for one protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def to_value(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """The member as a record of its generation has it."""
        return MemberValue(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )


def member_of(request: JoinRequest, member_id: str) -> ClassicMember:
    """The member that asks to join, under the id it gets."""
    return ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )


def size_of(asked: JoinRequest | ClassicMember) -> int:
    """Bytes of what a member says of itself."""
    texts = len(asked.member_id) + len(asked.client_id) + len(asked.instance_id or "")
    return texts + sum(len(name) + len(metadata) for name, metadata in asked.protocols)


def restored_member(value: MemberValue, protocol: str | None, known: ClassicMember | None) -> ClassicMember:
    """A member as its record has it. Of what was known of it before, only the rest of the same offer stays."""
    chosen = (protocol or "", value.subscription)
    return ClassicMember(
        member_id=value.member_id,
        instance_id=value.instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=known.protocols if known is not None and chosen in known.protocols else (chosen,),
        assignment=value.assignment,
    )
