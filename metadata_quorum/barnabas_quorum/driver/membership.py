"""Changes of the voter set as a node drives them: the leader looks at who is to vote; others ask the leader, for an
operator or for themselves.

May touch:  asyncio, the Transport.   Must not touch: the rules (raft/membership.py), the log.
Invariants: nobody becomes a voter whose address does not answer with the very id and directory that is named, or which
            cannot speak the finalized kraft.version; kraft.version rises only when it is asked for; the asker is checked by the
            leader before it looks at anything, and again when the change begins.
Read next:  ../raft/membership.py; node.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.control_batches import KRAFT_VERSION
from barnabas_quorum.driver.transport import ReplicaIdentity, Transport, VoterChangeAnswer
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.membership import own_update
from barnabas_quorum.raft.membership import refusal as rule_refusal
from barnabas_quorum.raft.messages import ReplyError, VoterChange, VoterChangeKind, VoterChangeResult, VoterRefusal
from barnabas_quorum.raft.voters import Voter, VoterSet
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NODE_PRINCIPAL

logger = logging.getLogger(__name__)

CHANGES_MAX = 64
"""Changes that may wait; the core does one at a time and refuses the others."""

NOT_BEGUN = (ReplyError.NOT_LEADER_OR_FOLLOWER, ReplyError.BROKER_NOT_AVAILABLE)
"""Answers after which the log is sure not to hold the change."""

ASK_AGAIN_S = 0.1
"""Between two questions for a leader, and two attempts to begin; an election takes a few of these."""


MAY_BE_MADE = (ReplyError.NONE, ReplyError.REQUEST_TIMED_OUT)
"""Answers after which the voter set is another, or may become another."""

VotersGuard = Callable[[VoterChange, str, str], None]
"""(change, principal, host): raises the KafkaError that refuses it to that principal."""
OnVotersChanged = Callable[[str, str, VoterChange, VoterSet, VoterSet, str], None]
"""(principal, host, change, voters before, voters now, why nobody knows whether it is committed or ""): for the audit log."""


class Asker(NamedTuple):
    """On whose behalf a change is asked for."""

    principal: str
    host: str


class Change(NamedTuple):
    """A change on its way to the core. `done`: how it ended, or why it cannot begin at the moment."""

    change: VoterChange
    asker: Asker
    done: asyncio.Future[VoterChangeAnswer | VoterRefusal]


class VoterChanges:
    """What a node asks of the voter set, and what it is asked. Belongs to the node's loop."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        core: QuorumCore,
        me: Voter | None,
        transport: Transport,
        report: Callable[[Change], None],
        guard: VotersGuard | None = None,
        on_changed: OnVotersChanged | None = None,
    ) -> None:
        """`me`: this replica and its controller listener; None on a broker, which can never vote. `report` brings a change
        to the loop, which calls `begin` and `finish`. `guard`: None where there is no authorizer."""
        self._config = config
        self._core = core
        self._me = me
        self._transport = transport
        self._report = report
        self._guard = guard
        self._on_changed = on_changed
        self._last_correlation = 0
        self._in_hand = 0
        self._waiting: dict[int, asyncio.Future[VoterChangeAnswer | VoterRefusal]] = {}

    @property
    def identity(self) -> ReplicaIdentity:
        """What this replica is, for a leader that is asked to let it vote."""
        return ReplicaIdentity(self._core.me, 0, KRAFT_VERSION)

    async def handle(self, change: VoterChange, *, principal: str, client_host: str = "") -> VoterChangeAnswer:
        """A peer, or an operator by way of one, asks for a change. Answers when it is committed or refused.

        What passes by itself (the leader is new, another change is under way) is waited for as long as a request may take;
        Kafka refuses then (REQUEST_TIMED_OUT), and every client has to ask again.
        """
        core = self._core
        if not core.is_leader:
            return self._answer(
                ReplyError.NOT_LEADER_OR_FOLLOWER, f"node {core.me.id} does not lead the quorum; ask its leader"
            )
        if self._in_hand >= CHANGES_MAX:
            return self._answer(ReplyError.REQUEST_TIMED_OUT, f"{CHANGES_MAX} changes of the voter set wait already")
        asker = Asker(principal, client_host)
        if (refused := self._check(change, asker)) is not None:
            return refused
        self._in_hand += 1
        try:
            return await self._look_and_make(change, asker)
        finally:
            self._in_hand -= 1

    def _check(self, change: VoterChange, asker: Asker) -> VoterChangeAnswer | None:
        """The answer that refuses it, if its asker may not have it."""
        if self._guard is not None:
            try:
                self._guard(change, *asker)
            except KafkaError as error:
                return self._answer(ReplyError(error.code), error.message)
        return None

    async def _look_and_make(self, change: VoterChange, asker: Asker) -> VoterChangeAnswer:
        core = self._core
        if change.kind in (VoterChangeKind.ADD, VoterChangeKind.UPDATE):
            refusal = None
            if core.voter_history.last_offset < core.high_watermark:
                # what the committed set forbids is said first, or its asker would look for a mistake in the address
                refusal = rule_refusal(
                    change, voters=core.voters, caught_up={change.voter.key, change.joiner or change.voter.key}
                )
            refusal = refusal or await self._look_at(change.voter, core.voters.kraft_version)
            if refusal is not None:
                return self._answer(refusal.error, refusal.reason)
        elif change.kind is VoterChangeKind.UPGRADE and core.voters.kraft_version < KRAFT_VERSION:
            others = [voter for voter in core.voters if voter.key != core.me]
            for refusal in await asyncio.gather(*(self._look_at(voter, KRAFT_VERSION) for voter in others)):
                if refusal is not None:
                    return self._answer(refusal.error, refusal.reason)
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._config.request_timeout_ms / 1000
        before = core.voters
        while isinstance(outcome := await self._make(change, asker), VoterRefusal):
            if clock() >= give_up:
                return self._answer(outcome.error, outcome.reason)
            await asyncio.sleep(ASK_AGAIN_S)
            before = core.voters
        if self._on_changed is not None and core.voters != before and outcome.error in MAY_BE_MADE:
            self._on_changed(*asker, change, before, core.voters, outcome.reason)
        return outcome

    async def _make(self, change: VoterChange, asker: Asker) -> VoterChangeAnswer | VoterRefusal:
        """One attempt. Ends with a VoterRefusal when the change cannot begin at the moment."""
        self._last_correlation += 1
        correlation = self._last_correlation
        done: asyncio.Future[VoterChangeAnswer | VoterRefusal] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = done
        try:
            self._report(Change(change._replace(correlation=correlation), asker, done))
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                return await done
        except TimeoutError:
            return self._answer(
                ReplyError.REQUEST_TIMED_OUT,
                f"the change is in the log but not committed after {self._config.request_timeout_ms} ms; look whether a "
                "majority of the voters is up: barnabas quorum replicas",
            )
        finally:
            del self._waiting[correlation]

    def begin(self, change: Change, now_ms: int) -> None:
        """On the loop, with every promised offset handed over: let the core begin it."""
        if (
            refused := self._check(change.change, change.asker)
        ) is not None:  # the right may have gone while the change waited
            if not change.done.done():
                change.done.set_result(refused)
            return
        refusal = self._core.change_voters(change.change, now_ms)
        if refusal is not None and not change.done.done():
            change.done.set_result(refusal if refusal.is_passing else self._answer(refusal.error, refusal.reason))

    def finish(self, result: VoterChangeResult) -> None:
        """The core says how a change ended."""
        done = self._waiting.get(result.correlation)
        if done is not None and not done.done():
            done.set_result(self._answer(result.error, result.reason))

    async def ask_leader(self, change: VoterChange, *, principal: str, client_host: str = "") -> VoterChangeAnswer:
        """Bring a change to the leader, from any node; one that no longer leads has not begun it, so the next one is asked
        for as long as a request may take. Raises PeerUnreachable."""
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._config.request_timeout_ms / 1000
        while True:
            answer = await self._ask_once(change, principal, client_host)
            if answer.error not in NOT_BEGUN or clock() >= give_up:
                return answer
            await asyncio.sleep(ASK_AGAIN_S)

    async def _ask_once(self, change: VoterChange, principal: str, client_host: str) -> VoterChangeAnswer:
        leader = self._core.leader_endpoint
        if self._core.is_leader:
            return await self.handle(change, principal=principal, client_host=client_host)
        if leader is None:
            return self._answer(
                ReplyError.BROKER_NOT_AVAILABLE,
                "the quorum has no leader that this node knows; without a majority of its voters no change is possible",
            )
        # the leader waits until it may begin and for a commit, after a look at the new voter
        timeout_s = 3.5 * self._config.request_timeout_ms / 1000
        return await self._transport.change_voters(
            change, leader, principal=principal, client_host=client_host, timeout_s=timeout_s
        )

    async def keep_up(self) -> None:
        """Report this replica's own address to the leader when the voter set has another, and join if that is wanted.

        Looks every fetch timeout, as Kafka does; runs until cancelled.
        """
        me = self._me
        while me is not None:
            await asyncio.sleep(self._config.fetch_timeout_ms / 1000)
            change = own_update(me, voters=self._core.voters)
            if change is None and self._config.auto_join:
                change = self._core.auto_join(me)
            if change is None:
                continue
            try:
                answer = await self.ask_leader(change, principal=NODE_PRINCIPAL)
            except PeerUnreachable as error:
                logger.debug("no %s of this replica: %s", change.kind.value, error)
                continue
            if answer.error is ReplyError.NONE:
                logger.info("asked the leader to %s %s: done", change.kind.value, change.voter)
            else:
                logger.info("asked the leader to %s %s: %s", change.kind.value, change.voter, answer.reason)

    async def _look_at(self, voter: Voter, level: int) -> VoterRefusal | None:
        """Ask whoever listens at the address who it is, and whether it speaks that kraft.version."""
        try:
            found = await self._transport.describe(voter, timeout_s=self._config.request_timeout_ms / 1000)
        except PeerUnreachable as error:
            return VoterRefusal(
                ReplyError.REQUEST_TIMED_OUT,
                f"nobody answers for {voter.key} at {voter.address} ({error.message}): start the controller, or "
                "correct the address",
            )
        if found.key != voter.key:
            return VoterRefusal(
                ReplyError.INVALID_REQUEST,
                f"{voter.address} is node {found.key.id} with directory {found.key.directory_id}, not "
                f"{voter.key}: name what `barnabas storage info` says on that node",
            )
        if not found.kraft_version_min <= level <= found.kraft_version_max:
            return VoterRefusal(
                ReplyError.INVALID_REQUEST,
                f"{voter.key} speaks kraft.version {found.kraft_version_min} to {found.kraft_version_max}, not "
                f"{level}: run the same version of Barnabas on it",
            )
        return None

    def _answer(self, error: ReplyError, reason: str) -> VoterChangeAnswer:
        return VoterChangeAnswer(error, reason, self._core.leader_endpoint)
