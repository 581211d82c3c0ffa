"""The hot path of a Fetch answer, v4 to v18, both ends: framing around records that nobody copies.

May touch:  fetch_fields.py, ../leader_endpoints.py.         Must not touch: the declared classes, the bytes of records.
Invariants: the broker's parts are handed through as they are, such as file ranges; the client's records are slices of the frame.
Read next:  fetch_poll.py (the usual answer, made of what is known before), ../../client/aio.py.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.leader_endpoints import LeaderEndpoint, encode_leader_endpoints, read_leader_endpoints
from barnabas_wire.kafka.messages.fetch_fields import by_topic, pack_int32, read_count, read_topic, unpack_int32
from barnabas_wire.kafka.primitives import (
    ONE_BYTE,
    MalformedMessage,
    malformed,
    new_uuid,
    read_tagged_fields,
    read_uvarint,
    read_uvarint_tail,
    skip_tagged_fields,
    write_compact_string,
    write_string,
    write_uvarint,
)


class FetchResponsePartition(NamedTuple):
    """One partition to answer; a plain tuple of the same order serves as well.

    parts: what makes up the records, handed through untouched (file ranges, bytes); size_bytes: their sum.
    diverging_epoch: (epoch, end offset), version 12 on.  current_leader: (leader id, leader epoch), version 12 on.
    forgotten_below: see fetch.py, for our own followers, version 12 on; -1: left out.
    aborted_transactions: (producer id, first offset) pairs for read_committed; None for read_uncommitted.
    """

    topic: str | Uuid
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    parts: Sequence[Any] = ()
    size_bytes: int = 0
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    forgotten_below: int = -1


class ReceivedPartition(NamedTuple):
    """One partition of a fetch response as the client sees it; `records` is a slice of the frame, empty when there are none."""

    topic: str | Uuid
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[tuple[int, int]]
    preferred_read_replica: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    forgotten_below: int = -1


class ParsedFetchResponse(NamedTuple):
    """A fetch response with its partitions flat. node_endpoints: version 16 on."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[ReceivedPartition]
    node_endpoints: list[LeaderEndpoint]


_pack_two_int32 = struct_module.Struct(">ii").pack
_pack_fetched = struct_module.Struct(">ihqqqBi").pack
_pack_fetched_before_aborted = struct_module.Struct(">ihqqq").pack
_pack_fetched_before_aborted_v4 = struct_module.Struct(">ihqq").pack
_pack_aborted = struct_module.Struct(">qqx").pack
_pack_aborted_legacy = struct_module.Struct(">qq").pack
_pack_epoch_and_offset = struct_module.Struct(">BBiqx").pack
_pack_leader = struct_module.Struct(">BBiix").pack
_pack_forgotten = struct_module.Struct(">BBq").pack
_pack_response_head = struct_module.Struct(">iixihi").pack
_pack_response_head_v7 = struct_module.Struct(">iiihi").pack
_pack_response_head_v4 = struct_module.Struct(">iii").pack
_unpack_fetched = struct_module.Struct(">ihqqqB").unpack_from
_unpack_fetched_v5 = struct_module.Struct(">ihqqqi").unpack_from
_unpack_fetched_v4 = struct_module.Struct(">ihqqi").unpack_from
_unpack_aborted = struct_module.Struct(">qqB").unpack_from
_unpack_aborted_legacy = struct_module.Struct(">qq").unpack_from
_unpack_int64 = struct_module.Struct(">q").unpack_from
_unpack_pair = struct_module.Struct(">ii").unpack_from
_unpack_epoch_and_offset = struct_module.Struct(">iq").unpack_from
FORGOTTEN_TAG = 64
_ONE_RESPONSE_BODY = struct_module.Struct(">ihiB16sBihqqqBiB")  # up to the first byte of the records' length


def encode_fetch_response(
    correlation_id: int,
    version: int,
    partitions: Sequence[FetchResponsePartition],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Collection[LeaderEndpoint] = (),
) -> tuple[list[Any], int]:
    """A whole response frame, v4 to v18 -> (parts in sending order, size of all of them in bytes).

    Parts are framing bytes with each partition's own `parts` between them. Partitions of one topic must stand together.
    node_endpoints: of the leaders named in current_leader; sent from version 16 on.
    """
    is_flexible = version >= 12
    if is_flexible:
        out = bytearray(_pack_response_head(0, correlation_id, throttle_time_ms, error_code, session_id))
    elif version >= 7:
        out = bytearray(_pack_response_head_v7(0, correlation_id, throttle_time_ms, error_code, session_id))
    else:
        out = bytearray(_pack_response_head_v4(0, correlation_id, throttle_time_ms))
    first = out
    parts: list[Any] = [out]
    records_bytes = 0
    framing_bytes = 0
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
        for (
            _,
            index,
            error,
            high,
            stable,
            start,
            own_parts,
            size,
            diverging,
            leader,
            aborted,
            preferred,
            forgotten,
        ) in members:
            if is_flexible:
                if aborted is None:
                    out += _pack_fetched(index, error, high, stable, start, 0, preferred)
                else:
                    out += _pack_fetched_before_aborted(index, error, high, stable, start)
                    out += write_uvarint(len(aborted) + 1)
                    for producer_id, first_offset in aborted:
                        out += _pack_aborted(producer_id, first_offset)
                    out += pack_int32(preferred)
                out += write_uvarint(size + 1)
            else:
                if version >= 5:
                    out += _pack_fetched_before_aborted(index, error, high, stable, start)
                else:
                    out += _pack_fetched_before_aborted_v4(index, error, high, stable)
                if aborted is None:
                    out += b"\xff\xff\xff\xff"
                else:
                    out += pack_int32(len(aborted))
                    for producer_id, first_offset in aborted:
                        out += _pack_aborted_legacy(producer_id, first_offset)
                out += _pack_two_int32(preferred, size) if version >= 11 else pack_int32(size)
            if size:
                records_bytes += size
                framing_bytes += len(out)
                parts.extend(own_parts)
                out = bytearray()
                parts.append(out)
            if is_flexible:
                if diverging is None and leader is None and forgotten < 0:
                    out += b"\0"
                else:
                    out += ONE_BYTE[(diverging is not None) + (leader is not None) + (forgotten >= 0)]
                    if diverging is not None:
                        out += _pack_epoch_and_offset(0, 13, *diverging)
                    if leader is not None:
                        out += _pack_leader(1, 9, *leader)
                    if forgotten >= 0:
                        out += _pack_forgotten(FORGOTTEN_TAG, 8, forgotten)
        if is_flexible:
            out += b"\0"
    if is_flexible:
        if node_endpoints and version >= 16:
            body = encode_leader_endpoints(node_endpoints)
            out += b"\x01\x00" + write_uvarint(len(body)) + body
        else:
            out += b"\0"
    elif not out:
        parts.pop()
    framing_bytes += len(out)
    total = framing_bytes + records_bytes
    first[0:4] = pack_int32(total - 4)
    return parts, total


def parse_fetch_response(view: memoryview, position: int, version: int) -> ParsedFetchResponse:
    """Body of a FetchResponse v4 to v18; records are slices of `view`, which ends where the frame ends. Raises MalformedMessage."""
    try:
        return (_parse_one_response(view, position) if version >= 13 else None) or _parse_response(
            view, position, version
        )
    except (IndexError, struct_module.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"FetchResponse v{version}: {error}") from error


def _parse_one_response(view: memoryview, position: int) -> ParsedFetchResponse | None:
    """A response of one partition that has records and nothing tagged; None for any other."""
    end = len(view)
    p = position + _ONE_RESPONSE_BODY.size
    if p >= end:
        return None
    (
        throttle_time_ms,
        failure,
        session_id,
        topics,
        topic,
        partitions,
        index,
        error,
        high,
        stable,
        start,
        aborted,
        preferred,
        length,
    ) = _ONE_RESPONSE_BODY.unpack_from(view, position)
    if topics != 2 or partitions != 2 or aborted > 1:
        return None
    if length > 0x7F:
        length, p = read_uvarint_tail(view, p, length)
    stop = p + length - 1 if length else p
    if stop + 3 != end or bytes(view[stop:]) != b"\0\0\0":
        return None
    one = ReceivedPartition(new_uuid(topic), index, error, high, stable, start, [], preferred, view[p:stop], None, None)
    return ParsedFetchResponse(throttle_time_ms, failure, session_id, [one], [])


def _parse_response(view: memoryview, position: int, version: int) -> ParsedFetchResponse:
    end = len(view)
    is_flexible = version >= 12
    error_code, session_id = 0, 0
    if version >= 7:
        throttle_time_ms, error_code, session_id = struct_module.unpack_from(">ihi", view, position)
        p = position + 10
    else:
        (throttle_time_ms,) = unpack_int32(view, position)
        p = position + 4
    partitions: list[ReceivedPartition] = []
    topic_count, p = read_count(view, p, is_flexible)
    for _ in range(topic_count):
        topic, p = read_topic(view, p, end, version)
        partition_count, p = read_count(view, p, is_flexible)
        for _ in range(partition_count):
            if is_flexible:
                partition, p = _read_fetched(view, p, end, topic)
            else:
                partition, p = _read_fetched_legacy(view, p, end, topic, version)
            partitions.append(partition)
        if is_flexible:
            p = p + 1 if not view[p] else skip_tagged_fields(view, p, end)
    node_endpoints: list[LeaderEndpoint] = []
    if is_flexible:
        for tag, start, size in read_tagged_fields(view, p, end)[0]:
            if tag == 0 and version >= 16:
                node_endpoints = read_leader_endpoints(view, start, start + size)
    return ParsedFetchResponse(throttle_time_ms, error_code, session_id, partitions, node_endpoints)


def _read_fetched(view: memoryview, p: int, end: int, topic: str | Uuid) -> tuple[ReceivedPartition, int]:
    index, error, high, stable, start, count = _unpack_fetched(view, p)
    p += 31
    aborted: list[tuple[int, int]] = []
    if count > 1:
        count, p = read_uvarint(view, p - 1)
        for _ in range(count - 1):
            producer_id, first_offset, tags = _unpack_aborted(view, p)
            p += 17
            if tags:
                p = skip_tagged_fields(view, p - 1, end)
            aborted.append((producer_id, first_offset))
    (preferred,) = unpack_int32(view, p)
    length, p = read_uvarint(view, p + 4)
    stop = p + length - 1 if length else p
    if stop > end:
        malformed("PartitionData.records", length)
    records = view[p:stop]
    p = stop
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    forgotten = -1
    if not view[p]:
        p += 1
    else:
        fields, p = read_tagged_fields(view, p, end)
        for tag, position, size in fields:
            if tag == 0:
                diverging = _unpack_epoch_and_offset(view[position : position + size])
            elif tag == 1:
                leader = _unpack_pair(view[position : position + size])
            elif tag == FORGOTTEN_TAG:
                (forgotten,) = _unpack_int64(view[position : position + size])
    partition = ReceivedPartition(
        topic, index, error, high, stable, start, aborted, preferred, records, diverging, leader, forgotten
    )
    return partition, p


def _read_fetched_legacy(
    view: memoryview, p: int, end: int, topic: str | Uuid, version: int
) -> tuple[ReceivedPartition, int]:
    if version >= 5:
        index, error, high, stable, start, count = _unpack_fetched_v5(view, p)
        p += 34
    else:
        index, error, high, stable, count = _unpack_fetched_v4(view, p)
        start = -1
        p += 26
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        aborted.append(_unpack_aborted_legacy(view, p))
        p += 16
    preferred = -1
    if version >= 11:
        (preferred,) = unpack_int32(view, p)
        p += 4
    (length,) = unpack_int32(view, p)
    p += 4
    stop = p + length if length > 0 else p
    if length < -1 or stop > end:
        malformed("PartitionData.records", length)
    records = view[p:stop]
    return ReceivedPartition(topic, index, error, high, stable, start, aborted, preferred, records, None, None), stop
