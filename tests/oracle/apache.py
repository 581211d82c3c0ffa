"""Apache Kafka's jars, console tools and broker, run by Java.

May touch:  the local Maven cache, Java processes it started, files below given directories, loopback.
Must not touch: the network: Maven runs offline here, `make compat-oracle` alone fetches.
Invariants: a process that is started here is ended here, by its own id.
Read next:  conftest.py (fixtures), pom.xml (what is pinned).
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas_wire.kafka.ids import Uuid
from tests.compat.samples import DEADLINE_S

POM = Path(__file__).with_name("pom.xml")
HOST = "127.0.0.1"
CLUSTER_ID = str(Uuid(b"apache as oracle"))
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
JAVA_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx512m")
"""Short lives: starting fast is worth more than running fast."""
ARCHIVED_TOOL = "org.apache.kafka.tools.TopicCommand"
LOG_FLAG = "-Dorg.slf4j.simpleLogger.defaultLogLevel="


class ToolOutput(NamedTuple):
    """What a console tool said."""

    exit_code: int
    stdout: str
    stderr: str


@functools.cache
def missing() -> str | None:
    """Why Apache Kafka cannot be run here, in one line; None when it can."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"Apache Kafka as judge needs {tool}"
    try:
        classpath()
    except subprocess.CalledProcessError:
        return "Apache Kafka's jars are not in the local Maven cache: `make compat-oracle` fetches them"
    return None


@functools.cache
def classpath() -> str:
    """Every jar of pom.xml, from the local Maven cache. Raises CalledProcessError when one is not there."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "classpath"
        command = ["mvn", "--offline", "-q", "-B", "-f", str(POM), "dependency:build-classpath"]
        subprocess.run([*command, f"-Dmdep.outputFile={answer}"], check=True, capture_output=True, timeout=60)
        return answer.read_text()


def java_command(main_class: str, *arguments: str, flags: tuple[str, ...] = JAVA_FLAGS) -> list[str]:
    """A command line; the class path goes by environment, see java_environment."""
    return ["java", *flags, main_class, *arguments]


def java_environment() -> dict[str, str]:
    """The environment of every Java process here."""
    return {**os.environ, "CLASSPATH": classpath()}


def run_tool(main_class: str, *arguments: str, stdin: str = "", timeout_s: float = DEADLINE_S) -> ToolOutput:
    """Run one of Kafka's tools to its end."""
    archive = _class_archive()
    sharing: tuple[str, ...]
    if archive.exists():
        sharing = (f"-XX:SharedArchiveFile={archive}",)
    else:
        sharing = (f"-XX:ArchiveClassesAtExit={archive}",) if main_class == ARCHIVED_TOOL else ()
    done = subprocess.run(
        java_command(main_class, *arguments, flags=(*JAVA_FLAGS, LOG_FLAG + "off", "-Xlog:disable", *sharing)),
        env=java_environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    return ToolOutput(done.returncode, done.stdout, done.stderr)


@functools.cache
def _class_archive() -> Path:
    """Where the first run of ARCHIVED_TOOL leaves the classes of Kafka's clients, loaded: every later tool starts a third
    faster."""
    directory = tempfile.mkdtemp(prefix="barnabas-oracle-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory) / "classes.jsa"


class ApacheBroker:
    """One Kafka node, broker and controller, below `directory`; use as a context manager.

    `overrides` are properties on top of what a single node needs; `flags` are Java's.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int,
        overrides: Mapping[str, str] | None = None,
        flags: tuple[str, ...] = JAVA_FLAGS,
    ) -> None:
        self.directory = directory
        self.port = port
        self.data = directory / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self._flags = flags
        self._properties_file = directory / "server.properties"
        self._output_file = directory / "output.log"
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 1}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{HOST}:{port + 1}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **(overrides or {}),
        }

    def __enter__(self) -> ApacheBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Format the directory at the first start; returns when the broker serves."""
        if not self._properties_file.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            lines = [f"{key}={value}\n" for key, value in self._properties.items()]
            self._properties_file.write_text("".join(lines), encoding="utf-8")
            arguments = ("format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._properties_file))
            formatted = run_tool("kafka.tools.StorageTool", *arguments)
            assert formatted.exit_code == 0, formatted
        with self._output_file.open("wb") as output:
            self.process = subprocess.Popen(
                java_command("kafka.Kafka", str(self._properties_file), flags=(*self._flags, LOG_FLAG + "info")),
                env=java_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"Kafka Server started" not in self._output_file.read_bytes():
            is_late = time.monotonic() > deadline
            if is_late or self.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"Apache Kafka did not start:\n{self._output_file.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what still runs after STOP_TIMEOUT_S."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
