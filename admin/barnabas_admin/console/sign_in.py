"""Who is signed in to the console: each session asks the cluster in its own user's name, with that user's rights.

May touch:  its sessions, the clock.  Must not touch: HTTP, templates, passwords after the login.
Invariants: a session exists only for a login that the cluster took, and takes still: it is asked again every PROOF_S_MAX; a session that
            rests ends; there are at most SESSIONS_MAX, and who begins too many ends their own; wrong logins of one address delay those
            of no other; the console's own credentials answer nobody.
Read next:  application.py, which keeps everybody else out.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable

from barnabas_admin.client import AdminClient
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.history import History
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.lazy_dataclass import dataclass

REST_S_MAX = 30 * 60
SESSIONS_MAX = 200
PROOF_S_MAX = 60
"""For how long a session continues after its user's password was changed or the user was deleted."""
REFUSAL_PAUSE_S = 0.5
"""What a refused login waits for: a password is not guessed by the thousand."""
LOGINS_AT_ONCE = 4
"""Sign-ins at once of one address, the pauses after refusals included."""
LOGINS_AT_ONCE_OF_ALL = 16
"""That the cluster is asked at a time."""


@dataclass(slots=True)
class Session:
    """One browser that is signed in."""

    user: str
    cluster: ConsoleCluster
    used_s: float
    token: str
    """What its forms carry."""
    proven_s: float
    """When the cluster last let the user in."""


class _Turns:
    """Logins of one address."""

    def __init__(self) -> None:
        self.at_once = asyncio.Semaphore(LOGINS_AT_ONCE)
        self.waiting = 0


class SignIn:
    """The sessions of one console. Belongs to one event loop."""

    def __init__(
        self, open_as: Callable[[str, str], ConsoleCluster], *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """open_as: the cluster in the name of (user, password)."""
        self._open_as = open_as
        self._clock_s = clock_s
        self._sessions: dict[str, Session] = {}
        self._logins = asyncio.Semaphore(LOGINS_AT_ONCE_OF_ALL)
        self._of_address: dict[str, _Turns] = {}

    async def begin(self, user: str, password: str, history: History | None, *, address: str = "") -> str:
        """Log in to the cluster from an address; returns the session's secret name. Raises KafkaError where the cluster refuses,
        OSError."""
        turns = self._of_address.setdefault(address, _Turns())
        turns.waiting += 1
        try:
            async with turns.at_once:
                cluster = await self._log_in(user, password)
        finally:
            turns.waiting -= 1
            if not turns.waiting:
                self._of_address.pop(address, None)
        cluster.history = history
        await self._drop_rested()
        if len(self._sessions) >= SESSIONS_MAX:
            await self.end(self._whose_place(user))
        name = secrets.token_urlsafe(32)
        now_s = self._clock_s()
        self._sessions[name] = Session(user, cluster, now_s, secrets.token_urlsafe(24), now_s)
        return name

    def _whose_place(self, user: str) -> str:
        """The session that one more of the user's ends: their own that rested longest, else one of who has most."""
        of_user = Counter(session.user for session in self._sessions.values())
        names = [name for name, session in self._sessions.items() if session.user == user] or self._sessions
        return min(names, key=lambda name: (-of_user[self._sessions[name].user], self._sessions[name].used_s))

    async def _log_in(self, user: str, password: str) -> ConsoleCluster:
        cluster = self._open_as(user, password)
        try:
            async with self._logins:
                await cluster.admin(AdminClient.describe_cluster)
        except KafkaError as error:
            if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # that one is who it says, and may do little
                await cluster.close()
                await asyncio.sleep(REFUSAL_PAUSE_S)
                raise
        except OSError:
            await cluster.close()
            raise
        return cluster

    async def find(self, name: str) -> Session | None:
        """The session of that name, which is used by this; None when there is none any more."""
        await self._drop_rested()
        session = self._sessions.get(name)
        if session is not None:
            session.used_s = self._clock_s()
            if session.used_s - session.proven_s >= PROOF_S_MAX:
                session.proven_s = session.used_s
                if not await self._is_let_in(session):
                    await self.end(name)
                    return None
        return session

    async def _is_let_in(self, session: Session) -> bool:
        """Whether the cluster takes the login still. A cluster that does not answer is no reason to sign in again."""
        for _ in range(2):  # the first may tell of a token that has ended, and the second logs in again
            try:
                await session.cluster.admin(AdminClient.describe_cluster)
            except KafkaError as error:
                if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                    return True
            except OSError:
                return True
            else:
                return True
        return False

    async def end(self, name: str) -> None:
        """Forget a session, and close its connections."""
        session = self._sessions.pop(name, None)
        if session is not None:
            await session.cluster.close()

    async def close(self) -> None:
        """End every session."""
        for name in tuple(self._sessions):
            await self.end(name)

    async def _drop_rested(self) -> None:
        oldest_s = self._clock_s() - REST_S_MAX
        for name in [name for name, session in self._sessions.items() if session.used_s < oldest_s]:
            await self.end(name)
