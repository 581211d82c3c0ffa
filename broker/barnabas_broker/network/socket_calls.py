"""What the sending side asks of the operating system that Linux alone has, each with what stands for it elsewhere.

May touch:  sockets and descriptors that it is given.   Must not touch: the order in which bytes leave (output.py).
Invariants: a twin sends the same bytes; of copies and packets it may promise less.
Read next:  output.py, the caller; barnabas_wire/host_system.py, which says who is asked.

| Linux | elsewhere |
|---|---|
| sendfile in its four-argument form | pread and write, SLICE_BYTES at a time |
| TCP_CORK | nothing: framing may be a separate packet |
| TCP_CONGESTION | nothing: what the system has |
"""

from __future__ import annotations

import logging
import os
import socket as sockets
from asyncio.trsock import TransportSocket
from collections.abc import Callable

from barnabas_wire.host_system import has_linux

logger = logging.getLogger(__name__)

SLICE_BYTES = 256 * 1024
UNPACED = b"reno"
"""A congestion control that every Linux kernel has, and lets any process choose."""
CONGESTION_CONTROL_BYTES_MAX = 16
AnySocket = sockets.socket | TransportSocket

if has_linux():
    send_file: Callable[[int, int, int, int], int] = os.sendfile
    """Write a range of a file to a socket that does not block; returns the bytes taken, 0 at the end of the file. Raises BlockingIOError
    where there is no room."""

    def cork(socket: sockets.socket) -> None:
        """Only full segments leave from now on; TCP_NODELAY, set again, lets the rest go."""
        socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_CORK, True)

    def congestion_control_of(socket: AnySocket) -> bytes:
        """Its name."""
        found = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_CONGESTION, CONGESTION_CONTROL_BYTES_MAX)
        return found.rstrip(b"\0")

    def set_congestion_control(socket: AnySocket, name: bytes) -> None:
        """Choose it. Raises OSError."""
        socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_CONGESTION, name)

else:

    def send_file(target: int, source: int, position: int, size: int, /) -> int:
        """See above."""
        data = os.pread(source, min(size, SLICE_BYTES), position)
        return os.write(target, data) if data else 0

    def cork(socket: sockets.socket) -> None:
        """See above."""

    def congestion_control_of(socket: AnySocket) -> bytes:
        """See above."""
        return b""

    def set_congestion_control(socket: AnySocket, name: bytes) -> None:
        """See above."""


def accept_unpaced(listening: AnySocket) -> bytes:
    """Let the connections that this socket will accept send without pacing; returns what the kernel would have given them.

    BBR, where it is the kernel's default, paces by timers, also over loopback, where there is no path to be measured. The
    socket that listens must be set: one that ever had BBR keeps its timers whatever is set later (measured, 1 MiB
    fetches: 0.75 to 0.85 ms/MB as the kernel has it, 0.20 set when accepted, 0.15 set before).
    """
    default = congestion_control_of(listening)
    try:
        set_congestion_control(listening, UNPACED)
    except OSError as error:  # a kernel that allows no choice
        logger.debug("the kernel's congestion control stays: %s", error)
    return default


def send_paced_to_another_host(accepted: sockets.socket, congestion_control: bytes) -> None:
    """Give a connection from another host what the kernel would have given it, unless its route has its own choice."""
    try:
        if (
            accepted.getpeername()[0] != accepted.getsockname()[0]
            and congestion_control_of(accepted) == UNPACED != congestion_control
        ):
            set_congestion_control(accepted, congestion_control)
    except OSError as error:  # the peer is gone already
        logger.debug("a connection stays unpaced: %s", error)
