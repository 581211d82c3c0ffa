"""The partition of a key is the one that Java's producer chooses."""

from __future__ import annotations

import pytest

from barnabas_wire.records.partitioning import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFF_FFFF
    assert partition_for_key(key, 7) == (expected & 0x7FFF_FFFF) % 7
