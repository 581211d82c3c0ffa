"""How many lines about others' noise the audit log takes: so many of one source, so many of all, and the rest is summed up.

May touch:  its arguments.            Must not touch: clock, files, threads.
Invariants: an event is let through or counted in a sum, never both and never neither; sources that are remembered are SOURCES_MAX at most.
Read next:  audit.py, which asks for every denial and login, and never for a change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WINDOW_MS: Final = 60_000
SOURCE_LINES_MAX: Final = 60
"""The most lines of one principal at one address in a window."""
LINES_MAX: Final = 3_000
"""The most lines of all sources in a window. 128 MiB hold an hour of so many lines of the usual size."""
SOURCES_MAX: Final = 1_000
OTHERS: Final = "(others)"
"""Stands for the sources beyond SOURCES_MAX."""


class Source(NamedTuple):
    """The source that an event is counted for."""

    principal: str
    host: str


class AuditBudget:
    """The budget of lines of one kind of event."""

    __slots__ = ("_began_ms", "_lines", "_seen", "_summed")

    def __init__(self) -> None:
        self._began_ms: int | None = None
        """When the window began, with its first event; None: none has."""
        self._lines = 0
        self._seen: dict[Source, int] = {}
        self._summed: dict[Source, int] = {}

    def admits(self, source: Source, now_ms: int) -> bool:
        """Whether an event gets its own line; if not, it is counted for the next sum."""
        if self._began_ms is None:
            self._began_ms = now_ms
        seen = self._seen.get(source)
        if seen is None and len(self._seen) >= SOURCES_MAX:
            source = Source(OTHERS, OTHERS)
            seen = self._seen.get(source)
        seen = seen or 0
        self._seen[source] = seen + 1
        if seen < SOURCE_LINES_MAX and self._lines < LINES_MAX:
            self._lines += 1
            return True
        self._summed[source] = self._summed.get(source, 0) + 1
        return False

    def ended(self, now_ms: int) -> dict[Source, int]:
        """What was summed up, once a window is over; then a new one begins. `now_ms` may jump: the window then ends early."""
        if self._began_ms is None or 0 <= now_ms - self._began_ms < WINDOW_MS:
            return {}
        return self.close()

    def close(self) -> dict[Source, int]:
        """End the window now."""
        summed, self._summed = self._summed, {}
        self._seen = {}
        self._lines = 0
        self._began_ms = None
        return summed
