"""The explain service of every node: brings log, image and live facts to the rules of barnabas_quorum.explain.

May touch:  this node's metadata log (reading), its image, the controllers over gRPC, a silent broker's listener (a connection).
            Must not touch: rules, the data lane.
Invariants: the log is read up to this node's own high watermark, and the image is the one it had then; what cannot be had
            (no leader, a silent controller) is reported in the answer and fails nothing; generated types stop here.
Read next:  barnabas_quorum/explain/chain.py; controller_client/facts.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import grpc.aio

from barnabas_broker.admin.edge import AdminEdge
from barnabas_broker.controller_client.facts import Address, ask_replica, ask_sessions
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.partition_rules import rules_of
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests_partitions import AlterPartitionReassignments, PartitionReassignment
from barnabas_quorum.driver.broker_probe import reach_of
from barnabas_quorum.driver.committed_history import CommittedHistory, read_history
from barnabas_quorum.explain.brokers import LiveFacts, explain_broker, is_silent
from barnabas_quorum.explain.chain import Explanation, with_blocked
from barnabas_quorum.explain.history import (
    Filter,
    concerns_broker,
    concerns_leadership,
    concerns_partition,
    is_of_other_topic,
    is_of_partition,
)
from barnabas_quorum.explain.leaders import ControllerReport, Silence, explain_leader
from barnabas_quorum.explain.partitions import PartitionName, explain_partition, find_partition
from barnabas_quorum.explain.reassignments import explain_reassignment, explain_refusal
from barnabas_quorum.image.bad_records import Blocked
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.raft.journal import RaftLog
from barnabas_quorum.raft.voters import Voter, VoterSet
from barnabas_quorum.records import PartitionRecord
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Offset
from barnabas_wire.rpc import explain_pb2, explain_pb2_grpc
from barnabas_wire.rpc.dialing import PLAIN_DIALER, Dialer, UnknownPeer

REFUSAL_TIMEOUT_MS = 5_000


class QuorumView(Protocol):
    """What this needs of the node's QuorumNode."""

    @property
    def high_watermark(self) -> Offset:
        """One past the last committed record known here."""
        ...

    @property
    def voters(self) -> VoterSet:
        """The voter set of this node's log."""
        ...

    @property
    def leader_endpoint(self) -> Voter | None:
        """The live leader, if it is known."""
        ...


class ExplainService(explain_pb2_grpc.ExplainerServicer):
    """Answers for one node. Belongs to the control lane; `clock_ms` is wall time."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        log: RaftLog,
        quorum: QuorumView,
        image: Callable[[], MetadataImage],
        blocked: Callable[[], Blocked | None],
        controller: ActiveController,
        config: ControllerConfig,
        bootstrap_servers: Sequence[Address],
        edge: AdminEdge,
        clock_ms: Callable[[], int],
        dialer: Dialer = PLAIN_DIALER,
    ) -> None:
        """`config`: this node's properties, for settings that no topic and no cluster default states."""
        self._node_id = node_id
        self._log = log
        self._quorum = quorum
        self._image = image
        self._blocked = blocked
        self._controller = controller
        self._config = config
        self._bootstrap_servers = tuple(bootstrap_servers)
        self._edge = edge
        self._clock_ms = clock_ms
        self._dialer = dialer

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register on an admin server that is not started yet."""
        explain_pb2_grpc.add_ExplainerServicer_to_server(self, server)

    async def Explain(self, request: explain_pb2.ExplainRequest, context: Any) -> explain_pb2.ExplainResponse:
        """See explain.proto."""
        return await self._edge.answer("Explain", context, self._explain(request))

    async def _explain(self, request: explain_pb2.ExplainRequest) -> explain_pb2.ExplainResponse:
        subject = request.subject
        if subject == explain_pb2.ExplainRequest.LEADER:
            return await self._explain_leader()
        if subject == explain_pb2.ExplainRequest.BROKER:
            return await self._explain_broker(BrokerId(request.broker_id))
        name, partition = find_partition(self._image(), request.topic, request.partition)
        if subject == explain_pb2.ExplainRequest.PARTITION:
            return await self._explain_partition(name)
        if request.replicas:
            return await self._explain_refusal(name, partition, tuple(BrokerId(each) for each in request.replicas))
        return await self._explain_reassignment(name)

    async def _explain_leader(self) -> explain_pb2.ExplainResponse:
        (reports, silent), history = await asyncio.gather(
            self._ask_controllers(), self._read(concerns_leadership, is_of_partition)
        )
        found = explain_leader(reports, silent, history=history.entries, now_ms=self._clock_ms())
        return self._answer(found, history)

    async def _explain_broker(self, broker_id: BrokerId) -> explain_pb2.ExplainResponse:
        live, history = await asyncio.gather(self._live(), self._read(concerns_broker(broker_id), is_of_partition))
        image = self._image()
        broker, session = image.cluster.broker(broker_id), live.sessions.get(broker_id)
        is_unheard = session is None or session.connections == 0 or is_silent(session, live)
        if broker is not None and live.leader_id != NO_BROKER and is_unheard:
            live = replace(live, reach=await reach_of(broker.endpoints))
            image = self._image()
        found = explain_broker(broker_id, history=history.entries, image=image, live=live)
        return self._answer(found, history)

    async def _explain_partition(self, name: PartitionName) -> explain_pb2.ExplainResponse:
        live, history = await asyncio.gather(self._live(), self._read_of(name))
        image = self._image()
        found = explain_partition(
            name,
            find_partition(image, name.topic, name.index)[1],
            history=history.entries,
            base=_base(history, name),
            image=image,
            rules=rules_of(image, self._config),
            live=live,
        )
        return self._answer(found, history)

    async def _explain_reassignment(self, name: PartitionName) -> explain_pb2.ExplainResponse:
        live, history = await asyncio.gather(self._live(), self._read_of(name))
        image = self._image()
        found = explain_reassignment(
            name,
            find_partition(image, name.topic, name.index)[1],
            history=history.entries,
            base=_base(history, name),
            image=image,
            live=live,
        )
        return self._answer(found, history)

    async def _explain_refusal(
        self, name: PartitionName, partition: PartitionRegistration, wanted: tuple[BrokerId, ...]
    ) -> explain_pb2.ExplainResponse:
        item = PartitionReassignment(topic=name.topic, partition_id=name.index, replicas=wanted)
        (outcome,) = (
            await self._controller.ask(
                AlterPartitionReassignments(partitions=(item,), validate_only=True), timeout_ms=REFUSAL_TIMEOUT_MS
            )
        ).partitions
        return self._answer(explain_refusal(name, partition, wanted, outcome.error), None)

    async def _read(self, concerns: Filter, skips: Callable[[bytes], bool]) -> CommittedHistory:
        return await read_history(self._log, high_watermark=self._quorum.high_watermark, concerns=concerns, skips=skips)

    async def _read_of(self, name: PartitionName) -> CommittedHistory:
        return await self._read(
            concerns_partition(name.topic, name.topic_id, name.index), is_of_other_topic(name.topic_id)
        )

    async def _live(self) -> LiveFacts:
        """What the active controller hears of brokers."""
        leader = self._quorum.leader_endpoint
        if leader is None:
            return LiveFacts(now_ms=self._clock_ms())
        return await ask_sessions(
            leader.key.id, (leader.host, leader.port), now_ms=self._clock_ms(), dialer=self._dialer
        )

    async def _ask_controllers(self) -> tuple[list[ControllerReport], list[Silence]]:
        """Every controller that this node knows by its log, its properties or their registration."""
        voters = {(voter.host, voter.port): voter for voter in self._quorum.voters}
        registered = [
            (point.host, point.port)
            for controller in self._image().cluster.controllers.values()
            for point in controller.endpoints
        ]
        addresses = list(dict.fromkeys([*voters, *self._bootstrap_servers, *registered]))
        answers = await asyncio.gather(
            *(ask_replica(address, dialer=self._dialer) for address in addresses), return_exceptions=True
        )
        reports: dict[tuple[int, bytes], ControllerReport] = {}
        silent: list[Silence] = []
        for address, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, ControllerReport):
                reports[answer.key.id, bytes(answer.key.directory_id)] = answer
            elif isinstance(answer, grpc.aio.AioRpcError | ValueError | UnknownPeer):
                if address in voters:
                    silent.append(
                        Silence(voter=voters[address], error=_in_words(answer), is_refused=_is_refused(answer))
                    )
            elif isinstance(answer, BaseException):
                raise answer
        answered = {report.key for report in reports.values()}
        return list(reports.values()), [each for each in silent if each.voter.key not in answered]

    def _answer(self, found: Explanation, history: CommittedHistory | None) -> explain_pb2.ExplainResponse:
        found = with_blocked(found, self._blocked())
        return explain_pb2.ExplainResponse(
            subject=found.subject,
            status=found.status,
            summary=found.summary,
            causes=[
                explain_pb2.Cause(
                    offset=cause.offset,
                    timestamp_ms=cause.timestamp_ms,
                    what=cause.what,
                    reason=cause.reason,
                    is_guess=cause.is_guess,
                )
                for cause in found.causes
            ],
            facts=[*found.facts, *_unreadable(history)],
            next=[explain_pb2.NextStep(command=step.command, purpose=step.purpose) for step in found.next],
            log_from=-1 if history is None else history.first_offset,
            log_to=-1 if history is None else history.end_offset - 1,
            answered_by=self._node_id,
            answered_at_ms=self._clock_ms(),
        )


def _unreadable(history: CommittedHistory | None) -> list[str]:
    """What this explanation may lack."""
    if history is None or not history.unreadable:
        return []
    first, count = history.unreadable[0], len(history.unreadable)
    where = f"at offset {first}" if count == 1 else f"{count} of them, the first at offset {first}"
    return [f"this node cannot read all committed records ({where}): see `barnabas quorum quarantine list`"]


def _base(history: CommittedHistory, name: PartitionName) -> PartitionRegistration | None:
    """The partition in the snapshot where the history begins."""
    found = [record for record in history.base if isinstance(record, PartitionRecord)]
    return PartitionRegistration.of(found[-1]) if found else None


def _is_refused(error: grpc.aio.AioRpcError | ValueError | UnknownPeer) -> bool:
    """Whether a host answered that no process listens."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() is grpc.StatusCode.UNAVAILABLE and "refused" in (error.details() or "").lower()
    return isinstance(error, UnknownPeer) and error.is_refused


def _in_words(error: grpc.aio.AioRpcError | ValueError | UnknownPeer) -> str:
    if isinstance(error, UnknownPeer):
        return str(error)
    if isinstance(error, ValueError):
        return f"it answers nonsense ({error})"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "connection refused: no process listens there" if _is_refused(error) else "out of reach"
    return f"{error.code().name} {error.details()}"
