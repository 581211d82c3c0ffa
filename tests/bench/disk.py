"""What the disk takes when nothing but files is written: the bound of a durable cluster whose replicas share it.

May touch:  files in the directory it is given, threads.    Must not touch: sockets, broker code.
Invariants: every byte is made durable before the time is taken; the files are gone afterwards.
Read next:  __main__.py, which measures it beside every durable run.

All nodes of the benchmark lie on one disk, so a durable megabyte at RF 3 is three megabytes to it; page cache mode never waits
for it. Each file has a thread that writes pieces as large as a batch, many in one system call as the broker does, and makes
them durable once as many are written as a connection has in flight: more can never wait for one fdatasync in the cluster, and
the more bytes each has, and the more files, the more the disk takes. Measured with 4 MiB for each fdatasync: one file 1.2 GB/s,
nine files 2.0 GB/s (three writers at a time 1.0 to 1.2). So it is a bound from above, and no cluster needs to come near it.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

CALL_BYTES = 1024 * 1024
"""Written by one system call, so that threads do not wait for each other's turns of the interpreter: with 16 KiB in each call
the disk seemed to take 1.2 GB/s, with 1 MiB 2.0."""


class DiskRun(NamedTuple):
    """What the disk took."""

    seconds: float
    bytes: int
    flushes_s: list[float]
    """How long each fdatasync took."""


def fill_disk(directory: Path, *, files: int, write_bytes: int, flush_bytes: int, total_bytes: int) -> DiskRun:
    """Write `total_bytes` in all, spread evenly over so many files, in pieces of `write_bytes`, an fdatasync per `flush_bytes`."""
    piece = os.urandom(write_bytes)
    pieces = max(1, flush_bytes // write_bytes)
    together = max(1, CALL_BYTES // write_bytes)
    calls = [min(together, pieces - first) for first in range(0, pieces, together)]
    flushes = max(1, total_bytes // files // (pieces * write_bytes))
    paths = [directory / f"disk-floor-{index}" for index in range(files)]

    def fill(path: Path) -> list[float]:
        took = []
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o644)
        try:
            for _ in range(flushes):
                for count in calls:
                    os.writev(descriptor, [piece] * count)
                began = time.perf_counter()
                os.fdatasync(descriptor)
                took.append(time.perf_counter() - began)
        finally:
            os.close(descriptor)
        return took

    try:
        with ThreadPoolExecutor(files) as threads:
            began = time.perf_counter()
            found = [seconds for took in threads.map(fill, paths) for seconds in took]
            seconds = time.perf_counter() - began
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    return DiskRun(seconds, files * flushes * pieces * write_bytes, found)
