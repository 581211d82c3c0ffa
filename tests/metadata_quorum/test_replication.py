"""What is committed, and where two logs part."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas_quorum.raft.epoch_history import EpochHistory
from barnabas_quorum.raft.messages import EpochStart, FetchReply, ReplyError
from barnabas_quorum.raft.replication import divergence, is_continuation, next_high_watermark, truncation_offset
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid

KEY = ReplicaKey(BrokerId(1), Uuid(bytes(16)))


def high_watermark(ends: list[int], *, epoch_start: int = 0, now: int = 0) -> int:
    return next_high_watermark(
        [Offset(end) for end in ends],
        majority=len(ends) // 2 + 1,
        epoch_start=Offset(epoch_start),
        high_watermark=Offset(now),
    )


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([7], 7), ([7, 5], 5), ([7, 5, 1], 5), ([9, 7, 5, 1], 5), ([9, 7, 5, 1, 0], 5), ([1, 5, 9], 5)],
)
def test_high_watermark_is_what_a_majority_has(ends: list[int], expected: int) -> None:
    assert high_watermark(ends) == expected


def test_older_epochs_do_not_commit_by_count() -> None:
    assert high_watermark([9, 7, 7], epoch_start=7, now=3) == 3
    assert high_watermark([9, 8, 7], epoch_start=7, now=3) == 8


def test_high_watermark_never_falls() -> None:
    assert high_watermark([9, 4, 4], now=6) == 6


def history(log: list[int]) -> EpochHistory:
    """Of a log given as the epoch of each record."""
    made = EpochHistory()
    for offset, epoch in enumerate(log):
        made.assign(Epoch(epoch), Offset(offset))
    return made


logs = st.lists(st.integers(min_value=1, max_value=6), max_size=12).map(sorted)


@given(logs, st.integers(min_value=0, max_value=7))
def test_end_of_an_epoch_is_where_the_next_begins(log: list[int], epoch: int) -> None:
    found = history(log).end_of(Epoch(epoch), log_end=Offset(len(log)))
    known = [e for e in log if e <= epoch]
    assert found == (EpochStart(Epoch(known[-1]), Offset(len(known))) if known else EpochStart(Epoch(0), Offset(0)))


@given(logs, st.integers(min_value=0, max_value=12))
def test_truncated_history_is_that_of_the_shorter_log(log: list[int], offset: int) -> None:
    cut = history(log)
    cut.truncate_to(Offset(offset))
    assert cut.starts() == history(log[:offset]).starts()
    assert cut.last_epoch == (log[:offset] or [0])[-1]


@st.composite
def logs_of_one_cluster(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Two logs of batches that one history of leaders may have left: each leader extends a part of some earlier leader's log."""
    written: list[list[list[int]]] = [[]]
    for epoch in range(1, draw(st.integers(min_value=1, max_value=6)) + 1):
        base = draw(st.sampled_from(written))
        kept = draw(st.integers(min_value=0, max_value=len(base)))
        sizes = draw(st.lists(st.integers(min_value=1, max_value=3), min_size=1, max_size=3))
        written.append(base[:kept] + [[epoch] * size for size in sizes])
    pair = []
    for _ in range(2):
        log = draw(st.sampled_from(written))
        pair.append(log[: draw(st.integers(min_value=0, max_value=len(log)))])
    return pair[0], pair[1]


@given(logs_of_one_cluster())
@example(([[1], [3]], [[1], [1, 1, 1], [5]]))  # the follower lacks epoch 3, which ends within one of its batches
def test_rounds_of_divergence_end_at_the_longest_common_prefix_and_cut_no_batch(
    pair: tuple[list[list[int]], list[list[int]]],
) -> None:
    leader, follower = ([epoch for batch in log for epoch in batch] for log in pair)
    boundaries = {0, *accumulate(len(batch) for batch in pair[1])}
    common = next(
        (i for i, (a, b) in enumerate(zip(leader, follower, strict=False)) if a != b), min(len(leader), len(follower))
    )
    log = list(follower)
    while True:
        diverging = divergence(
            history(leader),
            log_end=Offset(len(leader)),
            fetch_offset=Offset(len(log)),
            last_epoch=Epoch(log[-1] if log else 0),
        )
        if diverging is None:
            break
        cut = truncation_offset(history(log), log_end=Offset(len(log)), diverging=diverging)
        assert cut < len(log), "every round cuts something"
        assert cut in boundaries
        log = log[:cut]
    assert log == leader[:common]


def test_damaged_or_foreign_records_continue_nothing() -> None:
    def check(base: int, end: int, epochs: list[tuple[int, int]]) -> bool:
        starts = tuple(EpochStart(Epoch(epoch), Offset(start)) for epoch, start in epochs)
        reply = FetchReply(
            1, KEY, KEY, Epoch(5), BrokerId(1), ReplyError.NONE, Offset(0), Offset(base), Offset(end), None, starts
        )
        return is_continuation(reply, log_end=Offset(10), last_epoch=Epoch(3), epoch=Epoch(5))

    assert check(10, 12, [(3, 10)])
    assert check(10, 14, [(3, 10), (5, 12)])
    assert not check(11, 12, [(3, 11)]), "gap"
    assert not check(9, 12, [(3, 9)]), "overlap"
    assert not check(10, 12, []), "damaged on its way"
    assert not check(10, 12, [(2, 10)]), "epoch falls below the log's"
    assert not check(10, 14, [(5, 10), (4, 12)]), "epochs fall"
    assert not check(10, 12, [(6, 10)]), "epoch above my own"
    assert not check(10, 12, [(3, 10), (4, 12)]), "an epoch that begins past the end"
