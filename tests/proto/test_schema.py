"""Every declared (API, version), both directions, against kio; and what a decoder does with bytes that are no message."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from kio.index import UnknownAPIKey, UnknownEntity

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas_wire.kafka.primitives import MalformedMessage, TooManyElements
from barnabas_wire.kafka.schema import UnsupportedVersion
from tests.proto import oracle

EXAMPLES = 6


def encode(message: Any, version: int) -> bytes:
    """The body that our codec writes."""
    out = bytearray()
    schema.encode_request(message, version, out)
    return bytes(out)


def cases() -> list[Any]:
    """Parameters named like `Fetch-1-response-v12`."""
    return [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in oracle.declared()]


def test_every_api_that_is_served_has_its_module() -> None:
    assert len(oracle.SERVED) == len(set(oracle.SERVED))
    for api_key in oracle.SERVED:
        request, response = schema.message_classes(api_key)
        for cls in (request, response):
            assert api_key == cls.API_KEY
        ranges = [(cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM) for cls in (request, response)]
        assert ranges[0] == ranges[1], api_key


@pytest.mark.parametrize(("cls", "version"), cases())
def test_our_bytes_are_kios_bytes_and_both_read_them_alike(cls: type[Any], version: int) -> None:
    if (cls.API_KEY, version) in oracle.NEWER_THAN_KIO:
        with pytest.raises((UnknownAPIKey, UnknownEntity)):
            oracle.kio_class(cls, version)
        message = oracle.generate(cls, version, Random(f"{cls.__name__} {version}"))
        assert schema.decode(cls, version, memoryview(encode(message, version))) == message
        return
    entity_class = oracle.kio_class(cls, version)
    random = Random(f"{cls.__name__} {version}")
    for example in range(EXAMPLES):
        message = oracle.generate(cls, version, random, oracle=entity_class) if example else cls()
        entity = oracle.to_kio(message, version, entity_class)
        data = encode(message, version)
        assert oracle.kio_encode(entity) == data
        assert oracle.kio_decode(entity_class, data) == entity
        assert schema.decode(cls, version, memoryview(data)) == message
        assert schema.decode(cls, version, b"head" + data + b"", 4) == message


@pytest.mark.parametrize(("cls", "version"), cases())
def test_a_message_cut_at_any_byte_is_malformed(cls: type[Any], version: int) -> None:
    random = Random(f"cut {cls.__name__} {version}")
    data = b""
    for _ in range(20):
        candidate = encode(oracle.generate(cls, version, random, size=2), version)
        if len(data) < len(candidate) < 3000 or not data:
            data = candidate
    for cut in range(len(data)) if len(data) < 600 else sorted(random.sample(range(len(data)), 600)):
        with pytest.raises(MalformedMessage):
            schema.decode(cls, version, memoryview(data)[:cut])


@pytest.mark.parametrize(("cls", "version"), cases())
def test_flipped_bytes_give_a_message_or_malformed_and_never_much_memory(cls: type[Any], version: int) -> None:
    random = Random(f"flip {cls.__name__} {version}")
    data = bytearray(encode(oracle.generate(cls, version, random, size=2), version))[:4000]
    bombs = (
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\xff\xff\xff\xfe",
    )
    tracemalloc.start()
    try:
        for _ in range(150):
            position = random.randrange(len(data) + 1)
            bomb = random.choice((*bombs, random.randbytes(1)))
            hostile = data[:position] + bomb + data[position + len(bomb) :]
            with suppress(MalformedMessage):
                schema.decode(cls, version, memoryview(hostile))
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x01"])
def test_a_five_byte_compact_length_is_malformed(version: int, count: bytes) -> None:
    """The bytes that abort a process which allocates by the claimed count."""
    with pytest.raises(MalformedMessage, match=r"varint|MetadataRequest.topics"):
        schema.decode_request(ApiKey.METADATA, version, memoryview(count + bytes(40)))


@pytest.mark.parametrize("count", [-2, -(2**31), 2**31 - 1, 1 << 20])
def test_a_legacy_count_that_cannot_be_is_malformed(count: int) -> None:
    with pytest.raises(MalformedMessage, match=r"MetadataRequest.topics: -?\d+ does not fit"):
        schema.decode_request(ApiKey.METADATA, 4, memoryview(count.to_bytes(4, "big", signed=True) + bytes(20)))


def test_the_elements_of_all_arrays_count_together() -> None:
    topics = [OffsetFetchRequestTopic(name=f"t{i}", partition_indexes=list(range(8))) for i in range(10)]
    body = memoryview(encode(OffsetFetchRequest(group_id="g", topics=topics), 7))
    assert len(schema.decode(OffsetFetchRequest, 7, body, elements_max=90).topics) == 10
    with pytest.raises(TooManyElements):
        schema.decode(OffsetFetchRequest, 7, body, elements_max=89)


def test_a_text_is_not_longer_than_kafka_reads_it_whatever_its_length_could_say() -> None:
    longest = OffsetFetchRequest(group_id="g" * 32_767, topics=[])
    assert schema.decode(OffsetFetchRequest, 7, encode(longest, 7)).group_id == longest.group_id
    with pytest.raises(MalformedMessage, match="group_id"):
        schema.decode(OffsetFetchRequest, 7, encode(OffsetFetchRequest(group_id="g" * 32_768, topics=[]), 7))


@pytest.mark.parametrize("version", [1, 12])
def test_no_list_is_made_for_more_elements_than_are_taken(version: int) -> None:
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="") for _ in range(100_000)]), version)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            schema.decode_request(ApiKey.METADATA, version, body, elements_max=99_999)
        assert tracemalloc.get_traced_memory()[1] < len(body) + 10_000
    finally:
        tracemalloc.stop()
    assert len(schema.decode_request(ApiKey.METADATA, version, body, elements_max=100_000).topics) == 100_000


def test_unknown_tagged_fields_are_elements_as_well() -> None:
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    many = body[:-1] + bytes((127,)) + b"\x50\0" * 127
    assert schema.decode_request(ApiKey.METADATA, 12, many, elements_max=128).topics[0].name == "t"
    with pytest.raises(TooManyElements):
        schema.decode_request(ApiKey.METADATA, 12, many, elements_max=127)
    with pytest.raises(TooManyElements):
        schema.decode_request(ApiKey.METADATA, 12, body[:-1] + b"\x80\x08" + b"\x50\0" * 1024)


def test_null_is_malformed_where_the_version_has_no_null() -> None:
    assert schema.decode_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(MalformedMessage):
        schema.decode_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff")


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        schema.decode_request(ApiKey.METADATA, 0, b"\0\0\0\1\0\2\xff\xfe")


def test_unknown_tagged_fields_are_skipped_wherever_they_stand() -> None:
    known = MetadataRequest(topics=None)
    data = encode(known, 12)
    assert data[-1] == 0
    unknown = b"\x02" + b"\x07\x03abc" + b"\xac\x02\x00"  # tag 7 of three bytes, tag 300 of none
    assert schema.decode_request(ApiKey.METADATA, 12, data[:-1] + unknown) == known
    for broken in (b"\x01\x07\x7fabc", b"\x01\x07\xff\xff\xff\xff\x0f", b"\x02\x07\x00"):
        with pytest.raises(MalformedMessage):
            schema.decode_request(ApiKey.METADATA, 12, data[:-1] + broken)


def test_a_known_tag_whose_size_lies_is_malformed() -> None:
    from barnabas_wire.kafka.messages.api_versions import ApiVersionsResponse

    data = encode(ApiVersionsResponse(finalized_features_epoch=7), 3)
    assert schema.decode(ApiVersionsResponse, 3, data).finalized_features_epoch == 7
    position = data.index(b"\x01\x01\x08")
    for size in (b"\x07", b"\x09"):
        with pytest.raises(MalformedMessage):
            schema.decode(ApiVersionsResponse, 3, data[: position + 2] + size + data[position + 3 :] + b"\0\0\0\0")


def test_versions_and_apis_outside_the_declared_ranges_are_unsupported() -> None:
    with pytest.raises(UnsupportedVersion):
        schema.decode_request(ApiKey.METADATA, 14, b"")
    with pytest.raises(UnsupportedVersion):
        schema.decode_request(4, 0, b"")
    with pytest.raises(UnsupportedVersion):
        schema.decode_request(-7, 0, b"")
    with pytest.raises(UnsupportedVersion):
        schema.encode_response(MetadataResponse(), 99, bytearray())


def test_a_field_that_the_version_lacks_is_left_out_and_defaults_when_read() -> None:
    message = MetadataResponse(cluster_id="c", throttle_time_ms=5, error_code=3)
    again = schema.decode(MetadataResponse, 1, encode(message, 1))
    assert (again.cluster_id, again.throttle_time_ms, again.error_code) == (None, 0, 0)


def test_header_versions() -> None:
    assert schema.request_header_version(ApiKey.API_VERSIONS, 2) == 1
    assert schema.request_header_version(ApiKey.API_VERSIONS, 3) == 2
    assert schema.response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert schema.response_header_version(ApiKey.FETCH, 11) == 0
    assert schema.response_header_version(ApiKey.FETCH, 12) == 1
    assert schema.request_header_version(ApiKey.OFFSET_DELETE, 0) == 1
