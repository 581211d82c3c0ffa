"""The memory of all requests of a node: whoever sends much and ends nothing costs a bounded amount, and others go on."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.listener import KafkaServer
from barnabas_broker.network.request_memory import RequestMemory
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from tests.broker.network.test_connection import fetch_request, produce_request
from tests.support.listener import (
    LISTENER,
    RawClient,
    RememberingReplicas,
    connected,
    make_services,
    running_server,
    until,
)

MIB = 1 << 20
TIGHT = NetworkConfig(socket_request_max_bytes=2 * MIB, queued_max_request_bytes=2 * MIB)


class Kept:
    """A connection that keeps memory."""

    def __init__(
        self, kept_bytes: int, *, last_active: float = 0.0, wanted: int = 0, is_waited_for: bool = False
    ) -> None:
        self.kept_bytes = kept_bytes
        self.last_active = last_active
        self.is_of_broker = False
        self.is_waited_for = is_waited_for
        self.is_reading = True
        self.has_sent_more = False
        self._wanted = wanted

    def wanted(self) -> tuple[int, bool]:
        return self._wanted, True

    def go_on_reading(self) -> None:
        self.is_reading = True


def test_large_requests_find_room_in_three_quarters_and_small_ones_in_all() -> None:
    memory = RequestMemory(1000)
    memory.take(499)
    assert not memory.is_pressed
    memory.take(251)
    assert memory.is_pressed and not memory.has_room(is_large=True) and memory.has_room(is_large=False)
    memory.take(250)
    assert not memory.has_room(is_large=False)
    memory.give_back(501)
    assert not memory.is_pressed and memory.used == 499


def test_who_waits_goes_on_in_turn_and_as_far_as_there_is_room() -> None:
    memory = RequestMemory(1000)
    memory.take(800)
    waiting = [Kept(10, wanted=300), Kept(10, wanted=300), Kept(10, wanted=300)]
    for waiter in waiting:
        assert memory.must_wait(waiter)
        waiter.is_reading = False
    memory.let_on()
    assert not any(waiter.is_reading for waiter in waiting)
    memory.give_back(400)
    assert memory.is_pressed, "somebody waits"
    memory.let_on()
    assert [waiter.is_reading for waiter in waiting] == [
        True,
        True,
        False,
    ]  # the second one passes the bound, as one may
    memory.forget(waiting[2])
    memory.give_back(0)
    assert not memory.is_pressed and not memory.waiting


def test_a_broker_and_who_needs_nothing_more_never_wait() -> None:
    memory = RequestMemory(1000)
    memory.take(1000)
    broker = Kept(10, wanted=500)
    broker.is_of_broker = True
    assert not memory.must_wait(broker) and not memory.must_wait(Kept(10))


def test_who_makes_no_progress_is_closed_first_and_only_as_many_as_it_takes() -> None:
    memory = RequestMemory(1000)
    memory.take(900)
    old, newer, lively = Kept(300, last_active=1.0), Kept(300, last_active=2.0), Kept(200, last_active=3.0)
    patient = Kept(100, last_active=0.5, is_waited_for=True)
    everybody = [patient, lively, newer, old]
    assert memory.stuck(everybody) == [], "nobody is known yet"
    lively.last_active = 4.0
    assert memory.stuck(everybody) == [old, newer]
    assert memory.stuck([patient]) == [], "nobody waits for its room"
    assert memory.must_wait(Kept(10, wanted=300))
    assert memory.stuck([patient]) == [patient]


def test_who_waits_for_room_is_closed_if_it_sent_nothing_more_and_is_let_on_at_last() -> None:
    memory = RequestMemory(1000)
    memory.take(900)
    silent, honest = Kept(300, wanted=300), Kept(300, wanted=300)
    honest.has_sent_more = True
    for waiter in (honest, silent):
        assert memory.must_wait(waiter)
        waiter.is_reading = False
    assert memory.stuck([honest, silent]) == []
    assert memory.stuck([honest, silent]) == [silent]
    memory.forget(silent)
    memory.let_on()
    assert not honest.is_reading
    memory.let_on(is_first_forced=True)
    assert honest.is_reading


async def unfinished(server: KafkaServer, frame: bytes, sent_bytes: int) -> RawClient:
    client = await RawClient.connect(server)
    client.writer.write(frame[:sent_bytes])
    return client


async def test_requests_that_never_end_are_bounded_and_an_honest_one_goes_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas_broker.network.listener.RELIEF_S", 0.05)
    replicas = RememberingReplicas()
    async with running_server(make_services(replica_manager=replicas), TIGHT) as server:
        honest = await RawClient.connect(server)
        large = struct.pack(">ihhih", MIB, 0, 9, 7, -1) + bytes(MIB)
        hostile = [await unfinished(server, large, 300_000) for _ in range(10)]
        peak = 0

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, server.memory.used)
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        await until(lambda: server.memory.waiting > 0)
        answer = await asyncio.wait_for(honest.call(produce_request(bytes(900_000)), 9), 10)
        assert answer.responses[0].partition_responses[0].error_code == 0
        small = await asyncio.wait_for(honest.call(ApiVersionsRequest(), 3), 10)
        assert small.error_code == 0
        watching.cancel()
        assert 1.5 * MIB < peak <= 2 * MIB + 2 * MIB, "at most one request beyond its bound"
        assert server.stats.connections_closed["memory"] > 0
        for client in hostile:
            await client.close()
        await until(lambda: server.stats.connections == 1)
        assert server.memory.used == 0 and server.memory.waiting == 0


async def connect_deaf(server: KafkaServer) -> RawClient:
    """A client that never reads, and whose kernel takes little for it."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(server.bound[LISTENER])
    client = RawClient(*await asyncio.open_connection(sock=plain))
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return client


async def test_answers_that_nobody_reads_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.network.listener.RELIEF_S", 0.05)
    async with running_server(make_services(), TIGHT) as server:
        for listening in server._servers[0].sockets:
            with listening.dup() as twin:
                twin.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # accepted ones have it from this one
        deaf = [await connect_deaf(server) for _ in range(8)]
        asked = deaf[0].frame(ApiVersionsRequest(), 3)[1]
        for client in deaf:
            client.writer.write(asked * 1_500)
        await until(lambda: server.stats.connections_closed["memory"] > 0)
        honest = await RawClient.connect(server)
        assert (await asyncio.wait_for(honest.call(ApiVersionsRequest(), 3), 10)).error_code == 0
        for client in deaf:
            client.writer.transport.abort()
        await until(lambda: server.stats.connections == 1)
        assert server.memory.used == 0


async def test_a_request_that_waits_for_its_answer_counts() -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        _, fetch = client.frame(fetch_request(), 12)
        await client.send(fetch[:20])
        await until(lambda: server.memory.used == 20)
        await client.send(fetch[20:])
        await client.read_frame()
        assert server.memory.used == 0
