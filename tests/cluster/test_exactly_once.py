"""Read, process, write by three clients, while clients, brokers and coordinators are killed: each record once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas_admin.local_cluster import find_base_port
from tests.cluster.exactly_once import Copy, Report
from tests.support.clusters import ForkedCluster

pytestmark = pytest.mark.cluster


def test_a_copy_by_three_clients_is_exact_whatever_is_killed(tmp_path: Path) -> None:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ForkedCluster(tmp_path, nodes=3, base_port=find_base_port(), overrides=overrides) as cluster:
        report = Copy(cluster, records=10_000, seed=19, fault_every_s=2.0).run()
    print(report)
    assert report.is_exact, str(report)
    assert report.kills.total() >= 1, str(report)


def test_the_report_sees_what_is_not_exact() -> None:
    report = Report(records=3)
    report.seen.update([0, 1, 1])
    report.by_partition[0] = [0, 1, 1]
    assert (report.lost, report.duplicates, report.is_in_order, report.is_exact) == (1, 1, True, False)
    report.seen.update([2])
    report.by_partition[0] = [1, 0, 2]
    assert not report.is_in_order and not report.is_exact
