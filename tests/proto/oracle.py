"""Values for every declared message, and the way between our message objects and kio's, the second implementation.

kio keeps one class per API and version, calls durations and times by other names and types, and aborts the whole process on
some malformed bytes: feed it nothing that did not come out of an encoder.
"""

from __future__ import annotations

import datetime
import io
import uuid as uuid_module
from dataclasses import fields as dataclass_fields
from random import Random
from typing import Any

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from barnabas_wire.kafka import schema
from barnabas_wire.kafka.ids import ZERO_UUID, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import FieldSpec, fields_of

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
ERROR_CODES = [code.value for code in KioErrorCode]
TEXTS = ("", "a", "flights", "grün-λ-🚀", "x" * 126, "y" * 127, "z" * 200)
SERVED = [
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.OFFSET_DELETE,
    ApiKey.ELECT_LEADERS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UNREGISTER_CONTROLLER,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
]


OWN_TAGS_FROM = 64
NEWER_THAN_KIO = {
    (ApiKey.API_VERSIONS, 5),
    (ApiKey.DELETE_GROUPS, 3),
    (ApiKey.TXN_OFFSET_COMMIT, 6),
    (ApiKey.STREAMS_GROUP_HEARTBEAT, 1),
    (ApiKey.STREAMS_GROUP_DESCRIBE, 1),
    (ApiKey.UNREGISTER_CONTROLLER, 0),
}
"""Of Kafka 4.4, which kio does not know yet: tests/oracle/test_declared.py compares them with Kafka's own declarations."""


def declared() -> list[tuple[type[Any], int]]:
    """Every (class, version) that is declared, requests and responses."""
    return [
        (cls, version)
        for api_key in SERVED
        for cls in schema.message_classes(api_key)
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    ]


def kio_class(cls: type[Any], version: int) -> type[Any]:
    """kio's class for one of ours at one version."""
    kind = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    return getattr(load_payload_module(int(cls.API_KEY), version, kind), cls.__name__)


def generate(cls: type[Any], version: int, random: Random, *, oracle: type[Any] | None = None, size: int = 3) -> Any:
    """A message with random values in every field of that version; values that kio's types cannot hold are avoided."""
    theirs = kio_fields(cls, version, oracle) if oracle is not None else {}
    values = {
        name: _value(spec, version, random, theirs.get(name), size)
        for name, spec in fields_of(cls)
        if spec.exists(version) and not (oracle is not None and _is_ours_alone(spec))
    }
    return cls(**values)


def kio_fields(cls: type[Any], version: int, oracle: type[Any]) -> dict[str, Any]:
    """Our field name -> kio's field; both list the fields of a version in wire order."""
    ours = [name for name, spec in fields_of(cls) if spec.exists(version) and not _is_ours_alone(spec)]
    theirs = dataclass_fields(oracle)
    assert len(ours) == len(theirs), (cls, version, ours, [field.name for field in theirs])
    for name, field in zip(ours, theirs, strict=True):
        assert field.name.rstrip("_") in (name, name.removesuffix("_ms"), name.removesuffix("_legacy")), (
            cls,
            version,
            name,
            field.name,
        )
    return dict(zip(ours, theirs, strict=True))


def _is_ours_alone(spec: FieldSpec) -> bool:
    """A tagged field that no Kafka knows, left out of the bytes while it has its default."""
    return spec.tag is not None and spec.tag >= OWN_TAGS_FROM


def _value(spec: FieldSpec, version: int, random: Random, field: Any, size: int) -> Any:
    if version >= spec.nullable_since and random.random() < 0.25:
        return None
    if spec.tag is not None and random.random() < 0.4:
        return spec.default() if isinstance(spec.default, type) else spec.default
    if spec.kind == "struct":
        return generate(spec.element, version, random, oracle=field and _entity(field), size=size)
    if spec.kind == "array":
        count = random.choice((0, 1, size))
        if isinstance(spec.element, type):
            entity = field and _entity(field)
            return [generate(spec.element, version, random, oracle=entity, size=size) for _ in range(count)]
        count = random.choice((0, 1, 3, 20, 200))
        return [_primitive(spec.element, "", random) for _ in range(count)]
    return _primitive(spec.kind, field.metadata["kafka_type"] if field is not None else "", random)


def _primitive(kind: str, kafka_type: str, random: Random) -> Any:
    if kafka_type == "error_code":
        return random.choice(ERROR_CODES)
    if kafka_type == "timedelta_i64":
        return random.randrange(0, 10**12)
    if kafka_type == "datetime_i64":
        return random.randrange(0, 4 * 10**12)
    if kind in RANGES:
        low, high = RANGES[kind]
        return random.choice((low, high, 0, 1, -1 if low else 1, random.randint(low, high)))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "float64":
        return random.uniform(-1e9, 1e9)
    if kind == "string":
        return random.choice(TEXTS)
    if kind == "uuid":
        return random.choice((ZERO_UUID, Uuid(random.randbytes(16))))
    assert kind in ("bytes", "records"), kind
    return random.randbytes(random.choice((0, 1, 126, 127, 128, 5000, 17000)))


def _entity(field: Any) -> type[Any]:
    """kio's nested class behind `Nested`, `Nested | None`, `tuple[Nested, ...]` or `tuple[Nested, ...] | None`."""
    found = [hint for hint in _leaves(field.type) if hasattr(hint, "__dataclass_fields__")]
    assert len(found) == 1, field
    return found[0]


def _leaves(hint: Any) -> list[Any]:
    inner = getattr(hint, "__args__", None)
    return [hint] if not inner else [leaf for part in inner for leaf in _leaves(part)]


def to_kio(message: Any, version: int, oracle: type[Any]) -> Any:
    """kio's object with the values of ours."""
    theirs = kio_fields(type(message), version, oracle)
    values = {}
    for name, spec in fields_of(type(message)):
        if not spec.exists(version) or _is_ours_alone(spec):
            continue
        field, value = theirs[name], getattr(message, name)
        if value is None:
            converted = None
        elif spec.kind == "struct":
            converted = to_kio(value, version, _entity(field))
        elif spec.kind == "array" and isinstance(spec.element, type):
            converted = tuple(to_kio(item, version, _entity(field)) for item in value)
        elif spec.kind == "array":
            converted = tuple(_convert(item, spec.element, spec.element) for item in value)
        else:
            converted = _convert(value, spec.kind, field.metadata["kafka_type"])
        values[field.name] = converted
    return oracle(**values)


def _convert(value: Any, kind: str, kafka_type: str) -> Any:
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return EPOCH + datetime.timedelta(milliseconds=value)
    if kind == "uuid":
        return None if value == ZERO_UUID else uuid_module.UUID(bytes=bytes(value))
    return value


def kio_encode(entity: Any) -> bytes:
    """Bytes of a kio object."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_decode(oracle: type[Any], data: bytes) -> Any:
    """kio's object from bytes that an encoder made; all of them must be used."""
    entity, size = entity_reader(oracle)(data, 0)
    assert size == len(data), f"kio read {size} of {len(data)} bytes"
    return entity
