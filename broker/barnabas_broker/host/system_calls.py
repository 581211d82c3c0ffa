"""What a host asks of its system that Linux alone answers: cores, the memory of a process, the descriptors of all.

May touch:  /proc, the scheduler.     Must not touch: nodes, files of ours.
Invariants: each call has a twin, which says what every system knows, or that it is not known.
Read next:  command.py; starting.py; supervisor.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from barnabas_broker.node.descriptor_budget import UNLIMITED
from barnabas_wire.host_system import has_linux


def allowed_cores() -> Sequence[int]:
    """The numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if has_linux() else range(os.cpu_count() or 1)


def bind_to_core(core: int) -> None:
    """This process, with all that it starts, runs there alone. Raises OSError. A host is planned without where it cannot be."""
    os.sched_setaffinity(0, {core})


def memory_bytes(pid: int) -> int | None:
    """What a process adds to the memory that is used: its own pages, and its part of those that it shares. None where
    that is not known."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:
            return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None


def system_descriptors() -> int:
    """How many files all processes may open together; where that is not known, more than matters."""
    try:
        return int(Path("/proc/sys/fs/file-max").read_text())
    except (OSError, ValueError):
        return UNLIMITED << 10
