"""Which batches of a fetch belong to transactions that were aborted: what read_committed passes over. Pure.

May touch:  its arguments.            Must not touch: sockets, Arrow.
Invariants: batches are shown in the order of their offsets, each once; a producer's aborted transaction ends at its marker, and what
    it writes after that is judged again.
Read next:  decoder.py. The rule is that of Kafka's consumer (KIP-98): the broker names the transactions, the reader leaves their
    batches out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas_wire.records.control import ControlRecordType

if TYPE_CHECKING:
    from barnabas_wire.records.batch import BatchHeader


class AbortedTransactions:
    """The state while one fetch is gone through."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """`aborted`: (producer id, first offset), as the fetch response names them, in any order."""
        self._to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._open: set[int] = set()

    def holds(self, header: BatchHeader, records: memoryview) -> bool:
        """Whether this batch, the next of the fetch, belongs to an aborted transaction; `records` begins with its own."""
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._open.add(self._to_come.pop()[0])
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        if header.is_control:
            if marker_type(records) == ControlRecordType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return True


def marker_type(records: memoryview) -> int:
    """The second int16 of the key of a control batch's one record; -1 where there is no such key."""
    position = _after_varint(records, 0) + 1  # length, attributes
    position = _after_varint(records, position)  # timestamp delta
    position = _after_varint(records, position)  # offset delta
    position = _after_varint(records, position)  # key length
    if position + 4 > len(records):
        return -1
    return int(struct.unpack_from(">h", records, position + 2)[0])


def _after_varint(records: memoryview, position: int) -> int:
    while position < len(records) and records[position] & 0x80:
        position += 1
    return position + 1
