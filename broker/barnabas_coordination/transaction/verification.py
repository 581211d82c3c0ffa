"""Whether partitions are in a transaction, asked of its coordinator by the broker that is about to write to them (KIP-890).

May touch:  asyncio, Brokers.         Must not touch: logs, shards, sockets.
Invariants: every question is answered once, with a code for each partition; one request per coordinator is in flight at a time.
Read next:  service.py (who answers), barnabas_broker/api/produce.py (who asks), ../brokers.py.

A client that speaks transaction.version 2 does not add its partitions: the broker adds them here, with the first batch. For an older
one the broker asks only whether the client has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.transaction.state import Producer
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, TopicPartition
from barnabas_wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

logger = logging.getLogger(
    "barnabas_broker.coordinator.transaction.verification"
)  # the name that operators set a level of

QUESTIONS_MAX: Final = 2_000
"""Most transactions of one request; the others follow with the next."""

Codes = Mapping[TopicPartition, int]


class _Question(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    is_add: bool
    on_leaving: Callable[[], None]
    answer: asyncio.Future[Codes]


class Verification:
    """Asks coordinators for one broker. Everything runs on the data lane's loop."""

    def __init__(self, *, brokers: Brokers, coordinator_of: Callable[[str], BrokerId]) -> None:
        """coordinator_of: raises KafkaError while a transactional id has none."""
        self._brokers = brokers
        self._coordinator_of = coordinator_of
        self._queues: dict[BrokerId, list[_Question]] = {}
        self._in_flight: set[BrokerId] = set()
        self._wake = asyncio.Event()

    async def ask(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        is_add: bool,
        on_leaving: Callable[[], None] = lambda: None,
    ) -> Codes:
        """A code for each partition; NONE: it is in the producer's open transaction, which `is_add` may have begun.

        on_leaving: called when the question leaves, after it has waited for those before it: what the answer is to be held against
        is noted then. Never called for one that does not leave, whose codes are errors.
        """
        try:
            broker_id = self._coordinator_of(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        question = _Question(transactional_id, producer, partitions, is_add, on_leaving, answer)
        self._queues.setdefault(broker_id, []).append(question)
        self._wake.set()
        return await answer

    async def run(self) -> None:
        """Owner task: asks until cancelled; requests that wait then get COORDINATOR_NOT_AVAILABLE."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._wake.wait()
                    await asyncio.sleep(0)  # what else comes in this turn of the loop goes along
                    self._wake.clear()
                    for broker_id in [known for known, queue in self._queues.items() if queue]:
                        if broker_id not in self._in_flight:
                            self._in_flight.add(broker_id)
                            tasks.create_task(self._send(broker_id), name=f"verification by {broker_id}")
        finally:
            for queue in self._queues.values():
                _answer_all(queue, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                queue.clear()

    async def _send(self, broker_id: BrokerId) -> None:
        questions: list[_Question] = []
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            # one question of a transactional id in a request: the answer names no more than the id
            taken: dict[str, _Question] = {}
            left = []
            for question in self._queues[broker_id]:
                if len(taken) < QUESTIONS_MAX and question.transactional_id not in taken:
                    taken[question.transactional_id] = question
                else:
                    left.append(question)
            self._queues[broker_id] = left
            questions = list(taken.values())
            for question in questions:
                question.on_leaving()
            try:
                response = await self._brokers.call(broker_id, _to_request(questions))
            except KafkaError as error:
                code = error.code
            except (OSError, TimeoutError) as error:
                logger.debug("coordinator %d cannot be asked about transactions: %r", broker_id, error)
                code = ErrorCode.NETWORK_EXCEPTION
            else:
                _take_answer(taken, response)
        finally:
            _answer_all(questions, code)
            self._in_flight.discard(broker_id)
            self._wake.set()


def _to_request(questions: list[_Question]) -> AddPartitionsToTxnRequest:
    transactions = []
    for transactional_id, (producer_id, epoch), partitions, is_add, _, _ in questions:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=not is_add,
                topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def _take_answer(questions: Mapping[str, _Question], response: AddPartitionsToTxnResponse) -> None:
    """A partition that the answer leaves out was not judged."""
    for result in response.results_by_transaction:
        question = questions.get(result.transactional_id)
        if question is None:
            continue
        found = {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        missing = response.error_code or ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not question.answer.done():
            question.answer.set_result({partition: found.get(partition, missing) for partition in question.partitions})
    if response.error_code:
        _answer_all(questions.values(), ErrorCode(response.error_code))


def _answer_all(questions: Collection[_Question], code: ErrorCode) -> None:
    """Those that were not answered yet."""
    for question in questions:
        if not question.answer.done():
            question.answer.set_result(dict.fromkeys(question.partitions, code))
