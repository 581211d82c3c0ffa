"""Laws of the coordinator runtime, shown with a shard that only adds up numbers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_coordination import runtime as runtime_module
from barnabas_coordination.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from barnabas_coordination.runtime import CoordinatorRuntime, ShardState
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_replication.errors import NotEnoughReplicas, NotLeaderOrFollower, RequestTimedOut
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import Epoch
from barnabas_wire.records.batch import Record, build_batch
from tests.broker.coordinator.fake_log import FakeLog
from tests.support import virtual_loop
from tests.support.turns import turns

COMMIT_TIMEOUT_MS = 5_000


KEYS = itertools.count()


def new_key() -> bytes:
    """Another one each time: loading keeps the last record of a key."""
    return b"n%d" % next(KEYS)


class SumShard:
    """Records are numbers; the state is their sum."""

    def __init__(self) -> None:
        self.total = 0
        self.committed = 0
        self.fired: list[Hashable] = []
        self.abandoned: list[Ticket] = []
        self.parked: list[Ticket] = []
        self.instead: CoordinatorResult | None = None

    def encode(self, record: int) -> tuple[bytes, bytes | None]:
        return new_key(), str(record).encode()

    def decode(self, key: bytes, value: bytes | None) -> int | None:
        return int(value) if key.startswith(b"n") and value is not None else None

    def replay(self, record: int) -> None:
        self.total += record

    def on_refused(self, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        return self.instead or result.refused(error)

    def on_committed(self, record: int) -> None:
        self.committed += record

    def on_loaded(self, *, now_ms: int) -> CoordinatorResult:
        return CoordinatorResult()

    def on_timer(self, key: Hashable, *, now_ms: int) -> CoordinatorResult:
        if key == "bomb":
            raise InvariantViolated("boom")
        self.fired.append(key)
        return CoordinatorResult()

    # steps

    def add(self, number: int, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        result = CoordinatorResult(records=[number])
        result.reply(ticket, f"added {number}")
        return result

    def ask(self, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        result = CoordinatorResult()
        result.reply(ticket, self.total)
        return result

    def park(self, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        self.parked.append(ticket)
        return CoordinatorResult()

    def abandon(self, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        self.abandoned.append(ticket)
        return CoordinatorResult()


class Bench:
    """A runtime on a fake log."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.runtime: CoordinatorRuntime[SumShard] = CoordinatorRuntime(
            "sum",
            log=log,
            make_shard=SumShard,
            clock_ms=virtual_loop.now_ms,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            load_bytes=200,
        )

    async def elect(self, partition: int = 0, epoch: int = 1) -> SumShard:
        """Lead a partition and wait until it is loaded."""
        self.runtime.on_elected(partition, Epoch(epoch))
        while self.runtime.partitions[partition] is not ShardState.ACTIVE:
            await asyncio.sleep(0.01)
        return self.runtime.shard(partition)

    def add(self, number: int) -> asyncio.Task[Any]:
        """Start adding a number."""
        return asyncio.ensure_future(self.runtime.write(0, lambda s, ticket, now: s.add(number, ticket, now)))

    def ask(self) -> asyncio.Task[Any]:
        """Start asking for the sum."""
        return asyncio.ensure_future(self.runtime.write(0, SumShard.ask))


@asynccontextmanager
async def bench(log: FakeLog | None = None) -> AsyncIterator[Bench]:
    """A runtime whose owner task runs."""
    made = Bench(log or FakeLog())
    owner = asyncio.create_task(made.runtime.run())
    try:
        yield made
    finally:
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


async def code_of(work: asyncio.Task[Any]) -> ErrorCode:
    """The code that the work failed with."""
    with pytest.raises(KafkaError) as raised:
        await work
    return raised.value.code


def numbers(*values: int, base_offset: int = 0, **batch: Any) -> bytes:
    """One batch of the fake shard's records."""
    records = [Record(base_offset + i, 0, new_key(), str(value).encode()) for i, value in enumerate(values)]
    return build_batch(records, **batch)


# ---- replies and commits ---------------------------------------------------------------------------------------------


@virtual_loop.on_virtual_time
async def test_an_answer_leaves_only_when_its_record_is_committed() -> None:
    async with bench(FakeLog(commits_at_once=False)) as b:
        shard = await b.elect()
        work = b.add(5)
        await turns(10)
        assert (shard.total, shard.committed, work.done()) == (5, 0, False)
        b.log.commit(0)
        assert await work == "added 5"
        assert shard.committed == 5


@virtual_loop.on_virtual_time
async def test_a_step_without_records_waits_for_what_was_appended_before_it() -> None:
    async with bench(FakeLog(commits_at_once=False)) as b:
        await b.elect()
        assert await b.ask() == 0
        first, asked, second = b.add(5), b.ask(), b.add(7)
        await turns(10)
        assert not asked.done()
        b.log.commit(0, 1)
        assert (await first, await asked) == ("added 5", 5)
        await turns(10)
        assert not second.done()
        b.log.commit(0)
        assert await second == "added 7"


@virtual_loop.on_virtual_time
async def test_commits_are_reported_in_the_order_of_the_log_however_futures_resolve() -> None:
    async with bench(FakeLog(commits_at_once=False)) as b:
        shard = await b.elect()
        order: list[int] = []
        shard.on_committed = order.append  # type: ignore[method-assign, assignment]
        work = [b.add(number) for number in (1, 2, 3)]
        await turns(10)
        b.log._waiting[0].reverse()
        b.log.commit(0)
        await asyncio.gather(*work)
        assert order == [1, 2, 3]


@virtual_loop.on_virtual_time
async def test_a_log_that_commits_at_once_is_answered_at_once() -> None:
    async with bench() as b:
        shard = await b.elect()
        assert await b.add(5) == "added 5"
        assert (shard.total, shard.committed) == (5, 5)


@pytest.mark.parametrize("in_future", [False, True])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotEnoughReplicas(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (NotLeaderOrFollower(), ErrorCode.NOT_COORDINATOR),
        (KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR),
        (KafkaError.of(ErrorCode.RECORD_LIST_TOO_LARGE), ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
@virtual_loop.on_virtual_time
async def test_a_refused_append_changes_nothing(in_future: bool, error: KafkaError, code: ErrorCode) -> None:
    async with bench() as b:
        shard = await b.elect()
        b.log.refuses, b.log.refuses_in_future = error, in_future
        assert await code_of(b.add(5)) is code
        assert (shard.total, shard.committed, b.log.batches) == (0, 0, {})
        b.log.refuses = None
        assert await b.add(6) == "added 6"
        assert b.runtime.stats.appends_refused == 1


@virtual_loop.on_virtual_time
async def test_a_shard_decides_what_happens_instead_of_a_refused_step() -> None:
    async with bench() as b:
        shard = await b.elect()
        b.log.refuses = NotEnoughReplicas()

        def decide(shard: SumShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
            shard.instead = CoordinatorResult()
            shard.instead.reply(ticket, "refused")
            return shard.add(5, ticket, now_ms)

        assert await b.runtime.write(0, decide) == "refused"
        assert (shard.total, b.runtime.stats.appends_refused) == (0, 1)


@virtual_loop.on_virtual_time
async def test_an_append_lost_later_makes_the_shard_read_its_log_again() -> None:
    async with bench(FakeLog(commits_at_once=False)) as b:
        await b.elect()
        kept = b.add(1)
        await turns(10)
        b.log.commit(0)
        await kept
        lost, asked = b.add(2), b.ask()
        await turns(10)
        b.log.lose(0, RequestTimedOut())
        assert await code_of(lost) is ErrorCode.NOT_COORDINATOR
        assert await code_of(asked) is ErrorCode.NOT_COORDINATOR
        assert b.runtime.partitions[0] is ShardState.LOADING
        await asyncio.sleep(1)
        assert b.runtime.shard(0).total == 1


@virtual_loop.on_virtual_time
async def test_who_waits_too_long_is_sent_away_and_the_record_may_still_commit() -> None:
    async with bench(FakeLog(commits_at_once=False)) as b:
        shard = await b.elect()
        work = b.add(5)
        await asyncio.sleep(COMMIT_TIMEOUT_MS / 1000 - 0.001)
        assert not work.done()
        assert await code_of(work) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await code_of(b.ask()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        b.log.commit(0)
        await turns(10)
        assert shard.committed == 5
        assert await b.ask() == 5


# ---- leadership ------------------------------------------------------------------------------------------------------


@virtual_loop.on_virtual_time
async def test_a_shard_that_is_not_led_or_not_loaded_answers_nobody() -> None:
    async with bench() as b:
        assert await code_of(b.ask()) is ErrorCode.NOT_COORDINATOR
        b.runtime.on_elected(0, Epoch(1))
        with pytest.raises(CoordinatorLoadInProgress):
            b.runtime.shard(0)
        assert await code_of(b.ask()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(1)
        assert await b.ask() == 0
        b.runtime.on_resigned(0)
        with pytest.raises(NotCoordinator):
            b.runtime.shard(0)


@virtual_loop.on_virtual_time
async def test_loading_replays_the_whole_log_in_pieces_and_skips_what_is_not_its_own() -> None:
    log = FakeLog()
    log.batches[0] = [
        numbers(*range(10)),
        build_batch([Record(10, 0, b"\x00", b"\x00")], is_control=True),
        build_batch([Record(11, 0, b"other", b"9"), Record(12, 0, None, b"9"), Record(13, 0, b"n", b"100")]),
    ]
    log.commit(0)
    async with bench(log) as b:
        shard = await b.elect()
        assert (shard.total, shard.committed) == (145, 145)
        assert log.reads > 1
        assert (b.runtime.stats.records_loaded, b.runtime.stats.unknown_records) == (13, 2)


@virtual_loop.on_virtual_time
async def test_a_long_load_gives_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "REPLAY_SLICE_RECORDS", 5)
    log = FakeLog()
    log.batches[0] = [numbers(*[1] * 50)]
    log.commit(0)
    async with bench(log) as b:
        b.runtime.on_elected(0, Epoch(1))
        await asyncio.sleep(0.001)  # the read
        seen = set()
        while b.runtime.partitions[0] is ShardState.LOADING:
            seen.add(b.runtime._hosted[0].shard.total)
            await asyncio.sleep(0)
        assert len(seen) >= 8


@virtual_loop.on_virtual_time
async def test_a_load_counts_the_last_record_of_each_key_and_gives_turns_while_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_module, "LOAD_SLICE_BYTES", 500)
    log = FakeLog()
    rewritten = [Record(i, 0, b"n%d" % (i % 3), b"%d" % i) for i in range(1_000)]
    log.batches[0] = [build_batch([*rewritten, Record(1_000, 0, b"n2", None)])]
    log.batches[1] = [numbers(7)]
    log.commit(0)
    log.commit(1)
    async with bench(log) as b:
        b.runtime.on_elected(0, Epoch(1))
        b.runtime.on_elected(1, Epoch(1))
        turns = 0
        while b.runtime.partitions[0] is ShardState.LOADING:
            # The short partition is served while the long one is read.
            turns += b.runtime.partitions[1] is ShardState.ACTIVE
            await asyncio.sleep(0 if b.log.reads else 0.001)
        assert turns >= 5
        assert b.runtime.shard(0).total == 999 + 997
        assert b.runtime.shard(1).total == 7


@virtual_loop.on_virtual_time
async def test_a_shard_is_active_only_when_the_high_watermark_has_reached_what_it_read() -> None:
    log = FakeLog()
    log.batches[0] = [numbers(1), numbers(2, base_offset=1)]
    log.commit(0, 1)
    async with bench(log) as b:
        b.runtime.on_elected(0, Epoch(1))
        await asyncio.sleep(30)
        assert b.runtime.partitions[0] is ShardState.LOADING
        log.commit(0)
        await asyncio.sleep(0.05)
        assert b.runtime.shard(0).total == 3


@virtual_loop.on_virtual_time
async def test_resigning_answers_everybody_and_forgets_everything() -> None:
    async with bench(FakeLog(commits_at_once=False)) as b:
        shard = await b.elect()
        b.runtime._perform(b.runtime._hosted[0], _armed("late", 1_000))
        parked = asyncio.ensure_future(b.runtime.write(0, SumShard.park))
        work = b.add(5)
        await turns(10)
        b.runtime.on_resigned(0)
        assert await code_of(parked) is ErrorCode.NOT_COORDINATOR
        assert await code_of(work) is ErrorCode.NOT_COORDINATOR
        b.log.commit(0)
        await asyncio.sleep(10)
        assert (shard.committed, shard.fired) == (0, [])
        assert b.runtime.partitions == {}


@virtual_loop.on_virtual_time
async def test_resigning_while_loading_ends_the_load() -> None:
    log = FakeLog()
    log.batches[0] = [numbers(1)]
    async with bench(log) as b:
        b.runtime.on_elected(0, Epoch(1))
        await asyncio.sleep(0.5)
        b.runtime.on_resigned(0)
        log.commit(0)
        await asyncio.sleep(0.5)
        assert b.runtime.partitions == {}
        assert (await b.elect(epoch=3)).total == 1


@virtual_loop.on_virtual_time
async def test_a_later_epoch_of_the_same_leader_keeps_its_state_and_writes_in_the_new_epoch() -> None:
    async with bench() as b:
        shard = await b.elect(epoch=4)
        await b.add(1)
        b.runtime.on_elected(0, Epoch(6))
        await b.add(2)
        assert b.runtime.shard(0) is shard
        assert b.log.epochs == [4, 6]


@virtual_loop.on_virtual_time
async def test_a_partition_that_cannot_be_read_is_tried_again() -> None:
    log = FakeLog()
    log.batches[0] = [numbers(1, 2)]
    log.commit(0)
    log.read_error = NotLeaderOrFollower()
    async with bench(log) as b:
        b.runtime.on_elected(0, Epoch(1))
        await asyncio.sleep(5)
        assert b.runtime.partitions[0] is ShardState.LOADING
        log.read_error = None
        await asyncio.sleep(2)
        assert b.runtime.shard(0).total == 3
        assert b.runtime.stats.load_failures >= 3


@virtual_loop.on_virtual_time
async def test_what_cannot_be_read_for_a_moment_is_no_news_and_what_stays_so_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FakeLog()
    log.read_error = NotLeaderOrFollower()
    for partition in range(50):
        log.batches[partition] = [numbers(1)]
        log.commit(partition)
    async with bench(log) as b:
        for partition in range(50):
            b.runtime.on_elected(partition, Epoch(1))
        await asyncio.sleep(5)
        assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
        await asyncio.sleep(25)
        (reported,) = [entry.message for entry in caplog.records if entry.levelno >= logging.WARNING]
        assert "50 partitions could not be read" in reported and "barnabas cluster health" in reported


@virtual_loop.on_virtual_time
async def test_a_log_that_ends_before_its_end_is_not_taken_for_loaded() -> None:
    log = FakeLog()
    log.batches[0] = [numbers(1)]
    log.commit(0)
    real = log.read

    async def short(*args: Any, **named: Any) -> bytes:
        return (await real(*args, **named))[:-1]

    log.read = short  # type: ignore[method-assign]
    async with bench(log) as b:
        b.runtime.on_elected(0, Epoch(1))
        await asyncio.sleep(3)
        assert b.runtime.partitions[0] is ShardState.LOADING
        assert b.runtime.stats.load_failures >= 2


@virtual_loop.on_virtual_time
async def test_a_step_for_all_shards_reaches_a_loading_one_when_it_is_loaded() -> None:
    async with bench() as b:
        ready = await b.elect(0)
        b.runtime.on_elected(1, Epoch(1))
        b.runtime.write_to_all(lambda shard, now_ms: CoordinatorResult(records=[7]))
        assert ready.total == 7
        await asyncio.sleep(0.1)
        assert b.runtime.shard(1).total == 7


# ---- timers and lost callers -----------------------------------------------------------------------------------------


def _armed(key: str, delay_ms: int) -> CoordinatorResult:
    result = CoordinatorResult()
    result.arm(key, delay_ms)
    return result


def _cancelled(key: str) -> CoordinatorResult:
    result = CoordinatorResult()
    result.cancel(key)
    return result


@virtual_loop.on_virtual_time
async def test_timers_fire_once_are_replaced_by_key_and_can_be_cancelled() -> None:
    async with bench() as b:
        shard = await b.elect()
        hosted = b.runtime._hosted[0]
        for result in (_armed("a", 1_000), _armed("b", 1_000), _armed("c", 1_000), _armed("b", 5_000)):
            b.runtime._perform(hosted, result)
        b.runtime._perform(hosted, _cancelled("c"))
        await asyncio.sleep(1.5)
        assert shard.fired == ["a"]
        await asyncio.sleep(10)
        assert shard.fired == ["a", "b"]
        assert hosted.timers == {}


@virtual_loop.on_virtual_time
async def test_a_broken_law_in_a_timer_ends_the_owner_task() -> None:
    b = Bench(FakeLog())
    owner = asyncio.create_task(b.runtime.run())
    await b.elect()
    b.runtime._perform(b.runtime._hosted[0], _armed("bomb", 1_000))
    with pytest.raises(ExceptionGroup) as raised:
        await owner
    assert raised.group_contains(InvariantViolated)
    assert b.runtime.partitions == {}


@virtual_loop.on_virtual_time
async def test_a_caller_that_goes_away_is_forgotten_by_the_shard() -> None:
    async with bench() as b:
        shard = await b.elect()
        parked = asyncio.ensure_future(b.runtime.write(0, SumShard.park, on_abandoned=SumShard.abandon))
        await turns(10)
        parked.cancel()
        await asyncio.gather(parked, return_exceptions=True)
        assert shard.abandoned == shard.parked
        assert b.runtime._hosted[0].tickets == {}


@virtual_loop.on_virtual_time
async def test_who_waits_hears_of_a_resignation_in_the_order_of_asking() -> None:
    async with bench() as b:
        await b.elect()
        heard: list[int] = []

        async def ask(number: int) -> None:
            with pytest.raises(NotCoordinator):
                await b.runtime.write(0, SumShard.park)
            heard.append(number)

        asking = [asyncio.ensure_future(ask(number)) for number in range(50)]
        await turns(10)
        b.runtime.on_resigned(0)
        await asyncio.gather(*asking)
        assert heard == list(range(50)), "simulated runs depended on the addresses of futures"


@virtual_loop.on_virtual_time
async def test_a_step_that_is_refused_raises_where_it_was_asked() -> None:
    def refuse(shard: SumShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        raise CoordinatorNotAvailable("no")

    async with bench() as b:
        await b.elect()
        with pytest.raises(CoordinatorNotAvailable):
            await b.runtime.write(0, refuse)
        assert b.runtime._hosted[0].tickets == {}
