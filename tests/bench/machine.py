"""What the operating system says: CPU time and memory of processes, how long a flush takes, memory made ready.

May touch:  /proc, one probe file, memory.    Must not touch: sockets.
Invariants: CPU time is the scheduler's own, in ns, over all threads of a process.
Read next:  __main__.py.
"""

from __future__ import annotations

import mmap
import os
import statistics
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

PAGE_BYTES = 4096
PROBE_PERIOD_S = 0.05


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that these processes have used, threads that have ended included: the kernel's flush workers come and go."""
    return sum(time.clock_gettime(_process_clock(pid)) for pid in pids)


def _process_clock(pid: int) -> int:
    """What clock_getcpuclockid(3) gives: the clock of all threads of a process, in ns of the scheduler."""
    return (~pid << 3) | 2


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"no VmRSS of process {pid}")


def congestion_control() -> str:
    """What the kernel gives new TCP connections; with bbr even loopback is paced, and costs several times as much."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def touch_memory(size_bytes: int) -> None:
    """Make the machine have this much memory at hand.

    A virtual machine hands free pages back to its host: a first write into fresh page cache then costs 3.3 ms/MB in place
    of 0.27 (measured), and the run would measure that.
    """
    memory = mmap.mmap(-1, max(PAGE_BYTES, size_bytes))
    for position in range(0, size_bytes, PAGE_BYTES):
        memory[position] = 1
    memory.close()


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
