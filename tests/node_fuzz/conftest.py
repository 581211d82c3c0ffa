"""The short form of node-fuzz, once for all tests here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def short_form(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """In a process of its own: it forks, which a process that has used gRPC must not."""
    report = tmp_path_factory.mktemp("node-fuzz") / "report.json"
    command = [sys.executable, "-W", "ignore", "-m", "tests.node_fuzz", "--short", "--json", str(report)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return found
