"""A partition's leader as its follower sees it: one fetch at a time, answered with batches.

May touch:  barnabas_wire.client (sockets, through it).      Must not touch: partitions, logs.
Invariants: one fetch in flight per peer; a cancelled fetch leaves no late answer behind that could be taken for another's.
Read next:  fetcher.py, the only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas_replication.requests import (
    NO_SESSION_EPOCH,
    OPENS_SESSION_EPOCH,
    Buffer,
    DivergingEpoch,
    FetchPartitionSpec,
    FetchSpec,
)
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.security import PLAINTEXT, ClientSecurity
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Endpoint, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition
from barnabas_wire.tuples import new_tuple

FETCH_VERSION_MIN = 15
"""The first with the follower's broker epoch (KIP-903), without which no follower joins an ISR. Topics go by id (v13),
and the last fetched epoch is there (v12)."""
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
    forgotten_below: Offset = NO_OFFSET
    """Past the offset asked for: deletions at lower ones may be gone from the leader's log."""


class FetchAnswer(NamedTuple):
    """What the leader answered."""

    partitions: Sequence[FetchedPartition]
    session_id: int = 0
    """The fetch session that the next fetch may continue; 0: there is none."""


class Peer(Protocol):
    """One leader broker."""

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> FetchAnswer:
        """Fetch all partitions in one request; partitions without news may be left out of the answer, and within a session
        others may be in it.

        The caller bounds how long it waits for the answer, and cancels. Raises KafkaError (whole request refused), OSError
        (unreachable, connection lost) or TimeoutError (no connection in time).
        """
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


PeerFactory = Callable[[BrokerId, Endpoint], Peer]
"""Makes the peer of a leader; must not block: connecting belongs into the first fetch."""


class KafkaPeer:
    """A leader reached over the Kafka protocol: Fetch v15 to v17, one connection, made when first needed."""

    def __init__(
        self, *, endpoint: Endpoint, client_id: str, timeout_ms: int, security: ClientSecurity = PLAINTEXT
    ) -> None:
        """client_id: what the leader's logs shall call us. timeout_ms: for connecting. security: of the leader's listener."""
        self._endpoint = endpoint
        self._client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._security = security
        self._connection: AioConnection | None = None
        self._version = 0
        self._names: dict[str | Uuid, str] = {}

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> FetchAnswer:
        """See Peer.fetch. Whatever goes wrong, cancellation too, ends the connection: answers come in order, so the next
        fetch would wait behind this one's."""
        try:
            connection = self._connection
            if connection is None or connection.is_closed:
                connection = await self._connect()
            asked, names = _by_topic_id(partitions)
            if request.session_epoch != NO_SESSION_EPOCH:
                names = self._add_names(names, is_new_session=request.session_epoch == OPENS_SESSION_EPOCH)
            response = await connection.fetch(
                asked,
                version=self._version,
                replica_id=request.replica_id,
                replica_epoch=request.replica_epoch,
                max_wait_ms=request.max_wait_ms,
                min_bytes=request.min_bytes,
                max_bytes=request.max_bytes,
                session_id=request.session_id,
                session_epoch=request.session_epoch,
                timeout_s=None,
            )
            if response.error_code:
                raise KafkaError.of(ErrorCode(response.error_code), "the whole fetch was refused")
        except BaseException:
            await self.close()
            raise
        fetched = [
            FetchedPartition(
                names.get(topic, ""),
                partition,
                ErrorCode.NONE if not error_code else _code(error_code),
                Offset(high_watermark),
                Offset(log_start_offset),
                None if diverging_epoch is None else DivergingEpoch._make(diverging_epoch),
                records,
                Offset(forgotten_below),
            )
            for (
                topic,
                partition,
                error_code,
                high_watermark,
                _,
                log_start_offset,
                _,
                _,
                records,
                diverging_epoch,
                _,
                forgotten_below,
            ) in response.partitions
        ]
        return FetchAnswer(fetched, response.session_id)

    def _add_names(self, names: dict[str | Uuid, str], *, is_new_session: bool) -> dict[str | Uuid, str]:
        """A session's answers may bring every topic that it was ever asked for."""
        if is_new_session:
            self._names = names
        else:
            self._names.update(names)
        return self._names

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
            security=self._security,
        )
        self._version = min(connection.version_for(ApiKey.FETCH), FETCH_VERSION_MAX)
        if self._version < FETCH_VERSION_MIN:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the leader speaks Fetch up to v{self._version}; followers need v{FETCH_VERSION_MIN}",
            )
        return connection


def _by_topic_id(
    partitions: Sequence[FetchPartitionSpec],
) -> tuple[list[FetchRequestPartition], dict[str | Uuid, str]]:
    """The partitions as the wire wants them, those of one topic together, and the names of their topics.

    A FetchRequestPartition has the fields of a spec in their order, but no name of the topic, which comes first.
    """
    if len(partitions) == 1:
        spec = partitions[0]
        return [new_tuple(FetchRequestPartition, spec[1:])], {spec.topic_id: spec.topic}
    by_topic: dict[Uuid, list[FetchRequestPartition]] = {}
    names: dict[str | Uuid, str] = {}
    for spec in partitions:
        topic_id = spec.topic_id
        members = by_topic.get(topic_id)
        if members is None:
            members = by_topic[topic_id] = []
            names[topic_id] = spec.topic
        members.append(new_tuple(FetchRequestPartition, spec[1:]))
    return [asked for members in by_topic.values() for asked in members], names


def _code(number: int) -> ErrorCode:
    """A newer leader may know codes that we do not: any of them is a failure to be tried again."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
