"""The process that walks over the records of large batches: `python -m barnabas_log.recovery.inspection_worker`.

May touch:  stdin, stdout, its own priority and limits.   Must not touch: files, sockets, logs.
Invariants: one batch at a time, one answer each, in order; it is gone when its stdin ends, and when its parent dies.
Read next:  inspection_process.py, the broker's end of it; barnabas_wire/records/inspection.py, the work.

Speaks binary in, lines of JSON out. In: uint32 size, uint8 what is asked, two int64, then a whole batch whose checksum is right.
Out: {"unsound": why}, or by what was asked:
    0 WALK   records without a key to be named, 0       {"walk": [fault, record, oldest, newest, those without a key...]}
    1 TIME   from which offset, from which time         {"time": [offset, time]} or {"time": null} (inspection.find_time)
"""

from __future__ import annotations

import json
import struct
import sys
from typing import Any, Final

from barnabas_log.worker_process import become_worker, limit_memory
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.records.batch import read_header
from barnabas_wire.records.inspection import find_time, opened_section, walk_records

SECTION_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest records section that a batch may decompress to."""
MEMORY_BYTES_MAX: Final = 768 * 1024 * 1024
"""The interpreter, a batch, and several copies of its records while a codec works."""
ASKED: Final = struct.Struct(">IBqq")
WALK: Final = 0
TIME: Final = 1


def main() -> None:
    """Answer for each batch that stdin brings until it ends."""
    become_worker()
    limit_memory(MEMORY_BYTES_MAX)
    source = sys.stdin.buffer
    while True:
        asked = source.read(ASKED.size)
        if len(asked) < ASKED.size:
            return
        count, *question = ASKED.unpack(asked)
        batch = source.read(count)
        if len(batch) < count:
            return
        sys.stdout.write(json.dumps(_answer(batch, *question)) + "\n")
        sys.stdout.flush()


def _answer(batch: bytes, what: int, first: int, second: int) -> dict[str, Any]:
    try:
        header = read_header(batch)
        records = opened_section(batch, header, bytes_max=SECTION_BYTES_MAX)
        if what == TIME:
            return {"time": find_time(records, count=header.record_count, from_offset=first, from_ms=second)}
        walk = walk_records(
            records, count=header.record_count, last_offset_delta=header.last_offset_delta, keyless_max=first
        )
    except KafkaError as error:
        return {"unsound": error.message}
    return {"walk": [*walk[:-1], *walk.keyless]}


if __name__ == "__main__":
    main()
