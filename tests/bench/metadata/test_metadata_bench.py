"""The metadata benchmark's own parts: both roles go their whole way, and the verdicts follow from the figures."""

from __future__ import annotations

from pathlib import Path

from tests.bench.metadata.__main__ import CHANGES, Layout, targets
from tests.bench.metadata.one_size import HELD, measure_broker, measure_controller, topics_of


async def test_the_broker_loads_what_the_controller_wrote_and_takes_changes_in(tmp_path: Path) -> None:
    made = await measure_controller(tmp_path, 20, 8, 4)
    loaded = await measure_broker(tmp_path, 20, 8, 4)
    for key in ("create_per_s", "create_cpu_us", "snapshot_bytes", "snapshot_s", *CHANGES):
        assert (made | loaded)[key] > 0, key
    assert len(list((tmp_path / "data").glob("held-*"))) == HELD, "real logs of what it holds, and of nothing else"
    assert len(list((tmp_path / "data").glob("orders*"))) == 0


def test_topics_add_up() -> None:
    assert [topic.partition_count for topic in topics_of(20, 8)] == [8, 8, 4]
    assert [topic.partition_count for topic in topics_of(2, 100)] == [2]


def test_a_target_compares_the_largest_size_with_the_smallest() -> None:
    small = dict.fromkeys(CHANGES, 1.0) | {"snapshot_bytes": 500.0, "failover_median_s": 1.0}
    middle = dict.fromkeys(CHANGES, 9.0) | {"snapshot_bytes": 500.0, "failover_median_s": 9.0}
    large = dict.fromkeys(CHANGES, 2.0) | {"snapshot_bytes": 120.0, "failover_median_s": 2.1}
    found = targets({Layout(100, 10): middle, Layout(10, 10): small, Layout(1000, 10): large, Layout(10, 1): small})
    missed = [target.name for target in found if not target.is_met]
    assert len(found) == len(CHANGES) + 3
    assert missed == [
        "failover (10 partitions per topic, 1,000 beside 10)",
        "bytes of a snapshot per partition (1 partitions per topic, 10)",
    ]
