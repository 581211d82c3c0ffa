"""The cluster behind a bootstrap list, on an asyncio loop: finds leaders, controllers and coordinators, and retries.

May touch:  the running loop, its connections.   Must not touch: files.
Invariants: nothing is retried past its deadline; what is retried may have been done already (a produce without producer id
            may be written twice).
Read next:  metadata.py (routing and retry rules, shared with blocking.py), aio.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.metadata import (
    FETCH_BY_NAME_VERSION_MAX,
    PRODUCE_BY_NAME_VERSION_MAX,
    STALE_LEADER_CODES,
    Broker,
    ClusterView,
    FetchedRecords,
    ListedOffset,
    RetrySchedule,
    check_topics,
    known_code,
    list_offsets_request,
    metadata_request,
    parse_bootstrap,
    produce_request,
    read_listed_offsets,
    read_produced,
)
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.metadata import MetadataResponse
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
FETCH_BYTES_MAX = 0x7FFF_FFFF
_COORDINATOR_CODES = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_SINGLE_COORDINATOR_VERSION_MAX = 3

Answer = TypeVar("Answer")


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
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._security = security
        self._timeout_s = timeout_s
        self._view = ClusterView()
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
        wanted = None if topics is None else list(topics)
        return await self._retry(
            lambda schedule: self._refresh(wanted, schedule, creates_topics=creates_topics, skips_missing=skips_missing)
        )

    async def produce(self, partition: TopicPartition, batch: Buffer, *, acks: int = -1) -> Offset:
        """Append one finished batch; returns its base offset (-1 with acks=0)."""

        async def attempt(schedule: RetrySchedule) -> Offset:
            await self._know([partition], schedule)
            timeout_ms = int(self._remaining_s(schedule) * 1000)
            request = produce_request(partition, batch, acks=acks, timeout_ms=timeout_ms)
            leader = self._view.leader(partition)
            response = await self._call(leader, request, schedule, version_max=PRODUCE_BY_NAME_VERSION_MAX)
            return Offset(-1) if response is None else read_produced(response, partition)

        return await self._retry(attempt, topics={partition.topic})

    async def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        bytes_max: int = 1 << 20,
        wait_ms_max: int = 500,
        bytes_min: int = 1,
        is_read_committed: bool = False,
    ) -> FetchedRecords:
        """Raw batches from the leader, beginning with the one that holds `offset`; empty when the wait ran out.

        Raises KafkaError OFFSET_OUT_OF_RANGE for an offset below the log's start or beyond its end.
        """

        async def attempt(schedule: RetrySchedule) -> FetchedRecords:
            await self._know([partition], schedule)
            connection = await self._connect(self._view.leader(partition), schedule)
            wanted = FetchRequestPartition(
                partition.topic,
                partition.partition,
                current_leader_epoch=self._view.partition(partition).leader_epoch,
                fetch_offset=offset,
                max_bytes=bytes_max,
            )
            response = await connection.fetch(
                [wanted],
                version=min(connection.version_for(ApiKey.FETCH), FETCH_BY_NAME_VERSION_MAX),
                max_wait_ms=wait_ms_max,
                min_bytes=bytes_min,
                max_bytes=FETCH_BYTES_MAX,
                isolation_level=1 if is_read_committed else 0,
                timeout_s=self._remaining_s(schedule),
            )
            code = response.error_code or (response.partitions[0].error_code if response.partitions else 0)
            if code:
                raise KafkaError.of(known_code(code), f"fetch of {partition} at offset {offset}")
            if not response.partitions:
                raise MalformedMessage(f"the broker left {partition} out of its answer")
            got = response.partitions[0]
            return FetchedRecords(
                got.records, Offset(got.high_watermark), Offset(got.log_start_offset), got.aborted_transactions
            )

        return await self._retry(attempt, topics={partition.topic})

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, is_read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Offset and timestamp of each partition for LATEST, EARLIEST, MAX_TIMESTAMP or a timestamp in ms (-1: none).

        The leaders are asked at once.
        """
        found: dict[TopicPartition, ListedOffset] = {}

        async def attempt(schedule: RetrySchedule) -> dict[TopicPartition, ListedOffset]:
            missing = {partition: spec for partition, spec in wanted.items() if partition not in found}
            await self._know(missing, schedule)
            answers = await asyncio.gather(
                *(
                    self._call(broker, list_offsets_request(share, is_read_committed=is_read_committed), schedule)
                    for broker, share in self._view.by_leader(missing).items()
                ),
                return_exceptions=True,  # what the others answer is kept, and not asked again
            )
            failures: list[BaseException] = []
            for answer in answers:
                if isinstance(answer, BaseException):
                    failures.append(answer)
                    continue
                ready, failed = read_listed_offsets(answer)
                found.update(ready)
                failures += failed.values()
            for error in failures:
                raise error
            return found

        return await self._retry(attempt, topics={partition.topic for partition in wanted})

    async def call(self, request: Any, *, broker_id: int | None = None, version_max: int | None = None) -> Any:
        """Send any declared request to one broker, or to whichever answers; error codes inside are the caller's to read.

        version_max: of the request, where a broker is named.
        """

        async def attempt(schedule: RetrySchedule) -> Any:
            if broker_id is None:
                connection = await self._any_connection(schedule)
                return await connection.call(request, timeout_s=self._remaining_s(schedule))
            if broker_id not in self._view.brokers:
                await self._refresh([], schedule)
            broker = self._view.brokers.get(broker_id)
            if broker is None:
                raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {broker_id} is not in the cluster now")
            return await self._call(broker, request, schedule, version_max=version_max)

        return await self._retry(attempt)

    async def call_coordinator(
        self, group_id: str, request: Any, *, key_type: int = 0, version_max: int | None = None
    ) -> Any:
        """Send a declared request to the coordinator of a group (key type 0) or of a transactional id (1).

        Error codes inside are the caller's to read, but for those that say that the coordinator loads or is another: it is looked
        for and asked again until the time is up.
        """

        async def attempt(schedule: RetrySchedule) -> Any:
            connection = await self._any_connection(schedule)
            version = min(connection.version_for(ApiKey.FIND_COORDINATOR), _SINGLE_COORDINATOR_VERSION_MAX)
            found = await connection.call(
                FindCoordinatorRequest(key=group_id, key_type=key_type),
                version=version,
                timeout_s=self._remaining_s(schedule),
            )
            if found.error_code:
                raise KafkaError.of(known_code(found.error_code), f"coordinator of {group_id}")
            coordinator = Broker(BrokerId(found.node_id), found.host, found.port, None)
            answer = await self._call(coordinator, request, schedule, version_max=version_max)
            for answered in (answer, *getattr(answer, "groups", ()), *getattr(answer, "transaction_states", ())):
                code = known_code(getattr(answered, "error_code", 0))
                if code in _COORDINATOR_CODES:
                    raise KafkaError.of(code, f"coordinator of group {group_id}")
            return answer

        return await self._retry(attempt)

    # ---- below the public calls

    async def _retry(
        self, attempt: Callable[[RetrySchedule], Awaitable[Answer]], *, topics: Iterable[str] = ()
    ) -> Answer:
        schedule = RetrySchedule(now_s=self._now_s(), timeout_s=self._timeout_s)
        while True:
            try:
                return await attempt(schedule)
            except (KafkaError, OSError) as error:
                delay_s = schedule.next_delay_s(error, self._now_s())
                if not isinstance(error, KafkaError) or error.code in STALE_LEADER_CODES:
                    self._view = self._view.without(topics)
            await asyncio.sleep(delay_s)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    def _remaining_s(self, schedule: RetrySchedule) -> float:
        return schedule.remaining_s(self._now_s())

    async def _know(self, partitions: Iterable[TopicPartition], schedule: RetrySchedule) -> None:
        unknown = {partition.topic for partition in partitions if partition.topic not in self._view.topics}
        if unknown:
            await self._refresh(sorted(unknown), schedule)

    async def _refresh(
        self,
        topics: list[str] | None,
        schedule: RetrySchedule,
        *,
        creates_topics: bool = False,
        skips_missing: bool = False,
    ) -> ClusterView:
        connection = await self._any_connection(schedule)
        request = metadata_request(topics, creates_topics=creates_topics)
        response: MetadataResponse = await connection.call(request, timeout_s=self._remaining_s(schedule))
        self._view = self._view.updated(response)
        if not skips_missing:
            check_topics(response)
        return self._view

    async def _any_connection(self, schedule: RetrySchedule) -> AioConnection:
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        addresses = [(broker.host, broker.port) for broker in self._view.brokers.values()]
        failure: OSError | None = None
        for host, port in dict.fromkeys([*addresses, *self._bootstrap]):
            try:
                return await self._open(host, port, schedule)
            except OSError as error:
                failure = error
        raise failure if failure is not None else ConnectionError("no broker to connect to")

    async def _connect(self, broker: Broker, schedule: RetrySchedule) -> AioConnection:
        return await self._open(broker.host, broker.port, schedule)

    async def _open(self, host: str, port: int, schedule: RetrySchedule) -> AioConnection:
        async with self._connecting:  # calls that overlap share one connection per broker
            known = self._connections.get((host, port))
            if known is not None and not known.is_closed:
                return known
            timeout_s = min(self._remaining_s(schedule), CONNECT_TIMEOUT_S)
            connection = await AioConnection.connect(
                host, port, client_id=self._client_id, timeout_s=timeout_s, security=self._security
            )
            self._connections[host, port] = connection
            return connection

    async def _call(
        self, broker: Broker, request: Any, schedule: RetrySchedule, *, version_max: int | None = None
    ) -> Any:
        connection = await self._connect(broker, schedule)
        version = connection.version_for(request.API_KEY)
        if version_max is not None:
            version = min(version, version_max)
        return await connection.call(request, version=version, timeout_s=self._remaining_s(schedule))
