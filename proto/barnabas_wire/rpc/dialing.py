"""How a node, or an operator, connects to the gRPC door of a node: in plain text, or with mutual TLS and the name it demands.

May touch:  grpc.aio, ssl (to look whose certificate an address shows).      Must not touch: files.
Invariants: with TLS no call goes to a node whose certificate does not carry the demanded name; renewed credentials raise
            `generation`, and whoever holds channels of an older one makes new ones.
Read next:  peers.py; options.py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import grpc.aio

from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.rpc.options import CHANNEL_OPTIONS, address_of
from barnabas_wire.rpc.peers import nodes_named, peer_name

LOOK_TIMEOUT_S = 1.0
"""How long an address may take to show its certificate."""


class UnknownPeer(Exception):
    """An address at which no node of the cluster shows itself; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PemIdentity:
    """Credentials in PEM: one's own private key and certificate chain, and the authorities that others are checked with."""

    key: bytes = field(repr=False)
    chain: bytes
    roots: bytes


class Dialer(Protocol):
    """Opens channels to nodes."""

    @property
    def generation(self) -> int:
        """Rises when channels that were opened before have old credentials."""
        ...

    @property
    def demands_names(self) -> bool:
        """Whether a channel is good for one node alone, and not for whoever listens at the address."""
        ...

    async def open(self, host: str, port: int, node_id: int | None = None) -> grpc.aio.Channel:
        """A channel to a node.

        Args:
            node_id: whose certificate is demanded; None, or below 0: any node's of the cluster that is there now.

        Raises UnknownPeer.
        """
        ...


class PlainDialer:
    """Without TLS: for doors on loopback."""

    generation = 0
    demands_names = False

    async def open(self, host: str, port: int, node_id: int | None = None) -> grpc.aio.Channel:
        """See Dialer; asks for no name."""
        return grpc.aio.insecure_channel(address_of(host, port), options=CHANNEL_OPTIONS)


PLAIN_DIALER = PlainDialer()


class TlsDialer:
    """With mutual TLS."""

    demands_names = True

    def __init__(self, identity: Callable[[], tuple[int, PemIdentity]], cluster_id: str) -> None:
        """identity: the credentials of the moment, and their generation."""
        self._identity = identity
        self._cluster_id = cluster_id

    @property
    def generation(self) -> int:
        """See Dialer."""
        return self._identity()[0]

    async def open(self, host: str, port: int, node_id: int | None = None) -> grpc.aio.Channel:
        """See Dialer."""
        _, identity = self._identity()
        if node_id is None or node_id < 0:
            node_id = await self._look(host, port, identity)
        credentials = grpc.ssl_channel_credentials(identity.roots, identity.key, identity.chain)
        name = peer_name(node_id, self._cluster_id)
        options = (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name), ("grpc.default_authority", name))
        return grpc.aio.secure_channel(address_of(host, port), credentials, options=options)

    async def _look(self, host: str, port: int, identity: PemIdentity) -> BrokerId:
        """Which node of the cluster is at an address: gRPC's Python shows no certificates, so this makes a connection to see it.
        The name that is found is then demanded of the channel: what answers there is checked again."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # a node's name is looked for below
        context.load_verify_locations(cadata=identity.roots.decode("ascii"))
        context.set_alpn_protocols(["h2"])
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                _, writer = await asyncio.open_connection(host, port, ssl=context)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            raise UnknownPeer(
                f"{address_of(host, port)} shows no certificate that counts: {error or 'no answer'}"
            ) from None
        certificate: dict[str, Any] = writer.get_extra_info("ssl_object").getpeercert() or {}
        writer.transport.abort()
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        for node, cluster in nodes_named(names):
            if cluster == self._cluster_id:
                return node
        raise UnknownPeer(
            f"{address_of(host, port)} is no node of cluster {self._cluster_id}: its certificate names {', '.join(names) or 'none'}"
        )
