"""Hosts that are lost whole, in whole simulated nodes: clean code breaks no law of theirs, and each kind of loss happens."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas_quorum.image.cluster import ClusterImage
from barnabas_simulation.cluster import Cluster
from barnabas_simulation.hosts import unspread
from barnabas_simulation.swarm import Slant
from barnabas_wire.kafka.ids import BrokerId
from tests.simulation.side_by_side import telling
from tests.support.decided_cluster import DecidedCluster

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 20_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Nodes that are crashed have much to say."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [2, 3])
def test_what_is_in_sync_on_two_hosts_survives_one(seed: int) -> None:
    with telling(seed):
        figures = Cluster(seed, steps=STEPS, slant=Slant.HOSTS).run()
    assert figures.hosts_lost and figures.acknowledged


def test_replicas_that_share_a_host_beside_a_free_one_are_found() -> None:
    cluster = DecidedCluster()
    for broker_id in (1, 2, 3, 4):
        cluster.start_broker(broker_id, host=None if broker_id == 4 else f"h{broker_id % 2}")
    cluster.create("t", [1, 2, 4], [1, 3, 4], [1, 2, 3])
    there: ClusterImage = cluster.image.cluster
    assert there.domains_of(BrokerId(4)).host is None
    said = [unspread(there, cluster.partition("t", index)) for index in range(3)]
    assert said == [
        None,
        "its replicas [1, 3, 4] are on 2 of 3 hosts",
        "its replicas [1, 2, 3] are on 2 of 3 hosts",
    ]
