"""What the benchmark of many brokers makes of its pairs, where replicas stand, and that its hosts are hosts."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest

from barnabas_broker.host.layout import plan_host
from barnabas_wire.java_properties import read_properties_file
from tests.bench.hosts.cluster import Hosts
from tests.bench.hosts.cost import PARTITIONS, Cost, Costs, Pair, assignment
from tests.bench.hosts.failover import Failovers
from tests.bench.hosts.loss import Losses
from tests.bench.hosts.rest import mesh, missed


def cost(brokers: int, work: float, *, rest: float = 0.0) -> Cost:
    return Cost(brokers, work + 1, work, rest, 100.0)


def test_a_broker_with_a_core_of_its_own_pays_for_its_rest_from_that_core() -> None:
    assert cost(1, 2.0, rest=0.2).own_core_ms_per_mb == pytest.approx(2.5)


def test_a_ratio_is_the_median_of_the_pairs_own_and_a_goal_is_judged_by_it() -> None:
    costs = Costs()
    for few, many in ((1.0, 1.2), (2.0, 2.0), (4.0, 4.8)):
        costs.add("produce", 8, Pair(cost(1, few), cost(8, many)))
    assert costs.ratios("produce", 8) == pytest.approx([1.0, 1.2, 1.2])
    assert list(costs.missed()) == ["produce, 8 brokers: 1.20 times the CPU for a MB (at most 1.1)"]
    lines = costs.table().splitlines()
    assert lines[2] == "| produce | 1 | 3.000 | 2.000 | 2.000 |  | 100 | 8,000 |"
    assert lines[3] == "| produce | 8 | 3.000 | 2.000 | 2.000 | 1.20 (1.00–1.20) | 100 | 8,000 |"
    assert json.loads(json.dumps(costs.as_json()))["produce"]["8"][0]["ratio"] == pytest.approx(1.2)


def test_clusters_apart_have_a_line_for_each_number_of_them() -> None:
    costs = Costs()
    costs.add("produce", 2, Pair(cost(2, 1.0), cost(2, 1.1)))
    costs.add("produce", 4, Pair(cost(4, 2.0), cost(4, 2.0)))
    lines = [line.split("|")[2:7:4] for line in costs.table().splitlines()[2:]]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["2", ""],
        ["4", ""],
        ["2", "1.10 (1.10–1.10)"],
        ["4", "1.00 (1.00–1.00)"],
    ]


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (16, 1), (3, 3), (4, 3), (16, 3)])
def test_every_broker_leads_as_many_and_follows_as_many(brokers: int, replicas: int) -> None:
    found = assignment(list(range(brokers)), replicas=replicas)
    assert all(len(set(each)) == replicas for each in found)
    assert set(Counter(each[0] for each in found).values()) == {PARTITIONS}
    assert set(Counter(broker for each in found for broker in each).values()) == {PARTITIONS * replicas}
    pairs = {(leader, follower) for leader, *followers in found for follower in followers}
    assert len(pairs) == brokers * min(brokers - 1, PARTITIONS * (replicas - 1))


def test_in_a_mesh_every_broker_follows_all_others_but_one_and_no_host_has_all_of_a_partition() -> None:
    found = mesh(list(range(48)), 3)
    pairs = {(leader, follower) for leader, *followers in found for follower in followers}
    assert len(pairs) == 48 * 46 and all(leader != follower for leader, follower in pairs)
    assert all(len({each // 16 for each in replicas}) > 1 for replicas in found)


def test_goals_that_were_not_measured_are_not_missed() -> None:
    assert missed({}) == []
    assert missed({"every broker follows the others: all, cores": 1.6}) == [
        "every broker follows the others: all, cores: 1.6 (at most 1.5)"
    ]


def test_losses_are_clean_only_when_judged() -> None:
    losses = Losses(gaps_s=[1.0, 3.0, 2.0], led=[4, 4, 4], starts_s=[5.0, 5.0, 8.0])
    assert not losses.is_clean
    assert losses.table().splitlines()[-1] == "| median; worst | | 2.00; 3.00 | 5.00; 8.00 |"


def test_a_fail_over_is_judged_by_the_medians_of_both_hosts() -> None:
    found = Failovers(named_s={1: [1.0, 1.2], 16: [2.0, 2.2]}, led_s={1: [1.0, 1.4, 9.0], 16: [2.0, 2.0, 2.8]})
    assert not found.missed()
    found.led_s[16].append(2.8)
    assert found.missed() == ["16 brokers lost at once: fail-over takes 1.71 times one broker's (at most 1.5)"]
    assert found.table().splitlines()[2:] == [
        "| 1 | 1.10 | 1.40 | 1.00; 9.00 | 1.00 |",
        "| 16 | 2.10 | 2.40 | 2.00; 2.80 | 1.71 |",
    ]


def test_what_hosts_have_written_stays_where_it_is_to_be_looked_into() -> None:
    for is_kept in (False, True):
        hosts = Hosts([1])
        (hosts.directory / "h1" / "log").touch()
        hosts.is_kept = is_kept
        hosts.close()
        assert hosts.directory.exists() is is_kept
        shutil.rmtree(hosts.directory, ignore_errors=True)


@pytest.mark.parametrize("by_exec", [False, True])
def test_what_it_writes_is_what_a_host_takes(by_exec: bool) -> None:
    hosts = Hosts([16, 3, 1], by_exec=by_exec)
    try:
        plans = [plan_host(read_properties_file(host.config), cores=[0], host_name="other") for host in hosts.hosts]
        nodes = [node for plan in plans for node in plan.nodes]
        assert [node.id for node in nodes if node.is_broker] == hosts.broker_ids
        for node in nodes:
            if node.is_broker:
                port = int(node.properties["listeners"].rpartition(":")[2])
                assert (port, hosts.kind_of_port(port)) == (hosts.kafka_port(node.id), "broker")
            kinds = [
                hosts.kind_of_port(int(node.properties[f"{kind}.listeners"].rpartition(":")[2]))
                for kind in ("admin", "metrics")
            ]
            assert kinds == ["admin", "metrics"]
        ports = [
            node.properties[key].rpartition(":")[2]
            for node in nodes
            for key in ("listeners", "admin.listeners", "metrics.listeners")
        ]
        assert len(set(ports)) == len(ports)
        assert {node.properties["broker.host"] for node in nodes if node.is_broker} == {"host-1", "host-2", "host-3"}
        assert {node.properties["admin.listeners"] for node in nodes if not node.is_broker} == set(
            hosts.admin_addresses.split(",")
        )
    finally:
        hosts.close()
