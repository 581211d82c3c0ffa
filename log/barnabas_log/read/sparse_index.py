"""Sorted pairs of integers in a file of fixed-size entries: what offset and time index share.

May touch:  the Disk it is given.     Must not touch: what the pairs mean, clocks.
Invariants: both columns rise from entry to entry; memory (while loaded) is the file plus the entries not yet written.
Read next:  offset_index.py and time_index.py, which say the two formats.

Loaded while its segment is the active one: appends go to memory, `write_out` appends what is new to the file, a crash
loses nothing that recovery does not rebuild. Unloaded afterwards, so an old segment costs no memory: a look-up reads whole
pages, and the first few where the value is to be expected, for entries come at about equal steps. A fetch of old records
does this on the event loop, perhaps from a cold disk: it is 2 or 3 pages of the 512 of a segment of 1 GiB where a binary
search took 18 small reads of 10 pages, and never more than PAGE_READS_MAX.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from copy import copy
from typing import Self

from barnabas_log.disk import Disk, File
from barnabas_log.errors import CorruptCheckpoint

_PAGE_BYTES = 4096
_GUESSES = 4
"""Pages read where the value is to be expected, before halving what is left: entries at very unequal steps need that."""
PAGE_READS_MAX = _GUESSES + 14
"""The most pages that one look-up reads in an index of 32 MiB; 1 more for each doubling."""


class SparseIndex:
    """One index file. Column 0 and column 1 are the two integers of an entry."""

    __slots__ = (
        "_count",
        "_disk",
        "_file",
        "_first",
        "_greatest",
        "_is_loaded",
        "_is_own",
        "_layout",
        "_second",
        "_written",
        "entries_max",
        "path",
    )

    def __init__(self, disk: Disk, path: str, layout: struct.Struct, *, entries_max: int) -> None:
        self.path = path
        self.entries_max = entries_max
        self._disk = disk
        self._layout = layout
        self._file: File | None = None
        self._first = array("q")
        self._second = array("q")
        self._is_loaded = False
        self._is_own = False
        self._written = 0
        self._count = -1
        self._greatest: tuple[int, int] | None = None
        """The newest entry, once it was asked for of an index that is not loaded."""

    def create(self) -> None:
        """Start empty and loaded; a file left by an earlier process is emptied."""
        self._is_loaded = self._is_own = True
        self._first, self._second = array("q"), array("q")
        self._written = 0
        self._open(create=True).truncate(0)

    def load(self) -> None:
        """Read all entries into memory. Raises FileNotFoundError; CorruptCheckpoint if the file cannot be an index."""
        file = self._open(create=False)
        if file.size_bytes % self._layout.size:
            raise CorruptCheckpoint(f"{self.path} has {file.size_bytes} bytes, no multiple of {self._layout.size}")
        first, second = array("q"), array("q")
        for a, b in self._layout.iter_unpack(file.read(0, file.size_bytes)):
            if (first and (a <= first[-1] or b < second[-1])) or b < 0:
                raise CorruptCheckpoint(f"{self.path} does not rise at entry {len(first)}")
            first.append(a)
            second.append(b)
        self._first, self._second = first, second
        self._written = len(first)
        self._is_loaded, self._is_own = True, False

    def unload(self) -> None:
        """Write what is new and keep nothing in memory: the segment will not grow again."""
        if self._is_loaded:
            self.write_out()
            self._count = self._written
            self._greatest = None
            self._first, self._second = array("q"), array("q")
            self._is_loaded = self._is_own = False

    @property
    def is_own(self) -> bool:
        """Whether its entries are those that were added since it was made: none was read from a disk."""
        return self._is_own

    def __len__(self) -> int:
        if self._is_loaded:
            return len(self._first)
        if self._count < 0:
            self._count = self._open(create=False).size_bytes // self._layout.size
        return self._count

    @property
    def is_whole(self) -> bool:
        """Whether the file ends with a whole entry. Raises FileNotFoundError."""
        return self._open(create=False).size_bytes % self._layout.size == 0

    @property
    def room(self) -> int:
        """How many further entries fit under segment.index.bytes."""
        return self.entries_max - (len(self._first) if self._is_loaded else len(self))

    def append(self, first: int, second: int) -> None:
        """Add an entry; the caller keeps both columns rising."""
        self._first.append(first)
        self._second.append(second)

    def entry(self, number: int) -> tuple[int, int]:
        """Entry by number, 0 the oldest."""
        if self._is_loaded:
            return self._first[number], self._second[number]
        size = self._layout.size
        a, b = self._layout.unpack(self._open(create=False).read(number * size, size))
        return a, b

    def last(self) -> tuple[int, int] | None:
        """The newest entry."""
        if self._is_loaded:  # asked for once per indexed batch
            return (self._first[-1], self._second[-1]) if self._first else None
        if self._greatest is None and len(self):
            self._greatest = self.entry(len(self) - 1)
        return self._greatest

    def floor(self, value: int, *, column: int) -> tuple[int, int] | None:
        """The last entry whose column is at most `value`; None if every one is greater."""
        if self._is_loaded:
            number = bisect_right(self._second if column else self._first, value) - 1
            return (self._first[number], self._second[number]) if number >= 0 else None
        last = self.last()
        if last is None or last[column] <= value:
            return last
        return self._floor_in_file(value, column, last[column])

    def _floor_in_file(self, value: int, column: int, greatest: int) -> tuple[int, int] | None:
        """As floor, of a file whose last entry has `greatest`, which is more than `value`."""
        file, unpack, size = self._open(create=False), self._layout.unpack_from, self._layout.size
        per_page = _PAGE_BYTES // size
        # The entry is in the pages from `low` to below `high`, or it is `found`, the last one before `low`.
        low, high = 0, -(-len(self) // per_page)
        below, above = 0, greatest
        found: tuple[int, int] | None = None
        guesses = _GUESSES
        while low < high:
            if guesses and below < value < above:
                page = low + (high - low) * (value - below) // (above - below)
                guesses -= 1
            else:
                page = (low + high) // 2
            data = file.read(page * per_page * size, per_page * size)
            if value < unpack(data)[column]:
                high, above = page, unpack(data)[column]
                continue
            start, stop = 1, len(data) // size
            while start < stop:
                middle = (start + stop) // 2
                if unpack(data, middle * size)[column] <= value:
                    start = middle + 1
                else:
                    stop = middle
            a, b = unpack(data, (start - 1) * size)
            found = (a, b)
            if start < len(data) // size:
                return found
            low, below = page + 1, found[column]
        return found

    def truncate_from(self, value: int, *, column: int) -> None:
        """Drop every entry whose column is `value` or greater. Only while loaded."""
        assert self._is_loaded, f"{self.path} is not the index of an active segment"
        keep = bisect_left(self._second if column else self._first, value)
        del self._first[keep:], self._second[keep:]
        if keep < self._written:
            self._open(create=True).truncate(keep * self._layout.size)
            self._written = keep

    def write_out(self) -> None:
        """Append the entries that the file does not hold yet; durable after the next flush of `file`."""
        if self._is_loaded and self._written < len(self._first):
            pack = self._layout.pack
            new = b"".join(map(pack, self._first[self._written :], self._second[self._written :]))
            file = self._open(create=True)
            try:
                file.append([new])
            except OSError:
                file.truncate(self._written * self._layout.size)  # a disk that ran full may have taken a part
                raise
            self._written = len(self._first)

    @property
    def file(self) -> File:
        """The open file, for a flush."""
        return self._open(create=True)

    def freeze(self) -> Self:
        """A copy for look-ups in a thread: of what is in memory, or a separate reader of the file."""
        frozen = copy(self)
        frozen._first, frozen._second = self._first[:], self._second[:]
        frozen._file = None
        return frozen

    def rest(self) -> None:
        """Keep the file, but no descriptor of it until it is used."""
        if self._file is not None:
            self._file.rest()

    def close(self) -> None:
        """Let go of the file; entries not written out are lost."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def reload(self) -> None:
        """Another file has taken the place of ours; only while not loaded."""
        assert not self._is_loaded, f"{self.path} is the index of an active segment"
        self.close()
        self._count = -1
        self._greatest = None

    def _open(self, *, create: bool) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=create)
        return self._file
