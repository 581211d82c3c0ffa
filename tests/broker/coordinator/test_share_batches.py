"""Batches that were read for a share group: headers alone are looked at, and the answer is made of whole batches."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas_coordination.share.acquiring import Acquired
from barnabas_coordination.share.batches import SKIPPED_BYTES_MIN, BatchReader
from barnabas_log.disk import FileRange
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.control import build_transaction_marker


class Held:
    """Bytes as a file, which counts who holds it."""

    def __init__(self, *batches: bytes | bytearray) -> None:
        self.data = b"".join(batches)
        self.reads = 0
        self.holds = 1
        self.fails = False

    def read(self, position: int, size: int) -> bytes:
        self.reads += 1
        if self.fails:
            raise OSError("told to fail")
        return self.data[position : position + size]

    def acquire(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


def batch(first: int, count: int, *, size: int = 10, producer_id: int = -1) -> bytes:
    records = [Record(first + each, 1, None, b"x" * size) for each in range(count)]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )


def reader(held: Held, aborted: Sequence[tuple[int, int]] = (), headers_max: int = 100) -> BatchReader:
    return BatchReader(FileRange(held, 0, len(held.data)), aborted, headers_max=headers_max)  # type: ignore[arg-type]


def test_headers_of_small_batches_come_with_one_read() -> None:
    held = Held(*(batch(each, 1) for each in range(50)))
    spans = list(reader(held).spans())
    assert [(span.base_offset, span.last_offset) for span in spans] == [(each, each) for each in range(50)]
    assert held.reads == 1
    assert len(list(reader(held, headers_max=7).spans())) == 7


def test_a_piece_is_made_of_whole_batches_and_leaves_out_what_is_far_and_others() -> None:
    held = Held(batch(0, 5), batch(5, 5), batch(10, 1, size=SKIPPED_BYTES_MIN), batch(11, 5))
    one = reader(held)
    spans = list(one.spans())
    parts, size = one.pieces([Acquired(Offset(3), Offset(4), 1), Acquired(Offset(12), Offset(13), 1)])
    assert [(part.position, part.size) for part in parts] == [
        (spans[0].position, spans[0].size_bytes),
        (spans[3].position, spans[3].size_bytes),
    ]
    assert size == spans[0].size_bytes + spans[3].size_bytes
    assert held.holds == 2, "one for each piece"


def test_batches_close_by_travel_in_one_piece_and_nothing_takes_no_hold() -> None:
    held = Held(batch(0, 5), batch(5, 5), batch(10, 5))
    one = reader(held)
    list(one.spans())
    parts, size = one.pieces([Acquired(Offset(0), Offset(0), 1), Acquired(Offset(14), Offset(14), 1)])
    assert ([(part.position, part.size) for part in parts], held.holds) == ([(0, size)], 1)
    one = reader(held)
    list(one.spans())
    assert (one.pieces([]), held.holds) == (((), 0), 0)


def test_data_of_an_aborted_transaction_is_marked_until_its_marker() -> None:
    marker = bytearray(
        build_transaction_marker(producer_id=7, producer_epoch=0, coordinator_epoch=0, is_commit=False, now_ms=1)
    )
    marker[:8] = (4).to_bytes(8, "big")
    held = Held(
        batch(0, 1, producer_id=7),
        batch(1, 1, producer_id=8),
        batch(2, 2, producer_id=7),
        marker,
        batch(5, 1, producer_id=7),
    )
    spans = list(reader(held, [(7, 2)]).spans())
    assert [span.is_aborted for span in spans] == [False, False, True, False, False]


def test_what_cannot_be_read_ends_the_batches_and_is_said() -> None:
    held = Held(batch(0, 5), b"\0" * 100)
    one = reader(held)
    assert len(list(one.spans())) == 1
    assert one.error is not None
    held.fails = True
    one = reader(held)
    assert list(one.spans()) == []
    assert isinstance(one.error, OSError)
