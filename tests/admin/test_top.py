"""The screen of `barnabas top`."""

from __future__ import annotations

from typing import Any

from barnabas_admin.commands.top import screen


def found(*brokers: tuple[int, str, str | None]) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("partitions", "leaderless", "under_replicated", "under_min_isr", "moving", "timestamp_ms"), 0
    )
    rows = [
        {"id": each, "state": state, "host": host, "leaders": each, "replicas": 10} for each, state, host in brokers
    ]
    return {"healthy": True, "controller_id": 1, "brokers": rows, "topics": [], "groups": []} | counts


def shown(*brokers: tuple[int, str, str | None]) -> list[list[str]]:
    lines = screen(found(*brokers)).splitlines()[3:]
    return [line.split() for line in lines[: lines.index("")]]


def test_brokers_that_name_no_host_are_a_plain_list() -> None:
    assert shown((1, "active", None), (2, "fenced", None)) == [
        ["BROKER", "STATE", "LEADERS", "REPLICAS"],
        ["1", "active", "1", "10"],
        ["2", "fenced", "2", "10"],
    ]


def test_brokers_of_a_host_stand_together_under_its_sum() -> None:
    assert shown(
        (1, "active", "h2"), (2, "fenced", "h1"), (3, "fenced, maintenance", "h1"), (4, "maintenance", "h2")
    ) == [
        ["HOST", "BROKER", "STATE", "LEADERS", "REPLICAS"],
        ["h1", "lost", "5", "20"],
        ["2", "fenced", "2", "10"],
        ["3", "fenced,", "maintenance", "3", "10"],
        ["h2", "2", "of", "2", "in", "service", "5", "20"],
        ["1", "active", "1", "10"],
        ["4", "maintenance", "4", "10"],
    ]
