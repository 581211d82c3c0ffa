"""The requests of one client: a frame becomes a request, a handler answers it, an error costs what it must and no more.

May touch:  slots, handlers, the client's login, quotas.   Must not touch: sockets, buffers, the order of answers (connection.py).
Invariants: a handler runs only for what the login and the limits of its API allow; every request taken up fills or skips its slot once,
            or its connection is closed; what a handler did not foresee costs one connection, a broken invariant the node.
Read next:  ../api/registry.py (the handlers), ../security/sasl/session.py (the login), client_quotas.py; connection.py.

Frame: int16 api key, int16 version, int32 correlation id, int16 length + client id (legacy nullable string also in flexible headers),
tagged fields from the API's first flexible version on, then the body.

Not obvious:
- The frame handed to a handler is a view of memory that the next read overwrites. A direct handler must be done with it (or have
  copied) when it returns; the codec copies everything but `records`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from inspect import isawaitable
from time import perf_counter
from typing import Any, Protocol

from barnabas_broker.api import registry
from barnabas_broker.api.api_versions import unsupported_version
from barnabas_broker.api.context import ClientSoftware, RequestContext
from barnabas_broker.api.sasl import LOGIN_BYTES_MAX
from barnabas_broker.api.services import BrokerServices
from barnabas_broker.api.slot import ChargedSlot, QuotaCharge, ResponseSlot
from barnabas_broker.network.client_quotas import ClientQuotas, ConnectionQuota
from barnabas_broker.network.framing import FRAME_BYTES_MIN, OversizedFrame
from barnabas_broker.network.phases import MEASURED_MASK, THROTTLE, MeasuredSlot
from barnabas_broker.network.request_memory import RequestMemory
from barnabas_broker.network.stats import COUNT_BITS, NetworkStats
from barnabas_broker.security.access import OPEN_ACCESS, Access
from barnabas_broker.security.sasl.session import LoginState, SaslSession
from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_replication.leader.scrutiny import Scrutiny
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import TooManyElements

logger = logging.getLogger(__name__)

REFUSED_CLOSE_S = 0.05
"""After the answer to a login that was refused: it shall reach the client before the connection ends."""
UNAUTHENTICATED = "authentication"
"""Why a connection is closed that sends what it may not without a login."""
_unpack_header = struct.Struct(">iih").unpack_from


class RequestListener(Protocol):
    """What the requests of a connection ask of the listener that accepted it: what all its connections share."""

    name: str
    loop: asyncio.AbstractEventLoop
    services: BrokerServices
    stats: NetworkStats
    apis: dict[int, registry.Api]
    """Every version served, by api key << 16 | version; of those whose handlers are loaded, see find_api."""
    measured_apis: dict[int, registry.Api]
    """Those of them with a direct handler, for requests whose phases are measured."""
    quotas: ClientQuotas
    memory: RequestMemory
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Runs the waiting part of a handler."""
    fail: Callable[[InvariantViolated], None]
    """Ends the server."""

    def find_api(self, kind: int) -> registry.Api | None:
        """The API of a kind that is not in `apis` yet, whose handlers are loaded now; None for what no API serves."""
        ...

    @property
    def probation_reason(self) -> str:
        """Why a connection that is no broker's may not stay."""
        ...

    def new_session(self) -> SaslSession | None:
        """The login of a new connection; None where the listener has no SASL."""
        ...

    def request_bytes_max(self, kind: int) -> int:
        """The largest frame of this kind that is taken. What is served by no API may have the usual size."""
        ...

    def note_refused(self, kind: int | None, client_host: str, reason: str, advice: str) -> None:
        """Log that a request closed its connection, and what to do; `kind` None: nothing can be told from its bytes."""
        ...


class ClientRequests:
    """Takes up the requests of one connection, one by one. The connection, its subclass, brings frames and sends answers."""

    __slots__ = (
        "_is_closed",
        "_is_exclusive",
        "_is_guarded",
        "_is_waiting",
        "_listener",
        "_session",
        "_slot_type",
        "_slots",
        "_throttles",
        "_waiting_bytes",
        "access",
        "charge",
        "client_host",
        "client_port",
        "guard",
        "held",
        "is_of_broker",
        "is_on_probation",
        "measured",
        "principal",
        "quota",
        "reached_at",
        "scrutiny",
        "software",
    )
    _listener: RequestListener

    def __init__(self, listener: RequestListener) -> None:
        self._listener = listener
        self._session = listener.new_session()
        self._is_guarded = self._session is not None
        """Whether each request is checked against the login."""
        self._slots: deque[ResponseSlot] = deque()
        """The slots of the requests taken up, in their order, until their answers are sent."""
        self._is_closed = False
        self._is_exclusive = False
        """Whether no further request is taken up: a handler waits, or the client is muted."""
        self._is_waiting = False
        self._waiting_bytes = 0
        """The bytes of the request that a handler waits with."""
        self._throttles = 0
        """How many throttles are not over."""
        self.is_on_probation = False
        """Whether only a broker may have this connection and it has not yet shown that it is one."""
        self.is_of_broker = False
        """Whether another broker fetched over it."""
        self.client_host = ""
        self.client_port = 0
        self.software = ClientSoftware()
        self.reached_at = ""
        self.principal = ANONYMOUS
        """The client's principal, "User:NAME"."""
        self.access = OPEN_ACCESS
        """What it may do; looked up when it is known who it is, once."""
        self.guard: Access | None = None
        """`access`, unless that is everything."""
        self.quota: ConnectionQuota | None = None
        """None while there are no quotas."""
        self.charge: QuotaCharge | None = None
        """The quota charge of the request that is being taken up."""
        self._slot_type: type[ResponseSlot] = ResponseSlot
        self.scrutiny = Scrutiny()
        """Which of its produce requests have their batches opened."""
        self.held: dict[str, Callable[[], None]] = {}
        """See RequestContext.held."""
        self.measured: list[MeasuredSlot] = []
        """Answers whose phases are measured, given but not yet sent."""

    def close(self, reason: str) -> None:
        """Close the connection at once, count why."""
        raise NotImplementedError

    def slot_filled(self, size_bytes: int) -> None:
        """An answer is there."""
        raise NotImplementedError

    def _go_on(self) -> None:
        """Take up the frames that wait, when there is room."""
        raise NotImplementedError

    @property
    def listener_name(self) -> str:
        """Name of the listener that accepted this connection."""
        return self._listener.name

    def count_errors(self, api_key: int, codes: Iterable[ErrorCode]) -> None:
        """Count errors reported to this client."""
        errors = self._listener.stats.errors
        for code in codes:
            errors[(api_key, code)] += 1

    def _take_charged(self, frame: memoryview, now: float, quota: ConnectionQuota) -> None:
        """As _take_frame, for a client that a quota may mean."""
        (_, _, client_id_bytes) = _unpack_header(frame, 0)
        charge = self.charge = quota.begin(frame, client_id_bytes)
        self._slot_type = ChargedSlot
        began = perf_counter()
        try:
            self._take_frame(frame, now)
        finally:
            self.charge = None
            self._slot_type = ResponseSlot
        if charge is not None and not self.is_of_broker and not self._is_closed:
            throttle_ms = quota.note_time(charge, perf_counter() - began)
            if throttle_ms:
                self.mute(throttle_ms, _unpack_header(frame, 0)[0] >> 16)

    def mute(self, throttle_ms: int, api_key: int) -> None:
        """Take up no further request for so long (KIP-219), because of one of this API, which is served."""
        self._listener.stats.note_phases(api_key, [(THROTTLE, throttle_ms / 1000)])
        self._throttles += 1
        self._is_exclusive = True
        self._listener.loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._throttles -= 1
        self._is_exclusive = self._is_waiting or self._throttles > 0
        if not self._is_closed:
            self._go_on()

    def _take_frame(self, frame: memoryview, now: float) -> None:
        """Parse the request header and call the handler. A frame that is not a request closes the connection.

        now: when the read began that it came with, or when it was taken up again.
        """
        kind, correlation_id, client_id_bytes = _unpack_header(frame, 0)
        version = kind & 0xFFFF
        listener = self._listener
        slot = self._slot_type(self, kind >> 16, version, correlation_id, now)
        api = listener.apis.get(kind) or listener.find_api(kind)
        if api is None:
            self._refuse_version(slot)
            return
        size = len(frame)
        if size > api.request_bytes_max:
            self._close_greedy(kind, str(OversizedFrame(kind, size, api.request_bytes_max)))
            return
        if self.is_on_probation and not self._is_of_broker(api, version, frame):
            self.close(listener.probation_reason)
            return
        if self._is_guarded and not self._is_let_in(api, size):
            self.close(UNAUTHENTICATED)
            return
        requests = listener.stats.requests
        before = requests[kind]
        requests[kind] = before + (size << COUNT_BITS) + 1
        if not before & MEASURED_MASK:
            slot = MeasuredSlot(self, kind >> 16, version, correlation_id, now)
            api = listener.measured_apis.get(kind, api)
        try:
            position = FRAME_BYTES_MIN + (client_id_bytes if client_id_bytes > 0 else 0)
            if version >= api.flexible_from:
                # Nearly always there is not one tagged field in a request header: a single zero byte.
                if position < size and frame[position] == 0:
                    position += 1
                else:
                    position = registry.skip_tagged_fields(frame, position)
            if api.is_direct:
                self._slots.append(slot)
                api.handler(listener.services, slot, version, frame, position)
                return
            context = RequestContext(
                api_key=api.key,
                api_version=version,
                correlation_id=correlation_id,
                client_id=str(frame[10 : 10 + client_id_bytes], "utf-8", "replace") if client_id_bytes > 0 else "",
                listener_name=listener.name,
                client_host=self.client_host,
                reached_at=self.reached_at,
                now_ms=listener.services.clock_ms(),
                principal=self.principal,
                access=self.access,
                session=self._session,
                client_port=self.client_port,
                software=self.software,
                held=self.held,
            )
            if self.charge is not None:
                context.charge = self.charge
            request = registry.decode_request(api, version, frame, position)
        except TooManyElements as error:
            self._close_greedy(kind, error.message)
        except KafkaError as error:
            self._close_refused("malformed", kind, error.message)
        except Exception as error:
            self._bug(slot, error)
        else:
            self._slots.append(slot)
            self._run_handler(slot, api, context, request, size)

    def _run_handler(
        self, slot: ResponseSlot, api: registry.Api, context: RequestContext, request: Any, request_bytes: int
    ) -> None:
        """Call a handler of decoded requests; what must wait continues in a task of the listener."""
        try:
            if api.cluster_right is not None and not context.access.may(*api.cluster_right):
                raise context.access.refusal(*api.cluster_right)
            response = api.handler(self._listener.services, context, request)
            if isawaitable(response):
                self._is_exclusive = self._is_waiting = True
                if type(slot) is MeasuredSlot:
                    slot.handled = perf_counter()
                task = self._listener.spawn(self._answer_later(slot, api, request, response, request_bytes))
                if api.ends_with_client:
                    slot.cancel = task.cancel
                return
            self._answer(slot, response)
        except KafkaError as error:
            self._answer_error(slot, api, request, error)
        except Exception as error:
            self._bug(slot, error)

    async def _answer_later(
        self, slot: ResponseSlot, api: registry.Api, request: Any, response: Awaitable[Any], request_bytes: int
    ) -> None:
        memory = self._listener.memory
        memory.take(request_bytes)
        self._waiting_bytes = request_bytes
        try:
            self._answer(slot, await response)
        except KafkaError as error:
            self._answer_error(slot, api, request, error)
        except Exception as error:
            self._bug(slot, error)
        finally:
            memory.give_back(request_bytes)
            self._waiting_bytes = 0
            self._is_waiting = False
            self._is_exclusive = self._throttles > 0
            self._go_on()

    def _answer(self, slot: ResponseSlot, response: Any) -> None:
        frame = registry.encode_answer(slot.api_key, slot.version, slot.correlation_id, response)
        slot.fill((frame,), len(frame))
        if self._is_guarded:
            self._take_login(slot.api_key)

    def _answer_error(self, slot: ResponseSlot, api: registry.Api, request: Any, error: KafkaError) -> None:
        self._listener.stats.errors[(slot.api_key, error.code)] += 1
        try:
            self._answer(slot, registry.error_response(api, request, error))
        except Exception as bug:
            self._bug(slot, bug)

    def _refuse_version(self, slot: ResponseSlot) -> None:
        """ApiVersions of a future client is answered in v0 layout; anything else unknown closes, as with Kafka."""
        if slot.api_key == ApiKey.API_VERSIONS:
            self._slots.append(slot)
            frame = registry.encode_answer(slot.api_key, 0, slot.correlation_id, unsupported_version())
            slot.fill((frame,), len(frame))
        else:
            self._close_refused("unsupported", slot.api_key << 16 | slot.version, "it is not served in this version")

    def _request_bytes_max(self, kind: int) -> int:
        """As the listener's, but who has not logged in gets room for a login only."""
        bytes_max = self._listener.request_bytes_max(kind)
        return (
            bytes_max
            if self._session is None or self._session.principal is not None
            else min(bytes_max, LOGIN_BYTES_MAX)
        )

    def _is_let_in(self, api: registry.Api, frame_bytes: int) -> bool:
        """Whether the login allows this request."""
        session = self._session
        assert session is not None, "only a listener with SASL guards its connections"
        is_small = session.principal is not None or frame_bytes <= LOGIN_BYTES_MAX
        return is_small and session.admits(api.key, self._listener.services.clock_ms())

    def _take_login(self, api_key: int) -> None:
        """A request was answered that may have ended the login, the one way or the other."""
        session = self._session
        assert session is not None, "only a listener with SASL guards its connections"
        if session.state is LoginState.REFUSED:
            self._listener.services.audit.login_refused(
                self.client_host,
                user=session.claimed,
                listener=self._listener.name,
                how=session.mechanism if session.mechanism in session.mechanisms else "",
                reason=session.reason,
            )
            self._listener.loop.call_later(REFUSED_CLOSE_S, self.close, UNAUTHENTICATED)
        elif session.state is LoginState.COMPLETE and session.principal is not None:
            if session.principal != self.principal:
                self._become(session.principal)
            if api_key == ApiKey.SASL_AUTHENTICATE:
                self._listener.services.audit.logged_in(
                    session.principal, self.client_host, listener=self._listener.name, how=session.mechanism
                )
            self._is_guarded = session.is_limited

    def _become(self, principal: str) -> None:
        """It is known who the client is."""
        self.principal = principal
        self.access = self._listener.services.access.of(principal, self.client_host)
        self.guard = None if self.access.is_open else self.access
        self.quota = self._listener.quotas.of(principal)

    def _end_login(self) -> None:
        """The time for the first login is up."""
        if self._session is not None and self._session.principal is None and not self._is_closed:
            self.close(UNAUTHENTICATED)

    def _is_of_broker(self, api: registry.Api, version: int, frame: memoryview) -> bool:
        """Whether a connection on probation may stay: every peer asks for the versions first and logs in where it must, a broker
        fetches then."""
        if api.key == ApiKey.API_VERSIONS:
            return True
        if self._session is not None and api.key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            return True
        replica_id = registry.replica_id_of(api, version, frame)
        if replica_id < 0 or replica_id not in self._listener.services.metadata.image.cluster.brokers:
            return False
        if not self.access.may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, is_noted=False):
            return False  # whoever may log in can say that it is a broker
        self.is_on_probation = False
        return True

    def end_probation(self) -> None:
        """The time is up: a connection that did not show that it is a broker's is closed."""
        if self.is_on_probation and not self._is_closed:
            self.close(self._listener.probation_reason)

    def _close_greedy(self, kind: int, reason: str) -> None:
        """A request that is more than one may be: Kafka's protocol has no answer before it is decoded."""
        self._listener.note_refused(kind, self.client_host, reason, "the client must send several smaller requests")
        self.close("oversized")

    def _close_refused(self, counted: str, kind: int | None, reason: str) -> None:
        """What is no request of Kafka's protocol as it is spoken here has no answer either. `counted`: see Stats."""
        self._listener.note_refused(kind, self.client_host, reason, "look at what that client sends, and to which port")
        self.close(counted)

    def _bug(self, slot: ResponseSlot, error: Exception) -> None:
        self.close_for(error, f"request api={int(slot.api_key)} v{slot.version}")

    def close_for(self, bug: Exception, what: str) -> None:
        """The third way out: what was not foreseen, perhaps found by a hostile frame, costs this connection only.

        A broken invariant costs the node. `what` failed.
        """
        if isinstance(bug, InvariantViolated):
            self._listener.fail(bug)
        logger.error("%s from %s failed; closing its connection", what, self.client_host, exc_info=bug)
        self.close("bug")
