"""Interprets scripts about one group, `g`: members of the consumer protocol (KIP-848), cooperative ones of the classic protocol, those of
a share group (KIP-932), and those of Streams (KIP-1071), whose application counts words: subtopology 0 reads lines and writes app-words, 1
reads that and keeps app-counts.

Commands (M names a member):
  topic NAME N              the topic has N partitions from now on
  interval MS               least time between two assignments; 0 at first
  policy NAME               group.consumer.migration.policy
  join M TOPIC… [regex=R] [static=I] [assignor=A]     a member of the consumer protocol joins
  beat M…                   heartbeats; who was told to give something up has given it up by the next one
  stuck M                   a heartbeat of who does not say what it owns
  leave M / away M          it leaves, for good or as a static member that will be back
  found M                   M is the one member of a classic group, and has all of flights
  classic M                 a member of the classic protocol joins a consumer group, for flights, and syncs
  alive M…                  its heartbeats; it joins and syncs again when it is told to
  commit M EPOCH P…         offsets of partitions of the first topic
  streams M [process=P] [static=I] [epoch=N] [endpoint=H]    a member of the application joins; N: of its topology
  pulse M…                  heartbeats of such members, which give up what they are not told any more by the next one
  make                      the internal topics that the last answer named are made
  standbys N / delay MS     group.streams.num.standby.replicas, group.streams.initial.rebalance.delay.ms; 0 at first
  shares M TOPIC…           a member of a share group joins
  sharing M…                heartbeats of such members
  coordinators lost|found   share coordinators do not answer any more / answer
  alter TOPIC P=OFFSET…     where the share group is to begin
  forget TOPIC… / delete    the share group forgets topics / is deleted
  shutdown M                it asks for the end of the application
  wait MS                   time passes, timers fire
  refuse / accept           appends fail for want of in-sync replicas / work again
  failover                  another broker reads the log
  show                      the group, and who has what
Records are printed when they are appended, answers when they leave. Partitions are TOPIC-N.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import HeartbeatOutcome
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from barnabas_coordination.group.records import GroupMetadataRecord
from barnabas_coordination.group.share.group import ShareGroup
from barnabas_coordination.group.share.records import (
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
)
from barnabas_coordination.group.streams.group import StreamsGroup
from barnabas_coordination.group.streams.messages import StreamsHeartbeatOutcome
from barnabas_coordination.group.streams.records import (
    Endpoint,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
)
from barnabas_coordination.group.streams.tasks import Role, Tasks
from barnabas_coordination.group.streams.topology import InternalTopic, Topology
from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Uuid
from tests.broker.coordinator.consumer_driver import Consumer, ConsumerDriver
from tests.broker.coordinator.group_driver import DELAY_MS, GROUP, TOPIC
from tests.broker.coordinator.share_driver import ShareDriver, Sharer
from tests.broker.coordinator.streams_driver import COUNTS, StreamsDriver, Worker
from tests.broker.coordinator.test_group_migration import Cooperative, assignment, subscription
from tests.scenarios.runner import Scenario

START_MS = 1_000_000


class _Printing(ShareDriver, StreamsDriver):
    """Says which records it appends."""

    def __init__(self, printed: list[str]) -> None:
        self.printed = printed
        self.shown = 0
        super().__init__({})

    def perform(self, result: CoordinatorResult) -> None:
        super().perform(result)
        self.printed += [f"  {_record(self, record)}" for record in self.log[self.shown :]]
        self.shown = len(self.log)


class GroupScenario(Scenario):
    """One shard, its log, and a clock that stands still."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.driver = _Printing(self.printed)
        self.topics: dict[str, int] = {}
        self.members: dict[str, Consumer] = {}
        self.classic: dict[str, Cooperative] = {}
        self.workers: dict[str, Worker] = {}
        self.sharers: dict[str, Sharer] = {}
        self.to_create: tuple[InternalTopic, ...] = ()

    def run(self, command: str) -> list[str]:
        """One line."""
        self.printed.clear()
        verb, *words = command.split()
        getattr(self, f"_do_{verb}")(*words)
        return list(self.printed)

    # ---- the world

    def _do_topic(self, name: str, count: str) -> None:
        self.topics[name] = int(count)
        self.driver.set_topics(self.topics)

    def _do_interval(self, interval_ms: str) -> None:
        self._configure(group_consumer_assignment_interval_ms=int(interval_ms))

    def _do_standbys(self, count: str) -> None:
        self._configure(group_streams_num_standby_replicas=int(count))

    def _do_delay(self, delay_ms: str) -> None:
        self._configure(group_streams_initial_rebalance_delay_ms=int(delay_ms))

    def _do_policy(self, name: str) -> None:
        self._configure(group_consumer_migration_policy=name)

    def _configure(self, **changed: Any) -> None:
        self.driver.config = replace(self.driver.config, **changed)
        self.driver.shard = self.driver.reload()

    def _do_wait(self, delay_ms: str) -> None:
        self.driver.advance(int(delay_ms))

    def _do_refuse(self) -> None:
        self.driver.refuses = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _do_accept(self) -> None:
        self.driver.refuses = None

    def _do_failover(self) -> None:
        self.driver.fail_over(loses_uncommitted=False)

    # ---- members of the application

    def _do_streams(self, name: str, *words: str) -> None:
        named = dict(word.split("=", 1) for word in words)
        self.workers[name] = Worker(
            self.driver,
            name,
            process=named.get("process"),
            topology=Topology(int(named.get("epoch", "0")), COUNTS.subtopologies),
            instance=named.get("static"),
            endpoint=Endpoint(named["endpoint"], 80) if "endpoint" in named else None,
        )
        self._told(name, self.workers[name].join)

    def _do_pulse(self, *names: str) -> None:
        for name in names:
            self._told(name, self.workers[name].beat)

    def _do_shutdown(self, name: str) -> None:
        self._told(name, lambda: self.workers[name].beat(shuts_down=True))

    def _do_make(self) -> None:
        for topic in self.to_create:
            self._do_topic(topic.name, str(topic.partitions))
            self.printed.append(f"made {topic.name} with {topic.partitions} partitions")

    def _told(self, name: str, request: Any) -> None:
        try:
            outcome: StreamsHeartbeatOutcome = request()
        except KafkaError as error:
            self.printed.append(f"{name}: {error.code.name}")
            return
        self.to_create = outcome.to_create
        told = "" if outcome.tasks is None else f", has {_tasks(outcome.tasks)}"
        self.printed.append(f"{name}: epoch {outcome.epoch}{told}")
        self.printed += [f"{name}: {status.code.name}: {status.detail}" for status in outcome.statuses]
        for each in outcome.endpoints or ():
            read = " ".join(f"{topic}-{n}" for topic, numbers in each.active.items() for n in numbers)
            self.printed.append(f"{name}: {each.endpoint.host} reads {read or 'nothing'}")

    # ---- members of a share group

    def _do_shares(self, name: str, *topics: str) -> None:
        self.sharers[name] = Sharer(self.driver, name, *topics)
        self._heard(name, self.sharers[name].join)

    def _do_sharing(self, *names: str) -> None:
        for name in names:
            self._heard(name, self.sharers[name].beat)

    def _do_coordinators(self, are: str) -> None:
        lost = KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no share coordinator")
        self.driver.persister.fails = lambda call, key: lost if are == "lost" else None

    def _do_alter(self, topic: str, *starts: str) -> None:
        wanted = {f"p{number}": int(offset) for number, offset in (start.split("=") for start in starts)}
        self._asked(self.driver.alter(topic, **wanted))

    def _do_forget(self, *topics: str) -> None:
        self._asked(self.driver.forget(*topics))

    def _do_delete(self) -> None:
        self._asked(self.driver.delete())

    def _asked(self, ticket: Ticket) -> None:
        outcome = self.driver.answers.get(ticket)
        if isinstance(outcome, Mapping):
            outcome = next((error for error in outcome.values() if error is not None), None)
        self.printed.append(outcome.code.name if isinstance(outcome, KafkaError) else "done")

    # ---- members

    def _do_join(self, name: str, *words: str) -> None:
        named = dict(word.split("=", 1) for word in words if "=" in word)
        topics = [word for word in words if "=" not in word]
        self.members[name] = Consumer(
            self.driver,
            name,
            *topics,
            regex=named.get("regex"),
            instance=named.get("static"),
            assignor=named.get("assignor"),
        )
        self._heard(name, self.members[name].join)

    def _do_beat(self, *names: str) -> None:
        for name in names:
            self._heard(name, self.members[name].beat)

    def _do_stuck(self, name: str) -> None:
        member = self.members[name]
        member.is_behind = False
        self._heard(name, member.beat)

    def _do_leave(self, name: str) -> None:
        if name in self.workers:
            self._told(name, self.workers[name].leave)
            return
        if name in self.classic:
            member = self.classic.pop(name)
            self.driver.outcome(self.driver.leave((member.member_id, None)))
            self.printed.append(f"{name}: left")
            return
        leaving = self.sharers if name in self.sharers else self.members
        self._heard(name, leaving[name].leave)

    def _do_away(self, name: str) -> None:
        if name in self.workers:
            self._told(name, self.workers[name].leave_for_a_while)
            return
        self._heard(name, self.members[name].leave_for_a_while)

    def _heard(self, name: str, request: Any) -> None:
        try:
            outcome: HeartbeatOutcome = request()
        except KafkaError as error:
            self.printed.append(f"{name}: {error.code.name}")
            return
        told = "" if outcome.assignment is None else f", has {_partitions(self.driver, outcome.assignment)}"
        self.printed.append(f"{name}: epoch {outcome.epoch}{told}")

    def _do_found(self, name: str) -> None:
        driver = self.driver
        joined = driver.join(protocols=(("cooperative", subscription([])),), version=3)
        driver.advance(DELAY_MS)
        member_id = driver.joined(joined).member_id
        held = list(range(self.topics[TOPIC]))
        driver.sync(member_id, 1, {member_id: assignment(*held)})
        self.classic[name] = Cooperative(driver, member_id).take(1, held)

    def _do_classic(self, name: str) -> None:
        self.classic[name] = Cooperative(self.driver, name)
        self._rejoin(name)

    def _do_alive(self, *names: str) -> None:
        for name in names:
            member = self.classic[name]
            code = self.driver.code(self.driver.heartbeat(member.member_id, member.generation))
            self.printed.append(f"{name}: {code.name}")
            if code is ErrorCode.REBALANCE_IN_PROGRESS or member.is_behind:
                self._rejoin(name)

    def _rejoin(self, name: str) -> None:
        member = self.classic[name]
        try:
            member.join(version=9)
        except (KafkaError, KeyError) as refusal:
            code = refusal.code.name if isinstance(refusal, KafkaError) else "waits for the others"
            self.printed.append(f"{name}: {code}")
            return
        self.printed.append(
            f"{name}: generation {member.generation}, has {' '.join(map(str, member.numbers())) or 'nothing'}"
        )

    def _do_commit(self, name: str, epoch: str, *partitions: str) -> None:
        topic = next(iter(self.topics))
        code = self.driver.commit_by_epoch(name, int(epoch), *map(int, partitions), topic=topic)
        self.printed.append(f"{name}: {code.name}")

    def _do_show(self) -> None:
        group = self.driver.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            self.printed.append(f"{group!r}: {' '.join(group.members)}")
        elif isinstance(group, ConsumerGroup):
            self.printed.append(repr(group))
            for name, member in sorted(group.members.items()):
                pending = f", gives up {_partitions(self.driver, member.pending)}" if member.pending else ""
                kind = " (classic)" if member.is_classic else ""
                has = _partitions(self.driver, member.assigned)
                self.printed.append(f"{name}{kind}: epoch {member.epoch} {member.state.name}, has {has}{pending}")
        elif isinstance(group, ShareGroup):
            self.printed.append(repr(group))
            for name, sharer in sorted(group.members.items()):
                self.printed.append(f"{name}: epoch {sharer.epoch}, has {_partitions(self.driver, sharer.assigned)}")
            for key, kept in sorted(self.driver.persister.kept.items()):
                topic = self.driver.image.topics.get_by_id(key.topic_id)
                name = "gone" if topic is None else topic.name
                self.printed.append(
                    f"{name}-{key.partition}: state epoch {kept.state_epoch}, begins at {kept.start_offset}"
                )
        elif isinstance(group, StreamsGroup):
            self.printed.append(repr(group))
            for name, worker in sorted(group.members.items()):
                pending = f", gives up {_tasks(worker.pending.tasks)}" if worker.pending.tasks else ""
                has = _tasks(worker.assigned.tasks)
                self.printed.append(f"{name}: epoch {worker.epoch} {worker.state.name}, has {has}{pending}")
        else:
            self.printed.append("no group")


def _tasks(tasks: Tasks) -> str:
    found = []
    for role in Role:
        named = " ".join(f"{name}_{number}" for name, number in sorted(tasks[role]))
        if named:
            found.append(named if role is Role.ACTIVE else f"{role.name.lower()} {named}")
    return ", ".join(found) or "nothing"


def _partitions(driver: ConsumerDriver, held: Mapping[Uuid, Iterable[int]]) -> str:
    names = {topic.id: name for name in driver.topics if (topic := driver.image.topics.get(name)) is not None}
    found = sorted((names.get(topic_id, "gone"), number) for topic_id, of in held.items() for number in of)
    return " ".join(f"{name}-{number}" for name, number in found) or "nothing"


def _record(driver: ConsumerDriver, record: Any) -> str:
    match record:
        case ConsumerGroupMetadataRecord(_, value):
            return "3 group gone" if value is None else f"3 group epoch {value.epoch}"
        case ConsumerGroupMemberMetadataRecord(_, name, said):
            return f"5 {name} gone" if said is None else f"5 {name} subscribes"
        case ConsumerGroupTargetAssignmentMetadataRecord(_, value):
            if value is None:
                return "6 targets gone"
            since = f" at {value.timestamp_ms - START_MS}" if value.timestamp_ms else ""
            return f"6 targets of epoch {value.epoch}{since}"
        case ConsumerGroupTargetAssignmentMemberRecord(_, name, target):
            return f"7 {name} gone" if target is None else f"7 {name} is to have {_partitions(driver, target)}"
        case ConsumerGroupCurrentMemberAssignmentRecord(_, name, value):
            if value is None:
                return f"8 {name} gone"
            pending = f", gives up {_partitions(driver, value.pending)}" if value.pending else ""
            has = _partitions(driver, value.assigned)
            return f"8 {name} epoch {value.epoch} {value.state.name}, has {has}{pending}"
        case ConsumerGroupRegularExpressionRecord(_, regex, resolved):
            return (
                f"16 {regex} unused" if resolved is None else f"16 {regex} is {' '.join(resolved.topics) or 'nothing'}"
            )
        case ShareGroupMemberMetadataRecord(_, name, said):
            return f"10 {name} gone" if said is None else f"10 {name} subscribes"
        case ShareGroupMetadataRecord(_, value):
            return "11 group gone" if value is None else f"11 group epoch {value.epoch}"
        case ShareGroupTargetAssignmentMetadataRecord(_, value):
            return "12 targets gone" if value is None else f"12 targets of epoch {value.epoch}"
        case ShareGroupTargetAssignmentMemberRecord(_, name, target):
            return f"13 {name} gone" if target is None else f"13 {name} is to have {_partitions(driver, target)}"
        case ShareGroupCurrentMemberAssignmentRecord(_, name, value):
            if value is None:
                return f"14 {name} gone"
            return f"14 {name} epoch {value.epoch}, has {_partitions(driver, value.assigned)}"
        case ShareGroupStatePartitionMetadataRecord(_, states):
            if states is None:
                return "15 states gone"
            beginning = _partitions(driver, {each: of.starts for each, of in states.beginning.items()})
            begun = _partitions(driver, {each: of.partitions for each, of in states.begun.items()})
            ending = " ".join(states.ending.values()) or "nothing"
            return f"15 begins {beginning}, has begun {begun}, forgets {ending}"
        case StreamsGroupMetadataRecord(_, value):
            if value is None:
                return "17 group gone"
            ready = (
                "" if value.validated_topology_epoch < 0 else f", topology {value.validated_topology_epoch} is ready"
            )
            return f"17 group epoch {value.epoch}{ready}"
        case StreamsGroupMemberMetadataRecord(_, name, said):
            return f"19 {name} gone" if said is None else f"19 {name} of {said.process_id}"
        case StreamsGroupTargetAssignmentMetadataRecord(_, value):
            if value is None:
                return "20 targets gone"
            since = f" at {value.timestamp_ms - START_MS}" if value.timestamp_ms else ""
            return f"20 targets of epoch {value.epoch}{since}"
        case StreamsGroupTargetAssignmentMemberRecord(_, name, target):
            return f"21 {name} gone" if target is None else f"21 {name} is to have {_tasks(target)}"
        case StreamsGroupCurrentMemberAssignmentRecord(_, name, value):
            if value is None:
                return f"22 {name} gone"
            pending = f", gives up {_tasks(value.pending.tasks)}" if value.pending.tasks else ""
            return f"22 {name} epoch {value.epoch} {value.state.name}, has {_tasks(value.assigned.tasks)}{pending}"
        case StreamsGroupTopologyRecord(_, topology):
            return "23 topology gone" if topology is None else f"23 topology {topology.epoch}"
        case GroupMetadataRecord(_, value):
            return "2 gone" if value is None else f"2 generation {value.generation} of {len(value.members)}"
    return f"1 {record.topic}-{record.partition}"
