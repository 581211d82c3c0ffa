"""Which replicas are lost together, and how many partitions could do better."""

from __future__ import annotations

import pytest

from barnabas_quorum.image.hosts import count_sharing_host, lost_hosts, shared_hosts
from barnabas_wire.kafka.ids import BrokerId
from tests.support.images import housed, make_image


def test_the_hosts_with_more_than_one_replica_are_named_with_their_brokers() -> None:
    image = housed(make_image(brokers=range(1, 7)), {1: "a", 2: "a", 3: "b", 4: "b", 5: "b"})
    replicas = [BrokerId(each) for each in (5, 1, 3, 2, 6, 99)]
    assert shared_hosts(image.cluster, replicas) == {"a": (1, 2), "b": (5, 3)}


@pytest.mark.parametrize(
    ("hosts", "count"),
    [
        ({}, 0),
        ({1: "a", 2: "a", 3: "a", 4: "a"}, 0),
        ({1: "a", 2: "a", 3: "b", 4: "b"}, 1),
        ({1: "a", 2: "a"}, 1),
        ({1: "a", 3: "a", 2: "b", 4: "c"}, 0),
    ],
)
def test_partitions_are_counted_that_could_be_on_more_hosts(hosts: dict[int, str], count: int) -> None:
    topics = {"t": [((1, 2), (1, 2), 1), ((4,), (4,), 4)]}
    assert count_sharing_host(housed(make_image(brokers=range(1, 5), topics=topics), hosts)) == count


def test_a_host_is_lost_when_all_of_its_several_brokers_are_fenced() -> None:
    image = housed(
        make_image(brokers=range(1, 8), fenced=(1, 2, 3, 5, 7)), {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "d"}
    )
    assert lost_hosts(image.cluster) == {"a": (1, 2)}
