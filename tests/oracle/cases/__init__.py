"""The questions that both brokers are asked, one file per family.

May touch:  a Side.                           Must not touch: sockets, files, the other side.
Invariants: a case asks only about topics and groups of its own name; it is asked once of each side, in the same order.
Read next:  produce.py; ../test_answers.py for what may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas_wire.records.batch import Record, build_batch
from barnabas_wire.records.compression import CompressionType
from tests.oracle.answers import Side

T0 = 1_700_000_000_000
"""Timestamp of the first record of every batch, ms since 1970."""

Ask = Callable[[Side], Iterator[tuple[str, Any]]]
"""Asks one side and yields (label, answer)."""


class Case(NamedTuple):
    """Some questions that belong together."""

    name: str
    ask: Ask
    differs: Mapping[str, str]
    """Pattern of a path in the answers -> the difference (by its name in test_answers.py) that is seen there."""


CASES: list[Case] = []


def case(differs: Mapping[str, str] | None = None) -> Callable[[Ask], Ask]:
    """Register a case under its function's name."""

    def register(ask: Ask) -> Ask:
        CASES.append(Case(ask.__name__, ask, differs or {}))
        return ask

    return register


def batch(count: int = 1, *, first: int = 0, timestamp_ms: int = T0, step_ms: int = 1000, **options: Any) -> bytes:
    """A batch of small records with rising timestamps; options are build_batch's."""
    records = [
        Record(index, timestamp_ms + index * step_ms, b"key-%d" % (first + index), b"value-%d" % (first + index))
        for index in range(count)
    ]
    return build_batch(records, **options)


GZIP, SNAPPY, LZ4, ZSTD = CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD
