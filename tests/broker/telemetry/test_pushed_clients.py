"""What is kept of pushes: the latest of each client, within bounds."""

from __future__ import annotations

import pytest

from barnabas_broker.telemetry import pushed_clients as module
from barnabas_broker.telemetry.otlp import Push, Series
from barnabas_broker.telemetry.pushed_clients import PushedClients, PushStats
from barnabas_broker.telemetry.subscriptions import Client
from barnabas_wire.kafka.ids import Uuid

KEPT_MS = 100


def client(number: int, host: str = "10.0.0.1") -> Client:
    return Client(Uuid(number.to_bytes(16, "big")), "c", "java", "4.4.0", host, 1)


def push(gauges: int = 0, totals: int = 0, growth: float | None = None) -> Push:
    grown = {} if growth is None else {Series("grown"): growth}
    return Push(
        "g",
        "m",
        {Series(f"g{n}"): n for n in range(gauges)},
        {Series(f"t{n}"): n for n in range(totals)},
        grown,
        0,
        False,
    )


def kept() -> PushedClients:
    return PushedClients(PushStats())


def test_growth_is_summed_up_and_gauges_are_replaced() -> None:
    found = kept()
    for now_ms, each in enumerate((push(2, growth=3), push(1, growth=4))):
        found.add(client(1), each, now_ms=now_ms, kept_ms=KEPT_MS)
    (one,) = found.current(1)
    assert one.totals == {Series("grown"): 7.0} and one.gauges == {Series("g0"): 0}
    assert found.current(1 + KEPT_MS) and not found.current(2 + KEPT_MS)
    found.add(client(1), push(growth=5), now_ms=500, kept_ms=KEPT_MS)
    assert found.current(500)[0].totals == {Series("grown"): 5.0}, "a sum that nobody saw for long begins anew"


def test_a_client_has_so_many_series_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_PER_CLIENT_MAX", 5)
    stats = PushStats()
    found = PushedClients(stats)
    found.add(client(1), push(3, 7), now_ms=0, kept_ms=KEPT_MS)
    assert found.current(0)[0].series == 5 and stats.series_left_out == 5
    found.add(client(1), push(9), now_ms=1, kept_ms=KEPT_MS)
    assert found.current(1)[0].series == 5


def test_the_host_with_the_most_clients_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that makes up clients puts out its own."""
    monkeypatch.setattr(module, "CLIENTS_MAX", 4)
    found = kept()
    found.add(client(1, "10.0.0.9"), push(1), now_ms=0, kept_ms=KEPT_MS)
    for number in range(2, 40):
        found.add(client(number), push(1), now_ms=0, kept_ms=KEPT_MS)
    assert [int.from_bytes(each.client.instance_id, "big") for each in found.current(0)] == [1, 37, 38, 39]
    assert found._series == 4


def test_all_clients_together_have_so_many_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 10)
    found = kept()
    for number in range(1, 5):
        found.add(client(number), push(4), now_ms=number, kept_ms=KEPT_MS)
    assert len(found.current(4)) == 2 and found._series == 8
    found.add(client(5), push(4), now_ms=4 + KEPT_MS + 1, kept_ms=KEPT_MS)
    assert len(found.known) == 1, "what is no longer current goes first"
