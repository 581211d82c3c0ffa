"""Which log is in which directory of a broker, and which of several with one name serves.

May touch:  the directories, the Disk to rename.   Must not touch: asyncio, clocks, what a log contains.
Invariants: a log has one home; a partition has one log that serves, or rivals and none; a log that is taken out takes no more.
Read next:  manager.py, which owns one of these; log_directory.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas_log.directories.directory_health import DirectoryHealth
from barnabas_log.directories.log_directory import LogDirectory
from barnabas_log.disk import Disk
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import TopicPartition, Uuid

logger = logging.getLogger(__name__)

STRAY_SUFFIX: Final = "-stray"
"""The suffix of the directory of a replica that the cluster does not know."""


def choose_directory(
    online: Sequence[LogDirectory], directory_id: Uuid, promised: Mapping[LogDirectory, int]
) -> LogDirectory:
    """Where a new log goes: the directory with that id if it is online, else one with room and the fewest logs, those counted
    that each is promised."""
    named = [directory for directory in online if directory.id == directory_id]
    return min(
        named or online,
        key=lambda candidate: (not candidate.has_space, len(candidate.logs) + promised.get(candidate, 0)),
    )


class LogHomes:
    """All logs of a broker, and the directory of each."""

    def __init__(self, *, disk: Disk, health: DirectoryHealth) -> None:
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        """The log that serves, by partition."""
        self.rivals: dict[TopicPartition, list[UnifiedLog]] = {}
        """After the start: partitions that are in several directories, none of which serves until `settle`. A directory that was
        offline came back, and meanwhile the replica was started again in another."""
        self.directories: dict[UnifiedLog, LogDirectory] = {}
        """The directory of each log."""
        self._disk = disk
        self._health = health

    def clear(self) -> None:
        """Forget all of them: they are closed."""
        self.logs.clear()
        self.directories.clear()

    def adopt(self, directory: LogDirectory, log: UnifiedLog) -> None:
        """Put a log that was opened into service, or among the rivals of its name."""
        topic_partition = log.topic_partition
        self.directories[log] = directory
        directory.logs[topic_partition] = log
        if topic_partition in self.rivals:
            self.rivals[topic_partition].append(log)
        elif topic_partition in self.logs:
            self.rivals[topic_partition] = [self.logs.pop(topic_partition), log]
        else:
            self.logs[topic_partition] = log

    def settle(self, topic_partition: TopicPartition, topic_id: Uuid, *, directory_id: Uuid) -> None:
        """Put one of the rivals of that name into service, and the others aside.

        The one of that topic is taken; of several the one in that directory, where the cluster believes the replica to be; else
        the one that was written last: no log was begun beside another that the cluster counted on.
        """
        logs = self.rivals.pop(topic_partition)
        right = self._choose(logs, topic_id, directory_id)
        self.logs[topic_partition] = right
        for log in logs:
            if log is not right:
                target = self.take_out(log, STRAY_SUFFIX)
                logger.warning(
                    "%s was in two log directories: %s serves, the other is kept in %s; remove that directory when nobody "
                    "wants its records",
                    topic_partition,
                    right.directory,
                    log.directory if target is None else target[0],
                )

    def take_out(
        self, log: UnifiedLog, suffix: str, *, before: Callable[[], None] = lambda: None
    ) -> tuple[str, int] | None:
        """Rename a log's directory. Returns its new path and file.delete.delay.ms of the log; None when that failed.

        before: done first, once the log no longer counts as one in service; may raise OSError."""
        directory = self.directories.pop(log)
        del directory.logs[log.topic_partition]
        directory.rounds.forget(log)
        directory.saved.note_deleted(log.topic_partition)
        target = directory.free_path(log, suffix)
        try:
            before()
            self._disk.rename(log.directory, target)
        except OSError as error:
            self._health.fail(directory, error)
            return None
        finally:
            log.tail.fail(OSError("the log is deleted"))
            log.release_files()
        return target, log.config.file_delete_delay_ms

    def _choose(self, rivals: Sequence[UnifiedLog], topic_id: Uuid, directory_id: Uuid) -> UnifiedLog:
        def rank(log: UnifiedLog) -> tuple[bool, bool, int, int]:
            is_home = self.directories[log].id == directory_id
            return log.topic_id == topic_id, is_home, log.latest_epoch, log.log_end_offset

        return max(rivals, key=rank)
