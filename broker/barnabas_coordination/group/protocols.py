"""The assignment protocols that a group's members offer: what they share, which they choose, which topics they ask for in it.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a choice is a protocol that every member offers; metadata that cannot be read means "unknown", never an error: it
            belongs to the clients.
Read next:  classic.py, which keeps the choice, and the topics so that their offsets do not expire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from barnabas_wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.schema import decode

CONSUMER_PROTOCOL_TYPE = "consumer"

Offer = tuple[tuple[str, bytes], ...]
"""One member's: (protocol, what it says in it), the most wanted first."""


def common_protocols(offers: Iterable[Offer]) -> set[str]:
    """The names of the protocols that all members offer; none without members."""
    names = [{name for name, _ in offer} for offer in offers]
    return set.intersection(*names) if names else set()


def choose_protocol(offers: Sequence[Offer]) -> str:
    """Each member votes for its first protocol that all share; most votes win, then the first member's preference.

    Members that share nothing must not get here.
    """
    common = common_protocols(offers)
    votes = Counter(next(name for name, _ in offer if name in common) for offer in offers)
    preference = [name for name, _ in offers[0] if name in votes]
    return max(preference, key=lambda name: (votes[name], -preference.index(name)))


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of one member's subscription; None when the bytes do not have the layout."""
    if len(metadata) < 2 or metadata[0] & 0x80:
        return None
    try:
        # As version 0 whatever it says: topics come first in all, and some clients leave out the fields a version adds.
        return frozenset(decode(ConsumerProtocolSubscription, 0, metadata, 2).topics)
    except MalformedMessage:
        return None


def all_subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Topics that any of the members subscribes to; None when one of them cannot be read."""
    topics: set[str] = set()
    for subscribed in map(subscribed_topics, metadata):
        if subscribed is None:
            return None
        topics |= subscribed
    return frozenset(topics)
