"""The ratios of a comparison as one picture.

May touch:  a file it is named.       Must not touch: sockets, processes.
Invariants: the axis is logarithmic, so that twice as much and half as much are as far from one.
Read next:  results.py.
"""

from __future__ import annotations

from pathlib import Path

from tests.bench.peer.results import HIGHER_IS_BETTER, Results

AHEAD, BEHIND = "#2a7f62", "#b5442e"


def draw(results: Results, path: Path) -> None:
    """One bar per row and figure: Barnabas divided by Kafka, the spread as a line; the format goes by the file's name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.fonttype"] = "none"

    bars = [
        (f"{row}: {figure}", ratio, (ratio.median < 1) != (figure in HIGHER_IS_BETTER))
        for row, figures in results.rows.items()
        for figure in figures
        if (ratio := results.ratio(row, figure)) is not None and ratio.median > 0
    ]
    if not bars:
        raise ValueError("nothing was measured of both systems: there is no ratio to draw")
    height = 1.2 + 0.22 * len(bars)
    drawing, axes = pyplot.subplots(figsize=(11, height), layout="constrained")
    for place, (_, ratio, is_ahead) in enumerate(reversed(bars)):
        colour = AHEAD if is_ahead else BEHIND
        axes.barh(place, ratio.median - 1, left=1, color=colour, height=0.7)
        axes.plot([ratio.least, ratio.most], [place, place], color="black", linewidth=1)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in reversed(bars)], fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("Barnabas ÷ Apache Kafka (green: Barnabas is ahead; line: spread of the rounds)")
    axes.set_ylim(-0.6, len(bars) - 0.4)
    drawing.savefig(path, dpi=120)
    pyplot.close(drawing)
