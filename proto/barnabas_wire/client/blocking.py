"""The client over plain sockets, for code without a loop: Spark tasks, the command line.

May touch:  sockets, the clock.       Must not touch: asyncio, threads.
Invariants: one thread at a time; a forked child drops its parent's sockets and makes its own; after an error a connection
            is closed, and the next call makes a new one.
Read next:  metadata.py (routing and retry rules), connection.py.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas_wire.client.connection import RESPONSE_BYTES_MAX, ClientConnection
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
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity, SaslLogin, login_steps
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.frame import FrameDecoder
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, encode_fetch_request
from barnabas_wire.kafka.messages.fetch_response import parse_fetch_response
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.metadata import MetadataResponse
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage
from barnabas_wire.kafka.schema import decode_response, message_classes

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
FETCH_BYTES_MAX = 0x7FFF_FFFF
SINGLE_COORDINATOR_VERSION_MAX = 3
"""From version 4 on FindCoordinator is asked of many keys at once."""

Answer = TypeVar("Answer")


class BlockingConnection:
    """One connection; one request at a time. Errors: OSError, TimeoutError, UnsupportedVersion, MalformedMessage."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float = CONNECT_TIMEOUT_S,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """Connect, learn the broker's versions, log in. Raises KafkaError too, when the login is refused."""
        self._state: ClientConnection[bool] = ClientConnection(client_id=client_id)
        self._decoder = FrameDecoder(frame_bytes_max=response_bytes_max)
        deadline_s = time.monotonic() + timeout_s
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls().wrap_socket(self._socket, server_hostname=host)
            request, version = self._state.versions_request()
            if not self._state.learn_versions(self._exchange(self._state.request(request, version, True), deadline_s)):
                self._state.learn_old_versions(self._exchange(self._state.request(request, 0, True), deadline_s))
            if security.login is not None:
                self._log_in(security.login, timeout_s)
        except BaseException:
            self.close()
            raise

    def version_for(self, api_key: int) -> int:
        """Highest version of an API that both sides speak; raises UnsupportedVersion if there is none."""
        return self._state.version_for(api_key)

    def call(self, request: Any, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Send a declared request and return its decoded response (None for a produce with acks=0, which has none)."""
        if version is None:
            version = self._state.version_for(request.API_KEY)
        deadline_s = time.monotonic() + timeout_s
        if request.API_KEY == ApiKey.PRODUCE and request.acks == 0:
            self._send(self._state.request(request, version, None), deadline_s)
            return None
        body = self._exchange(self._state.request(request, version, True), deadline_s)
        return decode_response(message_classes(request.API_KEY)[1], version, body)

    def call_raw(self, api_key: int, version: int, body: Buffer, *, timeout_s: float = REQUEST_TIMEOUT_S) -> memoryview:
        """Send a request body that is encoded already; returns the response body in one piece of its own."""
        return self._exchange(self._state.request_raw(api_key, version, body, True), time.monotonic() + timeout_s)

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """(lowest, highest) version that the broker offers, by API key."""
        return self._state.ranges

    @property
    def features(self) -> dict[str, int]:
        """Finalized feature levels of the cluster, as of when this connection was made."""
        return self._state.features

    def post(self, request: Any, *, version: int, token: Any, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Send a declared request and do not wait for its answer, which `take` gives back with `token`.

        token: None says that no answer will come (acks=0). With answers outstanding `call` must not be used.
        """
        self._send(self._state.request(request, version, token), time.monotonic() + timeout_s)

    def take(self, *, timeout_s: float = REQUEST_TIMEOUT_S) -> tuple[Any, Any]:
        """(token, decoded response) of the oldest posted request."""
        answer = self._state.answer(self._receive(time.monotonic() + timeout_s))
        return answer.token, decode_response(message_classes(answer.api_key)[1], answer.version, answer.body)

    def fileno(self) -> int:
        """For poll: readable when an answer begins to arrive."""
        return self._socket.fileno()

    @property
    def has_received(self) -> bool:
        """Whether bytes lie ready that poll does not see (TLS decrypts whole records)."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _log_in(self, login: SaslLogin, timeout_s: float) -> None:
        steps = login_steps(login)
        request = next(steps)
        while True:
            try:
                request = steps.send(self.call(request, timeout_s=timeout_s))
            except StopIteration:
                return

    def _send(self, frame: bytearray, deadline_s: float) -> None:
        self._socket.settimeout(max(deadline_s - time.monotonic(), 0.001))
        self._socket.sendall(frame)

    def _exchange(self, frame: bytearray, deadline_s: float) -> memoryview:
        self._send(frame, deadline_s)
        return self._state.answer(self._receive(deadline_s)).body

    def _receive(self, deadline_s: float) -> memoryview:
        """One frame, its body received straight into memory of its own."""
        while True:
            self._socket.settimeout(max(deadline_s - time.monotonic(), 0.001))
            space = self._decoder.space()
            if space is None:
                size = self._socket.recv(4)
                frames = self._decoder.feed(size)
                received, frame = len(size), frames[0] if frames else None
            else:
                received = self._socket.recv_into(space)
                frame = self._decoder.filled(received) if received else None
            if not received:
                raise ConnectionResetError("the broker closed the connection")
            if frame is not None:
                return frame


class NoBrokerReachable(ConnectionError):
    """No address took a connection; the message lists each one that was tried, with its reason."""


class BlockingCluster:
    """The cluster behind a bootstrap list: finds leaders, retries what may be retried until a deadline.

    Public calls raise KafkaError (what the cluster said), OSError or TimeoutError (when no try succeeded in time). A retried
    produce may have been written twice unless its batch carries a producer id.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas",
        timeout_s: float = REQUEST_TIMEOUT_S,
        reach_timeout_s: float | None = None,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """Nothing is connected before the first call. timeout_s bounds each call, retries included.

        reach_timeout_s: a call that cannot connect to any broker for so long raises NoBrokerReachable (None: timeout_s).
        """
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._client_id = client_id
        self._security = security
        self._timeout_s = timeout_s
        self._reach_timeout_s = timeout_s if reach_timeout_s is None else reach_timeout_s
        self._view = ClusterView()
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._near_replicas: dict[TopicPartition, int] = {}
        self._process_id = os.getpid()

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def metadata(self, topics: Iterable[str] | None = None, *, creates_topics: bool = False) -> ClusterView:
        """Ask for those topics (None: all) and return the renewed view; raises KafkaError for a topic that is missing.

        creates_topics: a missing one is made, where the brokers allow it (auto.create.topics.enable).
        """
        wanted = None if topics is None else list(topics)
        return self._retry(lambda schedule: self._refresh(wanted, schedule, creates_topics=creates_topics))

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Partition indexes of each topic, in order."""
        wanted = list(topics)
        view = self.metadata(wanted)
        return {topic: sorted(view.topics[topic]) for topic in wanted}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, is_read_committed: bool = False
    ) -> dict[TopicPartition, Offset]:
        """Offset of each partition for LATEST, EARLIEST, MAX_TIMESTAMP or the first record at or after a timestamp in ms (-1: none)."""
        found = self.list_offsets_and_timestamps(wanted, is_read_committed=is_read_committed)
        return {partition: entry.offset for partition, entry in found.items()}

    def list_offsets_and_timestamps(
        self, wanted: Mapping[TopicPartition, int], *, is_read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """As list_offsets, with the timestamp of the record found."""
        found: dict[TopicPartition, ListedOffset] = {}

        def attempt(schedule: RetrySchedule) -> dict[TopicPartition, ListedOffset]:
            missing = {partition: spec for partition, spec in wanted.items() if partition not in found}
            self._know(missing, schedule)
            failures: dict[TopicPartition, KafkaError] = {}
            for broker, share in self._view.by_leader(missing).items():
                request = list_offsets_request(share, is_read_committed=is_read_committed)
                ready, failed = read_listed_offsets(self._call(broker, request, schedule))
                found.update(ready)
                failures.update(failed)
            for error in failures.values():
                raise error
            return found

        return self._retry(attempt, topics={partition.topic for partition in wanted})

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        bytes_max: int = 1 << 20,
        wait_ms_max: int = 500,
        bytes_min: int = 1,
        is_read_committed: bool = False,
        topic_id: Uuid | None = None,
        rack: str = "",
    ) -> FetchedRecords:
        """Raw batches from the leader, beginning with the one that holds `offset`; empty when the wait ran out.

        rack: where this client is. A leader that knows a replica nearer to it sends it there (KIP-392).

        With a topic_id the broker is asked by it, if it can be, so that a topic made anew under the name is never read.
        Raises KafkaError OFFSET_OUT_OF_RANGE for an offset below the log's start or beyond its end, UNKNOWN_TOPIC_ID.
        """

        def attempt(schedule: RetrySchedule) -> FetchedRecords:
            self._know([partition], schedule)
            leader = self._view.leader(partition)
            # Once: whatever goes wrong there, the leader has the answer.
            near = self._near_replicas.pop(partition, None) if rack else None
            connection = self._connect(self._view.brokers.get(near, leader) if near is not None else leader, schedule)
            version = connection.version_for(ApiKey.FETCH)
            topic: str | Uuid = partition.topic
            if topic_id is not None and version > FETCH_BY_NAME_VERSION_MAX:
                topic = topic_id
            else:
                version = min(version, FETCH_BY_NAME_VERSION_MAX)
            epoch = self._view.partition(partition).leader_epoch
            body = bytearray()
            encode_fetch_request(
                body,
                version,
                [
                    FetchRequestPartition(
                        topic,
                        partition.partition,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        max_bytes=bytes_max,
                    )
                ],
                max_wait_ms=wait_ms_max,
                min_bytes=bytes_min,
                max_bytes=FETCH_BYTES_MAX,
                isolation_level=1 if is_read_committed else 0,
                rack_id=rack,
            )
            answer = self._guarded(
                connection,
                lambda: connection.call_raw(
                    ApiKey.FETCH, version, body, timeout_s=schedule.remaining_s(time.monotonic())
                ),
            )
            response = parse_fetch_response(answer, 0, version)
            code = response.error_code or (response.partitions[0].error_code if response.partitions else 0)
            if code:
                raise KafkaError.of(known_code(code), f"fetch of {partition} at offset {offset}")
            if not response.partitions:
                raise MalformedMessage(f"the broker left {partition} out of its answer")
            got = response.partitions[0]
            if near is None and got.preferred_read_replica in self._view.brokers:
                self._near_replicas[partition] = got.preferred_read_replica
                return attempt(schedule)
            if near is not None:
                self._near_replicas[partition] = near
            return FetchedRecords(
                got.records, Offset(got.high_watermark), Offset(got.log_start_offset), got.aborted_transactions
            )

        return self._retry(attempt, topics={partition.topic})

    def produce(self, partition: TopicPartition, batch: Buffer, *, acks: int = -1) -> Offset:
        """Append one finished batch; returns its base offset (-1 with acks=0)."""

        def attempt(schedule: RetrySchedule) -> Offset:
            self._know([partition], schedule)
            timeout_s = schedule.remaining_s(time.monotonic())
            request = produce_request(partition, batch, acks=acks, timeout_ms=int(timeout_s * 1000))
            response = self._call(
                self._view.leader(partition), request, schedule, version_max=PRODUCE_BY_NAME_VERSION_MAX
            )
            return Offset(-1) if response is None else read_produced(response, partition)

        return self._retry(attempt, topics={partition.topic})

    def dial(self, broker: Broker, *, timeout_s: float = CONNECT_TIMEOUT_S) -> BlockingConnection:
        """A connection of the caller's own, which the cluster does not use and does not close."""
        return BlockingConnection(
            broker.host, broker.port, client_id=self._client_id, timeout_s=timeout_s, security=self._security
        )

    def call(self, request: Any, *, broker: Broker | None = None, version_max: int | None = None) -> Any:
        """Send any declared request to one broker, or to whichever answers; error codes inside are the caller's to read."""

        def attempt(schedule: RetrySchedule) -> Any:
            if broker is not None:
                return self._call(broker, request, schedule, version_max=version_max)
            connection = self._any_connection(schedule)
            return self._guarded(
                connection,
                lambda: connection.call(request, timeout_s=schedule.remaining_s(time.monotonic())),
            )

        return self._retry(attempt)

    def call_checked(self, request: Any, *, broker: Broker | None = None) -> Any:
        """As `call`, for a response with one error code at its top: retries what may pass, raises KafkaError for the rest."""

        def attempt(schedule: RetrySchedule) -> Any:
            if broker is None:
                connection = self._any_connection(schedule)
                timeout_s = schedule.remaining_s(time.monotonic())
                response = self._guarded(connection, lambda: connection.call(request, timeout_s=timeout_s))
            else:
                response = self._call(broker, request, schedule)
            if response.error_code:
                words = getattr(response, "error_message", None) or type(request).__name__.removesuffix("Request")
                raise KafkaError.of(known_code(response.error_code), words)
            return response

        return self._retry(attempt)

    def call_coordinator(
        self,
        key: str,
        request: Any,
        *,
        key_type: int = 0,
        version_max: int | None = None,
        find: Callable[[Any], int] | None = None,
    ) -> Any:
        """Send a declared request to the coordinator of a group (key type 0) or of a transactional id (1).

        find: the error code of a response, None for the one at its top. What may pass is retried: for the coordinator to load or to be
        another, and every other retriable code. Raises KafkaError for the rest.
        """

        def attempt(schedule: RetrySchedule) -> Any:
            connection = self._any_connection(schedule)
            version = min(connection.version_for(ApiKey.FIND_COORDINATOR), SINGLE_COORDINATOR_VERSION_MAX)
            asked = FindCoordinatorRequest(key=key, key_type=key_type)
            timeout_s = schedule.remaining_s(time.monotonic())
            found = self._guarded(connection, lambda: connection.call(asked, version=version, timeout_s=timeout_s))
            if found.error_code:
                raise KafkaError.of(known_code(found.error_code), f"coordinator of {key}")
            coordinator = Broker(BrokerId(found.node_id), found.host, found.port, None)
            answer = self._call(coordinator, request, schedule, version_max=version_max)
            code = answer.error_code if find is None else find(answer)
            if code:
                words = (
                    getattr(answer, "error_message", None)
                    or f"{type(request).__name__.removesuffix('Request')} of {key}"
                )
                raise KafkaError.of(known_code(code), words)
            return answer

        return self._retry(attempt)

    def any_connection(self) -> BlockingConnection:
        """A connection to whichever broker answers."""
        return self._retry(self._any_connection)

    def leader(self, partition: TopicPartition) -> Broker:
        """The leader as of the last metadata; asks for it where the topic is unknown. Raises KafkaError, OSError."""
        if partition.topic not in self._view.topics:
            self.metadata([partition.topic])
        return self._view.leader(partition)

    # ---- below the public calls

    def _retry(self, attempt: Callable[[RetrySchedule], Answer], *, topics: Iterable[str] = ()) -> Answer:
        self._leave_parent()
        begun_s = time.monotonic()
        schedule = RetrySchedule(now_s=begun_s, timeout_s=self._timeout_s)
        while True:
            try:
                return attempt(schedule)
            except (KafkaError, OSError) as error:
                if isinstance(error, NoBrokerReachable) and time.monotonic() - begun_s >= self._reach_timeout_s:
                    raise
                if not isinstance(error, KafkaError) or error.code in STALE_LEADER_CODES:
                    self._view = self._view.without(topics)
                time.sleep(schedule.next_delay_s(error, time.monotonic()))

    def _leave_parent(self) -> None:
        """After a fork both processes hold the same sockets: let go of them without a word to the broker."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.close()

    def _know(self, partitions: Iterable[TopicPartition], schedule: RetrySchedule) -> None:
        unknown = {partition.topic for partition in partitions if partition.topic not in self._view.topics}
        if unknown:
            self._refresh(sorted(unknown), schedule)

    def _refresh(
        self, topics: list[str] | None, schedule: RetrySchedule, *, creates_topics: bool = False
    ) -> ClusterView:
        connection = self._any_connection(schedule)
        request = metadata_request(topics, creates_topics=creates_topics)
        response: MetadataResponse = self._guarded(
            connection, lambda: connection.call(request, timeout_s=schedule.remaining_s(time.monotonic()))
        )
        self._view = self._view.updated(response)
        check_topics(response)
        return self._view

    def _any_connection(self, schedule: RetrySchedule) -> BlockingConnection:
        for connection in self._connections.values():
            return connection
        known = [(broker.host, broker.port) for broker in self._view.brokers.values()]
        addresses = list(dict.fromkeys([*known, *self._bootstrap]))
        failures = []
        for host, port in addresses:
            try:
                return self._open(host, port, schedule, timeout_s=self._reach_timeout_s / len(addresses))
            except OSError as error:
                failures.append(f"{host}:{port} ({error.strerror or str(error) or type(error).__name__})")
        raise NoBrokerReachable(f"tried {', '.join(failures)}")

    def _connect(self, broker: Broker, schedule: RetrySchedule) -> BlockingConnection:
        return self._connections.get((broker.host, broker.port)) or self._open(broker.host, broker.port, schedule)

    def _open(
        self, host: str, port: int, schedule: RetrySchedule, *, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> BlockingConnection:
        timeout_s = min(schedule.remaining_s(time.monotonic()), CONNECT_TIMEOUT_S, timeout_s)
        connection = BlockingConnection(
            host, port, client_id=self._client_id, timeout_s=timeout_s, security=self._security
        )
        self._connections[host, port] = connection
        return connection

    def _call(self, broker: Broker, request: Any, schedule: RetrySchedule, *, version_max: int | None = None) -> Any:
        connection = self._connect(broker, schedule)
        version = connection.version_for(request.API_KEY)
        if version_max is not None:
            version = min(version, version_max)
        timeout_s = schedule.remaining_s(time.monotonic())
        return self._guarded(connection, lambda: connection.call(request, version=version, timeout_s=timeout_s))

    def _guarded(self, connection: BlockingConnection, call: Callable[[], Answer]) -> Answer:
        """After a failure in the middle of an exchange the connection's order is unknown: drop it."""
        try:
            return call()
        except (OSError, MalformedMessage):
            connection.close()
            self._connections = {key: kept for key, kept in self._connections.items() if kept is not connection}
            raise
