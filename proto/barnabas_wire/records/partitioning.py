"""Which partition a key belongs to, as Kafka's clients choose it. Pure.

May touch:  its arguments.            Must not touch: anything else.
Invariants: equal to Java's org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner for every key: a key must not move
    because another client writes it.
Read next:  pyspark_barnabas/record_layout.py, the compiled form, which is tested against this one.
"""

from __future__ import annotations


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key, as Kafka's producers choose it: murmur2, sign bit cut, modulo."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2), unsigned."""
    multiplier, mask = 0x5BD1E995, 0xFFFF_FFFF
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = (value * multiplier & mask) ^ word
    tail = data[whole:]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
