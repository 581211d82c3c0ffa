"""What a leader does with a batch whose records it opens before it appends it: judge them, and put the header's maximum right.

May touch:  its arguments, the inspection process.   Must not touch: asyncio, logs, the Disk.
Invariants: never called on the data loop; what is not one whole batch with a right checksum is left to the log, which refuses it and
            knows why; a header is changed only by a walk over all records, with a new checksum made between two checks.
Read next:  barnabas_wire/records/inspection.py (the walk), validator.py (the header, which the log judges next),
            barnabas_replication/leader/batch_work.py, which decides whose batches come here.

The maximum of a batch's times is believed by retention, by roll and by searches. Kafka's LogValidator takes it from the records; here
it is taken from them where they are opened anyway, and a batch whose header shows that it cannot be right (`is_unsound_maximum`)
is opened for it whatever validate.batches says.
"""

from __future__ import annotations

import threading
from typing import Final

from barnabas_log.config import LogConfig, TimestampType
from barnabas_log.errors import InvalidBatch, InvalidTimestamp, KeylessRecords
from barnabas_log.recovery.inspection_process import InspectionProcess, NoWorker
from barnabas_log.recovery.inspection_worker import SECTION_BYTES_MAX
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    read_header,
    with_max_timestamp,
)
from barnabas_wire.records.compression import CompressionType
from barnabas_wire.records.inspection import (
    Fault,
    UnsoundRecords,
    Walk,
    WalkRecords,
    opened_section,
    raise_fault,
    walk_records,
)

FIRST_SECTION_BYTES_MAX: Final = 8 * 1024 * 1024
"""Larger sections are opened one at a time, so that two hostile batches take the memory of one."""
KEYLESS_MAX: Final = 1000
"""Most records without a key that a refusal names."""
NO_TIMESTAMP: Final = -1
_one_at_a_time = threading.Lock()


def is_unsound_maximum(base_timestamp_ms: int, max_timestamp_ms: int) -> bool:
    """Whether a header's greatest time cannot be right, or proves nothing: it lies before its first record's, as a client leaves it
    that does not compute it (-1), or there is no base, where the records may bear times all the same."""
    return base_timestamp_ms < 0 or max_timestamp_ms < base_timestamp_ms


class Unfinished(Exception):
    """The walk would hold the interpreter for longer than it may: the batch is for the process."""


class BatchInspector:
    """Opens batches for one broker. Its methods block; call them from a pool's thread."""

    def __init__(self) -> None:
        self.is_compiled = False
        """Whether a walk in a thread holds up no other thread: it is machine code, without the interpreter's lock."""
        self.process = InspectionProcess()
        """The process for what would hold the interpreter too long in plain Python."""
        self._walk: WalkRecords = walk_records

    def load(self) -> None:
        """Take the walk in machine code where the extra is installed: about a second and 70 MiB, on a machine's first time a few
        seconds. So it is for a broker with a topic that has every batch opened."""
        try:
            from barnabas_wire.records.compiled_inspection import walk_records as walk
        except ImportError:
            return
        self._walk, self.is_compiled = walk, True

    def inspected(self, batch: bytes, config: LogConfig, *, now_ms: int, steps_max: int) -> bytes:
        """The batch as it may be appended: the same bytes, or with the right greatest time.

        Args:
            now_ms: the broker's clock.
            steps_max: records and headers that may be walked over here; 0: the process does it. Without effect in machine code.
        Raises InvalidBatch naming the record, KeylessRecords where the topic is compacted, InvalidTimestamp; Unfinished where there
        are more of them.
        """
        if len(batch) < HEADER_BYTES:
            return batch
        header = read_header(batch)
        if (
            header.magic != MAGIC
            or header.size_bytes != len(batch)
            or header.record_count <= 0
            or header.attributes & COMPRESSION_MASK > max(CompressionType)
            or not crc_is_valid(batch, 0, header)
        ):
            return batch
        try:
            found = self._walk_over(batch, header, steps_max, KEYLESS_MAX + 1 if config.is_compacted else 0)
            raise_fault(found, header)
        except UnsoundRecords as error:
            message, record = error.message, error.record
            # Its frames have what was decompressed, until the garbage collector comes.
            raise InvalidBatch(message, records=() if record < 0 else (record,)) from None
        if found.keyless:
            raise _keyless(header.record_count, found.keyless)
        if config.message_timestamp_type is not TimestampType.CREATE_TIME:
            return batch  # the log dates it
        oldest_ms = header.base_timestamp_ms + found.oldest_ms
        before_ms = config.message_timestamp_before_max_ms
        if header.base_timestamp_ms != NO_TIMESTAMP and oldest_ms < now_ms - before_ms:
            raise InvalidTimestamp(
                f"a record's time {oldest_ms} is more than message.timestamp.before.max.ms={before_ms} before the broker's {now_ms}"
            )
        newest_ms = header.base_timestamp_ms + found.newest_ms
        return batch if newest_ms == header.max_timestamp_ms else _mended(batch, header, newest_ms)

    def close(self) -> None:
        """End the process, if there is one."""
        self.process.close()

    def _walk_over(self, batch: bytes, header: BatchHeader, steps_max: int, keyless_max: int) -> Walk:
        if self.is_compiled or steps_max:
            found = self._walk_here(batch, header, keyless_max, steps_max=steps_max)
            if found.fault == Fault.UNFINISHED:
                raise Unfinished
            return found
        try:
            return self.process.walk(batch, keyless_max=keyless_max)
        except NoWorker:
            if self.process.is_closed:
                raise KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down") from None
            # Slow for everybody, and right: neither may a sound batch be refused for this nor an unsound one be taken.
            return self._walk_here(batch, header, keyless_max)

    def _walk_here(self, batch: bytes, header: BatchHeader, keyless_max: int, **steps: int) -> Walk:
        counts = {
            "count": header.record_count,
            "last_offset_delta": header.last_offset_delta,
            "keyless_max": keyless_max,
        }
        try:
            records = opened_section(batch, header, bytes_max=FIRST_SECTION_BYTES_MAX)
        except UnsoundRecords:  # or a large one
            with _one_at_a_time:
                return self._walk(opened_section(batch, header, bytes_max=SECTION_BYTES_MAX), **counts, **steps)
        return self._walk(records, **counts, **steps)


def _keyless(count: int, keyless: tuple[int, ...]) -> KeylessRecords:
    is_named = len(keyless) <= KEYLESS_MAX  # a client takes the records that a list leaves out for valid ones
    return KeylessRecords(
        f"{len(keyless) if is_named else f'over {KEYLESS_MAX}'} of {count} records have no key, "
        "and the topic is compacted: give every record a key",
        records=keyless if is_named else (),
    )


def _mended(batch: bytes, header: BatchHeader, newest_ms: int) -> bytes:
    """The batch, whose checksum was found right, with its records' greatest time; checked again before it is given out."""
    mended = with_max_timestamp(batch, header, newest_ms)
    now = read_header(mended)
    if (
        len(mended) != len(batch)
        or now._replace(crc=header.crc, max_timestamp_ms=header.max_timestamp_ms) != header
        or mended[HEADER_BYTES:] != batch[HEADER_BYTES:]
        or not crc_is_valid(mended, 0, now)
    ):
        raise InvariantViolated(f"a batch of {len(batch)} bytes is another one with its greatest time put right")
    return mended
