"""The nodes of a run: real `barnabas-server` processes, each in its namespace, formatted, started, broken and read.

May touch:  the run's directory, child processes it started.   Must not touch: what is inside a node while it runs.
Invariants: node.id is the host number of its address; a node that ends without being told to is remembered as a death.
Read next:  network.py; metadata_logs.py, which reads what the nodes leave on disk.

Controllers are 1, 2, 3, …; brokers FIRST_BROKER, FIRST_BROKER + 1, …  Below the directory: `node-<id>/server.properties`,
`node-<id>/data`, `node-<id>/stderr.log`. Combined nodes are 1, 2, 3, …, and both.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from barnabas_admin.cluster_directory import random_uuid
from barnabas_admin.local_node import describe_exit, server_command, tail
from barnabas_wire.kafka.ids import Uuid
from tests.chaos.network import Network, address_of
from tests.support.nursery import nursery

FIRST_BROKER = 21
CONTROLLER_PORT = 9093
KAFKA_PORT = 9092
PROXIED_PORT = 9096
ADMIN_PORT = 9190
METRICS_PORT = 9464
ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 20.0
FORMAT_TIMEOUT_S = 60.0
COMPLAINTS = ("Traceback", " ERROR ", " CRITICAL ")
HARMLESS = (
    "ERROR grpc._cython.cygrpc ExecuteBatchError raised in core by servicer method",
    "ERROR barnabas_broker.metadata.voters_clock this node's clock is ",
)
"""gRPC's word, with a traceback of its own, for a stream whose other end is gone when its handler returns; and that of a node whose clock
a fault has moved."""


@dataclass(slots=True)
class ChaosNode:
    """One node and its process while there is one."""

    id: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    is_paused: bool = False
    is_expected_to_run: bool = False
    started_at: float = field(default=0.0)
    is_combined: bool = False
    entry_point: tuple[str, ...] = ()
    """What to run instead of barnabas-server, with the same arguments; from the repository's root."""
    proxied_as: str = ""
    """host:port that clients of its listener PROXIED are told; empty: there is no such listener."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of its process, beside the harness's own."""

    @property
    def is_broker(self) -> bool:
        """Whether it serves Kafka clients."""
        return self.is_combined or self.id >= FIRST_BROKER

    @property
    def is_controller(self) -> bool:
        """Whether it may vote."""
        return self.is_combined or not self.is_broker

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return address_of(self.id)

    @property
    def incarnation(self) -> str:
        """This process start of this node."""
        return f"{self.id}#{self.starts}"

    @property
    def data(self) -> Path:
        """log.dirs."""
        return self.directory / "data"

    @property
    def metadata_directory(self) -> Path:
        """Where its metadata log lies."""
        return self.data / "__cluster_metadata-0"

    @property
    def is_running(self) -> bool:
        """Whether its process lives and is not stopped."""
        return self.process is not None and self.process.poll() is None and not self.is_paused


class ChaosCluster:
    """`controllers` voters and `brokers` brokers. Use as a context manager; one event loop, one thread.

    `spare_controllers` are named in every node's bootstrap servers, but neither formatted nor started. `is_combined`: the
    controllers are brokers, too.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int,
        brokers: int,
        spare_controllers: int = 0,
        is_combined: bool = False,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.network = Network()
        self.cluster_id = str(random_uuid())
        self.overrides = dict(overrides or {})
        self.deaths: list[str] = []
        self.complaints_of_the_gone: list[str] = []
        self.voter_ids = list(range(1, controllers + 1))
        """Who votes now; a scenario that changes the voter set keeps it true."""
        self._known_controllers = range(1, controllers + spare_controllers + 1)
        ids = [*self.voter_ids, *range(FIRST_BROKER, FIRST_BROKER + brokers)]
        self.nodes = {
            node_id: ChaosNode(
                node_id, directory / f"node-{node_id}", is_combined=is_combined and node_id < FIRST_BROKER
            )
            for node_id in ids
        }
        self._directory_ids = {node_id: random_uuid() for node_id in self.voter_ids}

    def __enter__(self) -> ChaosCluster:
        try:
            for node in self.nodes.values():
                self.network.add(node.id)
                self.write_properties(node)
            self._format_voters()
            for node in self.nodes.values():
                self.start(node.id)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill what still runs and take the network down."""
        for node in self.nodes.values():
            self._end(node, signal.SIGKILL)
        self.network.close()

    # -- who there is ----------------------------------------------------------------------------------------------

    @property
    def controllers(self) -> list[ChaosNode]:
        """Controllers, by id."""
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[ChaosNode]:
        """Brokers, by id."""
        return [node for node in self.nodes.values() if node.is_broker]

    # -- life and death --------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        """Start a node that does not run."""
        node = self.nodes[node_id]
        assert node.process is None, f"node {node_id} runs"
        node.directory.mkdir(parents=True, exist_ok=True)
        arguments = ["-c", str(node.directory / "server.properties")]
        with (node.directory / "stderr.log").open("ab") as errors:
            # In its own session: an interrupt at the terminal is for the harness, which stops nodes itself.
            if node.entry_point or node.environment:
                node.process = subprocess.Popen(
                    [*self.network.inside(node_id), *(node.entry_point or server_command()), *arguments],
                    cwd=ROOT,
                    env=os.environ | node.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    start_new_session=True,
                )
            else:
                holder = self.network.holder(node_id)
                node.process = nursery().start(
                    arguments, stdout=errors, stderr=errors, start_new_session=True, network=holder
                )
        node.starts += 1
        node.started_at = time.monotonic()
        node.is_expected_to_run = True
        node.is_paused = False

    def kill(self, node_ids: Iterable[int]) -> float:
        """SIGKILL all of them at once; the time at which the last signal was sent (monotonic, s)."""
        victims = [self.nodes[node_id] for node_id in node_ids]
        for node in victims:
            assert node.process is not None, f"node {node.id} does not run"
            node.is_expected_to_run = False
            node.process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        for node in victims:
            self._end(node, signal.SIGKILL)
        return killed

    def pause(self, node_id: int) -> float:
        """SIGSTOP; the time at which it was sent."""
        self._signal(node_id, signal.SIGSTOP)
        self.nodes[node_id].is_paused = True
        return time.monotonic()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._signal(node_id, signal.SIGCONT)
        self.nodes[node_id].is_paused = False

    def begin_stop(self, node_id: int) -> float:
        """SIGTERM; the time at which it was sent. Follow with `finish_stop`."""
        self.nodes[node_id].is_expected_to_run = False
        self._signal(node_id, signal.SIGTERM)
        return time.monotonic()

    async def finish_stop(self, node_id: int, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Wait until a node that was told to stop has; one that does not is a death, and killed."""
        node = self.nodes[node_id]
        assert node.process is not None
        deadline = time.monotonic() + timeout_s
        while node.process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if node.process.poll() is None:
            self.deaths.append(f"node {node_id} did not stop within {timeout_s:.0f} s of SIGTERM")
        elif node.process.returncode != 0:
            self.deaths.append(f"node {node_id} {describe_exit(node.process.returncode)} when told to stop")
        self._end(node, signal.SIGKILL)

    def wipe(self, node_id: int) -> None:
        """Remove everything a stopped node has on its disk."""
        assert self.nodes[node_id].process is None, f"node {node_id} still runs"
        shutil.rmtree(self.nodes[node_id].data)

    def look_for_deaths(self) -> None:
        """Remember every node that ended without being told to."""
        for node in self.nodes.values():
            if node.is_expected_to_run and node.process is not None and node.process.poll() is not None:
                node.is_expected_to_run = False
                words = tail(node.directory / "stderr.log", 0)
                self.deaths.append(f"node {node.id} {describe_exit(node.process.returncode)} unasked: {words}")

    def complaints(self) -> list[str]:
        """Lines of the nodes' logs that no healthy node writes."""
        return self.complaints_of_the_gone + [
            line for node in self.nodes.values() for line in self._complaints_of(node)
        ]

    def _complaints_of(self, node: ChaosNode) -> list[str]:
        path = node.directory / "stderr.log"
        if not path.is_file():
            return []
        lines = path.read_text(errors="replace").splitlines()
        return [f"node {node.id}: {line}" for line in find_complaints(lines)]

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self.nodes[node_id].process
        assert process is not None and process.poll() is None, f"node {node_id} does not run"
        process.send_signal(number)

    def _end(self, node: ChaosNode, number: signal.Signals) -> None:
        if node.process is None:
            return
        node.is_expected_to_run = False
        if node.process.poll() is None:
            node.process.send_signal(number)
        node.process.wait()
        node.process = None
        node.is_paused = False

    # -- files -----------------------------------------------------------------------------------------------------

    def join(self, node_id: int) -> Uuid:
        """Start a controller with an empty disk, as an observer; the id of its new directory. It must not run, and what
        an earlier one of its id left on the disk is removed."""
        node = self.nodes.setdefault(node_id, ChaosNode(node_id, self.directory / f"node-{node_id}"))
        self.network.add(node_id)
        self.write_properties(node)
        if node.data.exists():
            self.wipe(node_id)
        self.format(node_id, "--no-initial-controllers")
        described = json.loads(self.run_offline("info", "-c", str(node.directory / "server.properties")))
        (directory_id,) = described["directories"].values()
        self.start(node_id)
        return Uuid.parse(directory_id)

    def forget(self, node_id: int) -> None:
        """A node that has stopped and is no longer part of the cluster: nothing more is expected or read of it."""
        assert self.nodes[node_id].process is None, f"node {node_id} still runs"
        self.complaints_of_the_gone += self._complaints_of(self.nodes.pop(node_id))

    def write_properties(self, node: ChaosNode, **extra: str) -> None:
        """Write the node's server.properties."""
        properties = {
            "process.roles": ",".join(
                role for role, has in (("broker", node.is_broker), ("controller", node.is_controller)) if has
            ),
            "node.id": str(node.id),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{address_of(controller)}:{CONTROLLER_PORT}" for controller in self._known_controllers
            ),
            "listeners": ",".join(
                listener
                for listener, has in (
                    (f"PLAINTEXT://{node.address}:{KAFKA_PORT}", node.is_broker),
                    (f"CONTROLLER://{node.address}:{CONTROLLER_PORT}", node.is_controller),
                    (f"PROXIED://{node.address}:{PROXIED_PORT}", bool(node.proxied_as)),
                )
                if has
            ),
            "log.dirs": str(node.data),
            "admin.listeners": f"{node.address}:{ADMIN_PORT}",
            "admin.listeners.allow.remote": "true",  # of the private network of this run
            "controller.listeners.allow.remote": "true",
            "metrics.listeners": f"{node.address}:{METRICS_PORT}",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            "offsets.topic.replication.factor": "1",
        }
        if node.proxied_as:
            properties |= {
                "advertised.listeners": f"PROXIED://{node.proxied_as}",
                "inter.broker.listener.name": "PLAINTEXT",
            }
        node.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in (properties | self.overrides | extra).items()]
        (node.directory / "server.properties").write_text("".join(lines), encoding="utf-8")

    def _format_voters(self) -> None:
        voters = ",".join(
            f"{node_id}@{address_of(node_id)}:{CONTROLLER_PORT}:{self._directory_ids[node_id]}"
            for node_id in self.voter_ids
        )
        with ThreadPoolExecutor() as at_once:
            done = [at_once.submit(self.format, node_id, "--initial-controllers", voters) for node_id in self.voter_ids]
            for formatted in done:
                formatted.result()

    def format(self, node_id: int, *arguments: str) -> None:
        """`barnabas-server format` of a node's directories. Raises RuntimeError with what it said."""
        properties = str(self.nodes[node_id].directory / "server.properties")
        self.run_offline("format", "-c", properties, "--cluster-id", self.cluster_id, *arguments)

    def run_offline(self, *arguments: str) -> str:
        """Run a verb of `barnabas-server` to its end; its output. Raises RuntimeError with what it said."""
        done = nursery().run(arguments, timeout_s=FORMAT_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"barnabas-server {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout


def find_complaints(lines: Sequence[str]) -> list[str]:
    """The lines of a node's log that no healthy node writes."""
    return [
        line
        for before, line in itertools.pairwise(("", *lines))
        if any(word in line for word in COMPLAINTS) and not any(word in line or word in before for word in HARMLESS)
    ]
