"""`python -m tests.chaos.clock_node --shift FILE [-c server.properties …]`: a real node whose wall clock a file shifts.

libfaketime would shift the whole process, and with it the waits of gRPC and of the C library: nodes stood still for ten seconds at
a time. All of the node's own wall time comes from `time.time` and `time.time_ns`; those are shifted here, nothing else. gRPC's Python
half makes deadlines of `time.time`, which its C half holds against the machine's clock: it keeps the real one, or every call of a
node whose clock is behind would be past its deadline.

May touch:  this process's time.time and time.time_ns, before the node runs.   Must not touch: monotonic clocks, the machine's clock.
Invariants: without a shift the node is barnabas-server; what the file says counts SHIFT_READ_EVERY_S later.
Read next:  data/faults.py, which writes the file.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from grpc.aio import _utils

SHIFT_READ_EVERY_S = 0.1


def shift_seen(file: Path) -> int | None:
    """Whole seconds that the node of this file last took over; None before it read any."""
    try:
        return int(_seen(file).read_text())
    except (FileNotFoundError, ValueError):  # not written yet, or being written
        return None


def _seen(file: Path) -> Path:
    return file.with_suffix(".seen")


class WallClock:
    """The machine's wall clock plus whole seconds that a file gives."""

    def __init__(self, file: Path, *, real_ns: Callable[[], int] = time.time_ns) -> None:
        self._file = file
        self._real_ns = real_ns
        self.shift_s = 0
        self.read()

    def read(self) -> None:
        """Take the shift that the file gives now."""
        self.shift_s = int(self._file.read_text())

    def time_ns(self) -> int:
        """ns since 1970, shifted."""
        return self._real_ns() + self.shift_s * 1_000_000_000

    def time(self) -> float:
        """s since 1970, shifted."""
        return self.time_ns() / 1e9

    def follow(self) -> None:
        """Read the file again and again, until the process ends; write down each shift, as the node itself sees it."""
        written = None
        while True:
            self.read()
            if self.shift_s != written:
                written = self.shift_s
                _seen(self._file).write_text(str(round(time.time() - self._real_ns() / 1e9)))
            time.sleep(SHIFT_READ_EVERY_S)


def main(arguments: list[str]) -> int:
    """Shift this process's wall clock, then run the node; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--shift", type=Path, required=True, help="holds whole seconds, such as -3600")
    options, rest = parser.parse_known_args(arguments)
    clock = WallClock(options.shift)
    vars(_utils)["time"] = SimpleNamespace(time=time.time)
    time.time, time.time_ns = clock.time, clock.time_ns
    threading.Thread(target=clock.follow, name="wall clock", daemon=True).start()
    from barnabas_broker.main import main as run_server  # after the clock: a module may take time.time by its name

    return run_server(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
