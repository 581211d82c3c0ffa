"""A node as a service manager and a container start it: configured by the environment alone, telling when it is ready."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.local_ports import find_base_port

pytestmark = pytest.mark.cluster

TIMEOUT_S = 60.0


def heard(manager: socket.socket, wanted: str) -> list[str]:
    """What the manager was told until a line was `wanted`."""
    lines: list[str] = []
    while wanted not in lines:
        lines += manager.recv(4096).decode().split("\n")
    return lines


def test_a_node_of_the_environment_says_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    port = find_base_port()
    log = tmp_path / "node.log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        environment = os.environ | {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "4000000",
            "BARNABAS_FORMAT_FOR": f"{random_uuid()}/1@127.0.0.1:{port + 1}:{random_uuid()}",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_NODE_ID": "1",
            "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": f"127.0.0.1:{port + 1}",
            "KAFKA_ADMIN_LISTENERS": f"127.0.0.1:{port + 2}",
            "KAFKA_METRICS_LISTENERS": f"127.0.0.1:{port + 3}",
            "KAFKA_LOG_DIRS": str(tmp_path / "data"),
            "KAFKA_LOG_FORMAT": "json",
            "KAFKA_LOG_FILE": str(log),
            "KAFKA_REQUEST_LOG_SAMPLE_EVERY": "1",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
        }
        node = subprocess.Popen([sys.executable, "-m", "barnabas_broker.main"], env=environment)
        try:
            before = heard(manager, "READY=1")
            assert "WATCHDOG=1" not in before
            producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            producer.produce("t", b"x")
            assert producer.flush(TIMEOUT_S) == 0, "it was ready when it said so"
            heard(manager, "WATCHDOG=1")
            began_s = time.monotonic()
            heard(manager, "WATCHDOG=1")
            assert time.monotonic() - began_s < 4, "within what the manager waits for"
            node.send_signal(signal.SIGTERM)
            heard(manager, "STOPPING=1")
            assert node.wait(TIMEOUT_S) == 0
        finally:
            node.kill()
            node.wait()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert {entry["node"] for entry in entries} == {1}
    assert not [entry for entry in entries if "not a key that barnabas knows" in entry["message"]]
    asked = [entry["message"] for entry in entries if entry["logger"] == "barnabas_broker.requests"]
    assert any(
        message.startswith("PRODUCE v") and "User:ANONYMOUS at 127.0.0.1 on PLAINTEXT" in message for message in asked
    )
    assert entries[-1]["message"] == "broker 1 has stopped cleanly"
