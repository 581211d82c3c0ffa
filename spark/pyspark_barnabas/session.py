"""What a Spark session needs so that `format("barnabas")` works, and works fast: one call on the builder, or on a session that
runs already.

May touch:  the environment of this process, the builder, a session that is given.   Must not touch: sockets, numba in this process.
Invariants: what the caller set on the builder or in the environment stays; verbose says everything that is set.
Read next:  pushdown.py, which the session must allow; barnabas_wire/records/compiled.py for the cache of compiled code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_barnabas.spark_home import home_without_zip
from pyspark_barnabas.spark_versions import HAS_FILTERS

ROWS_PER_BATCH = 65_536
"""Spark cuts what Python yields and takes at 10,000 rows, which costs a third of a sink's rate."""
PYTHON = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
CACHE = "NUMBA_CACHE_DIR"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAEMON = "spark.python.daemon.module"
HOME = "SPARK_HOME"
_COMPILE = "import pyspark_barnabas.scan, pyspark_barnabas.encoder"
COMPILE_TIMEOUT_S = 120.0
SOURCES = ("pyspark_barnabas", "pyspark_barnabas_meta")
"""Packages whose DefaultSource Spark knows by a name."""


class Setting(NamedTuple):
    """One thing that was set, or left as the caller had it."""

    name: str
    value: str
    why: str
    is_kept: bool = False
    """Whether it was there before and stayed."""

    def __str__(self) -> str:
        return f"{self.name}={self.value}  ({'kept: ' if self.is_kept else ''}{self.why})"


def configure(
    builder: SparkSession.Builder,
    *,
    python: str | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    pushdown: bool = True,
    preload: bool = True,
    cache_directory: str | Path | None = None,
    verbose: bool = False,
    say: Callable[[str], object] = print,
) -> SparkSession.Builder:
    """Set what a session needs, and return the builder: `configure(SparkSession.builder).getOrCreate()`.

    python: the interpreter of Spark's workers, which must have barnabas[spark] on every node (default: this one).
    rows_per_batch: rows of one Arrow batch between Spark and Python. pushdown: filters on topic, partition, offset and
    timestamp, and with partitionedByKey on key, narrow batch reads. preload: workers are forked with compiled code already loaded
    (daemon.py), and all of Spark's Python processes load the installed pyspark, not Spark's zip file (spark_home.py).
    cache_directory: where compiled code is kept, made and filled here; default: beside the package, or a private directory below
    the temporary one. verbose: say each setting, one call of `say` a line.

    Raises ValueError for arguments that cannot be used, RuntimeError when a session runs already or the code cannot be compiled.
    """
    if rows_per_batch < 1:
        raise ValueError(f"rows_per_batch={rows_per_batch}: at least 1, {ROWS_PER_BATCH} is good")
    if SparkSession.getActiveSession() is not None:
        raise RuntimeError(
            "a session runs already and took its interpreter with it: register(spark) sets what can still be set; "
            "for the rest call configure() first, or stop() it"
        )
    found = [
        _environment(name, python or sys.executable, "interpreter of the workers", python is not None)
        for name in PYTHON
    ]
    found += [
        _option(
            builder,
            ROWS,
            str(rows_per_batch),
            "rows of one Arrow batch; Spark's own default is 10000",
        ),
        _option(
            builder,
            PUSHDOWN,
            str(pushdown).lower(),
            "filters narrow batch reads" if pushdown else "batch reads look at everything, then filter",
        ),
        # Over TCP the first bytes of each task wait 40 ms for a delayed acknowledgement: 200 partitions of 800 records took 8.5 s, and
        # 3.8 s over Unix sockets.
        _option(builder, "spark.python.unix.domain.socket.enabled", "true", "tasks reach Python 40 ms sooner"),
    ]
    if preload:
        found.append(_option(builder, DAEMON, "pyspark_barnabas.daemon", "workers start with compiled code loaded"))
        home = home_without_zip()
        # another interpreter may need what is in the zip file
        if home is not None and os.environ[PYTHON[0]] == sys.executable:
            found.append(_environment(HOME, str(home), "Spark as installed, but for pyspark.zip", False))
    if cache_directory is not None:
        place = Path(cache_directory).expanduser().absolute()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found.append(_environment(CACHE, str(place), "compiled code of the workers", True))
        found.append(_option(builder, f"spark.executorEnv.{CACHE}", str(place), "the same, on executors"))
        _compile(os.environ[PYTHON[0]])
    if verbose:
        for setting in found:
            say(str(setting))
    return builder


def register(
    spark: SparkSession,
    *,
    python: str | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    pushdown: bool = True,
    verbose: bool = False,
    say: Callable[[str], object] = print,
) -> SparkSession:
    """Make the formats known to a session that runs already, as in a notebook, set what can still be set, and return it.

    python: the interpreter of the workers of these formats (default: that of the session; of a local one without PYSPARK_PYTHON this
    one). The rest as for configure, whose other settings a session that runs cannot take: it starts its processes more slowly.

    Raises ValueError for arguments that cannot be used.
    """
    if rows_per_batch < 1:
        raise ValueError(f"rows_per_batch={rows_per_batch}: at least 1, {ROWS_PER_BATCH} is good")
    found = []
    context = getattr(spark, "_sc", None)  # none in Spark Connect, whose server has its own
    if context is not None:
        is_free = context.master.startswith("local") and not os.environ.get(PYTHON[0])
        if python is not None or is_free:
            context.pythonExec = python or sys.executable
            found.append(Setting("pythonExec", context.pythonExec, "interpreter of the workers"))
    options = {ROWS: (str(rows_per_batch), "rows of one Arrow batch; Spark's own default is 10000")}
    if HAS_FILTERS:
        options[PUSHDOWN] = (str(pushdown).lower(), "filters narrow batch reads" if pushdown else "batches look at all")
    for name, (value, why) in options.items():
        spark.conf.set(name, value)
        found.append(Setting(name, value, why))
    for module in SOURCES:
        source = import_module(module).DefaultSource
        is_known = False
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:  # Spark found the package by itself
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
            is_known = True
        found.append(Setting("format", source.name(), "registered", is_known))
    if verbose:
        for setting in found:
            say(str(setting))
    return spark


def _environment(name: str, value: str, why: str, is_given: bool) -> Setting:
    before = os.environ.get(name)
    if before and not is_given:
        return Setting(name, before, why, is_kept=True)
    os.environ[name] = value
    return Setting(name, value, why)


def _option(builder: SparkSession.Builder, name: str, value: str, why: str) -> Setting:
    before = builder._options.get(name)  # a builder has no public way to read it
    if before is not None:
        return Setting(name, str(before), why, is_kept=True)
    builder.config(name, value)
    return Setting(name, value, why)


def _compile(python: str) -> None:
    """In a process of its own: numba in the driver would be forked with Spark's launcher."""
    done = subprocess.run(
        [python, "-c", _COMPILE], capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(
            f"{python} cannot load barnabas[spark]: {last}. Install it there, or name another with python="
        )
