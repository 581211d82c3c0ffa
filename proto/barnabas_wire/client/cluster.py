"""The cluster behind a bootstrap list, on an asyncio loop: finds leaders, controllers and coordinators, and retries.

May touch:  the running loop, its connections.   Must not touch: files.
Invariants: those of routing.py; calls that overlap share one connection per broker.
Read next:  routing.py (whom a call goes to, shared with blocking.py), aio.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.metadata import ClusterView, FetchedRecords, ListedOffset, RetrySchedule, known_code
from barnabas_wire.client.routing import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    Ask,
    FetchOptions,
    Pause,
    Routing,
    Steps,
    Together,
)
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.kafka.primitives import Buffer

_COORDINATOR_CODES = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

T = TypeVar("T")


class ClusterClient:
    """Calls to the right broker. For one loop; calls may overlap.

    Public calls raise KafkaError (what the cluster said), OSError or TimeoutError (when no try succeeded in time).
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas",
        timeout_s: float = REQUEST_TIMEOUT_S,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """Nothing is connected before the first call. timeout_s bounds each call, retries included."""
        self.routing = Routing(bootstrap_servers, now_s=_now_s, timeout_s=timeout_s)
        self._client_id = client_id
        self._security = security
        self._connections: dict[tuple[str, int], AioConnection] = {}
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        """Close all connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.close()

    async def metadata(
        self, topics: Iterable[str] | None = None, *, creates_topics: bool = False, skips_missing: bool = False
    ) -> ClusterView:
        """Ask for those topics (None: all) and return the renewed view.

        Raises KafkaError for a topic that is missing; with skips_missing the view has no such topic.
        """
        return await self.run(self.routing.metadata(topics, creates_topics=creates_topics, skips_missing=skips_missing))

    async def produce(self, partition: TopicPartition, batch: Buffer, *, acks: int = -1) -> Offset:
        """Append one finished batch; returns its base offset (-1 with acks=0)."""
        return await self.run(self.routing.produce(partition, batch, acks=acks))

    async def fetch(self, partition: TopicPartition, offset: int, **how: Unpack[FetchOptions]) -> FetchedRecords:
        """Raw batches from the leader, beginning with the one that holds `offset`; empty when the wait ran out.

        Raises KafkaError OFFSET_OUT_OF_RANGE for an offset below the log's start or beyond its end.
        """
        return await self.run(self.routing.fetch(partition, offset, how))

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, is_read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Offset and timestamp of each partition for LATEST, EARLIEST, MAX_TIMESTAMP or a timestamp in ms (-1: none).

        The leaders are asked at once.
        """
        return await self.run(self.routing.list_offsets(wanted, is_read_committed=is_read_committed))

    async def call(self, request: Any, *, broker_id: int | None = None, version_max: int | None = None) -> Any:
        """Send any declared request to one broker, or to whichever answers; error codes inside are the caller's to read.

        version_max: of the request, where a broker is named.
        """
        return await self.run(self.routing.call(request, broker=broker_id, version_max=version_max))

    async def call_coordinator(
        self, group_id: str, request: Any, *, key_type: int = 0, version_max: int | None = None
    ) -> Any:
        """Send a declared request to the coordinator of a group (key type 0) or of a transactional id (1).

        Error codes inside are the caller's to read, but for those that say that the coordinator loads or is another: it is looked
        for and asked again until the time is up.
        """
        return await self.run(
            self.routing.call_coordinator(
                group_id, request, key_type=key_type, version_max=version_max, find=_coordinator_code
            )
        )

    async def run(self, steps: Steps[T]) -> T:
        """Take the steps of a call."""
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, Together):
                    answer = await asyncio.gather(*map(self._ask, step.asks), return_exceptions=True)
                else:
                    answer = await self._ask(step)
            except Exception as failure:  # the steps say what becomes of it
                error = failure

    async def _ask(self, step: Ask) -> Any:
        if step.broker is None:
            connection = await self._any_connection(step.schedule)
        else:
            connection = await self._open(step.broker.host, step.broker.port, step.schedule)
        return await step.call(connection, step.schedule.remaining_s(_now_s()))

    async def _any_connection(self, schedule: RetrySchedule) -> AioConnection:
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        failure: OSError | None = None
        for host, port in self.routing.addresses:
            try:
                return await self._open(host, port, schedule)
            except OSError as error:
                failure = error
        raise failure if failure is not None else ConnectionError("no broker to connect to")

    async def _open(self, host: str, port: int, schedule: RetrySchedule) -> AioConnection:
        async with self._connecting:
            known = self._connections.get((host, port))
            if known is not None and not known.is_closed:
                return known
            timeout_s = min(schedule.remaining_s(_now_s()), CONNECT_TIMEOUT_S)
            connection = await AioConnection.connect(
                host, port, client_id=self._client_id, timeout_s=timeout_s, security=self._security
            )
            self._connections[host, port] = connection
            return connection


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _coordinator_code(answer: Any) -> int:
    for each in (answer, *getattr(answer, "groups", ()), *getattr(answer, "transaction_states", ())):
        code = known_code(getattr(each, "error_code", 0))
        if code in _COORDINATOR_CODES:
            return code
    return 0
