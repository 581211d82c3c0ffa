"""What each page shows: one function per page, which asks the cluster and returns the dictionary that is also the JSON twin.

May touch:  ConsoleCluster, History.  Must not touch: HTTP, templates.
Invariants: nothing here changes the cluster; who is active controller comes from the quorum, never from Metadata; a list is cut
            to a page before the brokers are asked about its entries.
Read next:  application.py, which calls them; templates/, which show them.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barnabas_admin.client import AdminClient
from barnabas_admin.commands.cluster import describe_broker
from barnabas_admin.commands.explain import explanation_fields
from barnabas_admin.commands.metadata_log import text_of as fields_text
from barnabas_admin.console import access as access_screens
from barnabas_admin.console import charts, messages, sampler
from barnabas_admin.console import transactions as transaction_screens
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.health import verdict
from barnabas_admin.console.spread import spread_of
from barnabas_admin.disks import read_replica_sizes, read_totals
from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.groups import describe_group, describe_groups, list_groups
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.rpc import admin_pb2, inspection_pb2

Query = Mapping[str, str]

TOPICS_PER_PAGE = 50
GROUPS_PER_PAGE = 50
EVENTS_PER_PAGE = 50
TRANSACTIONS_PER_PAGE = 100
LAGS_SHOWN = 6
TABS = ("partitions", "messages", "consumers", "config", "metrics", "explain")
ALL_RECORDS = ("Records produced", "records/s", sampler.ALL, sampler.RECORDS)
_LISTED_SORTS = ("name", "partitions", "under_replicated")
"""What a list of topics says already; the rest takes a description of each."""
_SORTS = (*_LISTED_SORTS, "replication", "spread", "skew", "leader_skew")
HASHES = 10
"""As many are asked for beyond the newest events that are wanted: hashes are among them."""
_REACHES = (3, 10, 30, 100)
"""How far back the newest events are looked for then, in times of how many are wanted."""
DESCRIBED_MAX = 1_000
"""Topics in one call of the admin service."""


async def overview(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """The health sentence with its reasons, the brokers, what happened last."""
    health, found, events = await asyncio.gather(
        cluster.admin(lambda admin: verdict(admin.describe_health())),
        cluster.admin(AdminClient.describe_cluster),
        cluster.admin(lambda admin: _log(admin, last=8)),
    )
    return {
        "health": health,
        "cluster_id": found.cluster_id,
        "topics": found.topic_count,
        "partitions": found.partition_count,
        "brokers": [describe_broker(broker) for broker in found.brokers],
        "events": events["events"],
    } | await charts.read_charts(cluster.history, query.get("span", "1h"), [ALL_RECORDS])


async def quorum(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Voters and observers as the quorum's leader sees them, and why it leads."""
    found, leader = await asyncio.gather(
        cluster.admin(AdminClient.describe_quorum),
        cluster.admin(lambda admin: explanation_fields(admin.explain_leader())),
    )
    replicas = [
        {
            "id": replica.id,
            "role": replica.role,
            "endpoint": replica.endpoint or None,
            "directory_id": replica.directory_id or None,
            "log_end_offset": _known(replica.log_end_offset),
            "lag_records": _known(replica.lag_records),
            "fetched_ms_ago": _ago(found.described_at_ms, replica.last_fetch_timestamp_ms),
            "caught_up_ms_ago": _ago(found.described_at_ms, replica.last_caught_up_timestamp_ms),
        }
        for replica in found.replicas
    ]
    return {
        "leader_id": _known(found.leader_id),
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": [each for each in replicas if each["role"] != "observer"],
        "observers": [each for each in replicas if each["role"] == "observer"],
        "explanation": leader,
    }


async def brokers(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Every registered broker, with its disks."""
    found = await cluster.admin(AdminClient.list_brokers)
    rows = [describe_broker(broker) for broker in found.brokers]
    disks = await asyncio.gather(*(_directories(cluster, broker) for broker in found.brokers))
    for row, directories in zip(rows, disks, strict=True):
        row["directories"] = directories
        row["size_bytes"] = sum(each["size_bytes"] for each in row["directories"])
    return {"brokers": rows, "controller_id": _known(found.controller_id)}


async def broker(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """One broker: what it is and why, its directories, its configs."""
    broker_id = _number(query["broker"], "broker")
    listed = (await cluster.admin(AdminClient.list_brokers)).brokers
    registered = next((each for each in listed if each.id == broker_id), None)
    if registered is None:
        raise AdminError(f"broker {broker_id} is not registered", code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    directories, explanation, configs = await asyncio.gather(
        _directories(cluster, registered),
        cluster.admin(lambda admin: explanation_fields(admin.explain_broker(broker_id))),
        cluster.admin(lambda admin: _configs(admin, admin_pb2.RESOURCE_TYPE_BROKER, str(broker_id))),
    )
    return {
        "broker": describe_broker(registered),
        "directories": directories,
        "explanation": explanation,
        "configs": configs,
    } | await charts.read_charts(
        cluster.history, query.get("span", "1h"), [("Time to answer", "ms", sampler.ANSWER, str(broker_id))]
    )


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
        page, pages, wanted = _page(listed, query, TOPICS_PER_PAGE)
        shown = await _topic_rows(cluster, [each.name for each in wanted], ids)
    else:  # by what only a description shows: of all of them
        rows = await _topic_rows(cluster, [each.name for each in listed], ids)
        rows.sort(key=lambda row: row[sort], reverse=is_down)
        page, pages, shown = _page(rows, query, TOPICS_PER_PAGE)
    records = await _record_counts(cluster, shown)
    for row in shown:
        row["records"] = records.get(row["name"])
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
    elif tab == "config":
        found["configs"] = await cluster.admin(lambda admin: _configs(admin, admin_pb2.RESOURCE_TYPE_TOPIC, name))
    elif tab == "metrics":
        wanted = [("Records produced", "records/s", sampler.TOPIC, name)]
        found |= await charts.read_charts(cluster.history, query.get("span", "1h"), wanted)
        found["days"] = await charts.read_days(cluster.history, name)
    else:
        number = _number(query.get("partition", "0"), "partition")
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
        start = cursor or await messages.find_positions(client, name, known, start="end", limit=0)
        return await messages.browse(client, name, start, known, limit=messages.LIMIT_MAX, contains=query.get("q", ""))

    return {"topic": name, "q": query.get("q", "")} | await cluster.kafka(ask)


async def groups(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Consumer groups; lag is asked for those on the page."""
    text = query.get("q", "")
    rows = [row for row in await cluster.kafka(list_groups) if text in row["group"]]
    page, pages, shown = _page(rows, query, GROUPS_PER_PAGE)
    described = await _described_groups(cluster, shown)
    for row in shown:
        found = described.get(row["group"])
        row["members"] = None if found is None else len(found["members"])
        row["lag"] = None if found is None else found["total_lag"]
        row["topics"] = [] if found is None else sorted({each["topic"] for each in found["partitions"]})
    return {"groups": shown, "total": len(rows), "page": page, "pages": pages, "q": text}


async def group(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """One group: who owns which partition, and how far behind it is."""
    name = query["group"]
    found = await cluster.kafka(lambda client: describe_group(client, name))
    wanted = [("Lag", "records behind", sampler.LAG, name)]
    return found | await charts.read_charts(cluster.history, query.get("span", "1h"), wanted)


async def transactions(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Transactional ids with their state and coordinator."""
    text, state = query.get("q", ""), query.get("state", "")
    rows = await transaction_screens.read_transactions(cluster, state=state, contains=text)
    page, pages, shown = _page(rows, query, TRANSACTIONS_PER_PAGE)
    return {
        "transactions": shown,
        "total": len(rows),
        "page": page,
        "pages": pages,
        "q": text,
        "state": state,
        "states": transaction_screens.STATES,
    }


async def transaction(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """One transactional id: its producer, and the partitions of its transaction."""
    return await transaction_screens.read_transaction(cluster, query["id"])


async def access(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """ACLs, users or quotas."""
    return await access_screens.read_access(cluster, query.get("tab", "acls"))


async def big_screen(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """What is read from across a room: health, records a second, the groups that are furthest behind."""
    found = await overview(cluster, query)
    lags: list[dict[str, Any]] = []
    if cluster.history is not None:
        seen = {row["group"] for row in await cluster.kafka(list_groups)}  # by who asks, who may not see every group
        names = [name for name in cluster.history.names(sampler.LAG) if name in seen]
        groups_known = [("Lag", "records behind", sampler.LAG, name) for name in names]
        lines = (await charts.read_charts(cluster.history, "1h", groups_known))["charts"]
        lags = [
            {"group": asked[3], "lag": line["latest"]}
            for asked, line in zip(groups_known, lines, strict=True)
            if line["latest"] is not None
        ]
    return found | {"lags": sorted(lags, key=lambda row: (-row["lag"], row["group"]))[:LAGS_SHOWN]}


async def events(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """The metadata log as a timeline, newest first; `before` goes back."""
    before = query.get("before", "")
    end = _number(before, "before") if before else None
    return await cluster.admin(lambda admin: _log(admin, last=EVENTS_PER_PAGE, before=end))


async def explain(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Why something is as it is: the quorum's leader, a broker, a partition, a reassignment."""
    subject = query.get("subject", "leader")
    name, number = query.get("topic", ""), query.get("partition", "0")
    broker_id = query.get("broker", "")
    found: dict[str, Any] = {"subject": subject, "topic": name, "partition": number, "broker": broker_id}
    if subject == "leader":
        explanation = await cluster.admin(AdminClient.explain_leader)
    elif subject == "broker" and broker_id:
        wanted = _number(broker_id, "broker")
        explanation = await cluster.admin(lambda admin: admin.explain_broker(wanted))
    elif subject == "partition" and name:
        index = _number(number, "partition")
        explanation = await cluster.admin(lambda admin: admin.explain_partition(name, index))
    elif subject in ("broker", "partition"):
        return found | {"explanation": None}
    else:
        raise WrongUsage(f"nothing explains {subject!r}: leader, broker or partition")
    return found | {"explanation": explanation_fields(explanation)}


async def _topic_rows(cluster: ConsoleCluster, names: Sequence[str], ids: Sequence[int]) -> list[dict[str, Any]]:
    """One that was deleted meanwhile is left out."""

    def ask(admin: AdminClient) -> list[dict[str, Any]]:
        return [
            _topic_row(topic, ids)
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
    sizes = await _leaders_sizes(cluster, described)
    rows = []
    for each in described.partitions:
        first, end = offsets.get(each.partition, (None, None))
        rows.append(
            {
                "partition": each.partition,
                "leader": _known(each.leader),
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "elr": list(each.elr),
                "offline_replicas": list(each.offline_replicas),
                "start": first,
                "end": end,
                "records": None if end is None or first is None else end - first,
                "size_bytes": sizes.get(each.partition),
                "is_preferred_leader": bool(each.replicas) and each.leader == each.replicas[0],
                "is_under_replicated": "under-replicated" in each.flags,
                "flags": list(each.flags),
            }
        )
    return {"partitions": rows, "note": note}


async def _messages(cluster: ConsoleCluster, name: str, query: Query) -> dict[str, Any]:
    """Nothing is fetched before the user has asked: `start` or `cursor` is in the address then."""
    start, cursor = query.get("start", ""), query.get("cursor", "")
    limit = max(1, min(messages.LIMIT_MAX, _number(query.get("limit", "50"), "limit")))
    only = query.get("partition", "")
    text = query.get("q", "")
    asked = {"start": start or "newest", "limit": limit, "only": only, "q": text}
    if not start and not cursor:
        return asked | {"found": None}

    async def ask(client: ClusterClient) -> dict[str, Any]:
        known = await messages.bounds(client, name)
        messages.require_topic(known, name)
        if only:
            number = _number(only, "partition")
            if number not in known:
                raise WrongUsage(f"{name} has no partition {number}; it has {len(known)}, counted from 0")
            known = {number: known[number]}
        if cursor:
            positions = messages.Positions.parse(cursor)
        else:
            each = math.ceil(limit / len(known)) if start == "newest" else limit
            positions = await messages.find_positions(client, name, known, start=start, limit=each)
        return await messages.browse(
            client, name, positions, known, limit=limit, contains=text, is_newest_first=start == "newest"
        )

    return asked | {"found": await cluster.kafka(ask)}


async def _consumers(cluster: ConsoleCluster, of: Sequence[TopicPartition]) -> dict[str, Any]:
    listed = await cluster.kafka(list_groups)
    described = await _described_groups(cluster, listed, only=of)
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


async def _described_groups(
    cluster: ConsoleCluster, rows: Sequence[dict[str, Any]], *, only: Sequence[TopicPartition] | None = None
) -> dict[str, dict[str, Any]]:
    """Without those that went away meanwhile, or whose coordinator does not answer."""
    coordinators = {row["group"]: row["coordinator"] for row in rows}
    return await cluster.kafka(lambda client: describe_groups(client, coordinators, only=only))


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


async def _directories(cluster: ConsoleCluster, broker: admin_pb2.Broker) -> list[dict[str, Any]]:
    """A broker's directories with what the replicas in them take; none of one that does not answer."""
    if broker.fenced:
        return []
    try:
        found = await cluster.kafka(lambda client: read_totals(client, broker.id))
    except (KafkaError, OSError, TimeoutError):
        return []
    return [
        {
            "path": each.path,
            "error": each.error_code or None,
            "replica_count": each.replica_count,
            "size_bytes": each.replica_bytes,
            "total_bytes": each.total_bytes,
            "usable_bytes": each.usable_bytes,
        }
        for each in found
    ]


async def _leaders_sizes(cluster: ConsoleCluster, described: admin_pb2.Topic) -> dict[int, int]:
    """Partition -> bytes of its leader's replica, of those whose leaders answer."""
    led: dict[int, list[int]] = {}
    for each in described.partitions:
        if each.leader >= 0:
            led.setdefault(each.leader, []).append(each.partition)

    async def of_leader(broker_id: int, partitions: list[int]) -> dict[int, int]:
        try:
            return await cluster.kafka(lambda client: read_replica_sizes(client, broker_id, described.name, partitions))
        except (KafkaError, OSError, TimeoutError):
            return {}

    answers = await asyncio.gather(*(of_leader(*each) for each in led.items()))
    return {partition: size for answer in answers for partition, size in answer.items()}


def _configs(admin: AdminClient, kind: admin_pb2.ResourceType, name: str) -> list[dict[str, Any]]:
    return [
        {"key": entry.key, "value": entry.value, "source": entry.source, "doc": entry.doc}
        for entry in admin.describe_configs(kind, name)
    ]


def _log(admin: AdminClient, *, last: int, before: int | None = None) -> dict[str, Any]:
    """The newest records of the metadata log, or those before an offset; hashes and no-ops are no events.

    A cluster at rest writes a hash now and then: the newest events are looked for in ever longer pieces from the end.
    """
    told: list[Any] = []
    for reach in [last + HASHES, *(step * last for step in _REACHES)] if before is None else [last]:
        entries = list(_entries(admin, reach, before))
        told = [entry for entry in entries if entry.kind != "ImageHashRecord"]
        if len(told) >= last or len(entries) < reach:
            break
    found = [_event(entry) for entry in told[-last:]]
    oldest = found[0]["offset"] if found else 0
    return {"events": found[::-1], "before": oldest if oldest > 0 else None, "now_ms": int(time.time() * 1000)}


def _entries(admin: AdminClient, last: int, before: int | None) -> Iterator[Any]:
    """So many of the newest entries of the log; before an offset those of as many offsets."""
    request = inspection_pb2.ReadLogRequest(last=last)
    setattr(request, "from", -1 if before is None else max(0, before - last))
    for page in admin.inspect_stream("ReadLog", request):
        for entry in page.entries:
            if before is not None and entry.offset >= before:
                return
            yield entry


def _event(entry: Any) -> dict[str, Any]:
    return {
        "offset": entry.offset,
        "epoch": entry.epoch,
        "timestamp_ms": entry.timestamp_ms,
        "kind": entry.kind,
        "text": fields_text(json.loads(entry.json)),
    }


def _page(rows: Sequence[Any], query: Query, size: int) -> tuple[int, int, list[Any]]:
    pages = max(1, math.ceil(len(rows) / size))
    page = min(pages, max(1, _number(query.get("page", "1"), "page")))
    return page, pages, list(rows[(page - 1) * size : page * size])


def _number(text: str, name: str) -> int:
    if not text.isdecimal():
        raise WrongUsage(f"{name} is a number from 0 on, not {text!r}")
    return int(text)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _ago(now_ms: int, then_ms: int) -> int | None:
    return max(0, now_ms - then_ms) if then_ms >= 0 else None
