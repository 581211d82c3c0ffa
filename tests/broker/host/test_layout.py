"""From one host.properties to nodes: ids, ports, directories, shares, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.host.layout import (
    HostPlan,
    is_on_loopback,
    may_fork,
    plan_host,
    refuse_overlaps,
    share_descriptors,
)
from barnabas_broker.node.properties import ServerConfig, node_config

HOST = {
    "process.roles": "broker,controller",
    "node.id": "100",
    "controller.node.id": "1",
    "brokers": "3",
    "listeners": "PLAINTEXT://10.0.0.5:9092,CONTROLLER://127.0.0.1:19092",
    "advertised.listeners": "PLAINTEXT://kafka.example:9092",
    "admin.listeners": "127.0.0.1:9190",
    "metrics.listeners": "127.0.0.1:9464",
    "log.dirs": "/one,/two",
    "controller.quorum.bootstrap.servers": "127.0.0.1:19092",
}
SIMPLE = {
    "node.id": "1",
    "log.dirs": "/data",
    "controller.quorum.bootstrap.servers": "127.0.0.1:19092",
}


def planned(properties: Mapping[str, str], *, cores: int = 4, **more: str) -> HostPlan:
    named = {key.replace("_", "."): value for key, value in more.items()}
    return plan_host({**properties, **named}, cores=range(cores), host_name="h")


def servers(plan: HostPlan) -> dict[int, ServerConfig]:
    return {node.id: node_config(node.properties).server for node in plan.nodes}


def test_ids_ports_and_directories_follow_the_rule() -> None:
    plan = planned(HOST)
    found = servers(plan)
    assert [(node.name, node.id) for node in plan.nodes] == [
        ("controller-1", 1),
        ("broker-100", 100),
        ("broker-101", 101),
        ("broker-102", 102),
    ]
    assert plan.directory == "/one/host"
    last = found[102]
    assert last.log_dirs == ("/one/broker-102", "/two/broker-102")
    assert last.listeners == ("PLAINTEXT://10.0.0.5:9094",)
    assert last.advertised_listeners == ("PLAINTEXT://kafka.example:9094",)
    assert (last.admin_listeners, last.metrics_listeners) == (("127.0.0.1:9192",), ("127.0.0.1:9466",))
    controller = found[1]
    assert controller.listeners == ("CONTROLLER://127.0.0.1:19092",)
    assert (controller.admin_listeners, controller.metrics_listeners) == (("127.0.0.1:9189",), ("127.0.0.1:9463",))
    assert controller.metadata_directory == "/one/controller-1"
    assert not controller.is_broker and not last.is_controller
    refuse_overlaps(plan, found)


@pytest.mark.parametrize(
    ("roles", "cores", "brokers"), [("broker", 4, 4), ("broker,controller", 4, 3), ("broker", 1, 1)]
)
def test_auto_is_a_broker_for_each_core_that_no_controller_needs(roles: str, cores: int, brokers: int) -> None:
    ours = {"process.roles": roles} | ({"controller.node.id": "900"} if "controller" in roles else {})
    more = {"listeners": HOST["listeners"]} if "controller" in roles else {}
    plan = plan_host(SIMPLE | ours | more, cores=range(cores), host_name="h")
    assert sum(node.role == "broker" for node in plan.nodes) == brokers


def test_a_node_keeps_its_place_when_the_host_grows() -> None:
    few, many = planned(HOST), planned(HOST, brokers="4")
    shares = {"log.cleaner.dedupe.buffer.size"}
    for before, after in zip(few.nodes, many.nodes, strict=False):
        assert {key for key in before.properties if before.properties[key] != after.properties[key]} <= shares


def test_a_follower_waits_longer_for_an_answer_unless_the_host_says_how_long() -> None:
    key = "replica.fetch.wait.max.ms"
    for said, expected in (({}, "2000"), ({key: "700"}, "700")):
        plan = plan_host(SIMPLE | said, cores=range(2), host_name="h")
        assert {node.properties[key] for node in plan.nodes if node.is_broker} == {expected}


def test_ids_may_be_listed_and_keys_given_to_one_node() -> None:
    plan = plan_host(
        SIMPLE
        | {
            "node.id": "3, 7,12",
            "node.7.listeners": "PLAINTEXT://127.0.0.1:7007",
            "node.12.log.dirs": "/old/{node.id}",
            "ssl.keystore.location": "/etc/barnabas/{node.id}.pem",
        },
        cores=range(2),
        host_name="h",
    )
    found = {node.id: node.properties for node in plan.nodes}
    assert list(found) == [3, 7, 12]
    assert found[7]["listeners"] == "PLAINTEXT://127.0.0.1:7007"
    assert found[12]["log.dirs"] == "/old/12"
    assert found[12]["ssl.keystore.location"] == "/etc/barnabas/12.pem"
    assert not [key for each in found.values() for key in each if key.startswith("node.") and key != "node.id"]


def test_memory_and_rates_of_the_host_are_shared_out() -> None:
    plan = plan_host(
        SIMPLE
        | {
            "brokers": "4",
            "socket.request.max.bytes": "1000000",
            "queued.max.request.bytes": "8000000",
            "log.cleaner.io.max.bytes.per.second": "4e6",
        },
        cores=range(2),
        host_name="h",
    )
    configs = [node_config(node.properties) for node in plan.nodes]
    assert {each.network.queued_max_request_bytes for each in configs} == {2_000_000}
    assert {each.log_manager.cleaner_bytes_per_second_max for each in configs} == {1_000_000}
    assert {each.log_manager.cleaner_map_bytes_max for each in configs} == {32 * 1024 * 1024}
    many = plan_host(SIMPLE | {"brokers": "64"}, cores=range(2), host_name="h")
    assert many.nodes[0].properties["log.cleaner.dedupe.buffer.size"] == str(16 * 1024 * 1024)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"brokers": "0"}, "brokers=0: use auto"),
        ({"brokers": "many"}, "brokers=many: use auto"),
        ({"process.roles": "controller"}, "a host runs brokers"),
        ({"process.roles": "broker,controller"}, "controller.node.id="),
        ({"controller.node.id": "4"}, "has no controller: add it"),
        ({"node.id": ""}, "write the id of the first broker"),
        ({"node.id": "1,1"}, "name each once"),
        ({"node.id": "1,2", "brokers": "3"}, "and brokers=3"),
        ({"node.9.listeners": "PLAINTEXT://:9"}, "has no node 9"),
        ({"node.1.node.id": "8"}, "node.id is the host's"),
        ({"node.1.brokers": "8"}, "brokers is the host's"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65535", "brokers": "2"}, "no room for the ports"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "write its port"),
        ({"queued.max.request.bytes": "200000000", "brokers": "4"}, "raise it to 419430400"),
        ({"queued.max.request.bytes": "much"}, "a number of bytes"),
        ({"log.file": "/var/log/barnabas.log"}, "write {node.id} into its name"),
        ({"audit.log.path": "/var/log/audit.log"}, "write {node.id} into its name"),
        ({"host.pin.cores": "true", "brokers": "5"}, "5 brokers have 4 cores"),
        ({"log.dirs": ""}, "log.dirs is required"),
        ({"host.watchdog.ms": "-1"}, "host.watchdog.ms must be"),
    ],
)
def test_what_cannot_be_is_refused_in_words(changed: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_host(SIMPLE | changed, cores=range(4), host_name="h")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"metrics.listeners": "127.0.0.1:9191"}, "metrics.listeners of node 1 and admin.listeners of node 2"),
        ({"admin.listeners": "localhost:9091"}, "have one port"),
        ({"admin.listeners": ":9093"}, "have one port"),
        ({"node.2.log.dirs": "/data/broker-1/inside"}, "lie in one another"),
        ({"node.2.log.dirs": "/data/broker-1"}, "lie in one another"),
        ({"host.directory": "/data/broker-1"}, "host.directory lie in one another"),
        ({"node.2.listeners": "PLAINTEXT://127.0.0.1:9092"}, "set node.2.listeners"),
    ],
)
def test_overlaps_are_refused_with_the_keys_that_mend_them(changed: dict[str, str], words: str) -> None:
    plan = plan_host(SIMPLE | {"brokers": "3"} | changed, cores=range(4), host_name="h")
    with pytest.raises(ConfigError) as refused:
        refuse_overlaps(plan, servers(plan))
    assert words in str(refused.value)


@given(
    first=st.integers(0, 5000),
    brokers=st.integers(1, 40),
    port=st.integers(1024, 60000),
    has_controller=st.booleans(),
)
def test_what_the_rules_make_never_overlaps(first: int, brokers: int, port: int, has_controller: bool) -> None:
    properties = SIMPLE | {
        "node.id": str(first),
        "brokers": str(brokers),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port - 1}",
        "admin.listeners": f"127.0.0.1:{port + 101}",
        "metrics.listeners": f"127.0.0.1:{port + 201}",
    }
    if has_controller:
        properties |= {"process.roles": "broker,controller", "controller.node.id": str(first + brokers)}
    plan = plan_host(properties, cores=range(2), host_name="h")
    found = {node.id: servers_of(node.properties) for node in plan.nodes}
    assert len(found) == brokers + has_controller
    refuse_overlaps(plan, found)


def servers_of(properties: Mapping[str, str]) -> ServerConfig:
    from barnabas_broker.config.keys import load

    return load(ServerConfig, properties)


def test_pinned_brokers_have_a_core_each() -> None:
    plan = plan_host(SIMPLE | {"host.pin.cores": "true", "brokers": "3"}, cores=(2, 5, 6, 7), host_name="h")
    assert [node.core for node in plan.nodes] == [2, 5, 6]


def test_brokers_off_loopback_are_forked_only_where_that_is_allowed() -> None:
    inside, outside = planned(SIMPLE), planned(SIMPLE, listeners="PLAINTEXT://10.0.0.5:9092")
    for plan, is_inside in ((inside, True), (outside, False)):
        nodes = [node_config(node.properties) for node in plan.nodes]
        assert may_fork(plan.config, nodes) is is_inside
        assert all(is_on_loopback(node.server) is is_inside for node in nodes)
    allowed = plan_host(
        SIMPLE | {"listeners": "PLAINTEXT://10.0.0.5:9092", "host.fork.allow.remote": "true"},
        cores=range(2),
        host_name="h",
    )
    assert may_fork(allowed.config, [node_config(node.properties) for node in allowed.nodes])


def test_brokers_are_lost_with_the_host_unless_the_properties_say_otherwise() -> None:
    plan = planned(HOST)
    hosts = {node.id: node_config(node.properties).server.host for node in plan.nodes}
    assert hosts == {1: None, 100: "h", 101: "h", 102: "h"}
    assert {node_config(node.properties).server.host for node in planned(SIMPLE, broker_host="blade").nodes} == {
        "blade"
    }


def test_descriptors_are_shared_where_the_system_has_few() -> None:
    assert share_descriptors(1_048_576, nodes=16, system_max=9_223_372_036_854_775_807) == 1_048_576
    assert share_descriptors(1_048_576, nodes=16, system_max=1_600_000) == 100_000
