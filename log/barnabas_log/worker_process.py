"""What every process does first that works for a broker: it dies with it, gives way to it, and takes no more memory than it is told.

May touch:  its own priority, limits and signals.   Must not touch: files, pipes, logs.
Invariants: a worker whose broker is gone is gone; a job that would take more memory fails, and the machine does not.
Read next:  cleaner/worker.py and inspection_worker.py, the two there are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from typing import Final

from barnabas_wire.host_system import has_linux

NICE: Final = 10
_PR_SET_PDEATHSIG: Final = 1


def become_worker() -> None:
    """Tie this process to its parent's life and make it nicer than that; ends it where the parent is dead already."""
    parent = os.getppid()
    if has_linux():  # elsewhere its standard input ends then, and it with that
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent or parent == 1:  # it died before that counted
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the broker decides
    with contextlib.suppress(OSError):  # a filter of system calls may refuse it: a wish, not a need
        os.nice(NICE)


def limit_memory(bytes_max: int) -> None:
    """Let this process allocate no more than so many bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard), hard)
    )
