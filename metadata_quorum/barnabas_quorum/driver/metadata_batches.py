"""How the records of one decision become batches of the metadata log, and a transaction where one batch does not hold them.

May touch:  record_codec, controller.result.   Must not touch: asyncio, the quorum, images.
Invariants: no batch is over its bounds; an atomic result is one batch, or stands between Begin and End (KIP-868), so that no
            reader ever sees a part of it.
Read next:  controller_driver.py, which proposes these; image/loader.py, which holds a transaction back until its End.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas_quorum.controller.decisions import RECORDS_PER_BATCH_MAX
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.errors import BatchTooLarge, UnreplayableDecision
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import BeginTransactionRecord, EndTransactionRecord, Record

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Encoded records of one proposal; half of what the quorum's fetch can carry."""
RECORDS_PER_PART_MAX = 1000
"""In one batch of a result that is not atomic: each node replays a batch in one go, 70 ms of CPU for so many, and its heartbeats wait."""
TRANSACTION_BYTES_MAX = 24 * 1024 * 1024
"""Encoded records of one atomic result: less than what the quorum takes before it is written."""


class EncodedRecord(NamedTuple):
    """A record and its bytes."""

    record: Record
    data: bytes


class Batches(NamedTuple):
    """The records of one decision, cut."""

    batches: Sequence[Sequence[EncodedRecord]]
    is_transaction: bool


def cut_into_batches(result: ControllerResult[Any], *, has_transactions: bool) -> Batches:
    """Raises BatchTooLarge for an atomic result that fits neither a batch nor, where `has_transactions` (metadata.version),
    a transaction; UnreplayableDecision for a value that its field does not hold."""
    try:
        encoded = [EncodedRecord(record, encode(record)) for record in result.records]
    except (TypeError, ValueError) as error:
        raise UnreplayableDecision.because(error) from error
    if not result.is_atomic:
        return Batches(_cut(encoded, min(RECORDS_PER_PART_MAX, RECORDS_PER_BATCH_MAX)), is_transaction=False)
    batches = _cut(encoded, RECORDS_PER_BATCH_MAX)
    if len(batches) <= 1:
        return Batches(batches, is_transaction=False)
    size = sum(len(one.data) for one in encoded)
    if not has_transactions:
        raise BatchTooLarge(
            f"the request needs {len(encoded)} records, more than fit into one batch ({RECORDS_PER_BATCH_MAX} records, "
            f"{BATCH_BYTES_MAX} bytes), and metadata.version has no transactions; send it in parts, or upgrade"
        )
    if size > TRANSACTION_BYTES_MAX:
        raise BatchTooLarge(
            f"the request needs {size} bytes of metadata, more than one transaction holds ({TRANSACTION_BYTES_MAX}); "
            "send it in parts"
        )
    begin, end = BeginTransactionRecord(name=result.name), EndTransactionRecord()
    whole = [EncodedRecord(begin, encode(begin)), *encoded, EncodedRecord(end, encode(end))]
    return Batches(_cut(whole, RECORDS_PER_BATCH_MAX), is_transaction=True)


def _cut(encoded: Iterable[EncodedRecord], records_max: int) -> list[list[EncodedRecord]]:
    batches: list[list[EncodedRecord]] = []
    size = 0
    for one in encoded:
        is_full = not batches or len(batches[-1]) == records_max or size + len(one.data) > BATCH_BYTES_MAX
        if is_full:
            batches.append([])
            size = 0
        batches[-1].append(one)
        size += len(one.data)
    return batches
