"""The newest events are found behind whatever a cluster at rest writes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.console.events import read_events


class Log:
    """Stands for the admin service of a node: `kinds` are its records, from offset 0."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.asked: list[int] = []

    def inspect_stream(self, method: str, request: Any) -> Iterator[Any]:
        assert method == "ReadLog"
        self.asked.append(request.last)
        start = getattr(request, "from")
        first = max(0, len(self.kinds) - request.last) if start < 0 else start
        entries = [
            SimpleNamespace(offset=offset, epoch=1, timestamp_ms=offset, kind=kind, json='{"n": 1}')
            for offset, kind in enumerate(self.kinds)
            if offset >= first
        ]
        yield SimpleNamespace(entries=entries[:3])
        yield SimpleNamespace(entries=entries[3:])


def offsets(log: Log, **asked: int) -> list[int]:
    return [event["offset"] for event in read_events(cast(AdminClient, log), last=8, **asked)["events"]]


HASH = "ImageHashRecord"


@pytest.mark.parametrize(
    ("at_rest", "questions"),
    [
        (0, [18]),
        (10, [18]),
        (11, [18, 24]),
        (60, [18, 24, 80]),
        (100, [18, 24, 80, 240]),
        (5_000, [18, 24, 80, 240, 800]),
    ],
)
def test_what_an_idle_cluster_writes_hides_nothing(at_rest: int, questions: list[int]) -> None:
    log = Log(*["TopicRecord"] * 20, *[HASH] * at_rest)
    assert offsets(log) == (list(range(19, 11, -1)) if at_rest <= 700 else [])
    assert log.asked == questions


def test_a_young_log_is_read_once_and_an_older_page_ends_at_its_offset() -> None:
    log = Log("TopicRecord", HASH, "ConfigRecord")
    assert offsets(log) == [2, 0] and log.asked == [18]
    log = Log(*["TopicRecord"] * 30)
    assert offsets(log, before=20) == list(range(19, 11, -1))
