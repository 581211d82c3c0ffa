"""Plain counters of the listeners; broker/metrics reads and names them.

May touch:  nothing.                  Must not touch: everything.
Invariants: counters only grow; `connections` is the number open now.
Read next:  connection.py, which counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import field

from barnabas_wire.histogram import Histogram
from barnabas_wire.lazy_dataclass import dataclass

COUNT_BITS = 48
"""The low bits of a value of `requests`, which count them; above is the sum of their sizes."""
_COUNT = (1 << COUNT_BITS) - 1
SIZE_BYTES = 4
"""The size field before each frame, in bytes."""


class RequestTimes(Histogram):
    """Times of one API's requests, and the bytes of their answers."""

    __slots__ = ("answer_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.answer_bytes = 0

    def note(self, seconds: float, times: int, answer_bytes: int) -> None:
        """Count answers that took as long; `answer_bytes` of all of them. Histogram.observe, without its call."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times
        self.answer_bytes += answer_bytes


@dataclass(slots=True)
class NetworkStats:
    """What the listeners of one node have seen."""

    connections: int = 0
    connections_accepted: int = 0
    connections_closed: Counter[str] = field(default_factory=Counter)
    """By reason: client, idle, frame, oversized, malformed, unsupported, limit, throttled, handshake, authentication, cut_off, short_read,
    memory, acks_zero_error, bug, shutdown."""
    requests: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By kind: api key << 16 | version, as a request begins: how many, and their bytes above COUNT_BITS: one addition counts both. Of what
    is served only: anybody can send kinds without end. No Counter, which adds by a Python call: once per request. See
    request_counts, request_bytes."""
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By (api key, error code): errors of a whole request and of single partitions of Produce and Fetch."""
    request_time_s: dict[int, RequestTimes] = field(default_factory=dict)
    """By api key: from the complete request until its answer is given to the socket or queued behind a slow client."""
    phase_s: dict[tuple[int, str], Histogram] = field(default_factory=dict)
    """By (api key, phase): of the requests that were measured (phases.py)."""
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

    def time_of(self, api_key: int) -> RequestTimes:
        """The request times of one API, made at its first request."""
        times = self.request_time_s.get(api_key)
        if times is None:
            times = self.request_time_s[api_key] = RequestTimes()
        return times

    def note_phases(self, api_key: int, phases: Iterable[tuple[str, float]]) -> None:
        """Count how long (s) phases of one request took."""
        for phase, seconds in phases:
            times = self.phase_s.get((api_key, phase))
            if times is None:
                times = self.phase_s[api_key, phase] = Histogram()
            times.observe(seconds)

    def request_counts(self) -> list[tuple[int, int]]:
        """(kind, requests)."""
        return [(kind, value & _COUNT) for kind, value in list(self.requests.items())]

    def request_bytes(self) -> dict[int, int]:
        """Api key -> bytes of its requests, their sizes included."""
        found: dict[int, int] = {}
        for kind, value in list(self.requests.items()):
            taken = (value >> COUNT_BITS) + SIZE_BYTES * (value & _COUNT)
            found[kind >> 16] = found.get(kind >> 16, 0) + taken
        return found
