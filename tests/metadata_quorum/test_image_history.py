"""The metadata as it was: rebuilt from snapshot and log, and what changed between two offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas_quorum.driver.committed import data_batch, leader_change_batch, open_batch
from barnabas_quorum.driver.image_history import difference_between
from barnabas_quorum.driver.snapshot_content import snapshot_batches
from barnabas_quorum.image.bad_records import digest_of_record
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.snapshot import record_groups
from barnabas_quorum.raft.journal import StoredBatch
from barnabas_quorum.raft.messages import LeaderChange, SnapshotId
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import (
    BeginTransactionRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    Record,
)
from barnabas_quorum.records_integrity import QuarantineRecord
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset
from tests.support.decided_cluster import uuid

GARBAGE = b"\xd2\x09\x00"


def config(key: str, value: str | None = "1") -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key=key, value=value)


class FakeLog:
    """What image_history reads of a RaftLog."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.files: dict[SnapshotId, bytes] = {}
        self.log_start_offset = Offset(0)
        self.end = Offset(0)

    def add(self, *records: Record | bytes) -> int:
        values = [one if isinstance(one, bytes) else encode(one) for one in records]
        batch = data_batch(values, base_offset=self.end, epoch=Epoch(1), timestamp_ms=self.end * 10)
        self.batches.append(batch)
        self.end = batch.end_offset
        return batch.base_offset

    def elect(self) -> None:
        key = ReplicaKey(BrokerId(1), uuid(1))
        batch = leader_change_batch(
            LeaderChange(key, (key,), (key,)), base_offset=self.end, epoch=Epoch(1), timestamp_ms=0
        )
        self.batches.append(batch)
        self.end = batch.end_offset

    def cut_at_end(self) -> None:
        """A snapshot of all, and the log begins behind it."""
        loader = MetadataLoader()
        for batch in self.batches:
            opened = open_batch(batch)
            if opened is not None:
                loader.on_commit([opened])
        image = loader.image
        made = snapshot_batches(record_groups(image), epoch=Epoch(1), timestamp_ms=image.timestamp_ms, voters=None)
        self.files[SnapshotId(self.end, Epoch(1))] = b"".join(made)
        self.log_start_offset = self.end
        self.batches = []

    def snapshots(self) -> list[SnapshotId]:
        return sorted(self.files)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size: int) -> tuple[int, bytes]:
        data = self.files[snapshot_id]
        return len(data), data[position : position + size]

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Sequence[StoredBatch]:
        return [each for each in self.batches if each.end_offset > offset and each.end_offset <= end_offset][:2]


async def changes(log: FakeLog, first: int, last: int) -> dict[str, tuple[str | None, str | None]]:
    found = await difference_between(
        log,  # type: ignore[arg-type]
        first=Offset(first),
        last=Offset(last),
        high_watermark=log.end,
    )
    return {
        either.name.rpartition(" ")[2]: (
            None if each.before is None else getattr(each.before.record, "value", None),
            None if each.after is None else getattr(each.after.record, "value", None),
        )
        for each in found.changes
        if (either := each.after or each.before) is not None
    }


async def test_what_changed_between_two_offsets_is_reported_once_however_often_it_changed() -> None:
    log = FakeLog()
    log.elect()
    log.add(config("a"), config("b"))
    log.add(config("a", "2"))
    log.add(config("a", "3"))
    log.add(config("b", None), config("c"))
    assert await changes(log, 2, 6) == {"a": ("1", "3"), "b": ("1", None), "c": (None, "1")}
    assert await changes(log, 3, 4) == {"a": ("2", "3")}
    assert await changes(log, -1, 2) == {"a": (None, "1"), "b": (None, "1")}
    log.add(config("a", "3"))
    assert await changes(log, 6, 7) == {}


async def test_a_transaction_counts_as_a_whole_at_its_end() -> None:
    log = FakeLog()
    log.add(config("a"))
    log.add(BeginTransactionRecord(name="x"), config("b"))
    log.add(config("c"), EndTransactionRecord())
    assert await changes(log, 0, 2) == {}
    assert await changes(log, 0, 4) == {"b": (None, "1"), "c": (None, "1")}


async def test_a_snapshot_is_where_history_begins_and_what_is_gone_is_refused_with_the_first_offset_that_is_left() -> (
    None
):
    log = FakeLog()
    log.add(config("a"), config("b"))
    log.cut_at_end()
    log.add(config("a", "2"))
    assert await changes(log, 1, 2) == {"a": ("1", "2")}
    with pytest.raises(KafkaError) as refused:
        await changes(log, 0, 2)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "FROM must be at least 1" in refused.value.message


@pytest.mark.parametrize(("first", "last"), [(1, 1), (2, 1), (0, 99)])
async def test_a_way_that_leads_nowhere_is_refused(first: int, last: int) -> None:
    log = FakeLog()
    log.add(config("a"), config("b"), config("c"))
    with pytest.raises(KafkaError, match="FROM must be below TO"):
        await changes(log, first, last)


async def test_a_record_that_was_passed_over_is_passed_over_in_history_too() -> None:
    log = FakeLog()
    log.add(config("a"))
    bad = log.add(config("b"), GARBAGE, config("c")) + 1
    log.add(
        QuarantineRecord(
            offset=Offset(bad), epoch=Epoch(1), digest=digest_of_record(GARBAGE), principal="p", reason="r"
        )
    )
    log.add(config("d"))
    assert await changes(log, 0, 3) == {"b": (None, "1"), "c": (None, "1")}
    assert await changes(log, 0, log.end - 1) == dict.fromkeys("bcd", (None, "1"))
