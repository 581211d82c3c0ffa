"""The hand-written Produce path against the compiled codec, which test_schema holds against kio."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random
from typing import Any

import pytest

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.frame import decode_response_header
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages import produce as wire
from barnabas_wire.kafka.messages.produce import (
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    encode_produce_response_frame,
    parse_produce_request,
)
from barnabas_wire.kafka.primitives import MalformedMessage
from tests.proto import oracle

VERSIONS = range(3, 14)


def encoded(message: Any, version: int) -> bytes:
    out = bytearray()
    schema.encode_request(message, version, out)
    return bytes(out)


def flat(request: ProduceRequest, version: int) -> list[tuple[str | Uuid, int, bytes]]:
    """The entries that the hand-written parser should give."""
    return [
        (topic.topic_id if version >= 13 else topic.name, partition.index, bytes(partition.records or b""))
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def topic_of(version: int, number: int = 0) -> str | Uuid:
    return Uuid(bytes([number]) * 16) if version >= 13 else f"topic-{number}-ü"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_request_parses_as_the_compiled_codec_reads_it(version: int) -> None:
    random = Random(version)
    for _ in range(60):
        request = oracle.generate(ProduceRequest, version, random)
        head = random.randbytes(11)
        view = memoryview(head + encoded(request, version))
        transactional_id, acks, timeout_ms, entries = parse_produce_request(view, len(head), version)
        assert (transactional_id, acks, timeout_ms) == (request.transactional_id, request.acks, request.timeout_ms)
        assert [(topic, index, bytes(records)) for topic, index, records in entries] == flat(request, version)


def test_records_are_slices_of_the_frame_and_not_copies() -> None:
    request = ProduceRequest(
        topic_data=[wire.TopicProduceData(name="t", partition_data=[wire.PartitionProduceData(0, b"x" * 70000)])]
    )
    frame = bytearray(encoded(request, 9))
    ((_, _, records),) = parse_produce_request(memoryview(frame), 0, 9)[3]
    assert len(records) == 70000 and records.obj is frame


@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("records", [b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20_000])
def test_a_request_of_one_partition_is_what_the_general_way_reads(name: str, records: bytes) -> None:
    partition = wire.PartitionProduceData(7, records)
    request = ProduceRequest(
        acks=-1, timeout_ms=3000, topic_data=[wire.TopicProduceData(name=name, partition_data=[partition])]
    )
    data = encoded(request, 9)
    general = wire._parse_flexible(memoryview(data), 0, 9)
    taken = wire._parse_one(memoryview(data), 0)
    assert taken == (general if len(name) < 127 else None)
    for position in range(min(len(data), 160)):  # whatever is changed, both ways agree on it
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            other = memoryview(data[:position] + bytes([byte]) + data[position + 1 :])
            found: list[Any] = []
            for way in (parse_produce_request, wire._parse_flexible):
                try:
                    found.append(way(other, 0, 9))
                except (MalformedMessage, IndexError, struct.error, UnicodeDecodeError):
                    found.append(None)
            assert found[0] == found[1], (position, byte)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    random = Random(version)
    request = oracle.generate(ProduceRequest, version, random, size=2)
    request.topic_data = request.topic_data or [wire.TopicProduceData(partition_data=[wire.PartitionProduceData()])]
    for topic in request.topic_data:
        for partition in topic.partition_data:
            partition.records = (partition.records or b"")[:200]
    data = encoded(request, version)
    for cut in range(len(data)):
        with pytest.raises(MalformedMessage):
            parse_produce_request(memoryview(data)[:cut], 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_hostile_bytes_give_entries_or_malformed_and_never_much_memory(version: int) -> None:
    random = Random(version)
    data = encoded(oracle.generate(ProduceRequest, version, random, size=2), version)[:5000]
    bombs = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80" * 6)
    tracemalloc.start()
    try:
        for _ in range(400):
            position = random.randrange(len(data) + 1)
            bomb = random.choice((*bombs, random.randbytes(1)))
            hostile = data[:position] + bomb + data[position + len(bomb) :]
            try:
                entries = parse_produce_request(memoryview(hostile), 0, version)[3]
            except MalformedMessage:
                continue
            assert sum(len(records) for _, _, records in entries) <= len(hostile)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def produced(version: int) -> list[list[ProducedPartition]]:
    """Responses of every shape: one, several, with errors, hints and long names."""
    one = ProducedPartition(topic_of(version), 7, 0, 12345678901, -1, 17)
    trouble = ProducedPartition(
        topic_of(version, 1),
        3,
        6,
        error_message="not here",
        current_leader=(2, 9),
        record_errors=[(4, "key"), (5, None)],
    )
    long_name: str | Uuid = topic_of(version) if version >= 13 else "n" * 249
    return [
        [],
        [one],
        [one._replace(topic=long_name)],
        [trouble],
        [one, one._replace(partition=8), trouble, trouble._replace(partition=4, current_leader=None)],
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_response_frame_reads_as_meant(version: int) -> None:
    endpoints = [LeaderEndpoint(2, "host", 9092, None), LeaderEndpoint(3, "other", 9093, "rack")]
    for partitions in produced(version):
        for nodes in ([], endpoints):
            frame = encode_produce_response_frame(77, version, partitions, throttle_time_ms=5, node_endpoints=nodes)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            correlation_id, position = decode_response_header(frame, ApiKey.PRODUCE, version, 4)
            assert correlation_id == 77
            response = schema.decode_response(ProduceResponse, version, frame, position)
            assert encoded(response, version) == frame[position:], "the same bytes as the compiled codec's"
            assert response.throttle_time_ms == 5
            seen = [
                (topic.topic_id if version >= 13 else topic.name, entry)
                for topic in response.responses
                for entry in topic.partition_responses
            ]
            assert len(seen) == len(partitions)
            for (topic, entry), wanted in zip(seen, partitions, strict=True):
                assert (topic, entry.index, entry.error_code, entry.base_offset, entry.log_append_time_ms) == (
                    wanted.topic,
                    wanted.partition,
                    wanted.error_code,
                    wanted.base_offset,
                    wanted.log_append_time_ms,
                )
                assert entry.log_start_offset == (wanted.log_start_offset if version >= 5 else -1)
                if version >= 8:
                    assert entry.error_message == wanted.error_message
                    errors = [(error.batch_index, error.batch_index_error_message) for error in entry.record_errors]
                    assert errors == list(wanted.record_errors)
                if version >= 10:
                    leader = (entry.current_leader.leader_id, entry.current_leader.leader_epoch)
                    assert leader == (wanted.current_leader or (-1, -1))
            if version >= 10 and partitions:
                found = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
                # the short cut for one partition without trouble has no leader to hint at
                is_short_cut = len(partitions) == 1 and not partitions[0].error_code and len(partitions[0].topic) < 127
                assert found == ([] if is_short_cut else nodes)
