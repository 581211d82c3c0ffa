"""The clusters, and who may run: a test here is marked, and skips with one line where Java or Maven is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.ecosystem import java
from tests.support.clusters import ForkedCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is an ecosystem test."""
    for item in items:
        if __package__ in item.nodeid.replace("/", "."):
            item.add_marker(pytest.mark.ecosystem)


@pytest.fixture(scope="package")
def jars() -> None:
    """Skips when nothing can be run here."""
    reason = java.missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def cluster(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes, in which a new group need not wait for more members."""
    overrides = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with ForkedCluster(
        tmp_path_factory.mktemp("ecosystem"), nodes=3, base_port=find_base_port(), overrides=overrides
    ) as running:
        yield running
