"""All logs of a broker: its directories, their loading, flushing, retention, checkpoints and deletion.

May touch:  asyncio, the Disk and clock it is given.   Must not touch: peers, metadata, os.
Invariants: a directory that failed once is offline until the process starts again, and one that is full is not; the recovery
            point on disk is never above what is durable; the clean-shutdown file is the last thing written and the first
            thing removed.
Read next:  log_directory.py, saved_offsets.py, removals.py, then unified_log.py; replication's manager, which owns one of these.

Layout of a log directory: <topic>-<partition>/ per log, <topic>-<partition>.<id>-delete/ on its way out, ...-stray/ of a
replica that the cluster does not know, and the checkpoint files of checkpoints.py.

Not obvious:
  - A full directory (room.py) is watched by its free bytes, so that appends mostly end before a write fails. A write that finds no
    room is no failure of the disk; a flush that finds none is, for the pages may be gone from memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from barnabas_log import checkpoints, repair, retiring
from barnabas_log.cleaner.driver import LogCleaner
from barnabas_log.cleaner.process import Transform, WorkerProcess
from barnabas_log.config import LogConfig, LogManagerConfig
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.disk import Disk
from barnabas_log.errors import InconsistentTopicId, NoRoom, OutOfDescriptors, StorageFailed
from barnabas_log.flush import RETRY_S as FLUSH_RETRY_S
from barnabas_log.flush import FlushStats
from barnabas_log.log_directory import LogDirectory
from barnabas_log.opening import open_partition_log
from barnabas_log.producer_state import ProducerState
from barnabas_log.recovery import load_producers
from barnabas_log.removals import DELETE_SUFFIX, Removals
from barnabas_log.room import is_no_room
from barnabas_log.scrub import DamagedRange
from barnabas_log.scrubber import ScrubStats
from barnabas_log.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, ZERO_UUID, Offset, TopicPartition, Uuid

logger = logging.getLogger(__name__)

RETENTION_INITIAL_DELAY_MS: Final = 30_000
"""log.initial.task.delay.ms"""
_STRAY_SUFFIX: Final = "-stray"
_FORGET_RETRY_MS: Final = 10_000
"""After which the checkpoint files are written again that still speak of deleted logs."""
_RETENTION_SLICE: Final = 50
"""Logs looked at between two turns of the loop."""


@dataclass(slots=True)
class LogManagerStats:
    """Counters since the start."""

    logs_recovered: int = 0
    """Logs opened after an unclean stop."""
    recovery_scanned_bytes: int = 0
    recovery_truncated_bytes: int = 0
    logs_that_lost_flushed_data: int = 0
    segments_retired: int = 0
    producers_expired: int = 0
    directories_failed: int = 0
    directories_filled: int = 0
    """Times that a directory ran full."""


class LogManagerListener:
    """Who uses the logs of a broker: nobody, unless a subclass is given to `serve`. Calls come on the loop and return at once."""

    def on_flushed(self, log: UnifiedLog) -> None:
        """A flush of the log is done: its flushed_end_offset may have moved."""

    def on_log_start_moved(self, log: UnifiedLog) -> None:
        """The log begins later than before."""

    def on_damage(self, log: UnifiedLog) -> None:
        """What is known of the log's damage has changed."""

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """The directory went offline, once for all; its logs take nothing more."""

    def on_room_changed(self, directory: str, has_room: bool) -> None:
        """Whether the directory's logs may grow has changed. Comes in a turn of the loop of its own, never amid a write."""

    def may_compact(self) -> bool:
        """Whether every broker that may follow one of the logs takes batches with offsets missing between them."""
        return True

    def stays_when_full(self) -> bool:
        """Whether somebody leads others past a full directory; else it fails as a whole, as before there were faulty replicas."""
        return False


class LogManager:
    """Owner of every log of a broker. Everything but `load` and `close` is called on its loop and does not wait."""

    def __init__(
        self,
        *,
        disk: Disk,
        directories: Sequence[str],
        default_config: LogConfig,
        clock_ms: Callable[[], int],
        directory_ids: Mapping[str, Uuid] | None = None,
        offline: Mapping[str, OSError] | None = None,
        config: LogManagerConfig | None = None,
        transform: Transform | None = None,
    ) -> None:
        """
        Args:
            transform: what rewrites compacted segments; a process of its own by default.
            default_config: of a log that was loaded, but for retention, until get_or_create brings its topic's settings.
            directory_ids: by path; a directory that cannot be read has none.
            offline: directories that have failed already, and are not to be touched.
        """
        ids = directory_ids or {}
        self.stats = LogManagerStats()
        self._listener = LogManagerListener()
        self.previous_broker_epoch = -1
        """After load: the broker epoch at the last stop if that was clean in every directory that works, else -1 (KIP-966)."""
        self.is_clean_start = False
        """After load: whether the last stop was clean in every directory that works."""
        self._disk = disk
        # A broker that waits for its controllers would shorten by the defaults what the topic may keep for ever.
        self._loaded_config = replace(default_config, retention_ms=-1, retention_bytes=-1)
        self._clock_ms = clock_ms
        self._config = config or LogManagerConfig()
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self.rivals: dict[TopicPartition, list[UnifiedLog]] = {}
        """After load: partitions that are in several directories, none of which serves until `settle`. A directory that was
        offline came back, and meanwhile the replica was begun anew in another."""
        self._homes: dict[UnifiedLog, LogDirectory] = {}
        self._removals = Removals(disk)
        self._directories = [
            LogDirectory(
                disk=disk,
                path=path,
                directory_id=ids.get(path, ZERO_UUID),
                config=self._config,
                on_flushed=self._tell_flushed,
                on_damage=self._tell_damage,
                on_failed=self._fail_directory,
            )
            for path in directories
        ]
        self.cleaner = LogCleaner(
            disk=disk,
            directories=self._directories,
            config=self._config,
            clock_ms=clock_ms,
            transform=transform or WorkerProcess(),
            host=self,
        )
        """Compaction."""
        for directory in self._directories:
            if offline and directory.path in offline:
                self._fail_directory(directory, offline[directory.path])

    def serve(self, listener: LogManagerListener) -> None:
        """Report to `listener` from now on: a broker's logs have one user."""
        self._listener = listener

    # -- start and stop --------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Lock the directories and open every log in them, in the disk's threads. A directory that cannot be read is offline.

        Raises DirectoryLocked, InconsistentTopicId, OutOfDescriptors, StorageFailed when no directory works.
        """
        epochs: list[int | None] = []
        for directory in self._directories:
            if directory.error is not None:
                continue
            try:
                self._disk.make_directory(directory.path)
                self._disk.lock_directory(directory.path)
                await self._look_at_room(directory)
                try:
                    epoch = await self._load_directory(directory)
                except OSError as error:
                    if not is_no_room(error) or not await self._disk.run(directory.reserve.spend):
                        raise
                    epoch = await self._load_directory(directory)
                epochs.append(epoch)
            except OSError as error:
                if is_out_of_descriptors(error):
                    raise OutOfDescriptors(f"{directory.path}: {error}") from error
                self._fail_directory(directory, error)
        if not self.online_directories:
            raise StorageFailed(
                "no log directory works: " + "; ".join(f"{found.path}: {found.error}" for found in self._directories)
            )
        self.is_clean_start = all(epoch is not None for epoch in epochs)
        known = {epoch for epoch in epochs if epoch is not None}
        self.previous_broker_epoch = known.pop() if self.is_clean_start and len(known) == 1 else -1

    async def run(self) -> None:
        """Flush rounds, retention, checkpoints and removals, until cancelled. Raises what no disk failure explains."""
        config = self._config
        async with asyncio.TaskGroup() as tasks:
            for directory in self._directories:
                tasks.create_task(directory.rounds.run())
                tasks.create_task(self._scrub(directory))
                tasks.create_task(self._forget_when_deleted(directory))
            tasks.create_task(
                self._every(
                    config.retention_check_interval_ms, self.apply_retention, first_ms=RETENTION_INITIAL_DELAY_MS
                )
            )
            tasks.create_task(self._every(config.recovery_point_checkpoint_interval_ms, self.write_checkpoints))
            tasks.create_task(self._every(config.producer_id_expiration_check_interval_ms, self._expire_producers))
            tasks.create_task(self._removals.run())
            if config.is_cleaner_enabled:
                tasks.create_task(self.cleaner.run())
            tasks.create_task(self._every(config.free_check_interval_ms, self.look_at_room, first_ms=0))

    async def close(self, *, broker_epoch: int = -1) -> None:
        """Stop cleanly, after `run` has ended: flush all, write every checkpoint, then the clean-shutdown file."""
        for directory in self._directories:
            if directory.error is not None:
                for log in directory.logs.values():
                    log.release_files()
                continue
            closing = (self._disk.run(log.close) for log in directory.logs.values())
            try:
                for result in await asyncio.gather(*closing, return_exceptions=True):
                    if result is not None:
                        raise result
                if not directory.has_room:
                    await self._disk.run(directory.reserve.spend)
                await self._disk.run(directory.saved.save, directory.saved.ends())
                await directory.scrub.save()
                clean_file = directory.file(checkpoints.CLEAN_SHUTDOWN_FILE)
                write = partial(checkpoints.write_clean_shutdown, self._disk, clean_file, broker_epoch=broker_epoch)
                await self._disk.run(write)
            except (OSError, StorageFailed, OutOfDescriptors) as error:
                logger.error("%s did not stop cleanly: %s", directory.path, error)
        self._logs.clear()
        self._homes.clear()

    async def _load_directory(self, directory: LogDirectory) -> int | None:
        opened, broker_epoch = await directory.open_logs(
            config=self._loaded_config, clock_ms=self._clock_ms, listener=self
        )
        for log in opened:
            log.has_settings = False
            log.clean_offset = directory.saved.clean_offsets.get(log.topic_partition, Offset(0))
            self._adopt(directory, log)
            self.on_recovery_point_lowered(log)  # if less was found than the files say
            if broker_epoch is None:
                self.stats.logs_recovered += 1
                self.stats.recovery_scanned_bytes += log.recovery_report.scanned_bytes
                self.stats.recovery_truncated_bytes += log.recovery_report.truncated_bytes
                self.stats.logs_that_lost_flushed_data += log.recovery_report.is_flushed_data_lost
        directory.saved.note_missing()
        directory.scrub.load()
        directory.scrub.request_unread()
        return broker_epoch

    # -- logs ------------------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The log of a partition, if there is one here."""
        return self._logs.get(topic_partition)

    @property
    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """All of them."""
        return self._logs

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, *, directory_id: Uuid = ZERO_UUID
    ) -> UnifiedLog:
        """The log of a partition, with these settings; if it is not there it is made, in the directory with that id if there
        is one, else in the online directory with the fewest logs. Whether it may be made is for the caller to know.

        Raises InconsistentTopicId when the log is of another topic of that name, StorageFailed when no directory works, NoRoom
        or OutOfDescriptors when it may be tried again later.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id == ZERO_UUID:
                try:
                    log.set_topic_id(topic_id)
                except OSError as error:
                    raise self._refuse(self._homes[log], error) from error
            elif log.topic_id != topic_id:
                raise InconsistentTopicId(f"{log.directory} is of topic id {log.topic_id}, not {topic_id}")
            log.update_config(config)
            return log
        online = [directory for directory in self._directories if directory.error is None]
        if not online:
            raise StorageFailed("no log directory is left online")
        named = [directory for directory in online if directory.id == directory_id]
        directory = min(named or online, key=lambda candidate: (not candidate.has_room, len(candidate.logs)))
        path = directory.file(str(topic_partition))
        is_new = not self._disk.exists(path)
        try:
            if topic_partition in directory.saved.deleted:
                directory.saved.forget_deleted()
            log = open_partition_log(
                disk=self._disk,
                directory=path,
                topic_partition=topic_partition,
                topic_id=topic_id,
                config=config,
                now_ms=self._clock_ms(),
                listener=self,
            )
        except OSError as error:
            if is_new and is_no_room(error):
                with contextlib.suppress(OSError):
                    self._disk.remove_tree(path)
            raise self._refuse(directory, error) from error
        self._adopt(directory, log)
        return log

    def _refuse(self, directory: LogDirectory, error: OSError) -> KafkaError:
        """What to raise when a log cannot be made or checked; the directory fails unless it is not to blame."""
        if is_out_of_descriptors(error):
            return OutOfDescriptors(f"{directory.path}: {error}")
        if is_no_room(error) and self._listener.stays_when_full():
            self._lose_room(directory, str(error))
            return NoRoom(f"{directory.path}: {error}")
        self._fail_directory(directory, error)
        return StorageFailed(f"{directory.path}: {error}")

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the log out of service: its directory is renamed now and removed after file.delete.delay.ms.

        Nothing happens if it is not here. Readers that hold its files may finish.
        """
        log = self._logs.pop(topic_partition, None)
        target = None if log is None else self._take_out(log, DELETE_SUFFIX)
        if target is not None:
            path, delay_ms = target
            self._removals.add([(delay_ms, path)])

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a log out of service of which the metadata knows no replica here, and keep its directory under another name,
        as Kafka does: nobody asked for its deletion, and a quorum that was recovered may have forgotten a topic.

        Returns where it is now, None if it is not here or its directory has failed.
        """
        log = self._logs.pop(topic_partition, None)
        target = None if log is None else self._take_out(log, _STRAY_SUFFIX)
        return None if target is None else target[0]

    def _take_out(self, log: UnifiedLog, suffix: str) -> tuple[str, int] | None:
        """Rename a log's directory. Returns its new path and file.delete.delay.ms of the log; None when that failed."""
        directory = self._homes.pop(log)
        del directory.logs[log.topic_partition]
        directory.rounds.forget(log)
        directory.saved.note_deleted(log.topic_partition)
        target = directory.free_path(log, suffix)
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            self._fail_directory(directory, error)
            return None
        finally:
            log.fail(OSError("the log is deleted"))
            log.release_files()
        return target, log.config.file_delete_delay_ms

    def directory_id(self, log: UnifiedLog) -> Uuid:
        """Id of the directory that a log is in (KIP-858)."""
        return self._homes[log].id

    @property
    def online_directories(self) -> list[str]:
        """Paths of the directories that work."""
        return [directory.path for directory in self._directories if directory.error is None]

    @property
    def online_directory_ids(self) -> list[Uuid]:
        """Ids of the directories that work."""
        return [directory.id for directory in self._directories if directory.error is None]

    @property
    def offline_directories(self) -> list[str]:
        """Paths of the directories that failed."""
        return [directory.path for directory in self._directories if directory.error is not None]

    @property
    def full_directories(self) -> list[str]:
        """Paths of the directories that work and take no records for want of room."""
        return [directory.path for directory in self._directories if directory.error is None and not directory.has_room]

    def flush_stats(self) -> dict[str, FlushStats]:
        """Flush counters by directory path."""
        return {directory.path: directory.rounds.stats for directory in self._directories}

    def _adopt(self, directory: LogDirectory, log: UnifiedLog) -> None:
        topic_partition = log.topic_partition
        self._homes[log] = directory
        directory.logs[topic_partition] = log
        if topic_partition in self.rivals:
            self.rivals[topic_partition].append(log)
        elif topic_partition in self._logs:
            self.rivals[topic_partition] = [self._logs.pop(topic_partition), log]
        else:
            self._logs[topic_partition] = log

    def settle(self, topic_partition: TopicPartition, topic_id: Uuid, *, directory_id: Uuid) -> None:
        """Put one of the rivals of that name into service, and the others aside.

        The one of that topic is taken; of several the one in that directory, where the cluster believes the replica to be; else
        the one that was written last: no log was begun beside another that the cluster counted on.
        """
        logs = self.rivals.pop(topic_partition)
        right = max(
            logs,
            key=lambda log: (
                log.topic_id == topic_id,
                self._homes[log].id == directory_id,
                log.latest_epoch,
                log.log_end_offset,
            ),
        )
        self._logs[topic_partition] = right
        for log in logs:
            if log is not right:
                target = self._take_out(log, _STRAY_SUFFIX)
                logger.warning(
                    "%s was in two log directories: %s serves, the other is kept in %s; remove that directory when nobody "
                    "wants its records",
                    topic_partition,
                    right.directory,
                    log.directory if target is None else target[0],
                )

    async def _forget_when_deleted(self, directory: LogDirectory) -> None:
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
                    self._on_checkpoint_error(directory, error)
                await asyncio.sleep(_FORGET_RETRY_MS / 1000)
                saved.deletion.set()

    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run what reads held files in the disk's threads."""
        return await self._disk.run(function, *args)

    # -- durability ------------------------------------------------------------------------------------------------

    def request_flush(self, log: UnifiedLog) -> None:
        """Make what the log holds durable in the next round of its directory; the listener hears of it."""
        directory = self._homes.get(log)
        if directory is not None:
            directory.rounds.request(log)

    def may_write(self, log: UnifiedLog) -> bool:
        """See LogListener.may_write."""
        directory = self._homes.get(log)
        return directory is None or not directory.rounds.is_slow(log)

    def on_log_start_moved(self, log: UnifiedLog) -> None:
        """See LogListener.on_log_start_moved."""
        self._listener.on_log_start_moved(log)

    def on_segment_rolled(self, log: UnifiedLog) -> None:
        """See LogListener.on_segment_rolled."""
        self.request_flush(log)

    def begin_flush(self, log: UnifiedLog) -> bool:
        """See LogListener.begin_flush."""
        directory = self._homes.get(log)
        if directory is None or not directory.rounds.is_running:
            return False
        directory.rounds.request(log)
        return True

    def on_recovery_point_lowered(self, log: UnifiedLog) -> None:
        """See LogListener.on_recovery_point_lowered. A log that starts over may have a lower start and high watermark, too."""
        directory = self._homes.get(log)
        if directory is None:
            return
        try:
            directory.saved.lower(log)
        except OSError as error:
            self._fail_directory(directory, error)

    def on_gap(self, log: UnifiedLog) -> None:
        """See LogListener.on_gap. Blocks: once for each log."""
        directory = self._homes.get(log)
        if directory is None:
            return
        try:
            directory.saved.save_clean_offset(log, log.clean_offset)
        except OSError as error:
            raise self._refuse(directory, error) from error

    def on_storage_failed(self, log: UnifiedLog, error: OSError) -> None:
        """See LogListener.on_storage_failed."""
        directory = self._homes.get(log)
        if directory is not None:
            self._fail_directory(directory, error)

    def on_no_room(self, log: UnifiedLog, error: OSError) -> bool:
        """See LogListener.on_no_room."""
        directory = self._homes.get(log)
        if directory is None or not self._listener.stays_when_full():
            return False
        self._lose_room(directory, str(error))
        return True

    # -- room ------------------------------------------------------------------------------------------------------

    async def look_at_room(self) -> None:
        """Look at the free bytes of every online directory, and report whose logs may grow no more, or again."""
        for directory in self._directories:
            if directory.error is None:
                await self._look_at_room(directory)
        if self.full_directories:
            await self.apply_retention()

    async def _look_at_room(self, directory: LogDirectory) -> None:
        change = await directory.look_at_room(self._config, stays_when_full=self._listener.stays_when_full)
        if change is None:
            return
        if change.has_room:
            self._regain_room(directory)
        else:
            self._lose_room(directory, change.reason)

    def _lose_room(self, directory: LogDirectory, reason: str) -> None:
        if not directory.has_room:
            return
        directory.has_room = False
        self.stats.directories_filled += 1
        logger.error(
            "log directory %s is full and takes no records until %d bytes are free: %s. Free space there, or lower the retention "
            "of big topics; the broker goes on by itself",
            directory.path,
            self._config.free_bytes_resume,
            reason,
        )
        asyncio.get_running_loop().call_soon(self._tell_no_room, directory)

    def _regain_room(self, directory: LogDirectory) -> None:
        directory.has_room = True
        self._listener.on_room_changed(directory.path, True)

    def _tell_no_room(self, directory: LogDirectory) -> None:
        if not directory.has_room and directory.error is None:
            self._listener.on_room_changed(directory.path, False)

    def _tell_flushed(self, log: UnifiedLog) -> None:
        if log in self._homes:
            if log.is_retention_owed:
                self._retire(log)
            self._listener.on_flushed(log)

    def _fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        if directory.error is not None:
            return
        directory.error = error
        self.stats.directories_failed += 1
        logger.error("log directory %s failed and is offline: %s", directory.path, error)
        for log in directory.logs.values():
            log.fail(error)
        directory.rounds.fail(error)
        self._listener.on_directory_failed(directory.path, error)

    # -- damage ----------------------------------------------------------------------------------------------------

    async def _scrub(self, directory: LogDirectory) -> None:
        if directory.error is None:
            try:
                await directory.scrub.run()
            except OSError as error:  # what is known of damage could not be written
                self._fail_directory(directory, error)

    def _tell_damage(self, log: UnifiedLog) -> None:
        if log in self._homes:
            self._listener.on_damage(log)

    def request_check(self, log: UnifiedLog, base_offset: int | None = None) -> None:
        """Have a segment of the log, or all of it, checked soon; the listener hears if that brings news."""
        directory = self._homes.get(log)
        if directory is not None:
            directory.scrub.request(log, base_offset)

    def is_check_requested(self, log: UnifiedLog) -> bool:
        """Whether a requested check of the log is not done yet."""
        directory = self._homes.get(log)
        return directory is not None and directory.error is None and directory.scrub.is_requested(log)

    async def check(self, log: UnifiedLog, base_offset: int) -> bool:
        """Check a segment now; False when nothing can be said of it, for it has gone or was cut meanwhile. Raises StorageFailed,
        OutOfDescriptors, and NoRoom where an index is to be made again."""
        directory = self._homes.get(log)
        if directory is None or directory.error is not None:
            return False
        try:
            return await directory.scrub.check(log, base_offset)
        except OSError as error:
            raise self._refuse(directory, error) from error

    async def replace_damaged(self, log: UnifiedLog, damage: DamagedRange, batches: bytes) -> bool:
        """Put proved batches in the place of a damaged range, make them durable and check the segment anew; whether that range is
        sound then. Raises StorageFailed."""
        directory = self._homes.get(log)
        if directory is None or directory.error is not None:
            return False
        file = repair.replace_damaged(log, damage, batches)
        while True:
            try:
                await self._disk.flush([file])
                break
            except OSError as error:
                if not is_out_of_descriptors(error):
                    self._fail_directory(directory, error)
                    return False
            # Written, and not durable yet: nobody else would flush it, for all below the recovery point counts as flushed.
            await asyncio.sleep(FLUSH_RETRY_S)
            if log.is_closed or directory.error is not None or damage.segment not in log.base_offsets:
                return False
        is_sound = await self.check(log, damage.segment) and damage not in log.damage
        directory.scrub.stats.ranges_repaired += is_sound
        return is_sound

    async def reload_producers(self, log: UnifiedLog) -> bool:
        """Read the log's producer state anew where damage made it doubtful, once nothing of the log is damaged any more.

        A state read from damaged batches lacks some: a retry would be refused as out of order, or appended again. Returns whether
        the state is whole; else try again later.
        """
        directory = self._homes.get(log)
        if directory is None or directory.error is not None:
            return False
        if log.doubted_from == NO_OFFSET:
            return True
        cuts, end = log.durability.cuts, log.written_end_offset
        opening = partial(LogSegment.open, self._disk, log.directory, config=log.config, now_ms=self._clock_ms())
        bases, doubted_from = log.base_offsets, log.doubted_from
        try:
            state = await self._disk.run(
                _read_producers, self._disk, log.directory, bases, opening, end, log.high_watermark, doubted_from
            )
        except FileNotFoundError:  # retention took a segment
            return False
        except OSError as error:
            if not is_out_of_descriptors(error):
                self._fail_directory(directory, error)
            return False
        for base_offset in state.unread:
            directory.scrub.request(log, base_offset)
        return not state.unread and repair.adopt_producers(log, state, cuts=cuts)

    def scrub_stats(self) -> dict[str, ScrubStats]:
        """Counters of the scrub by directory path."""
        return {directory.path: directory.scrub.stats for directory in self._directories}

    # -- compaction ------------------------------------------------------------------------------------------------

    def may_compact(self) -> bool:
        """See CleanerHost.may_compact."""
        return self._listener.may_compact()

    def is_here(self, log: UnifiedLog) -> bool:
        """See CleanerHost.is_here."""
        return log in self._homes and self._logs.get(log.topic_partition) is log

    def remove_later(self, log: UnifiedLog) -> None:
        """See CleanerHost.remove_later."""
        removals = log.take_removals()
        if removals:
            self._removals.add(removals)

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """See CleanerHost.fail_directory."""
        self._fail_directory(directory, error)

    # -- periodic work ---------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        """Look at every log once, a few per turn of the loop."""
        for number, log in enumerate(list(self._logs.values())):
            if number % _RETENTION_SLICE == _RETENTION_SLICE - 1:
                await asyncio.sleep(0)
            if log in self._homes and not log.is_failed:
                self._retire(log)

    def _retire(self, log: UnifiedLog) -> None:
        try:
            self.stats.segments_retired += retiring.apply_retention(log, self._clock_ms())
        except (StorageFailed, OutOfDescriptors):
            return  # the log has informed its listener, or is looked at again next time
        self.remove_later(log)

    async def write_checkpoints(self) -> None:
        """Write leader epochs, recovery points and log start offsets of every online directory."""
        for directory in self._directories:
            if directory.error is None:
                ends = directory.saved.ends()
                try:
                    await self._disk.run(directory.saved.save, ends)
                except OSError as error:
                    self._on_checkpoint_error(directory, error)

    def _on_checkpoint_error(self, directory: LogDirectory, error: OSError) -> None:
        if is_out_of_descriptors(error):  # a later recovery point costs a crash time, not data
            logger.warning("the checkpoints of %s are written at the next interval: %s", directory.path, error)
        elif is_no_room(error) and self._listener.stays_when_full():
            self._lose_room(directory, str(error))  # the files stay as they were: recovery reads more
        else:
            self._fail_directory(directory, error)

    async def raise_log_starts(self, starts: Mapping[UnifiedLog, Offset]) -> frozenset[UnifiedLog]:
        """Move the start of each log up, at most to its high watermark, once the checkpoint file of its directory says so.

        Returns the logs for which that could not be done; a log that is truncated meanwhile is none of them.
        """
        failed = {log for log in starts if (home := self._homes.get(log)) is None or home.error is not None}
        for directory in self._directories:
            here = {log: offset for log, offset in starts.items() if self._homes.get(log) is directory}
            if not here or directory.error is not None:
                continue
            rising = directory.saved.rising_log_starts
            directory.saved.begin_raising(here)
            try:
                await self._disk.run(directory.saved.save_rising, tuple(here))
            except OSError as error:
                failed.update(here)
                self._on_checkpoint_error(directory, error)
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
        for directory in self._directories:
            if directory.error is None:
                offsets = [(log, log.high_watermark) for log in directory.logs.values()]
                try:
                    await self._disk.run(directory.saved.save_high_watermarks, offsets)
                except OSError as error:
                    if is_no_room(error) and not directory.has_room:
                        continue
                    # A stale file costs a new leader time, not data: whether the disk works, appends and flushes will show.
                    logger.error("high watermarks of %s could not be written: %s", directory.path, error)

    async def _expire_producers(self) -> None:
        for log in list(self._logs.values()):
            expiration_ms = self._config.producer_id_expiration_ms
            self.stats.producers_expired += log.expire_producers(now_ms=self._clock_ms(), expiration_ms=expiration_ms)

    async def _every(
        self, interval_ms: int, function: Callable[[], Awaitable[None]], *, first_ms: int | None = None
    ) -> None:
        await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
        while True:
            await function()
            await asyncio.sleep(interval_ms / 1000)


def _read_producers(
    disk: Disk,
    directory: str,
    bases: Sequence[Offset],
    opening: Callable[[Offset], LogSegment],
    end_offset: Offset,
    high_watermark: Offset,
    doubted_from: Offset,
) -> ProducerState:
    """Producer state at `end_offset` from files of its own, so that a disk thread may read while the log goes on. Raises OSError."""
    segments: list[LogSegment] = []
    try:
        segments.extend(opening(base_offset) for base_offset in bases)
        return load_producers(
            disk, directory, segments, end_offset=end_offset, high_watermark=high_watermark, doubted_from=doubted_from
        )
    finally:
        for segment in segments:
            segment.close()
