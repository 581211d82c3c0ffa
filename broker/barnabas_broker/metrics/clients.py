"""What clients push of their own metrics to this broker, and what came of their pushes (KIP-714).

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: series come from the bounded store of ../telemetry/pushed_clients.py alone; without a receiver there are
            none; a value is in the unit that its client names it in, which for Kafka's clients are milliseconds.
Read next:  exporter.py; ../telemetry/receiver.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import Labels, Sample, copied, counter, gauge
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.telemetry.pushed_clients import PushedClient

if TYPE_CHECKING:
    from barnabas_broker.telemetry.otlp import Series


def client_families(sources: NodeSources) -> Iterator[Metric]:
    """Clients that push to this broker, with their latest readings."""
    telemetry = sources.telemetry
    if telemetry is None or not telemetry.config.receiver:
        return
    stats = telemetry.stats
    yield counter(
        "client_telemetry_pushes",
        "Pushes of clients by what came of them.",
        [
            ({"result": "taken"}, stats.taken),
            ({"result": "throttled"}, stats.throttled),
            ({"result": "unknown-subscription"}, stats.unknown_subscription),
            ({"result": "refused"}, stats.refused),
        ],
    )
    yield counter("client_telemetry_asked", "Requests of clients for what they are to push.", [({}, stats.asked)])
    yield counter(
        "client_telemetry_left_out",
        "What had no room: clients that others put out, series of a client beyond its bound, pushes that too many others waited before.",
        [
            ({"what": "clients"}, stats.clients_put_out),
            ({"what": "series"}, stats.series_left_out),
            ({"what": "pushes"}, stats.busy),
        ],
    )
    yield gauge("client_instances", "Client instances that ask or push here.", [({}, len(telemetry.instances))])
    found = copied(lambda: telemetry.clients.current(sources.clock_ms()))
    yield gauge(
        "client_info",
        "A client that pushes here, the group that it says it is a member of, and its software.",
        [
            (
                {
                    "client_instance": str(each.client.instance_id),
                    "client": each.client.client_id,
                    "group": each.group_id,
                    "software": each.client.software_name,
                    "version": each.client.software_version,
                    "host": each.client.host,
                },
                1,
            )
            for each in found
        ],
    )
    yield gauge(
        "client_metric",
        "The latest value that a client has pushed of a metric of its own, by the client's name for it.",
        [sample for each in found for sample in _samples(each, each.gauges)],
    )
    yield counter(
        "client_metric_growth",
        "What a client has pushed of a metric that only grows, summed up since this broker heard of it.",
        [sample for each in found for sample in _samples(each, each.totals)],
    )


def _samples(client: PushedClient, values: Mapping[Series, float]) -> Iterator[Sample]:
    instance = str(client.client.instance_id)
    for series, value in values.items():
        labels: Labels = {
            "client_instance": instance,
            "metric": series.metric,
            "topic": series.topic,
            "partition": series.partition,
            "node": series.node,
        }
        yield labels, value
