"""Encoded Metadata answers, kept while the image they were made from is current.

May touch:  the image's identity.     Must not touch: sockets, clock.
Invariants: a body is given out only for the very topics and cluster images it was made from; memory is bounded.
Read next:  metadata.py, its only user.

Encoding 100 topics of 10 partitions takes about 2 ms, and every client asks on every leader change.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

BODIES_BYTES_MAX = 8 * 1024 * 1024


class MetadataBodies:
    """One broker's cache. Not thread safe."""

    __slots__ = ("_bodies", "_bytes", "_cluster", "_topics")

    def __init__(self) -> None:
        self._topics: Any = None
        self._cluster: Any = None
        self._bodies: dict[Hashable, bytes] = {}
        self._bytes = 0

    def get(self, image: Any, key: Hashable) -> bytes | None:
        """The body for `key` made from this image, or None."""
        if image.topics is not self._topics or image.cluster is not self._cluster:
            return None
        return self._bodies.get(key)

    def put(self, image: Any, key: Hashable, body: bytes) -> None:
        """Keep a body; those of an older image, or of a full cache, go."""
        if image.topics is not self._topics or image.cluster is not self._cluster:
            self._topics, self._cluster = image.topics, image.cluster
            self._bodies.clear()
            self._bytes = 0
        if self._bytes + len(body) > BODIES_BYTES_MAX:
            self._bodies.clear()
            self._bytes = 0
        if len(body) <= BODIES_BYTES_MAX and key not in self._bodies:
            self._bodies[key] = body
            self._bytes += len(body)
