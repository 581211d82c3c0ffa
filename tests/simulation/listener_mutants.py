"""Bugs planted into the Kafka listener: framing, order, quotas, logins and rights.

May touch:  the real code, in memory.  Must not touch: files, the simulation itself.
Invariants: each falls where clients come through the listener (Slant.LISTENERS), and needs nothing else.
Read next:  node_mutants.py, which hunts them; barnabas_simulation/listener_laws.py and strangers.py, which find them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_broker.api import fetch
from barnabas_broker.network import framing
from barnabas_broker.network.connection import Connection
from barnabas_broker.network.requests import ClientRequests
from barnabas_broker.security.access import AccessControl
from barnabas_broker.security.sasl.plain import Plain

Plant = Callable[[pytest.MonkeyPatch], None]
ANY_SIZE = 0x7FFF_FFFF


def _everybody_may_fetch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "_may_read", lambda access, replica_id, topic: True)


def _rights_are_those_of_the_login(patch: pytest.MonkeyPatch) -> None:
    original = AccessControl.of

    def of(self: AccessControl, principal: str, host: str) -> Any:
        acls = None if self._authorizer is None else self.acls()
        return original(AccessControl(self._authorizer, acls=lambda: acls), principal, host)  # type: ignore[arg-type,return-value]

    patch.setattr(AccessControl, "of", of)


def _answers_leave_as_they_are_ready(patch: pytest.MonkeyPatch) -> None:
    original = Connection.slot_filled

    def slot_filled(self: Connection, size_bytes: int) -> None:
        self._slots = deque(sorted(self._slots, key=lambda slot: not slot.is_done))
        original(self, size_bytes)

    patch.setattr(Connection, "slot_filled", slot_filled)


def _a_frame_of_any_size_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    original = framing.FrameReader.__init__

    def init(self: framing.FrameReader, buffers: Any, **bounds: Any) -> None:
        original(self, buffers, frame_bytes_max=ANY_SIZE, bytes_max_of=lambda kind: ANY_SIZE)

    patch.setattr(framing.FrameReader, "__init__", init)


def _a_throttle_never_ends(patch: pytest.MonkeyPatch) -> None:
    def unmute(self: ClientRequests) -> None:
        self._is_exclusive = self._is_waiting or self._throttles > 0
        if not self._is_closed:
            self._go_on()

    patch.setattr(ClientRequests, "_unmute", unmute)


def _a_bad_frame_ends_every_connection(patch: pytest.MonkeyPatch) -> None:
    original = ClientRequests._close_refused

    def close_refused(self: Any, counted: str, kind: int | None, reason: str) -> None:
        original(self, counted, kind, reason)
        for connection in tuple(self._listener._connections):
            connection.close(counted)

    patch.setattr(ClientRequests, "_close_refused", close_refused)


def _any_password_will_do(patch: pytest.MonkeyPatch) -> None:
    def step(self: Plain, token: bytes) -> bytes:
        self.claimed = self.user = token.decode().split("\0")[1]
        return b""

    patch.setattr(Plain, "step", step)


def _who_has_not_logged_in_is_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientRequests, "_is_let_in", lambda self, api, frame_bytes: True)


LISTENER_BUGS: tuple[tuple[str, Plant], ...] = (
    ("everybody may fetch, whatever the ACLs say", _everybody_may_fetch),
    ("rights are those that the login found", _rights_are_those_of_the_login),
    ("answers leave as they are ready", _answers_leave_as_they_are_ready),
    ("a frame of any size is waited for", _a_frame_of_any_size_is_waited_for),
    ("a throttle never ends", _a_throttle_never_ends),
    ("a bad frame ends every connection of its listener", _a_bad_frame_ends_every_connection),
    ("any password will do", _any_password_will_do),
    ("who has not logged in is served", _who_has_not_logged_in_is_served),
)
