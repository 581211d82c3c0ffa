"""The judge of the demo finds what is lost, doubled, moved or foreign, and a wrong figure of a query."""

from __future__ import annotations

import importlib
import itertools
from datetime import datetime
from typing import Any

import pytest

rows: Any = importlib.import_module("rows")
verify: Any = importlib.import_module("verify")

ACKNOWLEDGED = {("flights", 0, at): (b"k%d" % at, b"v%d" % at) for at in range(5)}
LOG = [(*place, *record) for place, record in ACKNOWLEDGED.items()]


def test_every_record_once_in_its_place_is_clean() -> None:
    verdict = verify.judge_log(ACKNOWLEDGED, LOG)
    assert verdict.is_clean and verdict.read == 5


def test_equal_records_are_told_apart_by_their_number() -> None:
    acknowledged = {("flights", 0, 0): (b"k", b"v"), ("flights", 0, 1): (b"k", b"v")}
    twice = [("flights", 0, 0, b"k", b"v"), ("flights", 0, 1, b"k", b"v")]
    assert verify.judge_log(acknowledged, twice).is_clean
    assert verify.judge_log(acknowledged, [*twice, ("flights", 0, 2, b"k", b"v")]).duplicated == 1
    assert verify.judge_log(acknowledged, twice[:1]).lost == 1


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (LOG[:-1], "lost"),
        ([*LOG, ("flights", 0, 5, b"k1", b"v1")], "duplicated"),
        ([*LOG[:3], ("flights", 0, 3, b"k4", b"v4"), ("flights", 0, 4, b"k3", b"v3")], "misplaced"),
        ([*LOG[:4], ("flights", 1, 0, b"k4", b"v4")], "misplaced"),
        ([*LOG, ("flights", 0, 5, b"k1", b"other")], "unknown"),
        ([*LOG, ("weather", 0, 5, b"k1", b"v1")], "unknown"),
    ],
)
def test_every_fault_is_named(log: list, fault: str) -> None:
    verdict = verify.judge_log(ACKNOWLEDGED, log)
    assert getattr(verdict, fault) > 0 and not verdict.is_clean


def test_rows_come_in_the_order_of_their_hour_weather_first() -> None:
    messages = rows.messages()
    assert len(messages) == 336_776 + 26_115
    assert all(one.timestamp_ms <= two.timestamp_ms for one, two in itertools.pairwise(messages))
    assert (messages[0].topic, messages[0].key) == ("weather", b"EWR")
    assert next(message.key for message in messages if message.topic == "flights") == b"UA-1545"


def computed_departures() -> list[dict[str, Any]]:
    """Query 1, computed here another way: by the local hour of the event."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows.flights():
        if row["dep_time"] is not None:
            # New York is 4 or 5 hours behind; no flight leaves between midnight and 5.
            moment = datetime.fromisoformat(row["time_hour"])
            day = datetime.fromtimestamp(moment.timestamp() - 5 * 3600, tz=moment.tzinfo).date().isoformat()
            found.setdefault((row["origin"], day), []).append(row["dep_delay"])
    return [
        {"origin": origin, "day": day, "departures": len(delays), "mean_delay": sum(delays) / len(delays)}
        for (origin, day), delays in found.items()
    ]


def test_right_figures_pass_and_wrong_ones_are_named() -> None:
    computed = computed_departures()
    assert len(computed) == 3 * 365
    assert verify.wrong_departures(computed) == []
    place = f"{computed[0]['origin']} {computed[0]['day']}"
    computed[0]["departures"] += 1
    computed[1]["mean_delay"] += 0.001
    wrong = verify.wrong_departures(computed[:-1])
    assert len(wrong) == 3
    assert any(line.startswith(f"{place}: ") for line in wrong)
    assert any(line.endswith("is missing") for line in wrong)


def written(*rows: tuple[str, int, str]) -> list[tuple[str, int, int, bytes, bytes]]:
    """Records of the topic that query 1 writes: day, departures, micro-batch."""
    return [
        ("departures", 0, at, b"EWR %s" % day.encode(), b'{"departures": %d, "batch": "%s"}' % (count, batch.encode()))
        for at, (day, count, batch) in enumerate(rows)
    ]


def test_the_topic_of_query_1_has_each_key_of_a_micro_batch_once_and_ends_as_the_query_did() -> None:
    computed = [{"origin": "EWR", "day": day, "departures": count} for day, count in (("1", 5), ("2", 3))]
    clean = [("1", 4, "a"), ("1", 5, "b"), ("2", 3, "b")]
    assert verify.wrong_topic(written(*clean), computed) == ([], 3)
    for broken, fault in (
        ([*clean, clean[-1]], "is there twice"),
        (clean[:-1], "missing"),
        ([*clean, ("3", 1, "b")], "not wanted"),
        ([clean[0], ("1", 6, "b"), clean[2]], "is not"),
        ([*clean, ("1", 5, "c")], "the micro-batches wrote"),
    ):
        assert any(fault in line for line in verify.wrong_topic(written(*broken), computed)[0]), fault
