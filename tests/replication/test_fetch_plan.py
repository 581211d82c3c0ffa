"""What the follower's side decides, with answers made by hand."""

from __future__ import annotations

import pytest

from barnabas_replication.follower.fetch_plan import (
    Meaning,
    backoff_ms,
    is_current,
    is_cut,
    is_full,
    meaning_of,
    throttled_until_ms,
    wait_ms,
)
from barnabas_replication.follower.peer import FetchedPartition
from barnabas_replication.requests import DivergingEpoch, FetchPartitionSpec
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import NO_EPOCH, Epoch, Offset


def answer(
    code: ErrorCode = ErrorCode.NONE, *, start: int = 0, diverging: tuple[int, int] | None = None, size: int = 0
) -> FetchedPartition:
    parting = None if diverging is None else DivergingEpoch(Epoch(diverging[0]), Offset(diverging[1]))
    return FetchedPartition("t", 0, code, Offset(9), Offset(start), parting, bytes(size))


OUT = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("fetched", "log", "meaning"),
    [
        (answer(size=1), (0, 5, 1), Meaning.APPEND),
        (answer(), (0, 5, 1), Meaning.APPEND),
        (answer(diverging=(1, 3)), (0, 5, 1), Meaning.TRUNCATE),
        (answer(OUT, start=7), (0, 5, 1), Meaning.START_OVER),
        (answer(OUT, start=5), (0, 5, 1), Meaning.START_OVER),
        (answer(OUT, start=7), (5, 5, 1), Meaning.START_OVER),
        (answer(OUT, start=5), (5, 5, 1), Meaning.FORGET_EPOCH),
        (answer(OUT, start=5), (5, 5, NO_EPOCH), Meaning.WAIT),
        (answer(OUT, start=-1), (0, 5, 1), Meaning.REFUSED),
        (answer(ErrorCode.UNKNOWN_LEADER_EPOCH), (0, 5, 1), Meaning.REFUSED),
        (answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, start=7), (0, 5, 1), Meaning.REFUSED),
    ],
)
def test_an_answer_means(fetched: FetchedPartition, log: tuple[int, int, int], meaning: Meaning) -> None:
    start, end, epoch = log
    found = meaning_of(fetched, log_start_offset=Offset(start), log_end_offset=Offset(end), latest_epoch=Epoch(epoch))
    assert found is meaning


def test_an_answer_counts_in_the_epoch_and_at_the_end_that_it_was_asked_with() -> None:
    asked = FetchPartitionSpec("t", current_leader_epoch=Epoch(2), fetch_offset=Offset(5))
    assert is_current(asked, leader_epoch=Epoch(2), log_end_offset=Offset(5))
    assert not is_current(asked, leader_epoch=Epoch(3), log_end_offset=Offset(5))
    assert not is_current(asked, leader_epoch=Epoch(2), log_end_offset=Offset(4))


def test_an_answer_that_fills_half_of_its_bound_was_cut_by_it() -> None:
    assert is_full([answer(size=30), answer(size=20)], bytes_max=100)
    assert not is_full([answer(size=30), answer(size=19)], bytes_max=100)
    asked = FetchPartitionSpec("t", max_bytes=100)
    assert is_cut(answer(size=50), asked)
    assert not is_cut(answer(size=49), asked)


def test_a_throttled_partition_is_looked_at_again_before_its_debt_is_paid() -> None:
    assert throttled_until_ms(not_before_ms=0, ready_at_ms=10_000, now_ms=1_000) == 1_500
    assert throttled_until_ms(not_before_ms=0, ready_at_ms=1_200, now_ms=1_000) == 1_200
    assert throttled_until_ms(not_before_ms=3_000, ready_at_ms=1_200, now_ms=1_000) == 3_000


def test_a_fetch_is_parked_no_longer_than_what_it_leaves_out_can_wait() -> None:
    assert wait_ms(500, next_due_ms=None, now_ms=1_000) == 500
    assert wait_ms(500, next_due_ms=1_200, now_ms=1_000) == 200
    assert wait_ms(500, next_due_ms=9_000, now_ms=1_000) == 500
    assert wait_ms(500, next_due_ms=900, now_ms=1_000) == 1


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [backoff_ms(failures, longest_ms=1_000, jitter=1) for failures in (0, 1, 2, 5, 6, 40)]
    assert pauses == [20, 40, 80, 640, 1_000, 1_000]
    assert backoff_ms(0, longest_ms=1_000, jitter=1.2) == 24
    assert backoff_ms(0, longest_ms=1, jitter=0.8) == 1, "never none"
