"""The client over plain sockets, for code without a loop: Spark tasks, the command line.

May touch:  sockets, the clock.       Must not touch: asyncio, threads.
Invariants: one thread at a time; a forked child drops its parent's sockets and makes its own; after an error a connection
            is closed, and the next call makes a new one.
Read next:  routing.py (whom a call goes to, and when again), connection.py.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from barnabas_wire.client.connection import RESPONSE_BYTES_MAX, ClientConnection
from barnabas_wire.client.metadata import Broker, ClusterView, FetchedRecords, ListedOffset, RetrySchedule
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
from barnabas_wire.client.routing import NoBrokerReachable as NoBrokerReachable
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity, SaslLogin, login_steps
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.frame import FrameDecoder
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, encode_fetch_request
from barnabas_wire.kafka.messages.fetch_response import ParsedFetchResponse, parse_fetch_response
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage
from barnabas_wire.kafka.schema import decode_response, message_classes

T = TypeVar("T")


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

    def fetch(
        self, partitions: list[FetchRequestPartition], *, version: int, timeout_s: float, **fields: Any
    ) -> ParsedFetchResponse:
        """One fetch over the hand-written codec; records are slices of the response. fields: as encode_fetch_request takes them."""
        body = bytearray()
        encode_fetch_request(body, version, partitions, **fields)
        return parse_fetch_response(self.call_raw(ApiKey.FETCH, version, body, timeout_s=timeout_s), 0, version)

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
        self.routing = Routing(
            bootstrap_servers, now_s=lambda: time.monotonic(), timeout_s=timeout_s, reach_timeout_s=reach_timeout_s
        )
        self._client_id = client_id
        self._security = security
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
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
        return self._run(self.routing.metadata(topics, creates_topics=creates_topics))

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
        return self._run(self.routing.list_offsets(wanted, is_read_committed=is_read_committed))

    def fetch(self, partition: TopicPartition, offset: int, **how: Unpack[FetchOptions]) -> FetchedRecords:
        """Raw batches from the leader, beginning with the one that holds `offset`; empty when the wait ran out.

        Raises KafkaError OFFSET_OUT_OF_RANGE for an offset below the log's start or beyond its end, UNKNOWN_TOPIC_ID.
        """
        return self._run(self.routing.fetch(partition, offset, how))

    def produce(self, partition: TopicPartition, batch: Buffer, *, acks: int = -1) -> Offset:
        """Append one finished batch; returns its base offset (-1 with acks=0)."""
        return self._run(self.routing.produce(partition, batch, acks=acks))

    def dial(self, broker: Broker, *, timeout_s: float = CONNECT_TIMEOUT_S) -> BlockingConnection:
        """A connection of the caller's own, which the cluster does not use and does not close."""
        return BlockingConnection(
            broker.host, broker.port, client_id=self._client_id, timeout_s=timeout_s, security=self._security
        )

    def call(self, request: Any, *, broker: Broker | None = None, version_max: int | None = None) -> Any:
        """Send any declared request to one broker, or to whichever answers; error codes inside are the caller's to read."""
        return self._run(self.routing.call(request, broker=broker, version_max=version_max))

    def call_checked(self, request: Any, *, broker: Broker | None = None) -> Any:
        """As `call`, for a response with one error code at its top: retries what may pass, raises KafkaError for the rest."""
        return self._run(self.routing.call(request, broker=broker, is_checked=True))

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
        return self._run(
            self.routing.call_coordinator(
                key,
                request,
                key_type=key_type,
                version_max=version_max,
                find=find or (lambda answer: int(answer.error_code)),
            )
        )

    def any_connection(self) -> BlockingConnection:
        """A connection to whichever broker answers."""

        def attempt(schedule: RetrySchedule) -> Steps[BlockingConnection]:
            connection: BlockingConnection = yield Ask(None, lambda found, _: found, schedule)
            return connection

        return self._run(self.routing.retry(attempt))

    def leader(self, partition: TopicPartition) -> Broker:
        """The leader as of the last metadata; asks for it where the topic is unknown. Raises KafkaError, OSError."""
        if partition.topic not in self.routing.view.topics:
            self.metadata([partition.topic])
        return self.routing.view.leader(partition)

    # ---- below the public calls

    def _run(self, steps: Steps[T]) -> T:
        """Take the steps of a call."""
        self._leave_parent()
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
                    time.sleep(step.seconds)
                elif isinstance(step, Together):
                    answer = [self._answer_or_error(each) for each in step.asks]
                else:
                    answer = self._ask(step)
            except Exception as failure:  # the steps say what becomes of it
                error = failure

    def _leave_parent(self) -> None:
        """After a fork both processes hold the same sockets: let go of them without a word to the broker."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.close()

    def _ask(self, step: Ask) -> Any:
        if step.broker is None:
            connection = self._any_connection(step.schedule)
        else:
            address = (step.broker.host, step.broker.port)
            connection = self._connections.get(address) or self._open(*address, step.schedule)
        try:
            return step.call(connection, step.schedule.remaining_s(time.monotonic()))
        except (OSError, MalformedMessage):
            # In the middle of an exchange the connection's order is unknown: drop it.
            connection.close()
            self._connections = {key: kept for key, kept in self._connections.items() if kept is not connection}
            raise

    def _answer_or_error(self, step: Ask) -> Any:
        try:
            return self._ask(step)
        except (KafkaError, OSError) as error:
            return error

    def _any_connection(self, schedule: RetrySchedule) -> BlockingConnection:
        for connection in self._connections.values():
            return connection
        addresses = self.routing.addresses
        failures = []
        for host, port in addresses:
            try:
                return self._open(host, port, schedule, timeout_s=self.routing.reach_timeout_s / len(addresses))
            except OSError as error:
                failures.append(f"{host}:{port} ({error.strerror or str(error) or type(error).__name__})")
        raise NoBrokerReachable(f"tried {', '.join(failures)}")

    def _open(
        self, host: str, port: int, schedule: RetrySchedule, *, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> BlockingConnection:
        timeout_s = min(schedule.remaining_s(time.monotonic()), CONNECT_TIMEOUT_S, timeout_s)
        connection = BlockingConnection(
            host, port, client_id=self._client_id, timeout_s=timeout_s, security=self._security
        )
        self._connections[host, port] = connection
        return connection
