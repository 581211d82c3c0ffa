"""A transactional producer by hand, in the versions of one kind of client, whose requests can be copied, held back and sent late.

May touch:  the cluster through its clients.   Must not touch: files.
Invariants: what it writes has the sequence numbers of an idempotent producer; a request that got no answer is sent again as it was.
Read next:  tests/cluster/test_late_end.py and tests/chaos/data/late.py, which use it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import RetrySchedule, known_code, produce_request, read_produced
from barnabas_wire.client.routing import Steps, ask
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset, TopicPartition
from barnabas_wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.records.batch import Record, build_batch

TRANSACTION_KEY = 1
RETRIES_MAX = 400
RETRY_S = 0.05
_VERSIONS = {True: {"produce": 12, "end": 5}, False: {"produce": 9, "end": 3}}


class TransactionalProducer:
    """Of one transactional id. Calls raise KafkaError with what the cluster said, OSError where nobody answered in time."""

    def __init__(self, client: ClusterClient, name: str, *, is_new: bool, timeout_ms: int = 60_000) -> None:
        """is_new: speaks transaction.version 2; else 1, as every client before Kafka 4. timeout_ms: of its transactions."""
        self.client, self.name, self.is_new = client, name, is_new
        self.producer_id = self.epoch = -1
        self._timeout_ms = timeout_ms
        self._versions = _VERSIONS[is_new]
        self._sequences: Counter[TopicPartition] = Counter()

    async def init(self) -> None:
        """Take the transactional id."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
        self._take(await self._retried(lambda: self._ask(request)))

    async def write(
        self, key: TopicPartition, value: bytes = b"v", *, age_ms: int = 0, is_added: bool = True
    ) -> Offset:
        """One record, the first of which begins the transaction; its offset.

        age_ms: of the record. is_added: an old client without it tells no coordinator of the partition, whose transaction then hangs.
        """
        if not self.is_new and is_added:
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(key.topic, [key.partition])],
            )
            await self._retried(lambda: self._ask(add, version_max=3))
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000 - age_ms, b"k", value)],
            is_transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences[key],
        )
        request = produce_request(key, batch, acks=-1, timeout_ms=10_000)
        request.transactional_id = self.name

        routing = self.client.routing

        def attempt(schedule: RetrySchedule) -> Steps[Offset]:
            yield from routing.know([key], schedule)
            answer = yield ask(request, schedule, routing.view.leader(key), version_max=self._versions["produce"])
            return read_produced(answer, key)

        offset: Offset = await self._retried(lambda: self.client.run(routing.retry(attempt, topics={key.topic})))
        self._sequences[key] += 1
        return offset

    def end_request(self, *, is_commit: bool) -> EndTxnRequest:
        """As it is sent now; a copy of it may come late."""
        return EndTxnRequest(self.name, self.producer_id, self.epoch, is_commit)

    async def send_end(self, request: EndTxnRequest, client: ClusterClient | None = None) -> Any:
        """Send it once; the answer. client: over this one's connections."""
        return await self._ask(request, version_max=self._versions["end"], client=client)

    async def end(self, *, is_commit: bool, client: ClusterClient | None = None) -> None:
        """End the transaction, and go on as the answer says. Where nothing answers, the same request is sent again.

        client: whose time-out says how long to wait for an answer; its connections are closed when none came.
        """
        request = self.end_request(is_commit=is_commit)

        async def send() -> Any:
            try:
                return await self.send_end(request, client)
            except OSError:
                if client is None:
                    raise
                await client.close()
                return None

        answer = await self._retried(send)
        if self.is_new:
            self._take(answer)

    async def state(self) -> str:
        """What the coordinator says of the transactional id."""
        answer = await self._ask(DescribeTransactionsRequest(transactional_ids=[self.name]))
        return str(answer.transaction_states[0].transaction_state)

    async def _ask(self, request: Any, *, version_max: int | None = None, client: ClusterClient | None = None) -> Any:
        to = client or self.client
        return await to.call_coordinator(self.name, request, key_type=TRANSACTION_KEY, version_max=version_max)

    def _take(self, answer: Any) -> None:
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def _retried(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """While the last transaction is still being ended, or nobody has answered. Raises what else is refused."""
        for _ in range(RETRIES_MAX):
            try:
                answer = await call()
            except KafkaError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise
                answer = None
            codes = _codes(answer)
            if codes == {0}:
                return answer
            refusals = codes - {ErrorCode.CONCURRENT_TRANSACTIONS.value}
            if refusals:
                raise KafkaError.of(known_code(min(refusals)), f"{self.name}: {answer}")
            await asyncio.sleep(RETRY_S)
        raise TimeoutError(f"{self.name}: the last transaction does not end")


def _codes(answer: Any) -> set[int]:
    """Of an answer; none where there is no answer."""
    if answer is None:
        return set()
    if isinstance(answer, int):  # an offset
        return {0}
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        return {int(answer.error_code)}
    return {int(each.partition_error_code) for topic in topics for each in topic.results_by_partition}
