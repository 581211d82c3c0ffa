"""What a connection holds beyond its answers: one thing under a name, so many names, nothing once it is gone."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.api.context import HELD_MAX, RequestContext
from barnabas_coordination.errors import MemberIdRequired
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support import single_broker as single_broker_module
from tests.support.listener import RawClient
from tests.support.single_broker import single_broker


class Groups:
    """Gives out ids."""

    def __init__(self) -> None:
        self.pending: list[str] = []

    async def join_group(self, request: Any) -> Any:
        self.pending.append(f"{request.group_id}-{len(self.pending)}")
        raise MemberIdRequired(self.pending[-1])

    def forget_pending_member(self, group_id: str, member_id: str) -> None:
        self.pending.remove(member_id)


@pytest.mark.attack("A5", "a connection holds one member id of a group")
async def test_a_connection_holds_one_member_id_of_a_group_and_none_once_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 JoinGroups of one client, which had left, were kept for half an hour."""
    groups = Groups()
    monkeypatch.setattr(single_broker_module, "_NoGroups", lambda: groups)
    async with single_broker(tmp_path) as broker:
        assert broker.server is not None
        clients = [await RawClient.connect(broker.server) for _ in range(2)]
        for group in ("a", "a", "b", "a"):
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            request = JoinGroupRequest(
                group_id=group, session_timeout_ms=1_800_000, protocol_type="consumer", protocols=protocols
            )
            for client in clients:
                answer = await client.call(request, 9)
                assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                assert answer.member_id == groups.pending[-1]
        assert sorted(each[0] for each in groups.pending) == ["a", "a", "b", "b"]
        await clients[0].close()
        async with asyncio.timeout(5):
            while len(groups.pending) > 2:
                await asyncio.sleep(0.01)
    assert groups.pending == [], "those of connections that a stop ends, too"


def test_a_connection_holds_so_many_things() -> None:
    gone: list[int] = []
    held: dict[str, Any] = {}
    for number in range(HELD_MAX + 3):
        context = RequestContext(
            api_key=ApiKey.JOIN_GROUP,
            api_version=9,
            correlation_id=1,
            client_id="",
            listener_name="PLAINTEXT",
            client_host="127.0.0.1",
            now_ms=0,
            held=held,
        )
        context.hold(f"thing {number}", partial(gone.append, number))
    assert gone == [0, 1, 2] and len(held) == HELD_MAX
    context.hold("thing 7", partial(gone.append, -7))
    assert gone == [0, 1, 2, 7] and len(held) == HELD_MAX
