"""The lives of a simulated member: of the consumer protocol (KIP-848), of Streams (KIP-1071) and of the classic one, by requests.

May touch:  the network, through client_calls.py; the image of a node that is up, as clients see it.   Must not touch: a coordinator.
Invariants: a life tells the laws of everything that it is given and gives up; it commits for nothing but what it takes for its own.
Read next:  group_members.py, who lives them; group_laws.py, who judges.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from barnabas_coordination.group.led_records import LEAVES, LEAVES_FOR_A_WHILE
from barnabas_simulation.client_calls import ListenerCalls
from barnabas_simulation.group_laws import (
    GROUP,
    PROCESS,
    REBALANCE_S,
    SESSION_S,
    UNDER_WAY_S,
    GroupLaws,
    Membership,
    Part,
    Unanswered,
)
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_simulation.swarm import MemberTrouble
from barnabas_simulation.workload import CHURN_TOPIC
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, Uuid
from barnabas_wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas_wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_blob,
    encode_blob,
)
from barnabas_wire.kafka.messages.consumer_protocol import TopicPartitions as NamedPartitions
from barnabas_wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas_wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas_wire.kafka.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from barnabas_wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SUBTOPOLOGY = "0"
CHANGELOG = "stores"
PASSING = f"{CHURN_TOPIC}-0"
"""A topic that is deleted and made again all the while."""
PATTERNS = (r"records|found-[0-9]+", r"(found-\d+|rec.rds)")
"""By which members subscribe where topics come and go: they match the same, each as a whole name."""
OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""What tells a member that it is none, and a commit that it does not count."""
VERSION, OFFSET_VERSION = 3, 9
"""Versions of the subscription that classic members send, and of offset requests that name topics."""


class Life(ABC):
    """One life, until the member is told that it is out, dies, or leaves."""

    is_classic = False

    def __init__(
        self, run: Run, laws: GroupLaws, topic: str, trouble: MemberTrouble, calls: ListenerCalls, me: Membership
    ):
        self.me = me
        self.is_over = False
        self.is_pressed = False
        """It has something to say at once."""
        self.run, self.laws, self.topic, self.trouble, self.calls = run, laws, topic, trouble, calls
        laws.members.append(self.me)

    @abstractmethod
    async def beat(self, at: BrokerId) -> bool:
        """One exchange with the coordinator, or several where they follow from each other; False: another is to be looked for."""

    @abstractmethod
    async def leave(self, at: BrokerId) -> None:
        """Say farewell, whether it is heard or not."""

    def end(self) -> None:
        """End this life of the member."""
        self.is_over = True
        self.me.lose()
        if self.me in self.laws.members:  # another may have its place
            self.laws.members.remove(self.me)

    async def leave_for_a_while(self, at: BrokerId) -> None:
        """The process of a static member ends, to be started again; what it has waits for it."""
        self.me.give_up()
        self.me.has_left = True

    def out(self) -> None:
        """The coordinator says that it is no member."""
        self.laws.fenced += 1
        self.end()

    def topic_id(self) -> Uuid | None:
        """The id of the topic that is never deleted, as a running node knows it."""
        for node in self.run.nodes:
            if node.is_up and (topic := node.loader.image.topics.get(self.topic)) is not None:
                return topic.id
        return None

    async def commit(self, at: BrokerId) -> None:
        """For one of its partitions of the topic that stays."""
        own = [part for part in sorted(self.me.owned) if part[0] == self.topic_id()]
        if not own:
            return
        attempt = self.laws.commit(self.me, self.run.random.choice(own))
        partition = OffsetCommitRequestPartition(
            partition_index=attempt.part[1], committed_offset=attempt.number, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=self.me.name,
            generation_id_or_member_epoch=self.me.epoch,
            group_instance_id=self.me.instance,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        answer = await self.calls.call(at, request, version_max=OFFSET_VERSION)
        code = None if answer is None else answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            self.laws.acknowledged(self.me, attempt)
        elif code in OUT:
            self.laws.refused_for_good(attempt)

    async def read(self, at: BrokerId, part: Part) -> None:
        """What is committed for a partition."""
        at_least = self.laws.acknowledged_before(part)
        request = OffsetFetchRequest(
            group_id=GROUP, topics=[OffsetFetchRequestTopic(name=self.topic, partition_indexes=[part[1]])]
        )
        answer = await self.calls.call(at, request, version_max=7)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return
        if self.laws.is_newest(self.laws.term(at)):
            found = int(answer.topics[0].partitions[0].committed_offset)
            self.laws.judge_read(part, found, at_least=at_least)

    def heard(self, at: BrokerId, sent_s: float, term: int | None) -> None:
        """An answer came, to what was sent then, when the broker coordinated in that term."""
        terms = [each for each in (term, self.laws.term(at)) if each is not None]
        if terms:
            self.laws.heard(self.me, sent_s, min(terms))

    async def took(self, at: BrokerId, new: set[Part]) -> None:
        """What is new is read from where it was committed."""
        for part in sorted(new):
            if part[0] == self.topic_id():
                await self.read(at, part)


class ConsumerLife(Life):
    """By ConsumerGroupHeartbeat."""

    def __init__(self, *place: Any, doubles: ListenerCalls, pattern: str | None = None) -> None:
        """doubles: over which copies of its requests come; pattern: by which it subscribes, None: by names."""
        super().__init__(*place)
        self.pattern = pattern
        self._doubles = doubles
        self._gives_up_s = 0.0
        self._is_told_all = False

    async def beat(self, at: BrokerId) -> bool:
        """See Life."""
        me, run = self.me, self.run
        sent_s, term = run.loop.time(), self.laws.term(at)
        self.is_pressed = False
        if me.is_asked and sent_s >= self._gives_up_s:
            me.give_up()
        is_full = not me.epoch or bool(me.unanswered) or not self._is_told_all
        request = self._request(me.epoch, frozenset(me.owned), is_full=is_full)
        if me.epoch and run.random.random() < self.trouble.doubles and run.strikes("heartbeat doubled", at):
            run.network.spawn(self._send_again(at, request, frozenset(me.owned)))
        mine = self._sent(request, frozenset(me.owned))
        answer = await self.calls.call(at, request)
        if self.is_over:
            return True
        if answer is None:
            mine.until_s = run.loop.time() + UNDER_WAY_S
            return False
        me.unanswered.remove(mine)
        if answer.error_code in OUT:
            self.out()
            return True
        if answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            self.laws.unreleased += 1
            return True
        if answer.error_code:
            self._is_told_all = False
            return False
        before_s = min([sent_s, *(each.sent_s for each in me.unanswered)])
        self.laws.answered(me, answer.member_epoch)
        self.heard(at, sent_s, term)
        if is_full:
            self._is_told_all = True
            me.unanswered = [each for each in me.unanswered if each.until_s > sent_s]
        assigned = self._assigned(answer)
        if assigned is not None:
            await self._take(at, assigned, before_s)
        return True

    async def leave(self, at: BrokerId) -> None:
        """See Life."""
        self.end()
        await self.calls.call(at, self._request(LEAVES, frozenset(), is_full=False))

    async def leave_for_a_while(self, at: BrokerId) -> None:
        """See Life."""
        await super().leave_for_a_while(at)
        await self.calls.call(at, self._request(LEAVES_FOR_A_WHILE, frozenset(self.me.owned), is_full=False))

    async def haunt(self, at: BrokerId) -> None:
        """A heartbeat of a life that may be over arrives now, with all that it said then, or its join. Of a static member no join:
        the one id that its present life has would be another's."""
        owned = frozenset(self.me.owned)
        request = self._request(self.me.epoch, owned, is_full=False)
        if self.me.instance is None and self.run.random.random() < 0.7:
            owned = frozenset()
            request = self._request(0, owned, is_full=True)
        await self._send_again(at, request, owned)

    def _request(self, epoch: int, owned: frozenset[Part], *, is_full: bool) -> Any:
        by_topic: dict[Uuid, list[int]] = {}
        for topic_id, partition in sorted(owned):
            by_topic.setdefault(topic_id, []).append(partition)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.me.name,
            member_epoch=epoch,
            instance_id=self.me.instance,
            topic_partitions=[TopicPartitions(topic_id, parts) for topic_id, parts in by_topic.items()],
        )
        if is_full:  # a member that missed an answer says all again, and is told all
            request.rebalance_timeout_ms = int(REBALANCE_S * 1000)
            request.subscribed_topic_names = [] if self.pattern else [self.topic, PASSING]
            request.subscribed_topic_regex = self.pattern
        return request

    def _assigned(self, answer: Any) -> set[Part] | None:
        """What an answer says that it has; None: as before."""
        if answer.assignment is None:
            return None
        return {(of.topic_id, part) for of in answer.assignment.topic_partitions for part in of.partitions}

    def _sent(self, request: Any, owned: frozenset[Part]) -> Unanswered:
        copies = frozenset(self.me.copies if request.member_epoch > 0 else ())
        self.me.unanswered.append(Unanswered(self.run.loop.time(), owned, copies))
        return self.me.unanswered[-1]

    async def _send_again(self, at: BrokerId, request: Any, owned: frozenset[Part]) -> None:
        """A copy, which overtakes or is overtaken."""
        copy = self._sent(request, owned)
        await asyncio.sleep(self.run.random.choice((0.0, 0.05, 0.5)) * self.run.random.random())
        answer = await self._doubles.call(at, request)
        copy.until_s = self.run.loop.time() + (UNDER_WAY_S if answer is None else 0.0)

    async def _take(self, at: BrokerId, assigned: set[Part], since_s: float) -> None:
        me = self.me
        gone = set(me.owned) - assigned
        if gone - me.to_give_up:
            self._on_asked(since_s)
        me.to_give_up = gone
        new = assigned - set(me.owned)
        self.laws.take(me, new)
        await self.took(at, new)

    def _on_asked(self, since_s: float) -> None:
        """It is to give something up, and may be slow."""
        random = self.run.random
        self.me.asked_s = since_s
        is_slow = random.random() < self.trouble.slow
        self._gives_up_s = self.run.loop.time() + (REBALANCE_S * 1.2 * random.random() if is_slow else 0.0)
        self.is_pressed = not is_slow


class StreamsLife(ConsumerLife):
    """By StreamsGroupHeartbeat (KIP-1071): the same, of active tasks, each of which is a partition of the topic that stays. What it has as
    standby is another's active task, and in another process."""

    _copies: frozenset[Part] = frozenset()
    """What the last answer said that it is to have."""

    def _request(self, epoch: int, owned: frozenset[Part], *, is_full: bool) -> Any:
        parts = sorted(partition for _, partition in owned)
        copies = sorted(partition for _, partition in self.me.copies) if epoch > 0 else []
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.me.name,
            member_epoch=epoch,
            instance_id=self.me.instance,
            endpoint_information_epoch=-1,
            active_tasks=[TaskIds(SUBTOPOLOGY, parts)] if parts else [],
            standby_tasks=[TaskIds(SUBTOPOLOGY, copies)] if copies else [],
            warmup_tasks=[],
        )
        if epoch == 0:
            request.rebalance_timeout_ms = int(REBALANCE_S * 1000)
            request.process_id = self.me.process
            stores = [TopicInfo(CHANGELOG, replication_factor=self.run.swarm.replicas)] if self.trouble.standbys else []
            request.topology = Topology(subtopologies=[Subtopology(SUBTOPOLOGY, [self.topic], [], stores)])
        return request

    def _assigned(self, answer: Any) -> set[Part] | None:
        topic_id = self.topic_id()
        if answer.active_tasks is None or topic_id is None:
            return None
        active, self._copies = (
            frozenset((topic_id, part) for of in tasks for part in of.partitions)
            for tasks in (answer.active_tasks, answer.standby_tasks or ())
        )
        if active & self._copies:
            raise LawBroken(PROCESS, f"{self.me} is to work on {sorted(active & self._copies)} and to copy it")
        return set(active)

    async def _take(self, at: BrokerId, assigned: set[Part], since_s: float) -> None:
        me = self.me
        for part in assigned:  # its copy is what it starts from
            me.copies.pop(part, None)
        gone = set(me.copies) - self._copies
        if gone - me.copies_to_give_up:
            self._on_asked(since_s)
        me.copies_to_give_up = gone
        self.laws.take_copies(me, set(self._copies) - me.copies.keys())
        await super()._take(at, assigned, since_s)


class ClassicLife(Life):
    """By JoinGroup, SyncGroup and Heartbeat, with an assignor of its own for groups in which no other member assigns. It gives up
    everything before it joins. A static one leaves for a while by falling silent."""

    is_classic = True
    _generation = -1
    _id = ""

    async def beat(self, at: BrokerId) -> bool:
        """See Life."""
        if self._generation < 0:
            return await self._join(at)
        sent_s, term = self.run.loop.time(), self.laws.term(at)
        answer = await self.calls.call(
            at,
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._id,
                group_instance_id=self.me.instance,
            ),
        )
        if answer is None:
            return False
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.me.lose()
            self._generation = -1
            return await self._join(at)
        return self._is_well(answer.error_code, at, sent_s, term)

    async def leave(self, at: BrokerId) -> None:
        """See Life."""
        self.end()
        gone = MemberIdentity(member_id=self._id, group_instance_id=self.me.instance)
        await self.calls.call(at, LeaveGroupRequest(group_id=GROUP, members=[gone]))

    def _is_well(self, code: int, at: BrokerId, sent_s: float, term: int | None) -> bool:
        if code in OUT:
            self.out()
        elif code:
            return False
        else:
            self.heard(at, sent_s, term)
        return True

    async def _join(self, at: BrokerId) -> bool:
        said = encode_blob(ConsumerProtocolSubscription(topics=[self.topic]), VERSION)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            member_id=self._id,
            group_instance_id=self.me.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", said)],
        )
        answer = await self.calls.call(at, request)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = self.me.name = request.member_id = answer.member_id
            answer = await self.calls.call(at, request)
        if answer is None:
            return False
        if answer.error_code in OUT:
            self.out()
            return True
        if answer.error_code:
            return bool(answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS)
        self._id = self.me.name = answer.member_id
        self.laws.answered(self.me, answer.generation_id, is_kept=False)
        return await self._sync(at, answer)

    async def _sync(self, at: BrokerId, joined: Any) -> bool:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self._id,
            group_instance_id=self.me.instance,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
        )
        if joined.leader == self._id:
            request.assignments = self._assign(sorted(each.member_id for each in joined.members))
        sent_s, term = self.run.loop.time(), self.laws.term(at)
        answer = await self.calls.call(at, request)
        if answer is None:
            return False
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        if not self._is_well(answer.error_code, at, sent_s, term) or self.is_over:
            return self.is_over
        self.laws.answered(self.me, joined.generation_id)
        self._generation = joined.generation_id
        topic_id = self.topic_id()
        if answer.assignment and topic_id is not None:
            given = decode_blob(ConsumerProtocolAssignment, answer.assignment).assigned_partitions
            new = {(topic_id, part) for of in given if of.topic == self.topic for part in of.partitions}
            self.laws.take(self.me, new)
            await self.took(at, new)
        return True

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """In turn, as many partitions as a node knows of."""
        node = next((node for node in self.run.nodes if node.is_up), None)
        topic = None if node is None else node.loader.image.topics.get(self.topic)
        parts = [] if topic is None else sorted(topic.partitions)
        return [
            SyncGroupRequestAssignment(
                member_id,
                encode_blob(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[NamedPartitions(self.topic, parts[place :: len(members)])]
                    ),
                    VERSION,
                ),
            )
            for place, member_id in enumerate(members)
        ]
