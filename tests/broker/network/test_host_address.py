"""advertised.listeners=auto: a client is told the address of this node that it came to, everybody else the registered one."""

from __future__ import annotations

import pytest

from barnabas_broker.api.leaders import node_endpoints
from barnabas_broker.network.host_address import address_as_text, address_towards
from barnabas_replication.requests import CurrentLeader
from barnabas_wire.kafka.ids import BrokerId, Epoch
from barnabas_wire.kafka.messages.describe_cluster import DescribeClusterRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from tests.support.listener import LISTENER, NODE_ID, RawClient, make_services, running_server


class Groups:
    async def find_coordinator(self, key: str) -> BrokerId:
        return NODE_ID


@pytest.mark.parametrize("is_auto", [False, True])
async def test_every_answer_that_names_this_node_names_the_address_that_the_client_came_to(is_auto: bool) -> None:
    auto = frozenset({LISTENER}) if is_auto else frozenset()
    services = make_services(auto_listeners=auto, groups=Groups())
    async with running_server(services, host="0.0.0.0") as server:
        for host in ("127.0.0.2", "127.0.0.3", "127.0.0.2"):
            client = await RawClient.connect(server, host=host)
            told = host if is_auto else "127.0.0.1"
            metadata = await client.call(MetadataRequest(topics=[]), 12)
            assert [(broker.node_id, broker.host) for broker in metadata.brokers] == [(1, told)]
            cluster = await client.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
            assert [(broker.broker_id, broker.host) for broker in cluster.brokers] == [(1, told), (2, "127.0.0.1")]
            found = await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert [coordinator.host for coordinator in found.coordinators] == [told]
            client.writer.close()


def test_a_hint_does_not_replace_the_address_that_a_client_came_to_by_the_registered_one() -> None:
    leader = [CurrentLeader(NODE_ID, Epoch(4))]
    assert [each.host for each in node_endpoints(make_services(), LISTENER, leader)] == ["127.0.0.1"]
    assert node_endpoints(make_services(auto_listeners=frozenset({LISTENER})), LISTENER, leader) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("192.0.2.1", 9092), "192.0.2.1"),
        (("::ffff:192.0.2.1", 9092, 0, 0), "192.0.2.1"),
        (("fe80::1%eth0", 9092, 0, 2), "fe80::1"),
        ("/run/socket", ""),
        (None, ""),
    ],
)
def test_an_address_is_as_a_client_can_type_it(name: object, expected: str) -> None:
    assert address_as_text(name) == expected


def test_a_host_is_known_by_the_address_that_leads_to_its_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_towards([("no.such.host.invalid", 1), ("127.0.0.1", 9)]) == "127.0.0.1"
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    assert address_towards([("no.such.host.invalid", 1)]) == "node-7"
