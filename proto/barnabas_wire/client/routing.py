"""The broker that a call goes to, and when it is tried again, as steps that a driver takes. Sans-IO.

May touch:  its arguments.            Must not touch: sockets, asyncio, the clock (a function that reads one is handed in).
Invariants: nothing is retried past its deadline; what is retried may have been done already (a produce without producer id may be
            written twice); a view is asked for again before a partition is looked for again.
Read next:  metadata.py, the view and the schedule; cluster.py and blocking.py, the drivers.

A call is a generator. It yields what is to be asked of a broker and gets the answer sent in, or the error thrown in; it yields a pause
before another try; it returns what the caller wanted. Connections are the driver's: a step names a broker, or none for whichever can
be reached, and has what is to be done with the connection, which may be something to await.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

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
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.primitives import Buffer, MalformedMessage

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
FETCH_BYTES_MAX = 0x7FFF_FFFF
SINGLE_COORDINATOR_VERSION_MAX = 3
"""From version 4 on FindCoordinator is asked of many keys at once."""

T = TypeVar("T")


class NoBrokerReachable(ConnectionError):
    """No address took a connection; the message lists each one that was tried, with its reason."""


class Ask(NamedTuple):
    """Something to be done with a connection, which gets it and the seconds that are left."""

    broker: Broker | None
    """None: whichever can be reached."""
    call: Callable[[Any, float], Any]
    schedule: RetrySchedule


class Together(NamedTuple):
    """Several, at once where the driver can. It answers with a list of answers and errors."""

    asks: Sequence[Ask]


class Pause(NamedTuple):
    """Before another try."""

    seconds: float


class FetchOptions(TypedDict, total=False):
    """Options of a fetch; what is left out has its default."""

    bytes_max: int
    """1 MiB unless given."""
    bytes_min: int
    """That the broker waits for; 1 unless given."""
    wait_ms_max: int
    """How long the broker may wait for data, in milliseconds; 500 unless given."""
    is_read_committed: bool
    topic_id: Uuid | None
    """The broker is asked by it, if it can be, so that a topic made again under the name is never read."""
    rack: str
    """Where this client is. A leader that knows a replica nearer to it sends it there (KIP-392)."""


Steps = Generator[Ask | Together | Pause, Any, T]


class Routing:
    """What one client knows, and its calls. Their errors: KafkaError (what the cluster said), OSError, TimeoutError."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        now_s: Callable[[], float],
        timeout_s: float,
        reach_timeout_s: float | None = None,
    ) -> None:
        """timeout_s: of each call, retries included. reach_timeout_s: of tries that reach nobody (None: timeout_s)."""
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._now_s = now_s
        self._timeout_s = timeout_s
        self.reach_timeout_s = timeout_s if reach_timeout_s is None else reach_timeout_s
        self.view = ClusterView()
        self._near_replicas: dict[TopicPartition, int] = {}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where a broker may be found, in order."""
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        return list(dict.fromkeys([*known, *self._bootstrap]))

    def metadata(
        self, topics: Iterable[str] | None, *, creates_topics: bool = False, skips_missing: bool = False
    ) -> Steps[ClusterView]:
        """The renewed view of those topics (None: all)."""
        wanted = None if topics is None else list(topics)

        def attempt(schedule: RetrySchedule) -> Steps[ClusterView]:
            return self._refresh(wanted, schedule, creates_topics=creates_topics, skips_missing=skips_missing)

        return self.retry(attempt)

    def produce(self, partition: TopicPartition, batch: Buffer, *, acks: int) -> Steps[Offset]:
        """The base offset that the batch got; -1 with acks=0."""

        def attempt(schedule: RetrySchedule) -> Steps[Offset]:
            yield from self.know([partition], schedule)
            timeout_ms = int(schedule.remaining_s(self._now_s()) * 1000)
            request = produce_request(partition, batch, acks=acks, timeout_ms=timeout_ms)
            leader = self.view.leader(partition)
            response = yield ask(request, schedule, leader, version_max=PRODUCE_BY_NAME_VERSION_MAX)
            return Offset(-1) if response is None else read_produced(response, partition)

        return self.retry(attempt, topics={partition.topic})

    def fetch(self, partition: TopicPartition, offset: int, how: FetchOptions) -> Steps[FetchedRecords]:
        """Batches from the leader, or a replica that it names as nearer."""
        topic_id, rack, bytes_max = how.get("topic_id"), how.get("rack", ""), how.get("bytes_max", 1 << 20)

        def attempt(schedule: RetrySchedule) -> Steps[FetchedRecords]:
            yield from self.know([partition], schedule)
            leader, epoch = self.view.leader(partition), self.view.partition(partition).leader_epoch
            # Once: whatever goes wrong there, the leader has the answer.
            near = self._near_replicas.pop(partition, None) if rack else None

            def call(connection: Any, timeout_s: float) -> Any:
                version = connection.version_for(ApiKey.FETCH)
                topic: str | Uuid = partition.topic
                if topic_id is not None and version > FETCH_BY_NAME_VERSION_MAX:
                    topic = topic_id
                else:
                    version = min(version, FETCH_BY_NAME_VERSION_MAX)
                wanted = FetchRequestPartition(
                    topic, partition.partition, current_leader_epoch=epoch, fetch_offset=offset, max_bytes=bytes_max
                )
                return connection.fetch(
                    [wanted],
                    version=version,
                    max_wait_ms=how.get("wait_ms_max", 500),
                    min_bytes=how.get("bytes_min", 1),
                    max_bytes=FETCH_BYTES_MAX,
                    isolation_level=int(how.get("is_read_committed", False)),
                    rack_id=rack,
                    timeout_s=timeout_s,
                )

            asked = leader if near is None else self.view.brokers.get(near, leader)
            response = yield Ask(asked, call, schedule)
            code = response.error_code or (response.partitions[0].error_code if response.partitions else 0)
            if code:
                raise KafkaError.of(known_code(code), f"fetch of {partition} at offset {offset}")
            if not response.partitions:
                raise MalformedMessage(f"the broker left {partition} out of its answer")
            got = response.partitions[0]
            if rack and near is None and got.preferred_read_replica in self.view.brokers:
                self._near_replicas[partition] = got.preferred_read_replica
                return (yield from attempt(schedule))
            if near is not None:
                self._near_replicas[partition] = near
            return FetchedRecords(
                got.records, Offset(got.high_watermark), Offset(got.log_start_offset), got.aborted_transactions
            )

        return self.retry(attempt, topics={partition.topic})

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, is_read_committed: bool
    ) -> Steps[dict[TopicPartition, ListedOffset]]:
        """The offset of each partition, asked of its leader; what a leader has answered is not asked again."""
        found: dict[TopicPartition, ListedOffset] = {}

        def attempt(schedule: RetrySchedule) -> Steps[dict[TopicPartition, ListedOffset]]:
            missing = {partition: spec for partition, spec in wanted.items() if partition not in found}
            yield from self.know(missing, schedule)
            answers = yield Together(
                [
                    ask(list_offsets_request(share, is_read_committed=is_read_committed), schedule, broker)
                    for broker, share in self.view.by_leader(missing).items()
                ]
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

        return self.retry(attempt, topics={partition.topic for partition in wanted})

    def call(
        self, request: Any, *, broker: Broker | int | None, version_max: int | None = None, is_checked: bool = False
    ) -> Steps[Any]:
        """Any declared request, of one broker (or the one of that id) or of whichever answers. is_checked: its error code is raised."""

        def attempt(schedule: RetrySchedule) -> Steps[Any]:
            asked = broker
            if isinstance(asked, int):
                if asked not in self.view.brokers:
                    yield from self._refresh([], schedule)
                asked = self.view.brokers.get(asked)
                if asked is None:
                    raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {broker} is not in the cluster now")
            response = yield ask(request, schedule, asked, version_max=version_max)
            if is_checked and response.error_code:
                raise _said(response, response.error_code, _name_of(request))
            return response

        return self.retry(attempt)

    def call_coordinator(
        self, key: str, request: Any, *, key_type: int, version_max: int | None, find: Callable[[Any], int]
    ) -> Steps[Any]:
        """Any declared request, of the coordinator of a group (key type 0) or a transactional id (1). find: the error code of an answer
        that is to be raised, and so tried again where it may pass; 0: none."""

        def attempt(schedule: RetrySchedule) -> Steps[Any]:
            found = yield ask(
                FindCoordinatorRequest(key=key, key_type=key_type), schedule, version_max=SINGLE_COORDINATOR_VERSION_MAX
            )
            if found.error_code:
                raise KafkaError.of(known_code(found.error_code), f"coordinator of {key}")
            coordinator = Broker(BrokerId(found.node_id), found.host, found.port, None)
            answer = yield ask(request, schedule, coordinator, version_max=version_max)
            code = find(answer)
            if code:
                raise _said(answer, code, f"{_name_of(request)} of {key}")
            return answer

        return self.retry(attempt)

    def retry(self, attempt: Callable[[RetrySchedule], Steps[T]], *, topics: Iterable[str] = ()) -> Steps[T]:
        """Try, and try again; `topics` are asked for again where it was their metadata that may be old."""
        begun_s = self._now_s()
        schedule = RetrySchedule(now_s=begun_s, timeout_s=self._timeout_s)
        while True:
            try:
                return (yield from attempt(schedule))
            except (KafkaError, OSError) as error:
                now_s = self._now_s()
                if isinstance(error, NoBrokerReachable) and now_s - begun_s >= self.reach_timeout_s:
                    raise
                if not isinstance(error, KafkaError) or error.code in STALE_LEADER_CODES:
                    self.view = self.view.without(topics)
                delay_s = schedule.next_delay_s(error, now_s)
            yield Pause(delay_s)

    def know(self, partitions: Iterable[TopicPartition], schedule: RetrySchedule) -> Steps[None]:
        """Have their topics in the view."""
        unknown = {partition.topic for partition in partitions if partition.topic not in self.view.topics}
        if unknown:
            yield from self._refresh(sorted(unknown), schedule)

    def _refresh(
        self,
        topics: list[str] | None,
        schedule: RetrySchedule,
        *,
        creates_topics: bool = False,
        skips_missing: bool = False,
    ) -> Steps[ClusterView]:
        response = yield ask(metadata_request(topics, creates_topics=creates_topics), schedule)
        self.view = self.view.updated(response)
        if not skips_missing:
            check_topics(response)
        return self.view


def ask(request: Any, schedule: RetrySchedule, broker: Broker | None = None, *, version_max: int | None = None) -> Ask:
    """A declared request, in the highest version that both sides speak, at most version_max."""

    def call(connection: Any, timeout_s: float) -> Any:
        version = connection.version_for(request.API_KEY)
        if version_max is not None:
            version = min(version, version_max)
        return connection.call(request, version=version, timeout_s=timeout_s)

    return Ask(broker, call, schedule)


def _said(answer: Any, code: int, words: str) -> KafkaError:
    return KafkaError.of(known_code(code), getattr(answer, "error_message", None) or words)


def _name_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")
