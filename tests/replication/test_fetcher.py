"""The follower's loop against a leader that answers what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas_log.errors import StorageFailed
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_log.tail.log_tail import LogTail
from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.follower.fetcher import Fetcher
from barnabas_replication.follower.fetcher_partitions import FetcherParts
from barnabas_replication.follower.peer import FetchAnswer, FetchedPartition
from barnabas_replication.leader.isr import IsrState
from barnabas_replication.requests import DivergingEpoch, FetchPartitionSpec, FetchSpec
from barnabas_replication.stats import Stats
from barnabas_replication.throttle import ThrottledReplicas, ThrottleSide
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from tests.support.replicas import FSYNC, PAGE_CACHE, TP, PartitionBench, batch, eventually

Answer = list[FetchedPartition] | Exception


class ScriptedPeer:
    """A leader that waits for the test to put the next answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[FetchSpec, list[FetchPartitionSpec]]] = []
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.closed = 0

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> FetchAnswer:
        self.asked.append((request, list(partitions)))
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return FetchAnswer(answer)

    async def close(self) -> None:
        self.closed += 1


class SlowFlush:
    """A flush of the log takes long."""

    def is_slow(self) -> bool:
        return True


class Bench:
    """A fetcher of broker 1 that follows broker 2 in one partition."""

    def __init__(
        self, tmp_path: Path, *, is_durable: bool, socket_timeout_ms: int = 30_000, fetch_bytes_max: int = 2 << 20
    ) -> None:
        self.bench = PartitionBench(tmp_path, config=FSYNC if is_durable else PAGE_CACHE)
        self.peers: list[ScriptedPeer] = []
        self.flushes: list[UnifiedLog] = []
        self.may_fetch_ahead = True
        self.stats = Stats()
        self.fetcher = Fetcher(
            BrokerId(2),
            endpoint=Endpoint("PLAINTEXT", "127.0.0.1", 1),
            parts=FetcherParts(
                broker_id=BrokerId(1),
                broker_epoch=lambda: 11,
                config=ReplicationConfig(
                    replica_fetch_backoff_ms=50,
                    replica_socket_timeout_ms=socket_timeout_ms,
                    replica_fetch_bytes_max=fetch_bytes_max,
                ),
                peers=self._make_peer,
                request_flush=self.flushes.append,
                random=Random(1),
                stats=self.stats,
                throttle=ThrottleSide(),
                may_fetch_ahead=lambda: self.may_fetch_ahead,
                knows_forgotten=lambda: True,
            ),
        )

    def _make_peer(self, leader_id: BrokerId, endpoint: Endpoint) -> ScriptedPeer:
        peer = ScriptedPeer()
        if self.peers:
            peer.asked = self.peers[-1].asked
        self.peers.append(peer)
        return peer

    @property
    def peer(self) -> ScriptedPeer:
        return self.peers[-1]

    def follow(self, *, leader_epoch: int = 1, partition_epoch: int = 1) -> None:
        self.bench.follow(leader=2, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        self.fetcher.add(self.bench.partition)

    async def asked(self, count: int) -> FetchPartitionSpec:
        """Wait for the count-th fetch; its first partition."""
        await eventually(lambda: bool(self.peers) and len(self.peer.asked) >= count)
        return self.peer.asked[count - 1][1][0]


@asynccontextmanager
async def following(
    tmp_path: Path, *, is_durable: bool = False, socket_timeout_ms: int = 30_000, fetch_bytes_max: int = 2 << 20
) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path, is_durable=is_durable, socket_timeout_ms=socket_timeout_ms, fetch_bytes_max=fetch_bytes_max)
    bench.follow()
    task = asyncio.create_task(bench.fetcher.run())
    yield bench
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    bench.bench.close()


def data(records: bytes = b"", *, hw: int = 0, start: int = 0, diverging: tuple[int, int] | None = None) -> Answer:
    divergence = None if diverging is None else DivergingEpoch(Epoch(diverging[0]), Offset(diverging[1]))
    return [FetchedPartition(TP.topic, 0, ErrorCode.NONE, Offset(hw), Offset(start), divergence, records)]


def refusal(code: ErrorCode, *, start: int = -1) -> Answer:
    return [FetchedPartition(TP.topic, 0, code, Offset(-1), Offset(start), None, b"")]


async def test_it_asks_at_its_end_with_its_epochs_and_takes_in_what_comes(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        first = await bench.asked(1)
        assert (first.fetch_offset, first.current_leader_epoch, first.last_fetched_epoch) == (0, 1, -1)
        request = bench.peer.asked[0][0]
        assert (request.replica_id, request.replica_epoch, request.max_bytes) == (1, 11, 2 << 20)
        bench.peer.answers.put_nowait(data(batch(3, leader_epoch=1), hw=2))
        second = await bench.asked(2)
        assert (second.fetch_offset, second.last_fetched_epoch) == (3, 1)
        assert bench.stats.replica_fetch_s.count == 1, "the second is not answered yet"
        assert bench.bench.hw == 2


async def test_it_asks_again_only_after_the_flush(tmp_path: Path) -> None:
    async with following(tmp_path, is_durable=True) as bench:
        await bench.asked(1)
        bench.peer.answers.put_nowait(data(batch(3, leader_epoch=1)))
        await eventually(lambda: bool(bench.flushes))
        await asyncio.sleep(0.1)
        assert len(bench.peer.asked) == 1, "there is nothing else to ask for"
        bench.bench.flush()
        bench.fetcher.on_flushed(bench.bench.partition)
        assert (await bench.asked(2)).fetch_offset == 3
        assert len(bench.flushes) == 1


FULL = batch(3, leader_epoch=1)
"""With a bound of twice its size less one, what a bound may have cut."""


async def test_behind_a_full_answer_it_asks_on_and_tells_what_it_has_flushed(tmp_path: Path) -> None:
    async with following(tmp_path, is_durable=True, fetch_bytes_max=2 * len(FULL)) as bench:
        await bench.asked(1)
        bench.peer.answers.put_nowait(data(FULL))
        second = await bench.asked(2)
        assert (second.fetch_offset, second.flushed_offset, bench.peer.asked[1][0].max_wait_ms) == (3, 0, 0)
        bench.bench.flush()
        bench.fetcher.on_flushed(bench.bench.partition)
        bench.peer.answers.put_nowait(data(batch(3, base_offset=3, leader_epoch=1)))
        third = await bench.asked(3)
        assert (third.fetch_offset, third.flushed_offset) == (6, 3)
        assert len(bench.flushes) == 2
        bench.peer.answers.put_nowait(data())  # nothing more there: now the flush is waited for
        await asyncio.sleep(0.1)
        assert len(bench.peer.asked) == 3
        bench.bench.flush()
        bench.fetcher.on_flushed(bench.bench.partition)
        fourth = await bench.asked(4)
        assert (fourth.fetch_offset, fourth.flushed_offset, bench.peer.asked[3][0].max_wait_ms) == (6, -1, 1_000)


@pytest.mark.parametrize(
    ("fetch_bytes_max", "reads_flushed_offsets"),
    [(2 * len(FULL) + 1, True), (1, False)],
    ids=["the answer left room", "a leader does not read flushed offsets"],
)
async def test_else_it_asks_again_only_after_the_flush(
    tmp_path: Path, fetch_bytes_max: int, reads_flushed_offsets: bool
) -> None:
    async with following(tmp_path, is_durable=True, fetch_bytes_max=fetch_bytes_max) as bench:
        bench.may_fetch_ahead = reads_flushed_offsets
        await bench.asked(1)
        bench.peer.answers.put_nowait(data(FULL))
        await asyncio.sleep(0.1)
        assert len(bench.peer.asked) == 1


async def test_nothing_is_asked_ahead_of_a_flush_that_takes_long(tmp_path: Path) -> None:
    async with following(tmp_path, is_durable=True, fetch_bytes_max=1) as bench:
        bench.bench.log.durability.flush_round = SlowFlush()
        await bench.asked(1)
        bench.peer.answers.put_nowait(data(FULL))
        await asyncio.sleep(0.1)
        assert len(bench.peer.asked) == 1
        bench.bench.log.durability.flush_round = None
        bench.fetcher.on_flushed(bench.bench.partition)  # an earlier round is over, this one's data is not in it
        assert (await bench.asked(2)).flushed_offset == 0


async def test_what_may_not_be_asked_for_yet_is_waited_for_and_not_looked_at_again_and_again(tmp_path: Path) -> None:
    """It went round in one moment, for ever on the simulator's clock: cut, its flush awaited, and the throttle's debt unpaid."""
    async with following(tmp_path, is_durable=True, fetch_bytes_max=1) as bench:
        throttle = bench.fetcher._parts.throttle
        throttle.set_topic(TP.topic, ThrottledReplicas(is_every=True))
        throttle.set_rate(1, 0)  # bytes per second
        await bench.asked(1)
        bench.bench.partition.isr = IsrState.of((BrokerId(2),))
        looks = 0
        followed = bench.fetcher._partitions
        look_through = followed._look_through

        def counted(now_ms: int, *, is_cut_short: bool) -> Any:
            nonlocal looks
            looks += 1
            return look_through(now_ms, is_cut_short=is_cut_short)

        followed._look_through = counted  # type: ignore[method-assign]
        bench.peer.answers.put_nowait(data(FULL))
        await eventually(lambda: looks > 0)
        await asyncio.sleep(0.1)
        assert looks < 20 and len(bench.peer.asked) == 1


async def test_a_log_that_fails_while_it_is_looked_at_is_given_up_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it led has not been written yet. Giving it up takes it from what is looked through, which ended the whole broker."""
    bench = Bench(tmp_path, is_durable=True)
    bench.bench.lead()
    bench.bench.partition.append_as_leader(batch(2), is_all_acks=False, clock_ms=1)
    bench.follow(leader_epoch=2, partition_epoch=2)

    def fail(tail: LogTail) -> None:
        raise StorageFailed("injected")

    monkeypatch.setattr(LogTail, "write_pending", fail)
    task = asyncio.create_task(bench.fetcher.run())
    await eventually(lambda: not len(bench.fetcher) or task.done())
    await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_an_answer_to_an_earlier_epoch_is_ignored(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        bench.follow(leader_epoch=2, partition_epoch=2)
        bench.peer.answers.put_nowait(data(batch(3, leader_epoch=1)))
        second = await bench.asked(2)
        assert (second.fetch_offset, second.current_leader_epoch) == (0, 2)
        assert bench.bench.log.log_end_offset == 0


async def test_an_answer_after_we_follow_no_more_is_ignored(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        bench.fetcher.remove(bench.bench.partition)
        bench.peer.answers.put_nowait(data(batch(3, leader_epoch=1)))
        await asyncio.sleep(0.02)
        assert bench.bench.log.log_end_offset == 0
        assert len(bench.peer.asked) == 1


async def test_divergence_is_cut_round_by_round(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        log = batch(2, leader_epoch=0) + batch(2, base_offset=2, leader_epoch=1)
        bench.peer.answers.put_nowait(data(log))
        assert (await bench.asked(2)).last_fetched_epoch == 1
        bench.peer.answers.put_nowait(data(diverging=(0, 3)))
        third = await bench.asked(3)
        assert (third.fetch_offset, third.last_fetched_epoch) == (2, 0)
        assert bench.stats.truncations == 1


async def test_divergence_within_damage_is_asked_again_until_it_may_be_cut(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        bench.peer.answers.put_nowait(data(batch(4, leader_epoch=1)))
        await bench.asked(2)
        log = bench.bench.log
        log.damage = (DamagedRange(Offset(0), Offset(4), Offset(0), 0, log.size_bytes, "rot"),)
        for count in (3, 4):
            bench.peer.answers.put_nowait(data(diverging=(1, 1)))
            assert (await bench.asked(count)).fetch_offset == 4
        assert bench.fetcher._partitions._partitions[TP].failures == 2, "each time after a longer pause"
        assert bench.stats.truncations == 0
        bench.bench.partition.is_known_corrupt = True
        bench.bench.partition.isr = IsrState.of((BrokerId(2),))
        bench.peer.answers.put_nowait(data(diverging=(1, 1)))
        assert (await bench.asked(5)).fetch_offset == 0


async def test_out_of_range_starts_over_at_the_leaders_start(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        bench.peer.answers.put_nowait(refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=40))
        second = await bench.asked(2)
        assert (second.fetch_offset, second.log_start_offset, second.last_fetched_epoch) == (40, 40, -1)


async def test_an_empty_log_that_an_older_leader_refuses_asks_without_its_epoch(tmp_path: Path) -> None:
    """It paused and asked the same again, for ever."""
    async with following(tmp_path) as bench:
        await bench.asked(1)
        bench.peer.answers.put_nowait(data(batch(3, leader_epoch=1), hw=3, start=0))
        await bench.asked(2)
        bench.peer.answers.put_nowait(data(hw=3, start=3))
        third = await bench.asked(3)
        assert (third.fetch_offset, third.log_start_offset, third.last_fetched_epoch) == (3, 3, 1)
        bench.peer.answers.put_nowait(refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=3))
        fourth = await bench.asked(4)
        assert (fourth.fetch_offset, fourth.log_start_offset, fourth.last_fetched_epoch) == (3, 3, -1)


async def test_refusals_and_lost_connections_are_tried_again(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        count = 1
        codes = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
        answers: list[Answer] = [refusal(code) for code in codes]
        for answer in (*answers, ConnectionError("gone"), TimeoutError()):
            await bench.asked(count)
            bench.peer.answers.put_nowait(answer)
            count += 1
        assert (await bench.asked(count)).fetch_offset == 0
        assert bench.stats.replica_fetch_errors == 5


async def test_a_leader_that_does_not_answer_is_given_up_and_asked_again_and_again(tmp_path: Path) -> None:
    async with following(tmp_path, socket_timeout_ms=20) as bench:
        await bench.asked(3)
        assert bench.stats.replica_fetch_errors >= 2
        bench.peer.answers.put_nowait(data(batch(3)))
        await eventually(lambda: bench.bench.log.log_end_offset == 3)


async def test_the_end_of_the_task_is_not_taken_for_a_silent_leader(tmp_path: Path) -> None:
    bench = Bench(tmp_path, is_durable=False)
    bench.follow()
    task = asyncio.create_task(bench.fetcher.run())
    await bench.asked(1)
    bench.fetcher.add(bench.bench.partition)  # which gives up the parked fetch, later
    task.cancel()
    bench.fetcher.stop()  # gives it up now, in the same turn
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled() and bench.peer.closed == 1
    bench.bench.close()


async def test_a_corrupt_batch_is_not_taken_in(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        good, bad = batch(2, leader_epoch=1), bytearray(batch(2, base_offset=2, leader_epoch=1))
        bad[-1] ^= 1
        bench.peer.answers.put_nowait(data(good + bytes(bad)))
        assert (await bench.asked(2)).fetch_offset == 2
        assert not bench.bench.host.given_up


def sent_from_a_file_that_is_cut(content: bytes, size: int) -> bytes:
    """What a peer receives of a file that is cut to `size` once all of it was given to the socket, and before it was read there."""
    with tempfile.TemporaryFile() as file, socket.create_server(("127.0.0.1", 0)) as listening:
        file.write(content)
        file.flush()
        with socket.create_connection(listening.getsockname()) as peer, listening.accept()[0] as accepted:
            assert os.sendfile(accepted.fileno(), file.fileno(), 0, len(content)) == len(content)
            os.ftruncate(file.fileno(), size)
            return peer.recv(len(content), socket.MSG_WAITALL)


async def test_what_a_leader_cuts_off_while_it_is_on_its_way_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that has just become a follower truncates, and its last answers are zeros from there on: seen where a node came back
    and got its leaderships, by the third node, which had not heard of it yet."""
    async with following(tmp_path) as bench:
        await bench.asked(1)
        first, second = batch(2, leader_epoch=1), batch(2, base_offset=2, leader_epoch=1)
        received = sent_from_a_file_that_is_cut(first + second, len(first))
        assert received == first + bytes(len(second))
        bench.peer.answers.put_nowait(data(received))
        assert (await bench.asked(2)).fetch_offset == 2, "what is whole is taken"
        said = [record for record in caplog.records if "is refused" in record.message]
        assert [record.levelno for record in said] == [logging.WARNING] and "batch length 0" in said[0].message
        bench.peer.answers.put_nowait(data(second))
        await eventually(lambda: bench.bench.log.log_end_offset == 4)


async def test_a_batch_that_is_refused_again_and_again_is_one_line_and_ever_longer_pauses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was an ERROR line every 20 ms: 1,462 of them in half a minute."""
    async with following(tmp_path) as bench:
        bad = bytearray(batch(2, leader_epoch=1))
        bad[-1] ^= 1
        pauses = []
        for count in range(1, 12):
            await bench.asked(count)
            bench.peer.answers.put_nowait(data(bytes(bad)))
            (followed,) = bench.fetcher._partitions._partitions.values()
            await eventually(lambda n=count, f=followed: f.refusals == n)  # type: ignore[misc]
            pauses.append(followed.failures)
        assert pauses == list(range(1, 12)), "each doubles the next pause"
        told = [record.levelno for record in caplog.records if "is refused" in record.message]
        assert told == [logging.WARNING, logging.ERROR], "the first, and from the second on one line in a minute"
        assert len(bench.peers) == 2, "tried once over a new connection"
        bench.peer.answers.put_nowait(data(batch(2, leader_epoch=1)))
        await eventually(lambda: bench.bench.log.log_end_offset == 2)
        assert followed.failures == followed.refusals == 0


async def test_a_new_address_of_the_leader_makes_a_new_connection(tmp_path: Path) -> None:
    async with following(tmp_path) as bench:
        await bench.asked(1)
        bench.fetcher.set_endpoint(Endpoint("PLAINTEXT", "127.0.0.1", 2))
        bench.peer.answers.put_nowait(data())
        await bench.asked(2)
        assert len(bench.peers) == 2
        assert bench.peers[0].closed == 1


async def test_stopping_gives_up_the_fetch_and_closes_the_connection(tmp_path: Path) -> None:
    bench = Bench(tmp_path, is_durable=False)
    bench.follow()
    task = asyncio.create_task(bench.fetcher.run())
    await bench.asked(1)
    bench.fetcher.stop()
    await task
    assert bench.peer.closed == 1
    bench.bench.close()
