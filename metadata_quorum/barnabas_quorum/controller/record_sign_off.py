"""Whether a record may be quarantined: the only decision that a controller makes while a bad record stalls its image.

May touch:  image/bad_records.py, records_integrity, requests_integrity.   Must not touch: sessions, asyncio, the quorum.
Invariants: a sign-off is accepted only for a record that this controller cannot replay, identified by its bytes, and that no
            broker has replayed; every sign-off records who signed and why.
Read next:  ../image/bad_records.py for the meaning; ../driver/blocked_controller.py, which writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas_quorum.controller.requests_integrity import SignOffRecord
from barnabas_quorum.image.bad_records import BadRecord, Blocked
from barnabas_quorum.image.features import FeaturesImage
from barnabas_quorum.records_integrity import QuarantineRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset

REASON_CHARACTERS_MAX = 1000


def blocked_refusal(blocked: Blocked) -> KafkaError:
    """The error for every other change while a bad record stalls the image."""
    return KafkaError.of(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the controller takes no changes: the committed metadata record at offset {blocked.record.offset} cannot be replayed "
        f"({blocked.record.fault.value}: {blocked.record.error}). Inspect it with `barnabas quorum quarantine list`; skip it "
        f"with `barnabas quorum quarantine sign-off {blocked.record.offset} --reason WHY --yes`",
    )


def sign_off(
    request: SignOffRecord,
    *,
    bad_records: Sequence[BadRecord],
    applied_offset: Offset,
    features: FeaturesImage,
    broker_offsets: Mapping[BrokerId, Offset],
    principal: str,
) -> QuarantineRecord:
    """The record that quarantines a bad one. Raises the KafkaError that refuses it.

    Args:
        bad_records: the record that stalls this controller's image, and those that would be bad too once it is skipped.
        applied_offset: the last offset in this controller's image.
        broker_offsets: the last offset that each broker has reported as replayed.
        principal: who signs.
    """
    if not features.has_integrity_records:
        raise _refusal(
            "metadata.version 1 has no record for it, and nodes of the previous version would stop at it; upgrade all nodes, "
            "then `barnabas cluster features upgrade metadata.version=2`",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    bad = next((record for record in bad_records if record.offset == request.offset), None)
    if bad is None:
        raise _refusal(_why_not_bad(request.offset, bad_records, applied_offset))
    if request.digest and request.digest != bad.digest:
        raise _refusal(
            f"the record at offset {bad.offset} has the digest {bad.digest.hex()}, not {request.digest.hex()}; check it with "
            "`barnabas quorum quarantine list`"
        )
    # a broker that never loaded the snapshot may well have a record that is bad in it, but cannot supply it
    able = sorted(b for b, offset in broker_offsets.items() if offset >= bad.offset and not bad.is_in_snapshot)
    if able:
        names = ", ".join(str(broker) for broker in able)
        raise _refusal(
            f"broker {names} has replayed the record at offset {bad.offset}: it is not bad, this controller's version cannot "
            "read it. Upgrade the stalled nodes, the controllers first"
        )
    if not request.reason.strip():
        raise _refusal("a sign-off needs a reason, which stays in the log with your name")
    if len(request.reason) > REASON_CHARACTERS_MAX:
        raise _refusal(f"the reason has {len(request.reason)} characters; at most {REASON_CHARACTERS_MAX} are allowed")
    return QuarantineRecord(
        offset=bad.offset, epoch=bad.epoch, digest=bad.digest, principal=principal, reason=request.reason
    )


def _why_not_bad(offset: Offset, bad_records: Sequence[BadRecord], applied_offset: Offset) -> str:
    if not bad_records:
        return (
            f"the active controller has replayed every committed record, up to offset {applied_offset}: none is bad. A stalled "
            "node has an older version (upgrade it) or a damaged disk (`barnabas quorum verify` shows which)"
        )
    if offset <= applied_offset:
        return f"the active controller has replayed the record at offset {offset}: it is not bad; these are: " + _names(
            bad_records
        )
    return f"the record at offset {offset} is not bad; these are: " + _names(bad_records)


def _names(bad_records: Sequence[BadRecord]) -> str:
    return ", ".join(str(record.offset) for record in bad_records)


def _refusal(reason: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> KafkaError:
    return KafkaError.of(code, reason)
