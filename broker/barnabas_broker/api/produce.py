"""Produce v3-13 (advertised from 0): record batches to the replica manager, offsets back.

May touch:  the replica manager, topic names and ids of the image.    Must not touch: logs, the batches' content.
Invariants: the batches are views of the receive buffer and nobody keeps them past the call; every partition of the
            request is answered once, in the request's order; acks=0 gets no answer, and a closed connection on error.
Read next:  registry.py, barnabas_replication/manager.py.

Behaviour: v0-2 are advertised because librdkafka up to about 2.8 sends uncompressed batches otherwise (KAFKA-18659),
and answered UNSUPPORTED_VERSION. v13 names topics by id. A refused partition carries the leader hint from v10 on
(KIP-951). Differences from Kafka: transactional produce is refused with INVALID_TXN_STATE, as no transaction can be
begun here.

The answer of a request that went well is packed by hand: it is written once per batch, and building message objects
for it would cost as much as the rest of the request.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.api.registry import encode_answer, handles_directly
from barnabas_broker.api.services import BrokerServices
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas_wire.kafka.primitives import write_uvarint
from barnabas_wire.kafka.schema import decode

if TYPE_CHECKING:
    from barnabas_broker.network.connection import ResponseSlot

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13


@handles_directly(ApiKey.PRODUCE, versions=(0, 13))
def produce(services: BrokerServices, slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """Append the batches of one request; the slot is filled when acks says so."""
    if version < 3:
        _refuse_old_version(slot, version, frame, position)
        return
    request: ProduceRequest = decode(ProduceRequest, version, frame, position)
    topics = request.topic_data
    refused: dict[int, AppendOutcome] = {}
    entries: list[AppendEntry] = []
    if version >= TOPIC_IDS_FROM:
        _name_topics(services, topics, refused)
    if request.transactional_id is not None:
        error = KafkaError.of(ErrorCode.INVALID_TXN_STATE, "transactions are not available on this broker")
        _refuse_all(topics, refused, error)
    index = 0
    for topic in topics:
        name = topic.name
        for partition in topic.partition_data:
            if index not in refused:
                entries.append(AppendEntry(name, partition.index, partition.records or b""))
            index += 1
    answer = _Answer(services, slot, version, topics, refused, request.acks)
    if entries:
        services.replica_manager.append_records(
            entries, required_acks=request.acks, timeout_ms=request.timeout_ms, respond=answer.respond
        )
    else:
        answer.respond([])


class _Answer:
    """Remembers what the answer of one request must echo, without its batches."""

    __slots__ = ("acks", "refused", "services", "slot", "topics", "version")

    def __init__(
        self,
        services: BrokerServices,
        slot: ResponseSlot,
        version: int,
        topics: list[TopicProduceData],
        refused: dict[int, AppendOutcome],
        acks: int,
    ) -> None:
        for topic in topics:
            for partition in topic.partition_data:
                partition.records = None  # a view of the receive buffer: the answer may come much later
        self.services = services
        self.slot = slot
        self.version = version
        self.topics = topics
        self.refused = refused
        self.acks = acks

    def respond(self, outcomes: list[AppendOutcome]) -> None:
        """Called by the replica manager, once."""
        slot = self.slot
        if self.refused:
            outcomes = _merge(outcomes, self.refused)
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed:
            slot.count_errors(outcome.error.code for outcome in failed if outcome.error is not None)
        if self.acks == 0:
            slot.skip()
            if failed:
                slot.close_connection("acks_zero_error")
            return
        if failed:
            response = self._response(outcomes)
            answer: bytes | bytearray = encode_answer(ApiKey.PRODUCE, self.version, slot.correlation_id, response)
        elif self.version >= FLEXIBLE_FROM:
            answer = _pack_flexible(slot.correlation_id, self.version, self.topics, outcomes)
        else:
            answer = _pack_plain(slot.correlation_id, self.version, self.topics, outcomes)
        slot.fill((answer,), len(answer))

    def _response(self, outcomes: Sequence[AppendOutcome]) -> ProduceResponse:
        """The answer as message objects: the way of every answer with an error in it."""
        response = ProduceResponse()
        remaining = iter(outcomes)
        for topic in self.topics:
            partitions = []
            for partition in topic.partition_data:
                outcome = next(remaining)
                error = outcome.error
                leader = outcome.current_leader
                partitions.append(
                    PartitionProduceResponse(
                        index=partition.index,
                        error_code=0 if error is None else int(error.code),
                        base_offset=outcome.base_offset,
                        log_append_time_ms=outcome.log_append_time_ms,
                        log_start_offset=outcome.log_start_offset,
                        error_message=None if error is None else error.message or None,
                        current_leader=(
                            LeaderIdAndEpoch()
                            if leader is None
                            else LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
                        ),
                    )
                )
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
            )
        if self.version >= 10:
            image = self.services.metadata.image
            leaders = (outcome.current_leader for outcome in outcomes)
            response.node_endpoints = node_endpoints(image, self.slot.listener_name, leaders, NodeEndpoint)
        return response


_PLAIN_V3 = struct.Struct(">ihqq").pack  # partition, error, base offset, log append time
_PLAIN_V5 = struct.Struct(">ihqqq").pack  # … log start offset
_PLAIN_V8 = struct.Struct(">ihqqqih").pack  # … record errors (none), error message (null)
_FLEXIBLE = struct.Struct(">ihqqqBBB").pack  # … in compact form: one byte each, and no tagged fields
_HEADER_V0 = struct.Struct(">iii").pack  # size, correlation id, topics
_HEADER_V1 = struct.Struct(">iib").pack  # size, correlation id, no tagged fields


def _pack_flexible(
    correlation_id: int, version: int, topics: list[TopicProduceData], outcomes: Sequence[AppendOutcome]
) -> bytes:
    parts = [b"", write_uvarint(len(topics) + 1)]
    index = 0
    for topic in topics:
        if version >= TOPIC_IDS_FROM:
            parts.append(topic.topic_id)
        else:
            name = topic.name.encode()
            parts.append(write_uvarint(len(name) + 1))
            parts.append(name)
        parts.append(write_uvarint(len(topic.partition_data) + 1))
        for partition in topic.partition_data:
            outcome = outcomes[index]
            index += 1
            parts.append(
                _FLEXIBLE(
                    partition.index,
                    0,
                    outcome.base_offset,
                    outcome.log_append_time_ms,
                    outcome.log_start_offset,
                    1,
                    0,
                    0,
                )
            )
        parts.append(b"\0")
    parts.append(b"\0\0\0\0\0")  # throttle time, no tagged fields
    size = 5 + sum(map(len, parts))
    parts[0] = _HEADER_V1(size, correlation_id, 0)
    return b"".join(parts)


def _pack_plain(
    correlation_id: int, version: int, topics: list[TopicProduceData], outcomes: Sequence[AppendOutcome]
) -> bytes:
    parts = [b""]
    index = 0
    for topic in topics:
        name = topic.name.encode()
        parts.append(len(name).to_bytes(2, "big") + name + len(topic.partition_data).to_bytes(4, "big"))
        for partition in topic.partition_data:
            outcome = outcomes[index]
            index += 1
            offset, time_ms = outcome.base_offset, outcome.log_append_time_ms
            if version >= 8:
                parts.append(_PLAIN_V8(partition.index, 0, offset, time_ms, outcome.log_start_offset, 0, -1))
            elif version >= 5:
                parts.append(_PLAIN_V5(partition.index, 0, offset, time_ms, outcome.log_start_offset))
            else:
                parts.append(_PLAIN_V3(partition.index, 0, offset, time_ms))
    parts.append(b"\0\0\0\0")  # throttle time
    size = 8 + sum(map(len, parts))
    parts[0] = _HEADER_V0(size, correlation_id, len(topics))
    return b"".join(parts)


def _name_topics(services: BrokerServices, topics: list[TopicProduceData], refused: dict[int, AppendOutcome]) -> None:
    """v13: put the name beside each topic id; unknown ids are refused."""
    image = services.metadata.image
    index = 0
    for topic in topics:
        known = image.topics.get_by_id(topic.topic_id)
        if known is not None:
            topic.name = known.name
            index += len(topic.partition_data)
            continue
        error = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic.topic_id}")
        for partition in topic.partition_data:
            refused[index] = AppendOutcome("", partition.index, error)
            index += 1


def _refuse_all(topics: list[TopicProduceData], refused: dict[int, AppendOutcome], error: KafkaError) -> None:
    index = 0
    for topic in topics:
        for partition in topic.partition_data:
            refused.setdefault(index, AppendOutcome(topic.name, partition.index, error))
            index += 1


def _merge(outcomes: list[AppendOutcome], refused: dict[int, AppendOutcome]) -> list[AppendOutcome]:
    """Outcomes of all partitions in the request's order, from those that were tried and those that were not."""
    tried = iter(outcomes)
    return [refused[index] if index in refused else next(tried) for index in range(len(outcomes) + len(refused))]


def _refuse_old_version(slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """UNSUPPORTED_VERSION in the layout of v0-2, for every partition named.

    A v0-2 body is a v3 body without the transactional id that opens it; the answer lacks the log append time below v2
    and the throttle time below v1.
    """
    request: ProduceRequest = decode(ProduceRequest, 3, b"\xff\xff" + bytes(frame[position:]), 0)
    if request.acks == 0:
        slot.skip()
        slot.close_connection("acks_zero_error")
        return
    parts = [struct.pack(">ii", slot.correlation_id, len(request.topic_data))]
    for topic in request.topic_data:
        name = topic.name.encode()
        parts.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(topic.partition_data)))
        for partition in topic.partition_data:
            parts.append(struct.pack(">ihq", partition.index, ErrorCode.UNSUPPORTED_VERSION, -1))
            if version == 2:
                parts.append(struct.pack(">q", -1))
    if version >= 1:
        parts.append(struct.pack(">i", 0))
    body = b"".join(parts)
    slot.fill((struct.pack(">i", len(body)) + body,), len(body) + 4)
