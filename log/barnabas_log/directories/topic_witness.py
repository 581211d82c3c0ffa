"""Whose log a partition directory holds: two witnesses of the topic id, and what is to become of a log by what they say.

May touch:  the Disk it is given.     Must not touch: logs, images, clocks.
Invariants: a log is given up only on the word of both witnesses; one witness is enough to serve the topic that it names, and for
            nothing else; a log without a readable witness is kept and not served, unless it holds no records.
Read next:  opening.py, which asks at each start; replication's replica_logs.py, which knows the topic that is there now.

The first witness is Kafka's partition.metadata, which has no checksum. The second is `topic-id.witness` beside it (text, UTF-8):
    version: 0
    topic_id: <22 characters of base64>
    partition: <topic>-<number>              a file of another partition proves nothing
    crc32c: <8 hexadecimal digits>           of all bytes before this line
Both are written when the log is made, and flushed by the round that makes its first records durable. So a crash may leave any part
of them, or neither, only beside records that were not acknowledged: where no checkpoint speaks of the log and the stop
was not clean, a log without a known topic has lost nothing, but is kept all the same. Apache Kafka and versions before
this one ignore the file. They make logs without it: where none of a directory's logs was proved to have it yet
(directory_state.py), partition.metadata alone counts as both, and the second is written.

What is damaged, and what follows: a witness that is missing or unreadable is written again from the other where that
names the topic that is there now; else, and where the two contradict each other, the directory is set aside as
`-stray`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from barnabas_log.directories.checkpoints import (
    PARTITION_METADATA_FILE,
    encode_partition_metadata,
    read_partition_metadata,
    seal,
    unseal,
)
from barnabas_log.disk import Disk
from barnabas_wire.kafka.ids import ZERO_UUID, TopicPartition, Uuid

WITNESS_FILE: Final = "topic-id.witness"


class Identity(Enum):
    """How sure it is which topic a log is of."""

    PROVED = "both witnesses name it"
    TOLD = "one witness names it, the other is missing or unreadable"
    BLANK = "no witness names any topic, and it holds no records"
    UNKNOWN = "it holds records, and neither partition.metadata nor topic-id.witness can be read"
    CONTRADICTED = "partition.metadata and topic-id.witness name two different topics"


class Fate(Enum):
    """What becomes of a log where a topic of its name is there."""

    SERVE = "serve"
    REMOVE = "remove"
    """It is a deleted topic's."""
    SET_ASIDE = "set aside"


class Witnesses(NamedTuple):
    """What the two files of a directory say; None: missing or unreadable."""

    metadata: Uuid | None
    witness: Uuid | None

    @property
    def topic_id(self) -> Uuid:
        """The topic that they name, where they do not contradict each other; else ZERO_UUID."""
        if self.metadata is None or self.witness is None:
            return self.metadata or self.witness or ZERO_UUID
        return self.metadata if self.metadata == self.witness else ZERO_UUID


def identity_of(said: Witnesses, *, holds_records: bool, has_second: bool) -> Identity:
    """How sure the two are.

    Args:
        has_second: the log was made or opened by a version that writes the second witness; else a missing one proves nothing.
    """
    metadata, witness = said
    if metadata is None and witness is None:
        return Identity.UNKNOWN if holds_records else Identity.BLANK
    if metadata is not None and witness is not None:
        return Identity.PROVED if metadata == witness else Identity.CONTRADICTED
    return Identity.TOLD if witness is not None or has_second else Identity.PROVED


def fate_of(identity: Identity, log_topic_id: Uuid, *, topic_id: Uuid) -> Fate:
    """The one rule.

    Args:
        topic_id: of the topic that has the log's name now.
    """
    if identity is Identity.BLANK:
        return Fate.SERVE
    if identity in (Identity.UNKNOWN, Identity.CONTRADICTED):
        return Fate.SET_ASIDE
    if log_topic_id == topic_id:
        return Fate.SERVE
    return Fate.REMOVE if identity is Identity.PROVED else Fate.SET_ASIDE


def read_witnesses(disk: Disk, directory: str, topic_partition: TopicPartition) -> Witnesses:
    """What the files of a partition directory say. Raises OSError."""
    metadata = read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA_FILE}")
    return Witnesses(metadata, _read_witness(disk, f"{directory}/{WITNESS_FILE}", topic_partition))


def witness_files(topic_id: Uuid, topic_partition: TopicPartition) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    """(name, content) of both."""
    return (
        (PARTITION_METADATA_FILE, encode_partition_metadata(topic_id)),
        (WITNESS_FILE, encode_witness(topic_id, topic_partition)),
    )


def write_missing_witness(disk: Disk, directory: str, topic_partition: TopicPartition, said: Witnesses) -> None:
    """Write again what is missing or unreadable beside the other, durably; the one that is sound is not touched. Raises
    OSError."""
    for (name, content), named in zip(witness_files(said.topic_id, topic_partition), said, strict=True):
        if named is None:
            disk.write_file_atomically(f"{directory}/{name}", content)


def encode_witness(topic_id: Uuid, topic_partition: TopicPartition) -> bytes:
    """Content of topic-id.witness."""
    return seal(f"version: 0\ntopic_id: {topic_id}\npartition: {topic_partition}\n".encode())


def _read_witness(disk: Disk, path: str, topic_partition: TopicPartition) -> Uuid | None:
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return None
    body = unseal(content)
    if body is None:
        return None
    try:
        topic_id = Uuid.parse(body.decode().split("\n")[1].removeprefix("topic_id: "))
    except (IndexError, ValueError):
        return None
    return topic_id if content == encode_witness(topic_id, topic_partition) else None
