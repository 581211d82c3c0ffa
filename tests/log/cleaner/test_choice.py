"""Which log is cleaned next and how far: nothing above what is committed, flushed, sealed and old enough; the dirtiest first."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnabas_log.cleaner.choice import CleanableLog, SegmentAge, cleanable_range, dirtiest, is_due
from barnabas_log.config import INT64_MAX

NOW_MS = 1_000_000


def a_log(name: str = "a-0", *, sizes: tuple[int, ...] = (10, 10, 10, 10), **changes: Any) -> CleanableLog:
    """Segments of ten offsets and as many ms each, the newest a second old; all committed and flushed."""
    count = len(sizes)
    segments = [SegmentAge(10 * n, 10 * n + 10, size, NOW_MS - 1000 - 10 * (count - n)) for n, size in enumerate(sizes)]
    settings: dict[str, Any] = {
        "log_start_offset": 0,
        "clean_offset": 0,
        "stable_offset": 10 * count,
        "flushed_offset": 10 * count,
        "first_dirty_ms": -1,
        "dirty_ratio_min": 0.5,
        "compaction_lag_min_ms": 0,
        "compaction_lag_max_ms": INT64_MAX,
    }
    return CleanableLog(name=name, segments=segments, **{**settings, **changes})


def ranged(log: CleanableLog) -> tuple[int, int]:
    found = cleanable_range(log, now_ms=NOW_MS)
    return found.first_dirty, found.end_offset


def test_the_active_segment_is_never_cleaned() -> None:
    assert ranged(a_log()) == (0, 30)
    assert ranged(a_log(sizes=(10,))) == (0, 0)


def test_what_is_not_committed_or_not_flushed_is_never_cleaned() -> None:
    assert ranged(a_log(stable_offset=29)) == (0, 20)
    assert ranged(a_log(flushed_offset=19)) == (0, 10)
    assert ranged(a_log(clean_offset=10, stable_offset=5)) == (10, 10)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 50))
def test_no_bound_is_ever_passed(clean: int, stable: int, flushed: int, start: int) -> None:
    log = a_log(clean_offset=clean, stable_offset=stable, flushed_offset=flushed, log_start_offset=start)
    first, end = ranged(log)
    assert end == first or (end <= min(stable, flushed, 30) and end % 10 == 0)


def test_a_record_stays_for_the_least_lag_and_waits_at_most_the_greatest() -> None:
    # the dirty segments' newest records are 1040, 1030, 1020 ms old
    assert ranged(a_log(compaction_lag_min_ms=1025)) == (0, 20)
    assert ranged(a_log(compaction_lag_min_ms=5000)) == (0, 0)
    assert ranged(a_log(compaction_lag_min_ms=5000, clean_offset=20)) == (20, 20), "what is clean was old enough before"
    log = a_log(sizes=(100, 1, 1), clean_offset=10, first_dirty_ms=NOW_MS - 100, compaction_lag_max_ms=99)
    assert is_due(log, cleanable_range(log, now_ms=NOW_MS), now_ms=NOW_MS)
    patient = log._replace(compaction_lag_max_ms=100)
    assert not is_due(patient, cleanable_range(patient, now_ms=NOW_MS), now_ms=NOW_MS)


def test_a_clean_offset_that_the_log_has_left_counts_for_nothing() -> None:
    assert ranged(a_log(clean_offset=5, log_start_offset=10)) == (10, 30), "retention has passed it"
    assert ranged(a_log(clean_offset=35)) == (0, 30), "the log was cut and is shorter than it was"


def test_the_dirtiest_log_is_next_and_a_clean_one_never() -> None:
    half, more = (
        a_log("half-0", sizes=(10, 10, 1), clean_offset=10),
        a_log("more-0", sizes=(10, 30, 1), clean_offset=10),
    )
    clean = a_log("clean-0", clean_offset=30, dirty_ratio_min=0.0)
    assert dirtiest([half, clean], now_ms=NOW_MS) is None, "just half is not more than half"
    found = dirtiest([half, more, clean], now_ms=NOW_MS)
    assert found is not None and found[0].name == "more-0" and found[1].dirty_ratio == 0.75
    twins = [a_log("b-0"), a_log("a-0")]
    first = dirtiest(twins, now_ms=NOW_MS)
    assert first is not None and first[0].name == "a-0"
