"""A node's disk fills up under real processes: others lead, the node lives and restarts, and is in sync again when there is room."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster]


def test_a_full_disk_costs_leadership_and_nothing_else(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs unshare -m (root, or CAP_SYS_ADMIN) for a small disk that nobody else sees")
    done = subprocess.run(
        [unshare, "-m", sys.executable, "-m", "tests.cluster.full_disk", str(tmp_path / "cluster")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "records acknowledged, all there" in done.stdout
