"""The parts of bench-spark that need no Spark: which rows there are, ratios, what is behind."""

from __future__ import annotations

from typing import Any

from tests.bench.spark import ROWS, SHAPES, WRITES, Spent, behind, median, ratios, rows_of
from tests.bench.spark_arm import OURS, STOCK


def spent(seconds: float, *, jvm_s: float = 1.0, python_s: float = 0.0, peak_mib: float = 100.0) -> Spent:
    return Spent(seconds, None, jvm_s, python_s, peak_mib)


def test_every_row_runs_with_every_size_codec_and_partition_count_that_it_is_for() -> None:
    found = [(shape, name) for shape, names in rows_of([""]) for name in names]
    assert len(found) == len(set(found)) and {name for _, name in found} == set(ROWS)
    assert {shape for shape, name in found if name == "batch, values read"} == set(SHAPES)
    assert {shape[:2] for shape, name in found if name == WRITES[1]} == {shape[:2] for shape in SHAPES}
    assert {name for _, names in rows_of(["stream", "batch, c"]) for name in names} == {
        "batch, count",
        "stream, availableNow",
        "stream, stateful",
    }
    assert not list(rows_of(["nothing"]))


def test_a_ratio_is_of_one_round_and_a_rate_counts_the_other_way_round_than_cpu() -> None:
    ours = [spent(1.0, jvm_s=1.0, python_s=1.0), spent(4.0, peak_mib=50.0)]
    found = {OURS: ours, STOCK: [spent(2.0), spent(2.0)]}
    assert ratios(found) == {"rate": [2.0, 0.5], "cpu": [2.0, 1.0], "memory": [1.0, 0.5]}
    assert (median(ours, "seconds"), median(ours, "cpu_s"), median(ours, "first_s")) == (2.5, 1.5, None)


def test_reads_are_behind_below_one_and_a_half_and_writes_below_one() -> None:
    def row(name: str, *rates: float) -> dict[str, Any]:
        return {"row": name, "shape": "s", "ratios": {"rate": list(rates)}}

    table = [row("batch, count", 1.4, 1.6, 1.3), row("batch, first row", 1.5), row(WRITES[0], 1.0), row(WRITES[1], 0.9)]
    assert behind([*table, {"row": "alone"}]) == ["batch, count, s: 1.40 of 1.5", "write, exactly once, s: 0.90 of 1.0"]
