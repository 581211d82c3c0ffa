"""A real cluster in network namespaces: a kill and a cut under real clients, transactional ones too, whose EndTxn comes late, and every
rule of the data plane holds.

The long runs are `python -m tests.chaos.data` (`make chaos-data`).
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


def test_a_kill_and_a_one_way_cut_break_no_rule_of_the_data_plane(tmp_path: Path) -> None:
    if reason := why_not_permitted():
        pytest.skip(reason)
    report_file = tmp_path / "chaos.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.chaos.data",
            "sample",
            "--seed=3",
            "--budget=0",
            "--details",
            "--json",
            str(report_file),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = json.loads(report_file.read_text())
    assert report["faults"] == 1
    assert report["figures"]["acknowledged"] > 2000
    assert report["figures"]["committed"] > 40
    assert report["figures"]["late_ends"] >= 1, "of which none was accepted, or E15l were in the findings"
