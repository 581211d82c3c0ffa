"""What one request may cost, for every API: the greediest that a generator makes of its declaration keeps to the handler table. And
what is in no declaration: what is inside batches, names without end, and what a connection that stays is kept for."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.api import registry
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.messages.push_telemetry import PushTelemetryRequest
from barnabas_wire.kafka.primitives import TooManyElements
from barnabas_wire.kafka.schema import decode_request, message_classes
from barnabas_wire.records.compression import CompressionType, compress
from tests.broker.api.greedy import EVERYWHERE, FIXED, NAME, SIZES, GreedyClient, greedy_client
from tests.broker.api.greedy_batches import greedy_batches
from tests.broker.api.greedy_requests import Shape, shapes
from tests.broker.telemetry.pushes import field, gauge, pushed
from tests.support.single_broker import now_ms
from tests.support.turns import longest_turn

registry.load_handlers()


@pytest.mark.parametrize("key", sorted(registry.APIS), ids=lambda key: ApiKey(key).name)
def test_a_greedy_request_is_well_formed_and_as_large_as_its_bounds(key: int) -> None:
    """Else it would measure how a request is refused."""
    cls = message_classes(key)[0]
    for version in served_extremes(key):
        for alike in shapes(cls, version, name="1", topic_id=bytes(16), fixed={}):
            for shape in alike[:: len(alike) - 1]:
                body = shape.body(4096, 300)
                assert len(body) <= 4096
                decode_request(key, version, body, elements_max=300)
                if len(body) > 2 * len(shape.body(0, 300)) and len(body) < 2000:  # the elements end it, not the bytes
                    with pytest.raises(TooManyElements):
                        decode_request(key, version, body, elements_max=299)


LIFECYCLE = "barnabas_broker.metadata.lifecycle"
"""Says that a busy machine let the data lane stand still."""
FOUND_ONCE = [(ApiKey.ADD_PARTITIONS_TO_TXN, 5, ("transactions",))]
"""Greedy shapes (API, version, path) that a search at another size found."""


LIFECYCLE = "barnabas_broker.metadata.lifecycle"
"""Says that a busy machine let the data lane stand still."""


def served_extremes(key: int) -> set[int]:
    """The lowest and the highest version that is served and declared."""
    api = registry.APIS[key]
    return {max(api.min_version, message_classes(key)[0].MIN_VERSION), api.max_version}


@pytest.mark.attack("A5", "the greediest request of each API keeps to its bounds")
async def test_the_greediest_request_of_each_api_keeps_to_the_handler_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Work is counted, so that a busy machine changes nothing."""
    caplog.set_level(logging.ERROR)
    beyond = []
    async with greedy_client(tmp_path) as client:
        for found, version, path in FOUND_ONCE:
            api, fixed = registry.APIS[found], EVERYWHERE | FIXED.get(found, {})
            cost = await client.send(
                api, Shape(message_classes(found)[0], version, path, NAME, 0, bytes(16), fixed), SIZES[-1]
            )
            if cost.calls > api.calls_max:
                beyond.append(f"{found.name} v{version}: {cost.calls:,} calls, {api.calls_max:,} are allowed ({path})")
        for key in sorted(registry.APIS):
            rows = await client.search(key)
            assert {row.shape.version for row in rows} == served_extremes(key)
            row = max(rows, key=lambda row: row.calls_of_probe)
            api, shape = row.api, row.shape
            cost = await client.send(api, shape, SIZES[-1])  # has all that one of 64 KiB has
            if max(cost.calls, cost.control_calls) > api.calls_max:
                beyond.append(
                    f"{api.key.name} v{shape.version}: {cost.size:,} bytes are {cost.calls:,} calls on the data lane and "
                    f"{cost.control_calls:,} on the control lane in one turn, {api.calls_max:,} are allowed ({shape})"
                )
            # Tracing makes a request ten times as slow: the memory of the smaller one is carried over to the larger.
            small = await client.send(api, shape, SIZES[0], is_traced=True)
            memory_bytes = small.memory_bytes * cost.size // small.size
            if memory_bytes > api.memory_bytes_max:
                beyond.append(f"{api.key.name}: {memory_bytes:,} bytes of memory, {api.memory_bytes_max:,} are allowed")
    assert not beyond, "\n".join(beyond)
    found_bugs = [record.getMessage() for record in caplog.records if record.name != LIFECYCLE]
    assert not found_bugs, "a greedy request found a bug"


TURN_CPU_S_MAX = 0.05
"""Of the data lane, with what this client does in it. Work on a megabyte of bytes takes a few milliseconds."""
TOPICS = {
    "plain": {},
    "unopened": {"validate.batches": "header"},
    "compacted": {"cleanup.policy": "compact", "validate.batches": "header"},
    "recompressed": {"compression.type": "lz4", "validate.batches": "header"},
}


def asking(topic: str, time_ms: int) -> list[tuple[Any, int]]:
    """What a client may ask of a partition afterwards, with versions."""
    listed = [
        ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=each)])])
        for each in (time_ms, -3, -1)
    ]
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=4 << 20)
    fetched = FetchRequest(
        replica_id=-1,
        session_epoch=-1,
        isolation_level=1,
        max_wait_ms=0,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    return [*((each, 7) for each in listed), (fetched, 11)]


@pytest.mark.attack("A2", "what is inside of batches costs no turn of the loop")
async def test_what_is_inside_of_batches_costs_no_turn_of_the_loop(tmp_path: Path) -> None:
    """Producers, and whoever asks for what they wrote: CPU of the loop's thread is measured, since flat loops make no calls."""
    now = now_ms()
    beyond = []
    async with greedy_client(tmp_path) as client:
        for topic, configs in TOPICS.items():
            await client.create_topic(topic, configs)
            await client.close()  # so that the first batches of a connection are among them
            for what, data in greedy_batches(now).items():
                produced = ProduceRequest(
                    acks=1,
                    timeout_ms=30_000,
                    topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(records=data)])],
                )
                for request, version in [(produced, 9), *asking(topic, now - 30_000)]:
                    with longest_turn() as turn:
                        answer = await client.call(request, version)
                    if turn.cpu_s > TURN_CPU_S_MAX:
                        beyond.append(f"{ApiKey(request.API_KEY).name} after {what} to {topic}: {turn.cpu_s:.2f} s")
                    if request is produced:
                        (part,) = answer.responses[0].partition_responses
                        assert part.error_code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert not beyond, "\n".join(beyond)


MANY = (1 << 20) // 2
GREEDY_PUSHES = {
    "points": field(1, field(2, field(2, field(5, field(1, b"") * (MANY // 2))))),
    "metrics": field(1, field(2, field(2, b"") * (MANY // 2))),
    "clients": field(1, b"") * (MANY // 2),
    "labels": field(1, field(1, field(1, b"") * (MANY // 2))),
    "values": pushed([gauge(f"m{number}", number, topic="t" * 200) for number in range(4_000)]),
    "no metrics": b"\xff" * MANY,
}
"""Of metrics, near telemetry.max.bytes."""


@pytest.mark.attack("A2", "what is inside of pushed metrics costs no turn of the loop")
async def test_what_is_inside_of_pushed_metrics_costs_no_turn_of_the_loop(tmp_path: Path) -> None:
    """No right guards a push."""
    beyond = []
    async with greedy_client(tmp_path, {"telemetry.receiver": "true"}) as client:
        for what, data in GREEDY_PUSHES.items():
            for kind in CompressionType:
                asked = await client.call(GetTelemetrySubscriptionsRequest(), 0)
                push = PushTelemetryRequest(
                    asked.client_instance_id,
                    asked.subscription_id,
                    compression_type=int(kind),
                    metrics=compress(kind, data),
                )
                with longest_turn() as turn:
                    answer = await client.call(push, 0)
                if turn.cpu_s > TURN_CPU_S_MAX:
                    beyond.append(f"{what} by {kind.name}: {turn.cpu_s:.2f} s")
                refused = ErrorCode.INVALID_RECORD if what == "no metrics" else ErrorCode.NONE
                assert answer.error_code == refused, (what, kind)
    assert not beyond, "\n".join(beyond)


NAME_BYTES = 30_000
"""Of each name in a request; protocol strings end at 32,767."""
REPEATED = 5
KEPT_BYTES_MAX = 3 * NAME_BYTES
"""After so many requests with other names, while their connection stays: one that keeps them has five."""
STATE = {
    ApiKey.INIT_PRODUCER_ID: "a transactional id is state of the cluster until transactional.id.expiration.ms",
    ApiKey.OFFSET_COMMIT: "offsets are state of the cluster until offsets.retention.minutes",
    ApiKey.TXN_OFFSET_COMMIT: "likewise",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas are state of the cluster",
}


async def kept_bytes(client: GreedyClient, key: int) -> int:
    """What names that are other ones in each request leave behind, while the connection stays."""
    api = registry.APIS[key]
    cls = message_classes(key)[0]
    fixed = EVERYWHERE | FIXED.get(api.key, {}) | {"group_instance_id": None}  # who has one need not ask for an id
    alike = list(shapes(cls, api.max_version, name="", topic_id=bytes(16), fixed=fixed))
    shape = max(alike, key=lambda each: len(each[0].path))[0]  # has an element in each array on its way

    async def ask(number: int) -> None:
        text = f"{number:04d}".ljust(NAME_BYTES, "x")
        named = replace(shape, text=text, fixed={**shape.fixed, "group_id": text})
        size = len(named.body(0, 1)) + 200
        await client.ask(api, named, size, client_id=text)

    for number in range(2):
        await ask(number)
    before = tracemalloc.get_traced_memory()[0]
    for number in range(2, 2 + REPEATED):
        await ask(number)
    kept = tracemalloc.get_traced_memory()[0] - before
    if kept > KEPT_BYTES_MAX:  # or waits for the garbage collector, which is slow
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2 + REPEATED, 2 + 2 * REPEATED):
            await ask(number)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    return kept


@pytest.mark.attack("A5", "names without end are kept by no connection that stays")
async def test_names_without_end_are_kept_by_no_connection_that_stays(tmp_path: Path) -> None:
    beyond = []
    judged = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with greedy_client(tmp_path, judged) as client:
        anyone = [EntityData(entity_type="client-id", entity_name=None)]
        quota = EntryData(entity=anyone, ops=[OpData(key="producer_byte_rate", value=1e12)])
        await client.call(AlterClientQuotasRequest(entries=[quota]), 1)
        tracemalloc.start()
        try:
            for key in sorted(set(registry.APIS) - set(STATE)):
                kept = await kept_bytes(client, key)
                if kept > KEPT_BYTES_MAX:
                    beyond.append(
                        f"{ApiKey(key).name}: {kept:,} bytes are kept after {REPEATED} names of {NAME_BYTES:,}"
                    )
        finally:
            tracemalloc.stop()
    assert not beyond, "\n".join(beyond)
