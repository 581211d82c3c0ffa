"""The broker's end of the conversation with the active controller: finds it, asks it, keeps the heartbeat stream.

May touch:  asyncio, the controller's request types.   Must not touch: images, logs, gRPC (grpc_transport.py).
Invariants: every request is carried out on the control lane, from whichever lane it was asked; every call has a
            deadline; an answer of a controller that was not active is never taken for the cluster's.
Read next:  metadata/lifecycle.py, which keeps the heartbeats going; metadata/broker_requests.py, what a broker asks for itself;
            barnabas_quorum/driver/controller_service.py, the other end.

Not obvious: a request that was cut off may have been carried out. What a node asks for itself (Request.is_nodes_own) is asked again:
the second answer is then an INVALID_UPDATE_VERSION, or a producer id block that stays unused. A change that somebody
else asked for is not, unlike Kafka's forwarding: its second answer could be TOPIC_ALREADY_EXISTS for the topic that it
made itself, and a deletion carried out twice could take a topic that another client made in between. The asker learns
that the result is unknown (REQUEST_TIMED_OUT), so that the history of the metadata stays linearizable.
The answer to it is delayed until this node has applied what it reports (applied.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol, TypeVar

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import BrokerHeartbeat, BrokerHeartbeatReply, NotActiveController
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, NO_BROKER, BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

ADMIN_TIMEOUT_MS = 30_000
"""How long an administrative request may take in all, over all controllers tried (Kafka's request.timeout.ms)."""
BROKER_TIMEOUT_MS = 5_000
"""The same for what the broker itself asks and repeats when refused: ISR changes, producer ids, registration."""
ATTEMPT_TIMEOUT_MS = 5_000
"""One controller gets this long before another is tried: a stopped process accepts connections and never answers."""
RETRY_BACKOFF_MS = 50
RETRY_BACKOFF_MS_MAX = 250
APPLIED_TIMEOUT_MS = 2_000
"""An answer waits for this node at most so long: the change is committed, though this node may be stuck."""
HINTS_FOLLOWED_MAX = 2
"""Hints followed without a pause: during an election two controllers may point at each other."""

R = TypeVar("R")
T = TypeVar("T")


class ControllerUnreachable(ConnectionError):
    """A controller could not be reached, or the connection broke before it answered.

    `is_sent`: it may have got the call. `is_refused`: its host answers, but no process listens there.
    """

    def __init__(self, message: str, *, is_sent: bool = True, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_sent = is_sent
        self.is_refused = is_refused


class HeartbeatStream(Protocol):
    """The open heartbeat stream to one controller."""

    async def send(self, heartbeat: BrokerHeartbeat) -> None:
        """Raises ControllerUnreachable when the stream is broken."""

    async def receive(self) -> BrokerHeartbeatReply:
        """The next reply. Raises KafkaError when the controller refuses (NotActiveController, STALE_BROKER_EPOCH), and
        ControllerUnreachable when the stream ended."""

    async def close(self) -> None:
        """End the stream."""


class ControllerTransport(Protocol):
    """How a controller is spoken to; simulation replaces it."""

    async def call(
        self, controller_id: BrokerId, request: Request[R], *, principal: str, client_host: str = "", timeout_ms: int
    ) -> R:
        """Ask one controller once. Raises the KafkaError it answers with, ControllerUnreachable when it did not answer
        and the connection broke, TimeoutError after `timeout_ms`."""

    async def open_heartbeats(self, controller_id: BrokerId) -> HeartbeatStream:
        """Open the stream; may succeed before the controller is known to be reachable."""

    async def close(self) -> None:
        """Close every connection."""


@dataclass(slots=True)
class ControllerClientStats:
    """Counters that metrics pull."""

    requests: int = 0
    retries: int = 0
    timeouts: int = 0


class ControllerClient:
    """ActiveController: asks whichever controller is active. May be awaited from the control loop and from any other."""

    def __init__(
        self,
        transport: ControllerTransport,
        *,
        loop: asyncio.AbstractEventLoop,
        controllers: Collection[BrokerId],
        leader_hint: Callable[[], BrokerId | None],
    ) -> None:
        """`loop` is the control lane; `controllers` are all voters, and may change; `leader_hint` is the leader that this node's
        own quorum member knows, or None."""
        self.stats = ControllerClientStats()
        self._transport = transport
        self._loop = loop
        self._controllers = controllers
        self._leader_hint = leader_hint
        self._active: BrokerId | None = None
        self._elected = asyncio.Event()
        self._next = 0

    async def ask(
        self,
        request: Request[R],
        *,
        principal: str = ANONYMOUS,
        client_host: str = "",
        timeout_ms: int | None = None,
    ) -> R:
        """See ActiveController. Without a time-out: BROKER_TIMEOUT_MS for what a node asks for itself, else ADMIN_TIMEOUT_MS."""
        if timeout_ms is None:
            timeout_ms = BROKER_TIMEOUT_MS if request.is_nodes_own else ADMIN_TIMEOUT_MS
        return await self._on_control_lane(
            self._ask_until(request, principal=principal, client_host=client_host, timeout_ms=timeout_ms)
        )

    # --- finding the active controller ----------------------------------------------------------------------------------

    def choose_controller(self, *, avoid: BrokerId | None = None) -> BrokerId:
        """The controller to ask next: the one that last proved active, else the one this node's quorum member follows,
        else the next of all. `avoid` is the one that just failed. Control lane only."""
        if self._active is not None and self._active != avoid:
            return self._active
        hint = self._leader_hint()
        if hint is not None and hint in self._controllers and hint != avoid:
            return hint
        candidates = tuple(self._controllers)
        if not candidates:
            return NO_BROKER  # a controller that does not know the voters yet: none is reachable under this id
        if avoid in candidates:
            # The one behind it: chosen among the others alone, two that fail could send us from one to the other for ever.
            return candidates[(candidates.index(avoid) + 1) % len(candidates)]
        self._next += 1
        return candidates[self._next % len(candidates)]

    @property
    def controller_ids(self) -> tuple[BrokerId, ...]:
        """The voters, as far as this node knows. Control lane only."""
        return tuple(self._controllers)

    def note_active(self, controller_id: BrokerId | None) -> None:
        """Remember the active controller (None: not known). Control lane only."""
        self._active = controller_id if controller_id in self._controllers else None

    def note_elected(self, controller_id: BrokerId | None) -> None:
        """The quorum names the active controller (None: there is none); a request that waits to ask again asks at once.
        Control lane only."""
        self.note_active(controller_id)
        if controller_id is not None:
            self._elected.set()

    async def open_heartbeats(self, controller_id: BrokerId) -> HeartbeatStream:
        """Open the heartbeat stream to that controller. Control lane only."""
        return await self._transport.open_heartbeats(controller_id)

    async def close(self) -> None:
        """Close every connection."""
        await self._on_control_lane(self._transport.close())

    async def _on_control_lane(self, work: Coroutine[Any, Any, T]) -> T:
        """The crossing from the data lane up to the control lane."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _ask_until(self, request: Request[R], *, principal: str, client_host: str, timeout_ms: int) -> R:
        self.stats.requests += 1
        deadline = self._loop.time() + timeout_ms / 1000
        failed: BrokerId | None = None
        cause: Exception | None = None
        backoff_ms = RETRY_BACKOFF_MS
        hints_followed = 0
        while True:
            remaining_ms = int((deadline - self._loop.time()) * 1000)
            if remaining_ms <= 0:
                self.stats.timeouts += 1
                raise KafkaError.of(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{type(request).__name__}: no active controller answered within {timeout_ms} ms "
                    f"(last: {cause or 'nothing'}); look at `barnabas quorum status`",
                )
            controller_id = self.choose_controller(avoid=failed)
            try:
                reply = await self._transport.call(
                    controller_id,
                    request,
                    principal=principal,
                    client_host=client_host,
                    timeout_ms=min(remaining_ms, ATTEMPT_TIMEOUT_MS),
                )
            except NotActiveController as error:
                cause, failed = error, controller_id
                self.note_active(error.leader_id if error.leader_id != controller_id else None)
            except (ControllerUnreachable, TimeoutError) as error:
                cause, failed = error, controller_id
                self.note_active(None)
            else:
                self._active = controller_id
                return reply
            if may_be_carried_out(cause) and not may_be_repeated(request):
                raise KafkaError.of(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{type(request).__name__}: controller {controller_id} was lost before it answered; the change may "
                    f"have been made or not: look before you ask again ({cause})",
                ) from cause
            self.stats.retries += 1
            if self._active is not None and hints_followed < HINTS_FOLLOWED_MAX:
                hints_followed += 1
                continue
            hints_followed = 0
            if await self._hears_of_election(within_ms=backoff_ms):
                failed, backoff_ms = None, RETRY_BACKOFF_MS
            else:
                backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)

    async def _hears_of_election(self, *, within_ms: int) -> bool:
        self._elected.clear()
        try:
            # not wait_for: Python 3.11's loses a cancellation that comes in the same turn as the event
            async with asyncio.timeout(within_ms / 1000):
                await self._elected.wait()
        except TimeoutError:
            return False
        return True


def may_be_repeated(request: Request[Any]) -> bool:
    """Whether it does no harm to carry a request out twice."""
    return request.is_nodes_own or request.is_read or bool(getattr(request, "validate_only", False))


def may_be_carried_out(failure: Exception) -> bool:
    """Whether an attempt that failed so may nevertheless have its effect, now or later."""
    if isinstance(failure, NotActiveController):
        return failure.is_unsettled
    return not isinstance(failure, ControllerUnreachable) or failure.is_sent


async def reach_applied(applied: AppliedOffset, request: Request[Any], committed: Offset, *, timeout_ms: int) -> None:
    """Wait until this node has applied what somebody else asked for, before that is answered; for so long at most."""
    if request.is_nodes_own or request.is_read:
        return
    if not await applied.reach(committed, timeout_s=min(timeout_ms, APPLIED_TIMEOUT_MS) / 1000):
        logger.warning(
            "%s is committed, but this node is not at metadata offset %d yet", type(request).__name__, committed
        )
