"""What is read of a push, and that no bytes cost more than they may."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest

from barnabas_broker.telemetry.otlp import POINTS_MAX, TEXT_MAX, InvalidPush, Series, open_push
from barnabas_wire.records.compression import CompressionType, compress
from tests.broker.telemetry.pushes import CUMULATIVE, field, gauge, pushed, total

MAX = 1 << 20
LATENCY, REBALANCES = (
    "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg",
    "org.apache.kafka.consumer.coordinator.rebalance.total",
)
SAMPLE = pushed(
    [
        gauge(LATENCY, 1.5, node_id="2"),
        gauge("lag", 7.0, topic="orders", partition="3", colour="red"),
        total(REBALANCES, 2.0),
        total(REBALANCES, 3.0),
        total("sent", 40.0, temporality=CUMULATIVE),
        gauge("nothing", float("nan")),
    ],
    group_id="readers",
    group_member_id="m-1",
)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_push_is_read_in_every_compression(kind: CompressionType) -> None:
    found = open_push(kind, compress(kind, SAMPLE), MAX)
    assert (found.group_id, found.member_id) == ("readers", "m-1")
    assert found.gauges == {Series(LATENCY, node="2"): 1.5, Series("lag", "orders", "3"): 7.0}
    assert found.growth == {Series(REBALANCES): 5.0}
    assert found.totals == {Series("sent"): 40.0}
    assert found.size_bytes == len(SAMPLE) and not found.is_cut


def test_opentelemetrys_own_encoder_is_understood() -> None:
    otlp = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    data = otlp.MetricsData()
    resource = data.resource_metrics.add()
    attribute = resource.resource.attributes.add(key="group_id")
    attribute.value.string_value = "readers"
    metric = resource.scope_metrics.add().metrics.add(name="lag")
    lag = metric.gauge.data_points.add(as_int=-4)
    partition = lag.attributes.add(key="partition")
    partition.value.int_value = 3
    resource.scope_metrics[0].metrics.add(name="shape").histogram.data_points.add(count=3)
    found = open_push(CompressionType.NONE, data.SerializeToString(), MAX)
    assert found.group_id == "readers" and found.gauges == {Series("lag", partition="3"): -4.0}


def test_no_bytes_are_anything_but_readings_or_an_invalid_push() -> None:
    for end in range(len(SAMPLE)):
        for data in (SAMPLE[:end], SAMPLE[:end] + b"\xff" + SAMPLE[end + 1 :]):
            try:
                open_push(CompressionType.NONE, data, MAX)
            except InvalidPush as refused:
                assert refused.message
    rng = random.Random(7)
    for kind in CompressionType:
        with pytest.raises(InvalidPush):
            open_push(kind, b"\xff" + rng.randbytes(300), MAX)


@pytest.mark.parametrize("kind", set(CompressionType) - {CompressionType.NONE})
def test_a_bomb_is_refused_and_costs_no_memory(kind: CompressionType) -> None:
    bomb = (
        compress(kind, bytes(200 * MAX))
        if kind is not CompressionType.GZIP
        else zlib.compress(bytes(200 * MAX), wbits=31)
    )
    assert len(bomb) < 12 * MAX
    tracemalloc.start()
    try:
        with pytest.raises(InvalidPush):
            open_push(kind, bomb, MAX)
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX
    finally:
        tracemalloc.stop()


def test_points_and_texts_have_a_bound() -> None:
    many = open_push(CompressionType.NONE, pushed([gauge(f"m{n}", n) for n in range(2 * POINTS_MAX)]), MAX)
    assert many.is_cut and len(many.gauges) <= POINTS_MAX
    empty = open_push(CompressionType.NONE, field(1, field(2, field(2, b"") * (MAX // 3))), MAX)
    assert empty.is_cut and not empty.gauges
    (series,) = open_push(CompressionType.NONE, pushed([gauge("n" * 5000, 1, topic="t" * 5000)]), MAX).gauges
    assert len(series.metric) == len(series.topic) == TEXT_MAX
