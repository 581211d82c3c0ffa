"""Laws of lines and records: what consume prints is what produce reads, keys go where Kafka's producers send them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_admin.commands.consume import open_output
from barnabas_admin.commands.records import (
    BATCH_BYTES_MAX,
    READ_BYTES,
    Line,
    _batches,
    parse_headers,
    parse_json_line,
    parse_text_line,
    read_file,
)
from barnabas_admin.console.messages import shown
from barnabas_admin.consuming import parse_offset
from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.group_member import assign_by_range
from barnabas_admin.kafka import assigned_partitions
from barnabas_admin.record_format import Columns, Filter, compile_format, json_line, pairs_of, text_formatter
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import Record, header_name


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


def test_headers_stand_before_the_rest_of_a_line() -> None:
    assert parse_headers(b"a=1,b|k:v|w", b"|", 1) == ((("a", b"1"), ("b", None)), b"k:v|w")
    assert parse_headers(b"|v", b"|", 1) == ((), b"v")
    assert parse_headers(b"\xff=1|v", b"|", 1) == (((header_name(b"\xff"), b"1"),), b"v")
    with pytest.raises(AdminError, match="line 3 has no"):
        parse_headers(b"v", b"|", 3)


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
        Record(11, 6, None, b"v", ((header_name(b"\xffname"), b"x"), ("grüße", b"y"))),
    ],
)
def test_what_consume_prints_produce_reads(record: Record) -> None:
    text = json_line("t", 3, record)
    fields = json.loads(text)
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("t", 3, record.offset)
    line = parse_json_line(text)
    assert line == Line(record.key, record.value, record.headers, 3, record.timestamp_ms)


def test_json_that_is_no_record_is_shown() -> None:
    for text in (b"nonsense", b"[1]", b'{"value_base64": "%%%"}', b'{"headers": [{}]}'):
        with pytest.raises(AdminError, match="not a record in JSON"):
            parse_json_line(text)


def test_text_output_puts_the_key_before_the_separator() -> None:
    assert text_formatter(Columns(key_separator="=>"))("t", 0, Record(0, 0, b"k", b"v")) == b"k=>v\n"
    assert text_formatter(Columns())("t", 0, Record(1, 0, None, None)) == b"\n"
    columns = Columns(has_topic=True, has_partition=True, has_offset=True, has_headers=True, key_separator="\t")
    headed = Record(7, 0, b"k", b"v", (("a", b"1"), ("b", None)))
    assert text_formatter(columns)("t", 3, headed) == b"t\t3\t7\ta=1,b=NULL\tk\tv\n"


def test_a_headers_name_that_is_no_text_is_printed_as_it_is() -> None:
    record = Record(3, 5, None, b"v", ((header_name(b"\xff"), b"1"),))
    assert text_formatter(Columns(has_headers=True))("t", 0, record) == b"\xff=1\tv\n"
    assert shown(0, record)["headers"][0]["name"] == "\\xff"


def test_a_format_is_kcats() -> None:
    record = Record(7, 1234, b"k\xff", None, (("a", b"1"),))
    assert compile_format(r"%t[%p]@%o %T %K:%k %S:%s %h 100%%\n\t\x41\\")("t", 3, record) == (
        b"t[3]@7 1234 2:k\xff -1: a=1 100%\n\tA\\"
    )
    for wrong in ("%y", "%"):
        with pytest.raises(WrongUsage, match="-f: %"):
            compile_format(wrong)


def test_all_filters_must_match() -> None:
    record = Record(0, 0, b"order-1", b'{"eu": 1}', (("region", b"eu-west"),))
    assert Filter(keys=["order-*"], values=["*eu*"], headers=[("region", "eu-*")]).passes(record)
    for wrong in (Filter(keys=["order"]), Filter(values=["us*"]), Filter(headers=[("region", "us*")])):
        assert not wrong.passes(record)
    assert not Filter(headers=[("zone", "*")]).passes(record)
    assert not Filter(keys=["*"]).passes(Record(0, 0, None, b"v")), "no key is not an empty one"


def test_a_field_of_a_value_that_is_json_is_matched() -> None:
    record = Record(
        0, 0, None, b'{"user": "u7", "to": {"code": "JFK"}, "items": [{"sku": "A1"}], "n": 5, "ok": true}', ()
    )
    for path, glob in (("user", "u*"), ("to.code", "J?K"), ("items.0.sku", "A1"), ("n", "5"), ("ok", "true")):
        assert Filter(fields=[(path, glob)]).passes(record), path
    for path, glob in (("user", "u"), ("to", "JFK"), ("items.1.sku", "*"), ("none", "*"), ("user.name", "*")):
        assert not Filter(fields=[(path, glob)]).passes(record), path
    for value in (None, b"", b"user=u7", b'{"user": ', b"[" * 100_000):
        assert not Filter(fields=[("user", "*")]).passes(Record(0, 0, None, value, ()))
    assert Filter(contains="JFK").passes(record) and not Filter(contains="jfk").passes(record)
    assert Filter(fields=[("user", "*")]) and not Filter()
    assert pairs_of(["a=b=c"], what="x") == [("a", "b=c")]
    for wrong in ("a", "=b"):
        with pytest.raises(WrongUsage, match="--filter-field"):
            pairs_of([wrong], what="--filter-field")


def test_partitions_are_shared_by_range() -> None:
    shares = assign_by_range({"b": ["t"], "a": ["t", "u"]}, {"t": [2, 0, 1], "u": [0]})
    assert shares == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)],
        "b": [TopicPartition("t", 2)],
    }


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
        with pytest.raises(WrongUsage):
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
