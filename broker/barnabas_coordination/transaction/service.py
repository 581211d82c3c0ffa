"""The transaction coordinator: finds the partition of a transactional id, checks what needs no state, and hands the rest to its shard.

May touch:  the runtime, the metadata image, the controller client, producer ids.   Must not touch: sockets, files, wire.
Invariants: a transactional id belongs to one partition of `__transaction_state`, and its leader alone decides; a producer id is
            taken from the controller's blocks before the decision that gives it out.
Read next:  shard.py, markers.py, ../runtime.py.

`__transaction_state` is made when the first client looks for a coordinator; until its partition has a leader the answer is
COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.internal_topic import InternalTopic, MetadataSource
from barnabas_coordination.runtime import CoordinatorLog, CoordinatorRuntime, CoordinatorStats, ShardState
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.errors import InvalidTransactionTimeout
from barnabas_coordination.transaction.markers import Markers, MarkerStats
from barnabas_coordination.transaction.shard import Ending, TransactionShard
from barnabas_coordination.transaction.state import (
    ENDING,
    Producer,
    ProducerIdNeeded,
    TransactionState,
)
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.image.features import TRANSACTION_VERSION, TWO_PHASE_VERSION
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, TopicPartition

TRANSACTION_TOPIC = "__transaction_state"
COMMIT_TIMEOUT_MS = 30_000
"""How long an answer waits for its records to be replicated (Kafka: request.timeout.ms); then COORDINATOR_NOT_AVAILABLE."""


class ProducerIdSource(Protocol):
    """Gives out producer ids, each once and never again in this cluster."""

    async def next_id(self) -> int:
        """The next producer id; raises a retriable KafkaError while no controller answers."""
        ...


class TransactionDescription(NamedTuple):
    """One transactional id for people."""

    transactional_id: str
    state: TransactionState


class TransactionCoordinator:
    """Every transactional id whose partition this broker leads. All methods run on the data lane."""

    def __init__(
        self,
        *,
        config: TransactionCoordinatorConfig,
        log: CoordinatorLog,
        metadata: MetadataSource,
        controller: ActiveController,
        producer_ids: ProducerIdSource,
        brokers: Brokers,
        is_current: Callable[[], bool],
        clock_ms: Callable[[], int],
        may_judge_age: Callable[[], bool] = lambda: True,
    ) -> None:
        """`log` is __transaction_state as replication keeps it. is_current: whether `metadata` is as new as this process's
        registration: only then is a partition deleted that it does not have. may_judge_age: see TransactionShard."""
        self.config = config
        self._is_current = is_current
        self._metadata = metadata
        self._producer_ids = producer_ids
        self.topic = InternalTopic(
            TRANSACTION_TOPIC,
            partition_count=config.state_log_num_partitions,
            replication_factor=config.state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.state_log_min_isr, config.state_log_replication_factor)),
                "segment.bytes": str(config.state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
            metadata=metadata,
            controller=controller,
        )
        self.markers = Markers(
            brokers=brokers,
            leader_of=self._leader_of,
            coordinator_epoch=self._coordinator_epoch,
            complete=self._complete,
        )
        self._runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            "transaction",
            log=log,
            make_shard=lambda: TransactionShard(
                config, server_version=self.server_version, on_ending=self.markers.add, may_judge_age=may_judge_age
            ),
            clock_ms=clock_ms,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            load_bytes=config.state_log_load_buffer_size,
            on_loaded=lambda partition, shard: self.topic.note_loaded(partition, shard.states),
        )

    @property
    def stats(self) -> CoordinatorStats:
        """Counters of the runtime."""
        return self._runtime.stats

    @property
    def misplaced_partitions(self) -> set[int]:
        """Led partitions that hold transactional ids of others: see InternalTopic.misplaced."""
        return self.topic.misplaced

    @property
    def marker_stats(self) -> MarkerStats:
        """Counters of the markers."""
        return self.markers.stats

    # ---- start and stop ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Owner task: loads elected partitions and sends markers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runtime.run(), name="transaction coordinator")
            tasks.create_task(self.markers.run(), name="transaction markers")

    def on_elected(self, partition: int, leader_epoch: Epoch) -> None:
        """This broker leads a partition of __transaction_state (after the replica manager has taken the role)."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition."""
        self._runtime.on_resigned(partition)
        self.topic.note_resigned(partition)
        self.markers.forget(lambda transactional_id: self.partition_for(transactional_id) == partition)

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone: markers for them count as written when their turn comes, see `_leader_of`."""

    # ---- where a transactional id lives --------------------------------------------------------------------------

    def server_version(self) -> int:
        """The cluster's transaction.version."""
        return self._metadata.image.features.levels.get(TRANSACTION_VERSION, 0)

    def partition_for(self, transactional_id: str) -> int:
        """Partition of __transaction_state that the transactional id belongs to."""
        return self.topic.partition_for(transactional_id)

    async def find_coordinator(self, transactional_id: str) -> BrokerId:
        """Broker that coordinates the transactional id. Makes the topic if it is not there yet.

        Raises COORDINATOR_NOT_AVAILABLE while it has no leader; the client asks again.
        """
        return await self.topic.find_leader_for(transactional_id)

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        """A partition of a transaction was known to the coordinator that added it, so a newer image without it means that it was
        deleted. The image of a process that starts may be older than that."""
        registration = self._metadata.image.topics.partition(partition)
        if registration is None:
            return None if self._is_current() else NO_BROKER
        return registration.leader if registration.has_leader else NO_BROKER

    def _coordinator_epoch(self, transactional_id: str) -> Epoch | None:
        try:
            return self._runtime.leader_epoch(self.partition_for(transactional_id))
        except KafkaError:
            return None

    # ---- requests ------------------------------------------------------------------------------------------------

    async def initialize(self, transactional_id: str, *, timeout_ms: int, expected: Producer | None) -> Producer:
        """InitProducerId. Raises KafkaError; see state.initialize, and INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT."""
        _check_id(transactional_id)
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms {timeout_ms} is not between 1 and transaction.max.timeout.ms "
                f"{self.config.max_timeout_ms}"
            )
        producer: Producer = await self._write_with_fresh_id(
            transactional_id,
            lambda shard, ticket, now_ms, fresh: shard.initialize(
                transactional_id,
                ticket,
                timeout_ms=timeout_ms,
                expected=expected,
                fresh_producer_id=fresh,
                now_ms=now_ms,
            ),
        )
        return producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], *, client_version: int
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn. Raises KafkaError; see state.add_partitions, and UNKNOWN_TOPIC_OR_PARTITION for what
        is not in the image here: its marker would count as written, as that of a deleted partition does."""
        _check_id(transactional_id)
        unknown = self._metadata.image.topics.absent(partitions)
        if unknown:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the transaction coordinator has not heard of {unknown[0]} yet; try again",
            )
        await self._runtime.write(
            self.partition_for(transactional_id),
            lambda shard, ticket, now_ms: shard.add_partitions(
                transactional_id, producer, partitions, ticket, client_version=client_version, now_ms=now_ms
            ),
        )

    async def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the partitions are in the transaction. Raises KafkaError; see state.verify_partitions."""
        _check_id(transactional_id)
        codes: dict[TopicPartition, ErrorCode] = await self._runtime.write(
            self.partition_for(transactional_id),
            lambda shard, ticket, now_ms: shard.verify_partitions(transactional_id, producer, partitions, ticket),
        )
        return codes

    async def prepare(self, transactional_id: str, producer: Producer) -> None:
        """PrepareTxn: from now on the transaction waits for its decision. Raises KafkaError; see state.prepare, and UNSUPPORTED_VERSION
        below barnabas.two.phase.version 1."""
        _check_id(transactional_id)
        if not self._metadata.image.features.has_prepared_transactions:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"transactions are prepared from {TWO_PHASE_VERSION}=1 on; once every node runs this version, "
                f"`barnabas cluster features upgrade --feature {TWO_PHASE_VERSION}=1`",
            )
        await self._runtime.write(
            self.partition_for(transactional_id),
            lambda shard, ticket, now_ms: shard.prepare(transactional_id, producer, ticket, now_ms=now_ms),
        )

    async def end(self, transactional_id: str, producer: Producer, *, is_commit: bool, client_version: int) -> Producer:
        """EndTxn: the producer id and epoch to continue with, once the end is decided. Raises KafkaError; see
        state.end."""
        _check_id(transactional_id)
        goes_on: Producer = await self._write_with_fresh_id(
            transactional_id,
            lambda shard, ticket, now_ms, fresh: shard.end(
                transactional_id,
                producer,
                ticket,
                is_commit=is_commit,
                client_version=client_version,
                fresh_producer_id=fresh,
                now_ms=now_ms,
            ),
        )
        return goes_on

    async def _write_with_fresh_id(
        self,
        transactional_id: str,
        decide: Callable[[TransactionShard, Ticket, int, int | None], CoordinatorResult],
    ) -> Any:
        fresh: int | None = None
        while True:
            step = fresh
            try:
                return await self._runtime.write(
                    self.partition_for(transactional_id),
                    lambda shard, ticket, now_ms: decide(shard, ticket, now_ms, step),  # noqa: B023 - runs at once
                )
            except ProducerIdNeeded:
                fresh = await self._producer_ids.next_id()

    async def _complete(self, ending: Ending) -> None:
        await self._runtime.write(
            self.partition_for(ending.transactional_id),
            lambda shard, ticket, now_ms: shard.complete(ending, ticket, now_ms=now_ms),
        )

    # ---- for people ----------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionState:
        """One transactional id; while it ends, with the partitions whose marker is due. Raises KafkaError."""
        _check_id(transactional_id)
        state = self._runtime.shard(self.partition_for(transactional_id)).describe(transactional_id)
        if state.status not in ENDING:
            return state
        return state.with_partitions(self.markers.left(Ending(transactional_id, state)))

    def list_all(self) -> list[TransactionDescription]:
        """Every transactional id here. Raises COORDINATOR_LOAD_IN_PROGRESS while any partition is being read."""
        found: list[TransactionDescription] = []
        for partition in sorted(self._runtime.partitions):
            shard = self._runtime.shard(partition)
            found.extend(TransactionDescription(*known) for known in sorted(shard.committed.items()))
        return found

    def states(self) -> list[TransactionState]:
        """What is committed of every transactional id here, of partitions that are loaded. For metrics: may be called from another
        thread."""
        found: list[TransactionState] = []
        for partition, state in sorted(self._runtime.partitions.items()):
            if state is ShardState.ACTIVE:
                with contextlib.suppress(KafkaError):  # it was resigned meanwhile
                    found += list(self._runtime.shard(partition).committed.values())
        return found

    @property
    def partitions(self) -> dict[int, ShardState]:
        """Led partitions of __transaction_state and how far each is."""
        return self._runtime.partitions


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError.of(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
