"""Connections to gRPC listeners by address: the newest beyond the bound are closed, and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.node.grpc_connections import (
    ADDRESS_SHARE,
    CONNECTIONS_MAX,
    CONNECTIONS_MIN,
    GrpcConnections,
    Peer,
    connections_max,
    surplus,
)
from barnabas_wire.rpc.server import new_server
from tests.broker.api.greedy import greedy_client

ADDRESS = "127.0.0.1"


@contextlib.contextmanager
def sockets() -> Iterator[list[socket.socket]]:
    """To be filled; closed at the end."""
    opened: list[socket.socket] = []
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


def is_open(connection: socket.socket) -> bool:
    """Whether the server has not closed it; it greets with its settings."""
    try:
        connection.setblocking(False)
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_the_newest_of_an_address_at_a_port_are_too_many() -> None:
    known = [Peer(1, "a", n) for n in range(4)] + [Peer(2, "a", 9), Peer(1, "b", 9)]
    assert surplus(known, lambda address: 3) == [Peer(1, "a", 3)]
    assert surplus(known, lambda address: {"a": 4, "b": 0}[address]) == [Peer(1, "b", 9)]


def test_the_bound_follows_from_what_the_process_may_open() -> None:
    assert [connections_max(limit) for limit in (256, 1024, 4096, 1 << 20)] == [
        128,
        CONNECTIONS_MIN,
        512,
        CONNECTIONS_MAX,
    ]


async def test_connections_of_one_address_are_bounded_and_no_other_socket_is_touched() -> None:
    server = new_server(connections_max=8)
    port = server.add_insecure_port(f"{ADDRESS}:0")
    await server.start()
    other = socket.create_server((ADDRESS, 0))
    with sockets() as opened, sockets() as others:
        for _ in range(5):
            others.append(socket.create_connection(other.getsockname()))
            others.append(other.accept()[0])
        watch = GrpcConnections(bound=3, address_max=1 << 31, overrides={})
        watch.watch(port)
        for _ in range(6):
            opened.append(socket.create_connection((ADDRESS, port)))
            await asyncio.sleep(0.05)
            if len(opened) in (2, 4):
                await asyncio.to_thread(watch.look)
        await asyncio.to_thread(watch.look)
        await asyncio.sleep(0.2)
        assert [is_open(each) for each in opened] == [True] * 3 + [False] * 3
        assert watch.closed == 3
        assert all(is_open(each) for each in others)
        opened[0].close()
        await asyncio.sleep(0.1)
        opened.append(socket.create_connection((ADDRESS, port)))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(watch.look)
        assert is_open(opened[-1]), "there is room again"
        lenient = GrpcConnections(bound=3, address_max=1, overrides={ADDRESS: 5})
        lenient.watch(port)
        await asyncio.to_thread(lenient.look)
        assert lenient.closed == 0
        for _ in range(12):  # gRPC itself takes eight from anywhere
            opened.append(socket.create_connection((ADDRESS, port)))
        await asyncio.sleep(0.2)
        assert sum(map(is_open, opened)) == 8
    other.close()
    await server.stop(0)


@pytest.mark.attack("A6", "one address does not take all connections of an admin listener")
async def test_a_stranger_cannot_fill_an_admin_listener(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1024:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    bound = connections_max(1024) // ADDRESS_SHARE
    async with greedy_client(tmp_path) as client:
        with sockets() as opened:
            for _ in range(300):
                opened.append(await asyncio.to_thread(socket.create_connection, (ADDRESS, client.admin_port)))
            async with asyncio.timeout(10):
                while sum(map(is_open, opened)) > bound:
                    await asyncio.sleep(0.1)
            assert sum(map(is_open, opened)) >= bound // 2, "who was there first stays"
