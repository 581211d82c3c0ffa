"""Flush rounds: a log is in one at a time, what waits for it shares its next, an error poisons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas_log.memory_disk import MemoryDisk
from barnabas_log.tail.flush import ROUNDS_MAX, SLOW_FLUSH_S, FlushRounds
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import TopicPartition
from tests.support.logs import append, flush, make_config, open_log
from tests.support.turns import turns


class Rounds:
    """Rounds over a memory disk, with what they told."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.flushed: list[tuple[str, int]] = []
        self.errors: list[OSError] = []
        self.rounds = FlushRounds(
            disk=self.disk,
            on_flushed=lambda log: self.flushed.append((log.topic_partition.topic, log.flushed_end_offset)),
            on_failed=self.errors.append,
        )

    def log(self, topic: str) -> UnifiedLog:
        log = open_log(
            self.disk,
            directory=f"data/{topic}-0",
            topic_partition=TopicPartition(topic, 0),
            config=make_config(segment_bytes=1 << 20),
        )
        flush(log)
        return log

    @contextmanager
    def running(self) -> Iterator[None]:
        task = asyncio.get_running_loop().create_task(self.rounds.run())
        try:
            yield
        finally:
            task.cancel()


async def test_requests_during_a_round_of_a_log_share_its_next_one() -> None:
    it = Rounds()
    a = it.log("a")
    with it.running():
        it.disk.hold_flushes()
        for _ in range(3):
            append(a)
            it.rounds.request(a)
            await turns()
        assert [len(files) for files in it.disk.flushes] == [1] and it.flushed == []
        it.disk.let_go()
        await turns()
        assert it.flushed == [("a", 1), ("a", 3)], "first what was written before the round began, then one round more"
        assert it.rounds.stats.round_s.count == 2 and it.rounds.stats.files == 2


async def test_a_round_of_one_log_holds_up_no_other() -> None:
    it = Rounds()
    a, b = it.log("a"), it.log("b")
    with it.running():
        await turns()
        it.disk.hold_flushes()
        append(a)
        it.rounds.request(a)
        append(b)
        it.rounds.request(b)
        await turns()
        assert [len(files) for files in it.disk.flushes] == [1, 1], "both have begun"
        it.disk.let_go()
        await turns()
        assert it.flushed == [("a", 1), ("b", 1)]


async def test_more_logs_than_rounds_share_them() -> None:
    it = Rounds()
    first = [it.log(f"first{number}") for number in range(ROUNDS_MAX)]
    more = [it.log(f"more{number}") for number in range(ROUNDS_MAX * 3)]
    with it.running():
        await turns()
        it.disk.hold_flushes()
        for log in first + more:
            append(log)
            it.rounds.request(log)
        await turns()
        assert len(it.disk.flushes) == ROUNDS_MAX, "no more at a time"
        it.disk.let_go()
        await turns()
        assert len(it.flushed) == len(first) + len(more)
        assert len(it.disk.flushes) <= 2 * ROUNDS_MAX + 1 < len(first) + len(more)


async def test_what_was_asked_for_before_the_run_is_flushed_by_it() -> None:
    it = Rounds()
    log = it.log("a")
    append(log)
    it.rounds.request(log)
    await turns()
    assert it.disk.flushes == []
    with it.running():
        await turns()
    assert it.flushed == [("a", 1)]


async def test_nobody_is_reported_within_a_request() -> None:
    it = Rounds()
    log = it.log("a")
    with it.running():
        await turns()
        it.rounds.request(log)
        assert it.flushed == [] and it.disk.flushes == [], "there is nothing to flush"
        await turns()
        assert it.flushed == [("a", 0)]


async def test_a_flush_that_ends_after_the_run_counts_only_if_it_failed() -> None:
    for is_broken in (False, True):
        it = Rounds()
        log = it.log("a")
        with it.running():
            it.disk.hold_flushes()
            append(log)
            await turns()
            it.rounds.request(log)
            await turns()
        if is_broken:
            it.disk.fail_on = lambda operation, path: operation == "sync"
        it.disk.let_go()
        await turns()
        assert it.flushed == [] and log.flushed_end_offset == 0
        assert it.rounds.is_failed is is_broken and len(it.errors) == is_broken, "a clean stop must not be written then"


async def test_an_append_during_the_flush_does_not_count_as_flushed() -> None:
    it = Rounds()
    log = it.log("a")
    with it.running():
        it.disk.hold_flushes()
        append(log)
        it.rounds.request(log)
        await turns()
        append(log)
        it.disk.let_go()
        await turns()
        assert (log.flushed_end_offset, log.written_end_offset) == (1, 2)


async def test_the_next_round_begins_before_the_news_of_the_last_is_reported() -> None:
    it = Rounds()
    log = it.log("a")
    rounds_begun: list[int] = []
    it.rounds._on_flushed = lambda log: rounds_begun.append(len(it.disk.flushes))
    with it.running():
        it.disk.hold_flushes()
        for _ in range(2):
            append(log)
            it.rounds.request(log)
            await turns()
        it.disk.let_go()
        await turns()
    assert rounds_begun == [2, 2]


async def test_a_listener_that_fails_ends_neither_the_rounds_nor_the_news_of_others() -> None:
    it = Rounds()
    a, b = it.log("a"), it.log("b")
    bugs: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: bugs.append(context["exception"]))
    bug = RuntimeError("a bug")

    def on_flushed(log: UnifiedLog) -> None:
        it.flushed.append((log.topic_partition.topic, log.flushed_end_offset))
        if log is a:
            raise bug

    it.rounds._on_flushed = on_flushed
    with it.running():
        for _ in range(2):
            for log in (a, b):
                append(log)
                it.rounds.request(log)
            await turns()
    assert it.flushed == [("a", 1), ("b", 1), ("a", 2), ("b", 2)] and bugs == [bug, bug]


async def test_a_failed_flush_poisons_for_good() -> None:
    it = Rounds()
    a, b = it.log("a"), it.log("b")
    with it.running():
        it.disk.fail_on = lambda operation, path: operation == "sync" and "a-0" in path
        await turns()
        it.disk.hold_flushes()
        for log in (a, b):
            append(log)
            it.rounds.request(log)
        it.disk.let_go()
        await turns()
        assert len(it.errors) == 1 and it.rounds.is_failed
        assert (a.flushed_end_offset, b.flushed_end_offset, it.flushed) == (0, 0, [])
        it.disk.fail_on = lambda operation, path: False
        it.rounds.request(b)
        await turns()
        assert b.flushed_end_offset == 0, "a flush that succeeds later would lie"
        assert len(it.disk.flushes) == 2 and len(it.errors) == 1


async def test_a_round_in_flight_when_the_directory_fails_does_not_count() -> None:
    it = Rounds()
    log = it.log("a")
    with it.running():
        it.disk.hold_flushes()
        append(log)
        it.rounds.request(log)
        await turns()
        it.rounds.fail(OSError(28, "a write failed meanwhile"))
        it.disk.let_go()
        await turns()
        assert (log.flushed_end_offset, it.flushed) == (0, [])


async def test_a_slow_round_is_reported_for_its_own_logs_only() -> None:
    it = Rounds()
    a, b = it.log("a"), it.log("b")
    with it.running():
        assert not a.tail.is_held_back
        it.disk.hold_flushes()
        append(a)
        it.rounds.request(a)
        await turns()
        assert not a.tail.is_held_back
        for flying in it.rounds._rounds:
            flying.began_at_s -= SLOW_FLUSH_S * 1.01
        assert a.tail.is_held_back and not b.tail.is_held_back
        assert SLOW_FLUSH_S < it.rounds.oldest_s() < 1
        it.disk.let_go()
        await turns()
        assert not a.tail.is_held_back and it.rounds.oldest_s() == 0


async def test_a_forgotten_log_is_not_flushed() -> None:
    it = Rounds()
    log = it.log("a")
    append(log)
    it.rounds.request(log)
    it.rounds.forget(log)
    with it.running():
        await turns()
    assert it.disk.flushes == []
