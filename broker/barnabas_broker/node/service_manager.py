"""What the service manager (systemd, Type=notify) hears: ready, stopping, alive, and why a start takes so long.

May touch:  a datagram socket.        Must not touch: how readiness is judged.
Invariants: without NOTIFY_SOCKET nothing is done; a manager that does not listen stops no node; READY=1 goes once, when the node can do
            its work; WATCHDOG=1 only while the lanes turn.
Read next:  ../metrics/health.py, whose judgement is passed on; deploy/systemd.

The protocol is sd_notify(3): lines KEY=VALUE in one datagram, to a path or, with "@" first, to an abstract name.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

LOOK_S = 0.1
"""The time between two checks whether the node is ready."""
STATUS_S = 5.0
"""After this long the reason for a late start is said, when it has changed."""


class ServiceManager:
    """The manager that started this process, if it wants to hear of it."""

    def __init__(self, address: str = "", *, watchdog_s: float | None = None) -> None:
        """address: NOTIFY_SOCKET, "" for none. watchdog_s: how long silence may last once the node is ready; None: for
        ever."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        """How long it bears silence."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceManager:
        """The one that an environment names."""
        watchdog = environment.get("WATCHDOG_USEC", "")
        return cls(environment.get("NOTIFY_SOCKET", ""), watchdog_s=int(watchdog) / 1e6 if watchdog.isdigit() else None)

    def notify(self, *lines: str) -> None:
        """Send lines such as STOPPING=1."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                out.connect(self._address)
                out.send("\n".join(lines).encode())
        except OSError as error:
            logger.debug("the service manager did not get %s: %s", lines[0], error)

    async def run(self, *, find_unready: Callable[[], Sequence[str]], find_dead: Callable[[], Sequence[str]]) -> None:
        """Say READY=1 once there is no reason against it, then that the lanes turn, until cancelled."""
        if not self._address:
            return
        loop = asyncio.get_running_loop()
        began_s, said = loop.time(), ""
        while reasons := find_unready():
            if loop.time() - began_s > STATUS_S and reasons[0] != said:
                said = reasons[0]
                self.notify(f"STATUS=starting: {said}")
            await asyncio.sleep(LOOK_S)
        self.notify("READY=1", "STATUS=in service")
        while self.watchdog_s is not None:
            if not find_dead():
                self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 3)
