"""Avro in the registry's wire format: types, writers that change, bad records; and what Spark makes of it, with JSON beside it."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from barnabas_wire.records.batch import Record
from pyspark_barnabas import avro, registry
from pyspark_barnabas.avro import (
    CorruptRecord,
    Reading,
    SchemaError,
    decode,
    encode,
    from_confluent_avro,
    to_confluent_avro,
)
from pyspark_barnabas.avro_types import Shape
from pyspark_barnabas.json_values import from_json_schema
from pyspark_barnabas.registry import RegistryError, SchemaFiles, UnknownSchema, open_registry
from tests.spark.conftest import Topics

Options = Callable[..., dict[str, str]]
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "double"], "default": None}],
}
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "All",
    "namespace": "n",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "ratio", "type": "double"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "other", "type": "Colour"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
                },
            },
        },
    ],
}
AT = datetime(2024, 2, 29, 12, 30, 15, 123000, tzinfo=UTC)
ALL: dict[str, Any] = {
    "flag": True,
    "small": -5,
    "big": 2**62,
    "ratio": 0.5,
    "text": None,
    "raw": b"\x00\xff",
    "four": b"abcd",
    "colour": "BLUE",
    "other": "RED",
    "day": date(2024, 2, 29),
    "millis": AT,
    "micros": AT.replace(microsecond=123456),
    "price": Decimal("-1234.50"),
    "tags": [("a", 1), ("b", -2)],
    "items": [{"at": AT}, {"at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)}],
}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """As Confluent's serializers write it, by fastavro alone."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Schemas 1 (old), 2 (new) and 7 (everything)."""
    for schema_id, schema in ((1, OLD), (2, NEW), (7, EVERYTHING)):
        (tmp_path / f"{schema_id}.avsc").write_text(json.dumps(schema))
    (tmp_path / "orders-value.avsc").write_text(json.dumps(NEW))
    return tmp_path


class Registry(BaseHTTPRequestHandler):
    """A registry as much as is needed here: Confluent's REST API over a dict."""

    schemas: dict[int, str]
    subjects: dict[str, int]
    asked: list[str]
    failing: int

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.headers["Authorization"] != "Basic bWU6cEBzcw==":
            return self.answer(401, {"message": "who are you?"})
        if type(self).failing:
            type(self).failing -= 1
            return self.answer(503, {"message": "starting"})
        parts = self.path.strip("/").split("/")
        if parts[0] == "schemas" and int(parts[2]) in self.schemas:
            return self.answer(200, {"schema": self.schemas[int(parts[2])]})
        if parts[0] == "subjects" and parts[1] in self.subjects:
            found = self.subjects[parts[1]]
            return self.answer(200, {"id": found, "version": 1, "schema": self.schemas[found]})
        return self.answer(404, {"error_code": 40403, "message": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        new = max(self.schemas) + 1
        self.schemas[new] = body["schema"]
        self.answer(200, {"id": new})

    def answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Registry], str]]:
    """A registry that runs, and its URL with a login."""
    monkeypatch.setattr(registry, "PAUSE_S", 0.01)
    schemas = {1: json.dumps(OLD), 2: json.dumps(NEW)}
    made = type("Made", (Registry,), {"schemas": schemas, "subjects": {"orders-value": 2}, "asked": [], "failing": 0})
    http = ThreadingHTTPServer(("127.0.0.1", 0), made)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield made, f"http://me:p%40ss@127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def test_every_type_survives_both_ways(directory: Path) -> None:
    text = json.dumps(EVERYTHING)
    (raw,) = encode(text, 7, "order", [ALL])
    assert raw == framed(7, EVERYTHING, ALL | {"tags": dict(ALL["tags"])})
    (found,), _ = decode(Reading(str(directory), text, True), [raw], [(None,) * 3])
    column = pa.array([found], to_arrow_type(Shape(EVERYTHING).type, timezone="UTC"))
    assert column.to_pylist() == [ALL]


def test_writers_change_while_the_readers_schema_stays(directory: Path) -> None:
    values = [framed(1, OLD, {"id": 5, "note": "x"}), None, framed(2, NEW, {"id": 2**40, "amount": 0.5})]
    found, corrupt = decode(Reading(str(directory), json.dumps(NEW), True), values, [("t", 0, at) for at in range(3)])
    assert found == [{"id": 5, "amount": None}, None, {"id": 2**40, "amount": 0.5}]
    assert corrupt == [None] * 3


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "it begins with nothing, not with 00"),
        (b'{"id": 5}', r"it begins with 7b22696422, not with 00 and the id"),
        (framed(3, OLD, {"id": 5, "note": "x"}), r"there is no file .*/3\.avsc"),
        (framed(1, OLD, {"id": 5, "note": "xyz"})[:-1], "schema 1: EOFError"),
        (framed(1, OLD, {"id": 5, "note": "xyz"}) + b"!", "schema 1: 1 bytes are left over"),
        (framed(1, OLD, {"id": 5, "note": "xyz"})[:-1] + b"\xff", "schema 1: UnicodeDecodeError"),
    ],
)
def test_a_bad_record_fails_with_its_place_or_is_kept(directory: Path, raw: bytes, why: str) -> None:
    good = framed(1, OLD, {"id": 5, "note": "x"})
    places = [("orders", 2, 16), ("orders", 2, 17)]
    with pytest.raises(CorruptRecord, match=rf"the record at orders-2 offset 17 cannot be decoded: .*{why}"):
        decode(Reading(str(directory), json.dumps(OLD), True), [good, raw], places)
    found, corrupt = decode(Reading(str(directory), json.dumps(OLD), False), [good, raw], places)
    assert (found, corrupt) == ([{"id": 5, "note": "x"}, None], [None, raw])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (["null", "int", "string"], "the schema is a union of 2 types"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["int", "long"]}]},
            "f is a union of 2 types",
        ),
        (
            {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]},
            "next contains Node in itself",
        ),
        ({"type": "record", "name": "R", "fields": []}, "a record without a field"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "f", "type": "Gone"}]},
            "f has the type Gone, which is not",
        ),
    ],
)
def test_what_cannot_be_a_column_is_refused_with_its_path(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Shape(schema)


@pytest.mark.attack("A9", "the schema registry's login follows no redirect")
def test_a_login_goes_to_no_other_host_and_no_answer_has_no_end(server: tuple[type[Registry], str]) -> None:
    made, url = server

    class Elsewhere(Registry):
        def do_GET(self) -> None:
            if self.path.startswith("/schemas/ids/1"):
                self.send_response(302)
                self.send_header("Location", f"http://{url.partition('@')[2]}{self.path}")
                self.end_headers()
            else:
                self.answer(200, {"schema": "x" * registry.ANSWER_BYTES_MAX})

    http = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    asked = open_registry(f"http://me:p%40ss@127.0.0.1:{http.server_port}")
    with pytest.raises(RegistryError, match="sends /schemas/ids/1 elsewhere"):
        asked.by_id(1)
    with pytest.raises(RegistryError, match="with more than"):
        asked.by_id(2)
    assert not made.asked
    http.shutdown()
    http.server_close()


def test_a_registry_is_asked_once_for_each_id_and_waited_for(server: tuple[type[Registry], str]) -> None:
    made, url = server
    made.failing = 2
    reading = Reading(url, json.dumps(NEW), True)
    for _ in range(3):
        decode(reading, [framed(1, OLD, {"id": 5, "note": "x"})] * 3, [(None,) * 3] * 3)
    assert made.asked == ["/schemas/ids/1"] * 3, "two tries that failed, one that did not"
    made.failing = 5
    with pytest.raises(
        RegistryError, match=r"http://127\.0\.0\.1:\d+ did not give /schemas/ids/2 in 3 tries: 503 starting"
    ):
        decode(reading, [framed(2, NEW, {"id": 5})], [(None,) * 3])
    made.failing = 0
    asked = open_registry(url)
    assert asked.latest("orders-value") == (2, json.dumps(NEW))
    assert asked.register("other-value", '"long"') == 3 and asked.by_id(3) == '"long"'
    with pytest.raises(UnknownSchema, match=r"does not know /subjects/none/versions/latest: not found"):
        asked.latest("none")
    with pytest.raises(RegistryError, match=r"refuses /schemas/ids/1: 401 who are you\?"):
        open_registry(url.replace("me:", "you:")).by_id(1)
    with pytest.raises(RegistryError, match="write a URL with http or https, or a directory"):
        open_registry("ftp://x")
    with pytest.raises(RegistryError, match="is a directory: say the id of the schema"):
        SchemaFiles("/x").register("s", "t")


def test_a_value_that_does_not_fit_is_shown() -> None:
    with pytest.raises(SchemaError, match=r"a value of order does not fit schema 1: .*'five'"):
        encode(json.dumps(OLD), 1, "order", [{"id": "five", "note": "x"}])


@pytest.mark.cluster
@pytest.mark.tools
def test_avro_and_json_become_columns_in_spark_and_go_back(
    spark: SparkSession, topics: Topics, options: Options, directory: Path, server: tuple[type[Registry], str]
) -> None:
    topic = topics.create(2)
    orders = [framed(1, OLD, {"id": at, "note": str(at)}) for at in range(20)] + [
        framed(2, NEW, {"id": 20, "amount": 0.5})
    ]
    topics.fill(topic, [*orders, b"bad"], partition=1)
    frame = spark.read.format("barnabas").options(**options(subscribe=topic)).load()

    decoded = from_confluent_avro(frame, registry=str(directory), schema=NEW, into="order", on_error="corrupt")
    rows = decoded.orderBy("offset").select("order.*", "_corrupt", "value").collect()
    assert [(row.id, row.amount) for row in rows] == [(at, None) for at in range(20)] + [(20, 0.5), (None, None)]
    assert [row._corrupt for row in rows] == [None] * 21 + [b"bad"] and bytes(rows[3].value) == orders[3]
    with pytest.raises(Exception, match=rf"the record at {topic}-1 offset 21 cannot be decoded"):
        from_confluent_avro(frame, registry=str(directory), subject="orders-value").select("value.id").collect()

    _, url = server
    again = to_confluent_avro(decoded.filter("order IS NOT NULL"), "order", registry=url, subject="orders-value")
    found = again.orderBy("offset").select("value").collect()
    assert [bytes(row.value) for row in found][-1] == orders[-1]
    assert bytes(found[3].value) == framed(2, NEW, {"id": 3, "amount": None})
    with pytest.raises(SchemaError, match=r"order\.note is no field of the schema, which has id, amount"):
        both = from_confluent_avro(frame, registry=str(directory), schema=OLD, into="order")
        to_confluent_avro(both, "order", registry=url, subject="orders-value")

    texts = topics.create()
    topics.produce(
        texts,
        [
            Record(at, 1, None, value)
            for at, value in enumerate([b'{"id": 1, "more": 2}', None, b'{"id": "x"}', b"[", b""])
        ],
    )
    frame = spark.read.format("barnabas").options(**options(subscribe=texts)).load()
    decoded = from_json_schema(frame, schema="id bigint, name string", into="order", on_error="corrupt")
    rows = decoded.orderBy("offset").select("order", "_corrupt").collect()
    assert [None if row.order is None else tuple(row.order) for row in rows] == [(1, None), None, None, None, None]
    assert [row._corrupt for row in rows] == [None, None, b'{"id": "x"}', b"[", b""]
    good = from_json_schema(frame.filter("offset < 2"), schema="id bigint")
    assert [row.value and row.value.id for row in good.orderBy("offset").collect()] == [1, None]
    with pytest.raises(Exception, match=rf"the record at {texts}-0 offset 2 is no JSON of the schema"):
        from_json_schema(frame, schema="id bigint").collect()


def test_arguments_that_cannot_be_used_are_named(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("CAST('' AS BINARY) AS value")
    with pytest.raises(ValueError, match=r'on_error=ignore: write "fail" or "corrupt"'):
        from_confluent_avro(frame, registry="/x", schema=OLD, on_error="ignore")
    with pytest.raises(ValueError, match="there is no column key; there are value"):
        from_confluent_avro(frame, "key", registry="/x", schema=OLD)
    with pytest.raises(ValueError, match="say the schema: schema= as JSON"):
        from_confluent_avro(frame, registry="/x")
    with pytest.raises(SchemaError, match="the schema is not JSON"):
        from_confluent_avro(frame, registry="/x", schema="{")
    with pytest.raises(ValueError, match="readers find the schema by its id: give schema_id="):
        to_confluent_avro(frame, "value", schema='"bytes"')
    assert avro.CORRUPT == "_corrupt"
