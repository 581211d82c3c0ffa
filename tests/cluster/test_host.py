"""A host with a broker for each core: started, hit, left without its parent, adopted, and stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas_admin.client import AdminClient
from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.local_node import node_environment, server_command
from barnabas_admin.local_ports import find_base_port

pytestmark = pytest.mark.cluster

TIMEOUT_S = 90.0
SECRET = "hush-hush"


def until(condition: Callable[[], object], what: str) -> None:
    ends_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < ends_s, what
        time.sleep(0.05)


class Host:
    """One host.properties, whatever process runs it."""

    def __init__(self, directory: Path, *, brokers: int, **more: str) -> None:
        self.directory = directory
        self.port = port = find_base_port()
        self.config = directory / "host.properties"
        self.config.touch(0o600)
        self.config.write_text(
            f"process.roles=broker,controller\ncontroller.node.id=1\nnode.id=101\nbrokers={brokers}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 20}\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{port + 20}\nadmin.listeners=127.0.0.1:{port + 40}\n"
            f"metrics.listeners=127.0.0.1:{port + 60}\nlog.dirs={directory / 'd'}\nhost.watchdog.ms=3000\n"
            f"ssl.key.password={SECRET}\n"
            + "".join(f"{key.replace('_', '.')}={value}\n" for key, value in more.items())
        )
        self.format_for = f"{random_uuid()}/1@127.0.0.1:{port + 20}:{random_uuid()}"
        self.log = directory / "log"

    @contextmanager
    def running(self, manager: Manager | None = None, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Whoever runs it; at the end its whole process group is gone, and so is each node."""
        told = {"BARNABAS_FORMAT_FOR": self.format_for} | environment
        if manager is not None:
            told |= {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "3000000"}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                server_command("host", "-c", str(self.config)),
                env=node_environment() | told,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def status(self) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", "host", "status", "-c", str(self.config), "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 10), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == 0) is all(node["state"] == "in service" for node in found["nodes"])
        return found

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in self.status()["nodes"]}

    def pids(self) -> dict[str, int]:
        """From the locks: also of those whose parent is gone."""
        return {
            each.stem: json.loads(each.read_text())["pid"]
            for each in (self.directory / "d" / "host").glob("*-*.lock")
            if each.read_text()
        }

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        producer.produce("t", b"x")
        assert producer.flush(TIMEOUT_S) == 0


class Manager:
    """A service manager that hears at once, as systemd does: the kernel keeps ten datagrams, and those after them are lost."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._thread = Thread(target=self._hear)
        self._thread.start()

    def _hear(self) -> None:
        while words := self._socket.recv(65536):
            for line in words.decode().split("\n"):
                self._lines.put(line)

    def heard(self, wanted: str) -> None:
        """Read on until this line."""
        while self._lines.get(timeout=TIMEOUT_S) != wanted:
            pass

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.address)
        self._thread.join(TIMEOUT_S)
        self._socket.close()


@contextmanager
def manager_at(path: Path) -> Iterator[Manager]:
    with closing(Manager(path)) as manager:
        yield manager


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With a path that sockets take; what still runs there at the end is killed."""
    directory = Path(f"/tmp/host-{os.getpid()}-{time.monotonic_ns()}")
    directory.mkdir()
    yield directory
    for lock in (directory / "d" / "host").glob("*-*.lock"):
        if (text := lock.read_text()) and is_alive(pid := json.loads(text)["pid"]):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["rm", "-rf", str(directory)], check=True)


def test_a_host_outlives_its_brokers_and_its_brokers_outlive_it(place: Path) -> None:
    host = Host(place, brokers=2)
    with manager_at(place / "manager") as manager:
        with host.running(manager) as first:
            manager.heard("READY=1")
            host.produce()
            nodes = host.nodes()
            assert [node["state"] for node in nodes.values()] == ["in service"] * 3
            assert host.status()["starts_by"] == "fork"
            with AdminClient(f"127.0.0.1:{host.port + 40}", timeout_s=TIMEOUT_S) as admin:
                brokers = admin.list_brokers().brokers
            assert {broker.id: broker.host for broker in brokers} == dict.fromkeys((101, 102), socket.gethostname())
            lines = [Path(f"/proc/{node['pid']}/cmdline").read_bytes() for node in nodes.values()]
            assert all(b"-c" in line and SECRET.encode() not in line for line in lines)
            again = subprocess.run(
                server_command("host", "-c", str(host.config)), capture_output=True, text=True, check=False
            )
            assert (again.returncode, "another process supervises" in again.stderr) == (2, True), again.stderr

            os.kill(nodes["broker-102"]["pid"], signal.SIGKILL)
            until(lambda: host.nodes()["broker-102"]["starts"] == 2, "its restart")
            until(lambda: host.nodes()["broker-102"]["state"] == "in service", "its service")
            assert host.nodes()["broker-102"]["reason"] == "was killed by SIGKILL"
            former = host.pids()
            first.kill()
            first.wait()
        host.produce()
        assert all(is_alive(pid) for pid in former.values())

        with host.running(manager) as second:
            manager.heard("READY=1")
            nodes = host.nodes()
            assert {name: node["pid"] for name, node in nodes.items()} == former
            assert all(node["adopted"] and node["state"] == "in service" for node in nodes.values())
            manager.heard("WATCHDOG=1")
            os.kill(former["broker-101"], signal.SIGSTOP)  # it says no more that it is alive
            until(lambda: host.nodes()["broker-101"]["starts"] == 1, "a silent one that was adopted is replaced")
            assert "event loops did not turn for 3 s" in host.nodes()["broker-101"]["reason"]
            until(lambda: host.nodes()["broker-101"]["state"] == "in service", "its service")

            done = subprocess.run(
                [sys.executable, "-m", "barnabas_admin.main", "host", "restart", "102", "-c", str(host.config)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert done.stdout == "broker-102 restarts\n"
            until(lambda: host.nodes()["broker-102"]["starts"] == 1, "its restart")
            until(lambda: host.nodes()["broker-102"]["state"] == "in service", "its service")

            former = host.pids()
            second.send_signal(signal.SIGHUP)  # as after an upgrade: another process in its place, under its id
            until(lambda: "this process is replaced" in host.log.read_text(), "the other process")
            until(lambda: host.log.read_text().count("runs already") == 6, "who takes over")
            until(lambda: host.nodes()["broker-101"]["adopted"], "the adoption")
            assert host.pids() == former and host.status()["pid"] == second.pid
            second.terminate()
            manager.heard("STOPPING=1")
            assert second.wait(TIMEOUT_S) == 0
    assert not any(is_alive(pid) for pid in former.values())
    log = host.log.read_text()
    stops = [
        log.rindex(words) for words in ("broker 101 has stopped", "broker 102 has stopped", "controller-1 gets SIGTERM")
    ]
    assert stops[2] == max(stops), "the controller is the last"
    assert {line.partition(" ")[0] for line in log.splitlines()} == {"[host]", "[1]", "[101]", "[102]"}


def test_where_nothing_is_forked_a_refused_broker_leaves_the_others_alone(place: Path) -> None:
    host = Host(place, brokers=2, node_102_log_dirs="/proc/barnabas")
    with manager_at(place / "manager") as manager, host.running(manager, BARNABAS_PORTABLE="1") as process:
        manager.heard("READY=1")
        found = host.status()
        assert found["starts_by"] == "exec"
        nodes = {node["name"]: node for node in found["nodes"]}
        assert {name: node["state"] for name, node in nodes.items()} == {
            "controller-1": "in service",
            "broker-101": "in service",
            "broker-102": "refused",
        }
        assert "/proc/barnabas" in nodes["broker-102"]["reason"], nodes["broker-102"]
        host.produce()
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


class Load:
    """A producer that writes on, one record after the other, until it is stopped; what was acknowledged is known."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "message.timeout.ms": 300_000})
        self._topic = topic
        self._is_ended = Event()
        self.failed: list[str] = []
        self.acknowledged: list[int] = []
        self._thread = Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._is_ended.wait(0.01):
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._heard)
            number += 1
            self._producer.poll(0)

    def _heard(self, error: object, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(int(message.value()))

    def end(self) -> None:
        self._is_ended.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0


def test_a_host_grows_and_shrinks_under_load_and_loses_nothing(place: Path) -> None:
    host = Host(place, brokers=2)
    environment = os.environ | {"BARNABAS_ADMIN": f"127.0.0.1:{host.port + 40}"}

    def command(*words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas_admin.main", *words],
            capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def resize(count: int, *words: str, status: int = 0) -> str:
        return command("host", "resize", str(count), "-c", str(host.config), *words, status=status)

    with manager_at(place / "manager") as manager, host.running(manager) as process:
        manager.heard("READY=1")
        command("topic", "create", "t", "-p", "4", "-r", "2")
        load = Load(f"127.0.0.1:{host.port}", "t")
        try:
            until(lambda: load.acknowledged, "the first record")
            said = resize(1, "--yes", status=1)
            assert "2 replicas and no broker is left" in said and "fewer replicas" in said
            assert "brokers=2\n" in host.config.read_text() and len(host.nodes()) == 3
            said = resize(4)
            assert "103, 104 started" in said and "replicas move" in said, said
            assert "brokers=4\n" in host.config.read_text() and host.config.stat().st_mode & 0o777 == 0o600
            rows = json.loads(command("broker", "list", "-o", "json"))["brokers"]
            assert [row["id"] for row in rows] == [101, 102, 103, 104] and all(row["replicas"] for row in rows)
            assert "add --yes to do it" in resize(2, status=2) and len(host.nodes()) == 5
            written = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > written, "records on four brokers")
            broken_off = subprocess.Popen(
                [sys.executable, "-m", "barnabas_admin.main", "host", "resize", "2", "-c", str(host.config), "--yes"],
                stderr=subprocess.PIPE, env=environment, text=True,
            )  # fmt: skip
            assert broken_off.stderr is not None
            line = broken_off.stderr.readline()
            broken_off.kill()
            broken_off.communicate()
            assert "replicas move off brokers 103, 104" in line
            resize(2, "--yes")  # goes on where that one was
            assert list(host.nodes()) == ["controller-1", "broker-101", "broker-102"]
            assert "brokers=2\n" in host.config.read_text()
            rows = json.loads(command("broker", "list", "-o", "json"))["brokers"]
            assert [(row["id"], row["state"]) for row in rows] == [(101, "active"), (102, "active")]
            assert "0 replicas moved" in resize(2, "--yes"), "what is done is done"
            written = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > written, "records on two brokers")
        finally:
            load.end()
        assert not load.failed
        lines = command("topic", "consume", "t", "-e", "-o", "json").splitlines()
        read = {int(json.loads(line)["value"]) for line in lines if line.startswith("{")}
        assert read >= set(load.acknowledged)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
