"""What health, quorum status and metrics make of a quorum without tolerance, of ghosts, of moves, and of old news."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas_broker.controller_client.quorum_health import SILENCE_MS_MAX, bears_no_loss, present_observers
from barnabas_broker.metrics.census import UNDER_REPLICATED, partition_flags
from barnabas_quorum.driver.quorum_description import ReplicaDescription
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_quorum.records import RegisterControllerRecord
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset
from tests.admin.admin_server import AdminServer
from tests.admin.test_main import Run
from tests.broker.metrics.test_exporter import make_sources, scrape
from tests.support.images import NOW_MS, housed, make_image, make_quorum, make_voters, uuid


@pytest.fixture
def run(admin_server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BARNABAS_ADMIN", admin_server.address)
    return Run()


def with_controllers(image: MetadataImage, *ids: int) -> MetadataImage:
    delta = MetadataDelta(image)
    for node_id in ids:
        endpoints = (Endpoint("CONTROLLER", "10.0.0.1", 9100 + node_id),)
        delta.replay(
            RegisterControllerRecord(controller_id=BrokerId(node_id), incarnation_id=uuid(node_id), endpoints=endpoints)
        )
    return delta.apply(Offset(image.offset + 1), Epoch(4), NOW_MS)


def observer(node_id: int, directory: int, *, silent_ms: int) -> ReplicaDescription:
    seen_ms = NOW_MS - silent_ms
    return ReplicaDescription(
        key=ReplicaKey(BrokerId(node_id), uuid(directory)),
        log_end_offset=Offset(50),
        last_fetch_ms=seen_ms,
        last_caught_up_ms=seen_ms,
    )


GHOST_MS = 90_000


def test_replicas_that_share_a_host_are_counted_and_make_nobody_unhealthy(admin_server: AdminServer, run: Run) -> None:
    image = make_image(topics={"t": [((1, 2), (1, 2), 1), ((1, 3), (1, 3), 1)]})
    assert run.json("cluster", "health")["sharing_host"] == 0
    admin_server.node.image = housed(image, {1: "h1", 2: "h1", 3: "h2"})
    found = run.json("cluster", "health")
    assert (found["sharing_host"], found["healthy"]) == (1, True)
    assert "1 partitions have replicas on one host" in run("cluster", "health").stdout
    assert [broker["host"] for broker in run.json("broker", "list")["brokers"]] == ["h1", "h1", "h2"]  # type: ignore[attr-defined]
    assert "HOST" in run("broker", "list").stdout


def test_a_lost_host_is_named_with_its_brokers_and_what_hangs_by_a_thread(admin_server: AdminServer, run: Run) -> None:
    topics = {"t": [((1, 3), (3,), 3), ((3, 4), (3, 4), 3), ((2, 3, 4), (3, 4), 3)]}
    image = make_image(brokers=(1, 2, 3, 4), fenced=(1, 2), topics=topics)
    admin_server.node.image = housed(image, {1: "h1", 2: "h1", 3: "h2", 4: "h2"})
    found = run.json("cluster", "health", exit_code=10)
    assert found["hosts_lost"] == [{"host": "h1", "brokers": [1, 2], "at_min_isr": 2}]
    assert "host h1 is lost, brokers 1 2: 2 partitions at" in run("cluster", "health", exit_code=10).stdout
    admin_server.node.image = housed(image, {1: "h1", 2: "h1", 3: "h1", 4: "h2"})
    assert run.json("cluster", "health", exit_code=10)["hosts_lost"] == []


def test_two_voters_are_no_quorum_that_bears_a_loss_and_the_mending_command_is_named(
    admin_server: AdminServer, run: Run
) -> None:
    admin_server.node.image = with_controllers(make_image(), 1, 2, 3)
    assert run.json("cluster", "health")["reasons"] == []
    admin_server.node.quorum = make_quorum(ends=(101, 101))
    admin_server.node.voters = make_voters(2)
    found = run.json("cluster", "health", exit_code=10)
    assert found["reasons"] == ["quorum_no_tolerance"]
    assert found["next"] == ["barnabas quorum add-voter 3@10.0.0.1:9103"]
    admin_server.node.image = make_image()
    assert "--no-initial-controllers" in run.json("cluster", "health", exit_code=10)["next"][0]  # type: ignore[index]


def test_a_single_controller_is_a_choice_until_another_is_registered() -> None:
    image = with_controllers(make_image(), 1)
    assert not bears_no_loss(make_quorum(ends=(101,)), image)
    assert bears_no_loss(make_quorum(ends=(101,)), with_controllers(image, 2))
    assert not bears_no_loss(make_quorum(ends=(1, 1, 1)), image)


def test_an_observer_counts_while_it_fetches_or_its_broker_is_registered() -> None:
    image = make_image(brokers=(1, 2, 3, 4))
    live, registered = observer(9, 9, silent_ms=100), observer(4, 40, silent_ms=GHOST_MS)
    ghosts = (
        observer(7, 7, silent_ms=GHOST_MS),  # an unregistered broker, a controller that was removed and stopped
        observer(4, 41, silent_ms=GHOST_MS + 1),  # the former disk of a broker
        observer(2, 42, silent_ms=GHOST_MS),  # a voter's, from before it voted
    )
    quorum = replace(make_quorum(), observers=(live, registered, *ghosts))
    assert present_observers(quorum, image, now_ms=NOW_MS) == (live, registered)
    assert len(present_observers(quorum, image, now_ms=NOW_MS - GHOST_MS + SILENCE_MS_MAX - 1)) == 5


def test_a_decommissioned_broker_is_in_no_lag_of_status_and_metrics(admin_server: AdminServer, run: Run) -> None:
    quorum = replace(make_quorum(), observers=(observer(7, 7, silent_ms=GHOST_MS),))
    admin_server.node.quorum = quorum
    found = run.json("quorum", "status")
    assert (found["max_follower_lag"], found["observers"]) == (0, [])
    from tests.support.images import FakeQuorumNode

    samples = scrape(make_sources(quorum=FakeQuorumNode(quorum)))
    followers = {dict(labels)["node_id"] for name, labels in samples if name == "barnabas_raft_follower_lag_seconds"}
    assert followers == {"2", "3"}, "the alert MetadataReplicaBehind would name node 7 for minutes"


def test_a_voter_is_added_with_the_disk_it_has_now(admin_server: AdminServer, run: Run) -> None:
    former, now = observer(4, 40, silent_ms=GHOST_MS), observer(4, 41, silent_ms=100)
    admin_server.node.quorum = replace(make_quorum(), observers=(former, now))
    assert run.json("quorum", "add-voter", "4@10.0.0.4:9093")["directory_id"] == str(now.key.directory_id)
    admin_server.node.quorum = replace(make_quorum(), observers=(observer(4, 40, silent_ms=200), now))
    assert "fetches with 2 directories" in run("quorum", "add-voter", "4@10.0.0.4:9093", exit_code=1).stderr


def moving(*, isr: tuple[int, ...]) -> PartitionRegistration:
    """From 1, 2, 3 to 1, 2, 4."""
    return PartitionRegistration(
        replicas=tuple(map(BrokerId, (1, 2, 4, 3))),
        directories=(uuid(1),) * 4,
        isr=tuple(map(BrokerId, isr)),
        leader=BrokerId(1),
        leader_epoch=Epoch(1),
        partition_epoch=1,
        adding_replicas=(BrokerId(4),),
        removing_replicas=(BrokerId(3),),
    )


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    assert partition_flags(moving(isr=(1, 2, 3)), min_isr=2) == []
    assert UNDER_REPLICATED in partition_flags(moving(isr=(1, 2)), min_isr=2)
    assert UNDER_REPLICATED in partition_flags(moving(isr=(1, 3, 4)), min_isr=2), "2 stays, and is behind"


def test_without_a_controller_health_says_as_of_when_it_speaks(admin_server: AdminServer, run: Run) -> None:
    assert run.json("cluster", "health")["as_of"] is None
    admin_server.node.quorum = make_quorum(leader=-1)
    found = run.json("cluster", "health", exit_code=10)
    assert found["as_of"] == "2023-11-14T22:13:20+00:00"
    lines = run("cluster", "health", exit_code=10).stdout.splitlines()
    assert lines[1] == "as of 2023-11-14T22:13:20+00:00: no controller has confirmed since then what follows"
    assert "brokers 1 2 3" in lines[2]
