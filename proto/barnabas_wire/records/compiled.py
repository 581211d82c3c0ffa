"""What loops over records compile with: numba.njit with its machine code kept on disk, and the varint that all of them read.

May touch:  numba, the directory of the compile cache.   Must not touch: asyncio, sockets; nothing may import this without its extra.
Invariants: a position is checked against its end before it is used.
Read next:  pyspark_barnabas/scan.py and barnabas_log/cleaner/compiled_keys.py, the loops.

Not obvious
- Signatures are given, so everything is compiled at import and kept on disk, never within a task: 4 s of CPU once per
  machine, then 0.2 s per process (measured).
- Numba keeps its cache beside the file of the function, or below ~/.cache when that is read-only, and raises at import when neither
  can be written (an installation by root used by an account without a home, as containers have). Then a private directory below
  the temporary one serves. It must be ours alone: what lies in a compile cache is executed.
- The cache knows only the file of the function itself: whoever changes `varint` has to touch the files that use it.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

logger = logging.getLogger(__name__)

READ_ONLY_BYTES = numba.types.Array(numba.uint8, 1, "C", readonly=True)
"""What comes off a socket or a disk is read-only; numba takes a writable array for a read-only one, not the reverse."""


def compiled(signature: Any) -> Callable[[Any], Any]:
    """numba.njit for one signature, its machine code kept where this process may write, if anywhere.

    Without the interpreter's lock, so that a thread that fetches ahead continues receiving.
    """

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(signature, cache=True, nogil=True)(function)
        except (RuntimeError, OSError):  # RuntimeError: no place to write; OSError: one that filled up
            directory = private_directory()
        if directory is None:
            logger.warning("no directory for compiled code can be written: every Python worker compiles for seconds")
            return numba.njit(signature, nogil=True)(function)
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(directory)
        try:
            return numba.njit(signature, cache=True, nogil=True)(function)
        finally:
            numba.config.CACHE_DIR = before  # the process may hold other code of numba's

    return decorate


def private_directory() -> Path | None:
    """A directory below the temporary one that only this user can write, or None."""
    directory = Path(tempfile.gettempdir()) / f"barnabas-compiled-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return directory if is_ours and os.access(directory, os.W_OK | os.X_OK) else None


@numba.njit
def varint(data, position, end):  # type: ignore[no-untyped-def]
    """Zigzag varint at position: (value, next position); next is -1 when it runs past end or is too long."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = data[position]
        position += 1
        value |= np.uint64(byte & np.uint8(0x7F)) << shift
        if byte < 128:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)
