"""The throttle of replicas that catch up: token buckets, and which replicas they are for.

May touch:  its arguments.                Must not touch: asyncio, clock, log, network.
Invariants: only replicas outside the ISR are throttled, so that no acknowledgement waits for it; over time no more bytes pass
            than the rate allows, whatever the size of one fetch: what a fetch took too much is paid back before the next.
Read next:  fetcher_partitions.py (the follower's side), fetches.py (the leader's side).

Kafka's keys: on topics leader/follower.replication.throttled.replicas, a list of `partition:broker` or `*`; on brokers
leader/follower.replication.throttled.rate in bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from barnabas_wire.java_values import java_int
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass

LEADER_REPLICAS_KEY = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS_KEY = "follower.replication.throttled.replicas"
LEADER_RATE_KEY = "leader.replication.throttled.rate"
FOLLOWER_RATE_KEY = "follower.replication.throttled.rate"
THROTTLED_REPLICAS_KEYS = frozenset({LEADER_REPLICAS_KEY, FOLLOWER_REPLICAS_KEY})
THROTTLED_RATE_KEYS = frozenset({LEADER_RATE_KEY, FOLLOWER_RATE_KEY})

EVERY_REPLICA = "*"
FETCH_BYTES_MIN = 64 << 10
"""A throttled fetch asks for no less: smaller ones cost more in rounds than they smooth."""


class TokenBucket(NamedTuple):
    """Bytes that may pass: `rate` more each second, at most one second's worth saved up. Below zero is debt."""

    rate: int
    tokens: float
    at_ms: int


def full_bucket(rate: int, now_ms: int) -> TokenBucket:
    """A bucket that starts full."""
    return TokenBucket(rate, float(rate), now_ms)


def refilled(bucket: TokenBucket, now_ms: int) -> TokenBucket:
    """The bucket now."""
    gained = bucket.rate * max(0, now_ms - bucket.at_ms) / 1000
    return TokenBucket(bucket.rate, min(float(bucket.rate), bucket.tokens + gained), max(now_ms, bucket.at_ms))


def taken(bucket: TokenBucket, size_bytes: int, now_ms: int) -> TokenBucket:
    """The bucket after so many bytes have passed, which may be more than it held."""
    now = refilled(bucket, now_ms)
    return now._replace(tokens=now.tokens - size_bytes)


def ready_at_ms(bucket: TokenBucket, now_ms: int) -> int:
    """When the next bytes may pass: now while there are tokens, else when the debt is paid."""
    now = refilled(bucket, now_ms)
    if now.tokens > 0:
        return now_ms
    return now_ms + max(1, math.ceil((1 - now.tokens) * 1000 / now.rate))


class ThrottledReplicas(NamedTuple):
    """Which replicas of one topic are throttled."""

    is_every: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()
    """(partition, broker)"""

    def has(self, partition: int, broker_id: int) -> bool:
        """Whether that replica is."""
        return self.is_every or (partition, broker_id) in self.replicas


def parse_throttled_replicas(key: str, text: str) -> ThrottledReplicas:
    """Read a topic's list; raises KafkaError INVALID_CONFIG."""
    if text.strip() == EVERY_REPLICA:
        return ThrottledReplicas(is_every=True)
    found = set()
    for part in text.split(","):
        if not part.strip():
            continue
        partition, _, broker = part.strip().partition(":")
        if not partition.isdecimal() or not broker.isdecimal():
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG, f"{key}={text!r}: write partition:broker,partition:broker,… or * for all"
            )
        found.add((int(partition), int(broker)))
    return ThrottledReplicas(replicas=frozenset(found))


def parse_throttled_rate(key: str, text: str) -> int:
    """Read a rate in bytes per second; raises KafkaError INVALID_CONFIG."""
    try:
        rate = java_int(text)
    except ValueError:
        rate = 0
    if rate < 1:
        raise KafkaError.of(
            ErrorCode.INVALID_CONFIG,
            f"{key}={text!r} is no whole number of bytes per second from 1 up; delete the key to lift it",
        )
    return rate


@dataclass(slots=True)
class ThrottleSide:
    """What this broker sends (as leader) or fetches (as follower) under the throttle."""

    bucket: TokenBucket | None = None
    topics: dict[str, ThrottledReplicas] = field(default_factory=dict)
    bytes_taken: int = 0
    """Since the start; read by the metrics."""

    @property
    def is_on(self) -> bool:
        """Whether anything is throttled; read on every fetch."""
        return self.bucket is not None and bool(self.topics)

    def set_rate(self, rate: int | None, now_ms: int) -> None:
        """Bytes per second; None lifts the throttle. A rate that stays keeps its debt."""
        if rate is None:
            self.bucket = None
        elif self.bucket is None or self.bucket.rate != rate:
            self.bucket = full_bucket(rate, now_ms)

    def set_topic(self, topic: str, replicas: ThrottledReplicas) -> None:
        """Which replicas of a topic are throttled."""
        if replicas.is_every or replicas.replicas:
            self.topics[topic] = replicas
        else:
            self.topics.pop(topic, None)

    def covers(self, topic: str, partition: int, broker_id: BrokerId) -> bool:
        """Whether that replica is throttled while it is out of sync."""
        throttled = self.topics.get(topic)
        return self.bucket is not None and throttled is not None and throttled.has(partition, broker_id)

    def ready_at_ms(self, now_ms: int) -> int:
        """When throttled bytes may pass next."""
        return now_ms if self.bucket is None else ready_at_ms(self.bucket, now_ms)

    def bytes_max(self, now_ms: int, limit: int) -> int:
        """How much one fetch of a throttled partition should ask for."""
        if self.bucket is None:
            return limit
        return min(limit, max(FETCH_BYTES_MIN, int(refilled(self.bucket, now_ms).tokens)))

    def take(self, size_bytes: int, now_ms: int) -> None:
        """Throttled bytes have passed."""
        if self.bucket is not None:
            self.bytes_taken += size_bytes
            self.bucket = taken(self.bucket, size_bytes, now_ms)


class ReplicationThrottle:
    """Both sides of one broker. Owned by its replica manager."""

    __slots__ = ("as_follower", "as_leader")

    def __init__(self) -> None:
        self.as_leader = ThrottleSide()
        self.as_follower = ThrottleSide()

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        """A topic's configs changed; raises KafkaError INVALID_CONFIG."""
        leaders = parse_throttled_replicas(LEADER_REPLICAS_KEY, overrides.get(LEADER_REPLICAS_KEY, ""))
        followers = parse_throttled_replicas(FOLLOWER_REPLICAS_KEY, overrides.get(FOLLOWER_REPLICAS_KEY, ""))
        self.as_leader.set_topic(topic, leaders)
        self.as_follower.set_topic(topic, followers)

    def set_rates(self, overrides: Mapping[str, str], now_ms: int) -> None:
        """This broker's configs, or those of all brokers, changed; raises KafkaError INVALID_CONFIG."""
        for side, key in ((self.as_leader, LEADER_RATE_KEY), (self.as_follower, FOLLOWER_RATE_KEY)):
            text = overrides.get(key)
            side.set_rate(None if text is None else parse_throttled_rate(key, text), now_ms)
