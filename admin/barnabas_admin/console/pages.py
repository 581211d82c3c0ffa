"""What each page shows: one function per page, which asks the cluster and returns the dictionary that is also the JSON twin.

The pages of topics are in topics.py, the timeline in events.py.

May touch:  ConsoleCluster, History.  Must not touch: HTTP, templates.
Invariants: nothing here changes the cluster; who is active controller comes from the quorum, never from Metadata; a list is cut
            to a page before the brokers are asked about its entries.
Read next:  application.py, which calls them; templates/, which show them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas_admin import group_explanation
from barnabas_admin.client import AdminClient
from barnabas_admin.commands.cluster import by_host, describe_broker
from barnabas_admin.commands.explain import explanation_fields
from barnabas_admin.console import access as access_screens
from barnabas_admin.console import charts, sampler
from barnabas_admin.console import transactions as transaction_screens
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.events import read_events
from barnabas_admin.console.health import verdict
from barnabas_admin.console.query import Query, number_of, page_of
from barnabas_admin.console.questions import config_rows, described_groups, known, told_by_clients
from barnabas_admin.disks import read_totals
from barnabas_admin.errors import AdminError, WrongUsage
from barnabas_admin.groups import describe_group, list_groups
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import admin_pb2
from barnabas_wire.rpc.admin_verbs import describe_configs

GROUPS_PER_PAGE = 50
TRANSACTIONS_PER_PAGE = 100
LAGS_SHOWN = 6
CHARTS_MAX = 12
"""The most charts of the brokers' page: of more brokers the first."""
ALL_RECORDS = ("Records produced", "records/s", sampler.ALL, sampler.RECORDS)


async def overview(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """The health sentence with its reasons, the brokers, what happened last."""
    health, found, events = await asyncio.gather(
        cluster.admin(lambda admin: verdict(admin.describe_health())),
        cluster.admin(AdminClient.describe_cluster),
        cluster.admin(lambda admin: read_events(admin, last=8)),
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
            "log_end_offset": known(replica.log_end_offset),
            "lag_records": known(replica.lag_records),
            "fetched_ms_ago": _ago(found.described_at_ms, replica.last_fetch_timestamp_ms),
            "caught_up_ms_ago": _ago(found.described_at_ms, replica.last_caught_up_timestamp_ms),
        }
        for replica in found.replicas
    ]
    return {
        "leader_id": known(found.leader_id),
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
    grouped = by_host(rows)
    rows = [row for members in grouped.values() for row in members]
    # of hosts that are named, how many of their brokers are in service; a lone one is lost as a broker
    hosts = {
        host: 1 if len(members) == 1 else sum("fenced" not in row["state"] for row in members)
        for host, members in grouped.items()
        if host
    }
    wanted = [(f"Data of broker {row['id']}", "MiB", sampler.DATA, str(row["id"])) for row in rows[:CHARTS_MAX]]
    return {"brokers": rows, "hosts": hosts, "controller_id": known(found.controller_id)} | await charts.read_charts(
        cluster.history, query.get("span", "1h"), wanted
    )


async def broker(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """One broker: what it is and why, its directories, its configs."""
    broker_id = number_of(query["broker"], "broker")
    listed = (await cluster.admin(AdminClient.list_brokers)).brokers
    registered = next((each for each in listed if each.id == broker_id), None)
    if registered is None:
        raise AdminError(f"broker {broker_id} is not registered", code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    directories, explanation, configs = await asyncio.gather(
        _directories(cluster, registered),
        cluster.admin(lambda admin: explanation_fields(admin.explain_broker(broker_id))),
        _configs(cluster, registered, query.get("q", "")),
    )
    return {
        "broker": describe_broker(registered),
        "directories": directories,
        "explanation": explanation,
        "configs": configs,
        "q": query.get("q", ""),
    } | await charts.read_charts(
        cluster.history,
        query.get("span", "1h"),
        [("Time to answer", "ms", sampler.ANSWER, str(broker_id)), ("Data", "MiB", sampler.DATA, str(broker_id))],
    )


async def groups(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Consumer groups; lag is asked for those on the page."""
    text = query.get("q", "")
    rows = [row for row in await cluster.kafka(list_groups) if text in row["group"]]
    page, pages, shown = page_of(rows, query, GROUPS_PER_PAGE)
    described = await described_groups(cluster, shown)
    for row in shown:
        found = described.get(row["group"])
        row["members"] = None if found is None else len(found["members"])
        row["lag"] = None if found is None else found["total_lag"]
        row["topics"] = [] if found is None else sorted({each["topic"] for each in found["partitions"]})
    return {"groups": shown, "total": len(rows), "page": page, "pages": pages, "q": text}


async def group(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """One group: who owns which partition, how far behind it is, what one of the consumer protocol waits for, what
    its clients say of themselves."""
    name = query["group"]
    found = await cluster.kafka(lambda client: describe_group(client, name))
    found["why"] = []
    if found["type"] == "consumer":
        found["why"] = await cluster.kafka(lambda client: group_explanation.facts_of(client, name))
    found["clients"] = await told_by_clients(cluster, group=name)
    wanted = [("Lag", "records behind", sampler.LAG, name)]
    return found | await charts.read_charts(cluster.history, query.get("span", "1h"), wanted)


async def transactions(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Transactional ids with their state and coordinator."""
    text, state = query.get("q", ""), query.get("state", "")
    rows = await transaction_screens.read_transactions(cluster, state=state, contains=text)
    page, pages, shown = page_of(rows, query, TRANSACTIONS_PER_PAGE)
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


async def explain(cluster: ConsoleCluster, query: Query) -> dict[str, Any]:
    """Why something is as it is: the quorum's leader, a broker, a partition, a reassignment."""
    subject = query.get("subject", "leader")
    name, number = query.get("topic", ""), query.get("partition", "0")
    broker_id = query.get("broker", "")
    found: dict[str, Any] = {"subject": subject, "topic": name, "partition": number, "broker": broker_id}
    if subject == "leader":
        explanation = await cluster.admin(AdminClient.explain_leader)
    elif subject == "broker" and broker_id:
        wanted = number_of(broker_id, "broker")
        explanation = await cluster.admin(lambda admin: admin.explain_broker(wanted))
    elif subject == "partition" and name:
        index = number_of(number, "partition")
        explanation = await cluster.admin(lambda admin: admin.explain_partition(name, index))
    elif subject in ("broker", "partition"):
        return found | {"explanation": None}
    else:
        raise WrongUsage(f"nothing explains {subject!r}: leader, broker or partition")
    return found | {"explanation": explanation_fields(explanation)}


async def _configs(cluster: ConsoleCluster, broker: admin_pb2.Broker, text: str) -> list[dict[str, Any]]:
    """A broker's configs, which that broker alone knows; none of one that does not answer."""
    if broker.fenced:
        return []
    asking = describe_configs(
        admin_pb2.DescribeConfigsRequest(type=admin_pb2.RESOURCE_TYPE_BROKER, name=str(broker.id))
    )
    request = next(asking)
    try:
        asking.send(await cluster.kafka(lambda client: client.call(request, broker_id=broker.id)))
    except StopIteration as done:
        return config_rows(done.value.entries, text)
    except (KafkaError, OSError, TimeoutError):
        return []
    raise AssertionError("one request is all that it asks")


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


def _ago(now_ms: int, then_ms: int) -> int | None:
    return max(0, now_ms - then_ms) if then_ms >= 0 else None
