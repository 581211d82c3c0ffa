"""Which batches read_committed passes over."""

from __future__ import annotations

import struct

from barnabas_wire.records.batch import HEADER_BYTES, Record, build_batch, iterate_batches
from pyspark_barnabas.aborted import AbortedTransactions, marker_type


def batch(offset: int, producer: int, *, marker: int | None = None, is_transactional: bool = True) -> bytes:
    """A batch of one record, or a control batch with a marker."""
    key = None if marker is None else struct.pack(">hh", 0, marker)
    return build_batch(
        [Record(offset, 1, key, b"v")],
        is_control=marker is not None,
        is_transactional=is_transactional,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1 if marker is not None else 0,
    )


def passed_over(data: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    transactions = AbortedTransactions(aborted)
    view = memoryview(data)
    return [
        header.base_offset
        for position, header in iterate_batches(view)
        if transactions.holds(header, view[position + HEADER_BYTES :])
    ]


ABORT, COMMIT = 0, 1
LOG = b"".join(
    [
        batch(0, 7),
        batch(1, 8),
        batch(2, -1, is_transactional=False),
        batch(3, 7),
        batch(4, 7, marker=ABORT),
        batch(5, 8, marker=COMMIT),
        batch(6, 7),
        batch(7, 7, marker=COMMIT),
        batch(8, 7),
        batch(9, 7, marker=ABORT),
    ]
)


def test_a_producers_batches_are_passed_over_up_to_its_abort_marker_and_no_others() -> None:
    assert passed_over(LOG, []) == []
    assert passed_over(LOG, [(7, 0)]) == [0, 3]
    assert passed_over(LOG, [(7, 8), (7, 0)]) == [0, 3, 8]


def test_a_transaction_that_began_before_the_fetch_is_known_by_its_first_offset() -> None:
    assert passed_over(LOG[len(batch(0, 7)) :], [(7, 0)]) == [3]


def test_the_type_of_a_marker_is_read_from_its_key() -> None:
    for kind in (ABORT, COMMIT):
        view = memoryview(batch(0, 7, marker=kind))
        assert marker_type(view[HEADER_BYTES:]) == kind
    assert marker_type(memoryview(b"")) == -1
    assert marker_type(memoryview(b"\x80" * 9)) == -1
