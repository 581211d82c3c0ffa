"""The broker's session with the active controller: register, heartbeat, serve while unfenced, leave in order.

May touch:  asyncio, the controller client.   Must not touch: gRPC, images, logs, replicas.
Invariants: it asks to be unfenced only when the node is ready, its log directories name its registration durably, and that is
            applied here; it heartbeats only while the data lane moves; one incarnation id per process; the broker epoch never
            falls.
Read next:  silence.py; ../controller_client/client.py; barnabas_quorum/controller/brokers.py for what the controller makes of it.

Belongs to the control lane. `broker_epoch`, `state`, `is_fenced`, `answered_ms` and `may_quorum_stand` are plain fields that
any lane may read.

Not obvious
- Applied means applied on the data lane: the node calls `on_metadata_published` when replicas and coordinators have taken
  their roles. Unfenced any earlier, the broker would be a leader that answers NOT_LEADER_OR_FOLLOWER.
- `answered_ms` is when the newest answered heartbeat was *sent*: a session counted from there ends no later than the
  controller's own. Heartbeats of one stream are answered in their order.
- A data lane that hangs keeps its connections open and its control lane heartbeating: without the check of its last tick
  such a broker would lead for ever. A process that was stopped (a debugger, a paused VM) is no such hang: what this lane woke late
  is taken off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from typing import Any, Protocol

from barnabas_broker.controller_client.client import ControllerClient, ControllerUnreachable, HeartbeatStream
from barnabas_broker.metadata.config import LifecycleConfig
from barnabas_broker.metadata.isolation import may_quorum_stand
from barnabas_broker.metadata.silence import Silence
from barnabas_quorum.controller.requests import (
    NO_BROKER_EPOCH,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    NotActiveController,
    RegisterBroker,
)
from barnabas_quorum.raft.messages import LeaderAndEpoch
from barnabas_quorum.records import FeatureRange
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Endpoint, Offset, Uuid
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MS_MAX = 500
TOLD_MAX = 100
"""Different troubles with controllers that are logged until heartbeats are answered again."""
REGISTRATION_RETRY_MS = 250
HELD_RETRY_MS = 2000
"""While the controllers wait for an operator's sign-off of a bad metadata record."""
DATA_LANE_RECHECK_MS = 250
SHUTDOWN_HEARTBEAT_MS = 100
"""How often a broker that waits for its leave asks again."""
REGISTRATION_WARN_MS = 10_000
"""A broker that could not register for so long may need an operator; before, it is no news."""
NEVER_SERVED_LEAVE_MS = 1000
"""How long a broker that was never unfenced waits for its leave."""
_STALE_CODES = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
_RETRIED_CODES = frozenset(
    {
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class BrokerState(Enum):
    """The broker's state; Kafka's names."""

    NOT_RUNNING = "not-running"
    STARTING = "starting"
    """Registers, or reads its own registration, or is not ready yet."""
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending-controlled-shutdown"
    SHUTTING_DOWN = "shutting-down"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a broker process says of itself."""

    broker_id: BrokerId
    cluster_id: str
    incarnation_id: Uuid
    """Random, one per process start."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directories: tuple[Uuid, ...]
    features: tuple[FeatureRange, ...]
    previous_broker_epoch: int = NO_BROKER_EPOCH
    """The broker epoch in the clean-shutdown file, -1 after an unclean stop."""
    host: str | None = None


@dataclass(slots=True)
class LifecycleStats:
    """Counters that metrics pull."""

    registrations: int = 0
    heartbeats_sent: int = 0
    heartbeats_held_back: int = 0
    """Not sent because the data lane stood still."""
    streams_opened: int = 0


class DirectoryEpochs(Protocol):
    """What the log directories know of the broker's registrations."""

    def epoch_of(self, directory: Uuid, /) -> int:
        """The broker epoch of the last registration that the directory took part in; -1 where it does not say. Any
        lane."""
        ...

    async def note_registration(self, broker_epoch: int, /) -> None:
        """Returns once every directory that works says durably that it is part of this one."""
        ...


class NoDirectories:
    """No epochs are kept: -1 for every directory."""

    def epoch_of(self, directory: Uuid, /) -> int:
        """See DirectoryEpochs."""
        return NO_BROKER_EPOCH

    async def note_registration(self, broker_epoch: int, /) -> None:
        """See DirectoryEpochs."""


class BrokerLifecycle:
    """One broker's conversation. `run` owns it; everything else is a sync word to it."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        config: LifecycleConfig,
        client: ControllerClient,
        data_lane_last_tick_ms: Callable[[], int],
        clock_ms: Callable[[], int],
        directories: DirectoryEpochs | None = None,
        on_voters_clock: Callable[[int], None] = lambda voters_clock_ms: None,
        clock_skew_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`data_lane_last_tick_ms` is when the data lane last moved, by `clock_ms`'s clock (monotonic). `on_voters_clock`:
        VotersClock.hear; `clock_skew_ms`: VotersClock.told_skew_ms."""
        self._on_voters_clock = on_voters_clock
        self._clock_skew_ms = clock_skew_ms
        self.broker_epoch = NO_BROKER_EPOCH
        self.state = BrokerState.NOT_RUNNING
        self.is_fenced = True
        self.answered_ms: int | None = None
        self.may_quorum_stand = True
        self.stats = LifecycleStats()
        self._identity = identity
        self._config = config
        self._client = client
        self._data_lane_last_tick_ms = data_lane_last_tick_ms
        self._directories = directories or NoDirectories()
        self._clock_ms = clock_ms
        self._is_ready = False
        self._metadata_offset = NO_OFFSET
        self._wanted_offset = NO_OFFSET
        """Another broker's shutdown waits until we say that we have read up to here."""
        self._wants_shutdown = False
        self._offline_directories: frozenset[Uuid] = frozenset()
        self._offline_count = 0
        """The count of offline log directories, those without a readable id among them."""
        self._holds_back = False
        """The data lane is stuck."""
        self._silence = Silence(patience_ms=config.session_timeout_ms // 2)
        self._leaderless: set[BrokerId] = set()
        """Controllers whose last word was that they know no leader, or that refuse connections."""
        self._told: set[tuple[BrokerId, str]] = set()
        """What went wrong with whom since heartbeats were answered last: each is logged once."""
        self._connected_to: BrokerId | None = None
        self._beat_now = asyncio.Event()
        self._reconnect = asyncio.Event()
        self._registered = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._may_leave = asyncio.Event()

    # --- words to it ----------------------------------------------------------------------------------------------------

    def set_ready(self) -> None:
        """The node has recovered its logs and can serve: from now on it asks to be unfenced."""
        self._is_ready = True
        self._beat_now.set()

    def set_offline_directories(self, directories: Collection[Uuid], *, count: int) -> None:
        """These log directories do not work: the controller learns it at once, so that others lead what is in them.

        Args:
            directories: the ids of all that do not, as far as they could be read.
            count: how many do not.
        """
        self._offline_directories = frozenset(directories)
        self._offline_count = count
        self._beat_now.set()

    def on_metadata_published(self, offset: Offset) -> None:
        """Metadata up to this offset is applied on the data lane."""
        before, self._metadata_offset = self._metadata_offset, offset
        has_caught_up = before < self.broker_epoch <= offset and self.broker_epoch != NO_BROKER_EPOCH
        if has_caught_up or before < self._wanted_offset <= offset:
            self._beat_now.set()

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        """This node's quorum member learnt of another active controller: go there at once."""
        self._client.note_elected(leader.leader_id)
        if leader.leader_id is not None and leader.leader_id != self._connected_to:
            self._reconnect.set()

    async def wait_registered(self) -> int:
        """The broker epoch, once the registration is committed."""
        await self._registered.wait()
        return self.broker_epoch

    async def wait_unfenced(self) -> None:
        """Returns when the controller has first unfenced this broker."""
        await self._unfenced.wait()

    async def leave(self) -> bool:
        """Controlled shutdown: hand over what this broker leads. True when the controller let it go, or had nothing to let go;
        False when that took longer than the time-out (the broker then stops without, and its partitions fail over). A
        broker that was never unfenced leads nothing: it waits for NEVER_SERVED_LEAVE_MS at most, and one that never
        registered does not wait. `run` must be running; afterwards it may be cancelled."""
        self._wants_shutdown = True
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._beat_now.set()
        has_served = self._unfenced.is_set()
        timeout_ms = self._config.shutdown_timeout_ms
        if not has_served:
            timeout_ms = min(timeout_ms, NEVER_SERVED_LEAVE_MS)
        try:
            if self._registered.is_set():
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._may_leave.wait()
        except TimeoutError:
            logger.log(
                logging.WARNING if has_served else logging.INFO,
                "broker %d stops without having handed over its partitions: no controller agreed within %d ms",
                self._identity.broker_id,
                timeout_ms,
            )
            return False
        finally:
            self.state = BrokerState.SHUTTING_DOWN
        return True

    # --- its own task ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live until cancelled. Raises KafkaError when the cluster refuses this broker for good (another cluster, features
        it cannot serve, a directory that belongs to another), or did not take it within the registration time-out."""
        self.state = BrokerState.STARTING
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.registration_timeout_ms / 1000
        while True:
            await self._register(deadline)
            await self._converse_until_stale()
            # replaced or forgotten: this process is alive, so it comes back with a new epoch
            deadline = loop.time() + self._config.registration_timeout_ms / 1000

    async def _register(self, deadline: float) -> None:
        identity = self._identity
        is_first = self.broker_epoch == NO_BROKER_EPOCH
        directories = tuple(d for d in identity.directories if d not in self._offline_directories)
        request = RegisterBroker(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            endpoints=identity.endpoints,
            rack=identity.rack,
            directories=directories,
            has_offline_directories=self._offline_count > 0,
            features=identity.features,
            # a process that stays alive has lost nothing: its own last epoch is as good as a clean stop
            previous_broker_epoch=identity.previous_broker_epoch if is_first else self.broker_epoch,
            directory_epochs=tuple(map(self._directories.epoch_of, directories)),
            host=identity.host,
        )
        reported: tuple[int, str] | None = None
        warn_at = asyncio.get_running_loop().time() + REGISTRATION_WARN_MS / 1000
        while True:
            try:
                epoch = (await self._client.ask(request)).broker_epoch
            except KafkaError as error:
                # a controller that a bad metadata record holds waits for an operator, however long: no reason to die
                is_held = error.code is ErrorCode.KAFKA_STORAGE_ERROR
                if is_held:
                    # what it finds afterwards (an election, the session of its former incarnation) has its time from then on
                    timeout_s = self._config.registration_timeout_ms / 1000
                    deadline = max(deadline, asyncio.get_running_loop().time() + timeout_s)
                now_s = asyncio.get_running_loop().time()
                is_over = now_s >= deadline
                if not is_held and (error.code not in _RETRIED_CODES or is_over):
                    raise
                # an election, or the session of the process before this one, ends by itself: no news until it has lasted
                level = logging.WARNING if is_held or now_s >= warn_at else logging.INFO
                if (level, str(error)) != reported:
                    logger.log(level, "broker %d is not registered yet: %s", identity.broker_id, error)
                reported = level, str(error)
                await asyncio.sleep((HELD_RETRY_MS if is_held else REGISTRATION_RETRY_MS) / 1000)
                continue
            break
        logger.info("broker %d is registered with epoch %d", identity.broker_id, epoch)
        # Before it asks to be unfenced: then a directory that names an older epoch was never served from in this one.
        await self._directories.note_registration(epoch)
        self.stats.registrations += 1
        self.broker_epoch = epoch
        self.is_fenced = True
        self._registered.set()

    async def _converse_until_stale(self) -> None:
        """Heartbeat over one stream after another, until a controller says that the registration is not ours any more."""
        failed: BrokerId | None = None
        backoff_ms = RECONNECT_BACKOFF_MS
        while True:
            controller_id = self._client.choose_controller(avoid=failed)
            self._reconnect.clear()
            self._connected_to = controller_id
            answers_before = self.stats.heartbeats_sent
            try:
                await self._converse(controller_id)
                failed = None
            except NotActiveController as error:
                failed = controller_id
                leader_id = error.leader_id if error.leader_id != controller_id else None
                self._client.note_active(leader_id)
                self._note_word(controller_id, is_leaderless=leader_id is None)
            except KafkaError as error:
                if error.code in _STALE_CODES:
                    logger.warning("broker %d must register again: %s", self._identity.broker_id, error)
                    return
                self._tell(logging.WARNING, controller_id, f"controller {controller_id} refused a heartbeat: {error}")
                failed = controller_id
                self._note_word(controller_id, is_leaderless=True)  # it replaces no leader, being held
            except ControllerUnreachable as error:
                broke = f"the heartbeat stream to controller {controller_id} broke: {error}"
                self._tell(logging.INFO, controller_id, broke)
                failed = controller_id
                self._client.note_active(None)
                self._note_word(controller_id, is_leaderless=error.is_refused)
            finally:
                self._connected_to = None
            if self.stats.heartbeats_sent - answers_before > 1:
                backoff_ms = RECONNECT_BACKOFF_MS  # it was a working stream
            if failed is not None:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, RECONNECT_BACKOFF_MS_MAX)

    def _tell(self, level: int, controller_id: BrokerId, what: str) -> None:
        """Log what went wrong, once until heartbeats are answered again: a broker without a controller tries twice a second."""
        if (controller_id, what) not in self._told and len(self._told) < TOLD_MAX:
            logger.log(level, "%s", what)
            self._told.add((controller_id, what))

    def _note_word(self, controller_id: BrokerId, *, is_leaderless: bool) -> None:
        if is_leaderless:
            self._leaderless.add(controller_id)
        else:
            self._leaderless.discard(controller_id)
        self.may_quorum_stand = may_quorum_stand(
            broker_id=self._identity.broker_id,
            voters=self._client.controller_ids,
            leaderless=self._leaderless,
        )

    async def _converse(self, controller_id: BrokerId) -> None:
        """One stream, until it breaks, its controller falls silent or says an error, or another controller is active."""
        self.stats.streams_opened += 1
        self._silence.begin(now_ms=self._clock_ms())
        stream = await self._client.open_heartbeats(controller_id)
        ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        async def until_it_breaks(direction: Coroutine[Any, Any, None]) -> None:
            # The error is handed over, not raised: before Python 3.13 a child that fails while its TaskGroup ends leaves the
            # parent looking cancelled, or hides that it was. One would end this broker's heartbeats, the other its stop.
            error: Exception | None = None
            try:
                await direction
            except (KafkaError, ControllerUnreachable) as broken:
                error = broken
            if not ended.done():
                ended.set_result(error)

        try:
            async with asyncio.TaskGroup() as directions:
                tasks = [
                    directions.create_task(until_it_breaks(direction))
                    for direction in (
                        self._send(stream),
                        self._receive(stream, controller_id),
                        self._until_silent(),
                        self._until_another_leads(),
                    )
                ]
                error = await ended
                for task in tasks:
                    task.cancel()
        finally:
            await stream.close()
        if error is not None:
            raise error

    async def _until_another_leads(self) -> None:
        await self._reconnect.wait()

    async def _send(self, stream: HeartbeatStream) -> None:
        while True:
            self._beat_now.clear()
            if self._data_lane_moves():
                self._silence.note_sent(now_ms=self._clock_ms())
                await stream.send(self._heartbeat())
                self.stats.heartbeats_sent += 1
                interval_ms = SHUTDOWN_HEARTBEAT_MS if self._wants_shutdown else self._config.heartbeat_interval_ms
            else:
                self.stats.heartbeats_held_back += 1
                interval_ms = DATA_LANE_RECHECK_MS
            due_ms = self._clock_ms() + interval_ms
            # not wait_for: Python 3.11's loses a cancellation that comes in the same turn as the event
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_ms / 1000):
                    await self._beat_now.wait()
            self._silence.note_woke(due_ms=due_ms, now_ms=self._clock_ms())

    async def _receive(self, stream: HeartbeatStream, controller_id: BrokerId) -> None:
        while True:
            reply = await stream.receive()
            self._silence.note_heard(now_ms=self._clock_ms())
            answered_before_ms = self.answered_ms
            self._take_reply(reply)
            if self._told:
                self._told.clear()
                silent_ms = self._clock_ms() - (answered_before_ms or self._clock_ms())
                logger.info("controller %d answers heartbeats again, after %.1f s", controller_id, silent_ms / 1000)
            self._client.note_active(controller_id)
            self._leaderless.discard(controller_id)

    async def _until_silent(self) -> None:
        """Raises ControllerUnreachable when the controller has answered nothing for half a session: it answers every heartbeat,
        so it is stopped or cut off."""
        while (left_ms := self._silence.left_ms(now_ms=self._clock_ms())) > 0:
            due_ms = self._clock_ms() + left_ms
            await asyncio.sleep(left_ms / 1000)
            self._silence.note_woke(due_ms=due_ms, now_ms=self._clock_ms())
        raise ControllerUnreachable(f"no answer for {self._silence.patience_ms} ms")

    def _data_lane_moves(self) -> bool:
        tick_ms = self._data_lane_last_tick_ms()
        silent_ms = self._silence.data_lane_ms(tick_ms=tick_ms, now_ms=self._clock_ms())
        moves = silent_ms < self._config.data_lane_timeout_ms
        if moves == self._holds_back:
            self._holds_back = not moves
            logger.log(
                logging.ERROR if self._holds_back else logging.INFO,
                "broker %d %s: its data lane last moved %d ms ago",
                self._identity.broker_id,
                "withholds its heartbeat" if self._holds_back else "heartbeats again",
                silent_ms,
            )
        return moves

    def _heartbeat(self) -> BrokerHeartbeat:
        is_applied = self._metadata_offset >= self.broker_epoch
        return BrokerHeartbeat(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=self._metadata_offset,
            want_fence=not (self._is_ready and is_applied),
            want_shutdown=self._wants_shutdown,
            offline_directories=tuple(sorted(self._offline_directories)),
            clock_skew_ms=self._clock_skew_ms(),
        )

    def _take_reply(self, reply: BrokerHeartbeatReply) -> None:
        if reply.report_offset != NO_OFFSET:
            self._wanted_offset = reply.report_offset
            if self._metadata_offset >= reply.report_offset:
                self._beat_now.set()
            return
        self._on_voters_clock(reply.voters_clock_ms)
        if (sent_ms := self._silence.note_answered()) is not None:
            self.answered_ms = sent_ms
        if self.is_fenced != reply.is_fenced:
            logger.info("broker %d is %s", self._identity.broker_id, "fenced" if reply.is_fenced else "unfenced")
        self.is_fenced = reply.is_fenced
        if not reply.is_fenced and not self._wants_shutdown:
            self.state = BrokerState.RUNNING
            self._unfenced.set()
        if reply.should_shutdown:
            self._may_leave.set()
