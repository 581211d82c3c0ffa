"""Nodes by fork: what exec would have given them, and what becomes of them when the server, the user or the package goes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_admin import forked
from barnabas_admin.forked import ForkServer, NotForked, fork_server
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.nursery import nursery

WAIT_S = 20.0


@pytest.fixture(scope="module")
def server() -> ForkServer:
    return ForkServer()


def until(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except FileNotFoundError:
        return True


def ask(server: ForkServer, *words: str, environment: dict[str, str]) -> tuple[int, str]:
    process: Any = server.popen(
        words, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    output, _ = process.communicate(WAIT_S)
    return process.returncode, output.decode()


def test_a_forked_server_has_the_environment_and_the_directory_of_who_asks(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node.properties").write_text(
        "process.roles=broker\nnode.id=1\nlog.dirs=/one\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\n"
    )
    monkeypatch.chdir(tmp_path)
    environment = {"KAFKA_BROKER_RACK": "here", "PATH": os.environ["PATH"]}
    status, output = ask(server, "check", "-c", "node.properties", "--values", "-o", "json", environment=environment)
    found = {row["key"]: (row["value"], row["source"]) for row in json.loads(output)["values"]}
    assert (status, found["broker.rack"]) == (0, ("here", "environment"))


def test_its_exit_status_and_its_words_come_back(server: ForkServer) -> None:
    status, output = ask(server, "check", environment={})
    assert (status == 2 and "node.id is required" in output) or "process.roles" in output, output


def test_a_line_of_its_own_in_ps_and_a_session_of_its_own(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=3, base_port=find_base_port()) as cluster:
        found = fork_server(starts=False)
        assert found is not None
        for node in cluster.nodes.values():
            assert node.process is not None
            pid = node.process.pid
            line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            assert line[:3] == [b"barnabas-server", b"-c", os.fsencode(node.properties_file)]
            assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]) == found._process.pid
            assert os.getsid(pid) == pid
        found._process.kill()  # as an operator may who looks for memory: the nodes go on, and are started by exec from now on
        found._process.wait()
        assert all(node.is_running for node in cluster.nodes.values())
        cluster.kill(2)
        cluster.start_node(2)
        cluster.wait_until_healthy()
        assert isinstance(cluster.nodes[2].process, subprocess.Popen)
    assert fork_server(starts=False) is None


def test_a_process_forks_the_only_node_of_its_later_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalCluster, "_starts", 0)
    monkeypatch.setattr(forked, "_servers", {})
    made = []
    for name in ("first", "second"):
        with LocalCluster(tmp_path / name, nodes=1, base_port=find_base_port()) as cluster:
            made.append(type(cluster.nodes[1].process))
    assert made == [subprocess.Popen, forked.ForkedProcess]


def say_random(words: list[str]) -> int:
    print(random.random(), flush=True)
    return 0


def test_two_forks_draw_other_numbers() -> None:
    drawn = set()
    for _ in range(2):
        process: Any = nursery().start(
            [], run="tests.admin.test_forked:say_random", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        drawn.add(process.communicate(WAIT_S)[0])
    assert len(drawn) == 2


@pytest.fixture
def upgraded() -> ForkServer:
    """A server whose package on disk becomes another one after its start."""
    code = """
import sys
from barnabas_broker.node import fork_server
found = iter([(1, 1), (2, 2)])
fork_server.installed_package = lambda: next(found)
fork_server.serve(int(sys.argv[1]), lambda request: 0)
"""
    return ForkServer([sys.executable, "-c", code])


def test_an_upgraded_package_is_not_run_from_memory(upgraded: ForkServer) -> None:
    with pytest.raises(NotForked, match="another one"):
        ask(upgraded, "check", environment={})


def test_a_server_that_ends_amid_a_request_has_started_nothing() -> None:
    code = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).recv(1)"
    with pytest.raises(NotForked, match="has ended"):
        ask(ForkServer([sys.executable, "-c", code]), "check", environment={})


def test_the_server_ends_with_the_process_that_uses_it() -> None:
    code = "from barnabas_admin.forked import ForkServer; import time; print(ForkServer()._process.pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        pid = int(user.stdout.readline())
        assert not is_gone(pid)
        user.send_signal(signal.SIGKILL)
    until(lambda: is_gone(pid))


def test_where_nodes_are_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_servers", {})
    assert fork_server(starts=False) is None
    for variable in ("BARNABAS_PORTABLE", "COVERAGE_PROCESS_START"):
        with monkeypatch.context() as here:
            here.setenv(variable, "1")
            assert fork_server(starts=True) is None
    with monkeypatch.context() as here:
        here.setattr(sys, "platform", "darwin")
        assert fork_server(starts=True) is None
