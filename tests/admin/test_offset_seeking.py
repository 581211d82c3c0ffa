"""Where a group goes on: what can be asked for, what follows of it, and what an offsets file says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_admin.errors import WrongUsage
from barnabas_admin.offset_seeking import (
    Kind,
    Target,
    parse_offsets_file,
    parse_partitions,
    parse_target,
    plan_seek,
)
from barnabas_admin.time_argument import parse_time
from barnabas_wire.kafka.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 1_764_000_000_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("start", Target(Kind.START)),
        ("end", Target(Kind.END)),
        ("47", Target(Kind.OFFSET, 47)),
        ("-3", Target(Kind.SHIFT, -3)),
        ("+2", Target(Kind.SHIFT, 2)),
        ("@1700000000000", Target(Kind.TIME, 1_700_000_000_000)),
        ("@-2h", Target(Kind.TIME, NOW_MS - 7_200_000)),
        ("@2026-01-02T03:04:05+00:00", Target(Kind.TIME, 1_767_323_045_000)),
    ],
)
def test_a_target_is_read(text: str, wanted: Target) -> None:
    assert parse_target(text, now_ms=NOW_MS) == wanted


@pytest.mark.parametrize("text", ["", "soon", "@soon", "--3", "1.5", "@-2y"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage):
        parse_target(text, now_ms=NOW_MS)


@given(
    st.sampled_from(list(Kind)), st.integers(-200, 200), st.integers(0, 100), st.integers(0, 100), st.integers(-1, 150)
)
def test_an_offset_that_is_planned_is_always_there(kind: Kind, number: int, start: int, size: int, found: int) -> None:
    (item,) = plan_seek(
        Target(kind, number), committed={T0: 5}, starts={T0: start}, ends={T0: start + size}, at_time={T0: found}
    )
    assert start <= item.to <= start + size


def test_each_target_means_its_own() -> None:
    def to(kind: Kind, number: int = 0) -> list[tuple[int, bool]]:
        plan = plan_seek(
            Target(kind, number), committed={T0: 50}, starts={T0: 10, T1: 20}, ends={T0: 90, T1: 80}, at_time={T0: 33}
        )
        return [(item.to, item.is_clamped) for item in plan]

    assert to(Kind.START) == [(10, False), (20, False)]
    assert to(Kind.END) == [(90, False), (80, False)]
    assert to(Kind.OFFSET, 15) == [(15, False), (20, True)]
    assert to(Kind.SHIFT, -45) == [(10, True), (20, True)]
    assert to(Kind.SHIFT, 5) == [(55, False), (25, False)], "without a commit it shifts from the start"
    assert to(Kind.TIME) == [(33, False), (80, False)], "nothing that late: the end"


def test_a_file_has_kafkas_lines_or_our_json() -> None:
    assert parse_offsets_file("t,0,4\n\nt,1,5\n") == {T0: 4, T1: 5}
    assert parse_offsets_file('"g","t",0,4') == {T0: 4}
    ours = '{"partitions": [{"topic": "t", "partition": 0, "committed": 4}, {"topic": "t", "partition": 1, "committed": null}]}'
    assert parse_offsets_file(ours) == {T0: 4}
    for broken in ("t,0", "t,x,4", '{"partitions": 3}'):
        with pytest.raises(WrongUsage):
            parse_offsets_file(broken)


def test_partitions_are_named_by_topic_or_one_by_one() -> None:
    assert parse_partitions(["a", "b:2,0"]) == {"a": None, "b": [0, 2]}
    with pytest.raises(WrongUsage):
        parse_partitions(["b:x"])


def test_a_moment_without_a_zone_is_this_hosts() -> None:
    assert parse_time("2026-01-02", now_ms=0) == parse_time("2026-01-02T00:00:00", now_ms=0)
    assert parse_time("-90s", now_ms=NOW_MS) == NOW_MS - 90_000
