"""Read, process, write by three of Kafka's Java clients, while clients, brokers and coordinators are killed: exact."""

from __future__ import annotations

from pathlib import Path

from barnabas_admin.local_ports import find_base_port
from tests.cluster.exactly_once import Copy
from tests.ecosystem.java import IS_FULL, java_copier
from tests.support.clusters import ForkedCluster

RECORDS = 100_000 if IS_FULL else 4_000
FAULT_EVERY_S = 4.0 if IS_FULL else 3.0


def test_a_copy_by_three_java_clients_is_exact_whatever_is_killed(jars: None, tmp_path: Path) -> None:
    copier = java_copier(tmp_path)
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ForkedCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port(), overrides=overrides) as cluster:
        copy = Copy(
            cluster,
            records=RECORDS,
            seed=19,
            fault_every_s=FAULT_EVERY_S,
            directory=tmp_path / "scene",
            copier=copier,
        )
        report = copy.run()
    print(report)
    assert report.is_exact, str(report)
    assert report.kills.total() >= 1, str(report)
