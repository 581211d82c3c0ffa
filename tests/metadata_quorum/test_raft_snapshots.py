"""Who needs a snapshot, which may be taken, where a log may begin, and what a crash between freeze and restart leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_quorum.raft import snapshots
from barnabas_quorum.raft.epoch_history import EpochHistory
from barnabas_quorum.raft.messages import EpochStart, SnapshotId
from barnabas_quorum.raft.snapshots import SnapshotFile
from barnabas_wire.kafka.ids import Epoch, Offset


def sid(end: int, epoch: int) -> SnapshotId:
    return SnapshotId(Offset(end), Epoch(epoch))


def starts(*pairs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(Epoch(epoch), Offset(start)) for epoch, start in pairs]


OLDEST, LATEST = sid(10, 2), sid(20, 3)


@pytest.mark.parametrize(
    ("offset", "epoch", "log_start", "expected"),
    [
        (9, 2, 10, LATEST),
        (10, 2, 10, None),
        (10, 1, 10, LATEST),
        (10, 3, 10, LATEST),
        (11, 2, 10, None),
        (15, 1, 10, LATEST),
        (0, 0, 10, LATEST),
        (0, 0, 0, LATEST),
        (5, 2, 0, None),
        (5, 1, 0, LATEST),
    ],
)
def test_who_needs_a_snapshot_gets_the_latest(
    offset: int, epoch: int, log_start: int, expected: SnapshotId | None
) -> None:
    needed = snapshots.needed(
        [OLDEST, LATEST], log_start=Offset(log_start), fetch_offset=Offset(offset), last_epoch=Epoch(epoch)
    )
    assert needed == expected
    assert snapshots.needed([], log_start=Offset(0), fetch_offset=Offset(offset), last_epoch=Epoch(epoch)) is None


@pytest.mark.parametrize(
    ("snapshot_id", "word"),
    [
        (sid(20, 3), None),
        (sid(12, 2), None),
        (sid(10, 2), "already"),
        (sid(21, 3), "not committed"),
        (sid(9, 2), "before the log's start"),
        (sid(0, 0), "before the log's start"),
        (sid(12, 3), "did not write"),
        (sid(16, 2), "did not write"),
    ],
)
def test_which_snapshot_may_be_taken(snapshot_id: SnapshotId, word: str | None) -> None:
    history = EpochHistory(starts((2, 10), (3, 15)), start_offset=Offset(10), start_epoch=Epoch(2))
    reason = snapshots.refusal(
        snapshot_id,
        snapshots=[OLDEST],
        history=history,
        log_start=Offset(10),
        high_watermark=Offset(20),
    )
    assert (reason is None) if word is None else (reason is not None and word in reason)


def test_log_start_moves_one_snapshot_at_a_time_and_one_stays() -> None:
    files = [SnapshotFile(sid(10, 2), 100, 0), SnapshotFile(sid(20, 3), 100, 500)]

    def start(count: int, *, log: int = 50, now: int = 600, size: int = -1, age: int = -1) -> SnapshotId | None:
        return snapshots.next_log_start(files[:count], log_bytes=log, now_ms=now, bytes_max=size, age_ms_max=age)

    assert start(2) is None
    assert start(2, size=249) == sid(20, 3)
    assert start(2, size=250) is None
    assert start(2, age=599) == sid(20, 3)
    assert start(2, age=600) is None
    assert start(1, size=0, age=0) is None
    assert start(0, size=0, age=0) is None


@pytest.mark.parametrize(
    ("epochs", "log_start", "end", "expected"),
    [
        (starts((1, 0), (2, 5), (3, 15)), 0, 25, None),
        (starts((1, 0), (2, 5)), 0, 19, LATEST),
        (starts((1, 0), (2, 5)), 0, 25, LATEST),
        (starts((1, 0), (4, 5)), 0, 25, LATEST),
        (starts((2, 10), (3, 15)), 10, 20, None),
        ([], 20, 20, None),
        (starts((3, 20)), 20, 22, None),
        (starts((2, 20)), 20, 22, LATEST),
        (starts((2, 20)), 20, 20, None),
    ],
)
def test_log_that_contradicts_its_snapshot_is_restarted(
    epochs: list[EpochStart], log_start: int, end: int, expected: SnapshotId | None
) -> None:
    point = snapshots.restart_point(
        [OLDEST, LATEST], epoch_starts=epochs, log_start=Offset(log_start), end_offset=Offset(end)
    )
    assert point == expected


logs = st.lists(st.integers(min_value=1, max_value=5), min_size=1, max_size=12).map(sorted)


def history_of(log: list[int]) -> EpochHistory:
    made = EpochHistory()
    for offset, epoch in enumerate(log):
        made.assign(Epoch(epoch), Offset(offset))
    return made


@given(logs, st.data())
def test_history_after_cleaning_answers_as_before(log: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(min_value=1, max_value=len(log)))
    whole, cleaned = history_of(log), history_of(log)
    cleaned.forget_before(Offset(start), Epoch(log[start - 1]))
    opened = EpochHistory(cleaned.starts(), start_offset=Offset(start), start_epoch=Epoch(log[start - 1]))
    loaded = EpochHistory(start_offset=Offset(start), start_epoch=Epoch(log[start - 1]))
    for offset, epoch in enumerate(log[start:], start):
        loaded.assign(Epoch(epoch), Offset(offset))
    end = Offset(len(log))
    for history in (cleaned, opened, loaded):
        assert history.last_epoch == whole.last_epoch
        assert [history.epoch_before(Offset(at)) for at in range(start, end + 1)] == log[start - 1 :]
        for epoch in range(log[start - 1], 7):
            assert history.end_of(Epoch(epoch), log_end=end) == whole.end_of(Epoch(epoch), log_end=end)
    cut = data.draw(st.integers(min_value=start, max_value=len(log)))
    loaded.truncate_to(Offset(cut))
    assert loaded.last_epoch == log[cut - 1]
    loaded.assign(Epoch(9), Offset(cut))
    assert loaded.last_epoch == 9
