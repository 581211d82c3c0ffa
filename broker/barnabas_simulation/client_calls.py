"""How simulated clients reach a partition's leader: past its Kafka listener, or through it, over connections that break.

May touch:  the network, or the product's own asyncio client; replica managers only where no listener is.   Must not
            touch: what a client makes of an answer.
Invariants: one attempt a call; what is lost on its way is None, as what came too late is; whoever is answered is answered in order and in
            time, and with nothing that its user has no right to.
Read next:  workload.py and transactions.py, whose clients call; sockets.py; listener_laws.py, who judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_replication.leader.offset_lookup import LATEST_TIMESTAMP, list_offset
from barnabas_replication.requests import AppendEntry, AppendOutcome, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_simulation.listener_laws import CLIENTS_PORT, PASSWORDS, ListenerLaws
from barnabas_simulation.network import Cut, read_out
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Ask, Read, Run
from barnabas_simulation.sockets import CALLER
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.metadata import (
    FETCH_BY_NAME_VERSION_MAX,
    PRODUCE_BY_NAME_VERSION_MAX,
    known_code,
    list_offsets_request,
    produce_request,
    read_listed_offsets,
)
from barnabas_wire.client.security import ClientSecurity, SaslLogin
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch_request import FetchRequestPartition

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 1500
CALL_TIMEOUT_S = 2.5
WAIT_MS_MAX = 200
"""Most time for which a fetch is parked."""
FETCH_BYTES = 1 << 20

T = TypeVar("T")


class DirectCalls:
    """To the parts behind the listener, by a message each way that is lost, late or doubled."""

    def __init__(self, run: Run) -> None:
        self.id = BrokerId(0)
        self.life = 0
        self.is_up = True
        self._network = run.network

    async def produce(self, leader: BrokerId, to: TopicPartition, batch: bytes) -> AppendOutcome | None:
        """See Calls."""

        async def handle(node: NodeParts) -> AppendOutcome:
            answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()

            def respond(outcomes: list[AppendOutcome]) -> None:
                if not answer.done():
                    answer.set_result(outcomes[0])

            node.replicas.appends.append_records(
                [AppendEntry(to.topic, to.partition, memoryview(batch))],
                required_acks=ACKS_ALL,
                timeout_ms=PRODUCE_TIMEOUT_MS,
                respond=respond,
            )
            return await answer

        return await self._call("Produce", leader, handle)

    async def read(
        self, leader: BrokerId, of: TopicPartition, offset: int, epoch: Epoch, *, is_read_committed: bool = False
    ) -> Read | None:
        """See Calls."""

        async def handle(node: NodeParts) -> FetchOutcome:
            answer: asyncio.Future[list[FetchOutcome]] = asyncio.get_running_loop().create_future()
            spec = FetchPartitionSpec(
                of.topic, partition=of.partition, fetch_offset=Offset(offset), current_leader_epoch=epoch
            )
            node.replicas.fetches.fetch(FetchSpec(is_read_committed=is_read_committed), [spec], answer.set_result)
            (outcome,) = await answer
            return outcome

        answer = await self._call("Read", leader, handle)
        if answer is None:
            return None
        return Read(answer.error, answer.log_start_offset, read_out(answer), answer.aborted)

    async def list_latest(
        self, leader: BrokerId, of: TopicPartition, epoch: Epoch, *, is_read_committed: bool = False
    ) -> int | None:
        """See Calls."""

        async def handle(node: NodeParts) -> int:
            led = node.replicas.hosted.leader_partition(of, epoch)
            return list_offset(led, LATEST_TIMESTAMP, is_read_committed=is_read_committed).offset

        return await self._call("ListOffsets", leader, handle)

    async def ask(self, broker: BrokerId, ask: Ask, *, patience_s: float | None = None) -> Any:
        """See Calls."""
        try:
            return await self._exchange(ask.kind, broker, ask.handle, is_copied=ask.is_copied, patience_s=patience_s)
        except KafkaError as error:
            return _known(error)

    async def _call(self, kind: str, leader: BrokerId, handle: Callable[[NodeParts], Awaitable[T]]) -> T | None:
        try:
            return await self._exchange(kind, leader, handle)
        except KafkaError as error:
            _known(error)
            return None

    async def _exchange(
        self,
        kind: str,
        broker: BrokerId,
        handle: Callable[[NodeParts], Awaitable[T]],
        *,
        is_copied: bool = True,
        patience_s: float | None = None,
    ) -> T | None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S if patience_s is None else patience_s):
                answer: T = await self._network.exchange(kind, self, broker, handle, is_copied=is_copied)  # type: ignore[arg-type]
                return answer
        except (Cut, TimeoutError):
            return None


class ListenerCalls:
    """Through the listener that clients log in to, over one connection for each broker, which all calls share."""

    def __init__(self, run: Run, laws: ListenerLaws, user: str, mechanism: str, *, patience_s: float = CALL_TIMEOUT_S):
        self._run = run
        self._laws = laws
        self._user = user
        self._security = ClientSecurity(login=SaslLogin(mechanism, user, PASSWORDS[user]))
        self._mechanism = mechanism
        self._patience_s = patience_s
        self._connections: dict[BrokerId, AioConnection] = {}
        self._connecting: dict[BrokerId, asyncio.Lock] = {}
        self._lives: dict[BrokerId, int] = {}
        """The life of each broker that the connection was made to."""

    async def produce(self, leader: BrokerId, to: TopicPartition, batch: bytes) -> AppendOutcome | None:
        """See Calls."""
        request = produce_request(to, batch, acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS)
        asked = self._laws.asked(self._user, leader, AclResourceType.TOPIC, AclOperation.WRITE)
        response = await self.call(leader, request, version_max=PRODUCE_BY_NAME_VERSION_MAX)
        if response is None:
            return None
        self._laws.throttled += response.throttle_time_ms > 0
        ((entry,),) = (topic.partition_responses for topic in response.responses)
        error = _error_of(entry.error_code)
        if not self._laws.judge(asked, error, "an acknowledgement"):
            return None
        return AppendOutcome(to.topic, to.partition, error, Offset(entry.base_offset))

    async def read(
        self, leader: BrokerId, of: TopicPartition, offset: int, epoch: Epoch, *, is_read_committed: bool = False
    ) -> Read | None:
        """See Calls."""
        wait_ms = self._run.random.choice((0, WAIT_MS_MAX))
        wanted = FetchRequestPartition(
            of.topic, of.partition, current_leader_epoch=epoch, fetch_offset=offset, max_bytes=FETCH_BYTES
        )
        asked = self._laws.asked(self._user, leader, AclResourceType.TOPIC, AclOperation.READ)
        response = await self._over(
            leader,
            lambda connection: connection.fetch(
                [wanted],
                version=min(connection.version_for(ApiKey.FETCH), FETCH_BY_NAME_VERSION_MAX),
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                isolation_level=int(is_read_committed),
                timeout_s=self._patience_s,
            ),
        )
        if response is None:
            return None
        (got,) = response.partitions
        error = _error_of(got.error_code)
        if not self._laws.judge(asked, error, f"{len(got.records)} bytes of records"):
            return None
        return Read(error, got.log_start_offset, bytes(got.records), got.aborted_transactions or ())

    async def list_latest(
        self, leader: BrokerId, of: TopicPartition, epoch: Epoch, *, is_read_committed: bool = False
    ) -> int | None:
        """See Calls."""
        request = list_offsets_request({of: LATEST_TIMESTAMP}, is_read_committed=is_read_committed)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        response = await self.call(leader, request)
        if response is None:
            return None
        found, _ = read_listed_offsets(response)
        return found[of].offset if of in found else None

    async def ask(self, broker: BrokerId, ask: Ask, *, patience_s: float | None = None) -> Any:
        """See Calls."""
        asked = [self._laws.asked(self._user, broker, *right) for right in ask.rights]

        async def send(request: Any, version_max: int) -> Any:
            response = await self.call(broker, request, version_max=version_max, patience_s=patience_s)
            if response is None:
                raise Cut(f"broker {broker} has not answered {ask.kind}")
            return response

        error: KafkaError | None = None
        try:
            answer = await ask.send(send)
        except Cut:
            return None
        except KafkaError as refusal:
            answer = error = _known(refusal)
        return answer if all(self._laws.judge(each, error, ask.kind) for each in asked) else None

    async def call(
        self, broker: BrokerId, request: Any, *, version_max: int | None = None, patience_s: float | None = None
    ) -> Any:
        """Any request; its answer, with the errors in it, or None. patience_s: seconds; None: as for any other call."""

        def send(connection: AioConnection) -> Awaitable[Any]:
            version = connection.version_for(request.API_KEY)
            if version_max is not None:
                version = min(version, version_max)
            timeout_s = self._patience_s if patience_s is None else patience_s
            return connection.call(request, version=version, timeout_s=timeout_s)

        return await self._over(broker, send)

    async def _over(self, broker: BrokerId, send: Callable[[AioConnection], Awaitable[T]]) -> T | None:
        since = self._laws.now(broker)
        try:
            connection = await self._connected(broker)
        except OSError:
            return None
        except KafkaError as error:
            self._laws.judge_login(self._user, self._mechanism, broker, error)
            return None
        try:
            return await send(connection)
        except TimeoutError:
            self._laws.judge_silence(since, self._lives[broker], self._patience_s, self._user)
        except OSError as error:
            self._laws.judge_loss(error)
        except KafkaError as error:
            raise LawBroken(
                "a client can read what it is answered", f"{self._user}, broker {broker}: {error!r}"
            ) from error
        return None

    async def _connected(self, broker: BrokerId) -> AioConnection:
        async with self._connecting.setdefault(broker, asyncio.Lock()):
            known = self._connections.get(broker)
            if known is not None and not known.is_closed:
                return known
            CALLER.set(self._user)
            node = self._run.network.nodes[broker]
            life = node.life
            connection = await AioConnection.connect(
                node.member.host, CLIENTS_PORT, client_id=self._user, timeout_s=CALL_TIMEOUT_S, security=self._security
            )
            self._connections[broker], self._lives[broker] = connection, life
            return connection


def _error_of(code: int) -> KafkaError | None:
    return _known(KafkaError.of(known_code(code), "")) if code else None


def _known(error: KafkaError) -> KafkaError:
    """The error, unless a handler failed."""
    if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
        raise LawBroken("a broker knows what is wrong", repr(error)) from error
    return error
