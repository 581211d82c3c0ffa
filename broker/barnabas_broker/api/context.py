"""What a handler knows of the request besides its body: the client, the listener, and the version.

May touch:  nothing.                  Must not touch: everything.
Invariants: built by the connection, one per request; never kept by a handler after its answer.
Read next:  registry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final

from barnabas_broker.api.slot import QuotaCharge
from barnabas_broker.security.access import OPEN_ACCESS, Access
from barnabas_broker.security.sasl.session import SaslSession
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_wire.kafka.ids import ANONYMOUS, BrokerId, Endpoint
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.lazy_dataclass import dataclass

HELD_MAX: Final = 64
"""Things that one connection holds at a time."""


@dataclass(slots=True)
class ClientSoftware:
    """What a client called itself in ApiVersions (KIP-511); of its connection."""

    name: str = "unknown"
    version: str = "unknown"


@dataclass(slots=True)
class RequestContext:
    """The client, the API and version that it asks for, and when."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str
    """Client id of the request header; empty when the client sent null."""
    listener_name: str
    """Name of the listener the connection came in on: addresses in answers are of that listener."""
    client_host: str
    """Peer address as text, without the port."""
    now_ms: int
    """Wall clock when the request was taken up, ms since 1970."""
    reached_at: str = ""
    """The address of this node that the connection came to, where its client is to be told that one; else empty."""
    principal: str = ANONYMOUS
    access: Access = OPEN_ACCESS
    """What the principal may do."""
    charge: QuotaCharge | None = None
    """What the request is charged with; None where no quota means its client."""
    is_dry: bool = False
    """Whether nothing may be changed; read by the handlers of messages that cannot say so themselves."""
    session: SaslSession | None = None
    """The login of the connection; None where its listener has no SASL."""
    client_port: int = 0
    software: ClientSoftware = field(default_factory=ClientSoftware)
    held: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What the connection holds beyond an answer, by name, with what lets go of it; see `hold`."""

    def endpoint_of(self, broker: BrokerRegistration | None, *, node_id: BrokerId) -> Endpoint | None:
        """Where the client reaches a broker; None where that has no such listener. node_id: of this node, which can vouch for its own
        address only."""
        endpoint = None if broker is None else broker.endpoint(self.listener_name)
        if endpoint is None or broker is None or broker.id != node_id or not self.reached_at:
            return endpoint
        return endpoint._replace(host=self.reached_at)

    def hold(self, name: str, let_go: Callable[[], None]) -> None:
        """Call this when the connection is gone, or something else is held under that name; at once for the oldest of too many."""
        hold(self.held, name, let_go)


def hold(held: dict[str, Callable[[], None]], name: str, let_go: Callable[[], None]) -> None:
    """See RequestContext.hold; `held` of its connection."""
    former = held.pop(name, None)
    if former is not None:
        former()
    elif len(held) >= HELD_MAX:
        held.pop(next(iter(held)))()
    held[name] = let_go
