"""What a client knows of the cluster, when it may try again, and how a request is split by leader. Pure.

May touch:  its arguments.            Must not touch: sockets, asyncio, clock (time comes in as an argument).
Invariants: a view is replaced, never changed; nothing is retried past the deadline.
Read next:  cluster.py and blocking.py, which route by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, TypeVar

from barnabas_wire.kafka.errors import RETRIABLE_CODES, ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_wire.kafka.primitives import Buffer
from barnabas_wire.lazy_dataclass import dataclass

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Offset specs of ListOffsets; a value of 0 or more is a timestamp in ms."""

RETRY_DELAY_S = 0.05
RETRY_DELAY_S_MAX = 1.0
UNKNOWN_TOPIC_TIMEOUT_S = 5.0
"""A topic that was just created may be unknown to some brokers for a moment; one that never was should fail soon."""
SHORT_TRY_S = 1.0
"""A try that has less time than this and times out says less than the error before it."""
PRODUCE_BY_NAME_VERSION_MAX = 12
FETCH_BY_NAME_VERSION_MAX = 12
"""From version 13 on Produce and Fetch name topics by id."""

STALE_LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which the metadata is asked for again before the next try."""

UNKNOWN_TOPIC_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

Value = TypeVar("Value")


class Broker(NamedTuple):
    """Where one broker listens."""

    id: BrokerId
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    """One partition as the metadata describes it; leader -1 when there is none."""

    partition: int
    leader: BrokerId
    leader_epoch: Epoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as of one or more Metadata responses."""

    cluster_id: str | None = None
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, Partition]] = field(default_factory=dict)
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)

    def updated(self, response: MetadataResponse) -> ClusterView:
        """This view with what the response says on top; topics it reports missing are dropped."""
        topics = dict(self.topics)
        topic_ids = dict(self.topic_ids)
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                topics.pop(name, None)
                continue
            topic_ids[name] = topic.topic_id
            topics[name] = {
                entry.partition_index: Partition(
                    entry.partition_index,
                    BrokerId(entry.leader_id),
                    Epoch(entry.leader_epoch),
                    tuple(entry.replica_nodes),
                    tuple(entry.isr_nodes),
                )
                for entry in topic.partitions
            }
        return ClusterView(
            cluster_id=response.cluster_id,
            controller_id=BrokerId(response.controller_id),
            brokers={
                entry.node_id: Broker(BrokerId(entry.node_id), entry.host, entry.port, entry.rack)
                for entry in response.brokers
            },
            topics=topics,
            topic_ids=topic_ids,
        )

    def without(self, topics: Iterable[str]) -> ClusterView:
        """This view with those topics forgotten, so that the next use asks for them."""
        gone = set(topics)
        kept = {name: partitions for name, partitions in self.topics.items() if name not in gone}
        return ClusterView(self.cluster_id, self.controller_id, self.brokers, kept, self.topic_ids)

    def partition(self, partition: TopicPartition) -> Partition:
        """A known partition; raises UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.topics.get(partition.topic, {}).get(partition.partition)
        if found is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        return found

    def leader(self, partition: TopicPartition) -> Broker:
        """The broker that leads a partition; raises UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE."""
        leader = self.brokers.get(self.partition(partition).leader)
        if leader is None:
            raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        return leader

    def by_leader(self, wanted: Mapping[TopicPartition, Value]) -> dict[Broker, dict[TopicPartition, Value]]:
        """Split a request by the leaders of its partitions."""
        split: dict[Broker, dict[TopicPartition, Value]] = {}
        for partition, value in wanted.items():
            split.setdefault(self.leader(partition), {})[partition] = value
        return split


def metadata_request(topics: Iterable[str] | None, *, creates_topics: bool = False) -> MetadataRequest:
    """Ask for those topics, or for all with None."""
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=creates_topics)


def check_topics(response: MetadataResponse) -> None:
    """Raise the first topic's error, if any: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, …"""
    for topic in response.topics:
        if topic.error_code:
            raise KafkaError.of(known_code(topic.error_code), f"topic {topic.name}")


def known_code(code: int) -> ErrorCode:
    """The ErrorCode of a number on the wire; one that is not known here counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def parse_bootstrap(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """`host:port,host:port` or a sequence of such; raises ValueError naming the entry that is none."""
    entries = servers.split(",") if isinstance(servers, str) else [part for text in servers for part in text.split(",")]
    found: list[tuple[str, int]] = []
    for entry in (text.strip() for text in entries):
        if not entry:
            continue
        host, separator, port = entry.rpartition(":")
        if not separator or not port.isdigit() or not host:
            raise ValueError(f"bootstrap server {entry!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no bootstrap server given")
    return found


class RetrySchedule:
    """When to try again: doubling delays until a deadline. Time comes in as monotonic seconds."""

    __slots__ = ("_delay_s", "_failure", "_tried_at_s", "_unknown_topic_deadline_s", "deadline_s")

    def __init__(self, *, now_s: float, timeout_s: float) -> None:
        self.deadline_s = now_s + timeout_s
        self._unknown_topic_deadline_s = min(self.deadline_s, now_s + UNKNOWN_TOPIC_TIMEOUT_S)
        self._delay_s = RETRY_DELAY_S
        self._failure: BaseException | None = None
        self._tried_at_s = now_s

    def remaining_s(self, now_s: float) -> float:
        """Seconds until the deadline, never less than one millisecond."""
        return max(self.deadline_s - now_s, 0.001)

    def next_delay_s(self, error: BaseException, now_s: float) -> float:
        """Seconds to wait before the next try; re-raises `error` when it is not to be retried or no time is left, or the one
        before it where the last try had too little time to find out anything."""
        is_unknown = isinstance(error, KafkaError) and error.code in UNKNOWN_TOPIC_CODES
        deadline_s = self._unknown_topic_deadline_s if is_unknown else self.deadline_s
        is_cut_short = isinstance(error, TimeoutError) and self.deadline_s - self._tried_at_s < SHORT_TRY_S
        if not is_retriable(error) or now_s + self._delay_s >= deadline_s:
            raise (self._failure or error) if is_cut_short else error
        if not isinstance(error, TimeoutError):
            self._failure = error
        self._tried_at_s = now_s + self._delay_s
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, RETRY_DELAY_S_MAX)
        return delay_s


def is_retriable(error: BaseException) -> bool:
    """Whether another try may succeed: lost connections and time-outs, and Kafka's retriable codes."""
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE_CODES
    return isinstance(error, OSError)


def list_offsets_request(
    wanted: Mapping[TopicPartition, int], *, is_read_committed: bool = False
) -> ListOffsetsRequest:
    """One leader's share of a ListOffsets; values are LATEST, EARLIEST, MAX_TIMESTAMP or a timestamp in ms."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), spec in wanted.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=spec))
    return ListOffsetsRequest(
        isolation_level=1 if is_read_committed else 0,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


class ListedOffset(NamedTuple):
    """Offset and timestamp found; both -1 when no record is that late."""

    offset: Offset
    timestamp_ms: int


def read_listed_offsets(
    response: ListOffsetsResponse,
) -> tuple[dict[TopicPartition, ListedOffset], dict[TopicPartition, KafkaError]]:
    """(found, failed) of one leader's answer."""
    found: dict[TopicPartition, ListedOffset] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                failed[partition] = KafkaError.of(known_code(entry.error_code), f"offsets of {partition}")
            else:
                found[partition] = ListedOffset(Offset(entry.offset), entry.timestamp)
    return found, failed


def produce_request(partition: TopicPartition, batch: Buffer, *, acks: int, timeout_ms: int) -> ProduceRequest:
    """One batch for one partition, by topic name (so at most in PRODUCE_BY_NAME_VERSION_MAX)."""
    data = [PartitionProduceData(index=partition.partition, records=batch)]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=partition.topic, partition_data=data)]
    )


def read_produced(response: ProduceResponse, partition: TopicPartition) -> Offset:
    """The base offset that the batch got; raises the partition's error."""
    for topic in response.responses:
        for entry in topic.partition_responses:
            if entry.error_code:
                raise KafkaError.of(known_code(entry.error_code), entry.error_message or f"produce to {partition}")
            return Offset(entry.base_offset)
    raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker left {partition} out of its answer")


class FetchedRecords(NamedTuple):
    """Batches of one partition, beginning with the one that holds the asked offset; possibly none, the last possibly cut."""

    records: memoryview
    high_watermark: Offset
    log_start_offset: Offset
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of transactions in there that were aborted, when asked for committed records."""
