"""A Spark home without pyspark.zip, in which Spark's Python processes find the pyspark that pip installed and compiled.

May touch:  one directory of links in the user's cache.   Must not touch: the installed pyspark, the environment.
Invariants: a home is complete when it appears under its name; what it links to is the installation that this interpreter imports.
Read next:  session.py, which sets it.

Not obvious
- Spark puts SPARK_HOME/python/lib/pyspark.zip before everything else on the path of each Python process that it starts. Nothing in a
  zip file is compiled beforehand: each process takes 0.44 CPU seconds to import pyspark instead of 0.08, and a first query starts five,
  every stream one more. A path that does not exist is passed over, and the next one is the interpreter's own.
- The home lies in the user's cache, never below a shared directory: anybody who may write in it says which jars Spark runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pyspark

LINKED = ("bin", "conf", "data", "examples", "jars", "licenses", "sbin")
"""All of Spark that is no Python. conf need not exist: users make it later."""


def home_without_zip(package: Path | None = None, cache: Path | None = None) -> Path | None:
    """Make the home, or find it made.

    package: the directory of the installed pyspark (default: what this process imports). cache: where homes lie (default:
    XDG_CACHE_HOME/barnabas, or ~/.cache/barnabas).

    Returns None where it would gain nothing (pyspark comes from a zip itself, or has none, or no jars) or cannot be made.
    """
    package = Path(pyspark.__file__).resolve().parent if package is None else package
    if not (package / "jars").is_dir() or not (package / "python" / "lib" / "pyspark.zip").is_file():
        return None
    try:
        if cache is None:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
        home = cache / f"spark-{hashlib.sha256(os.fsencode(package)).hexdigest()[:12]}"
        if not home.is_dir():
            _make(home, package)
    except (OSError, RuntimeError):  # RuntimeError: an account without a home
        return None
    return home


def _make(home: Path, package: Path) -> None:
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=home.parent))
    try:
        for name in LINKED:
            (made / name).symlink_to(package / name)
        with contextlib.suppress(FileExistsError):  # a process beside this one was first
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
