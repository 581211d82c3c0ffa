"""The scrub of one log directory: every batch read again now and then, so that rot is found while others hold a sound copy.

May touch:  asyncio, the Disk and logs it is given.   Must not touch: peers, metadata.
Invariants: bytes are read and judged in the disk's threads, a finding counts only if the log was not cut meanwhile; what is
            known to be damaged is on disk before anybody learns of it.
Read next:  scrub.py, which judges; manager.py, which owns one of these per directory.

A pass reads every byte of the directory's logs at log.scrub.bytes.per.second.max, sealed segments and the written part of the
active ones, in order of name; the next one begins when it is over, but PASS_EVERY_S after it at the earliest. So a bit that
flips is found within (bytes of the directory + 1,000 per batch + 400,000 per segment) / rate of its disk being readable: 1 TB of
large batches at 10 MB/s within 28 hours, 10 GB within 17 minutes. A restart continues where the last run had come to
(scrub-checkpoint, at most SAVE_EVERY_S behind).
Nothing is read at a start before the broker serves, but what was known to be damaged comes first.

Pages that the cache holds are read from there and stay: that costs no disk and 0.1 ms of CPU per MB, and what the cache holds
is what clients are sent, rotten or not. Pages that came from the disk for this are given back. The copy below a cached page is
read in a later pass, when the page has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from barnabas_log.descriptors import is_out_of_descriptors
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.disk import Disk
from barnabas_log.errors import StorageFailed
from barnabas_log.read.offset_index import OffsetIndex
from barnabas_log.read.time_index import TimeIndex
from barnabas_log.recovery import repair
from barnabas_log.recovery.aborted_proof import read_aborted
from barnabas_log.recovery.repair import CheckableSegment
from barnabas_log.recovery.scrub import (
    DamagedRange,
    SegmentCheck,
    SegmentName,
    newest_in_time_index,
    pause_s,
    plan_pass,
)
from barnabas_log.recovery.segment_proof import Gaps, rebuild_segment
from barnabas_log.tail.aborted_transactions import TXN_INDEX_SUFFIX, AbortedTransaction, differing
from barnabas_log.tail.segment import REPAIR_SUFFIX, LogSegment
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

SCRUB_FILE: Final = "scrub-checkpoint"
PASS_EVERY_S: Final = 10.0
SAVE_EVERY_S: Final = 10.0
RETRY_S: Final = 1.0
"""After a shortage of descriptors."""
_OFFSET_ENTRY: Final = struct.Struct(">ii")


@dataclass(slots=True)
class ScrubStats:
    """Counters of one directory since the start, and how far the pass is."""

    bytes_checked: int = 0
    batches_checked: int = 0
    passes: int = 0
    """Finished."""
    ranges_found: int = 0
    ranges_repaired: int = 0
    indexes_rebuilt: int = 0
    pass_bytes: int = 0
    """What the pass under way has to read."""
    pass_bytes_checked: int = 0


class Scrubber:
    """Checks the logs of one directory. Lives on the loop that owns them; `run` is its task."""

    def __init__(
        self,
        *,
        disk: Disk,
        path: str,
        logs: Mapping[TopicPartition, UnifiedLog],
        bytes_per_second: int,
        on_damage: Callable[[UnifiedLog], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """logs: of the directory, as they come and go. bytes_per_second: 0 checks only what is asked for. on_damage: what is known
        of a log's damage has changed. on_failed: the disk did not read."""
        self.stats = ScrubStats()
        self._disk = disk
        self._path = f"{path}/{SCRUB_FILE}"
        self._logs = logs
        self._rate = bytes_per_second
        self._on_damage = on_damage
        self._on_failed = on_failed
        self._checked: SegmentName | None = None
        self._requested: dict[SegmentName, None] = {}
        self._is_asked = asyncio.Event()
        self._saved = self._encode()
        """Nothing to report, as long as there is no file."""
        self._saving = asyncio.Lock()

    # -- what is asked for -----------------------------------------------------------------------------------------

    def request(self, log: UnifiedLog, base_offset: int | None = None) -> None:
        """Check a segment of the log soon, or all of them: before the pass continues. The listener hears what is new."""
        for base in log.base_offsets if base_offset is None else (base_offset,):
            self._requested[(*log.topic_partition, base)] = None
        self._is_asked.set()

    def is_requested(self, log: UnifiedLog) -> bool:
        """Whether a segment of the log is still to be checked on request."""
        return any(name[:2] == log.topic_partition for name in self._requested)

    async def check(self, log: UnifiedLog, base_offset: int, *, is_throttled: bool = False) -> bool:
        """Check one segment and report to the log what of it is damaged. False when nothing can be said: it has gone, or was cut.

        Raises OSError, StorageFailed.
        """
        if log.active.base_offset == base_offset and log.active.is_index_doubted:
            repair.seal(log, base_offset)  # the indexes of what grows are not made again
        checkable = repair.checkable(log, base_offset)
        if checkable is None:
            return False
        job = _Job(self._disk, checkable)
        loop = asyncio.get_running_loop()
        while not job.is_done:
            began_s, batches, segments = loop.time(), job.batches, int(not job.is_begun)
            try:
                read = await self._disk.run(job.step)
            except FileNotFoundError:
                return False
            self.stats.bytes_checked += read
            self.stats.batches_checked += job.batches - batches
            if is_throttled and self._rate:
                self.stats.pass_bytes_checked += read
                await asyncio.sleep(
                    pause_s(
                        bytes_read=read,
                        batches=job.batches - batches,
                        segments=segments,
                        bytes_per_second=self._rate,
                        took_s=loop.time() - began_s,
                    )
                )
        if not repair.is_unchanged(log, checkable):
            return False
        await self._take_in(log, checkable, job)
        return True

    async def _take_in(self, log: UnifiedLog, checkable: CheckableSegment, job: _Job) -> None:
        if job.has_gaps and not log.tail.has_gaps:  # the file that names such logs was lost
            log.tail.listener.on_gap(log)
            log.tail.has_gaps = True
        known = set(log.damage)
        if repair.set_damage(log, checkable.facts.base_offset, job.damages):
            news = [damage for damage in log.damage if damage not in known]
            self.stats.ranges_found += len(news)
            for damage in news:
                logger.error("%s: damaged in %s: %s", log.topic_partition, checkable.path, damage)
            await self.save()
            self._on_damage(log)
        if job.is_index_sound:
            checkable.segment.is_index_doubted = False
        if not job.is_index_sound and not job.damages and repair.is_unchanged(log, checkable):
            await self._rebuild_indexes(log, checkable)
        if checkable.facts.is_sealed and not job.damages and log.aborted:
            await self._check_aborted(log, checkable)

    async def _check_aborted(self, log: UnifiedLog, checkable: CheckableSegment) -> None:
        """Compare the entries of a segment's .txnindex with its markers, where it has no note yet, and the files with the entries."""
        base, aborted = Offset(checkable.facts.base_offset), log.aborted
        if not repair.is_unchanged(log, checkable) or log.tail.is_in_doubt:
            return
        end = log.segments.end_offset(checkable.segment, log_end_offset=log.log_end_offset)
        if base in aborted.unproved:
            entries = await self._disk.run(_read_aborted, self._disk, log, log.base_offsets, base, end)
            if entries is None or not repair.is_unchanged(log, checkable):
                return
            aborted.replace(base, end, entries)
        wrong = await self._disk.run(_write_beside, self._disk, aborted.files_of(base, end))
        if not wrong or not repair.is_unchanged(log, checkable):
            return
        for path, content in wrong.items():
            if content:
                self._disk.rename(path + REPAIR_SUFFIX, path)
            else:
                self._disk.remove(path)
        if any(path.endswith(TXN_INDEX_SUFFIX) for path in wrong):
            logger.warning(
                "%s: the .txnindex of %s was not what its markers say, it is made again",
                log.topic_partition,
                checkable.path,
            )
            self.stats.indexes_rebuilt += 1

    async def _rebuild_indexes(self, log: UnifiedLog, checkable: CheckableSegment) -> None:
        logger.warning("%s: an index of %s is damaged, making it again", log.topic_partition, checkable.path)
        await self._disk.run(_write_indexes, self._disk, log, checkable)
        if not repair.is_unchanged(log, checkable):
            return
        for path in (checkable.index_path, checkable.time_index_path):
            self._disk.rename(path + REPAIR_SUFFIX, path)
        repair.reload_indexes(log, checkable.facts.base_offset)
        self.stats.indexes_rebuilt += 1

    # -- the pass --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Check what is asked for and pass after pass, until cancelled."""
        loop = asyncio.get_running_loop()
        left: list[SegmentName] = []
        next_pass_s = saved_s = loop.time()
        is_passing = False
        while True:
            is_due = bool(self._rate) and not is_passing and loop.time() >= next_pass_s
            if is_due:
                left = self._begin_pass()
                is_passing = True
            if self._requested:
                name = next(iter(self._requested))
                if await self._check_named(name, is_throttled=False):
                    self._requested.pop(name, None)
            elif left:
                name = left.pop()
                await self._check_named(name, is_throttled=True)
                self._checked = name
                if loop.time() >= saved_s + SAVE_EVERY_S:
                    saved_s = loop.time()
                    await self.save()
            else:
                if is_passing:
                    is_passing = False
                    self.stats.passes += 1
                    self._checked = None
                    next_pass_s = loop.time() + PASS_EVERY_S
                await self._wait(next_pass_s - loop.time() if self._rate else None)

    def _begin_pass(self) -> list[SegmentName]:
        """What is to be checked, the next one last."""
        names = [(*name, int(base)) for name, log in self._logs.items() for base in log.base_offsets]
        left = plan_pass(names, self._checked)
        left.reverse()
        self.stats.pass_bytes = sum(log.size_bytes for log in self._logs.values())
        done = len(names) - len(left)
        self.stats.pass_bytes_checked = self.stats.pass_bytes * done // max(1, len(names))
        return left

    async def _check_named(self, name: SegmentName, *, is_throttled: bool) -> bool:
        """False where it could not be read for want of descriptors, after a pause: what was asked for counts as read when it was."""
        log = self._logs.get(TopicPartition(name[0], name[1]))
        if log is None:
            return True
        try:
            await self.check(log, name[2], is_throttled=is_throttled)
        except StorageFailed:
            return True  # the log has informed its listener
        except OSError as error:
            if is_out_of_descriptors(error):
                await asyncio.sleep(RETRY_S)
                return False
            if not log.is_failed:
                self._on_failed(error)
        return True

    async def _wait(self, seconds: float | None) -> None:
        self._is_asked.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_asked.wait()

    def request_unread(self) -> None:
        """Have the segments checked soon that could not be read when producers were loaded: their damage is not known yet."""
        for log in self._logs.values():
            for base_offset in log.producers.unread:
                self.request(log, base_offset)

    # -- across restarts -------------------------------------------------------------------------------------------

    async def save(self) -> None:
        """Write position and known damage, if they have changed. On a full disk that waits: then a crash would only make the
        next run find the damage again. Raises OSError."""
        async with self._saving:
            content = self._encode()
            if content == self._saved:
                return
            try:
                await self._disk.run(self._disk.write_file_atomically, self._path, content)
            except OSError as error:
                if not (is_disk_full(error) or is_out_of_descriptors(error)):
                    raise
                logger.info("%s is written later: %s", self._path, error)
                return
            self._saved = content

    def load(self) -> None:
        """Take up what the last run left, blocking: its position, and damage, which is checked first of all."""
        try:
            self._saved = self._disk.read_file(self._path)
            found = json.loads(self._saved)
            position, damages = found["position"], found["damage"]
            self._checked = None if position is None else (str(position[0]), int(position[1]), int(position[2]))
            for (topic, partition), entries in groupby(damages, key=lambda entry: (entry["topic"], entry["partition"])):
                log = self._logs.get(TopicPartition(topic, partition))
                for entry in entries:
                    if log is not None and str(log.topic_id) == entry["topic_id"]:
                        self._restore(log, _decode(entry))
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
            logger.error("%s cannot be read (%s): scrubbing from the beginning", self._path, error)

    def _restore(self, log: UnifiedLog, damage: DamagedRange) -> None:
        checkable = repair.checkable(log, damage.segment)
        if checkable is None:
            return
        known = [each for each in log.damage if each.segment == damage.segment]
        if all(each.stop <= damage.position for each in known) and damage.end_offset <= checkable.facts.end_offset:
            repair.set_damage(log, damage.segment, [*known, damage])
        self.request(log, damage.segment)

    def _encode(self) -> bytes:
        damages = [
            {
                "topic": log.topic_partition.topic,
                "partition": log.topic_partition.partition,
                "topic_id": str(log.topic_id),
            }
            | damage._asdict()
            for _, log in sorted(self._logs.items())
            for damage in log.damage
        ]
        return json.dumps({"version": 0, "position": self._checked, "damage": damages}).encode()


class _Job:
    """The check of one segment, whose steps run in a disk thread, one at a time."""

    def __init__(self, disk: Disk, checkable: CheckableSegment) -> None:
        self._disk = disk
        self._checkable = checkable
        self._check: SegmentCheck | None = None
        self._newest_indexed_ms: int | None = None
        self.is_index_sound = True

    @property
    def is_begun(self) -> bool:
        return self._check is not None

    @property
    def is_done(self) -> bool:
        return self._check is not None and self._check.is_done

    @property
    def batches(self) -> int:
        return 0 if self._check is None else self._check.batches

    @property
    def has_gaps(self) -> bool:
        return self._check is not None and self._check.has_gaps

    @property
    def damages(self) -> list[DamagedRange]:
        return [] if self._check is None else self._check.damages

    def step(self) -> int:
        """One step, with a separate handle: a file of the log may be closed meanwhile. Returns the bytes read."""
        check = self._check
        if check is None:
            check = self._check = SegmentCheck(self._checkable.facts, index=self._read_index())
        file = self._disk.open(self._checkable.path)
        try:
            read = check.step(file.read_aside)
        finally:
            file.close()
        # A time index made while records were damaged lacks theirs: retention would take them early.
        is_newest_indexed = self._newest_indexed_ms is None or self._newest_indexed_ms >= check.greatest_timestamp_ms
        self.is_index_sound = self.is_index_sound and check.is_index_sound and is_newest_indexed
        return read

    def _read_index(self) -> list[tuple[int, int]] | None:
        """Entries of the offset index of a sealed segment; None where there is none to be checked."""
        checkable = self._checkable
        if not checkable.facts.is_sealed:
            return None
        try:
            raw = self._disk.read_file(checkable.index_path)
            times = self._disk.read_file(checkable.time_index_path)
        except FileNotFoundError:
            self.is_index_sound = False
            return None
        self._newest_indexed_ms = newest_in_time_index(times)
        if len(raw) % _OFFSET_ENTRY.size or self._newest_indexed_ms is None:
            self.is_index_sound = False
            return None
        return list(_OFFSET_ENTRY.iter_unpack(raw))


def _write_indexes(disk: Disk, log: UnifiedLog, checkable: CheckableSegment) -> None:
    """Make both indexes of a sealed segment beside the ones in use. In a disk thread."""
    config, base_offset = log.config, Offset(checkable.facts.base_offset)
    segment = LogSegment.open(disk, log.directory, base_offset, config, now_ms=0)
    try:
        bytes_max = config.segment_index_bytes
        segment.offset_index = OffsetIndex(disk, checkable.index_path + REPAIR_SUFFIX, base_offset, bytes_max=bytes_max)
        segment.time_index = TimeIndex(
            disk, checkable.time_index_path + REPAIR_SUFFIX, base_offset, bytes_max=bytes_max
        )
        rebuild_segment(segment, None, gaps=Gaps.KNOWN)  # as the check took them
        segment.finish()
        for file in (segment.offset_index.file, segment.time_index.file):
            file.sync()
    finally:
        segment.close()


def _read_aborted(
    disk: Disk, log: UnifiedLog, bases: Sequence[Offset], base: Offset, end: Offset
) -> list[AbortedTransaction] | None:
    """As read_aborted, from separate files. In a disk thread."""
    segments: list[LogSegment] = []
    try:
        segments.extend(
            LogSegment.open(disk, log.directory, each, log.config, now_ms=0) for each in bases if each < end
        )
        return read_aborted(disk, log.directory, segments, base, end)
    except FileNotFoundError:  # retention or compaction took one
        return None
    finally:
        for segment in segments:
            segment.close()


def _write_beside(disk: Disk, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Write those that are not so on the disk beside the ones in use; returns them. In a disk thread."""
    wrong = differing(disk, contents)
    for path, content in wrong.items():
        if content:
            disk.write_file_atomically(path + REPAIR_SUFFIX, content)
    return wrong


def _decode(entry: Mapping[str, Any]) -> DamagedRange:
    return DamagedRange(
        Offset(int(entry["first_offset"])),
        Offset(int(entry["end_offset"])),
        Offset(int(entry["segment"])),
        int(entry["position"]),
        int(entry["stop"]),
        str(entry["reason"]),
    )
