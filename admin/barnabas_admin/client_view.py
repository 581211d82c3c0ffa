"""What clients say of themselves: the metrics that those of a group, or those that name a topic, have pushed to the brokers (KIP-714).

May touch:  barnabas_wire.client.     Must not touch: printing, the admin service.
Invariants: a client is there once, with its last push and the sum of what it counted, whichever brokers it pushed to; a broker without
            a receiver, or one that does not answer, keeps no other from being asked; what a client did not push is left out.
Read next:  commands/explain.py, console/pages.py; barnabas_broker/telemetry/receiver.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_admin.progress import duration_text
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    PushingClient,
    Reading,
)

SHOWN_MAX = 10
"""Clients in words; of more the number is said."""


class Figure(NamedTuple):
    """Something that clients say, by the end of the metric's name."""

    name: str
    title: str
    unit: str
    metric: str


TOTAL = ".total"
"""How the names of metrics end that count."""
FIGURES = (
    Figure("latency_ms", "request latency", "ms", ".request.latency.avg"),
    Figure("latency_max_ms", "at most", "ms", ".request.latency.max"),
    Figure("fetch_latency_ms", "fetch latency", "ms", ".fetch.manager.fetch.latency.avg"),
    Figure("queue_ms", "records wait", "ms", ".record.queue.time.avg"),
    Figure("throttle_ms", "throttled", "ms", ".throttle.time.avg"),
    Figure("retries", "record retries", "", ".record.retry.total"),
    Figure("errors", "record errors", "", ".record.error.total"),
    Figure("rebalances", "rebalances", "", ".coordinator.rebalance.total"),
    Figure("rebalance_ms", "rebalance latency", "ms", ".coordinator.rebalance.latency.avg"),
    Figure("commit_ms", "commit latency", "ms", ".coordinator.commit.latency.avg"),
    Figure("lag", "records behind", "", ".fetch.manager.records.lag.max"),
    Figure("poll_gap_ms", "between polls at most", "ms", ".time.between.poll.max"),
    Figure("poll_idle", "share of time between polls idle", "", ".poll.idle.ratio.avg"),
)
"""The greatest counts where a client says it of several nodes or partitions."""


async def read(client: ClusterClient, *, group: str | None = None, topic: str | None = None) -> list[dict[str, Any]]:
    """The clients of a group, or those that name a topic, by client id. Raises KafkaError, OSError where the metadata cannot be had, and
    KafkaError for who may not see the group or the topic."""
    view = await client.metadata()
    request = GetTelemetrySubscriptionsRequest(described_group=group, described_topic=topic)
    pushed: dict[bytes, list[tuple[PushingClient, int]]] = {}
    asked = await asyncio.gather(*(_ask(client, request, broker_id) for broker_id in sorted(view.brokers)))
    for broker_id, found in asked:
        for each in found:
            pushed.setdefault(each.client_instance_id, []).append((each, broker_id))
    rows = [_row(each, topic) for each in pushed.values()]
    return sorted(rows, key=lambda row: (row["client"], row["instance"]))


def facts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """In words, a line for each."""
    said = [_words(row) for row in rows[:SHOWN_MAX]]
    if len(rows) > SHOWN_MAX:
        said.append(f"and {len(rows) - SHOWN_MAX} clients more")
    return said


def figures_text(row: Mapping[str, Any]) -> str:
    """What one client says, in one line."""
    return ", ".join(_figures_in_words(row["figures"])) or "nothing that is known here by name: see /metrics"


async def _ask(
    client: ClusterClient, request: GetTelemetrySubscriptionsRequest, broker_id: int
) -> tuple[int, list[PushingClient]]:
    try:
        answer = await client.call(request, broker_id=broker_id)
    except KafkaError as error:
        if error.code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise
        return broker_id, []  # it has no receiver, or runs a former version
    except (OSError, TimeoutError):
        return broker_id, []  # whether it serves is said elsewhere
    return broker_id, answer.clients or []


def _row(pushed: Sequence[tuple[PushingClient, int]], topic: str | None) -> dict[str, Any]:
    found, broker_id = min(pushed, key=lambda each: each[0].pushed_ago_ms)
    figures = _figures(found.readings, topic)
    for figure in FIGURES:
        if figure.metric.endswith(TOTAL):  # each broker has the growth that was pushed to it
            heard = [_figures(each.readings, topic).get(figure.name) for each, _ in pushed]
            if counted := [each for each in heard if each is not None]:
                figures[figure.name] = sum(counted)
    return {
        "client": found.client_id,
        "host": found.client_host,
        "instance": str(found.client_instance_id),
        "software": found.software,
        "group": found.group_id or None,
        "member": found.member_id or None,
        "broker": broker_id,
        "pushed_ago_ms": found.pushed_ago_ms,
        "figures": figures,
    }


def _figures(readings: Sequence[Reading], topic: str | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for figure in FIGURES:
        values = [
            each.value
            for each in readings
            if each.metric.endswith(figure.metric) and each.topic in ("", topic or each.topic)
        ]
        if values:
            found[figure.name] = max(values)
    return found


def _words(row: Mapping[str, Any]) -> str:
    ago = duration_text(row["pushed_ago_ms"] / 1000)
    return f"client {row['client']} at {row['host']} ({row['software']}) said {ago} ago: {figures_text(row)}"


def _figures_in_words(figures: Mapping[str, float]) -> Iterator[str]:
    for figure in FIGURES:
        if figure.name in figures:
            yield f"{figure.title} {figures[figure.name]:.4g}{' ' if figure.unit else ''}{figure.unit}"
