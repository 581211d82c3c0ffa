"""The cleaner of a broker: looks for the dirtiest log, has it rewritten, checks what comes, swaps it in.

May touch:  asyncio, the Disk, the logs of its directories.   Must not touch: peers, metadata, records.
Invariants: one run at a time; nothing that a worker wrote takes a segment's place before it was checked here; a run whose sources
            changed meanwhile is dropped; one log that cannot be cleaned keeps no other from it; that deletions are gone is
            durable before they go, and known from the turn in which they do.
Read next:  choice.py, process.py, swap.py; log_directory.py, whose checkpoint says how far each log is clean.

A worker's death, a full disk and want of memory are tried again with a back-off that doubles. A log whose bytes are no batches, or
with which so many runs in a row came to nothing, is set aside: reported, counted, and tried again after SET_ASIDE_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Final, Protocol

from barnabas_log.cleaner.choice import CleanableLog, Range, dirtiest
from barnabas_log.cleaner.process import CleaningFailed, Transform
from barnabas_log.cleaner.rewrite import Job, Output, Result
from barnabas_log.cleaner.sealed import (
    SealedSegments,
    aborted_up_to,
    cleanable,
    is_sound,
    is_unchanged,
    last_batches,
    replace_segments,
    sealed_segments,
)
from barnabas_log.cleaner.swap import CLEANING_DIRECTORY, OutputCheck, PendingSwap, UnsoundOutput
from barnabas_log.config import LogManagerConfig
from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.directories.log_directory import LogDirectory
from barnabas_log.disk import Disk
from barnabas_log.errors import StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

FAILURES_MAX: Final = 5
"""Runs in a row that may come to nothing before a log is set aside."""
BACKOFF_MS_MAX: Final = 300_000
SET_ASIDE_MS: Final = 3_600_000
IDLE_LOOKS: Final = 4
"""After so many looks in a row that found nothing to do the worker is let go."""
CHECK_PAUSE: Final = 3
"""How much longer than a step of the check the pause after it is: a chunk of small batches takes milliseconds of the interpreter."""
_LOOK_SLICE: Final = 50
"""Logs looked at between two turns of the loop."""


@dataclass(slots=True)
class CleanerStats:
    """Counters since the start, and what is the case now."""

    runs: int = 0
    """Runs whose output was swapped in."""
    runs_dropped: int = 0
    """Because the log changed meanwhile."""
    runs_failed: int = 0
    bytes_moved: int = 0
    """Read and written by the worker."""
    bytes_freed: int = 0
    """The bytes by which logs became smaller."""
    segments_swapped: int = 0
    is_running: bool = False
    dirty_ratio_max: float = 0.0
    """The highest dirty ratio of the logs that may be cleaned, when they were last looked at."""
    last_run_ms: int = 0
    """How long the last one took."""
    keys_last_run: int = 0
    set_aside: dict[TopicPartition, str] = field(default_factory=dict)
    """Logs that cannot be cleaned, and why: the kind of failure, a colon, the reason."""


class CleanerHost(Protocol):
    """What the cleaner needs of the manager around it."""

    def may_compact(self) -> bool:
        """Whether every follower takes a log with gaps in its offsets."""
        ...

    def is_here(self, log: UnifiedLog) -> bool:
        """Whether the log is in service."""
        ...

    def remove_later(self, log: UnifiedLog) -> None:
        """Have the files removed that the log has retired."""
        ...

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """The disk failed."""
        ...

    def request_check(self, log: UnifiedLog, base_offset: int | None = None) -> None:
        """Have the log's bytes checked: one of its batches is damaged."""
        ...


@dataclass(slots=True)
class _Trouble:
    """The failed runs of one log, and when it is tried again."""

    failures: int
    again_ms: int


class LogCleaner:
    """The cleaner. `run` is its task, on the loop that owns the logs."""

    def __init__(
        self,
        *,
        disk: Disk,
        directories: Sequence[LogDirectory],
        config: LogManagerConfig,
        clock_ms: Callable[[], int],
        transform: Transform,
        host: CleanerHost,
    ) -> None:
        self.stats = CleanerStats()
        self._disk = disk
        self._directories = directories
        self._config = config
        self._clock_ms = clock_ms
        self._transform = transform
        self._host = host
        self._troubles: dict[UnifiedLog, _Trouble] = {}
        self._runs = 0

    async def run(self) -> None:
        """Clean what is due, one log after another, until cancelled."""
        idle = 0
        try:
            while True:
                chosen = await self._choose() if self._host.may_compact() else None
                if chosen is not None:
                    idle = 0
                    await self.clean(*chosen)
                    continue
                idle += 1
                if idle == IDLE_LOOKS:
                    await self._transform.rest()
                await asyncio.sleep(self._config.cleaner_backoff_ms / 1000)
        finally:
            await self._transform.close()

    # -- the choice ------------------------------------------------------------------------------------------------

    async def _choose(self) -> tuple[LogDirectory, UnifiedLog, Range] | None:
        now_ms = self._clock_ms()
        self._troubles = {log: trouble for log, trouble in self._troubles.items() if self._host.is_here(log)}
        self.stats.set_aside = {
            name: reason
            for name, reason in self.stats.set_aside.items()
            if any(log.topic_partition == name and log.config.is_compacted for log in self._troubles)
        }
        seen: list[CleanableLog] = []
        by_name: dict[str, tuple[LogDirectory, UnifiedLog]] = {}
        looked = 0
        for directory in self._directories:
            if directory.error is not None or not directory.has_space:
                continue
            for log in list(directory.logs.values()):
                looked += 1
                if looked % _LOOK_SLICE == 0:
                    await asyncio.sleep(0)
                if not (log.tail.has_settings and log.config.is_compacted and is_sound(log)):
                    continue
                if not self._host.is_here(log):
                    continue
                trouble = self._troubles.get(log)
                if trouble is not None and trouble.again_ms > now_ms:
                    continue
                try:
                    view = cleanable(log, now_ms=now_ms)
                except (KafkaError, OSError) as error:
                    self._note_trouble(log, "disk", str(error))
                    continue
                if view is not None:
                    seen.append(view)
                    by_name[view.name] = (directory, log)
        found = dirtiest(seen, now_ms=now_ms)
        self.stats.dirty_ratio_max = found[1].dirty_ratio if found is not None else 0.0
        if found is None:
            return None
        directory, log = by_name[found[0].name]
        return (directory, log, found[1]) if self._host.is_here(log) else None

    # -- one run ---------------------------------------------------------------------------------------------------

    async def clean(self, directory: LogDirectory, log: UnifiedLog, found: Range) -> None:
        """One run over one log, from its first segment to the end of the range."""
        self._runs += 1
        now_ms = self._clock_ms()
        run_directory = f"{log.directory}/{CLEANING_DIRECTORY}/{now_ms}-{self._runs}"
        segments = sealed_segments(log, found.end_offset)
        if not segments:
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self.stats.is_running = True
        try:
            await self._disk.run(partial(self._disk.make_directory, run_directory, below=log.directory))
            job = self._job(log, segments, run_directory, found, now_ms)
            result = await self._transform.clean(
                job, bytes_per_second=self._config.cleaner_bytes_per_second_max, on_bytes=self._count_moved
            )
            if result.outputs:
                await self._disk.run(log.forgotten.keep)
            if not log.tail.has_gaps and result.outputs:
                await self._disk.run(directory.saved.save_clean_offset, log, log.clean_offset)
                log.tail.has_gaps = True
            is_done = await self._take_in(directory, log, segments, run_directory, result)
            if is_done and self._host.is_here(log) and log.durability.cuts == segments.cuts:
                await self._note_clean(directory, log, result)
                self.stats.runs += 1
                self.stats.keys_last_run = result.keys
                self.stats.last_run_ms = round((loop.time() - began_s) * 1000)
                self._troubles.pop(log, None)
                self.stats.set_aside.pop(log.topic_partition, None)
            else:
                self.stats.runs_dropped += 1
        except CleaningFailed as failure:
            if self._host.is_here(log) and is_unchanged(log, segments):
                self._note_trouble(log, failure.kind, str(failure))
        except UnsoundOutput as error:
            self._note_trouble(log, "unsound", str(error))
        except StorageFailed as error:  # the log has informed its listener
            logger.debug("a run over %s ends: %s", log.topic_partition, error)
        except OSError as error:
            self._on_disk_error(directory, log, error)
        finally:
            self.stats.is_running = False
            if self._host.is_here(log) and not log.is_failed:
                await asyncio.shield(self._remove_run(directory, log, run_directory))

    def _job(self, log: UnifiedLog, segments: SealedSegments, run_directory: str, found: Range, now_ms: int) -> Job:
        config = log.config
        return Job(
            directory=log.directory,
            run_directory=run_directory,
            sources=segments.sources,
            first_dirty=found.first_dirty,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            map_bytes_max=self._config.cleaner_map_bytes_max,
            producers=last_batches(log),
            aborted=aborted_up_to(log, found.end_offset),
            epochs=log.leader_epochs.entries,
            level=config.compression_level(config.compression_type),
        )

    async def _take_in(
        self, directory: LogDirectory, log: UnifiedLog, segments: SealedSegments, run_directory: str, result: Result
    ) -> bool:
        """Check every output, then swap them in, in order. False when the log changed meanwhile."""
        for output in result.outputs:
            _check_range(output, segments)
            check: OutputCheck = await self._disk.run(
                partial(OutputCheck, self._disk, run_directory, output, log.leader_epochs.entries)
            )
            loop = asyncio.get_running_loop()
            while not check.is_done:
                began_s = loop.time()
                await self._disk.run(check.step)
                await asyncio.sleep(CHECK_PAUSE * (loop.time() - began_s))
        for output in result.outputs:
            if not self._host.is_here(log) or not is_unchanged(log, segments, output):
                return False
            if not await self._swap(log, run_directory, segments, output):
                return False
        return self._host.is_here(log)

    async def _swap(self, log: UnifiedLog, run_directory: str, segments: SealedSegments, output: Output) -> bool:
        forgotten_below = Offset(output.forgotten_below)
        if forgotten_below:
            await self._disk.run(log.forgotten.save, forgotten_below)
            if not self._host.is_here(log) or not is_unchanged(log, segments, output):
                return False
        swap = PendingSwap(self._disk, log.directory, run_directory, output)
        log.pending_swap = swap
        try:
            if not await self._disk.run(swap.prepare):
                return False
            if not self._host.is_here(log) or not is_unchanged(log, segments, output):
                return False
            replace_segments(log, segments.replaced_by(output), swap)
            log.forgotten.publish(forgotten_below)  # in this turn: a reader of the new segment must hear of it
            self._host.remove_later(log)
            await self._disk.run(swap.settle_now)
        finally:
            if not swap.is_in_place and not swap.is_abandoned and self._host.is_here(log) and not log.is_failed:
                await asyncio.shield(self._disk.run(swap.abandon))
            if log.pending_swap is swap and (swap.is_abandoned or swap.is_settled):
                log.pending_swap = None
        self.stats.segments_swapped += len(output.sources)
        self.stats.bytes_freed += sum(source.size_bytes for source in output.sources) - output.size_bytes
        return True

    async def _note_clean(self, directory: LogDirectory, log: UnifiedLog, result: Result) -> None:
        log.clean_offset = Offset(result.end_offset)
        try:
            await self._disk.run(directory.saved.save_clean_offset, log, log.clean_offset)
        except OSError as error:  # without it the next start cleans once more
            if not (is_disk_full(error) or is_out_of_descriptors(error)):
                raise
            logger.warning("how far %s is clean is written later: %s", log.topic_partition, error)

    async def _remove_run(self, directory: LogDirectory, log: UnifiedLog, run_directory: str) -> None:
        try:
            await self._disk.run(self._disk.remove_tree, run_directory)
        except OSError as error:
            logger.warning("%s is removed at the next start: %s", run_directory, error)

    def _count_moved(self, moved: int) -> None:
        self.stats.bytes_moved += moved

    # -- trouble ---------------------------------------------------------------------------------------------------

    def _on_disk_error(self, directory: LogDirectory, log: UnifiedLog, error: OSError) -> None:
        if not self._host.is_here(log):
            self.stats.runs_dropped += 1  # deleted during the run: its directory has another name
            return
        if is_disk_full(error) or is_out_of_descriptors(error):
            self._note_trouble(log, "room", str(error))
        else:
            self._host.fail_directory(directory, error)

    def _note_trouble(self, log: UnifiedLog, kind: str, reason: str) -> None:
        self.stats.runs_failed += 1
        trouble = self._troubles.setdefault(log, _Trouble(0, 0))
        trouble.failures += 1
        now_ms = self._clock_ms()
        if kind == "corrupt":
            self._host.request_check(log)
        if kind == "corrupt" or (trouble.failures >= FAILURES_MAX and kind != "room"):
            trouble.again_ms = now_ms + SET_ASIDE_MS
            if log.topic_partition not in self.stats.set_aside:
                logger.error(
                    "%s cannot be cleaned and is set aside: %s. It grows meanwhile; the others go on. It is tried again in an hour, "
                    "and after a restart",
                    log.topic_partition,
                    reason,
                )
            self.stats.set_aside[log.topic_partition] = f"{kind}: {reason}"
            return
        wait_ms = min(BACKOFF_MS_MAX, self._config.cleaner_backoff_ms << min(trouble.failures, 10))
        trouble.again_ms = now_ms + wait_ms
        logger.warning(
            "%s: a cleaning run failed (%s): %s; next try in %d ms", log.topic_partition, kind, reason, wait_ms
        )


def _check_range(output: Output, segments: SealedSegments) -> None:
    """Whether an output's sources are neighbours among those of the run, and it covers just them. Raises UnsoundOutput."""
    known = segments.sources
    try:
        at = known.index(output.sources[0])
    except (ValueError, IndexError):
        raise UnsoundOutput(f"an output at {output.base_offset} names no source of the run") from None
    named = known[at : at + len(output.sources)]
    if (
        named != output.sources
        or output.base_offset != named[0].base_offset
        or output.end_offset != named[-1].end_offset
    ):
        raise UnsoundOutput(f"the output {output.base_offset} to {output.end_offset} does not cover its sources")
