"""The hand-written Fetch path, both ends, against the compiled codec, which test_schema holds against kio."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.frame import decode_response_header
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint
from barnabas_wire.kafka.messages import ApiKey, fetch_request, fetch_response
from barnabas_wire.kafka.messages.fetch import FetchRequest, FetchResponse
from barnabas_wire.kafka.messages.fetch_poll import PollAnswers, parse_poll, split_poll
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition, encode_fetch_request, parse_fetch_request
from barnabas_wire.kafka.messages.fetch_response import (
    FetchResponsePartition,
    encode_fetch_response,
    parse_fetch_response,
)
from barnabas_wire.kafka.primitives import MalformedMessage
from tests.proto import oracle

VERSIONS = range(4, 19)
BOMBS = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80" * 6)


def encoded(message: Any, version: int) -> bytes:
    out = bytearray()
    schema.encode_request(message, version, out)
    return bytes(out)


def key_of(topic: Any, version: int) -> str | Uuid:
    return topic.topic_id if version >= 13 else topic.topic


@pytest.mark.parametrize("version", VERSIONS)
def test_every_request_parses_as_the_compiled_codec_reads_it(version: int) -> None:
    random = Random(version)
    for _ in range(60):
        request = oracle.generate(FetchRequest, version, random)
        head = random.randbytes(13)
        parsed = parse_fetch_request(memoryview(head + encoded(request, version)), len(head), version)
        request = schema.decode_request(ApiKey.FETCH, version, encoded(request, version))
        assert parsed.partitions == [
            (
                key_of(topic, version),
                entry.partition,
                entry.current_leader_epoch,
                entry.fetch_offset,
                entry.last_fetched_epoch,
                entry.log_start_offset,
                entry.partition_max_bytes,
                -1,
            )
            for topic in request.topics
            for entry in topic.partitions
        ]
        assert parsed.forgotten == [
            (key_of(topic, version), topic.partitions) for topic in request.forgotten_topics_data
        ]
        replica_id = request.replica_id if version < 15 else request.replica_state.replica_id
        assert (parsed.replica_id, parsed.replica_epoch) == (replica_id, request.replica_state.replica_epoch)
        for name in (
            "max_wait_ms",
            "min_bytes",
            "max_bytes",
            "isolation_level",
            "session_id",
            "session_epoch",
            "rack_id",
        ):
            assert getattr(parsed, name) == getattr(request, name), name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_request_we_send_is_what_the_compiled_codec_reads(version: int) -> None:
    topics: list[str | Uuid] = [Uuid(b"a" * 16), Uuid(b"b" * 16)] if version >= 13 else ["a", "b" * 200]
    partitions = [
        FetchRequestPartition(topics[0], 0, 5, 1000, 4, 10, 4096),
        FetchRequestPartition(topics[0], 2),
        FetchRequestPartition(topics[1], 1, 1, 2, 3, 4, 5),
    ]
    for replica_id, replica_epoch in ((-1, -1), (3, 77)):
        out = bytearray(b"head")
        encode_fetch_request(
            out,
            version,
            partitions,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 21,
            isolation_level=1,
            rack_id="r1",
        )
        request = schema.decode_request(ApiKey.FETCH, version, bytes(out), 4)
        assert encoded(request, version) == out[4:]
        parsed = parse_fetch_request(memoryview(out), 4, version)
        assert parsed.replica_id == replica_id
        assert parsed.replica_epoch == (replica_epoch if version >= 15 else -1)
        assert (parsed.session_id, parsed.session_epoch, parsed.rack_id) == (0, -1, "r1" if version >= 11 else "")
        kept = [
            entry._replace(
                current_leader_epoch=entry.current_leader_epoch if version >= 9 else -1,
                last_fetched_epoch=entry.last_fetched_epoch if version >= 12 else -1,
                log_start_offset=entry.log_start_offset if version >= 5 else -1,
            )
            for entry in partitions
        ]
        assert parsed.partitions == kept


def fetched(version: int, random: Random) -> list[FetchResponsePartition]:
    topics: list[str | Uuid] = [Uuid(b"a" * 16), Uuid(b"b" * 16)] if version >= 13 else ["a", "b" * 200]
    found = []
    for number in range(random.choice((0, 1, 1, 2, 5))):
        parts = [random.randbytes(random.choice((1, 100, 20000))) for _ in range(random.choice((0, 1, 1, 3)))]
        found.append(
            FetchResponsePartition(
                topic=topics[number > 2],
                partition=number,
                error_code=random.choice((0, 1, 6)),
                high_watermark=random.randrange(-1, 1 << 50),
                last_stable_offset=random.randrange(-1, 1 << 50),
                log_start_offset=random.randrange(-1, 1 << 50),
                parts=parts,
                size_bytes=sum(map(len, parts)),
                diverging_epoch=random.choice((None, (3, 99))),
                current_leader=random.choice((None, (2, 8))),
                aborted_transactions=random.choice((None, [], [(5, 6), (7, 8)])),
                preferred_read_replica=random.choice((-1, 4)),
                forgotten_below=random.choice((-1, -1, 0, 1 << 50)),
            )
        )
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_response_reads_as_meant_by_both_decoders(version: int) -> None:
    random = Random(version)
    for _ in range(60):
        partitions = fetched(version, random)
        both = [LeaderEndpoint(2, "host", 9092, None), LeaderEndpoint(3, "other", 9093, "rack")]
        endpoints = random.choice(([], both))
        parts, size = encode_fetch_response(
            9, version, partitions, throttle_time_ms=3, session_id=11, node_endpoints=endpoints
        )
        own = [part for partition in partitions for part in partition.parts]
        assert [part for part in parts if any(part is mine for mine in own)] == own, "records are handed through"
        frame = b"".join(parts)
        assert (len(frame), int.from_bytes(frame[:4], "big")) == (size, size - 4)
        correlation_id, position = decode_response_header(frame, ApiKey.FETCH, version, 4)
        assert correlation_id == 9
        response = schema.decode_response(FetchResponse, version, frame, position)
        assert encoded(response, version) == frame[position:], "the same bytes as the compiled codec's"
        parsed = parse_fetch_response(memoryview(frame), position, version)
        assert (parsed.throttle_time_ms, parsed.session_id) == (3, 11 if version >= 7 else 0)
        assert parsed.node_endpoints == (endpoints if version >= 16 else [])
        assert len(parsed.partitions) == len(partitions)
        for got, wanted in zip(parsed.partitions, partitions, strict=True):
            assert bytes(got.records) == b"".join(wanted.parts)
            assert got[:5] == wanted[:5]
            assert got.log_start_offset == (wanted.log_start_offset if version >= 5 else -1)
            assert got.aborted_transactions == list(wanted.aborted_transactions or [])
            assert got.preferred_read_replica == (wanted.preferred_read_replica if version >= 11 else -1)
            assert got.diverging_epoch == (wanted.diverging_epoch if version >= 12 else None)
            assert got.current_leader == (wanted.current_leader if version >= 12 else None)
            assert got.forgotten_below == (wanted.forgotten_below if version >= 12 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_response_of_the_compiled_codec_parses(version: int) -> None:
    random = Random(version)
    for _ in range(40):
        response = oracle.generate(FetchResponse, version, random)
        parsed = parse_fetch_response(memoryview(encoded(response, version)), 0, version)
        assert [(entry.topic, entry.partition, bytes(entry.records)) for entry in parsed.partitions] == [
            (key_of(topic, version), entry.partition_index, bytes(entry.records or b""))
            for topic in response.responses
            for entry in topic.partitions
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_at_any_byte_is_malformed_at_both_ends(version: int) -> None:
    random = Random(version)
    request = encoded(oracle.generate(FetchRequest, version, random, size=2), version)
    partitions = [
        entry._replace(
            parts=[part[:50] for part in entry.parts], size_bytes=sum(len(part[:50]) for part in entry.parts)
        )
        for entry in fetched(version, random)
    ]
    response = b"".join(encode_fetch_response(1, version, partitions)[0])[5 if version >= 12 else 4 :][4:]
    for parse, data in ((parse_fetch_request, request), (parse_fetch_response, response)):
        for cut in range(min(len(data), 800)):
            with pytest.raises(MalformedMessage):
                parse(memoryview(data)[:cut], 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_hostile_bytes_are_malformed_or_harmless_at_both_ends(version: int) -> None:
    random = Random(version)
    request = encoded(oracle.generate(FetchRequest, version, random, size=2), version)
    response = encoded(oracle.generate(FetchResponse, version, random, size=2), version)[:5000]
    tracemalloc.start()
    try:
        for parse, data in ((parse_fetch_request, request), (parse_fetch_response, response)):
            for _ in range(250):
                position = random.randrange(len(data) + 1)
                bomb = random.choice((*BOMBS, random.randbytes(1)))
                with suppress(MalformedMessage):
                    parse(memoryview(data[:position] + bomb + data[position + len(bomb) :]), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", range(13, 19))
def test_what_a_follower_of_one_partition_hears_is_what_the_general_way_gives(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(version)
    answers = []
    for size in (1, 126, 127, 128, 20_000):
        one = FetchResponsePartition(Uuid(b"t" * 16), 3, 0, 7, 6, 5, [random.randbytes(size)], size)
        frame = b"".join(encode_fetch_response(9, version, [one])[0])
        answers.append((frame, fetch_response._parse_response(memoryview(frame), 9, version)))

    def refuse(*_: Any) -> None:
        raise AssertionError("the general way was taken")

    with monkeypatch.context() as patched:
        patched.setattr(fetch_response, "_parse_response", refuse)
        for frame, general in answers:
            assert parse_fetch_response(memoryview(frame), 9, version) == general
    data = answers[0][0][9:]
    for position in range(len(data)):  # whatever is changed, both ways agree on it
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            other = memoryview(data[:position] + bytes([byte]) + data[position + 1 :])
            found: list[Any] = []
            for way in (parse_fetch_response, fetch_response._parse_response):
                try:
                    found.append(way(other, 0, version))
                except (MalformedMessage, IndexError, struct.error):
                    found.append(None)
            assert found[0] == found[1], (position, byte)


@pytest.mark.parametrize("version", range(PollAnswers.VERSION_MIN, 19))
def test_the_answers_to_a_poll_are_what_the_general_way_gives(version: int) -> None:
    topics: list[str | Uuid] = [Uuid(b"t" * 16)] if version >= 13 else ["t", "ö" * 63, "t" * 126, "t" * 127, "t" * 200]
    for topic in topics:
        for is_read_committed in (False, True):
            answers = PollAnswers(version, topic, 3, is_read_committed=is_read_committed)
            for size in (PollAnswers.RECORDS_BYTES_MIN, 20_000, 1 << 20, PollAnswers.RECORDS_BYTES_MAX):
                aborted = () if is_read_committed else None
                one = FetchResponsePartition(topic, 3, 0, 7, 6, 5, [bytes(size)], size, aborted_transactions=aborted)
                parts, total = encode_fetch_response(9, version, [one])
                assert answers.head(9, 7, 6, 5, size) + bytes(size) + answers.TAIL == b"".join(parts)
                assert answers.framing_bytes + size == total


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 12])
def test_a_flushed_offset_comes_across_and_whoever_does_not_know_it_skips_it(version: int) -> None:
    topics: list[str | Uuid] = [Uuid(b"a" * 16), Uuid(b"b" * 16)] if version >= 13 else ["a", "b"]
    ahead = FetchRequestPartition(topics[0], 0, 5, 1000, 4, 10, 4096, 900)
    plain = FetchRequestPartition(topics[0], 1, 5, 1000, 4, 10, 4096)
    other = FetchRequestPartition(topics[1], 0, 5, 1, 4, 0, 4096, 0)
    for partitions in ([ahead], [ahead, plain, other], [plain, other]):
        sent: dict[str, Any] = {
            "replica_id": 3,
            "replica_epoch": 7,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 21,
        }
        out, without = bytearray(), bytearray()
        encode_fetch_request(out, version, partitions, **sent)
        encode_fetch_request(without, version, [entry._replace(flushed_offset=-1) for entry in partitions], **sent)
        parsed = parse_fetch_request(memoryview(out), 0, version)
        assert parsed.partitions == partitions
        poll = read_as_poll(out, 0, version)
        assert poll is None or poll == parsed
        assert encoded(schema.decode_request(ApiKey.FETCH, version, bytes(out), 0), version) == without
    longer = bytearray()
    encode_fetch_request(longer, version, [ahead], **sent)
    size_at = longer.index(b"\x01\x40\x08") + 2
    longer[size_at : size_at + 1] = b"\x09\x00"  # nine bytes, and nine follow
    with pytest.raises(MalformedMessage):
        parse_fetch_request(memoryview(longer), 0, version)


def read_as_poll(request: bytes | bytearray, position: int, version: int) -> Any:
    """What split_poll and parse_poll read between them, or None."""
    split = split_poll(memoryview(request), position, version)
    poll = split and parse_poll(split[0], split[2], version)
    if not split or poll is None:
        return None
    (asked,) = poll.partitions
    return poll._replace(partitions=[asked._replace(fetch_offset=split[1], flushed_offset=split[3])])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_poll_is_read_as_the_parser_reads_it_and_nothing_else_is_a_poll(version: int) -> None:
    random = Random(version)
    topics: list[str | Uuid] = [Uuid(b"t" * 16)] if version >= 13 else ["t", "ö" * 63, "t" * 127, "t" * 200, "t" * 600]
    for topic, (replica_id, flushed) in itertools.product(topics, ((-1, -1), (2, -1), (2, 900), (2, 0))):
        if flushed >= 0 and version < 15:
            continue  # no follower of ours asks so
        for offset in (0, -1, 1000, (1 << 63) - 1, -(1 << 63), random.getrandbits(62)):
            request = bytearray(b"head")
            asked = FetchRequestPartition(topic, 3, 5, offset, 4, 10, 1 << 20, flushed)
            encode_fetch_request(
                request,
                version,
                [asked],
                replica_id=replica_id,
                replica_epoch=7 if replica_id >= 0 else -1,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 21,
            )
            poll = read_as_poll(request, 4, version)
            assert poll == (None if len(topic) == 600 else parse_fetch_request(memoryview(request), 4, version))
        for position in range(len(request)):  # whatever is changed, it is read as the parser reads it, or not as a poll
            for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
                other = bytes(request[:position]) + bytes([byte]) + request[position + 1 :]
                poll = read_as_poll(other, 4, version)
                assert poll is None or poll == fetch_request._parse_request(memoryview(other), 4, version), (
                    position,
                    byte,
                )
            assert read_as_poll(bytes(request[:position]), min(position, 4), version) is None
    for _ in range(300):  # other partitions, racks, tags, forgotten topics
        other = encoded(oracle.generate(FetchRequest, version, random), version)
        poll = read_as_poll(other, 0, version)
        assert poll is None or poll == fetch_request._parse_request(memoryview(other), 0, version)


def test_records_are_slices_of_the_frame_and_not_copies() -> None:
    frame = bytearray(
        b"".join(encode_fetch_response(1, 12, [FetchResponsePartition("t", 0, parts=[b"x" * 9], size_bytes=9)])[0])
    )
    (got,) = parse_fetch_response(memoryview(frame), 9, 12).partitions
    assert bytes(got.records) == b"x" * 9 and got.records.obj is frame
