"""What a node keeps in memory, in descriptors, threads, tasks and maps: read from /proc and /metrics, and compared.

May touch:  /proc of the nodes, their metrics.   Must not touch: nodes.
Invariants: a figure is judged against the idle one after the first cycle, when pools, caches and arenas have their size.
Read next:  __main__.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

MIB = 1 << 20
RSS = "resident bytes"
DESCRIPTORS = "descriptors"
THREADS = "threads"


class Allowance(NamedTuple):
    """How far above its baseline a figure may end: a share of it, or a number, whichever is more."""

    share: float
    number: float


JUDGED: Mapping[str, Allowance] = {
    RSS: Allowance(0.15, 24 * MIB),
    DESCRIPTORS: Allowance(0.02, 12),
    THREADS: Allowance(0.1, 6),
    "barnabas_event_loop_tasks{control}": Allowance(0.1, 6),
    "barnabas_event_loop_tasks{data}": Allowance(0.1, 6),
    "barnabas_connections": Allowance(0, 6),
    "barnabas_purgatory_size": Allowance(0, 6),
    "barnabas_producer_ids": Allowance(0, 3),
    "barnabas_groups": Allowance(0, 0),
    "barnabas_group_members": Allowance(0, 0),
    "barnabas_replica_partitions": Allowance(0, 3),
    "barnabas_log_files_open": Allowance(0.05, 6),
    "barnabas_controller_event_queue_size": Allowance(0, 8),
}
"""Purgatory, connections, queue: nodes speak with each other, also while no client does. Log files: a partition of
the topic that stays may be about to lose its oldest segment. Other gauges are only shown."""
SHOWN_ALWAYS = (RSS, DESCRIPTORS, THREADS, "barnabas_event_loop_tasks{control}", "barnabas_event_loop_tasks{data}")


class Growth(NamedTuple):
    """A figure that did not return."""

    node: int
    figure: str
    before: float
    after: float
    is_judged: bool

    def __str__(self) -> str:
        return f"node {self.node}: {self.figure} grew from {self.before:,.0f} to {self.after:,.0f}"


def process_figures(pid: int) -> dict[str, float]:
    """What the kernel says of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {
        RSS: int(fields["VmRSS"].split()[0]) * 1024,
        DESCRIPTORS: len(list(Path(f"/proc/{pid}/fd").iterdir())),
        THREADS: int(fields["Threads"]),
    }


def gauge_sums(page: str) -> dict[str, float]:
    """Every gauge of a /metrics page summed over its labels; what has a lane, for each lane."""
    sums: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        if family.type == "gauge":
            for sample in family.samples:
                lane = sample.labels.get("lane")
                sums[f"{sample.name}{{{lane}}}" if lane else sample.name] += sample.value
    return dict(sums)


def find_growth(node: int, before: Mapping[str, float], after: Mapping[str, float]) -> list[Growth]:
    """What ended above its allowance. Figures that are not judged are those of maps and sizes that doubled, to look at."""
    grown = []
    for name, end in after.items():
        begin = before.get(name, 0.0)
        if name in JUDGED:
            allowed = begin + max(JUDGED[name].share * begin, JUDGED[name].number)
            if end > allowed:
                grown.append(Growth(node, name, begin, end, True))
        elif end > max(2 * begin, begin + 10) and not name.endswith(("_seconds", "_offset", "_epoch", "_ratio")):
            grown.append(Growth(node, name, begin, end, False))
    return grown


def table(rows: Sequence[tuple[str, Mapping[int, Mapping[str, float]]]]) -> str:
    """One line per moment and node: the figures that are always shown, and the maps."""
    names = [name for name in JUDGED if name not in SHOWN_ALWAYS]
    heads = ["moment", "node", "RSS MiB", "fds", "threads", "tasks c", "tasks d"]
    heads += [name.removeprefix("barnabas_") for name in names]
    lines = [heads]
    for moment, nodes in rows:
        for node, figures in nodes.items():
            cells = [moment, str(node), f"{figures[RSS] / MIB:.1f}"]
            cells += [f"{figures.get(name, 0):.0f}" for name in (*SHOWN_ALWAYS[1:], *names)]
            lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
