"""What a demo left up by KEEP=1 stops with: its script ends the nodes and the console, and removes their files."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

nodes: Any = importlib.import_module("nodes")


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def test_the_stop_script_ends_the_console_with_the_nodes(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    left_up = nodes.Nodes(directory, is_kept=True)
    in_order = left_up.brokers + left_up.controllers  # as the script stops them; each is reaped before the next
    started = [sleeper() for _ in in_order]
    for node, process in zip(in_order, started, strict=True):
        node.process = process
    left_up._console = sleeper()
    stopping = subprocess.Popen(["sh", str(left_up.write_stop_script())])
    try:
        for process in (left_up._console, *started):
            assert process.wait(20) == -15
        assert stopping.wait(20) == 0
    finally:
        for process in (left_up._console, *started):
            process.kill()
    assert not directory.exists()


def test_the_console_is_stopped_with_the_nodes(tmp_path: Path) -> None:
    left_up = nodes.Nodes(tmp_path, is_kept=True)
    left_up._console = sleeper()
    assert left_up.stop() == []
    assert left_up._console.poll() == -15
