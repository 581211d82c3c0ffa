"""Three controllers and three brokers as separate processes, each started by hand from its file in deploy/config."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

CONFIG = Path(__file__).resolve().parents[1] / "config"
SERVER = [sys.executable, "-m", "barnabas_broker.main"]
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


def read_properties(path: Path) -> dict[str, str]:
    """A properties file as a dict."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


class Node:
    """One process; everything it writes lies below the working directory."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.config = CONFIG / f"{name}.properties"
        self.properties = read_properties(self.config)
        self.id = int(self.properties["node.id"])
        self.directory = directory
        self.output = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def format(self, cluster_id: str, voters: str) -> None:
        """Write who this controller is and who votes."""
        command = [
            *SERVER,
            "format",
            "-c",
            str(self.config),
            "--cluster-id",
            cluster_id,
            "--initial-controllers",
            voters,
        ]
        subprocess.run(command, cwd=self.directory, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        """Start the process, its output appended to a file."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*SERVER, "-c", str(self.config)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
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
        return self.output.read_text(errors="replace")[-2000:] if self.output.exists() else ""


class Nodes:
    """The six processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.controllers = [Node(f"controller-{index}", directory) for index in (1, 2, 3)]
        self.brokers = [Node(f"broker-{index}", directory) for index in (1, 2, 3)]

    @property
    def all(self) -> list[Node]:
        """Controllers, then brokers."""
        return self.controllers + self.brokers

    @property
    def admin(self) -> str:
        """Admin endpoints of all nodes."""
        return ",".join(node.properties["admin.listeners"] for node in self.all)

    @property
    def bootstrap(self) -> str:
        """Kafka endpoints of the brokers."""
        return ",".join(node.properties["listeners"].split("://")[1] for node in self.brokers)

    def broker(self, broker_id: int) -> Node:
        """The broker with that node.id."""
        return next(node for node in self.brokers if node.id == broker_id)

    def start(self) -> None:
        """Format the controllers, start all six, wait until each is ready."""
        uuids = [self._uuid() for _ in range(4)]
        voters = ",".join(
            f"{node.id}@{node.properties['listeners'].split('://')[1]}:{uuid}"
            for node, uuid in zip(self.controllers, uuids[1:], strict=True)
        )
        for node in self.controllers:
            node.format(uuids[0], voters)
        for node in self.all:
            node.start()
        for node in self.all:
            self.wait_ready(node)

    def wait_ready(self, node: Node) -> None:
        """Return once the node is ready; raises SystemExit with its last words when it died or does not come."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not node.is_ready():
            if node.process is None or node.process.poll() is not None:
                raise SystemExit(f"{node.name} ended while starting. Its last words:\n{node.last_words()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{node.name} is not ready after {READY_TIMEOUT_S:.0f} s:\n{node.last_words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Brokers first, by SIGTERM; whoever does not go in time is killed. Nothing is left behind."""
        for group in (self.brokers, self.controllers):
            running = [node for node in group if node.process is not None and node.process.poll() is None]
            for node in running:
                os.kill(node.process.pid, signal.SIGTERM)  # type: ignore[union-attr]
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for node in running:
                try:
                    node.process.wait(max(0.1, deadline - time.monotonic()))  # type: ignore[union-attr]
                except subprocess.TimeoutExpired:
                    node.kill()

    @staticmethod
    def _uuid() -> str:
        done = subprocess.run([*SERVER, "random-uuid"], check=True, capture_output=True, text=True)
        return done.stdout.strip()
