"""Quotas enforced: bytes in, bytes out and request time of connections are charged to windows; a client beyond its quota is muted.

May touch:  quota.py, slots, the clock.   Must not touch: sockets, handlers, the image beyond its quotas.
Invariants: an answer leaves at once and says how long its connection will not be read (KIP-219); other brokers are never throttled; a
            connection without a quota pays one comparison a request; windows are bounded in number, the longest unused goes first.
Read next:  ../quota.py (the arithmetic); connection.py, which asks.

Differences from Kafka: a fetch beyond its quota brings its records all the same, and the connection rests for them; the share of
request_percentage is of the time that requests hold the data loop, so that 100 is all of it; changes that cost the controller work are
counted by the broker that takes them.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from barnabas_broker.api.slot import Part, ResponseSlot
from barnabas_broker.quota import (
    CONSUMED_BYTES,
    MUTATIONS,
    PRODUCED_BYTES,
    REQUEST_TIME,
    MutationBucket,
    QuotaConfig,
    RateWindow,
    address_quota,
    quota_of,
)
from barnabas_broker.security.sasl.session import USER
from barnabas_quorum.image.quotas import EMPTY_QUOTAS, QuotasImage
from barnabas_quorum.records_security import QuotaEntity
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import fields_of, message_classes

WINDOWS_MAX: Final = 10_000
"""The most rate windows of one node: clients can name themselves as they like."""
CLIENT_ID_BYTES_MAX: Final = 255
"""How many bytes of a client id count: longer ones that begin alike share a quota, or a client could fill the memory
with them."""
CLIENT_IDS_MAX: Final = 64
"""The most client ids that one connection remembers quotas for."""
_THROTTLE = "throttle_time_ms"


class Limit:
    """One window, and what is allowed in it."""

    __slots__ = ("bound", "most_ms", "window")

    def __init__(self, bound: float, window: RateWindow, *, most_ms: int | None = None) -> None:
        """`most_ms`: no client is throttled longer at once. None: as long as it takes."""
        self.bound = bound
        self.window = window
        self.most_ms = most_ms

    def charge(self, amount: float, now_ms: float) -> int:
        """Record it; how long to rest, ms."""
        self.window.record(amount, now_ms)
        return self.throttle_ms(now_ms)

    def throttle_ms(self, now_ms: float) -> int:
        """How long to rest for what is recorded."""
        throttle_ms = self.window.throttle_ms(self.bound, now_ms)
        return throttle_ms if self.most_ms is None else min(throttle_ms, self.most_ms)


class ClientLimits:
    """What counts for one user with one client id."""

    __slots__ = ("consumed", "mutations", "mutations_bound", "produced", "time")

    def __init__(
        self,
        produced: Limit | None,
        consumed: Limit | None,
        time: Limit | None,
        mutations: MutationBucket | None,
        mutations_bound: float,
    ) -> None:
        self.produced = produced
        self.consumed = consumed
        self.time = time
        self.mutations = mutations
        self.mutations_bound = mutations_bound


class Charge:
    """What one request is charged with when it is answered."""

    __slots__ = ("_limits", "_now_ms", "_request_bytes", "extra_ms")

    def __init__(self, limits: ClientLimits, request_bytes: int, now_ms: Callable[[], float]) -> None:
        self._limits = limits
        self._request_bytes = request_bytes
        self._now_ms = now_ms
        self.extra_ms = 0
        """Rest that its handler found to be due."""

    def take_mutations(self, count: int, *, is_strict: bool) -> bool:
        """Count changes of the metadata; False when there are none left, and a client that knows of it (`is_strict`) gets the error."""
        limits = self._limits
        if limits.mutations is None:
            return True
        now_ms = self._now_ms()
        self.extra_ms = limits.mutations.throttle_ms(limits.mutations_bound, now_ms)
        if self.extra_ms and is_strict:
            return False
        limits.mutations.spend(count)
        if not is_strict:
            self.extra_ms = limits.mutations.throttle_ms(limits.mutations_bound, now_ms)
        return True

    def settle(self, slot: ResponseSlot, parts: Sequence[Part], size_bytes: int) -> Sequence[Part]:
        """The answer, which says how long its connection rests now."""
        connection = slot.connection
        if connection is None or connection.is_of_broker:
            return parts
        limits, now_ms = self._limits, self._now_ms()
        throttle_ms = self.extra_ms
        if slot.api_key == ApiKey.PRODUCE and limits.produced is not None:
            throttle_ms = max(throttle_ms, limits.produced.charge(self._request_bytes, now_ms))
        elif slot.api_key in (ApiKey.FETCH, ApiKey.SHARE_FETCH) and limits.consumed is not None:
            throttle_ms = max(throttle_ms, limits.consumed.charge(size_bytes, now_ms))
        if limits.time is not None:
            throttle_ms = max(throttle_ms, limits.time.throttle_ms(now_ms))
        if throttle_ms <= 0:
            return parts
        connection.mute(throttle_ms, slot.api_key)
        return with_throttle(slot.api_key, slot.version, parts, throttle_ms)


class ConnectionQuota:
    """The quotas of one connection, while there are any."""

    __slots__ = ("_limits", "_quotas", "_user")

    def __init__(self, quotas: ClientQuotas, user: str) -> None:
        self._quotas = quotas
        self._user = user
        self._limits: dict[bytes, ClientLimits | None] = {}

    def begin(self, frame: memoryview, client_id_bytes: int) -> Charge | None:
        """A request came; None where no quota means its client."""
        client_id = bytes(frame[10 : 10 + min(client_id_bytes, CLIENT_ID_BYTES_MAX)]) if client_id_bytes > 0 else b""
        limits = self._limits.get(client_id)
        if limits is None:
            if client_id in self._limits:
                return None
            if len(self._limits) >= CLIENT_IDS_MAX:
                self._limits.clear()
            limits = self._quotas.limits_of(self._user, client_id.decode(errors="replace"))
            self._limits[client_id] = limits
            if limits is None:
                return None
        return Charge(limits, len(frame), self._quotas.now_ms)

    def note_time(self, charge: Charge, seconds: float) -> int:
        """The request held the loop so long; how long its connection is to rest, ms."""
        limit = charge._limits.time
        return 0 if limit is None else limit.charge(seconds * 100, self._quotas.now_ms())


class ClientQuotas:
    """The client quotas of one node. Belongs to the data lane."""

    def __init__(self, config: QuotaConfig, *, now_ms: Callable[[], float]) -> None:
        """`now_ms` never jumps."""
        self._config = config
        self.now_ms = now_ms
        self._image = EMPTY_QUOTAS
        self._windows: OrderedDict[tuple[str, QuotaEntity | str], RateWindow] = OrderedDict()
        self._buckets: OrderedDict[QuotaEntity, MutationBucket] = OrderedDict()

    def follow(self, image: QuotasImage) -> None:
        """Count by these quotas from now on. What was recorded stays."""
        self._image = image

    def of(self, principal: str) -> ConnectionQuota | None:
        """The quotas of a connection of that principal; None while there are no quotas."""
        return ConnectionQuota(self, principal.removeprefix(USER)) if self._image.entities else None

    def limits_of(self, user: str, client_id: str) -> ClientLimits | None:
        """What counts for who; None for nothing."""
        produced = self._limit(PRODUCED_BYTES, user, client_id)
        consumed = self._limit(CONSUMED_BYTES, user, client_id)
        time = self._limit(REQUEST_TIME, user, client_id)
        if time is not None:
            time.most_ms = self._config.window_size_seconds * 1000  # as Kafka has it: a share of time is not saved up
        mutations = quota_of(self._image, MUTATIONS, user, client_id)
        if mutations is None:
            if produced is None and consumed is None and time is None:
                return None
            return ClientLimits(produced, consumed, time, None, 0.0)
        bucket = self._buckets.get(mutations.entity)
        if bucket is None:
            bucket = MutationBucket(self._config, mutations.bound, self.now_ms())
            self._buckets[mutations.entity] = bucket
            if len(self._buckets) > WINDOWS_MAX:
                self._buckets.popitem(last=False)
        return ClientLimits(produced, consumed, time, bucket, mutations.bound)

    def connection_throttle_ms(self, address: str) -> int:
        """A connection of that address begins; how long it is kept waiting before it is closed, 0 to serve it."""
        if not self._image.entities:
            return 0
        bound = address_quota(self._image, address)
        if bound is None:
            return 0
        window_ms = self._config.window_size_seconds * 1000
        return min(Limit(bound, self._window("connections", address)).charge(1, self.now_ms()), window_ms)

    def _limit(self, key: str, user: str, client_id: str) -> Limit | None:
        quota = quota_of(self._image, key, user, client_id)
        return None if quota is None else Limit(quota.bound, self._window(key, quota.entity))

    def _window(self, key: str, whose: QuotaEntity | str) -> RateWindow:
        window = self._windows.get((key, whose))
        if window is None:
            window = RateWindow(self._config.window_num, self._config.window_size_seconds * 1000)
            self._windows[(key, whose)] = window
            if len(self._windows) > WINDOWS_MAX:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end((key, whose))
        return window


def with_throttle(api_key: int, version: int, parts: Sequence[Part], throttle_ms: int) -> Sequence[Part]:
    """The parts of an answer with its throttle time set, where the answer has one at a known place."""
    position = _throttle_position(api_key, version)
    first = parts[0] if parts else b""
    if position is None or not isinstance(first, (bytes, bytearray)) or not first:
        return parts
    head = bytearray(first)
    if position < 0:
        position += len(head)
        if api_key == ApiKey.PRODUCE and version >= 9 and any(head[position:]):
            # Not an unset time and no tagged fields, five zero bytes: the fields name other leaders, and end in a port and a rack,
            # which are never all zero. The client will not come back here at all.
            return parts
    struct.pack_into(">i", head, position, min(throttle_ms, 2**31 - 1))
    return (head, *parts[1:])


@lru_cache(1024)
def _throttle_position(api_key: int, version: int) -> int | None:
    """Where the throttle time is in an answer frame of this kind; negative from its end. None where it has none, or
    anywhere."""
    if api_key == ApiKey.PRODUCE:
        return None if version < 1 else -5 if version >= 9 else -4
    request, response = message_classes(ApiKey(api_key))
    for name, spec in fields_of(response):
        if spec.tag is None and spec.exists(version):
            is_flexible = version >= request.FLEXIBLE_FROM and api_key != ApiKey.API_VERSIONS
            return 8 + is_flexible if name == _THROTTLE else None
    return None
