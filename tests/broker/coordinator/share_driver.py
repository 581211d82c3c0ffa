"""One shard with share groups, share states in memory, members that keep to the protocol, and the laws that hold at every point."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from barnabas_coordination.group.consumer.messages import HeartbeatOutcome
from barnabas_coordination.group.led_records import JOINS, LEAVES
from barnabas_coordination.group.share.group import ShareGroup
from barnabas_coordination.group.share.messages import ShareHeartbeat, StateDone, StateWork
from barnabas_coordination.group.share.records import Beginning
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_coordination.share_group_config import ShareGroupConfig
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset, Uuid
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, ConsumerDriver
from tests.broker.coordinator.group_driver import GROUP
from tests.support.share_states import MemoryPersister

Pair = tuple[Uuid, int]


class ShareDriver(ConsumerDriver):
    """A ConsumerDriver whose share groups are checked after every step."""

    def __init__(self, topics: Mapping[str, int] | None = None, **share: Any) -> None:
        self.persister = MemoryPersister()
        super().__init__(topics)
        self.share_config = ShareGroupConfig(**{"group_share_assignment_interval_ms": 0} | share)
        self.shard = self.new_shard()
        self.is_asking = True
        """Whether what is to be asked is asked at once, and answered."""

    @property
    def shared(self) -> ShareGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def perform(self, result: CoordinatorResult) -> None:
        super().perform(result)
        for group in self.shard.groups.values():
            if isinstance(group, ShareGroup):
                check_group(group)
                former = self.epochs.get(group.group_id, (0, 0))
                assert group.epoch >= former[0] and group.assignment_epoch >= former[1]
                self.epochs[group.group_id] = (group.epoch, group.assignment_epoch)
        if self.is_asking:
            self.ask()

    # ---- share coordinators

    def ask(self) -> None:
        """Ask what is to be asked."""
        while self.share_work:
            work = self.take()
            if work:
                self.finish(work)

    def take(self) -> StateWork | None:
        """The next that is to be asked."""
        return self.shard.share.take_work(self.share_work.pop(0))

    def finish(self, work: StateWork, group: str = GROUP) -> StateDone:
        """Ask, and say what came of it."""
        answers = StateDone(
            work.state_epoch,
            {
                key: _outcome(self.persister.initialize(key, state_epoch=Epoch(work.state_epoch), start_offset=start))
                for key, start in work.begin.items()
            },
            {key: _outcome(self.persister.delete(key)) for key in work.end},
        )
        self.perform(self.shard.share.finish_work(group, answers))
        return answers

    def key(self, topic: str, partition: int) -> ShareKey:
        return ShareKey(GROUP, self.topic_id(topic), partition)

    def start_of(self, topic: str, partition: int) -> Offset:
        """Where a state begins."""
        return self.persister.kept[self.key(topic, partition)].start_offset

    # ---- requests

    def share_beat(self, member_id: str, epoch: int, *, group: str = GROUP, **named: Any) -> Ticket:
        """ShareGroupHeartbeat."""
        request = ShareHeartbeat(
            group_id=group, member_id=member_id, epoch=epoch, client_id="client", client_host="/127.0.0.1", **named
        )
        return self.step(lambda ticket: self.shard.share_heartbeat(request, ticket, now_ms=self.now_ms))

    def alter(self, topic: str, **starts: int) -> Ticket:
        """AlterShareGroupOffsets; starts are named p0, p1 and so on."""
        wanted = {int(name[1:]): Offset(start) for name, start in starts.items()}
        beginning = {self.topic_id(topic): Beginning(topic, wanted)}
        return self.step(lambda ticket: self.shard.alter_share_offsets(GROUP, beginning, ticket))

    def forget(self, *topics: str, group: str = GROUP) -> Ticket:
        """DeleteShareGroupOffsets."""
        ids = [self.topic_id(topic) for topic in topics]
        return self.step(lambda ticket: self.shard.share.forget(group, ids, ticket))

    def delete(self, group: str = GROUP) -> Ticket:
        """DeleteGroups."""
        return self.step(lambda ticket: self.shard.delete_group(group, ticket, now_ms=self.now_ms))

    def settle_sharers(self, sharers: Iterable[Sharer], rounds: int = 8) -> None:
        """Let everyone beat until nothing changes, a round each interval."""
        everyone = list(sharers)
        for _ in range(rounds):
            self.advance(INTERVAL_MS)
            before = len(self.log)
            for sharer in everyone:
                sharer.beat()
            self.advance(1)  # what goes on in slices
            if len(self.log) == before:
                return
        raise AssertionError("they do not come to rest")


class Sharer:
    """A member that keeps to the protocol."""

    def __init__(self, driver: ShareDriver, member_id: str, *topics: str) -> None:
        self.driver = driver
        self.member_id = member_id
        self.topics = frozenset(topics)
        self.epoch = JOINS
        self.has: set[Pair] = set()

    def join(self, *topics: str) -> HeartbeatOutcome:
        """With everything a member says at first."""
        self.topics, self.epoch, self.has = frozenset(topics) or self.topics, JOINS, set()
        return self._hear(self.driver.share_beat(self.member_id, JOINS, topic_names=self.topics))

    def beat(self, **named: Any) -> HeartbeatOutcome:
        """The next heartbeat, with what changed."""
        return self._hear(self.driver.share_beat(self.member_id, self.epoch, **named))

    def leave(self) -> HeartbeatOutcome:
        return self.driver.told(self.driver.share_beat(self.member_id, LEAVES))

    def of(self, topic: str) -> list[int]:
        """Partitions of a topic that it has."""
        topic_id = self.driver.topic_id(topic)
        return sorted(partition for its, partition in self.has if its == topic_id)

    def _hear(self, ticket: Ticket) -> HeartbeatOutcome:
        outcome = self.driver.told(ticket)
        assert outcome.epoch >= self.epoch, "an answer's epoch is never behind"
        self.epoch = outcome.epoch
        if outcome.assignment is not None:
            self.has = {(topic_id, each) for topic_id, of in outcome.assignment.items() for each in of}
        return outcome


def check_group(group: ShareGroup) -> None:
    """Laws 1, 3, 8 and 41 of a share group, and that its counts are those of its members."""
    assert group.assignment_epoch <= group.epoch
    if not group.members:
        assert group.assignment_epoch == group.epoch, "an empty group has the targets of its epoch"
        assert not group.targets
    states = group.states
    for topic_id, (_, starts) in states.beginning.items():
        begun = states.begun.get(topic_id)
        assert starts and (begun is None or not begun.partitions & starts.keys()), "begun and being begun"
    assert not states.ending.keys() & (states.beginning.keys() | states.begun.keys())
    for member in group.members.values():
        assert member.epoch <= group.assignment_epoch
        assert member.previous_epoch <= member.epoch
    copied = group.copy()
    for attribute in ("bytes", "state", "topic_counts", "stable_at"):
        assert getattr(copied, attribute) == getattr(group, attribute), attribute


def _outcome(call: Coroutine[Any, Any, None]) -> KafkaError | None:
    """Of a call that waits for nothing."""
    try:
        call.send(None)
    except StopIteration:
        return None
    except KafkaError as error:
        return error
    raise AssertionError("it waits")
