"""Interprets scripts about the transaction coordinator: one partition of `__transaction_state`, in which nothing happens by itself.

Commands (ID is a transactional id, P/E a producer id and epoch, v2 a client of transaction.version 2):
  version N                 the cluster's transaction.version is N from now on
  init ID [MS] [P/E]        InitProducerId, with a time-out and with what the producer had
  add ID P/E T-N… [v2]      AddPartitionsToTxn
  verify ID P/E T-N…        the same, only asked
  commit ID P/E [v2] / abort ID P/E [v2]     EndTxn
  marked ID                 all markers that were asked for last are written
  wait MS                   time passes, timers fire
  delay / replicate         what is appended stays uncommitted / is committed, and so is all that follows
  refuse / accept           appends fail for want of in-sync replicas / work again
  exhaust ID                the next epoch of its producer id is the last one
  failover                  another broker reads the partition, what is not committed too
  show                      one line per transactional id
Replies are printed when they leave, markers when they may be sent, records when they are appended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from barnabas_coordination.shard import ArmTimer, CoordinatorResult, Reply
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.records import TransactionRecord
from barnabas_coordination.transaction.shard import Ending, TransactionShard
from barnabas_coordination.transaction.state import (
    EPOCH_LAST,
    Producer,
    ProducerIdNeeded,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from tests.scenarios.runner import Scenario

CONFIG = TransactionCoordinatorConfig(abort_timed_out_interval_ms=1_000, transactional_id_expiration_ms=1_000_000)


class TransactionScenario(Scenario):
    """One coordinator, its log, and a clock that stands still."""

    def __init__(self) -> None:
        self.version = 2
        self.now_ms = 0
        self.next_producer_id = 1
        self.log: list[tuple[bytes, bytes | None]] = []
        self.waiting: list[tuple[list[TransactionRecord], list[Reply]]] = []
        self.is_delayed = False
        self.is_refusing = False
        self.due: dict[str, Ending] = {}
        self.timers: dict[Hashable, int] = {}
        self.printed: list[str] = []
        self.shard = self._new_shard()
        self._perform(self.shard.on_loaded(now_ms=0))

    def run(self, command: str) -> list[str]:
        """One line."""
        self.printed = []
        verb, *words = command.split()
        getattr(self, f"_do_{verb}")(*words)
        return self.printed

    # ---- requests

    def _do_init(self, transactional_id: str, *words: str) -> None:
        timeout_ms = int(words[0]) if words and "/" not in words[0] else 60_000
        expected = next((_producer(word) for word in words if "/" in word), None)
        self._decide(
            lambda fresh: self.shard.initialize(
                transactional_id,
                "init",
                timeout_ms=timeout_ms,
                expected=expected,
                fresh_producer_id=fresh,
                now_ms=self.now_ms,
            )
        )

    def _do_add(self, transactional_id: str, producer: str, *words: str) -> None:
        self._decide(
            lambda fresh: self.shard.add_partitions(
                transactional_id,
                _producer(producer),
                _partitions(words),
                "add",
                client_version=_client(words),
                now_ms=self.now_ms,
            )
        )

    def _do_verify(self, transactional_id: str, producer: str, *words: str) -> None:
        self._decide(
            lambda fresh: self.shard.verify_partitions(
                transactional_id, _producer(producer), _partitions(words), "verify"
            )
        )

    def _do_commit(self, transactional_id: str, producer: str, *words: str) -> None:
        self._end(transactional_id, producer, words, is_commit=True)

    def _do_abort(self, transactional_id: str, producer: str, *words: str) -> None:
        self._end(transactional_id, producer, words, is_commit=False)

    def _end(self, transactional_id: str, producer: str, words: tuple[str, ...], *, is_commit: bool) -> None:
        self._decide(
            lambda fresh: self.shard.end(
                transactional_id,
                _producer(producer),
                "commit" if is_commit else "abort",
                is_commit=is_commit,
                client_version=_client(words),
                fresh_producer_id=fresh,
                now_ms=self.now_ms,
            )
        )

    def _do_marked(self, transactional_id: str) -> None:
        ending = self.due.pop(transactional_id)
        self._decide(lambda fresh: self.shard.complete(ending, "complete", now_ms=self.now_ms))

    def _decide(self, step: Callable[[int | None], CoordinatorResult]) -> None:
        try:
            try:
                result = step(None)
            except ProducerIdNeeded:
                self.next_producer_id += 1
                result = step(self.next_producer_id - 1)
        except KafkaError as error:
            self.printed.append(error.code.name)
            return
        self._perform(result)

    # ---- the world

    def _do_version(self, version: str) -> None:
        self.version = int(version)

    def _do_wait(self, delay_ms: str) -> None:
        self.now_ms += int(delay_ms)
        for key, due_ms in sorted(self.timers.items(), key=lambda timer: (timer[1], str(timer[0]))):
            if due_ms <= self.now_ms:
                del self.timers[key]
                self._perform(self.shard.on_timer(key, now_ms=self.now_ms))

    def _do_delay(self) -> None:
        self.is_delayed = True

    def _do_replicate(self) -> None:
        self.is_delayed = False
        self._release()

    def _do_refuse(self) -> None:
        self.is_refusing = True

    def _do_accept(self) -> None:
        self.is_refusing = False

    def _do_exhaust(self, transactional_id: str) -> None:
        state = replace(self.shard.states[transactional_id], producer_epoch=EPOCH_LAST - 1)
        self._perform(CoordinatorResult(records=[TransactionRecord(transactional_id, state)]))

    def _do_failover(self) -> None:
        self.waiting, self.due, self.is_delayed = [], {}, False
        self.shard = self._new_shard()
        for key, value in dict(self.log).items():
            record = self.shard.decode(key, value)
            assert record is not None
            if record.state is not None:
                self.shard.replay(record)
                self.shard.on_committed(record)
        self._perform(self.shard.on_loaded(now_ms=self.now_ms))

    def _do_show(self) -> None:
        self.printed += [f"{name}: {state!r}" for name, state in sorted(self.shard.states.items())]

    # ---- what the runtime does

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(CONFIG, server_version=lambda: self.version, on_ending=self._on_ending)

    def _on_ending(self, ending: Ending) -> None:
        self.due[ending.transactional_id] = ending
        outcome = "commit" if ending.state.is_commit else "abort"
        partitions = " ".join(str(partition) for partition in sorted(ending.state.partitions)) or "nothing"
        self.printed.append(f"markers {ending.transactional_id} {_name(ending.state.producer)} {outcome}: {partitions}")

    def _perform(self, result: CoordinatorResult) -> None:
        if result.records and self.is_refusing:
            result = self.shard.on_refused(result, KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for record in result.records:
            state = "forgotten" if record.state is None else repr(record.state)
            self.printed.append(f"append {record.transactional_id}: {state}")
            self.log.append(self.shard.encode(record))
            self.shard.replay(record)
        for timer in result.timers:
            assert isinstance(timer, ArmTimer)
            self.timers[timer.key] = self.now_ms + timer.delay_ms
        self.waiting.append((result.records, result.replies))
        if not self.is_delayed:
            self._release()

    def _release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for records, replies in waiting:
            for record in records:
                self.shard.on_committed(record)
            self.printed += [f"{ticket} {_outcome(outcome)}" for ticket, outcome in replies]


def _producer(word: str) -> Producer:
    producer_id, _, epoch = word.partition("/")
    return Producer(int(producer_id), int(epoch))


def _partitions(words: tuple[str, ...]) -> frozenset[TopicPartition]:
    found = []
    for word in words:
        topic, dash, number = word.rpartition("-")
        if dash:
            found.append(TopicPartition(topic, int(number)))
    return frozenset(found)


def _client(words: tuple[str, ...]) -> int:
    return 2 if "v2" in words else 0


def _name(producer: Producer) -> str:
    return f"{producer.producer_id}/{producer.epoch}"


def _outcome(outcome: object) -> str:
    if isinstance(outcome, KafkaError):
        return outcome.code.name
    if isinstance(outcome, Producer):
        return _name(outcome)
    if isinstance(outcome, dict):
        return " ".join(f"{partition}={code.name}" for partition, code in sorted(outcome.items()))
    return "done"
