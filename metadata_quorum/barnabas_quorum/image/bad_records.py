"""A committed record that cannot be replayed: what is known of it, and what an operator's sign-off means. Pure rules.

May touch:  record_codec, records, image/metadata.py.   Must not touch: asyncio, clock, files, controller, who signs.
Invariants: a record is passed over only when it cannot be replayed and a QuarantineRecord names its offset and its bytes;
            whoever can replay it does so, signed or not; its neighbours are replayed as if it had never been written.
Read next:  loader.py, which stops at such a record; driver/blocked_controller.py, which takes the sign-off in.

Which fault is which
- A record that no node can replay (unreadable, or it does not fit what is there) is a fault of whoever wrote it. Every node
  keeps the image of right before its batch, serves with that, and waits. The sign-off is a record of the log itself, so all
  nodes pass over the same record and have equal images again. Nobody takes a snapshot meanwhile: it could not say.
- A batch that came as it was written and still cannot be opened is such a fault too: each of its offsets is a bad record,
  the first of which has the bytes of the whole batch (driver/committed.py).
- A bad record in a snapshot: an older snapshot and the log behind it say the same, so they are taken and the bad snapshot
  goes. Where no older one is left the node stops at the snapshot, with the metadata it had (none after a start), and
  reads on in the log. A sign-off that names the record's bytes gives it the snapshot without that record. With more than
  FOLLOWING_MAX bad records it stands until it gets another snapshot.
- A record that only nodes of an older version cannot read is no bad record. The active controller refuses the sign-off when
  it can replay it, or when a broker has said that it did; those nodes wait for their upgrade.
- Bytes that one disk gives back otherwise than they were written fail their checksum before they are records at all
  (driver/committed.py): no sign-off helps, and none is needed. That node stops; opening its log again cuts the log where the
  damage is, and what is missing comes from the leader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.record_codec import UnknownRecord, decode
from barnabas_quorum.records import Record
from barnabas_quorum.records_integrity import QuarantineRecord
from barnabas_quorum.records_security import redacted
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass

DIGEST_BYTES = 16
HEAD_BYTES = 24
"""The first bytes of a bad record, as it is shown: enough to see what it was meant to be."""
FOLLOWING_MAX = 50
"""Most records that are listed as bad once the first is passed over."""
ENTITY_CHARACTERS_MAX = 400

_SECRET_HEAD = b"\x5a"
"""How a UserScramCredentialRecord begins (field 11): of such a one nothing is shown."""
_QUARANTINE_HEAD = b"\x8a\x04"
"""How a QuarantineRecord begins on the wire (field 65, length-delimited): looked for without opening the others."""


class Fault(Enum):
    """Why a record cannot be replayed."""

    UNREADABLE = "unreadable"
    """Its bytes are no record that this version knows."""
    DOES_NOT_FIT = "does-not-fit"
    """It says something about what is not there, or not so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A committed record that this node cannot replay."""

    offset: Offset
    """In the log; of one in a snapshot, the last offset that the snapshot stands for."""
    epoch: Epoch
    batch_offset: Offset
    batch_end_offset: Offset
    """One past the last record of its batch."""
    append_timestamp_ms: int
    digest: bytes
    size: int
    head: bytes
    """Its first bytes; empty where the record can be read, and `entity` says more, and where it may hold a secret."""
    fault: Fault
    error: str
    entity: str
    """The record, without secrets; empty where it cannot be read."""
    is_in_snapshot: bool = False

    def is_meant_by(self, sign_off: QuarantineRecord) -> bool:
        """Whether an operator has signed for exactly this record. In a snapshot its bytes alone say so: the snapshots of
        other nodes end elsewhere."""
        return sign_off.digest == self.digest and (self.is_in_snapshot or sign_off.offset == self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Where a node stands still."""

    record: BadRecord
    read_offset: Offset
    """Last committed record that was read and waits behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A record that was passed over, by which sign-off."""

    record: BadRecord
    sign_off: QuarantineRecord


class ReplayFailed(Exception):
    """Carries the bad record out of a replay."""

    def __init__(self, record: BadRecord) -> None:
        super().__init__(f"record at offset {record.offset}: {record.error}")
        self.record = record


class UnreplayableSnapshot(KafkaError):
    """A snapshot holds a record that cannot be replayed, and older ones may do."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


def digest_of_record(data: bytes) -> bytes:
    """What a sign-off names a record by."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def bad_record(batch: Any, index: int, error: Exception) -> BadRecord:
    """What is known of record `index` of a committed batch, which failed with `error`."""
    return BadRecord(
        offset=Offset(batch.base_offset + index),
        epoch=batch.epoch,
        batch_offset=batch.base_offset,
        batch_end_offset=Offset(batch.base_offset + len(batch.records)),
        append_timestamp_ms=batch.append_timestamp_ms,
        error=str(error) or type(error).__name__,
        **_looked_at(batch.records[index]),
    )


def bad_record_in_snapshot(snapshot: Any, index: int, data: bytes, error: Exception) -> BadRecord:
    """What is known of record `index` of a snapshot, which failed with `error`."""
    last_offset = Offset(snapshot.end_offset - 1)
    return BadRecord(
        offset=last_offset,
        epoch=snapshot.epoch,
        batch_offset=last_offset,
        batch_end_offset=snapshot.end_offset,
        append_timestamp_ms=snapshot.timestamp_ms,
        error=f"record {index} of the snapshot {snapshot.end_offset}-{snapshot.epoch}: {error or type(error).__name__}",
        is_in_snapshot=True,
        **_looked_at(data),
    )


def _looked_at(data: bytes) -> dict[str, Any]:
    """What the bytes of a bad record show."""
    try:
        record: Record | None = decode(data)
    except UnknownRecord:
        record = None
    return {
        "digest": digest_of_record(data),
        "size": len(data),
        "head": data[:HEAD_BYTES] if record is None and not data.startswith(_SECRET_HEAD) else b"",
        "fault": Fault.UNREADABLE if record is None else Fault.DOES_NOT_FIT,
        "entity": "" if record is None else str(redacted(record))[:ENTITY_CHARACTERS_MAX],
    }


def sign_offs_in(records: Sequence[bytes]) -> Iterator[QuarantineRecord]:
    """The sign-offs among encoded records; what cannot be read is none."""
    for data in records:
        if data[: len(_QUARANTINE_HEAD)] == _QUARANTINE_HEAD:
            try:
                record = decode(data)
            except UnknownRecord:
                continue
            if isinstance(record, QuarantineRecord):
                yield record


def bad_records_ahead(
    image: MetadataImage, batches: Iterable[Any], blocking: BadRecord, skipped: Container[Offset]
) -> list[BadRecord]:
    """What cannot be replayed of what waits, were each bad record passed over: the record that blocks the node and those that
    build on it. A transaction that is aborted is taken as if it had not been: then the list may be too long, never too
    short. Nothing changes."""
    delta = MetadataDelta(image)
    found = [blocking]
    for batch in batches:
        for index, data in enumerate(batch.records):
            offset = Offset(batch.base_offset + index)
            if offset <= image.offset or offset == blocking.offset or offset in skipped:
                continue
            try:
                delta.replay(decode(data))
            except Exception as error:  # whatever a record sets off is what is asked about
                found.append(bad_record(batch, index, error))
                if len(found) > FOLLOWING_MAX:
                    return found
    return found
