"""Timestamps as text for people: a record's time is whatever its producer wrote, so not every one has a date.

May touch:  its arguments, this host's time zone.   Must not touch: clocks, records.
Invariants: every 64-bit number has a text; what has no date is printed as @milliseconds, which the commands take as a time.
Read next:  admin/barnabas_admin/record_format.py and broker/barnabas_broker/offline/log_dump.py, which print them.
"""

from __future__ import annotations

from datetime import datetime, tzinfo


def moment_of(timestamp_ms: int, zone: tzinfo | None = None) -> datetime | None:
    """The moment, in this host's zone unless `zone` is given; None outside the years 1 to 9999, which datetime cannot hold.

    Nanoseconds or microseconds written into a field of milliseconds are such times.
    """
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, zone)
    except (ValueError, OverflowError, OSError):
        return None


def iso_text(timestamp_ms: int, zone: tzinfo | None = None, *, sep: str = "T", timespec: str = "milliseconds") -> str:
    """ISO 8601 with `sep` before the hours, to `timespec` as datetime.isoformat takes it; @milliseconds where there is no date."""
    moment = moment_of(timestamp_ms, zone)
    return f"@{timestamp_ms}" if moment is None else moment.isoformat(sep, timespec)
