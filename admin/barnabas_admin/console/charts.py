"""Series of the history as pages show them: points, figures in words, and a line that is drawn without any script.

May touch:  History.                  Must not touch: the cluster, HTTP.
Invariants: the line of the page and the one that a script draws over it have the same points.
Read next:  history.py; static/charts.js, which draws the same with a cursor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from barnabas_admin.console import sampler
from barnabas_admin.console.history import History, Series
from barnabas_admin.errors import WrongUsage

SPANS = {"1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600}
LATELY_S = 120
"""The seconds that a rate looks back which is one figure."""
MEBIBYTE = 1 << 20
WIDTH, HEIGHT = 600, 120
DAYS_SHOWN = 31


async def read_charts(history: History | None, span: str, wanted: list[tuple[str, str, str, str]]) -> dict[str, Any]:
    """Charts of (title, unit, kind, name) over a span; none where the console keeps no history. Raises WrongUsage."""
    if span not in SPANS:
        raise WrongUsage(f"charts show {', '.join(SPANS)}, not {span!r}")
    if history is None:
        return {"charts": [], "span": span, "spans": list(SPANS)}
    until_s = int(time.time())
    since_s = until_s - SPANS[span]

    def read() -> list[dict[str, Any]]:
        found = []
        for title, unit, kind, name in wanted:
            is_counter = kind in (sampler.TOPIC, sampler.ALL)
            series = (history.rate if is_counter else history.gauge)(kind, name, since_s=since_s, until_s=until_s)
            if kind == sampler.DATA:
                series = Series([(at_s, None if value is None else value / MEBIBYTE) for at_s, value in series.points])
            found.append(chart(title, unit, series, since_s, until_s))
        return found

    return {"charts": await asyncio.to_thread(read), "span": span, "spans": list(SPANS)}


async def read_rates(history: History | None, topics: Sequence[str]) -> dict[str, float]:
    """Records a second that came to topics lately, of those of which it is known."""
    if history is None:
        return {}
    until_s = int(time.time())

    def read() -> dict[str, float]:
        rates = {}
        for name in topics:
            latest = history.rate(sampler.TOPIC, name, since_s=until_s - LATELY_S, until_s=until_s).latest
            if latest is not None:
                rates[name] = latest
        return rates

    return await asyncio.to_thread(read)


async def read_days(history: History | None, topic: str) -> list[dict[str, Any]]:
    """Records that came to a topic, by day of UTC, newest first; each with its share of the greatest."""
    if history is None:
        return []
    found = await asyncio.to_thread(history.days, topic, limit=DAYS_SHOWN)
    most = max((records for _, records in found), default=0)
    return [
        {"day": day, "records": records, "share": round(100 * records / most) if most else 0} for day, records in found
    ]


def chart(title: str, unit: str, series: Series, since_s: int, until_s: int) -> dict[str, Any]:
    """A series with its newest, least and greatest value, and the lines of an SVG of WIDTH by HEIGHT.

    It begins with its first point: what a young console has seen fills the chart.
    """
    since_s = max(since_s, series.points[0][0]) if series.points else since_s
    known = [value for _, value in series.points if value is not None]
    most = max(known, default=0.0)
    top = most or 1.0

    def place(at_s: int, value: float) -> str:
        x = (at_s - since_s) / max(1, until_s - since_s) * WIDTH
        return f"{x:.1f},{HEIGHT - value / top * (HEIGHT - 8) - 4:.1f}"

    lines: list[list[str]] = [[]]
    for at_s, value in series.points:
        if value is None:
            lines.append([])
        else:
            lines[-1].append(place(at_s, value))
    return {
        "title": title,
        "unit": unit,
        "points": [[at_s, None if value is None else round(value, 2)] for at_s, value in series.points],
        "since_s": since_s,
        "until_s": until_s,
        "latest": None if series.latest is None else round(series.latest, 2),
        "least": round(min(known), 2) if known else None,
        "most": round(most, 2) if known else None,
        "lines": [" ".join(line) for line in lines if line],
    }
