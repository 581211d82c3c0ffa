"""The first start of a quorum is an act of once: an id that has voted never comes back by it, and who is told nothing has no vote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.errors import AdminError
from barnabas_admin.local_node import node_environment
from barnabas_admin.local_ports import find_base_port
from barnabas_wire.kafka.errors import KafkaError

pytestmark = pytest.mark.cluster

IDS = (101, 102, 103)
TIMEOUT_S = 60.0


class Controllers:
    """Three of them, each configured by its environment alone, as a container is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = find_base_port()
        self.directory_ids = {node: str(random_uuid()) for node in IDS}
        voters = ",".join(f"{node}@127.0.0.1:{self.at(node)}:{self.directory_ids[node]}" for node in IDS)
        self.first_start = f"{random_uuid()}/{voters}"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def at(self, node: int) -> int:
        return self.port + 3 * IDS.index(node)

    def data(self, node: int) -> Path:
        return self.directory / str(node)

    def log(self, node: int) -> str:
        return (self.directory / f"{node}.log").read_text()

    def start(self, *nodes: int, **more: str) -> None:
        for node in nodes:
            environment = node_environment() | more
            environment |= {
                "KAFKA_PROCESS_ROLES": "controller",
                "KAFKA_NODE_ID": str(node),
                "KAFKA_LISTENERS": f"CONTROLLER://0.0.0.0:{self.at(node)}",
                "KAFKA_ADVERTISED_LISTENERS": f"CONTROLLER://localhost:{self.at(node)}",
                "KAFKA_CONTROLLER_LISTENERS_ALLOW_REMOTE": "true",
                "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": ",".join(f"127.0.0.1:{self.at(each)}" for each in IDS),
                "KAFKA_ADMIN_LISTENERS": f"127.0.0.1:{self.at(node) + 1}",
                "KAFKA_METRICS_LISTENERS": f"127.0.0.1:{self.at(node) + 2}",
                "KAFKA_LOG_DIRS": str(self.data(node)),
                "KAFKA_LOG_FILE": str(self.directory / f"{node}.log"),
            }
            self.processes[node] = subprocess.Popen([sys.executable, "-m", "barnabas_broker.main"], env=environment)

    def stop(self, *nodes: int) -> None:
        for node in nodes:
            process = self.processes.pop(node)
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)

    def until(self, node: int, ask: Callable[[AdminClient], Any], *, what: str) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                with AdminClient(f"127.0.0.1:{self.at(node) + 1}", timeout_s=5.0) as admin:
                    if found := ask(admin):
                        return found
            except (AdminError, KafkaError):
                pass
            assert time.monotonic() < deadline, f"{what}: {self.log(node)[-1500:]}"
            time.sleep(0.2)


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    made = Controllers(tmp_path)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()


def roles(admin: AdminClient) -> dict[int, tuple[str, str]]:
    return {each.id: (each.role, each.directory_id) for each in admin.describe_quorum().replicas}


def test_a_voter_whose_volume_is_lost_comes_back_without_its_vote_whatever_is_applied_again(
    controllers: Controllers,
) -> None:
    controllers.start(*IDS, BARNABAS_FORMAT_FOR=controllers.first_start, BARNABAS_FORMAT_TO_JOIN="true")
    controllers.until(101, lambda admin: admin.describe_quorum().leader_id in IDS, what="the first leader")
    registered = controllers.until(
        101,
        lambda admin: (
            len(found := [each for each in admin.describe_cluster().controllers if each.registered]) == 3 and found
        ),
        what="every controller to be registered",
    )
    assert {(each.listeners[0].host, each.listeners[0].port) for each in registered} == {
        ("localhost", controllers.at(node)) for node in IDS
    }, "the advertised address, not the wildcard that is bound"

    first = controllers.directory_ids[103]
    former = {first}
    for lost, more in (
        (103, {"BARNABAS_FORMAT_FOR": controllers.first_start}),
        (103, {"BARNABAS_FORMAT_TO_JOIN": "true"}),
    ):
        controllers.stop(lost)
        shutil.rmtree(controllers.data(lost))
        controllers.start(lost, **more)
        found = controllers.until(
            lost,
            lambda admin: (
                any(
                    each.role == "observer" and each.id == 103 and each.directory_id not in former
                    for each in admin.describe_quorum().replicas
                )
                and admin.describe_quorum().replicas
            ),
            what="it to come as an observer",
        )
        former.update(each.directory_id for each in found if each.id == 103)  # the leader remembers it for a while
        voters = {each.id: each.directory_id for each in found if each.role != "observer"}
        assert voters == controllers.directory_ids, "the lost vote is still the lost directory's"
    assert "replace-voter 103" in controllers.log(103)
    environment = dict(os.environ) | {"BARNABAS_ADMIN": f"127.0.0.1:{controllers.at(101) + 1}"}
    words = [sys.executable, "-m", "barnabas_admin.main", "quorum", "replace-voter", "103"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert (
        controllers.until(101, lambda admin: roles(admin)[103][0] != "observer" and roles(admin)[103], what="its vote")[
            1
        ]
        != first
    )


def test_an_empty_controller_that_is_told_nothing_waits_for_its_quorum_and_a_broken_directory_is_left_alone(
    controllers: Controllers,
) -> None:
    controllers.start(103, BARNABAS_FORMAT_TO_JOIN="true")
    deadline = time.monotonic() + TIMEOUT_S
    while not (controllers.directory / "103.log").exists() or "it waits for its quorum" not in controllers.log(103):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not controllers.data(103).exists(), "nothing is formatted before a quorum answered"
    controllers.stop(103)

    controllers.data(103).mkdir()
    (controllers.data(103) / "meta.properties").write_text("of another")
    controllers.start(103, BARNABAS_FORMAT_FOR=controllers.first_start, BARNABAS_FORMAT_TO_JOIN="true")
    assert controllers.processes.pop(103).wait(TIMEOUT_S) == 2
    assert (controllers.data(103) / "meta.properties").read_text() == "of another"
