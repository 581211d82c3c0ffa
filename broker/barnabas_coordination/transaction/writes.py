"""Writes of transactions: a partition's first batch waits until the transaction's coordinator knows of the partition (KIP-890).

May touch:  the replica manager, the group coordinator, Verification, asyncio.   Must not touch: shards, sockets, wire versions.
Invariants: no batch of a transaction is appended to a partition that its coordinator does not know to be in it; the writes of one
            producer are appended in the order in which they came; at most WAITING_BYTES_MAX of copied batches wait.
Read next:  verification.py, barnabas_broker/api/produce.py, barnabas_log/tail/producer_state.py (the guard).

A batch of a transaction that is open in its partition already goes straight to the log: this is about the first one. A guard is taken in
the partition when the question leaves, and confirmed by the answer: a marker that comes in between makes it void, so that a late batch
cannot open a transaction that would never end. Offsets of a transaction go the same way, each time; the log refuses
both without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_coordination.group.messages import OffsetCommit
from barnabas_coordination.group.service import OFFSETS_TOPIC, GroupCoordinator
from barnabas_coordination.shard import Writer
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.state import Producer
from barnabas_coordination.transaction.verification import Verification
from barnabas_log.errors import InvalidTransactionState
from barnabas_log.tail.producer_state import ProducerState, VerificationGuard
from barnabas_replication.errors import NotEnoughReplicas, RequestTimedOut
from barnabas_replication.leader.scrutiny import Scrutiny
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.requests import AppendEntry, AppendOutcome, RespondAppend
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import HEADER, HEADER_BYTES, TRANSACTIONAL_FLAG, Buffer

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Copied batches that wait for a coordinator. Beyond it clients are asked to try again."""

_RETRIED_AS_REPLICAS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # to the coordinator, whose metadata is behind: this broker leads it
    }
)
"""Errors of the coordinator, which a producer would not understand of a partition. NOT_ENOUGH_REPLICAS is retried, and
asks for no metadata."""


class WriteVersion(NamedTuple):
    """What the client of a write knows."""

    adds_partitions: bool
    """transaction.version 2: the write itself adds its partitions (Produce v12, TxnOffsetCommit v5)."""
    knows_abortable: bool
    """TRANSACTION_ABORTABLE (Produce v11)."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """One produce request that waits, with its own bytes."""

    transactional_id: str
    entries: list[AppendEntry]
    version: WriteVersion
    required_acks: int
    timeout_ms: int
    respond: RespondAppend
    scrutiny: Scrutiny | None
    size_bytes: int


class TransactionalWrites:
    """The transactional writes of one broker. Everything runs on the data lane's loop."""

    def __init__(
        self,
        *,
        config: TransactionCoordinatorConfig,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        verification: Verification,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._groups = groups
        self._verification = verification
        self._waiting: dict[int, list[_Waiting]] = {}
        """By producer id, oldest first; the first one is at work."""
        self._waiting_bytes = 0
        self._work: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()

    async def run(self) -> None:
        """Owner task, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._verification.run(), name="transaction verification")
            while True:
                tasks.create_task(await self._work.get(), name="transactional write")

    # ---- produce -------------------------------------------------------------------------------------------------

    def append_records(
        self,
        transactional_id: str,
        entries: Sequence[AppendEntry],
        *,
        version: WriteVersion,
        required_acks: int,
        timeout_ms: int,
        respond: RespondAppend,
        scrutiny: Scrutiny | None = None,
    ) -> None:
        """Append one produce request of a transactional producer; see Appends.append_records."""
        producer_id = next((found.producer_id for found in map(_producer_of, entries) if found is not None), -1)
        if producer_id not in self._waiting and not any(self._is_unverified(entry, version) for entry in entries):
            self._replicas.appends.append_records(
                entries, required_acks=required_acks, timeout_ms=timeout_ms, respond=respond, scrutiny=scrutiny
            )
            return
        size_bytes = sum(len(batches) for _, _, batches in entries)
        if self._waiting_bytes and self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            busy = RequestTimedOut("too many transactional writes wait for their coordinators; send it again")
            respond([AppendOutcome(topic, number, busy) for topic, number, _ in entries])
            return
        self._waiting_bytes += size_bytes
        request = _Waiting(
            transactional_id,
            [AppendEntry(topic, number, bytes(batches)) for topic, number, batches in entries],
            version,
            required_acks,
            timeout_ms,
            respond,
            scrutiny,
            size_bytes,
        )
        queue = self._waiting.setdefault(producer_id, [])
        queue.append(request)
        if len(queue) == 1:
            self._work.put_nowait(self._work_off(producer_id))

    async def _work_off(self, producer_id: int) -> None:
        """One producer's requests, in their order, until none waits."""
        queue = self._waiting[producer_id]
        try:
            while queue:
                await self._verify_and_append(queue[0])
                self._waiting_bytes -= queue.pop(0).size_bytes
        finally:
            del self._waiting[producer_id]

    async def _verify_and_append(self, request: _Waiting) -> None:
        refused = await self._verify(request)
        admitted = [entry for entry in request.entries if TopicPartition(*entry[:2]) not in refused]

        def respond(outcomes: list[AppendOutcome]) -> None:
            tried = iter(outcomes)
            request.respond(
                [
                    AppendOutcome(topic, number, refused[TopicPartition(topic, number)])
                    if TopicPartition(topic, number) in refused
                    else _judged(next(tried), request.version)
                    for topic, number, _ in request.entries
                ]
            )

        if not admitted:
            respond([])
            return
        self._replicas.appends.append_records(
            admitted,
            required_acks=request.required_acks,
            timeout_ms=request.timeout_ms,
            respond=respond,
            scrutiny=request.scrutiny,
        )

    async def _verify(self, request: _Waiting) -> dict[TopicPartition, KafkaError]:
        """Have each partition known to be in the transaction; those that are refused."""
        writers: dict[TopicPartition, Producer] = {}
        unverified: list[TopicPartition] = []
        for entry in request.entries:
            producer = _producer_of(entry)
            if producer is not None:
                key = TopicPartition(*entry[:2])
                writers[key] = producer
                if self._is_unverified(entry, request.version):
                    unverified.append(key)
        refused = await self._confirm(
            request.transactional_id, writers, unverified, is_add=request.version.adds_partitions
        )
        return {key: _refusal(code, request.version) for key, code in refused.items()}

    async def _confirm(
        self,
        transactional_id: str,
        writers: Mapping[TopicPartition, Producer],
        unverified: Sequence[TopicPartition],
        *,
        is_add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask until every partition of `writers` is known to be in the transaction, beginning with those `unverified`; the codes of
        those that are refused. The others may be written to in the turn of the loop in which this returns.

        While the last transaction is being ended the next cannot begin: a producer that is so fast waits here, and a little. Its
        last transaction's marker comes meanwhile and makes the guard void, so each question has its own guards, from
        when it leaves. However long an answer took, after a marker that came before it there is one more question: the
        marker of a transaction comes once, so that is rarely void, too.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._config.add_partitions_retry_backoff_max_ms / 1000
        refused: dict[TopicPartition, ErrorCode] = {}
        is_first, is_last = True, False
        while unverified:
            if is_last:
                return refused | dict.fromkeys(unverified, ErrorCode.CONCURRENT_TRANSACTIONS)
            is_last = loop.time() > until
            producer = writers[unverified[0]]
            asked = [key for key in unverified if writers[key] == producer]
            guards: dict[TopicPartition, VerificationGuard] = {}
            codes = await self._verification.ask(
                transactional_id,
                producer,
                asked,
                is_add=is_add,
                on_leaving=partial(self._begin_verifications, guards, asked, producer),
            )
            waits, is_first = not is_first, False
            for key, code in codes.items():
                if code == ErrorCode.NONE:
                    self._confirm_one(key, producer, guards)
                elif is_add and code == ErrorCode.CONCURRENT_TRANSACTIONS and loop.time() < until:
                    waits = True
                else:
                    refused[key] = ErrorCode(code)
            # each of them again: a marker may have come to one while another was asked about
            unverified = self._left_of(writers, refused)
            if waits and unverified:
                await asyncio.sleep(self._config.add_partitions_retry_backoff_ms / 1000)
                unverified = self._left_of(writers, refused)
        return refused

    # ---- offsets -------------------------------------------------------------------------------------------------

    async def commit_offsets(
        self, transactional_id: str, commit: OffsetCommit, writer: Writer, *, is_add: bool
    ) -> tuple[ErrorCode, ...]:
        """TxnOffsetCommit: one code per offset, in order. Raises KafkaError; see GroupCoordinator.commit_in_transaction."""
        self._groups.check_coordinates(commit.member.group_id)  # before its partition is added to the transaction
        key = TopicPartition(OFFSETS_TOPIC, self._groups.partition_for(commit.member.group_id))
        # of each commit, the first or not: one that is late may find its transaction prepared
        refused = await self._confirm(transactional_id, {key: Producer(*writer)}, [key], is_add=is_add)
        code = refused.get(key, ErrorCode.NONE)
        if code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # what clients know to retry of a group coordinator
        if code is not ErrorCode.NONE:
            raise KafkaError.of(code, f"{key} is not known to be in the transaction")
        # In this turn of the loop: the log takes no offsets that a marker has come before.
        return await self._groups.commit_in_transaction(commit, writer)

    # ---- the partition -------------------------------------------------------------------------------------------

    def _is_unverified(self, entry: AppendEntry, version: WriteVersion) -> bool:
        """Whether the entry's batch would open a transaction in its partition. Where none is led here the log refuses it."""
        producer = _producer_of(entry)
        if producer is None:
            return False
        if not self._needs_verification(TopicPartition(*entry[:2]), producer):
            return False
        if not version.adds_partitions and not self._config.is_verification_enabled:
            producers = self._replicas.hosted.leader_partition(TopicPartition(*entry[:2])).log.producers
            producers.confirm(producer.producer_id, producers.begin_verification(*producer))
            return False
        return True

    def _producers_of(self, key: TopicPartition) -> ProducerState | None:
        """The producers that have written to a partition; None unless it is led here."""
        partition = self._replicas.partition(key)
        return partition.log.producers if partition is not None and partition.is_leader else None

    def _needs_verification(self, key: TopicPartition, producer: Producer) -> bool:
        producers = self._producers_of(key)
        return producers is not None and producers.needs_verification(*producer)

    def _left_of(
        self, writers: Mapping[TopicPartition, Producer], refused: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        return [key for key in writers if key not in refused and self._needs_verification(key, writers[key])]

    def _begin_verifications(
        self,
        guards: dict[TopicPartition, VerificationGuard],
        partitions: Collection[TopicPartition],
        producer: Producer,
    ) -> None:
        for key in partitions:
            producers = self._producers_of(key)
            if producers is not None:
                guards[key] = producers.begin_verification(*producer)

    def _confirm_one(
        self, key: TopicPartition, producer: Producer, guards: Mapping[TopicPartition, VerificationGuard]
    ) -> None:
        """The coordinator knows the partition: that counts unless a marker has come since the question left."""
        producers = self._producers_of(key)
        if producers is not None and key in guards:
            producers.confirm(producer.producer_id, guards[key])


def _producer_of(entry: AppendEntry) -> Producer | None:
    """The producer that wrote a transactional batch; None for another batch, and for bytes that are no batch."""
    batches: Buffer = entry[2]
    if len(batches) < HEADER_BYTES:
        return None
    _, _, _, _, _, attributes, _, _, _, producer_id, epoch, _, _ = HEADER.unpack_from(batches)
    return Producer(producer_id, epoch) if attributes & TRANSACTIONAL_FLAG and producer_id >= 0 else None


def _judged(outcome: AppendOutcome, version: WriteVersion) -> AppendOutcome:
    """What came of an append that was verified. One may wait for its topic's codec after that, and a marker come first: what the log
    says then is not its coordinator's word, which the producer gets when it tries again."""
    if isinstance(outcome.error, InvalidTransactionState):
        return outcome._replace(error=_refusal(ErrorCode.CONCURRENT_TRANSACTIONS, version))
    return outcome


def _refusal(code: ErrorCode, version: WriteVersion) -> KafkaError:
    """What a producer gets for a coordinator's answer, in the codes that a produce may have."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version.adds_partitions:
        return KafkaError.of(code, "the last transaction is still being ended; try again")
    if code in _RETRIED_AS_REPLICAS or code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return NotEnoughReplicas(f"the transaction's coordinator cannot confirm the partition ({code.name}); try again")
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError.of(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has the transactional id")
    if code is ErrorCode.TRANSACTION_ABORTABLE and not version.knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    return KafkaError.of(code, "the partition is not in the producer's transaction; abort it")
