"""What comes to the loader: committed batches and snapshots, as the quorum hands them on.

May touch:  nothing.                  Must not touch: everything.
Invariants: structural types only, so that the image knows neither the quorum nor its files.
Read next:  loader.py, which takes them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from barnabas_wire.kafka.ids import Epoch, Offset


class CommittedRecords(Protocol):
    """One committed batch of data records, as the quorum hands it on (structurally raft's CommittedBatch)."""

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""

    @property
    def epoch(self) -> Epoch:
        """The epoch of the leader that appended it."""

    @property
    def append_timestamp_ms(self) -> int:
        """When that leader appended it."""

    @property
    def records(self) -> Sequence[bytes]:
        """Encoded values, consecutive offsets."""


class SnapshotContent(Protocol):
    """A snapshot of the metadata log, as the quorum hands it on (structurally driver/snapshots.py's LoadedSnapshot)."""

    @property
    def end_offset(self) -> Offset:
        """One past the last record whose effect it holds."""

    @property
    def epoch(self) -> Epoch:
        """The epoch of that record."""

    @property
    def timestamp_ms(self) -> int:
        """When that record was appended; known once the first group was read."""

    @property
    def is_only(self) -> bool:
        """No older one is there to be taken in its place."""

    def groups(self) -> Iterator[Sequence[bytes]]:
        """The encoded records of the whole image, from the first on each time. Raises when the snapshot is damaged."""
