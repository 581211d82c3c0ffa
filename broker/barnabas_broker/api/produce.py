"""Produce v3-13 (advertised from 0): record batches to the replica manager, offsets back.

May touch:  the replica manager, transactional writes, topic names and ids of the image.    Must not touch: logs, the batches' content.
Invariants: the batches are views of the receive buffer and are not kept past the call; every partition of the
            request is answered once, in the request's order; acks=0 gets no answer, and a closed connection on error.
Read next:  registry.py, barnabas_replication/manager.py.

Behaviour: v0-2 are advertised because librdkafka up to about 2.8 sends uncompressed batches otherwise (KAFKA-18659),
and answered UNSUPPORTED_VERSION. Zstandard is refused before v7: a client without a newer version could not read it
back (KIP-110). v13 names topics by id. A refused partition carries the leader hint from v10 on
(KIP-951). The first batch of a transaction in a partition waits until the transaction's coordinator knows of the partition (KIP-890):
v12 adds it, an older client has added it before. What is outside transactions pays one comparison for that.
"""

from __future__ import annotations

import struct

from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.api.registry import handles_directly
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.slot import ResponseSlot, SlotConnection
from barnabas_broker.security.access import Access
from barnabas_coordination.transaction.writes import WriteVersion
from barnabas_log.errors import InvalidBatch
from barnabas_quorum.image.rights import DESCRIBE, TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.produce import (
    REQUEST_ELEMENTS_MAX,
    ProducedPartition,
    ProduceEntry,
    encode_produce_response_frame,
    parse_produce_request,
)
from barnabas_wire.kafka.primitives import Buffer
from barnabas_wire.records.batch import COMPRESSION_MASK
from barnabas_wire.records.compression import CompressionType

RECORDS_BYTES_MAX = 2**31 - 1
"""socket.request.max.bytes bounds what is produced, as in Kafka: records are taken as they lie in the frame."""
TOPIC_IDS_FROM = 13
ADDS_PARTITIONS_FROM = 12
"""The first version that adds a transaction's partitions by writing to them (transaction.version 2)."""
ABORTABLE_FROM = 11
"""The first version with TRANSACTION_ABORTABLE."""
ZSTD_FROM = 7
TRANSACTIONAL_BIT = 0x10
"""The bit of a transactional batch, in the same byte."""
_COMPRESSION_POSITION = 22
"""The low byte of a batch's attributes."""


@handles_directly(
    ApiKey.PRODUCE,
    versions=(0, 13),
    request_bytes_max=RECORDS_BYTES_MAX,
    elements_max=REQUEST_ELEMENTS_MAX,
    calls_max=450_000,  # a transactional request of as many empty batches, each looked at before it is refused
)
def produce(services: BrokerServices, slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """Append the batches of one request; the slot is filled when acks says so."""
    if version < 3:
        _refuse_old_version(slot, version, frame, position)
        return
    transactional_id, acks, timeout_ms, parsed = parse_produce_request(frame, position, version)
    connection: SlotConnection = slot.connection  # type: ignore[assignment]  # the client is there while it asks
    guard = connection.guard
    if guard is not None and not _may_write_transaction(guard, transactional_id, parsed):
        _refuse_all(
            services, slot, version, acks, parsed, guard.refusal(WRITE, TRANSACTIONAL_ID, transactional_id or "")
        )
        return
    if version >= TOPIC_IDS_FROM or version < ZSTD_FROM or guard is not None:
        merged = _MergedAnswer(services, slot, version, acks, parsed, guard)
        answer: _Answer = merged
        entries, merged.admitted = merged.admitted, []
        if not entries:
            answer.respond([])
            return
    else:
        answer = _Answer(services, slot, version, acks)
        entries = parsed  # type: ignore[assignment]  # topics by name, and an AppendEntry's order
    if transactional_id is None:
        services.replica_manager.appends.append_records(
            entries, required_acks=acks, timeout_ms=timeout_ms, respond=answer.respond, scrutiny=connection.scrutiny
        )
        return
    services.transactional.append_records(
        transactional_id,
        entries,
        version=WriteVersion(
            adds_partitions=version >= ADDS_PARTITIONS_FROM, knows_abortable=version >= ABORTABLE_FROM
        ),
        required_acks=acks,
        timeout_ms=timeout_ms,
        respond=answer.respond,
        scrutiny=connection.scrutiny,
    )


class _Answer:
    """What the answer of one request needs later. Holds no view of the frame."""

    __slots__ = ("acks", "services", "slot", "version")

    def __init__(self, services: BrokerServices, slot: ResponseSlot, version: int, acks: int) -> None:
        self.services = services
        self.slot = slot
        self.version = version
        self.acks = acks

    def respond(self, outcomes: list[AppendOutcome]) -> None:
        """Called by the replica manager, once."""
        slot = self.slot
        if len(outcomes) == 1 and outcomes[0].error is None and self.acks:
            topic, partition, _, base_offset, append_time_ms, start_offset, _ = outcomes[0]
            one = (topic, partition, 0, base_offset, append_time_ms, start_offset, None, None, ())
            frame = encode_produce_response_frame(slot.correlation_id, self.version, (one,))  # type: ignore[arg-type]
            slot.fill((frame,), len(frame))
            return
        partitions: list[ProducedPartition] = []
        failed: list[AppendOutcome] = []
        for outcome in outcomes:
            topic, partition, error, base_offset, append_time_ms, start_offset, leader = outcome
            if error is None:
                # A plain tuple of the same order: encode_produce_response_frame takes either.
                partitions.append((topic, partition, 0, base_offset, append_time_ms, start_offset, None, None, ()))  # type: ignore[arg-type]
                continue
            failed.append(outcome)
            message = error.message or None
            invalid = [(record, message) for record in error.records] if isinstance(error, InvalidBatch) else ()
            partitions.append(
                ProducedPartition(
                    topic, partition, error.code, base_offset, append_time_ms, start_offset, message, leader, invalid
                )
            )
        endpoints: list[LeaderEndpoint] = []
        if failed:
            slot.count_errors(outcome.error.code for outcome in failed if outcome.error is not None)
            leaders = (outcome.current_leader for outcome in failed)
            endpoints = node_endpoints(self.services, slot.listener_name, leaders)
        if self.acks == 0:
            slot.skip()
            if failed:
                slot.close_connection("acks_zero_error")
            return
        frame = encode_produce_response_frame(slot.correlation_id, self.version, partitions, node_endpoints=endpoints)
        slot.fill((frame,), len(frame))


class _MergedAnswer(_Answer):
    """The answer of a request that names topics by id, or whose entries are not all tried."""

    __slots__ = ("admitted", "asked", "refused")

    def __init__(
        self,
        services: BrokerServices,
        slot: ResponseSlot,
        version: int,
        acks: int,
        parsed: list[ProduceEntry],
        guard: Access | None,
    ) -> None:
        super().__init__(services, slot, version, acks)
        self.asked = [(topic, partition) for topic, partition, _ in parsed]
        """Topic and partition of each entry as the client named them."""
        self.refused: dict[int, KafkaError] = {}
        """Entries that are not tried, by their place in the request."""
        self.admitted: list[AppendEntry] = []
        """The entries to be tried, by topic name; given up once they are handed on, since they hold the frame's bytes."""
        topics = services.metadata.image.topics
        for index, (topic, partition, batches) in enumerate(parsed):
            name = topic if isinstance(topic, str) else None
            if isinstance(topic, Uuid):
                known = topics.get_by_id(topic)
                name = known.name if known is not None else None
            if name is None:
                self.refused[index] = _unknown_id(topic)
            elif guard is not None and not guard.may(WRITE, TOPIC, name):
                is_named = isinstance(topic, str) or guard.may(DESCRIBE, TOPIC, name, is_noted=False)
                self.refused[index] = guard.refusal(WRITE, TOPIC, name) if is_named else _unknown_id(topic)
            elif version < ZSTD_FROM and _is_zstd(batches):
                self.refused[index] = KafkaError.of(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_FROM}, this is v{version}"
                )
            else:
                self.admitted.append(AppendEntry(name, partition, batches))

    def respond(self, outcomes: list[AppendOutcome]) -> None:
        """All entries in the request's order and naming, from those that were tried and those that were not."""
        tried = iter(outcomes)
        merged = []
        for index, (topic, partition) in enumerate(self.asked):
            error = self.refused.get(index)
            outcome = AppendOutcome("", partition, error) if error is not None else next(tried)
            merged.append(outcome._replace(topic=topic))  # type: ignore[arg-type]
        super().respond(merged)


def _unknown_id(topic: str | Uuid) -> KafkaError:
    """Also of a topic that the client may not see: what is not there looks the same."""
    return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {topic}")


def _may_write_transaction(access: Access, transactional_id: str | None, parsed: list[ProduceEntry]) -> bool:
    """Whether the transactional id is the client's. What counts is what the batches say, not the request (CVE-2018-17196)."""
    if transactional_id is None and not any(_is_transactional(batches) for _, _, batches in parsed):
        return True
    return transactional_id is not None and access.may(WRITE, TRANSACTIONAL_ID, transactional_id)


def _is_transactional(batches: Buffer) -> bool:
    return len(batches) > _COMPRESSION_POSITION and bool(batches[_COMPRESSION_POSITION] & TRANSACTIONAL_BIT)


def _refuse_all(
    services: BrokerServices, slot: ResponseSlot, version: int, acks: int, parsed: list[ProduceEntry], error: KafkaError
) -> None:
    answer = _Answer(services, slot, version, acks)
    answer.respond([AppendOutcome(topic, partition, error) for topic, partition, _ in parsed])  # type: ignore[arg-type]


def _is_zstd(batches: Buffer) -> bool:
    kind = batches[_COMPRESSION_POSITION] & COMPRESSION_MASK if len(batches) > _COMPRESSION_POSITION else 0
    return kind == CompressionType.ZSTD


def _refuse_old_version(slot: ResponseSlot, version: int, frame: memoryview, position: int) -> None:
    """UNSUPPORTED_VERSION in the layout of v0-2, for every partition named.

    A v0-2 body is a v3 body without the transactional id that opens it; the answer lacks the log append time below v2
    and the throttle time below v1.
    """
    body = memoryview(b"\xff\xff" + bytes(frame[position:]))
    _, acks, _, entries = parse_produce_request(body, 0, 3)
    slot.count_errors(ErrorCode.UNSUPPORTED_VERSION for _ in entries)
    if acks == 0:
        slot.skip()
        slot.close_connection("acks_zero_error")
        return
    parts = [struct.pack(">ii", slot.correlation_id, len(entries))]
    for topic, partition, _ in entries:
        name = str(topic).encode()
        parts.append(struct.pack(">h", len(name)) + name)
        parts.append(struct.pack(">iihq", 1, partition, ErrorCode.UNSUPPORTED_VERSION, -1))
        if version == 2:
            parts.append(struct.pack(">q", -1))
    if version >= 1:
        parts.append(struct.pack(">i", 0))
    answer = b"".join(parts)
    slot.fill((struct.pack(">i", len(answer)) + answer,), len(answer) + 4)
