"""Apache Kafka's jars, console tools and broker, run by Java.

May touch:  the local Maven cache, Java processes it started, files below given directories, loopback.
Must not touch: the network: Maven runs offline here, but for `fetch`, which `make bench-peer` calls.
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
FETCH_TIMEOUT_S = 240.0
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


def fetch(version: str = "") -> str | None:
    """Have Maven fetch the jars of that version of Kafka, by default pom.xml's, where they are not yet here; why that failed,
    None when they are."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"Apache Kafka needs {tool}"
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:build-classpath"]
    command += [f"-Dkafka.version={version}"] if version else []
    try:
        classpath(version)
    except subprocess.CalledProcessError:
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=FETCH_TIMEOUT_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return f"Maven does not fetch Apache Kafka {version or 'of pom.xml'} here"
    return None


@functools.cache
def classpath(version: str = "") -> str:
    """Every jar of pom.xml, from the local Maven cache; `version` of Kafka in place of its own.

    Raises CalledProcessError when one is not there.
    """
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "classpath"
        command = ["mvn", "--offline", "-q", "-B", "-f", str(POM), "dependency:build-classpath"]
        command += [f"-Dkafka.version={version}"] if version else []
        subprocess.run(
            [*command, f"-Dmdep.outputFile={answer}"], check=True, capture_output=True, timeout=FETCH_TIMEOUT_S
        )
        return answer.read_text()


def java_command(main_class: str, *arguments: str, flags: tuple[str, ...] = JAVA_FLAGS) -> list[str]:
    """A command line; the class path goes by environment, see java_environment."""
    return ["java", *flags, main_class, *arguments]


def java_environment(version: str = "") -> dict[str, str]:
    """The environment of every Java process here."""
    return {**os.environ, "CLASSPATH": classpath(version)}


def run_tool(
    main_class: str, *arguments: str, stdin: str = "", timeout_s: float = DEADLINE_S, version: str = ""
) -> ToolOutput:
    """Run one of Kafka's tools to its end."""
    archive = _class_archive()
    sharing: tuple[str, ...]
    if version:
        sharing = ()  # the archive is of other jars
    elif archive.exists():
        sharing = (f"-XX:SharedArchiveFile={archive}",)
    else:
        sharing = (f"-XX:ArchiveClassesAtExit={archive}",) if main_class == ARCHIVED_TOOL else ()
    done = subprocess.run(
        java_command(main_class, *arguments, flags=(*JAVA_FLAGS, LOG_FLAG + "off", "-Xlog:disable", *sharing)),
        env=java_environment(version),
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

    `overrides` are properties on top of what a single node needs; one of several has its `controller.quorum.voters` there.
    `flags` are Java's; `version` is Kafka's, that of pom.xml by default.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int,
        overrides: Mapping[str, str] | None = None,
        flags: tuple[str, ...] = JAVA_FLAGS,
        version: str = "",
    ) -> None:
        self.directory = directory
        self.port = port
        self.data = directory / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self._flags = flags
        self._version = version
        self._properties_file = directory / "server.properties"
        self._output_file = directory / "output.log"
        alone = {"controller.quorum.bootstrap.servers": f"{HOST}:{port + 1}"}
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{port + 1}",
            "controller.listener.names": "CONTROLLER",
            **({} if "controller.quorum.voters" in (overrides or {}) else alone),
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
        self.format()
        self.launch()
        self.wait_until_started()

    def format(self) -> None:
        """Write the properties and format the directory, once."""
        if self._properties_file.exists():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in self._properties.items()]
        self._properties_file.write_text("".join(lines), encoding="utf-8")
        voters = () if "controller.quorum.voters" in self._properties else ("--standalone",)
        arguments = ("format", *voters, "-t", CLUSTER_ID, "-c", str(self._properties_file))
        formatted = run_tool("kafka.tools.StorageTool", *arguments, version=self._version)
        assert formatted.exit_code == 0, formatted

    def launch(self) -> None:
        """Start the process of a formatted directory."""
        with self._output_file.open("wb") as output:
            self.process = subprocess.Popen(
                java_command("kafka.Kafka", str(self._properties_file), flags=(*self._flags, LOG_FLAG + "info")),
                env=java_environment(self._version),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_started(self) -> None:
        """Returns when the broker serves."""
        assert self.process is not None, "it is launched first"
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
