"""The JVM behind a SparkSession of the tests, started as a plain subprocess.

May touch:  processes it starts, PYSPARK_* of this process's environment.    Must not touch: Barnabas.
Invariants: nothing is forked with Python code in the child: pyspark's own launcher does (preexec_fn), and this process has run
            gRPC threads by then, which a fork may leave holding locks.
Read next:  test_session.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from pyspark_barnabas.spark_home import home_without_zip

START_TIMEOUT_S = 100.0
STOP_TIMEOUT_S = 20.0
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "pyspark_barnabas.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    # These JVMs live for a minute and their queries are tiny: optimising compilers cost more than they give.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Jvm:
    """A Spark gateway and the one session on it."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        if shutil.which("java") is None:
            pytest.skip("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
        self.output = directory / "spark.log"
        wanted = SETTINGS | {"spark.sql.warehouse.dir": str(directory / "warehouse")} | dict(settings or {})
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
        for name, value in wanted.items():
            command += ["--conf", f"{name}={value}"]
        handshake = Path(tempfile.mkdtemp(dir=directory)) / "gateway"
        home = home_without_zip(cache=directory)
        environment = os.environ | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(handshake),
            "SPARK_CONNECT_MODE": "0",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        if home is not None:
            environment["SPARK_HOME"] = str(home)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "pyspark-shell"], env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output
            )
        self._handshake = handshake
        self.session: SparkSession | None = None

    def connect(self) -> SparkSession:
        """The session, once the gateway has told where it listens."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._handshake.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no Spark gateway; it said:\n{self.output.read_text()[-3000:]}")
            time.sleep(0.05)
        with self._handshake.open("rb") as reported, pytest.MonkeyPatch.context() as environment:
            environment.setenv("PYSPARK_GATEWAY_PORT", str(read_int(reported)))
            environment.setenv("PYSPARK_GATEWAY_SECRET", UTF8Deserializer().loads(reported))
            environment.setenv("PYSPARK_PYTHON", sys.executable)
            builder: Any = SparkSession.builder
            self.session = builder.appName("barnabas-tests").getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        return self.session

    def stop(self) -> None:
        """End the session and the JVM, which goes when its standard input ends; one that does not go is killed."""
        if self.session is not None:
            self.session.stop()
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
