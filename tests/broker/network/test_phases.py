"""Bytes by API are exact, and the phases of a measured request name what it waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

from barnabas_broker.network.phases import MEASURED_EVERY, MEASURED_MAX, PHASES, MeasuredSlot
from barnabas_broker.network.stats import NetworkStats
from barnabas_wire.histogram import Histogram
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from tests.broker.network.test_connection import fetch_request, produce_request
from tests.support.listener import (
    RememberingReplicas,
    connected,
    make_services,
    open_file,
    until,
)

WAIT_S = 0.12
"""Longer than anything else takes."""


def phase(stats: NetworkStats, api: ApiKey, name: str) -> Histogram:
    return stats.phase_s[api, name]


async def test_the_bytes_of_each_api_are_those_of_its_frames() -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        sent = {ApiKey.PRODUCE: 0, ApiKey.API_VERSIONS: 0}
        answered = dict(sent)
        for request, version in (
            (produce_request(b"x" * 900), 9),
            (ApiVersionsRequest(), 3),
            (produce_request(b"y"), 8),
        ):
            _, frame = client.frame(request, version)
            await client.send(frame)
            answer = await client.read_frame()
            sent[request.API_KEY] += len(frame)
            answered[request.API_KEY] += 4 + len(answer)
        # One read of two APIs: each answer counts for its own.
        frames = [
            client.frame(request, version)[1]
            for request, version in ((ApiVersionsRequest(), 3), (produce_request(b"z"), 9))
        ]
        await client.send(b"".join(frames))
        for api, frame in zip((ApiKey.API_VERSIONS, ApiKey.PRODUCE), frames, strict=True):
            sent[api] += len(frame)
            answered[api] += 4 + len(await client.read_frame())
        assert server.stats.request_bytes() == sent
        assert {api: times.answer_bytes for api, times in server.stats.request_time_s.items()} == answered
        assert dict(server.stats.request_counts()) == {
            ApiKey.PRODUCE << 16 | 9: 2,
            ApiKey.PRODUCE << 16 | 8: 1,
            ApiKey.API_VERSIONS << 16 | 3: 2,
        }
        await client.close()


async def test_what_waits_for_followers_is_remote_and_all_phases_are_of_one_request_in_many() -> None:
    replicas = RememberingReplicas()
    replicas.is_withholding = True
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        for _ in range(MEASURED_EVERY + 1):
            await client.send(client.frame(produce_request(b"batch"), 9)[1])
            await until(lambda: bool(replicas.waiting))
            if len(replicas.appended) in (1, MEASURED_EVERY + 1):
                await asyncio.sleep(WAIT_S)
            replicas.waiting.pop()()
            await client.read_frame()
        stats = server.stats
        assert {name: phase(stats, ApiKey.PRODUCE, name).count for name in PHASES} == dict.fromkeys(PHASES, 2)
        assert phase(stats, ApiKey.PRODUCE, "remote").total >= 2 * WAIT_S
        for name in ("queue", "local", "response_queue", "send"):
            assert phase(stats, ApiKey.PRODUCE, name).total < WAIT_S, name
        assert stats.request_time_s[ApiKey.PRODUCE].count == MEASURED_EVERY + 1
        await client.close()


async def test_what_waits_behind_an_earlier_answer_is_in_the_response_queue() -> None:
    replicas = RememberingReplicas()
    replicas.is_withholding = True
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(produce_request(b"first"), 9)[1] + client.frame(fetch_request(), 12)[1])
        await until(lambda: bool(replicas.fetched))
        await asyncio.sleep(WAIT_S)
        replicas.waiting.pop()()
        for _ in range(2):
            await client.read_frame()
        assert phase(server.stats, ApiKey.FETCH, "response_queue").total >= WAIT_S
        assert phase(server.stats, ApiKey.FETCH, "remote").total < WAIT_S
        await client.close()


async def test_an_answer_that_its_client_reads_late_is_long_in_sending(tmp_path: Path) -> None:
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(48 << 20))
    replicas.ranges = [(0, 48 << 20)]
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(fetch_request(), 12)[1])
        await until(lambda: bool(replicas.fetched))
        await asyncio.sleep(WAIT_S)
        assert (ApiKey.FETCH, "send") not in server.stats.phase_s, "it is not sent yet"
        await client.read_frame()
        await until(lambda: (ApiKey.FETCH, "send") in server.stats.phase_s)
        assert phase(server.stats, ApiKey.FETCH, "send").total >= WAIT_S
        await client.close()


def test_a_client_that_is_never_caught_up_gathers_few_measured_answers() -> None:
    client = Mock(measured=[])
    for number in range(3 * MEASURED_MAX):
        MeasuredSlot(client, ApiKey.FETCH, 12, number, 0.0).fill((b"",), 0)
    assert len(client.measured) == MEASURED_MAX


def test_the_phases_of_a_request_add_up() -> None:
    slot = MeasuredSlot.__new__(MeasuredSlot)
    slot.started, slot.began, slot.handled, slot.filled, slot.moved = 1.0, 1.5, 2.5, 4.5, 5.0
    assert slot.phases(8.0) == (0.5, 1.0, 2.0, 0.5, 3.0)
    assert sum(slot.phases(8.0)) == 8.0 - slot.started
    slot.handled = 4.75  # it answered before it returned
    assert slot.phases(8.0) == (0.5, 3.0, 0.0, 0.5, 3.0)
    slot.handled = 0.0  # a handler of decoded requests that answers at once
    assert slot.phases(8.0)[1:3] == (3.0, 0.0)
