"""All logs of a broker: opened, found, made, deleted, and what is done to them at intervals.

May touch:  asyncio, the Disk and clock it is given.   Must not touch: peers, metadata, os.
Invariants: the clean-shutdown file is the last thing written and the first thing removed.
Read next:  its parts: log_homes.py, directory_health.py, checkpointing.py, log_repairs.py; then log_directory.py, unified_log.py.

Layout of a log directory: <topic>-<partition>/ per log, <topic>-<partition>.<id>-delete/ on its way out, ...-stray/ of a
replica that the cluster does not know, or of a log whose topic is unknown, ...-refilled/ of a log that is about to take
another's place (refills.py), the checkpoint files of checkpoints.py, and what is ours alone in the directory of directory_state.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_log.cleaner.driver import LogCleaner
from barnabas_log.cleaner.process import Transform, WorkerProcess
from barnabas_log.config import LogConfig, LogManagerConfig
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories import checkpoints
from barnabas_log.directories.checkpointing import Checkpointing
from barnabas_log.directories.directory_health import DirectoryHealth
from barnabas_log.directories.directory_state import NO_BROKER_EPOCH, LostReplica
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.directories.log_directory import LogDirectory, open_all
from barnabas_log.directories.log_homes import STRAY_SUFFIX, LogHomes, choose_directory
from barnabas_log.directories.manager_listener import LogManagerListener
from barnabas_log.directories.manager_stats import LogManagerStats
from barnabas_log.directories.refills import Refills
from barnabas_log.directories.removals import DELETE_SUFFIX, Removals
from barnabas_log.directories.rising_starts import RisingLogStarts
from barnabas_log.directories.topic_witness import Fate, fate_of
from barnabas_log.disk import Disk
from barnabas_log.errors import InconsistentTopicId, OutOfDescriptors, StorageFailed
from barnabas_log.read.batch_times import BatchTimes, SearchStopped
from barnabas_log.read.time_search import TimeJudging, run_to_end
from barnabas_log.recovery.inspection_process import InspectionProcess
from barnabas_log.recovery.log_repairs import LogRepairs
from barnabas_log.recovery.opening import open_partition_log
from barnabas_log.tail import retiring
from barnabas_log.tail.flush import RETRY_S as FLUSH_RETRY_S
from barnabas_log.tail.flush import FlushStats
from barnabas_log.tail.log_tail import STEP_DESCRIPTORS
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import ZERO_UUID, Offset, TopicPartition, Uuid

logger = logging.getLogger(__name__)

_RETENTION_SLICE: Final = 50
"""Logs looked at between two turns of the loop."""


class NewLog(NamedTuple):
    """A log that is to be made."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig
    directory_id: Uuid
    """See get_or_create."""


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
        may_judge_age: Callable[[], bool] = lambda: True,
    ) -> None:
        """
        Args:
            may_judge_age: whether the clock may be believed now, so that what is old by it may go.
            transform: what rewrites compacted segments; a separate process by default.
            default_config: of a log that was loaded, but for retention, until get_or_create brings its topic's settings.
            directory_ids: by path; a directory that cannot be read has none.
            offline: directories that have failed already, and are not to be touched.
        """
        ids = directory_ids or {}
        self.stats = LogManagerStats()
        self._times_process = InspectionProcess()
        """The process for searches by time alone, so that they hold up no producer's batch."""
        self.previous_broker_epoch = -1
        """After load: the broker epoch at the last stop if that was clean in every directory that works, else -1 (KIP-966)."""
        self.is_clean_start = False
        """After load: whether the last stop was clean in every directory that works."""
        self._disk = disk
        # A broker that waits for its controllers would shorten by the defaults what the topic may keep for ever.
        self._loaded_config = replace(default_config, retention_ms=-1, retention_bytes=-1)
        self._clock_ms = clock_ms
        self._may_judge_age = may_judge_age
        self._config = config or LogManagerConfig()
        self.health = DirectoryHealth(config=self._config, stats=self.stats)
        """Which directories work, and which are full."""
        self.homes = self._homes = LogHomes(disk=disk, health=self.health)
        """Which log is where."""
        self.repairs = LogRepairs(disk=disk, homes=self._homes, health=self.health, clock_ms=clock_ms)
        """Checks and repairs of logs that serve."""
        self.checkpoints = Checkpointing(disk=disk, homes=self._homes, health=self.health)
        """Writes offsets beside the logs."""
        self.rising_starts = RisingLogStarts(self._begin_later)
        """Moves log starts up."""
        self._removals = Removals(disk)
        self.refills = Refills(
            disk=disk,
            homes=self._homes,
            clock_ms=clock_ms,
            listener=self,
            fail=self.health.fail,
            remove_later=lambda delay_ms, path: self._removals.add([(delay_ms, path)]),
        )
        """Second logs, which take the places of first ones."""
        self._directories = [
            LogDirectory(
                disk=disk,
                path=path,
                directory_id=ids.get(path, ZERO_UUID),
                config=self._config,
                on_flushed=self._on_flushed,
                on_damage=self._on_damage,
                on_failed=self.health.fail,
            )
            for path in directories
        ]
        self.health.directories = self._directories
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
                self.health.fail(directory, offline[directory.path])

    def serve(self, listener: LogManagerListener) -> None:
        """Report to `listener` from now on: a broker's logs have one user."""
        self.health.listener = listener

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
                await self.health.check_free_space(directory)
                try:
                    epoch = await self._load_directory(directory)
                except OSError as error:
                    if not is_disk_full(error) or not await self._disk.run(directory.reserve.spend):
                        raise
                    epoch = await self._load_directory(directory)
                epochs.append(epoch)
            except OSError as error:
                if is_out_of_descriptors(error):
                    raise OutOfDescriptors(f"{directory.path}: {error}") from error
                self.health.fail(directory, error)
        if not self.health.online:
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
                tasks.create_task(self.repairs.scrub(directory))
                tasks.create_task(self.checkpoints.forget_when_deleted(directory))
            tasks.create_task(
                self._every(
                    config.retention_check_interval_ms, self.apply_retention, first_ms=config.retention_initial_delay_ms
                )
            )
            tasks.create_task(self._every(config.recovery_point_checkpoint_interval_ms, self.checkpoints.write_offsets))
            tasks.create_task(self._every(config.producer_id_expiration_check_interval_ms, self._expire_producers))
            tasks.create_task(self._removals.run())
            tasks.create_task(self.rising_starts.run())
            if config.is_cleaner_enabled:
                tasks.create_task(self.cleaner.run())
            tasks.create_task(self._every(config.free_check_interval_ms, self.check_free_space, first_ms=0))

    async def close(self, *, broker_epoch: int = -1) -> None:
        """Stop cleanly, after `run` has ended: flush all, write every checkpoint, then the clean-shutdown file."""
        self._times_process.close()
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
                if not directory.has_space:
                    await self._disk.run(directory.reserve.spend)
                await self._disk.run(directory.saved.save, directory.saved.ends())
                await directory.scrub.save()
                clean_file = directory.file(checkpoints.CLEAN_SHUTDOWN_FILE)
                write = partial(checkpoints.write_clean_shutdown, self._disk, clean_file, broker_epoch=broker_epoch)
                await self._disk.run(write)
            except (OSError, StorageFailed, OutOfDescriptors) as error:
                logger.error("%s did not stop cleanly: %s", directory.path, error)
        self._homes.clear()

    async def _load_directory(self, directory: LogDirectory) -> int | None:
        opened, broker_epoch = await directory.open_logs(
            config=self._loaded_config, clock_ms=self._clock_ms, listener=self
        )
        self.stats.checkpoints_doubted += len(directory.saved.doubts)
        lost = self._missing_in(directory, {log.topic_partition: log for log in opened})
        for name, what in lost.items():
            logger.error("%s has lost records: %s", name, what.why)
        directory.state.add_lost(lost)  # before any file says less
        self.stats.replicas_lost += len(lost)
        for log in opened:
            log.tail.has_settings = False
            log.clean_offset = directory.saved.clean_offsets.get(log.topic_partition, Offset(0))
            self._homes.adopt(directory, log)
            self.on_recovery_point_lowered(log)  # if less was found than the files say
            if broker_epoch is None:
                self.stats.logs_recovered += 1
                self.stats.recovery_scanned_bytes += log.recovery_report.scanned_bytes
                self.stats.recovery_truncated_bytes += log.recovery_report.truncated_bytes
                self.stats.logs_that_lost_flushed_data += log.recovery_report.is_flushed_data_lost
        directory.state.note_second_witness()
        directory.saved.note_missing()
        directory.scrub.load()
        directory.scrub.request_unread()
        await self._replace_lost_checkpoints(directory)
        return broker_epoch

    def _missing_in(
        self, directory: LogDirectory, opened: Mapping[TopicPartition, UnifiedLog]
    ) -> dict[TopicPartition, LostReplica]:
        """The replicas in the directory that lack what they had flushed, by checkpoints that are proved."""
        lost = {}
        for name, (topic_id, point) in directory.saved.proved_points.items():
            log = opened.get(name)
            start = directory.saved.log_starts.get(name, Offset(0))
            if name in directory.state.lost or point <= start:
                continue
            if log is None:
                path = directory.file(str(name))
                if not any(self._disk.exists(other.file(str(name))) for other in self._directories if not other.error):
                    lost[name] = LostReplica(topic_id, point, f"{path} is gone, it held offsets up to {point - 1}")
            elif log.topic_id in (topic_id, ZERO_UUID) and 0 <= (end := log.recovery_report.missing_from) < point:
                why = f"{log.directory} ends at offset {end}, and was flushed up to {point}"
                lost[name] = LostReplica(topic_id, point, why)
        return lost

    async def _replace_lost_checkpoints(self, directory: LogDirectory) -> None:
        """Write the files whose absence says something: from the first start on they are there, unless somebody lost them."""
        saved = directory.saved
        unnamed = [log for name, log in directory.logs.items() if log.tail.has_gaps and name not in saved.clean_offsets]
        try:
            if unnamed or not saved.has_clean_offsets:
                await self._disk.run(saved.save_clean_offsets, dict.fromkeys(unnamed, Offset(0)))
            if not saved.has_recovery_points:
                await directory.scrub.save()  # known damage first: what is below the points is not proved again
                await self._disk.run(saved.save, saved.ends())
        except OSError as error:
            self.health.on_checkpoint_error(directory, error)

    # -- logs ------------------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The log of a partition, if there is one here."""
        return self._homes.logs.get(topic_partition)

    @property
    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """All of them."""
        return self._homes.logs

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, *, directory_id: Uuid = ZERO_UUID
    ) -> UnifiedLog:
        """The log of a partition, with these settings; if it is not there it is made, in the directory with that id if there
        is one, else in the online directory with the fewest logs. Whether it may be made is for the caller to know.

        Raises InconsistentTopicId when the log is of another topic of that name, StorageFailed when no directory works, DiskFull
        or OutOfDescriptors when it may be tried again later.
        """
        log = self._homes.logs.get(topic_partition)
        if log is not None:
            if fate_of(log.identity, log.topic_id, topic_id=topic_id) is not Fate.SERVE:
                raise InconsistentTopicId(f"{log.directory} is of topic id {log.topic_id}, not {topic_id}")
            try:
                log.take_topic_id(topic_id)
            except OSError as error:
                raise self.health.refuse(self._homes.directories[log], error) from error
            log.update_config(config)
            return log
        wanted = NewLog(topic_partition, topic_id, config, directory_id)
        directory = self._directory_for(wanted, {})
        try:
            log = self._make(wanted, directory)
        except OSError as error:
            raise self.health.refuse(directory, error) from error
        self._homes.adopt(directory, log)
        return log

    async def create(self, wanted: Sequence[NewLog]) -> list[UnifiedLog | Exception]:
        """Make logs that are not here as get_or_create does, all in one go of a disk thread: each log, or what it raises."""
        promised: dict[LogDirectory, int] = {}
        making: list[tuple[LogDirectory, Callable[[], UnifiedLog]]] = []
        for each in wanted:
            try:
                directory = self._directory_for(each, promised)
            except StorageFailed as error:
                return [error] * len(wanted)
            promised[directory] = promised.get(directory, 0) + 1
            making.append((directory, partial(self._make, each, directory)))
        with contextlib.suppress(OSError):  # a thread closes no files of others; what it lacks it says itself
            self._disk.ensure_descriptors(STEP_DESCRIPTORS, making[0][0].path)
        made: list[UnifiedLog | Exception] = await self._disk.run(open_all, [make for _, make in making])
        for place, (directory, _) in enumerate(making):
            result = made[place]
            if isinstance(result, OSError):
                made[place] = self.health.refuse(directory, result)
        # now that every directory that failed is known for it
        return [self._adopted(directory, result) for (directory, _), result in zip(making, made, strict=True)]

    def _directory_for(self, wanted: NewLog, promised: Mapping[LogDirectory, int]) -> LogDirectory:
        online = self.health.online
        if not online:
            raise StorageFailed("no log directory is left online")
        return choose_directory(online, wanted.directory_id, promised)

    def _make(self, wanted: NewLog, directory: LogDirectory) -> UnifiedLog:
        """Blocks; in any thread."""
        path = directory.file(str(wanted.topic_partition))
        is_new = not self._disk.exists(path)
        if not is_new and not self._disk.is_directory(path):
            raise StorageFailed(f"{path} is a file where the partition's log is to be: move it away")
        try:
            if wanted.topic_partition in directory.saved.deleted:
                directory.saved.forget_deleted()
            return open_partition_log(
                disk=self._disk,
                directory=path,
                topic_partition=wanted.topic_partition,
                topic_id=wanted.topic_id,
                config=wanted.config,
                now_ms=self._clock_ms(),
                listener=self,
            )
        except OSError as error:
            if is_new and is_disk_full(error):
                with contextlib.suppress(OSError):
                    self._disk.remove_tree(path)
            raise

    def _adopted(self, directory: LogDirectory, made: UnifiedLog | Exception) -> UnifiedLog | Exception:
        """What a thread has made, in service; or why it is not."""
        if isinstance(made, Exception):
            return made
        if directory.error is not None:  # it failed meanwhile
            made.release_files()
            return StorageFailed(f"{directory.path}: {directory.error}")
        self._homes.adopt(directory, made)
        return made

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the log out of service: its directory is renamed now and removed after file.delete.delay.ms.

        Nothing happens if it is not here. Readers that hold its files may finish.
        """
        log = self._homes.logs.pop(topic_partition, None)
        target = None if log is None else self._homes.take_out(log, DELETE_SUFFIX)
        if target is not None:
            path, delay_ms = target
            self._removals.add([(delay_ms, path)])

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a log out of service of which the metadata knows no replica here, and keep its directory under another name,
        as Kafka does: its deletion was not asked for, and a quorum that was recovered may have forgotten a topic.

        Returns where it is now, None if it is not here or its directory has failed.
        """
        log = self._homes.logs.pop(topic_partition, None)
        target = None if log is None else self._homes.take_out(log, STRAY_SUFFIX)
        return None if target is None else target[0]

    # -- replicas that have lost what they had ---------------------------------------------------------------------

    def lost_replica(self, topic_partition: TopicPartition, topic_id: Uuid) -> LostReplica | None:
        """What the replica here has lost of that topic, until it was refilled or somebody accepted it; None when nothing."""
        for directory in self.health.online:
            found = directory.state.lost.get(topic_partition)
            if found is not None and found.topic_id == topic_id:
                return found
        return None

    def give_up(self, topic_partition: TopicPartition, lost: LostReplica) -> str | None:
        """Set a log aside whose topic is not known for sure, once it is durable that the replica of that topic has lost it.

        Returns where it is now, None if it is not here or its directory has failed. Raises OutOfDescriptors, DiskFull: nothing is done.
        """
        log = self._homes.logs.get(topic_partition)
        if log is None:
            return None
        directory = self._homes.directories[log]
        try:
            directory.state.add_lost({topic_partition: lost})
        except OSError as error:
            refusal = self.health.refuse(directory, error)
            if isinstance(refusal, StorageFailed):
                return None
            raise refusal from error
        self.stats.replicas_lost += 1
        return self.set_aside(topic_partition)

    def forget_lost(self, topic_partition: TopicPartition) -> None:
        """The replica is refilled, its loss accepted, or it is gone."""
        for directory in self.health.online:
            try:
                directory.state.forget_lost((topic_partition,))
            except OSError as error:  # the next start takes it for lost once more
                logger.warning("%s: %s could not be written: %s", topic_partition, directory.path, error)
                self.health.refuse(directory, error)

    @property
    def lost(self) -> dict[TopicPartition, LostReplica]:
        """All that is written down of lost replicas."""
        return {name: lost for directory in self.health.online for name, lost in directory.state.lost.items()}

    # -- registrations ---------------------------------------------------------------------------------------------

    def epoch_of(self, directory_id: Uuid) -> int:
        """The broker epoch that the directory says it was last registered in, -1 where it does not say. Any thread."""
        epochs = [directory.state.broker_epoch for directory in self._directories if directory.id == directory_id]
        return epochs[0] if epochs else NO_BROKER_EPOCH

    async def note_registration(self, broker_epoch: int) -> None:
        """Write into every directory that works that it is part of this registration; one that cannot take it fails."""
        for directory in self._directories:
            if directory.error is None and directory.state.broker_epoch != broker_epoch:
                await self._note_registration(directory, broker_epoch)

    async def _note_registration(self, directory: LogDirectory, broker_epoch: int) -> None:
        while True:
            try:
                await self._disk.run(directory.state.note_registration, broker_epoch)
                return
            except OSError as error:
                if is_disk_full(error) and await self._disk.run(directory.reserve.spend):
                    continue
                if not is_out_of_descriptors(error):
                    self.health.fail(directory, error)
                    return
            await asyncio.sleep(FLUSH_RETRY_S)

    def directory_id(self, log: UnifiedLog) -> Uuid:
        """Id of the directory that a log is in (KIP-858)."""
        return self._homes.directories[log].id

    def flush_stats(self) -> dict[str, FlushStats]:
        """Flush counters by directory path."""
        return {directory.path: directory.rounds.stats for directory in self._directories}

    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run what reads held files in the disk's threads."""
        return await self._disk.run(function, *args)

    def new_times(self) -> BatchTimes:
        """What opens the batches of one search by time."""
        return BatchTimes(self._times_process)

    # -- durability ------------------------------------------------------------------------------------------------

    def request_flush(self, log: UnifiedLog) -> None:
        """Make what the log holds durable in the next round of its directory; the listener hears of it."""
        directory = self._homes.directories.get(log)
        if directory is not None:
            directory.rounds.request(log)

    def on_log_start_moved(self, log: UnifiedLog) -> None:
        """See LogListener.on_log_start_moved."""
        self.health.listener.on_log_start_moved(log)

    def on_segment_rolled(self, log: UnifiedLog) -> None:
        """See LogListener.on_segment_rolled."""
        self.request_flush(log)

    def begin_flush(self, log: UnifiedLog) -> bool:
        """See LogListener.begin_flush."""
        directory = self._homes.directories.get(log)
        if directory is None or not directory.rounds.is_running:
            return False
        directory.rounds.request(log)
        return True

    def on_recovery_point_lowered(self, log: UnifiedLog) -> None:
        """See LogListener.on_recovery_point_lowered. A log that starts over may have a lower start and high watermark, too."""
        directory = self._homes.directories.get(log)
        if directory is None:
            return
        try:
            directory.saved.lower(log)
        except OSError as error:
            self.health.fail(directory, error)

    def on_gap(self, log: UnifiedLog) -> None:
        """See LogListener.on_gap. Blocks: once for each log."""
        directory = self._homes.directories.get(log)
        if directory is None:
            return
        try:
            log.forgotten.keep()
            directory.saved.save_clean_offset(log, log.clean_offset)
        except OSError as error:
            raise self.health.refuse(directory, error) from error

    def on_index_doubted(self, log: UnifiedLog, base_offset: int) -> None:
        """See LogListener.on_index_doubted."""
        self.repairs.request_check(log, base_offset)

    def on_storage_failed(self, log: UnifiedLog, error: OSError) -> None:
        """See LogListener.on_storage_failed."""
        directory = self._homes.directories.get(log)
        if directory is not None:
            self.health.fail(directory, error)

    def on_disk_full(self, log: UnifiedLog, error: OSError) -> bool:
        """See LogListener.on_disk_full."""
        directory = self._homes.directories.get(log)
        if directory is None or not self.health.listener.stays_when_full():
            return False
        self.health.lose_space(directory, str(error))
        return True

    # -- room ------------------------------------------------------------------------------------------------------

    async def check_free_space(self) -> None:
        """Look at the free bytes of every online directory, and report whose logs may grow no more, or again; and whose disk
        does not answer."""
        for directory in self._directories:
            if directory.error is None:
                await self.health.check_free_space(directory)
                self.health.report_stuck_flush(directory)
        if self.health.full_directories:
            await self.apply_retention()

    def _on_flushed(self, log: UnifiedLog) -> None:
        if log in self._homes.directories:
            if log.is_retention_owed:
                self._retire(log)
                if log.due_start > log.log_start_offset:
                    self.rising_starts.note(log, log.due_start)
            self.health.listener.on_flushed(log)

    # -- damage ----------------------------------------------------------------------------------------------------

    def _on_damage(self, log: UnifiedLog) -> None:
        if log in self._homes.directories:
            self.health.listener.on_damage(log)

    # -- compaction ------------------------------------------------------------------------------------------------

    def may_compact(self) -> bool:
        """See CleanerHost.may_compact."""
        # With a wrong clock tombstones would go before every replica and reader has seen them.
        return self.health.listener.may_compact() and self._may_judge_age()

    def is_here(self, log: UnifiedLog) -> bool:
        """See CleanerHost.is_here."""
        return log in self._homes.directories and self._homes.logs.get(log.topic_partition) is log

    def remove_later(self, log: UnifiedLog) -> None:
        """See CleanerHost.remove_later."""
        removals = log.take_removals()
        if removals:
            self._removals.add(removals)

    def request_check(self, log: UnifiedLog, base_offset: int | None = None) -> None:
        """See CleanerHost.request_check."""
        self.repairs.request_check(log, base_offset)

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """See CleanerHost.fail_directory."""
        self.health.fail(directory, error)

    # -- periodic work ---------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        """Look at every log once, a few per turn of the loop."""
        due: dict[UnifiedLog, Offset] = {}
        for number, log in enumerate(list(self._homes.logs.values())):
            if number % _RETENTION_SLICE == _RETENTION_SLICE - 1:
                await asyncio.sleep(0)
            if log in self._homes.directories and not log.is_failed:
                self._retire(log)
                if log.untimed and await self._judge_times(log):
                    self._retire(log)
                if log.due_start > log.log_start_offset:
                    due[log] = log.due_start
        await self._begin_later(due)

    async def _begin_later(self, starts: Mapping[UnifiedLog, Offset]) -> None:
        """Move the starts of logs up, durably, and retire what lies before them."""
        failed = await self.checkpoints.raise_log_starts(starts)
        for log in starts:
            directory = self._homes.directories.get(log)
            if directory is not None and not log.is_failed:
                # A full disk may have no space to save a start, and is to get some.
                self._retire(log, may_block=log in failed and not directory.has_space)

    async def _judge_times(self, log: UnifiedLog) -> bool:
        """Read the true times of the segments that seem old; whether the log may be looked at again."""
        try:
            judging = TimeJudging(log, log.untimed, self.new_times())
        except OSError as error:
            log.tail.failed_by(error)
            return False
        try:
            await run_to_end(judging, self._disk.run(judging.run))
        except SearchStopped:
            return False
        except FileNotFoundError:  # it went by its size meanwhile
            return False
        except OSError as error:
            if not is_out_of_descriptors(error) and not log.is_failed:
                self.health.fail(self._homes.directories[log], error)
            return False
        for base_offset in judging.unread:
            self.repairs.request_check(log, base_offset)
        return log in self._homes.directories and not log.is_failed

    def _retire(self, log: UnifiedLog, *, may_block: bool = False) -> None:
        try:
            judges_age = self._may_judge_age()
            self.stats.segments_retired += retiring.apply_retention(
                log, self._clock_ms(), may_block=may_block, judges_age=judges_age
            )
        except (StorageFailed, OutOfDescriptors):
            return  # the log has informed its listener, or is looked at again next time
        self.remove_later(log)

    async def _expire_producers(self) -> None:
        if not self._may_judge_age():
            return
        for log in list(self._homes.logs.values()):
            expiration_ms = self._config.producer_id_expiration_ms
            self.stats.producers_expired += log.expire_producers(now_ms=self._clock_ms(), expiration_ms=expiration_ms)

    async def _every(
        self, interval_ms: int, function: Callable[[], Awaitable[None]], *, first_ms: int | None = None
    ) -> None:
        await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
        while True:
            await function()
            await asyncio.sleep(interval_ms / 1000)
