"""Spark's planner imports every top-level pyspark_* package: ours must be cheap, and must not fail without its libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql.datasource import DataSource

import pyspark_barnabas

HEAVY = ("numba", "numpy", "pyarrow", "grpc", "barnabas_wire", "fastcrc", "cramjam")
REPORT = f"""
import sys
import pyspark.sql.datasource
for name in {HEAVY!r}:
    if name in sys.modules:
        continue  # pyspark's own doing
    sys.modules[name] = None  # an import of it would raise
import pyspark_barnabas
print(pyspark_barnabas.DefaultSource.name())
"""


def test_importing_the_package_needs_pyspark_alone() -> None:
    done = subprocess.run([sys.executable, "-c", REPORT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "barnabas"


def test_spark_finds_one_source_in_the_package() -> None:
    assert issubclass(pyspark_barnabas.DefaultSource, DataSource)
    assert DataSource.__init__ is pyspark_barnabas.DefaultSource.__init__, "Spark makes it with its options"


def test_a_spark_before_4_is_told_what_reads_instead(tmp_path: Path) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.9"')
    (tmp_path / "pyspark" / "sql" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import pyspark_barnabas"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().rpartition("\n")[2]
    assert last.startswith("ImportError: pyspark_barnabas needs Spark 4.0 or later, and this is 3.5.9.")
    assert 'format("kafka")' in last
