"""Compiled once per machine: a fresh process loads machine code from disk, wherever the package could be written or not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas_wire.records import compiled
from pyspark_barnabas import scan

SCAN = Path(scan.__file__)
WIRE = str(Path(compiled.__file__).parents[2])
REPORT = """
import logging, sys
logging.basicConfig(format="%(message)s")
import scan
stats = scan.scan_records.stats, scan.scan_headers.stats
print(sum(sum(s.cache_hits.values()) for s in stats), sum(sum(s.cache_misses.values()) for s in stats), stats[0].cache_path)
"""


def load(installed: Path, **environment: str) -> tuple[int, int, str, str]:
    """(cache hits, compilations, cache directory, warnings) of a fresh process that imports the module."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT],
        cwd=installed,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/dev/null",
            "TMPDIR": str(installed.parent),
            "PYTHONPATH": WIRE,
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    hits, misses, path = done.stdout.split(maxsplit=2)
    return int(hits), int(misses), path.strip(), done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The module in a directory of its own, as an installation that this account may write."""
    directory = tmp_path / "site"
    directory.mkdir()
    shutil.copy(SCAN, directory)
    return directory


def make_read_only(installed: Path) -> None:
    """A file where the cache would be: root, too, cannot write there."""
    (installed / "__pycache__").touch()


def test_the_second_process_compiles_nothing(installed: Path) -> None:
    assert load(installed)[:3] == (0, 2, str(installed / "__pycache__"))
    assert load(installed)[:3] == (2, 0, str(installed / "__pycache__"))


def test_a_read_only_installation_compiles_below_the_users_cache(installed: Path, tmp_path: Path) -> None:
    make_read_only(installed)
    hits, misses, path, _ = load(installed, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (hits, misses) == (0, 2)
    assert Path(path).is_relative_to(tmp_path / "cache")
    assert load(installed, XDG_CACHE_HOME=str(tmp_path / "cache"))[:2] == (2, 0)


def test_an_account_without_a_home_compiles_in_a_directory_of_its_own(installed: Path, tmp_path: Path) -> None:
    make_read_only(installed)
    private = tmp_path / f"barnabas-compiled-{os.getuid()}"
    hits, misses, path, warnings = load(installed)
    assert (hits, misses, warnings) == (0, 2, "")
    assert Path(path).is_relative_to(private)
    assert private.stat().st_mode & 0o777 == 0o700
    assert load(installed)[:2] == (2, 0)


def test_code_is_never_loaded_from_a_directory_that_others_may_write(installed: Path, tmp_path: Path) -> None:
    make_read_only(installed)
    private = tmp_path / f"barnabas-compiled-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    hits, _, _, warnings = load(installed)
    assert hits == 0
    assert "every Python worker compiles" in warnings
    assert not list(private.iterdir())
