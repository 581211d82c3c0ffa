"""The leader hints of KIP-951: beside "not leader" a client learns who leads, and where that node listens.

May touch:  its arguments.            Must not touch: sockets, clock.
Invariants: an endpoint is of the listener that the request came in on; a node is named once.
Read next:  produce.py, fetch.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas_broker.api.services import BrokerServices
from barnabas_replication.requests import CurrentLeader
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint


def node_endpoints(
    services: BrokerServices, listener: str, leaders: Iterable[CurrentLeader | None]
) -> list[LeaderEndpoint]:
    """The address of each leader that is registered and has that listener. Where clients are told the address of this node that they
    came to, they have it, and the registered one may lead nowhere from there."""
    image = services.metadata.image
    found: list[LeaderEndpoint] = []
    ids: dict[BrokerId, None] = {leader.leader_id: None for leader in leaders if leader is not None}
    if listener in services.auto_listeners:
        ids.pop(services.node_id, None)
    for leader_id in ids:
        broker = image.cluster.broker(leader_id)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(LeaderEndpoint(leader_id, endpoint.host, endpoint.port, broker.rack))
    return found
