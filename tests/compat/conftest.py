"""Topics for the compatibility tests, on one cluster for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from barnabas_admin.local_ports import find_base_port
from tests.support.clusters import ForkedCluster
from tests.support.topics import wait_until_known

OVERRIDES = {
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
}
"""A new group of the classic protocol waits so long for more members, by default 3 s, which every group here would wait in vain; of the
consumer protocol everything is decided by heartbeats, by default one in 5 s."""
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three combined nodes; whoever breaks one mends it."""
    directory = tmp_path_factory.mktemp("compat")
    with ForkedCluster(directory, nodes=3, base_port=find_base_port(), overrides=OVERRIDES) as running:
        yield running


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    """host:port,… of the cluster."""
    return cluster.bootstrap_servers


@pytest.fixture
def make_topic(cluster: LocalCluster) -> Callable[..., str]:
    """Makes a topic of RF 3 whose name no other test has, and returns the name."""

    def make(partitions: int = 1) -> str:
        name = f"compat-{next(_numbers)}"
        with AdminClient(cluster.admin_addresses, timeout_s=10.0) as admin:
            # The samples are of 2013: retention by time would take them half a minute after the cluster's start.
            configs = {"retention.ms": "-1"}
            (made,) = admin.create_topics([name], partitions=partitions, replication_factor=3, configs=configs)
        wait_until_known(cluster, name, made.id)
        return name

    return make


@pytest.fixture
def group() -> str:
    """A group id that no other test has."""
    return f"compat-group-{next(_numbers)}"
