"""What an image knows without visiting its partitions; and that a change visits what it changes, not what there is.

Operations are counted, not timed: lines of Python run, so that a loop over all partitions shows wherever it hides.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher
from barnabas_broker.metadata.readiness import Readiness
from barnabas_quorum.controller.requests import (
    AlterPartition,
    CreatableTopic,
    CreateTopics,
    IsrMemberEpoch,
    PartitionAlteration,
)
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.partition_index import PartitionKey
from barnabas_quorum.image.partition_table import PLAIN_MAX, PartitionTable, updated
from barnabas_quorum.image.topics import TopicsImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import PartitionChangeRecord, Record, TopicRecord
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import NO_BROKER, ZERO_UUID, BrokerId, Epoch, Offset, Uuid
from tests.support.decided_cluster import DecidedCluster, uuid

SMALL, LARGE = 100, 5_000
HELD = 8
"""Partitions of the broker that comes and goes, in either size."""


def check_index(topics: TopicsImage) -> None:
    """The index is what counting all partitions gives."""
    leaders: Counter[int] = Counter()
    topics_of: dict[int, Counter[Uuid]] = defaultdict(Counter)
    unsettled = set()
    for topic in topics.topics.values():
        for number, partition in topic.partitions.items():
            leaders[partition.leader] += 1
            for replica in partition.replicas:
                topics_of[replica][topic.id] += 1
            if (
                partition.leader in (NO_BROKER, *partition.replicas[1:])
                or sorted(partition.isr) != sorted(partition.replicas)
                or any(
                    (partition.adding_replicas, partition.removing_replicas, partition.elr, partition.last_known_elr)
                )
            ):
                unsettled.add(PartitionKey(topic.id, number))
    assert topics.index.leader_counts == leaders
    assert {broker: dict(held) for broker, held in topics.index.topics_of.items()} == topics_of
    assert set(topics.index.unsettled) == unsettled
    named = {topic for topic in topics.topics if "." in topic or "_" in topic}
    assert {name.replace(".", "_"): name for name in named} == dict(topics.names_by_metric)


class Sized:
    """A cluster of three brokers with so many partitions, and a fourth broker that holds HELD of them."""

    def __init__(self, partitions: int, *, per_topic: int) -> None:
        self.cluster = DecidedCluster().start_brokers(1, 2, 3, 4)
        for start in range(0, partitions, per_topic):
            replicas = [[1 + i % 3, 1 + (i + 1) % 3] for i in range(min(per_topic, partitions - start))]
            self.cluster.create(f"orders.{start}", *replicas)
        self.cluster.create("held", *([[4, 1]] * HELD))

    def shrink_isr(self, topic_name: str) -> None:
        """A leader takes a replica out of an ISR."""
        image = self.cluster.image
        topic = image.topics.get(topic_name)
        assert topic is not None
        leader = image.cluster.broker(topic.partitions[0].leader)
        assert leader is not None
        reply = self.cluster.do(
            AlterPartition(
                broker_id=leader.id,
                broker_epoch=leader.epoch,
                partitions=(
                    PartitionAlteration(
                        topic_id=topic.id,
                        partition_id=0,
                        leader_epoch=topic.partitions[0].leader_epoch,
                        partition_epoch=topic.partitions[0].partition_epoch,
                        new_isr=(IsrMemberEpoch(broker_id=leader.id),),
                    ),
                ),
            )
        )
        assert reply.partitions[0].error is None

    def create(self, name: str) -> None:
        """A topic of one partition; '.' and '_' make it look for names that differ only in those."""
        request = CreateTopics(topics=(CreatableTopic(name=name, assignments={0: (BrokerId(1), BrokerId(2))}),))
        assert self.cluster.do(request).topics[0].error is None

    def fence_and_back(self) -> None:
        """The broker that holds few partitions goes and comes."""
        self.cluster.fence(4)
        assert not self.cluster.heartbeat(4).is_fenced

    def shut_down(self) -> None:
        """It goes in good order: each heartbeat asks whether it leads something still."""
        self.cluster.heartbeat(4, want_shutdown=True)
        for broker_id in (1, 2, 3):
            self.cluster.heartbeat(broker_id)
        assert self.cluster.heartbeat(4, want_shutdown=True).should_shutdown

    def beat(self) -> None:
        """A heartbeat that changes nothing."""
        assert not self.cluster.heartbeat(2).is_fenced

    def look(self) -> None:
        """What the controller does unasked."""
        self.cluster.commit(self.cluster.controller.elect_leaderless())
        self.cluster.commit(self.cluster.controller.balance_leaders(now_ms=0))


CHANGES: dict[str, Callable[[Sized], None]] = {
    "ISR": lambda sized: sized.shrink_isr("orders.0"),
    "topic": lambda sized: sized.create("a.b_c"),
    "heartbeat": Sized.beat,
    "fence": Sized.fence_and_back,
    "shutdown": Sized.shut_down,
    "look": Sized.look,
}


def lines_run(work: Callable[[], Any]) -> int:
    """Lines of Python that it runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("per_topic", [10, LARGE])
def test_a_decision_visits_what_it_changes_not_what_there_is(per_topic: int) -> None:
    small, large = (Sized(partitions, per_topic=per_topic) for partitions in (SMALL, LARGE))
    for name, change in CHANGES.items():
        few, many = (lines_run(partial(change, sized)) for sized in (small, large))
        assert many <= 1.1 * few + 20, f"{name}: {few} lines with {SMALL} partitions, {many} with {LARGE}"
    for sized in (small, large):
        check_index(sized.cluster.image.topics)


class FewReplicas:
    """Stands for the replica manager: visits what the delta names."""

    def __init__(self) -> None:
        self.visited = 0

    def apply_delta(self, delta: Any, image: Any, *, settings: Any, when_placed: Callable[[], None]) -> None:
        self.visited += 0 if delta is None else sum(len(topic.changed) for topic in delta.changed.values())
        when_placed()


@pytest.mark.parametrize("per_topic", [10, LARGE])
async def test_a_broker_takes_one_change_in_without_visiting_the_others(per_topic: int) -> None:
    counts = []
    for partitions in (SMALL, LARGE):
        sized = Sized(partitions, per_topic=per_topic)
        loop, replicas = asyncio.get_running_loop(), FewReplicas()
        loader = MetadataLoader()
        loader.start_at(sized.cluster.image)
        cache = MetadataCache(loader.image)
        errors: list[BaseException] = []
        publisher = BrokerMetadataPublisher(
            broker_id=4,
            replicas=replicas,
            coordinators=[],
            changed_settings=lambda delta, image: {},
            update_throttles=lambda delta, image: None,
            update_quotas=lambda image: None,
            cache=cache,
            readiness=Readiness(broker_id=BrokerId(4), incarnation_id=ZERO_UUID, on_registered=lambda: None),
            control_loop=loop,
            data_loop=loop,
            on_applied=lambda offset: None,
            on_error=errors.append,
        )
        loader.publishers = (publisher,)
        topic = loader.image.topics.get("orders.0")
        assert topic is not None
        record: Record = PartitionChangeRecord(topic_id=topic.id, partition_id=0, isr=(BrokerId(1),))
        batch = CommittedBatch(Offset(loader.image.offset + 1), Epoch(1), 0, (encode(record),))
        run = lines_run(partial(loader.on_commit, [batch]))
        await asyncio.sleep(0.01)
        assert (errors, replicas.visited, cache.image) == ([], 1, loader.image)
        counts.append(run)
    assert counts[1] <= 1.1 * counts[0] + 20, counts


def test_a_wide_topic_shares_all_but_the_piece_that_changed() -> None:
    before = updated({}, dict.fromkeys(range(LARGE), "a"))
    after = updated(before, {1234: "b"})
    assert isinstance(before, PartitionTable)
    assert isinstance(after, PartitionTable)
    changed = [number for number in before._pieces if before._pieces[number] is not after._pieces[number]]
    assert changed == [1234 >> 8]
    assert (before[1234], after[1234], before.get(LARGE)) == ("a", "b", None)
    assert list(after) == list(range(LARGE))
    assert after == {number: "b" if number == 1234 else "a" for number in range(LARGE)}


def test_the_form_of_a_table_follows_from_its_size_alone() -> None:
    plain = updated({}, {number: number for number in range(PLAIN_MAX)})
    grown = updated(plain, {PLAIN_MAX: PLAIN_MAX})
    at_once = updated({}, {number: number for number in reversed(range(PLAIN_MAX + 1))})
    assert (type(plain), type(grown), type(at_once)) == (dict, PartitionTable, PartitionTable)
    assert grown == at_once
    assert plain == dict(enumerate(range(PLAIN_MAX)))
    sparse = updated(grown, {2**31 - 1: 7})
    assert (len(sparse), sparse[2**31 - 1], max(sparse)) == (PLAIN_MAX + 2, 7, 2**31 - 1)


def test_the_index_follows_topics_that_come_and_go() -> None:
    cluster = DecidedCluster().start_brokers(1, 2, 3)
    cluster.create("a.b", [1, 2], [2, 3])
    cluster.create("wide", *([[1, 2, 3]] * (PLAIN_MAX + 5)))
    check_index(cluster.image.topics)
    refused = cluster.do(CreateTopics(topics=(CreatableTopic(name="a_b", partition_count=1, replication_factor=1),)))
    assert refused.topics[0].error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    both = tuple(CreatableTopic(name=name, assignments={0: (BrokerId(1),)}) for name in ("c.d", "c_d"))
    assert [topic.error is None for topic in cluster.do(CreateTopics(topics=both)).topics] == [True, False]
    cluster.fence(2)
    check_index(cluster.image.topics)
    assert len(cluster.image.topics.index.unsettled) == 2 + PLAIN_MAX + 5
    cluster.heartbeat(2)
    check_index(cluster.image.topics)


def test_a_topic_record_alone_changes_no_count() -> None:
    cluster = DecidedCluster()
    image = cluster.controller.replayed([TopicRecord(name="t.x", topic_id=uuid(77))], timestamp_ms=0)
    assert image.topics.index.partition_count == 0
    check_index(image.topics)
