"""The value schemas of `__consumer_offsets`, field by field from Kafka's OffsetCommitValue.json and GroupMetadataValue.json, put
into kio's codec: a second implementation that shares no code with ours. kio itself has no schema for these records."""

from __future__ import annotations

import io
from dataclasses import field, make_dataclass
from typing import Any, ClassVar

from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

FLEXIBLE_FROM = 4

OFFSET_COMMIT_VALUE = (
    ("offset", i64, "int64", 0, 99),
    ("leader_epoch", i32, "int32", 3, 99),
    ("metadata", str, "string", 0, 99),
    ("commit_timestamp", i64, "int64", 0, 99),
    ("expire_timestamp", i64, "int64", 1, 1),
)
MEMBER_METADATA = (
    ("member_id", str, "string", 0, 99),
    ("group_instance_id", str | None, "string", 3, 99),
    ("client_id", str, "string", 0, 99),
    ("client_host", str, "string", 0, 99),
    ("rebalance_timeout", i32, "int32", 1, 99),
    ("session_timeout", i32, "int32", 0, 99),
    ("subscription", bytes, "bytes", 0, 99),
    ("assignment", bytes, "bytes", 0, 99),
)
GROUP_METADATA_VALUE = (
    ("protocol_type", str, "string", 0, 99),
    ("generation", i32, "int32", 0, 99),
    ("protocol", str | None, "string", 0, 99),
    ("leader", str | None, "string", 0, 99),
    ("current_state_timestamp", i64, "int64", 2, 99),
    ("members", MEMBER_METADATA, None, 0, 99),
)


def _entity(name: str, schema: tuple[Any, ...], version: int, kind: EntityType) -> type[Any]:
    fields = []
    for field_name, field_type, kafka_type, since, until in schema:
        if not since <= version <= until:
            continue
        if kafka_type is None:
            nested: Any = _entity(f"{name}_{field_name}", field_type, version, EntityType.nested)
            fields.append((field_name, tuple[nested, ...], field()))
        else:
            fields.append((field_name, field_type, field(metadata={"kafka_type": kafka_type})))
    namespace = {"__type__": kind, "__version__": i16(version), "__flexible__": version >= FLEXIBLE_FROM}
    made = make_dataclass(name, fields, frozen=True, kw_only=True, namespace=namespace)
    made.__annotations__ |= dict.fromkeys(namespace, ClassVar)
    return made


def encode_value(schema: tuple[Any, ...], version: int, values: dict[str, Any]) -> bytes:
    """Version and body as Kafka writes them; `values` may hold more than the version has, nested members as dicts."""
    entity = _entity("Value", schema, version, EntityType.data)
    out = io.BytesIO()
    out.write(version.to_bytes(2, "big"))
    entity_writer(entity)(out, _build(entity, schema, values))
    return out.getvalue()


def _build(entity: type[Any], schema: tuple[Any, ...], values: dict[str, Any]) -> Any:
    built = {}
    for field_name, field_type, kafka_type, _, _ in schema:
        annotation = entity.__annotations__.get(field_name)
        if annotation is None:
            continue
        if kafka_type is None:
            nested = annotation.__args__[0]
            built[field_name] = tuple(_build(nested, field_type, member) for member in values[field_name])
        else:
            built[field_name] = values[field_name]
    return entity(**built)
