"""Clients of the simulated cluster: one idempotent producer and one reader per partition.

May touch:  the network, replica managers through it.   Must not touch: anything a client could not see.
Invariants: a batch is sent again, unchanged, until it is acknowledged; the next one is sent only then; what a reader has
            seen below the high watermark stays in its memory for the judge.
Read next:  invariants.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas_replication.requests import AppendEntry, AppendOutcome, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from tests.checker.history import Place
from tests.simulation.network import Cut

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.nodes import SimulatedNode

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 1500
CALL_TIMEOUT_S = 2.5
RETRY_S = 0.02
READ_PAUSE_S = 0.05


class Client:
    """Produces to and reads one partition. It is never crashed: it is the one who remembers."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self.id = BrokerId(0)
        self.life = 0
        self.is_up = True
        self.topic = topic
        self.partition = partition
        self.sent = 0
        self.acknowledged: dict[int, Place] = {}
        self.seen: dict[int, int] = {}
        """Offset -> id, as read below the high watermark."""
        self.is_done = False
        self._cluster = cluster
        self._is_stopping = False
        self._leader_epoch = 0

    def start(self) -> None:
        """Begin to produce and to read."""
        self._cluster.network.spawn(self._produce())
        self._cluster.network.spawn(self._read())

    def stop(self) -> None:
        """Finish what was begun, then no more; `is_done` tells."""
        self._is_stopping = True

    async def _produce(self) -> None:
        random = self._cluster.random
        while not self._is_stopping:
            ids = list(range(self.sent, self.sent + random.randint(1, 3)))
            batch = build_batch(
                [Record(index, 1_700_000_000_000, None, b"%d" % record_id) for index, record_id in enumerate(ids)],
                producer_id=1 + self.partition,
                producer_epoch=0,
                base_sequence=self.sent,
            )
            self.sent += len(ids)
            while (outcome := await self._try(batch)) is None:
                await asyncio.sleep(RETRY_S * (0.5 + random.random()))
            for index, record_id in enumerate(ids):
                self.acknowledged[record_id] = Place(self.topic, self.partition, outcome.base_offset + index)
            await asyncio.sleep(random.random() * self._cluster.swarm.think_s)
        self.is_done = True

    async def _try(self, batch: bytes) -> AppendOutcome | None:
        """One attempt at the leader that some node names; None means: again."""
        leader = self._leader()
        if leader is None:
            return None

        async def handle(node: SimulatedNode) -> AppendOutcome:
            answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()

            def respond(outcomes: list[AppendOutcome]) -> None:
                if not answer.done():
                    answer.set_result(outcomes[0])

            node.replicas.append_records(
                [AppendEntry(self.topic, self.partition, memoryview(batch))],
                required_acks=ACKS_ALL,
                timeout_ms=PRODUCE_TIMEOUT_MS,
                respond=respond,
            )
            return await answer

        outcome: AppendOutcome | None = await self._call("Produce", leader, handle)
        if outcome is None:
            return None
        if outcome.error is not None:
            if not outcome.error.is_retriable:
                raise AssertionError(f"partition {self.partition}: a retried batch was refused: {outcome.error!r}")
            return None
        self._cluster.after_acknowledgement(self._cluster.network.nodes[leader])
        return outcome

    async def _read(self) -> None:
        at = 0
        while not self._is_stopping:
            await asyncio.sleep(READ_PAUSE_S)
            leader = self._leader()
            if leader is None:
                continue
            data = await self._call("Read", leader, lambda node, offset=at: self._fetch(node, offset))
            for offset, record_id in ids_of(data or b""):
                if offset >= at:
                    self._remember(offset, record_id)
                    at = offset + 1

    async def _fetch(self, node: SimulatedNode, offset: int) -> bytes:
        answer: asyncio.Future[list[FetchOutcome]] = asyncio.get_running_loop().create_future()
        spec = FetchPartitionSpec(self.topic, partition=self.partition, fetch_offset=Offset(offset))
        node.replicas.fetch(FetchSpec(), [spec], answer.set_result)
        (outcome,) = await answer
        data = b"".join(part.file.read(part.position, part.size) for part in outcome.parts)
        for part in outcome.parts:
            part.file.release()
        return data

    def _remember(self, offset: int, record_id: int) -> None:
        known = self.seen.setdefault(offset, record_id)
        assert known == record_id, f"offset {offset} of partition {self.partition} was {known} and is {record_id}"

    async def _call(self, kind: str, leader: BrokerId, handle: Any) -> Any:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await self._cluster.network.exchange(kind, self, leader, handle)  # type: ignore[arg-type]
        except (Cut, TimeoutError):
            return None
        except KafkaError as error:
            assert error.code != ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)
            return None

    def _leader(self) -> BrokerId | None:
        """As the image of some node that is up says. It may be old, but not older than what this client knows already: real
        clients drop metadata of an older leader epoch too (KIP-320)."""
        up = [node for node in self._cluster.nodes if node.is_up]
        if not up:
            return None
        image = self._cluster.random.choice(up).loader.image
        partition = image.topics.partition(TopicPartition(self.topic, self.partition))
        if partition is None or not partition.has_leader or partition.leader_epoch < self._leader_epoch:
            return None
        self._leader_epoch = partition.leader_epoch
        return partition.leader


def ids_of(data: bytes) -> list[tuple[int, int]]:
    """(offset, id) of every record of whole batches."""
    found = []
    for position, header in iterate_batches(data):
        for record in iterate_records(memoryview(data)[position : position + header.size_bytes]):
            found.append((record.offset, int(record.value or b"-1")))
    return found
