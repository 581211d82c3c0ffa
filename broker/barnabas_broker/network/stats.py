"""Plain counters of the listeners; broker/metrics reads and names them.

May touch:  nothing.                  Must not touch: everything.
Invariants: counters only grow; `connections` is the number open now.
Read next:  connection.py, which counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas_wire.histogram import Histogram


@dataclass(slots=True)
class NetworkStats:
    """What the listeners of one node have seen."""

    connections: int = 0
    connections_accepted: int = 0
    connections_closed: Counter[str] = field(default_factory=Counter)
    """By reason: client, idle, frame, oversized, malformed, unsupported, limit, throttled, handshake, authentication, cut_off, short_read,
    memory, acks_zero_error, bug, shutdown."""
    requests: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By kind: api key << 16 | version, as a request begins. Of what is served only: anybody can send kinds without end. No
    Counter, which adds by a Python call: once per request."""
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By (api key, error code): errors of a whole request and of single partitions of Produce and Fetch."""
    request_time_s: dict[int, Histogram] = field(default_factory=dict)
    """By api key: from the complete request until its answer is given to the socket or queued behind a slow client."""
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_sent_from_files: int = 0
    """Part of bytes_out that went by sendfile."""
    cold_reads: int = 0
    """Ranges that were not in the page cache and were read ahead by a thread before they were sent."""
    wake_ups: int = 0
    """Times a connection was read; requests / wake_ups says how much the cork gathers."""

    request_memory_bytes: Callable[[], int] = lambda: 0
    """What requests of all clients take now; set by the listeners."""

    def time_of(self, api_key: int) -> Histogram:
        """The request time histogram of one API, made at its first request."""
        histogram = self.request_time_s.get(api_key)
        if histogram is None:
            histogram = self.request_time_s[api_key] = Histogram()
        return histogram
