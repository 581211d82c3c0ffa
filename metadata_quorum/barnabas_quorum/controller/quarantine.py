"""Whether a record may be put aside: the only decision that a controller still takes while a bad record holds its image.

May touch:  image/quarantine.py, records_integrity, requests_integrity.   Must not touch: sessions, asyncio, the quorum.
Invariants: signed is only what this controller itself cannot replay, by its bytes, and what no broker has replayed; every
            sign-off says who and why.
Read next:  ../image/quarantine.py for what it means; ../driver/quarantine.py, which writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas_quorum.controller.requests_integrity import SignOffRecord
from barnabas_quorum.image.features import FeaturesImage
from barnabas_quorum.image.quarantine import BadRecord, Hold
from barnabas_quorum.records_integrity import QuarantineRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset

REASON_CHARACTERS_MAX = 1000


def held_refusal(hold: Hold) -> KafkaError:
    """What is answered to every other change while a bad record holds the image."""
    return KafkaError.of(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the controller takes no changes: the committed metadata record at offset {hold.record.offset} cannot be replayed "
        f"({hold.record.fault.value}: {hold.record.error}). Look at it with `barnabas quorum quarantine list`; what it says is "
        f"put aside by `barnabas quorum quarantine sign-off {hold.record.offset} --reason WHY --yes`",
    )


def sign_off(
    request: SignOffRecord,
    *,
    held: Sequence[BadRecord],
    applied_offset: Offset,
    features: FeaturesImage,
    broker_offsets: Mapping[BrokerId, Offset],
    principal: str,
) -> QuarantineRecord:
    """The record that puts a bad one aside. Raises the KafkaError that refuses it.

    Args:
        held: the record that holds this controller's image, and those that would be bad too once it is passed over.
        applied_offset: of this controller's image.
        broker_offsets: up to where each broker has said that it replayed.
        principal: who signs.
    """
    if not features.has_integrity_records:
        raise _refusal(
            "metadata.version 1 has no record for it, and nodes of the version before this one would stop at it; upgrade them "
            "all, then `barnabas cluster features upgrade metadata.version=2`",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    bad = next((record for record in held if record.offset == request.offset), None)
    if bad is None:
        raise _refusal(_why_not_held(request.offset, held, applied_offset))
    if request.digest and request.digest != bad.digest:
        raise _refusal(
            f"the record at offset {bad.offset} has the digest {bad.digest.hex()}, not {request.digest.hex()}; look again with "
            "`barnabas quorum quarantine list`"
        )
    # what a snapshot lacks may well be in the image of who never loaded it, but comes from there no more
    able = sorted(b for b, offset in broker_offsets.items() if offset >= bad.offset and not bad.is_in_snapshot)
    if able:
        names = ", ".join(str(broker) for broker in able)
        raise _refusal(
            f"broker {names} has replayed the record at offset {bad.offset}: it is not bad, this controller's version cannot "
            "read it. Upgrade the nodes that stand still, the controllers first"
        )
    if not request.reason.strip():
        raise _refusal("a sign-off needs a reason; it stays in the log with your name")
    if len(request.reason) > REASON_CHARACTERS_MAX:
        raise _refusal(f"the reason has {len(request.reason)} characters, at most {REASON_CHARACTERS_MAX} may be")
    return QuarantineRecord(
        offset=bad.offset, epoch=bad.epoch, digest=bad.digest, principal=principal, reason=request.reason
    )


def _why_not_held(offset: Offset, held: Sequence[BadRecord], applied_offset: Offset) -> str:
    if not held:
        return (
            f"the active controller has replayed every committed record, up to offset {applied_offset}: none is bad. A node "
            "that stands still has an older version (upgrade it) or a damaged disk (`barnabas quorum verify` says which)"
        )
    if offset <= applied_offset:
        return (
            f"the active controller has replayed the record at offset {offset}: it is not bad; see what is: "
            + _names(held)
        )
    return f"the record at offset {offset} is not bad; these are: " + _names(held)


def _names(held: Sequence[BadRecord]) -> str:
    return ", ".join(str(record.offset) for record in held)


def _refusal(reason: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> KafkaError:
    return KafkaError.of(code, reason)
