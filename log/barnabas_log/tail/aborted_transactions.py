"""Which transactions of one log were aborted: the entries of its .txnindex files, all in memory.

May touch:  the Disk it is given.      Must not touch: clocks, segments, other logs.
Invariants: entries rise by the offset of their marker; each is in the file of the segment that has the marker, from
            before the flush that makes the marker durable; what the files lack after a crash, a replay of the log gives
            again; a file that is not what was written is not believed.
Read next:  producer_state.py, which says when a transaction ends; unified_log.py; aborted_proof.py, which makes files again.

Layout of <base>.txnindex, Kafka's (big-endian), one entry of 34 bytes for each aborted transaction whose marker is in the segment:
    0   2 version = 0
    2   8 producer id
    10  8 offset of its first record
    18  8 offset of its marker
    26  8 last stable offset when the marker was appended
A file is made with its first entry. A crash may leave a part of an entry, or entries of a tail that was cut: both are dropped.

Kafka's format has no checksum, and no file means that nothing was aborted. So where a segment is sealed or the log closed, a note
(segment_note.py) goes beside a file with entries, <base>.txncheck: the number of entries, and the CRC-32C of the file. Where file and
note contradict each other (one is damaged, the file is gone, or a former version went on without the note) the entries are made
again from the segment. A file without a note, of a former version, is believed until the scrub has compared it.

A reader of committed records drops what a producer wrote from the first offset of an entry on, until it meets the marker. So an entry
may not outlive its marker: where compaction has removed one, its entry goes with it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from barnabas_log.disk import Disk, File
from barnabas_log.recovery.segment_note import decode_note, encode_note
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.crc32c import crc32c

TXN_INDEX_SUFFIX: Final = ".txnindex"
TXN_CHECK_SUFFIX: Final = ".txncheck"
_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_last_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
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
        self.unsound: list[Offset] = []
        """After `load`: bases of segments whose files are not what was written."""
        self.unproved: set[Offset] = set()
        """Bases of segments whose file has no note: the scrub compares it with the segment."""

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
        """What the files of those segments say, `bases` rising, of a log that ends at `end_offset`. Raises OSError.

        Of a file that is not what was written the sound beginning is taken; the caller has to make it again, see `unsound`. The last
        one's rest is cut: the next entry would not be found behind it.
        """
        found = cls(disk, directory)
        names = set(disk.list_directory(directory))
        for number, base in enumerate(bases):
            content, note = (
                disk.read_file(f"{directory}/{name}") if name in names else None
                for name in (f"{base:020d}{TXN_INDEX_SUFFIX}", f"{base:020d}{TXN_CHECK_SUFFIX}")
            )
            if content is None and note is None:
                continue
            end = bases[number + 1] if number + 1 < len(bases) else end_offset
            entries = _sound(content or b"", base, end)
            found._entries += entries
            if note is not None:
                is_sound = decode_note(note) == _numbers(content or b"")
            else:
                is_sound = bool(entries) and len(content or b"") == len(entries) * _ENTRY.size
                found.unproved.add(base)
            if not is_sound:
                found.unsound.append(base)
            if base == bases[-1] and content is not None and len(content) > len(entries) * _ENTRY.size:
                file = disk.open(found._path(base))
                try:
                    file.truncate(len(entries) * _ENTRY.size)
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

    def write_note(self, base: Offset, end: Offset) -> File | None:
        """Write the note of the segment from base to end, which takes no more; returns the file, to be flushed and closed. None where
        nothing of it was aborted: then there is no note. A crash may tear it: its CRC shows it. Raises OSError."""
        content = self._content(base, end)
        self.unproved.discard(base)
        path = self._path(base, TXN_CHECK_SUFFIX)
        if not content:
            if self._disk.exists(path):  # of what was cut off
                self._disk.remove(path)
            return None
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append([encode_check(content)])
        except OSError:
            file.close()
            self._disk.remove(path)
            raise
        return file

    def files_of(self, base: Offset, end: Offset) -> dict[str, bytes]:
        """By path what the files of the sealed segment from base to end must be; empty where there must be none."""
        content = self._content(base, end)
        note = encode_check(content) if content else b""
        return {self._path(base): content, self._path(base, TXN_CHECK_SUFFIX): note}

    def remake(self, base: Offset, end: Offset, entries: Iterable[AbortedTransaction]) -> None:
        """The segment from base to end, read again, has these. Writes its files, durably, or removes them. Blocks;
        raises OSError."""
        self.replace(base, end, entries)
        write_files(self._disk, self.files_of(base, end))

    def within(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """Those that a reader from `start` to `end` must know: their markers are not below start, they began below end."""
        found = []
        for at in range(bisect_left(self._entries, start, key=_last_offset), len(self._entries)):
            entry = self._entries[at]
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
        self.unproved = {base for base in self.unproved if not start <= base < end}

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
            if number + 1 < len(bases) and (note := self.write_note(base, end)) is not None:
                note.sync()
                note.close()

    def _content(self, base: Offset, end: Offset) -> bytes:
        first, stop = (bisect_left(self._entries, each, key=_last_offset) for each in (base, end))
        return b"".join(map(encode, self._entries[first:stop]))

    def _path(self, base: Offset, suffix: str = TXN_INDEX_SUFFIX) -> str:
        return f"{self._directory}/{base:020d}{suffix}"


def encode(entry: AbortedTransaction) -> bytes:
    """An entry of the file."""
    return _ENTRY.pack(_VERSION, *entry)


def write_files(disk: Disk, contents: Mapping[str, bytes]) -> None:
    """Make these small files durable, each atomically; an empty one is removed. Blocks; raises OSError."""
    for path, content in differing(disk, contents).items():
        if content:
            disk.write_file_atomically(path, content)
        elif disk.exists(path):
            disk.remove(path)


def differing(disk: Disk, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those of the files that are not so on the disk. Blocks; raises OSError."""
    return {
        path: content
        for path, content in contents.items()
        if content != (disk.read_file(path) if disk.exists(path) else b"")
    }


def encode_check(content: bytes) -> bytes:
    """The note beside a file with that content."""
    return encode_note(_numbers(content))


def _numbers(content: bytes) -> tuple[int, int]:
    return len(content) // _ENTRY.size, crc32c(content)


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
