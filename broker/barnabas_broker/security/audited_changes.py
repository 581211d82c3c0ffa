"""What a change of the metadata was before, and what it is after: from the records that the controller committed.

May touch:  records, the image before them.   Must not touch: files, clock, who may do what.
Invariants: what can be used to log in is never in it, neither before nor after; a change names at most RECORDS_MAX of its records.
Read next:  audit.py, which writes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.scram import ScramUser
from barnabas_quorum.records import ConfigRecord, PartitionChangeRecord, Record, RemoveTopicRecord
from barnabas_quorum.records_security import (
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

RECORDS_MAX: Final = 100
HIDDEN: Final = "(hidden)"
_SECRET_FIELDS = frozenset(("salt", "stored_key", "server_key", "hmac"))


def describe(
    image: MetadataImage, records: Sequence[Record], *, has_secret: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Each record with what was there before.

    Args:
        image: before the records.
        has_secret: whether the value of a config key is never shown.
    """
    described = [_describe(image, record, has_secret) for record in records[:RECORDS_MAX]]
    if len(records) > RECORDS_MAX:
        described.append({"more": len(records) - RECORDS_MAX})
    return described


def _describe(image: MetadataImage, record: Record, has_secret: Callable[[str], bool]) -> dict[str, Any]:
    described: dict[str, Any] = {"record": type(record).__name__.removesuffix("Record")}
    if isinstance(record, ConfigRecord):
        resource = ConfigResource(record.resource_type, record.resource_name)
        before, after = image.configs.get(resource).get(record.key), record.value
        if has_secret(record.key):
            before, after = before and HIDDEN, after and HIDDEN
        return {
            **described,
            "resource_type": record.resource_type.name,
            "resource": record.resource_name,
            "key": record.key,
            "before": before,
            "after": after,
        }
    if isinstance(record, ClientQuotaRecord):
        entity = {part.type: part.name for part in record.entity}
        rate = image.quotas.get(record.entity).get(record.key)
        return {**described, "entity": entity, "key": record.key, "before": rate, "after": record.value}
    if isinstance(record, RemoveAccessControlEntryRecord):
        return {**described, "before": _plain(image.acls.entries.get(record.id)), "after": None}
    if isinstance(record, (UserScramCredentialRecord, RemoveUserScramCredentialRecord)):
        credential = image.scram.credentials.get(ScramUser(record.name, record.mechanism))
        is_removed = isinstance(record, RemoveUserScramCredentialRecord)
        return {
            **described,
            "user": record.name,
            "mechanism": record.mechanism.mechanism_name,
            "before": None if credential is None else HIDDEN,
            "after": None if is_removed else HIDDEN,
        }
    if isinstance(record, RemoveTopicRecord):
        topic = image.topics.get_by_id(record.topic_id)
        name = None if topic is None else topic.name
        return {**described, "before": {"name": name, "topic_id": str(record.topic_id)}, "after": None}
    if isinstance(record, PartitionChangeRecord):
        topic = image.topics.get_by_id(record.topic_id)
        partition = None if topic is None else topic.partitions.get(record.partition_id)
        changed = {name: value for name, value in _plain(record).items() if value is not None}
        return {
            **described,
            "topic": None if topic is None else topic.name,
            "before": {name: _plain(getattr(partition, name)) for name in changed if hasattr(partition, name)},
            "after": changed,
        }
    return {**described, "before": None, "after": _plain(record)}


def _plain(value: Any) -> Any:
    """As JSON has it. Secrets are hidden whatever record they come in."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: HIDDEN if field.name in _SECRET_FIELDS else _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
