"""What idempotent producers have written: epoch and the last five batches of each, so that a retry is not a second write.

May touch:  the Disk it is given, for snapshots.   Must not touch: clocks, segments.
Invariants: per (producer id, epoch) sequences have no gap and no repeat; the state is what replaying the log gives.
Read next:  unified_log.py, which asks before an append and reports after it; recovery.py, which replays.

Five is a constant of the protocol: a client has at most five requests in flight (KIP-98).

Layout of <offset>.snapshot, the state of the producers just before that offset (big-endian):
    0   2 version = 1
    2   4 CRC-32C of byte 6 to the end
    6   4 number of entries
    then per producer, 46 bytes: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32
    (last offset - first offset of that batch), timestamp i64, coordinator epoch i32 (-1), first offset of the current
    transaction i64 (-1 where none is open).
It holds only the newest batch of each producer, as Kafka's. A crash may leave a cut one: the CRC shows it, an older serves.

Not obvious: after a restart from a snapshot a repeat of the batch before the newest is reported as out of order, as in Kafka;
leadership has moved to a replica that knows all five by then.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from barnabas_log.disk import Disk
from barnabas_log.errors import CorruptCheckpoint, InvalidProducerEpoch, OutOfOrderSequence
from barnabas_wire.kafka.ids import NO_OFFSET, Offset
from barnabas_wire.records.crc32c import crc32c

BATCHES_PER_PRODUCER_MAX = 5
SEQUENCE_MAX = 2**31 - 1
PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""Default of producer.id.expiration.ms."""

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class ProducerBatch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record (wraps below 0 to 2^31-1)."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> Offset:
        """Offset of its first record."""
        return Offset(self.last_offset - self.offset_delta)


class ProducerEntry:
    """One producer's state in one partition."""

    __slots__ = ("batches", "epoch", "producer_id", "seen_end", "seen_ms")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_PER_PRODUCER_MAX)
        self.seen_end = NO_OFFSET
        """Last offset of its newest batch when `expire` last looked, and"""
        self.seen_ms = -1
        """when that was first so; of what was loaded, the time of its records."""

    @property
    def last(self) -> ProducerBatch:
        """Its newest batch; an entry always has one, of sequence -1 and NO_OFFSET where a marker alone is known."""
        return self.batches[-1]


class ProducerState:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self.open_transactions: dict[int, Offset] = {}
        """First offset of each open transaction, by producer id."""
        self._marked_end = Offset(0)
        """Below it a marker may lie: what was open before that one is not remembered."""
        self.end_offset = Offset(0)
        """The state covers every batch below this offset."""
        self.unread: tuple[Offset, ...] = ()
        """Base offsets of the segments that a replay could not read to their end: what producers wrote there is not known."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """State of one producer."""
        return self._producers.get(producer_id)

    def check(self, *, producer_id: int, epoch: int, first_sequence: int, record_count: int) -> ProducerBatch | None:
        """Judge a batch before its append: None to append it, or the batch that it repeats.

        Raises InvalidProducerEpoch for an older epoch, OutOfOrderSequence for a gap or a repeat beyond memory. A producer
        that is unknown here may start anywhere: retention may have taken its earlier batches.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                raise InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}")
            if first_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} starts epoch {epoch} with sequence {first_sequence} instead of 0"
                )
            return None
        expected = (entry.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if first_sequence == expected:
            return None
        last_sequence = (first_sequence + record_count - 1) & SEQUENCE_MAX
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {producer_id} epoch {epoch}: sequence {first_sequence} arrived, {expected} is next"
        )

    def update(
        self,
        *,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset: Offset,
        offset_delta: int,
        timestamp_ms: int,
    ) -> None:
        """Remember an appended batch. On followers and in recovery nothing is judged: the leader has."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._producers[producer_id] = ProducerEntry(producer_id, epoch)
        entry.batches.append(
            ProducerBatch((first_sequence + offset_delta) & SEQUENCE_MAX, last_offset, offset_delta, timestamp_ms)
        )

    def note_transactional(self, producer_id: int, first_offset: Offset) -> None:
        """A batch of a transaction was appended: the first one opens it."""
        self.open_transactions.setdefault(producer_id, first_offset)

    def end_transaction(self, *, producer_id: int, epoch: int, offset: Offset, timestamp_ms: int) -> None:
        """A marker was appended at `offset`. Its epoch becomes the producer's, whose sequences then start at 0 (KIP-890)."""
        self.open_transactions.pop(producer_id, None)
        self._marked_end = max(self._marked_end, Offset(offset + 1))
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch < epoch:
            entry = self._producers[producer_id] = ProducerEntry(producer_id, epoch)
            entry.batches.append(ProducerBatch(-1, NO_OFFSET, 0, timestamp_ms))

    def truncate_to(self, offset: Offset) -> bool:
        """Forget the batches at `offset` and later; False if what is left cannot be known without replaying the log."""
        if self._marked_end > offset and self._producers:
            return False  # which transaction a marker that goes had ended is not remembered
        self.open_transactions = {each: first for each, first in self.open_transactions.items() if first < offset}
        if not any(entry.batches[-1].last_offset >= offset for entry in self._producers.values()):
            self.end_offset = min(self.end_offset, offset)
            return True
        if any(entry.batches[0].last_offset >= offset for entry in self._producers.values()):
            return False  # nothing of this epoch is left in memory: there may be older batches, or an older epoch
        for entry in self._producers.values():
            while entry.batches[-1].last_offset >= offset:
                entry.batches.pop()
        self.end_offset = min(self.end_offset, offset)
        return True

    def expire(self, *, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers silent for longer; returns how many (producer.id.expiration.ms).

        Not by the time of their records, as Kafka does: who replays old ones would be forgotten while it writes.
        """
        expired = []
        for entry in self._producers.values():
            end = entry.batches[-1].last_offset
            if entry.producer_id in self.open_transactions:
                continue
            if entry.seen_end != end or entry.seen_ms < 0:
                entry.seen_end, entry.seen_ms = end, now_ms
            elif now_ms - entry.seen_ms >= expiration_ms:
                expired.append(entry.producer_id)
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def date_by_records(self) -> None:
        """Take the time of its newest records for when each was last seen: a start knows no better."""
        for entry in self._producers.values():
            _, entry.seen_end, _, entry.seen_ms = entry.batches[-1]

    def clear(self, end_offset: Offset) -> None:
        """Forget all."""
        self._producers.clear()
        self.open_transactions.clear()
        self._marked_end = Offset(0)
        self.end_offset = end_offset

    def encode(self) -> bytes:
        """Content of a snapshot file at end_offset."""
        body = b"".join(
            (
                _COUNT.pack(len(self._producers)),
                *(
                    _ENTRY.pack(
                        entry.producer_id,
                        entry.epoch,
                        last.last_sequence,
                        last.last_offset,
                        last.offset_delta,
                        last.timestamp_ms,
                        -1,
                        self.open_transactions.get(entry.producer_id, NO_OFFSET),
                    )
                    for entry in self._producers.values()
                    for last in (entry.last,)
                ),
            )
        )
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, content: bytes, end_offset: Offset) -> ProducerState:
        """From a snapshot file. Raises CorruptCheckpoint."""
        if len(content) < _SNAPSHOT_HEAD.size + _COUNT.size:
            raise CorruptCheckpoint(f"a producer snapshot of {len(content)} bytes is cut off")
        version, crc = _SNAPSHOT_HEAD.unpack_from(content)
        body = content[_SNAPSHOT_HEAD.size :]
        if version != _SNAPSHOT_VERSION:
            raise CorruptCheckpoint(f"producer snapshot version {version} is not {_SNAPSHOT_VERSION}")
        (count,) = _COUNT.unpack_from(body)
        if crc32c(body) != crc or len(body) != _COUNT.size + count * _ENTRY.size:
            raise CorruptCheckpoint("the producer snapshot's checksum or length is wrong")
        state = cls()
        state.end_offset = state._marked_end = end_offset
        for producer_id, epoch, sequence, offset, delta, timestamp_ms, _, first in _ENTRY.iter_unpack(
            body[_COUNT.size :]
        ):
            entry = ProducerEntry(producer_id, epoch)
            entry.batches.append(ProducerBatch(sequence, offset, delta, timestamp_ms))
            state._producers[producer_id] = entry
            if first >= 0:
                state.open_transactions[producer_id] = Offset(first)
        return state


def snapshot_path(directory: str, offset: Offset) -> str:
    """File of the snapshot at an offset."""
    return f"{directory}/{offset:020d}.snapshot"


def list_snapshots(disk: Disk, directory: str) -> list[Offset]:
    """Offsets of the snapshot files, rising."""
    return sorted(
        Offset(int(name.removesuffix(".snapshot")))
        for name in disk.list_directory(directory)
        if name.endswith(".snapshot") and name.removesuffix(".snapshot").isdecimal()
    )


def load_newest_snapshot(disk: Disk, directory: str, *, at_or_before: Offset) -> ProducerState:
    """The newest sound snapshot not after the offset, or an empty state that holds nothing; cut ones are removed."""
    for offset in reversed(list_snapshots(disk, directory)):
        if offset > at_or_before:
            continue
        path = snapshot_path(directory, offset)
        try:
            return ProducerState.decode(disk.read_file(path), offset)
        except CorruptCheckpoint:
            disk.remove(path)
    return ProducerState()
