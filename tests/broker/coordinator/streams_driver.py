"""One shard with Streams groups, members that keep to the protocol, and the laws that hold at every point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from barnabas_coordination.group.led_records import JOINS, LEAVES, LEAVES_FOR_A_WHILE
from barnabas_coordination.group.streams.group import StreamsGroup, StreamsGroupState
from barnabas_coordination.group.streams.messages import StreamsHeartbeat, StreamsHeartbeatOutcome
from barnabas_coordination.group.streams.records import Endpoint
from barnabas_coordination.group.streams.tasks import NO_TASKS, Role, Task, Tasks
from barnabas_coordination.group.streams.topology import InternalTopic, Subtopology, Topology
from barnabas_coordination.shard import CoordinatorResult, Ticket
from tests.broker.coordinator.consumer_driver import INTERVAL_MS, TIMEOUT_MS, ConsumerDriver
from tests.broker.coordinator.group_driver import GROUP

COUNTS = Topology(
    0,
    (
        Subtopology(
            subtopology_id="0",
            source_topics=("lines",),
            repartition_sinks=("app-words",),
        ),
        Subtopology(
            subtopology_id="1",
            changelogs=(InternalTopic("app-counts", configs=(("cleanup.policy", "compact"),)),),
            repartition_sources=(InternalTopic("app-words"),),
        ),
    ),
)
"""Lines are split into words, and words are counted."""
INTERNAL = {"app-words": 2, "app-counts": 2}


class StreamsDriver(ConsumerDriver):
    """A ConsumerDriver whose Streams groups are checked after every step."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        at_once = {"group_streams_assignment_interval_ms": 0, "group_streams_initial_rebalance_delay_ms": 0}
        super().__init__({"lines": 2} | INTERNAL if topics is None else topics, **at_once | config)

    @property
    def streams(self) -> StreamsGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    def perform(self, result: CoordinatorResult) -> None:
        super().perform(result)
        for group in self.shard.groups.values():
            if isinstance(group, StreamsGroup):
                check_group(group)
                former = self.epochs.get(group.group_id, (0, 0))
                assert (group.epoch, group.assignment_epoch) >= former
                self.epochs[group.group_id] = (group.epoch, group.assignment_epoch)

    def pulse(self, member_id: str, epoch: int, *, group: str = GROUP, **named: Any) -> Ticket:
        """StreamsGroupHeartbeat."""
        request = StreamsHeartbeat(
            group_id=group, member_id=member_id, epoch=epoch, client_id="client", client_host="/127.0.0.1", **named
        )
        return self.step(lambda ticket: self.shard.streams_heartbeat(request, ticket, now_ms=self.now_ms))

    def answered(self, ticket: Ticket) -> StreamsHeartbeatOutcome:
        """The answer of a heartbeat that succeeded."""
        outcome = self.outcome(ticket)
        assert isinstance(outcome, StreamsHeartbeatOutcome), outcome
        return outcome

    def settle_streams(self, members: Iterable[Worker], rounds: int = 12) -> None:
        """Let everyone beat until nothing changes, a round each interval."""
        everyone = list(members)
        for _ in range(rounds):
            self.advance(INTERVAL_MS)
            before = len(self.log)
            for member in everyone:
                member.beat()
            if len(self.log) == before and not any(member.is_behind for member in everyone):
                return
        raise AssertionError("they do not come to rest")


class Worker:
    """A member that keeps to the protocol: it gives up at once what it is not told any more, and says so."""

    def __init__(
        self,
        driver: StreamsDriver,
        member_id: str,
        *,
        process: str | None = None,
        topology: Topology = COUNTS,
        instance: str | None = None,
        endpoint: Endpoint | None = None,
        tags: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.process = process or f"process-{member_id}"
        self.topology = topology
        self.instance = instance
        self.endpoint = endpoint
        self.tags = tags
        self.epoch = JOINS
        self.endpoint_epoch = -1
        self.tasks: Tasks = NO_TASKS
        self.is_behind = True

    def join(self) -> StreamsHeartbeatOutcome:
        """With everything a member says at first."""
        self.tasks, self.epoch, self.endpoint_epoch = NO_TASKS, JOINS, -1
        return self._hear(
            self.driver.pulse(
                self.member_id,
                JOINS,
                instance_id=self.instance,
                rebalance_timeout_ms=TIMEOUT_MS,
                topology=self.topology,
                owned=NO_TASKS,
                process_id=self.process,
                endpoint=self.endpoint,
                client_tags=self.tags,
            )
        )

    def beat(self, **named: Any) -> StreamsHeartbeatOutcome:
        """The next heartbeat, with what changed."""
        owned = {"owned": self.tasks} if self.is_behind else {}
        self.is_behind = False
        return self._hear(
            self.driver.pulse(
                self.member_id,
                self.epoch,
                **{"endpoint_epoch": self.endpoint_epoch, "instance_id": self.instance} | owned | named,
            )
        )

    def leave(self, **named: Any) -> StreamsHeartbeatOutcome:
        return self.driver.answered(self.driver.pulse(self.member_id, LEAVES, instance_id=self.instance, **named))

    def leave_for_a_while(self) -> StreamsHeartbeatOutcome:
        return self.driver.answered(self.driver.pulse(self.member_id, LEAVES_FOR_A_WHILE, instance_id=self.instance))

    def _hear(self, ticket: Ticket) -> StreamsHeartbeatOutcome:
        outcome = self.driver.answered(ticket)
        assert outcome.epoch >= self.epoch, "an answer's epoch is never behind"
        self.epoch = outcome.epoch
        self.endpoint_epoch = outcome.endpoint_epoch
        if outcome.tasks is not None:
            self.is_behind = self.is_behind or outcome.tasks != self.tasks
            self.tasks = outcome.tasks
        return outcome


def check_group(group: StreamsGroup) -> None:
    """Laws 1, 3, 65 to 69 of a Streams group, and that its indexes are those of its members."""
    assert group.assignment_epoch <= group.epoch
    if not group.members:
        assert group.assignment_epoch == group.epoch, "an empty group has the targets of its epoch"
    active: dict[Task, str] = {}
    processes: dict[tuple[Task, str], str] = {}
    holders: dict[Task, set[tuple[str, Role]]] = defaultdict(set)
    for name, member in group.members.items():
        assert member.epoch <= group.assignment_epoch
        assert member.is_revoking == bool(member.pending.tasks)
        for held in (member.assigned, member.pending):
            for role, task in held.by_role():
                holders[task].add((name, role))
                assert processes.setdefault((task, member.process_id), name) == name, "two of a process have it"
                if role is Role.ACTIVE:
                    assert task not in active, "two work on it"
                    active[task] = name
                    assert held.active[task] <= max(member.epoch, 0)
        assert not member.assigned.active.keys() & (member.assigned.standby | member.assigned.warmup)
        if member.metadata.instance_id is not None:
            assert group.static_members[member.metadata.instance_id] == name
    assert holders == group.holders
    if group.state is StreamsGroupState.NOT_READY and group.epoch == group.assignment_epoch:
        assert not any(group.targets.values()), "who is not ready has nothing to do"
    copied = group.copy()
    for attribute in ("holders", "bytes", "state", "static_members"):
        assert getattr(copied, attribute) == getattr(group, attribute), attribute
