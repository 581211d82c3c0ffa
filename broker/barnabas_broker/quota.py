"""The arithmetic of client quotas: which quota counts for a client, how fast the client was lately, how long it must wait.

May touch:  the image's quotas, its arguments.    Must not touch: clock (it is given the time), sockets, connections.
Invariants: a rate is measured over quota.window.num windows, the present one included, and never over less than all but one of them, so
            that a first burst is not taken for a rate; a client that waits for its throttle time is within its quota again.
Read next:  network/client_quotas.py, which keeps one window for each quota and connection.

Rules are Kafka's (KIP-13, KIP-124, KIP-219, KIP-599, KIP-612): of several quotas that match a client the most specific counts, and clients
share the window of the entity that it was set for.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from barnabas_quorum.image.quotas import QuotasImage
from barnabas_quorum.records_security import QuotaEntity, QuotaEntityPart
from barnabas_wire.config_key import config_key
from barnabas_wire.lazy_dataclass import dataclass

PRODUCED_BYTES: Final = "producer_byte_rate"
CONSUMED_BYTES: Final = "consumer_byte_rate"
REQUEST_TIME: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"
USER, CLIENT_ID, IP = "user", "client-id", "ip"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """What a node takes from its properties."""

    window_num: int = config_key(
        "quota.window.num", 11, "Windows that rates of bytes and request time are measured over."
    )
    window_size_seconds: int = config_key("quota.window.size.seconds", 1, "Length of one of these windows.")
    mutation_window_num: int = config_key(
        "controller.quota.window.num",
        11,
        "Windows whose allowance of partitions created and deleted may be spent at once.",
    )
    mutation_window_size_seconds: int = config_key(
        "controller.quota.window.size.seconds", 1, "Length of one of these windows."
    )

    def __post_init__(self) -> None:
        for key, value in (
            ("quota.window.num", self.window_num),
            ("quota.window.size.seconds", self.window_size_seconds),
            ("controller.quota.window.num", self.mutation_window_num),
            ("controller.quota.window.size.seconds", self.mutation_window_size_seconds),
        ):
            if value < 1:
                raise ValueError(f"{key}={value}: use 1 or more")


class Quota(NamedTuple):
    """What counts for a client."""

    bound: float
    entity: QuotaEntity
    """The entity that the window is of, the names of the client in place of defaults."""


def quota_of(image: QuotasImage, key: str, user: str, client_id: str) -> Quota | None:
    """The quota of a user and client id; None for no bound. The most precise that there is counts, as in Kafka."""
    if not image.entities:
        return None
    for user_name in (user, None):
        for client_name in (client_id, None):
            bound = image.get(_entity(user_name, client_name, has_user=True, has_client=True)).get(key)
            if bound is not None:
                return Quota(bound, _entity(user, client_id, has_user=True, has_client=True))
        bound = image.get(_entity(user_name, None, has_user=True, has_client=False)).get(key)
        if bound is not None:
            return Quota(bound, _entity(user, None, has_user=True, has_client=False))
    for client_name in (client_id, None):
        bound = image.get(_entity(None, client_name, has_user=False, has_client=True)).get(key)
        if bound is not None:
            return Quota(bound, _entity(None, client_id, has_user=False, has_client=True))
    return None


def address_quota(image: QuotasImage, address: str) -> float | None:
    """Connections per second that an address may make; None for no bound."""
    for name in (address, None):
        bound = image.get((QuotaEntityPart(IP, name),)).get(CONNECTIONS)
        if bound is not None:
            return bound
    return None


def _entity(user: str | None, client_id: str | None, *, has_user: bool, has_client: bool) -> QuotaEntity:
    client = (QuotaEntityPart(CLIENT_ID, client_id),) if has_client else ()
    return (*client, QuotaEntityPart(USER, user)) if has_user else client


class RateWindow:
    """How much of something there was in the last windows (Kafka's Rate over a SampledStat)."""

    __slots__ = ("_num", "_samples", "_size_ms", "_total")

    def __init__(self, num: int, size_ms: int) -> None:
        self._num = num
        self._size_ms = size_ms
        self._samples: deque[list[float]] = deque()
        """[began at ms, how much], the oldest first."""
        self._total = 0.0

    def record(self, amount: float, now_ms: float) -> None:
        """So much happened now."""
        self._purge(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._size_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def rate(self, now_ms: float) -> float:
        """A second."""
        self._purge(now_ms)
        return self._total * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long to rest, so that the rate is `bound` a second again; 0 when it is not above."""
        rate = self.rate(now_ms)
        if rate <= bound:
            return 0
        return round((rate - bound) / bound * self._span_ms(now_ms))

    def _span_ms(self, now_ms: float) -> float:
        elapsed = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._num - 1 - int(elapsed // self._size_ms)
        return max(elapsed + max(missing, 0) * self._size_ms, 1.0)

    def _purge(self, now_ms: float) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._num * self._size_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # nothing is left of it but what rounding left


class MutationBucket:
    """Tokens for changes that cost the controller work (KIP-599): a client that has any may spend more than it has, and waits then."""

    __slots__ = ("_at_ms", "_burst_s", "tokens")

    def __init__(self, config: QuotaConfig, bound: float, now_ms: float) -> None:
        self._burst_s = config.mutation_window_num * config.mutation_window_size_seconds
        self._at_ms = now_ms
        self.tokens = self._burst_s * bound

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long until there is a token; 0 when there is one, or just none."""
        elapsed_s = max(0.0, now_ms - self._at_ms) / 1000
        self._at_ms = max(now_ms, self._at_ms)
        self.tokens = min(self._burst_s * bound, self.tokens + elapsed_s * bound)
        return 0 if self.tokens >= 0 else round(-self.tokens / bound * 1000)

    def spend(self, count: float) -> None:
        """So many changes are made."""
        self.tokens -= count
