"""The markers that end transactions: to every partition's leader, again and again until each has written its own.

May touch:  asyncio, Brokers.         Must not touch: shards, logs, sockets.
Invariants: a marker goes out only for an end that is committed in `__transaction_state`; it is sent until it is written, its partition
            is deleted, or another coordinator has taken over; `complete` is called once all are there.
Read next:  shard.py (who asks), service.py (who completes), ../brokers.py.

One request per broker is in flight at a time, and it carries what has come together: with many transactions that end at once a
broker gets one request per turn of the loop, not one per transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import Final, NamedTuple

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.transaction.shard import Ending
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, TopicPartition
from barnabas_wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger("barnabas_broker.coordinator.transaction.markers")  # the name that operators set a level of

RETRY_S: Final = 0.02
"""Pause before a marker is sent again; doubled with every failure of its transaction, up to"""
RETRY_MAX_S: Final = 1.0
MARKERS_MAX: Final = 2_000
"""Most partitions of one request; the others follow with the next."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has ended the transaction, or continues it."""


@dataclass(slots=True)
class MarkerStats:
    """Counters."""

    requests: int = 0
    written: int = 0
    retried: int = 0
    """Markers that a broker did not take, or that none could be asked to take."""
    fenced: int = 0
    """Transactions that another coordinator has taken over."""


@dataclass(slots=True, eq=False)
class _Due:
    """One transaction whose markers are not all written."""

    ending: Ending
    left: set[TopicPartition]
    failures: int = 0
    is_retry_armed: bool = False
    failed: list[TopicPartition] = field(default_factory=list)
    """Partitions to be asked again when the pause is over."""


class _Item(NamedTuple):
    due: _Due
    partition: TopicPartition


class Markers:
    """Sends the markers of one coordinator. Everything runs on the data lane's loop."""

    def __init__(
        self,
        *,
        brokers: Brokers,
        leader_of: Callable[[TopicPartition], BrokerId | None],
        coordinator_epoch: Callable[[str], Epoch | None],
        complete: Callable[[Ending], Awaitable[None]],
    ) -> None:
        """leader_of: NO_BROKER while there is none, None for a partition that is gone. coordinator_epoch: leader epoch of the
        transactional id's partition, None when this broker no longer leads it. complete: raises KafkaError when it could not
        be written."""
        self.stats = MarkerStats()
        self._brokers = brokers
        self._leader_of = leader_of
        self._coordinator_epoch = coordinator_epoch
        self._complete = complete
        self._due: dict[str, _Due] = {}
        self._queues: dict[BrokerId, list[_Item]] = {}
        self._in_flight: set[BrokerId] = set()
        self._all_written: list[_Due] = []
        self._wake = asyncio.Event()

    def due_since_ms(self) -> list[int]:
        """When each transaction was decided whose markers are not all written. For metrics: may be called from another thread."""
        return [due.ending.state.update_ms for due in list(self._due.values())]

    def left(self, ending: Ending) -> frozenset[TopicPartition]:
        """Partitions of an ending whose marker is not known to be written."""
        due = self._due.get(ending.transactional_id)
        if due is None or due.ending != ending:
            return ending.state.partitions
        return frozenset(due.left)

    def add(self, ending: Ending) -> None:
        """An end is committed to the log: its markers are due."""
        due = _Due(ending, set(ending.state.partitions))
        self._due[ending.transactional_id] = due
        self._route(due, sorted(due.left))

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Some transactional ids are coordinated elsewhere now."""
        for transactional_id in [known for known in self._due if is_gone(known)]:
            del self._due[transactional_id]

    # ---- to whom -------------------------------------------------------------------------------------------------

    def _route(self, due: _Due, partitions: Iterable[TopicPartition]) -> None:
        """Queue markers for the leaders of now."""
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                due.left.discard(partition)
            elif leader == NO_BROKER:
                self._fail(due, partition)
            else:
                self._queues.setdefault(leader, []).append(_Item(due, partition))
        if not due.left:
            self._all_written.append(due)
        self._wake.set()

    def _fail(self, due: _Due, partition: TopicPartition) -> None:
        self.stats.retried += 1
        due.failed.append(partition)
        if due.is_retry_armed:
            return
        due.is_retry_armed = True
        delay_s = min(RETRY_MAX_S, RETRY_S * 2 ** min(due.failures, 10))
        due.failures += 1
        asyncio.get_running_loop().call_later(delay_s, self._retry, due)

    def _retry(self, due: _Due) -> None:
        due.is_retry_armed = False
        failed, due.failed = due.failed, []
        if self._is_current(due):
            self._route(due, failed)

    def _is_current(self, due: _Due) -> bool:
        return self._due.get(due.ending.transactional_id) is due

    # ---- sending -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Owner task: sends until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                await asyncio.sleep(0)  # what else ends in this turn of the loop goes along
                self._wake.clear()
                written, self._all_written = self._all_written, []
                for due in written:
                    tasks.create_task(self._finish(due), name=f"complete {due.ending.transactional_id}")
                for broker_id in [known for known, queue in self._queues.items() if queue]:
                    if broker_id not in self._in_flight:
                        self._in_flight.add(broker_id)
                        tasks.create_task(self._send(broker_id), name=f"markers to {broker_id}")

    async def _send(self, broker_id: BrokerId) -> None:
        try:
            queue = self._queues[broker_id]
            items, self._queues[broker_id] = queue[:MARKERS_MAX], queue[MARKERS_MAX:]
            items = [item for item in items if self._is_current(item.due)]
            markers, items = self._to_markers(items)
            if not markers:
                return
            self.stats.requests += 1
            try:
                response = await self._brokers.call(broker_id, WriteTxnMarkersRequest(markers=markers))
            except (KafkaError, OSError, TimeoutError) as error:
                logger.debug("broker %d took no transaction markers: %r", broker_id, error)
                for due, partition in items:
                    self._fail(due, partition)
                return
            self._take_answer(items, response)
        finally:
            self._in_flight.discard(broker_id)
            self._wake.set()

    def _to_markers(self, items: list[_Item]) -> tuple[list[WritableTxnMarker], list[_Item]]:
        """The markers to send, and the items that they stand for: those of transactions that are still coordinated here."""
        by_due: dict[_Due, dict[str, list[int]]] = {}
        for due, (topic, partition) in items:
            by_due.setdefault(due, {}).setdefault(topic, []).append(partition)
        markers = []
        gone = set()
        for due, topics in by_due.items():
            transactional_id, state = due.ending
            epoch = self._coordinator_epoch(transactional_id)
            if epoch is None:
                gone.add(due)
                del self._due[transactional_id]
                continue
            markers.append(
                WritableTxnMarker(
                    producer_id=state.producer_id,
                    producer_epoch=state.producer_epoch,
                    transaction_result=state.is_commit,
                    topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
                    coordinator_epoch=epoch,
                    transaction_version=state.client_version,
                )
            )
        return markers, [item for item in items if item.due not in gone]

    def _take_answer(self, items: list[_Item], response: WriteTxnMarkersResponse) -> None:
        codes = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        for due, partition in items:
            if not self._is_current(due):
                continue
            # a partition without an answer was not written
            code = codes.get((due.ending.state.producer_id, *partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code == ErrorCode.NONE:
                self.stats.written += 1
                due.left.discard(partition)
                if not due.left:
                    self._all_written.append(due)
            elif code in _FENCED:
                self.stats.fenced += 1
                logger.info(
                    "%s: %s has a marker of a later coordinator or producer; this one sends no more",
                    due.ending.transactional_id,
                    partition,
                )
                del self._due[due.ending.transactional_id]
            else:
                self._fail(due, partition)

    async def _finish(self, due: _Due) -> None:
        """Write that all markers are there, until that is written or is another's to write."""
        while self._is_current(due) and self._coordinator_epoch(due.ending.transactional_id) is not None:
            try:
                await self._complete(due.ending)
                break
            except KafkaError as error:
                logger.debug("%s: not completed yet: %r", due.ending.transactional_id, error)
            await asyncio.sleep(min(RETRY_MAX_S, RETRY_S * 2 ** min(due.failures, 10)))
            due.failures += 1
        if self._is_current(due):
            del self._due[due.ending.transactional_id]
