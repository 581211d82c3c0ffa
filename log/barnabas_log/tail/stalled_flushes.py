"""Flushes that the kernel's ring has taken, and no worker has in hand, done by a thread with proof.

May touch:  two system calls, one thread.     Must not touch: rings, File objects (their holder keeps the descriptors open meanwhile).
Invariants: a flush is reported as done only if its bytes are on the disk, and the file system has met no error of writing since the
            file was opened.
Read next:  flush_ring.py, which gives its flushes up.

Not obvious: the kernel tells an error of writing back once to each open file. One that the ring's flush had met would be lost, and a
second fdatasync would pass. syncfs keeps a second account for each open file: it fails where anything of the file system could not be
written since.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from threading import Thread

from barnabas_log.disk_calls import flush_data

OnFlushed = Callable[[OSError | None], None]


def flush_aside(loop: asyncio.AbstractEventLoop, waiting: Sequence[tuple[int, OnFlushed]]) -> None:
    """Flush these descriptors one after the other; each is reported on the loop."""
    Thread(target=_flush, args=(loop, waiting), name="stalled-flushes", daemon=True).start()


def _syncfs(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _flush(loop: asyncio.AbstractEventLoop, waiting: Sequence[tuple[int, OnFlushed]]) -> None:
    for descriptor, on_flushed in waiting:
        error = None
        try:
            flush_data(descriptor)
            _syncfs(descriptor)
        except OSError as failure:
            error = failure
        with contextlib.suppress(RuntimeError):  # the loop has closed, and with it whoever waited
            loop.call_soon_threadsafe(on_flushed, error)
