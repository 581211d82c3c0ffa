"""Dead letters: a record of the dead-letter topic for each offset that a share group has given up (KIP-1191).

May touch:  the metadata image, the controller client, replicas led here, other brokers, a disk's threads.   Must not touch: sockets,
            share state, the consumers' sessions.
Invariants: a letter counts as written once all in-sync replicas of the dead-letter topic have it (acks=all); records are opened in a
            thread, never on the loop; what a call holds in memory at a time is a read, a batch of the source and a batch of letters.
Read next:  letters.py (what comes in), ../share_settings.py (what a group says), partition.py (who gives records up).

As Kafka 4.4 has it: the letters of a source partition go to the partition of its number, modulo; a record's key and value are null, or
copies where the group asks for that and they can be read; its headers say where it came from and why, its own are not copied; its time
is that of the letter. A topic that is there has to allow it (errors.deadletterqueue.group.enable); one that is not is made where
errors.deadletterqueue.auto.create.topics.enable says so.

Not obvious:
- Letters are written at least once. Where an answer is lost it is not known whether they are there, and they are
  written again: such letters are counted (DeadLetterStats.uncertain), as are those that a new leader writes again.
- A batch whose checksum is wrong is an error (another replica has the bytes, and repair brings them); one with the right checksum
  that cannot be opened will never be readable, so its letters go without copies.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from barnabas_coordination.brokers import Brokers
from barnabas_coordination.internal_topic import MetadataSource
from barnabas_coordination.share.letters import DeadLetter, DeadLettersFailed
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.share_settings import ShareSettings
from barnabas_log.config import LogConfig
from barnabas_log.disk import Disk, FileRange
from barnabas_log.errors import StorageFailed
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicImage
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.requests import AppendEntry, AppendOutcome
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NODE_PRINCIPAL, Offset, TopicPartition
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.lazy_dataclass import dataclass
from barnabas_wire.records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    Record,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from barnabas_wire.records.compression import CompressionType

logger = logging.getLogger("barnabas_broker.coordinator.share.dead_letters")  # the name that operators set a level of

TOPIC_ENABLE_KEY: Final = "errors.deadletterqueue.group.enable"
"""The topic key without which no share group may write dead letters to a topic."""
TIMEOUT_MS: Final = 30_000
"""How long the in-sync replicas may take for a batch of letters."""
ATTEMPTS_MAX: Final = 5
RETRY_S: Final = 0.1
"""Pause before the second attempt; doubled with each further one."""
WRITES_MAX: Final = 8
"""Calls under way at a time; further ones wait for their turn. Each may hold a read and a batch in memory."""
READ_BYTES: Final = 64 << 10
"""Bytes of the source that are read and opened in one turn of a thread, or one batch where that is longer."""
LETTERS_MAX: Final = 100
"""Letters that are made in one turn of a thread: 0.6 ms of the interpreter."""
_RECORD_OVERHEAD: Final = 24
"""Most bytes of a record beside its key, its value and its headers."""
_HEADER_OVERHEAD: Final = 6

_UNCERTAIN: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""The letters may be there all the same."""

Copies = Mapping[Offset, tuple[bytes | None, bytes | None]]
"""Key and value by offset."""


@dataclass(slots=True)
class DeadLetterStats:
    """Counters."""

    written: int = 0
    """Letters that all in-sync replicas have."""
    failed: int = 0
    """Letters that a call gave up."""
    uncertain: int = 0
    """Letters of batches whose outcome is not known, and that may therefore be there twice."""
    without_copy: int = 0
    """Letters of groups that ask for copies which have none: the record is gone, too long, or cannot be opened."""
    topics_created: int = 0


class _Target(NamedTuple):
    """The dead-letter topic of a group."""

    topic: TopicImage
    batch_bytes_max: int


class DeadLetters:
    """Writes the dead letters of the share partitions that one broker leads. Everything runs on the data lane's loop."""

    def __init__(
        self,
        *,
        config: ShareGroupConfig,
        partition_count: int,
        replication_factor: int,
        log_config: Callable[[str, MetadataImage], LogConfig],
        metadata: MetadataSource,
        controller: ActiveController,
        brokers: Brokers,
        replicas: ReplicaManager,
        disk: Disk,
        clock_ms: Callable[[], int],
    ) -> None:
        """partition_count, replication_factor: of a topic that is made here. log_config: the settings of a topic's logs under an image.
        brokers: for letters whose topic another broker leads. disk: its threads open and build batches. clock_ms: wall clock."""
        self.stats = DeadLetterStats()
        self._config = config
        self._partition_count = partition_count
        self._replication_factor = replication_factor
        self._log_config = log_config
        self._metadata = metadata
        self._controller = controller
        self._brokers = brokers
        self._replicas = replicas
        self._disk = disk
        self._clock_ms = clock_ms
        self._turns = asyncio.Semaphore(WRITES_MAX)

    async def write(self, settings: ShareSettings, letters: Sequence[DeadLetter]) -> None:
        """Write a record for each letter; returns once all are committed.

        Args:
            settings: of the group of all letters; its dead_letter_topic is not empty.
            letters: of partitions that this broker leads, if the group asks for copies.

        Raises DeadLettersFailed with the letters that are not known to be written: the topic may not be used (INVALID_CONFIG,
        TOPIC_AUTHORIZATION_FAILED …), its brokers did not take them in five attempts, or the source cannot be read here.
        """
        in_order = sorted(letters, key=lambda letter: (letter.topic, letter.partition, letter.offset))
        done = 0
        try:
            async with self._turns:
                target = await self._target(settings.dead_letter_topic)
                for _, of_partition in groupby(in_order, key=lambda letter: (letter.topic_id, letter.partition)):
                    source = list(of_partition)
                    at = 0
                    while at < len(source):
                        copies: Copies = {}
                        part = source[at : at + LETTERS_MAX]
                        if settings.copies_dead_records:
                            copies, end = await self._copies(part, target.batch_bytes_max)
                            part = part[: bisect_left(part, end, key=lambda letter: letter.offset)]
                        batches = await self._disk.run(sealed, part, copies, self._clock_ms(), target.batch_bytes_max)
                        for batch, count, copy_count in batches:
                            await self._append(target, source[at].partition, batch, count)
                            at += count
                            done += count
                            self.stats.written += count
                            if settings.copies_dead_records:
                                self.stats.without_copy += count - copy_count
        except (KafkaError, OSError, TimeoutError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
            unwritten = in_order[done:]
            self.stats.failed += len(unwritten)
            message = f"{len(unwritten)} dead letters for {settings.dead_letter_topic} are not written: {error}"
            raise DeadLettersFailed(message, code=code, unwritten=unwritten) from error

    # ---- where to ------------------------------------------------------------------------------------------------

    async def _target(self, name: str) -> _Target:
        """The topic, made if need be. Raises KafkaError where letters may not go there."""
        reason = name_refusal(name, prefix=self._config.errors_deadletterqueue_topic_name_prefix)
        if reason is not None:
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, reason)
        failures = 0
        while (topic := self._metadata.image.topics.get(name)) is None:
            if not self._config.errors_deadletterqueue_auto_create_topics_enable:
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic {name}: create it with {TOPIC_ENABLE_KEY}=true, or let brokers do so with "
                    "errors.deadletterqueue.auto.create.topics.enable=true",
                )
            if failures == ATTEMPTS_MAX:
                raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} was made and is not known here yet")
            if failures:
                await asyncio.sleep(RETRY_S * 2 ** (failures - 1))  # until this broker's image has it
            else:
                await self._create(name)
            failures += 1
        image = self._metadata.image
        if image.configs.topic(name).get(TOPIC_ENABLE_KEY) != "true":
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG, f"{name} takes no dead letters: set {TOPIC_ENABLE_KEY}=true on the topic"
            )
        return _Target(topic, self._log_config(name, image).max_message_bytes)

    async def _create(self, name: str) -> None:
        wanted = CreatableTopic(
            name=name,
            partition_count=self._partition_count,
            replication_factor=self._replication_factor,
            configs={TOPIC_ENABLE_KEY: "true", "message.timestamp.type": "CreateTime"},
        )
        (created,) = (await self._controller.ask(CreateTopics(topics=(wanted,)), principal=NODE_PRINCIPAL)).topics
        if created.error is None:
            self.stats.topics_created += 1
        elif created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise created.error

    async def _append(self, target: _Target, source_partition: int, batch: bytes, count: int) -> None:
        """One batch, in at most ATTEMPTS_MAX attempts. Raises what the last one raised."""
        number = source_partition % len(target.topic.partitions)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                await self._append_once(target.topic, number, batch)
                return
            except (KafkaError, OSError, TimeoutError) as error:
                if not isinstance(error, KafkaError) or error.code in _UNCERTAIN:
                    self.stats.uncertain += count
                elif not error.is_retriable:
                    raise
                has_waited = isinstance(error, TimeoutError) or (
                    isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT
                )
                if has_waited or attempt == ATTEMPTS_MAX:  # others wait for their turn: it comes again with its letters
                    raise
                logger.debug("%s-%d took no dead letters: %r", target.topic.name, number, error)
            await asyncio.sleep(RETRY_S * 2 ** (attempt - 1))

    async def _append_once(self, topic: TopicImage, number: int, batch: bytes) -> None:
        name = topic.name
        registration = self._metadata.image.topics.partition(TopicPartition(name, number))
        if registration is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{number} is gone")
        if not registration.has_leader:
            raise KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{number} has no leader")
        if registration.leader == self._replicas.broker_id:
            answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()

            def respond(outcomes: list[AppendOutcome]) -> None:
                if not answer.done():
                    answer.set_result(outcomes[0])

            self._replicas.appends.append_records(
                [AppendEntry(name, number, batch)], required_acks=-1, timeout_ms=TIMEOUT_MS, respond=respond
            )
            outcome = await answer
            if outcome.error is not None:
                raise outcome.error
            return
        response = await self._brokers.call(
            registration.leader,
            ProduceRequest(
                acks=-1,
                timeout_ms=TIMEOUT_MS,
                topic_data=[TopicProduceData(name, topic.id, [PartitionProduceData(number, batch)])],
            ),
        )
        answers = [partition for answered in response.responses for partition in answered.partition_responses]
        if len(answers) != 1 or answers[0].index != number:
            raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, f"the leader said nothing of {name}-{number}")
        if answers[0].error_code != ErrorCode.NONE:
            raise KafkaError.of(ErrorCode(answers[0].error_code), answers[0].error_message or f"of {name}-{number}")

    # ---- copies --------------------------------------------------------------------------------------------------

    async def _copies(self, letters: Sequence[DeadLetter], bytes_max: int) -> tuple[Copies, int]:
        """Keys and values of the first letters, from this broker's log; and the offset up to which they were looked for.

        letters: of one partition, ascending. bytes_max: of an opened batch, and of a record with its headers. Raises KafkaError.
        """
        first = letters[0]
        led = self._replicas.hosted.leader_partition(TopicPartition(first.topic, first.partition))
        if led.topic_id != first.topic_id:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"{first.topic} was made again: its records are gone")
        log_start, end = led.log.log_start_offset, led.high_watermark
        if first.offset < log_start or first.offset >= end:
            return {}, max(log_start, first.offset + 1)
        found = led.log.read(first.offset, bytes_max=READ_BYTES, end=end, at_least_one_batch=True)
        try:
            copies, copied_end = await self._disk.run(
                _read_copies, found.parts, [letter.offset for letter in letters], bytes_max
            )
        except OSError as error:
            led.log.tail.listener.on_storage_failed(led.log, error)
            raise StorageFailed(f"{led.log.directory}: {error}") from error
        finally:
            for part in found.parts:
                part.file.release()
        # offsets that compaction took away lie behind the last batch of a read, or before its first
        return copies, max(copied_end, first.offset + 1)


def name_refusal(name: str, *, prefix: str) -> str | None:
    """Why no dead letters may go to a topic of this name; None if they may."""
    if not name:
        return "the group names no topic for dead letters: set errors.deadletterqueue.topic.name"
    if name.startswith("__"):
        return f"errors.deadletterqueue.topic.name={name}: names that begin with __ are of the system's own topics"
    if not name.startswith(prefix):
        return (
            f"errors.deadletterqueue.topic.name={name}: it has to begin with {prefix!r}, which "
            "errors.deadletterqueue.topic.name.prefix says on the brokers"
        )
    return None


def headers_of(letter: DeadLetter) -> tuple[tuple[str, bytes], ...]:
    """The headers of a letter's record: names of KIP-1191, contents as UTF-8 text."""
    return tuple(
        (f"__dlq.errors.{name}", str(content).encode())
        for name, content in (
            ("topic", letter.topic),
            ("partition", letter.partition),
            ("offset", letter.offset),
            ("group", letter.group_id),
            ("delivery.count", letter.deliveries),
            ("message", letter.cause),
        )
    )


class SealedBatch(NamedTuple):
    """A batch of letters."""

    batch: bytes
    letter_count: int
    copy_count: int
    """How many of the letters have the record's key and value."""


def sealed(letters: Sequence[DeadLetter], copies: Copies, now_ms: int, bytes_max: int) -> list[SealedBatch]:
    """Batches of at most `bytes_max` bytes with a record for each letter, in order. Runs in a thread.

    A record that would be longer goes without its copies; one that is longer even so is for the log to refuse.
    """
    batches: list[SealedBatch] = []
    records: list[Record] = []
    left = copy_count = 0
    for letter in letters:
        headers = headers_of(letter)
        copy = copies.get(letter.offset)
        size = _bytes_at_most(copy, headers)
        if copy is not None and HEADER_BYTES + size > bytes_max:
            copy = None
            size = _bytes_at_most(copy, headers)
        if records and size > left:
            batches.append(SealedBatch(build_batch(records), len(records), copy_count))
            records = []
            copy_count = 0
        if not records:
            left = bytes_max - HEADER_BYTES
        left -= size
        copy_count += copy is not None
        key, value = copy or (None, None)
        records.append(Record(len(records), now_ms, key, value, headers))
    if records:
        batches.append(SealedBatch(build_batch(records), len(records), copy_count))
    return batches


def _bytes_at_most(copy: tuple[bytes | None, bytes | None] | None, headers: Sequence[tuple[str, bytes]]) -> int:
    size = _RECORD_OVERHEAD + sum(len(part or b"") for part in copy or ())
    for name, content in headers:
        size += _HEADER_OVERHEAD + len(name) + len(content)
    return size


def _read_copies(parts: Sequence[FileRange], wanted: Sequence[Offset], bytes_max: int) -> tuple[Copies, int]:
    return copied(b"".join(part.file.read(part.position, part.size) for part in parts), wanted, bytes_max=bytes_max)


def copied(data: bytes, wanted: Sequence[Offset], *, bytes_max: int) -> tuple[Copies, int]:
    """Keys and values of the wanted offsets in whole batches, and the offset up to which they were looked for. Runs in a thread.

    wanted: ascending. bytes_max: most bytes that a compressed batch may have when it is opened, and about as many come back at a
    time: what is behind is left for the next call. Raises CorruptBatch for a batch whose checksum is wrong.
    """
    copies: dict[Offset, tuple[bytes | None, bytes | None]] = {}
    size = 0
    end = 0
    for position, header in iterate_batches(data):
        end = header.next_offset
        in_batch = wanted[bisect_left(wanted, header.base_offset) : bisect_left(wanted, end)]
        if not in_batch or header.is_control:
            continue
        if not crc_is_valid(data, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} has another checksum than its bytes")
        batch, searched = memoryview(data)[position : position + header.size_bytes], set(in_batch)
        limit = bytes_max if header.attributes & 0x07 != CompressionType.NONE else header.size_bytes
        try:
            for record in iterate_records(batch, decompressed_bytes_max=limit):
                if record.offset in searched:
                    copies[Offset(record.offset)] = record.key, record.value
                    size += len(record.key or b"") + len(record.value or b"")
                if record.offset >= in_batch[-1]:
                    break
        except KafkaError as error:  # too long when opened, or unsound: it will be so next time
            logger.debug("the batch at offset %d gives no copies: %s", header.base_offset, error)
        if size >= bytes_max:
            break
    return copies, end
