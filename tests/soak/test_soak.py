"""What counts as growth, and how figures are read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.soak.figures import DESCRIPTORS, MIB, RSS, THREADS, find_growth, gauge_sums, process_figures

IDLE = {RSS: 100 * MIB, DESCRIPTORS: 200.0, THREADS: 20.0, "barnabas_groups": 1.0, "barnabas_log_size_bytes": 100.0}


def test_what_returned_to_its_baseline_did_not_grow() -> None:
    assert find_growth(1, IDLE, IDLE) == []
    assert find_growth(1, IDLE, IDLE | {RSS: 120 * MIB, DESCRIPTORS: 210.0, "barnabas_groups": 0.0}) == []


@pytest.mark.parametrize(
    ("figure", "end"), [(RSS, 125 * MIB), (DESCRIPTORS, 213.0), (THREADS, 27.0), ("barnabas_groups", 2.0)]
)
def test_what_did_not_return_is_named_with_its_size(figure: str, end: float) -> None:
    (growth,) = find_growth(2, IDLE, IDLE | {figure: end})
    assert growth.is_judged
    assert str(growth) == f"node 2: {figure} grew from {IDLE[figure]:,.0f} to {end:,.0f}"


def test_a_map_that_was_not_there_before_counts_from_nothing() -> None:
    (growth,) = find_growth(1, IDLE, IDLE | {"barnabas_connections": 7.0})
    assert (growth.before, growth.after, growth.is_judged) == (0.0, 7.0, True)


def test_other_gauges_are_shown_and_not_judged() -> None:
    (growth,) = find_growth(1, IDLE, IDLE | {"barnabas_log_size_bytes": 500.0, "barnabas_raft_log_end_offset": 1e6})
    assert growth.figure == "barnabas_log_size_bytes" and not growth.is_judged


def test_gauges_are_summed_but_for_lanes() -> None:
    page = (
        "# TYPE a gauge\n" 'a{x="1"} 2\na{x="2"} 3\n'
        "# TYPE b gauge\n" 'b{lane="data"} 4\nb{lane="control"} 5\n'
        "# TYPE c counter\nc_total 6\n"
    )  # fmt: skip
    assert gauge_sums(page) == {"a": 5, "b{data}": 4, "b{control}": 5}


def test_a_process_s_descriptors_and_threads_are_seen(tmp_path: Path) -> None:
    before = process_figures(os.getpid())
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait) for _ in range(3)]
    streams = [(tmp_path / str(number)).open("w") for number in range(5)]
    try:
        for thread in threads:
            thread.start()
        after = process_figures(os.getpid())
    finally:
        gate.set()
        for thread in threads:
            thread.join()
        for stream in streams:
            stream.close()
    assert after[DESCRIPTORS] - before[DESCRIPTORS] == 5
    assert after[THREADS] - before[THREADS] == 3
    assert after[RSS] > MIB
