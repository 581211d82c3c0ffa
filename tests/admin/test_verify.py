"""`barnabas quorum verify` and `quarantine` over nodes that differ, stand still, are silent, or were not asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation
from barnabas_admin.main import cli
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.rpc import admin_pb2
from barnabas_wire.rpc import inspection_pb2 as pb

OFFSET = 40


class FakeNode:
    """Stands for the AdminClient of one node."""

    def __init__(self, node_id: int, *, configs: bytes = b"good", blocked: int | None = None, **faults: Any) -> None:
        self.node_id = node_id
        self.configs = configs
        self.blocked = blocked
        self.faults = faults
        self.signed: list[Any] = []
        self.known = [1, 2, 3]

    def inspect(self, method: str, request: Any) -> Any:
        if self.faults.get("is_silent"):
            raise AdminError(f"no node answers at {self.node_id}", code=ErrorCode.NETWORK_EXCEPTION)
        if method == "CompareImages":
            if self.faults.get("has_no_controller"):
                raise AdminError("nobody leads", code=ErrorCode.NOT_CONTROLLER)
            return pb.CompareImagesResponse(offset=OFFSET)
        if method == "SignOff":
            self.signed.append(request)
            return pb.SignOffResponse(signed_at_offset=OFFSET + 1)
        own = [pb.PartHash(part="topics", hash=b"t"), pb.PartHash(part="configs", hash=self.configs)]
        agreed = [pb.PartHash(part="topics", hash=b"t"), pb.PartHash(part="configs", hash=b"good")]
        record = pb.BadRecord(
            offset=self.blocked or 0, digest=self.faults.get("digest", b"d" * 16), reason="unreadable", error="garbage"
        )
        return pb.DescribeImageResponse(
            node_id=self.node_id,
            roles=["broker", "controller"],
            applied_offset=OFFSET if self.blocked is None else self.blocked - 1,
            high_watermark=OFFSET + 1,
            leader_id=1,
            parts=own,
            recomputed=[pb.PartHash(part="topics", hash=b"rot"), own[1]]
            if request.recompute and self.faults.get("is_rotten")
            else own
            if request.recompute
            else [],
            comparisons=[
                pb.Comparison(offset=OFFSET, matches=self.configs == b"good", own=own, agreed=agreed),
            ]
            if self.blocked is None
            else [],
            blocked=None if self.blocked is None else pb.Blocked(record=record, read_offset=OFFSET),
            uncleanable=self.faults.get("uncleanable", ()),
            uncleanable_count=self.faults.get("uncleanable_count", 0),
        )

    def inspect_stream(self, method: str, request: Any) -> Iterator[Any]:
        assert (method, request.part, request.comparison_offset) == ("ListEntities", "configs", OFFSET)
        value = b"1" if self.configs == b"good" else b"2"
        yield pb.EntityPage(entities=[pb.Entity(name="config topic t a", hash=b"same")])
        yield pb.EntityPage(entities=[pb.Entity(name="config topic t b", hash=value)])

    def describe_cluster(self) -> Any:
        nodes = [SimpleNamespace(id=node) for node in self.known]
        return SimpleNamespace(brokers=nodes, controllers=[])

    def describe_health(self) -> Any:
        return admin_pb2.DescribeHealthResponse(is_healthy=True, voters=[1], brokers=[1])

    def close(self) -> None:
        return None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def with_nodes(nodes: list[FakeNode], *arguments: str) -> Result:
        monkeypatch.setattr(Invocation, "every_admin", lambda self, **_: {f"h:{node.node_id}": node for node in nodes})
        monkeypatch.setattr(Invocation, "admin", property(lambda self: nodes[0]))
        words = [*arguments] if arguments[0] == "cluster" else ["quorum", *arguments]
        return CliRunner().invoke(cli, words, env={"BARNABAS_ADMIN": "h:1"}, catch_exceptions=False)

    return with_nodes


def states(result: Result) -> dict[int, str]:
    return {row["node"]: row["state"].split(":")[0] for row in json.loads(result.stdout)["nodes"]}


def test_equal_nodes_end_with_zero(run: Any) -> None:
    result = run([FakeNode(1), FakeNode(2), FakeNode(3)], "verify", "-o", "json")
    assert result.exit_code == 0 and set(states(result).values()) == {"agrees"}


def test_a_node_that_differs_is_named_with_part_and_entity_and_ends_with_one(run: Any) -> None:
    nodes = [FakeNode(1), FakeNode(2), FakeNode(3, configs=b"bad")]
    result = run(nodes, "verify", "-o", "json")
    assert result.exit_code == 1 and states(result) == {1: "agrees", 2: "agrees", 3: "DIFFERS"}
    (found,) = json.loads(result.stdout)["differences"]
    assert (found["node"], found["part"], found["entity"], found["what"]) == (
        3,
        "configs",
        "config topic t b",
        "differs",
    )
    text = run(nodes, "verify")
    assert text.exit_code == 1
    assert "config topic t b" in text.stdout and "next: restart node 3" in text.stderr


def test_when_all_differ_the_active_controller_is_the_one(run: Any) -> None:
    result = run([FakeNode(node, configs=b"bad") for node in (1, 2, 3)], "verify", "-o", "json")
    assert result.exit_code == 1
    assert "the active controller's own metadata is the wrong one" in json.loads(result.stdout)["notes"][0]


def test_memory_that_rots_is_found_by_counting_anew(run: Any) -> None:
    nodes = [FakeNode(1), FakeNode(2, is_rotten=True), FakeNode(3)]
    assert run(nodes, "verify").exit_code == 0
    result = run(nodes, "verify", "--recompute", "-o", "json")
    assert result.exit_code == 1 and states(result)[2] == "ROTTEN"
    assert next(row for row in json.loads(result.stdout)["nodes"] if row["node"] == 2)["differing_parts"] == ["topics"]


def test_who_was_not_asked_or_is_silent_is_never_taken_for_one_that_agrees(run: Any) -> None:
    result = run([FakeNode(1), FakeNode(2, is_silent=True)], "verify", "-o", "json")
    assert result.exit_code == 10
    assert states(result) == {1: "agrees", 2: "not asked", 3: "not asked", None: "unreachable"}
    assert json.loads(result.stdout)["is_consistent"] is False


def test_why_a_node_was_not_asked_stands_below_the_table(run: Any) -> None:
    result = run([FakeNode(1), FakeNode(2, is_silent=True)], "verify")
    assert max(map(len, result.stdout.splitlines())) < 120
    assert "node 2: not asked: unless it is one of those that are unreachable, name its admin listener" in result.stderr
    assert any(line.split(": ")[1] == "unreachable" for line in result.stderr.splitlines())


def test_without_an_active_controller_the_last_common_comparison_counts(run: Any) -> None:
    nodes = [FakeNode(node, has_no_controller=True) for node in (1, 2, 3)]
    result = run(nodes, "verify", "-o", "json")
    assert result.exit_code == 0
    assert "compared at the last one that all have, at offset 40" in json.loads(result.stdout)["notes"][0]


def test_a_blocked_node_is_unhealthy_and_the_next_command_is_named(run: Any) -> None:
    nodes = [FakeNode(node, blocked=30) for node in (1, 2, 3)]
    assert run(nodes, "verify", "--timeout", "1").exit_code == 10
    listed = run(nodes, "quarantine", "list")
    assert listed.exit_code == 10 and "sign-off 30" in listed.stderr
    assert run([FakeNode(1)], "quarantine", "list").exit_code == 0


def test_health_names_metadata_that_is_blocked_or_differs_and_what_to_type(run: Any) -> None:
    assert run([FakeNode(1), FakeNode(2, is_silent=True)], "cluster", "health").exit_code == 0
    result = run([FakeNode(1), FakeNode(2, blocked=30), FakeNode(3, configs=b"bad")], "cluster", "health")
    assert result.exit_code == 10
    lines = result.stdout.splitlines()
    assert lines[0] == "HEALTH   UNHEALTHY   (metadata_blocked, metadata_differs)"
    assert lines[-2:] == [
        "metadata of node 2 is blocked at offset 30: unreadable",
        "metadata of node 3 differs from the active controller's",
    ]
    assert result.stderr.splitlines() == ["next: barnabas quorum quarantine list", "next: barnabas quorum verify"]
    reported = json.loads(run([FakeNode(2, blocked=30)], "cluster", "health", "-o", "json").stdout)
    assert (reported["healthy"], reported["metadata_blocked"]) == (
        False,
        [{"node": 2, "offset": 30, "reason": "unreadable"}],
    )
    assert reported["next"] == ["barnabas quorum quarantine list"]


def test_health_names_a_cleaner_that_cannot_run_and_what_to_type(run: Any) -> None:
    died = pb.Uncleanable(topic="orders", partition=3, fault="died: the cleaner process 7 ended amid its work")
    nodes = [FakeNode(1), FakeNode(2, uncleanable=[died], uncleanable_count=9)]
    result = run(nodes, "cluster", "health")
    assert result.exit_code == 10
    lines = result.stdout.splitlines()
    assert lines[0] == "HEALTH   UNHEALTHY   (logs_uncleanable)"
    assert lines[-1] == (
        "node 2 cannot compact 9 logs, which grow; the first is orders-3: died: the cleaner process 7 ended amid its work"
    )
    assert result.stderr.splitlines() == ["next: barnabas explain partition orders 3"]
    reported = json.loads(run(nodes, "cluster", "health", "-o", "json").stdout)
    assert reported["reasons"] == ["logs_uncleanable"] and reported["healthy"] is False
    assert reported["logs_uncleanable"] == [
        {"node": 2, "logs": 9, "topic": "orders", "partition": 3, "fault": died.fault}
    ]


def test_a_sign_off_names_the_bytes_that_were_looked_at_and_needs_yes(run: Any) -> None:
    nodes = [FakeNode(node, blocked=30) for node in (1, 2, 3)]
    dry = run(nodes, "quarantine", "sign-off", "30", "--reason", "why")
    assert dry.exit_code == 2 and not nodes[0].signed
    assert dry.stderr.startswith("offset 30: ") and "add --yes to do it" in dry.stderr
    done = run(nodes, "quarantine", "sign-off", "30", "30", "--reason", "why", "--yes", "-o", "json")
    (request,) = nodes[0].signed
    assert (request.offset, request.digest) == (30, b"d" * 16) and request.reason.startswith("why (typed by ")
    assert json.loads(done.stdout)["signed"] == [{"offset": 30, "digest": (b"d" * 16).hex(), "signed_at_offset": 41}]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([FakeNode(1, blocked=30), FakeNode(2)], "node 2 has replayed the record at offset 30"),
        ([FakeNode(1, blocked=30), FakeNode(2, blocked=30, digest=b"e" * 16)], "different bytes at offset 30"),
        ([FakeNode(1, blocked=31)], "has replayed the record at offset 30"),
        ([FakeNode(1, blocked=29)], "no node has stopped at a record at offset 30"),
    ],
)
def test_a_sign_off_is_refused_where_nodes_do_not_hold_the_same_record(
    run: Any, nodes: list[FakeNode], words: str
) -> None:
    result = run(nodes, "quarantine", "sign-off", "30", "--reason", "why", "--yes")
    assert result.exit_code != 0 and words in result.stderr and not nodes[0].signed
