"""What a disk does to one controller's metadata log: a bit of what was flushed flips, or there is no space for a while.

May touch:  the simulated disk it is given.   Must not touch: the metadata log's own code, but for the formats it reads.
Invariants: a bit flips only below what the last flush mark says was flushed, and behind the newest snapshot, where opening
            proves the log; while one node lacks records, no other loses any.
Read next:  controller_node.py, controllers.py.

The leader epoch of a batch is left alone: Kafka's format has it outside of the CRC.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from barnabas_broker.metadata.flush_marks import FLUSH_MARKS_FILE, last_mark
from barnabas_broker.metadata.snapshot_files import parse_checkpoint_name
from barnabas_log.memory_disk import MemoryDisk
from barnabas_quorum.raft.damage import LogEnd
from barnabas_wire.records.batch import CRC_START, CorruptBatch, iterate_batches

NEWEST_SHARE = 0.6
"""Of the flips, those in one of the last two batches, of which not everybody has heard."""


def flip_a_bit(disk: MemoryDisk, directory: str, random: Random) -> LogEnd | None:
    """Turn a bit of a flushed batch over. Returns how far the log reached before; None when nothing there could be damaged."""
    if not disk.exists(f"{directory}/{FLUSH_MARKS_FILE}"):
        return None
    mark = last_mark(disk.read_file(f"{directory}/{FLUSH_MARKS_FILE}"))
    if mark is None:
        return None
    names = disk.list_directory(directory)
    first = max((found.end_offset for name in names if (found := parse_checkpoint_name(name)) is not None), default=0)
    flushed: list[tuple[str, int, int]] = []
    for name in names:
        if not name.endswith(".log"):
            continue
        path = f"{directory}/{name}"
        with suppress(CorruptBatch):  # behind what was flushed a power cut may have left anything
            for position, header in iterate_batches(bytes(disk.names[path].content)):
                if header.base_offset >= first and header.next_offset <= mark.flushed_end:
                    flushed.append((path, position, header.size_bytes))
    if not flushed:
        return None
    path, position, size = random.choice(flushed[-2:] if random.random() < NEWEST_SHARE else flushed)
    inode = disk.names[path]
    at = position + CRC_START + int(random.random() * (size - CRC_START))
    inode.content[at] ^= 1 << int(random.random() * 8)
    inode.durable = bytes(inode.content)
    return mark.begun
