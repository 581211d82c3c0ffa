"""Log directories damaged in every small way, and opened: `python -m tests.log.recovery_fuzz --images 100000 --seed 1`.

May touch:  memory disks alone.       Must not touch: real files, clocks.
Invariants: one seed gives one log and one list of damages, in one order; image K of seed S is always the same.
Read next:  recovery.py of the room, which is judged.

A log is written by a LogManager with small segments, several producers and leader epochs, rolls, retention, checkpoints, clean and
unclean starts in between; every third one follows a compacted leader, so that offsets are missing between its batches, and every
fourth has transactions. Then it is stopped cleanly, killed, or its power is cut. Of what is left then an image is made for
  - every length to which each of its files may be cut short
  - a flipped bit in each byte of each batch's header and of each index, and some in the records
  - each file's end as zeros, from many positions, and zeros or garbage behind the end
  - each file missing, checkpoints with their twins too, and each file as it was at an earlier time
  - each file left over as `.swap`, `.cleaned`, `.deleted` and `.tmp`, whole and half; snapshots at other offsets, whole and half
  - pairs of these, drawn

The law: LogManager.load raises nothing, and no directory goes offline. What is read is what was written, at its offset; but a
batch whose bytes were damaged may be given as it is where the start does not prove batches (below the recovery point, or after
a clean stop: then its CRC is wrong, and the reader sees that) and reading may raise CorruptBatch there. Every synced batch
before the first damaged byte of the log is there, and every one below the recovery point that is in another file, whether or not the
file of the recovery points is lost; where no log file was damaged, every synced batch is. What a power cut took may
be reported as damaged where the recovery point is lost too. Epochs and producers
are what the batches say; not where both a log file and the file that has them are damaged, or damage leaves them in
doubt. A second start finds the same, and the
log can be appended to. Where no log file was damaged, a reader of committed records gets no aborted record, and all others.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from barnabas_log.config import CleanupPolicy, LogManagerConfig
from barnabas_log.directories.checkpoint_twins import Settled, settle
from barnabas_log.directories.checkpoints import CLEAN_OFFSETS_FILE, LEADER_EPOCHS_FILE, RECOVERY_POINTS_FILE
from barnabas_log.directories.directory_state import OWN_DIRECTORY
from barnabas_log.directories.manager import LogManager
from barnabas_log.memory_disk import Inode, MemoryDisk
from barnabas_log.tail import truncating
from barnabas_log.tail.aborted_transactions import TXN_INDEX_SUFFIX
from barnabas_log.tail.producer_replay import note_producer
from barnabas_log.tail.producer_snapshots import snapshot_path
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.tail.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition, Uuid
from barnabas_wire.records.batch import (
    CRC_START,
    HEADER_BYTES,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
    read_header,
)
from barnabas_wire.records.control import build_transaction_marker
from tests.support.logs import NOW_MS, append, flush, make_batch, make_config, take

ORDERS, TOPIC_ID = TopicPartition("orders", 0), Uuid(b"t" * 16)
DATA = "data"
LOG = f"{DATA}/{ORDERS}"
RESERVE_BYTES = 64
"""It is a file like any other here: every length of it is an image."""
BOTH_LOST = 40
"""Images in which a checkpoint is lost with its twin; as many are drawn for pairs with other damage."""
FAILURES_MAX = 200
"""After so many it stops looking, and prints one of each kind."""
AGAIN_SHARE = 0.15
"""Of the images, how many are started twice and appended to."""

Files = dict[str, bytes]
"""Path -> content."""


class Written(NamedTuple):
    """A batch as it was written."""

    base_offset: int
    next_offset: int
    data: bytes


@dataclass(slots=True)
class DamagedLater:
    """What is on the disk, and what is known of it."""

    files: Files
    config: dict[str, Any]
    batches: dict[int, Written]
    """All that were ever written at their offset, and not cut since."""
    aborted: dict[int, int]
    """Base offsets of the batches whose transaction was aborted -> the offset of the marker that did it."""
    start_offset: int
    synced_end: int
    places: dict[str, list[tuple[int, int]]]
    """Of each log file: position and base offset of its batches."""
    former: dict[str, list[bytes]]
    """Of each file what it was at earlier times, oldest first."""


class Damage(NamedTuple):
    """One thing that is done to the files."""

    what: str
    apply: Callable[[Files], None]


class LawBroken(AssertionError):
    """An image that is not opened as it must be."""


# -- the log before the damage ---------------------------------------------------------------------------------------


class _Author:
    """Writes the log of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk()
        self.settings: dict[str, Any] = {
            "segment_bytes": self.random.choice([400, 700, 1500]),
            "index_interval_bytes": self.random.choice([0, 150, 300]),
        }
        self.has_gaps = not seed % 3
        self.has_transactions = seed % 4 == 2 and not self.has_gaps
        self.open: dict[int, list[int]] = {}
        self.aborted: dict[int, int] = {}
        if self.has_gaps:
            self.settings["cleanup_policy"] = CleanupPolicy.COMPACT
        self.config = make_config(**self.settings)
        self.batches: dict[int, Written] = {}
        self.former: dict[str, list[bytes]] = {}
        self.manager: LogManager
        self.log: UnifiedLog

    async def write(self) -> DamagedLater:
        random = self.random
        await self._start()
        often = [self._append] * 8 + [lambda: flush(self.log)] * 3 + [self._checkpoint] * 2
        # What is cut would open transactions anew.
        rare = [self._append if self.has_transactions else self._cut, self._shorten, self._retire, self._stop]
        for _ in range(random.randint(20, 45) + 30 * self.has_transactions):
            done = random.choice([*often, *rare])()
            if done is not None:
                await done
            self._remember()
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        ending = random.choice(["stop", "kill", "cut"])
        if ending == "stop":
            await self.manager.close(broker_epoch=7)
            disk, synced = self.disk, end
        elif ending == "kill":
            disk, synced = self.disk, end
        else:
            synced = log.flushed_end_offset
            disk = self.disk.crash(random)
        files = {path: bytes(inode.content) for path, inode in disk.names.items()}
        return DamagedLater(
            files, self.settings, self.batches, self.aborted, start, synced, _places(files), self.former
        )

    async def _start(self) -> None:
        self.manager = _manager(self.disk, self.settings)
        await self.manager.load()
        self.log = self.manager.get_or_create(ORDERS, TOPIC_ID, self.config)

    def _append_transactional(self) -> None:
        """A batch of one of two transactional producers, or the end of its transaction."""
        log, random = self.log, self.random
        producer_id, epoch = random.choice([7, 8]), Epoch(max(log.latest_epoch, 0))
        at = log.log_end_offset
        if producer_id in self.open and random.random() < 0.5:
            is_commit = random.random() < 0.4
            batch = build_transaction_marker(
                producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, is_commit=is_commit, now_ms=NOW_MS
            )
            bases = self.open.pop(producer_id)
            self.aborted.update({} if is_commit else dict.fromkeys(bases, int(at)))
        else:
            known = log.producers.get(producer_id)
            sequence = known.last.last_sequence + 1 if known else 0
            kwargs: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            if log.producers.needs_verification(producer_id, 0):
                assert log.producers.confirm(producer_id, log.producers.begin_verification(producer_id, 0))
            batch = make_batch(random.randint(1, 3), value=b"%d" % at, is_transactional=True, **kwargs)
            self.open.setdefault(producer_id, []).append(at)
        log.tail.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS, is_internal=True)
        log.tail.write_pending()
        data = take(log.read(at, bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True))
        self.batches[at] = Written(at, log.log_end_offset, data)

    def _append(self) -> None:
        if self.has_transactions and self.random.random() < 0.8:
            self._append_transactional()
            return
        log, random = self.log, self.random
        producer_id = random.choice([-1, 5, 6])
        kwargs: dict[str, Any] = {}
        if producer_id >= 0:
            known = log.producers.get(producer_id)
            sequence = known.last.last_sequence + 1 if known else 0
            kwargs = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        epoch = max(log.latest_epoch, 0) + random.choice([0, 0, 0, 1])
        value = b"%d" % log.log_end_offset
        if self.has_gaps:
            base = Offset(log.log_end_offset + random.choice([0, 0, 1, 2, 9]))
            kwargs["leader_epoch"] = Epoch(epoch)
            batch = make_batch(random.randint(1, 3), offset=base, value=value.ljust(40), **kwargs)
            log.tail.append_as_follower(batch, leader_epoch=Epoch(epoch))
        else:
            base = append(log, make_batch(random.randint(1, 3), value=value.ljust(40), **kwargs), epoch=epoch)
        data = take(log.read(base, bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True))
        self.batches[base] = Written(base, log.log_end_offset, data)

    def _cut(self) -> None:
        """As a follower's truncation. Flushed at once: whether the old tail comes back is judged by test_crashes."""
        log = self.log
        bases = [base for base in sorted(self.batches) if base > log.log_start_offset][-3:]
        if bases:
            offset = self.random.choice(bases)
            truncating.truncate_to(log, Offset(offset))
            flush(log)
            self.batches = {base: each for base, each in self.batches.items() if base < offset}

    def _shorten(self) -> None:
        log = self.log
        log.update_high_watermark(log.log_end_offset)
        bases = [base for base in sorted(self.batches) if base >= log.log_start_offset][:4]
        if bases:
            log.delete_records_before(Offset(self.random.choice(bases)))

    async def _retire(self) -> None:
        await self.manager.apply_retention()
        for _, path in self.log.take_removals()[self.random.randint(0, 4) :]:
            self.disk.remove(path)

    async def _checkpoint(self) -> None:
        if self.has_transactions:  # else a start reads all of them anew
            self.log.update_high_watermark(self.log.flushed_end_offset)
        await self.manager.checkpoints.write_offsets()
        await self.manager.checkpoints.write_high_watermarks()

    async def _stop(self) -> None:
        await self.manager.close()
        await self._start()

    def _remember(self) -> None:
        for path, inode in self.disk.names.items():
            known = self.former.setdefault(path, [])
            data = bytes(inode.content)
            if not known or known[-1] != data:
                known.append(data)


def _manager(disk: MemoryDisk, settings: Mapping[str, Any]) -> LogManager:
    config = make_config(**settings)
    return LogManager(
        disk=disk,
        directories=[DATA],
        default_config=config,
        clock_ms=lambda: NOW_MS,
        config=LogManagerConfig(reserve_bytes=RESERVE_BYTES),
    )


def _places(files: Files) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for path, data in files.items():
        if path.endswith(LOG_SUFFIX):
            places = found[path] = []
            with suppress(CorruptBatch):  # the torn tail of a power cut
                for position, header in iterate_batches(data):
                    places.append((position, header.base_offset))
    return found


# -- the damage ------------------------------------------------------------------------------------------------------


def damages(log: DamagedLater, random: Random) -> list[Damage]:
    """Every single one, in one order."""
    found = [Damage("nothing", lambda files: None)]
    for path, data in sorted(log.files.items()):
        found += _damages_of_a_file(path, data, random)
        if path.endswith(LOG_SUFFIX):
            at = [position + byte for position, _ in log.places[path] for byte in range(HEADER_BYTES)]
            at += [random.randrange(len(data)) for _ in log.places[path]]
            found += _flipped_bits(path, at, random)
        elif path.endswith((TXN_INDEX_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
            found += _flipped_bits(path, range(len(data)), random)
    for path in (CLEAN_OFFSETS_FILE, RECOVERY_POINTS_FILE):
        found += [_without(f"{DATA}/{path}", f"{DATA}/{OWN_DIRECTORY}/{path}")] * BOTH_LOST
    for path, contents in sorted(log.former.items()):
        if path.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and path in log.files:
            found += [_put(f"{path} as it was at time {n}", path, data) for n, data in enumerate(contents)]
    bases = sorted(base for places in log.places.values() for _, base in places)
    snapshots = [data for path, data in log.files.items() if path.endswith(".snapshot")]
    for offset in {*bases[::3], log.synced_end, log.synced_end + 5}:
        for data in snapshots[:2]:
            half = data[: random.randint(0, len(data) - 1)]
            found.append(_put(f"half a snapshot at {offset}", snapshot_path(LOG, Offset(offset)), half))
    return found


def _damages_of_a_file(path: str, data: bytes, random: Random) -> list[Damage]:
    found = [_put(f"{path} cut to {size} bytes", path, data[:size]) for size in range(len(data))]
    for position in range(0, len(data), max(1, len(data) // 60)):
        zeros = data[:position] + bytes(len(data) - position)
        found.append(_put(f"{path} zero from byte {position} on", path, zeros))
    for count in (1, 8, 12, 61, 200):
        found.append(_put(f"{path} with {count} zeros behind it", path, data + bytes(count)))
        found.append(_put(f"{path} with {count} bytes of garbage behind it", path, data + random.randbytes(count)))
    found.append(_without(path))
    for suffix in (".swap", ".cleaned", ".deleted", ".tmp"):
        for size in (len(data), len(data) // 2, 0):
            found.append(_put(f"{size} bytes of {path} left as {suffix}", path + suffix, data[:size]))
    return found


def _flipped_bits(path: str, at: Iterable[int], random: Random) -> list[Damage]:
    found = []
    for position in at:
        bit = random.randrange(8)

        def flip(files: Files, position: int = position, bit: int = bit) -> None:
            data = bytearray(files.get(path, b""))
            if position < len(data):
                data[position] ^= 1 << bit
                files[path] = bytes(data)

        found.append(Damage(f"bit {bit} of byte {position} of {path} flipped", flip))
    return found


def _without(*paths: str) -> Damage:
    def remove(files: Files) -> None:
        for path in paths:
            files.pop(path, None)

    return Damage(f"{' and '.join(paths)} missing", remove)


def _put(what: str, path: str, data: bytes) -> Damage:
    return Damage(what, lambda files: files.update({path: data}))


# -- the law ---------------------------------------------------------------------------------------------------------


class Image(NamedTuple):
    """One damaged state of the disk."""

    what: str
    files: Files
    log: DamagedLater
    damaged: dict[str, int]
    """Of each damaged log file the first damaged byte."""

    @property
    def recovery_point(self) -> int:
        """As its file and the twin say, or said before both were lost: then, too, nothing below may be cut."""
        files = self.log.files if self.is_recovery_point_lost else self.files
        return _settled_points(files).offsets.get(ORDERS, Offset(0))

    @property
    def is_recovery_point_lost(self) -> bool:
        """Whether nobody knows any more what was flushed."""
        return not _settled_points(self.files).is_known

    def may_be_torn(self, offset: int) -> bool:
        """Whether the power cut may have taken what was at the offset, and the start cannot know that nobody was promised it."""
        return offset >= self.log.synced_end and self.is_recovery_point_lost

    def is_in_damaged_file(self, base: int) -> bool:
        """Whether the batch was in a log file that is damaged."""
        return any(base == each for path in self.damaged for _, each in self.log.places[path])

    def batch_start(self, path: str) -> int:
        """Where the batch begins that holds the first damaged byte of a damaged log file."""
        return max((at for at, _ in self.log.places[path] if at <= self.damaged[path]), default=0)

    @property
    def sure_end(self) -> int:
        """Every synced batch below this offset must be there."""
        end = self.log.synced_end
        for path, position in self.damaged.items():
            later = [base for at, base in self.log.places[path] if at >= position]
            holding = [base for at, base in self.log.places[path] if at < position]
            # The batch before the damage ends at the damaged byte, or holds it.
            if holding and _end_of(self.log.files[path], self.log.places[path], holding[-1]) > position:
                later.insert(0, holding[-1])
            end = min([end, *later[:1]])
        return end


def _settled_points(files: Files) -> Settled:
    main, twin = (files.get(f"{each}/{RECOVERY_POINTS_FILE}") for each in (DATA, f"{DATA}/{OWN_DIRECTORY}"))
    return settle(main, twin, path=RECOVERY_POINTS_FILE)


def _end_of(data: bytes, places: list[tuple[int, int]], base: int) -> int:
    (position,) = (at for at, each in places if each == base)
    return position + read_header(data, position).size_bytes


def make_image(log: DamagedLater, chosen: Sequence[Damage]) -> Image:
    """The files with these damages, and where the log's own files differ."""
    files = dict(log.files)
    for damage in chosen:
        damage.apply(files)
    damaged = {}
    for path in log.places:
        before, after = log.files[path], files.get(path, b"")
        if path not in files or before != after:
            same = (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
            damaged[path] = next(same, min(len(before), len(after))) if path in files else 0
    return Image(" and ".join(damage.what for damage in chosen), files, log, damaged)


async def judge(image: Image, *, is_started_again: bool) -> None:
    """Open the image and hold it against the law. Raises LawBroken, or what the start raised."""
    disk = _disk_of(image.files)
    log, found = await _open_and_read(disk, image)
    _judge_what_is_there(image, log, found)
    if not is_started_again:
        return
    again, found_again = await _open_and_read(disk, image)
    _judge_what_is_there(image, again, found_again)
    if not image.damaged and (again.log_start_offset, again.log_end_offset, found_again) != (
        log.log_start_offset,
        log.log_end_offset,
        found,
    ):
        raise LawBroken(f"a second start finds {again.log_start_offset} to {again.log_end_offset} instead")
    base = append(again, epoch=max(again.latest_epoch, 0))
    flush(again)
    if take(again.read(base, bytes_max=1 << 20, end=again.log_end_offset, at_least_one_batch=True)) == b"":
        raise LawBroken(f"what was appended at {base} cannot be read")


def _disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(LOG)
    for path, data in files.items():
        inode = disk.names[path] = Inode()
        inode.content += data
        inode.durable = data
    disk.durable_names = dict(disk.names)
    return disk


async def _open_and_read(disk: MemoryDisk, image: Image) -> tuple[UnifiedLog, dict[int, bytes]]:
    """The log, and by base offset what was read of it: batches as they were written."""
    manager = _manager(disk, image.log.config)
    await manager.load()
    log = manager.get(ORDERS)
    if log is None:
        raise LawBroken("the log is not there")
    if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
        raise LawBroken(f"start {log.log_start_offset}, high watermark {log.high_watermark}, end {log.log_end_offset}")
    found: dict[int, bytes] = {}
    for base in sorted({log.log_start_offset, *(base for base in image.log.batches if base >= log.log_start_offset)}):
        if base < log.log_end_offset and base not in found:
            _read_on(log, base, image, found)
    return log, found


def _read_on(log: UnifiedLog, offset: int, image: Image, found: dict[int, bytes]) -> None:
    """Read from an offset until something damaged is met, or what is known already."""
    while offset < log.log_end_offset and offset not in found:
        try:
            read = log.read(Offset(offset), bytes_max=1 << 20, end=log.log_end_offset, at_least_one_batch=True)
        except CorruptBatch as error:
            if not image.damaged and not image.may_be_torn(offset):
                raise LawBroken(f"reading at {offset} raised {error!r}") from error
            return
        if not read.parts:
            if not image.damaged:
                raise LawBroken(f"nothing is read at {offset}, before the end {log.log_end_offset}")
            return
        (part,) = read.parts
        path, start = part.file.path, part.position
        data = take(read)
        at = 0
        while at < len(data):
            base = int.from_bytes(data[at : at + 8], "big")
            known = image.log.batches.get(base)
            if known is None or data[at : at + len(known.data)] != known.data:
                _judge_damaged_batch(image, path, start + at, data[at:])
                return
            found[base] = known.data
            at += len(known.data)
        offset = read.next_offset


def _judge_damaged_batch(image: Image, path: str, position: int, data: bytes) -> None:
    first_damaged = image.damaged.get(path, -1)
    if first_damaged < 0 or position < image.batch_start(path):
        raise LawBroken(f"what is read at byte {position} of {path} was not written")
    with suppress(CorruptBatch):
        header = read_header(data)
        before = image.log.files[path][position : position + CRC_START]
        if crc_is_valid(data, 0, header) and before == data[:CRC_START]:
            raise LawBroken(f"a sound batch at byte {position} of {path} that was not written")


def _judge_what_is_there(image: Image, log: UnifiedLog, found: dict[int, bytes]) -> None:
    sure_end, recovery_point = image.sure_end, image.recovery_point
    for base, batch in image.log.batches.items():
        if image.log.start_offset < batch.next_offset <= sure_end and base not in found:
            raise LawBroken(f"the batch at {base} was synced, and lies before the damage: it is gone")
        is_kept = image.log.start_offset < batch.next_offset <= recovery_point
        if is_kept and not image.is_in_damaged_file(base) and base not in found:
            raise LawBroken(f"the batch at {base}, below the recovery point and in a file without damage, is gone")
    if log.log_start_offset > image.log.start_offset and not image.damaged:
        raise LawBroken(f"the log starts at {log.log_start_offset}, not at {image.log.start_offset}")
    # Below the start that was written down nothing is owed, also where that file is lost and some is there again.
    start = max(log.log_start_offset, image.log.start_offset)
    epochs: list[tuple[int, int]] = []
    producers = ProducerState()
    expected = log.log_start_offset
    for base, data in sorted(found.items()):
        header = read_header(data)
        if header.next_offset <= expected:
            continue
        if any(expected < each.next_offset and each.base_offset < base for each in image.log.batches.values()):
            return  # a hole where the damage is
        note_producer(producers, header, data)
        if not epochs or header.partition_leader_epoch > epochs[-1][0]:
            epochs.append((header.partition_leader_epoch, base))
        expected = header.next_offset
    if expected != log.log_end_offset:
        if image.damaged or image.may_be_torn(expected):
            return
        raise LawBroken(f"read up to {expected}, but the log ends at {log.log_end_offset}")
    if not image.damaged and (shown := _shown_though_aborted(log, found, image.log.aborted)):
        raise LawBroken(f"a reader of committed records is shown the aborted batches at {shown}")
    known = _at_batches(_from(start, log.leader_epochs.entries), found)
    epochs_file = f"{LOG}/{LEADER_EPOCHS_FILE}"
    is_epoch_lost = bool(image.damaged) and image.files.get(epochs_file) != image.log.files.get(epochs_file)
    said = _at_batches(_from(start, epochs), found)
    if epochs and not is_epoch_lost and known != said:
        raise LawBroken(f"leader epochs are {known}, the batches say {said}")
    remembered = {each.producer_id: each.last for each in log.producers if each.last.last_offset >= start}
    written = {each.producer_id: each.last for each in producers if each.last.last_offset >= start}
    is_snapshot_lost = any(
        image.files.get(path) != data for path, data in image.log.files.items() if path.endswith(".snapshot")
    )
    is_unknowable = bool(image.damaged) and (is_snapshot_lost or log.tail.is_in_doubt)
    if remembered != written and not is_unknowable:
        raise LawBroken(f"producers are {remembered}, the batches say {written}")


def _shown_though_aborted(log: UnifiedLog, found: Mapping[int, bytes], aborted: Mapping[int, int]) -> list[int]:
    """What a reader of committed records differs in from what was written: base offsets that it is shown, or not, wrongly."""
    begun = sorted(log.aborted.within(log.log_start_offset, log.log_end_offset), key=lambda each: each.first_offset)
    dropped: dict[int, int] = {}
    wrong: list[int] = []
    for base, data in sorted(found.items()):
        header = read_header(data)
        while begun and begun[0].first_offset <= header.last_offset:
            each = begun.pop(0)
            dropped[each.producer_id] = each.last_offset
        if header.is_control:
            dropped.pop(header.producer_id, None)
        elif header.next_offset > log.log_start_offset:
            is_dropped = header.is_transactional and header.producer_id in dropped
            if is_dropped != (aborted.get(base) in found):
                wrong.append(base)
    return wrong


def _from(start: int, epochs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The epochs of what lies at `start` and behind it."""
    pairs = list(epochs)
    covering = [pair for pair in pairs if pair[1] <= start][-1:]
    return [(epoch, start) for epoch, _ in covering] + [pair for pair in pairs if pair[1] > start]


def _at_batches(epochs: Iterable[tuple[int, int]], found: Mapping[int, bytes]) -> list[tuple[int, int]]:
    """The epochs, each from the first batch that is not before its start: one may begin where batches are missing."""
    ends = [(base, read_header(data).next_offset) for base, data in sorted(found.items())]
    return [(epoch, next((base for base, end in ends if end > start), start)) for epoch, start in epochs]


# -- the run ---------------------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """An image that broke the law."""

    line: str
    what: str
    error: BaseException


async def run_seed(seed: int, *, images_max: int, only: int | None = None) -> tuple[int, list[Failure]]:
    """Judge the images of one seed, or as many of them, drawn; how many there were, and which broke the law."""
    log = await _Author(seed).write()
    singles = damages(log, Random(seed))
    numbers: Sequence[int] = range(2 * len(singles))
    if only is not None:
        numbers = (only,)
    elif images_max < len(numbers):
        numbers = sorted(Random(seed).sample(numbers, images_max))
    failures = []
    for number in numbers:
        draw = Random(f"{seed} {number}")
        chosen = [singles[number]] if number < len(singles) else draw.sample(singles, 2)
        image = make_image(log, chosen)
        try:
            await judge(image, is_started_again=draw.random() < AGAIN_SHARE)
        except Exception as error:  # whatever the start raises breaks the law
            line = f"python -m tests.log.recovery_fuzz --seed {seed} --image {number}"
            failures.append(Failure(line, image.what, error))
    return len(numbers), failures


def main() -> int:
    """Judge images of as many seeds as it takes; 1 if any broke the law, with the line that replays it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--image", type=int, help="judge this one of the seed alone")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun = time.monotonic()
    done, seed, failures = 0, options.seed, list[Failure]()
    while done < options.images and len(failures) < FAILURES_MAX:
        count, found = asyncio.run(run_seed(seed, images_max=options.images - done, only=options.image))
        done += count
        failures += found
        seed += 1
        if options.image is not None:
            break
    kinds = {re.sub(r"[\d(].*|bytes.*", "", str(failure.error)): failure for failure in reversed(failures)}
    for failure in kinds.values():
        print(f"{failure.line}   # {failure.what}: {failure.error!r}", file=sys.stderr)
    if options.image is not None:
        for failure in failures:
            traceback.print_exception(failure.error)
    took_s = time.monotonic() - begun
    print(
        f"{done} images of seeds {options.seed} to {seed - 1} in {took_s:.0f} s ({done / took_s:.0f}/s): "
        f"{len(failures)} broke the law"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
