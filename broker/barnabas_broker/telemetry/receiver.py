"""Client telemetry of one broker: what clients ask, what they push, what is kept (KIP-714).

May touch:  the rooms' other files, a worker thread, the running loop.    Must not touch: sockets, the handlers.
Invariants: one push is opened at a time, off the data lane, and the thread rests in between, so that opening takes a tenth of a core at
            most; at most WAITING_MAX wait for it; without telemetry.receiver nothing is opened and nothing kept.
Read next:  instances.py, otlp.py, pushed_clients.py; ../api/telemetry.py, whose handlers use it.

No right guards a push, in Kafka neither. What a client says of a group or a topic counts only where it may read the one and describe
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from barnabas_broker.telemetry.config import TelemetryConfig
from barnabas_broker.telemetry.instances import FORGOTTEN_MS, Instances
from barnabas_broker.telemetry.pushed_clients import PushedClients, PushStats
from barnabas_broker.telemetry.subscriptions import Client, Subscriptions
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas_broker.telemetry.otlp import Push, Series

WAITING_MAX: Final = 16
"""Pushes that wait to be opened, or are."""
OPENED_BYTES_PER_S: Final = 3 * 1024 * 1024
"""After decompression. The worst of a MiB takes 35 ms (measured)."""
KEPT_INTERVALS: Final = 3
"""Readings are current for so many intervals."""

Submit = Callable[..., Future[Any]]


class ClientTelemetry:
    """One broker's. Belongs to the data lane; /metrics reads `clients` and `stats`."""

    def __init__(self, config: TelemetryConfig | None = None, *, submit: Submit | None = None) -> None:
        """submit: as an executor's, in place of a separate thread."""
        self.config = config or TelemetryConfig()
        self.stats = PushStats()
        self.subscriptions = Subscriptions()
        self.instances = Instances(self.subscriptions)
        self.clients = PushedClients(self.stats)
        self._submit = submit
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._free_s = 0.0
        """Loop time at which the next push may be opened."""

    async def receive(
        self,
        client: Client,
        compression: CompressionType,
        data: bytes,
        *,
        interval_ms: int,
        now_ms: int,
        may_name_group: Callable[[str], bool],
        may_name_topic: Callable[[str], bool],
    ) -> None:
        """Open a push that counts, and keep what is in it.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED where too many wait, INVALID_RECORD for what is no metrics or too many bytes of them.
        """
        if self._waiting >= WAITING_MAX:
            self.stats.busy += 1
            raise KafkaError.of(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{WAITING_MAX} pushes wait to be read already")
        self._waiting += 1
        try:
            push = await self._open(compression, data)
        finally:
            self._waiting -= 1
        if push.group_id and not may_name_group(push.group_id):
            push = push._replace(group_id="", member_id="")
        told = {series.topic for values in (push.gauges, push.totals, push.growth) for series in values}
        hidden = {topic for topic in told if topic and not may_name_topic(topic)}
        if hidden:
            push = push._replace(
                gauges=_without(push.gauges, hidden),
                totals=_without(push.totals, hidden),
                growth=_without(push.growth, hidden),
            )
        self.clients.add(client, push, now_ms=now_ms, kept_ms=max(FORGOTTEN_MS, KEPT_INTERVALS * interval_ms))

    def close(self) -> None:
        """Open nothing more; what is being opened has at most `max_bytes`."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    async def _open(self, compression: CompressionType, data: bytes) -> Push:
        from barnabas_broker.telemetry.otlp import (
            open_push,
        )  # protobuf, which a broker without a receiver need not load

        loop = asyncio.get_running_loop()
        most = self.config.max_bytes
        begins_s = max(loop.time(), self._free_s)
        self._free_s = begins_s + most / OPENED_BYTES_PER_S
        await asyncio.sleep(begins_s - loop.time())
        push: Push = await asyncio.wrap_future(self._worker()(open_push, compression, data, most))
        self._free_s -= (most - push.size_bytes) / OPENED_BYTES_PER_S  # it was less than it might have been
        return push

    def _worker(self) -> Submit:
        if self._submit is not None:
            return self._submit
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="telemetry")
        return self._thread.submit


def _without(values: dict[Series, float], topics: set[str]) -> dict[Series, float]:
    return {series: value for series, value in values.items() if series.topic not in topics}
