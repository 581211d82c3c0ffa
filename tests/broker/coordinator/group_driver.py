"""Performs what a GroupShard decides, without asyncio: a log, a virtual clock, and a record of every answer.

It plays the runtime's part so that a test can hold back commits, refuse appends, fire timers and lose the leader at will. It
asserts what must hold at every step: a ticket is answered once, records are replayed as they are logged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from barnabas_coordination.config import GroupCoordinatorConfig
from barnabas_coordination.errors import NotCoordinator
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import (
    JoinOutcome,
    JoinRequest,
    LeavingMember,
    MemberRef,
    OffsetCommit,
    OffsetToCommit,
    SyncOutcome,
    SyncRequest,
)
from barnabas_coordination.group.records import GroupMetadataRecord
from barnabas_coordination.group.shard import GroupShard
from barnabas_coordination.shard import ArmTimer, CoordinatorResult, Reply, Ticket
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, Epoch, Offset

GROUP = "g"
TOPIC = "flights"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def subscription(*topics: str, tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    """A consumer's metadata, version 0."""
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + body + tail


RANGE = (("range", subscription(TOPIC)),)


def classic(shard: GroupShard) -> dict[str, ClassicGroup]:
    """Its groups of the classic protocol."""
    return {name: group for name, group in shard.groups.items() if isinstance(group, ClassicGroup)}


class GroupDriver:
    """One shard, one log."""

    def __init__(self, **config: Any) -> None:
        self.config = GroupCoordinatorConfig(**{"group_initial_rebalance_delay_ms": DELAY_MS} | config)
        self.share_config = ShareGroupConfig()
        self.share_work: list[str] = []
        """Share groups with something to ask."""
        self.image = MetadataImage.EMPTY
        self.shard = self.new_shard()
        self.now_ms = 1_000_000
        self.log: list[Any] = []
        self.committed = 0
        self.holds_commits = False
        self.refuses: KafkaError | None = None
        self.answers: dict[Ticket, Any] = {}
        self.open: set[Ticket] = set()
        self.abandoned: set[Ticket] = set()
        self.timers: dict[Hashable, int] = {}
        self.on_answer: Callable[[Ticket, Any], None] = lambda ticket, outcome: None
        self._parked: list[tuple[int, Reply]] = []
        self._ids = 0

    def new_shard(self) -> GroupShard:
        """One that has read nothing."""
        return GroupShard(
            self.config,
            share_config=self.share_config,
            image=lambda: self.image,
            on_share_work=lambda group_id: self.share_work.append(group_id),
        )

    # ---- what the runtime does -----------------------------------------------------------------------------------

    def step(self, decide: Callable[[Ticket], CoordinatorResult]) -> Ticket:
        """Run one request; its ticket names the answer."""
        self._ids += 1
        ticket = f"ticket-{self._ids}"
        self.open.add(ticket)
        before = self.recorded()
        try:
            result = decide(ticket)
        except KafkaError as error:
            self._answer(Reply(ticket, error))
        else:
            if any(isinstance(r, GroupMetadataRecord) and r.value and r.value.members for r in result.records):
                assert self.recorded() == before, "what a record carries changes by its replay alone"
            self.perform(result)
        return ticket

    def recorded(self) -> dict[str, Any]:
        """What the records of the groups carry, as the groups have it."""
        return {
            name: (
                *(group.state, group.generation, group.protocol, group.leader_id),
                [(m.member_id, m.instance_id, m.protocols, m.assignment) for m in group.members.values()],
            )
            for name, group in classic(self.shard).items()
        }

    def perform(self, result: CoordinatorResult) -> None:
        """Append, replay, arm, reply."""
        if result.records and self.refuses is not None:
            result = self.shard.on_refused(result, self.refuses)
            assert not result.records
        for record in result.records:
            assert self.shard.decode(*self.shard.encode(record)) == record
            self.log.append(record)
            self.shard.replay(record)
        for timer in result.timers:
            if isinstance(timer, ArmTimer):
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        self._parked.extend((len(self.log), reply) for reply in result.replies)
        if not self.holds_commits:
            self.commit()

    def commit(self) -> None:
        """The HW reaches the end of the log."""
        for record in self.log[self.committed :]:
            self.shard.on_committed(record)
        self.committed = len(self.log)
        parked, self._parked = self._parked, []
        for _, reply in parked:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        if reply.ticket in self.abandoned:
            return
        assert reply.ticket in self.open, f"{reply.ticket} is answered twice, now with {reply.outcome!r}"
        self.open.remove(reply.ticket)
        self.answers[reply.ticket] = reply.outcome
        self.on_answer(reply.ticket, reply.outcome)

    def advance(self, delay_ms: int) -> None:
        """Let time pass; timers fire in order."""
        until_ms = self.now_ms + delay_ms
        while self.timers:
            key = min(self.timers, key=lambda timer: (self.timers[timer], str(timer)))
            if self.timers[key] > until_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.perform(self.shard.on_timer(key, now_ms=self.now_ms))
        self.now_ms = until_ms

    def fail_over(self, *, loses_uncommitted: bool = True) -> None:
        """Another broker takes over: it has the committed log (perhaps more), no soft state, no parked request."""
        if loses_uncommitted:
            del self.log[self.committed :]
        for ticket in sorted(map(str, self.open)):
            self._answer(Reply(ticket, NotCoordinator()))
        self._parked.clear()
        self.shard = self.reload()
        self.committed = len(self.log)
        self.timers.clear()
        self.perform(self.shard.on_loaded(now_ms=self.now_ms))

    def reload(self) -> GroupShard:
        """A shard that has read the log."""
        shard = self.new_shard()
        for record in self.log:
            shard.replay(record)
            shard.on_committed(record)
        return shard

    # ---- requests ------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> Ticket:
        """JoinGroup."""
        request = JoinRequest(
            group_id=group,
            member_id=member_id,
            instance_id=instance,
            client_id="client",
            client_host="127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
        )
        new_member_id = f"{instance or 'member'}-{self._ids + 1}"
        return self.step(
            lambda ticket: self.shard.join(request, ticket, new_member_id=new_member_id, now_ms=self.now_ms)
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Ticket:
        """SyncGroup."""
        request = SyncRequest(
            member=MemberRef(group_id=group, member_id=member_id, generation=generation, instance_id=instance),
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple((assignments or {}).items()),
        )
        return self.step(lambda ticket: self.shard.sync(request, ticket, now_ms=self.now_ms))

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None) -> Ticket:
        """Heartbeat."""
        member = MemberRef(group_id=GROUP, member_id=member_id, generation=generation, instance_id=instance)
        return self.step(lambda ticket: self.shard.heartbeat(member, ticket, now_ms=self.now_ms))

    def leave(self, *members: tuple[str, str | None]) -> Ticket:
        """LeaveGroup of (member id, instance id) pairs."""
        leaving = [LeavingMember(*member) for member in members]
        return self.step(lambda ticket: self.shard.leave(GROUP, leaving, ticket, now_ms=self.now_ms))

    def commit_offset(
        self,
        offset: int,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        partition: int = 0,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        retention_ms: int = -1,
    ) -> Ticket:
        """OffsetCommit of one partition. The versions that carry a retention know no leader epoch."""
        epoch = Epoch(0) if retention_ms < 0 else NO_EPOCH
        request = OffsetCommit(
            member=MemberRef(group_id=group, member_id=member_id, generation=generation, instance_id=instance),
            offsets=(OffsetToCommit(topic, partition, Offset(offset), epoch, metadata),),
            retention_ms=retention_ms,
        )
        return self.step(lambda ticket: self.shard.commit_offsets(request, ticket, now_ms=self.now_ms))

    def abandon(self, ticket: Ticket, group: str = GROUP) -> None:
        """The connection of a parked request is gone."""
        self.open.remove(ticket)
        self.abandoned.add(ticket)
        self.perform(self.shard.abandon(group, ticket, now_ms=self.now_ms))

    # ---- answers -------------------------------------------------------------------------------------------------

    def outcome(self, ticket: Ticket) -> Any:
        """The answer; raises it when it is a KafkaError, and KeyError while there is none."""
        answer = self.answers[ticket]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def joined(self, ticket: Ticket) -> JoinOutcome:
        """The answer of a JoinGroup that succeeded."""
        outcome = self.outcome(ticket)
        assert isinstance(outcome, JoinOutcome), outcome
        return outcome

    def assigned(self, ticket: Ticket) -> bytes:
        """The assignment a SyncGroup brought."""
        outcome = self.outcome(ticket)
        assert isinstance(outcome, SyncOutcome), outcome
        return outcome.assignment

    def code(self, ticket: Ticket) -> ErrorCode:
        """NONE, or the code of the refusal; KeyError while there is no answer."""
        answer = self.answers[ticket]
        return answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE

    def is_open(self, ticket: Ticket) -> bool:
        """Whether the request still waits."""
        return ticket in self.open

    # ---- a group that stands -------------------------------------------------------------------------------------

    def stable_group(self, size: int = 2, *, instances: tuple[str | None, ...] = (), **join: Any) -> list[str]:
        """A stable group of `size` members; returns their ids, the leader first. Member i is assigned b"i"."""
        names = instances or (None,) * size
        tickets = [self.join(instance=name, version=3, **join) for name in names]
        self.advance(DELAY_MS)
        self.advance(DELAY_MS)
        outcomes = [self.joined(ticket) for ticket in tickets]
        leader = next(outcome for outcome in outcomes if outcome.members)
        ids = [leader.member_id, *(o.member_id for o in outcomes if o is not leader)]
        assignments = {member_id: str(index).encode() for index, member_id in enumerate(ids)}
        by_id = {outcome.member_id: name for outcome, name in zip(outcomes, names, strict=True)}
        for member_id in reversed(ids):
            given = assignments if member_id == leader.member_id else None
            self.sync(member_id, leader.generation, given, instance=by_id[member_id])
        assert self.shard.groups[GROUP].state.value == "Stable"
        return ids
