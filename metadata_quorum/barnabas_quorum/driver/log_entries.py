"""Batches of the metadata log opened for whoever reads them: every record with its place, control records too.

May touch:  its arguments.            Must not touch: asyncio, files, images.
Invariants: nothing raises: what cannot be read is an entry that says why; no secret is in an entry.
Read next:  ../record_view.py; committed_history.py, which reads what is committed of a running node's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from barnabas_quorum.driver.control_batches import control_records, decode_kraft_version, decode_voters
from barnabas_quorum.image.bad_records import digest_of_record
from barnabas_quorum.record_codec import decode
from barnabas_quorum.record_view import fields_of, kind_of
from barnabas_quorum.records import NoOpRecord, Record
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.records.batch import BatchHeader, Buffer, iterate_records
from barnabas_wire.records.control import ControlRecordType, decode_leader_change

BAD = "BAD"
"""The kind of an entry that cannot be read."""
NO_OP = "NoOpRecord"
LEADER_CHANGE = "LeaderChange"

_NO_OP_HEAD = b"\xa2\x01"
"""How a no-op record begins on the wire (field 20, length-delimited): an idle cluster writes two a second."""
_NO_OP_RECORD = NoOpRecord()


class OtherContent(NamedTuple):
    """What is no metadata record: a control record, or bytes that cannot be read."""

    kind: str
    fields: dict[str, Any]


class LogEntry(NamedTuple):
    """One record of the log."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    batch_offset: Offset
    content: Record | OtherContent

    @property
    def kind(self) -> str:
        """PartitionChangeRecord, LeaderChange, BAD, …"""
        return self.content.kind if isinstance(self.content, OtherContent) else kind_of(self.content)

    @property
    def fields(self) -> dict[str, Any]:
        """What it says, as JSON can hold it, without secrets."""
        return self.content.fields if isinstance(self.content, OtherContent) else fields_of(self.content)


def entries_of(
    batch: Buffer, header: BatchHeader, *, start: int = 0, skips: Callable[[bytes], bool] | None = None
) -> Iterator[LogEntry]:
    """The records of one batch whose checksum is right, from the offset `start` on.

    Those before it, and those whose bytes are to be skipped, are not opened. What cannot be read at all comes wherever it stands.
    """
    epoch, base = Epoch(header.partition_leader_epoch), Offset(header.base_offset)
    try:
        if header.is_control:
            for offset, control_kind, value in control_records(batch):
                if offset >= start:
                    yield LogEntry(offset, epoch, header.max_timestamp_ms, base, _control(control_kind, value))
            return
        records = list(iterate_records(batch))
    except (KafkaError, ValueError, IndexError) as error:
        yield damaged_batch(header, str(error) or repr(error))
        return
    for record in records:
        data = record.value or b""
        if record.offset >= start and (skips is None or not skips(data)):
            yield LogEntry(Offset(record.offset), epoch, record.timestamp_ms, base, _open(data))


def is_no_op(data: bytes) -> bool:
    """Whether a record's value is a no-op, by its first bytes."""
    return data.startswith(_NO_OP_HEAD)


def offsets_of(batch: Buffer, header: BatchHeader, *, with_noops: bool) -> list[Offset]:
    """The offsets of the entries that entries_of gives, without opening a record; with or without the no-ops among them."""
    try:
        if header.is_control:
            return [Offset(offset) for offset, _, _ in control_records(batch)]
        return [
            Offset(record.offset)
            for record in iterate_records(batch)
            if with_noops or not is_no_op(record.value or b"")
        ]
    except (KafkaError, ValueError, IndexError):
        return [Offset(header.base_offset)]


def damaged_batch(header: BatchHeader, why: str) -> LogEntry:
    """What stands for a batch of which no record can be read."""
    epoch, base = Epoch(header.partition_leader_epoch), Offset(header.base_offset)
    return LogEntry(base, epoch, header.max_timestamp_ms, base, OtherContent(BAD, {"error": why}))


def _open(data: bytes) -> Record | OtherContent:
    if is_no_op(data):
        return _NO_OP_RECORD
    try:
        return decode(data)
    except Exception as error:  # a reader of damaged logs continues behind whatever it meets
        return OtherContent(BAD, {"error": str(error), "size": len(data), "digest": digest_of_record(data).hex()})


def _control(kind: int, value: bytes) -> OtherContent:
    if kind == ControlRecordType.LEADER_CHANGE:
        change = decode_leader_change(value)
        return OtherContent(
            LEADER_CHANGE,
            {
                "leader_id": change.leader_id,
                "voters": [voter.voter_id for voter in change.voters],
                "granting_voters": [voter.voter_id for voter in change.granting_voters],
            },
        )
    if kind == ControlRecordType.KRAFT_VOTERS:
        return OtherContent("KRaftVoters", {"voters": str(decode_voters(value))})
    if kind == ControlRecordType.KRAFT_VERSION:
        return OtherContent("KRaftVersion", {"version": decode_kraft_version(value)})
    names = {ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader", ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter"}
    return OtherContent(names.get(ControlRecordType(kind), f"ControlRecord{kind}"), {})
