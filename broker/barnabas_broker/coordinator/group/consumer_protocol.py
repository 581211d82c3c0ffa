"""The one thing the broker reads inside a member's metadata: which topics a consumer subscribes to.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: bytes that cannot be read mean "unknown", never an error: the metadata belongs to the clients.
Read next:  classic.py, which keeps the topics so that their offsets do not expire.
"""

from __future__ import annotations

from barnabas_wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas_wire.kafka.primitives import MalformedMessage
from barnabas_wire.kafka.schema import decode

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of one member's subscription; None when the bytes do not have the layout."""
    if len(metadata) < 2 or metadata[0] & 0x80:
        return None
    try:
        # As version 0 whatever it says: topics come first in all, and some clients leave out the fields a version adds.
        return frozenset(decode(ConsumerProtocolSubscription, 0, metadata, 2).topics)
    except MalformedMessage:
        return None
