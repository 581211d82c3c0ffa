"""The edge of the admin listener: every call is counted by how it ended, and a bug ends one call only."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from barnabas_broker.admin.edge import CANCELLED, AdminEdge, CallersController
from barnabas_broker.admin.errors import ERROR_METADATA_KEY
from barnabas_broker.security.access import AccessControl
from barnabas_broker.security.callers import host_of
from barnabas_quorum.controller.requests import CreateTopics
from barnabas_quorum.image.acls import EMPTY_ACLS
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, BrokerId
from barnabas_wire.rpc import admin_pb2


class Context:
    """What a service is given of a call."""

    status: grpc.StatusCode | None = None
    detail: admin_pb2.ErrorDetail | None = None

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:50000"

    async def abort(self, status: grpc.StatusCode, text: str, trailer: Any) -> None:
        self.status = status
        ((key, value),) = trailer
        assert key == ERROR_METADATA_KEY
        self.detail = admin_pb2.ErrorDetail.FromString(value)


async def ending(outcome: str | Exception) -> str:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def test_an_answer_and_a_refusal_are_counted_with_their_times() -> None:
    edge, context = AdminEdge(BrokerId(7)), Context()
    assert await edge.answer("Explain", context, ending("because")) == "because" and context.status is None
    refusal = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic t")
    assert await edge.answer("Explain", context, ending(refusal)) is None
    assert context.status is grpc.StatusCode.NOT_FOUND and context.detail is not None
    assert context.detail.message == "no topic t"
    assert edge.stats.requests == {("Explain", "NONE"): 1, ("Explain", "UNKNOWN_TOPIC_OR_PARTITION"): 1}
    assert sum(edge.stats.seconds["Explain"].counts) == 2


async def test_a_bug_is_a_status_that_names_the_node() -> None:
    edge, context = AdminEdge(BrokerId(7)), Context()
    await edge.answer("ReadLog", context, ending(ZeroDivisionError("oh")))
    assert context.status is grpc.StatusCode.INTERNAL and context.detail is not None
    assert context.detail.message == "ReadLog failed on node 7: ZeroDivisionError('oh')"


async def test_a_followed_log_is_counted_when_it_is_left_and_is_no_slow_call() -> None:
    edge = AdminEdge(BrokerId(7))
    following = asyncio.ensure_future(edge.answer("ReadLog", Context(), asyncio.sleep(60)))
    await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert edge.stats.requests == {("ReadLog", CANCELLED): 1} and edge.stats.seconds == {}


async def test_who_may_not_is_refused_before_anything_is_done() -> None:
    access = AccessControl(Authorizer(super_users=["User:root"]), acls=lambda: EMPTY_ACLS)
    begun = []

    async def work() -> str:
        begun.append(True)
        return "done"

    context = Context()
    assert await AdminEdge(BrokerId(7), access).answer("ListTopics", context, work()) is None
    assert context.detail is not None and context.detail.name == "CLUSTER_AUTHORIZATION_FAILED" and not begun
    root = AdminEdge(BrokerId(7), access, identify=lambda _: "User:root")
    assert await root.answer("ListTopics", Context(), work()) == "done"


async def test_the_controller_is_asked_on_behalf_of_the_caller() -> None:
    asked: list[tuple[str, str]] = []

    class Controller:
        async def ask(self, request: Any, *, principal: str, client_host: str, timeout_ms: int | None) -> Any:
            asked.append((principal, client_host))

    controller = CallersController(Controller())  # type: ignore[arg-type]
    for edge in (AdminEdge(BrokerId(7)), AdminEdge(BrokerId(7), identify=lambda _: "User:ann")):
        await asyncio.create_task(edge.answer("CreateTopics", Context(), controller.ask(CreateTopics(topics=()))))
    assert asked == [(ANONYMOUS, "::1"), ("User:ann", "::1")]


@pytest.mark.parametrize(
    ("peer", "host"), [("ipv4:10.0.0.9:4711", "10.0.0.9"), ("ipv6:%5B::1%5D:4711", "::1"), ("unix:/run/socket", "")]
)
def test_the_address_of_a_caller(peer: str, host: str) -> None:
    context = Context()
    context.peer = lambda: peer  # type: ignore[method-assign]
    assert host_of(context) == host
