"""Drives the controller: requests in, decisions proposed to the quorum, answers out once they are committed.

May touch:  asyncio, the controller, the quorum's `propose`.   Must not touch: gRPC, files, what a decision means.
Invariants: decide → replay into the pending image → propose → answer on commit, one request after another; an answer that
            wrote nothing waits for the last pending record, since it may have read it, and an operator's waits for a
            no-op of its own, or a deposed controller could report what is true no longer; losing leadership drops the
            pending image and fails every waiter with NOT_CONTROLLER.
Read next:  controller/controller.py for the decisions; controller_service.py, which brings the requests; periodic_tasks.py for what it
            decides by itself.

Not obvious
- There is no queue object: a decision never awaits, so the event loop itself is the single file. What queues is the
  commit, in `_waiters`.
- The quorum may have committed what we failed with NOT_CONTROLLER. The asker asks the next controller, which knows.
- A heartbeat counts when it arrives, before any decision and any commit: a quorum that stalls must not make the brokers
  look dead to the controller once it continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.guard import RequestGuard
from barnabas_quorum.controller.partition_change import elected_from
from barnabas_quorum.controller.partitions import registered_broker
from barnabas_quorum.controller.record_sign_off import blocked_refusal
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    NotActiveController,
)
from barnabas_quorum.controller.requests_integrity import SignOffRecord, SignOffRecordReply
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.controller.sessions import BrokerSession
from barnabas_quorum.driver.blocked_controller import BlockedController
from barnabas_quorum.driver.broker_probe import BrokerProbe
from barnabas_quorum.driver.controller_stats import ControllerDriverStats
from barnabas_quorum.driver.metadata_batches import EncodedRecord, cut_into_batches
from barnabas_quorum.driver.periodic_tasks import PROBE_DELAY_MS, PeriodicTasks
from barnabas_quorum.driver.voters_clocks import OLD_CONTROLLER_MS
from barnabas_quorum.errors import BufferExhausted, FailedDecision, NotController, UnreplayableDecision
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.topics import TopicImage
from barnabas_quorum.raft.messages import LeaderAndEpoch
from barnabas_quorum.records import NoOpRecord, PartitionChangeRecord, Record
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset

logger = logging.getLogger(__name__)

R = TypeVar("R")

NO_OP: ControllerResult[None] = ControllerResult(records=[NoOpRecord()], response=None)
WAITERS_MAX = 10_000
"""Answers that may wait for their commit; more are refused, so that a stalled quorum does not fill the memory."""


OnChange = Callable[[str, str, str, MetadataImage, Sequence[Record], KafkaError | None], None]
"""(principal, its address, name of the request, image before, records, the error in place of an answer: then the outcome is not known)."""


class MetadataWriter(Protocol):
    """What the driver needs of the quorum (driver/node.py: QuorumNode)."""

    def propose(self, records: Sequence[bytes], *, epoch: Epoch, is_urgent: bool = True) -> Offset:
        """Append one atomic batch; the offset of its last record. Raises NotController, BufferExhausted."""
        ...

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        ...


class HeartbeatConnection:
    """One open heartbeat stream, as the driver knows it."""

    __slots__ = ("_driver", "broker_epoch", "broker_id", "push")

    def __init__(
        self,
        driver: ControllerDriver,
        broker_id: BrokerId,
        broker_epoch: int,
        push: Callable[[BrokerHeartbeatReply | KafkaError], None],
    ) -> None:
        self._driver = driver
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.push = push
        """Sends something the broker did not ask for; after an error the stream ends."""

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> asyncio.Future[BrokerHeartbeatReply]:
        """Take one in; the future resolves when what came of it is committed."""
        return self._driver.heartbeat(heartbeat)

    def close(self) -> None:
        """The stream ended, for whatever reason."""
        self._driver.disconnect(self)


class _Waiter(NamedTuple):
    offset: Offset
    future: asyncio.Future[Any]
    answer: Any
    """The response, or the KafkaError to raise."""
    since_s: float
    """On the loop's clock."""


class ControllerDriver:
    """One controller node's controller. A publisher of the loader (commits come in there); belongs to the control lane."""

    name = "controller"

    def __init__(
        self,
        controller: Controller,
        *,
        node_id: BrokerId,
        clock_ms: Callable[[], int],
        probe: BrokerProbe,
        guard: RequestGuard | None = None,
        on_change: OnChange | None = None,
        voters_clock_ms: Callable[[], int] = lambda: OLD_CONTROLLER_MS,
    ) -> None:
        """`clock_ms` is wall time, for the time stamps of images; sessions use the loop's own clock. `guard`: None where there is no
        authorizer. `on_change`: hears of every change that somebody asked for, once it is committed or nobody knows.
        `voters_clock_ms`: QuorumNode's, for the brokers."""
        self.controller = controller
        self._voters_clock_ms = voters_clock_ms
        self._guard = guard
        self._on_change = on_change
        self.stats = ControllerDriverStats()
        self.leader_id: BrokerId | None = None
        """The active controller, as far as this node knows."""
        self.active_since_ms = 0
        """On the loop's clock; of the last time that this controller became active."""
        self._node_id = node_id
        self._clock_ms = clock_ms
        self._quorum: MetadataWriter | None = None
        self._loader: MetadataLoader | None = None
        self._blocked = BlockedController(controller)
        self._was_blocked = False
        self._waiters: deque[_Waiter] = deque()
        self._connections: dict[BrokerId, list[HeartbeatConnection]] = {}
        self.proposals = 0
        """Batches proposed so far."""
        self._abort_reason = ""
        """Why a transaction is to be aborted for which no room was left."""
        self._periodic = PeriodicTasks(self, probe)
        self._failure: asyncio.Future[None] | None = None

    def attach(self, quorum: MetadataWriter, *, loader: MetadataLoader) -> None:
        """Give it the quorum member it proposes to, and the loader that it publishes for: whether the committed log ends
        within a transaction, or before a bad record; once, before anything runs."""
        self._quorum = quorum
        self._loader = loader
        self._blocked.attach(loader)
        loader.blocked_observers.append(self._on_blocked_change)

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self.controller.is_active

    @property
    def committed_offset(self) -> Offset:
        """The last metadata record of this node's committed image."""
        return self.controller.committed.offset

    @property
    def may_decide(self) -> bool:
        """Active, with an image that holds all that is committed."""
        return self.is_active and self._blocked.blocked is None

    @property
    def is_waiting(self) -> bool:
        """Whether an answer waits for its commit."""
        return bool(self._waiters)

    async def run(self) -> None:
        """Keep the timers of an active controller until cancelled. Raises what broke an invariant: the node must stop."""
        self._failure = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._periodic.begin(tasks)
                if self.is_active:
                    self._periodic.probe_absent_brokers()
                try:
                    await self._failure
                finally:
                    self._periodic.end()
        finally:
            self._periodic.end()
            self._failure = None

    # --- requests -------------------------------------------------------------------------------------------------------

    async def handle(self, request: Request[R], *, principal: str, client_host: str = "") -> R:
        """Decide a request and wait for its commit. An answer to an operator that needed no change waits for a commit that came
        after it was decided (Raft's ReadIndex, by way of the log). What nodes ask for themselves does not.

        Raises the KafkaError that refuses it, NotActiveController when this controller is not, or is no longer, the active one."""
        logger.debug("%s asks %s", principal, request)
        if isinstance(request, SignOffRecord):
            if self._guard is not None:
                self._guard.check(self.controller.pending, request, principal=principal, host=client_host)
            return cast(R, await self._sign_off(request, principal))
        if self._on_change is None or request.is_nodes_own or request.is_read:
            reply: R = await self._submit(
                lambda: self._decide_guarded(request, principal, client_host),
                is_confirmed=not request.is_nodes_own,
            )
            return reply
        return await self._handle_noted(request, principal, client_host, self._on_change)

    async def _handle_noted(self, request: Request[R], principal: str, client_host: str, on_change: OnChange) -> R:
        decided: list[tuple[MetadataImage, Sequence[Record]]] = []

        def decide() -> ControllerResult[R]:
            before = self.controller.pending
            result = self._decide_guarded(request, principal, client_host)
            decided.append((before, result.records))
            return result

        error: KafkaError | None = None
        try:
            reply: R = await self._submit(decide, is_confirmed=True)
            return reply
        except KafkaError as refusal:
            error = refusal
            raise
        finally:
            for before, records in decided:
                if records:
                    on_change(principal, client_host, type(request).__name__, before, records, error)

    def _decide_guarded(self, request: Request[R], principal: str, client_host: str) -> ControllerResult[R]:
        if self._guard is not None:
            self._guard.check(self.controller.pending, request, principal=principal, host=client_host)
        return self.controller.decide(request, now_ms=self.now_ms())

    def connect(
        self, broker_id: BrokerId, broker_epoch: int, push: Callable[[BrokerHeartbeatReply | KafkaError], None]
    ) -> HeartbeatConnection:
        """A broker opened its heartbeat stream. Raises NotActiveController, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
        self._require_active()
        registered_broker(self.controller.pending, broker_id, broker_epoch)
        connection = HeartbeatConnection(self, broker_id, broker_epoch, push)
        self._connections.setdefault(broker_id, []).append(connection)
        self.controller.sessions.connect(broker_id, broker_epoch, now_ms=self.now_ms())
        return connection

    def disconnect(self, connection: HeartbeatConnection) -> None:
        """A heartbeat stream ended: if it was the broker's last, the grace begins and its listener is probed."""
        present = self._connections.get(connection.broker_id, [])
        if connection not in present:
            return
        present.remove(connection)
        if not present:
            del self._connections[connection.broker_id]
        was_last = self.controller.sessions.disconnect(
            connection.broker_id, connection.broker_epoch, now_ms=self.now_ms()
        )
        if was_last and self.is_active:
            self._periodic.on_sessions_changed()
            self._periodic.start_probe(connection.broker_id, connection.broker_epoch, PROBE_DELAY_MS)

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> asyncio.Future[BrokerHeartbeatReply]:
        """Take a heartbeat in at once; the future resolves when what came of it is committed."""
        self.stats.heartbeats += 1
        if self._blocked.blocked is not None:
            return self._beat_while_blocked(heartbeat)
        session = self.controller.sessions.get(heartbeat.broker_id)
        shutdown_before = None if session is None else session.shutdown_offset
        reply = self._submit(lambda: self._beat(heartbeat), is_heartbeat=True)
        session = self.controller.sessions.get(heartbeat.broker_id)
        if session is not None:
            session.clock_skew_ms = heartbeat.clock_skew_ms
        if session is not None and session.shutdown_offset not in (None, shutdown_before):
            # its shutdown waits until everybody has read this far; at the heartbeat interval that would take seconds
            self._ask_for_reports(session.shutdown_offset, besides=heartbeat.broker_id)
        return reply

    def _beat(self, heartbeat: BrokerHeartbeat) -> ControllerResult[BrokerHeartbeatReply]:
        result = self.controller.decide(heartbeat, now_ms=self.now_ms())
        return replace(result, response=replace(result.response, voters_clock_ms=self._voters_clock_ms()))

    def _beat_while_blocked(self, heartbeat: BrokerHeartbeat) -> asyncio.Future[BrokerHeartbeatReply]:
        future: asyncio.Future[BrokerHeartbeatReply] = asyncio.get_running_loop().create_future()
        try:
            self._require_active()
            reply = self._blocked.beat(heartbeat, now_ms=self.now_ms())
            future.set_result(replace(reply, voters_clock_ms=self._voters_clock_ms()))
        except KafkaError as error:
            future.set_exception(error)
        return future

    async def _sign_off(self, request: SignOffRecord, principal: str) -> SignOffRecordReply:
        self._require_active()
        assert self._quorum is not None, "attach() comes before the first request"
        logger.warning("%s signs off the metadata record at offset %d: %s", principal, request.offset, request.reason)
        return await self._blocked.sign_off(request, principal=principal, quorum=self._quorum)

    def sessions(self) -> Mapping[BrokerId, BrokerSession]:
        """What this controller has heard of brokers; nothing while it is not active. Times on the loop's clock."""
        return self.controller.sessions.all()

    # --- the quorum's word ----------------------------------------------------------------------------------------------

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Publisher: records are committed; the answers that waited for them leave."""
        if self._was_blocked:
            self.controller.catch_up(image, last_offset=self._blocked.written_offset)
        else:
            self.controller.commit(image)
        while self._waiters and self._waiters[0].offset <= image.offset:
            waiter = self._waiters.popleft()
            self.stats.wait_s.observe(asyncio.get_running_loop().time() - waiter.since_s)
            _resolve(waiter)
        self.stats.waiters = len(self._waiters)
        self._periodic.on_commit()

    def _on_blocked_change(self) -> None:
        """The loader stopped at a bad record, has read on behind it, or continues."""
        blocked = self._blocked.blocked
        if blocked is not None and not self._was_blocked:
            self._was_blocked = True
            self.controller.pending = self.controller.committed
            self._drop_waiters(blocked_refusal(blocked))
        self._blocked.settle()
        if blocked is None and self._was_blocked:
            self._was_blocked = False
            if self.is_active:
                self._begin_deciding()

    def on_leader_change(self, leader: LeaderAndEpoch, next_offset: Offset) -> None:
        """The quorum has another leader, or none, or us."""
        self.leader_id = leader.leader_id
        if leader.leader_id != self._node_id:
            self._step_down()
            return
        if self.controller.epoch == leader.epoch:
            return
        self._step_down()
        self.controller.claim(epoch=leader.epoch, next_offset=next_offset, now_ms=self.now_ms())
        self._periodic.on_claimed()
        self.stats.times_active += 1
        self.active_since_ms = self.now_ms()
        logger.info("this controller is active in epoch %d, from offset %d", leader.epoch, next_offset)
        if self.may_decide:
            self._begin_deciding()
        else:
            logger.error("this controller takes no changes: a bad metadata record blocks its image")

    def _begin_deciding(self) -> None:
        """The first words of a leadership, or of one that was blocked."""
        assert self._loader is not None, "attach() comes before the first leader"
        self._abort_reason = ""
        if self._loader.is_in_transaction:
            logger.warning("the last leader left a transaction open; it is aborted")
            self.submit_unawaited(lambda: self.controller.abort_transaction("its leader is gone"))
        self.submit_unawaited(self.controller.bootstrap)
        self._periodic.on_sessions_changed()
        self._periodic.probe_absent_brokers()

    def _step_down(self) -> None:
        if not self.is_active:
            return
        logger.info("this controller is no longer active in epoch %d", self.controller.epoch)
        self.controller.release()
        self._periodic.on_released()
        refusal = self._not_active(is_unsettled=True)
        self._drop_waiters(refusal)
        self._blocked.drop(refusal)
        connections, self._connections = self._connections, {}
        for broker_id in sorted(connections):
            for connection in connections[broker_id]:
                connection.push(refusal)

    def _drop_waiters(self, refusal: KafkaError) -> None:
        waiters, self._waiters = self._waiters, deque()
        self.stats.waiters = 0
        for waiter in waiters:
            _resolve(waiter._replace(answer=refusal))

    # --- decide, replay, propose, wait ----------------------------------------------------------------------------------

    def _submit(
        self,
        decide: Callable[[], ControllerResult[Any]],
        *,
        is_heartbeat: bool = False,
        is_confirmed: bool = False,
    ) -> asyncio.Future[Any]:
        """Carry out one decision. Never raises what the asker did wrong: that is in the future. `is_confirmed`: an answer
        without records waits until the quorum has shown that this controller was still active when it was given."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        future: asyncio.Future[Any] = loop.create_future()
        answer: Any
        before = self.proposals
        try:
            self._require_active()
            if (refusal := self._blocked.refusal()) is not None:
                future.set_exception(refusal)  # nothing was read from an image that could still change
                return future
            if len(self._waiters) >= WAITERS_MAX and not is_heartbeat:  # their streams bound those
                raise BufferExhausted(f"{WAITERS_MAX} requests wait for the quorum to commit; try again later")
            self.stats.decisions += 1
            self.controller.wall_ms = self._clock_ms()
            assert self._quorum is not None, "attach() comes before the first request"
            # the quorum may have written a change of its voter set in between
            self.controller.next_offset = self._quorum.log_end_offset
            if self._abort_reason:
                self._abort_transaction()
            result = _decided(decide)
            self._propose(result)
            answer = result.response
        except NotController as error:
            # nothing was read from a pending image that could still be committed here
            future.set_exception(error)
            return future
        except KafkaError as error:
            if isinstance(error, (FailedDecision, UnreplayableDecision)):
                logger.error("a decision failed", exc_info=error)
                self.stats.failed_decisions += 1
            self.stats.refusals += 1
            answer = error
        except InvariantViolated as error:
            self._fail(error)
            raise
        if is_confirmed and self.proposals == before and not self._abort_reason:
            try:
                # urgent: the asker's node answers once it has applied it, and would wait for its fetch to run out
                self._propose(NO_OP, is_urgent=True)
            except NotController as error:
                future.set_exception(error)
                return future
            except KafkaError as error:
                answer = error  # no room to find out whether the answer is still true
        now_s = loop.time()
        self.stats.process_s.observe(now_s - began_s)
        waiter = _Waiter(self.controller.pending.offset, future, answer, now_s)
        if waiter.offset <= self.controller.committed.offset:
            _resolve(waiter)
        else:
            self._waiters.append(waiter)
            self.stats.waiters = len(self._waiters)
        return future

    def submit_unawaited(self, decide: Callable[[], ControllerResult[Any]]) -> None:
        """A decision that nobody waits for."""
        self._submit(decide).add_done_callback(_log_refusal)

    def _propose(self, result: ControllerResult[Any], *, is_urgent: bool = False) -> None:
        """All batches of a result in a row. A transaction that the quorum cannot take to its end is aborted. `is_urgent`: the
        replicas hear of it at once though it says nothing."""
        before = self.controller.pending
        cut = cut_into_batches(result, has_transactions=before.features.has_transactions)
        for index, batch in enumerate(cut.batches):
            try:
                self._propose_batch(batch, is_urgent=is_urgent)
            except (BufferExhausted, UnreplayableDecision) as error:
                if cut.is_transaction and index > 0:
                    self.controller.drop_transaction(before)
                    self._abort_reason = str(error)
                    with contextlib.suppress(BufferExhausted):
                        self._abort_transaction()
                raise

    def _abort_transaction(self) -> None:
        """Raises BufferExhausted; until it is done nothing else is decided, or it would stand within the transaction."""
        abort = self.controller.abort_transaction(self._abort_reason)
        for batch in cut_into_batches(abort, has_transactions=True).batches:
            self._propose_batch(batch)
        self._abort_reason = ""

    def _propose_batch(self, batch: Sequence[EncodedRecord], *, is_urgent: bool = False) -> None:
        controller, quorum = self.controller, self._quorum
        assert quorum is not None, "attach() comes before the first request"
        topics = controller.pending.topics
        image = controller.replayed([record for record, _ in batch], timestamp_ms=self._clock_ms())
        try:
            is_urgent = is_urgent or any(not isinstance(record, NoOpRecord) for record, _ in batch)
            last_offset = quorum.propose([data for _, data in batch], epoch=controller.epoch, is_urgent=is_urgent)
        except NotController as error:
            self._step_down()
            raise self._not_active(is_unsettled=True) from error  # earlier batches of it may be in the log
        if last_offset != image.offset:
            raise InvariantViolated(
                f"the quorum gave offset {last_offset} to a record that this controller decided as {image.offset}"
            )
        controller.accept(image)
        self.proposals += 1
        self.stats.records_proposed += len(batch)
        for record, _ in batch:
            if isinstance(record, PartitionChangeRecord) and record.leader is not None:
                self._count_election(topics.get_by_id(record.topic_id), record)

    def _count_election(self, topic: TopicImage | None, change: PartitionChangeRecord) -> None:
        partition = None if topic is None else topic.partitions.get(change.partition_id)
        kind = None if partition is None else elected_from(partition, change)
        if kind is not None:
            self.stats.leader_elections[kind] += 1

    def _require_active(self) -> None:
        if not self.is_active:
            raise self._not_active()

    def _not_active(self, *, is_unsettled: bool = False) -> NotActiveController:
        leader = self.leader_id if self.leader_id != self._node_id else None
        known = "no leader is known" if leader is None else f"controller {leader} is"
        message = f"controller {self._node_id} is not active, {known}"
        return NotActiveController(message, leader_id=leader, is_unsettled=is_unsettled)

    def _fail(self, error: Exception) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def now_ms(self) -> int:
        """On the loop's clock."""
        return int(asyncio.get_running_loop().time() * 1000)

    def fence(self, reasons: Mapping[BrokerId, str]) -> None:
        """These brokers were found dead."""
        for broker_id, reason in reasons.items():
            logger.warning("broker %d is fenced: %s", broker_id, reason)
        self.stats.brokers_fenced += len(reasons)
        self.submit_unawaited(lambda: self.controller.fence(reasons))

    def _ask_for_reports(self, offset: Offset | None, *, besides: BrokerId) -> None:
        assert offset is not None
        for broker_id in sorted(self._connections):
            if broker_id != besides:
                for connection in self._connections[broker_id]:
                    connection.push(BrokerHeartbeatReply(report_offset=offset))


def _decided(decide: Callable[[], ControllerResult[Any]]) -> ControllerResult[Any]:
    """What a decision comes to. Raises the KafkaError that refuses it, FailedDecision."""
    try:
        return decide()
    except KafkaError:
        raise
    except Exception as error:  # the edge of one request
        raise FailedDecision.because(error) from error


def _resolve(waiter: _Waiter) -> None:
    if waiter.future.done():  # its asker went away
        return
    if isinstance(waiter.answer, Exception):
        waiter.future.set_exception(waiter.answer)
    else:
        waiter.future.set_result(waiter.answer)


def _log_refusal(future: asyncio.Future[Any]) -> None:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, KafkaError) and error.code is not ErrorCode.NOT_CONTROLLER:
        logger.error("a decision of the controller itself was refused: %s", error)
