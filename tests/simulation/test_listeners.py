"""Whole nodes whose clients come through the Kafka listeners: clean code breaks no law, and what the laws are about happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.loop import VirtualLoop
from barnabas_simulation.sockets import SimulatedSockets, StreamEnd, StreamFaults
from barnabas_simulation.swarm import Slant
from tests.simulation.side_by_side import processes, telling

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 12_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes that are crashed a thousand times have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int) -> dict[str, int]:
    """One seed to its end; how often each thing happened that a law is about."""
    logging.disable(logging.CRITICAL)  # of a process of its own
    with telling(seed):
        cluster = Cluster(seed, steps=STEPS, slant=Slant.LISTENERS)
        figures = cluster.run()
    listening = cluster.listening
    assert listening is not None
    laws = listening.laws
    return {
        "rightful answers": laws.answers,
        "refusals for want of rights": laws.denied,
        "throttles": laws.throttled,
        "logins refused": laws.refused_logins,
        "connections ended for what came over them": laws.ended,
        "offsets committed": max(0, listening.committed),
        "connections reset": listening.sockets.resets,
        "crashes": figures.crashes,
    }


def test_a_sample_of_seeds_breaks_no_law_and_reaches_what_each_is_about() -> None:
    with processes() as pool:
        found = list(pool.map(run, range(1, 9)))
    whole = {what: sum(each[what] for each in found) for what in found[0]}
    assert min(whole.values()) > 0, whole
    assert whole["rightful answers"] > 200


def test_who_asks_a_life_that_has_ended_without_a_word_accuses_no_other() -> None:
    """A client waited for 20 s over a connection to a host that had lost its power and was back since."""
    for seed in range(4, 16):
        with telling(seed):
            cluster = Cluster(seed, steps=STEPS, slant=Slant.BEGUN_ANEW)
            cluster.run()
        if cluster.listening is not None and cluster.listening.laws.silent_lives:
            return
    raise AssertionError("no seed asks one")


class _Collector(asyncio.BufferedProtocol):
    """Keeps what comes, and when it ended."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_lost = False
        self._buffer = memoryview(bytearray(1000))

    def connection_made(self, transport: Any) -> None:
        self.transport: StreamEnd = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


async def _connected(loop: VirtualLoop) -> tuple[_Collector, _Collector]:
    accepted: list[_Collector] = []

    def accept() -> _Collector:
        accepted.append(_Collector())
        return accepted[-1]

    server = await loop.create_server(accept, "here", 1)
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(_Collector, "elsewhere", 1)
    connecting = asyncio.ensure_future(loop.create_connection(_Collector, "here", 1))
    await asyncio.sleep(1.0)
    assert not accepted, "nobody is accepted before the server serves"
    await server.start_serving()
    _, near = await connecting
    return near, accepted[0]


def _on_a_loop(main: Any, faults: StreamFaults) -> None:
    loop = VirtualLoop()
    loop.sockets = SimulatedSockets(loop, Random(1))
    loop.sockets.faults = faults
    loop.run_until_complete(main(loop))
    loop.end()


def test_a_stream_keeps_its_order_however_it_is_cut() -> None:
    async def main(loop: VirtualLoop) -> None:
        near, far = await _connected(loop)
        sent = b""
        for number in range(100):
            data = b"%d," % number
            sent += data
            near.transport.write(data)
        await asyncio.sleep(60.0)
        assert b"".join(far.pieces) == sent
        assert len(far.pieces) > 100

    _on_a_loop(main, StreamFaults(cut=0.9, piece_bytes=2, slow=0.2, slow_s=0.5))


def test_a_sender_is_held_back_by_who_does_not_read() -> None:
    async def main(loop: VirtualLoop) -> None:
        near, far = await _connected(loop)
        near.transport.pause_reading()
        socket = far.transport.get_extra_info("socket").dup()
        assert socket.send(bytes(50)) == 10
        await asyncio.sleep(1.0)
        with pytest.raises(BlockingIOError):
            socket.send(b"more")
        woken: list[float] = []

        def wake() -> None:
            woken.append(loop.time())
            loop.remove_writer(socket.fileno())

        loop.add_writer(socket.fileno(), wake)
        await asyncio.sleep(1.0)
        assert not woken
        near.transport.resume_reading()
        await asyncio.sleep(1.0)
        assert len(woken) == 1
        assert socket.send(b"more") == 4

    _on_a_loop(main, StreamFaults(window_bytes=10))


def test_a_host_without_power_sends_nothing_more() -> None:
    async def main(loop: VirtualLoop) -> None:
        near, far = await _connected(loop)
        assert loop.sockets is not None
        loop.sockets.power_off("here")
        far.transport.write(b"last words")
        far.transport.abort()
        await asyncio.sleep(1.0)
        assert far.is_lost and not near.pieces
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(_Collector, "here", 1)

    _on_a_loop(main, StreamFaults())
