"""Topics for the compatibility tests, on one cluster for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.local_cluster import LocalCluster
from tests.cluster.topics import wait_until_known

_numbers = itertools.count(1)


@pytest.fixture
def bootstrap(barnabas_cluster: LocalCluster) -> str:
    """host:port,… of the cluster."""
    return barnabas_cluster.bootstrap_servers


@pytest.fixture
def make_topic(barnabas_cluster: LocalCluster, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes a topic of RF 3 whose name no other test has, and returns the name."""

    def make(partitions: int = 1) -> str:
        name = f"compat-{next(_numbers)}"
        with AdminClient(barnabas_cluster.admin_addresses, timeout_s=10.0) as admin:
            # The samples are of 2013: retention by time would take them half a minute after the cluster's start.
            configs = {"retention.ms": "-1"}
            (made,) = admin.create_topics([name], partitions=partitions, replication_factor=3, configs=configs)
        wait_until_known(barnabas_cluster, name, made.id)
        return name

    return make


@pytest.fixture
def group() -> str:
    """A group id that no other test has."""
    return f"compat-group-{next(_numbers)}"
