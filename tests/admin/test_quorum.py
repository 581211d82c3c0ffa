"""`barnabas quorum add-voter|remove-voter`, through the admin service, down to what the quorum is asked."""

from __future__ import annotations

import pytest

from barnabas_admin.commands.quorum import lost_tolerance
from barnabas_quorum.raft.messages import ReplyError, VoterChangeKind
from barnabas_quorum.raft.voters import Voter
from tests.admin.admin_server import AdminServer
from tests.admin.test_main import Run
from tests.support.images import make_quorum


@pytest.fixture
def run(admin_server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BARNABAS_ADMIN", admin_server.address)
    admin_server.node.quorum = make_quorum(observers=(4,))
    return Run()


def test_an_observer_is_added_with_the_directory_it_fetches_with(run: Run, admin_server: AdminServer) -> None:
    key = admin_server.node.quorum.observers[0].key
    done = run.json("quorum", "add-voter", "4@10.0.0.4:9093")
    assert done == {"id": 4, "directory_id": str(key.directory_id), "is_voter": True}
    (asked,) = admin_server.node.voter_changes
    assert (asked.kind, asked.voter, asked.joiner) == (VoterChangeKind.ADD, Voter(key, "10.0.0.4", 9093), None)


def test_a_directory_may_be_named(run: Run, admin_server: AdminServer) -> None:
    assert "votes now" in run("quorum", "add-voter", "9@[::1]:9093:AQEBAQEBAQEBAQEBAQEBAQ").stdout
    (asked,) = admin_server.node.voter_changes
    assert str(asked.voter) == "9@[::1]:9093:AQEBAQEBAQEBAQEBAQEBAQ"


def test_that_a_node_votes_already_is_for_the_leader_to_say(run: Run, admin_server: AdminServer) -> None:
    admin_server.node.voter_error = ReplyError.DUPLICATE_VOTER
    assert "because of a rule" in run("quorum", "add-voter", "2@h:1", exit_code=3).stderr


def test_a_voter_is_removed_by_its_id(run: Run, admin_server: AdminServer) -> None:
    key = admin_server.node.quorum.voters[1].key
    assert run.json("quorum", "remove-voter", "2", "--yes")["directory_id"] == str(key.directory_id)
    (asked,) = admin_server.node.voter_changes
    assert (asked.kind, asked.voter.key) == (VoterChangeKind.REMOVE, key)


@pytest.mark.parametrize(
    ("voters", "down", "removed", "left"),
    [
        ((1, 2, 3), (), 3, "2 of 2 voters are needed for a leader, so none of them may fail"),
        ((1, 2, 3), (2,), 3, "2 of 2 voters are needed for a leader, and only 1 answers: no leader can be elected"),
        (
            (1, 2),
            (),
            2,
            "1 of 1 voters is needed for a leader, so none of them may fail, and nobody else keeps the metadata",
        ),
        ((1, 2, 3, 4, 5), (), 3, "3 of 4 voters are needed for a leader, so 1 of them may fail"),
        ((1, 2, 3), (3,), 3, None),
        ((1, 2, 3, 4), (), 4, None),
        ((1, 2, 3), (), 9, None),
    ],
)
def test_a_vote_whose_loss_costs_tolerance_is_taken_only_when_meant(
    voters: tuple[int, ...], down: tuple[int, ...], removed: int, left: str | None
) -> None:
    assert lost_tolerance(voters, down, removed) == left


def test_removing_the_third_voter_asks(run: Run, admin_server: AdminServer) -> None:
    refused = run("quorum", "remove-voter", "2", exit_code=2)
    assert "none of them may fail: add --yes" in refused.stderr
    assert not admin_server.node.voter_changes
    run("quorum", "remove-voter", "2", "--yes")
    assert len(admin_server.node.voter_changes) == 1


@pytest.mark.parametrize(
    ("arguments", "said", "exit_code"),
    [
        (("add-voter", "7@h:1"), "format it with --no-initial-controllers and start it", 1),
        (("remove-voter", "7"), "node 7 is no voter", 3),
        (("add-voter", "4@h:70000"), "host and port", 1),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_way_out(
    run: Run, arguments: tuple[str, ...], said: str, exit_code: int
) -> None:
    assert said in run("quorum", *arguments, exit_code=exit_code).stderr


@pytest.mark.parametrize("arguments", [("add-voter", "4"), ("add-voter", "4@h"), ("remove-voter", "x")])
def test_what_cannot_be_read_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    assert "write ID" in run("quorum", *arguments, exit_code=2).stderr


def test_the_leaders_words_come_through(run: Run, admin_server: AdminServer) -> None:
    admin_server.node.voter_error = ReplyError.DUPLICATE_VOTER
    result = run("quorum", "add-voter", "4@h:1", exit_code=3)
    assert "because of a rule" in result.stderr and "DUPLICATE_VOTER" in result.stderr
