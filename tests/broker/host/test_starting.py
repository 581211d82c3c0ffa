"""What a node finds of its parent's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_broker.host.starting import node_environment

GIVEN = {
    "PATH": "/bin",
    "KAFKA_NODE_ID": "7",
    "NOTIFY_SOCKET": "/run/systemd/notify",
    "WATCHDOG_USEC": "1",
    "WATCHDOG_PID": "1",
    "BARNABAS_FORMAT_FOR": "x",
    "BARNABAS_LOG_LEVEL": "DEBUG",
}


@pytest.mark.parametrize(("watchdog_ms", "usec"), [(3000, "3000000"), (0, "60000000")])
def test_a_node_tells_its_parent_and_has_no_key_that_all_would_share(watchdog_ms: int, usec: str) -> None:
    found = node_environment(GIVEN, notify=Path("/h/broker-1.notify"), watchdog_ms=watchdog_ms, formats=False)
    assert found == {
        "PATH": "/bin",
        "BARNABAS_LOG_LEVEL": "DEBUG",
        "NOTIFY_SOCKET": "/h/broker-1.notify",
        "WATCHDOG_USEC": usec,
    }


def test_a_controller_is_told_how_it_may_be_formatted() -> None:
    found = node_environment(GIVEN, notify=Path("/h/n"), watchdog_ms=1, formats=True)
    assert found["BARNABAS_FORMAT_FOR"] == "x"
