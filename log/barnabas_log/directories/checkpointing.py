"""The checkpoint files of a broker's log directories are written: when, and what a failure to write one means.

May touch:  asyncio, the directories.  Must not touch: peers, what a log contains.
Invariants: the recovery point on disk is never above what is durable; a log start rises only once its file says so, be it by
            DeleteRecords, with the leader's, or by retention.
Read next:  saved_offsets.py, which knows the files of one directory; manager.py, which says when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from barnabas_log.directories.directory_health import DirectoryHealth
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.directories.log_directory import LogDirectory
from barnabas_log.directories.log_homes import LogHomes
from barnabas_log.disk import Disk
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset

logger = logging.getLogger(__name__)

_FORGET_RETRY_MS: Final = 10_000
"""The pause before checkpoint files that still name deleted logs are written again."""


class Checkpointing:
    """Writes the checkpoint files of all log directories of a broker."""

    def __init__(self, *, disk: Disk, homes: LogHomes, health: DirectoryHealth) -> None:
        self._disk = disk
        self._homes = homes
        self._health = health

    async def write_offsets(self) -> None:
        """Write leader epochs, recovery points and log start offsets of every online directory."""
        for directory in self._health.directories:
            if directory.error is None:
                ends = directory.saved.ends()
                try:
                    await self._disk.run(directory.saved.save, ends)
                except OSError as error:
                    self._health.on_checkpoint_error(directory, error)

    async def raise_log_starts(self, starts: Mapping[UnifiedLog, Offset]) -> frozenset[UnifiedLog]:
        """Move the start of each log up, at most to its high watermark, once the checkpoint file of its directory says so.

        Returns the logs for which that could not be done; a log that is truncated meanwhile is none of them.
        """
        failed = {log for log in starts if (home := self._homes.directories.get(log)) is None or home.error is not None}
        for directory in self._health.directories:
            here = {
                log: min(offset, log.high_watermark)  # a file that says more would empty a log that is cut meanwhile
                for log, offset in starts.items()
                if self._homes.directories.get(log) is directory
            }
            if not here or directory.error is not None:
                continue
            rising = directory.saved.rising_log_starts
            directory.saved.begin_raising(here)
            try:
                await self._disk.run(directory.saved.save_rising, tuple(here))
            except OSError as error:
                failed.update(here)
                self._health.on_checkpoint_error(directory, error)
            for log, offset in here.items():
                risen = rising.get(log)
                if risen is None or log in failed:
                    continue
                log.delete_records_before(min(offset, log.high_watermark))
                if risen == offset:
                    del rising[log]
            for log in failed:
                rising.pop(log, None)
        return frozenset(failed)

    async def write_high_watermarks(self) -> None:
        """Write the high watermarks of every online directory in which one has moved (replication-offset-checkpoint)."""
        for directory in self._health.directories:
            if directory.error is None:
                offsets = [(log, log.high_watermark) for log in directory.logs.values()]
                try:
                    await self._disk.run(directory.saved.save_high_watermarks, offsets)
                except OSError as error:
                    if is_disk_full(error) and not directory.has_space:
                        continue
                    # A stale file costs a new leader time, not data: whether the disk works, appends and flushes will show.
                    logger.error("high watermarks of %s could not be written: %s", directory.path, error)

    async def forget_when_deleted(self, directory: LogDirectory) -> None:
        """Take deleted logs out of the checkpoint files, all of a turn at once."""
        saved = directory.saved
        while directory.error is None:
            await saved.deletion.wait()
            saved.deletion.clear()
            if not saved.deleted:
                continue
            try:
                await self._disk.run(saved.forget_deleted)
            except OSError as error:
                if directory.error is None:
                    self._health.on_checkpoint_error(directory, error)
                await asyncio.sleep(_FORGET_RETRY_MS / 1000)
                saved.deletion.set()
