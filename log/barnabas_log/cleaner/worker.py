"""The process that cleans: `python -m barnabas_log.cleaner.worker`. It reads segments, writes below its run's directory, and ends
with its broker.

May touch:  files, stdin, stdout, its own priority and limits.   Must not touch: the names of a log's files, sockets.
Invariants: one job at a time; it is gone when its stdin ends, and when its parent dies; nothing outside the run's directory changes.
Read next:  rewrite.py, the work; process.py, the broker's end of it.

With the extra `barnabas[fast]` the loops over records are machine code (compiled_keys.py), else plain Python (key_scan.py).

Speaks lines of JSON. In: a job (rewrite.Job) with "bytes_per_second". Out: {"bytes": n} now and then, and last
{"result": ...} or {"failure": "corrupt" | "gone" | "room" | "memory" | "disk", "reason": ...}.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

from barnabas_log.cleaner.rewrite import Job, Result, rewrite
from barnabas_log.cleaner.survival import KeyOffsets
from barnabas_log.disk import RealDisk
from barnabas_log.worker_process import become_worker, limit_memory
from barnabas_wire.records.batch import CorruptBatch
from barnabas_wire.records.compression import CorruptCompressedData

BEYOND_MAP_BYTES: Final = 768 * 1024 * 1024
"""What a worker may take beside its map: the interpreter, a chunk, a batch and what it decompresses to."""
PLAIN: Final = "--plain"
"""Argument that has it do without machine code."""


def main() -> None:
    """Do the jobs that stdin brings until it ends."""
    become_worker()
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_jobs, args=(lines,), daemon=True).start()
    disk = RealDisk(wants_ring=False)
    while True:
        fields: dict[str, Any] = json.loads(lines.get())
        bytes_per_second = fields.pop("bytes_per_second")
        job = Job.decode(json.dumps(fields).encode())
        limit_memory(job.map_bytes_max + BEYOND_MAP_BYTES)
        _say(_answer(disk, job, bytes_per_second))


def _read_jobs(lines: SimpleQueue[bytes]) -> None:
    """Wait for jobs in a thread, so that the end of stdin ends the process during one."""
    for line in iter(sys.stdin.buffer.readline, b""):
        lines.put(line)
    os._exit(0)


def _answer(disk: RealDisk, job: Job, bytes_per_second: float) -> dict[str, Any]:
    try:
        return {"result": _work(disk, job, bytes_per_second)._asdict()}
    except (CorruptBatch, CorruptCompressedData) as error:
        return {"failure": "corrupt", "reason": str(error)}
    except FileNotFoundError as error:
        return {"failure": "gone", "reason": str(error)}
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {"failure": "room" if is_full else "disk", "reason": str(error)}
    except MemoryError:
        return {"failure": "memory", "reason": f"{job.map_bytes_max} bytes of map do not fit the process"}


def _work(disk: RealDisk, job: Job, bytes_per_second: float) -> Result:
    work = rewrite(disk, job, make_keys=_map_of_keys())
    began_s, done = time.monotonic(), 0
    try:
        while True:
            moved = next(work)
            done += moved
            _say({"bytes": moved})
            if bytes_per_second:
                time.sleep(max(0.0, done / bytes_per_second - (time.monotonic() - began_s)))
    except StopIteration as end:
        result: Result = end.value
        return result


def _map_of_keys() -> Callable[..., KeyOffsets]:
    """The map in machine code where the extra is installed, unless the caller wants the plain path."""
    if PLAIN in sys.argv:
        return KeyOffsets
    try:
        from barnabas_log.cleaner.compiled_keys import CompiledKeyOffsets
    except ImportError:
        return KeyOffsets
    return CompiledKeyOffsets


def _say(message: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
