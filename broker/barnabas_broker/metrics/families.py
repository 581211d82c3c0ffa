"""How a metric family is made of samples, and how a room's dict is read while the room works.

May touch:  prometheus_client.        Must not touch: any room.
Invariants: every name gets the prefix; a family without samples has no series; all samples of a family have the same labels.
Read next:  exporter.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.ids import TopicPartition

PREFIX = "barnabas_"
T = TypeVar("T")
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


def gauge(name: str, doc: str, samples: Sequence[Sample]) -> Metric:
    """What goes up and down."""
    return _filled(GaugeMetricFamily(PREFIX + name, doc, labels=_label_names(samples)), samples)


def counter(name: str, doc: str, samples: Sequence[Sample]) -> Metric:
    """`name` without _total, which the exposition adds."""
    return _filled(CounterMetricFamily(PREFIX + name, doc, labels=_label_names(samples)), samples)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, samples: Sequence[Sample]
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in samples:
        family.add_metric(list(labels.values()), value)
    return family


def summary(name: str, doc: str, samples: Sequence[tuple[Labels, int, float]]) -> Metric:
    """Count and sum, where a room keeps no buckets."""
    family = SummaryMetricFamily(PREFIX + name, doc, labels=_label_names([(labels, 0) for labels, _, _ in samples]))
    for labels, count, total in samples:
        family.add_metric(list(labels.values()), count, total)
    return family


def histogram(name: str, doc: str, samples: Sequence[tuple[Labels, Histogram]]) -> Metric:
    """Times by bucket, cumulated as Prometheus wants them."""
    family = HistogramMetricFamily(PREFIX + name, doc, labels=_label_names(samples))
    for labels, counts in samples:
        cumulated = 0
        buckets = []
        for bound, count in zip([*map(str, counts.bounds), "+Inf"], list(counts.counts), strict=True):
            cumulated += count
            buckets.append((bound, float(cumulated)))
        family.add_metric(list(labels.values()), buckets, counts.total)
    return family


def _label_names(samples: Sequence[tuple[Labels, object]]) -> list[str]:
    return list(samples[0][0]) if samples else []


def copied(items: Callable[[], Iterable[T]]) -> list[T]:
    """A list of items of a dict that another thread may be changing; read again when it did."""
    while True:
        try:
            return list(items())
        except RuntimeError:
            continue


def partition_labels(partition: TopicPartition) -> Labels:
    """The labels of a partition's own series."""
    return {"topic": partition.topic, "partition": str(partition.partition)}
