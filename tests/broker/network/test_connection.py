"""Frames in, answers out in order, and what a hostile or a slow client can do: nothing to others."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import random
import socket
import struct
import threading
import tracemalloc
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from barnabas_broker.api import registry
from barnabas_broker.network import connection, listener, output, socket_calls
from barnabas_broker.network.config import NetworkConfig
from barnabas_broker.network.connection import Connection
from barnabas_broker.network.listener import KafkaServer
from barnabas_log import disk_calls
from barnabas_log.disk import RealDisk
from barnabas_wire.host_system import has_linux
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.messages.sync_group import SyncGroupRequest
from tests.support.listener import (
    TOPIC,
    TOPIC_ID,
    CountingProducerIds,
    RawClient,
    RememberingReplicas,
    connected,
    make_services,
    open_file,
    running_server,
    until,
)
from tests.support.turns import turns


def produce_request(records: bytes, *, acks: int = 1, partition: int = 0) -> ProduceRequest:
    data = TopicProduceData(
        name=TOPIC, topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=partition, records=records)]
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def fetch_request() -> FetchRequest:
    asked = FetchTopic(
        topic=TOPIC, topic_id=TOPIC_ID, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 26)]
    )
    return FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[asked])


@pytest.mark.parametrize("seed", range(6))
async def test_answers_come_in_request_order_though_they_are_ready_in_another(seed: int) -> None:
    replicas = RememberingReplicas()
    replicas.is_withholding = True
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        sent = [client.frame(produce_request(b"batch%d" % i), 9) for i in range(5)]
        await client.send(b"".join(frame for _, frame in sent))
        await until(lambda: len(replicas.waiting) == 5)
        random.Random(seed).shuffle(replicas.waiting)
        for respond in replicas.waiting:
            respond()
            await turns(2)
        for index, (correlation_id, _) in enumerate(sent):
            answer = client.decode(ApiKey.PRODUCE, 9, correlation_id, await client.read_frame())
            assert answer.responses[0].partition_responses[0].base_offset == index
        assert [data for _, _, data in replicas.appended] == [b"batch%d" % i for i in range(5)]


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.METADATA, 12), (ApiKey.PRODUCE, 9), (ApiKey.PRODUCE, 3)])
async def test_a_request_with_text_that_is_no_utf8_closes_with_a_line(
    api_key: ApiKey, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(client: RawClient) -> bytes:
        request: Any = produce_request(b"batch")
        if api_key is ApiKey.METADATA:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        frame = client.frame(request, version)[1]
        assert TOPIC.encode() in frame
        return frame.replace(TOPIC.encode(), b"\xff" * len(TOPIC))

    async with running_server(make_services()) as server:
        for _ in range(3):
            client = await RawClient.connect(server)
            await client.send(broken(client))
            assert await client.is_closed_by_server()
    (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert f"closed a connection of 127.0.0.1: {api_key.name} v{version}" in line.getMessage()
    assert "can't decode byte 0xff" in line.getMessage()


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\0\0\0\x0a" + struct.pack(">hhih", 999, 0, 1, -1), "api 999 v0"),
        (b"\0\0\0\x0a" + struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1), "METADATA v99"),
    ],
)
async def test_what_is_no_request_that_is_spoken_here_closes_with_a_line(
    frame: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(make_services()) as (_, client):
        await client.send(frame)
        assert await client.is_closed_by_server()
    (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert said in line.getMessage()


async def test_a_parked_fetch_holds_back_the_answer_of_the_request_after_it() -> None:
    replicas = RememberingReplicas()
    replicas.is_parking = True
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        fetch_id, fetch_frame = client.frame(fetch_request(), 12)
        versions_id, versions_frame = client.frame(ApiVersionsRequest(), 3)
        await client.send(fetch_frame + versions_frame)
        await until(lambda: replicas.parked)
        await turns()
        assert not client.reader._buffer  # type: ignore[attr-defined]
        replicas.parked[0](replicas.outcomes(replicas.fetched[0][1]))
        client.decode(ApiKey.FETCH, 12, fetch_id, await client.read_frame())
        client.decode(ApiKey.API_VERSIONS, 3, versions_id, await client.read_frame())


@pytest.mark.parametrize("version", [3, 5, 7, 8, 9, 13])
async def test_frames_byte_by_byte_give_the_same_as_whole_ones(version: int) -> None:
    """Two clients in turn: they share the receive buffer, so each must find its own beginning again."""
    replicas = RememberingReplicas()
    async with running_server(make_services(replica_manager=replicas)) as server:
        clients = [await RawClient.connect(server) for _ in range(2)]
        for client in clients:
            client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = []
        for index in range(3):
            values = [b"x" * (10 + index), b"yz" * (5 + index)]
            frames = [
                client.frame(produce_request(value), version) for client, value in zip(clients, values, strict=True)
            ]
            sent += values
            for position in range(max(len(frame) for _, frame in frames)):
                for client, (_, frame) in zip(clients, frames, strict=True):
                    await client.send(frame[position : position + 1])
                    await turns(2)
            for client, (correlation_id, _) in zip(clients, frames, strict=True):
                answer = client.decode(ApiKey.PRODUCE, version, correlation_id, await client.read_frame())
                assert answer.responses[0].partition_responses[0].error_code == 0
        assert sorted(data for _, _, data in replicas.appended) == sorted(sent)


async def test_frames_cut_anywhere_keep_their_bytes() -> None:
    """Sizes around the shared buffer and the pool's classes, cut at random places."""
    random_ = random.Random(5)
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        sizes = [1, 70, 16_000, 16_400, 70_000, 262_100, 262_144, 300_000, 1_048_576, 3_000_000, 5, 5, 1_048_000]
        wanted = [random_.randbytes(size) for size in sizes]
        stream = b"".join(client.frame(produce_request(data), 9)[1] for data in wanted)
        position = 0
        while position < len(stream):
            step = random_.choice([1, 3, 100, 5_000, 200_000, 1_000_000])
            await client.send(stream[position : position + step])
            position += step
        for _ in sizes:
            await client.read_frame()
        assert [data for _, _, data in replicas.appended] == wanted


async def test_ranges_reach_a_client_that_reads_slowly_and_are_released_once(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(9_000_000)
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", content)
    replicas.ranges = [(0, 4_000_000), (4_000_001, 4_999_000)]
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        correlation_id, frame = client.frame(fetch_request(), 12)
        await client.send(frame * 2)
        for _ in range(2):
            answer = client.decode(ApiKey.FETCH, 12, correlation_id, await client.read_frame())
            records = answer.responses[0].partitions[0].records
            assert bytes(records) == content[:4_000_000] + content[4_000_001:8_999_001]
        assert server.stats.bytes_sent_from_files == 2 * 8_999_000
        assert replicas.file._holders == 1  # type: ignore[attr-defined]


async def test_answers_of_one_range_each_are_whole_wherever_the_socket_stops_taking_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = random.Random(11)
    content = random_.randbytes(2_000_000)
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", content)
    send_file = os.sendfile

    def send_some(target: int, source: int, offset: int, count: int) -> int:
        if random_.random() < 0.3:
            raise BlockingIOError
        return send_file(target, source, offset, random_.randint(1, count))

    monkeypatch.setattr(os, "sendfile", send_some)
    sizes = (1, 4_096, 65_536, 1_999_000) * 5
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        for size in sizes:
            replicas.ranges = [(7, size)]
            correlation_id, frame = client.frame(fetch_request(), 12)
            await client.send(frame)
            answer = client.decode(ApiKey.FETCH, 12, correlation_id, await client.read_frame())
            assert bytes(answer.responses[0].partitions[0].records) == content[7 : 7 + size]
        assert server.stats.bytes_sent_from_files == sum(sizes)
        assert replicas.file._holders == 1  # type: ignore[attr-defined]


async def test_ranges_are_released_when_the_client_leaves_amid_them(tmp_path: Path) -> None:
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(30_000_000))
    replicas.ranges = [(0, 30_000_000)]
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        _, frame = client.frame(fetch_request(), 12)
        await client.send(frame * 3)
        await client.reader.readexactly(100)
        await client.close()
        await until(lambda: not server.stats.connections)
        await turns()
        assert replicas.file._holders == 1  # type: ignore[attr-defined]


async def test_a_fetch_answered_after_its_client_left_is_released_and_a_parked_one_cancelled(tmp_path: Path) -> None:
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(100))
    replicas.ranges = [(0, 100)]
    replicas.is_parking = True
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(fetch_request(), 12)[1])
        await until(lambda: replicas.parked)
        await client.close()
        await until(lambda: not server.stats.connections)
        assert replicas.cancelled == 1
        replicas.parked[0](replicas.outcomes(replicas.fetched[0][1]))
        assert replicas.file._holders == 1  # type: ignore[attr-defined]


async def test_an_answer_that_waits_for_the_one_before_it_is_released_with_its_connection(tmp_path: Path) -> None:
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(100))
    replicas.ranges = [(0, 100)]
    replicas.is_withholding = True
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(produce_request(b"held"), 9)[1] + client.frame(fetch_request(), 12)[1])
        await until(lambda: replicas.fetched)
        assert replicas.file._holders == 2  # type: ignore[attr-defined]
        await client.close()
        await until(lambda: not server.stats.connections)
        assert replicas.file._holders == 1  # type: ignore[attr-defined]
        replicas.waiting[0]()  # and the late answer of the first harms nobody


async def test_a_file_that_ended_early_closes_the_connection(tmp_path: Path) -> None:
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(100))
    replicas.ranges = [(50, 100)]
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(fetch_request(), 12)[1])
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.read_frame()
        assert server.stats.connections_closed["short_read"] == 1
        await turns()
        assert replicas.file._holders == 1  # type: ignore[attr-defined]


async def test_a_range_that_is_not_in_memory_is_read_ahead_off_the_loop(tmp_path: Path) -> None:
    content = random.Random(4).randbytes(6_000_000)
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", content)
    replicas.ranges = [(100, 5_000_000)]
    descriptor = replicas.file.send_descriptor()
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        other = await RawClient.connect(server)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        is_cold = not disk_calls.is_cached(descriptor, 100)
        correlation_id, frame = client.frame(fetch_request(), 12)
        await client.send(frame)
        assert (await other.call(ApiVersionsRequest(), 3)).error_code == 0
        answer = client.decode(ApiKey.FETCH, 12, correlation_id, await client.read_frame())
        assert bytes(answer.responses[0].partitions[0].records) == content[100:5_000_100]
        # A file system in memory is never cold; one on a disk may be cold further on, or become so meanwhile.
        assert server.stats.cold_reads or not is_cold
        await turns()
        assert replicas.file._holders == 1  # type: ignore[attr-defined]


async def test_a_reader_of_cold_records_is_read_ahead_for_though_the_batch_behind_each_range_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(5).randbytes(3_000_000)
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", content)
    cached: set[int] = set()  # a kernel drops what it was asked to drop when it likes
    monkeypatch.setattr(output, "is_cached", lambda descriptor, position: position // mmap.PAGESIZE in cached)
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        for start in (100, 900_100, 1_800_100):
            cached.add((start + 900_000) // mmap.PAGESIZE)  # the log reads there where the next batch begins
            replicas.ranges = [(start, 900_000)]
            correlation_id, frame = client.frame(fetch_request(), 12)
            await client.send(frame)
            answer = client.decode(ApiKey.FETCH, 12, correlation_id, await client.read_frame())
            assert bytes(answer.responses[0].partitions[0].records) == content[start : start + 900_000]
        assert server.stats.cold_reads == 3


async def test_a_client_may_leave_while_its_range_is_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, may_go_on = threading.Event(), threading.Event()

    def slow_touch(descriptor: int, position: int, size: int) -> None:
        is_reading.set()
        may_go_on.wait(10)

    monkeypatch.setattr(output, "is_cached", lambda descriptor, position: False)
    monkeypatch.setattr(output, "_touch", slow_touch)
    replicas = RememberingReplicas()
    replicas.file = open_file(tmp_path / "log", bytes(1000))
    replicas.ranges = [(0, 1000)]
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(fetch_request(), 12)[1])
        await until(is_reading.is_set)
        await client.close()
        await until(lambda: not server.stats.connections)
        assert replicas.file._holders == 2  # type: ignore[attr-defined]  # the reading thread's
        may_go_on.set()
        await until(lambda: replicas.file._holders == 1)  # type: ignore[union-attr]


async def test_a_file_without_descriptor_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789" * 100)
    file = RealDisk().open(tmp_path / "log")

    class NoDescriptor:
        def __getattr__(self, name: str) -> Any:
            return getattr(file, name)

        def send_descriptor(self) -> int:
            raise OSError("simulated")

    replicas = RememberingReplicas()
    replicas.file = NoDescriptor()
    replicas.ranges = [(5, 500)]
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        answer = await client.call(fetch_request(), 12)
        assert bytes(answer.responses[0].partitions[0].records) == (b"0123456789" * 100)[5:505]
        assert file._holders == 1  # type: ignore[attr-defined]


async def test_while_a_handler_waits_later_requests_of_its_connection_wait_and_others_go_on() -> None:
    ids = CountingProducerIds()
    ids.gate.clear()
    replicas = RememberingReplicas()
    async with connected(make_services(producer_ids=ids, replica_manager=replicas)) as (server, client):
        other = await RawClient.connect(server)
        first_id, first = client.frame(InitProducerIdRequest(transactional_id=None), 4)
        second_id, second = client.frame(produce_request(b"later"), 9)
        third_id, third = client.frame(InitProducerIdRequest(transactional_id=None), 4)
        await client.send(first + second + third)
        await turns()
        assert replicas.appended == []
        assert (await other.call(ApiVersionsRequest(), 3)).error_code == 0
        ids.gate.set()
        assert client.decode(ApiKey.INIT_PRODUCER_ID, 4, first_id, await client.read_frame()).producer_id == 1000
        client.decode(ApiKey.PRODUCE, 9, second_id, await client.read_frame())
        assert client.decode(ApiKey.INIT_PRODUCER_ID, 4, third_id, await client.read_frame()).producer_id == 1001
        assert replicas.appended[0][2] == b"later"


async def test_a_client_that_never_reads_stops_being_read() -> None:
    """What the kernel takes is its own affair: the sizes of its buffers are set, and what it took is not counted."""
    config = NetworkConfig(queued_response_bytes_max=100_000)
    async with connected(make_services(), config) as (server, client):
        client.writer.transport.set_write_buffer_limits(high=1 << 30)
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: server.connections)
        connection = next(iter(server.connections))
        sending = connection._output
        assert isinstance(sending, output.SocketOutput)
        sending._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        correlation_id, frame = client.frame(MetadataRequest(topics=None), 12)
        answer_bytes = await size_of_answer(server, frame)
        sent = 80_000
        for _ in range(40):
            client.writer.write(frame * (sent // 40))
            await turns()
        assert repr(connection).startswith("127.0.0.1 User:ANONYMOUS: ") and repr(connection).endswith(", paused")
        assert connection._output.queued_bytes < 100_000 + answer_bytes
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(sent):  # and goes on when the client reads
            client.decode(ApiKey.METADATA, 12, correlation_id, await client.read_frame())


async def test_answers_that_wait_are_bounded_whatever_one_read_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 requests come in one read: no more is answered than the bound and one answer, whatever the socket takes."""
    waiting: list[int] = []
    send = output.SocketOutput.send

    def send_and_note(sending: output.SocketOutput, parts: Any, size_bytes: int) -> None:
        waiting.append(sending.queued_bytes + size_bytes)
        send(sending, parts, size_bytes)

    config = NetworkConfig(queued_response_bytes_max=10_000)
    async with connected(make_services(), config) as (server, client):
        correlation_id, frame = client.frame(MetadataRequest(topics=None), 12)
        answer_bytes = await size_of_answer(server, frame)
        monkeypatch.setattr(output.SocketOutput, "send", send_and_note)
        await client.send(frame * 1_000)
        for _ in range(1_000):
            client.decode(ApiKey.METADATA, 12, correlation_id, await client.read_frame())
        assert max(waiting) < 10_000 + answer_bytes


async def test_answers_behind_one_that_is_not_there_yet_are_bounded_too() -> None:
    replicas = RememberingReplicas()
    replicas.is_parking = True
    config = NetworkConfig(queued_response_bytes_max=10_000)
    async with connected(make_services(replica_manager=replicas), config) as (server, client):
        fetch_id, fetch_frame = client.frame(fetch_request(), 12)
        correlation_id, frame = client.frame(MetadataRequest(topics=None), 12)
        answer_bytes = await size_of_answer(server, frame)
        await client.send(fetch_frame + frame * 900)
        await until(lambda: replicas.parked)
        await turns()
        connection = next(iter(server.connections))
        assert sum(slot.size_bytes for slot in connection._slots if slot.is_done) < 10_000 + answer_bytes
        replicas.parked[0](replicas.outcomes(replicas.fetched[0][1]))
        client.decode(ApiKey.FETCH, 12, fetch_id, await client.read_frame())
        for _ in range(900):
            client.decode(ApiKey.METADATA, 12, correlation_id, await client.read_frame())


async def size_of_answer(server: KafkaServer, frame: bytes) -> int:
    """Bytes of the answer to a request, its size included."""
    client = await RawClient.connect(server)
    await client.send(frame)
    size = 4 + len(await client.read_frame())
    await client.close()
    await until(lambda: len(server.connections) == 1)
    return size


async def test_requests_in_flight_are_bounded_and_go_on_when_answered() -> None:
    replicas = RememberingReplicas()
    replicas.is_withholding = True
    config = NetworkConfig(in_flight_requests_max=4)
    async with connected(make_services(replica_manager=replicas), config) as (server, client):
        await client.send(b"".join(client.frame(produce_request(b"%d" % i), 9)[1] for i in range(10)))
        await turns(50)
        assert len(replicas.waiting) == 4
        assert repr(next(iter(server.connections))) == "127.0.0.1 User:ANONYMOUS: 4 answers due, paused"
        replicas.waiting.pop(0)()
        await client.read_frame()
        await turns()
        assert len(replicas.waiting) == 4
        replicas.is_withholding = False
        for respond in replicas.waiting:
            respond()
        for _ in range(9):
            await client.read_frame()
        assert [data for _, _, data in replicas.appended] == [b"%d" % i for i in range(10)]


HOSTILE = {
    "length 0": struct.pack(">i", 0),
    "length -1": struct.pack(">i", -1),
    "length 2^31-1": struct.pack(">i", 2**31 - 1) + bytes(100),
    "length above the limit": struct.pack(">i", 100 * 1024 * 1024 + 1) + bytes(100),
    "shorter than a header": struct.pack(">i", 8) + bytes(8),
    "unknown api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "negative api": struct.pack(">ihhih", 10, -1, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
    "negative version": struct.pack(">ihhih", 10, ApiKey.METADATA, -1, 1, -1),
    "client id beyond the frame": struct.pack(">ihhih", 10, ApiKey.METADATA, 12, 1, 30_000),
    "client id of length -2": struct.pack(">ihhih", 12, ApiKey.API_VERSIONS, 3, 1, -2) + b"\xff\xff",
    "array of 2^31-1": struct.pack(">ihhihi", 14, ApiKey.METADATA, 4, 1, -1, 2**31 - 1),
    "array of -2": struct.pack(">ihhihi", 14, ApiKey.METADATA, 4, 1, -1, -2),
    "compact array of 2^32": struct.pack(">ihhihB", 17, ApiKey.METADATA, 12, 1, -1, 0) + b"\xff\xff\xff\xff\x0f\x00",
    "varint of six bytes": struct.pack(">ihhihB", 17, ApiKey.METADATA, 12, 1, -1, 0) + b"\xff\xff\xff\xff\xff\xff",
    "many tagged fields in the header": struct.pack(">ihhih", 15, ApiKey.METADATA, 12, 1, -1) + b"\xff\xff\xff\x7f\0",
    "produce with a batch beyond the frame": struct.pack(">ihhih", 41, ApiKey.PRODUCE, 3, 1, -1)
    + struct.pack(">hhiihci", -1, 1, 1000, 1, 1, b"t", 1)
    + struct.pack(">ii", 0, 2**31 - 1)
    + bytes(4),
    "produce without body": struct.pack(">ihhih", 10, ApiKey.PRODUCE, 3, 1, -1),
    "fetch without body": struct.pack(">ihhih", 10, ApiKey.FETCH, 11, 1, -1),
    "fetch of 2^31-1 topics": struct.pack(">ihhih", 31, ApiKey.FETCH, 4, 1, -1)
    + struct.pack(">iiiibi", -1, 100, 1, 1 << 20, 0, 2**31 - 1),
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls hello": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "invalid utf-8": struct.pack(">ihhihih", 21, ApiKey.METADATA, 4, 1, -1, 1, 4) + b"\xff\xfe\xfd\xfc\0",
    "zeros": bytes(300_000),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_frame_closes_its_own_connection_and_nothing_else(name: str) -> None:
    async with running_server(make_services()) as server:
        honest = await RawClient.connect(server)
        hostile = await RawClient.connect(server)
        await hostile.send(HOSTILE[name])
        assert await asyncio.wait_for(hostile.is_closed_by_server(), 10)
        assert (await honest.call(ApiVersionsRequest(), 3)).error_code == 0
        assert server.stats.connections_closed["bug"] == 0
        assert server.stats.connections == 1
        unserved = set(server.stats.requests) - set(registry.by_kind())
        assert not unserved, "anybody can send kinds without end, and each would be a series of the metrics"


async def test_random_bytes_and_bent_frames_never_reach_beyond_their_connection() -> None:
    random_ = random.Random(7)
    async with running_server(make_services()) as server:
        honest = await RawClient.connect(server)
        good = [honest.frame(produce_request(b"r" * 50), version)[1] for version in (3, 9, 13)] + [
            honest.frame(fetch_request(), version)[1] for version in (4, 11, 12, 17)
        ]
        good += [honest.frame(MetadataRequest(topics=None), version)[1] for version in (1, 9, 12)]
        for round_ in range(300):
            client = await RawClient.connect(server)
            frame = bytearray(random_.choice(good))
            if round_ % 3 == 0:
                frame = bytearray(random_.randbytes(random_.randrange(1, 400)))
            else:
                for _ in range(random_.randrange(1, 6)):
                    frame[random_.randrange(4, len(frame))] = random_.randrange(256)
            with contextlib.suppress(ConnectionError):
                await client.send(bytes(frame))
            await turns(5)
            await client.close()
        assert (await honest.call(ApiVersionsRequest(), 3)).error_code == 0
        assert server.stats.connections_closed["bug"] == 0


async def test_promised_sizes_and_slow_clients_reserve_no_memory() -> None:
    """200 clients promise 99 MiB each and send one byte a time: memory follows the bytes that came."""
    async with running_server(make_services()) as server:
        clients = [await RawClient.connect(server) for _ in range(200)]
        await turns()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        produce = struct.pack(">ihh", 99 * 1024 * 1024, ApiKey.PRODUCE, 9)  # of which 99 MiB are allowed
        for client in clients:
            await client.send(produce[:5])
        for client in clients:
            await client.send(produce[5:])
        for _ in range(5):
            for client in clients:
                await client.send(b"y")
            await turns()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert server.stats.connections == 200
        assert after - before < 200 * 32 * 1024
        for client in clients:
            await client.close()


OVERSIZED = {
    "metadata of 5 MiB": (ApiKey.METADATA, 12, 5 * 1024 * 1024),
    "heartbeat of 2 MiB": (ApiKey.HEARTBEAT, 4, 2 * 1024 * 1024),
    "fetch of 99 MiB": (ApiKey.FETCH, 12, 99 * 1024 * 1024),
    "unknown api of 99 MiB": (999, 0, 99 * 1024 * 1024),
}


@pytest.mark.parametrize("name", OVERSIZED)
@pytest.mark.parametrize("first_bytes", [4, 7, 8])
async def test_a_frame_beyond_its_apis_bound_is_refused_before_its_body_comes(
    name: str, first_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    api_key, version, size = OVERSIZED[name]
    header = struct.pack(">ihh", size, api_key, version)
    async with running_server(make_services()) as server:
        honest = await RawClient.connect(server)
        for _ in range(3):
            greedy = await RawClient.connect(server)
            await greedy.send(header[:first_bytes])
            await turns()
            await greedy.send(header[first_bytes:])
            assert await asyncio.wait_for(greedy.is_closed_by_server(), 10)
        assert server.stats.connections_closed["oversized"] == 3
        assert (await honest.call(ApiVersionsRequest(), 3)).error_code == 0
    lines = [record.getMessage() for record in caplog.records if "must send several" in record.getMessage()]
    assert len(lines) == 1, "anybody can send these as fast as he can connect"
    assert f"{size:,} bytes" in lines[0]


async def test_a_whole_frame_beyond_its_apis_bound_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    registry.load_handlers()
    bounded = dataclasses.replace(registry.APIS[ApiKey.METADATA], request_bytes_max=30)
    monkeypatch.setitem(registry.APIS, ApiKey.METADATA, bounded)
    async with connected(make_services()) as (server, client):
        await client.call(MetadataRequest(topics=None), 12)
        await client.send(client.frame(MetadataRequest(topics=[MetadataRequestTopic(name="t" * 40)]), 12)[1])
        assert await asyncio.wait_for(client.is_closed_by_server(), 10)
        assert server.stats.connections_closed["oversized"] == 1


GREEDY = {
    # 2 bytes each, so that the bound of bytes is far away
    "metadata": struct.pack(">ihhihi", 0, ApiKey.METADATA, 0, 1, -1, 500_000) + b"\0\0" * 500_000,
    "fetch": struct.pack(">ihhih", 0, ApiKey.FETCH, 4, 1, -1)
    + struct.pack(">iiiibi", -1, 100, 1, 1 << 20, 0, 150_000)
    + struct.pack(">hi", 0, 0) * 150_000,
    "fetch of many partitions": struct.pack(">ihhih", 0, ApiKey.FETCH, 4, 1, -1)
    + struct.pack(">iiiibi", -1, 100, 1, 1 << 20, 0, 1)
    + struct.pack(">hi", 0, 150_000)
    + bytes(16) * 150_000,
    "produce": struct.pack(">ihhih", 0, ApiKey.PRODUCE, 3, 1, -1)
    + struct.pack(">hhiihci", -1, 1, 1000, 1, 1, b"t", 100_000)
    + struct.pack(">ii", 0, -1) * 100_000,
    "tagged fields": struct.pack(">ihhihBB", 0, ApiKey.HEARTBEAT, 4, 1, -1, 0, 1)
    + struct.pack(">iBB", 0, 1, 0)
    + b"\x80\x80\x04"
    + b"\x07\x00" * 65_536,
}


@pytest.mark.parametrize("name", GREEDY)
async def test_a_request_of_more_elements_than_its_api_takes_is_refused_before_they_are_made(name: str) -> None:
    frame = struct.pack(">i", len(GREEDY[name]) - 4) + GREEDY[name][4:]
    async with connected(make_services()) as (server, client):
        await client.send(frame[: len(frame) // 2])
        await turns()
        tracemalloc.start()
        await client.send(frame[len(frame) // 2 :])
        assert await asyncio.wait_for(client.is_closed_by_server(), 10)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert server.stats.connections_closed["oversized"] == 1
        assert peak < 6 * len(frame), (
            "the frame, once in the client and twice in the broker; its elements would be 20 times that"
        )


async def test_idle_connections_are_closed_and_a_trickle_does_not_count_as_activity() -> None:
    config = NetworkConfig(connections_max_idle_ms=200)
    replicas = RememberingReplicas()
    replicas.is_parking = True
    async with running_server(make_services(replica_manager=replicas), config) as server:
        silent = await RawClient.connect(server)
        trickling = await RawClient.connect(server)
        waiting = await RawClient.connect(server)
        await waiting.send(waiting.frame(fetch_request(), 12)[1])
        frame = trickling.frame(produce_request(bytes(1000)), 9)[1]

        async def trickle() -> None:
            for position in range(len(frame) - 1):
                await trickling.send(frame[position : position + 1])
                await asyncio.sleep(0.02)

        task = asyncio.create_task(trickle())
        assert await asyncio.wait_for(silent.is_closed_by_server(), 10)
        assert await asyncio.wait_for(trickling.is_closed_by_server(), 10)
        assert not task.done() or task.exception(), "it was closed while it trickled, not after"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert server.stats.connections_closed["idle"] == 2
        assert server.stats.connections == 1  # a client that waits for us is not idle


@pytest.mark.skipif(not has_linux(), reason="congestion control is Linux's alone")
async def test_answers_to_this_host_leave_unpaced_and_those_to_another_as_the_kernel_sends_them() -> None:
    async with running_server(make_services()) as server:
        for listening in server._servers[0].sockets:
            assert (
                socket_calls.congestion_control_of(listening) == b"reno"
            )  # told before: BBR's timers would outlive it
        await RawClient.connect(server)
        await until(lambda: bool(server.connections))
        connection = next(iter(server.connections))
        sending = connection._output
        assert isinstance(sending, output.SocketOutput)
        assert socket_calls.congestion_control_of(sending._socket) == b"reno"
        assert connection._listener.congestion_control == kernel_congestion_control()
    for own, chosen in (("192.0.2.2", b"reno"), ("192.0.2.2", b"by-route"), ("192.0.2.1", b"reno")):
        accepted = Mock(spec=socket.socket)
        accepted.getpeername.return_value = ("192.0.2.1", 51000)
        accepted.getsockname.return_value = (own, 9092)
        accepted.getsockopt.return_value = chosen.ljust(16, b"\0")
        socket_calls.send_paced_to_another_host(accepted, b"bbr")
        is_given_back = own == "192.0.2.2" and chosen == b"reno"
        assert (
            accepted.setsockopt.mock_calls == [call(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")] * is_given_back
        )


def kernel_congestion_control() -> bytes:
    with socket.socket() as fresh:
        return socket_calls.congestion_control_of(fresh)


async def test_one_connection_too_many_is_closed() -> None:
    async with running_server(
        make_services(), NetworkConfig(max_connections=2, inter_broker_connections_reserved=0)
    ) as server:
        first, second, third = [await RawClient.connect(server) for _ in range(3)]
        assert await asyncio.wait_for(third.is_closed_by_server(), 10)
        await first.call(ApiVersionsRequest(), 3)
        await second.close()
        await until(lambda: server.stats.connections == 1)
        fourth = await RawClient.connect(server)
        await fourth.call(ApiVersionsRequest(), 3)


async def test_a_request_that_comes_while_the_server_stops_ends_in_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits for an answer, and the task group takes no task any more."""
    async with connected(make_services(producer_ids=CountingProducerIds())) as (server, client):
        await client.call(ApiVersionsRequest(), 3)

        async def ask_at_the_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                with contextlib.suppress(ConnectionError):  # closed already, as it should be
                    await client.send(client.frame(InitProducerIdRequest(transactional_id=None), 4)[1])
                assert await asyncio.wait_for(client.is_closed_by_server(), 10)

        server.spawn(ask_at_the_end())
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("version", [11, 17])
async def test_when_clients_have_all_connections_a_follower_still_gets_one(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NetworkConfig(max_connections=2, inter_broker_connections_reserved=2)
    async with running_server(make_services(), config) as server:
        clients = [await RawClient.connect(server) for _ in range(2)]
        for client in clients:
            await client.call(ApiVersionsRequest(), 3)
        follower = await RawClient.connect(server)
        await follower.call(ApiVersionsRequest(), 3)
        request = fetch_request()
        request.replica_id, request.replica_state = 2, ReplicaState(replica_id=2, replica_epoch=1)
        assert (await follower.call(request, version)).error_code == 0
        stranger = await RawClient.connect(server)  # takes the last one, and must give it back
        await stranger.call(ApiVersionsRequest(), 3)
        await stranger.send(stranger.frame(MetadataRequest(topics=None), 12)[1])
        assert await asyncio.wait_for(stranger.is_closed_by_server(), 10)
        consumer = await RawClient.connect(server)
        await consumer.send(consumer.frame(fetch_request(), version)[1])
        assert await asyncio.wait_for(consumer.is_closed_by_server(), 10)
        monkeypatch.setattr(listener, "PROBATION_S", 0.05)
        silent = await RawClient.connect(server)
        assert await asyncio.wait_for(silent.is_closed_by_server(), 10)
        assert server.stats.connections_closed["limit"] == 3
        assert (await follower.call(request, version)).error_code == 0


def with_handler(monkeypatch: pytest.MonkeyPatch, key: ApiKey, handler: Any) -> None:
    import dataclasses

    registry.load_handlers()
    monkeypatch.setitem(registry.APIS, key, dataclasses.replace(registry.APIS[key], handler=handler))


@pytest.mark.parametrize(
    ("request_", "version", "ends"),
    [
        (JoinGroupRequest(group_id="g", protocol_type="consumer", session_timeout_ms=9000), 5, True),
        (SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), 3, True),
        (InitProducerIdRequest(transactional_id=None), 4, False),
    ],
)
async def test_a_wait_of_a_client_that_is_gone_is_cancelled_where_nobody_else_gains_by_it(
    monkeypatch: pytest.MonkeyPatch, request_: Any, version: int, ends: bool
) -> None:
    begun, may_go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()

    async def wait(services: Any, context: Any, request: Any) -> Any:
        begun.set()
        try:
            await may_go_on.wait()
        except asyncio.CancelledError:
            ended.set_result("cancelled")
            raise
        ended.set_result("done")
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "nobody hears this")

    with_handler(monkeypatch, type(request_).API_KEY, wait)
    async with connected(make_services()) as (server, client):
        await client.send(client.frame(request_, version)[1])
        await asyncio.wait_for(begun.wait(), 10)
        await client.close()
        await until(lambda: server.stats.connections == 0)
        if not ends:
            assert not ended.done()
            may_go_on.set()
        assert await asyncio.wait_for(ended, 10) == ("cancelled" if ends else "done")


async def test_a_kafka_error_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(services: Any, context: Any, request: Any) -> Any:
        raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")

    with_handler(monkeypatch, ApiKey.DESCRIBE_CLUSTER, refuse)
    async with running_server(make_services()) as server:
        from barnabas_wire.kafka.messages.describe_cluster import DescribeClusterRequest

        client = await RawClient.connect(server)
        answer = await client.call(DescribeClusterRequest(), 1)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer.error_message == "no"


async def test_an_unforeseen_error_closes_one_connection_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stumble(services: Any, context: Any, request: Any) -> Any:
        await asyncio.sleep(0)
        raise ZeroDivisionError("found by a hostile frame")

    with_handler(monkeypatch, ApiKey.INIT_PRODUCER_ID, stumble)
    async with connected(make_services()) as (server, client):
        other = await RawClient.connect(server)
        await client.send(client.frame(InitProducerIdRequest(transactional_id=None), 4)[1])
        assert await asyncio.wait_for(client.is_closed_by_server(), 10)
        assert server.stats.connections_closed["bug"] == 1
        assert (await other.call(ApiVersionsRequest(), 3)).error_code == 0


async def test_an_answer_that_cannot_be_sent_keeps_no_other_connection_from_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()
    broken: list[Connection] = []
    flush = Connection.flush

    async def wait(services: Any, context: Any, request: Any) -> Any:
        await gate.wait()
        return InitProducerIdResponse(producer_id=7)

    def stumble(connection: Connection) -> None:
        if not broken:
            broken.append(connection)
            raise ZeroDivisionError("a bug")
        flush(connection)

    with_handler(monkeypatch, ApiKey.INIT_PRODUCER_ID, wait)
    monkeypatch.setattr(Connection, "flush", stumble)
    async with running_server(make_services()) as server:
        clients = [await RawClient.connect(server) for _ in range(2)]
        for client in clients:
            await client.send(client.frame(InitProducerIdRequest(transactional_id=None), 4)[1])
        await turns(20)
        gate.set()  # both answers are there in one turn of the loop
        assert await asyncio.wait_for(clients[0].is_closed_by_server(), 10)
        assert not await asyncio.wait_for(clients[1].is_closed_by_server(), 10)
        assert (server.stats.connections_closed["bug"], server.stats.connections) == (1, 1)


async def test_a_broken_invariant_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_law(services: Any, context: Any, request: Any) -> Any:
        raise InvariantViolated("two leaders in one epoch")

    with_handler(monkeypatch, ApiKey.DESCRIBE_CLUSTER, break_law)
    from barnabas_broker.network.listener import ListenAddress
    from barnabas_wire.kafka.messages.describe_cluster import DescribeClusterRequest

    server = KafkaServer(
        addresses=[ListenAddress("PLAINTEXT", "127.0.0.1", 0)], config=NetworkConfig(), services=make_services()
    )
    await server.start()
    task = asyncio.create_task(server.run())
    await until(lambda: server.is_accepting)
    client = await RawClient.connect(server)
    await client.send(client.frame(DescribeClusterRequest(), 1)[1])
    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(task, 10)
    assert caught.group_contains(InvariantViolated)


async def test_acks_zero_gets_no_answer_and_a_closed_connection_on_error() -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (server, client):
        await client.send(client.frame(produce_request(b"quiet", acks=0), 9)[1])
        assert (await client.call(ApiVersionsRequest(), 3)).error_code == 0  # the next answer is the next request's
        assert replicas.appended[0][2] == b"quiet"
        replicas.error = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here")
        await client.send(client.frame(produce_request(b"lost", acks=0), 9)[1])
        assert await asyncio.wait_for(client.is_closed_by_server(), 10)
        assert server.stats.connections_closed["acks_zero_error"] == 1


async def test_batches_are_not_kept_past_the_call() -> None:
    """The view handed to the replica manager is overwritten by the next read: what was copied stays right."""
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        for index in range(20):
            await client.call(produce_request(bytes((index,)) * 1000), 9)
        assert [data for _, _, data in replicas.appended] == [bytes((index,)) * 1000 for index in range(20)]
        assert all(base == Offset(index) for index, base in enumerate(range(20)))


async def test_many_small_requests_of_one_client_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TURN_REQUESTS_MAX", 16)
    async with running_server(make_services(), NetworkConfig(in_flight_requests_max=1 << 20)) as server:
        busy, other = [await RawClient.connect(server) for _ in range(2)]
        kind = ApiKey.API_VERSIONS << 16 | 3
        sent = [busy.frame(ApiVersionsRequest(), 3) for _ in range(400)]
        await busy.send(b"".join(frame for _, frame in sent))
        await until(lambda: server.stats.requests[kind] > 0)
        at_most = 0
        while (before := server.stats.requests[kind]) < 400:
            await asyncio.sleep(0)
            at_most = max(at_most, server.stats.requests[kind] - before)
        assert at_most <= 16
        for correlation_id, _ in sent:
            assert busy.decode(ApiKey.API_VERSIONS, 3, correlation_id, await busy.read_frame()).error_code == 0
        assert (await other.call(ApiVersionsRequest(), 3)).error_code == 0
