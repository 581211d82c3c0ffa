"""One node in this process, with an authorizer, a listener for anonymous clients and one for those who log in.

May touch:  one node in this process, loopback.   Must not touch: other nodes.
Invariants: users log in with PLAIN, their password is their name; `root` and `broker` are super users; the admin listener believes who a
            call says it is, which takes the place of its own authentication.
Read next:  test_authorization_matrix.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.main import main as server_main
from barnabas_broker.node import servers as servers_module
from barnabas_broker.node.control_lane import ControlLane
from barnabas_broker.node.descriptor_budget import split_descriptors
from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import node_config
from barnabas_broker.node.real_world import RealWorld
from barnabas_quorum.image.authorizer import STANDARD_AUTHORIZER
from barnabas_wire.kafka.ids import ANONYMOUS, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from barnabas_wire.kafka.schema import decode_response, encode_request, message_classes

USERS = ("right", "wrong", "peer", "root", "broker")
PRINCIPAL_KEY = "test-principal"
TIMEOUT_S = 30.0


class Client:
    """One connection, of a user or of nobody."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int, user: str = "") -> Client:
        """Log in as `user`, or be anonymous."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        if user:
            assert (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
            token = f"\0{user}\0{user}".encode()
            assert (await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code == 0
        return client

    async def call(self, request: Any, version: int) -> Any:
        """The answer; raises IncompleteReadError when the connection is closed instead."""
        is_flexible = version >= request.FLEXIBLE_FROM
        out = bytearray(struct.pack(">hhih", request.API_KEY, version, 1, -1) + (b"\0" if is_flexible else b""))
        encode_request(request, version, out)
        self._writer.write(struct.pack(">i", len(out)) + out)
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            answer = await self._reader.readexactly(size)
        has_tags = is_flexible and request.API_KEY != ApiKey.API_VERSIONS
        return decode_response(message_classes(request.API_KEY)[1], version, memoryview(answer), 4 + has_tags)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()


class SecuredNode:
    """Where it listens."""

    def __init__(self, anonymous: int, sasl: int, admin: int, controller: int) -> None:
        self.anonymous_port, self.sasl_port, self.admin_port = anonymous, sasl, admin
        self.controller_port = controller

    async def client(self, user: str = "") -> Client:
        """A connection of the user, or of nobody."""
        return await Client.connect(self.sasl_port if user else self.anonymous_port, user)


@contextlib.asynccontextmanager
async def secured_node(
    directory: Path, monkeypatch: pytest.MonkeyPatch, **overrides: str
) -> AsyncIterator[SecuredNode]:
    """It runs, and serves."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
    anonymous, sasl, controller, admin, metrics = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    logins = " ".join(f'user_{name}="{name}"' for name in USERS)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"OPEN://127.0.0.1:{anonymous},LOGIN://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"x.PlainLoginModule required {logins};",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root;User:broker",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "admin.listeners": f"127.0.0.1:{admin}",
        "metrics.listeners": f"127.0.0.1:{metrics}",
        "log.dirs": str(directory / "data"),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "delegation.token.secret.key": "no-secret-at-all",
        **{key.replace("_", "."): value for key, value in overrides.items()},
    }

    def identify(context: Any) -> str:
        return dict(context.invocation_metadata()).get(PRINCIPAL_KEY, ANONYMOUS)

    monkeypatch.setattr(servers_module, "AdminEdge", partial(AdminEdge, identify=identify))
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    path.chmod(0o600)
    cluster_id = str(Uuid(bytes(range(16))))
    assert server_main(["format", "-c", str(path), "--cluster-id", cluster_id, "--standalone"]) == 0
    lane, stop = ControlLane(), asyncio.Event()
    node = Node(
        node_config(properties),
        RealWorld(control=lane, descriptors=split_descriptors(1024, connections_wanted=64, reserve_wanted=32)),
    )
    running = asyncio.create_task(node.run(stop))
    try:
        secured = SecuredNode(anonymous, sasl, admin, controller)
        await until(partial(_is_serving, secured), running)
        yield secured
    finally:
        stop.set()
        await asyncio.wait_for(running, TIMEOUT_S)
        lane.close()


async def _is_serving(node: SecuredNode) -> bool:
    try:
        client = await node.client("root")
    except (OSError, asyncio.IncompleteReadError):
        return False
    await client.close()
    return True


async def until(condition: Callable[[], Any], running: asyncio.Task[Any] | None = None) -> None:
    """Ask again until it holds; raises what ended the node."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            if running is not None and running.done():
                running.result()
            await asyncio.sleep(0.02)
