"""Load on a topic and what it costs: rates, and how long records take, for `barnabas perf`.

May touch:  barnabas_wire.client, the running loop's clock.     Must not touch: printing, the admin service.
Invariants: a record's time counts from when it was due, not from when it could be sent, so that a cluster that stands still shows
            in the figures (no coordinated omission); memory does not grow with the records; every answer is counted.
Read next:  commands/perf.py.

Not obvious: records of a batch are encoded once for each batch length and then only sealed (time stamp, CRC) for each batch: what is
measured is the cluster and the network, not the encoder of a client in Python. Batches carry no producer id, so one that is sent
again after an error may be written twice.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    crc_is_valid,
    iterate_batches,
    sealed_batch,
)
from barnabas_wire.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas_wire.client.cluster import ClusterClient

IN_FLIGHT_MAX = 5
"""Batches of a partition that wait for an answer, as in Kafka's producer."""
SLICES_MAX = 32
"""A batch's records are counted in so many groups, each by its own due time."""
BUCKETS_PER_OCTAVE = 64
"""A time is known to about 1 %."""


@dataclass(slots=True)
class Times:
    """Durations in buckets of about 1 %, from a microsecond up."""

    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    longest_s: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration `count` times."""
        index = int(math.log2(max(seconds, 1e-6) * 1e6) * BUCKETS_PER_OCTAVE)
        self.counts[index] = self.counts.get(index, 0) + count
        self.total += count
        self.longest_s = max(self.longest_s, seconds)

    def quantile_ms(self, share: float) -> float | None:
        """The time that this share of them did not exceed, in ms; None when there are none."""
        wanted, seen = math.ceil(share * self.total), 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= wanted:
                upper_s = 2 ** ((index + 1) / BUCKETS_PER_OCTAVE) / 1e6
                return round(min(upper_s, self.longest_s) * 1000, 3)
        return None


@dataclass(slots=True)
class Measured:
    """What a run came to."""

    records: int = 0
    size_bytes: int = 0
    """The bytes of the records' keys and values when writing, of the batches when reading."""
    requests: int = 0
    span_s: float = 0.0
    times: Times = field(default_factory=Times)

    @property
    def records_per_s(self) -> float:
        """Over the whole run."""
        return self.records / self.span_s if self.span_s else 0.0

    @property
    def mb_per_s(self) -> float:
        """Megabytes of 10**6 bytes."""
        return self.size_bytes / self.span_s / 1e6 if self.span_s else 0.0


Progress = Callable[[Measured], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLoad:
    """What is written: how large, how fast, how long."""

    record_bytes: int
    batch_bytes: int
    rate: float | None = None
    """Records per second; None: as many as are acknowledged."""
    linger_s: float = 0.005
    """With a rate: how long records wait for others to go with."""
    records_max: int | None = None
    duration_s: float | None = None
    acks: int = -1
    compression: CompressionType = CompressionType.NONE

    @property
    def batch_records_max(self) -> int:
        """Records of a full batch."""
        return max(1, self.batch_bytes // (self.record_bytes + 8))


class Writer:
    """Writes one load to partitions."""

    def __init__(self, client: ClusterClient, partitions: Sequence[TopicPartition], load: WriteLoad) -> None:
        self._client = client
        self._partitions = list(partitions)
        self._load = load
        # One value is as good as another to a broker; half of it is random so that compression has something to do.
        half = load.record_bytes // 2
        self._value = os.urandom(load.record_bytes - half) + b"x" * half
        self._section = functools.lru_cache(maxsize=256)(self._encode)
        self._given = 0
        self._waiting: set[asyncio.Task[None]] = set()
        self.measured = Measured()

    async def run(self, progress: Progress) -> Measured:
        """Write until the load's end; `progress` hears of it every second. Raises what the cluster refuses."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        end_s = math.inf if self._load.duration_s is None else begin_s + self._load.duration_s
        try:
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(_tick(self.measured, begin_s, progress))
                if self._load.rate is None:
                    workers = [
                        tasks.create_task(self._saturate(partition, end_s))
                        for partition in self._partitions
                        for _ in range(IN_FLIGHT_MAX)
                    ]
                else:
                    workers = [tasks.create_task(self._pace(self._load.rate, begin_s, end_s, tasks))]
                await asyncio.wait(workers)
                while self._waiting:
                    await asyncio.wait(set(self._waiting))
                ticking.cancel()
        except ExceptionGroup as failures:
            raise first_error(failures) from None
        self.measured.span_s = loop.time() - begin_s
        return self.measured

    async def _saturate(self, partition: TopicPartition, end_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < end_s and (count := self._take(self._load.batch_records_max)):
            await self._write(partition, count, loop.time(), 0.0)

    async def _pace(self, rate: float, begin_s: float, end_s: float, tasks: asyncio.TaskGroup) -> None:
        """Give out what is due, batch after batch, partition after partition; the answers are waited for elsewhere."""
        loop = asyncio.get_running_loop()
        slots = {partition: asyncio.Semaphore(IN_FLIGHT_MAX) for partition in self._partitions}
        given = turn = 0
        while (now_s := loop.time()) < end_s:
            due = int((now_s - begin_s) * rate) - given
            while due > 0 and (count := self._take(min(due, self._load.batch_records_max))):
                partition = self._partitions[turn % len(self._partitions)]
                turn += 1
                work = self._write(partition, count, begin_s + given / rate, 1 / rate, slots[partition])
                task = tasks.create_task(work)
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)
                given += count
                due -= count
            if self._load.records_max is not None and self._given >= self._load.records_max:
                return
            await asyncio.sleep(self._load.linger_s)

    def _take(self, count: int) -> int:
        """So many of the records that are left to write."""
        if self._load.records_max is not None:
            count = min(count, self._load.records_max - self._given)
        self._given += count
        return count

    async def _write(
        self,
        partition: TopicPartition,
        count: int,
        due_s: float,
        spacing_s: float,
        slot: asyncio.Semaphore | None = None,
    ) -> None:
        """One batch, whose records were due from `due_s` on at a distance of `spacing_s`."""
        if slot is not None:
            async with slot:
                await self._produce(partition, count)
        else:
            await self._produce(partition, count)
        now_s = asyncio.get_running_loop().time()
        slices = 1 if spacing_s == 0 else min(count, SLICES_MAX)
        for index in range(slices):
            first, last = index * count // slices, (index + 1) * count // slices
            self.measured.times.add(now_s - (due_s + first * spacing_s), last - first)
        self.measured.records += count
        self.measured.size_bytes += count * self._load.record_bytes
        self.measured.requests += 1

    async def _produce(self, partition: TopicPartition, count: int) -> None:
        now_ms = int(time.time() * 1000)
        batch = sealed_batch(
            self._section(count),
            attributes=int(self._load.compression),
            last_offset_delta=count - 1,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            record_count=count,
        )
        await self._client.produce(partition, batch, acks=self._load.acks)

    def _encode(self, count: int) -> bytes:
        records = [Record(index, 0, None, self._value, ()) for index in range(count)]
        return build_batch(records, compression=self._load.compression)[HEADER_BYTES:]


class Reader:
    """Reads partitions, each from an offset to an offset, and checks every batch's CRC."""

    def __init__(self, client: ClusterClient, *, fetch_bytes: int, records_max: int | None = None) -> None:
        self._client = client
        self._fetch_bytes = fetch_bytes
        self._records_max = math.inf if records_max is None else records_max
        self.damaged = 0
        self.measured = Measured()

    async def run(
        self, ranges: dict[TopicPartition, tuple[int, int]], progress: Progress, *, duration_s: float | None
    ) -> Measured:
        """Read `ranges` (partition -> first offset, end offset), at most for `duration_s` seconds."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        end_s = math.inf if duration_s is None else begin_s + duration_s
        try:
            async with asyncio.TaskGroup() as tasks:
                ticking = tasks.create_task(_tick(self.measured, begin_s, progress))
                workers = [tasks.create_task(self._read(p, *span, end_s)) for p, span in ranges.items()]
                if workers:
                    await asyncio.wait(workers)
                ticking.cancel()
        except ExceptionGroup as failures:
            raise first_error(failures) from None
        self.measured.span_s = loop.time() - begin_s
        return self.measured

    async def _read(self, partition: TopicPartition, position: int, end: int, end_s: float) -> None:
        loop = asyncio.get_running_loop()
        while position < end and (sent_s := loop.time()) < end_s and self.measured.records < self._records_max:
            fetched = await self._client.fetch(
                partition, position, bytes_max=self._fetch_bytes, wait_ms_max=500, bytes_min=1
            )
            self.measured.times.add(loop.time() - sent_s)
            self.measured.requests += 1
            for start, header in iterate_batches(fetched.records):
                self.damaged += not crc_is_valid(fetched.records, start, header)
                first = max(position, int(header.base_offset))
                self.measured.records += (
                    0 if header.is_control else min(header.record_count, header.next_offset - first)
                )
                self.measured.size_bytes += header.size_bytes
                position = int(header.next_offset)


async def _tick(measured: Measured, begin_s: float, progress: Progress) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1.0)
        measured.span_s = loop.time() - begin_s
        progress(measured)
