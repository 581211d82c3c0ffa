"""Apache Kafka beside Barnabas, both as a single node, for the tests that compare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from barnabas_admin.local_cluster import LocalCluster, find_base_port
from tests.oracle import apache
from tests.oracle.answers import Side

SHARED = {
    # what both are told, so that a difference is never one of configuration
    "default.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "3",
}


class Pair(NamedTuple):
    """The two brokers."""

    apache: Side
    ours: Side


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is an oracle test."""
    for item in items:
        if __package__ in item.nodeid.replace("/", "."):
            item.add_marker(pytest.mark.oracle)


@pytest.fixture(scope="session")
def jars() -> None:
    """Skips when Apache Kafka cannot be run here."""
    reason = apache.missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def pair(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both brokers, fresh."""
    directory = tmp_path_factory.mktemp("oracle")
    base_port = find_base_port()
    with (
        apache.ApacheBroker(directory / "apache", port=find_base_port(), overrides=SHARED) as theirs,
        LocalCluster(directory / "barnabas", nodes=1, base_port=base_port, overrides=SHARED),
    ):
        sides = Pair(Side("apache", apache.HOST, theirs.port), Side("barnabas", apache.HOST, base_port))
        yield sides
        for side in sides:
            side.close()
