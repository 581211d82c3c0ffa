"""A traced produce: which spans, of what, how long; and that a request which is not traced never meets the tracer."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from barnabas_admin.local_ports import find_base_port
from barnabas_broker.tracing.config import TracingConfig
from barnabas_broker.tracing.export import open_traces
from barnabas_broker.tracing.produce import PARTITIONS_MAX, ProduceTracer
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.clusters import ForkedCluster
from tests.support.listener import (
    TOPIC,
    RememberingReplicas,
    connected,
    make_services,
    until,
)

WAIT_S = 0.05
NS = 1_000_000_000


def produce(*sizes: int, acks: int = -1) -> ProduceRequest:
    """To partition 0, 1, … as many bytes."""
    data = [PartitionProduceData(index=index, records=b"x" * size) for index, size in enumerate(sizes)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


class Traced:
    """What was exported."""

    def __init__(self, *, ratio: float = 1.0, draws: list[float] | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        drawn = iter(draws or [])
        self.tracer = ProduceTracer(
            provider.get_tracer("test"), ratio=ratio, draw=lambda: next(drawn) if draws is not None else 0.0
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """By name, of one request."""
        found = self._exporter.get_finished_spans()
        by_name = {span.name: span for span in found}
        assert len(by_name) == len(found), "of more than one request"
        return by_name

    async def whole(self) -> dict[str, ReadableSpan]:
        """Once the request's own span has ended."""
        await until(lambda: "produce" in self.spans)
        return self.spans


def length_s(span: ReadableSpan) -> float:
    assert span.start_time is not None and span.end_time is not None
    return (span.end_time - span.start_time) / NS


async def test_a_produce_is_appended_replicated_and_answered() -> None:
    traced, replicas = Traced(), RememberingReplicas()
    replicas.is_withholding = True
    async with connected(make_services(replica_manager=replicas), wrap=traced.tracer.traced) as (_, client):
        correlation_id, frame = client.frame(produce(700, 30), 9)
        await client.send(frame)
        await until(lambda: bool(replicas.waiting))
        assert set(traced.spans) == {"append"}
        await asyncio.sleep(WAIT_S)
        replicas.waiting.pop()()
        answer = client.decode(ProduceRequest.API_KEY, 9, correlation_id, await client.read_frame())
        assert [each.base_offset for each in answer.responses[0].partition_responses] == [0, 1]
        spans = await traced.whole()
        await client.close()
    assert set(spans) == {"produce", "append", "replicated", "answered"}
    root = spans["produce"]
    assert root.kind is SpanKind.SERVER and root.parent is None and root.context is not None
    for name in ("append", "replicated", "answered"):
        parent = spans[name].parent
        assert parent is not None and parent.span_id == root.context.span_id, name
    for span in spans.values():
        about = dict(span.attributes or {})
        assert about["barnabas.topics"] == (TOPIC, TOPIC)
        assert about["barnabas.partitions"] == (0, 1)
        assert about["barnabas.bytes"] == (700, 30)
    assert dict(root.attributes or {})["barnabas.base_offsets"] == (0, 1)
    assert length_s(spans["replicated"]) >= WAIT_S
    assert length_s(spans["append"]) < WAIT_S and length_s(spans["answered"]) < WAIT_S
    assert root.status.status_code is StatusCode.UNSET
    in_order = [spans[name] for name in ("append", "replicated", "answered")]
    for before, after in itertools.pairwise(in_order):
        assert (before.end_time or 0) <= (after.start_time or 0)
    assert (
        (root.start_time or 0) <= (in_order[0].start_time or 0) <= (in_order[-1].end_time or 0) <= (root.end_time or 0)
    )


async def test_own_flush_is_no_replication_and_what_waits_for_nothing_has_neither() -> None:
    for is_withholding, acks, waits in ((True, 1, {"flushed"}), (False, 1, set()), (False, -1, set())):
        traced, replicas = Traced(), RememberingReplicas()
        replicas.is_withholding = is_withholding
        async with connected(make_services(replica_manager=replicas), wrap=traced.tracer.traced) as (_, client):
            await client.send(client.frame(produce(8, acks=acks), 9)[1])
            await until(lambda replicas=replicas: bool(replicas.appended))  # type: ignore[misc]
            for respond in replicas.waiting:
                respond()
            await client.read_frame()
            assert set(await traced.whole()) == {"produce", "append", "answered"} | waits
            await client.close()


async def test_a_share_is_traced_and_the_rest_meets_the_broker_itself() -> None:
    traced = Traced(ratio=0.25, draws=[0.25, 0.9, 0.249])
    seen: list[Any] = []

    class Replicas(RememberingReplicas):
        def append_records(self, *words: Any, **options: Any) -> None:
            seen.append(options["respond"].__qualname__)
            super().append_records(*words, **options)

    async with connected(make_services(replica_manager=Replicas()), wrap=traced.tracer.traced) as (_, client):
        for _ in range(3):
            await client.call(produce(8), 9)
        await traced.whole()
        await client.close()
    assert ["_ProduceTrace" in name for name in seen] == [False, False, True]


async def test_a_refused_produce_says_so_and_its_attributes_are_bounded() -> None:
    traced, replicas = Traced(), RememberingReplicas()
    replicas.error = KafkaError.of(ErrorCode.NOT_ENOUGH_REPLICAS, "one of two")
    async with connected(make_services(replica_manager=replicas), wrap=traced.tracer.traced) as (_, client):
        await client.call(produce(*[1] * (PARTITIONS_MAX + 5)), 9)
        root = (await traced.whole())["produce"]
        await client.close()
    about = dict(root.attributes or {})
    assert about["barnabas.errors"] == ("NOT_ENOUGH_REPLICAS",) and root.status.status_code is StatusCode.ERROR
    assert about["barnabas.partition_count"] == PARTITIONS_MAX + 5
    assert about["barnabas.partitions"] == tuple(range(PARTITIONS_MAX))


async def test_what_is_refused_before_an_append_and_what_is_malformed_ends_too() -> None:
    for version, frame_end, status in ((13, None, StatusCode.UNSET), (9, -3, StatusCode.ERROR)):
        traced = Traced()
        async with connected(make_services(), wrap=traced.tracer.traced) as (_, client):
            request = produce(8)  # v13 names topics by id, and this id is nobody's
            frame = client.frame(request, version)[1][:frame_end]
            await client.send((len(frame) - 4).to_bytes(4, "big") + frame[4:])
            root = (await traced.whole())["produce"]
            assert root.status.status_code is status
            await client.close()


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the spans that came."""
    came: list[Any] = []

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            came.extend(
                (of.resource, span) for of in request.resource_spans for scope in of.scope_spans for span in scope.spans
            )
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", came
    server.stop(0)


def test_a_node_sends_what_it_traces_and_nothing_is_lost_at_its_end(
    collector: tuple[str, list[Any]], tmp_path: Path
) -> None:
    address, came = collector
    overrides = {"tracing.otlp.endpoint": address, "tracing.sample.ratio": "1"}
    with ForkedCluster(tmp_path, nodes=1, base_port=find_base_port(), overrides=overrides) as cluster:
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "allow.auto.create.topics": True}
        )
        producer.produce("orders", b"1" * 500)
        assert producer.flush(30) == 0
    names = {span.name for _, span in came}
    assert names >= {"produce", "append", "answered"}
    resource = {each.key: each.value.string_value for each in came[0][0].attributes}
    assert (resource["service.name"], resource["service.instance.id"]) == ("barnabas", "1")
    root = next(span for _, span in came if span.name == "produce")
    about = {each.key: each.value for each in root.attributes}
    assert about["barnabas.topics"].array_value.values[0].string_value == "orders"
    assert about["barnabas.bytes"].array_value.values[0].int_value > 500


def test_off_nothing_of_it_is_loaded() -> None:
    assert open_traces(TracingConfig(), node_id=1, cluster_id="c", draw=float) is None
    assert (
        open_traces(TracingConfig(otlp_endpoint="http://h:1", sample_ratio=0), node_id=1, cluster_id="c", draw=float)
        is None
    )
    code = (
        "import sys, barnabas_broker.node.node; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(KafkaError, match=r"pip install 'barnabas\[otel\]'"):
        open_traces(TracingConfig(otlp_endpoint="http://127.0.0.1:4317"), node_id=1, cluster_id="c", draw=float)


@pytest.mark.parametrize(
    "wrong", [{"sample_ratio": 1.5}, {"otlp_endpoint": "127.0.0.1:4317"}, {"otlp_endpoint": "ftp://x"}]
)
def test_keys_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"tracing\."):
        TracingConfig(**wrong)
