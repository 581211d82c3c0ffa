"""Avro schemas as Spark types, and the values that fastavro gives as those that Arrow takes. Pure.

May touch:  its arguments.            Must not touch: fastavro, Spark sessions, sockets.
Invariants: types are those of Spark's own Avro reader where it has one; a schema that has no column type is refused with the path of
    the field. Logical types are applied here, by the reader's schema: fastavro applies the writer's.
Read next:  avro.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Convert = Callable[[Any], Any]
Schema = Any
_PLAIN: dict[str, DataType] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}


class SchemaError(ValueError):
    """A schema that has no column type here, or no sense."""


class Shape:
    """What one schema is in Spark, and how values are converted; `names` keeps the named types that were met."""

    def __init__(self, schema: Schema) -> None:
        """Raises SchemaError."""
        self._names: dict[str, Schema] = {}
        self._open: list[str] = []
        self.type, self.convert = self._of(schema, "the schema", "")
        """`convert` makes a value as fastavro read it one that Arrow takes; None: it is one."""

    def _of(self, schema: Schema, path: str, space: str) -> tuple[DataType, Convert | None]:
        if isinstance(schema, list):
            return self._union(schema, path, space)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema], None
            name = schema if "." in schema or not space else f"{space}.{schema}"
            known = name if name in self._names else schema
            if known in self._open:
                raise SchemaError(f"{path} contains {known} in itself, which no column can")
            if known not in self._names:
                raise SchemaError(f"{path} has the type {schema}, which is not defined")
            return self._of(self._names[known], path, space)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise SchemaError(f"{path} is no Avro schema: {schema!r}")
        kind = schema["type"]
        if isinstance(kind, (list, Mapping)):
            return self._of(kind, path, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(schema, path, space)
        if kind == "array":
            inner, convert = self._of(schema["items"], f"{path}[]", space)
            return ArrayType(inner), None if convert is None else _each(convert)
        if kind == "map":
            inner, convert = self._of(schema["values"], f"{path}{{}}", space)
            return MapType(StringType(), inner), lambda found: [
                (key, one if convert is None else _maybe(convert, one)) for key, one in found.items()
            ]
        logical = schema.get("logicalType", "")
        if kind == "bytes" and logical == "decimal":
            return _decimal(schema)
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], (lambda at: at * 1000) if logical.endswith("-millis") else None
        return self._of(kind, path, space)

    def _named(self, schema: Mapping[str, Any], path: str, space: str) -> tuple[DataType, Convert | None]:
        name = str(schema.get("name", ""))
        space = name.rpartition(".")[0] if "." in name else schema.get("namespace", space)
        full = name if "." in name or not space else f"{space}.{name}"
        self._names[full] = schema
        if schema["type"] == "enum":
            return StringType(), None
        if schema["type"] == "fixed":
            return _decimal(schema) if schema.get("logicalType") == "decimal" else (BinaryType(), None)
        self._open.append(full)
        fields, converts = [], []
        for field in schema.get("fields", ()):
            inner, convert = self._of(field["type"], f"{path}.{field['name']}" if "." in path else field["name"], space)
            fields.append(StructField(field["name"], inner, True))
            if convert is not None:
                converts.append((field["name"], convert))
        self._open.pop()
        if not fields:
            raise SchemaError(f"{path} is a record without a field, which no column can be")
        if not converts:
            return StructType(fields), None

        def whole(found: dict[str, Any]) -> dict[str, Any]:
            for key, convert in converts:
                if found[key] is not None:
                    found[key] = convert(found[key])
            return found

        return StructType(fields), whole

    def _union(self, schema: list[Schema], path: str, space: str) -> tuple[DataType, Convert | None]:
        others = [one for one in schema if one != "null"]
        if len(others) == 1:
            return self._of(others[0], path, space)
        raise SchemaError(
            f"{path} is a union of {len(others)} types: a column has one type, and null. Change the reader's schema, or leave the "
            "field out of it"
        )


def _maybe(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _each(convert: Convert) -> Convert:
    return lambda found: [_maybe(convert, one) for one in found]


def _decimal(schema: Mapping[str, Any]) -> tuple[DataType, Convert]:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    return DecimalType(precision, scale), lambda found: Decimal(int.from_bytes(found, "big", signed=True)).scaleb(
        -scale
    )


def without_logical_types(schema: Schema) -> Schema:
    """The same schema, whose values are read as they are written: numbers and bytes."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = without_logical_types(found[key])
    if "fields" in found:
        found["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in found["fields"]]
    return found


def to_written(schema: Schema) -> Convert | None:
    """How values as Arrow gives them become those that fastavro writes: maps come as lists of pairs. None: as they are."""
    return _writing(schema, {})


def _writing(schema: Schema, names: dict[str, Convert | None]) -> Convert | None:
    if isinstance(schema, list):
        found = [convert for one in schema if one != "null" and (convert := _writing(one, names)) is not None]
        return found[0] if len(found) == 1 else None
    if isinstance(schema, str):
        return names.get(schema)
    kind = schema.get("type")
    if isinstance(kind, (list, Mapping)):
        return _writing(kind, names)
    if kind == "map":
        inner = _writing(schema["values"], names)
        return lambda pairs: {key: value if inner is None else _maybe(inner, value) for key, value in pairs}
    if kind == "array":
        inner = _writing(schema["items"], names)
        return None if inner is None else _each(inner)
    if kind != "record":
        return None
    converts = [
        (field["name"], convert)
        for field in schema["fields"]
        if (convert := _writing(field["type"], names)) is not None
    ]

    def whole(found: dict[str, Any]) -> dict[str, Any]:
        return found | {key: _maybe(convert, found[key]) for key, convert in converts if key in found}

    names[str(schema.get("name"))] = whole if converts else None
    return names[str(schema.get("name"))]
