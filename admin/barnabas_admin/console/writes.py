"""The forms that change the cluster: topics, configs, records, offsets of groups, transactions, ACLs, users, quotas.

May touch:  ConsoleCluster.           Must not touch: HTTP, templates.
Invariants: what cannot be undone wants its name typed; a group's offsets are set only while it has no member; the calls are
            those of the commands, with the same checks.
Read next:  application.py, which shows and takes the forms.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from barnabas_admin.client import error_from_detail
from barnabas_admin.commands.records import Line, Producer
from barnabas_admin.console import access, transactions
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.questions import config_rows
from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.groups import describe_group
from barnabas_admin.time_argument import parse_time
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.rpc import admin_pb2

FIELDS_MAX = 2_000
RETENTION_MS = "retention.ms"
USUAL: tuple[dict[str, Any], ...] = (
    {"key": "cleanup.policy", "title": "Old records", "choices": ("delete", "compact", "compact,delete")},
    {"key": RETENTION_MS, "title": "Keep for", "choices": (), "example": "7d, 12h, or milliseconds; -1 for ever"},
    {"key": "retention.bytes", "title": "Keep at most, bytes of a partition", "choices": (), "example": "-1: no bound"},
    {"key": "min.insync.replicas", "title": "In-sync replicas that acks=all needs", "choices": (), "example": "2"},
    {
        "key": "compression.type",
        "title": "Compression",
        "choices": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    },
)
"""Configs that have fields of their own in the form of a new topic."""
_SPAN = re.compile(r"\d+(ms|s|m|h|d)")
COMMIT_BY_NAME_VERSION_MAX = 9
"""From version 10 on topics go by id."""


class Fields(dict[str, str]):
    """What was typed; a field that was not is empty."""

    def __missing__(self, name: str) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Write:
    """A form: what it shows, and what it does. `do` returns the page to go to, or None to show the form again as a preview of what
    it would change. Both raise KafkaError."""

    show: Callable[[ConsoleCluster, Fields], Awaitable[dict[str, Any]]]
    do: Callable[[ConsoleCluster, Fields], Awaitable[str | None]]


def parse_form(body: bytes) -> Fields:
    """The fields of an urlencoded form; of a name given twice the last counts. Raises WrongUsage."""
    try:
        return Fields(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        raise WrongUsage(f"the form cannot be read: {error}") from None


async def _nothing(cluster: ConsoleCluster, fields: Fields) -> dict[str, Any]:
    return {}


async def _show_usual(cluster: ConsoleCluster, fields: Fields) -> dict[str, Any]:
    return {"usual": USUAL}


async def _create_topic(cluster: ConsoleCluster, fields: Fields) -> str:
    name = fields.get("name", "").strip()
    usual = {each["key"]: fields[each["key"]].strip() for each in USUAL}
    if _SPAN.fullmatch(usual[RETENTION_MS]):
        usual[RETENTION_MS] = str(-parse_time(f"-{usual[RETENTION_MS]}", now_ms=0))
    configs = {key: value for key, value in usual.items() if value} | dict(_config_lines(fields.get("configs", "")))
    partitions, replicas = _optional(fields, "partitions"), _optional(fields, "replicas")
    (outcome,) = await cluster.admin(
        lambda admin: admin.create_topics([name], partitions=partitions, replication_factor=replicas, configs=configs)
    )
    if outcome.HasField("error"):
        raise error_from_detail(outcome.error)
    return f"/topics/{quote(name, safe='')}"


async def _delete_topic(cluster: ConsoleCluster, fields: Fields) -> str:
    name = fields["topic"]
    if fields.get("typed", "") != name:
        raise WrongUsage(f"nothing was deleted: type {name} to delete it with all its records")
    (outcome,) = await cluster.admin(lambda admin: admin.delete_topics([name]))
    if outcome.HasField("error"):
        raise error_from_detail(outcome.error)
    return "/topics"


async def _show_config(cluster: ConsoleCluster, fields: Fields) -> dict[str, Any]:
    """The keys that a topic may set, with what they mean, and the one that is edited."""
    name = fields["topic"]
    entries = await cluster.admin(lambda admin: admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name))
    keys = config_rows(entries)
    chosen = next((each for each in keys if each["key"] == fields.get("key")), None)
    return {"topic": name, "keys": keys, "chosen": chosen}


async def _set_config(cluster: ConsoleCluster, fields: Fields) -> str:
    name, key = fields["topic"], fields.get("key", "")
    value = None if fields.get("remove") else fields.get("value", "")
    await cluster.admin(lambda admin: admin.alter_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name, {key: value}))
    return f"/topics/{quote(name, safe='')}?tab=config"


async def _produce(cluster: ConsoleCluster, fields: Fields) -> str:
    name = fields["topic"]
    key, value = fields.get("key", ""), fields.get("value", "")
    partition = _optional(fields, "partition")
    line = Line(
        key.encode() if key else None,
        None if fields.get("tombstone") else value.encode(),
        _header_lines(fields.get("headers", "")),
        partition if partition >= 0 else None,
        None,
    )

    async def write(client: ClusterClient) -> int:
        producer = Producer(client, name, acks=-1, compression="none")
        await producer.start(is_creating=False)
        await producer.send([line])
        return next(iter(producer.written))

    written = await cluster.kafka(write)
    return f"/topics/{quote(name, safe='')}?tab=messages&start=newest&partition={written}"


async def _show_offsets(cluster: ConsoleCluster, fields: Fields) -> dict[str, Any]:
    """The group's partitions, with what was typed in place of what is committed, and the difference."""
    name = fields["group"]
    found = await cluster.kafka(lambda client: describe_group(client, name))
    rows = []
    for each in found["partitions"]:
        field = _field_of(each["topic"], each["partition"])
        rows.append(each | {"field": field, "typed": fields.get(field, _text(each["committed"]))})
    return {"group": name, "state": found["state"], "members": len(found["members"]), "rows": rows}


async def _set_offsets(cluster: ConsoleCluster, fields: Fields) -> str | None:
    """Without step=commit nothing is changed."""
    name = fields["group"]
    shown = await _show_offsets(cluster, fields)
    if shown["members"]:
        raise AdminError(
            f"group {name} has {shown['members']} members, who would commit over it",
            code=ErrorCode.NON_EMPTY_GROUP,
            hint="stop them, then set the offsets",
        )
    wanted: dict[str, dict[int, int]] = {}
    for row in shown["rows"]:
        if row["typed"] != _text(row["committed"]):
            if not row["typed"].isdecimal():
                raise WrongUsage(
                    f"{row['topic']}-{row['partition']}: an offset is a number from 0 on, not {row['typed']!r}"
                )
            wanted.setdefault(row["topic"], {})[row["partition"]] = int(row["typed"])
    if not wanted:
        raise WrongUsage("no offset was changed")
    if fields.get("step") != "commit":
        return None

    async def commit(client: ClusterClient) -> None:
        request = OffsetCommitRequest(
            group_id=name,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in offsets.items()
                    ],
                )
                for topic, offsets in wanted.items()
            ],
        )
        answer = await client.call_coordinator(name, request, version_max=COMMIT_BY_NAME_VERSION_MAX)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise KafkaError.of(known_code(each.error_code), f"{topic.name}-{each.partition_index}")

    await cluster.kafka(commit)
    return f"/groups/{quote(name, safe='')}"


def _field_of(topic: str, partition: int) -> str:
    return f"offset:{topic}:{partition}"


def _text(offset: int | None) -> str:
    return "" if offset is None else str(offset)


def _optional(fields: Mapping[str, str], name: str) -> int:
    """A number of a form that may be left empty: -1 then. Raises WrongUsage."""
    text = fields.get(name, "").strip()
    if not text:
        return -1
    if not text.isdecimal():
        raise WrongUsage(f"{name} is a number, not {text!r}")
    return int(text)


def _config_lines(text: str) -> list[tuple[str, str]]:
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        key, separator, value = line.partition("=")
        if not separator:
            raise WrongUsage(f"{line!r} is no config: write key=value, one a line")
        found.append((key.strip(), value.strip()))
    return found


def _header_lines(text: str) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, value.encode()) for name, value in _config_lines(text))


FORMS: dict[str, tuple[str, Write]] = {
    "/topics/new": ("topic_new", Write(_show_usual, _create_topic)),
    "/topics/{topic}/delete": ("topic_delete", Write(_nothing, _delete_topic)),
    "/topics/{topic}/config": ("topic_config", Write(_show_config, _set_config)),
    "/topics/{topic}/produce": ("produce", Write(_nothing, _produce)),
    "/groups/{group}/offsets": ("offsets", Write(_show_offsets, _set_offsets)),
    "/transactions/abort": ("transaction_abort", Write(transactions.show_abort, transactions.abort)),
    "/access/acls/new": ("acl_new", Write(access.show_acl, access.create_acl)),
    "/access/acls/delete": ("acl_delete", Write(_nothing, access.delete_acl)),
    "/access/users/set": ("user_set", Write(access.show_user, access.set_password)),
    "/access/users/delete": ("user_delete", Write(_nothing, access.delete_user)),
    "/access/quotas/set": ("quota_set", Write(access.show_quota, access.set_quota)),
}
"""Path -> (template, form). None of them is there in a console that is read-only."""
