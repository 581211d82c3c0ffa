"""The short form of `make power-loss`: real processes lose power, and only a disk that lies loses what was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.cluster import PowerCluster
from tests.power.cycles import OVERRIDES, Form, run_round

pytestmark = [pytest.mark.cluster]


def test_a_power_cut_loses_nothing_that_was_acknowledged_unless_flushes_do_nothing(tmp_path: Path) -> None:
    cluster = PowerCluster(tmp_path, overrides=OVERRIDES)
    with cluster:
        forms: list[tuple[Form, int]] = [("all", 2), ("one", 1)]
        for form, cycles in forms:
            now = run_round(cluster, form, seed=1, cycles=cycles)
            assert now.cuts == cycles and len(now.producer.acknowledged) > 100
        assert run_round(cluster, "lying", seed=1, cycles=3).lost
