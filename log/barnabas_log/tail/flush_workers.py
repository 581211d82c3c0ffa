"""The kernel's flush workers, made to run as soon as they can continue.

May touch:  /proc/self/task, one system call, the slice of threads named iou-wrk.   Must not touch: rings, files, niceness.
Invariants: a worker gets no more of the CPU than before, only sooner; where the system refuses, everything stays as it
            was.
Read next:  flush_ring.py, whose flushes they run.

A flush of 2 MiB is 1 ms of the disk and 0.1 ms of CPU in four or five pieces (map blocks, write the journal, ask for the flush,
report the end), and a worker sleeps between them. Woken on a busy machine it waited until the loop, or whoever else ran, had
had its slice of 1.4 ms, once or twice per flush (seen in traces: 1 to 2.7 ms from the disk's answer to the worker's next step),
and the disk was idle meanwhile. The scheduler lets a woken thread interrupt one that asked for longer slices (EEVDF), and from
Linux 6.12 on any thread may ask for its own slice; before that the request is taken and has no effect. Measured in turn
on two busy cores, RF 1, 1 MiB batches, 4 MiB in flight: durable 0.72 of the page cache's MB/s without, 0.91 with; the mean
flush 3.05 and 2.42 ms; CPU the same.

At RF 3, saturated, with 1 MiB batches, no gain or loss is distinct from noise (turns within one cluster, beside 0.1 ms): slices of 0.7 ms
1.04 +- 0.02 of the MB/s in 29 turns and 1.00 +- 0.016 in 47, of 1.2 ms 1.01 +- 0.014 in 47, the scheduler's own 1.03 +- 0.025 in
29. Beside the scheduler's own, in 30: niceness 1.00 +- 0.02, SCHED_BATCH for the workers 0.99 +- 0.013, for the loop's thread as
well 1.00 +- 0.014.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from pathlib import Path

from barnabas_log.descriptors import is_out_of_descriptors

SLICE_NS = 100_000
"""The shortest that the scheduler allows."""
PERIOD_S = 0.1
"""How often new workers are looked for while there are flushes: the kernel makes and ends them as it likes. 20 us each
time."""
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""Number of sched_setattr(2)."""
_attributes = struct.Struct("=IIQiIQQQ")
"""sched_attr: size, policy, flags, nice, priority, runtime (for SCHED_OTHER the slice), deadline, period, in ns."""
_NAME = "iou-wrk-"


class FlushWorkers:
    """Finds the workers of this process and shortens their slices."""

    def __init__(self) -> None:
        number = _SET_ATTRIBUTES.get(os.uname().machine)
        self._number = number
        self._due_s = 0.0 if number is not None else float("inf")
        self._seen: set[str] = set()
        """The threads of the last look."""
        self._known: set[str] = set()
        """Those of the last two."""
        self._syscall = ctypes.PyDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._syscall.argtypes = [ctypes.c_long] * 4

    def shorten_slices(self, now_s: float) -> None:
        """Look for new workers, if the last time is PERIOD_S ago. `now_s`: of any steady clock.

        Each thread is looked at twice: a worker gives itself its name only when it runs first.
        """
        if now_s < self._due_s:
            return
        self._due_s = now_s + PERIOD_S
        try:
            threads = set(os.listdir("/proc/self/task"))
        except OSError as error:
            if not is_out_of_descriptors(error):  # no /proc: nothing to be done here, ever
                self._due_s = float("inf")
            return
        for thread in threads - self._known:
            with contextlib.suppress(OSError):  # it has ended meanwhile, or a sandbox forbids it
                self._shorten(int(thread))
        self._known, self._seen = threads & self._seen, threads

    def states(self) -> list[str]:
        """Each worker's name, state and place where it waits in the kernel, as proc(5) gives them. Raises OSError without /proc."""
        told = []
        for thread in sorted(os.listdir("/proc/self/task"), key=int):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                facts = [
                    Path(f"/proc/self/task/{thread}/{name}").read_text().strip() for name in ("comm", "stat", "wchan")
                ]
                if facts[0].startswith(_NAME):
                    told.append(f"{facts[0]} {facts[1].rpartition(') ')[2][:1]} {facts[2]}")
        return told

    def _shorten(self, thread: int) -> None:
        with open(f"/proc/self/task/{thread}/comm") as name:
            if not name.read().startswith(_NAME):
                return
        if os.sched_getscheduler(thread) != os.SCHED_OTHER:  # whoever gave it another policy meant it
            return
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        attributes = ctypes.create_string_buffer(
            _attributes.pack(_attributes.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
        )
        if self._syscall(self._number, thread, ctypes.addressof(attributes), 0) < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
