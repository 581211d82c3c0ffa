"""Which log directories of a broker work, which are full, and what an error of a disk means for one.

May touch:  asyncio, the directories.  Must not touch: what a log contains, peers.
Invariants: a directory that failed once is offline until the process starts again, and one that is full is not; the user of the logs
            hears of each change once.
Read next:  disk_space.py for when a directory is full; manager.py and checkpointing.py, which report errors here.

Not obvious:
  - A full directory is watched by its free bytes, so that appends mostly end before a write fails. A write that finds no room is no
    failure of the disk; a flush that finds none is, for the pages may be gone from memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from barnabas_log.config import LogManagerConfig
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.directories.log_directory import LogDirectory
from barnabas_log.directories.manager_listener import LogManagerListener
from barnabas_log.directories.manager_stats import LogManagerStats
from barnabas_log.errors import DiskFull, OutOfDescriptors, StorageFailed
from barnabas_log.tail.flush import STUCK_FLUSH_S
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Uuid

logger = logging.getLogger(__name__)


class DirectoryHealth:
    """Which of a broker's log directories are offline or full, and the one place that decides it."""

    def __init__(self, *, config: LogManagerConfig, stats: LogManagerStats) -> None:
        self.directories: Sequence[LogDirectory] = ()
        """All of them; the manager adds them once they are made."""
        self.listener = LogManagerListener()
        """What hears of changes."""
        self.stats = stats
        self._config = config

    async def check_free_space(self, directory: LogDirectory) -> None:
        """Look at the free bytes of one directory, and report whether its logs may grow no more, or again."""
        change = await directory.check_free_space(self._config, stays_when_full=self.listener.stays_when_full)
        if change is None:
            return
        if change.has_space:
            self.regain_space(directory)
        else:
            self.lose_space(directory, change.reason)

    def report_stuck_flush(self, directory: LogDirectory) -> None:
        """Log that a flush has not ended for long. The directory stays in service: a slow disk may still answer."""
        stuck_s = directory.rounds.oldest_s()
        if stuck_s >= STUCK_FLUSH_S:
            logger.warning(
                "a flush of log directory %s has not ended for %.0f s: its disk does not answer, and records that must be flushed are "
                "not acknowledged meanwhile. Look at the disk (kernel log, I/O pressure)",
                directory.path,
                stuck_s,
            )

    def lose_space(self, directory: LogDirectory, reason: str) -> None:
        """The logs of the directory may grow no more; its user hears of it in a separate turn of the loop."""
        if not directory.has_space:
            return
        directory.has_space = False
        self.stats.directories_filled += 1
        logger.error(
            "log directory %s is full and takes no records until %d bytes are free: %s. Free space there, or lower the retention "
            "of big topics; the broker goes on by itself",
            directory.path,
            self._config.free_bytes_resume,
            reason,
        )
        asyncio.get_running_loop().call_soon(self._report_full, directory)

    def regain_space(self, directory: LogDirectory) -> None:
        """The logs of the directory may grow again; those with records that are not durable yet are flushed."""
        directory.has_space = True
        # The round that met the full disk left these records out, and a producer's retry appends nothing that would ask for another.
        for log in directory.logs.values():
            if log.flushed_end_offset < log.log_end_offset:
                directory.rounds.request(log)
        self.listener.on_space_changed(directory.path, True)

    def _report_full(self, directory: LogDirectory) -> None:
        if not directory.has_space and directory.error is None:
            self.listener.on_space_changed(directory.path, False)

    def fail(self, directory: LogDirectory, error: OSError) -> None:
        """The disk failed: the directory goes offline, and its logs take nothing more."""
        if directory.error is not None:
            return
        directory.error = error
        self.stats.directories_failed += 1
        logger.error("log directory %s failed and is offline: %s", directory.path, error)
        for log in directory.logs.values():
            log.tail.fail(error)
        directory.rounds.fail(error)
        self.listener.on_directory_failed(directory.path, error)

    def refuse(self, directory: LogDirectory, error: OSError) -> KafkaError:
        """What to raise when a log cannot be made or checked; the directory fails unless it is not to blame."""
        if is_out_of_descriptors(error):
            return OutOfDescriptors(f"{directory.path}: {error}")
        if is_disk_full(error) and self.listener.stays_when_full():
            self.lose_space(directory, str(error))
            return DiskFull(f"{directory.path}: {error}")
        self.fail(directory, error)
        return StorageFailed(f"{directory.path}: {error}")

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that work."""
        return [directory for directory in self.directories if directory.error is None]

    @property
    def online_directories(self) -> list[str]:
        """Paths of the directories that work."""
        return [directory.path for directory in self.directories if directory.error is None]

    @property
    def online_directory_ids(self) -> list[Uuid]:
        """Ids of the directories that work."""
        return [directory.id for directory in self.directories if directory.error is None]

    @property
    def offline_directories(self) -> list[str]:
        """Paths of the directories that failed."""
        return [directory.path for directory in self.directories if directory.error is not None]

    @property
    def full_directories(self) -> list[str]:
        """Paths of the directories that work and take no records for want of room."""
        return [directory.path for directory in self.directories if directory.error is None and not directory.has_space]

    def on_checkpoint_error(self, directory: LogDirectory, error: OSError) -> None:
        """Checkpoint files could not be written."""
        if is_out_of_descriptors(error):  # a later recovery point costs a crash time, not data
            logger.warning("the checkpoints of %s are written at the next interval: %s", directory.path, error)
        elif is_disk_full(error) and self.listener.stays_when_full():
            self.lose_space(directory, str(error))  # the files stay as they were: recovery reads more
        else:
            self.fail(directory, error)
