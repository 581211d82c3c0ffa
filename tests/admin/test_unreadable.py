"""Which batch a reader sticks at: found from its offset on, only where its whole bytes prove it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_admin import unreadable as module
from barnabas_admin.unreadable import first_unreadable
from barnabas_wire.client.metadata import FetchedRecords
from barnabas_wire.kafka.ids import Epoch, Offset, TopicPartition
from barnabas_wire.records.batch import Record, build_batch, empty_batch, stamp
from barnabas_wire.records.control import build_transaction_marker
from tests.support.poison import POISON, TAKEN, TWO, batch

WHERE = TopicPartition("t", 0)


def log_of(*batches: bytes) -> list[bytes]:
    offset, out = 0, []
    for each in batches:
        stamped = bytearray(each)
        stamp(stamped, 0, base_offset=Offset(offset), leader_epoch=Epoch(0))
        out.append(bytes(stamped))
        offset += int.from_bytes(each[23:27], "big") + 1
    return out


class Broker:
    """Gives two batches a fetch, and half of the next."""

    def __init__(self, batches: list[bytes]) -> None:
        self.batches = batches
        self.asked: list[int] = []

    async def fetch(self, partition: TopicPartition, offset: int, **named: Any) -> FetchedRecords:
        assert partition == WHERE
        self.asked.append(offset)
        behind = [
            each
            for each in self.batches
            if int.from_bytes(each[:8], "big") + int.from_bytes(each[23:27], "big") >= offset
        ]
        data = b"".join(behind[:2]) + (behind[2][: len(behind[2]) // 2] if len(behind) > 2 else b"")
        return FetchedRecords(memoryview(data), Offset(100), Offset(0))


async def look(batches: list[bytes], offset: int) -> Any:
    return await first_unreadable(Broker(batches), WHERE, offset)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", POISON)
async def test_each_kind_of_poison_is_what_readers_stick_at(kind: str) -> None:
    found = await look(log_of(batch(TWO, 2), batch(TWO, 2), batch(TWO, 2), POISON[kind][0], batch(TWO, 2)), 0)
    assert (found.header.base_offset, found.header.size_bytes) == (6, len(POISON[kind][0]))
    assert found.reason


async def test_what_can_be_read_is_passed_over_control_batches_and_empty_ones_among_it() -> None:
    marker = build_transaction_marker(producer_id=1, producer_epoch=0, coordinator_epoch=0, is_commit=True, now_ms=5)
    gaps = build_batch([Record(0, 1, b"k", b"v"), Record(7, 1, b"k", b"v")])
    assert await look(log_of(*TAKEN.values(), marker, empty_batch(Offset(0), Epoch(0)), gaps), 0) is None
    assert await look([], 0) is None


async def test_a_batch_before_the_offset_is_none_that_is_stuck_at() -> None:
    batches = log_of(POISON["trailing bytes"][0], batch(TWO, 2))
    assert (await look(batches, 0)).header.base_offset == 0
    assert await look(batches, 1) is None


async def test_a_wrong_checksum_is_unreadable_and_a_cut_off_batch_proves_nothing() -> None:
    flipped = bytearray(log_of(batch(TWO, 2))[0])
    flipped[-1] ^= 1
    assert "checksum" in (await look([bytes(flipped)], 0)).reason
    assert await look([bytes(flipped[:-2])], 0) is None


async def test_the_look_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_BYTES_MAX", 500)
    broker = Broker(log_of(*[batch(TWO, 2)] * 50))
    assert await first_unreadable(broker, WHERE, 0) is None  # type: ignore[arg-type]
    assert len(broker.asked) == 2
