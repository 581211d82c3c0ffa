"""The records of records_integrity.py to protobuf and back; record_codec.py composes these tables into its own.

May touch:  records_integrity, barnabas_wire.rpc.metadata_records_pb2.   Must not touch: image, controller, asyncio.
Invariants: those of record_codec.py.
Read next:  record_codec.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas_quorum.records_integrity import ImageHashRecord, IntegrityRecord, PartHash, QuarantineRecord
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.rpc import metadata_records_pb2 as pb


def _image_hash(record: ImageHashRecord) -> Any:
    parts = [pb.PartHashValue(part=part, hash=value) for part, value in record.parts]
    return pb.MetadataRecord(image_hash=pb.ImageHash(format=record.format, parts=parts))


def _read_image_hash(message: Any) -> ImageHashRecord:
    return ImageHashRecord(format=message.format, parts=tuple(PartHash(part.part, part.hash) for part in message.parts))


def _quarantine(record: QuarantineRecord) -> Any:
    return pb.MetadataRecord(
        quarantine=pb.Quarantine(
            offset=record.offset,
            epoch=record.epoch,
            digest=record.digest,
            principal=record.principal,
            reason=record.reason,
        )
    )


def _read_quarantine(message: Any) -> QuarantineRecord:
    return QuarantineRecord(
        offset=Offset(message.offset),
        epoch=Epoch(message.epoch),
        digest=message.digest,
        principal=message.principal,
        reason=message.reason,
    )


INTEGRITY_ENCODERS: dict[type, Callable[[Any], Any]] = {
    ImageHashRecord: _image_hash,
    QuarantineRecord: _quarantine,
}

INTEGRITY_DECODERS: dict[str, Callable[[Any], IntegrityRecord]] = {
    "image_hash": _read_image_hash,
    "quarantine": _read_quarantine,
}
