"""From committed batches to images: decodes, replays, publishes.

May touch:  record_codec, the other files of image/.   Must not touch: asyncio, clock, files, controller.
Invariants: each record is replayed exactly once and in order; publishers see only whole deltas, in order.
Read next:  publisher.py; driver/controller_driver.py, which feeds it on the control lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.publisher import Publisher
from barnabas_quorum.record_codec import decode
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import Epoch, Offset


class CommittedRecords(Protocol):
    """One committed batch of data records, as the quorum hands it on (structurally raft's CommittedBatch)."""

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""

    @property
    def epoch(self) -> Epoch:
        """Of the leader that appended it."""

    @property
    def append_timestamp_ms(self) -> int:
        """When that leader appended it."""

    @property
    def records(self) -> Sequence[bytes]:
        """Encoded values, consecutive offsets."""


@dataclass(slots=True)
class LoaderStats:
    """Counters that metrics pull."""

    batches: int = 0
    records: int = 0
    deltas: int = 0


class MetadataLoader:
    """Owns the committed image of this node."""

    def __init__(self, publishers: Sequence[Publisher] = ()) -> None:
        """`publishers` in the order in which they are told."""
        self.publishers: tuple[Publisher, ...] = tuple(publishers)
        self.image = MetadataImage.EMPTY
        self.stats = LoaderStats()

    def on_commit(self, batches: Sequence[CommittedRecords]) -> None:
        """Replay committed batches (in order, each once) into one delta and publish it.

        Raises InvariantViolated when an offset comes twice or backwards, UnknownRecord or TypeError on a record this
        code cannot read: the node must stop rather than serve half of the metadata.
        """
        if not batches:
            return
        delta = MetadataDelta(self.image)
        last_offset = self.image.offset
        for batch in batches:
            # gaps are normal (control records of the quorum), going back is not
            if batch.base_offset <= last_offset:
                raise InvariantViolated(f"metadata batch at offset {batch.base_offset} after {last_offset}")
            for data in batch.records:
                delta.replay(decode(data))
            last_offset = Offset(batch.base_offset + len(batch.records) - 1)
            self.stats.batches += 1
            self.stats.records += len(batch.records)
        self.image = delta.apply(last_offset, batches[-1].epoch, batches[-1].append_timestamp_ms)
        self.stats.deltas += 1
        for publisher in self.publishers:
            publisher.on_metadata_update(delta, self.image)
