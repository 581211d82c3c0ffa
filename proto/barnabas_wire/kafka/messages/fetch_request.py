"""The hot path of a Fetch request, v4 to v18, both ends, partitions flat.

May touch:  fetch_fields.py.         Must not touch: the declared classes, the bytes of records.
Invariants: partitions stay in the order sent; every count and length is checked against the bytes that remain; no more than
            REQUEST_ELEMENTS_MAX topics and partitions come out.
Read next:  fetch_poll.py (a request of one partition), fetch_response.py.

Ours alone, between our brokers: a follower's fetch may carry a partition's flushed offset, in a tagged field far above Kafka's
own, which whoever does not know it skips.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.fetch import REQUEST_ELEMENTS_MAX
from barnabas_wire.kafka.messages.fetch_fields import by_topic, pack_int32, read_count, read_topic, unpack_int64
from barnabas_wire.kafka.primitives import (
    MalformedMessage,
    malformed,
    read_compact_string,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
    too_many,
    write_compact_string,
    write_string,
    write_uvarint,
)
from barnabas_wire.tuples import new_tuple


class FetchRequestPartition(NamedTuple):
    """One partition to fetch, on both ends. Epochs of -1 ask for no check."""

    topic: str | Uuid
    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 1 << 20
    flushed_offset: int = -1
    """Up to where the follower has flushed, when that is less than the fetch offset; version 12 on. -1: not less."""


class ParsedFetchRequest(NamedTuple):
    """A fetch request, partitions flat and in the order sent (from version 3 on that order is the client's priority).

    replica_id is -1 for consumers; replica_epoch -1 before version 15.  forgotten: (topic, partitions) of a fetch session.
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchRequestPartition]
    forgotten: list[tuple[str | Uuid, list[int]]]
    rack_id: str


FLUSHED_OFFSET_TAG = 64
"""Kafka counts its own tags of a partition from 0 and has come to 1."""
REQUEST_HEAD = {  # replica id until 14, max wait, min bytes, max bytes, isolation level, session id and epoch from 7
    version: struct_module.Struct(">" + ("i" if version < 15 else "") + "iiib" + ("ii" if version >= 7 else ""))
    for version in range(4, 19)
}
_unpack_partition_v12 = struct_module.Struct(">iiqiqiB").unpack_from
_unpack_partition_v9 = struct_module.Struct(">iiqqi").unpack_from
_unpack_partition_v5 = struct_module.Struct(">iqqi").unpack_from
_unpack_partition_v4 = struct_module.Struct(">iqi").unpack_from
_pack_partition_v12 = struct_module.Struct(">iiqiqix").pack
_pack_flushed_offset = struct_module.Struct(">BBBq").pack  # one tagged field: its number, 8 bytes
_pack_partition_v9 = struct_module.Struct(">iiqqi").pack
_pack_partition_v5 = struct_module.Struct(">iqqi").pack
_pack_partition_v4 = struct_module.Struct(">iqi").pack
# A request of one partition, its topic by id (version 13 on), nothing tagged but who the follower is: what a follower of one
# busy partition sends all the time, and how the answer to it begins. B where a count, a tag or a length of one byte stands.
ONE_REQUEST = struct_module.Struct(">iiibiiB16sBiiqiqiBBBB")  # ... topic's tags, nothing forgotten, no rack
_ONE_REQUEST_COUNTS = (0, 0, 1, 1)
ONE_AHEAD = struct_module.Struct(">iiibiiB16sBiiqiqiBBBqBBB")  # the same with a flushed offset
ONE_FOLLOWER = struct_module.Struct(">BBBiqB")  # one tagged field: number 1, 13 bytes, replica id and epoch, no tags
_pack_one_request = ONE_REQUEST.pack
_pack_one_ahead = ONE_AHEAD.pack
_pack_one_follower = ONE_FOLLOWER.pack


def parse_fetch_request(view: memoryview, position: int, version: int) -> ParsedFetchRequest:
    """Body of a FetchRequest v4 to v18. `view` must end where the frame ends. Raises MalformedMessage, TooManyElements."""
    try:
        return _parse_request(view, position, version)
    except (IndexError, struct_module.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"FetchRequest v{version}: {error}") from error


def _parse_request(view: memoryview, position: int, version: int) -> ParsedFetchRequest:
    end = len(view)
    head = REQUEST_HEAD[version]
    values = head.unpack_from(view, position)
    p = position + head.size
    replica_id, replica_epoch = -1, -1
    if version < 15:
        replica_id, values = values[0], values[1:]
    max_wait_ms, min_bytes, max_bytes, isolation_level = values[:4]
    session_id, session_epoch = values[4:] if version >= 7 else (0, -1)
    is_flexible = version >= 12
    partitions: list[FetchRequestPartition] = []
    add = partitions.append
    count, p = read_count(view, p, is_flexible)
    left = REQUEST_ELEMENTS_MAX - count
    for _ in range(count):
        topic, p = read_topic(view, p, end, version)
        inner, p = read_count(view, p, is_flexible)
        left -= inner
        if left < 0:
            too_many("FetchTopic.partitions", inner)
        if is_flexible:
            for _ in range(inner):
                index, leader_epoch, offset, fetched_epoch, start, most, tags = _unpack_partition_v12(view, p)
                p += 33
                flushed = -1
                if tags:
                    flushed, p = _read_flushed_offset(view, p - 1, end)
                entry = (topic, index, leader_epoch, offset, fetched_epoch, start, most, flushed)
                add(new_tuple(FetchRequestPartition, entry))
            p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
            continue
        for _ in range(inner):
            if version >= 9:
                index, leader_epoch, offset, start, most = _unpack_partition_v9(view, p)
                p += 28
                entry = (topic, index, leader_epoch, offset, -1, start, most, -1)
            elif version >= 5:
                index, offset, start, most = _unpack_partition_v5(view, p)
                p += 24
                entry = (topic, index, -1, offset, -1, start, most, -1)
            else:
                index, offset, most = _unpack_partition_v4(view, p)
                p += 16
                entry = (topic, index, -1, offset, -1, -1, most, -1)
            add(new_tuple(FetchRequestPartition, entry))
    forgotten: list[tuple[str | Uuid, list[int]]] = []
    if version >= 7:
        count, p = read_count(view, p, is_flexible)
        left -= count
        for _ in range(count):
            topic, p = read_topic(view, p, end, version)
            inner, p = read_count(view, p, is_flexible)
            left -= inner
            if left < 0:
                too_many("ForgottenTopic.partitions", inner)
            if inner * 4 > end - p:
                malformed("ForgottenTopic.partitions", inner)
            forgotten.append((topic, list(struct_module.unpack_from(f">{inner}i", view, p))))
            p += inner * 4
            if is_flexible:
                p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
    rack_id = ""
    if version >= 11:
        rack, p = (read_compact_string if is_flexible else read_string)(view, p, end)
        rack_id = malformed("FetchRequest.rack_id", -1) if rack is None else rack
    if is_flexible:
        replica_id, replica_epoch = _read_request_tags(view, p, end, version, replica_id)
    return ParsedFetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
    )


def _read_flushed_offset(view: memoryview, p: int, end: int) -> tuple[int, int]:
    """A partition's tagged fields: the follower's flushed offset, -1 without it, and where they end."""
    flushed = -1
    fields, p = read_tagged_fields(view, p, end)
    for tag, position, size in fields:
        if tag == FLUSHED_OFFSET_TAG:
            if size != 8:
                malformed("FetchPartition.flushed_offset", size)
            (flushed,) = unpack_int64(view, position)
    return flushed, p


def _read_request_tags(view: memoryview, p: int, end: int, version: int, replica_id: int) -> tuple[int, int]:
    """Replica id and epoch moved into tag 1 with version 15 (KIP-903)."""
    replica_epoch = -1
    for tag, position, size in read_tagged_fields(view, p, end)[0]:
        if tag == 1 and version >= 15:
            if size < 13:
                malformed("FetchRequest.replica_state", size)
            replica_id, replica_epoch = struct_module.unpack_from(">iq", view, position)
    return replica_id, replica_epoch


def encode_fetch_request(
    out: bytearray,
    version: int,
    partitions: Sequence[FetchRequestPartition],
    *,
    replica_id: int = -1,
    replica_epoch: int = -1,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int = 0,
    rack_id: str = "",
    session_id: int = 0,
    session_epoch: int = -1,
) -> None:
    """Append the body of a FetchRequest, v4 to v18. Partitions of one topic must stand together.

    session_id, session_epoch: from version 7 on (KIP-227); 0 and -1 ask outside any session. None is forgotten.
    """
    if version >= 15 and len(partitions) == 1 and replica_id >= 0 and not rack_id:
        topic, index, leader_epoch, offset, fetched_epoch, start, most, flushed = partitions[0]
        for_all = (max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, 2, topic, 2)
        one = (index, leader_epoch, offset, fetched_epoch, start, most)
        if flushed < 0:
            out += _pack_one_request(*for_all, *one, *_ONE_REQUEST_COUNTS)
        else:
            out += _pack_one_ahead(*for_all, *one, 1, FLUSHED_OFFSET_TAG, 8, flushed, *_ONE_REQUEST_COUNTS[1:])
        out += _pack_one_follower(1, 1, 13, replica_id, replica_epoch, 0)
        return
    is_flexible = version >= 12
    head: list[int] = [replica_id] if version < 15 else []
    head += max_wait_ms, min_bytes, max_bytes, isolation_level
    if version >= 7:
        head += session_id, session_epoch
    out += REQUEST_HEAD[version].pack(*head)
    groups = by_topic(partitions)
    out += write_uvarint(len(groups) + 1) if is_flexible else pack_int32(len(groups))
    for topic, members in groups:
        if version >= 13:
            out += topic  # type: ignore[arg-type]
        elif is_flexible:
            write_compact_string(out, topic)
        else:
            write_string(out, topic)
        out += write_uvarint(len(members) + 1) if is_flexible else pack_int32(len(members))
        for _, index, leader_epoch, offset, fetched_epoch, start, most, flushed in members:
            if is_flexible:
                out += _pack_partition_v12(index, leader_epoch, offset, fetched_epoch, start, most)
                if flushed >= 0:
                    out[-1:] = _pack_flushed_offset(1, FLUSHED_OFFSET_TAG, 8, flushed)
            elif version >= 9:
                out += _pack_partition_v9(index, leader_epoch, offset, start, most)
            elif version >= 5:
                out += _pack_partition_v5(index, offset, start, most)
            else:
                out += _pack_partition_v4(index, offset, most)
        if is_flexible:
            out += b"\0"
    if is_flexible:
        out += b"\x01"  # nothing forgotten
        write_compact_string(out, rack_id)
        if version >= 15 and (replica_id, replica_epoch) != (-1, -1):
            out += struct_module.pack(">BBBiqx", 1, 1, 13, replica_id, replica_epoch)
        else:
            out += b"\0"
        return
    if version >= 7:
        out += b"\0\0\0\0"
    if version >= 11:
        write_string(out, rack_id)
