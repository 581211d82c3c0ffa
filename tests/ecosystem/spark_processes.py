"""Spark as processes of its own: a server of Spark Connect, a master, workers, and a client of them.

May touch:  processes it starts, their logs.      Must not touch: the product's modules.
Invariants: all of it is on 127.0.0.1; a process is ended with all that it has started, each by its id, and is gone when that returns.
Read next:  spark_client.py, test_spark_clusters.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark

HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
START_S = 180.0
"""Of a JVM on a machine with much else to do."""
END_S = 20.0


@contextmanager
def spark_process(command: Sequence[str], log: Path, ready: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """One of Spark's own commands, once its log has the line that matches `ready`; yields it and the match's first group."""
    process = _start([str(HOME / "bin" / command[0]), *command[1:]], log)
    try:
        yield process, _said(process, log, ready)
    finally:
        end(process)


def connect_server(place: Path) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], str]]:
    """A server of Spark Connect on local[2]; the text is its port."""
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    command = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return spark_process([*command, "spark-internal"], place / "server.log", r"server started at: \S*:(\d+)")


@contextmanager
def standalone(place: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and so many workers of one core each; yields the master's address and the workers."""
    own = ["--host", LOOPBACK, "--webui-port", "0"]
    with contextlib.ExitStack() as running:
        master = ["spark-class", "org.apache.spark.deploy.master.Master", *own, "--port", "0"]
        _, address = running.enter_context(
            spark_process(master, place / "master.log", r"Starting Spark master at (spark://\S+)")
        )
        made = []
        for number in range(workers):
            worker = ["spark-class", "org.apache.spark.deploy.worker.Worker", *own, "--cores", "1", "--memory", "1g"]
            words = [*worker, "--work-dir", str(place / f"worker-{number}"), address]
            log = place / f"worker-{number}.log"
            made.append(running.enter_context(spark_process(words, log, r"Successfully registered with (master)"))[0])
        yield address, made


def executors(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The executors that a worker has started and that live."""
    found = []
    for child in psutil.Process(worker.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                found.append(child)
    return found


def run_client(
    asked: Mapping[str, Any], log: Path, *, timeout_s: float, meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    """What spark_client.py found; `meanwhile` is called again and again until it ends."""
    process = _start([sys.executable, "-m", "tests.ecosystem.spark_client", json.dumps(asked)], log)
    try:
        deadline = time.monotonic() + timeout_s
        while process.poll() is None:
            assert time.monotonic() < deadline, f"no end within {timeout_s:.0f} s\n{log.read_text()[-3000:]}"
            if meanwhile is not None:
                meanwhile()
            time.sleep(0.05)
    finally:
        end(process)
    said = log.read_text()
    assert process.returncode == 0, said[-4000:]
    found: dict[str, Any] = json.loads(said.rpartition("FOUND ")[2].partition("\n")[0])
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it and what it has started, each by its id; they are gone when this returns."""
    tree = []
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        tree = [root, *root.children(recursive=True)]
    for one in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    _, alive = psutil.wait_procs(tree, END_S)
    assert not alive, f"processes that do not end: {alive}"


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    own = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    environment = os.environ | own | {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "512m"}
    environment.pop("SPARK_CONNECT_MODE", None)
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=ROOT)


def _said(process: subprocess.Popen[bytes], log: Path, ready: str) -> str:
    deadline = time.monotonic() + START_S
    while (found := re.search(ready, log.read_text())) is None:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
    return found.group(1)
