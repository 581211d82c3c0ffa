"""When records are due: the time in a header that a share group names (`share.deliver.at.header`, ours).

May touch:  a disk's threads.         Must not touch: the loop's time for each record, share state, sockets.
Invariants: a batch is opened in a thread, and only for a group that asks; a header that cannot be read makes its record due at once and
            is counted; what is opened at a time is bounded.
Read next:  ../share_settings.py (the settings), partition.py, which holds back what is not due.

The header's content is ms since 1970, UTC: as decimal digits, or as a big-endian int64 of 8 bytes (Java's LongSerializer). No digits
that fill 8 bytes are a time of this century, and 8 binary bytes that are all digits are none before the year 9999, so that no content
has two meanings. Of several headers of that name the last one counts, as Kafka's lastHeader has it.

Not obvious: most batches of a topic have no such header at all. The name is searched for in the opened section as a whole, in machine
code; records are walked over only where it was found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_log.disk import Disk, FileRange
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import iterate_batches, read_header, records_section
from barnabas_wire.records.walk import CorruptBatch, read_varint, walk

logger = logging.getLogger("barnabas_broker.coordinator.share.due_times")  # the name that operators set a level of

READ_BYTES: Final = 1 << 20
"""Bytes that are read at a time, or one batch where that is longer."""
OPENED_BYTES_MAX: Final = 16 << 20
"""Most bytes of one batch once it is opened; the records of a longer one are due at once."""
RECORDS_PER_TURN: Final = 256
"""Records that are walked over in one turn of a thread, which holds the interpreter and with it the loop: about 0.8 ms."""
OPENED_PER_TURN: Final = 1 << 20
"""Opened bytes in one turn of a thread: a codec lets others run, the search for the name does not (30 us a MiB)."""
SEARCHES_MAX: Final = 2
"""Reads under way at a time: of the disk's four threads some stay free for checkpoints and coordinators."""
DUE_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999. What is later was meant in other units, and is no time."""


@dataclass(slots=True)
class DueTimeStats:
    """Counters."""

    opened_bytes: int = 0
    """Bytes of batches that were opened, as they lie in the log."""
    walked_records: int = 0
    waiting: int = 0
    """Records found that are not due."""
    unreadable: int = 0
    """Records whose header is no time: they are due at once."""
    unopened_batches: int = 0
    """Batches that cannot be opened: their records are due at once."""


class Looked(NamedTuple):
    """What was found in the first batches of a read."""

    waiting: Sequence[tuple[Offset, int]]
    """Offset and time in wall clock ms of each record that is not due, ascending."""
    end: Offset
    """The offset up to which the records were looked at: what follows must not be delivered on the strength of this."""


class DueTimes:
    """Finds what is not due, for the share partitions that one broker leads. On the data lane's loop."""

    def __init__(self, *, disk: Disk) -> None:
        """disk: its threads read and open."""
        self.stats = DueTimeStats()
        self._disk = disk
        self._turns = asyncio.Semaphore(SEARCHES_MAX)

    async def look(self, part: FileRange, *, header: str, now_ms: int) -> Looked:
        """Look for records that are not due among the first batches of a read, at least one batch.

        Args:
            part: whole batches of one segment; its file stays held by the caller until this returns.
            header: the name that the group gives (settings.deliver_at_header), not empty.
            now_ms: wall clock.

        Raises OSError where the file cannot be read, and CorruptBatch where it holds no batch.
        """
        search = steps(part, header.encode(), now_ms, self.stats)
        looked: Looked | None = None
        async with self._turns:
            while looked is None:
                looked = await self._disk.run(next, search)
        self.stats.waiting += len(looked.waiting)
        return looked


def steps(part: FileRange, name: bytes, now_ms: int, stats: DueTimeStats) -> Iterator[Looked | None]:
    """What one turn of a thread does at a time: None while there is more to do, then what was found. Raises as DueTimes.look.

    A turn opens one batch and walks over RECORDS_PER_TURN records of it, or of several that are small.
    """
    size = min(part.size, READ_BYTES)
    data = part.file.read(part.position, size)
    first = read_header(data).size_bytes
    if len(data) < first <= part.size:
        yield None
        data = part.file.read(part.position, first)
    waiting: list[tuple[Offset, int]] = []
    end: Offset | None = None
    walked = opened = 0
    for position, header in iterate_batches(data):
        end = header.next_offset
        if header.is_control or not header.record_count:
            continue
        if opened >= OPENED_PER_TURN:
            yield None
            opened = 0
        stats.opened_bytes += header.size_bytes
        try:
            section = records_section(
                memoryview(data)[position : position + header.size_bytes],
                header,
                decompressed_bytes_max=max(OPENED_BYTES_MAX, header.size_bytes),
            )
            opened += len(section)
            if name not in section:
                continue
            for record in walk(section, count=header.record_count, base_offset=header.base_offset):
                if walked == RECORDS_PER_TURN:
                    yield None
                    walked = opened = 0
                walked += 1
                stats.walked_records += 1
                due_ms = _due(section, record, name, stats)
                if due_ms > now_ms:
                    waiting.append((Offset(header.base_offset + (record[2] >> 1)), due_ms))
        except KafkaError as error:
            logger.debug("the batch at offset %d is not opened, its records are due: %s", header.base_offset, error)
            stats.unopened_batches += 1
    if end is None:
        raise CorruptBatch("no whole batch was read")
    yield Looked(waiting, end)


def _due(section: bytes, record: tuple[int, int, int, int, int, int], name: bytes, stats: DueTimeStats) -> int:
    """When the record is due; 0 where it says nothing. Raises CorruptBatch."""
    start, _, _, key_size, at, stop = record
    if section.find(name, start, stop) < 0:
        return 0
    if not key_size & 1:
        at += key_size >> 1
    value_size, at = read_varint(section, at)
    content = _last_header(section, at + max(value_size, 0), stop, name)
    if content is None:
        return 0
    due_ms = due_time(content)
    if due_ms is None:
        stats.unreadable += 1
        return 0
    return due_ms


def _last_header(section: bytes, at: int, stop: int, name: bytes) -> bytes | None:
    """The content of the last header of that name; empty where it is null, None where there is no such header. Raises CorruptBatch."""
    count, at = read_varint(section, at)
    found: bytes | None = None
    for _ in range(count):
        name_size, at = read_varint(section, at)
        name_at = at
        at += max(name_size, 0)
        size, at = read_varint(section, at)
        content_at = at
        at += max(size, 0)
        if not content_at <= at <= stop:
            raise CorruptBatch("a header passes the end of its record")
        if section[name_at : name_at + max(name_size, 0)] == name:
            found = section[content_at:at]
    return found


def due_time(content: bytes) -> int | None:
    """The time that a header's content says, in ms since 1970; None for what is no time. See the top of this file."""
    text = content.strip()
    if text.isdigit() and len(text) <= 15:
        due_ms = int(text)
    elif len(content) == 8:
        due_ms = int.from_bytes(content, "big", signed=True)
    else:
        return None
    return due_ms if 0 <= due_ms <= DUE_MS_MAX else None
