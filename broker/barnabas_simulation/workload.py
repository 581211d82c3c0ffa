"""Clients of the simulated cluster: idempotent producers and a reader per partition, and one who deletes and makes topics.

May touch:  partition leaders, through client_calls.py.   Must not touch: anything a client could not see.
Invariants: a batch is sent again, unchanged, until it is acknowledged or its topic is deleted; a producer sends the next one
            only then, or a few of them in order before it repeats the first; what a reader has seen below the high watermark stays in
            its memory for the judge.
Read next:  invariants.py.

A client keeps to the newest leader epoch it has heard of and sends it along with reads, as real clients do (KIP-320). It must:
see test_nodes.py on what a deposed leader answers.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics, DeleteTopics, TopicReference
from barnabas_replication.partition import PIPELINED_MS
from barnabas_replication.requests import AppendOutcome
from barnabas_simulation.client_calls import CALL_TIMEOUT_S
from barnabas_simulation.history import Place
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Calls, Run
from barnabas_simulation.swarm import Swarm
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, TopicPartition
from barnabas_wire.records.batch import Record, build_batch, crc_is_valid, iterate_batches, iterate_records

RETRY_S = 0.02
READ_PAUSE_S = 0.05
REST_STEP_S = 0.1
IDS_PER_PRODUCER = 1_000_000
CHURN_PAUSE_S = 0.3
CHURN_TOPIC = "churned"
PRODUCERS_PER_CHURN = 1000
"""More than one such client can use."""
EXPECTED_OF_A_DELETED_TOPIC = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)


class Producer:
    """One idempotent producer: what it sent, and what was answered."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.first_id = self.next_id = producer_id * IDS_PER_PRODUCER
        self.acknowledged: dict[int, Place] = {}

    def owns(self, record_id: int) -> bool:
        """Whether the record is its own."""
        return self.first_id <= record_id < self.first_id + IDS_PER_PRODUCER

    def next_batch(self, count: int, *, time_ms: int) -> tuple[list[int], bytes]:
        """The ids of the next batch, and its bytes; all its records are of that time."""
        ids = list(range(self.next_id, self.next_id + count))
        records = [Record(index, time_ms, None, b"%d" % record_id) for index, record_id in enumerate(ids)]
        sequence = self.next_id - self.first_id
        self.next_id += count
        return ids, build_batch(records, producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)


class Client:
    """Produces to and reads one partition. It is never crashed: it is the one who remembers."""

    is_prompt = True
    """Whether nothing but the cluster keeps it waiting."""

    def __init__(
        self, cluster: Run, topic: str, partition: int, *, producers: int, first: int = 0, calls: Calls | None = None
    ) -> None:
        """first: the number of its first producer among those of all clients of the partition. calls: None: as the run's clients do."""
        self.is_kept = True
        """Whether the topic is there in the end, with everything that was acknowledged."""
        self.topic = topic
        self.partition = partition
        self.producers = [Producer(1 + partition * 10 + first + number) for number in range(producers)]
        self.seen: dict[int, int] = {}
        """Offset -> id, as read below the high watermark."""
        self._cluster = cluster
        self._calls = cluster.calls() if calls is None else calls
        self._think_s = cluster.swarm.think_s * (cluster.swarm.idle_factor if partition else 1.0)
        self._rest_s = cluster.swarm.rest_s if partition else 0.0
        self._works_until_s = 0.0
        self._rests_until_s = 0.0
        self._is_stopping = False
        self._busy = 0
        self._leader_epoch = NO_EPOCH
        self._latest = 0
        self._refused: dict[BrokerId, tuple[float, float]] = {}
        """When each leader last had too few replicas for a batch that followed none: when that was sent, and when answered (virtual
        seconds)."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def _name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_done(self) -> bool:
        """Whether everything that was begun is answered."""
        return self._is_stopping and not self._busy

    def start(self) -> None:
        """Begin to produce and to read."""
        self._cluster.network.spawn(self._read())
        for producer in self.producers:
            self._cluster.network.spawn(self._produce(producer))

    def stop(self) -> None:
        """Finish what was begun, then no more; see `is_done`."""
        self._is_stopping = True

    def probe(self) -> None:
        """After everything has come to rest: write once more; `is_done` once that is acknowledged."""
        self._busy += 1
        self._cluster.network.spawn(self._probe())

    async def _probe(self) -> None:
        await self._write(self.producers[0])
        self._busy -= 1

    async def _produce(self, producer: Producer) -> None:
        random = self._cluster.random
        self._busy += 1
        while not self._is_stopping:
            await self._write(producer)
            await asyncio.sleep(random.random() * self._think_s)
            if self._rest_s:
                await self._rest()
        self._busy -= 1

    async def _write(self, producer: Producer) -> None:
        """As many batches as it has in flight, each sent until it is acknowledged. The first one of a producer goes alone: a leader
        that does not know a producer takes any sequence for its first."""
        random = self._cluster.random
        count = self._cluster.swarm.in_flight if producer.acknowledged else 1
        waiting = [producer.next_batch(random.randint(1, 3), time_ms=self._cluster.wall_ms()) for _ in range(count)]
        while True:
            later = [asyncio.ensure_future(self._try(batch, is_first=False)) for _, batch in waiting[1:]]
            outcomes = [await self._try(waiting[0][1]), *[await each for each in later]]
            for (ids, _), outcome in zip(waiting, outcomes, strict=True):
                if outcome is not None:
                    self._on_acknowledged(producer, ids, outcome)
            waiting = [sent for sent, outcome in zip(waiting, outcomes, strict=True) if outcome is None]
            if not waiting:
                return
            await asyncio.sleep(RETRY_S * (0.5 + random.random()))

    async def _rest(self) -> None:
        """All producers of the partition at once, so that none writes to it."""
        random, now_s = self._cluster.random, self._cluster.loop.time()
        if now_s > max(self._works_until_s, self._rests_until_s):
            self._rests_until_s = now_s + random.random() * self._rest_s
            self._works_until_s = self._rests_until_s + random.random()
        while not self._is_stopping and self._cluster.loop.time() < self._rests_until_s:
            await asyncio.sleep(REST_STEP_S)

    def _on_acknowledged(self, producer: Producer, ids: list[int], outcome: AppendOutcome) -> None:
        invariants = self._cluster.invariants
        for index, record_id in enumerate(ids):
            offset = outcome.base_offset + index
            producer.acknowledged[record_id] = Place(self.topic, self.partition, offset)
            invariants.on_acknowledged(self.topic, self.partition, offset, record_id)

    async def _try(self, batch: bytes, *, is_first: bool = True) -> AppendOutcome | None:
        """One attempt at the leader that some node names; None means: again. is_first: no earlier batch waits to be acknowledged."""
        leader = self._leader()
        if leader is None:
            return None

        epoch, asked_s = self._leader_epoch, self._cluster.loop.time()
        outcome = await self._calls.produce(leader, self._name, batch)
        if outcome is None:
            return None
        if outcome.error is not None:
            follows_a_gap = not is_first and outcome.error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if follows_a_gap:
                self._judge_gap(leader, epoch, asked_s)
            elif is_first and outcome.error.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                self._refused[leader] = asked_s, self._cluster.loop.time()
            if not outcome.error.is_retriable and not follows_a_gap and not self._may_be_refused(outcome.error):
                raise LawBroken("a retried batch is not refused (E7)", f"partition {self}: {outcome.error!r}")
            return None
        self._cluster.faults.after_acknowledgement(self._cluster.network.nodes[leader])
        return outcome

    def _judge_gap(self, leader: BrokerId, epoch: Epoch, asked_s: float) -> None:
        """A batch is refused for good because what it follows is missing. librdkafka begins another producer epoch then, and writes again
        what other partitions have."""
        led_s = self._cluster.invariants.led_since(self.topic, self.partition, epoch) if epoch else math.inf
        for since_s, known_s in ((led_s, led_s), self._refused.get(leader, (math.inf, math.inf))):
            if known_s > asked_s:
                continue  # the leader may have looked at the batch before
            waited_ms = int(self._cluster.loop.time() * 1000) - int(since_s * 1000)
            if waited_ms < PIPELINED_MS:
                raise LawBroken(
                    "what follows a refused batch is sent again behind it (E7)",
                    f"{self}, leader {leader}, epoch {epoch}: {waited_ms} ms after they may have been refused",
                )

    def _may_be_refused(self, error: KafkaError) -> bool:
        """Whether a client of this topic must live with the error."""
        return False

    async def _read(self) -> None:
        at = 0
        while not self._is_stopping:
            await asyncio.sleep(READ_PAUSE_S)
            leader = self._leader()
            if leader is None:
                continue
            epoch = self._leader_epoch
            answer = await self._calls.read(leader, self._name, at, epoch)
            if answer is None:
                continue
            if answer.error is not None:
                at = max(at, answer.log_start_offset)  # retention was faster
                continue
            data = answer.data
            if not all(crc_is_valid(data, position, header) for position, header in iterate_batches(data)):
                continue  # as clients do: they refuse it, and ask again
            for offset, record_id in ids_of(data):
                if offset >= at:
                    self._remember(offset, record_id)
                    at = offset + 1
            latest = await self._calls.list_latest(leader, self._name, epoch)
            if latest is not None:
                self._remember_latest(latest, at)

    def _remember(self, offset: int, record_id: int) -> None:
        known = self.seen.setdefault(offset, record_id)
        if known != record_id:
            raise LawBroken("what was read never changes (P7)", f"offset {offset} of {self}: {known}, now {record_id}")
        self._cluster.invariants.on_read(self.topic, self.partition, offset, record_id)

    def _remember_latest(self, latest: int, read_to: int) -> None:
        if latest < max(self._latest, read_to):
            raise LawBroken(
                "the end never goes back (E13, KIP-207)",
                f"{self}: latest is {latest}, was {self._latest}, read to {read_to}",
            )
        self._latest = latest

    def _leader(self) -> BrokerId | None:
        """As the image of some node that is up says. It may be old, but not older than what this client knows already: real
        clients drop metadata of an older leader epoch too (KIP-320)."""
        up = [node for node in self._cluster.nodes if node.is_up]
        if not up:
            return None
        image = self._cluster.random.choice(up).loader.image
        partition = image.topics.partition(self._name)
        if partition is None or not partition.has_leader or partition.leader_epoch < self._leader_epoch:
            return None
        self._leader_epoch = partition.leader_epoch
        return partition.leader


class ChurningClient(Client):
    """Makes a topic, produces to it, deletes it, and at once makes another of that name. In the end it is deleted."""

    def __init__(self, cluster: Run, number: int) -> None:
        super().__init__(cluster, f"{CHURN_TOPIC}-{number}", 0, producers=0)
        self.is_kept = False
        self._first_producer = PRODUCERS_PER_CHURN * (1 + number)

    def start(self) -> None:
        """Begin."""
        self._cluster.network.spawn(self._churn())

    async def _churn(self) -> None:
        random = self._cluster.random
        self._busy += 1
        while not self._is_stopping:
            await self._ask_controller(CreateTopics(topics=(self._topic(),), validate_only=False))
            self._leader_epoch = NO_EPOCH
            producer = Producer(self._first_producer + len(self.producers))
            self.producers.append(producer)
            until_s = self._cluster.loop.time() + random.random() * self._cluster.swarm.churn_s
            while not self._is_stopping and self._cluster.loop.time() < until_s:
                ids, batch = producer.next_batch(random.randint(1, 3), time_ms=self._cluster.wall_ms())
                while (outcome := await self._try(batch)) is None and self._cluster.loop.time() < until_s:
                    await asyncio.sleep(RETRY_S * (0.5 + random.random()))
                if outcome is not None:
                    if not producer.acknowledged and len(self.producers) > 1:
                        self._cluster.faults.after_made_again()
                    self._on_acknowledged(producer, ids, outcome)
                await asyncio.sleep(random.random() * self._cluster.swarm.think_s)
            await self._ask_controller(DeleteTopics(topics=(TopicReference(name=self.topic),)))
        self._busy -= 1

    def _topic(self) -> CreatableTopic:
        swarm = self._cluster.swarm
        return CreatableTopic(
            name=self.topic,
            partition_count=1,
            replication_factor=swarm.churn_replicas,
            configs=settings_of_topics(swarm),
        )

    async def _ask_controller(self, request: CreateTopics | DeleteTopics) -> None:
        """Until it is done, or was done by an earlier try whose answer was lost."""
        while True:
            await asyncio.sleep(CHURN_PAUSE_S * self._cluster.random.random())
            active = [node for node in self._cluster.nodes if node.is_up and node.driver.is_active]
            if not active:
                continue
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    reply: Any = await active[0].driver.handle(request, principal="User:simulated")
            except (KafkaError, TimeoutError):
                continue
            error = reply.topics[0].error
            if error is None or error.code in (
                ErrorCode.TOPIC_ALREADY_EXISTS,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ):
                return

    def _may_be_refused(self, error: KafkaError) -> bool:
        """A late copy of a batch may have begun the new topic's log with another sequence."""
        return error.code in EXPECTED_OF_A_DELETED_TOPIC


def settings_of_topics(swarm: Swarm) -> dict[str, str]:
    """What every topic is made with."""
    kept = {"retention.bytes": swarm.logs.topic_retention_bytes, "retention.ms": swarm.logs.topic_retention_ms}
    return {key: str(value) for key, value in kept.items() if value is not None}


def ids_of(data: bytes) -> list[tuple[int, int]]:
    """(offset, id) of every record of whole batches."""
    found = []
    for position, header in iterate_batches(data):
        for record in iterate_records(memoryview(data)[position : position + header.size_bytes]):
            found.append((record.offset, int(record.value or b"-1")))
    return found
