"""The picture of query 1: mean departure delay per origin over the year."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates as dates
import matplotlib.pyplot as plt

COLOURS = {"EWR": "#3366aa", "JFK": "#cc6633", "LGA": "#448844"}


def draw(departures: list[dict[str, Any]], path: Path) -> None:
    """One panel per origin: departures per day as bars, mean delay as a line."""
    origins = sorted({row["origin"] for row in departures})
    figure, panels = plt.subplots(len(origins), 1, figsize=(11, 2.6 * len(origins)), sharex=True, sharey=True)
    for origin, panel in zip(origins, panels, strict=True):
        days = sorted((row for row in departures if row["origin"] == origin), key=lambda row: str(row["day"]))
        when = [date.fromisoformat(str(row["day"])) for row in days]
        panel.axhline(0, color="#999999", linewidth=0.6)
        panel.plot(when, [row["mean_delay"] for row in days], color=COLOURS.get(origin, "#555555"), linewidth=1.2)
        panel.set_ylabel("mean delay, min")
        panel.set_title(f"{origin}: {sum(row['departures'] for row in days):,} departures", loc="left", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        bars = panel.twinx()
        bars.bar(when, [row["departures"] for row in days], width=1.0, color="#dddddd", zorder=0)
        bars.set_ylim(0, 1500)
        bars.set_ylabel("departures", color="#999999")
        bars.spines[["top"]].set_visible(False)
        panel.set_zorder(bars.get_zorder() + 1)
        panel.patch.set_visible(False)
    panels[-1].xaxis.set_major_locator(dates.MonthLocator())
    panels[-1].xaxis.set_major_formatter(dates.DateFormatter("%b"))
    figure.suptitle("Departures from New York in 2013, by origin and day", x=0.02, ha="left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
