"""Moments as operators write them: milliseconds, ISO 8601, or so long ago.

May touch:  its arguments.            Must not touch: the clock.
Invariants: a moment without a zone is this host's time, unless the caller names one; what cannot be read is wrong usage that
            names the forms.
Read next:  offset_seeking.py, commands/records.py.
"""

from __future__ import annotations

import datetime
import re

from barnabas_admin.errors import WrongUsage

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FORMS = "milliseconds since 1970, 2026-11-25T10:00, or -90s, -15m, -2h, -1d from now"


def parse_time(text: str, *, now_ms: int, zone: datetime.tzinfo | None = None) -> int:
    """The moment in milliseconds since 1970; `zone` is of a moment that names none. Raises WrongUsage."""
    if text.isdigit():
        return int(text)
    ago = re.fullmatch(r"-(\d+)(ms|s|m|h|d)", text)
    if ago is not None:
        return now_ms - int(ago[1]) * _UNITS_MS[ago[2]]
    try:
        moment = datetime.datetime.fromisoformat(text)
        return int((moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).timestamp() * 1000)
    except ValueError:
        raise WrongUsage(f"{text!r} is no moment", hint=f"write {FORMS}") from None
