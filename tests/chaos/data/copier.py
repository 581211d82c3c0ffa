"""`python -m tests.chaos.data.copier`: one incarnation of a copier that keeps a journal; until it is killed, fenced, or its input ends.

May touch:  the cluster as its client, its history file.   Must not touch: faults, verdicts.
Invariants: those of tests/cluster/copier.py; what it read of an assignment that has ended it does not copy; each value that it
            writes is written once, an attempt anew has another name.
Read next:  copiers.py, which starts it; journal.py.

Ends with status 0 when its standard input has ended and everything is copied, and with 3 after an error that only another incarnation can
mend.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.data.confluent import QUIET_S, pad, unpad
from tests.chaos.data.journal import Journal
from tests.chaos.data.plan import ABORT_SHARE, RECORDS_PER_TRANSACTION_MAX, key_of
from tests.checker.data_history import HistoryWriter
from tests.cluster.copier import GAVE_UP, REQUEST_S, consumer_settings, producer_settings, unless_stuck

STUCK_S = 20.0
_POLL_S = 0.1
_LAST_ERRORS = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
"""Of a consumer: it will read no more, also where the error does not say that it is fatal."""


class Copier:
    """One life."""

    def __init__(self, options: argparse.Namespace, history: HistoryWriter) -> None:
        self._target = str(options.target)
        self._random = Random(f"{options.seed}{options.transactional_id}{options.owner}")
        self._journal = Journal(history, options.transactional_id, group=options.group)
        self._producer = Producer(producer_settings(options.bootstrap, options.transactional_id))
        self._producer.init_transactions(REQUEST_S)
        self._journal.take(options.owner)
        settings = consumer_settings(options.bootstrap, options.group, options.transactional_id)
        self._consumer = Consumer(settings | {"enable.partition.eof": True, "fetch.wait.max.ms": 100})
        self._assignments = 0
        self._at_end: set[int] = set()
        """Partitions whose end was reached."""
        self._offsets: dict[str, int] = {}
        self._consumer.subscribe([options.source], on_assign=self._on_change, on_revoke=self._on_change)

    def run(self, is_over: threading.Event) -> None:
        """Copy until it is over and nothing is left. Raises KafkaException."""
        last = time.monotonic()
        is_stuck = False
        while True:
            messages = self._read()
            if messages:
                self._copy(messages)
                last = time.monotonic()
            elif is_over.is_set():
                places = {place.partition for place in self._consumer.assignment()}
                quiet_s = time.monotonic() - last
                if places and places <= self._at_end and quiet_s > QUIET_S:
                    self._consumer.close()
                    return
                if quiet_s > STUCK_S and not is_stuck:
                    is_stuck = True
                    self._say_where_it_stands()
            else:
                last = time.monotonic()

    def _say_where_it_stands(self) -> None:
        """For whoever reads a failed run."""
        places = self._consumer.assignment()
        for place in self._consumer.position(places):
            known = self._consumer.get_watermark_offsets(place, cached=True)
            print(f"waits at {place}, known {known}, at its end: {place.partition in self._at_end}", file=sys.stderr)
        print(f"assigned {places}, {self._assignments} changes", file=sys.stderr, flush=True)

    def _on_change(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._assignments += 1
        self._at_end.clear()

    def _read(self) -> list[Message]:
        """What is there, of one assignment."""
        assignments = self._assignments
        messages: list[Message] = []
        timeout_s = _POLL_S
        while len(messages) < RECORDS_PER_TRANSACTION_MAX:
            message = self._consumer.poll(timeout_s)
            timeout_s = 0.0
            if self._assignments != assignments:
                messages, assignments = [], self._assignments
            if message is None:
                break
            error = message.error()
            if error is None:
                messages.append(message)
                self._at_end.discard(message.partition() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition() or 0)
            elif error.fatal() or error.code() in _LAST_ERRORS:
                raise KafkaException(error)
        return messages

    def _copy(self, messages: list[Message]) -> None:
        tag = self._journal.tag
        places = [(message.topic() or "", message.partition() or 0, message.offset() or 0) for message in messages]
        sources = [key_of(topic, partition) for topic, partition, _ in places]
        consumed = [unpad(message.value()) for message in messages]
        values = [f"{value}~{tag}" for value in consumed]
        ends = {(topic, partition): offset + 1 for topic, partition, offset in places}
        self._offsets.clear()
        self._journal.begin(
            [(key_of(self._target, partition), value) for (_, partition, _), value in zip(places, values, strict=True)],
            consumed=consumed,
            source=sources,
            offsets={key_of(*place): offset for place, offset in ends.items()},
        )
        is_commit = self._random.random() >= ABORT_SHARE
        try:
            self._producer.begin_transaction()
            for (_, partition, _), value in zip(places, values, strict=True):
                self._producer.produce(self._target, pad(value, 0), partition=partition, on_delivery=self._on_delivery)
            with unless_stuck(self._journal.tag):
                self._producer.send_offsets_to_transaction(
                    [TopicPartition(*place, offset) for place, offset in ends.items()],
                    self._consumer.consumer_group_metadata(),
                    REQUEST_S,
                )
            if is_commit:
                self._journal.ask(is_commit=True)
                self._producer.commit_transaction(REQUEST_S)
                self._journal.end(self._offsets)
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                self._journal.give_up(str(error))
                raise
        try:
            self._journal.ask(is_commit=False)
            self._producer.abort_transaction(REQUEST_S)
        except KafkaException as error:
            self._journal.give_up(str(error))
            raise
        self._journal.end()
        firsts = {(topic, partition): offset for topic, partition, offset in reversed(places)}
        for place, offset in firsts.items():
            self._consumer.seek(TopicPartition(*place, offset))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            self._offsets[unpad(message.value())] = offset


def _wait_for_the_end(is_over: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    is_over.set()


def main() -> int:
    """Run one incarnation."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "source", "target", "group", "transactional-id"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--owner", required=True, type=int, help="rises with each incarnation of the transactional id")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    is_over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(is_over,), daemon=True).start()
    history = HistoryWriter(options.history)
    try:
        Copier(options, history).run(is_over)
    except KafkaException as error:
        print(f"{options.transactional_id}, owner {options.owner}: {error}", file=sys.stderr, flush=True)
        return GAVE_UP
    finally:
        history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
