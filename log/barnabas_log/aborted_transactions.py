"""Which transactions of one log were aborted: the entries of its .txnindex files, all in memory.

May touch:  the Disk it is given.      Must not touch: clocks, segments, other logs.
Invariants: entries rise by the offset of their marker; each stands in the file of the segment that has the marker, from before the
            flush that makes the marker durable; what the files lack after a crash, a replay of the log gives again.
Read next:  producer_state.py, which says when a transaction ends; unified_log.py.

Layout of <base>.txnindex, Kafka's (big-endian), one entry of 34 bytes for each aborted transaction whose marker is in the segment:
    0   2 version = 0
    2   8 producer id
    10  8 offset of its first record
    18  8 offset of its marker
    26  8 last stable offset when the marker was appended
A file is made with its first entry. A crash may leave a part of an entry, or entries of a tail that was cut: both are dropped.

A reader of committed records drops what a producer wrote from the first offset of an entry on, until it meets the marker. So an entry
may not outlive its marker: where compaction has removed one, its entry goes with it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from barnabas_log.disk import Disk, File
from barnabas_wire.kafka.ids import Offset

TXN_INDEX_SUFFIX: Final = ".txnindex"
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_last_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int = 0
    """When the marker was appended. A search ends at an entry whose last stable offset is not below its own end."""


class AbortedTransactions:
    """The aborted transactions of one log. One owner; the blocking steps are short."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._entries: list[AbortedTransaction] = []
        self._unwritten: list[tuple[Offset, AbortedTransaction]] = []
        """Those that no file has yet, with the base of their segment."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def has_unwritten(self) -> bool:
        """Whether `write` has something to do."""
        return bool(self._unwritten)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._entries)

    @classmethod
    def load(cls, disk: Disk, directory: str, bases: Sequence[Offset], *, end_offset: Offset) -> AbortedTransactions:
        """What the files of those segments say, `bases` rising, of a log that ends at `end_offset`.

        What a file has behind its last sound entry is cut: the next entry would not be found behind it. Raises OSError.
        """
        found = cls(disk, directory)
        for number, base in enumerate(bases):
            path = found._path(base)
            if not disk.exists(path):
                continue
            end = bases[number + 1] if number + 1 < len(bases) else end_offset
            content = disk.read_file(path)
            sound = _sound(content, base, end)
            found._entries += sound
            if len(content) > len(sound) * _ENTRY.size:
                file = disk.open(path)
                try:
                    file.truncate(len(sound) * _ENTRY.size)
                    file.sync()
                finally:
                    file.close()
        return found

    def add(self, entry: AbortedTransaction, segment_base: Offset) -> None:
        """Note one whose marker is in the newest segment."""
        self._entries.append(entry)
        self._unwritten.append((segment_base, entry))

    def write(self) -> Iterator[File]:
        """Write what no file has; gives the files, to be flushed and closed. Raises OSError: the rest is written next time."""
        while self._unwritten:
            base, entry = self._unwritten[0]
            file = self._disk.open(self._path(base), create=True)
            try:
                file.append([encode(entry)])
            except OSError:
                file.close()
                raise
            del self._unwritten[0]
            yield file

    def within(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """Those that a reader from `start` to `end` must know: their markers are not below start, they began below end."""
        found = []
        for entry in self._entries[bisect_left(self._entries, start, key=_last_offset) :]:
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break
        return found

    def truncate_to(self, offset: Offset, segment_base: Offset) -> File | None:
        """Drop those whose marker is cut off; returns the newest segment's file where it was cut. Raises OSError."""
        kept = bisect_left(self._entries, offset, key=_last_offset)
        if kept == len(self._entries):
            return None
        del self._entries[kept:]
        self._unwritten = [each for each in self._unwritten if each[1].last_offset < offset]
        path = self._path(segment_base)
        if not self._disk.exists(path):
            return None
        file = self._disk.open(path)
        in_segment = kept - bisect_left(self._entries, segment_base, key=_last_offset)
        written = in_segment - sum(base == segment_base for base, _ in self._unwritten)
        file.truncate(written * _ENTRY.size)
        return file

    def forget_before(self, offset: Offset) -> None:
        """The segments below `offset` are gone, and their files with them."""
        if self._entries:
            del self._entries[: bisect_left(self._entries, offset, key=_last_offset)]
            self._unwritten = [each for each in self._unwritten if each[1].last_offset >= offset]

    def replace(self, start: Offset, end: Offset, entries: Iterable[AbortedTransaction]) -> None:
        """Segments from start to end were replaced, and their files: these are left of them."""
        first, stop = (bisect_left(self._entries, each, key=_last_offset) for each in (start, end))
        self._entries[first:stop] = sorted(entries, key=_last_offset)

    def correct(self, start: Offset, found: Iterable[AbortedTransaction], bases: Sequence[Offset]) -> None:
        """A replay from `start` on found these: they replace what the files say from there on. Blocks; raises OSError."""
        before = list(self._entries)
        self.replace(start, Offset(1 << 62), found)
        if self._entries == before:
            return
        self._unwritten.clear()
        for number, base in enumerate(bases):
            end = bases[number + 1] if number + 1 < len(bases) else Offset(1 << 62)
            if end <= start:
                continue
            first, stop = (bisect_left(self._entries, each, key=_last_offset) for each in (base, end))
            path = self._path(base)
            if first == stop and not self._disk.exists(path):
                continue
            file = self._disk.open(path, create=True)
            try:
                file.truncate(0)
                file.append([b"".join(map(encode, self._entries[first:stop]))])
                file.sync()
            finally:
                file.close()

    def _path(self, base: Offset) -> str:
        return f"{self._directory}/{base:020d}{TXN_INDEX_SUFFIX}"


def encode(entry: AbortedTransaction) -> bytes:
    """An entry of the file."""
    return _ENTRY.pack(_VERSION, *entry)


def _sound(content: bytes, base: Offset, end: Offset) -> list[AbortedTransaction]:
    entries: list[AbortedTransaction] = []
    whole = len(content) - len(content) % _ENTRY.size
    for version, *fields in _ENTRY.iter_unpack(content[:whole]):
        entry = AbortedTransaction(*fields)
        after = entries[-1].last_offset if entries else base - 1
        if version != _VERSION or not (after < entry.last_offset < end and entry.first_offset <= entry.last_offset):
            break
        entries.append(entry)
    return entries
