"""Asks the share coordinators, which may be any brokers, until they have kept or said what was asked.

May touch:  asyncio, Brokers.         Must not touch: shards, logs, sockets.
Invariants: every call ends once, with an answer or a KafkaError; of each kind one request per broker is in flight at a time, about one
            group, and it names a key once.
Read next:  messages.py (Persister), service.py (who answers), ../brokers.py.

What comes together while a request is in flight goes along with the next. A change that is asked for again, because its answer was lost,
may come behind a later one: merging takes them in any order. Kafka waits a second before it asks again; here the first wait is a
tenth of that, for a coordinator that moves is there again sooner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple
from zlib import crc32

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.errors import CoordinatorNotAvailable
from barnabas_coordination.share_state.messages import (
    ShareKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from barnabas_coordination.share_state.records import from_messages, to_messages
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Epoch, Offset
from barnabas_wire.kafka.messages import delete_share_group_state as delete
from barnabas_wire.kafka.messages import initialize_share_group_state as initialize
from barnabas_wire.kafka.messages import read_share_group_state as read
from barnabas_wire.kafka.messages import read_share_group_state_summary as summary
from barnabas_wire.kafka.messages import write_share_group_state as write

logger = logging.getLogger(
    "barnabas_broker.coordinator.share_state.persister"
)  # the name that operators set a level of

ATTEMPTS_MAX: Final = 8
RETRY_S: Final = 0.1
"""Pause before a coordinator is looked for again; doubled with every failure, so that 13 s pass before the last attempt."""
RETRY_JITTER: Final = 0.2
KEYS_MAX: Final = 2_000
"""Most share partitions of one request; the others follow with the next."""
READ_KEYS_MAX: Final = 50
"""The same of one whose answer has their whole state."""
BATCHES_MAX: Final = 20_000
"""Most ranges of offsets that the changes of one request have together, but for its first."""

_SENT_AWAY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""The call was not judged: another broker may, or this one later. Asked in vain they all are
COORDINATOR_NOT_AVAILABLE."""
_RETRIABLE: Final = _SENT_AWAY | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""The last: the coordinator's metadata may be behind."""


class _Kind(Enum):
    """The five requests, each with its class and that of its topics."""

    INITIALIZE = (initialize.InitializeShareGroupStateRequest, initialize.InitializeStateData)
    READ = (read.ReadShareGroupStateRequest, read.ReadStateData)
    WRITE = (write.WriteShareGroupStateRequest, write.WriteStateData)
    DELETE = (delete.DeleteShareGroupStateRequest, delete.DeleteStateData)
    SUMMARY = (summary.ReadShareGroupStateSummaryRequest, summary.ReadStateSummaryData)


class _Question(NamedTuple):
    key: ShareKey
    data: Any
    """The PartitionData of the request."""
    answer: asyncio.Future[Any]
    """The PartitionResult of the response."""


_Lane = tuple[BrokerId, _Kind]


class BrokersPersister:
    """Meets Persister, for one broker. Everything runs on the data lane's loop."""

    def __init__(self, *, brokers: Brokers, find_coordinator: Callable[[str], Awaitable[BrokerId]]) -> None:
        """find_coordinator: by a key's coordinator_key; raises COORDINATOR_NOT_AVAILABLE while it has none."""
        self._brokers = brokers
        self._find_coordinator = find_coordinator
        self._queues: dict[_Lane, list[_Question]] = {}
        self._in_flight: set[_Lane] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self.retries = 0
        """Calls that had to be asked again."""
        self.failures = 0
        """Calls that were asked in vain to the last."""

    # ---- calls ---------------------------------------------------------------------------------------------------

    async def initialize(self, key: ShareKey, *, state_epoch: Epoch, start_offset: Offset = NO_OFFSET) -> None:
        """See Persister."""
        await self._ask(_Kind.INITIALIZE, key, initialize.PartitionData(key.partition, state_epoch, start_offset))

    async def read(self, key: ShareKey, *, leader_epoch: Epoch) -> ShareState:
        """See Persister."""
        found: read.PartitionResult = await self._ask(_Kind.READ, key, read.PartitionData(key.partition, leader_epoch))
        try:
            batches = from_messages(found.state_batches)
        except ValueError as error:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"{key.coordinator_key}: {error}") from error
        return ShareState(Epoch(found.state_epoch), Offset(found.start_offset), batches)

    async def write(
        self,
        key: ShareKey,
        *,
        state_epoch: Epoch,
        leader_epoch: Epoch,
        start_offset: Offset,
        complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """See Persister."""
        data = write.PartitionData(
            key.partition, state_epoch, leader_epoch, start_offset, complete_count, to_messages(batches)
        )
        await self._ask(_Kind.WRITE, key, data)

    async def delete(self, key: ShareKey) -> None:
        """See Persister."""
        await self._ask(_Kind.DELETE, key, delete.PartitionData(key.partition))

    async def summary(self, key: ShareKey) -> ShareSummary:
        """See Persister."""
        found: summary.PartitionResult = await self._ask(
            _Kind.SUMMARY, key, summary.PartitionData(key.partition, Epoch(0))
        )
        return ShareSummary(
            Epoch(found.state_epoch),
            Epoch(found.leader_epoch),
            Offset(found.start_offset),
            found.delivery_complete_count,
        )

    async def _ask(self, kind: _Kind, key: ShareKey, data: Any) -> Any:
        """The result of one partition, asked for until one is had that asking again would not change."""
        attempt = 0
        while True:
            attempt += 1
            try:
                lane = await self._find_coordinator(key.coordinator_key), kind
                question = _Question(key, data, asyncio.get_running_loop().create_future())
                self._queues.setdefault(lane, []).append(question)
                self._send_soon(lane)
                result = await question.answer
                if not result.error_code:
                    return result
                error = KafkaError.of(ErrorCode(result.error_code), result.error_message or "")
            except KafkaError as refused:
                error = refused
            if error.code not in _RETRIABLE or attempt == ATTEMPTS_MAX:
                break
            self.retries += 1
            logger.debug("%s of %s is asked again: %r", kind.name, key.coordinator_key, error)
            await asyncio.sleep(_pause_s(key, attempt))
        self.failures += 1
        if error.code in _SENT_AWAY:
            raise CoordinatorNotAvailable(error.message) from error
        raise error

    # ---- sending -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Owner task: asks until cancelled; those that wait then get COORDINATOR_NOT_AVAILABLE."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    for lane in self._queues:
                        self._send_soon(lane)
                    await asyncio.get_running_loop().create_future()
                finally:
                    self._tasks = None
        finally:
            for queue in self._queues.values():
                _refuse(queue, CoordinatorNotAvailable("this broker stops"))
                queue.clear()

    def _send_soon(self, lane: _Lane) -> None:
        """In the next turn of the loop, unless a request is in flight: what else comes in this one goes along."""
        if self._tasks is not None and self._queues[lane] and lane not in self._in_flight:
            self._in_flight.add(lane)
            self._tasks.create_task(self._send(lane), name=f"{lane[1].name} share state by {lane[0]}")

    async def _send(self, lane: _Lane) -> None:
        broker_id, kind = lane
        questions: list[_Question] = []
        error: KafkaError = CoordinatorNotAvailable(f"broker {broker_id} was not asked to the end")
        try:
            keys_max = READ_KEYS_MAX if kind is _Kind.READ else KEYS_MAX
            questions, self._queues[lane] = _taken(self._queues[lane], keys_max=keys_max)
            if not questions:  # none waits any more
                return
            try:
                response = await self._brokers.call(broker_id, _to_request(kind, questions))
            except KafkaError as refused:
                error = refused
            except (OSError, TimeoutError) as failed:
                error = KafkaError.of(ErrorCode.NETWORK_EXCEPTION, f"share coordinator {broker_id}: {failed!r}")
            else:
                error = CoordinatorNotAvailable(f"broker {broker_id} left it out of its answer")
                _take_answer(questions, response)
        finally:
            _refuse(questions, error)
            self._in_flight.discard(lane)
            self._send_soon(lane)


def _pause_s(key: ShareKey, attempt: int) -> float:
    """Other keys are asked about at other times, so that they do not all come at once to who has just taken over."""
    spread = crc32(f"{key.coordinator_key}/{attempt}".encode()) / 0xFFFF_FFFF * 2 - 1
    return float(RETRY_S * 2 ** (attempt - 1) * (1 + RETRY_JITTER * spread))


def _taken(queue: Sequence[_Question], *, keys_max: int) -> tuple[list[_Question], list[_Question]]:
    """What one request asks, and what is left: the questions about the first's group, of each key one."""
    taken: dict[ShareKey, _Question] = {}
    left: list[_Question] = []
    size = 0
    for question in queue:
        key = question.key
        if question.answer.done():
            continue  # its asker waits no more
        more = len(getattr(question.data, "state_batches", ()))
        if taken and (
            key.group_id != next(iter(taken)).group_id
            or key in taken
            or len(taken) == keys_max
            or size + more > BATCHES_MAX
        ):
            left.append(question)
            continue
        taken[key] = question
        size += more
    return list(taken.values()), left


def _to_request(kind: _Kind, questions: Sequence[_Question]) -> Any:
    request, topic = kind.value
    topics: dict[bytes, Any] = {}
    for key, data, _ in questions:
        if key.topic_id not in topics:
            topics[key.topic_id] = topic(key.topic_id, [])
        topics[key.topic_id].partitions.append(data)
    return request(questions[0].key.group_id, list(topics.values()))


def _take_answer(questions: Sequence[_Question], response: Any) -> None:
    found = {
        (topic.topic_id, partition.partition): partition for topic in response.results for partition in topic.partitions
    }
    for key, _, answer in questions:
        result = found.get((key.topic_id, key.partition))
        if result is not None and not answer.done():
            answer.set_result(result)


def _refuse(questions: Collection[_Question], error: KafkaError) -> None:
    """Those that were not answered."""
    for question in questions:
        if not question.answer.done():
            question.answer.set_exception(error)
