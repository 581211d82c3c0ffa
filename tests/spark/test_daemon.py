"""The daemon that forks Spark's workers: what they find loaded, what they do not share, what a machine without our extra sees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_barnabas.daemon import say
from pyspark_barnabas.spark_home import home_without_zip

FORKED = """
import os, sys
from pyspark_barnabas.daemon import preload
preload()
print(*(name in sys.modules for name in ("pyspark_barnabas.scan", "pyspark_barnabas.record_layout", "pyarrow", "pandas")), flush=True)
import numpy
for _ in range(2):
    child = os.fork()
    if not child:
        print(numpy.random.random(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
READ = """
import sys
from pyspark.sql.pandas.types import to_arrow_schema
from barnabas_wire.records.batch import Record, build_batch
from pyspark_barnabas.decoder import RecordDecoder
from pyspark_barnabas.source import source_schema
written = [Record(0, 5, b"key", b"value", (("one", b"1"),)), Record(1, 6, None, None)]
records = memoryview(build_batch(written))
schema = to_arrow_schema(source_schema({"includeHeaders": "true"}), timezone="UTC", prefers_large_types=False)
decoder = RecordDecoder(topic="t", partition=3, schema=schema)
plan = decoder.plan(records, start=0, end=2, aborted=())
(batch,) = decoder.decode(records, plan, start=0, end=2)
print(*batch["value"].to_pylist(), *batch["partition"].to_pylist(), "pandas" in sys.modules)
"""
WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None\n" + FORKED


def run(script: str) -> tuple[list[str], str]:
    """Lines of standard output, and standard error."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines(), done.stderr


def test_workers_find_the_loops_loaded_and_draw_numbers_of_their_own() -> None:
    (loaded, one, other), said = run(FORKED)
    assert loaded == "True True False False"  # pyarrow and pandas begin threads
    assert one != other
    assert not said


def test_without_the_extra_the_daemon_says_so_and_goes_on() -> None:
    (loaded, one, other), said = run(WITHOUT_NUMBA)
    assert loaded == "False False False False"
    assert one != other
    assert said.startswith("pyspark_barnabas.daemon: each worker loads the compiled code itself: ")


def test_a_worker_that_reads_does_not_load_pandas() -> None:
    assert run(READ) == (["b'value' None 3 3 False"], "")


@pytest.mark.cluster
@pytest.mark.tools
def test_sparks_workers_come_from_it(spark: SparkSession) -> None:
    def parents(_: Iterable[int]) -> Iterator[str]:
        import os

        yield Path(f"/proc/{os.getppid()}/cmdline").read_text()

    found = spark.sparkContext.parallelize(range(2), 2).mapPartitions(parents).collect()
    assert [line.split("\0")[1:4] for line in found] == [["-m", "pyspark_barnabas.daemon", "pyspark.worker"]] * 2


def test_a_home_without_the_zip_file_is_made_once(tmp_path: Path) -> None:
    package = tmp_path / "installed"
    (package / "jars").mkdir(parents=True)
    assert home_without_zip(package, tmp_path / "cache") is None  # no zip file: nothing to gain
    (package / "python" / "lib").mkdir(parents=True)
    (package / "python" / "lib" / "pyspark.zip").touch()
    home = home_without_zip(package, tmp_path / "cache")
    assert home is not None
    (package / "conf").mkdir()
    assert (home / "jars").samefile(package / "jars") and (home / "conf").samefile(package / "conf")
    assert not (home / "python").exists()
    assert home_without_zip(package, tmp_path / "cache") == home
    assert list((tmp_path / "cache").iterdir()) == [home]
    (tmp_path / "file").touch()
    assert home_without_zip(package, tmp_path / "file") is None  # cannot be made


@pytest.mark.cluster
@pytest.mark.tools
def test_sparks_python_loads_the_installed_pyspark(spark: SparkSession) -> None:
    def places(_: Iterable[int]) -> Iterator[str]:
        import pyspark

        yield pyspark.__file__

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(places).collect() == [pyspark.__file__]


def test_a_task_that_a_limit_ended_leaves_no_frames_on_the_drivers_output(capsys: pytest.CaptureFixture[str]) -> None:
    say("PySpark daemon failed to flush the output:\n  ...\nBrokenPipeError: [Errno 32] Broken pipe", file=sys.stderr)
    say("PySpark daemon failed to flush the output:\n  ...\nOSError: disk full", file=sys.stderr)
    told = capsys.readouterr()
    assert "disk full" in told.err and "BrokenPipe" not in told.err and told.out == ""
