"""How a node, or an operator, connects to the gRPC listener of a node: in plain text, or with mutual TLS and the name it demands.

May touch:  grpc.aio, ssl and sockets (to look what an address speaks, and whose certificate it shows).   Must not touch: files.
Invariants: with TLS no call goes to a node whose certificate does not carry the demanded name; an address is called in plain text
            only by who was made to do so, and by an EitherDialer where it has shown that it speaks plain HTTP/2; renewed
            credentials raise `generation`, and whoever keeps channels of an older one makes new ones.
Read next:  peers.py; options.py.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.rpc.options import CHANNEL_OPTIONS, address_of

if TYPE_CHECKING:
    import grpc.aio

LOOK_TIMEOUT_S = 1.0
"""How long an address may take to show its certificate, or what it speaks."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""With an empty SETTINGS frame (RFC 9113, 3.4)."""
_FRAME_HEADER_BYTES, _FRAME_TYPE_AT, _SETTINGS = 9, 3, 4
"""The first frame of whoever speaks HTTP/2 is SETTINGS."""


class UnknownPeer(Exception):
    """An address at which no node of the cluster shows itself; says why. `is_refused`: its host answers, but no process listens."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


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
    """Without TLS: for listeners on loopback."""

    generation = 0
    demands_names = False

    async def open(self, host: str, port: int, node_id: int | None = None) -> grpc.aio.Channel:
        """See Dialer; asks for no name."""
        import grpc.aio  # a broker in a test's own process dials nobody, and does without gRPC

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

    @property
    def identity(self) -> PemIdentity:
        """The credentials of the moment."""
        return self._identity()[1]

    async def open(self, host: str, port: int, node_id: int | None = None) -> grpc.aio.Channel:
        """See Dialer."""
        import grpc.aio

        from barnabas_wire.rpc.peers import peer_name

        identity = self.identity
        if node_id is None or node_id < 0:
            node_id = await self._look(host, port, identity)
        credentials = grpc.ssl_channel_credentials(identity.roots, identity.key, identity.chain)
        name = peer_name(node_id, self._cluster_id)
        options = (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name), ("grpc.default_authority", name))
        return grpc.aio.secure_channel(address_of(host, port), credentials, options=options)

    async def _look(self, host: str, port: int, identity: PemIdentity) -> BrokerId:
        """Which node of the cluster is at an address: gRPC's Python shows no certificates, so this makes a connection to see it.
        The name that is found is then demanded of the channel: what answers there is checked again."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                _, writer = await asyncio.open_connection(host, port, ssl=_looking(identity))
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            raise UnknownPeer(
                f"{address_of(host, port)} shows no certificate that counts: {error or 'no answer'}"
            ) from None
        from barnabas_wire.rpc.peers import nodes_named

        certificate: dict[str, Any] = writer.get_extra_info("ssl_object").getpeercert() or {}
        writer.transport.abort()
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        for node, cluster in nodes_named(names):
            if cluster == self._cluster_id:
                return node
        raise UnknownPeer(
            f"{address_of(host, port)} is no node of cluster {self._cluster_id}: its certificate names {', '.join(names) or 'none'}"
        )


class EitherDialer:
    """For the time in which the listeners of a cluster go over from plain text to TLS, or back: each address is called as it speaks
    now. Anybody between two nodes can keep them in plain text for as long as this is in use, which is what they had before.

    A node comes back speaking the other of the two: a channel that has lost its address therefore raises `generation`.
    """

    demands_names = True

    def __init__(self, tls: TlsDialer) -> None:
        self._tls = tls
        self._losses = 0
        self._opened: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()

    @property
    def generation(self) -> int:
        """See Dialer; whoever keeps channels looks before each call."""
        import grpc

        lost = [
            channel for channel in self._opened if channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        ]
        if lost:
            self._losses += 1
            self._opened.difference_update(lost)
        return self._tls.generation + self._losses

    async def open(self, host: str, port: int, node_id: int | None = None) -> grpc.aio.Channel:
        """See Dialer. In plain text no name is asked for."""
        dialer: Dialer = PLAIN_DIALER if await self._speaks_plainly(host, port) else self._tls
        channel = await dialer.open(host, port, node_id)
        self._opened.add(channel)
        return channel

    async def _speaks_plainly(self, host: str, port: int) -> bool:
        """Raises UnknownPeer for an address that speaks neither."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                # TLS first: gRPC writes a line about every plain word that a listener with TLS hears
                if await self._shakes_hands(host, port) or not await _greets_plainly(host, port):
                    return False
        except (OSError, TimeoutError, EOFError) as error:
            raise UnknownPeer(
                f"{address_of(host, port)} speaks neither TLS nor plain text: {error or 'no answer'}",
                is_refused=isinstance(error, ConnectionRefusedError),
            ) from None
        return True

    async def _shakes_hands(self, host: str, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(host, port, ssl=_looking(self._tls.identity))
        except ssl.SSLCertVerificationError:
            return True  # it does, and is refused where the certificate counts
        except (ssl.SSLError, ConnectionResetError):
            return False
        writer.transport.abort()
        return True


async def _greets_plainly(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_HTTP2_PREFACE)
        header = await reader.readexactly(_FRAME_HEADER_BYTES)
    finally:
        writer.transport.abort()
    return header[_FRAME_TYPE_AT] == _SETTINGS


def _looking(identity: PemIdentity) -> ssl.SSLContext:
    """To see a certificate that the authorities have signed; whose it is, is looked at afterwards."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=identity.roots.decode("ascii"))
    context.set_alpn_protocols(["h2"])
    return context
