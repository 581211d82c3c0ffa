"""Kafka's own producer aborts a transaction in which nothing was sent, while the one before is still being ended (KAFKA-18464)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from barnabas_admin.local_cluster import LocalCluster
from tests.oracle import apache

SOURCE = Path(__file__).with_name("EmptyAbort.java")
ROUNDS = 10


def test_an_abort_of_nothing_right_after_a_commit_fences_nobody(cluster: LocalCluster) -> None:
    done = subprocess.run(
        ["java", *apache.JAVA_FLAGS, apache.LOG_FLAG + "off", str(SOURCE), cluster.bootstrap_servers, str(ROUNDS)],
        env=apache.java_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == f"{ROUNDS} of {ROUNDS} went on", done.stdout + done.stderr[-2000:]
