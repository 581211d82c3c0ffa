"""`barnabas top`: what happens now: brokers, replicas, moves, busy topics, groups that lag.

May touch:  the admin client, the brokers (offsets).   Must not touch: metrics listeners.
Invariants: one screen, renewed in place on a terminal; elsewhere a block for each look, so that a log of it reads well; a look that fails
            is said in its place and the next one is tried.
Read next:  cluster.py, group_offsets.py.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from barnabas_admin.commands.cluster import by_host
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_json, print_line
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient

TOPICS_SHOWN = 10
GROUPS_SHOWN = 10
PARTITIONS_MAX = 5000
"""Offsets of more partitions are not asked for: a look must stay short."""
CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.option(
    "-i", "--interval", "interval_s", type=click.FloatRange(min=0.2), default=2.0, metavar="SECONDS", help="Default 2."
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many looks; default: Ctrl-C.")
@common_options
def top(invocation: Invocation, interval_s: float, count: int | None) -> None:
    """Watch brokers, in-sync replicas, moves, busy topics and group lag, live."""
    before: dict[str, int] = {}
    before_s = time.monotonic()
    looks = 0
    while True:
        try:
            found = _look(invocation)
        except (KafkaError, OSError) as error:
            if looks == 0:
                raise
            print_line(f"no answer: {error}")
            found = None
        if found is not None:
            now_s = time.monotonic()
            _add_rates(found, before, now_s - before_s)
            before, before_s = found.pop("ends"), now_s
            if invocation.is_json:
                print_json(found)
            else:
                sys.stdout.write(CLEAR if sys.stdout.isatty() else "")
                print_line(screen(found))
            sys.stdout.flush()
        looks += 1
        if looks == count:
            return
        time.sleep(interval_s)


def _look(invocation: Invocation) -> dict[str, Any]:
    from barnabas_admin.commands.cluster import describe_broker
    from barnabas_admin.groups import describe_groups, list_groups
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.metadata import LATEST

    health = invocation.admin.describe_health()
    brokers = [describe_broker(broker) for broker in invocation.admin.list_brokers().brokers]
    moving = len(invocation.admin.list_reassignments())

    async def work(client: ClusterClient) -> tuple[dict[str, int], list[dict[str, Any]]]:
        view = await client.metadata()
        led = [
            TopicPartition(topic, index)
            for topic, partitions in view.topics.items()
            for index, partition in partitions.items()
            if partition.leader >= 0 and not topic.startswith("__")
        ]
        listed = await client.list_offsets(dict.fromkeys(led, LATEST)) if len(led) <= PARTITIONS_MAX else {}
        by_partition = {partition: int(offset.offset) for partition, offset in listed.items()}
        ends: dict[str, int] = {}
        for partition, end in by_partition.items():
            ends[partition.topic] = ends.get(partition.topic, 0) + end
        known = {group["group"]: group["coordinator"] for group in await list_groups(client)}
        return ends, list((await describe_groups(client, known, ends=by_partition)).values())

    ends, groups = run_with_cluster(invocation, work) if any(b["state"] != "fenced" for b in brokers) else ({}, [])
    lagging = sorted(groups, key=lambda group: -group["total_lag"])[:GROUPS_SHOWN]
    return {
        "timestamp_ms": int(time.time() * 1000),
        "healthy": health.is_healthy,
        "reasons": list(health.reasons),
        "controller_id": health.controller_id,
        "partitions": health.partitions,
        "leaderless": health.leaderless,
        "under_replicated": health.under_replicated,
        "under_min_isr": health.under_min_isr,
        "moving": moving,
        "brokers": brokers,
        "ends": ends,
        "groups": [
            {"group": g["group"], "state": g["state"], "members": len(g["members"]), "lag": g["total_lag"]}
            for g in lagging
        ],
    }


def _add_rates(found: dict[str, Any], before: dict[str, int], span_s: float) -> None:
    """Records per second of the busiest topics; None at the first look."""
    rates = {
        topic: (end - before[topic]) / span_s if topic in before and span_s > 0 else None
        for topic, end in found["ends"].items()
    }
    busiest = sorted(rates, key=lambda topic: (-(rates[topic] or 0.0), topic))[:TOPICS_SHOWN]
    found["topics"] = [
        {"topic": topic, "records_per_s": None if (rate := rates[topic]) is None else round(rate, 1)}
        for topic in busiest
    ]


def screen(found: dict[str, Any]) -> str:
    """One look as text."""
    verdict = "HEALTHY" if found["healthy"] else f"UNHEALTHY ({', '.join(found['reasons'])})"
    lines = [
        f"{time.strftime('%H:%M:%S', time.localtime(found['timestamp_ms'] / 1000))}  {verdict}  controller {found['controller_id']}",
        f"partitions {found['partitions']}  leaderless {found['leaderless']}  under-replicated {found['under_replicated']}  "
        f"under min ISR {found['under_min_isr']}  moving {found['moving']}",
        "",
        *_brokers(found["brokers"]),
        "",
        *_table(["TOPIC", "RECORDS/S"], [[t["topic"], t["records_per_s"]] for t in found["topics"]]),
        "",
        *_table(
            ["GROUP", "STATE", "MEMBERS", "LAG"],
            [[g["group"], g["state"], g["members"], g["lag"]] for g in found["groups"]],
        ),
    ]
    return "\n".join(lines)


def _brokers(brokers: list[dict[str, Any]]) -> list[str]:
    """Those of a host stand together, under its sum, where brokers name hosts."""
    columns = ["BROKER", "STATE", "LEADERS", "REPLICAS"]
    keys = ("id", "state", "leaders", "replicas")
    if not any(broker["host"] for broker in brokers):
        return _table(columns, [[broker[key] for key in keys] for broker in brokers])
    rows = []
    for host, members in by_host(brokers).items():
        serving = sum("fenced" not in each["state"] for each in members)
        sums = [sum(each[key] for each in members) for key in ("leaders", "replicas")]
        rows.append([host, "", f"{serving} of {len(members)} in service" if serving else "lost", *sums])
        rows += [["", *(broker[key] for key in keys)] for broker in members]
    return _table(["HOST", *columns], rows)


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    texts = [columns, *[["-" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in texts) for index in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
