"""`python -m tests.chaos.data.aio --bootstrap … --history FILE`: the clients that are aiokafka, in one process.

May touch:  the cluster as its clients, its history file.   Must not touch: faults, verdicts.
Invariants: those of confluent.py; a member's generation is written only where it was the same before and after the call.
Read next:  plan.py, how much.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Awaitable
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    MessageSizeTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from tests.chaos.data.confluent import DRAIN_TIMEOUT_S, FLUSH_TIMEOUT_S, QUIET_S, pad, unpad
from tests.chaos.data.plan import (
    AIO_GROUP,
    AIO_WRITERS,
    KEPT,
    KEYS,
    MEMBERS,
    PARTITIONS,
    Writer,
    key_of,
    outcome_of_refused_commit,
)
from tests.checker.data_history import (
    ASSIGNED,
    FAIL,
    INFO,
    OK,
    SUBSCRIBED,
    UNKNOWN_OFFSET,
    Assignment,
    Commit,
    Fault,
    HistoryWriter,
    Poll,
    Send,
)

_NOT_COMMITTED = (CommitFailedError, IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError)
_READING: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "fetch_max_wait_ms": 100,
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 1000,
    # below the time after which a read is stale: aiokafka 0.14, when a position must be reset, asks the former leader until then
    "metadata_max_age_ms": 2000,
}


class Clients:
    """All of them, a task each."""

    def __init__(self, bootstrap: str, history: HistoryWriter, seed: int) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._seed = seed
        self._is_over = asyncio.Event()
        self._writers_left = len(AIO_WRITERS)

    async def run(self) -> None:
        """Work until standard input ends, then end in order."""
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self._on_input)
        async with asyncio.TaskGroup() as tasks:
            for writer in AIO_WRITERS:
                tasks.create_task(self._guard(writer.client, self._write(writer)))
            tasks.create_task(self._guard("aio-reader", self._read("aio-reader")))
            for number in range(MEMBERS):
                name = f"aio-member-{number}"
                tasks.create_task(self._guard(name, self._read_in_group(name)))

    def _on_input(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._is_over.set()

    async def _guard(self, name: str, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            self._history.write(Fault(who=f"the client {name}", what=traceback.format_exc()))

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _write(self, writer: Writer) -> None:
        random = Random(f"{self._seed}{writer.client}")
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            client_id=writer.client,
            acks="all",
            enable_idempotence=writer.is_idempotent,
            linger_ms=5,
            request_timeout_ms=90_000,
            metadata_max_age_ms=5000,
        )
        await producer.start()
        reports: set[asyncio.Task[None]] = set()
        sequences: dict[str, int] = {}
        started = time.monotonic()
        number = 0
        try:
            while not self._is_over.is_set():
                partition = random.randrange(PARTITIONS[writer.topic])
                key = key_of(writer.topic, partition)
                sequence = sequences.get(key, 0)
                sequences[key] = sequence + 1
                value = f"{writer.client}-{number}"
                number += 1
                begun = time.monotonic()
                try:
                    report = await producer.send(
                        writer.topic, pad(value, random.randrange(writer.padding)), partition=partition
                    )
                    task = asyncio.create_task(self._report(writer, key, sequence, value, begun, report))
                    reports.add(task)
                    task.add_done_callback(reports.discard)
                except KafkaError as error:
                    # an idempotent batch may hold it although the wait for room in another broke
                    self._note(writer, key, sequence, value, begun, INFO, UNKNOWN_OFFSET, repr(error))
                ahead = started + number / writer.per_second - time.monotonic()
                await asyncio.sleep(max(0.0, ahead))
            if reports:
                await asyncio.wait(reports, timeout=FLUSH_TIMEOUT_S)
            for task in list(reports):
                task.cancel()
            if reports:
                await asyncio.wait(list(reports))
        finally:
            self._writers_left -= 1
        try:
            await asyncio.wait_for(producer.stop(), FLUSH_TIMEOUT_S)
        except TimeoutError:
            self._history.write(Fault(who=writer.client, what=f"did not stop within {FLUSH_TIMEOUT_S:.0f} s"))

    async def _report(
        self, writer: Writer, key: str, sequence: int, value: str, begun: float, report: asyncio.Future[Any]
    ) -> None:
        outcome, offset, words = INFO, UNKNOWN_OFFSET, "no report"
        try:
            answer = await report
            outcome, words = OK, ""
            offset = answer.offset if answer.offset >= 0 else UNKNOWN_OFFSET
        except MessageSizeTooLargeError as error:
            outcome, words = FAIL, repr(error)
        except KafkaError as error:
            words = repr(error)
        finally:
            self._note(writer, key, sequence, value, begun, outcome, offset, words)

    def _note(
        self,
        writer: Writer,
        key: str,
        sequence: int,
        value: str,
        begun: float,
        outcome: str,
        offset: int,
        error: str,
    ) -> None:
        self._history.write(
            Send(
                client=writer.client,
                key=key,
                value=value,
                sequence=sequence,
                begun=begun,
                ended=time.monotonic(),
                outcome=outcome,
                offset=offset,
                is_idempotent=writer.is_idempotent,
                error=error,
            )
        )

    # -- reading ---------------------------------------------------------------------------------------------------

    def _may_read_on(self, last_record: float, stopped: float | None) -> bool:
        if not self._is_over.is_set() or self._writers_left:
            return True
        now = time.monotonic()
        return now - last_record < QUIET_S and (stopped is None or now - stopped < DRAIN_TIMEOUT_S)

    async def _read(self, name: str) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, client_id=name, **_READING)
        await consumer.start()
        places = [TopicPartition(topic, partition) for topic, partition in KEYS]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        keys = [key_of(*key) for key in KEYS]
        self._history.write(Assignment(client=name, group="", assignment=0, keys=keys, at=time.monotonic()))
        await self._poll(consumer, name)
        await consumer.stop()

    async def _poll(self, consumer: Any, name: str, member: _Member | None = None) -> None:
        last = time.monotonic()
        stopped = None
        while self._may_read_on(last, stopped):
            if stopped is None and self._is_over.is_set() and not self._writers_left:
                stopped = last = time.monotonic()
            begun = time.monotonic()
            fetched = await consumer.getmany(timeout_ms=100, max_records=500)
            records = {
                key_of(place.topic, place.partition): [(record.offset, unpad(record.value)) for record in found]
                for place, found in fetched.items()
                if found
            }
            ended = time.monotonic()
            last = ended if records else last
            if member is None:
                self._history.write(Poll(client=name, how=ASSIGNED, begun=begun, ended=ended, records=records))
                continue
            # aiokafka gives no record of a partition that a rebalance during the call took away: all are the present one's
            if records:
                for place, found in fetched.items():
                    if found and key_of(place.topic, place.partition) in member.keys:
                        member.positions[place] = found[-1].offset + 1
                self._history.write(
                    Poll(
                        client=name,
                        how=SUBSCRIBED,
                        begun=begun,
                        ended=ended,
                        records=records,
                        assignment=member.assignment,
                        group=AIO_GROUP,
                    )
                )
            await member.commit_if_due()

    async def _read_in_group(self, name: str) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, client_id=name, group_id=AIO_GROUP, **_READING)
        member = _Member(consumer, self._history, name)
        consumer.subscribe([KEPT], listener=member)
        await consumer.start()
        await self._poll(consumer, name, member)
        await member.commit()
        await consumer.stop()


class _Member(ConsumerRebalanceListener):
    """One member of AIO_GROUP."""

    def __init__(self, consumer: Any, history: HistoryWriter, name: str) -> None:
        self._consumer = consumer
        self._history = history
        self._name = name
        self._last_commit = time.monotonic()
        self.assignment = 0
        self.keys: set[str] = set()
        self.positions: dict[TopicPartition, int] = {}
        """Next offset of what this assignment has read."""

    @property
    def _generation(self) -> int:
        # the coordinator client has no public name for it
        return int(self._consumer._coordinator.generation)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Commit what was read."""
        await self.commit()
        self.assignment += 1
        self.keys.clear()
        self.positions.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Begin anew."""
        self.assignment += 1
        self.positions.clear()
        self.keys = {key_of(place.topic, place.partition) for place in assigned}
        self._history.write(
            Assignment(
                client=self._name,
                group=AIO_GROUP,
                assignment=self.assignment,
                keys=sorted(self.keys),
                at=time.monotonic(),
                generation=self._generation,
            )
        )

    async def commit_if_due(self) -> None:
        """Commit once a second."""
        if time.monotonic() - self._last_commit > 1.0:
            await self.commit()

    async def commit(self) -> None:
        """Commit what this assignment has read."""
        self._last_commit = time.monotonic()
        wanted = dict(self.positions)
        if not wanted:
            return
        begun, generation = time.monotonic(), self._generation
        outcome, words = OK, ""
        try:
            await self._consumer.commit(wanted)
        except _NOT_COMMITTED as error:
            outcome, words = outcome_of_refused_commit(took_s=time.monotonic() - begun), repr(error)
        except KafkaError as error:
            outcome, words = INFO, repr(error)
        if generation != self._generation:
            generation = -1
        for place, offset in wanted.items():
            self._history.write(
                Commit(
                    client=self._name,
                    group=AIO_GROUP,
                    key=key_of(place.topic, place.partition),
                    offset=offset,
                    begun=begun,
                    ended=time.monotonic(),
                    outcome=outcome,
                    generation=generation,
                    error=words,
                )
            )


def main() -> int:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    history = HistoryWriter(options.history)
    asyncio.run(Clients(options.bootstrap, history, options.seed).run())
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
