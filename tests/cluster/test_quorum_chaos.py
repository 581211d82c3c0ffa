"""A real quorum in network namespaces: one fault of every kind under a metadata load, and the history stays linearizable.

The long runs are `python -m tests.chaos` (`make chaos`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.network import why_not_permitted

pytestmark = [pytest.mark.cluster]

RUN_TIMEOUT_S = 280


def test_one_fault_of_every_kind_leaves_the_metadata_history_linearizable(tmp_path: Path) -> None:
    if reason := why_not_permitted():
        pytest.skip(reason)
    report_file = tmp_path / "chaos.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "sample", "--seed", "5", "--details", "--json", str(report_file)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = json.loads(report_file.read_text())
    assert report["faults"] == 5, "a kill, a pause, a cut, a kill of all, a restart"
    assert report["elections"] >= 4
    assert report["operations"] > 200
    assert report["local_reads"] > 20
