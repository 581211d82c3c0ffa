"""The pages of topics: the list, one topic with its tabs, the live tail of its records.

May touch:  ConsoleCluster, History.  Must not touch: HTTP, templates.
Invariants: nothing here changes the cluster; a list is cut to a page before the brokers are asked about its entries; a tab asks for
            what it shows.
Read next:  messages.py, spread.py; templates/topics.html, templates/topic.html.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas_admin.client import AdminClient
from barnabas_admin.commands.explain import explanation_fields
from barnabas_admin.console import charts, messages, sampler
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.query import Query, number_of, page_of
from barnabas_admin.console.questions import config_rows, described_groups, known, told_by_clients
from barnabas_admin.console.spread import spread_of
from barnabas_admin.disks import read_replica_sizes
from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.groups import list_groups
from barnabas_admin.record_format import Filter, pairs_of
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.rpc import admin_pb2

TOPICS_PER_PAGE = 50
TABS = ("partitions", "messages", "consumers", "config", "metrics", "explain")
_LISTED_SORTS = ("name", "partitions", "under_replicated")
"""What a list of topics says already; the rest takes a description of each."""
_SORTS = (*_LISTED_SORTS, "replication", "spread", "skew", "leader_skew")
POLICY = "cleanup.policy"
DESCRIBED_MAX = 1_000
"""Topics in one call of the admin service."""


async def topics(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Topics with spread and skew: searched, sorted and cut to a page here; by name only those of the page are described."""
    text = query.get("q", "")
    state = query.get("state", "")
    sort = query.get("sort", "name")
    is_down = query.get("order", "up") == "down"
    with_internal = query.get("internal", "") == "yes"
    if sort not in _SORTS:
        raise WrongUsage(f"topics cannot be sorted by {sort!r}; sort by {', '.join(_SORTS)}")

    listed, ids = await cluster.admin(
        lambda admin: (
            [each for each in admin.list_topics(include_internal=with_internal) if text in each.name],
            [each.id for each in admin.list_brokers().brokers],
        )
    )
    if state == "under-replicated":
        listed = [each for each in listed if each.under_replicated or each.leaderless]
    elif state == "leaderless":
        listed = [each for each in listed if each.leaderless]
    listed.sort(key=lambda each: each.name)
    if sort in _LISTED_SORTS:
        listed.sort(key=lambda each: getattr(each, sort), reverse=is_down)
        page, pages, wanted = page_of(listed, query, TOPICS_PER_PAGE)
        described = await _described(cluster, [each.name for each in wanted])
        shown = [_topic_row(each, ids) for each in described]
    else:  # by what only a description shows: of all of them
        by_name = {each.name: each for each in await _described(cluster, [each.name for each in listed])}
        rows = [_topic_row(each, ids) for each in by_name.values()]
        rows.sort(key=lambda row: row[sort], reverse=is_down)
        page, pages, shown = page_of(rows, query, TOPICS_PER_PAGE)
        described = [by_name[row["name"]] for row in shown]
    records, sizes, rates = await asyncio.gather(
        _record_counts(cluster, shown),
        _leaders_sizes(cluster, described),
        charts.read_rates(cluster.history, [row["name"] for row in shown]),
    )
    own = {row["name"]: row["overrides"].get(POLICY) for row in shown}
    plain = next((name for name, policy in own.items() if policy is None), None)
    default = "" if plain is None else await _default_policy(cluster, plain)
    for row in shown:
        name = row["name"]
        of_it = [size for each, size in sizes.items() if each.topic == name]
        row |= {
            "records": records.get(name),
            "size_bytes": sum(of_it) if len(of_it) == row["partitions"] else None,
            "rate": rates.get(name),
            "policy": own[name] or default,
        }
    return {
        "topics": shown,
        "total": len(listed),
        "page": page,
        "pages": pages,
        "q": text,
        "state": state,
        "sort": sort,
        "order": "down" if is_down else "up",
        "internal": "yes" if with_internal else "",
    }


async def topic(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """One topic; `tab` chooses what is asked beside its partitions."""
    name, tab = query["topic"], query.get("tab", "partitions")
    if tab not in TABS:
        raise WrongUsage(f"a topic has no tab {tab!r}: {', '.join(TABS)}")

    def ask(admin: AdminClient) -> tuple[Any, Any]:
        return admin.list_brokers(), admin.describe_topics([name])[0]

    listed, described = await cluster.admin(ask)
    if described.HasField("error"):
        raise AdminError(described.error.message, code=ErrorCode(described.error.code), hint=described.error.hint)
    ids = [each.id for each in listed.brokers]
    found: dict[str, Any] = {"topic": name, "tab": tab, "tabs": TABS, "summary": _topic_row(described, ids)}
    if tab == "partitions":
        found |= await _partitions(cluster, described)
    elif tab == "messages":
        found |= await _messages(cluster, name, query)
    elif tab == "consumers":
        found |= await _consumers(cluster, [TopicPartition(name, each.partition) for each in described.partitions])
        found["clients"] = await told_by_clients(cluster, topic=name)
    elif tab == "config":
        entries = await cluster.admin(lambda admin: admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name))
        found |= {"configs": config_rows(entries, query.get("q", "")), "q": query.get("q", "")}
    elif tab == "metrics":
        wanted = [("Records produced", "records/s", sampler.TOPIC, name)]
        found |= await charts.read_charts(cluster.history, query.get("span", "1h"), wanted)
        found["days"] = await charts.read_days(cluster.history, name)
    else:
        number = number_of(query.get("partition", "0"), "partition")
        found["partition"] = number
        found["explanation"] = await cluster.admin(
            lambda admin: explanation_fields(admin.explain_partition(name, number))
        )
    return found


async def tail(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """What has come since the cursor: the live tail asks again and again."""
    name = query["topic"]

    async def ask(client: ClusterClient) -> dict[str, Any]:
        known = await messages.bounds(client, name)
        messages.require_topic(known, name)
        cursor = messages.Positions.parse(query.get("cursor", ""))
        start = cursor or await messages.find_positions(client, name, known, start="end")
        wanted = Filter(contains=query.get("q", ""))
        return await messages.browse(client, name, start, known, limit=messages.LIMIT_MAX, wanted=wanted or None)

    return {"topic": name, "q": query.get("q", "")} | await cluster.kafka(ask)


async def _described(cluster: ConsoleCluster, names: Sequence[str]) -> list[admin_pb2.Topic]:
    """One that was deleted meanwhile is left out."""

    def ask(admin: AdminClient) -> list[admin_pb2.Topic]:
        return [
            topic
            for first in range(0, len(names), DESCRIBED_MAX)
            for topic in admin.describe_topics(names[first : first + DESCRIBED_MAX])
            if not topic.HasField("error")
        ]

    return await cluster.admin(ask) if names else []


def _topic_row(described: Any, ids: Sequence[int]) -> dict[str, Any]:
    figures = spread_of([(each.leader, each.replicas) for each in described.partitions], ids)
    flags = [flag for each in described.partitions for flag in each.flags]
    return {
        "name": described.name,
        "id": described.id,
        "internal": described.internal,
        "partitions": len(described.partitions),
        "replication": max((len(each.replicas) for each in described.partitions), default=0),
        "spread": figures.spread,
        "skew": figures.skew,
        "leader_skew": figures.leader_skew,
        "replicas_by_broker": {str(each): count for each, count in figures.replicas.items()},
        "leaders_by_broker": {str(each): count for each, count in figures.leaders.items()},
        "under_replicated": flags.count("under-replicated"),
        "leaderless": flags.count("leaderless"),
        "overrides": dict(described.overrides),
    }


async def _partitions(cluster: ConsoleCluster, described: Any) -> dict[str, Any]:
    name = described.name
    offsets: dict[int, tuple[int, int]] = {}
    note = None
    try:
        living = [TopicPartition(name, each.partition) for each in described.partitions if each.leader >= 0]
        offsets = await cluster.kafka(lambda client: _offsets(client, living))
    except (KafkaError, OSError, TimeoutError) as error:
        note = f"Offsets are not known: {error}"
    sizes = await _leaders_sizes(cluster, [described])
    rows = []
    for each in described.partitions:
        first, end = offsets.get(each.partition, (None, None))
        rows.append(
            {
                "partition": each.partition,
                "leader": known(each.leader),
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "elr": list(each.elr),
                "offline_replicas": list(each.offline_replicas),
                "start": first,
                "end": end,
                "records": None if end is None or first is None else end - first,
                "size_bytes": sizes.get(TopicPartition(name, each.partition)),
                "is_preferred_leader": bool(each.replicas) and each.leader == each.replicas[0],
                "is_under_replicated": "under-replicated" in each.flags,
                "flags": list(each.flags),
            }
        )
    return {"partitions": rows, "note": note}


async def _messages(cluster: ConsoleCluster, name: str, query: Query) -> dict[str, Any]:
    """Nothing is fetched before the user has asked: `start` or `cursor` is in the address then."""
    start, cursor = query.get("start", ""), query.get("cursor", "")
    limit = max(1, min(messages.LIMIT_MAX, number_of(query.get("limit", "50"), "limit")))
    texts = {each: query.get(each, "").strip() for each in ("until", "q", "key", "field", "header")}
    asked = texts | {
        "start": start or ("oldest" if cursor else "newest"),
        "limit": limit,
        "only": query.get("partition", ""),
        "view": "table" if query.get("view") == "table" else "",
        "bytes": "hex" if query.get("bytes") == "hex" else "",
        "stop": query.get("stop", ""),
    }
    if not start and not cursor:
        return asked | {"found": None}
    found = await cluster.kafka(lambda client: _read(client, name, asked, cursor, _filter(texts)))
    is_searching = bool(_filter(texts)) and not found["is_done"] and not found["records"]
    table = messages.fields_table(found["records"]) if asked["view"] else None
    return asked | {"found": found, "table": table, "is_searching": is_searching}


def _filter(texts: Mapping[str, str]) -> Filter:
    """What the form asks for, as `topic consume` takes it; several fields or headers have blanks between. Raises WrongUsage."""
    pairs = {}
    for name in ("field", "header"):
        try:
            pairs[name] = pairs_of(shlex.split(texts[name]), what=name)
        except ValueError as error:
            raise WrongUsage(
                f"{name}: {error}", hint=f"write {name}s as NAME=GLOB, with quotes around blanks"
            ) from None
    keys = [texts["key"]] if texts["key"] else []
    return Filter(keys=keys, headers=pairs["header"], fields=pairs["field"], contains=texts["q"])


async def _read(
    client: ClusterClient, name: str, asked: Mapping[str, Any], cursor: str, wanted: Filter
) -> dict[str, Any]:
    known = await messages.bounds(client, name)
    messages.require_topic(known, name)
    if asked["only"]:
        number = number_of(asked["only"], "partition")
        if number not in known:
            raise WrongUsage(f"{name} has no partition {number}; it has {len(known)}, counted from 0")
        known = {number: known[number]}
    now_ms = int(time.time() * 1000)
    if asked["until"]:
        known = await messages.bounds_until(client, name, known, asked["until"], now_ms=now_ms)
    positions = messages.Positions.parse(cursor)
    is_backwards = asked["start"] == "newest"
    if not cursor and not is_backwards:
        positions = await messages.find_positions(client, name, known, start=asked["start"], now_ms=now_ms)
    return await messages.browse(
        client, name, positions, known, limit=asked["limit"], wanted=wanted or None, is_backwards=is_backwards
    )


async def _consumers(cluster: ConsoleCluster, of: Sequence[TopicPartition]) -> dict[str, Any]:
    listed = await cluster.kafka(list_groups)
    described = await described_groups(cluster, listed, only=of)
    rows = []
    for row in listed:
        here = described.get(row["group"], {"partitions": []})["partitions"]
        if here:
            rows.append(
                {
                    "group": row["group"],
                    "state": row["state"],
                    "lag": sum(each["lag"] or 0 for each in here),
                    "partitions": here,
                }
            )
    return {"consumers": rows}


async def _record_counts(cluster: ConsoleCluster, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Topic -> records between log start and high watermark, of topics whose partitions are all led."""
    wanted = [
        TopicPartition(row["name"], index)
        for row in rows
        if not row["leaderless"]
        for index in range(row["partitions"])
    ]
    try:
        offsets = await cluster.kafka(lambda client: _all_offsets(client, wanted))
    except (KafkaError, OSError, TimeoutError):
        return {}  # the page shows a dash: its topics are known all the same
    counts: dict[str, int] = {}
    for each, (first, end) in offsets.items():
        counts[each.topic] = counts.get(each.topic, 0) + end - first
    return counts


async def _all_offsets(
    client: ClusterClient, wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    if not wanted:
        return {}
    starts = await client.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(wanted, LATEST))
    return {each: (int(starts[each].offset), int(ends[each].offset)) for each in wanted}


async def _offsets(client: ClusterClient, wanted: Sequence[TopicPartition]) -> dict[int, tuple[int, int]]:
    return {each.partition: found for each, found in (await _all_offsets(client, wanted)).items()}


async def _leaders_sizes(cluster: ConsoleCluster, described: Sequence[admin_pb2.Topic]) -> dict[TopicPartition, int]:
    """Bytes of the leaders' replicas, of those whose leaders answer: each is asked once."""
    led: dict[int, list[TopicPartition]] = {}
    for topic in described:
        for each in topic.partitions:
            if each.leader >= 0:
                led.setdefault(each.leader, []).append(TopicPartition(topic.name, each.partition))

    async def of_leader(broker_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return await cluster.kafka(lambda client: read_replica_sizes(client, broker_id, partitions))
        except (KafkaError, OSError, TimeoutError):
            return {}

    answers = await asyncio.gather(*(of_leader(*each) for each in led.items()))
    return {partition: size for answer in answers for partition, size in answer.items()}


async def _default_policy(cluster: ConsoleCluster, name: str) -> str:
    """The cleanup policy of a topic that has none of its own."""
    entries = await cluster.admin(lambda admin: admin.describe_configs(admin_pb2.RESOURCE_TYPE_TOPIC, name))
    return next((each.value for each in entries if each.key == POLICY), "")
