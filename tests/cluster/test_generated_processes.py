"""Each process that `barnabas generate` has others start, started as they would: its command, user, environment, filter and file system.

What is not theirs here: systemd, Docker, Kubernetes (tests/support/confined.py stands for them), several machines, an image.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.generating.container import DATA, USER_ID, dockerfile
from tests.admin.test_generate import documents_of, generated, pod_environment
from tests.support import seccomp
from tests.support.confined import BIN, IS_POSSIBLE, Confinement

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not IS_POSSIBLE, reason="needs root, namespaces, and x86-64 for the numbers of system calls"),
]

TIMEOUT_S = 60.0
UNIT_USER_ID = 10002
ENTRYPOINT = json.loads(re.search(r"^ENTRYPOINT (.*)$", dockerfile(), re.MULTILINE)[1])  # type: ignore[index]
IMAGE_CHECK = json.loads(re.search(r"HEALTHCHECK.*?CMD (\[.*?\])$", dockerfile(), re.MULTILINE | re.DOTALL)[1])  # type: ignore[index]


def eventually(is_so: Callable[[], bool], what: str, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: {log.read_text()[-3000:]}"
        time.sleep(0.3)


@contextmanager
def running(
    place: Confinement, command: list[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Stopped by SIGTERM, in order."""
    process = place.start(command, environment, log)
    try:
        yield process
        assert process.poll() is None, log.read_text()[-3000:]
        process.send_signal(signal.SIGTERM)
        # The console's server lets the signal end it once it is done.
        assert process.wait(TIMEOUT_S) in ((0, -signal.SIGTERM) if "console" in command else (0,)), log.read_text()[
            -3000:
        ]
    finally:
        process.kill()
        process.wait()


def answers(place: Confinement, port: int, path: str, host: str = "localhost") -> bool:
    """Whether a probe is content, asked as the kubelet does."""
    code = (
        "import urllib.request; r = urllib.request.Request("
        f"'http://127.0.0.1:{port}{path}', headers={{'Host': '{host}'}}); urllib.request.urlopen(r, timeout=4)"
    )
    return place.run(["python", "-c", code]).returncode == 0


def it_serves(place: Confinement, admin: str, brokers: str, log: Path) -> None:
    """A topic is made, written and read; the cluster is well."""
    environment = {"BARNABAS_ADMIN": admin, "BARNABAS_BROKERS": brokers, "HOME": "/tmp"}

    def barnabas(*words: str) -> subprocess.CompletedProcess[str]:
        return place.run(["barnabas", *words], environment)

    eventually(lambda: barnabas("cluster", "health").returncode == 0, "the cluster to be well", log)
    made = barnabas("topic", "create", "t", "-p", "2", "-c", "cleanup.policy=compact")
    assert made.returncode == 0, made.stderr
    script = "for n in 1 2 3; do echo key:$n; done | barnabas topic produce t --key-separator :"
    written = place.run(["sh", "-c", script], environment)
    assert written.returncode == 0, written.stderr
    read = barnabas("topic", "consume", "t", "--from-beginning", "-n", "3", "-o", "json")
    assert read.returncode == 0 and read.stdout.count('"value"') == 3, read.stdout + read.stderr


def test_the_units_process_lives_under_what_the_unit_sets(tmp_path: Path) -> None:
    unit = generated("systemd", "--server", str(BIN / "barnabas-server"), "--config-directory", "/srv/barnabas")[
        "barnabas.service"
    ]
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert (settings["ProtectSystem"], settings["StateDirectory"], settings["LogsDirectory"]) == (
        "strict",
        "barnabas",
        "barnabas",
    )
    assert (settings["ProtectProc"], settings["ProcSubset"], settings["UMask"]) == ("invisible", "pid", "0077")
    config, state = tmp_path / "config", tmp_path / "state"
    config.mkdir()
    properties = config / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\nadmin.listeners=127.0.0.1:9190\nmetrics.listeners=127.0.0.1:9464\n"
        "log.dirs=/var/lib/barnabas/data\nlog.file=/var/log/barnabas/node.log\n"
    )
    for each in (config, properties):
        os.chown(each, UNIT_USER_ID, UNIT_USER_ID)
        each.chmod(0o700 if each.is_dir() else 0o600)
    log = tmp_path / "node.out"
    place = Confinement(
        tmp_path,
        user=UNIT_USER_ID,
        kind="unit",
        writable={"/var/lib/barnabas": state, "/var/log/barnabas": tmp_path / "logs"},
        read_only={"/srv/barnabas": config},
        has_bare_proc=True,
    )
    with place, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(state / "notify"))
        (state / "notify").chmod(0o666)
        manager.settimeout(TIMEOUT_S)
        words = ["barnabas", "storage", "format", "-c", "/srv/barnabas/server.properties", "--standalone"]
        formatted = place.run(words)
        assert formatted.returncode == 0, formatted.stderr
        environment = {"NOTIFY_SOCKET": "/var/lib/barnabas/notify", "WATCHDOG_USEC": "60000000"}
        with running(place, shlex.split(settings["ExecStart"]), environment, log):
            told = ""
            while "READY=1" not in told:
                told += manager.recv(4096).decode() + "\n"
            it_serves(place, "127.0.0.1:9190", "127.0.0.1:9092", log)
        # Without these all of it proves little.
        assert place.run(["touch", "/usr/x"]).returncode != 0 and place.run(["id", "-u"]).stdout == f"{UNIT_USER_ID}\n"
        assert "PermissionError" in place.run(["python", "-c", "import os; os.nice(1)"]).stderr
        assert "STOPPING=1" in drained(manager)
    assert (tmp_path / "logs" / "node.log").exists()


def test_the_hosts_unit_lets_its_process_start_pin_and_watch_over_brokers(tmp_path: Path) -> None:
    unit = generated("systemd", "--server", str(BIN / "barnabas-server"), "--config-directory", "/srv/barnabas")[
        "barnabas-host.service"
    ]
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert settings["SystemCallFilter"] == " ".join(seccomp.OF_A_HOST), "the last line allows what the host needs"
    config, state = tmp_path / "config", tmp_path / "state"
    config.mkdir()
    properties = config / "host.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.node.id=100\nbrokers=1\nhost.pin.cores=true\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\nlog.dirs=/var/lib/barnabas\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
    )
    for each in (config, properties):
        os.chown(each, UNIT_USER_ID, UNIT_USER_ID)
        each.chmod(0o700 if each.is_dir() else 0o600)
    log = tmp_path / "host.out"
    place = Confinement(
        tmp_path,
        user=UNIT_USER_ID,
        kind="host",
        writable={"/var/lib/barnabas": state, "/var/log/barnabas": tmp_path / "logs"},
        read_only={"/srv/barnabas": config},
        has_bare_proc=True,
    )
    format_for = f"{random_uuid()}/100@127.0.0.1:9093:{random_uuid()}"
    with place, running(place, shlex.split(settings["ExecStart"]), {"BARNABAS_FORMAT_FOR": format_for}, log):
        it_serves(place, "127.0.0.1:9190", "127.0.0.1:9092", log)
        asked = place.run(["barnabas", "host", "status", "-c", "/srv/barnabas/host.properties", "-o", "json"])
        assert asked.returncode == 0, asked.stderr
        nodes = {node["name"]: node for node in json.loads(asked.stdout)["nodes"]}
        assert os.sched_getaffinity(nodes["broker-1"]["pid"]) == {nodes["broker-1"]["core"]}
        assert nodes["controller-100"]["core"] is None and nodes["controller-100"]["memory_bytes"] is not None


def drained(manager: socket.socket) -> str:
    manager.setblocking(False)
    told = ""
    while True:
        try:
            told += manager.recv(4096).decode() + "\n"
        except BlockingIOError:
            return told


def test_the_compose_files_containers_run_and_are_found_healthy(tmp_path: Path) -> None:
    files = generated("compose", "-n", "1")
    services = yaml.safe_load(files["compose.yml"])["services"]
    node, console = services["node-1"], services["console"]
    first_start = files["first-start.env"].strip().partition("=")[2]
    environment = {**node["environment"], "BARNABAS_FORMAT_FOR": first_start}
    (volume,) = node["volumes"]
    assert volume.endswith(f":{DATA}")
    log = tmp_path / "node.out"
    place = Confinement(
        tmp_path, user=USER_ID, kind="container", writable={DATA: tmp_path / "state"}, hosts=["node-1", "prometheus"]
    )
    with place:
        with running(place, ENTRYPOINT, environment, log):
            assert (IMAGE_CHECK[0], "healthcheck" in node) == ("python", False), "a node has the image's own"
            eventually(lambda: place.run(IMAGE_CHECK).returncode == 0, "the node to be healthy", log)
            it_serves(place, "node-1:9190", "node-1:9092", log)
            with running(place, console["entrypoint"], {"HOME": DATA}, tmp_path / "console.out"):
                kind, *check = console["healthcheck"]["test"]
                assert kind == "CMD"
                eventually(
                    lambda: place.run(check).returncode == 0, "the console to be healthy", tmp_path / "console.out"
                )
        with running(place, ENTRYPOINT, {**environment, "BARNABAS_FORMAT_FOR": ""}, log):
            eventually(lambda: place.run(IMAGE_CHECK).returncode == 0, "it to come back without first-start.env", log)


def test_the_pods_of_kubernetes_run_and_are_found_ready(tmp_path: Path) -> None:
    files = generated("k8s", "--controllers", "1", "--brokers", "1", "--external", "nodeport", "--console")
    documents = documents_of(files["barnabas.yaml"])
    (secret,) = documents_of(files["first-start.once"])
    sets: dict[str, Any] = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in documents
        if each["kind"] in ("StatefulSet", "Deployment")
    }
    for pod in sets.values():
        assert pod["securityContext"]["runAsUser"] == USER_ID and pod["securityContext"]["seccompProfile"] == {
            "type": "RuntimeDefault"
        }
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"][
            "capabilities"
        ] == {"drop": ["ALL"]}
        assert {each["mountPath"] for each in container["volumeMounts"]} == {DATA, "/tmp"}
    places: dict[str, dict[str, str]] = {}
    for name, first in (("barnabas-controller", 101), ("barnabas-broker", 1)):
        facts = {
            "metadata.name": f"{name}-{first}",
            "metadata.labels['apps.kubernetes.io/pod-index']": str(first),
            "status.hostIP": "127.0.0.1",
        }
        places[name] = pod_environment(sets[name]["containers"][0], facts, is_command_run=True)
    places["barnabas-controller"]["BARNABAS_FORMAT_FOR"] = secret["stringData"]["format-for"]
    # Pods have a network each, and here both are in one.
    places["barnabas-broker"] |= {"KAFKA_ADMIN_LISTENERS": "0.0.0.0:9191", "KAFKA_METRICS_LISTENERS": "0.0.0.0:9465"}
    hosts = [
        "barnabas-controller-101.barnabas-controllers.default.svc.cluster.local",
        "barnabas-broker-1.barnabas-brokers.default.svc.cluster.local",
    ]
    metrics = {"barnabas-controller": 9464, "barnabas-broker": 9465}
    data = tmp_path / "state"
    place = Confinement(tmp_path, user=USER_ID, kind="container", writable={DATA: data}, hosts=hosts)
    for name in places:
        (data / name).mkdir()
        os.chown(data / name, USER_ID, USER_ID)
        places[name]["KAFKA_LOG_DIRS"] = f"{DATA}/{name}/data"  # a volume each
    log, broker_log, console_log = (tmp_path / f"{each}.out" for each in ("controller", "broker", "console"))
    commands = {name: sets[name]["containers"][0].get("command", ENTRYPOINT) for name in places}
    with (
        place,
        running(place, commands["barnabas-controller"], places["barnabas-controller"], log),
        running(place, commands["barnabas-broker"], places["barnabas-broker"], broker_log),
    ):
        for name, port in metrics.items():
            (container,) = sets[name]["containers"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                eventually(lambda port=port, path=path: answers(place, port, path), f"{name} {path}", broker_log)  # type: ignore[misc]
        it_serves(place, f"{hosts[0]}:9190", f"{hosts[1]}:9092", broker_log)
        (container,) = sets["barnabas-console"]["containers"]
        with running(place, container["command"], {"HOME": DATA}, console_log):
            probe = container["readinessProbe"]["httpGet"]
            (host,) = [each["value"] for each in probe["httpHeaders"]]
            eventually(lambda: answers(place, 8080, probe["path"], host), "the console to be ready", console_log)
            assert not answers(place, 8080, "/overview.json", "barnabas-console"), "a foreign name is refused"
