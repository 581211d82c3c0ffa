"""The checksum of batches is CRC-32C, whoever computes it."""

from __future__ import annotations

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_wire.records.crc32c import crc32c, extend_crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_the_examples_of_rfc_3720(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_another_implementation_agrees_on_any_buffer_and_on_its_parts(data: bytes, cut: int) -> None:
    expected = google_crc32c.value(data)
    assert crc32c(data) == crc32c(bytearray(data)) == crc32c(memoryview(data)) == expected
    assert extend_crc32c(crc32c(data[:cut]), memoryview(data)[cut:]) == expected
