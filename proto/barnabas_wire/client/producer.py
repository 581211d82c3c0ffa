"""A producer over plain sockets for code without a loop: idempotent, many batches in flight, bounded memory.

May touch:  sockets (through blocking.py), the clock.     Must not touch: asyncio, threads.
Invariants: a partition's batches reach its log in the order given and, with a producer id, once each; no more than
    `in_flight_max` requests wait for an answer of one broker; no more than `buffered_bytes_max` wait in all, or `send` blocks.
Read next:  blocking.py; barnabas_log/tail/producer_state.py, which judges the sequences.

How a partition survives an error: a batch that failed in a way that may pass, and all that were sent after it, come back; when
none of the partition's batches is under way any more they are sent again, in order, with the sequences they have. The broker
drops what it has already and refuses what would leave a gap (KIP-98), so nothing is written twice or out of order.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import field
from math import ceil
from typing import NamedTuple

from barnabas_wire.client.blocking import BlockingCluster, BlockingConnection
from barnabas_wire.client.metadata import (
    PRODUCE_BY_NAME_VERSION_MAX,
    RETRY_DELAY_S,
    RETRY_DELAY_S_MAX,
    STALE_LEADER_CODES,
    UNKNOWN_TOPIC_CODES,
    Broker,
    known_code,
)
from barnabas_wire.kafka.errors import RETRIABLE_CODES, ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import (
    TRANSACTIONAL_FLAG,
    Buffer,
    Record,
    build_batch,
    iterate_records,
    read_header,
    sealed_batch,
)

SEQUENCES = 1 << 31
"""Sequences wrap from 2^31 - 1 to 0."""
IN_FLIGHT_MAX = 5
"""A broker remembers the last five batches of a producer in a partition: with more under way it could not recognise a repeated one."""
REQUEST_OVERHEAD_BYTES = 512
"""Most bytes that a partition takes in a request beside its batch."""


class ProducerIdentity(NamedTuple):
    """What the sequences belong to; id -1 is nobody."""

    id: int = -1
    epoch: int = -1


ANONYMOUS = ProducerIdentity()


class RecordsSection(NamedTuple):
    """The records of one batch to be, encoded and perhaps compressed, without a header."""

    payload: Buffer
    attributes: int
    """The codec, as in a batch's attributes."""
    record_count: int
    timestamp_ms: int
    """The time of every record in it."""


@dataclass(slots=True, eq=False)
class _Batch:
    records: Buffer
    record_count: int
    sequence: int
    deadline_s: float
    failure: KafkaError | OSError | None = None


@dataclass(slots=True, eq=False)
class _Lane:
    """What is to go to one partition."""

    partition: TopicPartition
    waiting: deque[_Batch] = field(default_factory=deque)
    in_flight: list[_Batch] = field(default_factory=list)
    returned: list[_Batch] = field(default_factory=list)
    """Failed, and to be sent again once nothing is in flight."""
    next_sequence: int = 0
    retry_at_s: float = 0.0
    delay_s: float = RETRY_DELAY_S
    broker: Broker | None = None
    """Whom it last sent to."""


@dataclass(slots=True, eq=False)
class _Link:
    """One broker's connection and the requests it owes answers to."""

    connection: BlockingConnection
    pending: deque[tuple[float, list[tuple[_Lane, _Batch]]]] = field(default_factory=deque)
    """(when the answer is due, what was sent), oldest first."""


class BlockingProducer:
    """Writes batches to partitions. One thread at a time.

    Every call may raise KafkaError (what the cluster said of a batch that cannot be written) or TimeoutError (a batch was not
    acknowledged within `delivery_timeout_s`); the producer is then of no further use: `close` it.
    """

    def __init__(
        self,
        cluster: BlockingCluster,
        *,
        identity: ProducerIdentity = ANONYMOUS,
        transactional_id: str | None = None,
        acks: int = -1,
        in_flight_max: int = IN_FLIGHT_MAX,
        request_bytes_max: int = 1 << 20,
        buffered_bytes_max: int = 32 << 20,
        request_timeout_s: float = 30.0,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        """identity: of init_producer, or ANONYMOUS for batches without sequences, which a retry may write twice.

        transactional_id: every batch is part of this id's open transaction; `identity` is then the transaction's.
        """
        self._cluster = cluster
        self._identity = identity
        self._transactional_id = transactional_id
        self._acks = acks
        self._in_flight_max = in_flight_max
        self._request_bytes_max = request_bytes_max
        self._buffered_bytes_max = buffered_bytes_max
        self._request_timeout_s = request_timeout_s
        self._delivery_timeout_s = delivery_timeout_s
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._busy: dict[TopicPartition, _Lane] = {}
        """Lanes with anything unacknowledged."""
        self._links: dict[Broker, _Link] = {}
        self._known: set[str] = set()
        """Topics whose leaders are thought to be right."""
        self._process_id = os.getpid()
        self.buffered_bytes = 0
        self.batch_bytes_max: int | None = None
        """Once a broker found a batch too large: the size of the halves that it was split into, for who builds the next."""

    def send(self, partition: TopicPartition, section: RecordsSection) -> None:
        """Take one batch; blocks while more than `buffered_bytes_max` would wait for acknowledgement."""
        assert self._process_id == os.getpid(), "a producer belongs to the process that made it"
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
        attributes = section.attributes | (TRANSACTIONAL_FLAG if self._transactional_id is not None else 0)
        has_sequence = self._identity.id >= 0
        batch = sealed_batch(
            section.payload,
            attributes=attributes,
            last_offset_delta=section.record_count - 1,
            base_timestamp_ms=section.timestamp_ms,
            max_timestamp_ms=section.timestamp_ms,
            producer_id=self._identity.id,
            producer_epoch=self._identity.epoch,
            base_sequence=lane.next_sequence if has_sequence else -1,
            record_count=section.record_count,
        )
        while self.buffered_bytes and self.buffered_bytes + len(batch) > self._buffered_bytes_max:
            self._turn(waits=True)
        now_s = time.monotonic()
        lane.waiting.append(_Batch(batch, section.record_count, lane.next_sequence, now_s + self._delivery_timeout_s))
        lane.next_sequence = (lane.next_sequence + section.record_count) % SEQUENCES
        self.buffered_bytes += len(batch)
        self._busy[partition] = lane

    def poll(self) -> None:
        """Send what may be sent and take the answers that have come; does not wait."""
        self._turn(waits=False)

    def flush(self) -> None:
        """Wait until every batch is acknowledged."""
        while self._busy:
            self._turn(waits=True)

    def close(self) -> None:
        """Close the connections; what was not acknowledged may or may not be written."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    # ---- one turn: send, wait, take

    def _turn(self, *, waits: bool) -> None:
        now_s = time.monotonic()
        wake_s = self._send_ready(now_s)
        links = [link for link in self._links.values() if link.pending]
        if not links:
            if waits and self._busy:
                time.sleep(max(0.0, wake_s - time.monotonic()))
            return
        ready = [link for link in links if link.connection.has_received]
        if not ready:
            due_s = min(link.pending[0][0] for link in links)
            wait_s = max(0.0, min(due_s, wake_s) - now_s) if waits else 0.0
            waiting = select.poll()  # select() knows no descriptor above 1,023, which a driver with many files has
            for link in links:
                waiting.register(link.connection, select.POLLIN)
            readable = {descriptor for descriptor, _ in waiting.poll(ceil(wait_s * 1000))}
            ready = [link for link in links if link.connection.fileno() in readable]
        for link in ready:
            self._take(link)
        now_s = time.monotonic()
        for broker, link in list(self._links.items()):
            if link.pending and link.pending[0][0] <= now_s:
                self._drop(broker, link, TimeoutError(f"broker {broker.id} gave no answer"))

    def _send_ready(self, now_s: float) -> float:
        """Post requests as far as the bounds allow; returns when the next lane that waits for a retry may be tried."""
        wake_s = now_s + self._request_timeout_s
        shares: dict[Broker, list[_Lane]] = {}
        for lane in list(self._busy.values()):
            if lane.returned:
                if lane.in_flight:
                    continue
                self._requeue(lane, now_s)
            if not lane.waiting:
                continue
            if lane.waiting[0].deadline_s <= now_s:
                raise self._late(lane)
            if lane.retry_at_s > now_s:
                wake_s = min(wake_s, lane.retry_at_s, lane.waiting[0].deadline_s)
                continue
            broker = self._leader(lane, now_s)
            if broker is None:
                wake_s = min(wake_s, lane.retry_at_s)
            elif not lane.in_flight or lane.broker == broker:  # or else a new leader might overtake the old one
                lane.broker = broker
                shares.setdefault(broker, []).append(lane)
        for broker, lanes in shares.items():
            try:
                self._post(broker, lanes)
            except KafkaError:  # the login was refused: nothing that waiting mends
                raise
            except OSError as error:
                link = self._links.get(broker)
                if link is not None:
                    self._drop(broker, link, error)
                for lane in lanes:
                    if lane.waiting and not lane.in_flight:
                        lane.waiting[0].failure = error
                        self._delay(lane, time.monotonic())
                    self._known.discard(lane.partition.topic)
                wake_s = now_s
        return wake_s

    def _leader(self, lane: _Lane, now_s: float) -> Broker | None:
        topic = lane.partition.topic
        try:
            if topic not in self._known:
                wanted = {other.partition.topic for other in self._busy.values()} - self._known
                self._cluster.metadata(sorted(wanted | {topic}))
                self._known |= wanted | {topic}
            return self._cluster.leader(lane.partition)
        except (KafkaError, OSError) as error:
            if isinstance(error, KafkaError) and (not error.is_retriable or error.code in UNKNOWN_TOPIC_CODES):
                raise
            lane.waiting[0].failure = error
            self._known.discard(topic)
            self._delay(lane, now_s)
            return None

    def _post(self, broker: Broker, lanes: list[_Lane]) -> None:
        """Requests to one broker, each with at most one batch of a partition, while bounds allow."""
        link = self._links.get(broker)
        if link is None:
            link = self._links[broker] = _Link(self._cluster.dial(broker))
        version = min(link.connection.version_for(ApiKey.PRODUCE), PRODUCE_BY_NAME_VERSION_MAX)
        while len(link.pending) < self._in_flight_max:
            sent: list[tuple[_Lane, _Batch]] = []
            size = 0
            for lane in lanes:
                if not lane.waiting or len(lane.in_flight) >= self._in_flight_max:
                    continue
                more = len(lane.waiting[0].records) + REQUEST_OVERHEAD_BYTES
                if sent and size + more > self._request_bytes_max:
                    continue
                size += more
                sent.append((lane, lane.waiting.popleft()))
            if not sent:
                return
            for lane, batch in sent:
                lane.in_flight.append(batch)
            now_s = time.monotonic()
            link.pending.append((now_s + self._request_timeout_s, sent))
            link.connection.post(
                self._request(sent),
                version=version,
                token=sent if self._acks else None,
                timeout_s=self._request_timeout_s,
            )
            if not self._acks:
                link.pending.pop()
                for lane, batch in sent:
                    self._acknowledge(lane, batch)

    def _request(self, sent: Iterable[tuple[_Lane, _Batch]]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for lane, batch in sent:
            data = PartitionProduceData(index=lane.partition.partition, records=batch.records)
            topics.setdefault(lane.partition.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=int(self._request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    # ---- answers

    def _take(self, link: _Link) -> None:
        broker = next(broker for broker, known in self._links.items() if known is link)
        try:
            _, response = link.connection.take(timeout_s=self._request_timeout_s)
        except (OSError, MalformedMessage) as error:
            self._drop(broker, link, error if isinstance(error, OSError) else ConnectionError(str(error)))
            return
        _, sent = link.pending.popleft()
        outcomes = _outcomes(response)
        for lane, batch in sent:
            outcome = outcomes.get(lane.partition)
            if lane.partition not in outcomes:
                words = f"the broker left {lane.partition} out of its answer"
                outcome = KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, words)
            if outcome is None or outcome.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._acknowledge(lane, batch)
            else:
                self._fail(lane, batch, outcome)

    def _acknowledge(self, lane: _Lane, batch: _Batch) -> None:
        lane.in_flight.remove(batch)
        lane.delay_s = RETRY_DELAY_S
        self.buffered_bytes -= len(batch.records)
        if not lane.in_flight and not lane.waiting and not lane.returned:
            del self._busy[lane.partition]

    def _fail(self, lane: _Lane, batch: _Batch, error: KafkaError) -> None:
        is_first = lane.in_flight[0] is batch and not lane.returned
        lane.in_flight.remove(batch)
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            lane.returned += self._split(batch)
        elif error.code in RETRIABLE_CODES or (
            error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._identity.id >= 0 and not is_first
        ):
            batch.failure = error
            lane.returned.append(batch)
        else:
            raise KafkaError.of(
                error.code, f"{lane.partition} refuses a batch of {batch.record_count} records: {error}"
            )
        if error.code in STALE_LEADER_CODES:
            self._known.discard(lane.partition.topic)

    def _split(self, batch: _Batch) -> list[_Batch]:
        """Two batches of half the records each, with the sequences that the one had; rare, so records are opened one by one."""
        header = read_header(batch.records)
        records = list(iterate_records(batch.records))
        half = len(records) // 2
        made = []
        for first, share in ((0, records[:half]), (half, records[half:])):
            renumbered = [Record(at, *record[1:]) for at, record in enumerate(share)]
            built = build_batch(
                renumbered,
                compression=header.compression,
                is_transactional=header.is_transactional,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=(header.base_sequence + first) % SEQUENCES if header.base_sequence >= 0 else -1,
            )
            made.append(_Batch(built, len(share), (batch.sequence + first) % SEQUENCES, batch.deadline_s))
        self.buffered_bytes += sum(len(piece.records) for piece in made) - len(batch.records)
        largest = max(len(piece.records) for piece in made)
        self.batch_bytes_max = largest if self.batch_bytes_max is None else min(self.batch_bytes_max, largest)
        return made

    def _drop(self, broker: Broker, link: _Link, error: OSError) -> None:
        """After a failure the connection's order is unknown: whatever it owes may or may not be written, and is sent again."""
        link.connection.close()
        self._links.pop(broker, None)
        for _, sent in link.pending:
            for lane, batch in sent:
                batch.failure = error
                lane.in_flight.remove(batch)
                lane.returned.append(batch)
                self._known.discard(lane.partition.topic)
        link.pending.clear()

    def _requeue(self, lane: _Lane, now_s: float) -> None:
        first = lane.returned[0].sequence
        lane.returned.sort(key=lambda batch: (batch.sequence - first + SEQUENCES // 2) % SEQUENCES)
        was_split_only = all(batch.failure is None for batch in lane.returned)
        lane.waiting.extendleft(reversed(lane.returned))
        lane.returned.clear()
        if not was_split_only:
            self._delay(lane, now_s)

    def _delay(self, lane: _Lane, now_s: float) -> None:
        lane.retry_at_s = now_s + lane.delay_s
        lane.delay_s = min(lane.delay_s * 2, RETRY_DELAY_S_MAX)

    def _late(self, lane: _Lane) -> Exception:
        batch = lane.waiting[0]
        why = _words(batch.failure) if batch.failure is not None else "its leader did not take it in time"
        return TimeoutError(
            f"{lane.partition} did not acknowledge a batch of {batch.record_count} records within "
            f"{self._delivery_timeout_s:g} s: {why}"
        )


def init_producer(cluster: BlockingCluster) -> ProducerIdentity:
    """A producer id of its own, for idempotence without transactions (KIP-98)."""
    response = cluster.call_checked(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def _words(error: KafkaError | OSError) -> str:
    if isinstance(error, KafkaError):
        return f"{error.code.name} {error.message}".rstrip()
    return str(error) or type(error).__name__


def _outcomes(response: ProduceResponse) -> dict[TopicPartition, KafkaError | None]:
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.responses:
        for entry in topic.partition_responses:
            partition = TopicPartition(topic.name, entry.index)
            error = None
            if entry.error_code:
                error = KafkaError.of(known_code(entry.error_code), entry.error_message or "")
            found[partition] = error
    return found
