"""`storage init --secure --hosts`: what it writes starts as it stands, and is closed from its first second."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from barnabas_admin.errors import WrongUsage
from barnabas_admin.local_node import node_environment, server_command
from barnabas_admin.main import cli
from barnabas_admin.secured_files import plan

TIMEOUT_S = 90.0


@pytest.mark.parametrize(("machines", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (7, 5)])
def test_voters_are_an_odd_number_and_each_machine_has_a_broker(machines: int, voters: int) -> None:
    nodes = plan([f"h{number}" for number in range(machines)])
    assert [node.id for node in nodes if not node.is_broker] == [101 + index for index in range(voters)]
    assert [(node.id, node.host) for node in nodes if node.is_broker] == [(1 + n, f"h{n}") for n in range(machines)]


@pytest.mark.parametrize("hosts", [["a", "a"], ["a", ""], ["-oProxyCommand=x"], ["a b"]])
def test_what_is_no_machine_is_refused(hosts: list[str]) -> None:
    with pytest.raises(WrongUsage):
        plan(hosts)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    words = ["storage", "init", str(tmp_path / "made"), "--secure", "--hosts", "a.example"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    again = CliRunner().invoke(cli, words)
    assert again.exit_code == 1 and "nothing was written" in again.stderr
    for wrong in (["--secure"], ["--hosts", "a"]):
        assert CliRunner().invoke(cli, ["storage", "init", str(tmp_path / "other"), *wrong]).exit_code == 2
    assert not (tmp_path / "other").exists()


@pytest.mark.cluster
def test_the_cluster_starts_by_these_files_alone(tmp_path: Path) -> None:
    made = tmp_path / "made"
    net = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(200) + 20}"
    hosts = [f"{net}.{number}" for number in (1, 2, 3)]
    words = [
        "storage",
        "init",
        str(made),
        "--secure",
        "--hosts",
        ",".join(hosts),
        "--data",
        str(tmp_path / "data"),
        "-o",
        "json",
    ]
    files = [Path(each) for each in json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)["files"]]
    assert (
        len([file for file in files if file.parent.name == "pki" and file.name != "ca-key.pem"]) == 8
    )  # six nodes, admin, ca
    public = {made / "pki" / "ca.pem", made / "profile.sh", *(made / "prometheus").iterdir()}
    assert {file for file in files if file.stat().st_mode & 0o077} == public
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    processes = {}
    try:
        for node in (101, 102, 103, 1, 2, 3):
            if node > 100:
                first = ["sh", str(made / "first-start.sh"), str(node)]
                subprocess.run(first, check=True, capture_output=True, env=dict(os.environ) | {"PATH": path})
            properties = made / "config" / f"node-{node}.properties"
            with (tmp_path / f"{node}.log").open("wb") as log:
                processes[node] = subprocess.Popen(
                    server_command("-c", str(properties)), env=node_environment(), stdout=log, stderr=log
                )
        script = f'. "{made}/profile.sh"; exec barnabas "$@"'

        def barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["sh", "-c", script, "sh", *arguments],
                capture_output=True,
                text=True,
                env=dict(os.environ) | {"PATH": path},
            )

        deadline = time.monotonic() + TIMEOUT_S
        while (done := barnabas("cluster", "health", "-o", "json")).returncode != 0 or len(
            json.loads(done.stdout)["brokers"]
        ) < 3:
            assert time.monotonic() < deadline, done.stdout + done.stderr + (tmp_path / "1.log").read_text()[-2000:]
            time.sleep(0.5)
        assert barnabas("topic", "create", "t", "-p", "3").returncode == 0
        login = dict(line.split("=", 1) for line in (made / "librdkafka.properties").read_text().splitlines())
        servers = {"bootstrap.servers": f"{hosts[0]}:9092", "log_level": 0}
        producer = Producer(servers | login)
        producer.produce("t", b"kept", partition=0)
        assert producer.flush(30) == 0
        consumer = Consumer(servers | login | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert (found := consumer.poll(30)) is not None and found.value() == b"kept"
        consumer.close()
        stranger = Producer(servers | {"message.timeout.ms": 3000})
        lost: list[object] = []
        stranger.produce("t", b"never", on_delivery=lambda error, _: lost.append(error))
        stranger.flush(10)
        assert lost and lost[0] is not None, "who does not log in writes nothing"
        targets = (made / "prometheus" / "prometheus.yml").read_text()
        assert all(f"{host}:{port}" in targets for host in hosts for port in (9464, 9465))
    finally:
        for are_brokers in (True, False):
            part = [process for node, process in processes.items() if (node < 100) is are_brokers]
            for process in part:
                process.send_signal(signal.SIGTERM)
            for process in part:
                process.wait(TIMEOUT_S)
