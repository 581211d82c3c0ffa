"""Makes a node's Kafka listeners from its config: the same in every world whose loop can accept connections.

May touch:  network, to build it.     Must not touch: the order of start and stop; sockets, which the running loop opens.
Invariants: the operator's bounds of connections are those that the process has descriptors for.
Read next:  ../network/listener.py; surroundings.py (KafkaListeners).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace

from barnabas_broker.api.registry import Api
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.network.listener import KafkaServer, ListenAddress, stopwatch_ms
from barnabas_broker.node.descriptor_budget import DescriptorBudget
from barnabas_broker.node.properties import NodeConfig
from barnabas_wire.kafka.ids import Endpoint


def kafka_listeners(
    services: BrokerServices,
    *,
    config: NodeConfig,
    descriptors: DescriptorBudget,
    wrap: Callable[[Api], Api] | None,
    sockets: Mapping[Endpoint, socket.socket] | None = None,
    now_ms: Callable[[], float] = stopwatch_ms,
) -> KafkaServer:
    """Not bound yet. wrap: see Surroundings.listen. sockets: of listeners that are bound already. now_ms: the clock of quotas,
    which never jumps."""
    bound = sockets or {}
    return KafkaServer(
        addresses=[
            ListenAddress(
                point.listener,
                point.host,
                point.port,
                config.listener_security[point.listener],
                bound.get(point),
            )
            for point in config.server.kafka_endpoints()
        ],
        config=replace(
            config.network,
            max_connections=descriptors.connections_max,
            inter_broker_connections_reserved=descriptors.connections_reserved,
        ),
        services=services,
        quota_config=config.quota,
        client_tls=config.client_tls,
        wrap=wrap,
        now_ms=now_ms,
    )
