"""One partition with a real log: HW, ISR, epochs, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_log.errors import InconsistentTopicId, OffsetOutOfRange
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_quorum.records import FaultyReplica, ReplicaFault
from barnabas_replication.controller import AlterPartitionOutcome
from barnabas_replication.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from barnabas_replication.follower import follower_log
from barnabas_replication.follower.truncation import EpochEnd
from barnabas_replication.hosting import roles
from barnabas_replication.leader import isr_changes, offset_lookup, reads
from barnabas_replication.leader.offset_lookup import (
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from barnabas_replication.leader.purgatory import ParkedProduce
from barnabas_replication.leader.reads import SUSPECT_REPEATS
from barnabas_replication.requests import AppendOutcome, FetchPartitionSpec, FetchSpec, ListedOffset
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from tests.log.test_true_times import batch_of
from tests.support.logs import make_batch
from tests.support.replicas import FSYNC, PAGE_CACHE, TP, PartitionBench, batch, registration


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PartitionBench]:
    bench = PartitionBench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[PartitionBench]:
    bench = PartitionBench(tmp_path, config=FSYNC)
    yield bench
    bench.close()


def park(bench: PartitionBench, required: int) -> list[list[AppendOutcome]]:
    given: list[list[AppendOutcome]] = []
    produce = ParkedProduce([AppendOutcome("orders", 0, None)], given.append, 1000)
    bench.partition.waiting_for_commit.park(Offset(required), produce, 0)
    produce.settle()
    return given


# ---------------------------------------------------------------------- high watermark


def test_hw_waits_for_every_isr_member(bench: PartitionBench) -> None:
    bench.lead()
    bench.append(5)
    bench.fetch(2, 5)
    assert bench.hw == 0
    bench.fetch(3, 5)
    assert bench.hw == 5
    assert bench.log.high_watermark == 5


def test_a_follower_counts_up_to_what_it_has_flushed_and_is_served_from_where_it_asks(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    bench.append(3)
    bench.append(4)
    assert bench.fetch(2, 3, flushed=0).size_bytes > 0
    assert (bench.hw, bench.partition.remotes[BrokerId(2)].end_offset) == (0, 0)
    assert bench.fetch(2, 7, flushed=3).size_bytes == 0
    assert bench.hw == 3
    bench.fetch(2, 3, flushed=9)  # nobody has flushed what he has not got
    assert bench.hw == 3
    bench.fetch(2, 7)
    assert bench.hw == 7


def test_hw_waits_for_the_leaders_own_flush(durable: PartitionBench) -> None:
    durable.lead()
    durable.append(5)
    durable.fetch(2, 5)
    durable.fetch(3, 5)
    assert durable.hw == 0, "both followers have flushed, the leader has not"
    durable.flush()
    assert durable.hw == 5


def test_hw_of_a_lone_replica_follows_its_flush(durable: PartitionBench) -> None:
    durable.lead(isr=(1,))
    durable.partition.remotes.clear()
    durable.append(2)
    assert durable.hw == 0
    durable.flush()
    assert durable.hw == 2


def test_flush_mode_is_the_topics(tmp_path: Path) -> None:
    bench = PartitionBench(tmp_path, config=FSYNC)
    bench.lead(isr=(1,))
    bench.host.epochs = {1: 11}
    bench.append(2)
    assert bench.hw == 0
    bench.log.update_config(PAGE_CACHE)
    bench.partition.refresh(now_ms=0)
    assert bench.hw == 2
    bench.close()


def test_a_caught_up_replica_that_may_join_holds_the_hw_back(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    bench.append(5)
    bench.fetch(3, 0)
    bench.fetch(3, 5)
    assert bench.host.proposed[-1].new_isr[-1].broker_id == 3
    bench.append(5)
    bench.fetch(2, 10)
    assert bench.hw == 5, "3 is at 5 and proposed"
    bench.answer(error=ErrorCode.INELIGIBLE_REPLICA)
    bench.host.epochs.pop(3)
    bench.partition.refresh(now_ms=0)
    assert bench.hw == 10, "3 is fenced: nobody waits for it"


def test_a_caught_up_replica_holds_the_hw_back_while_another_is_proposed(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    bench.fetch(3, 0)
    assert [member.broker_id for member in bench.host.proposed[-1].new_isr] == [1, 2]
    bench.append(5)
    bench.fetch(2, 5)
    assert bench.hw == 0, "else 3 could never catch up with a busy partition"
    bench.host.time_ms = 101
    bench.partition.refresh(now_ms=101)
    assert bench.hw == 5, "but not for longer than the lag time"


def test_a_proposed_joiner_counts_whatever_becomes_of_it(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    bench.host.time_ms = 10_000
    bench.host.epochs.pop(2)
    bench.append(5)
    assert bench.hw == 0, "the controller may have taken it into the ISR already"


def test_a_proposed_leaver_counts_until_the_image_is_without_it(bench: PartitionBench) -> None:
    bench.lead()
    bench.append(5)
    bench.fetch(2, 5)
    bench.host.time_ms = 101
    bench.fetch(2, 5)
    isr_changes.shrink_isr(bench.partition, now_ms=101)
    assert [member.broker_id for member in bench.host.proposed[-1].new_isr] == [1, 2]
    assert bench.hw == 0
    assert bench.answer(isr=(1, 2)) is False
    assert bench.hw == 0, "what the controller judged by may not be known here yet"
    bench.lead(isr=(1, 2), partition_epoch=2)
    assert bench.hw == 5
    assert bench.partition.isr.committed == {1, 2}


def test_hw_stands_still_below_min_isr_and_goes_on_with_it(tmp_path: Path) -> None:
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, min_insync_replicas=2)
    bench = PartitionBench(tmp_path, config=config)
    bench.lead(isr=(1,))
    bench.append(5, is_all_acks=False)
    assert bench.hw == 0
    bench.fetch(2, 5)
    bench.lead(isr=(1, 2), partition_epoch=2)
    assert bench.hw == 5
    bench.close()


def test_hw_never_falls_when_a_member_with_less_joins_the_isr_by_image(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(5)
    assert bench.hw == 5
    bench.lead(isr=(1, 2), partition_epoch=2)
    bench.append(1)
    assert bench.hw == 5


# ---------------------------------------------------------------------- produce


def test_acks_all_below_min_isr_writes_nothing(tmp_path: Path) -> None:
    bench = PartitionBench(tmp_path, config=LogConfig(min_insync_replicas=2))
    bench.lead(isr=(1,))
    with pytest.raises(NotEnoughReplicas):
        bench.partition.append_as_leader(batch(), is_all_acks=True, clock_ms=1)
    assert bench.log.log_end_offset == 0
    bench.partition.append_as_leader(batch(), is_all_acks=False, clock_ms=1)
    assert bench.log.log_end_offset == 1
    bench.close()


def test_isr_falling_below_min_fails_what_waits(tmp_path: Path) -> None:
    config = LogConfig(flush_on_acks=FlushOnAcks.PAGE_CACHE, min_insync_replicas=2)
    bench = PartitionBench(tmp_path, config=config)
    bench.lead(isr=(1, 2))
    bench.append(1)
    given = park(bench, 1)
    bench.lead(isr=(1,), partition_epoch=2)
    assert isinstance(given[0][0].error, NotEnoughReplicasAfterAppend)
    assert bench.hw == 0
    bench.close()


def test_losing_leadership_tells_those_who_wait_where_to_go(bench: PartitionBench) -> None:
    bench.lead()
    bench.append(1)
    given = park(bench, 1)
    bench.follow(leader=2, leader_epoch=2, partition_epoch=2)
    assert isinstance(given[0][0].error, NotLeaderOrFollower)
    assert given[0][0].current_leader == (2, 2)
    with pytest.raises(NotLeaderOrFollower):
        bench.partition.append_as_leader(batch(), is_all_acks=False, clock_ms=1)


def test_a_new_epoch_of_the_same_leader_keeps_what_waits(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    bench.append(1)
    given = park(bench, 1)
    bench.lead(isr=(1, 2), leader_epoch=2, partition_epoch=2)
    assert not given
    bench.fetch(2, 1)
    assert given[0][0].error is None


# ---------------------------------------------------------------------- ISR


def test_a_joiner_is_proposed_once_with_the_epoch_of_its_fetch(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(3)
    bench.fetch(2, 0)
    assert not bench.host.proposed
    bench.fetch(2, 3)
    bench.fetch(2, 3)
    bench.fetch(3, 3)
    assert len(bench.host.proposed) == 1, "one proposal at a time"
    assert bench.host.proposed[0].new_isr == ((1, 11), (2, 12))
    bench.answer(isr=(1, 2))
    bench.fetch(3, 3)
    assert len(bench.host.proposed) == 1, "not before the image shows the first"
    bench.lead(isr=(1, 2), partition_epoch=2)
    bench.fetch(3, 3)
    assert bench.host.proposed[1].new_isr == ((1, 11), (2, 12), (3, 13))
    assert bench.host.proposed[1].partition_epoch == 2


def test_an_earlier_life_of_a_follower_does_not_join(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(3)
    bench.fetch(2, 3, broker_epoch=11)
    assert not bench.host.proposed, "12 is registered: 11 has restarted since (KIP-903)"
    bench.fetch(2, 3, broker_epoch=-1)
    assert not bench.host.proposed, "and this incarnation has not registered yet"


@pytest.mark.parametrize("incarnation", [-1, 13])
def test_a_life_of_a_member_that_the_leader_has_not_heard_of_commits_nothing(
    bench: PartitionBench, incarnation: int
) -> None:
    bench.lead(isr=(1, 2))
    bench.append(3)
    bench.flush()
    bench.fetch(2, 0)
    assert bench.fetch(2, 3, broker_epoch=incarnation).error is None, "it is served"
    assert bench.partition.high_watermark == 0, (
        "12 is meant: the newer one may be out of the ISR, or its leader, by now"
    )
    bench.host.epochs[BrokerId(2)] = 13
    bench.fetch(2, 3, broker_epoch=13)
    assert bench.partition.high_watermark == 3


def test_a_joiner_must_have_the_start_of_the_epoch(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(5)
    bench.lead(isr=(1,), leader_epoch=2, partition_epoch=2)
    bench.partition.set_high_watermark(Offset(0))
    bench.fetch(2, 3)
    assert not bench.host.proposed, "3 is above the HW but below the start 5 of the epoch"
    bench.fetch(2, 5)
    assert len(bench.host.proposed) == 1


@pytest.mark.parametrize("silence_ms", [100, 101])
def test_a_silent_member_is_dropped_after_the_lag_time(bench: PartitionBench, silence_ms: int) -> None:
    bench.lead(isr=(1, 2))
    bench.fetch(2, 0)
    bench.append(1)
    isr_changes.shrink_isr(bench.partition, now_ms=silence_ms)
    assert bool(bench.host.proposed) is (silence_ms > 100)


@pytest.mark.parametrize(
    ("error", "is_retried", "still_counts"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, False, False),
        (ErrorCode.INVALID_UPDATE_VERSION, False, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False, True),
        (ErrorCode.NOT_CONTROLLER, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
    ],
)
def test_what_a_refusal_does(bench: PartitionBench, error: ErrorCode, is_retried: bool, still_counts: bool) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    assert bench.answer(error=error) is is_retried
    assert (2 in bench.partition.isr.maximal) is still_counts
    assert bench.partition.isr.committed == {1}


def test_a_newer_image_settles_a_proposal_and_its_late_answer_is_ignored(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    bench.lead(isr=(1, 3), partition_epoch=5)
    assert bench.partition.proposal is None
    assert bench.answer(isr=(1, 2), partition_epoch=2) is False
    assert bench.partition.isr.committed == {1, 3}
    assert bench.partition.partition_epoch == 5


def test_an_accepted_proposal_counts_until_the_image_shows_it(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    bench.append(3, is_all_acks=False)
    assert bench.answer(isr=(1, 2)) is False
    bench.lead(isr=(1,), partition_epoch=1)
    assert (bench.partition.isr.committed, bench.partition.isr.maximal, bench.hw) == ({1}, {1, 2}, 0)
    bench.lead(isr=(1, 2), partition_epoch=2)
    assert bench.partition.isr.committed == {1, 2}
    assert bench.partition.proposal is None


def test_an_answer_that_nothing_was_to_be_changed_settles_a_proposal(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    assert bench.answer(isr=(1,), partition_epoch=1) is False
    assert bench.partition.proposal is None, "no image will show it"
    assert bench.partition.isr.maximal == {1}


def test_a_leader_that_knows_no_higher_minimum_yet_does_not_commit_alone_by_an_answer(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    given = park(bench, 5)
    bench.append(5)
    bench.host.time_ms = 101
    isr_changes.shrink_isr(bench.partition, now_ms=101)
    bench.answer(isr=(1,))  # the controller keeps 2 as eligible: the minimum is 2 by now
    assert (bench.hw, given) == (0, [])
    bench.log.update_config(replace(bench.log.config, min_insync_replicas=2))
    bench.lead(isr=(1,), partition_epoch=2)
    assert bench.hw == 0
    assert [type(outcome.error) for outcome in given[0]] == [NotEnoughReplicasAfterAppend]


def test_a_late_refusal_does_not_touch_the_next_proposal(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.fetch(2, 0)
    refused = bench.host.proposed[-1]
    bench.lead(isr=(1, 3), partition_epoch=5)
    bench.fetch(2, 0)
    outcome = AlterPartitionOutcome(refused.topic_id, 0, KafkaError.of(ErrorCode.INELIGIBLE_REPLICA))
    assert isr_changes.on_isr_outcome(bench.partition, refused, outcome, now_ms=0) is False
    assert bench.partition.proposal is bench.host.proposed[-1]
    assert bench.partition.isr.maximal == {1, 2, 3}


# ---------------------------------------------------------------------- fetch


def test_a_follower_reads_past_the_hw_and_a_consumer_does_not(bench: PartitionBench) -> None:
    bench.lead()
    bench.append(5)
    assert bench.fetch(2, 0).size_bytes == bench.log.size_bytes
    assert bench.fetch(-1, 0).size_bytes == 0
    bench.fetch(2, 5)
    bench.fetch(3, 5)
    consumed = bench.fetch(-1, 0)
    assert consumed.size_bytes == bench.log.size_bytes
    assert consumed.high_watermark == consumed.last_stable_offset == 5


@pytest.mark.parametrize(("epoch", "error"), [(1, FencedLeaderEpoch), (3, UnknownLeaderEpoch)])
def test_epochs_that_are_not_ours_are_refused_with_the_leader(
    bench: PartitionBench, epoch: int, error: type[Exception]
) -> None:
    bench.lead(leader_epoch=2)
    outcome = bench.fetch(2, 0, leader_epoch=epoch)
    assert isinstance(outcome.error, error)
    assert outcome.current_leader == (1, 2)


def test_who_does_not_lead_serves_nobody(bench: PartitionBench) -> None:
    bench.follow(leader=2)
    for replica in (-1, 3):
        outcome = bench.fetch(replica, 0)
        assert isinstance(outcome.error, NotLeaderOrFollower)
        assert outcome.current_leader == (2, 1)


def test_a_stranger_is_no_follower(bench: PartitionBench) -> None:
    bench.lead()
    assert isinstance(bench.fetch(9, 0).error, NotLeaderOrFollower)


def test_another_topic_id_is_another_topic(bench: PartitionBench) -> None:
    bench.lead()
    spec = FetchPartitionSpec(TP.topic, Uuid(b"x" * 16), 0)
    outcome = reads.fetch_from(
        bench.partition, spec, FetchSpec(), bytes_max=1, is_one_batch_due=True, is_first_look=True, now_ms=0
    )
    assert isinstance(outcome.error, InconsistentTopicId)


def test_out_of_range_tells_the_log_start_and_is_no_progress(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    bench.append(5)
    bench.fetch(2, 5)
    bench.log.delete_records_before(Offset(3))
    outcome = bench.fetch(2, 2)
    assert isinstance(outcome.error, OffsetOutOfRange)
    assert outcome.log_start_offset == 3
    assert bench.partition.remotes[BrokerId(2)].end_offset == 5
    assert isinstance(bench.fetch(-1, 6).error, OffsetOutOfRange)
    assert bench.fetch(-1, 5).error is None


def test_a_follower_whose_epoch_retention_has_taken_begins_anew(bench: PartitionBench) -> None:
    """Told to cut at our start it kept what was never committed below it (seed 529 of the node simulation)."""
    bench.lead(isr=(1, 2), leader_epoch=3)
    bench.append(6)
    bench.fetch(2, 6, last_epoch=3)
    bench.log.delete_records_before(Offset(2))
    for offset in (2, 5):
        outcome = bench.fetch(2, offset, last_epoch=1)
        assert isinstance(outcome.error, OffsetOutOfRange)
        assert outcome.log_start_offset == 2


def test_a_consumer_at_the_start_is_served_though_retention_has_taken_its_last_epoch(bench: PartitionBench) -> None:
    """Refused it would reset its position, to "latest" perhaps, and skip what comes next."""
    bench.lead(isr=(1, 2), leader_epoch=1)
    bench.append(3)
    bench.fetch(2, 3, last_epoch=1)
    bench.lead(isr=(1, 2), leader_epoch=2, partition_epoch=2)
    bench.log.delete_records_before(Offset(3))
    outcome = bench.fetch(-1, 3, last_epoch=1)
    assert (outcome.error, outcome.diverging_epoch) == (None, None)


def test_a_diverging_follower_is_reported_where_and_counts_for_nothing(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2), leader_epoch=1)
    bench.append(4)
    bench.lead(isr=(1, 2), leader_epoch=3, partition_epoch=2)
    bench.append(4)
    outcome = bench.fetch(2, 7, last_epoch=2)
    assert outcome.diverging_epoch == (1, 4)
    assert outcome.error is None and outcome.size_bytes == 0
    assert bench.partition.remotes[BrokerId(2)].end_offset == -1
    assert bench.fetch(2, 9, last_epoch=3).diverging_epoch == (3, 8)
    assert bench.fetch(2, 4, last_epoch=1).diverging_epoch is None
    assert isinstance(bench.fetch(2, 9, last_epoch=4).error, UnknownLeaderEpoch)


# ---------------------------------------------------------------------- offsets by time and epoch


@pytest.mark.parametrize("is_sole_copy", [True, False])
def test_the_last_stable_offset_is_not_given_while_damage_may_hide_a_marker(
    bench: PartitionBench, is_sole_copy: bool
) -> None:
    bench.lead(isr=(1,))
    bench.log.tail.append_as_follower(
        make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True, leader_epoch=1),
        leader_epoch=Epoch(1),
    )
    bench.append(3)
    list_offset = partial(offset_lookup.list_offset, bench.partition, LATEST_TIMESTAMP)
    assert list_offset(is_read_committed=True).offset == 0
    bench.log.tail.is_sole_copy = is_sole_copy
    bench.log.tail.doubt_producers(Offset(3))
    if is_sole_copy:
        assert list_offset(is_read_committed=True).offset == 0
    else:
        with pytest.raises(OffsetNotAvailable, match="damage from offset 3"):
            list_offset(is_read_committed=True)
    assert list_offset().offset == 5


def test_list_offsets_of_a_new_leader_waits_for_the_hw(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    bench.append(5)
    bench.fetch(2, 3)
    bench.lead(isr=(1, 2), leader_epoch=2, partition_epoch=2)
    with pytest.raises(OffsetNotAvailable):
        offset_lookup.list_offset(bench.partition, LATEST_TIMESTAMP)
    bench.fetch(2, 5)
    assert offset_lookup.list_offset(bench.partition, LATEST_TIMESTAMP) == (-1, 5, 2)


async def test_list_offsets(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(5)
    listed = partial(offset_lookup.list_offset, bench.partition)
    assert listed(EARLIEST_TIMESTAMP) == (-1, 0, 1)
    assert listed(LATEST_TIERED_TIMESTAMP) == (-1, -1, -1)
    assert await listed_by_time(bench, 1002) == (1002, 2, 1)
    assert await listed_by_time(bench, MAX_TIMESTAMP) == (1004, 4, 1)
    assert await listed_by_time(bench, 5000) == (-1, -1, -1)
    with pytest.raises(FencedLeaderEpoch):
        listed(LATEST_TIMESTAMP, current_leader_epoch=Epoch(0))


async def test_a_record_above_the_hw_is_not_listed(bench: PartitionBench) -> None:
    bench.lead(isr=(1, 2))
    bench.append(5)
    assert await listed_by_time(bench, 1002) == (-1, -1, -1)


async def test_a_record_is_listed_by_its_own_time_though_its_header_says_another(bench: PartitionBench) -> None:
    """The header says the first record's time, as some clients write it. Spark's pushdown of times found no rows."""
    bench.lead(isr=(1,))
    log = bench.partition.log
    for first_ms in (1000, 2000, 3000):
        log.tail.append_as_leader(batch_of(first_ms, first_ms + 500, first_ms + 200), leader_epoch=Epoch(1), now_ms=0)
    log.tail.write_pending()
    bench.append(1)
    assert await listed_by_time(bench, 1001) == (1500, 1, 1)
    assert await listed_by_time(bench, 2000) == (2000, 3, 1)
    assert await listed_by_time(bench, 3101) == (3500, 7, 1)
    assert await listed_by_time(bench, MAX_TIMESTAMP) == (3500, 7, 1)
    assert await listed_by_time(bench, 3501) == (-1, -1, -1)


async def listed_by_time(bench: PartitionBench, timestamp_ms: int) -> ListedOffset:
    async def run(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    return await offset_lookup.list_offset_by_time(bench.partition, timestamp_ms, run_blocking=run)


async def test_a_search_by_time_holds_up_nothing_and_counts_only_in_its_epoch(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(5)
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        begun.set()
        await may_go_on.wait()
        return function(*args)

    searches = [
        asyncio.ensure_future(offset_lookup.list_offset_by_time(bench.partition, time_ms, run_blocking=run))
        for time_ms in (1002, MAX_TIMESTAMP)
    ]
    await asyncio.wait_for(begun.wait(), 10)
    bench.append(5)
    may_go_on.set()
    assert [found.offset for found in await asyncio.gather(*searches)] == [2, 4], "as the log was when they began"
    may_go_on.clear()
    begun.clear()
    late = asyncio.ensure_future(offset_lookup.list_offset_by_time(bench.partition, 1002, run_blocking=run))
    await asyncio.wait_for(begun.wait(), 10)
    bench.lead(isr=(1,), leader_epoch=2, partition_epoch=2)
    may_go_on.set()
    with pytest.raises(NotLeaderOrFollower):
        await late


def test_end_offset_for_epoch(bench: PartitionBench) -> None:
    bench.lead(isr=(1,))
    bench.append(5)
    bench.lead(isr=(1,), leader_epoch=4, partition_epoch=2)
    bench.append(1)
    assert offset_lookup.end_offset_for_epoch(bench.partition, Epoch(2)) == (1, 5)
    assert offset_lookup.end_offset_for_epoch(bench.partition, Epoch(4)) == (4, 6)
    assert offset_lookup.end_offset_for_epoch(bench.partition, Epoch(5)) == (-1, -1)


# ---------------------------------------------------------------------- following


def test_a_follower_keeps_offsets_and_takes_the_lesser_hw(bench: PartitionBench) -> None:
    bench.follow()
    part = bench.partition
    assert follower_log.append_as_follower(
        part, batch(5, leader_epoch=1), high_watermark=Offset(9), log_start_offset=Offset(0)
    )
    assert (bench.log.log_end_offset, bench.hw) == (5, 5)
    assert not follower_log.append_as_follower(part, b"", high_watermark=Offset(4), log_start_offset=Offset(2))
    assert bench.hw == 5, "what was committed stays so under a leader that knows less"
    assert bench.log.log_start_offset == 2


def test_a_follower_truncates_by_epoch_and_below_its_hw_only_when_told(bench: PartitionBench) -> None:
    bench.follow()
    part = bench.partition
    follower_log.append_as_follower(
        part, batch(2, leader_epoch=1), high_watermark=Offset(2), log_start_offset=Offset(0)
    )
    follower_log.append_as_follower(
        part, batch(2, base_offset=2, leader_epoch=1), high_watermark=Offset(2), log_start_offset=Offset(0)
    )
    assert follower_log.truncate_for(part, EpochEnd(Epoch(1), Offset(2))) == (2, False)
    assert follower_log.truncate_for(part, EpochEnd(Epoch(0), Offset(0))) == (0, True)
    assert bench.hw == bench.log.log_end_offset == 0


def test_a_cut_within_damage_waits_until_the_cluster_knows_of_the_damage(bench: PartitionBench) -> None:
    """It takes what lies before it too, which is committed: without a sign of damage left the replica was still eligible."""
    bench.follow(leader_epoch=1)
    part, log = bench.partition, bench.log
    for base, count in ((0, 1), (1, 3), (4, 1)):
        follower_log.append_as_follower(
            part, batch(count, base_offset=base, leader_epoch=1), high_watermark=Offset(0), log_start_offset=Offset(0)
        )
    log.damage = (damage := DamagedRange(Offset(0), Offset(4), Offset(0), 0, log.size_bytes, "rot"),)
    assert follower_log.truncate_for(part, EpochEnd(Epoch(1), Offset(4))) == (4, False), "not within it"

    within = EpochEnd(Epoch(1), Offset(1))
    usual = registration(leader=2, isr=(2,), leader_epoch=1, partition_epoch=2)
    roles.follow(part, usual)
    assert follower_log.truncate_for(part, within) is None, "it may be eligible"
    full = (FaultyReplica(BrokerId(1), ReplicaFault.NO_ROOM),)
    roles.follow(part, replace(usual, partition_epoch=3, faults=full))
    assert follower_log.truncate_for(part, within) is None, "a replica without room is eligible too"
    assert (log.log_end_offset, log.damage) == (4, (damage,))

    corrupt = (FaultyReplica(BrokerId(1), ReplicaFault.CORRUPT),)
    roles.follow(part, replace(usual, partition_epoch=4, faults=corrupt))
    assert follower_log.truncate_for(part, within) == (0, False)
    assert log.damage == ()


def test_an_epoch_that_wrote_nothing_is_forgotten_by_who_follows(bench: PartitionBench) -> None:
    bench.follow(leader_epoch=1)
    part = bench.partition
    follower_log.append_as_follower(
        part, batch(2, leader_epoch=1), high_watermark=Offset(2), log_start_offset=Offset(0)
    )
    bench.lead(leader_epoch=2, partition_epoch=2)
    bench.follow(leader=3, leader_epoch=3, partition_epoch=3)
    assert bench.log.latest_epoch == 1
    follower_log.append_as_follower(
        part, batch(1, base_offset=2, leader_epoch=1), high_watermark=Offset(2), log_start_offset=Offset(0)
    )
    assert bench.log.log_end_offset == 3


def test_a_leader_epoch_is_led_by_one_life_of_the_process_only(bench: PartitionBench) -> None:
    bench.lead(leader_epoch=4)
    bench.append(1)
    bench.log.close()
    bench.open()
    bench.lead(leader_epoch=4)
    assert not bench.partition.is_leader
    with pytest.raises(NotLeaderOrFollower):
        bench.partition.append_as_leader(batch(), is_all_acks=False, clock_ms=1)
    bench.lead(leader_epoch=5, partition_epoch=2)
    assert bench.partition.is_leader


def test_an_epoch_given_to_an_earlier_life_is_not_led(bench: PartitionBench) -> None:
    roles.lead(
        bench.partition,
        registration(leader=1, isr=(1,), leader_epoch=4, partition_epoch=7),
        now_ms=0,
        is_present_incarnation=False,
    )
    assert not bench.partition.is_leader
    assert bench.partition.current_leader == (1, 4)
    bench.lead(leader_epoch=4, partition_epoch=8)
    assert not bench.partition.is_leader, "a new ISR in that epoch changes nothing"
    bench.lead(leader_epoch=5, partition_epoch=9)
    assert bench.partition.is_leader


def test_restarting_at_the_leaders_start_drops_everything(bench: PartitionBench) -> None:
    bench.follow()
    follower_log.append_as_follower(
        bench.partition, batch(2, leader_epoch=1), high_watermark=Offset(2), log_start_offset=Offset(0)
    )
    follower_log.restart_at(bench.partition, Offset(40))
    assert bench.log.log_start_offset == bench.log.log_end_offset == bench.hw == 40


def test_a_failed_disk_fails_who_waits_and_serves_nothing(bench: PartitionBench) -> None:
    bench.lead()
    bench.append(1)
    given = park(bench, 1)
    bench.partition.fail_storage(InconsistentTopicId("any error"))
    assert given[0][0].error is not None
    assert bench.fetch(-1, 0).error is not None


def test_a_follower_that_asks_again_for_what_it_was_sent_makes_its_leader_look_at_its_own_copy(tmp_path: Path) -> None:
    bench = PartitionBench(tmp_path)
    bench.lead(isr=(1, 2))
    bench.append(3)
    for _ in range(SUSPECT_REPEATS):
        assert not bench.host.suspected
        assert bench.fetch(2, 0).size_bytes
    bench.fetch(2, 0)
    assert bench.host.suspected == [0]
    bench.fetch(2, 3)
    for _ in range(20):
        bench.fetch(2, 3)
    assert bench.host.suspected == [0], "one at our end waits for news"
    bench.append(1)
    for flushed in (1, 1, 1, 1, 1, 1, 1, 2, 3):
        bench.fetch(2, 4, flushed=flushed)
    assert bench.host.suspected == [0], "one whose flush is slow was not sent the same again"
    for _ in range(SUSPECT_REPEATS + 1):
        assert not bench.fetch(2, 3, bytes_left=1).size_bytes
    assert bench.host.suspected == [0], "one whose batch had no room in the answer was not sent it"
    bench.close()
