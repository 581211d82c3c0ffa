"""Produce (key 0): append record batches to partitions.

The declared classes serve clients and tests; the broker uses `parse_produce_request` and `encode_produce_response_frame` below,
written by hand for every version because this is the hottest code of the house: they build no objects and touch no record.

Not obvious:
- ApiVersions must offer Produce from version 0 though nothing below 3 is served: librdkafka up to
  2.8 otherwise silently sends gzip, snappy and lz4 topics uncompressed (KAFKA-18659);
- version 13 and later name topics by id, earlier ones by name: `topic` is a Uuid or a str accordingly.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint, encode_leader_endpoints
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.primitives import (
    Buffer,
    MalformedMessage,
    malformed,
    new_uuid,
    read_compact_string,
    read_string,
    read_uvarint_tail,
    skip_tagged_fields,
    too_many,
    write_compact_string,
    write_string,
    write_uvarint,
)
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, records, string, struct, uuid
from barnabas_wire.lazy_dataclass import dataclass

REQUEST_ELEMENTS_MAX = 8_192
"""Most topics and partitions, counted together, that the broker takes in one request."""


@dataclass(slots=True)
class PartitionProduceData:
    """The batches for one partition."""

    index: int = int32()
    records: Buffer | None = records(nullable="0+")  # whole batches, as they will lie in the log


@dataclass(slots=True)
class TopicProduceData:
    """What goes to one topic, by name or by id."""

    name: str = string("0-12")
    topic_id: Uuid = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@dataclass(slots=True)
class ProduceRequest(Message):
    """Append batches. zstd is allowed from v7, topic ids replace names in v13 (KIP-516).

    From v12 on a transaction's first produce to a partition adds the partition to it (KIP-890).
    """

    API_KEY = ApiKey.PRODUCE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 3, 13, 9

    transactional_id: str | None = string("3+", nullable="3+", default=None)  # null outside transactions
    acks: int = int16()  # 0: no answer at all, 1: the leader has it, -1: every in-sync replica has it
    timeout_ms: int = int32()  # how long acks=-1 may wait for the followers
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    """A record that its partition's whole batch was refused for (KIP-467)."""

    batch_index: int = int32("8+")  # its place in the batch, from 0
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """The leader now, for a client that came to the wrong broker (KIP-951)."""

    leader_id: int = int32("10+", default=-1)  # -1: not known
    leader_epoch: int = int32("10+", default=-1)


@dataclass(slots=True)
class PartitionProduceResponse:
    """What became of one partition's batches."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()  # what the first record got; -1 after an error
    log_append_time_ms: int = int64("2+", default=-1)  # -1 where the topic keeps the producer's timestamps
    # distinguishes a producer whose state was forgotten from one that lost records
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)  # one text for all of record_errors
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)  # only beside NOT_LEADER_OR_FOLLOWER


@dataclass(slots=True)
class TopicProduceResponse:
    """The outcomes of one topic."""

    name: str = string("0-12")
    topic_id: Uuid = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@dataclass(slots=True)
class NodeEndpoint:
    """Where a leader named in the answer is reached, so that the client need not ask for metadata."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@dataclass(slots=True)
class ProduceResponse(Message):
    """The outcome by topic and partition; addresses of leaders come with v10 (KIP-951)."""

    API_KEY = ApiKey.PRODUCE
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 3, 13, 9

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


# ---------------------------------------------------------------------------------------------------------------------
# The broker's path

ProduceEntry = tuple[str | Uuid, int, memoryview]
"""(topic name or id, partition, records): records is a slice of the frame, empty when the client sent null."""


class ProducedPartition(NamedTuple):
    """One partition of a produce response; a plain tuple of the same order serves as well.

    topic: name below version 13, id from there on.  log_append_time_ms: -1 unless the topic stamps LogAppendTime.
    current_leader: (leader id, leader epoch) beside NOT_LEADER_OR_FOLLOWER, version 10 and later (KIP-951).
    record_errors: (index of the record in its batch, message) of records that made the batch be refused (KIP-467).
    """

    topic: str | Uuid
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()


_unpack_acks = struct_module.Struct(">hii").unpack_from
_unpack_tail = struct_module.Struct(">HB").unpack_from
_unpack_acks_and_count = struct_module.Struct(">hiB").unpack_from
_unpack_index_and_length = struct_module.Struct(">iB").unpack_from
_unpack_int32 = struct_module.Struct(">i").unpack_from
_unpack_two_int32 = struct_module.Struct(">ii").unpack_from
_pack_frame_head = struct_module.Struct(">ii").pack
_pack_partition = struct_module.Struct(">ihqqq").pack
_pack_partition_v3 = struct_module.Struct(">ihqq").pack
_pack_int32 = struct_module.Struct(">i").pack
_pack_leader = struct_module.Struct(">BBBiix").pack

# A request of one partition up to the length of its records, by the byte that says how long the topic's name is: it names a
# length of n by n + 1. And the three bytes of that length, or what follows a shorter one.
_UNPACK_ONE_HEAD = [struct_module.Struct(f"{13 + size}sBBB").unpack_from for size in range(128)]

# A response of one partition, by topic id and by a name of so many bytes. Padding stands for empty tag sections and null
# strings: size, correlation id, header tags, topic count, name; partition count, partition, error count, message, tags,
# throttle, tags.
_ONE_BY_ID = struct_module.Struct(">iixB16sBihqqqBxxxix")
_PACK_ONE_BY_NAME = [struct_module.Struct(f">iixBB{size}sBihqqqBxxxix").pack for size in range(127)]
_ONE_SIZE = _ONE_BY_ID.size - 16 + 1 - 4
_ONE_HEAD_LEGACY = struct_module.Struct(">iiih")  # size, correlation id, topic count, name length
_ONE_TAIL_V8 = struct_module.Struct(">iihqqqxxxxhi")  # partition count, partition, error count, message, throttle
_ONE_TAIL_V5 = struct_module.Struct(">iihqqqi")
_ONE_SIZE_V8 = _ONE_HEAD_LEGACY.size + _ONE_TAIL_V8.size - 4
_ONE_SIZE_V5 = _ONE_HEAD_LEGACY.size + _ONE_TAIL_V5.size - 4
_pack_one_head_legacy = _ONE_HEAD_LEGACY.pack
_pack_one_tail_v8 = _ONE_TAIL_V8.pack
_pack_one_tail_v5 = _ONE_TAIL_V5.pack
_pack_one_by_id = _ONE_BY_ID.pack


def parse_produce_request(
    view: memoryview, position: int, version: int
) -> tuple[str | None, int, int, list[ProduceEntry]]:
    """Body of a ProduceRequest v3 to v13 -> (transactional id, acks, timeout ms, entries in the order sent).

    `view` must end where the frame ends. Nothing is copied but names. Raises MalformedMessage, TooManyElements.
    """
    try:
        if version >= 9:
            return (_parse_one(view, position) if version < 13 else None) or _parse_flexible(view, position, version)
        return _parse_legacy(view, position)
    except (IndexError, struct_module.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"ProduceRequest v{version}: {error}") from error


def _parse_one(view: memoryview, position: int) -> tuple[str | None, int, int, list[ProduceEntry]] | None:
    """The body of v9 to v12 with one partition, no transaction and no tagged field; None for any other.

    A producer begins request after request with the same bytes: what they say is remembered (measured: 1.2 us of 2.2).
    """
    name_bytes = view[position + 8]
    p = position + 13 + name_bytes
    if name_bytes > 0x7F or len(view) < p + 4:
        return None
    head, length, second, third = _UNPACK_ONE_HEAD[name_bytes](view, position)
    named = _read_one(head)
    if named is None:
        return None
    p += 1
    if length > 0x7F:
        if second < 0x80:
            length = length & 0x7F | second << 7
            p += 1
        elif third < 0x80:
            length = length & 0x7F | (second & 0x7F) << 7 | third << 14
            p += 2
        else:
            length, p = read_uvarint_tail(view, p, length)
    stop = p + length - 1 if length else p
    if stop + 3 != len(view) or _unpack_tail(view, stop) != (0, 0):
        return None
    acks, timeout_ms, topic, partition = named
    return None, acks, timeout_ms, [(topic, partition, view[p:stop])]


@lru_cache(1024)
def _read_one(head: bytes) -> tuple[int, int, str, int] | None:
    """(acks, timeout ms, topic, partition) from the bytes before the records' length, if they name one partition.

    Layout: a null transactional id, acks, timeout ms, 2 for one topic, length + 1 and name, 2 for one partition, its index.
    """
    stop = len(head) - 5
    if head[0] or head[7] != 2 or head[stop] != 2:
        return None
    acks, timeout_ms, _ = _unpack_acks_and_count(head, 1)
    (partition,) = _unpack_int32(head, stop + 1)
    return acks, timeout_ms, head[9:stop].decode(), partition


def _parse_flexible(view: memoryview, position: int, version: int) -> tuple[str | None, int, int, list[ProduceEntry]]:
    # counts and lengths of one byte, nearly all but a batch's, are read in place: a call costs as much as the rest
    end = len(view)
    transactional_id = None
    if view[position]:
        transactional_id, p = read_compact_string(view, position, end)
    else:
        p = position + 1
    acks, timeout_ms, topic_count = _unpack_acks_and_count(view, p)
    p += 7
    if topic_count > 0x7F:
        topic_count, p = read_uvarint_tail(view, p, topic_count)
    if not topic_count:
        malformed("ProduceRequest.topic_data", -1)
    entries: list[ProduceEntry] = []
    topic: str | Uuid
    left = REQUEST_ELEMENTS_MAX + 1 - topic_count
    for _ in range(topic_count - 1):
        if version >= 13:
            stop = p + 16
            if stop > end:
                malformed("TopicProduceData.topic_id", 16)
            topic = new_uuid(view[p:stop])
        else:
            length = view[p]
            p += 1
            if length > 0x7F:
                length, p = read_uvarint_tail(view, p, length)
            stop = p + length - 1
            if not length or stop > end:
                malformed("TopicProduceData.name", length)
            topic = view[p:stop].tobytes().decode()  # twice as fast as str(view, "utf-8")
        partition_count = view[stop]
        p = stop + 1
        if partition_count > 0x7F:
            partition_count, p = read_uvarint_tail(view, p, partition_count)
        if not partition_count:
            malformed("TopicProduceData.partition_data", -1)
        left -= partition_count - 1
        if left < 0:
            too_many("TopicProduceData.partition_data", partition_count)
        for _ in range(partition_count - 1):
            partition, length = _unpack_index_and_length(view, p)
            p += 5
            if length > 0x7F:
                second = view[p]
                if second < 0x80:
                    length = length & 0x7F | second << 7
                    p += 1
                elif (third := view[p + 1]) < 0x80:
                    length = length & 0x7F | (second & 0x7F) << 7 | third << 14
                    p += 2
                else:
                    length, p = read_uvarint_tail(view, p, length)
            stop = p + length - 1 if length else p
            if stop > end:
                malformed("PartitionProduceData.records", length)
            entries.append((topic, partition, view[p:stop]))
            p = stop + 1 if not view[stop] else skip_tagged_fields(view, stop, end)
        p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
    if view[p]:
        skip_tagged_fields(view, p, end)
    return transactional_id, acks, timeout_ms, entries


def _parse_legacy(view: memoryview, position: int) -> tuple[str | None, int, int, list[ProduceEntry]]:
    end = len(view)
    transactional_id, p = read_string(view, position, end)
    acks, timeout_ms, topic_count = _unpack_acks(view, p)
    p += 10
    if topic_count < 0:
        malformed("ProduceRequest.topic_data", topic_count)
    entries: list[ProduceEntry] = []
    left = REQUEST_ELEMENTS_MAX - topic_count
    for _ in range(topic_count):
        topic, p = read_string(view, p, end)
        if topic is None:
            malformed("TopicProduceData.name", -1)
        (partition_count,) = _unpack_int32(view, p)
        p += 4
        if partition_count < 0:
            malformed("TopicProduceData.partition_data", partition_count)
        left -= partition_count
        if left < 0:
            too_many("TopicProduceData.partition_data", partition_count)
        for _ in range(partition_count):
            partition, length = _unpack_two_int32(view, p)
            p += 8
            if length < -1:
                malformed("PartitionProduceData.records", length)
            stop = p + length if length > 0 else p
            if stop > end:
                malformed("PartitionProduceData.records", length)
            entries.append((topic, partition, view[p:stop]))
            p = stop
    return transactional_id, acks, timeout_ms, entries


def encode_produce_response_frame(
    correlation_id: int,
    version: int,
    partitions: Sequence[ProducedPartition],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Collection[LeaderEndpoint] = (),
) -> bytes:
    """A whole response frame, v3 to v13: size, header, body.

    Partitions of one topic must stand together; they are answered in the order given. node_endpoints: of every leader named in
    a current_leader; sent from version 10 on.
    """
    if version < 9:
        return _encode_legacy(correlation_id, version, partitions, throttle_time_ms)
    if len(partitions) == 1:
        topic, index, error, base, append_time, start, message, leader, record_errors = partitions[0]
        if message is None and leader is None and not record_errors:
            # nearly every answer; compact counts: 2 = one element, 1 = none
            if version >= 13:
                size = _ONE_BY_ID.size - 4
                return _pack_one_by_id(
                    size, correlation_id, 2, topic, 2, index, error, base, append_time, start, 1, throttle_time_ms
                )
            name = topic.encode()  # type: ignore[union-attr]
            size = len(name)
            if size < len(_PACK_ONE_BY_NAME):
                return _PACK_ONE_BY_NAME[size](
                    _ONE_SIZE + size, correlation_id, 2, size + 1, name, 2, index, error, base, append_time, start, 1,
                    throttle_time_ms,
                )  # fmt: skip
    return _encode_flexible(correlation_id, version, partitions, throttle_time_ms, node_endpoints)


def _encode_flexible(
    correlation_id: int,
    version: int,
    partitions: Sequence[ProducedPartition],
    throttle_time_ms: int,
    node_endpoints: Collection[LeaderEndpoint],
) -> bytes:
    groups = _by_topic(partitions)
    out = bytearray(_pack_frame_head(0, correlation_id))
    out += b"\0"
    out += write_uvarint(len(groups) + 1)
    for topic, members in groups:
        if version >= 13:
            out += topic  # type: ignore[arg-type]
        else:
            write_compact_string(out, topic)
        out += write_uvarint(len(members) + 1)
        for _, index, error, base, append_time, start, message, leader, record_errors in members:
            out += _pack_partition(index, error, base, append_time, start)
            out += write_uvarint(len(record_errors) + 1)
            for record_index, record_message in record_errors:
                out += _pack_int32(record_index)
                write_compact_string(out, record_message)
                out += b"\0"
            write_compact_string(out, message)
            # one tagged field: number 0, nine bytes
            out += b"\0" if leader is None or version < 10 else _pack_leader(1, 0, 9, leader[0], leader[1])
        out += b"\0"
    out += _pack_int32(throttle_time_ms)
    if node_endpoints and version >= 10:
        body = encode_leader_endpoints(node_endpoints)
        out += b"\x01\x00" + write_uvarint(len(body)) + body
    else:
        out += b"\0"
    out[0:4] = _pack_int32(len(out) - 4)
    return bytes(out)


def _encode_legacy(
    correlation_id: int, version: int, partitions: Sequence[ProducedPartition], throttle_time_ms: int
) -> bytes:
    if len(partitions) == 1 and version >= 8:
        topic, index, error, base, append_time, start, message, _, record_errors = partitions[0]
        if message is None and not record_errors:
            name = topic.encode()  # type: ignore[union-attr]
            head = _pack_one_head_legacy(_ONE_SIZE_V8 + len(name), correlation_id, 1, len(name))
            return head + name + _pack_one_tail_v8(1, index, error, base, append_time, start, -1, throttle_time_ms)
    elif len(partitions) == 1 and version >= 5:
        topic, index, error, base, append_time, start, *_ = partitions[0]
        name = topic.encode()  # type: ignore[union-attr]
        head = _pack_one_head_legacy(_ONE_SIZE_V5 + len(name), correlation_id, 1, len(name))
        return head + name + _pack_one_tail_v5(1, index, error, base, append_time, start, throttle_time_ms)
    groups = _by_topic(partitions)
    out = bytearray(_pack_frame_head(0, correlation_id))
    out += _pack_int32(len(groups))
    for topic, members in groups:
        write_string(out, topic)
        out += _pack_int32(len(members))
        for _, index, error, base, append_time, start, message, _leader, record_errors in members:
            if version < 5:
                out += _pack_partition_v3(index, error, base, append_time)
                continue
            out += _pack_partition(index, error, base, append_time, start)
            if version >= 8:
                out += _pack_int32(len(record_errors))
                for record_index, record_message in record_errors:
                    out += _pack_int32(record_index)
                    write_string(out, record_message)
                write_string(out, message)
    out += _pack_int32(throttle_time_ms)
    out[0:4] = _pack_int32(len(out) - 4)
    return bytes(out)


def _by_topic(partitions: Sequence[ProducedPartition]) -> list[tuple[str | Uuid, list[ProducedPartition]]]:
    groups: list[tuple[str | Uuid, list[ProducedPartition]]] = []
    last: str | Uuid | None = None
    for partition in partitions:
        if partition[0] != last:
            last = partition[0]
            groups.append((last, []))
        groups[-1][1].append(partition)
    return groups
