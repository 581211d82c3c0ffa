"""A compacted topic in the simulated cluster: its producers, its cleaner, and what must be there in the end.

May touch:  the network, replica managers through it, the disks of nodes as a worker would.   Must not touch: the laws of others.
Invariants: the function that rewrites is the real one; in the end every key has its last acknowledged value, or its tombstone, on
            every replica, and every producer its last sequence; where tombstones go, a deleted key is on no replica.
Read next:  barnabas_log/cleaner/driver.py; invariants.py, which leaves this topic to this file.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from random import Random

from barnabas_log.cleaner.process import CleaningFailed
from barnabas_log.cleaner.rewrite import Job, Result, rewrite
from barnabas_log.disk import Disk
from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_replication.requests import AppendOutcome
from barnabas_simulation.history import Place
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_simulation.workload import ChurningClient, Producer
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.records.batch import CorruptBatch, Record, build_batch, iterate_records, read_header
from barnabas_wire.records.compression import CorruptCompressedData

COMPACTED_TOPIC = "compacted"
KEYS = 5
"""The number of keys of each producer."""
TOMBSTONE_EVERY = 4
"""A record in so many has no value."""
MAP_BYTES = 20 * 170
"""Room for twenty keys, so that a run often ends before the dirty part does."""
BACKOFF_MS = 40
PAUSE_S = 0.05
"""Longest between two steps of a worker."""


class InlineCleaner:
    """What a worker process does, on virtual time."""

    def __init__(self, disk: Disk, random: Random, *, dies: float) -> None:
        """dies: probability that it is killed at a step."""
        self._disk = disk
        self._random = random
        self._dies = dies

    async def clean(self, job: Job, *, bytes_per_second: float, on_bytes: Callable[[int], None]) -> Result:
        """See Transform.clean."""
        work = rewrite(self._disk, Job.decode(job.encode()))
        while True:
            await asyncio.sleep(self._random.random() * PAUSE_S)
            if self._random.random() < self._dies:
                raise CleaningFailed("died", "killed by the simulation")
            try:
                on_bytes(next(work))
            except StopIteration as end:
                result: Result = end.value
                return result
            except (CorruptBatch, CorruptCompressedData) as error:
                raise CleaningFailed("corrupt", str(error)) from error
            except FileNotFoundError as error:
                raise CleaningFailed("gone", str(error)) from error
            except OSError as error:
                raise CleaningFailed("room" if error.errno == errno.ENOSPC else "disk", str(error)) from error

    async def rest(self) -> None:
        """See Transform.rest."""

    async def close(self) -> None:
        """See Transform.close."""


class KeyedProducer(Producer):
    """An idempotent producer that writes the same keys again and again."""

    def key_of(self, record_id: int) -> bytes:
        """Long enough for a digest now and then."""
        number = record_id * 3 % KEYS
        return b"%d of %d" % (number, self.producer_id) + b" with a longer name" * (number % 2)

    def is_tombstone(self, record_id: int) -> bool:
        """Whether it deletes its key."""
        return record_id % TOMBSTONE_EVERY == 0

    def next_batch(self, count: int, *, time_ms: int) -> tuple[list[int], bytes]:
        """See Producer.next_batch. The id is in a header too: tombstones have no value."""
        ids = list(range(self.next_id, self.next_id + count))
        records = [
            Record(
                index,
                time_ms,
                self.key_of(record_id),
                None if self.is_tombstone(record_id) else b"%d" % record_id,
                (("id", b"%d" % record_id),),
            )
            for index, record_id in enumerate(ids)
        ]
        sequence = self.next_id - self.first_id
        self.next_id += count
        return ids, build_batch(records, producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)


class PassingKeysProducer(KeyedProducer):
    """One that writes each key a few times, then deletes every other one, and comes back to none."""

    def key_of(self, record_id: int) -> bytes:
        """See KeyedProducer.key_of."""
        return b"%d of %d" % (record_id // TOMBSTONE_EVERY, self.producer_id)

    def is_tombstone(self, record_id: int) -> bool:
        """See KeyedProducer.is_tombstone."""
        return record_id % (2 * TOMBSTONE_EVERY) == TOMBSTONE_EVERY - 1


class CompactingClient(ChurningClient):
    """Makes the compacted topic and writes to it; it stays, and its end is judged here."""

    def __init__(self, cluster: Run) -> None:
        super().__init__(cluster, 0)
        self.topic = COMPACTED_TOPIC
        self._forgets = cluster.swarm.delete_retention_ms is not None
        make = PassingKeysProducer if self._forgets else KeyedProducer
        self.producers: list[Producer] = [make(900 + number) for number in range(2)]
        self.is_made = False
        self._think_s = min(self._think_s, 0.02)

    def start(self) -> None:
        """Begin."""
        self._cluster.network.spawn(self._make())

    async def _make(self) -> None:
        self._busy += 1
        await self._ask_controller(CreateTopics(topics=(self._topic(),), validate_only=False))
        self.is_made = True
        for producer in self.producers:
            self._cluster.network.spawn(self._produce(producer))
        self._busy -= 1

    def _topic(self) -> CreatableTopic:
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        if self._forgets:
            settings["delete.retention.ms"] = str(self._cluster.swarm.delete_retention_ms)
        return CreatableTopic(name=self.topic, partition_count=1, replication_factor=3, configs=settings)

    def _on_acknowledged(self, producer: Producer, ids: list[int], outcome: AppendOutcome) -> None:
        for index, record_id in enumerate(ids):
            producer.acknowledged[record_id] = Place(self.topic, self.partition, outcome.base_offset + index)

    def _may_be_refused(self, error: KafkaError) -> bool:
        """The topic stays: no retry is refused."""
        return False

    def judge(self, node_id: int, batches: list[tuple[int, bytes]]) -> dict[bytes, int]:
        """Raise LawBroken for what a replica lacks in the end, or has and should not; returns the last id of each key."""
        last: dict[bytes, int] = {}
        owners = {producer.producer_id: producer for producer in self.producers}
        sequences: dict[int, int] = {}
        end = 0
        for base_offset, batch in batches:
            header = read_header(batch)
            if base_offset < end:
                raise LawBroken("offsets rise, also after compaction", f"node {node_id}: {base_offset} after {end}")
            end = header.next_offset
            sequences[header.producer_id] = header.base_sequence + header.last_offset_delta
            for record in iterate_records(batch):
                record_id = int(record.headers[0][1] or b"-1")
                owner = owners[header.producer_id]
                assert isinstance(owner, KeyedProducer), "made so"
                if (record.value is None) != owner.is_tombstone(record_id):
                    raise LawBroken("compaction changes no record", f"node {node_id}: {record}")
                last[record.key or b""] = record_id
        for producer in self.producers:
            assert isinstance(producer, KeyedProducer), "made so"
            wanted: dict[bytes, int] = {}
            for record_id in sorted(producer.acknowledged):
                wanted[producer.key_of(record_id)] = record_id
            if self._forgets:
                back = {
                    key: (record_id, last[key])
                    for key, record_id in wanted.items()
                    if producer.is_tombstone(record_id) and last.get(key, record_id) < record_id
                }
                if back:
                    raise LawBroken("a deleted key stays deleted", f"node {node_id}: {back}")
                wanted = {key: record_id for key, record_id in wanted.items() if not producer.is_tombstone(record_id)}
            lost = {
                key: (record_id, last.get(key)) for key, record_id in wanted.items() if last.get(key, -1) < record_id
            }
            if lost:
                raise LawBroken("every key's last value survives compaction", f"node {node_id}: {lost}")
            if producer.acknowledged:
                sequence = max(producer.acknowledged) - producer.first_id
                if sequences.get(producer.producer_id, -1) < sequence:
                    raise LawBroken(
                        "a producer's last sequence survives compaction",
                        f"node {node_id}, {producer.producer_id}: {sequences.get(producer.producer_id)}, not {sequence}",
                    )
        if self._forgets:  # a tombstone that is gone from one replica may still be there on another
            keyed = [each for each in self.producers if isinstance(each, KeyedProducer)]
            deleted = {id_ for each in keyed for id_ in each.acknowledged if each.is_tombstone(id_)}
            return {key: record_id for key, record_id in last.items() if record_id not in deleted}
        return last
