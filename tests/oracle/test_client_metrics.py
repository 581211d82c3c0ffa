"""Subscriptions of client metrics by Kafka's own tools, beside Apache Kafka."""

from __future__ import annotations

import re

from tests.oracle.apache import run_tool
from tests.oracle.conftest import Pair

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
