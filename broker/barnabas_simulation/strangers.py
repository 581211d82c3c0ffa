"""Other clients of Kafka listeners: a user whose rights come and go, a throttled one, wrong passwords, and bytes that are no requests.

May touch:  the network, through sockets; the product's own asyncio client.   Must not touch: the parts of a node.
Invariants: what a stranger sends costs no other client anything, and gets the stranger nothing.
Read next:  listener_laws.py, who judges; client_calls.py; workload.py, whose clients come to the listeners too.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import nullcontext
from functools import partial
from typing import Any

from barnabas_coordination.transaction.state import Producer
from barnabas_quorum.records_security import AclOperation, AclPermission, AclResourceType
from barnabas_simulation.client_calls import CALL_TIMEOUT_S, ListenerCalls
from barnabas_simulation.faults import LATE_S
from barnabas_simulation.group_members import PATIENCE_S as MEMBER_PATIENCE_S
from barnabas_simulation.group_members import GroupMembers
from barnabas_simulation.listener_laws import (
    ALONE,
    ANSWERED_S,
    CLIENTS_PORT,
    LET_IN,
    PASSWORDS,
    RIGHT,
    ListenerLaws,
)
from barnabas_simulation.loop import VirtualLoop
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Ask, Run
from barnabas_simulation.sockets import CALLER, SimulatedSockets, StreamFaults
from barnabas_simulation.swarm import MemberTrouble
from barnabas_simulation.transaction_calls import (
    TransactionalClient,
    add_offsets,
    add_partition,
    commit_offset,
    end,
    initialize,
    prepare,
    write,
)
from barnabas_simulation.workload import Client
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.client.security import ClientSecurity, SaslLogin
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId, TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas_wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas_wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

LITERAL = 3
PAUSE_S = 0.3
COMMIT_PAUSE_S = 0.1
HOSTILE_S = 5.0
"""Within which a connection is ended over which no request came."""
SLOW_BYTES_PER_S = 120.0
"""The quota of the throttled user: a batch of one record takes about a second of it."""
GROUP = "readers"
TRANSACTIONAL_IDS = ("copier-0", "copier-1", "nobody's")
"""What a guest reaches for."""
HOSTILE_MS = 1_000
"""The time-out, in ms, of a transaction that no client may begin."""
SALT = b"a pinch of salt."
ITERATIONS = 4096
LARGEST = 0x7FFF_FFFF
METADATA_HEAD = struct.pack(">hhih", ApiKey.METADATA, 9, 7, -1)


def _frame(body: bytes, *, size: int | None = None) -> bytes:
    return struct.pack(">i", len(body) if size is None else size) + body


NO_REQUESTS = {
    "a frame over the bound": _frame(METADATA_HEAD, size=LARGEST),
    "a frame over the bound, by a byte": _frame(METADATA_HEAD, size=100 * 1024 * 1024 + 1),
    "a frame over its API's bound": _frame(
        struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 7, -1), size=64 * 1024 * 1024
    ),
    "a negative size": _frame(METADATA_HEAD, size=-1),
    "a frame without a header": _frame(b"none"),
    "an API that nobody knows": _frame(struct.pack(">hhih", 9999, 0, 7, -1)),
    "more topics than there are bytes": _frame(METADATA_HEAD + b"\0\xff\xff\xff\xff\x0f"),
    "a request cut short": _frame(METADATA_HEAD + b"\0"),
    "a name that is longer than its frame": _frame(struct.pack(">hhih", ApiKey.METADATA, 9, 7, 30_000)),
}
"""What ends the connection that it comes over, wherever that leads, and whoever sends it."""
UNINVITED = {
    "a request before the login": _frame(METADATA_HEAD + b"\0\0\1\0\0\0"),
    "records before the login": _frame(struct.pack(">hhih", ApiKey.PRODUCE, 9, 7, -1) + b"\0\0\xff\xff\0\0\5\xdc\1\0"),
}


class Listening:
    """All that a run with Kafka listeners has beside."""

    def __init__(self, run: Run, topic: str, *, streams: StreamFaults, trouble: MemberTrouble | None = None) -> None:
        """streams: how bad connections are, once the trouble begins; trouble: of members of a group, where they come in place of others."""
        self.laws = ListenerLaws(run, topic)
        self.sockets = SimulatedSockets(run.loop, run.random)
        self.sockets.note, self.sockets.strikes = run.note, run.strikes
        self.sockets.on_closing = self.laws.on_closing
        self.is_ready = False
        """Whether the users have their rights."""
        self.committed = -1
        """What the group's last acknowledged commit says."""
        self._run = run
        self._topic = topic
        self._streams = streams
        self._mechanism = run.random.choice(("PLAIN", "SCRAM-SHA-256"))
        self._app = self.calls()
        self._tried = -1
        """The most that the group may have committed."""
        self._is_stopping = False
        self._busy = 0
        self.members: GroupMembers | None = None
        self.clients: list[Client] = []
        if trouble is not None:
            calls = partial(ListenerCalls, run, self.laws, "app", "PLAIN", patience_s=MEMBER_PATIENCE_S)
            self.members = GroupMembers(run, topic, calls, trouble)
            return
        self.clients = [
            Client(run, topic, 0, producers=1, first=8, calls=ListenerCalls(run, self.laws, "guest", "PLAIN")),
            ThrottledClient(run, topic, self.laws),
        ]

    def calls(self) -> ListenerCalls:
        """The calls of another client, which may do everything."""
        return ListenerCalls(self._run, self.laws, "app", self._mechanism)

    # -- the run ---------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Give the users passwords, rights and quotas, as operators do."""
        everything = [
            _acl(AclResourceType.TOPIC, "*", "app", AclOperation.ALL),
            _acl(AclResourceType.GROUP, "*", "app", AclOperation.ALL),
            _acl(AclResourceType.TOPIC, "*", "slow", AclOperation.ALL),
            *(_acl(AclResourceType.TOPIC, self._topic, "guest", each) for each in GUEST),
        ]
        if self._run.swarm.is_transacting:
            everything.append(_acl(AclResourceType.TRANSACTIONAL_ID, "*", "app", AclOperation.ALL))
        salted = _salted(PASSWORDS["app"])
        await self._insist(
            AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion("app", 1, ITERATIONS, SALT, salted)]),
            lambda answer: answer.results,
        )
        await self._insist(CreateAclsRequest(creations=everything), lambda answer: answer.results)
        quota = EntryData(entity=[EntityData("user", "slow")], ops=[OpData("producer_byte_rate", SLOW_BYTES_PER_S)])
        await self._insist(AlterClientQuotasRequest(entries=[quota]), lambda answer: answer.entries)
        if self.members is not None:
            await self.members.prepare()

    def start(self) -> None:
        """Begin, and let the streams be as they are drawn."""
        self.sockets.faults = self._streams
        if self.members is not None:
            self.members.start()
            return
        spawn = self._run.network.spawn
        works = [self._change_rights(), self._come_uninvited(), self._commit()]
        if self._run.swarm.is_transacting:
            works.append(self._reach_for_transactions())
        for work in works:
            self._busy += 1
            spawn(work)

    def stop(self) -> None:
        """No more of it: the guest has its rights again, streams are good."""
        self._is_stopping = True
        self.sockets.heal()
        if self.members is not None:
            self.members.stop()

    def look(self) -> None:
        """After each turn."""
        self.laws.look()
        if self.members is not None:
            self.members.laws.look()

    def unsettled(self) -> str | None:
        """Why the clients of the listeners are not done, in words; None when they are."""
        return "somebody is still with the listeners" if self._busy else None

    async def _pause(self, mean_s: float) -> bool:
        """False: it is time to stop."""
        await asyncio.sleep(self._run.random.expovariate(1 / mean_s))
        return not self._is_stopping

    def _serving(self) -> NodeParts | None:
        serving = [node for node in self._run.nodes if node.is_serving]
        return self._run.random.choice(serving) if serving else None

    # -- operators -------------------------------------------------------------------------------------------------

    async def _insist(self, request: Any, outcomes: Any) -> None:
        """Have any broker do it, over the listener that has no logins."""
        while True:
            await asyncio.sleep(0.05)
            node = self._serving()
            if node is None:
                continue
            CALLER.set("operator")
            try:
                connection = await AioConnection.connect(
                    node.member.host, 9000 + node.id, client_id="operator", timeout_s=CALL_TIMEOUT_S
                )
                answer = await connection.call(request, timeout_s=CALL_TIMEOUT_S)
                await connection.close()
            except OSError as error:
                self.laws.judge_loss(error)
                continue
            if not any(each.error_code for each in outcomes(answer)):
                return

    async def _change_rights(self) -> None:
        """Change the rights of the guest, who has all of them again in the end."""
        random = self._run.random
        while await self._pause(1.0):
            operation = random.choice(GUEST)
            if random.random() < 0.5:
                await self._give(operation)
            else:
                taken = DeleteAclsFilter(AclResourceType.TOPIC, self._topic, LITERAL, "User:guest", "*", operation, 3)
                await self._insist(DeleteAclsRequest(filters=[taken]), lambda answer: answer.filter_results)
        await asyncio.sleep(LATE_S)  # a request that takes a right may have been doubled
        for operation in GUEST:
            await self._give(operation)
        self._busy -= 1

    async def _give(self, operation: AclOperation) -> None:
        given = _acl(AclResourceType.TOPIC, self._topic, "guest", operation)
        await self._insist(CreateAclsRequest(creations=[given]), lambda answer: answer.results)

    # -- strangers -------------------------------------------------------------------------------------------------

    async def _come_uninvited(self) -> None:
        random = self._run.random
        while await self._pause(PAUSE_S):
            node = self._serving()
            if node is None:
                continue
            if random.random() < 0.2:
                await self._guess(node)
                continue
            is_secured = random.random() < 0.5
            known = NO_REQUESTS | (UNINVITED if is_secured else {})
            what = random.choice(list(known))
            await self._send(node, CLIENTS_PORT if is_secured else 9000 + node.id, what, known[what])
        self._busy -= 1

    async def _guess(self, node: NodeParts) -> None:
        """A password."""
        mechanism = self._run.random.choice(("PLAIN", "SCRAM-SHA-256"))
        user = self._run.random.choice(("app", "nobody"))
        CALLER.set("stranger")
        try:
            await AioConnection.connect(
                node.member.host,
                CLIENTS_PORT,
                client_id="stranger",
                timeout_s=CALL_TIMEOUT_S,
                security=ClientSecurity(login=SaslLogin(mechanism, user, "a guess")),
            )
        except OSError as error:
            self.laws.judge_loss(error)
        except KafkaError:
            self.laws.refused_logins += 1
        else:
            raise LawBroken(LET_IN, f"{user} at broker {node.id} with {mechanism} and a wrong password")

    async def _send(self, node: NodeParts, port: int, what: str, data: bytes) -> None:
        """What is no request, whole; or a part of it and then no more. The connection ends, without a word."""
        random, loop = self._run.random, self._run.loop
        CALLER.set("stranger")
        since = self.laws.now(node.id)
        try:
            transport, stranger = await loop.create_connection(lambda: _Stranger(loop), node.member.host, port)
        except OSError:
            return
        is_cut = random.random() < 0.2
        transport.write(data[: random.randrange(len(data))] if is_cut else data)
        if is_cut and random.random() < 0.5:
            transport.write_eof()
        elif is_cut:
            transport.abort()
        await asyncio.wait([stranger.lost], timeout=HOSTILE_S)
        if not stranger.lost.done() and self.laws.is_same_life(since):
            raise LawBroken(ALONE, f"{what} does not end its connection to broker {node.id}")
        if stranger.received:
            raise LawBroken(ALONE, f"{what} is answered by broker {node.id}: {bytes(stranger.received)!r}")
        self.laws.ended += stranger.lost.done() and not is_cut
        transport.abort()

    async def _reach_for_transactions(self) -> None:
        """As the guest, who has no right to a transactional id: ask for what the owner of one may ask for."""
        random = self._run.random
        calls = ListenerCalls(self._run, self.laws, "guest", "PLAIN")
        client = TransactionalClient(random.choice(TRANSACTIONAL_IDS), Producer(random.randrange(10), 0))
        to = TopicPartition(self._topic, 0)
        asks = (
            initialize(client.name, timeout_ms=HOSTILE_MS, counted=lambda: nullcontext(0)),
            add_partition(client, to),
            add_offsets(client, GROUP, to),
            write(client, to, b""),
            commit_offset(client, GROUP, to, 1),
            prepare(client),
            end(client, is_commit=False),
        )
        while await self._pause(PAUSE_S):
            node = self._serving()
            if node is not None:
                await self._is_refused(calls, node, random.choice(asks))
        self._busy -= 1

    async def _is_refused(self, calls: ListenerCalls, node: NodeParts, ask: Ask) -> None:
        answer = await calls.ask(node.id, ask)
        if answer is not None:
            raise LawBroken(
                RIGHT, f"{ask.kind} of the guest at broker {node.id}: {answer!r}, without a right to the id"
            )

    # -- the group -------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Commit ever greater offsets of a group, and look what is committed."""
        number = 0
        while await self._pause(COMMIT_PAUSE_S):
            coordinator = await self._coordinator()
            if coordinator is None:
                continue
            number += 1
            self._tried = number
            life = self._run.network.nodes[coordinator].life
            if not await self._commit_at(coordinator, number):
                continue
            self.committed = number
            found = await self._committed_at(coordinator)
            if found is not None and self._run.network.nodes[coordinator].life == life and found < number:
                raise LawBroken("a committed offset stays committed", f"{found}, {number} was acknowledged")
        while not self._is_well():
            await asyncio.sleep(PAUSE_S)
        while (found := await self._settled()) is None:
            await asyncio.sleep(PAUSE_S)
        if not self.committed <= found <= self._tried:
            raise LawBroken("a committed offset stays committed", f"{found} in the end, not {self.committed}")
        self._busy -= 1

    def _is_well(self) -> bool:
        """Whether all brokers know of the same."""
        images = {node.loader.image.offset for node in self._run.nodes if node.is_serving}
        return len(images) == 1 and all(node.is_serving for node in self._run.nodes)

    async def _settled(self) -> int | None:
        coordinator = await self._coordinator()
        return None if coordinator is None else await self._committed_at(coordinator)

    async def _coordinator(self) -> BrokerId | None:
        node = self._serving()
        if node is None:
            return None
        found = await self._app.call(node.id, FindCoordinatorRequest(key=GROUP, key_type=0), version_max=3)
        return None if found is None or found.error_code else BrokerId(found.node_id)

    async def _commit_at(self, coordinator: BrokerId, number: int) -> bool:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])]
        )
        answer = await self._app.call(coordinator, request, version_max=9)
        return answer is not None and not answer.topics[0].partitions[0].error_code

    async def _committed_at(self, coordinator: BrokerId) -> int | None:
        request = OffsetFetchRequest(
            group_id=GROUP, topics=[OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])]
        )
        answer = await self._app.call(coordinator, request, version_max=7)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        return int(answer.topics[0].partitions[0].committed_offset)


GUEST = (AclOperation.READ, AclOperation.WRITE)
"""What a guest may do with the topic, now and then."""


class ThrottledClient(Client):
    """Writes more than its user may, and waits as long as it takes."""

    is_prompt = False

    def __init__(self, run: Run, topic: str, laws: ListenerLaws) -> None:
        calls = ListenerCalls(run, laws, "slow", "PLAIN", patience_s=ANSWERED_S)
        super().__init__(run, topic, 0, producers=1, first=9, calls=calls)
        self._think_s = 0.1


class _Stranger(asyncio.BufferedProtocol):
    """Keeps what it is told."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.received = bytearray()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._buffer = memoryview(bytearray(4096))

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self.received += self._buffer[:nbytes]

    def eof_received(self) -> None:
        """See asyncio."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if not self.lost.done():
            self.lost.set_result(None)


def _acl(resource: AclResourceType, name: str, user: str, operation: AclOperation) -> AclCreation:
    return AclCreation(resource, name, LITERAL, f"User:{user}", "*", operation, AclPermission.ALLOW)


def _salted(password: str) -> bytes:
    import hashlib

    return hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ITERATIONS)
