"""Snapshots beside the control loop: written slice by slice when one is due, proved when others load them, and what is in one.

May touch:  asyncio, the RaftLog.     Must not touch: the core (the node informs it), what a record means.
Invariants: a snapshot holds committed records only, never half a metadata transaction, and is frozen only when the log
            below its end is durable here; the loop is never held for longer than one slice.
Read next:  snapshot_content.py, the bytes; node.py, which informs the core when one is frozen and cleans the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.snapshot_content import DamagedSnapshot, SnapshotRecords, snapshot_batches
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.messages import SnapshotId
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

SLICE_PAUSE_S = 0.002
"""Between two slices. A slice of 200 records takes about 5 ms, so a snapshot leaves others two sevenths of a core."""
FLUSH_POLL_S = 0.005
"""How often it is looked whether the log below a finished snapshot is durable; it nearly always is."""
PROOF_PAUSE_S = 10.0
"""Between two proofs of snapshots that others download."""
TRANSACTION_POLL_S = 0.05
"""How often it is looked whether an open metadata transaction, in which no snapshot may be taken, has ended."""


class SnapshotSource(NamedTuple):
    """An image to be written, as the listener has it now. It must not change while it is written."""

    last_offset: Offset
    """The offset of the last record in it, which ends its batch."""
    epoch: Epoch
    """The epoch of that record."""
    timestamp_ms: int
    """When that record was appended."""
    groups: Iterator[Sequence[bytes]]
    """The encoded records, lazily: making a group costs a few milliseconds at most."""


class LoadedSnapshot:
    """A snapshot on this disk, as its listener reads it."""

    def __init__(self, log: RaftLog, snapshot_id: SnapshotId, *, is_only: bool = False) -> None:
        """`is_only`: there is no older one to take instead."""
        self.id = snapshot_id
        self.end_offset: Offset = snapshot_id.end_offset
        self.epoch: Epoch = snapshot_id.epoch
        self.is_only = is_only
        self.size_bytes = 0
        """The size of the file; known once the first group was read."""
        self._log = log
        self._records: SnapshotRecords | None = None

    @property
    def timestamp_ms(self) -> int:
        """When the last record in it was appended; known once the first group was read."""
        assert self._records is not None, "groups() comes first"
        return self._records.head.last_contained_log_timestamp_ms

    def groups(self) -> Iterator[Sequence[bytes]]:
        """The encoded records, each batch proved before it is given; from the first on each time. Raises DamagedSnapshot."""
        self._records = SnapshotRecords(self._read, name=f"snapshot {self.id}")
        return self._records.groups()

    def _read(self, position: int, size: int) -> bytes:
        self.size_bytes, data = self._log.read_snapshot(self.id, position, size)
        return data


@dataclass(slots=True)
class SnapshotStats:
    """Counters since the start of the process."""

    taken: int = 0
    given_up: int = 0
    """Begun, but outdated before they were whole."""
    rotten: int = 0
    """Found to be damaged on this disk: as soon as they were written, when somebody downloaded them, before the log begins there."""
    loaded: int = 0
    loaded_ms_sum: int = 0
    sent: int = 0
    """Downloads by others that reached the end."""
    last_bytes: int = 0
    """The bytes of the last one that was taken or loaded; so the next two."""
    last_ms: float = 0.0
    """How long writing the last one took."""
    last_end_offset: int = -1
    last_timestamp_ms: int = -1
    """Wall clock of the last record in it."""
    taken_ms_sum: float = 0.0
    logs_cleaned: int = 0


class SnapshotWriter:
    """Takes this replica's own snapshots. `run` is its one task."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        log: RaftLog,
        source: Callable[[], SnapshotSource | None],
        voters_before: Callable[[Offset], VoterSet],
        refusal: Callable[[SnapshotId], str | None],
        flushed_end: Callable[[], Offset],
        on_frozen: Callable[[SnapshotId], None],
    ) -> None:
        """
        Args:
            source: the listener's image, or None when it cannot be written now.
            voters_before: the voter set that counts for a log which ends at an offset.
            refusal: why a snapshot may not be taken (QuorumCore.snapshot_refusal).
            flushed_end: everything below is durable here.
            on_frozen: called with each snapshot that is whole and durable.
        """
        self._config = config
        self._log = log
        self._source = source
        self._voters_before = voters_before
        self._refusal = refusal
        self._flushed_end = flushed_end
        self._on_frozen = on_frozen
        self._bytes_since = 0
        self._is_wanted = False
        self._is_due = asyncio.Event()
        self.stats = SnapshotStats()

    def count(self, size_bytes: int) -> None:
        """So many bytes of committed records went to the listener."""
        self._bytes_since += size_bytes
        if self._is_wanted or self._bytes_since >= self._config.snapshot_after_bytes:
            self._is_due.set()

    def want(self) -> None:
        """Take one as soon as there is more to write than in those that are there."""
        self._is_wanted = True
        self._is_due.set()

    def begin_anew(self) -> None:
        """A snapshot was loaded: the next one is counted from here."""
        self._bytes_since = 0
        self._is_due.clear()

    async def run(self) -> None:
        """Write a snapshot whenever one is due, until cancelled. Raises OSError."""
        interval_s = self._config.snapshot_interval_ms / 1000 or None
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._is_due.wait()
            except TimeoutError:
                if self._bytes_since == 0:
                    continue
            source = self._source()
            if source is None:  # a metadata transaction is open: its end commits more bytes
                self._is_due.clear()
                await asyncio.sleep(TRANSACTION_POLL_S)
                self.count(0)
                continue
            self.begin_anew()
            await self._write(source)

    async def _write(self, source: SnapshotSource) -> None:
        snapshot_id = SnapshotId(Offset(source.last_offset + 1), source.epoch)
        if (reason := self._refusal(snapshot_id)) is not None:
            logger.debug("no snapshot: %s", reason)
            return
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        position = 0
        batches = snapshot_batches(
            source.groups,
            epoch=source.epoch,
            timestamp_ms=source.timestamp_ms,
            voters=self._voters_before(snapshot_id.end_offset),
            end_offset=snapshot_id.end_offset,
        )
        for data in batches:
            await self._log.when_there_is_space(partial(self._log.write_snapshot_part, snapshot_id, position, data))
            position += len(data)
            await asyncio.sleep(SLICE_PAUSE_S)
        while self._refusal(snapshot_id) is None and self._flushed_end() < snapshot_id.end_offset:
            await asyncio.sleep(FLUSH_POLL_S)
        if (reason := self._refusal(snapshot_id)) is not None:
            logger.debug("snapshot given up: %s", reason)
            self._log.drop_snapshot_part(snapshot_id)
            self.stats.given_up += 1
            return
        try:
            await self._log.freeze_snapshot(snapshot_id)
        except DamagedSnapshot as error:
            logger.error("%s, and it was just written: have the disk looked at. Another one is taken later", error)
            self.stats.rotten += 1
            return
        self._is_wanted = False
        self.stats.taken += 1
        self.stats.last_bytes = position
        self.stats.last_ms = (loop.time() - started_s) * 1000
        self.stats.taken_ms_sum += self.stats.last_ms
        self.stats.last_end_offset = snapshot_id.end_offset
        self.stats.last_timestamp_ms = source.timestamp_ms
        logger.info("took metadata snapshot %s: %d bytes in %.0f ms", snapshot_id, position, self.stats.last_ms)
        self._on_frozen(snapshot_id)


class SnapshotProver:
    """Proves the snapshots that others download: a disk may give back other bytes than it was given, or none, and whoever is
    behind the log's start would ask for the same bad file for ever. `run` is its one task."""

    def __init__(self, *, log: RaftLog, on_rotten: Callable[[SnapshotId], None], stats: SnapshotStats) -> None:
        """`on_rotten` is called with each that is not whole."""
        self._log = log
        self._on_rotten = on_rotten
        self._stats = stats
        self._wanted: SnapshotId | None = None
        self._is_wanted = asyncio.Event()

    def want(self, snapshot_id: SnapshotId) -> None:
        """Somebody begins to download this one."""
        self._wanted = snapshot_id
        self._is_wanted.set()

    async def run(self) -> None:
        """Prove what is wanted, now and then, until cancelled. Raises OSError."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            assert self._wanted is not None, "wanted"
            await self._prove(self._wanted)
            await asyncio.sleep(PROOF_PAUSE_S)

    async def _prove(self, snapshot_id: SnapshotId) -> None:
        try:
            for _ in LoadedSnapshot(self._log, snapshot_id).groups():
                await asyncio.sleep(SLICE_PAUSE_S)
        except (DamagedSnapshot, FileNotFoundError) as error:
            if snapshot_id not in self._log.snapshots():
                logger.info("snapshot %s was cleaned up while somebody downloaded it", snapshot_id)
                return
            logger.error(
                "%s: the disk does not give back what was written, and nobody can load it. Others get an older one, or a "
                "new one that is made of this node's metadata; have the disk looked at",
                error,
            )
            self._stats.rotten += 1
            self._on_rotten(snapshot_id)
