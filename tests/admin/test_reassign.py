"""`barnabas topic reassign | reassignments | elect` and `barnabas broker unregister`, and how a plan is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_admin.commands.reassign import plan_moves
from barnabas_admin.errors import AdminError
from barnabas_quorum.controller.requests_partitions import ElectionType, OngoingReassignment, PartitionReassignment
from barnabas_wire.kafka.ids import BrokerId
from tests.admin.admin_server import AdminServer
from tests.admin.test_main import Run
from tests.support.images import housed, make_image


@pytest.fixture
def run(admin_server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BARNABAS_ADMIN", admin_server.address)
    admin_server.node.image = make_image(
        brokers=(1, 2, 3), fenced=(3,), topics={"t": [((1, 2), (1, 2), 1), ((2, 1), (2, 1), 2)]}
    )
    return Run()


def moves(server: AdminServer) -> list[tuple[int, tuple[int, ...] | None]]:
    return [(m.partition_id, m.replicas) for m in server.controller.asked if isinstance(m, PartitionReassignment)]


def test_an_assignment_on_one_host_is_obeyed_and_named(run: Run, admin_server: AdminServer) -> None:
    assert "lost together" not in run("topic", "reassign", "apply", "t:0=1,2").stderr
    admin_server.node.image = housed(admin_server.node.image, {1: "h1", 2: "h1", 3: "h2"})
    done = run("topic", "reassign", "apply", "t:0=1,2", "t:1=1,3")
    assert "lost together: t:0 has 2 replicas on host h1\n" in done.stderr


def test_a_plan_puts_what_it_adds_into_other_racks_and_onto_other_hosts() -> None:
    places = {1: ("a", "h1"), 2: ("a", "h1"), 3: ("a", "h2"), 4: ("b", "h3"), 5: ("", "")}
    assert plan_moves({("t", 0): (1,)}, [1, 2, 3], replicas=2, places=places) == {("t", 0): (1, 3)}
    assert plan_moves({("t", 0): (1,)}, [1, 2, 3, 4], replicas=2, places=places) == {("t", 0): (1, 4)}
    assert plan_moves({("t", 0): (1, 4)}, [1, 2, 3, 5], replicas=2, places=places) == {("t", 0): (1, 5)}
    assert plan_moves({("t", 0): (1,)}, [1, 2], replicas=2, places=places) == {("t", 0): (1, 2)}


def test_moves_are_named_or_come_from_a_plan(run: Run, admin_server: AdminServer, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 1, "replicas": [2, 1]}]}))
    done = run.json("topic", "reassign", "apply", "t:0=1,2", "--file", str(plan), "--dry")
    assert [row["status"] for row in done["partitions"]] == ["would begin"] * 2  # type: ignore[attr-defined]
    assert admin_server.controller.validate_only
    assert moves(admin_server) == [(0, (1, 2)), (1, (2, 1))]
    plan.write_text(json.dumps({"version": 1, "partitions": []}))
    asked = len(admin_server.controller.asked)
    assert run("topic", "reassign", "apply", "--file", str(plan), "--throttle", "5").stdout == "nothing to do\n"
    assert len(admin_server.controller.asked) == asked, "nobody is throttled for a move that is none"
    assert run.json("topic", "reassign", "plan", "t")["partitions"] == []
    for broken in ("t=1", "t:0", "t:0=a", "t:0="):
        run("topic", "reassign", "apply", broken, exit_code=2)


def test_a_plan_takes_everything_off_a_broker(run: Run) -> None:
    printed = run("topic", "reassign", "plan", "t", "--remove-broker", "2", "-r", "1").stdout
    assert json.loads(printed) == {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [1]},
            {"topic": "t", "partition": 1, "replicas": [1]},
        ],
    }
    assert "needs 2 brokers" in run("topic", "reassign", "plan", "t", "--remove-broker", "2", exit_code=1).stderr


def test_what_is_under_way_is_shown_with_whom_it_waits_for(run: Run, admin_server: AdminServer) -> None:
    assert "nothing is being reassigned" in run("topic", "reassignments").stdout
    admin_server.node.image = make_image(fenced=(3,), topics={"t": [((3, 2, 1), (1, 2), 1)]})
    admin_server.controller.ongoing = [
        OngoingReassignment(
            topic="t",
            partition_id=0,
            replicas=(BrokerId(3), BrokerId(2), BrokerId(1)),
            adding=(BrokerId(3),),
            removing=(BrokerId(1),),
            isr=(BrokerId(1), BrokerId(2)),
        )
    ]
    asked = ("topic", "reassign", "status", "-b", "127.0.0.1:1", "--timeout", "0.3")
    rows: Any = run.json(*asked)["reassignments"]
    shown = rows[0]
    assert (shown["waiting_for"], shown["fenced"], shown["copied"]) == ([3], [3], {"3": None}), "no broker tells sizes"
    done = run.json("topic", "reassign", "cancel", "--all")
    assert done["partitions"] == [{"topic": "t", "partition": 0, "status": "cancelled"}]
    assert moves(admin_server) == [(0, None)]
    run("topic", "reassign", "cancel", "t:9", exit_code=1)
    run("topic", "reassign", "cancel", exit_code=2)


def test_elections_are_asked_for_by_partition_by_topic_or_for_all(run: Run, admin_server: AdminServer) -> None:
    run("topic", "elect", "t:0", "t")
    run("topic", "elect", "--all")
    run("topic", "elect", "t:1", "--unclean", exit_code=2)
    run("topic", "elect", "t:1", "--unclean", "--yes")
    assert admin_server.controller.asked == [
        *(ElectionType.PREFERRED, ("t", 0), ("t", 1)),
        ElectionType.PREFERRED,
        *(ElectionType.UNCLEAN, ("t", 1)),
    ]
    assert run.json("topic", "elect", "t:9")["partitions"] == [{"topic": "t", "partition": 9, "status": "not needed"}]


def test_a_broker_that_holds_replicas_is_not_forgotten_by_accident(run: Run, admin_server: AdminServer) -> None:
    refused = run("broker", "unregister", "1", exit_code=2)
    assert "holds 2 replicas" in refused.stderr and "--remove-broker 1" in refused.stderr
    run("broker", "unregister", "3")
    run("broker", "unregister", "1", "--yes")
    assert admin_server.controller.asked == [3, 1]


placements = st.lists(st.permutations((1, 2, 3, 4)).map(lambda order: tuple(order[:3])), min_size=1, max_size=30)


@given(placements, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_a_plan_moves_only_what_must_and_spreads_it(present: list[tuple[int, ...]], removed: int) -> None:
    now = {("t", index): replicas for index, replicas in enumerate(present)}
    allowed = [broker for broker in (1, 2, 3, 4, 5) if broker != removed]
    planned = plan_moves(now, allowed, replicas=None)
    for name, replicas in now.items():
        wanted = planned.get(name, replicas)
        assert removed not in wanted and len(set(wanted)) == len(replicas)
        assert len(set(replicas) - set(wanted)) == (removed in replicas), "nobody else goes"
    with pytest.raises(AdminError):
        plan_moves(now, allowed[:2], replicas=None)
