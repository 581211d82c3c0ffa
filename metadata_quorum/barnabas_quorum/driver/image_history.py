"""The metadata as it was after a record that is past, and what changed from there to another: from snapshot and log.

May touch:  the RaftLog (reading), asyncio only to rest.   Must not touch: the loader, the core, what is not committed.
Invariants: what is made here is what the loader made then: transactions, bad records that were passed over; the loop is held
            for no longer than one slice.
Read next:  ../image/entities.py for `changed_entities`; ../image/loader.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator

from barnabas_quorum.driver.committed import open_batch
from barnabas_quorum.driver.snapshots import LoadedSnapshot
from barnabas_quorum.image.entities import Entity, changed_entities
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.snapshot import difference
from barnabas_quorum.raft.journal import RaftLog, StoredBatch
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass

SLICE_BYTES = 64 * 1024
"""Read and replayed between two rests."""
CHANGES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChange:
    """One entity that differs between two images; None = is not there."""

    part: str
    before: Entity | None
    after: Entity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDifference:
    """From one image to another."""

    before: MetadataImage
    after: MetadataImage
    records: int
    """Records of data, between the two."""
    changes: list[ImageChange]


async def difference_between(log: RaftLog, *, first: Offset, last: Offset, high_watermark: Offset) -> ImageDifference:
    """What changed from the image after record `first` (-1: the empty one) to the image after record `last`.

    Where an offset lies within a batch or a transaction, the image before it counts. Raises OFFSET_OUT_OF_RANGE with what can
    be asked, INVALID_REQUEST for more than CHANGES_MAX changes, DamagedSnapshot, UnreplayableSnapshot.
    """
    if not first < last < high_watermark:
        raise KafkaError.of(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"from {first} to {last}: FROM must be below TO, and TO below the high watermark {high_watermark}",
        )
    replay = _Replay(log, high_watermark)
    await replay.begin(first)
    before = await replay.image_after(first)
    records_before = replay.loader.stats.records
    after = await replay.image_after(last)
    delta = await _rest_between(difference(before, after))
    changes = [ImageChange(part=part, before=old, after=new) for part, old, new in changed_entities(delta, after)]
    if len(changes) > CHANGES_MAX:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"{len(changes)} entities differ, at most {CHANGES_MAX} are reported: ask for a shorter range",
        )
    return ImageDifference(
        before=before, after=after, records=replay.loader.stats.records - records_before, changes=changes
    )


class _Replay:
    """A loader of its own that is led along the log."""

    def __init__(self, log: RaftLog, high_watermark: Offset) -> None:
        self._log = log
        self._high_watermark = high_watermark
        self._next = Offset(0)
        self.loader = MetadataLoader()

    async def begin(self, first: Offset) -> None:
        """At the newest snapshot that ends at or before the record after `first`; at the log's beginning when it is 0."""
        fitting = [each for each in self._log.snapshots() if each.end_offset <= first + 1]
        if fitting:
            snapshot = fitting[-1]
            for _ in self.loader.on_load_snapshot(LoadedSnapshot(self._log, snapshot)):
                await asyncio.sleep(0)
            self._next = snapshot.end_offset
            return
        start = self._log.log_start_offset
        if start > 0:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the metadata log of this node begins at offset {start}, and no snapshot is older: FROM must be at least "
                f"{start - 1}. What was before is gone here (metadata.max.retention.ms, .bytes); another node may have it",
            )

    async def image_after(self, offset: Offset) -> MetadataImage:
        """Replay up to and including `offset`."""
        async for batch in self._batches():
            if batch.end_offset > offset + 1:
                break
            self._next = batch.end_offset
            opened = open_batch(batch)
            if opened is not None:
                self.loader.on_commit([opened])
        if self.loader.blocked is not None:
            # a record within the range was bad: what became of it stands behind the range, maybe
            ahead = [opened async for batch in self._batches() if (opened := open_batch(batch)) is not None]
            self.loader.look_ahead(ahead)
        return self.loader.image

    async def _batches(self) -> AsyncIterator[StoredBatch]:
        """What is committed from `_next` on, with a rest after each slice."""
        start = self._next
        while start < self._high_watermark:
            if start < self._log.log_start_offset:
                raise KafkaError.of(ErrorCode.OFFSET_OUT_OF_RANGE, "the log was cleaned meanwhile; ask again")
            batches = self._log.read(start, end_offset=self._high_watermark, bytes_max=SLICE_BYTES)
            if not batches:
                return
            for batch in batches:
                yield batch
            start = batches[-1].end_offset
            await asyncio.sleep(0)


async def _rest_between(steps: Generator[None, None, MetadataDelta]) -> MetadataDelta:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            delta: MetadataDelta = end.value
            return delta
        await asyncio.sleep(0)
