"""The snapshots of the metadata log as files, beside its segments, named and handled as Kafka does.

May touch:  the Disk.                 Must not touch: the log, what a snapshot holds (but for the proof that it is whole).
Invariants: a name that ends in .checkpoint is a whole snapshot, durable; it never changes; a snapshot is gone only after
            a later one is durable; every flush and every rename is a separate step, so that a crash can fall between.
Read next:  metadata_log.py, which says when.

Files, all in `<metadata directory>/__cluster_metadata-0/`:
    <end offset %020d>-<epoch %010d>.checkpoint            whole: frozen by flush of the file, rename, flush of the directory
    <end offset %020d>-<epoch %010d>.checkpoint.part       being written or downloaded; opening removes what a crash left
    <end offset %020d>-<epoch %010d>.checkpoint.deleted    about to go; opening removes it
    00000000000000000000-0000000000.checkpoint             the first voters, from format; no snapshot, never sent, never removed
The end offset is exclusive; the epoch is that of the record before it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from barnabas_log.disk import Disk, File
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot, SnapshotHead, prove_snapshot
from barnabas_quorum.raft.messages import SnapshotId
from barnabas_quorum.raft.snapshots import SnapshotFile
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import HEADER_BYTES, CorruptBatch, read_header

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
DELETED_SUFFIX = ".deleted"
BOOTSTRAP_ID = SnapshotId(Offset(0), Epoch(0))
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def checkpoint_name(snapshot_id: SnapshotId) -> str:
    """The file's name."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_checkpoint_name(name: str) -> SnapshotId | None:
    """The id in a whole snapshot's file name; None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else SnapshotId(Offset(int(found[1])), Epoch(int(found[2])))


class SnapshotFiles:
    """The snapshots of one directory. Get one with `open`."""

    def __init__(self, disk: Disk, directory: str, ids: list[SnapshotId]) -> None:
        self._disk = disk
        self._directory = directory
        self._parts: dict[SnapshotId, File] = {}
        self._doomed: list[str] = []
        self._files: dict[SnapshotId, SnapshotFile] = {}
        self.ids = ids
        """Ascending, without the bootstrap checkpoint."""

    @classmethod
    def open(cls, disk: Disk, directory: str) -> SnapshotFiles:
        """Find the snapshots; remove what a crash left of others. Blocks."""
        ids: list[SnapshotId] = []
        for name in disk.list_directory(directory):
            found = parse_checkpoint_name(name)
            if found is not None:
                if found != BOOTSTRAP_ID:
                    ids.append(found)
            elif CHECKPOINT_SUFFIX + "." in name:
                disk.remove(f"{directory}/{name}")
        return cls(disk, directory, sorted(ids))

    def path(self, snapshot_id: SnapshotId) -> str:
        """Where the whole snapshot lies."""
        return f"{self._directory}/{checkpoint_name(snapshot_id)}"

    def prove(self, snapshot_id: SnapshotId) -> SnapshotHead:
        """Read and check all of a whole snapshot. Blocks. Raises DamagedSnapshot, OSError."""
        return self._prove(self.path(snapshot_id), snapshot_id)

    def read(self, snapshot_id: SnapshotId, position: int, bytes_max: int) -> tuple[int, bytes]:
        """(size of the whole snapshot, bytes at `position`). Raises FileNotFoundError when there is none of that id."""
        file = self._disk.open(self.path(snapshot_id))
        try:
            return file.size_bytes, file.read(position, bytes_max)
        finally:
            file.close()

    def files(self) -> list[SnapshotFile]:
        """The whole snapshots with their sizes and ages: the time of the last record in each (as Kafka counts)."""
        return [self._file(each) for each in self.ids]

    def _file(self, snapshot_id: SnapshotId) -> SnapshotFile:
        found = self._files.get(snapshot_id)
        if found is None:
            try:
                size_bytes, header = self.read(snapshot_id, 0, HEADER_BYTES)
                found = SnapshotFile(snapshot_id, size_bytes, read_header(header).max_timestamp_ms)
            except (FileNotFoundError, CorruptBatch):
                found = SnapshotFile(snapshot_id, 0, 0)  # gone, or cut: of no use, so the first to go
            self._files[snapshot_id] = found
        return found

    def write_part(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """Write bytes of an unfinished snapshot; what it held from `position` on goes. Into the page cache only."""
        file = self._parts.get(snapshot_id)
        if file is None:
            file = self._parts[snapshot_id] = self._disk.open(self.path(snapshot_id) + PART_SUFFIX, create=True)
            file.truncate(0)
        assert position <= file.size_bytes, f"a gap at byte {file.size_bytes} of {file.path}, before {position}"
        if position < file.size_bytes:
            file.truncate(position)
        file.append([data])

    def drop_part(self, snapshot_id: SnapshotId) -> None:
        """Give up an unfinished snapshot."""
        file = self._parts.pop(snapshot_id, None)
        if file is not None:
            file.close()
            self._disk.remove(file.path)

    async def freeze(self, snapshot_id: SnapshotId) -> SnapshotHead:
        """Make the part whole: proved, flushed, renamed, its name flushed. Raises DamagedSnapshot (the part is gone then)."""
        file = self._parts[snapshot_id]
        try:
            head = await self._disk.run(self._prove, file.path, snapshot_id)
        except DamagedSnapshot:
            self.drop_part(snapshot_id)
            raise
        await self._disk.flush([file])
        self._disk.rename(file.path, self.path(snapshot_id))
        await self.flush_directory()
        del self._parts[snapshot_id]
        file.close()
        if snapshot_id not in self.ids:
            self.ids = sorted([*self.ids, snapshot_id])
        proved: SnapshotHead = head
        return proved

    async def retire(self, ids: Sequence[SnapshotId]) -> None:
        """Take snapshots out of the listing; `remove_retired` unlinks them. Whoever reads one has its file open."""
        self.ids = [each for each in self.ids if each not in ids]
        for each in ids:
            self._files.pop(each, None)
            doomed = self.path(each) + DELETED_SUFFIX
            with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
                self._disk.rename(self.path(each), doomed)
                self._doomed.append(doomed)
        if ids:
            await self.flush_directory()

    def remove_retired(self) -> None:
        """Unlink what was retired before. Blocks."""
        doomed, self._doomed = self._doomed, []
        for path in doomed:
            self._disk.remove(path)

    def close(self) -> None:
        """Give up unfinished snapshots and let go of their files."""
        for snapshot_id in list(self._parts):
            self.drop_part(snapshot_id)

    def _prove(self, path: str, snapshot_id: SnapshotId) -> SnapshotHead:
        file = self._disk.open(path)
        try:
            return prove_snapshot(file.read, name=self.path(snapshot_id), end_offset=snapshot_id.end_offset)
        finally:
            file.close()

    async def flush_directory(self) -> None:
        """Make every name in the directory durable, of snapshots and segments."""
        directory = self._disk.directory(self._directory)
        try:
            await self._disk.flush([directory])
        finally:
            directory.close()
