"""A second log beside one that serves, refilled, which takes its place: whole or not at all, whatever a crash leaves.

May touch:  the Disk, the homes of logs.      Must not touch: peers, records, what is filled in.
Invariants: the old log serves, and lies in its place, until the new one is durable to its end; then one rename follows another, and
            a start undoes what came before the first and finishes what came after it; the new log has no entry in a checkpoint
            that only the old one's files bear out.
Read next:  log_homes.py; barnabas_replication/hosting/refill.py, which fills.

Names, of partition <tp>:
    <tp>.<id>-refill-delete/   while it is filled. A start removes it, that of an older version too.
    <tp>.<id>-refilled/        whole and durable, with the record `refilled.deleted`. Beside <tp>/ a start removes it; where <tp>/ is
                               not there, its rename was the last that was done, and a start gives it its name. Where the record
                               is missing or not sound it is left alone and named in an error. Older versions and Kafka pass it over.
    <tp>.<id>-delete/          the old log.

Layout of refilled.deleted: the partition's name and a line break, then the CRC-32C of both as 8 hex digits. The suffix makes the
first opening remove it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas_log.directories.log_directory import LogDirectory
from barnabas_log.directories.log_homes import LogHomes
from barnabas_log.directories.refill_names import REFILL_SUFFIX, REFILLED_FILE, REFILLED_SUFFIX, encode_record
from barnabas_log.directories.removals import DELETE_SUFFIX
from barnabas_log.disk import Disk
from barnabas_log.errors import OutOfDescriptors, StorageFailed
from barnabas_log.forgotten import Copied
from barnabas_log.recovery.opening import open_partition_log
from barnabas_log.tail.log_listener import LogListener, NoListener
from barnabas_log.tail.log_tail import STEP_DESCRIPTORS
from barnabas_log.tail.truncating import truncate_fully_and_start_at
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset

logger = logging.getLogger(__name__)

FLUSH_BYTES: Final = 16 * 1024 * 1024
"""So much is written before it is flushed."""


class Refill:
    """One second log, and the one whose place it is to take."""

    def __init__(self, old: UnifiedLog, new: UnifiedLog, directory: LogDirectory) -> None:
        self.old = old
        self.new = new
        self.directory = directory
        self.path = new.directory
        self.end_offset = new.log_end_offset
        self.is_in_place = False
        self.unflushed_bytes = 0


class Refills:
    """Makes the second logs of all logs of a broker, and puts them in place. On the loop that owns them; what blocks
    runs in the disk's threads."""

    def __init__(
        self,
        *,
        disk: Disk,
        homes: LogHomes,
        clock_ms: Callable[[], int],
        listener: LogListener[UnifiedLog],
        fail: Callable[[LogDirectory, OSError], None],
        remove_later: Callable[[int, str], None],
    ) -> None:
        """listener: of the logs that serve. fail: a directory's disk failed. remove_later: (after how many ms, path)."""
        self._disk = disk
        self._homes = homes
        self._clock_ms = clock_ms
        self._listener = listener
        self._fail = fail
        self._remove_later = remove_later

    async def begin(self, old: UnifiedLog) -> Refill:
        """An empty log beside that one. Raises OSError."""
        directory = self._homes.directories[old]
        path = directory.free_path(old, REFILL_SUFFIX + DELETE_SUFFIX)
        new: UnifiedLog = await self._disk.run(self._make, path, old)
        return Refill(old, new, directory)

    def _make(self, path: str, old: UnifiedLog) -> UnifiedLog:
        new = open_partition_log(
            disk=self._disk,
            directory=path,
            topic_partition=old.topic_partition,
            topic_id=old.topic_id,
            config=old.config,
            now_ms=self._clock_ms(),
            listener=NoListener(),
        )
        new.tail.takes_gaps = True
        return new

    async def begin_copy(self, refill: Refill, copied: Copied, start: Offset) -> None:
        """Let go of what it holds, and take in what that leader has, from `start` on. Raises OSError, StorageFailed."""
        if (refill.new.log_start_offset, refill.new.log_end_offset) != (start, start):
            truncate_fully_and_start_at(refill.new, start)
        refill.unflushed_bytes = 0
        await self._disk.run(refill.new.forgotten.begin_copy, copied)

    async def append(self, refill: Refill, batches: bytes, copied: Copied) -> None:
        """Take in what that leader sent. Raises what the log refuses, OSError."""
        new = refill.new
        new.tail.append_as_follower(batches, leader_epoch=copied.leader_epoch)
        new.tail.write_pending()
        refill.unflushed_bytes += len(batches)
        if refill.unflushed_bytes >= FLUSH_BYTES:
            await self._flush(refill)

    async def _flush(self, refill: Refill) -> None:
        refill.unflushed_bytes = 0
        files, end = refill.new.dirty_files(), refill.new.written_end_offset
        await self._disk.flush(files)
        refill.new.mark_flushed(end)

    async def seal(self, refill: Refill) -> None:
        """All of it is there: make it durable, under the name by which a start knows it. Raises OSError, StorageFailed."""
        await self._flush(refill)
        refill.end_offset = refill.new.log_end_offset
        target = refill.directory.free_path(refill.old, REFILLED_SUFFIX)
        await self._disk.run(self._seal, refill, target)

    def _seal(self, refill: Refill, target: str) -> None:
        refill.new.close()
        record = f"{refill.path}/{REFILLED_FILE}"
        self._disk.write_file_atomically(record, encode_record(refill.old.topic_partition))
        self._disk.sync_directory(refill.path)
        self._disk.rename(refill.path, target)
        refill.path = target
        self._disk.sync_directory(refill.directory.path)

    def put_in_place(self, refill: Refill) -> UnifiedLog:
        """Let the new log serve instead of the old one, which is not used any more; blocks for some four flushes.

        Raises OutOfDescriptors, with nothing done, or StorageFailed: the directory has failed then, and the next start finishes or
        undoes it.
        """
        old, directory, name = refill.old, refill.directory, refill.old.topic_partition
        assert refill.path.endswith(REFILLED_SUFFIX), "sealed first"
        start = old.log_start_offset
        try:
            self._disk.ensure_descriptors(STEP_DESCRIPTORS, old.directory)
        except OSError as error:
            raise OutOfDescriptors(f"{old.directory}: {error}") from error
        try:
            del self._homes.logs[name]
            target = self._homes.take_out(old, DELETE_SUFFIX, before=lambda: directory.saved.begin_anew(name))
            if target is None:
                raise StorageFailed(f"{old.directory} could not be renamed")
            self._disk.sync_directory(directory.path)
            self._disk.rename(refill.path, old.directory)
            refill.is_in_place = True
            self._disk.sync_directory(directory.path)
            new = open_partition_log(
                disk=self._disk,
                directory=old.directory,
                topic_partition=name,
                topic_id=old.topic_id,
                config=old.config,
                now_ms=self._clock_ms(),
                recovery_point=refill.end_offset,
                log_start_offset=min(start, refill.end_offset),
                high_watermark=refill.end_offset,
                is_clean_shutdown=True,
                may_have_gaps=True,
                listener=self._listener,
            )
            self._homes.adopt(directory, new)
            directory.saved.deleted.pop(name, None)
            directory.saved.keep_start(new)
        except OSError as error:
            self._fail(directory, error)
            raise StorageFailed(f"{old.directory}: {error}") from error
        path, delay_ms = target
        self._remove_later(delay_ms, path)
        logger.info("%s: filled anew from %d to %d", name, new.log_start_offset, new.log_end_offset)
        return new

    async def drop(self, refill: Refill) -> None:
        """It is in place, or shall never be."""
        if refill.is_in_place:
            return
        refill.new.tail.fail(OSError("the log is dropped"))
        refill.new.release_files()
        try:
            await asyncio.shield(self._disk.run(self._drop, refill))
        except OSError as error:
            logger.warning("%s is removed at the next start: %s", refill.path, error)

    def _drop(self, refill: Refill) -> None:
        if refill.path.endswith(REFILLED_SUFFIX):
            target = refill.directory.free_path(refill.old, REFILL_SUFFIX + DELETE_SUFFIX)
            self._disk.rename(refill.path, target)
            refill.path = target
            self._disk.sync_directory(refill.directory.path)  # else a power cut may put what is left of it in place
        self._disk.remove_tree(refill.path)
