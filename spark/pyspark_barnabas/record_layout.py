"""Where rows become records: numba chooses partitions and lays out the bytes of batches, row after row, without a Python object.

May touch:  numba, numpy.             Must not touch: pyarrow, sockets, Spark.
Invariants: nothing is written past the end of the space given; records of one slot keep the order of their rows; a batch never
    passes its bound unless it holds one record alone; the hash of a key is barnabas_wire/records/partitioning.py's.
Read next:  encoder.py, which brings the columns and takes the batches; scan.py for the way back.

A slot is a partition of a topic, counted from 0 over all topics of a write.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import intrinsic

from barnabas_wire.records.compiled import READ_ONLY_BYTES, compiled

RECORD_BYTES_MIN = 7
"""The bytes of an empty record."""
RECORD_BYTES_MAX = 40
"""Most bytes of a record beside its key, value and headers: seven varints, attributes."""
HEADER_PART_BYTES_MAX = 10
"""Most bytes of a record header beside its key and value."""
BATCH_COLUMNS = 4
"""The columns of a batch, int64 each: slot, first byte, end byte, records."""

_LONGS, _INTS = numba.int64[::1], numba.int32[::1]
_READ_LONGS, _READ_INTS, _BOOLS = (
    numba.types.Array(kind, 1, "C", readonly=True) for kind in (numba.int64, numba.int32, numba.boolean)
)
_OUT = numba.uint8[::1]


@intrinsic
def _copied(typing_context, out, out_at, data, data_at, size):  # type: ignore[no-untyped-def]
    """memcpy: a loop over bytes in numba is five times slower at 100 bytes."""
    signature = numba.types.void(out, out_at, data, data_at, size)

    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        out_value, out_index, data_value, data_index, count = arguments
        into = context.make_array(signature.args[0])(context, builder, out_value).data
        source = context.make_array(signature.args[2])(context, builder, data_value).data
        cgutils.raw_memcpy(
            builder,
            builder.gep(into, [out_index]),
            builder.gep(source, [data_index]),
            count,
            ir.Constant(ir.IntType(64), 1),
        )
        return context.get_dummy_value()

    return signature, codegen


@numba.njit
def _murmur2(data, start, size):  # type: ignore[no-untyped-def]
    """Kafka's MurmurHash2, unsigned; see barnabas_wire/records/partitioning.py."""
    multiplier = np.uint32(0x5BD1E995)
    value = np.uint32(np.uint32(0x9747B28C) ^ np.uint32(size))
    whole = size & ~3
    for at in range(start, start + whole, 4):
        word = np.uint32(
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        word = np.uint32(word * multiplier)
        word = np.uint32(np.uint32(word ^ (word >> np.uint32(24))) * multiplier)
        value = np.uint32(np.uint32(value * multiplier) ^ word)
    left = size - whole
    if left:
        at = start + whole
        if left == 3:
            value = np.uint32(value ^ (np.uint32(data[at + 2]) << np.uint32(16)))
        if left >= 2:
            value = np.uint32(value ^ (np.uint32(data[at + 1]) << np.uint32(8)))
        value = np.uint32(np.uint32(value ^ np.uint32(data[at])) * multiplier)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(13))) * multiplier)
    return np.uint32(value ^ (value >> np.uint32(15)))


@numba.njit
def _varint_size(value):  # type: ignore[no-untyped-def]
    zigzag = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = 1
    while zigzag > np.uint64(0x7F):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@numba.njit
def _put_varint(out, position, value):  # type: ignore[no-untyped-def]
    zigzag = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while zigzag > np.uint64(0x7F):
        out[position] = np.uint8(zigzag & np.uint64(0x7F)) | np.uint8(0x80)
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@compiled(
    numba.int64(
        READ_ONLY_BYTES,
        _READ_LONGS,
        _BOOLS,
        _READ_INTS,
        _READ_INTS,
        _READ_INTS,
        _READ_INTS,
        _READ_LONGS,
        _LONGS,
        numba.int64,
        numba.boolean,
        _INTS,
    )
)
def choose_slots(  # type: ignore[no-untyped-def]
    keys, key_bounds, key_is_null, topics, wanted, slot_base, partition_count, value_bounds, sticky, sticky_bytes,
    ignores_keys, slots
):  # fmt: skip
    """Write down each row's slot. Returns -1, or the first row whose wanted partition does not exist.

    topics: number of each row's topic. wanted: its partition, -1 for none. slot_base, partition_count: by topic.
    sticky: by topic two numbers, the partition that rows without a key go to and the bytes it has got; after sticky_bytes the
    next one takes over (KIP-480).
    """
    for row in range(slots.shape[0]):
        topic = topics[row]
        count = partition_count[topic]
        partition = np.int64(wanted[row])
        if partition >= count:
            return row
        if partition < 0:
            if key_is_null[row] or ignores_keys:
                if sticky[2 * topic + 1] >= sticky_bytes:
                    sticky[2 * topic] = (sticky[2 * topic] + 1) % count
                    sticky[2 * topic + 1] = 0
                partition = sticky[2 * topic]
                sticky[2 * topic + 1] += RECORD_BYTES_MIN + value_bounds[row + 1] - value_bounds[row]
            else:
                size = key_bounds[row + 1] - key_bounds[row]
                hashed = _murmur2(keys, key_bounds[row], size)
                partition = np.int64(hashed & np.uint32(0x7FFFFFFF)) % count
        slots[row] = slot_base[topic] + partition
    return -1


@compiled(numba.void(_READ_INTS, _LONGS, _LONGS))
def order_by_slot(slots, ends, order):  # type: ignore[no-untyped-def]
    """A stable counting sort: `order` gets the rows of slot 0, then of slot 1, …; `ends` where each slot's rows end in it."""
    for row in range(slots.shape[0]):
        ends[slots[row]] += 1
    begin = np.int64(0)
    for slot in range(ends.shape[0]):
        count = ends[slot]
        ends[slot] = begin
        begin += count
    for row in range(slots.shape[0]):
        slot = slots[row]
        order[ends[slot]] = row
        ends[slot] += 1


@compiled(
    numba.int64(
        READ_ONLY_BYTES, _READ_LONGS, _BOOLS, READ_ONLY_BYTES, _READ_LONGS, _BOOLS,
        _READ_LONGS, READ_ONLY_BYTES, _READ_LONGS, READ_ONLY_BYTES, _READ_LONGS, _BOOLS,
        _READ_LONGS, _READ_LONGS, _READ_LONGS, _OUT, numba.int64[:, ::1],
    )
)  # fmt: skip
def lay_out(  # type: ignore[no-untyped-def]
    keys, key_bounds, key_is_null, values, value_bounds, value_is_null,
    header_bounds, names, name_bounds, contents, content_bounds, content_is_null,
    order, ends, bytes_max, out, batches
):  # fmt: skip
    """Encode the rows, slot after slot, into batches of at most bytes_max[slot] each. Returns the number of batches, or -2.

    All records bear their batch's timestamp and get offsets 0, 1, 2, … `header_bounds` has one more entry than rows, or none at
    all when no row has headers. -2: `out` or `batches` is too small.
    """
    found = np.int64(0)
    position = np.int64(0)
    has_headers = header_bounds.shape[0] > 0
    begin = np.int64(0)
    for slot in range(ends.shape[0]):
        end = ends[slot]
        if end == begin:
            continue
        count = np.int64(0)
        first = position
        for place in range(begin, end):
            row = order[place]
            key_size = np.int64(-1) if key_is_null[row] else key_bounds[row + 1] - key_bounds[row]
            value_size = np.int64(-1) if value_is_null[row] else value_bounds[row + 1] - value_bounds[row]
            # attributes, timestamp delta 0, lengths, contents; the offset's delta comes on top
            body = 2 + _varint_size(key_size) + _varint_size(value_size)
            if key_size > 0:
                body += key_size
            if value_size > 0:
                body += value_size
            headers = np.int64(0)
            if has_headers:
                headers = header_bounds[row + 1] - header_bounds[row]
                for at in range(header_bounds[row], header_bounds[row + 1]):
                    name_size = name_bounds[at + 1] - name_bounds[at]
                    content_size = np.int64(-1) if content_is_null[at] else content_bounds[at + 1] - content_bounds[at]
                    body += _varint_size(name_size) + name_size + _varint_size(content_size)
                    if content_size > 0:
                        body += content_size
            body += _varint_size(headers)
            size = body + _varint_size(count)
            size += _varint_size(size)
            if count > 0 and position + size - first > bytes_max[slot]:
                if found >= batches.shape[0]:
                    return -2
                batches[found, 0] = slot
                batches[found, 1] = first
                batches[found, 2] = position
                batches[found, 3] = count
                found += 1
                count = np.int64(0)
                first = position
                size = body + 1
                size += _varint_size(size)
            if position + size > out.shape[0]:
                return -2
            position = _put_varint(out, position, body + _varint_size(count))
            out[position] = 0
            out[position + 1] = 0
            position = _put_varint(out, position + 2, count)
            position = _put_varint(out, position, key_size)
            if key_size > 0:
                _copied(out, position, keys, key_bounds[row], key_size)
                position += key_size
            position = _put_varint(out, position, value_size)
            if value_size > 0:
                _copied(out, position, values, value_bounds[row], value_size)
                position += value_size
            position = _put_varint(out, position, headers)
            if has_headers:
                for at in range(header_bounds[row], header_bounds[row + 1]):
                    name_size = name_bounds[at + 1] - name_bounds[at]
                    position = _put_varint(out, position, name_size)
                    if name_size > 0:
                        _copied(out, position, names, name_bounds[at], name_size)
                        position += name_size
                    content_size = np.int64(-1) if content_is_null[at] else content_bounds[at + 1] - content_bounds[at]
                    position = _put_varint(out, position, content_size)
                    if content_size > 0:
                        _copied(out, position, contents, content_bounds[at], content_size)
                        position += content_size
            count += 1
        if found >= batches.shape[0]:
            return -2
        batches[found, 0] = slot
        batches[found, 1] = first
        batches[found, 2] = position
        batches[found, 3] = count
        found += 1
        begin = end
    return found
