"""OpenTelemetry's SDK for this node: spans are gathered by its thread and sent to a collector.

May touch:  OpenTelemetry, the network by its exporter.   Must not touch: requests.
Invariants: loaded only where traces are wanted; spans that cannot be sent are dropped, and at most QUEUED_MAX wait.
Read next:  produce.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas_broker.tracing.config import TracingConfig
from barnabas_broker.version import VERSION
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas_broker.tracing.produce import ProduceTracer

QUEUED_MAX = 4096
BATCH_MAX = 512
DELAY_MS = 2_000
"""The time between two batches."""
EXPORT_TIMEOUT_S = 5
"""The time-out of one batch; a collector that is away costs its spans."""


class Traces(NamedTuple):
    """What a node traces with."""

    produce: ProduceTracer
    close: Callable[[], None]
    """Sends what waits, and ends the thread. Blocks, at most about EXPORT_TIMEOUT_S."""


def open_traces(config: TracingConfig, *, node_id: int, cluster_id: str, draw: Callable[[], float]) -> Traces | None:
    """None where nothing is to be traced. draw: see ProduceTracer. Raises KafkaError INVALID_CONFIG where the extra is not installed."""
    if not config.otlp_endpoint or not config.sample_ratio:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        from barnabas_broker.tracing.produce import ProduceTracer
    except ImportError as error:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"tracing.otlp.endpoint={config.otlp_endpoint} needs more: {error}. Run pip install 'barnabas[otel]', or take the key out",
        ) from None
    resource = Resource.create(
        {
            "service.name": "barnabas",
            "service.version": VERSION,
            "service.namespace": cluster_id,
            "service.instance.id": str(node_id),
        }
    )
    # The share is drawn before a span begins: one that is dropped later would have cost its making.
    provider = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(
        endpoint=config.otlp_endpoint,
        insecure=config.otlp_endpoint.startswith("http://"),
        timeout=EXPORT_TIMEOUT_S,
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter, max_queue_size=QUEUED_MAX, max_export_batch_size=BATCH_MAX, schedule_delay_millis=DELAY_MS
        )
    )
    tracer = provider.get_tracer("barnabas", VERSION)
    return Traces(ProduceTracer(tracer, ratio=config.sample_ratio, draw=draw), provider.shutdown)
