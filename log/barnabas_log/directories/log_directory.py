"""One log directory: its logs, what its checkpoints say, its flush rounds and scrub, and whether it works and has room.

May touch:  asyncio, the Disk it is given.   Must not touch: other directories.
Invariants: an error stays until the process ends; a log in `logs` lies below `path`.
Read next:  manager.py, which owns them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from barnabas_log.config import LogConfig, LogManagerConfig
from barnabas_log.directories import checkpoints
from barnabas_log.directories.directory_state import OWN_DIRECTORY, DirectoryState
from barnabas_log.directories.disk_space import FreeSpaceMarks, Reserve
from barnabas_log.directories.refill_names import finish_refills
from barnabas_log.directories.removals import DELETE_SUFFIX
from barnabas_log.directories.saved_offsets import SavedOffsets
from barnabas_log.disk import Disk
from barnabas_log.recovery.opening import open_partition_log
from barnabas_log.recovery.scrubber import Scrubber
from barnabas_log.tail.flush import FlushRounds
from barnabas_log.tail.log_listener import LogListener
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import METADATA_TOPIC, ZERO_UUID, Offset, TopicPartition, Uuid

logger = logging.getLogger(__name__)

RESERVE_FILE: Final = "reserve"
"""The name of the reserve's file in each log directory."""
_NAME_BYTES_MAX: Final = 255
_OPENED_AT_ONCE: Final = 32
"""Logs that a thread opens in one go: handing over each by itself costs a fifth more CPU (measured)."""


class SpaceChange(NamedTuple):
    """The logs of a directory may grow no more, or again."""

    has_space: bool
    reason: str


class LogDirectory:
    """One of log.dirs."""

    def __init__(
        self,
        *,
        disk: Disk,
        path: str,
        directory_id: Uuid,
        config: LogManagerConfig,
        on_flushed: Callable[[UnifiedLog], None],
        on_damage: Callable[[UnifiedLog], None],
        on_failed: Callable[[LogDirectory, OSError], None],
    ) -> None:
        """on_flushed: see FlushRounds; on_damage: see Scrubber; on_failed: the disk failed under either."""
        self.path = path
        self.id = directory_id
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.error: OSError | None = None
        self.has_space = True
        self.reserve = Reserve(disk, self.file(RESERVE_FILE), config.reserve_bytes)
        self.state = DirectoryState(disk, path)
        self.saved = SavedOffsets(disk, path, logs=self.logs, reserve=self.reserve)
        self.rounds = FlushRounds(disk=disk, on_flushed=on_flushed, on_failed=lambda error: on_failed(self, error))
        self.scrub = Scrubber(
            disk=disk,
            path=path,
            logs=self.logs,
            bytes_per_second=config.scrub_bytes_per_second_max,
            on_damage=on_damage,
            on_failed=lambda error: on_failed(self, error),
        )
        self._disk = disk

    def file(self, name: str) -> str:
        """Path of a file in it."""
        return f"{self.path}/{name}"

    async def open_logs(
        self, *, config: LogConfig, clock_ms: Callable[[], int], listener: LogListener[UnifiedLog]
    ) -> tuple[list[UnifiedLog], int | None]:
        """Open every log below the path, in the disk's threads, and finish deletions that a stop cut short.

        Returns the logs, which the caller adds to `logs`, and the broker epoch at the last stop: -1 if that was clean and knew none,
        None if it was not clean. Raises OSError, and what open_partition_log raises.
        """
        clean_file = self.file(checkpoints.CLEAN_SHUTDOWN_FILE)
        broker_epoch = checkpoints.read_clean_shutdown(self._disk, clean_file)
        if broker_epoch is not None:
            self._disk.remove(clean_file)
        # the names of logs too: a process that was killed may have made them and not flushed them
        self._disk.sync_directory(self.path)
        finish_refills(self._disk, self.path)
        self.state.load()
        saved = self.saved
        saved.load(was_served=self.state.has_second_witness)
        opening: list[Callable[[], UnifiedLog]] = []
        for name in self._disk.list_directory(self.path):
            path = self.file(name)
            if name == OWN_DIRECTORY:
                continue
            is_log = name.endswith(DELETE_SUFFIX) or parse_directory_name(name) is not None
            if is_log and not self._disk.is_directory(path):
                logger.warning("%s is no directory, and is passed over: move it away", path)
                continue
            if name.endswith(DELETE_SUFFIX):
                await self._disk.run(self._disk.remove_tree, path)
                continue
            topic_partition = parse_directory_name(name)
            if topic_partition is None or topic_partition.topic == METADATA_TOPIC:
                continue
            open_log = partial(
                open_partition_log,
                disk=self._disk,
                directory=path,
                topic_partition=topic_partition,
                topic_id=ZERO_UUID,
                config=config,
                now_ms=clock_ms(),
                recovery_point=saved.recovery_point(topic_partition),
                log_start_offset=saved.log_starts.get(topic_partition, Offset(0)),
                high_watermark=saved.high_watermarks.get(topic_partition, Offset(0)),
                is_clean_shutdown=broker_epoch is not None,
                may_have_gaps=saved.has_gaps(topic_partition),
                has_second_witness=self.state.has_second_witness,
                is_log_start_proved=saved.is_log_start_proved,
                is_recovery_point_proved=topic_partition in saved.proved_points,
                listener=listener,
            )
            opening.append(open_log)
        slices = [opening[first : first + _OPENED_AT_ONCE] for first in range(0, len(opening), _OPENED_AT_ONCE)]
        results = list(chain(*await asyncio.gather(*(self._disk.run(open_all, some) for some in slices))))
        opened = [result for result in results if isinstance(result, UnifiedLog)]
        for log in opened:
            of = log.topic_partition
            log.was_flushed = broker_epoch is not None or bool(saved.recovery_points.get(of))
        saved.note_doubted_starts(opened)
        for result in results:
            if isinstance(result, BaseException):
                for log in opened:
                    log.release_files()
                raise result
        return opened, broker_epoch

    async def check_free_space(
        self, config: LogManagerConfig, *, stays_when_full: Callable[[], bool]
    ) -> SpaceChange | None:
        """Look at the free bytes and keep the reserve; returns whether the logs may grow no more, or again, if that is news."""
        try:
            free_bytes, total_bytes = await self._disk.run(self._measure)
        except OSError as error:
            # Whether the disk works, appends and flushes will show.
            logger.debug("the free bytes of %s are not known: %s", self.path, error)
            return None
        marks = FreeSpaceMarks.of(stop=config.free_bytes_min, resume=config.free_bytes_resume, total_bytes=total_bytes)
        had_space = self.has_space
        if not marks.has_space(free_bytes, had_space=had_space):
            if had_space and stays_when_full():
                return SpaceChange(False, f"{free_bytes} bytes are free, log.dir.free.bytes.min is {marks.stop}")
            if not had_space and not stays_when_full():
                return SpaceChange(True, "it fails at the next write, since nobody leads past it")
            return None
        try:
            is_held = await self._disk.run(self.reserve.take if self.has_space else self.reserve.fits_twice)
        except OSError as error:
            logger.warning("the reserve of %s could not be made: %s", self.path, error)
            is_held = False
        if is_held and not self.has_space:
            logger.info("log directory %s has room again: %d bytes are free", self.path, free_bytes)
            return SpaceChange(True, f"{free_bytes} bytes are free")
        return None

    def _measure(self) -> tuple[int, int]:
        return self._disk.free_bytes(self.path), self._disk.total_bytes(self.path)

    def free_path(self, log: UnifiedLog, suffix: str) -> str:
        """A name with that ending that no earlier log has: the same replica may come and go within the delay."""
        number = 0
        while True:
            ending = f".{log.topic_id.hex()}{number:02x}{suffix}"
            name = f"{str(log.topic_partition)[: _NAME_BYTES_MAX - len(ending)]}{ending}"
            if not self._disk.exists(self.file(name)):
                return self.file(name)
            number += 1


def open_all(opening: Sequence[Callable[[], UnifiedLog]]) -> list[UnifiedLog | Exception]:
    """Open logs in a thread: each log, or why it could not be opened."""
    results: list[UnifiedLog | Exception] = []
    for open_log in opening:
        try:
            results.append(open_log())
        except Exception as error:
            results.append(error)
    return results


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition of a log's directory; None for any other name."""
    topic, dash, partition = name.rpartition("-")
    is_number = partition.isdecimal() and str(int(partition)) == partition
    return TopicPartition(topic, int(partition)) if dash and topic and is_number else None
