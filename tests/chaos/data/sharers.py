"""`python -m tests.chaos.data.sharers --bootstrap … --history FILE`: members of one share group, and an intruder.

May touch:  the cluster as its clients, a Java process that it starts, its history file.   Must not touch: faults, verdicts.
Invariants: a record that was shown is in the history before it is acknowledged; only an answer without an error is "ok", and whatever else
            becomes of an acknowledgement is "info".
Read next:  confluent.py for the other clients; tests/checker/share_rules.py, which judges.

Three members are librdkafka's ShareConsumer, one is Kafka's VerifiableShareConsumer where its jars are at hand. They accept most records,
release and reject some; now and then one closes, with records that it has not acknowledged, and another comes. The intruder speaks by
hand: stale epochs, acknowledgements of what others have, the same acknowledgement twice, locks that it renews before it accepts (no
released librdkafka renews). When standard input ends the members go on until
nothing comes any more; then the dead letters are read.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas_wire.kafka.messages.share_fetch import RECORD_LIMIT, FetchPartition, FetchTopic, ShareFetchRequest
from tests.chaos.data.confluent import COMMON, DRAIN_TIMEOUT_S, REQUEST_TIMEOUT_S
from tests.chaos.data.plan import KEPT, KEYS, SHARE_DELIVERIES_MAX, SHARE_GROUP, SHARE_LOCK_S, SHARERS, key_of
from tests.checker.data_history import INFO, OK, Fault, HistoryWriter
from tests.checker.share_events import (
    ACCEPTED,
    REJECTED,
    RELEASED,
    RENEWED,
    UNKNOWN_COUNT,
    DeadLetter,
    Delivered,
    Settled,
    ShareGroup,
)
from tests.oracle import apache

DEAD_TOPIC: Final = "dlq.kept"
QUIET_S: Final = 3 * SHARE_LOCK_S + 3.0
"""Nothing was delivered for so long: locks of members that are gone have ended."""
LETTERS_WITHIN_S: Final = 20.0
READY_WITHIN_S: Final = 60.0
RELEASED_SHARE, REJECTED_SHARE, DROPPED_SHARE = 0.06, 0.03, 0.01
POLL_RECORDS: Final = 100
INTRUDES_EVERY_S: Final = 0.5
RENEWALS: Final = 3
RENEWS_EVERY_S: Final = SHARE_LOCK_S * 0.6
"""Between the renewals of a lock, which so lasts longer than one."""
ACKNOWLEDGE: Final = {
    ACCEPTED: AcknowledgeType.ACCEPT,
    RELEASED: AcknowledgeType.RELEASE,
    REJECTED: AcknowledgeType.REJECT,
}
JAVA_ENDS: Final = "Error during processing"
"""With these words the log of a VerifiableShareConsumer begins to say why it ends."""
LAST_WORDS: Final = 1_000
"""Characters of its log that are noted."""
_ACCEPT, _RENEW = 1, 4


class Sharers:
    """All of them, a thread each."""

    def __init__(self, bootstrap: str, history: HistoryWriter, seed: int) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._seed = seed
        self._is_over = threading.Event()
        self._is_drained = threading.Event()
        self._last_delivery = time.monotonic()
        self._lock = threading.Lock()
        self._dead: set[tuple[str, int]] = set()
        """(key, offset) of what must be among the dead letters."""
        self._shown: dict[str, int] = {}
        """Key -> the newest offset that a member was shown: for the intruder."""

    def run(self) -> None:
        """Work until standard input ends, then until nothing comes."""
        self._prepare()
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            *((self._share, (f"sharer-{number}",)) for number in range(SHARERS)),
            (self._intrude, ("intruder",)),
        ]
        works.append((self._share_in_java, ("java-sharer",)))
        threads = [threading.Thread(target=self._guard, args=(work, *args)) for work, args in works]
        for thread in threads:
            thread.start()
        while os.read(0, 4096):
            pass
        self._is_over.set()
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        self._last_delivery = time.monotonic()
        while time.monotonic() - self._last_delivery < QUIET_S:
            if time.monotonic() > deadline:
                self._history.write(Fault(who=SHARE_GROUP, what=f"not drained within {DRAIN_TIMEOUT_S:.0f} s"))
                break
            time.sleep(0.1)
        self._is_drained.set()
        for thread in threads:
            thread.join()
        self._guard(self._read_dead_letters)

    def _guard(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Exception:
            self._history.write(Fault(who=f"the client {args}", what=traceback.format_exc()))

    def _prepare(self) -> None:
        """The group's configs, before its first member comes."""
        wanted = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(SHARE_DELIVERIES_MAX),
            "share.record.lock.duration.ms": str(int(1000 * SHARE_LOCK_S)),
            "errors.deadletterqueue.topic.name": DEAD_TOPIC,
        }
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in wanted.items()
        ]
        group = ConfigResource(ResourceType.GROUP, SHARE_GROUP, incremental_configs=entries)
        admin = AdminClient(COMMON | {"bootstrap.servers": self._bootstrap})
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                admin.incremental_alter_configs([group], request_timeout=REQUEST_TIMEOUT_S)[group].result()
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        self._history.write(
            ShareGroup(
                group=SHARE_GROUP,
                topic=KEPT,
                limit=SHARE_DELIVERIES_MAX,
                lock_s=SHARE_LOCK_S,
                at=time.monotonic(),
            )
        )

    # -- librdkafka ------------------------------------------------------------------------------------------------

    def _share(self, name: str) -> None:
        random = Random(f"{self._seed}{name}")
        life = 0
        while not self._is_drained.is_set():
            life += 1
            self._live(f"{name}#{life}", random)

    def _live(self, name: str, random: Random) -> None:
        """One member from its first poll to its close."""
        member = ShareConsumer(
            COMMON
            | {
                "bootstrap.servers": self._bootstrap,
                "group.id": SHARE_GROUP,
                "client.id": name,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": POLL_RECORDS,
                "log_level": 0,
            }
        )
        member.subscribe([KEPT])
        try:
            while not self._is_drained.is_set():
                begun = time.monotonic()
                try:
                    messages = [message for message in member.poll(0.3) if message.error() is None]
                except KafkaException:
                    continue  # what it says of brokers that are away; the next poll asks others
                self._note_delivery(name, begun, messages)
                if messages and random.random() < DROPPED_SHARE:
                    return
                if messages:
                    self._settle(name, member, messages, random)
        finally:
            member.close()

    def _note_delivery(self, name: str, begun: float, messages: list[Message]) -> None:
        records: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for message in messages:
            records[key_of(message.topic(), message.partition())].append((message.offset(), message.delivery_count()))
        self._note(name, begun, records)

    def _note(self, name: str, begun: float, records: dict[str, list[tuple[int, int]]]) -> None:
        ended = time.monotonic()
        if records:
            self._last_delivery = ended
            self._shown |= {key: each[-1][0] for key, each in records.items()}
            self._history.write(
                Delivered(client=name, group=SHARE_GROUP, begun=begun, ended=ended, records=dict(records))
            )

    def _settle(self, name: str, member: ShareConsumer, messages: list[Message], random: Random) -> None:
        """Acknowledge each record, and hear what became of it."""
        chosen: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for message in messages:
            draw = random.random()
            kind = ACCEPTED
            if draw < RELEASED_SHARE and not self._is_over.is_set():
                kind = RELEASED
            elif draw < RELEASED_SHARE + REJECTED_SHARE:
                kind = REJECTED
            member.acknowledge(message, ACKNOWLEDGE[kind])
            key = key_of(message.topic(), message.partition())
            chosen[key].append((message.offset(), message.delivery_count(), kind))
        begun = time.monotonic()
        errors: dict[str, str] = {}
        words = ""
        try:
            told = member.commit_sync(timeout=2 * REQUEST_TIMEOUT_S)
            errors = {
                key_of(each.topic, each.partition): "" if error is None else str(error) for each, error in told.items()
            }
        except KafkaException as error:
            words = str(error)
        for key, offsets in chosen.items():
            self._note_settled(name, key, offsets, begun, words or errors.get(key, "no answer"))

    def _note_settled(self, name: str, key: str, offsets: list[tuple[int, int, str]], begun: float, error: str) -> None:
        self._history.write(
            Settled(
                client=name,
                group=SHARE_GROUP,
                key=key,
                offsets=offsets,
                begun=begun,
                ended=time.monotonic(),
                outcome=INFO if error else OK,
                error=error,
            )
        )
        if not error:
            with self._lock:
                self._dead |= {
                    (key, offset)
                    for offset, count, kind in offsets
                    if kind == REJECTED or (kind == RELEASED and count == SHARE_DELIVERIES_MAX)
                }

    # -- Java ------------------------------------------------------------------------------------------------------

    def _share_in_java(self, name: str) -> None:
        """Kafka's VerifiableShareConsumer, where its jars are at hand; it tells no delivery counts. When it ends by itself, that is
        noted with the end of its log, and another process is started."""
        if apache.missing() is not None:  # Maven may take a minute to say so: the others work meanwhile
            return
        life = 0
        while not self._is_drained.is_set():
            life += 1
            words = self._live_in_java(f"{name}#{life}")
            if words is not None:
                self._history.write(Fault(who=f"{name}#{life}", what=words))
                self._is_drained.wait(1.0)

    def _live_in_java(self, name: str) -> str | None:
        """One process; returns why it ended by itself, None where it did not."""
        command = apache.java_command(
            "org.apache.kafka.tools.VerifiableShareConsumer",
            *("--bootstrap-server", self._bootstrap, "--topic", KEPT, "--group-id", SHARE_GROUP),
            *("--acknowledgement-mode", "sync"),
            flags=(*apache.JAVA_FLAGS, apache.LOG_FLAG + "error"),
        )
        has_ended = threading.Event()
        with (
            tempfile.TemporaryFile() as log,
            subprocess.Popen(
                command, env=apache.java_environment(), stdout=subprocess.PIPE, stderr=log, text=True
            ) as java,
        ):

            def end() -> None:
                while not has_ended.is_set():
                    if self._is_drained.wait(0.2):
                        java.send_signal(signal.SIGTERM)
                        return

            ender = threading.Thread(target=end)
            ender.start()
            before = time.monotonic()
            assert java.stdout is not None
            for line in java.stdout:
                self._note_event(name, before, json.loads(line))
                before = time.monotonic()
            is_asked = self._is_drained.is_set()
            has_ended.set()
            ender.join()
            status = java.wait()
            log.seek(0)
            said = log.read().decode(errors="replace")
        told = said.rfind(JAVA_ENDS)
        words = said[told:][:LAST_WORDS] if told >= 0 else said[-LAST_WORDS:]
        return None if is_asked else f"it ended with status {status}: {words or 'it said nothing'}"

    def _note_event(self, name: str, before: float, event: dict[str, Any]) -> None:
        """before: when the event before this one was read, and what this one tells of had not begun."""
        listed = {
            key_of(each["topic"], each["partition"]): [int(offset) for offset in each["offsets"]]
            for each in event.get("partitions", ())
        }
        if event["name"] == "records_consumed":
            self._note(
                name, before, {key: [(offset, UNKNOWN_COUNT) for offset in offsets] for key, offsets in listed.items()}
            )
        elif event["name"] == "offsets_acknowledged":
            error = "" if event["success"] else str(event.get("error"))
            for key, offsets in listed.items():
                accepted = [(offset, UNKNOWN_COUNT, ACCEPTED) for offset in offsets]
                self._note_settled(name, key, accepted, before, error)

    # -- by hand ---------------------------------------------------------------------------------------------------

    def _intrude(self, name: str) -> None:
        """What no client does. What it is told must be an error, or change nothing: the others' history shows that."""
        random = Random(f"{self._seed}{name}")
        while not self._is_over.wait(INTRUDES_EVERY_S):
            key = random.choice([each for each in KEYS if each[0] == KEPT])
            try:
                self._intrude_once(f"{name}-{random.randrange(1 << 30):x}", TopicPartition(*key), random)
            except (KafkaError, OSError):
                continue  # its broker is away

    def _intrude_once(self, member: str, key: TopicPartition, random: Random) -> None:
        with closing(BlockingCluster(self._bootstrap, client_id="intruder")) as cluster:
            view = cluster.metadata([key.topic])
            topic_id = view.topic_ids[key.topic]
            connection = cluster.dial(view.leader(key), timeout_s=REQUEST_TIMEOUT_S)
            try:
                fetch = ShareFetchRequest(
                    group_id=SHARE_GROUP,
                    member_id=member,
                    max_wait_ms=100,
                    min_bytes=1,
                    max_records=3,
                    batch_size=3,
                    share_acquire_mode=RECORD_LIMIT,
                    topics=[FetchTopic(topic_id, [FetchPartition(key.partition)])],
                )

                def acknowledge(epoch: int, first: int, last: int, type_: int = _ACCEPT) -> Any:
                    batch = AcknowledgementBatch(first, last, [type_])
                    topic = AcknowledgeTopic(topic_id, [AcknowledgePartition(key.partition, [batch])])
                    is_renewed = type_ == _RENEW
                    return connection.call(
                        ShareAcknowledgeRequest(SHARE_GROUP, member, epoch, is_renew_ack=is_renewed, topics=[topic])
                    )

                stale = acknowledge(random.randrange(1, 100), 0, 1 << 40)
                if stale.error_code == ErrorCode.NONE:
                    self._history.write(Fault(who=member, what="acknowledged in a session that it does not have"))
                begun = time.monotonic()
                found = connection.call(fetch)
                name = key_of(*key)
                records: list[tuple[int, int]] = [
                    (offset, each.delivery_count)
                    for topic in found.responses
                    for partition in topic.partitions
                    for each in partition.acquired_records
                    for offset in range(each.first_offset, each.last_offset + 1)
                ]
                self._note(member, begun, {name: records} if records else {})
                others = self._shown.get(name, 0)
                acknowledge(1, others, others)
                if records:
                    epoch, first, last = 2, records[0][0], records[-1][0]
                    types = [(_RENEW, RENEWED)] * random.choice((0, 0, RENEWALS)) + [(_ACCEPT, ACCEPTED)]
                    for type_, kind in types:
                        begun = time.monotonic()
                        told = acknowledge(epoch, first, last, type_)
                        codes = [told.error_code, *(p.error_code for topic in told.responses for p in topic.partitions)]
                        error = next(
                            (ErrorCode(code).name for code in codes if code), "" if told.responses else "no answer"
                        )
                        self._note_settled(member, name, [(*each, kind) for each in records], begun, error)
                        epoch += 1
                        if kind == RENEWED and (error or self._is_over.wait(RENEWS_EVERY_S)):
                            break  # whose they are now is for the lock to say
                    acknowledge(epoch, first, last)
                if random.random() < 0.5:
                    connection.call(ShareAcknowledgeRequest(SHARE_GROUP, member, -1))
            finally:
                connection.close()

    # -- the dead --------------------------------------------------------------------------------------------------

    def _read_dead_letters(self) -> None:
        """All of them; waits a while for those that must come."""
        reader = Consumer(
            COMMON
            | {
                "bootstrap.servers": self._bootstrap,
                "group.id": "dead-letter-reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        reader.subscribe([DEAD_TOPIC])
        missing = set(self._dead)
        deadline = time.monotonic() + LETTERS_WITHIN_S
        last = time.monotonic()
        while time.monotonic() < deadline and (missing or time.monotonic() - last < 2.0):
            for message in reader.consume(500, 0.2):
                if message.error() is None:
                    last = time.monotonic()
                    headers = dict(message.headers() or ())
                    key = key_of(headers["__dlq.errors.topic"].decode(), int(headers["__dlq.errors.partition"]))
                    offset = int(headers["__dlq.errors.offset"])
                    missing.discard((key, offset))
                    self._history.write(
                        DeadLetter(
                            group=headers["__dlq.errors.group"].decode(),
                            key=key,
                            offset=offset,
                            deliveries=int(headers["__dlq.errors.delivery.count"]),
                            cause=headers["__dlq.errors.message"].decode(),
                        )
                    )
        reader.close()


def main() -> int:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    writer = HistoryWriter(options.history)
    Sharers(options.bootstrap, writer, options.seed).run()
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
