"""What a client pushed, opened: OpenTelemetry's MetricsData becomes readings (KIP-714).

May touch:  its arguments, generated protobuf types, which stop here.    Must not touch: clock, sockets, the data lane.
Invariants: nothing is allocated beyond what decompression and protobuf make of `bytes_max` bytes; at most POINTS_MAX points are looked
            at and TEXT_MAX characters of a text kept; whatever the bytes are, there are readings or an InvalidPush.
Read next:  receiver.py, which has it run in a thread; barnabas_wire/rpc/otlp_metrics.proto.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.records.compression import CompressionType, decompress
from barnabas_wire.rpc import otlp_metrics_pb2 as pb

POINTS_MAX: Final = 2_000
"""Points of one push that are looked at, and things that have none: 10 ms of a thread."""
ATTRIBUTES_MAX: Final = 16
"""Attributes of a point, or of a client, that are looked at."""
TEXT_MAX: Final = 100
"""Characters of a name or a label that are kept."""
DELTA: Final = 1
"""Aggregation temporality of sums that count from the last push on."""


class InvalidPush(KafkaError):
    """The bytes are no metrics, or decompress to more than a push may have."""

    code = ErrorCode.INVALID_RECORD


class Series(NamedTuple):
    """What a value is of."""

    metric: str
    """As the client names it: org.apache.kafka.consumer.poll.idle.ratio.avg."""
    topic: str = ""
    partition: str = ""
    node: str = ""


class Push(NamedTuple):
    """The readings of one push."""

    group_id: str
    """Empty: the client did not say one."""
    member_id: str
    gauges: dict[Series, float]
    totals: dict[Series, float]
    """What only grows, counted from the client's start."""
    growth: dict[Series, float]
    """What only grows, counted from the last push on."""
    size_bytes: int
    """After decompression."""
    is_cut: bool
    """Whether points were left out."""


def open_push(compression: CompressionType, data: bytes, bytes_max: int) -> Push:
    """Decompress and parse a push. Raises InvalidPush."""
    try:
        plain = decompress(compression, data, bytes_max=bytes_max)
    except KafkaError as error:
        raise InvalidPush(f"the pushed metrics: {error.message}") from error
    message = pb.MetricsData()
    try:
        message.ParseFromString(plain)
    except DecodeError as error:
        raise InvalidPush(f"the pushed metrics are no MetricsData of OpenTelemetry: {error}") from error
    push = Push("", "", {}, {}, {}, len(plain), False)
    client: dict[str, str] = {}
    for looked_at, (labels, metric, values, point) in enumerate(_points(message)):
        if looked_at == POINTS_MAX:
            push = push._replace(is_cut=True)
            break
        client = labels
        if metric is None or values is None or point is None:
            continue
        value = float(point.as_double if point.WhichOneof("value") == "as_double" else point.as_int)
        if not math.isfinite(value):
            continue
        named = _texts(point.attributes)
        series = Series(
            metric.name[:TEXT_MAX], named.get("topic", ""), named.get("partition", ""), named.get("node_id", "")
        )
        if isinstance(values, pb.Gauge) or not values.is_monotonic:
            push.gauges[series] = value
        elif values.aggregation_temporality == DELTA:
            push.growth[series] = push.growth.get(series, 0.0) + max(0.0, value)
        else:
            push.totals[series] = value
    return push._replace(group_id=client.get("group_id", ""), member_id=client.get("group_member_id", ""))


_Found = tuple[dict[str, str], pb.Metric | None, pb.Gauge | pb.Sum | None, pb.NumberDataPoint | None]


def _points(message: pb.MetricsData) -> Iterator[_Found]:
    """Every point, with the labels of its client; and what has no points, so that it counts as well."""
    for resource in message.resource_metrics:
        labels = _texts(resource.resource.attributes)
        yield labels, None, None, None
        for scope in resource.scope_metrics:
            yield labels, None, None, None
            for metric in scope.metrics:
                yield labels, None, None, None
                for values in (metric.gauge, metric.sum):
                    for point in values.data_points:
                        yield labels, metric, values, point


def _texts(attributes: Iterable[pb.KeyValue]) -> dict[str, str]:
    found = {}
    for attribute in islice(attributes, ATTRIBUTES_MAX):
        text = attribute.value.string_value or str(attribute.value.int_value)
        found[attribute.key.replace("-", "_").replace(".", "_")] = text[:TEXT_MAX]
    return found
