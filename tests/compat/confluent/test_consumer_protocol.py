"""confluent-kafka (librdkafka) with group.protocol=consumer (KIP-848)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.confluent.test_confluent import produce
from tests.compat.samples import DEADLINE_S, FIRST_TIMESTAMP_MS, Sample, until

pytestmark = [pytest.mark.cluster]

PARTITIONS = 4


class Member:
    """One consumer, what it was told by its callbacks, and what it read."""

    def __init__(self, stack: ExitStack, bootstrap: str, group: str, *topics: str, **settings: Any) -> None:
        self.assigned: list[int] = []
        self.revoked: list[int] = []
        self.lost: list[int] = []
        self.read: list[Message] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
            | settings
        )
        stack.callback(self.close)
        self.is_closed = False
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self.assigned.extend(p.partition for p in partitions),
            on_revoke=lambda _, partitions: self.revoked.extend(p.partition for p in partitions),
            on_lost=lambda _, partitions: self.lost.extend(p.partition for p in partitions),
        )

    def poll(self) -> None:
        for message in self.consumer.consume(100, timeout=0.1):
            assert message.error() is None, message.error()
            self.read.append(message)

    @property
    def has(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment())

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.consumer.close()


def numbered(count: int) -> list[Sample]:
    return [Sample(b"%d" % n, b"value %d" % n, (), FIRST_TIMESTAMP_MS) for n in range(count)]


def poll_all(*members: Member) -> Callable[[], None]:
    def poll() -> None:
        for member in members:
            member.poll()

    return poll


def test_a_member_subscribes_reads_commits_and_returns_to_its_offset(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    produce(bootstrap, topic, numbered(400))
    with ExitStack() as stack:
        first = Member(stack, bootstrap, group, topic)
        until(lambda: len(first.read) >= 400, first.poll)
        assert sorted(first.assigned) == first.has == [0, 1, 2, 3]
        first.consumer.commit(asynchronous=False)
        first.close()
        assert sorted(first.revoked) == [0, 1, 2, 3]
        assert not first.lost
        produce(bootstrap, topic, numbered(40))
        second = Member(stack, bootstrap, group, topic)
        until(lambda: len(second.read) >= 40, second.poll)
        assert len(second.read) == 40, "what was committed is not read again"


def test_two_members_share_and_one_takes_over_from_the_other(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    with ExitStack() as stack:
        first = Member(stack, bootstrap, group, topic)
        until(lambda: len(first.has) == 4, first.poll)
        second = Member(stack, bootstrap, group, topic)
        until(lambda: len(first.has) == len(second.has) == 2, poll_all(first, second))
        assert sorted(first.has + second.has) == [0, 1, 2, 3]
        assert sorted(first.revoked) == second.has, "it gave up what the other has, and nothing else"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        assert described.state is ConsumerGroupState.STABLE
        assert described.type is ConsumerGroupType.CONSUMER
        assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2]
        listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(DEADLINE_S)
        assert group in {found.group_id for found in listed.valid}
        second.close()
        until(lambda: len(first.has) == 4, first.poll)


def test_a_member_that_does_not_poll_loses_its_partitions(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    with ExitStack() as stack:
        first = Member(stack, bootstrap, group, topic)
        # One that does not poll leaves by itself after this time.
        silent = Member(stack, bootstrap, group, topic, **{"max.poll.interval.ms": 6_000})
        until(lambda: len(first.has) == len(silent.has) == 2, poll_all(first, silent))
        until(lambda: len(first.has) == 4, first.poll)


KILLED = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


def test_a_member_that_is_killed_is_replaced_after_its_session(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    with ExitStack() as stack:
        first = Member(stack, bootstrap, group, topic)
        until(lambda: len(first.has) == 4, first.poll)
        command = [sys.executable, "-c", KILLED, bootstrap, group, topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            until(lambda: len(first.has) == 2, first.poll)
            assert process.stdout is not None
            assert process.stdout.readline().strip() in ("0", "2")
            process.kill()
        until(lambda: len(first.has) == 4, first.poll)


def test_a_static_member_returns_to_its_partitions(bootstrap: str, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(PARTITIONS)
    with ExitStack() as stack:
        other = Member(stack, bootstrap, group, topic)
        one = Member(stack, bootstrap, group, topic, **{"group.instance.id": "one"})
        until(lambda: len(other.has) == len(one.has) == 2, poll_all(other, one))
        had, revoked = one.has, list(other.revoked)
        one.close()
        back = Member(stack, bootstrap, group, topic, **{"group.instance.id": "one"})
        until(lambda: len(back.has) == 2, poll_all(other, back))
        assert back.has == had
        assert other.revoked == revoked, "the other noticed nothing"


def test_topics_that_match_a_regular_expression_are_found_by_the_coordinator(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    first, second = make_topic(1), make_topic(2)
    number = first.removeprefix("compat-")
    other = second.removeprefix("compat-")
    with ExitStack() as stack:
        member = Member(stack, bootstrap, group, f"^compat-({number}|{other})")
        until(lambda: len(member.has) == 3, member.poll)
        assert {partition.topic for partition in member.consumer.assignment()} == {first, second}


def test_a_bad_regular_expression_is_refused_in_words(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    with ExitStack() as stack:
        member = Member(stack, bootstrap, group, r"^compat-(a)\1")
        errors: list[str] = []
        deadline = time.monotonic() + DEADLINE_S
        while not errors and time.monotonic() < deadline:
            for message in member.consumer.consume(10, timeout=0.2):
                if message.error() is not None:
                    errors.append(str(message.error()))
        assert "regular expression is not valid" in errors[0]


def test_a_commit_of_who_is_no_member_is_refused(bootstrap: str, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(PARTITIONS)
    with ExitStack() as stack:
        member = Member(stack, bootstrap, group, topic)
        until(lambda: len(member.has) == 4, member.poll)
        stranger = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        stack.callback(stranger.close)
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            stranger.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)


def test_a_group_moves_from_classic_to_consumer_and_back_while_it_reads(
    bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    classic_settings = {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 300,
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def group_type() -> ConsumerGroupType:
        listed = admin.list_consumer_groups().result(DEADLINE_S)
        return next(found.type for found in listed.valid if found.group_id == group)

    with ExitStack() as stack:
        first = Member(stack, bootstrap, group, topic, **classic_settings)
        until(lambda: len(first.has) == 4, first.poll)
        produce(bootstrap, topic, numbered(100))
        until(lambda: len(first.read) == 100, first.poll)
        first.consumer.commit(asynchronous=False)
        assert group_type() is ConsumerGroupType.CLASSIC
        second = Member(stack, bootstrap, group, topic)
        until(lambda: len(first.has) == len(second.has) == 2, poll_all(first, second))
        assert sorted(first.has + second.has) == [0, 1, 2, 3]
        assert group_type() is ConsumerGroupType.CONSUMER
        produce(bootstrap, topic, numbered(100))
        until(lambda: len(first.read) + len(second.read) == 200, poll_all(first, second))
        for member in (first, second):
            member.consumer.commit(asynchronous=False)
        second.close()
        until(lambda: len(first.has) == 4, first.poll)
        until(lambda: group_type() is ConsumerGroupType.CLASSIC, first.poll)
        produce(bootstrap, topic, numbered(100))
        until(lambda: len(first.read) + len(second.read) == 300, poll_all(first))
        assert not first.lost
