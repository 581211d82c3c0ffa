"""The one cluster that a console shows: its admin service from threads, its Kafka listeners from the console's loop.

May touch:  threads of its own, AdminClient, ClusterClient.      Must not touch: HTTP, templates.
Invariants: an AdminClient stays in its thread; a Kafka client that failed is closed and the next call opens another, so that a
            cluster that restarts is found again.
Read next:  pages.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from barnabas_admin.client import AdminClient
from barnabas_admin.console.history import History
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.security import ClientSecurity

T = TypeVar("T")

CLIENT_ID = "barnabas-console"
ADMIN_THREADS = 4
"""Calls of the admin service at once; more wait."""


class ConsoleCluster:
    """Asks one cluster. Its methods belong to one event loop and may overlap."""

    def __init__(
        self,
        open_admin: Callable[[], AdminClient],
        *,
        brokers: str | None,
        security: ClientSecurity,
        timeout_s: float,
    ) -> None:
        """`brokers` are Kafka listeners as host:port,…; None takes those that the admin service reports."""
        self._open_admin = open_admin
        self._brokers = brokers
        self._security = security
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(ADMIN_THREADS, thread_name_prefix="console-admin")
        self._of_thread = threading.local()
        self._clients: list[AdminClient] = []
        self._kafka: ClusterClient | None = None
        self.history: History | None = None
        """What was seen of the cluster in the last day; None where nothing is kept."""

    async def admin(self, ask: Callable[[AdminClient], T]) -> T:
        """Run one question to the admin service in a thread. Raises what it raises, as a rule AdminError."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, ask)

    async def kafka(self, ask: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Run one question to the brokers. Raises KafkaError, OSError or TimeoutError, and AdminError where no broker serves."""
        if self._kafka is None:
            servers = self._brokers if self._brokers is not None else await self.admin(AdminClient.kafka_addresses)
            self._kafka = ClusterClient(
                servers, client_id=CLIENT_ID, timeout_s=self._timeout_s, security=self._security
            )
        client = self._kafka
        try:
            return await ask(client)
        except (OSError, TimeoutError):
            if self._kafka is client:
                self._kafka = None
            await client.close()
            raise

    async def close(self) -> None:
        """Close every client."""
        if self._kafka is not None:
            await self._kafka.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for client in self._clients:
            client.close()

    def _ask(self, ask: Callable[[AdminClient], T]) -> T:
        client: AdminClient | None = getattr(self._of_thread, "client", None)
        if client is None:
            client = self._of_thread.client = self._open_admin()
            self._clients.append(client)
        return ask(client)
