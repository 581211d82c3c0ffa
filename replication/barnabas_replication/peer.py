"""A partition's leader as its follower sees it: one fetch at a time, answered with batches.

May touch:  barnabas_wire.client (sockets, through it).      Must not touch: partitions, logs.
Invariants: one fetch in flight per peer; a cancelled fetch leaves no late answer behind that could be taken for another's.
Read next:  fetcher.py, the only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas_replication.requests import Buffer, DivergingEpoch, FetchPartitionSpec, FetchSpec
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch import FetchRequestPartition

FETCH_VERSION_MIN = 15
"""The first with the follower's broker epoch (KIP-903), without which nobody joins an ISR. Topics go by id (v13), and the last
fetched epoch is there (v12)."""
FETCH_VERSION_MAX = 17


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


class KafkaPeer:
    """A leader reached over the Kafka protocol: Fetch v15 to v17, one connection, made when first needed."""

    def __init__(self, *, endpoint: Endpoint, client_id: str, timeout_ms: int) -> None:
        """client_id: what the leader's logs shall call us. timeout_ms: for connecting, and for each fetch."""
        self._endpoint = endpoint
        self._client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._connection: AioConnection | None = None
        self._version = 0

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> list[FetchedPartition]:
        """See Peer.fetch. Whatever goes wrong, cancellation too, ends the connection: answers come in order, so the next
        fetch would wait behind this one's."""
        try:
            connection = self._connection
            if connection is None or connection.is_closed:
                connection = await self._connect()
            return await self._fetch(connection, request, partitions)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See Peer.close."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> AioConnection:
        connection = self._connection = await AioConnection.connect(
            self._endpoint.host,
            self._endpoint.port,
            client_id=self._client_id,
            timeout_s=self._timeout_s,
            reuses_memory=True,
        )
        self._version = min(connection.version_for(ApiKey.FETCH), FETCH_VERSION_MAX)
        if self._version < FETCH_VERSION_MIN:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the leader speaks Fetch up to v{self._version}; followers need v{FETCH_VERSION_MIN}",
            )
        return connection

    async def _fetch(
        self, connection: AioConnection, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]
    ) -> list[FetchedPartition]:
        by_topic: dict[Uuid, list[FetchRequestPartition]] = {}
        names: dict[str | Uuid, str] = {}
        for topic, topic_id, number, leader_epoch, offset, last_epoch, log_start, bytes_max in partitions:
            members = by_topic.get(topic_id)
            if members is None:
                members = by_topic[topic_id] = []
                names[topic_id] = topic
            members.append(
                FetchRequestPartition(topic_id, number, leader_epoch, offset, last_epoch, log_start, bytes_max)
            )
        response = await connection.fetch(
            [asked for members in by_topic.values() for asked in members],
            version=self._version,
            replica_id=request.replica_id,
            replica_epoch=request.replica_epoch,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            timeout_s=self._timeout_s,
        )
        if response.error_code:
            raise KafkaError.of(ErrorCode(response.error_code), "the whole fetch was refused")
        return [
            FetchedPartition(
                names.get(received.topic, ""),
                received.partition,
                _code(received.error_code),
                Offset(received.high_watermark),
                Offset(received.log_start_offset),
                _diverging_epoch(received.diverging_epoch),
                received.records,
            )
            for received in response.partitions
        ]


def _diverging_epoch(received: tuple[int, int] | None) -> DivergingEpoch | None:
    return None if received is None else DivergingEpoch(Epoch(received[0]), Offset(received[1]))


def _code(number: int) -> ErrorCode:
    """A newer leader may know codes that we do not: any of them is a failure to be tried again."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
