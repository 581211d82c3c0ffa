"""Other brokers as a coordinator speaks to them: one request each at a time, over the Kafka protocol.

May touch:  barnabas_wire.client (sockets, through it).      Must not touch: shards, logs, metadata.
Invariants: a request to this broker itself never meets a socket; a connection that failed once is closed and made
            again.
Read next:  transaction/markers.py and transaction/verification.py, the callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint


class Brokers(Protocol):
    """Every broker of the cluster, this one among them."""

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        """A declared request and its response. Raises KafkaError, OSError, TimeoutError."""
        ...


class KafkaBrokers:
    """Brokers over TCP; this one by a call. Meets Brokers. Lives on the data lane."""

    def __init__(
        self,
        *,
        own_id: BrokerId,
        endpoint_of: Callable[[BrokerId], Endpoint | None],
        timeout_ms: int,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """timeout_ms: for connecting, and for an answer. security: of the inter-broker listeners.

        `serve` must be set before the first call.
        """
        self.serve: Callable[[Any], Awaitable[Any]] | None = None
        """Answers a request to this broker."""
        self._own_id = own_id
        self._endpoint_of = endpoint_of
        self._timeout_s = timeout_ms / 1000
        self._security = security
        self._connections: dict[BrokerId, tuple[Endpoint, AioConnection]] = {}

    async def call(self, broker_id: BrokerId, request: Any) -> Any:
        """See Brokers.call."""
        if broker_id == self._own_id:
            assert self.serve is not None, "no handlers are known yet"
            return await self.serve(request)
        connection = await self._connection(broker_id)
        return await connection.call(request, timeout_s=self._timeout_s)

    async def _connection(self, broker_id: BrokerId) -> AioConnection:
        endpoint = self._endpoint_of(broker_id)
        if endpoint is None:
            raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        known = self._connections.get(broker_id)
        if known is not None:
            if known[0] == endpoint and not known[1].is_closed:
                return known[1]
            del self._connections[broker_id]
            await known[1].close()
        made = await AioConnection.connect(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._own_id}-coordinator",
            timeout_s=self._timeout_s,
            security=self._security,
        )
        other = self._connections.get(broker_id)
        if other is not None and other[0] == endpoint and not other[1].is_closed:  # another call was faster
            await made.close()
            return other[1]
        self._connections[broker_id] = endpoint, made
        return made

    async def close(self) -> None:
        """Let go of all connections."""
        while self._connections:
            _, (_, connection) = self._connections.popitem()
            await connection.close()
