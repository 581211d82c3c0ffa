"""The one thing the broker reads inside a member's metadata: which topics a consumer subscribes to.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: bytes that cannot be read mean "unknown", never an error: the metadata belongs to the clients.
Read next:  classic.py, which keeps the topics so that their offsets do not expire.

Layout of ConsumerProtocolSubscription, any version: int16 version, int32 count, count × (int16 length, utf-8); the rest is not
read.
"""

from __future__ import annotations

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of one member's subscription; None when the bytes do not have the layout."""
    if len(metadata) < 6 or int.from_bytes(metadata[:2], "big", signed=True) < 0:
        return None
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    position = 6
    if not 0 <= count <= (len(metadata) - position) // 2:
        return None
    topics = set()
    for _ in range(count):
        if position + 2 > len(metadata):
            return None
        size = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        position += 2
        if size < 0 or position + size > len(metadata):
            return None
        try:
            topics.add(metadata[position : position + size].decode())
        except UnicodeDecodeError:
            return None
        position += size
    return frozenset(topics)
