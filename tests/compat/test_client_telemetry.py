"""librdkafka pushes its metrics, as it does by default, and they are seen: on /metrics, by the command line, in the console."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.console import pages, topics
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from barnabas_admin.main import cli
from barnabas_wire.client.security import ClientSecurity
from tests.compat.samples import DEADLINE_S
from tests.support.clusters import ForkedCluster

PREFIX = "org.apache.kafka."


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """With a receiver on each of two brokers: a client pushes to either."""
    overrides = {"telemetry.receiver": "true", "group.initial.rebalance.delay.ms": "0"}
    directory = tmp_path_factory.mktemp("telemetry")
    with ForkedCluster(directory, nodes=2, base_port=find_base_port(), overrides=overrides) as running:
        yield running


def run(cluster: LocalCluster, *arguments: str) -> Any:
    found = CliRunner().invoke(cli, [*arguments, "--admin", cluster.admin_addresses, "-o", "json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def metrics(cluster: LocalCluster) -> str:
    """/metrics of all nodes."""
    return "".join(
        urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_port}/metrics", timeout=DEADLINE_S).read().decode()
        for node in cluster.nodes.values()
    )


def wait_until(is_there: Callable[[], Any], beat: Callable[[], object]) -> Any:
    """What is there at last; `beat` keeps the clients at work."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := is_there()):
        assert time.monotonic() < deadline_s, "it is not there"
        beat()
    return found


async def told_in_console(cluster: LocalCluster) -> tuple[list[str], list[str]]:
    """The clients on the group's page, and on the topic's."""
    console = ConsoleCluster(
        lambda: AdminClient(cluster.admin_addresses, timeout_s=DEADLINE_S),
        brokers=None,
        security=ClientSecurity(),
        timeout_s=DEADLINE_S,
    )
    try:
        group = await pages.group(console, {"group": "readers"})
        topic = await topics.topic(console, {"topic": "telemetry", "tab": "consumers"})
    finally:
        await console.close()
    return [each["client"] for each in group["clients"]], [each["client"] for each in topic["clients"]]


def test_what_librdkafka_pushes_is_seen_everywhere(cluster: LocalCluster) -> None:
    run(
        cluster,
        "cluster",
        "client-metrics",
        "set",
        "all",
        "metrics=*",
        "interval.ms=300",
        "match=client_id=reader|writer",
    )
    assert run(cluster, "cluster", "client-metrics", "list") == {"api_version": "v1", "subscriptions": ["all"]}
    rows = run(cluster, "cluster", "client-metrics", "get", "all")["configs"]
    assert {row["key"]: row["value"] for row in rows} == {
        "interval.ms": "300",
        "match": "client_id=reader|writer",
        "metrics": "*",
    }
    server = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = Producer({**server, "client.id": "writer"})
    consumer = Consumer({**server, "client.id": "reader", "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["telemetry"])

    def beat() -> None:
        producer.produce("telemetry", b"x")
        producer.poll(0)
        consumer.poll(0.05)

    def said() -> Any:
        clients = run(cluster, "explain", "group", "readers")["clients"]
        return clients if clients and clients[0]["figures"].get("fetch_latency_ms") else None

    wait_until(consumer.assignment, beat)
    (client,) = wait_until(said, beat)
    assert (client["client"], client["group"]) == ("reader", "readers")
    assert client["software"].startswith("confluent-kafka-python")
    assert 0 <= client["figures"]["poll_idle"] <= 1
    facts = run(cluster, "explain", "group", "readers")["facts"]
    assert any("client reader at 127.0.0.1" in fact and "fetch latency" in fact for fact in facts)

    page = wait_until(
        lambda: text if f"{PREFIX}producer.request.latency.avg" in (text := metrics(cluster)) else "", beat
    )
    assert 'client="reader"' in page and 'group="readers"' in page
    assert f'metric="{PREFIX}consumer.coordinator.rebalance.latency.avg"' in page
    assert "barnabas_client_metric_growth_total{" in page
    assert 'barnabas_client_telemetry_pushes_total{result="refused"} 0.0' in page

    assert asyncio.run(told_in_console(cluster)) == (["reader"], [])
    consumer.close()
    assert run(cluster, "explain", "group", "readers")["clients"], "its last push stays for a while"
    producer.flush()
    run(cluster, "cluster", "client-metrics", "delete", "all")
    assert run(cluster, "cluster", "client-metrics", "list")["subscriptions"] == []
