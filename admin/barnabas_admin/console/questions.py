"""What pages of more than one kind ask the cluster.

May touch:  ConsoleCluster.           Must not touch: HTTP, templates.
Invariants: nothing here changes the cluster.
Read next:  pages.py, topics.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas_admin import client_view
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.groups import describe_groups
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.rpc import admin_pb2


def known(number: int) -> int | None:
    """The number, or None where the cluster says -1, which is not known."""
    return number if number >= 0 else None


def config_rows(entries: Iterable[admin_pb2.ConfigEntry], text: str = "") -> list[dict[str, Any]]:
    """Configs of a topic or a broker, for configs.html: those that somebody set first; only those of whose key, value or meaning
    `text` is a part, whatever its case."""
    rows = [
        {"key": each.key, "value": each.value, "source": each.source, "doc": each.doc}
        for each in entries
        if text.lower() in f"{each.key}\n{each.value}\n{each.doc}".lower()
    ]
    return sorted(rows, key=lambda row: row["source"] == "default")


async def described_groups(
    cluster: ConsoleCluster, rows: Sequence[dict[str, Any]], *, only: Sequence[TopicPartition] | None = None
) -> dict[str, dict[str, Any]]:
    """Groups that `list_groups` has listed, as describe_groups has them: without those that went away meanwhile, or whose
    coordinator does not answer."""
    coordinators = {row["group"]: row["coordinator"] for row in rows}
    return await cluster.kafka(lambda client: describe_groups(client, coordinators, only=only))


async def told_by_clients(
    cluster: ConsoleCluster, *, group: str | None = None, topic: str | None = None
) -> list[dict[str, Any]]:
    """What the clients of a group, or of a topic, say of themselves; nothing for who may not see that."""
    try:
        return await cluster.kafka(lambda client: client_view.read(client, group=group, topic=topic))
    except KafkaError as error:
        if error.code not in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise
        return []
