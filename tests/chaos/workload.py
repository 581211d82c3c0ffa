"""A steady load of metadata writes by several clients, and the history of what each was told.

May touch:  gRPC of the nodes.        Must not touch: processes, the network's cuts.
Invariants: open loop: a write is due every 1/rate s, however long others take; each value is written by one operation, once;
            an operation is REFUSED only if the answer proves that it had no effect, and UNKNOWN whenever nobody can tell.
Read next:  tests/checker/metadata_history.py, which judges the history.

Clients
    direct    speak to the controller itself, one attempt per operation. Every second one is loyal: it stays with the
              controller it knows until that one disowns itself, so that a deposed leader gets to answer.
    admin     speak to the admin service of some node, which forwards to the active controller and retries by itself.
Topics are used for one round (see `next_round`) and then rest, so that the operations of unknown outcome on each stay few.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import grpc
import grpc.aio

from barnabas_admin.client import ERROR_METADATA_KEY
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    NotActiveController,
    TopicReference,
)
from barnabas_quorum.driver.faults import error_of
from barnabas_quorum.driver.verbs import VERB_BY_REQUEST, read_answer, write_call
from barnabas_quorum.records import ConfigResourceType
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc
from barnabas_wire.rpc.controller_pb2_grpc import ControllerStub
from barnabas_wire.rpc.options import CHANNEL_OPTIONS
from tests.chaos.metadata_logs import CONFIG_KEY
from tests.chaos.network import address_of
from tests.chaos.nodes import ADMIN_PORT, CONTROLLER_PORT, ChaosCluster, ChaosNode
from tests.chaos.watch import Watch
from tests.checker.linearizability import Operation, Outcome
from tests.checker.metadata_history import ABSENT, EXISTS, LocalRead

WRITES_PER_SECOND = 50
PROBES_PER_SECOND = 8
PARTED_PROBES_PER_SECOND = 60
"""More probes while the clients are parted: there is little time in which a deposed leader can be asked."""
LOCAL_READS_PER_SECOND = 8
TOPICS_PER_ROUND = 24
CALL_TIMEOUT_S = 5.0
LEADER_WAIT_S = 20.0
"""How long a client that knows no leader looks for one before it gives its operation up unsent."""
FIRST_VALUE = 3_600_000
"""Values are retention times in ms; they count up from here."""
DIRECT_CLIENTS = 6
ADMIN_CLIENTS = 2

_STATE_CODES = {
    ErrorCode.TOPIC_ALREADY_EXISTS: EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ABSENT,
}
_WITHOUT_EFFECT = {
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}


class Told(NamedTuple):
    """How one call ended."""

    outcome: Outcome
    answer: str | None = None
    is_sent: bool = True
    """False: it certainly never left, which no history needs."""


@dataclass(slots=True)
class LoadStats:
    """What became of the writes."""

    outcomes: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    """Reasons of unknown outcomes."""
    unsent: int = 0
    probes: Counter[str] = field(default_factory=Counter)
    """Answers to questions that change nothing."""


class Workload:
    """Runs as tasks of the running loop between `start` and `stop`."""

    def __init__(self, cluster: ChaosCluster, watch: Watch, *, seed: int, rate: float = WRITES_PER_SECOND) -> None:
        self._cluster = cluster
        self._watch = watch
        self._random = Random(seed)
        self._rate = rate
        self._round = 0
        self._value = FIRST_VALUE
        self._believed: dict[str, bool] = {}
        self._pacers: list[asyncio.Task[None]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._loyal_to: dict[str, int] = {}
        self._bugs: list[BaseException] = []
        self._is_parted = False
        self.is_writing = True
        self.writers: Sequence[int] = range(DIRECT_CLIENTS + ADMIN_CLIENTS)
        """Numbers of the clients that write; the first DIRECT_CLIENTS are direct, the even ones of them loyal."""
        self.probers: Sequence[int] = range(DIRECT_CLIENTS)
        self.operations: list[Operation] = []
        self.local_reads: list[LocalRead] = []
        self.stats = LoadStats()
        self.acknowledged: list[tuple[float, float]] = []
        """(invoked, returned) of every write that was answered OK."""
        self.next_round()

    # -- life ------------------------------------------------------------------------------------------------------

    def next_round(self) -> None:
        """Take fresh topics from now on."""
        self._round += 1
        self._topics = [f"round{self._round}-{index}" for index in range(TOPICS_PER_ROUND)]

    def part(self, leader: int) -> None:
        """No writes for now; later ones only by clients that follow the newest leader, and probes only by the loyal,
        who take `leader` for it."""
        self.is_writing = False
        self._is_parted = True
        self.writers = range(1, DIRECT_CLIENTS, 2)
        self.probers = range(0, DIRECT_CLIENTS, 2)
        for number in self.probers:
            self._loyal_to[f"direct-{number}"] = leader

    def join(self) -> None:
        """Everybody does everything again."""
        self._is_parted = False
        self.is_writing = True
        self.writers = range(DIRECT_CLIENTS + ADMIN_CLIENTS)
        self.probers = range(DIRECT_CLIENTS)

    async def until_quiet(self) -> None:
        """Wait until nothing is under way but probes and reads that began later."""
        under_way = set(self._calls)
        if under_way:
            await asyncio.wait(under_way)

    def start(self) -> None:
        """Begin the load."""
        self._pacers = [
            asyncio.create_task(self._pace(self._rate, self._write)),
            asyncio.create_task(self._pace(PROBES_PER_SECOND, self._probe)),
            asyncio.create_task(self._pace(PARTED_PROBES_PER_SECOND, self._probe_parted)),
            asyncio.create_task(self._pace(LOCAL_READS_PER_SECOND, self._read_locally)),
        ]

    async def stop(self) -> None:
        """End the load and wait for every call under way. Raises the first bug of the load itself."""
        for pacer in self._pacers:
            pacer.cancel()
        await asyncio.gather(*self._pacers, return_exceptions=True)
        while self._calls:
            await asyncio.wait(self._calls)
        if self._bugs:
            raise self._bugs[0]

    async def close(self) -> None:
        """Close every connection."""
        for channel in self._channels.values():
            await channel.close(grace=None)

    def writes_between(self, begin: float, end: float) -> float:
        """Writes a second that were acknowledged in that time."""
        return sum(begin <= returned < end for _, returned in self.acknowledged) / max(0.001, end - begin)

    def first_write_after(self, moment: float) -> float | None:
        """When the first write that was invoked after `moment` was acknowledged."""
        return min((returned for invoked, returned in self.acknowledged if invoked >= moment), default=None)

    def longest_gap(self, begin: float, end: float) -> float:
        """The longest time in that window without an acknowledgement, s."""
        times = sorted(returned for _, returned in self.acknowledged if begin <= returned <= end)
        edges = [begin, *times, end]
        return max(after - before for before, after in itertools.pairwise(edges))

    async def _pace(self, per_second: float, work: Any) -> None:
        due = time.monotonic()
        while True:
            due += 1 / per_second
            if (wait_s := due - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            call = asyncio.create_task(work())
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            call.add_done_callback(self._keep_bug)

    def _keep_bug(self, call: asyncio.Task[None]) -> None:
        if not call.cancelled() and (bug := call.exception()) is not None:
            self._bugs.append(bug)

    # -- one operation ---------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        if not self.is_writing:
            return
        topic = self._random.choice(self._topics)
        draw = self._random.random()
        if self._believed.get(topic):
            verb = "set" if draw < 0.6 else "delete" if draw < 0.9 else "create"
        else:
            verb = "create" if draw < 0.8 else "set" if draw < 0.9 else "delete"
        argument = None
        if verb != "delete":
            argument = str(self._value)
            self._value += 1
        number = self._random.choice(self.writers)
        client = f"direct-{number}" if number < DIRECT_CLIENTS else f"admin-{number}"
        begun = time.monotonic()
        if number < DIRECT_CLIENTS:
            reported = await self._tell_controller(client, number % 2 == 0, _request(verb, topic, argument))
        else:
            reported = await self._tell_admin(verb, topic, argument)
        self._record(client, topic, verb, argument, reported, begun)
        if reported.outcome is not Outcome.UNKNOWN and reported.is_sent:
            is_changed = reported.outcome is Outcome.OK
            self._believed[topic] = (verb != "delete") if is_changed else reported.answer == EXISTS
        self.stats.outcomes[reported.outcome.value if reported.is_sent else "unsent"] += 1
        if reported.outcome is Outcome.OK:
            self.acknowledged.append((begun, time.monotonic()))

    async def _probe_parted(self) -> None:
        if self._is_parted:
            await self._probe()

    async def _probe(self) -> None:
        topic = self._random.choice(self._topics)
        number = self._random.choice(self.probers)
        client = f"direct-{number}"
        begun = time.monotonic()
        reported = await self._tell_controller(client, number % 2 == 0, _request("probe", topic, None))
        self.stats.probes[reported.answer or reported.outcome.value] += 1
        if reported.outcome is not Outcome.UNKNOWN:
            self._record(client, topic, "probe", None, reported, begun)

    def _record(self, client: str, topic: str, verb: str, argument: str | None, reported: Told, begun: float) -> None:
        if not reported.is_sent:
            self.stats.unsent += 1
            return
        if reported.outcome is Outcome.UNKNOWN:
            self.stats.unknown[reported.answer or "?"] += 1
        self.operations.append(
            Operation(
                key=topic,
                verb=verb,
                invoked=begun,
                returned=time.monotonic(),
                outcome=reported.outcome,
                argument=argument,
                answer=reported.answer,
                client=client,
            )
        )

    # -- to the controller -----------------------------------------------------------------------------------------

    async def _tell_controller(self, client: str, is_loyal: bool, request: Request[Any]) -> Told:
        target = self._loyal_to.get(client) if is_loyal else None
        if target is None:
            target = await self._find_leader()
            if target is None:
                return Told(Outcome.REFUSED, "no leader", is_sent=False)
            self._loyal_to[client] = target
        verb = VERB_BY_REQUEST[type(request)]
        method = getattr(ControllerStub(self._channel(target, CONTROLLER_PORT)), verb.method)
        try:
            answer = await method(write_call(verb, request, principal=f"User:{client}"), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self._loyal_to.pop(client, None)
            return _broken_call(error)
        try:
            if answer.HasField("fault"):
                raise error_of(answer.fault)
            (item,) = _items(read_answer(verb, answer))
            if item.error is not None:
                raise item.error
        except NotActiveController as error:
            self._loyal_to.pop(client, None)
            # unsettled: proposed before this controller was deposed, and perhaps committed by the next one
            return Told(Outcome.UNKNOWN if error.is_unsettled else Outcome.REFUSED, "NOT_CONTROLLER")
        except KafkaError as error:
            return _refusal(error.code)
        return Told(Outcome.OK)

    async def _find_leader(self) -> int | None:
        deadline = time.monotonic() + LEADER_WAIT_S
        while (leader := self._watch.leader()) is None:
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(0.02)
        return leader

    # -- to the admin service --------------------------------------------------------------------------------------

    async def _tell_admin(self, verb: str, topic: str, argument: str | None) -> Told:
        node = self._random.choice([node for node in self._cluster.nodes.values() if node.is_running] or [None])
        if node is None:
            return Told(Outcome.REFUSED, "no node", is_sent=False)
        stub = admin_pb2_grpc.AdminStub(self._channel(node.id, ADMIN_PORT))
        try:
            if verb == "set":
                change = admin_pb2.ConfigChange(key=CONFIG_KEY, value=argument)
                await stub.AlterConfigs(
                    admin_pb2.AlterConfigsRequest(type=admin_pb2.RESOURCE_TYPE_TOPIC, name=topic, changes=[change]),
                    timeout=CALL_TIMEOUT_S,
                )
                return Told(Outcome.OK)
            if verb == "create":
                shape = admin_pb2.NewTopic(
                    name=topic, partitions=1, replication_factor=1, configs={CONFIG_KEY: argument or ""}
                )
                created = await stub.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[shape]), timeout=CALL_TIMEOUT_S)
                outcome = created.topics[0]
            else:
                deleted = await stub.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=[topic]), timeout=CALL_TIMEOUT_S)
                outcome = deleted.topics[0]
        except grpc.aio.AioRpcError as error:
            for key, value in error.trailing_metadata() or ():
                if key == ERROR_METADATA_KEY and isinstance(value, bytes):
                    return _refusal(ErrorCode(admin_pb2.ErrorDetail.FromString(value).code))
            return _broken_call(error)
        detail = outcome.error
        return _refusal(ErrorCode(detail.code)) if detail.code else Told(Outcome.OK)

    # -- reads -----------------------------------------------------------------------------------------------------

    async def _read_locally(self) -> None:
        running = [node for node in self._cluster.nodes.values() if node.is_running]
        if running:
            node = self._random.choice(running)
            incarnation = node.incarnation
            values = await self._describe(node, self._topics)
            # a node that was started again meanwhile: whose answer was it?
            if values is not None and node.incarnation == incarnation:
                self.local_reads.append(LocalRead(incarnation, time.monotonic(), values))

    async def has_topic(self, node: ChaosNode, topic: str) -> bool:
        """Whether the node has applied the creation of a topic."""
        values = await self._describe(node, [topic])
        return values is not None and values[topic] is not None

    async def read_everything(self, node: ChaosNode) -> None:
        """Read every topic ever written from one node that has caught up; counts as strong reads."""
        topics = sorted({operation.key for operation in self.operations})
        begun = time.monotonic()
        values = await self._describe(node, topics)
        if values is None:
            raise TimeoutError(f"node {node.id} does not answer the last read")
        for topic in topics:
            self.operations.append(
                Operation(
                    key=topic,
                    verb="read",
                    invoked=begun,
                    returned=time.monotonic(),
                    outcome=Outcome.OK,
                    answer=values[topic],
                    client=f"reader-{node.id}",
                )
            )

    async def write_barrier(self) -> str:
        """Create one topic more, and try until it is committed; its name."""
        deadline = time.monotonic() + 60.0
        while True:
            value = str(self._value)
            self._value += 1
            topic = f"barrier-{value}"
            begun = time.monotonic()
            reported = await self._tell_controller("barrier", False, _request("create", topic, value))
            self._record("barrier", topic, "create", value, reported, begun)
            if reported.outcome is Outcome.OK:
                return topic
            if time.monotonic() > deadline:
                raise TimeoutError(f"no write is accepted after everything healed: {reported}")
            await asyncio.sleep(0.1)

    async def _describe(self, node: ChaosNode, topics: Sequence[str]) -> dict[str, str | None] | None:
        stub = admin_pb2_grpc.AdminStub(self._channel(node.id, ADMIN_PORT))
        try:
            answer = await stub.DescribeTopics(admin_pb2.DescribeTopicsRequest(names=topics), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return None
        return {
            topic.name: None if topic.HasField("error") else topic.overrides.get(CONFIG_KEY) for topic in answer.topics
        }

    def _channel(self, node_id: int, port: int) -> grpc.aio.Channel:
        address = f"{address_of(node_id)}:{port}"
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return self._channels[address]


def _request(verb: str, topic: str, argument: str | None) -> Request[Any]:
    if verb in ("create", "probe"):
        configs = {} if argument is None else {CONFIG_KEY: argument}
        shape = CreatableTopic(name=topic, partition_count=1, replication_factor=1, configs=configs)
        return CreateTopics(topics=(shape,), validate_only=verb == "probe")
    if verb == "delete":
        return DeleteTopics(topics=(TopicReference(name=topic),))
    change = ConfigChange(key=CONFIG_KEY, operation=ConfigOperation.SET, value=argument)
    alteration = ConfigAlteration(resource_type=ConfigResourceType.TOPIC, resource_name=topic, changes=(change,))
    return IncrementalAlterConfigs(resources=(alteration,))


def _items(reply: Any) -> Sequence[Any]:
    items: Sequence[Any] = reply.resources if hasattr(reply, "resources") else reply.topics
    return items


def _refusal(code: ErrorCode) -> Told:
    if code in _STATE_CODES:
        return Told(Outcome.REFUSED, _STATE_CODES[code])
    if code in _WITHOUT_EFFECT:
        return Told(Outcome.REFUSED, code.name)
    return Told(Outcome.UNKNOWN, code.name)


def _broken_call(error: grpc.aio.AioRpcError) -> Told:
    """A call that got no answer. One that found no connection never left."""
    details = error.details() or ""
    is_sent = not (error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details)
    return Told(Outcome.UNKNOWN if is_sent else Outcome.REFUSED, error.code().name, is_sent=is_sent)
