"""Read, process, write by three clients, while clients, brokers and coordinators are killed: each record once, in order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas_admin.local_ports import find_base_port
from tests.cluster.exactly_once import Copy, Report
from tests.cluster.scene import FILE
from tests.support.clusters import ForkedCluster

pytestmark = pytest.mark.cluster


def test_a_copy_by_three_clients_is_exact_whatever_is_killed(tmp_path: Path) -> None:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ForkedCluster(tmp_path, nodes=3, base_port=find_base_port(), overrides=overrides) as cluster:
        report = Copy(cluster, records=10_000, seed=19, fault_every_s=2.0, directory=tmp_path / "scene").run()
        print(report)
        assert report.is_exact, str(report)
        assert report.kills.total() >= 1, str(report)
        copier = (sys.executable, "-c", "import sys; print('I copy nothing', flush=True); sys.stdin.read()")
        lazy = Copy(cluster, records=10, seed=20, fault_every_s=60.0, directory=tmp_path / "still", copier=copier)
        with pytest.raises(TimeoutError, match=r"lost 10 .*scene\.txt says how things stood"):
            lazy.run(still_s=1.0)
    scene = (tmp_path / "still" / FILE).read_text()
    assert '"transactional_id": "copy-19-0"' in scene, "of `txn list`"
    assert "I copy nothing" in scene, "of the copiers' own output"
    assert "copy-20-out 0 lacks 4 records, 0 to 9" in scene, "of the journal"
    for words in ("txn describe copy-19-0", "group describe copy-20", "explain partition copy-20-out 2"):
        assert f"$ barnabas {words}" in scene
    assert "no answer within" not in scene


def test_the_report_sees_what_is_not_exact() -> None:
    report = Report(records=3)
    report.seen.update([0, 1, 1])
    report.by_partition[0] = [0, 1, 1]
    assert (report.lost, report.duplicates, report.is_in_order, report.is_exact) == (1, 1, True, False)
    report.seen.update([2])
    report.by_partition[0] = [1, 0, 2]
    assert not report.is_in_order and not report.is_exact
