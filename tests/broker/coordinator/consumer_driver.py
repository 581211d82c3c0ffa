"""One shard with groups of the consumer protocol, members that keep to it, and the laws that hold at every point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import ConsumerHeartbeat, HeartbeatOutcome
from barnabas_coordination.group.consumer.records import MemberState
from barnabas_coordination.group.led_records import JOINS, LEAVES, LEAVES_FOR_A_WHILE
from barnabas_coordination.group.messages import MemberRef, OffsetCommit, OffsetToCommit
from barnabas_coordination.shard import CoordinatorResult, Ticket, Writer
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid
from tests.broker.coordinator.group_driver import GROUP, GroupDriver
from tests.support.images import make_image

INTERVAL_MS = 5_000
TIMEOUT_MS = 60_000
Held = set[tuple[Uuid, int]]


class ConsumerDriver(GroupDriver):
    """A GroupDriver with topics, whose consumer groups are checked after every step."""

    def __init__(self, topics: Mapping[str, int] | None = None, **config: Any) -> None:
        super().__init__(**{"group_consumer_assignment_interval_ms": 0} | config)
        self.topics: dict[str, int] = {}
        self.set_topics(topics or {"flights": 4})
        self.epochs: dict[str, tuple[int, int]] = {}

    def set_topics(self, topics: Mapping[str, int]) -> None:
        """Those that exist now; ids go by the names."""
        self.topics = dict(topics)
        self.image = make_image(topics={name: [((1,), (1,), 1)] * count for name, count in topics.items()})

    def topic_id(self, name: str) -> Uuid:
        topic = self.image.topics.get(name)
        assert topic is not None
        return topic.id

    def perform(self, result: CoordinatorResult) -> None:
        super().perform(result)
        self.check()

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def consumers(self) -> list[ConsumerGroup]:
        """Every group of the protocol."""
        return [group for group in self.shard.groups.values() if isinstance(group, ConsumerGroup)]

    def check(self) -> None:
        """What must hold at every point."""
        for group in self.consumers():
            check_group(group)
            former = self.epochs.get(group.group_id, (0, 0))
            assert group.epoch >= former[0]
            assert group.assignment_epoch >= former[1]
            self.epochs[group.group_id] = (group.epoch, group.assignment_epoch)
        self.epochs = {name: found for name, found in self.epochs.items() if name in self.shard.groups}

    # ---- requests

    def beat(self, member_id: str, epoch: int, *, group: str = GROUP, **named: Any) -> Ticket:
        """ConsumerGroupHeartbeat."""
        request = ConsumerHeartbeat(
            group_id=group,
            member_id=member_id,
            epoch=epoch,
            client_id="client",
            client_host="/127.0.0.1",
            **named,
        )
        return self.step(lambda ticket: self.shard.consumer_heartbeat(request, ticket, now_ms=self.now_ms))

    def told(self, ticket: Ticket) -> HeartbeatOutcome:
        """The answer of a heartbeat that succeeded."""
        outcome = self.outcome(ticket)
        assert isinstance(outcome, HeartbeatOutcome), outcome
        return outcome

    def commit_by_epoch(
        self,
        member_id: str,
        epoch: int,
        *partitions: int,
        topic: str = "flights",
        writer: Writer | None = None,
        **named: Any,
    ) -> ErrorCode:
        """OffsetCommit of some partitions, TxnOffsetCommit with a `writer`; the code of all of them."""
        request = OffsetCommit(
            member=MemberRef(group_id=GROUP, member_id=member_id, generation=epoch),
            offsets=tuple(
                OffsetToCommit(topic, partition, Offset(7), Epoch(0), "", self.topic_id(topic))
                for partition in partitions
            ),
            **named,
        )
        if writer is not None:
            step = partial(self.shard.commit_in_transaction, request, writer, now_ms=self.now_ms)
            return self.code(self.step(lambda ticket: step(ticket=ticket)))
        return self.code(self.step(lambda ticket: self.shard.commit_offsets(request, ticket, now_ms=self.now_ms)))

    def settle(self, consumers: Iterable[Consumer], rounds: int = 8) -> None:
        """Let everyone beat until nothing changes, a round each interval."""
        everyone = list(consumers)
        for _ in range(rounds):
            self.advance(INTERVAL_MS)
            before = len(self.log)
            for consumer in everyone:
                consumer.beat()
            self.advance(1)  # what goes on in slices
            if len(self.log) == before and all(not consumer.is_behind for consumer in everyone):
                break


class Consumer:
    """A member that keeps to the protocol: it gives up at once what it is not told any more, and says so."""

    def __init__(
        self,
        driver: ConsumerDriver,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rack: str | None = None,
        may_describe: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.topics = frozenset(topics)
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.rack = rack
        self.may_describe = may_describe
        self.epoch = JOINS
        self.held: Held = set()
        self.using: Held = set()
        """What it reads: it lets go of what it is not told any more when it says so, not when it hears so."""
        self.is_behind = True
        """Whether it has given up or got something that it has not said yet."""

    def join(self) -> HeartbeatOutcome:
        """With everything a member says at first."""
        self.held, self.using, self.epoch = set(), set(), JOINS
        return self._hear(
            self.driver.beat(
                self.member_id,
                JOINS,
                instance_id=self.instance,
                rebalance_timeout_ms=TIMEOUT_MS,
                topic_names=self.topics,
                topic_regex=self.regex,
                server_assignor=self.assignor,
                rack_id=self.rack,
                owned={},
                may_describe=self.may_describe,
            )
        )

    def beat(self, **named: Any) -> HeartbeatOutcome:
        """The next heartbeat, with what changed."""
        owned = {"owned": self.owned()} if self.is_behind else {}
        if self.is_behind:
            self.using = set(self.held)
        self.is_behind = False
        return self._hear(
            self.driver.beat(
                self.member_id,
                self.epoch,
                instance_id=self.instance,
                may_describe=self.may_describe,
                **owned | named,
            )
        )

    def subscribe(self, *topics: str) -> HeartbeatOutcome:
        self.topics = frozenset(topics)
        return self.beat(topic_names=self.topics)

    def leave(self) -> HeartbeatOutcome:
        return self.driver.told(self.driver.beat(self.member_id, LEAVES, instance_id=self.instance))

    def leave_for_a_while(self) -> HeartbeatOutcome:
        return self.driver.told(self.driver.beat(self.member_id, LEAVES_FOR_A_WHILE, instance_id=self.instance))

    def owned(self) -> dict[Uuid, frozenset[int]]:
        found: dict[Uuid, set[int]] = {}
        for topic_id, partition in self.held:
            found.setdefault(topic_id, set()).add(partition)
        return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}

    def numbers(self, topic: str = "flights") -> list[int]:
        """Partitions of a topic that it has."""
        topic_id = self.driver.topic_id(topic)
        return sorted(partition for held_id, partition in self.held if held_id == topic_id)

    def _hear(self, ticket: Ticket) -> HeartbeatOutcome:
        outcome = self.driver.told(ticket)
        assert outcome.epoch >= self.epoch, "an answer's epoch is never behind"
        self.epoch = outcome.epoch
        if outcome.assignment is not None:
            told = {(topic_id, n) for topic_id, partitions in outcome.assignment.items() for n in partitions}
            if told != self.held:
                self.is_behind = True
            self.held = told
            self.using |= told
        return outcome


def check_group(group: ConsumerGroup) -> None:
    """Laws 1, 3, 4, 8, 9, 16, 21, 22 and 25 of a consumer group, and that its counts are those of its members."""
    assert group.assignment_epoch <= group.epoch
    if not group.members:
        assert group.assignment_epoch == group.epoch, "an empty group has the targets of its epoch"
    holders: dict[tuple[Uuid, int], str] = {}
    instances: set[str] = set()
    for member in group.members.values():
        assert member.epoch <= group.assignment_epoch
        assert member.previous_epoch <= member.epoch or member.epoch < 0
        assert (member.state is MemberState.UNREVOKED_PARTITIONS) == bool(member.pending)
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                assert partitions
                for partition, epoch in partitions.items():
                    assert (topic_id, partition) not in holders, "two hold it"
                    holders[topic_id, partition] = member.member_id
                    assert epoch <= max(member.epoch, 0)
        if member.metadata.instance_id is not None:
            assert member.metadata.instance_id not in instances
            instances.add(member.metadata.instance_id)
            assert group.static_members[member.metadata.instance_id] == member.member_id
    assert holders == {(t, p): name for t, of in group.holders.items() for p, name in of.items()}
    assert len(group.static_members) == len(instances)
    copied = group.copy()
    counts = ("topic_counts", "regex_counts", "assignor_votes", "classic_count", "bytes", "state")
    for name in counts:
        assert getattr(copied, name) == getattr(group, name), name
