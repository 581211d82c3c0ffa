"""The `barnabas_cluster` fixture: a real cluster of three nodes for the tests of any project that has Barnabas installed.

May touch:  pytest; LocalCluster when the fixture is used.   Must not touch: anything at import, for every pytest run loads this.
Invariants: one cluster per test session, stopped at its end, its directory below pytest's own temporary one.
Read next:  local_cluster.py.

    def test_orders(barnabas_cluster):
        producer = Producer({"bootstrap.servers": barnabas_cluster.bootstrap_servers})
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas_admin.local_cluster import LocalCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """--barnabas-nodes."""
    group = parser.getgroup("barnabas")
    group.addoption(
        "--barnabas-nodes",
        type=int,
        default=3,
        help="nodes of the barnabas_cluster fixture, each broker and controller",
    )


@pytest.fixture(scope="session")
def barnabas_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A healthy cluster: `.bootstrap_servers` for Kafka clients, `.admin_addresses` for gRPC, `.kill(node_id)` to break it."""
    from barnabas_admin.local_cluster import LocalCluster, find_base_port

    directory = tmp_path_factory.mktemp("barnabas")
    nodes = request.config.getoption("--barnabas-nodes")
    with LocalCluster(directory, nodes=nodes, base_port=find_base_port()) as cluster:
        yield cluster
