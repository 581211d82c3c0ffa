"""The brokers' page where brokers name hosts; it needs no cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_admin.console import charts, pages
from barnabas_admin.console.application import _environment
from barnabas_wire.rpc import admin_pb2


class Cluster:
    """Answers with these brokers."""

    history = None

    def __init__(self, *brokers: admin_pb2.Broker) -> None:
        self._found = SimpleNamespace(brokers=brokers, controller_id=1)

    async def admin(self, call: object) -> Any:
        return self._found


async def shown(monkeypatch: pytest.MonkeyPatch, *brokers: admin_pb2.Broker) -> tuple[dict[str, Any], str]:
    """What the page is given, and its table's rows."""

    async def nothing(*_: object) -> Any:
        return []

    async def no_charts(*_: object) -> Any:
        return {"charts": [], "span": "1h", "spans": []}

    monkeypatch.setattr(pages, "_directories", nothing)
    monkeypatch.setattr(charts, "read_charts", no_charts)
    found = await pages.brokers(Cluster(*brokers), {})  # type: ignore[arg-type]
    environment = _environment(is_read_only=True)
    page = environment.get_template("brokers.html")
    parts = environment.get_template("parts.html").module
    context = page.new_context(found | {"parts": parts, "path": "/brokers", "query": {}})
    return found, "".join(page.blocks["main"](context))


async def test_brokers_of_a_host_stand_together_and_a_lost_host_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    found, table = await shown(
        monkeypatch,
        admin_pb2.Broker(id=1, host="b"),
        admin_pb2.Broker(id=2, host="a", fenced=True),
        admin_pb2.Broker(id=3, host="b", fenced=True),
        admin_pb2.Broker(id=4, host="a", fenced=True),
        admin_pb2.Broker(id=5, host="c", fenced=True),
    )
    assert [row["id"] for row in found["brokers"]] == [2, 4, 1, 3, 5]
    assert table.count("lost</span>") == 2 and "<th>Host</th>" in table


async def test_where_no_broker_names_a_host_there_is_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    found, table = await shown(monkeypatch, admin_pb2.Broker(id=2), admin_pb2.Broker(id=1))
    assert [row["id"] for row in found["brokers"]] == [2, 1] and "Host" not in table
