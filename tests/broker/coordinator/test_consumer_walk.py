"""Random walks of members of both protocols over one group, with failovers, refused writes and topics that come, grow and go.

The driver checks the laws of a group after every step (consumer_driver.check_group); here are those that only the members' own view
shows: nobody is told a partition that another was told and has not let go of, a fenced epoch commits nothing over its successor's
commit, and once all is calm every partition is somebody's. Each planted bug is found by a walk.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas_coordination.errors import CoordinatorNotAvailable
from barnabas_coordination.group.consumer import commits, fencing, heartbeat, reconciliation
from barnabas_coordination.group.consumer.group import ConsumerGroup, ConsumerGroupState
from barnabas_coordination.group.consumer.records import MemberState
from barnabas_coordination.shard import CoordinatorResult
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, Consumer, ConsumerDriver

STEPS = 300
TOPICS = ("flights", "weather")


class Walk:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driver = ConsumerDriver(
            {"flights": 5, "weather": 3}, group_consumer_assignment_interval_ms=self.random.choice((0, 1_000))
        )
        self.living: dict[str, Consumer] = {}
        self.zombies: list[Consumer] = []
        """That were told to go, or will be: they go on as if nothing had happened."""
        self.number = 0
        self.last_committer: dict[tuple[Uuid, int], str] = {}

    def run(self) -> None:
        steps: tuple[Callable[[], None], ...] = (
            *([self.beat] * 8),
            *([self.join] * 2),
            *([self.commit] * 3),
            self.leave,
            self.fall_silent,
            self.subscribe,
            self.static_return,
            self.rejoin,
            self.zombie,
            self.fail_over,
            self.refuse,
            self.grow,
            self.wait,
        )
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check_told()
        self.calm_down()

    # ---- steps

    def some(self) -> Consumer | None:
        return self.random.choice(sorted(self.living.values(), key=lambda c: c.member_id)) if self.living else None

    def tried(self, consumer: Consumer, request: Callable[[], Any]) -> None:
        """A member that is told that it is none joins again."""
        try:
            request()
        except KafkaError as error:
            assert error.code in (
                *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND),
                *(ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID),
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ), error
            if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                consumer.is_behind = True
                return
            self.living.pop(consumer.member_id, None)
            consumer.held, consumer.using = set(), set()

    def beat(self) -> None:
        consumer = self.some()
        if consumer is not None:
            self.driver.advance(self.random.choice((1, 500, INTERVAL_MS)))
            self.tried(consumer, consumer.beat)

    def join(self) -> None:
        if len(self.living) >= 6:
            return
        self.number += 1
        topics = self.random.sample(TOPICS, self.random.randint(1, 2))
        instance = self.random.choice((None, None, f"i{self.random.randint(1, 2)}"))
        consumer = Consumer(self.driver, f"m{self.number:03}", *topics, instance=instance)
        self.living[consumer.member_id] = consumer
        self.tried(consumer, consumer.join)
        if consumer.epoch == 0:
            self.living.pop(consumer.member_id, None)

    def rejoin(self) -> None:
        consumer = self.some()
        if consumer is not None and consumer.instance is None:
            self.tried(consumer, consumer.join)

    def leave(self) -> None:
        consumer = self.some()
        if consumer is not None:
            self.tried(consumer, consumer.leave)
            self.let_go(consumer)

    def let_go(self, consumer: Consumer) -> None:
        self.living.pop(consumer.member_id, None)
        consumer.held, consumer.using = set(), set()

    def static_return(self) -> None:
        consumer = next((c for c in self.living.values() if c.instance is not None), None)
        if consumer is None:
            return
        self.tried(consumer, consumer.leave_for_a_while)
        self.let_go(consumer)
        self.number += 1
        back = Consumer(self.driver, f"m{self.number:03}", *sorted(consumer.topics), instance=consumer.instance)
        self.living[back.member_id] = back
        self.tried(back, back.join)
        if back.epoch == 0:
            self.living.pop(back.member_id, None)

    def fall_silent(self) -> None:
        consumer = self.some()
        if consumer is not None:
            self.living.pop(consumer.member_id)
            self.zombies.append(consumer)

    def zombie(self) -> None:
        """It speaks again, with what it knew: an old epoch, partitions that may be others'."""
        if self.zombies:
            consumer = self.random.choice(self.zombies)
            ticket = self.driver.beat(
                consumer.member_id, consumer.epoch, owned=consumer.owned(), instance_id=consumer.instance
            )
            assert self.driver.answers[ticket] is not None
            self.commit_by(consumer)

    def commit(self) -> None:
        consumer = self.some()
        if consumer is not None:
            self.commit_by(consumer)

    def commit_by(self, consumer: Consumer) -> None:
        """What was accepted of an older epoch must be of who holds the partition, or still has to give it up."""
        for topic_id, partition in sorted(consumer.held):
            topic = self.driver.image.topics.get_by_id(topic_id)
            if topic is None:
                continue
            group = self.driver.shard.groups.get("g")
            code = self.driver.commit_by_epoch(consumer.member_id, consumer.epoch, partition, topic=topic.name)
            if code is ErrorCode.NONE and isinstance(group, ConsumerGroup) and consumer.epoch > 0:
                member = group.members.get(consumer.member_id)
                assert member is not None, "who is no member commits nothing"
                assert consumer.epoch <= member.epoch
                if consumer.epoch < member.epoch:
                    assert member.assignment_epoch(topic_id, partition) is not None, "a fenced epoch committed"

    def subscribe(self) -> None:
        consumer = self.some()
        if consumer is not None:
            topics = self.random.sample(TOPICS, self.random.randint(1, 2))
            self.tried(consumer, lambda: consumer.subscribe(*topics))

    def fail_over(self) -> None:
        self.driver.refuses = None
        self.driver.fail_over(loses_uncommitted=False)

    def refuse(self) -> None:
        self.driver.refuses = CoordinatorNotAvailable("too few replicas")
        for _ in range(3):
            self.beat()
        self.driver.refuses = None

    def grow(self) -> None:
        topic = self.random.choice(TOPICS)
        if self.driver.topics[topic] < 9:
            self.driver.set_topics(self.driver.topics | {topic: self.driver.topics[topic] + 1})

    def wait(self) -> None:
        self.driver.advance(self.random.choice((5_000, 20_000)))

    # ---- laws

    def check_told(self) -> None:
        """No two that live and are members read the same."""
        group = self.driver.shard.groups.get("g")
        members = group.members if isinstance(group, ConsumerGroup) else {}
        told: dict[tuple[Uuid, int], str] = {}
        for consumer in self.living.values():
            if consumer.member_id not in members:
                continue  # it will hear so
            for key in consumer.using:
                assert key not in told, f"{told[key]} and {consumer.member_id} both read {key}"
                told[key] = consumer.member_id

    def calm_down(self) -> None:
        """Everybody beats and lets go in time: the group comes to rest and all partitions are somebody's."""
        self.zombies.clear()
        for _ in range(30):
            self.driver.advance(INTERVAL_MS)
            for consumer in list(self.living.values()):
                self.tried(consumer, consumer.beat)
                self.check_told()
        if not self.living:
            return
        group = self.driver.group
        assert group.state is ConsumerGroupState.STABLE
        assert set(group.members) == set(self.living)
        subscribed = {topic for consumer in self.living.values() for topic in consumer.topics}
        wanted = {
            (self.driver.topic_id(topic), number) for topic in subscribed for number in range(self.driver.topics[topic])
        }
        held = [key for consumer in self.living.values() for key in consumer.held]
        assert len(held) == len(set(held))
        assert set(held) == wanted
        for member in group.members.values():
            assert member.state is MemberState.STABLE


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_keeps_the_laws(seed: int) -> None:
    Walk(seed).run()


def _give_what_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    present = reconciliation.reconcile

    def reconcile(*args: Any, **named: Any) -> Any:
        return present(*args, **named | {"is_free": lambda topic_id, partition: True})

    monkeypatch.setattr(heartbeat, "reconcile", reconcile)


def _take_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "allow_commit", lambda *args, **named: None)


def _forget_what_is_to_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "touches", lambda owned, held: False)


def _leave_timers_off_after_a_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "resume", lambda *args: CoordinatorResult())


@pytest.mark.parametrize(
    "plant",
    [
        _give_what_others_hold,
        _take_every_epoch,
        _forget_what_is_to_be_given_up,
        _leave_timers_off_after_a_failover,
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, StopIteration)):
        for seed in range(12):
            Walk(seed).run()
