"""Subscriptions of client metrics by Kafka's own tools, beside Apache Kafka; and Java's clients, which push what is subscribed to."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from barnabas_admin import client_view
from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.client.cluster import ClusterClient
from tests.oracle.apache import run_tool
from tests.oracle.conftest import Pair
from tests.oracle.test_console_tools import Run, tool, topic

__all__ = ["tool", "topic"]  # fixtures

COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
SUBSCRIPTION = ("--entity-type", "client-metrics", "--entity-name", "tools")
STEPS: tuple[tuple[str, ...], ...] = (
    (COMMAND, "--alter", "--name", "tools", "--metrics", "org.apache.kafka.consumer.", "--interval", "5000"),
    (COMMAND, "--alter", "--name", "tools", "--match", "client_id=a.*,client_software_name=java"),
    (COMMAND, "--describe", "--name", "tools"),
    (COMMAND, "--describe"),
    (COMMAND, "--list"),
    (COMMAND, "--alter", "--name", "tools", "--interval", "7"),
    (COMMAND, "--alter", "--name", "tools", "--match", "colour=red"),
    (CONFIGS, "--describe", *SUBSCRIPTION),
    (CONFIGS, "--alter", *SUBSCRIPTION, "--add-config", "interval.ms=6000"),
    (CONFIGS, "--describe", *SUBSCRIPTION),
    (CONFIGS, "--alter", *SUBSCRIPTION, "--delete-config", "match"),
    (CONFIGS, "--describe", *SUBSCRIPTION),
    (COMMAND, "--delete", "--name", "tools"),
    (COMMAND, "--list"),
)
WORDS = re.compile(r"(Exception|Error while executing [^:]*|InvalidRequest|InvalidConfig): .*")
"""Of an error: what it is counts, not how it is put."""


def test_kafkas_tools_print_the_same_beside_both(pair: Pair) -> None:
    for step in STEPS:
        said = []
        for side in (pair.apache, pair.ours):
            output = run_tool(step[0], "--bootstrap-server", f"{side.host}:{side.port}", *step[1:])
            lines = [WORDS.sub(r"\1", line) for line in (output.stdout + output.stderr).splitlines()]
            said.append((output.exit_code, [line for line in lines if not line.lstrip().startswith("at ")]))
        assert said[0] == said[1], step


def test_javas_clients_push_and_are_seen(tool: Run, topic: str, cluster: LocalCluster) -> None:
    async def pushed() -> list[dict[str, Any]]:
        client = ClusterClient(cluster.bootstrap_servers, client_id="test")
        try:
            return await client_view.read(client, group=f"{topic}-readers")
        finally:
            await client.close()

    said = tool(COMMAND, "--alter", "--name", "all", "--metrics", "*", "--interval", "500")
    assert "Altered client metrics config for all." in said
    tool("org.apache.kafka.tools.ConsoleProducer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(50)))
    tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic, "--group", f"{topic}-readers", "--from-beginning", "--timeout-ms", "15000"),
        fails="Processed a total of 50 messages",
    )
    (row,) = asyncio.run(pushed())
    assert row["software"] == "apache-kafka-java 4.4.0" and row["group"] == f"{topic}-readers" and row["member"]
    assert row["figures"]["rebalances"] >= 1 and row["figures"]["fetch_latency_ms"] > 0
    assert {"lag", "poll_gap_ms", "latency_ms", "commit_ms"} <= row["figures"].keys()
    tool(COMMAND, "--delete", "--name", "all")
    assert tool(COMMAND, "--list").strip() == ""
