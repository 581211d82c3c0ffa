"""The addresses of this host: what a listener binds, and what advertised.listeners=auto leaves to the node.

May touch:  a socket that sends nothing.      Must not touch: asyncio, configuration.
Invariants: an address is as text that a client can connect to: no port, no zone, an IPv4 address in its own form.
Read next:  connection.py, which asks for each client; ../api/context.py, which tells it.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger(__name__)


def address_as_text(name: Any) -> str:
    """The host of a socket's name, as asyncio's transports have it; empty where there is none."""
    try:
        address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    except (TypeError, IndexError, ValueError):
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def hosts_to_bind(host: str, port: int, addresses: Iterable[tuple[str, int]]) -> str | list[str]:
    """What asyncio is to bind for one of a server's addresses: of `::` it takes IPv6 alone, and Kafka IPv4 too. addresses: all of the
    server's; where another of them takes IPv4 at that port, `::` does not. Nor does it at port 0: asyncio would draw two ports."""
    is_both = host == "::" and port and not any(port == other and ":" not in each for each, other in addresses)
    return ["::", "0.0.0.0"] if is_both else host


def address_towards(servers: Iterable[tuple[str, int]]) -> str:
    """The address of this host that leads to the first of these servers whose name resolves; else its name. Blocks while names are
    looked up. Nothing is sent: the kernel is asked for its route."""
    for host, port in servers:
        try:
            for family, kind, protocol, _, target in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(target)
                    return address_as_text(probe.getsockname())
        except OSError as error:
            logger.warning("advertised.listeners=auto: no way to %s:%d (%s)", host, port, error)
    return socket.gethostname()
