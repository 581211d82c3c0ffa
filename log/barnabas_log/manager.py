"""All logs of a broker: its directories, their loading, flushing, retention, checkpoints and deletion.

May touch:  asyncio, the Disk and clock it is given.   Must not touch: peers, metadata, os.
Invariants: a directory that failed once is offline until the process starts again, and one that is full is not; the recovery
            point on disk is never above what is durable; the clean-shutdown file is the last thing written and the first
            thing removed.
Read next:  unified_log.py, flush.py, scrubber.py, room.py; replication's manager, which owns one of these.

Layout of a log directory: <topic>-<partition>/ per log, <topic>-<partition>.<id>-delete/ on its way out, ...-stray/ of a
replica that the cluster does not know, and the checkpoint files of checkpoints.py.

Not obvious:
  - Leader epochs are saved before the recovery points that cover them: below the recovery point the file is believed.
  - A topic that is deleted and made again has logs of the old names: what a file says of an earlier log of that name is
    taken out before the new one begins, and a checkpoint under way leaves out what is gone meanwhile. That is done in a disk
    thread as soon as a log is deleted; a log that is made before it is done does it, blocking, for all deleted ones at once.
  - A full directory (room.py) is watched by its free bytes, so that appends mostly end before a write fails. A write that finds no
    room is no failure of the disk; a flush that finds none is, for the pages may be gone from memory.
  - A log truncated below the recovery point on disk rewrites that file at once, blocking: until then a crash would skip
    the proof of bytes written since. It is rare, since the tail that is cut is younger than the last checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from barnabas_log import checkpoints
from barnabas_log.config import LogConfig
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.disk import Disk
from barnabas_log.errors import CorruptCheckpoint, InconsistentTopicId, NoRoom, OutOfDescriptors, StorageFailed
from barnabas_log.flush import FlushRounds, FlushStats
from barnabas_log.producer_state import PRODUCER_ID_EXPIRATION_MS
from barnabas_log.room import Reserve, RoomMarks, is_no_room
from barnabas_log.scrub import DamagedRange
from barnabas_log.scrubber import Scrubber, ScrubStats
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import METADATA_TOPIC, ZERO_UUID, Offset, TopicPartition, Uuid

logger = logging.getLogger(__name__)

RETENTION_INITIAL_DELAY_MS: Final = 30_000
"""log.initial.task.delay.ms"""
RESERVE_FILE: Final = "reserve"
"""In each log directory."""
_DELETE_SUFFIX: Final = "-delete"
_STRAY_SUFFIX: Final = "-stray"
_NAME_BYTES_MAX: Final = 255
_REMOVAL_RETRY_MS: Final = 1000
"""After which a removal is tried again that found no descriptor."""
_FORGET_RETRY_MS: Final = 10_000
"""After which the checkpoint files are written again that still speak of deleted logs."""
_RETENTION_SLICE: Final = 50
"""Logs looked at between two turns of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Settings of the whole broker."""

    retention_check_interval_ms: int = field(
        default=300_000,
        metadata={"key": "log.retention.check.interval.ms", "doc": "How often retention looks at every log, in ms."},
    )
    recovery_point_checkpoint_interval_ms: int = field(
        default=60_000,
        metadata={
            "key": "log.flush.offset.checkpoint.interval.ms",
            "doc": "How often recovery points are written, in ms: a longer time makes recovery after a crash longer.",
        },
    )
    producer_id_expiration_ms: int = field(
        default=PRODUCER_ID_EXPIRATION_MS,
        metadata={
            "key": "producer.id.expiration.ms",
            "doc": "How long a silent idempotent producer is remembered, in ms; a retry after that may be written twice.",
        },
    )
    producer_id_expiration_check_interval_ms: int = field(
        default=600_000,
        metadata={
            "key": "producer.id.expiration.check.interval.ms",
            "doc": "How often silent producers are looked for, in ms.",
        },
    )
    scrub_bytes_per_second_max: int = field(
        default=10_000_000,
        metadata={
            "key": "log.scrub.bytes.per.second.max",
            "doc": "How fast a broker reads its logs again to find damaged batches, in bytes/s for each log directory; 0 turns it "
            "off. A pass over a directory takes its size divided by this. Kafka has no such check.",
        },
    )

    free_bytes_min: int = field(
        default=32 * 1024 * 1024,
        metadata={
            "key": "log.dir.free.bytes.min",
            "doc": "A log directory with fewer bytes free takes no more records: other replicas lead, reads go on. On a small "
            "file system at most a sixteenth of it; 0 = only when a write fails.",
        },
    )
    free_bytes_resume: int = field(
        default=64 * 1024 * 1024,
        metadata={
            "key": "log.dir.free.bytes.resume",
            "doc": "A log directory that ran full takes records again once so many bytes are free; above log.dir.free.bytes.min, so "
            "that leadership does not go back and forth. On a small file system at most an eighth of it.",
        },
    )
    free_check_interval_ms: int = field(
        default=1_000,
        metadata={"key": "log.dir.free.check.interval.ms", "doc": "How often free bytes are looked at, in ms."},
    )
    reserve_bytes: int = field(
        default=1024 * 1024,
        metadata={
            "key": "log.dir.reserve.bytes",
            "doc": "Bytes that each log directory keeps for checkpoints, in a file that is removed when the disk is full.",
        },
    )


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


class _Directory:
    """One log directory."""

    def __init__(self, path: str, directory_id: Uuid) -> None:
        self.path = path
        self.id = directory_id
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.saved_recovery_points: dict[TopicPartition, Offset] = {}
        self.saved_log_starts: dict[TopicPartition, Offset] = {}
        self.saved_high_watermarks: dict[TopicPartition, Offset] = {}
        """All three as the files have them."""
        self.rising_log_starts: dict[UnifiedLog, Offset] = {}
        """Log starts that the file has, or is about to have, before the logs move there."""
        self.saving = threading.Lock()
        """Held while they are written: by a disk thread each minute, by the loop when an entry would be wrong."""
        self.deleted: dict[TopicPartition, None] = {}
        """Of logs that are gone: the files may still speak of them."""
        self.deletion = asyncio.Event()
        """Set when one is added."""
        self.error: OSError | None = None
        self.has_room = True
        self.free_bytes = -1
        """As last looked at, -1 before."""
        self.reserve: Reserve
        self.rounds: FlushRounds
        self.scrub: Scrubber

    def file(self, name: str) -> str:
        """Path of a file in it."""
        return f"{self.path}/{name}"


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
    ) -> None:
        """
        Args:
            default_config: of a log that was loaded, but for retention, until get_or_create tells its topic's settings.
            directory_ids: by path; a directory that cannot be read has none.
            offline: directories that have failed already, and are not to be touched.
        """
        ids = directory_ids or {}
        self.stats = LogManagerStats()
        self.on_flushed: Callable[[UnifiedLog], None] = lambda log: None
        """Called after each flush of a log: its flushed_end_offset may have moved."""
        self.on_damage: Callable[[UnifiedLog], None] = lambda log: None
        """Called when what is known of a log's damage has changed."""
        self.on_directory_failed: Callable[[str, OSError], None] = lambda directory, error: None
        """Called once when a directory goes offline; its logs take nothing more."""
        self.on_room_changed: Callable[[str, bool], None] = lambda directory, has_room: None
        """Told (path, whether its logs may grow) in a turn of the loop of its own, never amid a write."""
        self.stays_when_full: Callable[[], bool] = lambda: False
        """Whether somebody leads others past a full directory; else it fails as a whole, as before there were faulty replicas."""
        self.previous_broker_epoch = -1
        """After load: the broker epoch at the last stop if that was clean in every directory that works, else -1 (KIP-966)."""
        self.is_clean_start = False
        """After load: whether the last stop was clean in every directory that works."""
        self._disk = disk
        self._directories = [_Directory(path, ids.get(path, ZERO_UUID)) for path in directories]
        # A broker that waits for its controllers would shorten by the defaults what the topic may keep for ever.
        self._loaded_config = replace(default_config, retention_ms=-1, retention_bytes=-1)
        self._clock_ms = clock_ms
        self._config = config or LogManagerConfig()
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self.rivals: dict[TopicPartition, list[UnifiedLog]] = {}
        """After load: partitions that are in several directories, none of which serves until `settle`. A directory that was
        offline came back, and meanwhile the replica was begun anew in another."""
        self._homes: dict[UnifiedLog, _Directory] = {}
        self._removals: list[tuple[float, str]] = []
        """(when due by the loop's clock, path): the wall clock may be set while they wait."""
        self._removals_added = asyncio.Event()
        for directory in self._directories:
            directory.reserve = Reserve(disk, directory.file(RESERVE_FILE), self._config.reserve_bytes)
            directory.rounds = FlushRounds(
                disk=disk, on_flushed=self._tell_flushed, on_failed=partial(self._fail_directory, directory)
            )
            directory.scrub = Scrubber(
                disk=disk,
                path=directory.path,
                logs=directory.logs,
                bytes_per_second=self._config.scrub_bytes_per_second_max,
                on_damage=self._tell_damage,
                on_failed=partial(self._fail_directory, directory),
            )
        for directory in self._directories:
            if offline and directory.path in offline:
                self._fail_directory(directory, offline[directory.path])

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
            tasks.create_task(self._remove_when_due())
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
                await self._disk.run(self._write_directory_checkpoints, directory, self._ends(directory))
                await directory.scrub.save()
                clean_file = directory.file(checkpoints.CLEAN_SHUTDOWN_FILE)
                write = partial(checkpoints.write_clean_shutdown, self._disk, clean_file, broker_epoch=broker_epoch)
                await self._disk.run(write)
            except (OSError, StorageFailed, OutOfDescriptors) as error:
                logger.error("%s did not stop cleanly: %s", directory.path, error)
        self._logs.clear()
        self._homes.clear()

    async def _load_directory(self, directory: _Directory) -> int | None:
        clean_file = directory.file(checkpoints.CLEAN_SHUTDOWN_FILE)
        broker_epoch = checkpoints.read_clean_shutdown(self._disk, clean_file)
        if broker_epoch is not None:
            self._disk.remove(clean_file)
        # the names of logs too: a process that was killed may have made them and not flushed them
        self._disk.sync_directory(directory.path)
        directory.saved_recovery_points = self._read_checkpoint(directory, checkpoints.RECOVERY_POINTS_FILE)
        directory.saved_log_starts = self._read_checkpoint(directory, checkpoints.LOG_START_OFFSETS_FILE)
        directory.saved_high_watermarks = self._read_checkpoint(directory, checkpoints.HIGH_WATERMARKS_FILE)
        opening: list[Awaitable[UnifiedLog]] = []
        for name in self._disk.list_directory(directory.path):
            path = directory.file(name)
            if name.endswith(_DELETE_SUFFIX):
                await self._disk.run(self._disk.remove_tree, path)
                continue
            topic_partition = parse_directory_name(name)
            if topic_partition is None or topic_partition.topic == METADATA_TOPIC:
                continue
            open_log = partial(
                UnifiedLog.open,
                disk=self._disk,
                directory=path,
                topic_partition=topic_partition,
                topic_id=ZERO_UUID,
                config=self._loaded_config,
                now_ms=self._clock_ms(),
                recovery_point=directory.saved_recovery_points.get(topic_partition, Offset(0)),
                log_start_offset=directory.saved_log_starts.get(topic_partition, Offset(0)),
                high_watermark=directory.saved_high_watermarks.get(topic_partition, Offset(0)),
                is_clean_shutdown=broker_epoch is not None,
                listener=self,
            )
            opening.append(self._disk.run(open_log))
        opened = await asyncio.gather(*opening, return_exceptions=True)
        failures = [result for result in opened if isinstance(result, BaseException)]
        if failures:
            for result in opened:
                if isinstance(result, UnifiedLog):
                    result.release_files()
            raise failures[0]
        for log in opened:
            assert isinstance(log, UnifiedLog), "what failed was raised"
            self._adopt(directory, log)
            self.on_recovery_point_lowered(log)  # if less was found than the files say
            if broker_epoch is None:
                self.stats.logs_recovered += 1
                self.stats.recovery_scanned_bytes += log.recovery_report.scanned_bytes
                self.stats.recovery_truncated_bytes += log.recovery_report.truncated_bytes
                self.stats.logs_that_lost_flushed_data += log.recovery_report.is_flushed_data_lost
        files = (directory.saved_recovery_points, directory.saved_log_starts, directory.saved_high_watermarks)
        directory.deleted = {name: None for saved in files for name in saved if name not in directory.logs}
        if directory.deleted:
            directory.deletion.set()
        directory.scrub.load()
        return broker_epoch

    def _read_checkpoint(self, directory: _Directory, name: str) -> dict[TopicPartition, Offset]:
        try:
            return checkpoints.read_offsets(self._disk, directory.file(name))
        except CorruptCheckpoint as error:
            logger.error("%s; going on as if it were not there", error)
            return {}

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
            if topic_partition in directory.deleted:
                self._forget_deleted(directory)
            log = UnifiedLog.open(
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

    def _refuse(self, directory: _Directory, error: OSError) -> KafkaError:
        """What to raise when a log cannot be made; the directory fails unless it is not to blame."""
        if is_out_of_descriptors(error):
            return OutOfDescriptors(f"{directory.path}: {error}")
        if is_no_room(error) and self.stays_when_full():
            self._lose_room(directory, str(error))
            return NoRoom(f"{directory.path}: {error}")
        self._fail_directory(directory, error)
        return StorageFailed(f"{directory.path}: {error}")

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the log out of service: its directory is renamed now and removed after file.delete.delay.ms.

        Nothing happens if it is not here. Readers that hold its files may finish.
        """
        log = self._logs.pop(topic_partition, None)
        target = None if log is None else self._take_out(log, _DELETE_SUFFIX)
        if target is not None:
            path, delay_ms = target
            self._remove_later([(delay_ms, path)])

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
        directory.deleted[log.topic_partition] = None
        directory.deletion.set()
        target = self._free_path(directory, log, suffix)
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

    def _adopt(self, directory: _Directory, log: UnifiedLog) -> None:
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

    async def _forget_when_deleted(self, directory: _Directory) -> None:
        """Take deleted logs out of the checkpoint files, all of a turn at once."""
        while directory.error is None:
            await directory.deletion.wait()
            directory.deletion.clear()
            if not directory.deleted:
                continue
            try:
                await self._disk.run(self._forget_deleted, directory)
            except OSError as error:
                if directory.error is None:
                    self._on_checkpoint_error(directory, error)
                await asyncio.sleep(_FORGET_RETRY_MS / 1000)
                directory.deletion.set()

    def _forget_deleted(self, directory: _Directory) -> None:
        """A new log starts at 0: what the files say of an earlier one of that name would cut it at the next start, or take
        for committed what is not. Blocks: in a disk thread, or on the loop when such a log is made at once."""
        with directory.saving:
            # What is deleted from here on is in no checkpoint that is begun later, but may be in the files.
            names = {name for name in tuple(directory.deleted) if name not in directory.logs}
            for file, saved in (
                (checkpoints.RECOVERY_POINTS_FILE, directory.saved_recovery_points),
                (checkpoints.LOG_START_OFFSETS_FILE, directory.saved_log_starts),
                (checkpoints.HIGH_WATERMARKS_FILE, directory.saved_high_watermarks),
            ):
                if any(saved.get(name) for name in names):
                    left = {name: offset for name, offset in saved.items() if name not in names}
                    self._write_offsets(directory, file, left)
                for name in names:
                    saved.pop(name, None)
            for name in names:
                directory.deleted.pop(name, None)

    def _free_path(self, directory: _Directory, log: UnifiedLog, kind: str) -> str:
        """A name no earlier one of that kind has: the same replica may come and go within the delay."""
        number = 0
        while True:
            suffix = f".{log.topic_id.hex()}{number:02x}{kind}"
            name = f"{str(log.topic_partition)[: _NAME_BYTES_MAX - len(suffix)]}{suffix}"
            if not self._disk.exists(directory.file(name)):
                return directory.file(name)
            number += 1

    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run what reads held files in the disk's threads."""
        return await self._disk.run(function, *args)

    # -- durability ------------------------------------------------------------------------------------------------

    def request_flush(self, log: UnifiedLog) -> None:
        """Make what the log holds durable in the next round of its directory; on_flushed is called after it."""
        directory = self._homes.get(log)
        if directory is not None:
            directory.rounds.request(log)

    def may_write(self, log: UnifiedLog) -> bool:
        """See LogListener.may_write."""
        directory = self._homes.get(log)
        return directory is None or not directory.rounds.is_slow(log)

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
        directory.rising_log_starts.pop(log, None)
        with directory.saving:
            for name, saved, offset in (
                (checkpoints.RECOVERY_POINTS_FILE, directory.saved_recovery_points, log.flushed_end_offset),
                (checkpoints.LOG_START_OFFSETS_FILE, directory.saved_log_starts, log.log_start_offset),
                (checkpoints.HIGH_WATERMARKS_FILE, directory.saved_high_watermarks, log.high_watermark),
            ):
                if saved.get(log.topic_partition, 0) > offset:
                    saved[log.topic_partition] = offset
                    try:
                        self._write_offsets(directory, name, saved)
                    except OSError as error:
                        self._fail_directory(directory, error)

    def on_storage_failed(self, log: UnifiedLog, error: OSError) -> None:
        """See LogListener.on_storage_failed."""
        directory = self._homes.get(log)
        if directory is not None:
            self._fail_directory(directory, error)

    def on_no_room(self, log: UnifiedLog, error: OSError) -> bool:
        """See LogListener.on_no_room."""
        directory = self._homes.get(log)
        if directory is None or not self.stays_when_full():
            return False
        self._lose_room(directory, str(error))
        return True

    # -- room ------------------------------------------------------------------------------------------------------

    async def look_at_room(self) -> None:
        """Look at the free bytes of every online directory, and tell whose logs may grow no more, or again."""
        for directory in self._directories:
            if directory.error is None:
                await self._look_at_room(directory)
        if self.full_directories:
            await self.apply_retention()

    async def _look_at_room(self, directory: _Directory) -> None:
        try:
            free_bytes, total_bytes = await self._disk.run(self._measure, directory.path)
        except OSError as error:
            # Whether the disk works, appends and flushes will tell.
            logger.debug("the free bytes of %s are not known: %s", directory.path, error)
            return
        config = self._config
        directory.free_bytes = free_bytes
        marks = RoomMarks.of(stop=config.free_bytes_min, resume=config.free_bytes_resume, total_bytes=total_bytes)
        had_room = directory.has_room
        if not marks.has_room(free_bytes, had_room=had_room):
            if had_room and self.stays_when_full():
                self._lose_room(directory, f"{free_bytes} bytes are free, log.dir.free.bytes.min is {marks.stop}")
            elif not had_room and not self.stays_when_full():
                self._regain_room(directory)  # to fail at the next write, as it did before anybody led past it
            return
        try:
            is_held = await self._disk.run(
                directory.reserve.take if directory.has_room else directory.reserve.fits_twice
            )
        except OSError as error:
            logger.warning("the reserve of %s could not be made: %s", directory.path, error)
            is_held = False
        if is_held and not directory.has_room:
            logger.info("log directory %s has room again: %d bytes are free", directory.path, free_bytes)
            self._regain_room(directory)

    def _measure(self, path: str) -> tuple[int, int]:
        return self._disk.free_bytes(path), self._disk.total_bytes(path)

    def _lose_room(self, directory: _Directory, reason: str) -> None:
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

    def _regain_room(self, directory: _Directory) -> None:
        directory.has_room = True
        self.on_room_changed(directory.path, True)

    def _tell_no_room(self, directory: _Directory) -> None:
        if not directory.has_room and directory.error is None:
            self.on_room_changed(directory.path, False)

    def _write_offsets(self, directory: _Directory, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """A checkpoint file; on a full disk in the room that is kept for it."""
        path = directory.file(name)
        try:
            checkpoints.write_offsets(self._disk, path, offsets)
        except OSError as error:
            if not is_no_room(error) or not directory.reserve.spend():
                raise
            checkpoints.write_offsets(self._disk, path, offsets)

    def _tell_flushed(self, log: UnifiedLog) -> None:
        if log in self._homes:
            if log.is_retention_owed:
                self._retire(log)
            self.on_flushed(log)

    def _fail_directory(self, directory: _Directory, error: OSError) -> None:
        if directory.error is not None:
            return
        directory.error = error
        self.stats.directories_failed += 1
        logger.error("log directory %s failed and is offline: %s", directory.path, error)
        for log in directory.logs.values():
            log.fail(error)
        directory.rounds.fail(error)
        self.on_directory_failed(directory.path, error)

    # -- damage ----------------------------------------------------------------------------------------------------

    async def _scrub(self, directory: _Directory) -> None:
        if directory.error is None:
            try:
                await directory.scrub.run()
            except OSError as error:  # what is known of damage could not be written
                self._fail_directory(directory, error)

    def _tell_damage(self, log: UnifiedLog) -> None:
        if log in self._homes:
            self.on_damage(log)

    def request_check(self, log: UnifiedLog, base_offset: int | None = None) -> None:
        """Have a segment of the log, or all of it, checked soon; on_damage is called if that brings news."""
        directory = self._homes.get(log)
        if directory is not None:
            directory.scrub.request(log, base_offset)

    def is_check_requested(self, log: UnifiedLog) -> bool:
        """Whether a requested check of the log is not done yet."""
        directory = self._homes.get(log)
        return directory is not None and directory.error is None and directory.scrub.is_requested(log)

    async def check(self, log: UnifiedLog, base_offset: int) -> bool:
        """Check a segment now; False when nothing can be said of it, for it has gone or was cut meanwhile."""
        directory = self._homes.get(log)
        if directory is None or directory.error is not None:
            return False
        try:
            return await directory.scrub.check(log, base_offset)
        except OSError as error:
            self._fail_directory(directory, error)
            return False

    async def replace_damaged(self, log: UnifiedLog, damage: DamagedRange, batches: bytes) -> bool:
        """Put proved batches in the place of a damaged range, make them durable and check the segment anew; whether that range is
        sound then. Raises StorageFailed."""
        directory = self._homes.get(log)
        if directory is None or directory.error is not None:
            return False
        file = log.replace_damaged(damage, batches)
        try:
            await self._disk.flush([file])
        except OSError as error:
            self._fail_directory(directory, error)
            return False
        is_sound = await self.check(log, damage.segment) and damage not in log.damage
        directory.scrub.stats.ranges_repaired += is_sound
        return is_sound

    def scrub_stats(self) -> dict[str, ScrubStats]:
        """Counters of the scrub by directory path."""
        return {directory.path: directory.scrub.stats for directory in self._directories}

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
            self.stats.segments_retired += log.apply_retention(self._clock_ms())
        except (StorageFailed, OutOfDescriptors):
            return  # the log has told its listener, or is looked at again next time
        removals = log.take_removals()
        if removals:
            self._remove_later(removals)

    async def write_checkpoints(self) -> None:
        """Write leader epochs, recovery points and log start offsets of every online directory."""
        for directory in self._directories:
            if directory.error is None:
                ends = self._ends(directory)
                try:
                    await self._disk.run(self._write_directory_checkpoints, directory, ends)
                except OSError as error:
                    self._on_checkpoint_error(directory, error)

    def _on_checkpoint_error(self, directory: _Directory, error: OSError) -> None:
        if is_out_of_descriptors(error):  # a later recovery point costs a crash time, not data
            logger.warning("the checkpoints of %s are written at the next interval: %s", directory.path, error)
        elif is_no_room(error) and self.stays_when_full():
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
            rising = directory.rising_log_starts
            for log, offset in here.items():
                rising[log] = max(offset, rising.get(log, offset))
            try:
                await self._disk.run(self._save_log_starts, directory, tuple(here))
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

    def _save_log_starts(self, directory: _Directory, logs: Sequence[UnifiedLog]) -> None:
        """In a disk thread."""
        with directory.saving:
            starts = dict(directory.saved_log_starts)
            for log in logs:
                start = directory.rising_log_starts.get(log)
                if start is not None and log in self._homes:
                    starts[log.topic_partition] = max(start, starts.get(log.topic_partition, start))
            if starts != directory.saved_log_starts:
                self._write_offsets(directory, checkpoints.LOG_START_OFFSETS_FILE, starts)
                directory.saved_log_starts = starts

    def _ends(self, directory: _Directory) -> list[tuple[UnifiedLog, Offset]]:
        """What a checkpoint is to say, taken on the loop: (log, flushed end)."""
        return [(log, log.flushed_end_offset) for log in directory.logs.values()]

    def _write_directory_checkpoints(self, directory: _Directory, ends: Sequence[tuple[UnifiedLog, Offset]]) -> None:
        """In a disk thread, while the loop goes on: logs may be truncated or deleted meanwhile."""
        for log, _ in ends:
            try:
                log.leader_epochs.save()
            except FileNotFoundError:
                continue  # deleted meanwhile: its directory has another name
        with directory.saving:
            # min: a truncation since the ends were taken; one from here on waits for the lock and writes after us. So below.
            here = [(log, end) for log, end in ends if log in self._homes]
            points = {}
            for log, end in here:
                # Behind again: the log may have been cut and refilled since its file, which is believed below the point.
                if log.leader_epochs.is_dirty:
                    end = min(end, directory.saved_recovery_points.get(log.topic_partition, Offset(0)))
                points[log.topic_partition] = min(end, log.flushed_end_offset)
            # As they are now: one that has risen since the ends were taken may be saved and told already.
            rising = directory.rising_log_starts
            starts = {
                log.topic_partition: start
                for log, _ in here
                if (start := max(rising.get(log, Offset(0)), log.log_start_offset)) > 0
            }
            for name, offsets in (
                (checkpoints.RECOVERY_POINTS_FILE, points),
                (checkpoints.LOG_START_OFFSETS_FILE, starts),
            ):
                self._write_offsets(directory, name, offsets)
            directory.saved_recovery_points, directory.saved_log_starts = points, starts

    async def write_high_watermarks(self) -> None:
        """Write the high watermarks of every online directory in which one has moved (replication-offset-checkpoint)."""
        for directory in self._directories:
            if directory.error is None:
                offsets = [(log, log.high_watermark) for log in directory.logs.values()]
                try:
                    await self._disk.run(self._write_high_watermarks, directory, offsets)
                except OSError as error:
                    if is_no_room(error) and not directory.has_room:
                        continue
                    # A stale file costs a new leader time, not data: whether the disk works, appends and flushes will tell.
                    logger.error("high watermarks of %s could not be written: %s", directory.path, error)

    def _write_high_watermarks(self, directory: _Directory, offsets: Sequence[tuple[UnifiedLog, Offset]]) -> None:
        """In a disk thread. Of a log that is deleted meanwhile nothing may be said: another may have its name already."""
        with directory.saving:
            here = {
                log.topic_partition: min(offset, log.high_watermark) for log, offset in offsets if log in self._homes
            }
            if here != directory.saved_high_watermarks:
                checkpoints.write_offsets(self._disk, directory.file(checkpoints.HIGH_WATERMARKS_FILE), here)
                directory.saved_high_watermarks = here

    async def _expire_producers(self) -> None:
        for log in list(self._logs.values()):
            expiration_ms = self._config.producer_id_expiration_ms
            self.stats.producers_expired += log.expire_producers(now_ms=self._clock_ms(), expiration_ms=expiration_ms)

    async def _remove_when_due(self) -> None:
        """Remove retired files and deleted directories once their delay is over."""
        while True:
            now_s = asyncio.get_running_loop().time()
            due = [path for due_s, path in self._removals if due_s <= now_s]
            self._removals = [removal for removal in self._removals if removal[0] > now_s]
            for path in due:
                try:
                    await self._disk.run(
                        self._disk.remove_tree if path.endswith(_DELETE_SUFFIX) else self._disk.remove, path
                    )
                except OSError as error:
                    if is_out_of_descriptors(error):
                        self._remove_later([(_REMOVAL_RETRY_MS, path)])
                    else:
                        logger.warning("%s could not be removed: %s; the next start will try again", path, error)
            self._removals_added.clear()
            next_s = min((due_s for due_s, _ in self._removals), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await self._removals_added.wait()

    def _remove_later(self, removals: Sequence[tuple[int, str]]) -> None:
        """Have files and deleted directories removed: (after how many ms, path)."""
        now_s = asyncio.get_running_loop().time()
        self._removals += [(now_s + delay_ms / 1000, path) for delay_ms, path in removals]
        self._removals_added.set()

    async def _every(
        self, interval_ms: int, function: Callable[[], Awaitable[None]], *, first_ms: int | None = None
    ) -> None:
        await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
        while True:
            await function()
            await asyncio.sleep(interval_ms / 1000)


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition of a log's directory; None for any other name."""
    topic, dash, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition)) if dash and topic and partition.isdecimal() else None
