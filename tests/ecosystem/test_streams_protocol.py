"""Kafka Streams 4.4.0 with group.protocol=streams on Barnabas: the programs of test_streams.py, exactly once under the same kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.ecosystem import java
from tests.ecosystem.java import build
from tests.ecosystem.test_streams import run_pipelines
from tests.support.clusters import ForkedCluster

OVERRIDES = {
    "auto.create.topics.enable": "false",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
}


@pytest.fixture
def streams_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes whose Streams groups notice a death soon, and keep a standby of each task."""
    reason = java.missing(java.STREAMS)
    if reason is not None:
        pytest.skip(reason)
    with ForkedCluster(tmp_path / "cluster", nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as running:
        yield running


def test_streams_of_its_own_protocol_computes_exactly_once(streams_cluster: LocalCluster, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    build("Pipelines.java", compiled)
    run_pipelines(streams_cluster, compiled, "streams")
