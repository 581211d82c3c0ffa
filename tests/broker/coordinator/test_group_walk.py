"""Random walks: clients join, sync, commit, crash and come back; coordinators fail over; the laws of groups hold throughout.

G1  no partition is assigned to two members in one generation
G2  generations only grow, in the log and within a coordinator's life
G3  an offset is taken only from a current member, or while nobody is in the group
G4  an assignment is for exactly the members of its generation, and covers every partition
G5  left alone, the group comes to rest: every request is answered, every member is gone
and: the log read from its start gives the state that is live; what was committed is never lost.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from barnabas_coordination.errors import CoordinatorNotAvailable, MemberIdRequired
from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.messages import JoinOutcome, SyncOutcome
from barnabas_coordination.group.records import GroupMetadataRecord, OffsetValue
from barnabas_coordination.group.shard import GroupShard
from barnabas_coordination.group.states import GroupState
from barnabas_coordination.shard import Ticket
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from tests.broker.coordinator.group_driver import GROUP, TOPIC, GroupDriver, classic, subscription

PARTITIONS = 4
STEPS = 500
SEEDS = 40


@dataclass
class Client:
    """A consumer as the coordinator sees it. It remembers what it was told and acts on it."""

    name: str
    instance: str | None
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    members: tuple[str, ...] = ()
    parked: Ticket | None = None
    wants: str = "join"
    """What it does next: join, sync, or live (heartbeat and commit)."""


class Walk:
    """One seeded history of one group."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = GroupDriver(
            group_initial_rebalance_delay_ms=self.random.choice([0, 3_000]),
            offsets_retention_minutes=60 * 24,
        )
        self.driver.on_answer = self.on_answer
        self.driver.perform(self.driver.shard.on_loaded(now_ms=self.driver.now_ms))
        self.clients = [Client(f"c{n}", self.random.choice([None, None, f"i{n}"])) for n in range(4)]
        self.waiting: dict[Ticket, tuple[Client, str]] = {}
        self.group: ClassicGroup | None = None
        self.generation = 0
        self.acknowledged: dict[TopicPartition, int] = {}
        self.commits: dict[Ticket, tuple[TopicPartition, int]] = {}
        self.next_offset = 0
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> who was told to own it; an instance stays the same owner under another member id."""
        self.tombstones = 0
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(STEPS):
            self.act()
            self.check()
        self.driver.refuses = None
        self.driver.holds_commits = False
        self.driver.commit()
        self.driver.advance(1_000_000)
        self.check()
        assert not self.driver.open, f"unanswered for ever: {self.driver.open}"  # G5
        group = classic(self.driver.shard).get(GROUP)
        assert group is None or group.state is GroupState.EMPTY

    def act(self) -> None:
        driver = self.driver
        if driver.holds_commits and self.random.random() < 0.2:
            driver.holds_commits = False
            driver.commit()
        if driver.refuses is not None and self.random.random() < 0.3:
            driver.refuses = None
        actions = {
            "client": 88,
            "time": 8,
            "hold": 2,
            "refuse": 1,
            "crash": 1,
            "fail over": 0.7,
            "leave": 0.4,
            "admin": 0.2,
        }
        match self.random.choices(list(actions), list(actions.values()))[0]:
            case "client":
                self.client_acts(self.random.choice(self.clients))
            case "time":
                driver.advance(self.random.choices([100, 1_000, 3_000, 11_000, 61_000], [4, 4, 8, 1, 0.3])[0])
            case "fail over":
                driver.fail_over(loses_uncommitted=self.random.random() < 0.5)
                driver.refuses = None
                driver.holds_commits = False
            case "hold":
                driver.holds_commits = True
            case "refuse":
                driver.refuses = CoordinatorNotAvailable()
            case "leave":
                client = self.random.choice(self.clients)
                driver.leave((client.member_id, client.instance))
                self.restart(client)
            case "crash":
                client = self.random.choice(self.clients)
                if client.parked is not None and self.random.random() < 0.5:
                    self.waiting.pop(client.parked)
                    driver.abandon(client.parked)
                self.restart(client)
            case "admin":
                driver.step(lambda ticket: driver.shard.delete_group(GROUP, ticket, now_ms=driver.now_ms))

    def restart(self, client: Client) -> None:
        client.member_id, client.generation, client.parked, client.wants = "", -1, None, "join"

    def client_acts(self, client: Client) -> None:
        if client.parked is not None:
            return
        driver = self.driver
        if client.wants == "join":
            topics = subscription(TOPIC, *self.random.choice([(), (), ("weather",)]))
            self.park(
                client, "join", driver.join(client.member_id, instance=client.instance, protocols=(("range", topics),))
            )
        elif client.wants == "sync":
            assignments = None
            if client.is_leader:
                hands: dict[str, list[int]] = {member_id: [] for member_id in client.members}
                for partition in range(PARTITIONS):
                    hands[client.members[partition % len(client.members)]].append(partition)
                assignments = {member_id: bytes(hand) for member_id, hand in hands.items()}
            self.park(
                client,
                "sync",
                driver.sync(client.member_id, client.generation, assignments, instance=client.instance),
            )
        elif self.random.random() < 0.5:
            ticket = driver.heartbeat(client.member_id, client.generation, instance=client.instance)
            self.park(client, "heartbeat", ticket)
        else:
            self.commit(client)

    def commit(self, client: Client) -> None:
        """G3, judged before the step: would the group's own books allow it?"""
        group = classic(self.driver.shard).get(GROUP)
        stale = self.random.random() < 0.1
        generation = client.generation - 1 if stale else client.generation
        is_current = (
            group is not None
            and client.member_id in group.members
            and generation == group.generation
            and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        )
        key = TopicPartition(TOPIC, self.random.randrange(PARTITIONS))
        self.next_offset += 1
        logged = len(self.driver.log)
        ticket = self.driver.commit_offset(
            self.next_offset,
            partition=key.partition,
            member_id=client.member_id,
            generation=generation,
            instance=client.instance,
        )
        was_taken = len(self.driver.log) > logged
        assert not was_taken or is_current, f"{client} committed as a stranger"
        assert was_taken or not is_current or self.driver.refuses is not None
        self.counts["commits"] += was_taken
        if ticket in self.driver.answers:
            if was_taken and self.driver.code(ticket) is ErrorCode.NONE:
                self.acknowledged[key] = max(self.acknowledged.get(key, -1), self.next_offset)
        else:
            self.commits[ticket] = (key, self.next_offset)

    def park(self, client: Client, what: str, ticket: Ticket) -> None:
        if ticket in self.driver.answers:
            self.tell(client, what, self.driver.answers[ticket])
        else:
            client.parked = ticket
            self.waiting[ticket] = (client, what)

    def on_answer(self, ticket: Ticket, outcome: object) -> None:
        if ticket in self.commits:
            key, offset = self.commits.pop(ticket)
            if not isinstance(outcome, KafkaError):
                self.acknowledged[key] = max(self.acknowledged.get(key, -1), offset)
        if ticket in self.waiting:
            client, what = self.waiting.pop(ticket)
            if client.parked == ticket:
                client.parked = None
                self.tell(client, what, outcome)

    def tell(self, client: Client, what: str, outcome: object) -> None:
        if isinstance(outcome, JoinOutcome):
            client.member_id, client.generation = outcome.member_id, outcome.generation
            client.is_leader = bool(outcome.members) and not outcome.skip_assignment
            client.members = tuple(member.member_id for member in outcome.members)
            client.wants = "sync"
            self.counts["joins"] += 1
        elif isinstance(outcome, SyncOutcome):
            for partition in outcome.assignment:
                owner = client.instance or client.member_id
                assert self.owners.setdefault((client.generation, partition), owner) == owner  # G1
            client.wants = "live"
            self.counts["syncs"] += 1
        elif isinstance(outcome, MemberIdRequired):
            client.member_id = outcome.member_id
        elif isinstance(outcome, KafkaError):
            if outcome.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""
            if what != "heartbeat" or outcome.code is not ErrorCode.NOT_COORDINATOR:
                client.wants = "join"

    def check(self) -> None:
        driver = self.driver
        group = classic(driver.shard).get(GROUP)
        if group is not None:
            assert group is not self.group or group.generation >= self.generation  # G2
            self.group, self.generation = group, group.generation
        generation = 0
        for record in driver.log:
            if not isinstance(record, GroupMetadataRecord):
                continue
            if record.value is None:
                generation = 0
                continue
            assert record.value.generation >= generation  # G2
            generation = record.value.generation
            if record.value.members:
                owned = Counter(partition for member in record.value.members for partition in member.assignment)
                assert owned == dict.fromkeys(range(PARTITIONS), 1)  # G1, G4
        assert_same_durable_state(driver.shard, driver.reload())
        tombstones = driver.log.count(GroupMetadataRecord(GROUP, None))
        if tombstones != self.tombstones:  # the group was deleted: generations start over
            self.tombstones = tombstones
            self.owners.clear()
        for key, offset in self.acknowledged.items():
            found = driver.shard.offsets.fetch(GROUP, key).offset
            assert found >= offset or GroupMetadataRecord(GROUP, None) in driver.log, f"{key}: {offset} was lost"


def assert_same_durable_state(live: GroupShard, reloaded: GroupShard) -> None:
    """Offsets are the same; a group that is stable is the same, with its members and assignments."""
    assert latest_offsets(live) == latest_offsets(reloaded)
    for group_id, group in classic(live).items():
        if group.state is GroupState.STABLE:
            assert generation_of(group) == generation_of(classic(reloaded)[group_id])


def latest_offsets(shard: GroupShard) -> dict[str, dict[TopicPartition, OffsetValue | None]]:
    found = {}
    for group_id, offsets in shard.offsets.by_group.items():
        latest = dict(offsets.committed) | {key: queue[-1] for key, queue in offsets.uncommitted.items()}
        found[group_id] = {key: latest[key] for key in offsets.latest()}
    return {group_id: latest for group_id, latest in found.items() if latest}


def generation_of(group: ClassicGroup) -> object:
    members = [(member.member_id, member.instance_id, member.assignment) for member in group.members.values()]
    return group.generation, group.protocol, group.leader_id, group.state, group.topics, members


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_laws_of_groups_hold_in_a_random_walk(seed: int) -> None:
    Walk(seed).run()


def test_the_walks_are_not_void() -> None:
    total: Counter[str] = Counter()
    for seed in range(10):
        walk = Walk(seed)
        walk.run()
        total += walk.counts
    assert total["joins"] > 100
    assert total["syncs"] > 100
    assert total["commits"] > 100
