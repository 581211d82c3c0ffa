"""A node whose network is cut, in networks of their own: what is explained on either side, and that a dead process is told from it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.local_node import node_environment

TIMEOUT_S = 60.0
NODES = (1, 2, 3)


def ip(*words: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=check).returncode == 0


def can_have_networks() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"bt{os.getpid()}"
    try:
        return ip("netns", "add", name, check=False) and ip(
            "-n", name, "link", "add", "name", "switch0", "type", "bridge", check=False
        )
    finally:
        ip("netns", "delete", name, check=False)


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_have_networks(), reason="needs root, namespaces of networks, and bridges"),
]

CLIENT = """
import json, sys
from barnabas_wire.client.blocking import BlockingCluster
brokers = BlockingCluster(sys.argv[1]).metadata([]).brokers.values()  # librdkafka may ask a broker that it was told of
print(json.dumps({broker.id: broker.host for broker in brokers}))
"""


class Machines:
    """Three, each a network namespace at a switch; a broker and a controller on each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._prefix = f"bn{os.getpid()}"
        voters = ",".join(f"{node}@{self.host(node)}:9093:{random_uuid()}" for node in NODES)
        self._first_start = f"{random_uuid()}/{voters}"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @staticmethod
    def host(node: int) -> str:
        return f"10.77.0.{node}"

    def network(self, node: int) -> str:
        return f"{self._prefix}-{node}"

    def make(self) -> None:
        switch = self.network(0)
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "name", "switch0", "type", "bridge")
        ip("-n", switch, "link", "set", "dev", "switch0", "up")
        for node in NODES:
            own = self.network(node)
            ip("netns", "add", own)
            ip(
                "link",
                "add",
                "name",
                "up0",
                "netns",
                own,
                "type",
                "veth",
                "peer",
                "name",
                f"port{node}",
                "netns",
                switch,
            )
            ip("-n", switch, "link", "set", "dev", f"port{node}", "master", "switch0", "up")
            ip("-n", own, "address", "add", f"{self.host(node)}/24", "dev", "up0")
            for link in ("lo", "up0"):
                ip("-n", own, "link", "set", "dev", link, "up")

    def plug(self, node: int, state: str) -> None:
        """`up` or `down`, at the switch: the machine itself sees packets that nobody answers."""
        ip("-n", self.network(0), "link", "set", "dev", f"port{node}", state)

    def start(self, node: int) -> None:
        host = self.host(node)
        environment = node_environment() | {
            "BARNABAS_FORMAT_FOR": self._first_start,
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_NODE_ID": str(node),
            "KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:9092,CONTROLLER://{host}:9093",
            "KAFKA_ADVERTISED_LISTENERS": "auto",
            "KAFKA_CONTROLLER_LISTENERS_ALLOW_REMOTE": "true",
            "KAFKA_ADMIN_LISTENERS_ALLOW_REMOTE": "true",
            "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": ",".join(f"{self.host(each)}:9093" for each in NODES),
            "KAFKA_ADMIN_LISTENERS": f"{host}:9190",
            "KAFKA_METRICS_LISTENERS": f"{host}:9464",
            "KAFKA_LOG_DIRS": str(self._directory / str(node)),
            "KAFKA_LOG_FILE": str(self._directory / f"{node}.log"),
        }
        words = ["ip", "netns", "exec", self.network(node), sys.executable, "-m", "barnabas_broker.main"]
        self.processes[node] = subprocess.Popen(words, env=environment)

    def ask(self, node: int, *words: str) -> dict[str, Any]:
        """A command on that machine, asking its own node; empty where that does not answer."""
        where = ["ip", "netns", "exec", self.network(node), sys.executable, "-m", "barnabas_admin.main"]
        done = subprocess.run(
            [*where, *words, "--admin", f"{self.host(node)}:9190", "-o", "json"], capture_output=True, text=True
        )
        return dict(json.loads(done.stdout)) if done.stdout else {}

    def brokers_told(self, node: int, host: str) -> dict[int, str]:
        """Where the brokers are, as a client on that machine hears that comes to this address of its own node."""
        words = ["ip", "netns", "exec", self.network(node), sys.executable, "-c", CLIENT, f"{host}:9092"]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return {int(broker): address for broker, address in found.items()}

    def until(self, node: int, words: tuple[str, ...], **wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while not wanted.items() <= (found := self.ask(node, *words)).items():
            assert time.monotonic() < deadline, found
            time.sleep(0.3)
        return found

    def remove(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for node in (0, *NODES):
            ip("netns", "delete", self.network(node), check=False)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    try:
        made.make()
        for node in NODES:
            made.start(node)
        yield made
    finally:
        made.remove()


def test_each_client_is_told_the_address_that_it_came_to_and_brokers_one_that_leads_to_them(machines: Machines) -> None:
    machines.until(1, ("cluster", "health"), healthy=True, brokers=[1, 2, 3])
    registered = {node: machines.host(node) for node in NODES}
    assert machines.brokers_told(1, machines.host(1)) == registered
    assert machines.brokers_told(1, "127.0.0.1") == registered | {1: "127.0.0.1"}


@pytest.mark.parametrize("was_active", [False, True])
def test_a_cut_network_is_told_from_a_dead_process_on_either_side(was_active: bool, machines: Machines) -> None:
    """was_active: the cut node's controller led, so that the next one has never heard of its broker."""
    well = machines.until(1, ("cluster", "health"), healthy=True, brokers=[1, 2, 3])
    cut = next(node for node in NODES if (node == well["controller_id"]) is was_active)
    asked = next(node for node in NODES if node not in (cut, well["controller_id"]))
    machines.plug(cut, "down")
    found = machines.until(asked, ("explain", "broker", str(cut)), status="fenced")
    assert "its heartbeats fell silent; is the network cut?" in found["summary"], found
    assert "network" in found["next"][0]["purpose"] and not found["next"][0]["command"]
    said = json.dumps(found)
    assert "nobody listened" not in said and "no process" not in said

    alone = machines.until(cut, ("explain", "leader"), status="majority-missing")
    assert "may have a leader" in alone["summary"], alone
    assert alone["next"][0]["purpose"].startswith("look at the network")
    assert not [step for step in alone["next"] if "recover" in (step["command"] or "")], alone["next"]

    machines.plug(cut, "up")
    machines.until(asked, ("cluster", "health"), healthy=True)
    machines.processes[cut].kill()
    machines.processes[cut].wait()
    found = machines.until(asked, ("explain", "broker", str(cut)), status="fenced")
    assert f"its host answers, and no process listens at {machines.host(cut)}:9092" in found["summary"], found
    assert found["next"][0]["command"] == "barnabas-server -c FILE"
