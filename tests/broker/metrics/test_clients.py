"""What clients pushed stands on /metrics, by client instance, within bounds."""

from __future__ import annotations

from barnabas_broker.telemetry.config import TelemetryConfig
from barnabas_broker.telemetry.otlp import Push, Series
from barnabas_broker.telemetry.receiver import ClientTelemetry
from barnabas_broker.telemetry.subscriptions import Client
from barnabas_wire.kafka.ids import Uuid
from tests.broker.metrics.test_exporter import NOW_MS, make_sources, scrape, value

INSTANCE = Uuid(bytes(15) + b"\x07")


def test_what_clients_pushed_is_reported_by_client_instance_while_it_is_current() -> None:
    telemetry = ClientTelemetry(TelemetryConfig(receiver=True))
    client = Client(INSTANCE, 'a "client"\n', "java", "4.4.0", "10.0.0.1", 1)
    push = Push("readers", "m", {Series("lag", "t", "3"): 7.0}, {Series("sent"): 4.0}, {}, 100, False)
    telemetry.clients.add(client, push, now_ms=NOW_MS, kept_ms=600)
    telemetry.stats.taken = 1
    samples = scrape(make_sources(telemetry=telemetry))
    mine = {"client_instance": str(INSTANCE), "node": ""}
    assert value(samples, "client_metric", metric="lag", topic="t", partition="3", **mine) == 7
    assert value(samples, "client_metric_growth_total", metric="sent", topic="", partition="", **mine) == 4
    (info,) = [dict(labels) for name, labels in samples if name == "barnabas_client_info"]
    assert info["client"] == 'a "client"\n' and info["group"] == "readers" and info["software"] == "java"
    assert value(samples, "client_telemetry_pushes_total", result="taken") == 1
    late = make_sources(telemetry=telemetry, clock_ms=lambda: NOW_MS + 601)
    assert not [name for name, _ in scrape(late) if name in ("barnabas_client_metric", "barnabas_client_info")]


def test_without_a_receiver_there_are_no_such_series() -> None:
    assert not [name for name, _ in scrape(make_sources(telemetry=ClientTelemetry())) if "barnabas_client_" in name]
