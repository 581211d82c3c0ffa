"""The pictures: acknowledged records a second while a broker is killed; departures and delays (query 1), weather (query 2)."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import dates
from matplotlib.axes import Axes

NAMES = {"EWR": "Newark", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}
COLOURS = {"EWR": "#2f6690", "JFK": "#c8553d", "LGA": "#4c8c5a"}
INK, FAINT, GRID = "#22272e", "#8a929c", "#e6e9ed"
WEEK = 7
SLICE_S = 0.25


def draw(results: dict[str, Any], path: Path) -> None:
    """Left, per origin: mean delay of each day and its week, departures below. Right: mean delay by rain and visibility."""
    departures = results["departures"]
    origins = sorted({row["origin"] for row in departures})
    style = {"font.size": 9.5, "text.color": INK, "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT}
    with plt.rc_context(style | {"axes.edgecolor": GRID, "axes.titlecolor": INK}):
        figure = plt.figure(figsize=(13, 9), facecolor="white")
        left = figure.add_gridspec(len(origins), 1, left=0.06, right=0.67, top=0.83, bottom=0.05, hspace=0.38)
        right = figure.add_gridspec(2, 1, left=0.79, right=0.965, top=0.83, bottom=0.05, hspace=0.3)
        worst = max(row["mean_delay"] for row in departures)
        for place, origin in enumerate(origins):
            days = sorted((row for row in departures if row["origin"] == origin), key=lambda row: str(row["day"]))
            panels = left[place].subgridspec(2, 1, height_ratios=[3.4, 1], hspace=0.14)
            delay = figure.add_subplot(panels[0])
            count = figure.add_subplot(panels[1], sharex=delay)
            draw_origin(delay, count, origin, days, top=worst * 1.1)
        highest = max(row["mean_delay"] for rows in (results["by_rain"], results["by_visibility"]) for row in rows)
        draw_classes(figure.add_subplot(right[0]), "Rain in the hour", results["by_rain"], top=highest * 1.35)
        draw_classes(figure.add_subplot(right[1]), "Visibility, miles", results["by_visibility"], top=highest * 1.35)
        flown = sum(row["departures"] for row in departures)
        figure.text(0.06, 0.95, "Departures from New York, 2013", fontsize=17, fontweight="bold")
        figure.text(0.06, 0.915, f"{flown:,} flights through Barnabas into Spark", color=FAINT, fontsize=10.5)
        figure.text(0.06, 0.885, "Mean departure delay, minutes: each day, and over a week", color=FAINT, fontsize=10.5)
        figure.text(0.715, 0.885, "Mean departure delay by weather, minutes", color=FAINT, fontsize=10.5)
        figure.savefig(path, dpi=120)
        plt.close(figure)


def draw_throughput(
    acknowledged_s: list[float], path: Path, *, killed_s: float, failover_s: float, restarted_s: float, verdict: str
) -> None:
    """Acknowledged records a second, with the kill of a broker, the fail-over after it and its restart marked.

    acknowledged_s: when each record was acknowledged, in seconds since the first was handed over; so are killed_s and restarted_s.
    failover_s: from the kill until every partition that the broker led had taken a record.
    """
    counts, _ = np.histogram(acknowledged_s, bins=np.arange(0, max(acknowledged_s) + SLICE_S, SLICE_S))
    with plt.rc_context({"font.size": 11, "text.color": INK, "xtick.color": FAINT, "ytick.color": FAINT}):
        figure, panel = plt.subplots(figsize=(11, 4.2), facecolor="white")
        rates = counts / SLICE_S
        panel.fill_between(
            np.arange(len(rates)) * SLICE_S, rates, step="post", color=COLOURS["EWR"], alpha=0.75, linewidth=0
        )
        top = rates.max() * 1.3
        mark = COLOURS["JFK"]
        panel.axvspan(killed_s, killed_s + failover_s, color=mark, alpha=0.16, linewidth=0)
        for at_s, style in ((killed_s, "solid"), (restarted_s, "dashed")):
            panel.axvline(at_s, color=mark, linewidth=1.6, linestyle=style)
        # Before the kill and behind the restart: the broker can be back within a second, and no label may lie across a mark.
        for at_s, height, side, text in (
            (killed_s, 0.985, "right", "a broker is killed (SIGKILL) "),
            (killed_s, 0.915, "right", f"fail-over, shaded: {failover_s:.2f} s "),
            (restarted_s, 0.985, "left", " it is started again"),
        ):
            panel.text(at_s, top * height, text, color=mark, va="top", ha=side, fontsize=10.5)
        panel.set_ylim(0, top)
        panel.set_xlim(0, len(rates) * SLICE_S)
        panel.set_xlabel("seconds", color=FAINT)
        panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.grid(axis="y", color=GRID, linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left", "bottom"]].set_visible(False)
        panel.tick_params(length=0)
        panel.set_title("Acknowledged records a second", loc="left", fontsize=15, fontweight="bold", pad=26)
        panel.text(0, 1.03, verdict, transform=panel.transAxes, fontsize=10.5, color=FAINT)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
        plt.close(figure)


def draw_origin(delay: Axes, count: Axes, origin: str, days: list[dict[str, Any]], *, top: float) -> None:
    """One origin: delay above, departures below."""
    colour = COLOURS.get(origin, INK)
    when = [float(dates.date2num(date.fromisoformat(str(row["day"])))) for row in days]
    means = [row["mean_delay"] for row in days]
    delay.bar(when, means, width=1.0, color=colour, alpha=0.35, linewidth=0)
    delay.plot(when, weekly(means), color=colour, linewidth=2)
    delay.set_ylim(min(0, *means), top)
    delay.set_title(
        f"{NAMES.get(origin, origin)} ({origin})", loc="left", fontsize=11.5, fontweight="bold", color=colour, pad=6
    )
    worst = max(days, key=lambda row: row["mean_delay"])
    day = date.fromisoformat(str(worst["day"]))
    delay.annotate(
        f"{day.day} {day:%b}: {worst['mean_delay']:.0f} min",
        (dates.date2num(day), worst["mean_delay"]),
        xytext=(7, -4),
        textcoords="offset points",
        fontsize=9,
    )
    counts = [row["departures"] for row in days]
    count.bar(when, counts, width=1.0, color="#c5cbd3", linewidth=0)
    count.set_ylim(0, max(counts) * 1.1)
    count.set_yticks([0, 300])
    count.set_ylabel("flights", fontsize=8.5)
    for panel in (delay, count):
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.grid(axis="y", color=GRID, linewidth=0.8)
        panel.set_axisbelow(True)
        panel.tick_params(length=0)
        panel.set_xlim(when[0] - 0.5, when[-1] + 0.5)
    delay.tick_params(labelbottom=False)
    count.xaxis.set_major_locator(dates.MonthLocator(bymonthday=1))
    count.xaxis.set_major_formatter(dates.DateFormatter("%b"))
    for label in count.get_xticklabels():
        label.set_horizontalalignment("left")


def draw_classes(panel: Axes, title: str, rows: list[dict[str, Any]], *, top: float) -> None:
    """One bar per class of weather, the usual first."""
    names = [row["weather"] for row in rows]
    means = [row["mean_delay"] for row in rows]
    panel.barh(names, means, color="#5b6b7b", height=0.56)
    panel.invert_yaxis()
    panel.set_title(title, loc="left", fontsize=11.5, fontweight="bold", pad=8)
    panel.set_xlim(0, top)
    for place, row in enumerate(rows):
        at = row["mean_delay"] + top * 0.015
        panel.text(at, place - 0.09, f"{row['mean_delay']:.0f}", va="center", fontweight="bold")
        panel.text(at, place + 0.19, f"{row['departures']:,} flights", va="center", fontsize=8, color=FAINT)
    panel.spines[["top", "right", "bottom", "left"]].set_visible(False)
    panel.set_xticks([])
    panel.tick_params(length=0, labelcolor=INK)


def weekly(values: list[float]) -> list[float]:
    """Mean over the week around each day."""
    half = WEEK // 2
    windows = [values[max(0, at - half) : at + half + 1] for at in range(len(values))]
    return [sum(window) / len(window) for window in windows]
