"""Laws of lines and records: what consume prints is what produce reads, keys go where Kafka's producers send them."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from barnabas_admin.commands.records import (
    BATCH_BYTES_MAX,
    READ_BYTES,
    Line,
    _batches,
    format_record,
    open_output,
    parse_json_line,
    parse_offset,
    parse_text_line,
    read_file,
)
from barnabas_admin.errors import AdminError
from barnabas_admin.kafka import assigned_partitions
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import Record


@pytest.mark.parametrize(
    ("text", "separator", "key", "value"),
    [
        (b"plain", None, None, b"plain"),
        (b"k:v:w", b":", b"k", b"v:w"),
        (b":v", b":", b"", b"v"),
        (b"", None, None, b""),
    ],
)
def test_a_line_of_text(text: bytes, separator: bytes | None, key: bytes | None, value: bytes) -> None:
    assert parse_text_line(text, separator, 1) == Line(key, value, ())


def test_a_line_without_its_separator_is_refused_by_its_number() -> None:
    """It was written without a key, as a value that nobody meant."""
    with pytest.raises(AdminError, match="line 7 has no ':' between key and value: 'no separator'"):
        parse_text_line(b"no separator", b":", 7)


@pytest.mark.parametrize(
    "record",
    [
        Record(7, 1234, b"k", "grüße".encode(), (("h", b"x"), ("h", None))),
        Record(8, -1, None, None),
        Record(9, 0, b"\xff\x00", b"\xfe", (("bin", b"\x80"),)),
        Record(10, 5, b"", b""),
    ],
)
def test_what_consume_prints_produce_reads(record: Record) -> None:
    text = format_record("t", 3, record, None, is_json=True)
    fields = json.loads(text)
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("t", 3, record.offset)
    line = parse_json_line(text)
    assert line == Line(record.key, record.value, record.headers, 3, record.timestamp_ms)


def test_json_that_is_no_record_is_shown() -> None:
    for text in (b"nonsense", b"[1]", b'{"value_base64": "%%%"}', b'{"headers": [{}]}'):
        with pytest.raises(AdminError, match="not a record in JSON"):
            parse_json_line(text)


def test_text_output_puts_the_key_before_the_separator() -> None:
    assert format_record("t", 0, Record(0, 0, b"k", b"v"), "=>", is_json=False) == b"k=>v\n"
    assert format_record("t", 0, Record(1, 0, None, None), None, is_json=False) == b"\n"


async def test_what_is_written_to_a_file_is_read_from_it(tmp_path: Path) -> None:
    path = str(tmp_path / "records")
    data = bytes(range(256)) * (READ_BYTES // 100)
    async with open_output(path) as write:
        await write(data[:1000])
        assert (tmp_path / "records").read_bytes() == data[:1000], "Ctrl-C now loses nothing"
        await write(data[1000:])
    pieces = [piece async for piece in read_file(path)]
    assert b"".join(pieces) == data and len(pieces) > 1


def test_batches_are_bounded_and_keep_order() -> None:
    size = BATCH_BYTES_MAX // 3
    batches = list(_batches([Line(None, b"%d" % i + b"x" * size, ()) for i in range(7)]))
    assert [len(batch) for batch in batches] == [2, 2, 2, 1]
    assert [record.offset for record in batches[0]] == [0, 1]
    assert [record.value[:1] for batch in batches for record in batch if record.value] == [b"%d" % i for i in range(7)]


def test_offsets() -> None:
    assert parse_offset("start") == ("start", 0)
    assert parse_offset("end") == ("end", 0)
    assert parse_offset("47") == ("absolute", 47)
    assert parse_offset("-3") == ("before_end", 3)
    assert parse_offset("@1700000000000") == ("time", 1_700_000_000_000)
    for text in ("", "later", "@", "-", "+1", "1.5"):
        with pytest.raises(click.UsageError):
            parse_offset(text)


ASSIGNMENT = (
    b"\x00\x01"
    + b"\x00\x00\x00\x01"
    + b"\x00\x02ab"
    + b"\x00\x00\x00\x02"
    + b"\x00\x00\x00\x00\x00\x00\x00\x05"
    + b"\xff" * 4
)


def test_an_assignment_is_read_and_a_broken_one_is_unknown() -> None:
    assert assigned_partitions(ASSIGNMENT) == [TopicPartition("ab", 0), TopicPartition("ab", 5)]
    assert assigned_partitions(b"") == []
    for size in range(len(ASSIGNMENT) - 4):
        assert assigned_partitions(ASSIGNMENT[:size]) == []
    assert assigned_partitions(b"\x00\x01\x7f\xff\xff\xff") == []
