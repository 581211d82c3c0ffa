"""Fetch v4-18: byte ranges of the log to consumers and followers.

May touch:  the replica manager, topic names and ids of the image.    Must not touch: logs, the bytes of the ranges.
Invariants: every partition of the request is answered once, in the request's order; a file range goes into the answer
            as it is and the connection releases it; a parked fetch is cancelled with its connection.
Read next:  barnabas_replication/manager.py, network/output.py.

Behaviour: v13 names topics by id. A refused partition carries the leader hint (v12, endpoints from v16 on, KIP-951).
Differences from Kafka: no fetch sessions. A request that would open one is answered with session id 0, which every
client takes as "full fetches, please" (KIP-227); any other session id gets FETCH_SESSION_ID_NOT_FOUND.

The answer is packed by hand as [bytes, ranges…, bytes, …]: records are never copied nor joined.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.api.registry import encode_answer, handles_directly
from barnabas_broker.api.services import BrokerServices
from barnabas_replication.requests import CurrentLeader, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch import FetchRequest, FetchResponse, FetchTopic, NodeEndpoint
from barnabas_wire.kafka.primitives import write_uvarint
from barnabas_wire.kafka.schema import decode

if TYPE_CHECKING:
    from barnabas_broker.network.connection import ResponseSlot
    from barnabas_broker.network.output import Part

FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
REPLICA_STATE_FROM = 15
READ_COMMITTED = 1


@handles_directly(ApiKey.FETCH, versions=(4, 18))
def fetch(services: BrokerServices, slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """Read from the asked partitions; the slot is filled now, or when enough bytes or the time have come."""
    request: FetchRequest = decode(FetchRequest, version, frame, position)
    if request.session_id != 0:
        slot.count_errors((ErrorCode.FETCH_SESSION_ID_NOT_FOUND,))
        response = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        answer = encode_answer(ApiKey.FETCH, version, slot.correlation_id, response)
        slot.fill((answer,), len(answer))
        return
    topics = request.topics
    refused: dict[int, FetchOutcome] = {}
    if version >= TOPIC_IDS_FROM:
        _name_topics(services, topics, refused)
    specs = []
    index = 0
    for topic in topics:
        name, topic_id = topic.topic, topic.topic_id
        for asked in topic.partitions:
            if index not in refused:
                specs.append(
                    FetchPartitionSpec(
                        name,
                        topic_id,
                        asked.partition,
                        asked.current_leader_epoch,  # type: ignore[arg-type]
                        asked.fetch_offset,  # type: ignore[arg-type]
                        asked.last_fetched_epoch,  # type: ignore[arg-type]
                        asked.log_start_offset,  # type: ignore[arg-type]
                        asked.partition_max_bytes,
                    )
                )
            index += 1
    if version >= REPLICA_STATE_FROM:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    else:
        replica_id, replica_epoch = request.replica_id, -1
    spec = FetchSpec(
        replica_id=replica_id,  # type: ignore[arg-type]
        replica_epoch=replica_epoch,
        max_wait_ms=0 if refused else request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        is_read_committed=request.isolation_level == READ_COMMITTED,
        rack=request.rack_id,
    )
    answer_to = _Answer(services, slot, version, topics, refused, spec.is_read_committed)
    if not specs:
        answer_to.respond([])
        return
    cancel = services.replica_manager.fetch(spec, specs, respond=answer_to.respond)
    if not slot.is_done:
        slot.cancel = cancel


class _Answer:
    """Remembers what the answer of one fetch must echo."""

    __slots__ = ("is_read_committed", "refused", "services", "slot", "topics", "version")

    def __init__(
        self,
        services: BrokerServices,
        slot: ResponseSlot,
        version: int,
        topics: list[FetchTopic],
        refused: dict[int, FetchOutcome],
        is_read_committed: bool,
    ) -> None:
        self.services = services
        self.slot = slot
        self.version = version
        self.topics = topics
        self.refused = refused
        self.is_read_committed = is_read_committed

    def respond(self, outcomes: list[FetchOutcome]) -> None:
        """Called by the replica manager, at most once."""
        if self.refused:
            tried = iter(outcomes)
            count = len(outcomes) + len(self.refused)
            outcomes = [self.refused[i] if i in self.refused else next(tried) for i in range(count)]
        self.slot.count_errors(outcome.error.code for outcome in outcomes if outcome.error is not None)
        if self.version >= FLEXIBLE_FROM:
            parts, size_bytes = self._pack_flexible(outcomes)
        else:
            parts, size_bytes = self._pack_plain(outcomes)
        self.slot.fill(parts, size_bytes)

    def _pack_flexible(self, outcomes: list[FetchOutcome]) -> tuple[list[Part], int]:
        version = self.version
        parts: list[Part] = []
        # size, correlation id, header tags; throttle time, error, session id
        head = bytearray(_FLEXIBLE_HEADER(0, self.slot.correlation_id, 0, 0, 0, 0))
        first = head
        head += write_uvarint(len(self.topics) + 1)
        records_bytes = 0
        done_bytes = 0
        index = 0
        aborted = 1 if self.is_read_committed else 0  # compact array: none, or null
        for topic in self.topics:
            if version >= TOPIC_IDS_FROM:
                head += topic.topic_id
            else:
                name = topic.topic.encode()
                head += write_uvarint(len(name) + 1)
                head += name
            head += write_uvarint(len(topic.partitions) + 1)
            for asked in topic.partitions:
                outcome = outcomes[index]
                index += 1
                head += _FLEXIBLE_PARTITION(
                    asked.partition,
                    0 if outcome.error is None else outcome.error.code,
                    outcome.high_watermark,
                    outcome.last_stable_offset,
                    outcome.log_start_offset,
                    aborted,
                    -1,
                )
                size = outcome.size_bytes
                head += write_uvarint(size + 1)
                if size:
                    parts.append(head)
                    parts.extend(outcome.parts)
                    records_bytes += size
                    done_bytes += len(head)
                    head = bytearray()
                head += b"\0" if outcome.error is None and outcome.diverging_epoch is None else _tags(outcome)
            head += b"\0"
        leaders = [outcome.current_leader for outcome in outcomes if outcome.current_leader is not None]
        if leaders and version >= 16:
            _put_endpoints(self.services, self.slot.listener_name, leaders, version, head)
        else:
            head += b"\0"
        parts.append(head)
        size_bytes = done_bytes + len(head) + records_bytes
        first[:4] = (size_bytes - 4).to_bytes(4, "big")
        return parts, size_bytes

    def _pack_plain(self, outcomes: list[FetchOutcome]) -> tuple[list[Part], int]:
        version = self.version
        parts: list[Part] = []
        head = bytearray(_PLAIN_HEADER(0, self.slot.correlation_id, 0))
        first = head
        if version >= 7:
            head += b"\0\0\0\0\0\0"  # error, session id
        head += len(self.topics).to_bytes(4, "big")
        records_bytes = 0
        done_bytes = 0
        index = 0
        aborted = b"\0\0\0\0" if self.is_read_committed else b"\xff\xff\xff\xff"
        for topic in self.topics:
            name = topic.topic.encode()
            head += len(name).to_bytes(2, "big")
            head += name
            head += len(topic.partitions).to_bytes(4, "big")
            for asked in topic.partitions:
                outcome = outcomes[index]
                index += 1
                head += _PLAIN_PARTITION(
                    asked.partition,
                    0 if outcome.error is None else outcome.error.code,
                    outcome.high_watermark,
                    outcome.last_stable_offset,
                )
                if version >= 5:
                    head += outcome.log_start_offset.to_bytes(8, "big", signed=True)
                head += aborted
                if version >= 11:
                    head += b"\xff\xff\xff\xff"  # no preferred read replica
                size = outcome.size_bytes
                head += size.to_bytes(4, "big")
                if size:
                    parts.append(head)
                    parts.extend(outcome.parts)
                    records_bytes += size
                    done_bytes += len(head)
                    head = bytearray()
        if head:
            parts.append(head)
        size_bytes = done_bytes + len(head) + records_bytes
        first[:4] = (size_bytes - 4).to_bytes(4, "big")
        return parts, size_bytes


_FLEXIBLE_HEADER = struct.Struct(">iibihi").pack
_FLEXIBLE_PARTITION = struct.Struct(">ihqqqBi").pack
_PLAIN_HEADER = struct.Struct(">iii").pack
_PLAIN_PARTITION = struct.Struct(">ihqq").pack


def _tags(outcome: FetchOutcome) -> bytes:
    """Tagged fields of one partition: 0 diverging epoch, 1 current leader; each a struct with its own empty tags."""
    fields = b""
    count = 0
    if outcome.diverging_epoch is not None:
        epoch, end_offset = outcome.diverging_epoch
        fields += b"\x00\x0d" + struct.pack(">iqB", epoch, end_offset, 0)
        count += 1
    if outcome.current_leader is not None:
        leader_id, leader_epoch = outcome.current_leader
        fields += b"\x01\x09" + struct.pack(">iiB", leader_id, leader_epoch, 0)
        count += 1
    return bytes((count,)) + fields


def _put_endpoints(
    services: BrokerServices,
    listener: str,
    leaders: list[CurrentLeader],
    version: int,
    head: bytearray,
) -> None:
    """Tagged field 0 of the answer, taken from the compiled codec's encoding of an answer with nothing else in it."""
    endpoints = node_endpoints(services.metadata.image, listener, leaders, NodeEndpoint)
    answer = encode_answer(ApiKey.FETCH, version, 0, FetchResponse(node_endpoints=endpoints))
    head += answer[_EMPTY_ANSWER_BYTES:]


_EMPTY_ANSWER_BYTES = 9 + 4 + 2 + 4 + 1
"""Before the tagged fields of an answer without topics: frame header, throttle time, error, session id, topic count."""


def _name_topics(services: BrokerServices, topics: list[FetchTopic], refused: dict[int, FetchOutcome]) -> None:
    """v13: put the name beside each topic id; unknown ids are refused."""
    image = services.metadata.image
    index = 0
    for topic in topics:
        known = image.topics.get_by_id(topic.topic_id)
        if known is not None:
            topic.topic = known.name
            index += len(topic.partitions)
            continue
        error = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic.topic_id}")
        for asked in topic.partitions:
            refused[index] = FetchOutcome("", topic.topic_id, asked.partition, error)
            index += 1
