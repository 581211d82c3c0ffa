"""A `barnabas-server` that is only a process, for tests of what starts and stops processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from barnabas_admin import local_cluster
from tests.admin.admin_server import AdminServer

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


@pytest.fixture
def fake_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node is fake_server.py, by exec."""
    monkeypatch.setenv("BARNABAS_PORTABLE", "1")
    monkeypatch.setattr(
        local_cluster, "server_command", lambda *arguments: [sys.executable, str(FAKE_SERVER), *arguments]
    )


@pytest.fixture
def admin_server() -> Iterator[AdminServer]:
    """A real gRPC admin service over a fake node."""
    server = AdminServer()
    yield server
    server.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that ended may wait for ever for an init that asks how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
