"""`python -m tests.chaos.data.confluent --bootstrap … --history FILE`: the clients that are librdkafka, in one process.

May touch:  the cluster as its clients, its history file.   Must not touch: faults, verdicts.
Invariants: every record that was handed over ends as one Send; a refusal counts as "fail" only where the client or the broker
            said before any append that it will not be written, everything else that is no success is "info".
Read next:  aio.py, the same with aiokafka; plan.py, how much.

Runs until its standard input ends; then writers flush, readers read on until nothing comes, and the process ends.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.data.plan import (
    AIO_GROUP,
    CONFLUENT_GROUP,
    CONFLUENT_WRITERS,
    COPIES,
    IDLE,
    KEPT,
    KEYS,
    MAX_MESSAGE_BYTES,
    MEMBERS,
    PARTITIONS,
    PRUNED,
    TRANSACTED_KEYS,
    Writer,
    key_of,
    outcome_of_refused_commit,
)
from tests.checker.data_history import (
    ASSIGNED,
    FAIL,
    FINAL,
    INFO,
    OK,
    SUBSCRIBED,
    UNKNOWN_OFFSET,
    Assignment,
    Commit,
    Committed,
    DeleteRecords,
    Fault,
    HistoryWriter,
    ListOffsets,
    Poll,
    Send,
)

FLUSH_TIMEOUT_S = 60.0
FATAL_FLUSH_S = 5.0
DRAIN_TIMEOUT_S = 60.0
QUIET_S = 3.0
"""Readers stop when nothing came for this long after the writers have stopped."""
REQUEST_TIMEOUT_S = 5.0
OVERSIZE_SHARE = 0.01
_NOT_COMMITTED = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}
COMMON = {"reconnect.backoff.max.ms": 1000, "topic.metadata.refresh.interval.ms": 5000, "log_level": 3}


class Clients:
    """All of them, a thread each."""

    def __init__(self, bootstrap: str, history: HistoryWriter, seed: int) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._seed = seed
        self._is_over = threading.Event()
        self._writers_left = len(CONFLUENT_WRITERS)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until standard input ends, then end in order."""
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            *((self._write, (writer,)) for writer in CONFLUENT_WRITERS),
            (self._read, ("confluent-reader",)),
            *((self._read_in_group, (f"confluent-member-{number}",)) for number in range(MEMBERS)),
            (self._ask, ("confluent-admin",)),
        ]
        threads = [threading.Thread(target=self._guard, args=(work, *args)) for work, args in works]
        for thread in threads:
            thread.start()
        while os.read(0, 4096):
            pass
        self._is_over.set()
        for thread in threads:
            thread.join()

    def _guard(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Exception:
            self._history.write(Fault(who=f"the client {args}", what=traceback.format_exc()))

    # -- writing ---------------------------------------------------------------------------------------------------

    def _write(self, writer: Writer) -> None:
        random = Random(f"{self._seed}{writer.client}")
        incarnation = 0
        try:
            while True:
                producer = _Writing(self._bootstrap, self._history, writer, f"{writer.client}#{incarnation}")
                producer.run(random, self._is_over)
                if producer.fatal is None:
                    break
                # A client that is told so may do nothing but begin anew; the cluster must not have told it.
                self._history.write(Fault(who=producer.name, what=f"a fatal error: {producer.fatal}"))
                incarnation += 1
        finally:
            with self._lock:
                self._writers_left -= 1

    # -- reading ---------------------------------------------------------------------------------------------------

    def _may_read_on(self, last_record: float, stopped: float | None) -> bool:
        if not self._is_over.is_set() or self._writers_left:
            return True
        now = time.monotonic()
        return now - last_record < QUIET_S and (stopped is None or now - stopped < DRAIN_TIMEOUT_S)

    def _read(self, name: str) -> None:
        reader = Consumer(COMMON | {"bootstrap.servers": self._bootstrap, "group.id": name} | READING)
        keys = [key_of(*key) for key in KEYS]
        self._history.write(Assignment(client=name, group="", assignment=0, keys=keys, at=time.monotonic()))
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in KEYS])
        last = time.monotonic()
        stopped = None
        while self._may_read_on(last, stopped):
            if stopped is None and self._is_over.is_set() and not self._writers_left:
                stopped = last = time.monotonic()
            begun = time.monotonic()
            records = records_of(reader.consume(500, timeout=0.1))
            ended = time.monotonic()
            last = ended if records else last
            self._history.write(Poll(client=name, how=ASSIGNED, begun=begun, ended=ended, records=records))
        reader.close()

    def _read_in_group(self, name: str) -> None:
        member = GroupMember(self._bootstrap, self._history, name)
        last = time.monotonic()
        stopped = None
        while self._may_read_on(last, stopped):
            if stopped is None and self._is_over.is_set() and not self._writers_left:
                stopped = last = time.monotonic()
            if member.poll():
                last = time.monotonic()
        member.close()

    # -- asking ----------------------------------------------------------------------------------------------------

    def _ask(self, name: str) -> None:
        random = Random(f"{self._seed}{name}")
        admin = AdminClient(COMMON | {"bootstrap.servers": self._bootstrap})
        lookers = {
            group: Consumer(COMMON | {"bootstrap.servers": self._bootstrap, "group.id": group})
            for group in (CONFLUENT_GROUP, AIO_GROUP)
        }
        next_deletion = time.monotonic() + random.uniform(1, 3)
        while not self._is_over.wait(0.5):
            bounds = list_offsets(admin, self._history, name)
            for group, looker in lookers.items():
                wanted = [TopicPartition(KEPT, partition) for partition in range(PARTITIONS[KEPT])]
                ask_committed(name, group, looker, wanted, self._history, timeout_s=REQUEST_TIMEOUT_S)
            if time.monotonic() > next_deletion:
                next_deletion = time.monotonic() + random.uniform(1, 3)
                self._delete(name, admin, random, bounds)
        for looker in lookers.values():
            looker.close()

    def _delete(self, name: str, admin: AdminClient, random: Random, bounds: dict[str, tuple[int, int]]) -> None:
        topic = random.choice((PRUNED, IDLE))
        partition = random.randrange(PARTITIONS[topic])
        key = key_of(topic, partition)
        if key not in bounds:
            return
        start, end = bounds[key]
        before = end if topic == IDLE else random.randint(start, max(start, end - 50))
        begun = time.monotonic()
        outcome, log_start, error = INFO, UNKNOWN_OFFSET, ""
        try:
            asked = admin.delete_records(
                [TopicPartition(topic, partition, before)], request_timeout=2 * REQUEST_TIMEOUT_S
            )
            (future,) = asked.values()
            log_start = future.result().low_watermark
            outcome = OK
        except KafkaException as broken:
            error = str(broken)
        self._history.write(
            DeleteRecords(
                client=name,
                key=key,
                before=before,
                begun=begun,
                ended=time.monotonic(),
                outcome=outcome,
                log_start=log_start,
                error=error,
            )
        )


READING: dict[str, Any] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
}


class _Writing:
    """One producer from its first record to its last report."""

    def __init__(self, bootstrap: str, history: HistoryWriter, writer: Writer, name: str) -> None:
        self.name = name
        self.fatal: str | None = None
        self._history = history
        self._writer = writer
        self._open: dict[tuple[str, int], tuple[str, float]] = {}
        """(key, sequence) -> (value, begun) of what has no report yet."""
        self._sequences: dict[str, int] = {}
        self._producer = Producer(
            COMMON
            | {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": writer.is_idempotent,
                "linger.ms": 5,
                "request.timeout.ms": 10_000,
                "message.timeout.ms": 90_000,
                "message.max.bytes": 10 * MAX_MESSAGE_BYTES,
            }
        )

    def run(self, random: Random, is_over: threading.Event) -> None:
        """Write at the writer's rate until it is over, or a fatal error ends this producer, then flush."""
        try:
            self._write(random, is_over)
            self._producer.flush(FLUSH_TIMEOUT_S if self.fatal is None else FATAL_FLUSH_S)
        except KafkaException as error:  # librdkafka raises a fatal error out of whatever is called next
            self.fatal = self.fatal or str(error)
        for (key, sequence), (value, since) in list(self._open.items()):
            self._note(key, sequence, value, since, INFO, UNKNOWN_OFFSET, "no report")

    def _write(self, random: Random, is_over: threading.Event) -> None:
        begun = time.monotonic()
        number = 0
        while not is_over.is_set() and self.fatal is None:
            self._send(random, number)
            number += 1
            if self._writer.pause_s and number % self._writer.per_second == 0:
                begun += self._writer.pause_s
            while (ahead := begun + number / self._writer.per_second - time.monotonic()) > 0 and not is_over.is_set():
                self._producer.poll(min(ahead, 0.5))
            self._producer.poll(0)

    def _send(self, random: Random, number: int) -> None:
        writer = self._writer
        partition = random.randrange(PARTITIONS[writer.topic])
        key = key_of(writer.topic, partition)
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + 1
        value = f"{self.name}-{number}"
        is_oversize = not writer.is_idempotent and random.random() < OVERSIZE_SHARE
        size = MAX_MESSAGE_BYTES + 1000 if is_oversize else random.randrange(writer.padding)
        begun = time.monotonic()
        self._open[(key, sequence)] = (value, begun)

        def report(error: KafkaError | None, message: Message) -> None:
            self._open.pop((key, sequence), None)
            if error is None:
                offset = message.offset()
                placed = offset if offset is not None and offset >= 0 else UNKNOWN_OFFSET
                self._note(key, sequence, value, begun, OK, placed, "")
                return
            if error.fatal() or error.code() == KafkaError._FATAL:
                self.fatal = self.fatal or str(error)
            # Others are refused with a record that is too large, and may have been written before, in another batch.
            outcome = FAIL if is_oversize and error.code() == KafkaError.MSG_SIZE_TOO_LARGE else INFO
            self._note(key, sequence, value, begun, outcome, UNKNOWN_OFFSET, str(error))

        try:
            self._producer.produce(writer.topic, pad(value, size), partition=partition, on_delivery=report)
        except (BufferError, KafkaException) as error:
            self._open.pop((key, sequence), None)
            self._note(key, sequence, value, begun, FAIL, UNKNOWN_OFFSET, f"never sent: {error!r}")
            if isinstance(error, KafkaException) and error.args[0].fatal():
                self.fatal = self.fatal or str(error)

    def _note(self, key: str, sequence: int, value: str, begun: float, outcome: str, offset: int, error: str) -> None:
        self._history.write(
            Send(
                client=self.name,
                key=key,
                value=value,
                sequence=sequence,
                begun=begun,
                ended=time.monotonic(),
                outcome=outcome,
                offset=offset,
                is_idempotent=self._writer.is_idempotent,
                error=error,
            )
        )


class GroupMember:
    """One member of a group that reads KEPT. It polls record by record: a batch may hold records of an assignment that has ended.

    An assignment is of the partitions that came together: with incremental rebalances those that stay keep theirs.
    """

    def __init__(
        self,
        bootstrap: str,
        history: HistoryWriter,
        name: str,
        *,
        group: str = CONFLUENT_GROUP,
        settings: Mapping[str, Any] = READING,
        may_die: bool = False,
    ) -> None:
        """may_die: whether the process may be killed; what it is about to commit is in the history before it asks then."""
        self._history = history
        self._name = name
        self._group = group
        self._may_die = may_die
        self._assignment = 0
        self._given: dict[int, int] = {}
        """Partition -> number of the assignment by which it came."""
        self._positions: dict[int, int] = {}
        """Partition -> next offset, of what its assignment has read."""
        self._last_commit = time.monotonic()
        self._consumer = Consumer(
            {**COMMON, "bootstrap.servers": bootstrap, "group.id": group, "client.id": name, **settings}
        )
        self._consumer.subscribe([KEPT], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def poll(self) -> bool:
        """Read what is there, commit once a second; whether anything came."""
        begun = time.monotonic()
        records: dict[int, dict[str, list[tuple[int, str]]]] = {}
        timeout_s = 0.1
        for _ in range(200):
            message = self._consumer.poll(timeout_s)
            timeout_s = 0.0
            if message is None:
                break
            if message.error() is None:
                partition = message.partition()
                of_assignment = records.setdefault(self._given.get(partition, self._assignment), {})
                for key, found in records_of([message]).items():
                    of_assignment.setdefault(key, []).extend(found)
                self._positions[partition] = message.offset() + 1
        for assignment, found_there in records.items():
            self._history.write(
                Poll(
                    client=self._name,
                    how=SUBSCRIBED,
                    begun=begun,
                    ended=time.monotonic(),
                    records=found_there,
                    assignment=assignment,
                    group=self._group,
                )
            )
        if self._may_die:
            self._history.flush()
        if time.monotonic() - self._last_commit > 1.0:
            self._commit()
        return bool(records)

    def close(self) -> None:
        """Commit and leave."""
        self._commit()
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._assignment += 1
        for place in places:
            self._given[place.partition] = self._assignment
            self._positions.pop(place.partition, None)
        self._history.write(
            Assignment(
                client=self._name,
                group=self._group,
                assignment=self._assignment,
                keys=[key_of(place.topic, place.partition) for place in places],
                at=time.monotonic(),
            )
        )

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._commit()
        self._forget(places)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._forget(places)

    def _forget(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._given.pop(place.partition, None)
            self._positions.pop(place.partition, None)

    def _commit(self) -> None:
        self._last_commit = time.monotonic()
        if not self._positions:
            return
        wanted = [TopicPartition(KEPT, partition, offset) for partition, offset in self._positions.items()]
        begun = time.monotonic()
        if self._may_die:
            for place in wanted:
                self._note(place, begun, INFO)
            self._history.flush()
        errors: dict[int, KafkaError | None] = {}
        try:
            for place in self._consumer.commit(offsets=wanted, asynchronous=False) or ():
                errors[place.partition] = place.error
        except KafkaException as broken:
            errors = dict.fromkeys(self._positions, broken.args[0])
        refused = outcome_of_refused_commit(took_s=time.monotonic() - begun)
        for place in wanted:
            error = errors.get(place.partition)
            outcome = OK if error is None else refused if error.code() in _NOT_COMMITTED else INFO
            self._note(place, begun, outcome, "" if error is None else str(error))

    def _note(self, place: TopicPartition, begun: float, outcome: str, error: str = "") -> None:
        self._history.write(
            Commit(
                client=self._name,
                group=self._group,
                key=key_of(place.topic, place.partition),
                offset=place.offset,
                begun=begun,
                ended=time.monotonic(),
                outcome=outcome,
                error=error,
            )
        )


def pad(value: str, size: int) -> bytes:
    """A value as it is written: padded to be as large, and cut again by `unpad`."""
    return f"{value}|{'x' * size}".encode()


def unpad(data: bytes | None) -> str:
    """The value that was padded."""
    return (data or b"").partition(b"|")[0].decode(errors="replace")


def records_of(messages: list[Message]) -> dict[str, list[tuple[int, str]]]:
    records: dict[str, list[tuple[int, str]]] = {}
    for message in messages:
        if message.error() is None:
            key = key_of(message.topic(), message.partition())
            records.setdefault(key, []).append((message.offset(), unpad(message.value())))
    return records


def list_offsets(
    admin: AdminClient, history: HistoryWriter, name: str, wanted: Sequence[tuple[str, int]] = KEYS
) -> dict[str, tuple[int, int]]:
    """Ask for start and end of these partitions; what answered."""
    bounds = {}
    begun = time.monotonic()
    places = [TopicPartition(topic, partition) for topic, partition in wanted]
    asked = [
        admin.list_offsets({place: make() for place in places}, request_timeout=REQUEST_TIMEOUT_S)
        for make in (OffsetSpec.earliest, OffsetSpec.latest)
    ]
    for place in places:
        try:
            first, last = (answers[place].result() for answers in asked)
        except KafkaException:
            continue  # nothing was learned
        if min(first.offset, last.offset) < 0:
            continue  # librdkafka's own word for an answer that it did not get
        key = key_of(place.topic, place.partition)
        bounds[key] = (first.offset, last.offset)
        history.write(
            ListOffsets(
                client=name,
                key=key,
                start=first.offset,
                end=last.offset,
                begun=begun,
                ended=time.monotonic(),
                leader_epoch=-1 if last.leader_epoch is None else last.leader_epoch,
            )
        )
    return bounds


def ask_committed(
    name: str, group: str, looker: Consumer, wanted: list[TopicPartition], history: HistoryWriter, *, timeout_s: float
) -> None:
    """Ask where a group stands; what answered is written."""
    begun = time.monotonic()
    try:
        found = looker.committed(wanted, timeout=timeout_s)
    except KafkaException:
        return  # nothing was learned
    for place in found:
        if place.error is None:
            offset = place.offset if place.offset >= 0 else UNKNOWN_OFFSET
            key = key_of(place.topic, place.partition)
            history.write(
                Committed(client=name, group=group, key=key, offset=offset, begun=begun, ended=time.monotonic())
            )


def read_everything(bootstrap: str, history: HistoryWriter, *, is_transacted: bool = False) -> None:
    """The last reader: every partition from its start to its end, committed data only.

    is_transacted: those that transactions write to, and the groups of copies, too.
    """
    name = "last-reader"
    wanted = [*KEYS, *(TRANSACTED_KEYS if is_transacted else ())]
    admin = AdminClient(COMMON | {"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    bounds: dict[str, tuple[int, int]] = {}
    while len(bounds) < len(wanted) and time.monotonic() < deadline:
        bounds = list_offsets(admin, history, name, wanted)
    settings = COMMON | READING | {"bootstrap.servers": bootstrap, "group.id": name, "enable.partition.eof": True}
    reader = Consumer(settings)
    starts = [
        TopicPartition(topic, partition, bounds[key_of(topic, partition)][0])
        for topic, partition in wanted
        if key_of(topic, partition) in bounds
    ]
    reader.assign(starts)
    left = {key: end for key, (start, end) in bounds.items() if end > start}
    while left and time.monotonic() < deadline:
        begun = time.monotonic()
        messages = reader.consume(5000, timeout=0.2)
        records = records_of(messages)
        if records:
            history.write(Poll(client=name, how=FINAL, begun=begun, ended=time.monotonic(), records=records))
        for message in messages:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                # the end is reported where what lies there is no record: a transaction's marker
                reached = (message.offset() or 0) + (error is None)
                key = key_of(message.topic() or "", message.partition() or 0)
                if reached >= left.get(key, reached + 1):
                    left.pop(key)
    if left or len(bounds) < len(wanted):
        reported = f"told {len(bounds)} of {len(wanted)} partitions' ends"
        what = f"did not read everything within {DRAIN_TIMEOUT_S:.0f} s: {reported}, not reached: {left}"
        history.write(Fault(who=name, what=what))
    history.write(Poll(client=name, how=FINAL, begun=time.monotonic(), ended=time.monotonic()))
    reader.close()
    for copy in COPIES if is_transacted else ():
        looker = Consumer(COMMON | {"bootstrap.servers": bootstrap, "group.id": copy.group})
        places = [TopicPartition(copy.source, partition) for partition in range(PARTITIONS[copy.source])]
        ask_committed(name, copy.group, looker, places, history, timeout_s=DRAIN_TIMEOUT_S)
        looker.close()


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", action="store_true", help="only read everything once")
    parser.add_argument("--transacted", action="store_true", help="with --last: what transactions wrote, too")
    options = parser.parse_args()
    history = HistoryWriter(options.history)
    if options.last:
        read_everything(options.bootstrap, history, is_transacted=options.transacted)
    else:
        Clients(options.bootstrap, history, options.seed).run()
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
