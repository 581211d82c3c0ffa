"""A `barnabas-server` that is only a process, for tests of what starts and stops processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_admin import local_cluster
from tests.admin.admin_server import AdminServer

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


@pytest.fixture
def fake_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node is fake_server.py."""
    monkeypatch.setattr(
        local_cluster, "server_command", lambda *arguments: [sys.executable, str(FAKE_SERVER), *arguments]
    )


@pytest.fixture
def admin_server() -> Iterator[AdminServer]:
    """A real gRPC admin service over a fake node."""
    server = AdminServer()
    yield server
    server.close()
