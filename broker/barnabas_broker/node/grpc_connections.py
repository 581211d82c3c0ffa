"""How many connections one address has to the gRPC listeners of a node: gRPC takes them without asking, so they are counted now and
then, and the newest beyond the bound are shut down.

May touch:  the descriptors of this process: it looks at all, and shuts down connections of the given ports alone.
Must not touch: gRPC, requests.
Invariants: what is shut down was accepted at one of the ports, whatever descriptor numbers are used again meanwhile; looking takes no
            more than one in LOOK_SHARE of a core's time.
Read next:  control_service.py, which runs this; network/listener.py for the Kafka listeners, which count as they accept.

Between two looks a stranger may have as many as CONNECTIONS_MAX, which gRPC itself refuses more than (barnabas_wire/rpc/server.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1024
"""The most connections of one gRPC listener, from anywhere; a node of the cluster has two or three, an operator one."""
CONNECTIONS_MIN: Final = 128
LIMIT_SHARE: Final = 8
"""One in so many of the process's descriptors may be such a connection."""
ADDRESS_SHARE: Final = 2
"""One address may have one in so many of a listener's connections: several brokers may be on one host."""
LOOK_S: Final = 2.0
"""A look costs a thread a turn, and all descriptors: at two a second it was a tenth of what an idle broker takes (measured)."""
LOOK_SHARE: Final = 50
NOTED_EVERY_S: Final = 60.0
_DESCRIPTORS: Final = "/dev/fd"


class Peer(NamedTuple):
    """A peer that is connected to a port of ours."""

    port: int
    address: str
    peer_port: int


def connections_max(descriptors: int) -> int:
    """The most connections of one gRPC listener, in a process that may open `descriptors` files."""
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, descriptors // LIMIT_SHARE))


def surplus(known: Iterable[Peer], bound_of: Callable[[str], int]) -> list[Peer]:
    """Those beyond what their address may have at a port; `known` has the oldest first."""
    counts: dict[tuple[int, str], int] = defaultdict(int)
    beyond = []
    for peer in known:
        counts[peer.port, peer.address] += 1
        if counts[peer.port, peer.address] > bound_of(peer.address):
            beyond.append(peer)
    return beyond


class GrpcConnections:
    """Watches the listeners of one node."""

    def __init__(self, *, bound: int, address_max: int, overrides: Mapping[str, int]) -> None:
        """bound: connections of one address at one listener. address_max, overrides: max.connections.per.ip, which may lower it for
        all, and its overrides, which count as they are."""
        self._bound = min(bound, address_max)
        self._overrides = overrides
        self._ports: set[int] = set()
        self._seen: dict[Peer, None] = {}
        """Connections that are open, the oldest first."""
        self._noted_s = -NOTED_EVERY_S
        self.closed = 0
        """Since the start."""

    def watch(self, port: int) -> None:
        """The port has a gRPC listener now."""
        self._ports.add(port)

    async def run(self) -> None:
        """Look now and then until cancelled."""
        while True:
            began_s = time.monotonic()
            await asyncio.to_thread(self.look)
            await asyncio.sleep(max(LOOK_S, LOOK_SHARE * (time.monotonic() - began_s)))

    def look(self) -> None:
        """Shut down what is beyond the bounds. Blocks for some microseconds for each descriptor."""
        found = _connected(self._ports)
        self._seen = {peer: None for peer in self._seen if peer in found} | dict.fromkeys(found)
        beyond = surplus(self._seen, lambda address: self._overrides.get(address, self._bound))
        for peer in beyond:
            _shut_down(found[peer], peer)
            del self._seen[peer]
        self.closed += len(beyond)
        if beyond and time.monotonic() - self._noted_s >= NOTED_EVERY_S:
            self._noted_s = time.monotonic()
            logger.warning(
                "%s has more connections to the gRPC listener at port %d than one address may: the newest are closed; see "
                "max.connections.per.ip.overrides",
                beyond[0].address,
                beyond[0].port,
            )


def _connected(ports: set[int]) -> dict[Peer, int]:
    """Connections that were accepted at the ports, with their descriptors."""
    found: dict[Peer, int] = {}
    try:
        names = os.listdir(_DESCRIPTORS)
    except OSError as error:
        logger.debug("no connections are counted: %s", error)
        return found
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # it was closed meanwhile
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                peer = _peer_of(int(name), ports)
                if peer is not None:
                    found[peer] = int(name)
    return found


def _peer_of(descriptor: int, ports: set[int]) -> Peer | None:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        return _peer(connection, ports)


def _peer(connection: socket.socket, ports: set[int]) -> Peer | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    port = connection.getsockname()[1]
    if port not in ports:
        return None
    address, peer_port = connection.getpeername()[:2]
    return Peer(port, address.removeprefix("::ffff:"), peer_port)


def _shut_down(descriptor: int, peer: Peer) -> None:
    """As if the peer had: gRPC finds its end and lets go of it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        if _peer(connection, {peer.port}) == peer:  # else the number is another's by now
            connection.shutdown(socket.SHUT_RDWR)
