"""The rows of the comparison: what each measures, and how a run chooses among them.

May touch:  nothing.                  Must not touch: sockets, processes.
Invariants: a row's name says all that distinguishes it; rows with more idle partitions come later, as these are never removed.
Read next:  measure.py, which runs a row.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.frames import KIB, MIB, Load

PAGE_CACHE, DURABLE = "page cache", "durable"
SMALL = 16 * KIB
LOADS = {
    "100 B in 16 KiB": Load(100, SMALL),
    "1 KiB in 16 KiB": Load(KIB, SMALL),
    "16 KiB each": Load(SMALL, SMALL),
    "1 MiB each": Load(MIB, MIB),
}
"""What one request carries. As a producer fills batches: small records share one, a large record has its own."""


class Kind(enum.Enum):
    """How a row is measured."""

    START = "start"
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    FETCH = "fetch"
    IDLE = "idle"
    MEMORY = "memory"
    FAILOVER = "failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSpec:
    """One row."""

    name: str
    kind: Kind
    idle_partitions: int = 0
    durability: str = PAGE_CACHE
    rate: int = 0
    """Records a second, of all producers."""
    producers: int = 1
    load: Load = LOADS["1 KiB in 16 KiB"]
    replicas: int = 3
    has_lz4: bool = False
    has_tls: bool = False
    """Over the encrypted listener."""
    brokers: int = 3
    """How many brokers of Barnabas: three beside three (systems.py), one beside one (tls.py), or a host of two beside one (host.py)."""
    partitions: int = 3


def _latency(rate: int, *, durability: str = PAGE_CACHE, idle_partitions: int = 0, producers: int = 1) -> RowSpec:
    parts = [f"latency, {rate:,}/s", durability]
    if producers > 1:
        parts.insert(1, f"{producers} producers")
    if idle_partitions:
        parts.append(f"beside {idle_partitions:,} idle")
    return RowSpec(
        name=", ".join(parts),
        kind=Kind.LATENCY,
        rate=rate,
        durability=durability,
        idle_partitions=idle_partitions,
        producers=producers,
    )


def _throughputs() -> Iterator[RowSpec]:
    for replicas in (1, 3):
        for durability in (PAGE_CACHE, DURABLE):
            for words, load in LOADS.items():
                for has_lz4 in (False, True):
                    yield RowSpec(
                        name=f"throughput, RF {replicas}, {durability}, {words}, {'lz4' if has_lz4 else 'none'}",
                        kind=Kind.THROUGHPUT,
                        replicas=replicas,
                        durability=durability,
                        load=load,
                        has_lz4=has_lz4,
                    )


def _few(brokers: int, prefix: str, *, has_tls: bool, partitions: int = 3) -> Iterator[RowSpec]:
    """Produce and fetch where one broker of Kafka's stands on the other side."""
    for words in ("1 KiB in 16 KiB", "1 MiB each"):
        yield RowSpec(
            name=f"{prefix}, produce, page cache, {words}",
            kind=Kind.THROUGHPUT,
            load=LOADS[words],
            replicas=1,
            has_tls=has_tls,
            brokers=brokers,
            partitions=partitions,
        )
    yield RowSpec(
        name=f"{prefix}, fetch, 1 MiB answers",
        kind=Kind.FETCH,
        load=Load(KIB, MIB),
        replicas=1,
        has_tls=has_tls,
        brokers=brokers,
        partitions=partitions,
    )


ROWS: tuple[RowSpec, ...] = (
    RowSpec(name="start, three nodes to the first acknowledged record", kind=Kind.START),
    *_few(1, "TLS", has_tls=True),
    *_few(2, "host of two", has_tls=False, partitions=4),
    *_few(2, "host of two, TLS", has_tls=True, partitions=4),
    _latency(1000),
    _latency(200),
    _latency(1000, durability=DURABLE),
    _latency(200, durability=DURABLE),
    _latency(1000, producers=50),
    _latency(1000, producers=50, durability=DURABLE),
    *_throughputs(),
    RowSpec(name="fetch, 1 MiB answers", kind=Kind.FETCH, load=Load(KIB, MIB), replicas=1),
    RowSpec(name="idle, few partitions", kind=Kind.IDLE),
    RowSpec(name="memory, after the load", kind=Kind.MEMORY),
    RowSpec(name="failover, leader killed", kind=Kind.FAILOVER, rate=100),
    _latency(200, idle_partitions=300),
    _latency(1000, idle_partitions=300),
    _latency(50, idle_partitions=1000),
    _latency(200, idle_partitions=1000),
    _latency(1000, idle_partitions=1000),
    RowSpec(name="idle, 1,000 partitions", kind=Kind.IDLE, idle_partitions=1000),
    RowSpec(name="memory, 1,000 partitions", kind=Kind.MEMORY, idle_partitions=1000),
)


class UnknownRows(Exception):
    """A choice that names no row."""


def choose(choices: Sequence[str], rows: Sequence[RowSpec] = ROWS) -> list[RowSpec]:
    """The rows whose names begin with one of the choices, in their order; all rows for no choice. Raises UnknownRows."""
    for choice in choices:
        if not any(row.name.startswith(choice) for row in rows):
            known = "\n  ".join(row.name for row in rows)
            raise UnknownRows(f"no row begins with {choice!r}; the rows are\n  {known}")
    return [row for row in rows if not choices or row.name.startswith(tuple(choices))]
