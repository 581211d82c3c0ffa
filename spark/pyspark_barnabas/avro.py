"""Avro in the wire format of schema registries (a zero byte, the schema's id, the datum) as columns, and back.

May touch:  registry.py; fastavro and pyarrow in Spark's Python workers.   Must not touch: Kafka's sockets.
Invariants: the reader's schema, and with it the column's type, is fixed when the query is planned; each writer's schema is looked up
    when its id is met; a bad record fails the query with its topic, partition and offset, or goes to `_corrupt`, and never vanishes.
Read next:  avro_types.py, registry.py.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from pyspark_barnabas.avro_types import SchemaError, Shape, to_written, without_logical_types
from pyspark_barnabas.registry import RegistryError, UnknownSchema, open_registry

CORRUPT = "_corrupt"
HEADER_BYTES = 5
PLACE = ("topic", "partition", "offset")
_udf: Any = arrow_udf
"""Its overloads know no function whose types are set at run time."""
_EXTRA = "fastavro is missing: pip install 'barnabas[avro]', on every node of Spark"


class CorruptRecord(ValueError):
    """A record that is not what its schema says."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How values become a column; pickled into tasks, and the key of what a worker keeps."""

    registry: str
    schema: str
    """The reader's, as JSON text."""
    is_fatal: bool


def from_confluent_avro(
    frame: DataFrame,
    column: str = "value",
    *,
    registry: str,
    schema: str | Path | dict[str, Any] | None = None,
    subject: str | None = None,
    into: str | None = None,
    on_error: str = "fail",
) -> DataFrame:
    """The frame with a binary column decoded; with on_error="corrupt" also `_corrupt`, the bytes of records that could not be.

    registry: URL of a schema registry (`user:password@` logs in), or a directory with ID.avsc files. schema: the reader's, as JSON
    text, a dict or the path of a file; or subject: its latest version now. into: the column's name (default: the same). on_error:
    "fail" names topic, partition and offset, if the frame has these columns.

    Raises ValueError, RegistryError, SchemaError (what has no column type) when the query is planned.
    """
    if on_error not in ("fail", "corrupt"):
        raise ValueError(f'on_error={on_error}: write "fail" or "corrupt"')
    _need(frame, column)
    text = _schema_text(registry, schema, subject)
    reading = Reading(str(registry), text, on_error == "fail")
    _fastavro().parse_schema(json.loads(text))
    shape = Shape(json.loads(text))
    place = [F.col(name) if name in frame.columns else F.lit(None).cast("string") for name in PLACE]
    decoded = F.col("__barnabas_avro")
    made = frame.withColumn("__barnabas_avro", _decoding(reading, shape.type)(F.col(column), *place))
    made = made.withColumn(into or column, decoded["value"])
    if not reading.is_fatal:
        made = made.withColumn(CORRUPT, decoded["corrupt"])
    return made.drop("__barnabas_avro")


def to_confluent_avro(
    frame: DataFrame,
    column: str,
    *,
    registry: str = "",
    schema: str | Path | dict[str, Any] | None = None,
    subject: str | None = None,
    schema_id: int | None = None,
    into: str = "value",
) -> DataFrame:
    """The frame with a column encoded as binary in `into`; a null stays null.

    One of: schema and schema_id; schema and subject, which is registered; subject alone, its latest version; schema_id alone. What is not
    given is asked of the registry now. Raises ValueError, RegistryError, SchemaError.
    """
    _need(frame, column)
    if schema is None and subject is None and schema_id is not None:
        schema = open_registry(registry).by_id(schema_id)
    if schema is None and subject is not None and schema_id is None:
        schema_id, schema = open_registry(registry).latest(subject)
    text = _schema_text(registry, schema, subject)
    if schema_id is None and subject is not None:
        schema_id = open_registry(registry).register(subject, text)
    if schema_id is None:
        raise ValueError(
            "readers find the schema by its id: give schema_id=, or subject= of a registry that registers it"
        )
    _fastavro().parse_schema(json.loads(text))
    _check_fields(frame.schema[column].dataType, Shape(json.loads(text)).type, column)
    return frame.withColumn(into, _encoding(text, schema_id, column)(F.col(column)))


def _need(frame: DataFrame, column: str) -> None:
    if column not in frame.columns:
        raise ValueError(f"there is no column {column}; there are {', '.join(frame.columns)}")


def _schema_text(registry: str, schema: str | Path | dict[str, Any] | None, subject: str | None) -> str:
    if schema is None:
        if subject is None:
            raise ValueError("say the schema: schema= as JSON, a dict or a path, or subject= of the registry")
        schema = open_registry(str(registry)).latest(subject)[1]
    if isinstance(schema, dict):
        return json.dumps(schema)
    text = str(schema)
    if isinstance(schema, Path) or (
        not text.lstrip().startswith(("{", "[", '"')) and text.endswith((".avsc", ".json"))
    ):
        try:
            text = Path(schema).read_text(encoding="utf-8")
        except OSError as error:
            raise SchemaError(f"the schema file {schema} cannot be read: {error.strerror}") from None
    try:
        json.loads(text)
    except ValueError as error:
        raise SchemaError(f"the schema is not JSON ({error}): {text[:80]}") from None
    return text


def _check_fields(given: DataType, wanted: DataType, path: str) -> None:
    """What the schema does not know would be lost without a word."""
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        unknown = [name for name in given.fieldNames() if name not in wanted.fieldNames()]
        if unknown:
            raise SchemaError(
                f"{path}.{unknown[0]} is no field of the schema, which has {', '.join(wanted.fieldNames())}"
            )


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise ImportError(_EXTRA) from error
    return fastavro


# ---- in Spark's Python workers


class _Writer(NamedTuple):
    """What decodes the records of one schema id; or why none can be."""

    schema: Any
    unknown: str = ""


class _Decoder:
    """Kept by a worker from batch to batch."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._fastavro = _fastavro()
        self.shape = Shape(json.loads(reading.schema))
        self._reader = self._fastavro.parse_schema(without_logical_types(json.loads(reading.schema)))
        self._writers: dict[int, _Writer] = {}

    def value(self, raw: bytes) -> Any:
        """Raises CorruptRecord, RegistryError."""
        if len(raw) < HEADER_BYTES or raw[0]:
            raise CorruptRecord(
                f"it begins with {raw[:HEADER_BYTES].hex() or 'nothing'}, not with 00 and the id of a schema"
            )
        schema_id = int.from_bytes(raw[1:HEADER_BYTES], "big")
        writer = self._writer(schema_id)
        if writer.unknown:
            raise CorruptRecord(writer.unknown)
        rest = io.BytesIO(raw)
        rest.seek(HEADER_BYTES)
        try:
            found = self._fastavro.schemaless_reader(rest, writer.schema, self._reader)
            if self.shape.convert is not None and found is not None:
                found = self.shape.convert(found)
        except Exception as error:  # whatever a decoder makes of bytes that are wrong
            raise CorruptRecord(f"schema {schema_id}: {type(error).__name__} {error}".rstrip()) from error
        if rest.tell() != len(raw):
            raise CorruptRecord(f"schema {schema_id}: {len(raw) - rest.tell()} bytes are left over")
        return found

    def _writer(self, schema_id: int) -> _Writer:
        found = self._writers.get(schema_id)
        if found is None:
            try:
                text = open_registry(self._reading.registry).by_id(schema_id)
                found = _Writer(self._fastavro.parse_schema(without_logical_types(json.loads(text))))
            except UnknownSchema as error:
                found = _Writer(None, str(error))
            self._writers[schema_id] = found
        return found


@functools.lru_cache(maxsize=16)
def _decoder(reading: Reading) -> _Decoder:
    return _Decoder(reading)


def decode(
    reading: Reading, values: Iterable[bytes | None], places: Iterable[tuple[Any, ...]]
) -> tuple[list[Any], list[bytes | None]]:
    """(values, what could not be decoded) of one batch. Raises CorruptRecord where that is fatal, RegistryError."""
    decoder = _decoder(reading)
    found: list[Any] = []
    corrupt: list[bytes | None] = []
    for raw, place in zip(values, places, strict=True):
        try:
            found.append(None if raw is None else decoder.value(raw))
            corrupt.append(None)
        except CorruptRecord as error:
            if reading.is_fatal:
                where = "the record at {}-{} offset {}".format(*place) if None not in place else "a record"
                raise CorruptRecord(
                    f'{where} cannot be decoded: {error}. on_error="corrupt" puts such records into the column {CORRUPT}'
                ) from error
            found.append(None)
            corrupt.append(raw)
    return found, corrupt


def _decoding(reading: Reading, kind: DataType) -> Callable[..., Any]:
    import pyarrow as pa

    result = StructType([StructField("value", kind), StructField("corrupt", BinaryType())])

    def run(values: pa.Array, topic: pa.Array, partition: pa.Array, offset: pa.Array) -> pa.Array:
        from pyspark_barnabas.spark_versions import arrow_type

        places = zip(topic.to_pylist(), partition.to_pylist(), offset.to_pylist(), strict=True)
        found, corrupt = decode(reading, values.to_pylist(), places)
        columns = [pa.array(found, arrow_type(kind)), pa.array(corrupt, pa.binary())]
        return pa.StructArray.from_arrays(columns, names=["value", "corrupt"])

    run.__annotations__ = dict.fromkeys(("values", "topic", "partition", "offset", "return"), pa.Array)
    return _udf(run, result)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=16)
def _encoder(text: str) -> tuple[Any, Callable[[Any], Any] | None]:
    return _fastavro().parse_schema(json.loads(text)), to_written(json.loads(text))


def encode(text: str, schema_id: int, column: str, values: Iterable[Any]) -> list[bytes | None]:
    """The values of one batch as binary. Raises SchemaError for one that the schema does not allow."""
    schema, convert = _encoder(text)
    write = _fastavro().schemaless_writer
    header = b"\0" + schema_id.to_bytes(4, "big")
    found: list[bytes | None] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        out = io.BytesIO()
        out.write(header)
        try:
            write(out, schema, value if convert is None else convert(value))
        except Exception as error:  # whatever an encoder makes of values that do not fit
            raise SchemaError(
                f"a value of {column} does not fit schema {schema_id}: {error} in {str(value)[:200]}"
            ) from error
        found.append(out.getvalue())
    return found


def _encoding(text: str, schema_id: int, column: str) -> Callable[..., Any]:
    import pyarrow as pa

    def run(values: pa.Array) -> pa.Array:
        return pa.array(encode(text, schema_id, column, values.to_pylist()), pa.binary())

    run.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return _udf(run, BinaryType())  # type: ignore[no-any-return]


__all__ = ["CorruptRecord", "RegistryError", "SchemaError", "from_confluent_avro", "to_confluent_avro"]
