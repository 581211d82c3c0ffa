"""What `make test` makes of tests that failed beside the other lanes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.unsteady import UNSTEADY_MAX, main

STEADY, UNSTEADY, BROKEN = (
    "def test_steady(): pass\n",
    "import pathlib\ndef test_unsteady():\n    flag = pathlib.Path(__file__ + '.met')\n    assert flag.exists() or flag.touch()\n",
    "def test_broken(): assert 0\n",
)


def lane(directory: Path, monkeypatch: pytest.MonkeyPatch, *files: str, arguments: tuple[str, ...] = ()) -> Path:
    """As .ci/test leaves one that has run these files."""
    monkeypatch.chdir(directory)
    (directory / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(files):
        (directory / f"test_{number}.py").write_text(text)
    cache = f"cache_dir={directory / 'cache' / 'lane'}"
    command = [sys.executable, "-m", "pytest", "-q", "-o", cache, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60)
    (directory / "failed").write_text(f"lane {done.returncode}\n")
    return directory


def test_one_that_passes_alone_is_named_and_not_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(lane(tmp_path, monkeypatch, STEADY, UNSTEADY))]) == 0
    said = capfd.readouterr().out
    assert "UNSTEADY, 1 failed" in said and said.rstrip().endswith("test_1.py::test_unsteady")


def test_one_that_fails_alone_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([str(lane(tmp_path, monkeypatch, STEADY, UNSTEADY, BROKEN))]) == 1


def test_many_at_once_are_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([str(lane(tmp_path, monkeypatch, *[UNSTEADY] * (UNSTEADY_MAX + 1)))]) == 1


def test_a_lane_that_ended_otherwise_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([str(lane(tmp_path, monkeypatch, STEADY, arguments=("--no-such-option",)))]) == 1
    (tmp_path / "failed").write_text("lane 1\n")
    assert main([str(tmp_path)]) == 1, "it failed, and no test is known to have"


def test_a_lane_that_was_broken_off_is_red_whatever_passes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane(tmp_path, monkeypatch, UNSTEADY)
    (tmp_path / "failed").write_text("lane 2\n")
    assert main([str(tmp_path)]) == 1
