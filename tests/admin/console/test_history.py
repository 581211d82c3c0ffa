"""What the console keeps of the last day: rates of counters that rest, gaps, days, bounds, another cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_admin.console import history as history_module
from barnabas_admin.console.charts import chart
from barnabas_admin.console.history import GAP_S, KEEP_S, History, Series

TOPIC = ("topic", "flights")
LAG = ("lag", "readers")
DAY = "2026-11-25"
START_S = 1_795_000_000


def look(history: History, second: int, end: float | None = None, lag: float | None = None, day: str = DAY) -> None:
    history.add_look(
        START_S + second,
        day,
        counters={} if end is None else {TOPIC: end},
        gauges={} if lag is None else {LAG: lag},
        topics="topic",
    )


def rates(history: History, until: int) -> list[tuple[int, float | None]]:
    found = history.rate(*TOPIC, since_s=START_S, until_s=START_S + until)
    return [(at_s - START_S, value) for at_s, value in found.points]


def test_a_counter_that_rests_takes_no_room_and_its_next_growth_is_not_smeared() -> None:
    history = History(None)
    for second in range(0, 100, 10):
        look(history, second, end=50)
    look(history, 100, end=150)
    assert rates(history, 100) == [(second, 0.0) for second in range(10, 100, 10)] + [(100, 10.0)]
    assert history._connection.execute("select count(*) from samples").fetchone() == (3,)


def test_a_counter_that_no_look_found_grew_evenly_meanwhile() -> None:
    history = History(None)
    look(history, 0, end=0)
    look(history, 10)  # a partition had no leader
    look(history, 20, end=100)
    assert rates(history, 20) == [(10, 5.0), (20, 5.0)]


def test_time_in_which_nobody_looked_is_a_gap_and_a_topic_made_anew_no_negative_rate() -> None:
    history = History(None)
    look(history, 0, end=100, lag=3)
    look(history, 10, end=200, lag=4)
    look(history, 20 + GAP_S, end=300, lag=5)
    look(history, 30 + GAP_S, end=7, lag=6)
    assert [value for _, value in rates(history, 30 + GAP_S)] == [10.0, None, 0.0]
    lag = history.gauge(*LAG, since_s=START_S, until_s=START_S + 1000)
    assert [value for _, value in lag.points] == [3, 4, None, 5, 6]
    assert history.days("flights", limit=9) == [(DAY, 200)]


def test_records_are_counted_by_day_and_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "console.sqlite"
    history = History(path)
    history.begin("one")
    look(history, 0, end=10)
    look(history, 10, end=15)
    history.close()
    again = History(path)
    again.begin("one")
    look(again, 20, end=18)
    look(again, 86_400, end=20, day="2026-11-26")
    assert again.days("flights", limit=9) == [("2026-11-26", 2), (DAY, 8)]
    assert again.names("topic") == ["flights"]
    again.begin("another")
    assert again.days("flights", limit=9) == [] and again.names("topic") == []


def test_the_past_goes_and_a_resting_counter_is_still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "PRUNE_EVERY_S", 0)
    history = History(None)
    look(history, 0, end=5, lag=1)
    look(history, KEEP_S + 10, end=5, lag=2)
    look(history, KEEP_S + 20, end=25)
    count = history._connection.execute("select count(*), min(at_s) from samples where series = 2").fetchone()
    assert count == (1, START_S + KEEP_S + 10)
    found = history.rate(*TOPIC, since_s=START_S + KEEP_S, until_s=START_S + KEEP_S + 20)
    assert [value for _, value in found.points] == [2.0]


def test_the_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "PRUNE_EVERY_S", 0)
    monkeypatch.setattr(history_module, "SAMPLES_MAX", 50)
    history = History(None)
    for second in range(500):
        look(history, second, lag=second)
    assert history._connection.execute("select count(*) from samples").fetchone()[0] <= 51


def test_a_clock_that_was_set_back_changes_nothing() -> None:
    history = History(None)
    look(history, 10, end=10)
    look(history, 5, end=99)
    assert history.days("flights", limit=9) == [] and rates(history, 20) == []


def test_many_points_become_means_of_equal_spans() -> None:
    history = History(None)
    for second in range(0, 3600, 10):
        look(history, second, lag=second % 20)
    found = history.gauge(*LAG, since_s=START_S, until_s=START_S + 3600)
    assert len(found.points) == history_module.BUCKETS
    assert {value for _, value in found.points} == {5.0}


def test_a_chart_has_one_line_between_gaps() -> None:
    drawn = chart("Lag", "records", Series([(0, 1.0), (10, 2.0), (11, None), (90, 4.0)]), 0, 100)
    assert [len(line.split()) for line in drawn["lines"]] == [2, 1]
    assert (drawn["latest"], drawn["least"], drawn["most"]) == (4.0, 1.0, 4.0)
    assert drawn["lines"][1] == "540.0,4.0"
