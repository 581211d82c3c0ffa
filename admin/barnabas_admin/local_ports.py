"""Loopback ports for a cluster of this host: which are free, and which span a cluster is given.

May touch:  loopback sockets.         Must not touch: processes, files but the kernel's range of ports.
Invariants: on Linux no two processes are given one span before the nodes of the first listen.
Read next:  local_cluster.py, which says what listens where within a span.
"""

from __future__ import annotations

import secrets
import socket
from collections import deque
from pathlib import Path

from barnabas_admin.errors import LocalClusterError
from barnabas_wire.host_system import has_linux

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
PORTS_SPAN = 80
"""Every port of a cluster lies in base_port … base_port + PORTS_SPAN − 1."""
CLAIMS_MAX = 4
_claims: deque[socket.socket] = deque()
"""Names that say to other processes which spans of ports this one was given last."""


def is_port_free(port: int) -> bool:
    """Whether a listener could bind the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def find_dev_port() -> int:
    """DEFAULT_PORT where the whole span from there is free, else another below the ephemeral range."""
    if all(is_port_free(port) for port in range(DEFAULT_PORT, DEFAULT_PORT + PORTS_SPAN)):
        return DEFAULT_PORT
    return find_base_port()


def ephemeral_ports() -> range:
    """The ports that the kernel gives to outgoing connections: one of them may be taken at any moment."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return range(32768, 61000)


def find_base_port(start: int = 20000, end: int = 30000) -> int:
    """A base port below the ephemeral range with a whole free span, which no other process has just been given."""
    for _ in range(200):
        base = start + secrets.randbelow((end - start) // PORTS_SPAN) * PORTS_SPAN
        if all(is_port_free(port) for port in range(base, base + PORTS_SPAN)) and _claim(base):
            return base
    raise LocalClusterError(f"no {PORTS_SPAN} free ports in a row between {start} and {end}")


def _claim(base_port: int) -> bool:
    """Whether no process of this network namespace had the span. It stays claimed until this process has been given CLAIMS_MAX
    others: its nodes listen by then. Where Linux's abstract names are missing two that ask at once may still meet."""
    if not has_linux():
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0barnabas-ports-{base_port}")  # abstract: gone with the process, however that ends
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    if len(_claims) > CLAIMS_MAX:
        _claims.popleft().close()
    return True
