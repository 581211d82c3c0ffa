"""Java programs on Kafka's libraries: the jars by Maven, our sources by javac, processes that end with the test.

May touch:  Maven, processes it starts, a temporary directory.    Must not touch: broker code.
Invariants: a process that is started here is ended here, by its own id; what cannot be had is said in one line.
Read next:  test_streams.py; ../oracle/apache.py, the same for Kafka's broker and tools.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
IS_FULL = bool(os.environ.get("BARNABAS_ECOSYSTEM_FULL"))
"""`make ecosystem`: whole forms, and jars that are missing are fetched."""
FETCH_TIMEOUT_S = 240.0
FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m")
STOP_TIMEOUT_S = 30.0
RUNTIME = "java"
STREAMS = "pom.xml"
CONNECT = "connect.xml"
"""Projects: which jars a program has."""


@functools.cache
def missing(*poms: str) -> str | None:
    """Why nothing of it can be run here, in one line; None when it can. poms: the projects that are needed; none named: both."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"the systems that stand on Kafka need {tool}"
    try:
        for pom in poms or (STREAMS, CONNECT):
            classpath(pom)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return "the jars of Kafka Streams and Connect are not in the local Maven cache: `make ecosystem` fetches them"
    return None


@functools.cache
def classpath(pom: str = STREAMS) -> str:
    """Every jar of that project, from the local Maven cache; `make ecosystem` fetches those that are missing.

    Raises CalledProcessError, TimeoutExpired.
    """
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "classpath"
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(HERE / pom),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={answer}",
        ]
        try:
            subprocess.run([*command, "--offline"], check=True, capture_output=True, timeout=60)
        except subprocess.CalledProcessError:
            if not IS_FULL:
                raise
            subprocess.run(command, check=True, capture_output=True, timeout=FETCH_TIMEOUT_S)
        return answer.read_text()


def build(source: str, directory: Path) -> None:
    """Compile one of our sources into a directory. Raises CalledProcessError."""
    subprocess.run(
        ["javac", "-nowarn", "-cp", classpath(), "-d", str(directory), str(HERE / source)], check=True, timeout=120
    )


def java_copier(directory: Path) -> list[str]:
    """The command of a copier with Kafka's Java client, compiled into a directory; tests/cluster/exactly_once.py adds its options.

    Raises CalledProcessError.
    """
    build("Copier.java", directory)
    logged = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true")
    return [
        RUNTIME,
        *FLAGS,
        *logged,
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        "-cp",
        f"{directory}{os.pathsep}{classpath()}",
        "Copier",
    ]


class JavaProgram:
    """One program in a process of its own; one of ours ends when its standard input does."""

    def __init__(self, name: str, directory: Path, *arguments: str, pom: str = STREAMS) -> None:
        """directory: where it was compiled into, if it is ours; its output goes there."""
        self.output = directory / f"{name.rpartition('.')[2]}-{len(list(directory.glob('*.log')))}.log"
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [RUNTIME, *FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", name, *arguments],
                env={**os.environ, "CLASSPATH": f"{directory}{os.pathsep}{classpath(pom)}"},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._close_input()

    def stop(self) -> None:
        """In order, if it does so in time."""
        self._close_input()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _close_input(self) -> None:
        assert self._process.stdin is not None, "it has a pipe"
        self._process.stdin.close()
