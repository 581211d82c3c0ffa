"""What an active controller does without being asked: fences, balances, elects, sweeps, hashes, and keeps the log moving.

May touch:  asyncio, the driver by `Deciding`.   Must not touch: gRPC, files, what a decision means.
Invariants: only an active controller with a whole image decides; the time for which it stood still counts against nobody;
            brokers that are dead at one look are fenced together, as those of a lost host are, up to a bound of records;
            heartbeats that came meanwhile go before the rest.
Read next:  controller_driver.py, which carries the decisions out; ../controller/sessions.py, who is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.partition_change import ElectedFrom
from barnabas_quorum.controller.requests_integrity import WriteImageHash
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.driver.broker_probe import BrokerProbe
from barnabas_quorum.driver.controller_stats import ControllerDriverStats
from barnabas_quorum.explain.brokers import Reach
from barnabas_wire.kafka.ids import BrokerId

logger = logging.getLogger(__name__)

PROBE_DELAY_MS = 100
"""From a broken heartbeat stream to the first look at the broker's listener."""
PROBE_DELAY_AFTER_ELECTION_MS = 250
"""The same on a new controller: its brokers need a moment to find it."""
PROBE_INTERVAL_MS = 150
PROBE_REFUSALS = 2
"""Refused connections in a row that prove the process dead."""
SIBLINGS_WAIT_MS = 50
"""A broker that is proven dead waits so long for those of its host whose connections broke as well, to be fenced with them."""
SESSION_TICK_MS = 100
"""How often an active controller looks at its sessions at least: how exactly it knows for how long it stood still."""
LATE_TICK_TOLD_MS = 1000
"""A controller that stood still for this long says so, in one line per LATE_TICKS_TOLD_EVERY_MS."""
LATE_TICKS_TOLD_EVERY_MS = 60_000
FENCE_PAUSE_MS = 100
"""Before a broker is fenced again when the first time was refused: the quorum takes no records, or there is a bug."""
BALANCE_PAUSE_S = 1.0
"""Between two runs of leader balancing when the first did as much as one may."""


class Deciding(Protocol):
    """What this needs of the driver."""

    @property
    def controller(self) -> Controller:
        """Whose decisions these are."""
        ...

    @property
    def stats(self) -> ControllerDriverStats:
        """Where they are counted."""
        ...

    @property
    def may_decide(self) -> bool:
        """Active, with an image that holds all that is committed."""
        ...

    @property
    def proposals(self) -> int:
        """Batches proposed so far."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether an answer waits for its commit."""
        ...

    def submit_unawaited(self, decide: Callable[[], ControllerResult[Any]]) -> None:
        """A decision that nobody waits for."""
        ...

    def fence(self, reasons: Mapping[BrokerId, str]) -> None:
        """These brokers were found dead."""
        ...

    def now_ms(self) -> int:
        """On the loop's clock."""
        ...


class PeriodicTasks:
    """The timers of one controller, and the probes it sends. Belongs to the control lane."""

    def __init__(self, driver: Deciding, probe: BrokerProbe) -> None:
        self._driver = driver
        self._probe = probe
        self._stood_still_ms: list[int] = []
        """The times that no line has reported yet."""
        self._tell_late_from_ms = 0
        self._hashed_at = 0
        """How many records had been proposed when the last image hash was."""
        self._tasks: asyncio.TaskGroup | None = None
        self._sessions_changed = asyncio.Event()
        self._activated = asyncio.Event()
        """Set while this controller is active: what only an active one does costs the others no timer."""

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start every timer in that group; probes join it."""
        self._tasks = tasks
        tasks.create_task(self._fence_stale_brokers())
        tasks.create_task(self._keep_moving())
        tasks.create_task(self._balance_leaders())
        tasks.create_task(self._sweep_tokens())
        tasks.create_task(self._elect_leaderless())
        tasks.create_task(self._agree_on_hashes())

    def end(self) -> None:
        """The group ends, and takes no more probes."""
        self._tasks = None

    def on_claimed(self) -> None:
        """This controller leads."""
        self._activated.set()
        self._hashed_at = self._driver.stats.records_proposed

    def on_released(self) -> None:
        """It leads no more."""
        self._activated.clear()

    def on_sessions_changed(self) -> None:
        """Look at the sessions now."""
        self._sessions_changed.set()

    def on_commit(self) -> None:
        """Records are committed: a hash may be due."""
        unhashed = self._driver.stats.records_proposed - self._hashed_at
        if self._driver.may_decide and unhashed >= self._driver.controller.config.image_hash_interval_records > 0:
            self._write_image_hash()

    async def _fence_stale_brokers(self) -> None:
        while True:
            await self._activated.wait()
            self._sessions_changed.clear()
            due_ms = self._driver.now_ms()
            wait_ms = self._fence_stale()
            due_ms += wait_ms
            # not wait_for: Python 3.11's loses a cancellation that comes in the same turn as the event
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._sessions_changed.wait()
            if self._driver.now_ms() > due_ms:
                self._give_back(self._driver.now_ms() - due_ms)

    def _fence_stale(self) -> int:
        """Fence the brokers that are dead. After how many ms the sessions are looked at again, unless they change before."""
        if not self._driver.may_decide:
            return SESSION_TICK_MS
        sessions = self._driver.controller.sessions
        stale = self._driver.controller.stale_brokers(now_ms=self._driver.now_ms())
        if stale:
            self._driver.stats.fenced_by_probe += sum(map(sessions.is_refused, stale))
            self._driver.fence({broker_id: self._reason(broker_id) for broker_id in stale})
            # heartbeats that came meanwhile go first
            is_refused = self._driver.controller.stale_brokers(now_ms=self._driver.now_ms())[:1] == stale[:1]
            return FENCE_PAUSE_MS if is_refused else 0
        deadline_ms = self._driver.controller.next_deadline_ms()
        if deadline_ms is None:
            return SESSION_TICK_MS
        return min(SESSION_TICK_MS, max(deadline_ms - self._driver.now_ms(), 1))

    def _reason(self, broker_id: BrokerId) -> str:
        sessions = self._driver.controller.sessions
        if sessions.is_refused(broker_id):
            return "its connection broke and its listener refuses connections"
        return "it did not come back" if sessions.is_absent(broker_id) else "its heartbeats fell silent"

    def _give_back(self, late_ms: int) -> None:
        """The tick came late: heartbeats may wait to be read, so nobody is judged by that time."""
        now_ms = self._driver.now_ms()
        self._driver.controller.sessions.give_back(late_ms, now_ms=now_ms)
        if late_ms < LATE_TICK_TOLD_MS:
            return
        self._stood_still_ms.append(late_ms)
        if now_ms >= self._tell_late_from_ms:
            self._tell_late_from_ms = now_ms + LATE_TICKS_TOLD_EVERY_MS
            logger.warning(
                "this controller stood still %d times, for %d ms at most; brokers are not fenced for that. Look whether its "
                "host is short of CPU time, swaps or was paused",
                len(self._stood_still_ms),
                max(self._stood_still_ms),
            )
            self._stood_still_ms.clear()

    async def _keep_moving(self) -> None:
        """A no-op record per idle interval (KIP-835)."""
        interval_ms = self._driver.controller.config.idle_interval_ms
        if interval_ms == 0:
            return
        while True:
            await self._activated.wait()
            proposals = self._driver.proposals
            await asyncio.sleep(interval_ms / 1000)
            # one that is still uncommitted says already that the quorum is stuck
            is_idle = proposals == self._driver.proposals and not self._driver.is_waiting
            if self._driver.may_decide and is_idle:
                self._driver.submit_unawaited(self._driver.controller.idle)

    async def _balance_leaders(self) -> None:
        config = self._driver.controller.config
        if not config.auto_leader_rebalance_enable:
            return
        pause_s: float = config.leader_imbalance_check_interval_seconds
        while True:
            await asyncio.sleep(pause_s)
            elections = self._driver.stats.leader_elections
            before = elections[ElectedFrom.PREFERRED]
            if self._driver.may_decide:
                self._driver.submit_unawaited(self._decide_balance)
            is_more = elections[ElectedFrom.PREFERRED] - before >= config.leader_imbalance_elections_max
            pause_s = BALANCE_PAUSE_S if is_more else config.leader_imbalance_check_interval_seconds

    async def _elect_leaderless(self) -> None:
        """A look now and then at partitions without a leader: every event that could give them one is acted on when it
        happens, but an unclean election may have been cut short by its bound."""
        interval_ms = self._driver.controller.config.unclean_leader_election_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            if self._driver.may_decide:
                self._driver.submit_unawaited(self._driver.controller.elect_leaderless)

    def _decide_balance(self) -> ControllerResult[int]:
        result = self._driver.controller.balance_leaders(now_ms=self._driver.now_ms())
        if result.response:
            logger.info("%d partitions go back to their preferred leaders", result.response)
        return result

    async def _sweep_tokens(self) -> None:
        interval_ms = self._driver.controller.config.delegation_token_expiry_check_interval_ms
        while True:
            await asyncio.sleep(interval_ms / 1000)
            if self._driver.may_decide:
                self._driver.submit_unawaited(self._driver.controller.sweep_tokens)

    async def _agree_on_hashes(self) -> None:
        """What the metadata hashes to, into the log now and then."""
        interval_ms = self._driver.controller.config.image_hash_interval_ms
        if interval_ms == 0:
            return
        while True:
            await asyncio.sleep(interval_ms / 1000)
            if self._driver.may_decide and self._driver.stats.records_proposed > self._hashed_at:
                self._write_image_hash()

    def _write_image_hash(self) -> None:
        if self._driver.controller.pending.features.has_integrity_records:
            self._driver.submit_unawaited(
                lambda: self._driver.controller.decide(WriteImageHash(), now_ms=self._driver.now_ms())
            )
        self._hashed_at = self._driver.stats.records_proposed

    # --- probes ---------------------------------------------------------------------------------------------------------

    def probe_absent_brokers(self) -> None:
        """Probe each live broker of which this controller has not heard since it became active."""
        for broker in self._driver.controller.pending.cluster.sorted_brokers():
            if not broker.is_fenced and self._driver.controller.sessions.is_absent(broker.id):
                self.start_probe(broker.id, broker.epoch, PROBE_DELAY_AFTER_ELECTION_MS)

    def start_probe(self, broker_id: BrokerId, broker_epoch: int, delay_ms: int) -> None:
        """Find out, after `delay_ms`, whether the broker still runs, until it is known."""
        if self._tasks is not None:
            self._tasks.create_task(self._probe_until_known(broker_id, broker_epoch, delay_ms))

    async def _probe_until_known(self, broker_id: BrokerId, broker_epoch: int, delay_ms: int) -> None:
        """Look at the listener of an absent broker until it is back, fenced, or proven dead."""
        refusals = 0
        while True:
            await asyncio.sleep(delay_ms / 1000)
            broker = self._driver.controller.pending.cluster.broker(broker_id)
            is_question = (
                self._driver.may_decide
                and broker is not None
                and broker.epoch == broker_epoch
                and not broker.is_fenced
                and self._driver.controller.sessions.is_absent(broker_id)
            )
            if not is_question or broker is None:
                return
            if refusals == PROBE_REFUSALS:
                controller = self._driver.controller
                wait_ms = SIBLINGS_WAIT_MS if controller.awaits_siblings(broker_id) else 0
                controller.sessions.note_refused(broker_id, from_ms=self._driver.now_ms() + wait_ms)
                self.on_sessions_changed()
                return
            reach = await self._probe(broker.endpoints)
            refusals = refusals + 1 if reach is Reach.REFUSED else 0
            if reach is Reach.LISTENS:
                self._driver.controller.sessions.note_listens(broker_id)
            # the state is looked at again above, whatever happened during the probe
            delay_ms = 0 if refusals == PROBE_REFUSALS else PROBE_INTERVAL_MS
