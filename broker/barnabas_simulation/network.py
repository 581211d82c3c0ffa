"""The network between simulated nodes: calls that are lost, late, doubled, overtaken, cut off in one direction.

May touch:  the virtual loop.         Must not touch: real sockets, gRPC, the codecs.
Invariants: what was sent arrives or is lost whatever becomes of its sender, so a message of a past life can reach a node
            that knows of the next; no node is answered in a life that did not ask; a message is copied on its way, as
            bytes would be; every random choice comes from the run's one generator.
Read next:  nodes.py.

Three interfaces of the real code end here: the quorum's Transport, the brokers' ControllerTransport, a follower's Peer.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from barnabas_broker.controller_client.applied import AppliedOffset
from barnabas_broker.controller_client.client import ControllerUnreachable, reach_applied
from barnabas_quorum.controller.requests import AlterPartition, BrokerHeartbeat, BrokerHeartbeatReply
from barnabas_quorum.controller.requests_partitions import AlterReplicaFaults
from barnabas_quorum.driver.incarnation import IncarnationGuard
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft.messages import FetchReply
from barnabas_quorum.raft.voters import Voter
from barnabas_replication.follower.peer import FetchAnswer, FetchedPartition
from barnabas_replication.requests import NO_SESSION_EPOCH, FetchOutcome, FetchPartitionSpec, FetchSpec
from barnabas_simulation.loop import VirtualLoop
from barnabas_simulation.node_parts import NodeParts
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, BrokerId, Offset
from barnabas_wire.lazy_dataclass import dataclass

CALL_TIMEOUT_S = 2.0
ANSWER = " answer"
OF_CLIENTS = frozenset(
    {
        "DeleteRecords",
        "ListOffsets",
        "Produce",
        "Read",
        "FindCoordinator",
        "InitProducerId",
        "OffsetFetch",
        "TxnOffsetCommit",
        "EndTxn",
        "AddPartitionsToTxn",
    }
)
OF_BROKERS = frozenset({"Fetch", "AddPartitionsToTxnRequest", "WriteTxnMarkersRequest"})
"""Calls that a node takes only while its Kafka listeners run: clients', and those of other brokers. What is neither comes by gRPC."""
VERIFICATION = "AddPartitionsToTxnRequest"
OF_COORDINATORS = {VERIFICATION + ANSWER: 1.0, "WriteTxnMarkersRequest": 0.1, "WriteTxnMarkersRequest answer": 0.1}
"""Messages between brokers of which one coordinates: acted on when they arrive, by what was true when they left. With each how often it
is late among them: all ends of a coordinator wait for a marker. (A question waits for the answer to the one before.)"""


@dataclass(slots=True)
class LinkFaults:
    """How bad the network is; drawn per seed, and set to nothing when the cluster heals."""

    loss: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.0005
    slow: float = 0.0
    """Probability that a message takes up to `slow_s` more: that is what makes it overtaken."""
    slow_s: float = 0.0
    late_s: float = 0.0
    """By how much the second copy of a message is late, at most."""
    coordinators_slow: float = 0.0
    """Probability that a message of OF_COORDINATORS takes up to `coordinators_slow_s` more: whoever waits may have moved on."""
    coordinators_slow_s: float = 0.0


class Cut(ConnectionError):
    """The message or its answer never arrives."""


class Network:
    """Every link between nodes, directed."""

    def __init__(self, random: Random, note: Callable[..., None]) -> None:
        self.nodes: dict[BrokerId, NodeParts] = {}
        self.faults = LinkFaults()
        self.cut_links: set[tuple[BrokerId, BrokerId]] = set()
        self.walls: set[tuple[int, int]] = set()
        """Closed too, and not opened by `mend` or `heal`."""
        self.unheard: set[tuple[BrokerId, BrokerId]] = set()
        """Follower and leader: its fetches are lost, and nothing else is."""
        self.held_fetches: dict[tuple[BrokerId, BrokerId], asyncio.Future[None]] = {}
        """Follower and leader: its fetches are on their way until that is done."""
        self.held_verdicts: dict[asyncio.Future[None], None] = {}
        """Answers of transaction coordinators to other brokers are on their way until these are done."""
        self.metadata_lags_s: dict[BrokerId, float] = {}
        """By node: how much later what it fetches of the metadata log arrives; what is committed meanwhile comes with the next at once."""
        self.late_answer_s = 0.0
        """Most time by which the answer to an ISR proposal is late."""
        self.held_reports: dict[BrokerId, asyncio.Future[None]] = {}
        """Broker: likewise what it reports of faulty replicas."""
        self.streams: list[SimulatedHeartbeats] = []
        self.failures: list[BaseException | None] = []
        """Errors that no protocol explains: the run fails with them."""
        self.on_proposal: Callable[[NodeParts, AlterPartition], Awaitable[None] | None] = lambda leader, request: None
        """Hears that a leader asks the controller for other ISRs; may say what holds the request up."""
        self.on_double: Callable[[str, NodeParts], Awaitable[None] | None] = lambda kind, source: None
        """Hears that a message is copied on its way; may say what holds the copy up."""
        self.on_quorum_reply: Callable[[NodeParts, Any], None] = lambda node, reply: None
        """Hears what a replica of the quorum is about to say, and to whom."""
        self._last_fetches: dict[tuple[BrokerId, BrokerId], Callable[[NodeParts], Awaitable[Any]]] = {}
        """By source and target, what is done where the last one arrives."""
        self.strikes: Callable[[str, int, int], bool] = lambda kind, source, target: True
        """Asked before a message is lost, late or doubled; False when that fault is left out."""
        self.heard: dict[tuple[BrokerId, int, BrokerId], tuple[float, float, int]] = {}
        """By controller, its life and broker: when the controller last heard a heartbeat or lost the stream; how long the loop had
        stood still by then, and how often."""
        self._under_way: set[asyncio.Future[Any]] = set()
        self._random = random
        self._note = note

    def note_heard(self, controller: NodeParts, broker_id: BrokerId) -> None:
        """The controller hears the broker, or that its stream ended."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "the simulation runs on it alone"
        self.heard[(controller.id, controller.life, broker_id)] = loop.time(), loop.stood_still_s, loop.stalls

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run something on its way by itself; what becomes of it concerns only its receiver."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._under_way.discard(task)
        if (
            not task.cancelled()
            and task.exception() is not None
            and not isinstance(task.exception(), KafkaError | OSError)
        ):
            self.failures.append(task.exception())

    def is_open(self, source: BrokerId, target: BrokerId) -> bool:
        """Whether messages go from source to target."""
        return (source, target) not in self.cut_links and (source, target) not in self.walls

    def cut(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Close directed links; streams over them break."""
        self.cut_links.update(links)
        for stream in list(self.streams):
            if stream.ends & self.cut_links:
                stream.break_off()

    def mend(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Open directed links again."""
        self.cut_links.difference_update(links)

    def heal(self) -> None:
        """Every link is open and good again."""
        self.cut_links.clear()
        self.metadata_lags_s.clear()
        self.late_answer_s = 0.0
        self.faults = LinkFaults()

    async def travel(self, kind: str, source: BrokerId, target: BrokerId) -> None:
        """One message on its way. Raises Cut when it is lost."""
        faults, draw = self.faults, self._random.random
        delay_s = faults.delay_s * (0.5 + draw())
        if faults.slow and draw() < faults.slow and self.strikes("late", source, target):
            delay_s += draw() * faults.slow_s
        share = OF_COORDINATORS.get(kind, 0.0) if faults.coordinators_slow else 0.0
        if share and draw() < share * faults.coordinators_slow and self.strikes("late", source, target):
            delay_s += draw() * faults.coordinators_slow_s
        if kind == "Fetch" and (source, target) in self.unheard:
            raise Cut(f"{kind} from {source} to {target} is lost")
        if not self.is_open(source, target) or (
            faults.loss and draw() < faults.loss and self.strikes("lost", source, target)
        ):
            raise Cut(f"{kind} from {source} to {target} is lost")
        await asyncio.sleep(delay_s)
        if not self.is_open(source, target):
            raise Cut(f"{kind} from {source} to {target} is lost")
        self._note(kind, source, target)

    async def exchange(
        self,
        kind: str,
        source: NodeParts,
        target: BrokerId,
        handle: Callable[[NodeParts], Awaitable[Any]],
        *,
        held: Awaitable[None] | None = None,
        is_copied: bool = True,
    ) -> Any:
        """A call: there, the handler, and back. Raises Cut when either way or either end is lost. is_copied: it may arrive twice."""
        if not source.is_up:
            # The tasks of a node run for a turn or two after its crash, and a timer due at that time may wake one of them.
            raise Cut(f"{source.id} is down")
        life = source.life
        if (
            is_copied
            and self.faults.duplicate
            and self._random.random() < self.faults.duplicate
            and self.strikes("doubled", source.id, target)
        ):
            # the double is served too, perhaps much later; its answer is thrown away
            late = self.on_double(kind, source) or asyncio.sleep(self._random.random() * self.faults.late_s)
            self.spawn(self._deliver(kind, source.id, target, handle, late))
        if kind == "Fetch":
            self._last_fetches[(source.id, target)] = handle
            held = self.held_fetches.get((source.id, target))
        target_life, answer = await asyncio.shield(self.spawn(self._deliver(kind, source.id, target, handle, held)))
        node = self.nodes[target]
        if not node.is_up or node.life != target_life:
            raise Cut(f"{target} went down before it answered")
        if kind == VERIFICATION:
            for held_verdict in tuple(self.held_verdicts):
                await asyncio.shield(held_verdict)  # whoever waits here may be cancelled
        elif kind == "FetchRequest" and source.id in self.metadata_lags_s:
            await asyncio.sleep(self.metadata_lags_s[source.id])
        elif kind == "AlterPartition" and self.late_answer_s and self.strikes("late answer", target, source.id):
            await asyncio.sleep(self._random.random() * self.late_answer_s)
        await self.travel(kind + ANSWER, target, source.id)
        if not source.is_up or source.life != life:
            raise Cut(f"{source.id} went down before it was answered")
        return answer

    @contextmanager
    def holding_verdicts(self) -> Iterator[None]:
        """What a transaction coordinator says to a broker meanwhile arrives afterwards."""
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held_verdicts[held] = None
        try:
            yield
        finally:
            del self.held_verdicts[held]
            held.set_result(None)

    def fetch_again(self, source: BrokerId, target: BrokerId, held: Awaitable[None]) -> None:
        """A copy of the last fetch arrives too, perhaps in another life of either."""
        handle = self._last_fetches.get((source, target))
        if handle is not None:
            self.spawn(self._deliver("Fetch", source, target, handle, held))

    async def _deliver(
        self,
        kind: str,
        source: BrokerId,
        target: BrokerId,
        handle: Callable[[NodeParts], Awaitable[Any]],
        held: Awaitable[None] | None,
    ) -> tuple[int, Any]:
        if held is not None:
            await held
        await self.travel(kind, source, target)
        node = self.nodes[target]
        if not node.is_up:
            raise Cut(f"{target} is down")
        if (kind in OF_BROKERS and not node.is_listening) or (kind in OF_CLIENTS and not node.is_serving):
            raise Cut(f"{target} does not serve now")
        return node.life, await handle(node)


class _Refusal(NamedTuple):
    """What who is of another incarnation answers instead."""

    incarnation: str


class SimulatedTransport:
    """The quorum's Transport of one life of one node. Says with each call which incarnation it is from, as GrpcTransport does."""

    def __init__(self, network: Network, node: NodeParts, incarnation: IncarnationGuard) -> None:
        self._network = network
        self._node = node
        self._incarnation = incarnation

    async def call(self, request: Any, voter: Voter, *, timeout_s: float) -> Any:
        """See barnabas_quorum.driver.grpc_transport.Transport."""
        correlation = request.correlation
        kind = type(request).__name__

        async def handle(node: NodeParts) -> Any:
            node.incarnation.note_agreeing(request.source)
            reply = await node.quorum.handle(copy.copy(request))
            self._network.on_quorum_reply(node, reply)
            return reply

        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._exchange(kind, voter, handle)
        except (Cut, TimeoutError) as error:
            raise PeerUnreachable(str(error)) from None
        reply = copy.copy(reply)
        reply.correlation, reply.target = correlation, request.source
        if isinstance(reply, FetchReply):
            reply.base_offset = reply.end_offset = request.fetch_offset
            reply.epochs = ()
            reply.payload = reply.payload or b""
            self._incarnation.note_agreeing(reply.source)
        return reply

    async def describe(self, voter: Voter, *, timeout_s: float) -> Any:
        """See barnabas_quorum.driver.grpc_transport.Transport."""

        async def ask(node: NodeParts) -> Any:
            return node.quorum.identity

        return await self._ask("DescribeReplica", voter, ask, timeout_s)

    async def change_voters(
        self, change: Any, leader: Voter, *, principal: str, client_host: str, timeout_s: float
    ) -> Any:
        """See barnabas_quorum.driver.grpc_transport.Transport."""

        def make(node: NodeParts) -> Awaitable[Any]:
            return node.quorum.change_voters(change, principal=principal, client_host=client_host)

        return await self._ask("ChangeVoters", leader, make, timeout_s)

    async def _ask(
        self, kind: str, voter: Voter, handle: Callable[[NodeParts], Awaitable[Any]], timeout_s: float
    ) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(kind, voter, handle)
        except (Cut, TimeoutError) as error:
            raise PeerUnreachable(str(error)) from None

    async def _exchange(self, kind: str, voter: Voter, handle: Callable[[NodeParts], Awaitable[Any]]) -> Any:
        mine = str(self._incarnation.current)

        async def fenced(node: NodeParts) -> Any:
            try:
                is_refused = node.incarnation.hear(mine) is not None
            except OSError as error:  # it could not write down what it heard
                raise Cut(f"{node.id} failed: {error}") from None
            return _Refusal(str(node.incarnation.current)) if is_refused else await handle(node)

        # By address: a bootstrap server is asked before anybody knows who it is.
        target = BrokerId(int(voter.host.removeprefix("node-")))
        answer = await self._network.exchange(kind, self._node, target, fenced)
        if isinstance(answer, _Refusal):
            self._incarnation.hear(answer.incarnation)
            raise Cut(f"{target} is of another incarnation")
        if str(self._incarnation.current) != mine:
            raise Cut(f"{target} answered to a former incarnation")
        return answer

    async def close(self) -> None:
        """Nothing is kept open."""


class SimulatedControllerTransport:
    """A broker's way to the controllers."""

    def __init__(self, network: Network, node: NodeParts, applied: AppliedOffset) -> None:
        self._network = network
        self._node = node
        self._applied = applied

    async def call(
        self, controller_id: BrokerId, request: Any, *, principal: str, client_host: str = "", timeout_ms: int
    ) -> Any:
        """See barnabas_broker.controller_client.client.ControllerTransport."""

        async def handle(node: NodeParts) -> tuple[Any, Offset]:
            try:
                answer = await node.driver.handle(request, principal=principal, client_host=client_host)
            except KafkaError as error:
                return error, NO_OFFSET
            return answer, node.driver.committed_offset

        if controller_id not in self._network.nodes:
            raise ControllerUnreachable(f"controller {controller_id} is not known yet", is_sent=False)
        kind = type(request).__name__
        held: Awaitable[None] | None = None
        if isinstance(request, AlterPartition):
            held = self._network.on_proposal(self._node, request)
        elif isinstance(request, AlterReplicaFaults):
            held = self._network.held_reports.get(self._node.id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer, committed = await self._network.exchange(kind, self._node, controller_id, handle, held=held)
        except Cut as error:
            raise ControllerUnreachable(str(error)) from None
        if isinstance(answer, KafkaError):
            raise answer
        await reach_applied(self._applied, request, committed, timeout_ms=timeout_ms)
        return answer

    async def open_heartbeats(self, controller_id: BrokerId) -> SimulatedHeartbeats:
        """See ControllerTransport."""
        return SimulatedHeartbeats(self._network, self._node, controller_id)

    async def close(self) -> None:
        """Nothing is kept open."""


class SimulatedHeartbeats:
    """One heartbeat stream, both its ends. It breaks for good when a message is lost, as TCP would after its retries."""

    def __init__(self, network: Network, node: NodeParts, controller_id: BrokerId) -> None:
        self._network = network
        self._node = node
        self._life = node.life
        self._controller_id = controller_id
        self._controller_life = network.nodes[controller_id].life
        self._incoming: asyncio.Queue[BrokerHeartbeatReply | KafkaError | None] = asyncio.Queue()
        self._connection: Any = None
        self._is_broken = False
        self.ends = {(node.id, controller_id), (controller_id, node.id)}
        network.streams.append(self)

    async def send(self, heartbeat: BrokerHeartbeat) -> None:
        """See HeartbeatStream."""
        if self._is_broken:
            raise ControllerUnreachable("the stream is broken")
        self._network.spawn(self._deliver(heartbeat))

    async def _deliver(self, heartbeat: BrokerHeartbeat) -> None:
        try:
            await self._network.travel("Heartbeat", self._node.id, self._controller_id)
        except Cut:
            self.break_off()
            return
        controller = self._network.nodes[self._controller_id]
        if self._is_broken or not controller.is_up or controller.life != self._controller_life:
            self.break_off()
            return
        try:
            if self._connection is None:
                self._connection = controller.driver.connect(heartbeat.broker_id, heartbeat.broker_epoch, self._push)
            self._network.note_heard(controller, heartbeat.broker_id)
            self._connection.heartbeat(heartbeat).add_done_callback(self._answer)
        except KafkaError as error:
            self._push(error)

    def _answer(self, outcome: asyncio.Future[BrokerHeartbeatReply]) -> None:
        if outcome.cancelled():
            return
        error = outcome.exception()
        if error is None:
            self._push(outcome.result())
        elif isinstance(error, KafkaError):
            self._push(error)

    def _push(self, item: BrokerHeartbeatReply | KafkaError) -> None:
        self._network.spawn(self._return(item))

    async def _return(self, item: BrokerHeartbeatReply | KafkaError) -> None:
        try:
            await self._network.travel("Heartbeat answer", self._controller_id, self._node.id)
        except Cut:
            self.break_off()
            return
        if not self._is_broken:
            self._incoming.put_nowait(item)

    async def receive(self) -> BrokerHeartbeatReply:
        """See HeartbeatStream."""
        item = await self._incoming.get()
        if item is None:
            self._incoming.put_nowait(None)
            raise ControllerUnreachable("the stream is broken")
        if isinstance(item, KafkaError):
            raise item
        return item

    async def close(self) -> None:
        """See HeartbeatStream."""
        self.break_off()

    def break_off(self) -> None:
        """Both ends learn that the stream is gone."""
        if self._is_broken:
            return
        self._is_broken = True
        self._network.streams.remove(self)
        self._incoming.put_nowait(None)
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._network.note_heard(self._network.nodes[self._controller_id], connection.broker_id)
            connection.close()

    def is_of(self, node: NodeParts) -> bool:
        """Whether this life of a node holds one end."""
        return node.id in (self._node.id, self._controller_id)


class SimulatedPeer:
    """A partition leader as its follower fetches from it: in order, one call at a time."""

    def __init__(self, network: Network, node: NodeParts, leader_id: BrokerId) -> None:
        self._network = network
        self._node = node
        self._leader_id = leader_id

    async def fetch(self, request: FetchSpec, partitions: Sequence[FetchPartitionSpec]) -> FetchAnswer:
        """See barnabas_replication.follower.peer.Peer."""

        async def handle(node: NodeParts) -> FetchAnswer:
            answer: asyncio.Future[list[FetchOutcome]] = asyncio.get_running_loop().create_future()
            taken = request if request.session_epoch == NO_SESSION_EPOCH else node.replicas.fetches.in_session(request)
            cancel = node.replicas.fetches.fetch(taken, partitions, lambda outcomes: _settle(answer, outcomes))
            try:
                return FetchAnswer([as_fetched(outcome) for outcome in await answer], taken.session_id)
            finally:
                cancel()

        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer: FetchAnswer = await self._network.exchange("Fetch", self._node, self._leader_id, handle)
                return answer
        except Cut as error:
            raise ConnectionError(str(error)) from None

    async def close(self) -> None:
        """Nothing is kept open."""


def _settle(answer: asyncio.Future[list[FetchOutcome]], outcomes: list[FetchOutcome]) -> None:
    if answer.done():
        for outcome in outcomes:
            for part in outcome.parts:
                part.file.release()
    else:
        answer.set_result(outcomes)


def read_out(outcome: FetchOutcome) -> bytes:
    """The bytes of an answer, at this moment."""
    data = b"".join(part.file.read(part.position, part.size) for part in outcome.parts)
    for part in outcome.parts:
        part.file.release()
    return data


def as_fetched(outcome: FetchOutcome) -> FetchedPartition:
    """What the wire would carry: the bytes at this moment, as sendfile sends them."""
    return FetchedPartition(
        outcome.topic,
        outcome.partition,
        ErrorCode.NONE if outcome.error is None else outcome.error.code,
        outcome.high_watermark,
        outcome.log_start_offset,
        outcome.diverging_epoch,
        read_out(outcome),
        outcome.forgotten_below,
    )
