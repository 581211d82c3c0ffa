"""Metadata records for people and programs: name and fields as JSON can hold them, without secrets.

May touch:  records.   Must not touch: asyncio, files, protobuf.
Invariants: nothing with which one could log in is shown: SCRAM keys, values of config keys that hold a secret.
Read next:  driver/log_entries.py, which opens batches for this.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from barnabas_quorum.records import ConfigRecord, Record
from barnabas_quorum.records_security import redacted
from barnabas_wire.kafka.ids import Uuid

HIDDEN = "(hidden)"
SECRET_WORDS = ("password", "secret", "jaas", "private.key", "credential", "keystore.key")
"""A config key with one of these in its name holds what must not be shown."""
_HIDDEN_FIELDS = frozenset({"salt", "stored_key", "server_key"})


def is_secret_key(name: str) -> bool:
    """Whether the value of a config key of that name must not be shown."""
    return any(word in name.lower() for word in SECRET_WORDS)


def kind_of(record: Record) -> str:
    """PartitionChangeRecord, …"""
    return type(record).__name__


def fields_of(record: Record) -> dict[str, Any]:
    """The fields of a record in their order; what is None ("unchanged" in a change record) is left out."""
    if isinstance(record, ConfigRecord) and record.value is not None and is_secret_key(record.key):
        record = dataclasses.replace(record, value=HIDDEN)
    shown = redacted(record)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(shown):
        value = getattr(shown, field.name)
        if field.name in _HIDDEN_FIELDS:
            found[field.name] = HIDDEN
        elif value is not None or (isinstance(record, ConfigRecord) and field.name == "value"):
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _plain(item) for key, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
