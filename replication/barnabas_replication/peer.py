"""A partition's leader as its follower sees it: one fetch at a time, answered with batches.

May touch:  barnabas_wire.client (sockets, through it).      Must not touch: partitions, logs.
Invariants: one fetch in flight per peer; a cancelled fetch leaves no late answer behind that could be taken for another's.
Read next:  fetcher.py, the only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas_replication.requests import Buffer, DivergingEpoch, FetchPartitionSpec, FetchSpec
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Offset


class FetchedPartition(NamedTuple):
    """What the leader said of one partition. `records` holds whole batches and stays valid until the next fetch."""

    topic: str
    partition: int
    error_code: ErrorCode
    high_watermark: Offset
    log_start_offset: Offset
    diverging_epoch: DivergingEpoch | None
    records: Buffer


class Peer(Protocol):
    """One leader broker."""

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> Sequence[FetchedPartition]:
        """Fetch all partitions in one request; partitions without news may be left out of the answer.

        Raises KafkaError (whole request refused), OSError (unreachable, connection lost) or TimeoutError.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


PeerFactory = Callable[[BrokerId, Endpoint], Peer]
"""Makes the peer of a leader; must not block: connecting belongs into the first fetch."""
