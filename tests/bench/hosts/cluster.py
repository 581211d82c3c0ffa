"""Whole hosts on this machine, each run by its own `barnabas-server host`, on loopback.

May touch:  processes it starts, a directory with a short path, loopback.    Must not touch: broker code.
Invariants: whatever runs from here is killed by its own id at the end, nodes that outlived their host too.
Read next:  cost.py, rest.py, loss.py: what is measured on them.

Not obvious: a host in which only loopback is listened on forks its nodes; `by_exec` binds the Kafka listeners to all addresses, which is
what makes a host start its nodes by exec.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from barnabas_admin.client import AdminClient as ControlAdmin
from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.errors import AdminError
from barnabas_admin.local_node import node_environment, server_command
from barnabas_admin.local_ports import HOST, is_port_free
from barnabas_wire.kafka.errors import ErrorCode
from tests.chaos.network import Network, address_of

BROKERS_MAX = 64
KINDS = ("broker", "admin", "metrics", "controller")
"""The kinds of listeners, in the order of their ports."""
PORTS_SPAN = len(KINDS) * BROKERS_MAX
TIMEOUT_S = 180.0
CONTROLLER_LOST = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
"""What refuses a change while no controller is active, or where it was lost before it answered."""
POLL_S = 0.05
BROKER_ID = 101
SHARED = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "500",
    "log.flush.on.acks": "page-cache",
}
REMOTE = {"admin.listeners.allow.remote": "true", "controller.listeners.allow.remote": "true"}
"""Of the private network of this run."""


class Host:
    """One host.properties and the process that runs it. Nodes: `brokers` brokers and a controller in a process of its own."""

    def __init__(
        self,
        directory: Path,
        number: int,
        broker_ids: Sequence[int],
        properties: Mapping[str, str],
        *,
        inside: Sequence[str] = (),
    ) -> None:
        """inside: what to put before its command so that it runs in a namespace of its own."""
        self.number = number
        self._inside = inside
        self.broker_ids = broker_ids
        self.directory = directory
        self.config = directory / "host.properties"
        self.start_s = 0.0
        """From the command to the last node in service, the last time."""
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.config.touch(0o600)
        self.add(properties)

    def add(self, properties: Mapping[str, str]) -> None:
        """Before its start; what is named again has the newer value."""
        with self.config.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in properties.items())

    def launch(self, environment: Mapping[str, str]) -> None:
        """Start the command."""
        self._began_s = time.monotonic()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._inside, *server_command("host", "-c", str(self.config))],
                env=node_environment() | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def status(self) -> list[dict[str, object]] | None:
        """Its nodes, from the socket that `barnabas host status` asks; None while nobody answers."""
        asked = socket.socket(socket.AF_UNIX)
        asked.settimeout(TIMEOUT_S)
        with asked, contextlib.suppress(OSError, ValueError):
            asked.connect(str(self.directory / "d" / "host" / "status"))
            asked.sendall(b"status")
            with asked.makefile("rb") as answer:
                found: list[dict[str, object]] = json.loads(answer.read())["nodes"]
                return found
        return None

    def wait(self, timeout_s: float = TIMEOUT_S) -> None:
        """Until every node is in service. timeout_s: from its start."""
        while True:
            nodes = self.status() or []
            if nodes and all(node["state"] == "in service" for node in nodes):
                self.start_s = time.monotonic() - self._began_s
                return
            if time.monotonic() - self._began_s > timeout_s or (self._process and self._process.poll() is not None):
                raise RuntimeError(f"host {self.number} is not in service: {nodes}\n{self.last_words()}")
            time.sleep(POLL_S)

    def last_words(self) -> str:
        """The end of its log."""
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def pids(self) -> dict[str, int]:
        """The ids of running processes: nodes by name, the supervisor as `host`."""
        found = {}
        for lock in sorted((self.directory / "d" / "host").glob("*-*.lock")):
            with contextlib.suppress(ValueError, LookupError, OSError):
                pid = int(json.loads(lock.read_text())["pid"])
                if _is_alive(pid):
                    found[lock.stem] = pid
        if self._process is not None and self._process.poll() is None:
            found["host"] = self._process.pid
        return found

    def kill(self) -> None:
        """All of it at once, as when the machine is lost: its own process first, or it would start anew what dies."""
        for pid in sorted(self.pids().values(), key=lambda pid: self._process is None or pid != self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None


class Hosts:
    """A cluster of hosts, each with a controller and so many brokers as `sizes` says; use as a context manager."""

    def __init__(self, sizes: Sequence[int], *, by_exec: bool = False, network: Network | None = None) -> None:
        """network: gives each host a namespace and an address of its own; all are on loopback without it."""
        self.directory = Path(tempfile.mkdtemp(prefix="hosts-", dir="/tmp"))  # sockets need a short path
        self.is_kept = False
        """Whether what the hosts have written stays at the end, for whoever is to look into it."""
        base = _find_ports(PORTS_SPAN)
        self._base = base
        voters = {
            number: base + KINDS.index("controller") * BROKERS_MAX + number for number in range(1, len(sizes) + 1)
        }
        self._is_on_loopback = network is None
        quorum = ",".join(f"{self._address(number)}:{port}" for number, port in voters.items())
        self._format_for = f"{random_uuid()}/" + ",".join(
            f"{number}@{self._address(number)}:{port}:{random_uuid()}" for number, port in voters.items()
        )
        self._environment = {"BARNABAS_FORMAT_FOR": self._format_for}
        replicas = str(min(3, sum(sizes)))
        self.hosts: list[Host] = []
        for (number, port), brokers in zip(voters.items(), sizes, strict=True):
            so_far = len(self.broker_ids)
            ids = [BROKER_ID + so_far + place for place in range(brokers)]
            first = so_far + number  # admin and metrics of the controller lie before the brokers'
            address = self._address(number)
            bound = "0.0.0.0" if by_exec else address
            properties = SHARED | {
                "process.roles": "broker,controller",
                "controller.node.id": str(number),
                "node.id": str(ids[0]),
                "brokers": str(brokers),
                "broker.host": f"host-{number}",
                "listeners": f"PLAINTEXT://{bound}:{base + first},CONTROLLER://{address}:{port}",
                "advertised.listeners": f"PLAINTEXT://{address}:{base + first},CONTROLLER://{address}:{port}",
                "controller.quorum.bootstrap.servers": quorum,
                "admin.listeners": f"{address}:{base + BROKERS_MAX + first}",
                "metrics.listeners": f"{address}:{base + 2 * BROKERS_MAX + first}",
                "log.dirs": str(self.directory / f"h{number}" / "d"),
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
                "min.insync.replicas": str(max(1, int(replicas) - 1)),
            }
            inside: Sequence[str] = ()
            if network is not None:
                network.add(number)
                inside = network.inside(number)
                properties |= REMOTE | {"host.fork.allow.remote": str(not by_exec).lower()}
            self.hosts.append(Host(self.directory / f"h{number}", number, ids, properties, inside=inside))
        self.bootstrap = ",".join(
            f"{self._address(host.number)}:{self.kafka_port(host.broker_ids[0])}" for host in self.hosts
        )
        self.admin: AdminClient
        self._topics = 0

    def __enter__(self) -> Hosts:
        try:
            for host in self.hosts:
                host.launch(self._environment)
            for host in self.hosts:
                host.wait()
            self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            deadline = time.monotonic() + TIMEOUT_S
            while len(self.admin.list_topics(timeout=TIMEOUT_S).brokers) < len(self.broker_ids):
                if time.monotonic() > deadline:
                    raise TimeoutError("not every broker is in the metadata")
                time.sleep(POLL_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs, and remove what it has written unless that is to be kept."""
        for host in self.hosts:
            host.kill()
        if self.is_kept:
            print(f"kept, to be looked into: {self.directory}", flush=True)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def broker_ids(self) -> list[int]:
        """In the order of hosts."""
        return [broker_id for host in self.hosts for broker_id in host.broker_ids]

    @property
    def admin_addresses(self) -> str:
        """The admin addresses of all controllers."""
        return ",".join(
            f"{self._address(host.number)}:{self._base + BROKERS_MAX + self._port_in_kind(host.broker_ids[0]) - 1}"
            for host in self.hosts
        )

    def address_of(self, broker_id: int) -> str:
        """The address of a broker's host."""
        return self._address(self.host_of(broker_id).number)

    def _address(self, number: int) -> str:
        return HOST if self._is_on_loopback else address_of(number)

    def kafka_port(self, broker_id: int) -> int:
        """The port of a broker's Kafka listener."""
        return self._base + self._port_in_kind(broker_id)

    def controller_port(self, host: Host) -> int:
        """The port of the host's controller listener."""
        return self._base + KINDS.index("controller") * BROKERS_MAX + host.number

    def pids(self, role: str = "") -> list[int]:
        """The ids of all running processes, or of one role: broker, controller or host."""
        return [pid for host in self.hosts for name, pid in host.pids().items() if name.startswith(role)]

    def pid_of(self, broker_id: int) -> int:
        """The process id of a running broker."""
        return self.host_of(broker_id).pids()[f"broker-{broker_id}"]

    def host_of(self, broker_id: int) -> Host:
        """The host that runs the broker."""
        return next(host for host in self.hosts if broker_id in host.broker_ids)

    def _port_in_kind(self, broker_id: int) -> int:
        return broker_id - BROKER_ID + self.host_of(broker_id).number

    def start(self, host: Host, timeout_s: float = TIMEOUT_S) -> None:
        """Start a host that was killed, and wait for it."""
        host.launch(self._environment)
        host.wait(timeout_s)

    def kind_of_port(self, port: int) -> str | None:
        """What listens there: broker, admin, metrics or controller; None: nothing of ours."""
        place = (port - self._base) // BROKERS_MAX
        return KINDS[place] if 0 <= place < len(KINDS) else None

    def next_name(self) -> str:
        """A name that no topic has had."""
        self._topics += 1
        return f"hosts-{self._topics}"

    def create_later(self, name: str, assignment: Sequence[Sequence[int]]) -> Future[None]:
        """Ask for a topic whose partitions have these replicas."""
        topic = NewTopic(name, len(assignment), replica_assignment=[list(each) for each in assignment])
        asked: Future[None] = self.admin.create_topics([topic], request_timeout=TIMEOUT_S)[name]
        return asked

    def create(self, assignment: Sequence[Sequence[int]]) -> str:
        """The same; returns its name when all partitions are led and in sync."""
        name = self.next_name()
        self.create_later(name, assignment).result(TIMEOUT_S)
        self.wait_whole(name, assignment)
        return name

    def partitions(self, name: str) -> Mapping[int, PartitionMetadata]:
        """The partitions of a topic, as one broker knows them; none while it answers an error."""
        with contextlib.suppress(KafkaException):
            return self.admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        return {}

    def wait_whole(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        """Until every partition has a leader and all its replicas are in sync."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = self.partitions(name)
            short = [
                f"{index}: leader {part.leader}, ISR {part.isrs}"
                for index, part in found.items()
                if part.leader not in assignment[index] or len(part.isrs) < len(assignment[index])
            ]
            if len(found) == len(assignment) and not short:
                return
            if time.monotonic() > deadline:
                self.is_kept = True
                raise TimeoutError(
                    f"topic {name} is not whole after {TIMEOUT_S:.0f} s: {len(found)} of {len(assignment)} partitions are "
                    f"known, {len(short)} are not in sync: {short[:5]}"
                )
            time.sleep(POLL_S)

    def elect_preferred(self) -> None:
        """Ask that the first replica of each partition leads again; nothing is elected where the controller is lost meanwhile."""
        with ControlAdmin(self.admin_addresses, timeout_s=TIMEOUT_S) as admin:
            try:
                admin.elect_leaders(None)
            except AdminError as error:
                if error.code not in CONTROLLER_LOST:
                    raise

    def delete(self, name: str) -> None:
        """Remove a topic; returns when its files are gone."""
        self.admin.delete_topics([name])[name].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while any(self.directory.glob(f"h*/d/broker-*/{name}-*")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the files of topic {name} are still there after {TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        os.sync()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def _find_ports(span: int, start: int = 10000, end: int = 30000) -> int:
    """A first port below the ephemeral range with so many free ones from there."""
    for _ in range(200):
        base = start + secrets.randbelow((end - start) // span) * span
        if all(is_port_free(port) for port in range(base, base + span)):
            return base
    raise RuntimeError(f"no {span} free ports in a row between {start} and {end}")
