"""Who may change the quorum's voters: checked where the client asks, and again by the leader that carries it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from barnabas_quorum.image import rights
from barnabas_quorum.image.rights import Right
from barnabas_quorum.records_security import AclOperation
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import ANONYMOUS, Uuid
from barnabas_wire.kafka.messages.create_acls import CreateAclsRequest
from barnabas_wire.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas_wire.rpc import quorum_pb2
from barnabas_wire.rpc.quorum_pb2_grpc import QuorumStub
from tests.broker.security.secured_node import SecuredNode, secured_node
from tests.broker.security.test_authorization_matrix import grants

CLUSTER = str(Uuid(bytes(range(16))))
STRANGER = quorum_pb2.Replica(id=77, directory_id=b"directory-of-77.")
AS_FORWARDED = "10.0.0.9"
KINDS = quorum_pb2.ChangeVotersCall.Kind


def removal(**more: Any) -> quorum_pb2.ChangeVotersCall:
    return quorum_pb2.ChangeVotersCall(
        cluster_id=CLUSTER, kind=KINDS.REMOVE, voter=quorum_pb2.Voter(replica=STRANGER), **more
    )


def asked_by(user: str) -> quorum_pb2.Asker:
    return quorum_pb2.Asker(principal=f"User:{user}", host=AS_FORWARDED)


async def allow_right(node: SecuredNode) -> None:
    root = await node.client("root")
    wanted = grants("User:right", [Right(AclOperation.ALTER, rights.CLUSTER)])
    answer = await root.call(CreateAclsRequest(creations=wanted), 3)
    assert [each.error_code for each in answer.results] == [0]


async def test_a_forwarded_change_is_refused_by_the_leader_and_audited_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    refused, passed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.VOTER_NOT_FOUND
    async with secured_node(tmp_path, monkeypatch, audit_log_path=str(path)) as node:
        await allow_right(node)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{node.controller_port}") as channel:

            async def ask(call: quorum_pb2.ChangeVotersCall) -> tuple[int, str]:
                answer = await QuorumStub(channel).ChangeVoters(call, timeout=10)
                return answer.error, answer.reason

            for kind in (KINDS.ADD, KINDS.REMOVE, KINDS.UPGRADE):
                forwarded = removal(asker=asked_by("wrong"))
                forwarded.kind = kind
                code, reason = await ask(forwarded)
                assert code == refused and "User:wrong may not ALTER the cluster" in reason
            assert (await ask(removal()))[0] == refused  # of a node that says nothing of its caller
            assert (await ask(removal(asker=asked_by("right"))))[0] == passed
            assert (await ask(removal(asker=asked_by("root"))))[0] == passed
            # what a replica asks for itself is no operator's: its certificate is compared at the listener
            assert (await ask(removal(joiner=STRANGER)))[0] not in (refused, 0)
    lines = [json.loads(line) for line in path.with_name("audit.log.denied").read_text().splitlines()]
    denied = [
        (line["principal"], line["host"], line["operation"], line["resource_type"])
        for line in lines
        if line["kind"] == "denied"
    ]
    by_forwarding = ("User:wrong", AS_FORWARDED, "ALTER", "CLUSTER")
    assert denied == [by_forwarding] * 3 + [(ANONYMOUS, "", "ALTER", "CLUSTER")]


async def test_the_client_of_a_broker_is_who_the_leader_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with secured_node(tmp_path, monkeypatch) as node:
        await allow_right(node)
        remove = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=77, voter_directory_id=Uuid(bytes(STRANGER.directory_id))
        )
        for user, code in (
            ("wrong", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ("right", ErrorCode.VOTER_NOT_FOUND),
            ("root", ErrorCode.VOTER_NOT_FOUND),
        ):
            client = await node.client(user)
            assert (await client.call(remove, 0)).error_code == code
