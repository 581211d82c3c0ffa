"""From one Kafka address to the admin listeners: brokers say where they are among their configs; and what brokers answer in their place.

May touch:  barnabas_wire.client, an event loop of its own.    Must not touch: the context, gRPC.
Invariants: an admin listener on every address of its host is reached where its broker's Kafka listener is; a broker without one, or that
            does not answer in time, is left out.
Read next:  invocation.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.rpc.options import address_of

if TYPE_CHECKING:
    from barnabas_wire.client.security import ClientSecurity
    from barnabas_wire.kafka.schema import Message

CLIENT_ID = "barnabas-cli"
ADMIN_LISTENERS = "admin.listeners"
BROKER = 4
DISCOVERY_TIMEOUT_S = 5.0
WILDCARDS = ("", "0.0.0.0", "::", "[::]")
LOOPBACKS = ("127.0.0.1", "localhost", "::1", "[::1]")


def find_admin_listeners(servers: str, security: ClientSecurity, *, timeout_s: float) -> list[str]:
    """host:port of the brokers' admin listeners, by broker id; empty when none has one. Raises KafkaError, OSError, ValueError."""

    async def run() -> list[str]:
        client = ClusterClient(
            servers, client_id=CLIENT_ID, timeout_s=min(timeout_s, DISCOVERY_TIMEOUT_S), security=security
        )
        try:
            view = await client.metadata([])
            asked = [_ask(client, broker.id, broker.host) for _, broker in sorted(view.brokers.items())]
            return [address for found in await asyncio.gather(*asked) for address in found]
        finally:
            await client.close()

    return asyncio.run(run())


def ask_one_broker(servers: str, security: ClientSecurity, request: Message, *, timeout_s: float) -> Any:
    """The answer of one of these Kafka listeners, whichever it is. Raises KafkaError, OSError."""

    async def run() -> Any:
        client = ClusterClient(servers, client_id=CLIENT_ID, timeout_s=timeout_s, security=security)
        try:
            return await client.call(request)
        finally:
            await client.close()

    return asyncio.run(run())


async def _ask(client: ClusterClient, broker_id: int, host: str) -> list[str]:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(BROKER, str(broker_id), [ADMIN_LISTENERS])])
    with contextlib.suppress(KafkaError, OSError):
        answer = await client.call(request, broker_id=broker_id)
        return [
            address
            for result in answer.results
            for entry in result.configs
            for address in listeners_of(entry.value or "", host)
        ]
    return []


def listeners_of(value: str, kafka_host: str) -> list[str]:
    """The addresses in a value of admin.listeners, `HOST:PORT,…`, a protocol before each or not."""
    found = []
    for listener in filter(None, (part.strip() for part in value.split(","))):
        host, _, port = listener.rpartition("://")[2].rpartition(":")
        if not port.isdigit() or not int(port):
            continue
        if host in LOOPBACKS and kafka_host not in LOOPBACKS:
            continue  # on the broker's own host alone; here the same address may be another cluster's
        found.append(address_of(kafka_host if host in WILDCARDS else host.strip("[]"), int(port)))
    return found
