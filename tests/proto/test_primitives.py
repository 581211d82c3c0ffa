"""Varints, strings and tagged fields: golden bytes of Kafka's own tests and of KIP-482, and what is malformed."""

from __future__ import annotations

import struct

import pytest

from barnabas_wire.kafka import primitives as p
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.records.walk import CorruptBatch, read_varint, write_varint

UVARINTS = {
    0: b"\x00",
    1: b"\x01",
    127: b"\x7f",
    128: b"\x80\x01",
    300: b"\xac\x02",
    16383: b"\xff\x7f",
    16384: b"\x80\x80\x01",
    2**31 - 1: b"\xff\xff\xff\xff\x07",
    2**32 - 1: b"\xff\xff\xff\xff\x0f",
}
VARLONGS = {
    0: b"\x00",
    -1: b"\x01",
    1: b"\x02",
    63: b"\x7e",
    -64: b"\x7f",
    64: b"\x80\x01",
    -65: b"\x81\x01",
    2**31 - 1: b"\xfe\xff\xff\xff\x0f",
    -(2**31): b"\xff\xff\xff\xff\x0f",
    2**63 - 1: b"\xfe" + b"\xff" * 8 + b"\x01",
    -(2**63): b"\xff" * 9 + b"\x01",
}


@pytest.mark.parametrize(("value", "data"), UVARINTS.items())
def test_unsigned_varints(value: int, data: bytes) -> None:
    assert p.write_uvarint(value) == data
    assert p.read_uvarint(b"x" + data + b"tail", 1) == (value, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            p.read_uvarint(data[:cut], 0)


@pytest.mark.parametrize(("value", "data"), VARLONGS.items())
def test_zigzag_varints(value: int, data: bytes) -> None:
    out = bytearray()
    write_varint(out, value)
    assert bytes(out) == data
    assert read_varint(b"x" + data + b"tail", 1) == (value, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(CorruptBatch):
            read_varint(data[:cut], 0)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01"])
def test_unsigned_varints_beyond_32_bits_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        p.read_uvarint(data + bytes(10), 0)


def test_varints_of_more_than_ten_bytes_are_malformed() -> None:
    with pytest.raises(CorruptBatch):
        read_varint(b"\x80" * 10 + b"\x01" + bytes(10), 0)


def test_what_does_not_fit_a_varint_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        p.write_uvarint(2**32)


@pytest.mark.parametrize("text", [None, "", "a", "grün", "x" * 127, "y" * 300])
def test_strings_of_both_kinds(text: str | None) -> None:
    for write, read in ((p.write_string, p.read_string), (p.write_compact_string, p.read_compact_string)):
        out = bytearray(b"h")
        write(out, text)
        assert read(bytes(out), 1, len(out)) == (text, len(out))
        assert read(memoryview(out + b"tail"), 1, len(out)) == (text, len(out))
        for end in range(1, len(out)):
            with pytest.raises((MalformedMessage, IndexError, struct.error)):
                read(bytes(out)[:end], 1, end)
    assert (p.ONE_BYTE[0], p.ONE_BYTE[255]) == (b"\0", b"\xff")


def test_a_string_length_below_null_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        p.read_string(b"\xff\xfe", 0, 2)


def test_unknown_tagged_fields_are_passed_over() -> None:
    data = b"\x02\x00\x03abc\xac\x02\x00rest"
    assert p.skip_tagged_fields(data, 0, len(data)) == len(data) - 4
    with pytest.raises(MalformedMessage):
        p.skip_tagged_fields(b"\x01\x00\x7fabc", 0, 6)


def test_uuids_keep_their_class() -> None:
    made = p.new_uuid(memoryview(b"0123456789abcdef"))
    assert made == Uuid(b"0123456789abcdef") and type(made) is Uuid
