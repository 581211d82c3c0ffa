"""The twin of each offset checkpoint: the same entries under a checksum, and what is believed where the two differ. Pure.

May touch:  its arguments.            Must not touch: files, logs, clocks.
Invariants: an offset counts as proved only where file and twin say the same; of two that differ the lower one is taken, which costs
            time, and loses nothing; a log start that may be too low for it is in doubt, and other replicas know it better.
Read next:  saved_offsets.py, which reads and writes both; directory_state.py for where twins are, and why there.

Kafka's checkpoints have no checksum and take no further line. So a twin is kept in the directory that is ours alone,
under the checkpoint's own name. It is written before its file. Layout (text, UTF-8):
    the checkpoint as it is in Kafka's file, byte by byte
    topic-ids <n>                            of recovery points alone, else 0: of which topics the logs are
    <topic> <partition> <topic id>           n times
    crc32c: <8 hexadecimal digits>           of the checkpoint's file name and all bytes before this line: none is
                                             taken for another's

What it means, when they are read:
    both say the same                        proved
    the twin is damaged or another's         the file, said; but no log start, for either may be of another file: see SavedOffsets.load
    no twin                                  a version without twins wrote the file, as it removes them when it starts: taken as
                                             it is, as that version would; or the twin alone was lost: likewise, and said
    the file is missing or unreadable        the twin's entries; said
    both can be read and differ              a flipped bit, an older copy of either, or a crash between the two writes: the lower; said
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas_log.directories.checkpoints import decode_offsets, encode_offsets, seal, unseal
from barnabas_log.errors import CorruptCheckpoint
from barnabas_wire.kafka.ids import Offset, TopicPartition, Uuid

_TOPIC_IDS = b"topic-ids "

Offsets = Mapping[TopicPartition, Offset]


class Twin(NamedTuple):
    """What a twin says."""

    offsets: Offsets
    topic_ids: Mapping[TopicPartition, Uuid]


class Settled(NamedTuple):
    """What a checkpoint is taken to say."""

    offsets: dict[TopicPartition, Offset]
    twin: Twin | None
    """What the twin says, where that is sound: true of the moment when it was written, and nothing was written since."""
    is_proved: bool
    doubt: str = ""
    """What is wrong, in words; empty when nothing is."""
    is_known: bool = True
    """Whether either of the two could be read; else nothing is known, and the offsets are empty."""
    differing: frozenset[TopicPartition] | None = None
    """Partitions whose entries differ, where both could be read; None where either could not."""


def encode_twin(name: str, offsets: Offsets, topic_ids: Mapping[TopicPartition, Uuid]) -> bytes:
    """The twin's content; name: of the checkpoint's file."""
    named = sorted(topic_ids.items())
    lines = "".join(f"{log.topic} {log.partition} {topic_id}\n" for log, topic_id in named)
    return seal(encode_offsets(offsets) + _TOPIC_IDS + f"{len(named)}\n{lines}".encode(), name=name)


def decode_twin(content: bytes, path: str) -> Twin | None:
    """None where the checksum is wrong, or it is none of ours, or another checkpoint's; path: of Kafka's file."""
    body = unseal(content, name=path.rpartition("/")[2])
    if body is None:
        return None
    main, found, ids = body.rpartition(_TOPIC_IDS)
    if not found:
        return None
    try:
        offsets = decode_offsets(main, path)
        topic_ids = {}
        for line in ids.decode().split("\n")[1:-1]:
            topic, partition, topic_id = line.split(" ")
            topic_ids[TopicPartition(topic, int(partition))] = Uuid.parse(topic_id)
    except (CorruptCheckpoint, ValueError):
        return None
    return Twin(offsets, topic_ids)


def settle(main: bytes | None, twin: bytes | None, *, path: str) -> Settled:
    """The one rule.

    Args:
        main: Kafka's file, None where there is none.
        twin: ours, None where there is none.
        path: of Kafka's file, for words.
    """
    told = None if twin is None else decode_twin(twin, path)
    try:
        offsets = None if main is None else decode_offsets(main, path)
        doubt = f"{path} is missing" if main is None and told is not None and told.offsets else ""
    except CorruptCheckpoint as error:
        offsets, doubt = None, str(error)
    if told is None:
        if twin is not None:
            doubt = doubt or f"the twin of {path} is damaged"
        return Settled(offsets or {}, None, False, doubt, offsets is not None)
    if offsets is None:
        return Settled(dict(told.offsets), told, False, doubt)
    if offsets == told.offsets:
        return Settled(offsets, told, True, differing=frozenset())
    lower = {name: min(offset, offsets.get(name, offset)) for name, offset in told.offsets.items()}
    differing = frozenset(name for name in {*offsets, *told.offsets} if offsets.get(name) != told.offsets.get(name))
    lower.update({name: Offset(0) for name in offsets if name not in lower})
    doubt = f"{path} and its twin differ ({few_of(differing)}): the lower offsets are taken"
    return Settled(lower, told, False, doubt, differing=differing)


def is_start_doubted(starts: Settled, name: TopicPartition, *, has_twins: bool, was_written: bool) -> bool:
    """Whether a log may start later than the log starts say: for want of a file or twin that was there, or since the two differ.

    No twins at all are what a former version leaves, and no files at all a directory that never lived for a minute: neither is a doubt.

    Args:
        has_twins: whether another checkpoint has its twin, so that this one had it, too.
        was_written: whether the directory says in another way that the log starts were once written.
    """
    if starts.differing is not None:
        return name in starts.differing
    return bool(starts.doubt) or starts.twin is not None or has_twins or (was_written and not starts.is_known)


def few_of(names: Collection[TopicPartition]) -> str:
    """The first of them, for words."""
    return ", ".join(sorted(map(str, names))[:3]) + (", …" if len(names) > 3 else "")
