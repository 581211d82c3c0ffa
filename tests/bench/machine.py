"""What the operating system says: CPU time and memory of processes, how long a flush takes, memory made ready.

May touch:  /proc, one probe file, memory.    Must not touch: sockets.
Invariants: CPU time is the scheduler's own, in ns, over all threads of a process.
Read next:  __main__.py.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

PROBE_PERIOD_S = 0.05
PIECE_BYTES = 32 * 1024 * 1024
AHEAD_PIECES = 4
LET_GO_PERIOD_S = 0.003


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that these processes have used, threads that have ended included: the kernel's flush workers come and go."""
    return sum(time.clock_gettime(_process_clock(pid)) for pid in pids)


def _process_clock(pid: int) -> int:
    """What clock_getcpuclockid(3) gives: the clock of all threads of a process, in ns of the scheduler."""
    return (~pid << 3) | 2


def stolen_s() -> float:
    """CPU seconds, over all cores since the start, that this machine wanted and its host gave to others."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"no VmRSS of process {pid}")


def congestion_control() -> str:
    """What the kernel gives new TCP connections; with bbr even loopback is paced, and costs several times as much."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


class MemoryAtHand:
    """Memory that the host has given to this machine, handed to whoever writes files while the block runs.

    A virtual machine hands free pages back to its host (free page reporting, within two seconds of their release): a first
    write into fresh page cache then costs 2.4 ms/MB in place of 0.2 (measured), and the run would measure that. Files are
    written before the run and removed in step with what the run writes, as it takes the pages of the file removed last.
    Touching anonymous memory of that size does not help: the page cache then takes other pages (2.4 ms/MB still).
    """

    def __init__(self, directory: Path, size_bytes: int) -> None:
        """`size_bytes`: as much as the block will write; `directory`: on the file system that it will write to."""
        self._directory = directory
        self._count = size_bytes // PIECE_BYTES + AHEAD_PIECES if size_bytes else 0
        self._pieces: list[Path] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._let_go, name="memory-at-hand", daemon=True)

    def __enter__(self) -> MemoryAtHand:
        piece = os.urandom(PIECE_BYTES)
        for index in range(self._count):
            path = self._directory / f"memory-at-hand-{index}"
            path.write_bytes(piece)
            self._pieces.append(path)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for path in self._pieces:
            path.unlink()

    def _let_go(self) -> None:
        """Keep free memory AHEAD_PIECES above what it was."""
        enough = free_bytes() + AHEAD_PIECES * PIECE_BYTES
        while self._pieces:
            if free_bytes() < enough:
                self._pieces.pop().unlink()
            elif self._stop.wait(LET_GO_PERIOD_S):
                return


def free_bytes() -> int:
    """Memory that nothing uses, not even the page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise LookupError("no MemFree in /proc/meminfo")


class FlushProbe:
    """Appends 16 KiB to a file of its own and flushes it, 20 times a second: what one fdatasync costs meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.seconds: list[float] = []
        self._path = directory / "flush-probe"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flush-probe", daemon=True)

    def __enter__(self) -> FlushProbe:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    @property
    def median_ms(self) -> float:
        """The usual fdatasync."""
        return statistics.median(self.seconds) * 1000 if self.seconds else 0.0

    @property
    def worst_ms(self) -> float:
        """The longest fdatasync."""
        return max(self.seconds, default=0.0) * 1000

    def _run(self) -> None:
        data = os.urandom(16 * 1024)
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        try:
            while not self._stop.is_set():
                os.write(descriptor, data)
                started = time.perf_counter()
                os.fdatasync(descriptor)
                self.seconds.append(time.perf_counter() - started)
                self._stop.wait(PROBE_PERIOD_S)
        finally:
            os.close(descriptor)
