"""Whether the cluster may have replaced this broker without its knowledge; then it serves no clients.

May touch:  asyncio.                  Must not touch: sockets, gRPC, logs, images.
Invariants: a broker without whose vote there is no quorum, or from which other brokers fetch, is never taken for cut
    off; once cut off it stays so until a controller unfences it or one of these shows.
Read next:  lifecycle.py, which keeps what controllers say; readiness.py and ../network/listener.py, which obey.

Why: a leader that is cut off answers the clients that still reach it: from an old list of leaders, an old log, an old
group. A client whose only open connection is this one (librdkafka) asks it for the leaders again and again, and
stays stuck long after the others have elected a new one. Closed and refused, the client asks another broker. Kafka and
Redpanda keep serving, and let their clients time out.

The other side of it: while the quorum is lost, leaders keep serving, as in Kafka. A broker cannot distinguish the two
for certain, so all of this must hold before it closes its listeners to clients:
- No heartbeat that it sent within the last broker.session.timeout.ms was answered. The controller's clock begins when the
  heartbeat comes in, so its judgement is never the earlier one.
- There may be a quorum without this node: a majority of the voters, itself not counted, neither says that it knows no
  leader nor refuses the connection (then its host is there, and the process is not).
- It leads partitions with other in-sync replicas, and no broker has fetched from it for half that time. A follower fetches
  until it learns of a new leader.

Known limits: a broker that shares its node with the active controller is answered by it until that resigns for want of a
majority, and its session begins then. Where most hosts of the controllers lose their power and those of all its followers
too, a leader that is left closes its listeners to clients, although no other replaced it; acks=all would wait in vain
there. A broker that follows only, or whose in-sync followers are all gone from the ISR, never does: no other could be
elected from that ISR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from barnabas_broker.metadata.readiness import Readiness
from barnabas_wire.kafka.ids import BrokerId

logger = logging.getLogger(__name__)

CHECK_MS = 100


class ControllerContact(Protocol):
    """What the heartbeats show; the control lane writes it."""

    answered_ms: int | None
    """When the newest heartbeat that was answered had been sent, on the monotonic clock; None before the first."""
    is_fenced: bool
    """What the newest answer said."""
    may_quorum_stand: bool
    """See `may_quorum_stand`."""


def may_quorum_stand(*, broker_id: BrokerId, voters: Collection[BrokerId], leaderless: Collection[BrokerId]) -> bool:
    """Whether the voters may have a leader without this node.

    Args:
        leaderless: the voters whose last word was that they know no leader, or that refuse connections.
    """
    candidates = sum(1 for voter in voters if voter != broker_id and voter not in leaderless)
    return candidates > len(voters) // 2


def is_isolated(
    *,
    was_isolated: bool,
    is_fenced: bool,
    unanswered_ms: int,
    session_timeout_ms: int,
    may_quorum_stand: bool,
    is_left_alone: Callable[[], bool],
) -> bool:
    """The rule.

    Args:
        unanswered_ms: since the newest answered heartbeat was sent.
        is_left_alone: whether it leads for in-sync followers and none of them fetches; asked last, since it may look at
            every partition.
    """
    if unanswered_ms < session_timeout_ms:
        return was_isolated and is_fenced
    return may_quorum_stand and is_left_alone()


class IsolationWatch:
    """Applies the rule every CHECK_MS where it may say something new: not while the newest answer is young, and it serves.
    Data lane only."""

    def __init__(
        self,
        *,
        contact: ControllerContact,
        readiness: Readiness,
        is_left_alone: Callable[[int], bool],
        serve_clients: Callable[[bool], None],
        session_timeout_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            is_left_alone: see ReplicaManager.is_left_alone.
            serve_clients: closes the clients' connections and refuses new ones (False), or takes them again (True).
            clock_ms: the monotonic clock of `contact`.
        """
        self._contact = contact
        self._readiness = readiness
        self._is_left_alone = is_left_alone
        self._serve_clients = serve_clients
        self._session_timeout_ms = session_timeout_ms
        self._clock_ms = clock_ms

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._pause_ms() / 1000)
            self.look()

    def _pause_ms(self) -> int:
        """An answer that comes meanwhile only puts off the moment from which the rule can say more than no."""
        if self._contact.answered_ms is None or self._readiness.is_isolated:
            return CHECK_MS
        return max(CHECK_MS, self._contact.answered_ms + self._session_timeout_ms - self._clock_ms())

    def look(self) -> None:
        """Judge once."""
        contact = self._contact
        answered_ms = contact.answered_ms
        if answered_ms is None:
            return
        unanswered_ms = self._clock_ms() - answered_ms
        was_isolated = self._readiness.is_isolated
        isolated = is_isolated(
            was_isolated=was_isolated,
            is_fenced=contact.is_fenced,
            unanswered_ms=unanswered_ms,
            session_timeout_ms=self._session_timeout_ms,
            may_quorum_stand=contact.may_quorum_stand,
            is_left_alone=lambda: self._is_left_alone(self._session_timeout_ms // 2),
        )
        if isolated == was_isolated:
            return
        self._readiness.is_isolated = isolated
        if isolated:
            logger.warning(
                "this broker is cut off: no controller answered for %d ms and no follower fetches, so others may lead what it "
                "led. It serves no clients until a controller answers; check its network",
                unanswered_ms,
            )
        else:
            logger.info("this broker is cut off no more: it serves clients again")
        self._serve_clients(not isolated)
