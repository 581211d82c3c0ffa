"""The gRPC listeners: who is let in, in whose name, and how operators log in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from scramp import ScramClient

from barnabas_admin import pki
from barnabas_admin.client import AdminClient
from barnabas_admin.errors import AdminError
from barnabas_broker.config.keys import ConfigError
from barnabas_broker.node.properties import node_config
from barnabas_broker.security import callers as callers_module
from barnabas_broker.security.audit import AuditLog
from barnabas_broker.security.audit_config import AuditConfig
from barnabas_broker.security.callers import TOKEN_LIFETIME_MS, AdminCallers, caller
from barnabas_broker.security.grpc_security import ADMIN, GrpcListenerSecurity, load_grpc_security
from barnabas_quorum.driver.caller_ids import claimed_node_id
from barnabas_quorum.driver.grpc_transport import GrpcTransport, QuorumServicer
from barnabas_quorum.driver.transport import ReplicaIdentity
from barnabas_quorum.driver.verbs import VERBS
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.image.scram import ScramCredential, ScramImage, ScramUser
from barnabas_quorum.raft.messages import Reply, Request
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_quorum.raft.voters import Voter as QuorumVoter
from barnabas_quorum.records_security import ScramMechanism
from barnabas_wire.client.properties import AdminSecurity
from barnabas_wire.client.security import SaslLogin
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.rpc import (
    admin_pb2,
    admin_pb2_grpc,
    controller_pb2,
    login_pb2,
    login_pb2_grpc,
    quorum_pb2,
    quorum_pb2_grpc,
)
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, EitherDialer, PemIdentity, TlsDialer, UnknownPeer
from barnabas_wire.rpc.options import HANDSHAKE_TIMEOUT_KEY, HANDSHAKE_TIMEOUT_MS, SERVER_OPTIONS
from barnabas_wire.rpc.peers import PeerGuard, nodes_named, peer_name
from barnabas_wire.rpc.server import new_server

CLUSTER = str(Uuid(bytes(range(16))))
OTHER_CLUSTER = str(Uuid(bytes(range(1, 17))))
TIMEOUT_S = 5.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.init(directory)
    for node in (1, 2):
        pki.issue(directory, f"node-{node}", hosts=["127.0.0.1", peer_name(node, CLUSTER)])
    pki.issue(directory, "stranger", hosts=["127.0.0.1", peer_name(1, OTHER_CLUSTER)])
    pki.issue(directory, "alice")
    return directory


def properties(authority: Path, name: str, **more: str) -> dict[str, str]:
    """The properties of a node with TLS on both listeners."""
    return {
        "listener.security.protocol.map": "CONTROLLER:SSL,ADMIN:SSL",
        "ssl.keystore.location": str(authority / f"{name}.pem"),
        "ssl.truststore.location": str(authority / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    } | {key.replace("_", "."): value for key, value in more.items()}


def identity(authority: Path, name: str | None) -> PemIdentity:
    own = (authority / f"{name}.pem").read_bytes() if name else b""
    return PemIdentity(key=own, chain=own, roots=(authority / "ca.pem").read_bytes())


class Voter(quorum_pb2_grpc.QuorumServicer):
    """Grants every vote that comes through the listener."""

    async def Vote(self, request: Any, context: Any) -> Any:
        return quorum_pb2.VoteAnswer(is_granted=True)


@contextlib.asynccontextmanager
async def peer_listener(authority: Path, node: int = 1) -> AsyncIterator[int]:
    """A controller listener of a node; its port."""
    listener = load_grpc_security("CONTROLLER", properties(authority, f"node-{node}")).controller
    assert listener.credentials is not None
    server = new_server([PeerGuard(CLUSTER, claimed_node_id)])
    quorum_pb2_grpc.add_QuorumServicer_to_server(Voter(), server)  # type: ignore[abstract]  # one method is enough
    port = server.add_secure_port("127.0.0.1:0", listener.credentials.server_credentials(demands_certificate=True))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def vote(channel: grpc.aio.Channel, source: int) -> bool:
    header = quorum_pb2.CallHeader(cluster_id=CLUSTER, source=quorum_pb2.Replica(id=source))
    answer = await quorum_pb2_grpc.QuorumStub(channel).Vote(quorum_pb2.VoteCall(header=header), timeout=TIMEOUT_S)
    return bool(answer.is_granted)


async def refusal(
    authority: Path, name: str, port: int, *, source: int, cluster: str = CLUSTER
) -> grpc.aio.AioRpcError:
    """What a caller with this certificate hears when it votes as `source`."""
    async with await TlsDialer(lambda: (0, identity(authority, name)), cluster).open("127.0.0.1", port, 1) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await vote(channel, source)
    return refused.value


def test_a_name_says_which_node_of_which_cluster() -> None:
    assert peer_name(7, CLUSTER) == "node-7.000102030405060708090a0b0c0d0e0f"
    names = [peer_name(7, CLUSTER), "node-07." + "0" * 32, "node-1.abc", "NODE-1." + "0" * 32, "127.0.0.1", "node-1"]
    assert nodes_named(names) == [(7, CLUSTER)]


@pytest.mark.parametrize("kind", [x509.UniformResourceIdentifier, x509.RFC822Name])
@pytest.mark.attack("A7", "URIs and e-mail addresses of a certificate make nobody a node")
async def test_a_name_that_is_no_dns_name_makes_nobody_a_node(
    kind: type[x509.GeneralName], authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An authority may let its users choose e-mail addresses and URIs."""
    monkeypatch.setattr(pki, "_general_name", kind)
    pki.issue(authority, kind.__name__, hosts=[peer_name(2, CLUSTER)])
    async with peer_listener(authority) as port:
        refused = await refusal(authority, kind.__name__, port, source=2)
    assert refused.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_node_is_let_in_in_its_own_name(authority: Path) -> None:
    async with peer_listener(authority) as port:
        dialer = TlsDialer(lambda: (0, identity(authority, "node-2")), CLUSTER)
        async with await dialer.open("127.0.0.1", port, 1) as channel:
            assert await vote(channel, 2)
        async with await dialer.open("127.0.0.1", port) as channel:  # whose name is looked up first
            assert await vote(channel, 2)


async def test_another_nodes_certificate_is_refused(authority: Path) -> None:
    async with peer_listener(authority) as port:
        error = await refusal(authority, "node-2", port, source=3)
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "certificate of node 2" in str(error.details()) and "node 3's" in str(error.details())


REMOVE, UPDATE = quorum_pb2.ChangeVotersCall.REMOVE, quorum_pb2.ChangeVotersCall.UPDATE
ONE, TWO = quorum_pb2.Replica(id=1), quorum_pb2.Replica(id=2)


@contextlib.asynccontextmanager
async def replica_listener(authority: Path, *, port: int = 0, node: int | None = 1) -> AsyncIterator[int]:
    """A controller listener that says which replica it is of, with the certificate of a node or in plain text; its port."""
    server = new_server([] if node is None else [PeerGuard(CLUSTER, claimed_node_id)])
    identity_ = ReplicaIdentity(ReplicaKey(BrokerId(1), Uuid(bytes(16))), 0, 1)
    QuorumServicer(cluster_id=CLUSTER, handle=nobody_votes, identity=identity_).add_to(server)
    address = f"127.0.0.1:{port}"
    if node is None:
        port = server.add_insecure_port(address)
    else:
        credentials = load_grpc_security("CONTROLLER", properties(authority, f"node-{node}")).controller.credentials
        assert credentials is not None
        port = server.add_secure_port(address, credentials.server_credentials(demands_certificate=True))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def nobody_votes(request: Request) -> Reply:
    raise NotImplementedError


def dialer_in_the_change(authority: Path) -> Dialer:
    """Of node 2, whose own listener is in plain text still."""
    plain = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}
    listener = load_grpc_security(
        "CONTROLLER", properties(authority, "node-2") | plain, dials_plaintext=True
    ).controller
    assert listener.credentials is None and not listener.is_authenticated
    return listener.dialer(CLUSTER)


async def test_in_the_change_each_door_is_called_as_it_speaks_now(authority: Path) -> None:
    async with replica_listener(authority, node=None) as port:
        pass
    transport = GrpcTransport(cluster_id=CLUSTER, dialer=dialer_in_the_change(authority))
    voter = QuorumVoter(ReplicaKey(BrokerId(1), Uuid(bytes(16))), "127.0.0.1", port)

    async def answers() -> bool:
        try:
            return (await transport.describe(voter, timeout_s=TIMEOUT_S)).key == voter.key
        except PeerUnreachable:
            return False

    assert not await answers()
    for node in (None, 1, None, 1):  # the channel that was good for the one is dropped for the other
        async with replica_listener(authority, port=port, node=node):
            async with asyncio.timeout(TIMEOUT_S):
                while not await answers():
                    await asyncio.sleep(0.05)
            assert await answers()
        assert not await answers()
    await transport.close()


async def test_in_the_change_a_wrong_certificate_is_no_reason_for_plain_text(authority: Path, tmp_path: Path) -> None:
    pki.init(tmp_path / "pki")
    pki.issue(tmp_path / "pki", "node-1", hosts=["127.0.0.1", peer_name(1, CLUSTER)])
    for directory, name in ((tmp_path / "pki", 1), (authority, 2)):  # of another authority; of another node
        dialer = dialer_in_the_change(authority)
        async with replica_listener(directory, node=name) as port, await dialer.open("127.0.0.1", port, 1) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await vote(channel, 2)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert re.search(r"CERTIFICATE_VERIFY_FAILED|Hostname Verification Check", str(refused.value.details()))


async def test_in_the_change_whoever_speaks_neither_is_not_called(authority: Path) -> None:
    dialer = dialer_in_the_change(authority)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"SSH-2.0-barnabas\r\n")
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        # not called in plain text: what it said is no SETTINGS frame, and TLS is what it gets
        channel = await dialer.open("127.0.0.1", port, 1)
        with pytest.raises(grpc.aio.AioRpcError) as refused_call:
            await vote(channel, 2)
        assert "WRONG_VERSION_NUMBER" in str(refused_call.value.details())
        await channel.close()
    with pytest.raises(UnknownPeer, match="speaks neither") as refused:
        await dialer.open("127.0.0.1", port, 1)
    assert refused.value.is_refused
    assert dialer.generation >= 0  # a closed channel is no lost one


def test_the_change_needs_the_certificate_at_once(authority: Path) -> None:
    nothing = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}
    assert load_grpc_security("CONTROLLER", nothing).controller.dialer(CLUSTER) is PLAIN_DIALER
    with pytest.raises(ConfigError, match=r"controller\.listeners\.dial\.plaintext=true .*ssl\.keystore\.location"):
        load_grpc_security("CONTROLLER", nothing, dials_plaintext=True)
    secured = load_grpc_security("CONTROLLER", properties(authority, "node-1"), dials_plaintext=True).controller
    assert secured.is_authenticated and isinstance(secured.dialer(CLUSTER), EitherDialer)
    assert isinstance(
        load_grpc_security("CONTROLLER", properties(authority, "node-1")).controller.dialer(CLUSTER), TlsDialer
    )


def node_with(authority: Path, **more: str) -> dict[str, str]:
    listeners = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "log.dirs": "/nowhere",
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "controller.quorum.bootstrap.servers": "127.0.0.1:2",
    }
    return properties(authority, "node-1", **more) | listeners | more


def test_admin_listeners_have_a_protocol_each(authority: Path) -> None:
    both = {
        "admin.listeners": "OPEN://127.0.0.1:3,10.0.0.1:4",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,OPEN:PLAINTEXT,ADMIN:SSL",
    }
    found = node_config(node_with(authority, **both))
    at = [(point.listener, point.host, point.port) for point in found.server.admin_endpoints()]
    assert at == [("OPEN", "127.0.0.1", 3), (ADMIN, "10.0.0.1", 4)]
    assert {name: listener.is_authenticated for name, listener in found.grpc_security.admins.items()} == {
        "OPEN": False,
        ADMIN: True,
    }
    for wrong, says in (
        ({"admin.listeners": "OPEN://10.0.0.1:3"}, r"off loopback .*OPEN:SSL"),
        ({"admin.listeners": "CLOSED://127.0.0.1:3"}, r"does not name CLOSED"),
        ({"admin.listeners": "PLAINTEXT://127.0.0.1:3"}, r"name of its own"),
        ({"admin.listeners": "OPEN://127.0.0.1"}, r"write host:port"),
    ):
        with pytest.raises(ConfigError, match=says):
            node_config(node_with(authority, **(both | wrong)))


def test_a_replica_asks_for_its_own_vote_in_its_own_name_and_an_operator_in_nobodys() -> None:
    voter = quorum_pb2.Voter(replica=TWO)
    for call, claimed in (
        (quorum_pb2.ChangeVotersCall(kind=REMOVE, voter=voter), None),
        (quorum_pb2.ChangeVotersCall(kind=UPDATE, voter=voter), 2),
        (quorum_pb2.ChangeVotersCall(kind=REMOVE, voter=voter, joiner=ONE), 1),
    ):
        assert claimed_node_id(call) == claimed


@pytest.mark.parametrize("name", ["alice", "stranger"])
async def test_who_is_no_node_of_the_cluster_is_refused_on_the_peers_listener(authority: Path, name: str) -> None:
    async with peer_listener(authority) as port:
        error = await refusal(authority, name, port, source=1)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "pki issue" in str(error.details())


async def test_no_certificate_and_no_tls_reach_nothing(authority: Path) -> None:
    async with peer_listener(authority) as port:
        roots = grpc.ssl_channel_credentials((authority / "ca.pem").read_bytes())
        options = (("grpc.ssl_target_name_override", peer_name(1, CLUSTER)),)
        for channel in (
            grpc.aio.secure_channel(f"127.0.0.1:{port}", roots, options=options),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}"),
        ):
            async with channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await vote(channel, 1)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_wrong_authority_and_an_expired_certificate_reach_nothing(authority: Path, tmp_path: Path) -> None:
    pki.init(tmp_path / "other")
    pki.issue(tmp_path / "other", "node-2", hosts=[peer_name(2, CLUSTER)])
    forged = PemIdentity(
        key=(tmp_path / "other/node-2.pem").read_bytes(),
        chain=(tmp_path / "other/node-2.pem").read_bytes(),
        roots=(authority / "ca.pem").read_bytes(),
    )
    for name in ("ca.pem", "ca-key.pem"):
        (tmp_path / name).write_bytes((authority / name).read_bytes())
    pki.issue(tmp_path, "node-2", hosts=[peer_name(2, CLUSTER)], days=0)  # ends as it is made
    await asyncio.sleep(1.1)
    async with peer_listener(authority) as port:
        for own in (forged, identity(tmp_path, "node-2")):
            async with await TlsDialer(partial(lambda own: (0, own), own), CLUSTER).open(
                "127.0.0.1", port, 1
            ) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await vote(channel, 2)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_demands_the_name_of_the_node_it_means(authority: Path) -> None:
    async with peer_listener(authority) as port:
        dialer = TlsDialer(lambda: (0, identity(authority, "node-2")), CLUSTER)
        async with await dialer.open("127.0.0.1", port, 2) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await vote(channel, 2)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        elsewhere = TlsDialer(lambda: (0, identity(authority, "node-2")), OTHER_CLUSTER)
        with pytest.raises(UnknownPeer, match=f"no node of cluster {OTHER_CLUSTER}"):
            await elsewhere.open("127.0.0.1", port)


@pytest.mark.parametrize("first_words", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_who_does_not_finish_the_handshake_is_closed(
    authority: Path, monkeypatch: pytest.MonkeyPatch, first_words: bytes
) -> None:
    assert dict(SERVER_OPTIONS)[HANDSHAKE_TIMEOUT_KEY] == HANDSHAKE_TIMEOUT_MS
    options = dict(SERVER_OPTIONS) | {HANDSHAKE_TIMEOUT_KEY: 300}
    monkeypatch.setattr("barnabas_wire.rpc.server.SERVER_OPTIONS", tuple(options.items()))
    async with peer_listener(authority) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first_words)
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


def test_every_call_of_a_node_says_whose_it_is() -> None:
    own = {verb.call_type for verb in VERBS if verb.request_type.is_nodes_own}
    assert {type_.__name__ for type_ in own} >= {"RegisterBrokerCall", "AlterPartitionCall", "RegisterControllerCall"}
    assert all(claimed_node_id(type_()) == 0 for type_ in own)
    assert claimed_node_id(controller_pb2.HeartbeatMessage(broker_id=3)) == 3
    assert claimed_node_id(controller_pb2.UnregisterBrokerCall(broker_id=3)) is None  # whom somebody else wants gone


async def test_a_renewed_certificate_is_taken_without_a_restart(authority: Path, tmp_path: Path) -> None:
    for name in ("ca.pem", "ca-key.pem", "node-1.pem", "node-2.pem"):
        (tmp_path / name).write_bytes((authority / name).read_bytes())
        os.chmod(tmp_path / name, 0o600)
    listener = load_grpc_security("CONTROLLER", properties(tmp_path, "node-1")).controller
    credentials = listener.credentials
    assert credentials is not None
    server = new_server([PeerGuard(CLUSTER, claimed_node_id)])
    quorum_pb2_grpc.add_QuorumServicer_to_server(Voter(), server)  # type: ignore[abstract]  # one method is enough
    port = server.add_secure_port("127.0.0.1:0", credentials.server_credentials(demands_certificate=True))
    await server.start()
    dialer = TlsDialer(lambda: (0, identity(tmp_path, "node-2")), CLUSTER)
    async with await dialer.open("127.0.0.1", port, 1) as channel:
        assert await vote(channel, 2)
    pki.issue(tmp_path, "node-1", hosts=[peer_name(5, CLUSTER)], is_renewal=True)
    with pytest.raises(ConfigError, match=r"has no DNS name node-1\."):
        credentials.reload_if_changed(lambda new: new.check_identity(1, CLUSTER))
    (tmp_path / "node-1.pem").write_text("half a fi")
    with pytest.raises(ConfigError, match=r"not a private key"):
        credentials.reload_if_changed()
    async with await dialer.open("127.0.0.1", port, 1) as channel:
        assert await vote(channel, 2)  # what it had is kept
    (tmp_path / "node-1.pem").unlink()
    pki.issue(tmp_path, "node-1", hosts=[peer_name(1, CLUSTER), peer_name(9, CLUSTER)])
    assert credentials.reload_if_changed() and not credentials.reload_if_changed()
    assert credentials.current()[0] == 1
    async with await dialer.open("127.0.0.1", port, 9) as channel:
        assert await vote(channel, 2)
    await server.stop(None)


# -- what a node's properties may say ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}, "speaks PLAINTEXT, SSL"),
        ({"listener.security.protocol.map": "ADMIN:SASL_PLAINTEXT"}, "speaks PLAINTEXT, SSL, SASL_SSL"),
        ({"listener.security.protocol.map": "ADMIN:SASL_SSL"}, "operators log in with SCRAM alone"),
        ({"ssl.keystore.location": ""}, "has no certificate"),
        ({"ssl.truststore.location": ""}, "set ssl.truststore.location"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "cannot be limited"),
        ({"ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384"}, "cannot be chosen"),
    ],
)
def test_a_listener_that_cannot_be_as_it_is_said_does_not_start(
    authority: Path, changes: Mapping[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_grpc_security("CONTROLLER", properties(authority, "node-1") | dict(changes))


def test_off_loopback_a_listener_needs_authentication_or_words(authority: Path) -> None:
    node = {
        "process.roles": "controller",
        "node.id": "1",
        "log.dirs": "/tmp/nothing-is-written",
        "controller.quorum.bootstrap.servers": "10.0.0.1:9093",
    }
    controller = node | {"listeners": "CONTROLLER://10.0.0.1:9093"}
    admin = node | {"listeners": "CONTROLLER://127.0.0.1:9093", "admin.listeners": "0.0.0.0:9190"}
    for open_listener, key in ((controller, "controller.listeners"), (admin, "admin.listeners")):
        with pytest.raises(ConfigError, match=f"{key}.allow.remote=true"):
            node_config(open_listener)
        assert node_config(open_listener | {f"{key}.allow.remote": "true"}).server.is_controller
        assert node_config(open_listener | properties(authority, "node-1")).server.is_controller


def test_a_certificate_of_another_node_does_not_start(authority: Path) -> None:
    credentials = load_grpc_security("CONTROLLER", properties(authority, "node-2")).controller.credentials
    assert credentials is not None
    credentials.check_identity(2, CLUSTER)
    assert credentials.cluster_of(2) == CLUSTER
    for node, cluster in ((1, CLUSTER), (2, OTHER_CLUSTER)):
        with pytest.raises(ConfigError, match=f"--node {node} --cluster-id {cluster}"):
            credentials.check_identity(node, cluster)
    with pytest.raises(ConfigError, match="says it 0 times"):
        credentials.cluster_of(1)


# -- operators ---------------------------------------------------------------------------------------------------------


class Admin(admin_pb2_grpc.AdminServicer):
    """Says who calls."""

    async def DescribeCluster(self, request: Any, context: Any) -> Any:
        return admin_pb2.DescribeClusterResponse(cluster_id=caller.get())


def credential(password: str) -> ScramCredential:
    from scramp import ScramMechanism as Scramp

    salt, stored_key, server_key, iterations = Scramp("SCRAM-SHA-256").make_auth_info(password)
    return ScramCredential(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


class Desk:
    """An admin listener, with one user and a clock that the test turns."""

    def __init__(self, listener: GrpcListenerSecurity, audit: AuditLog) -> None:
        assert listener.credentials is not None
        self.users = {ScramUser("alice", ScramMechanism.SCRAM_SHA_256): credential("hers")}
        self.now_ms = 0
        self.callers = AdminCallers(
            listener,
            credentials=lambda: ScramImage(credentials=self.users),
            clock_ms=lambda: self.now_ms,
            audit=audit,
        )
        self.server = new_server([self.callers])
        self.callers.add_to(self.server)
        admin_pb2_grpc.add_AdminServicer_to_server(Admin(), self.server)  # type: ignore[abstract]  # one method is enough
        certificates = listener.credentials.server_credentials(demands_certificate=not listener.protocol.has_sasl)
        self.port = self.server.add_secure_port("127.0.0.1:0", certificates)

    async def who_am_i(self, client: AdminClient) -> str:
        return (await asyncio.to_thread(client.describe_cluster)).cluster_id

    async def client(self, security: AdminSecurity | None) -> AdminClient:
        return AdminClient(f"127.0.0.1:{self.port}", timeout_s=TIMEOUT_S, security=security)


@contextlib.asynccontextmanager
async def desk(authority: Path, protocol: str, audit_path: str = "") -> AsyncIterator[Desk]:
    settings = properties(authority, "node-1") | {
        "listener.security.protocol.map": f"{ADMIN}:{protocol}",
        "listener.name.admin.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    audit = AuditLog(AuditConfig(audit_log_path=audit_path), node_id=1, clock_ms=lambda: 0)
    opened = Desk(load_grpc_security("CONTROLLER", settings).admins[ADMIN], audit)
    audit.start()
    await opened.server.start()
    try:
        yield opened
    finally:
        await opened.server.stop(None)
        audit.close()


def admin_security(authority: Path, name: str | None, login: SaslLogin | None = None) -> AdminSecurity:
    own = (authority / f"{name}.pem").read_bytes() if name else None
    return AdminSecurity(roots=(authority / "ca.pem").read_bytes(), own=own, login=login)


async def test_an_operator_is_who_the_certificate_says(authority: Path) -> None:
    async with desk(authority, "SSL") as opened:
        with await opened.client(admin_security(authority, "alice")) as client:
            assert await opened.who_am_i(client) == "User:alice"
        for security, reported in ((None, "speaks TLS"), (admin_security(authority, None), "no node answers")):
            with await opened.client(security) as client, pytest.raises(AdminError, match=reported):
                await opened.who_am_i(client)


async def test_an_operator_logs_in_and_keeps_a_token_for_ten_minutes(authority: Path) -> None:
    async with desk(authority, "SASL_SSL") as opened:
        login = SaslLogin("SCRAM-SHA-256", "alice", "hers")
        with await opened.client(admin_security(authority, None, login)) as client:
            assert await opened.who_am_i(client) == "User:alice"
            opened.now_ms = TOKEN_LIFETIME_MS - 1
            assert await opened.who_am_i(client) == "User:alice"
            opened.now_ms = TOKEN_LIFETIME_MS
            with pytest.raises(AdminError, match="log in first"):
                await opened.who_am_i(client)
            assert await opened.who_am_i(client) == "User:alice"  # the client logs in again
            opened.users[ScramUser("alice", ScramMechanism.SCRAM_SHA_256)] = credential("another")
            with pytest.raises(AdminError, match="log in first"):  # whose password was changed is out at once
                await opened.who_am_i(client)
            with pytest.raises(AdminError, match="user or password is wrong"):
                await opened.who_am_i(client)


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (None, "log in first"),
        (SaslLogin("SCRAM-SHA-256", "alice", "guessed"), "user or password is wrong"),
        (SaslLogin("SCRAM-SHA-256", "nobody", "guessed"), "user or password is wrong"),
        (SaslLogin("SCRAM-SHA-512", "alice", "hers"), "takes SCRAM-SHA-256"),
    ],
)
async def test_who_does_not_log_in_is_refused(authority: Path, login: SaslLogin | None, words: str) -> None:
    async with desk(authority, "SASL_SSL") as opened:
        with (
            await opened.client(admin_security(authority, None, login)) as client,
            pytest.raises(AdminError, match=words),
        ):
            await opened.who_am_i(client)


async def test_a_made_up_token_is_nobodys(authority: Path) -> None:
    async with desk(authority, "SASL_SSL") as opened:
        roots = grpc.ssl_channel_credentials((authority / "ca.pem").read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{opened.port}", roots) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            for words in ("Bearer x", "Bearer ", "x"):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.DescribeCluster(
                        admin_pb2.DescribeClusterRequest(), timeout=TIMEOUT_S, metadata=(("authorization", words),)
                    )
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.attack(
    "A4", "a made-up bearer and a wrong password at the admin listener are audited, with the user's name"
)
async def test_who_is_refused_is_in_the_audit_log(authority: Path, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with desk(authority, "SASL_SSL", str(path)) as opened:
        roots = grpc.ssl_channel_credentials((authority / "ca.pem").read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{opened.port}", roots) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await admin_pb2_grpc.AdminStub(channel).DescribeCluster(
                    admin_pb2.DescribeClusterRequest(), timeout=TIMEOUT_S, metadata=(("authorization", "Bearer x"),)
                )
        guessing = admin_security(authority, None, SaslLogin("SCRAM-SHA-256", "alice", "guessed"))
        with await opened.client(guessing) as client, pytest.raises(AdminError, match="user or password is wrong"):
            await opened.who_am_i(client)
    refused = [json.loads(line) for line in path.with_name("audit.log.login-refused").read_text().splitlines()]
    assert ("", "token") in [(line["user"], line["how"]) for line in refused]
    assert ("alice", "SCRAM") in [(line["user"], line["how"]) for line in refused]
    assert {(line["listener"], line["host"]) for line in refused} == {("admin", "127.0.0.1")}


@pytest.mark.attack("A7", "the admin listener gives no token for a login begun with the former password")
async def test_a_login_begun_before_the_password_changed_gets_no_token(authority: Path) -> None:
    async with desk(authority, "SASL_SSL") as opened:
        roots = grpc.ssl_channel_credentials((authority / "ca.pem").read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{opened.port}", roots) as channel:
            stub, client = login_pb2_grpc.LoginStub(channel), ScramClient(["SCRAM-SHA-256"], "alice", "hers")
            first = login_pb2.BeginLoginRequest(
                mechanism="SCRAM-SHA-256", client_first=client.get_client_first().encode()
            )
            begun = await stub.BeginLogin(first, timeout=TIMEOUT_S)
            client.set_server_first(begun.server_first.decode())
            opened.users[ScramUser("alice", ScramMechanism.SCRAM_SHA_256)] = credential("another")
            final = login_pb2.FinishLoginRequest(
                exchange=begun.exchange, client_final=client.get_client_final().encode()
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.FinishLogin(final, timeout=TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


class Peer:
    """The context of a call from an address."""

    def __init__(self, host: str) -> None:
        self._host = host

    def peer(self) -> str:
        return f"ipv4:{self._host}:1"

    async def abort(self, code: grpc.StatusCode, words: str) -> None:
        raise PermissionError(words)


@pytest.mark.attack("A7", "logins that one address begins, and tokens that one user takes, push out no other's")
async def test_who_begins_too_many_logins_pushes_out_none_of_others(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers_module, "EXCHANGES_MAX", 10)
    monkeypatch.setattr(callers_module, "TOKENS_MAX", 10)
    async with desk(authority, "SASL_SSL") as opened:
        opened.users[ScramUser("mallory", ScramMechanism.SCRAM_SHA_256)] = credential("his")

        async def begin(user: str, password: str, host: str) -> tuple[ScramClient, bytes]:
            client = ScramClient(["SCRAM-SHA-256"], user, password)
            first = client.get_client_first().encode()
            request = login_pb2.BeginLoginRequest(mechanism="SCRAM-SHA-256", client_first=first)
            begun = await opened.callers.BeginLogin(request, Peer(host))
            client.set_server_first(begun.server_first.decode())
            return client, begun.exchange

        async def finish(client: ScramClient, exchange: bytes) -> str:
            final = client.get_client_final().encode()
            request = login_pb2.FinishLoginRequest(exchange=exchange, client_final=final)
            return str((await opened.callers.FinishLogin(request, Peer("10.0.0.1"))).token)

        honest = await begin("alice", "hers", "10.0.0.1")
        for _ in range(50):
            await begin("nobody", "guess", "10.0.0.66")
        token = await finish(*honest)
        for _ in range(50):
            await finish(*await begin("mallory", "his", "10.0.0.66"))
        roots = grpc.ssl_channel_credentials((authority / "ca.pem").read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{opened.port}", roots) as channel:
            answer = await admin_pb2_grpc.AdminStub(channel).DescribeCluster(
                admin_pb2.DescribeClusterRequest(), timeout=TIMEOUT_S, metadata=(("authorization", f"Bearer {token}"),)
            )
    assert answer.cluster_id == "User:alice"
