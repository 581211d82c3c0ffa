"""What the admin service says of a cluster's health."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
import pytest

from barnabas_quorum.controller import acls as controller_acls
from barnabas_wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc
from tests.broker.security.secured_node import PRINCIPAL_KEY, secured_node


@pytest.mark.attack("A7", "health names the ACLs of an older cluster that match no client")
async def test_acls_that_match_nobody_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with secured_node(tmp_path, monkeypatch) as node:
        root = await node.client("root")

        async def create(host: str, principal: str = "User:mallory") -> int:
            denial = AclCreation(
                resource_type=2,
                resource_name="payroll",
                resource_pattern_type=3,
                principal=principal,
                host=host,
                operation=3,
                permission_type=2,
            )
            answer = await root.call(CreateAclsRequest(creations=[denial]), 3)
            return int(answer.results[0].error_code)

        async def health() -> admin_pb2.DescribeHealthResponse:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{node.admin_port}") as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                return await stub.DescribeHealth(
                    admin_pb2.DescribeHealthRequest(), timeout=10, metadata=((PRINCIPAL_KEY, "User:root"),)
                )

        for host, principal in (("10.0.0.0/8", "User:mallory"), ("*", "user:mallory"), ("db.example", "User:mallory")):
            assert await create(host, principal)
        assert not (await health()).acls_in_vain
        with monkeypatch.context() as of_an_older_version:
            of_an_older_version.setattr(controller_acls, "why_in_vain", lambda entry: None)
            assert await create("10.0.0.0/8") == await create("*", "Group:admins") == await create("10.0.0.1") == 0
        found = await health()
    assert found.acls_in_vain_count == 2 and len(found.acls_in_vain) == 2
    for words in ("10.0.0.0/8", "Group"):
        assert any("DENY READ on TOPIC 'payroll'" in each and words in each for each in found.acls_in_vain)
    assert not [reason for reason in found.reasons if "acl" in reason]
