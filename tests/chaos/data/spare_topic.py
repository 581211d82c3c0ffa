"""A topic that the harness alone writes, so that it may be grown, deleted, made again and compacted; and what must be in it.

May touch:  the cluster as its client.   Must not touch: faults, the clients' topics.
Invariants: every record has a key of its own, with the number of the topic's life; only what was acknowledged is owed.
Read next:  operating.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records

if TYPE_CHECKING:
    from tests.chaos.data.stage import Stage

CALL_S = 3.0
READ_S = 20.0


class SpareTopic:
    """Of one run."""

    NAME: ClassVar[str] = "spare"

    def __init__(self, *, bootstrap: str) -> None:
        self.partitions = 1
        self._bootstrap = bootstrap
        self._life = 0
        self._next = 0
        self._owed: dict[bytes, tuple[int, int]] = {}
        """Key -> partition and offset, as acknowledged."""
        self._starts: dict[int, int] = {}
        """Of partitions: where DeleteRecords has put it, as acknowledged."""

    def begin_anew(self) -> None:
        """It was deleted, and is made again with one partition."""
        self._life += 1
        self.partitions = 1
        self._owed.clear()
        self._starts.clear()

    def write(self, stage: Stage, count: int) -> None:
        """As many records as are taken in time; what is not acknowledged is not owed."""
        before = len(self._owed)
        asyncio.run(self._write(count))
        stage.note(f"spare: {len(self._owed) - before} of {count} acknowledged")

    async def _write(self, count: int) -> None:
        client = ClusterClient(self._bootstrap, timeout_s=CALL_S)
        deadline = time.monotonic() + CALL_S
        try:
            for _ in range(count):
                self._next += 1
                key = b"%d-%d" % (self._life, self._next)
                place = TopicPartition(self.NAME, self._next % self.partitions)
                try:
                    batch = build_batch([Record(0, time.time_ns() // 1_000_000, key, b"value of " + key)])
                    self._owed[key] = (place.partition, await client.produce(place, batch))
                except (KafkaError, OSError):
                    if time.monotonic() > deadline:
                        return
        finally:
            await client.close()

    def delete_half(self, stage: Stage) -> None:
        """DeleteRecords of the older half of partition 0."""
        offsets = sorted(offset for partition, offset in self._owed.values() if partition == 0)
        if not offsets:
            return
        start = offsets[len(offsets) // 2]
        try:
            asyncio.run(self._delete(start))
        except (KafkaError, OSError) as error:
            stage.note(f"spare: records below {start} are not deleted: {error!r}")
            for key, (partition, offset) in list(self._owed.items()):
                if partition == 0 and offset < start:
                    del self._owed[key]  # they may be
            return
        self._starts[0] = start
        self._owed = {key: place for key, place in self._owed.items() if place[0] or place[1] >= start}

    async def _delete(self, start: int) -> None:
        client = ClusterClient(self._bootstrap, timeout_s=CALL_S)
        try:
            view = await client.metadata([self.NAME])
            leader = view.leader(TopicPartition(self.NAME, 0)).id
            topic = DeleteRecordsTopic(self.NAME, [DeleteRecordsPartition(0, start)])
            answer = await client.call(DeleteRecordsRequest([topic], timeout_ms=int(CALL_S * 1000)), broker_id=leader)
            code = answer.topics[0].partitions[0].error_code
            if code:
                raise OSError(f"code {code}")
        finally:
            await client.close()

    def judge(self, stage: Stage) -> list[str]:
        """What is not as it must be, of a cluster that is whole."""
        try:
            found = asyncio.run(self._read())
        except (KafkaError, OSError) as error:
            return [f"spare: it is not read: {error!r}"]
        broken = []
        lost = {key: place for key, place in self._owed.items() if found.get(key) != place}
        if lost:
            broken.append(
                f"spare: {len(lost)} of {len(self._owed)} acknowledged records are gone: {sorted(lost.items())[:3]}"
            )
        foreign = sorted(key for key in found if not key.startswith(b"%d-" % self._life))
        if foreign:
            broken.append(f"spare: records of a deleted topic are back: {foreign[:3]}")
        back = [key for key, (partition, offset) in found.items() if offset < self._starts.get(partition, 0)]
        if back:
            broken.append(f"spare: deleted records are back: {sorted(back)[:3]}")
        stage.note(f"spare: {len(found)} read, {len(self._owed)} owed")
        return broken

    async def _read(self) -> dict[bytes, tuple[int, int]]:
        client = ClusterClient(self._bootstrap, timeout_s=READ_S)
        found: dict[bytes, tuple[int, int]] = {}
        try:
            view = await client.metadata([self.NAME])
            for index in view.topics[self.NAME]:
                place = TopicPartition(self.NAME, index)
                offset: int = (await client.list_offsets({place: EARLIEST}))[place].offset
                end = (await client.list_offsets({place: LATEST}))[place].offset
                while offset < end:
                    got = await client.fetch(place, offset)
                    for position, header in iterate_batches(got.records):
                        for record in iterate_records(got.records[position : position + header.size_bytes]):
                            found[record.key or b""] = (index, record.offset)
                        offset = max(offset, header.next_offset)
        finally:
            await client.close()
        return found
