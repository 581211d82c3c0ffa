"""Three controllers and three brokers as separate processes, each started by hand from its sample file, and a console beside them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_admin.dev_console import start_console, stop_console
from barnabas_wire.java_properties import read_properties_file

if TYPE_CHECKING:
    from secured import Secured

CONFIG = Path(__file__).resolve().parents[2] / "admin" / "barnabas_admin" / "samples" / "config"
SERVER = [sys.executable, "-m", "barnabas_broker.main"]
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
LAST_LINES = 8
STOP_SCRIPT = """#!/bin/sh
{console}# Brokers first: they ask the controllers for leave, so that others can take over what they lead.
kill {brokers} 2>/dev/null
for i in $(seq {tries}); do kill -0 {any_broker} 2>/dev/null || break; sleep 0.1; done
kill {controllers} 2>/dev/null
for i in $(seq {tries}); do kill -0 {any_controller} 2>/dev/null || break; sleep 0.1; done
rm -rf {directory}
"""


class Node:
    """One process; everything it writes lies below the working directory."""

    def __init__(self, name: str, directory: Path, lifeline: int | None) -> None:
        self.name = name
        self.lifeline = lifeline
        self.config = CONFIG / f"{name}.properties"
        self.properties = read_properties_file(self.config)
        self.id = int(self.properties["node.id"])
        self.directory = directory
        self.output = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self.process is not None
        return self.process.pid

    @property
    def endpoint(self) -> str:
        """host:port of its first listener."""
        return self.properties["listeners"].partition(",")[0].split("://")[1]

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds it."""
        return f"http://{self.properties['metrics.listeners']}/metrics"

    def check_ports(self) -> None:
        """Raise SystemExit when something else listens where this node will."""
        listeners = [("listeners", value) for value in self.properties["listeners"].split(",")]
        for key, value in (
            *listeners,
            *((key, self.properties[key]) for key in ("admin.listeners", "metrics.listeners")),
        ):
            host, _, port = value.split("://")[-1].rpartition(":")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, int(port)))
                except OSError as error:
                    raise SystemExit(
                        f"{self.name} cannot listen on {host}:{port} ({key}): {error.strerror}. "
                        "Stop what runs there: a `barnabas dev`, or a demo left up by KEEP=1?"
                    ) from None

    def secure(self, properties: dict[str, str]) -> None:
        """Start with these properties in place of the sample's."""
        self.properties = properties
        self.config = self.directory / f"{self.name}.properties"
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def format(self, cluster_id: str, voters: str) -> None:
        """Write who this controller is and who votes."""
        quorum = ["--cluster-id", cluster_id, "--initial-controllers", voters]
        command = [*SERVER, "format", "-c", str(self.config), *quorum]
        subprocess.run(command, cwd=self.directory, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        """Start the process, its output appended to a file."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*SERVER, "-c", str(self.config), *([] if self.lifeline is None else ["--until-stdin-ends"])],
                cwd=self.directory,
                stdin=subprocess.DEVNULL if self.lifeline is None else self.lifeline,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL: no goodbye to anybody."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def is_ready(self) -> bool:
        """Whether /readyz answers 200."""
        try:
            with urllib.request.urlopen(f"http://{self.properties['metrics.listeners']}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def last_words(self) -> str:
        """The end of what it wrote."""
        lines = self.output.read_text(errors="replace").splitlines() if self.output.exists() else []
        return "\n".join(lines[-LAST_LINES:])


class Nodes:
    """The six processes. Unless they are to be kept they end with this one, however it ends: then a pipe that is their standard
    input does."""

    def __init__(self, directory: Path, *, is_kept: bool, is_secured: bool = False) -> None:
        self.directory = directory
        self.is_secured = is_secured
        self.security: Secured | None = None
        """Once they were started with it."""
        lifeline: int | None = None
        if not is_kept:
            lifeline, self._held = os.pipe()
        self._console: subprocess.Popen[bytes] | None = None
        self.controllers = [Node(f"controller-{index}", directory, lifeline) for index in (1, 2, 3)]
        self.brokers = [Node(f"broker-{index}", directory, lifeline) for index in (1, 2, 3)]

    @property
    def all(self) -> list[Node]:
        """Controllers, then brokers."""
        return self.controllers + self.brokers

    @property
    def admin(self) -> str:
        """Admin endpoints of the brokers: any node would do."""
        return ",".join(node.properties["admin.listeners"] for node in self.brokers)

    @property
    def bootstrap(self) -> str:
        """Kafka endpoints of the brokers."""
        return ",".join(node.endpoint for node in self.brokers)

    def broker(self, broker_id: int) -> Node:
        """The broker with that node.id."""
        return next(node for node in self.brokers if node.id == broker_id)

    def start(self) -> None:
        """Format the controllers, start all six, wait until each is ready; SystemExit says what is in the way."""
        uuids = [self._uuid() for _ in range(4)]
        if self.is_secured:
            from secured import Secured  # loads cryptography and gRPC

            self.security = Secured(self.directory, uuids[0], [(node.id, node.properties) for node in self.all])
            for node in self.all:
                node.secure(self.security.properties(node.id, node.properties))
        for node in self.all:
            node.check_ports()
        voters = ",".join(
            f"{node.id}@{node.endpoint}:{uuid}" for node, uuid in zip(self.controllers, uuids[1:], strict=True)
        )
        for node in self.controllers:
            node.format(uuids[0], voters)
        for node in self.all:
            node.start()
        for node in self.all:
            self.wait_ready(node)

    def start_console(self) -> str:
        """Start the web console of the cluster, which ends with the nodes; its address. Raises LocalClusterError."""
        client_config = "" if self.security is None else str(self.security.client_config)
        self._console, address = start_console(
            admin=self.admin, brokers=self.bootstrap, client_config=client_config, directory=self.directory
        )
        return address

    def wait_ready(self, node: Node) -> None:
        """Return once the node is ready; raises SystemExit with its last words when it died or does not come."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not node.is_ready():
            if not node.is_running:
                raise SystemExit(f"{node.name} ended while starting. Its last words:\n{node.last_words()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{node.name} is not ready after {READY_TIMEOUT_S:.0f} s:\n{node.last_words()}")
            time.sleep(0.05)

    def stop(self) -> list[str]:
        """Brokers first, by SIGTERM; whoever does not go in time is killed, and named. Nothing is left behind."""
        if self._console is not None:
            stop_console(self._console)
        killed = []
        for group in (self.brokers, self.controllers):
            running = [node for node in group if node.is_running]
            for node in running:
                os.kill(node.pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for node in running:
                assert node.process is not None
                try:
                    node.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    node.kill()
                    killed.append(node.name)
        return killed

    def write_stop_script(self) -> Path:
        """What stops nodes that outlive this process, and removes their files."""
        path = self.directory / "stop.sh"
        brokers, controllers = ([str(node.pid) for node in group] for group in (self.brokers, self.controllers))
        path.write_text(
            STOP_SCRIPT.format(
                console="" if self._console is None else f"kill {self._console.pid} 2>/dev/null\n",
                brokers=" ".join(brokers),
                controllers=" ".join(controllers),
                any_broker=" 2>/dev/null || kill -0 ".join(brokers),
                any_controller=" 2>/dev/null || kill -0 ".join(controllers),
                tries=int(STOP_TIMEOUT_S / 0.1),
                directory=shlex.quote(str(self.directory)),
            )
        )
        path.chmod(0o755)
        return path

    @staticmethod
    def _uuid() -> str:
        done = subprocess.run([*SERVER, "random-uuid"], check=True, capture_output=True, text=True)
        return done.stdout.strip()
