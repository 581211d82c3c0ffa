"""Logs are checked and repaired while they serve: what the scrub finds, and what a repair puts in its place.

May touch:  asyncio, the Disk, the logs.   Must not touch: peers, which bring the sound bytes.
Invariants: what was replaced is durable and checked again before it counts as sound; a producer state that was read from damage is
            read again before it counts.
Read next:  repair.py, what one log does; scrubber.py; replication's repair.py, which asks for this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.directory_health import DirectoryHealth
from barnabas_log.directories.log_directory import LogDirectory
from barnabas_log.directories.log_homes import LogHomes
from barnabas_log.disk import Disk
from barnabas_log.recovery import repair
from barnabas_log.recovery.scrub import DamagedRange
from barnabas_log.recovery.scrubber import ScrubStats
from barnabas_log.tail.flush import RETRY_S as FLUSH_RETRY_S
from barnabas_log.tail.producer_replay import load_producers
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import NO_OFFSET, Offset


class LogRepairs:
    """Checks and repairs the logs of a broker."""

    def __init__(self, *, disk: Disk, homes: LogHomes, health: DirectoryHealth, clock_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._homes = homes
        self._health = health
        self._clock_ms = clock_ms

    async def scrub(self, directory: LogDirectory) -> None:
        """Check one directory again and again, until it fails."""
        if directory.error is None:
            try:
                await directory.scrub.run()
            except OSError as error:  # what is known of damage could not be written
                self._health.fail(directory, error)

    def request_check(self, log: UnifiedLog, base_offset: int | None = None) -> None:
        """Have a segment of the log, or all of it, checked soon; the listener hears if that brings news."""
        directory = self._homes.directories.get(log)
        if directory is not None:
            directory.scrub.request(log, base_offset)

    def is_check_requested(self, log: UnifiedLog) -> bool:
        """Whether a requested check of the log is not done yet."""
        directory = self._homes.directories.get(log)
        return directory is not None and directory.error is None and directory.scrub.is_requested(log)

    async def check(self, log: UnifiedLog, base_offset: int) -> bool:
        """Check a segment now; False when nothing can be said of it, for it has gone or was cut meanwhile. Raises StorageFailed,
        OutOfDescriptors, and DiskFull where an index is to be made again."""
        directory = self._homes.directories.get(log)
        if directory is None or directory.error is not None:
            return False
        try:
            return await directory.scrub.check(log, base_offset)
        except OSError as error:
            raise self._health.refuse(directory, error) from error

    async def replace_damaged(self, log: UnifiedLog, damage: DamagedRange, batches: bytes) -> bool:
        """Put proved batches in the place of a damaged range, make them durable and check the segment again; whether
        that range is sound then. Raises StorageFailed."""
        directory = self._homes.directories.get(log)
        if directory is None or directory.error is not None:
            return False
        file = repair.replace_damaged(log, damage, batches)
        while True:
            try:
                await self._disk.flush([file])
                break
            except OSError as error:
                if not is_out_of_descriptors(error):
                    self._health.fail(directory, error)
                    return False
            # Written, and not durable yet: nothing else would flush it, for all below the recovery point counts as
            # flushed.
            await asyncio.sleep(FLUSH_RETRY_S)
            if log.is_closed or directory.error is not None or damage.segment not in log.base_offsets:
                return False
        is_sound = await self.check(log, damage.segment) and damage not in log.damage
        directory.scrub.stats.ranges_repaired += is_sound
        return is_sound

    def count_fetched_anew(self, log: UnifiedLog, ranges: int) -> None:
        """Count damaged ranges as repaired that were cut off the log and fetched again from its leader. ranges: how many."""
        directory = self._homes.directories.get(log)
        if directory is not None:
            directory.scrub.stats.ranges_repaired += ranges

    async def reload_producers(self, log: UnifiedLog) -> bool:
        """Read the log's producer state again where damage made it doubtful, once none of it is damaged any more.

        A state read from damaged batches lacks some: a retry would be refused as out of order, or appended again. Returns whether
        the state is whole; else try again later.
        """
        directory = self._homes.directories.get(log)
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
                self._health.fail(directory, error)
            return False
        for base_offset in state.unread:
            directory.scrub.request(log, base_offset)
        return not state.unread and repair.adopt_producers(log, state, cuts=cuts)

    def scrub_stats(self) -> dict[str, ScrubStats]:
        """Counters of the scrub by directory path."""
        return {directory.path: directory.scrub.stats for directory in self._health.directories}


def _read_producers(
    disk: Disk,
    directory: str,
    bases: Sequence[Offset],
    opening: Callable[[Offset], LogSegment],
    end_offset: Offset,
    high_watermark: Offset,
    doubted_from: Offset,
) -> ProducerState:
    """Producer state at `end_offset` from separate files, so that a disk thread may read while the log grows. Raises
    OSError."""
    segments: list[LogSegment] = []
    try:
        segments.extend(opening(base_offset) for base_offset in bases)
        return load_producers(
            disk, directory, segments, end_offset=end_offset, high_watermark=high_watermark, doubted_from=doubted_from
        )
    finally:
        for segment in segments:
            segment.close()
