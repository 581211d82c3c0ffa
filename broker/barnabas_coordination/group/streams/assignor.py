"""The sticky assignor: each task is active in one member, and has copies in other processes.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: every task is active exactly once; a process has a task once at most; each stateful task has min(replicas, processes - 1)
            standbys; the counts of active tasks of two members differ by one at most; equal input gives equal output, in whatever order
            it comes.
Read next:  target.py, the user; KIP-1071.

As Kafka's of that name: an active task stays where it is, else goes where a copy is, else to the least loaded; a standby goes where the
task was active, stays where it is, or goes to the least loaded process. Where Kafka's leaves a standby out in some corners, and lets
quotas of members drift, this one does not: members have an exact share, and a standby always finds a process. No warm-up tasks are made
and no racks are looked at, as in Kafka 4.4.

Not obvious: a target that is whole is kept as it is, for as long as the members, their processes, the tasks and the number of replicas
are the same. Only so does a bump of the epoch for another reason move nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import field
from heapq import heapify, heappop, heappush
from typing import Final

from barnabas_coordination.group.streams.tasks import Task, Tasks
from barnabas_wire.lazy_dataclass import dataclass

TASKS_BEFORE_GIVING_WAY: Final = 1_000
"""Tasks placed between two turns given to others: under 5 ms."""

Targets = dict[str, Tasks]
Assigning = Generator[None, None, Targets]
"""Gives way now and then; returns what each member is to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMember:
    """A member as the assignor sees it."""

    member_id: str
    process_id: str
    target: Tasks | None = None
    """What it was to have; None for a newcomer."""
    offsets: Mapping[Task, int] = field(default_factory=dict)
    """How far its stores are, for tasks of which it has something on disk."""


def assign(
    members: Iterable[TaskMember], *, task_counts: Mapping[str, int], stateful: Iterable[str], replicas: int
) -> Assigning:
    """What each member is to have.

    Args:
        task_counts: subtopology -> tasks.
        stateful: subtopologies whose tasks have stores, and so standbys.
        replicas: standbys of each such task; fewer where there are fewer other processes.
    """
    placing = _Placing(sorted(members, key=lambda member: member.member_id))
    tasks = [Task(name, number) for name, count in task_counts.items() for number in range(count)]
    tasks.sort(key=lambda task: (task.partition, task.subtopology))
    kept_copies = frozenset(stateful)
    copies = min(replicas, len(placing.processes) - 1)
    with_copies = [task for task in tasks if task.subtopology in kept_copies] if copies > 0 else []
    if placing.is_whole(tasks, with_copies, copies):
        return placing.targets()
    placing.begin()
    yield from placing.place_active(tasks)
    yield from placing.place_standby(list(reversed(with_copies)), copies)
    return placing.targets()


class _Placing:
    """One assignment in the making."""

    def __init__(self, members: list[TaskMember]) -> None:
        self.members = {member.member_id: member for member in members}
        self.processes: dict[str, list[str]] = defaultdict(list)
        for member in members:
            self.processes[member.process_id].append(member.member_id)
        self.was_active: dict[Task, str] = {}
        self.was_copied: dict[Task, list[str]] = defaultdict(list)
        self.active: dict[Task, str] = {}
        self.standby: dict[Task, list[str]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        """Tasks of each member."""
        self.loads: Counter[str] = Counter()
        """Tasks of each process."""
        for member in members:
            for task in () if member.target is None else member.target.active:
                self.was_active[task] = member.member_id
            for task in () if member.target is None else member.target.standby | member.target.warmup:
                self.was_copied[task].append(member.member_id)

    # ---- what was ------------------------------------------------------------------------------------------------

    def is_whole(self, tasks: list[Task], with_copies: list[Task], copies: int) -> bool:
        """Whether the former targets are what an assignment of these tasks to these members can be. They are taken over if so."""
        found = [member.target for member in self.members.values()]
        targets = [target for target in found if target is not None and not target.warmup]
        if len(targets) != len(found) or sum(len(target.active) for target in targets) != len(tasks):
            return False
        sizes = [len(target.active) for target in targets]
        if sizes and max(sizes) - min(sizes) > 1:
            return False
        if sum(len(target.standby) for target in targets) != len(with_copies) * copies:
            return False
        if self.was_active.keys() != set(tasks):
            return False
        for task in with_copies:
            holders = [self.was_active[task], *self.was_copied.get(task, ())]
            if len({self.members[each].process_id for each in holders}) != copies + 1 or len(holders) != copies + 1:
                return False
        self.active = dict(self.was_active)
        self.standby.update(self.was_copied)
        return True

    def targets(self) -> Targets:
        """What each member is to have."""
        active: dict[str, set[Task]] = defaultdict(set)
        standby: dict[str, set[Task]] = defaultdict(set)
        for task, member_id in self.active.items():
            active[member_id].add(task)
        for task, holders in self.standby.items():
            for member_id in holders:
                standby[member_id].add(task)
        return {name: Tasks(frozenset(active.get(name, ())), frozenset(standby.get(name, ()))) for name in self.members}

    # ---- active tasks --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The members' order among equals: the first of each process before the second of any."""
        nth = {name: place for names in self.processes.values() for place, name in enumerate(names)}
        self.order = {name: (nth[name], self.members[name].process_id, name) for name in self.members}
        self.by_progress: dict[Task, list[tuple[int, str]]] = defaultdict(list)
        for member in self.members.values():
            for task, offset in member.offsets.items():
                self.by_progress[task].append((offset, member.member_id))

    def place_active(self, tasks: list[Task]) -> Generator[None, None, None]:
        """Each where it was, else where a copy of it is, else where least is to be done."""
        share, self.extra = divmod(len(tasks), len(self.members))
        self.share = share
        over: list[Task] = []
        left: list[Task] = []
        for number, task in enumerate(tasks):
            if number % TASKS_BEFORE_GIVING_WAY == TASKS_BEFORE_GIVING_WAY - 1:
                yield
            owner = self.was_active.get(task)
            if owner is None:
                left.append(task)
            elif self.counts[owner] < share:
                self._work(task, owner)
            else:
                over.append(task)
        for task in over:
            owner = self.was_active[task]
            if self._has_room(owner):
                self._work(task, owner)
            else:
                left.append(task)
        rest: list[Task] = []
        for task in sorted(left, key=lambda task: (task.partition, task.subtopology)):
            near = self._nearest(task)
            if near is None:
                rest.append(task)
            else:
                self._work(task, near)
        heap = [(self.counts[name], order, name) for name, order in self.order.items()]
        heapify(heap)
        for number, task in enumerate(sorted(rest)):
            if number % TASKS_BEFORE_GIVING_WAY == TASKS_BEFORE_GIVING_WAY - 1:
                yield
            _, order, name = heappop(heap)
            self._work(task, name)
            heappush(heap, (self.counts[name], order, name))

    def _has_room(self, member_id: str) -> bool:
        count = self.counts[member_id]
        return count < self.share or (count == self.share and self.extra > 0)

    def _work(self, task: Task, member_id: str) -> None:
        if self.counts[member_id] == self.share:
            self.extra -= 1
        self.active[task] = member_id
        self._load(member_id)

    def _load(self, member_id: str) -> None:
        self.counts[member_id] += 1
        self.loads[self.members[member_id].process_id] += 1

    def _nearest(self, task: Task) -> str | None:
        """The member with room that has most of the task's stores: one with a copy first."""
        copied = [name for name in self.was_copied.get(task, ()) if self._has_room(name)]
        if copied:
            return min(copied, key=lambda name: (-self.members[name].offsets.get(task, 0), self._rank(name)))
        found = [(offset, name) for offset, name in self.by_progress.get(task, ()) if self._has_room(name)]
        return min(found, key=lambda each: (-each[0], self._rank(each[1])))[1] if found else None

    def _rank(self, member_id: str) -> tuple[float, int, tuple[int, str, str]]:
        process_id = self.members[member_id].process_id
        load = self.loads[process_id] / len(self.processes[process_id])
        return load, self.counts[member_id], self.order[member_id]

    # ---- standbys ------------------------------------------------------------------------------------------------

    def place_standby(self, tasks: list[Task], copies: int) -> Generator[None, None, None]:
        """Each where it was active, else where it was, as long as that is not too much; the rest where least is to be done."""
        if not tasks:
            return
        quota = -(-(len(self.active) + len(tasks) * copies) // len(self.members))
        heap = [self._process_rank(process_id) for process_id in self.processes]
        heapify(heap)
        for number, task in enumerate(tasks):
            if number % TASKS_BEFORE_GIVING_WAY == TASKS_BEFORE_GIVING_WAY - 1:
                yield
            used = {self.members[self.active[task]].process_id}
            preferred = [*filter(None, (self.was_active.get(task),)), *sorted(self.was_copied.get(task, ()))]
            for name in preferred:
                process_id = self.members[name].process_id
                if len(used) <= copies and process_id not in used and self.counts[name] < quota:
                    self._copy(task, name, used, heap)
            aside = []
            while len(used) <= copies:
                found = heappop(heap)
                process_id = found[1]
                if found != self._process_rank(process_id):
                    continue  # it has got something since
                if process_id in used:
                    aside.append(found)
                    continue
                least = min(self.processes[process_id], key=lambda name: (self.counts[name], self.order[name]))
                self._copy(task, least, used, heap)
            for found in aside:
                heappush(heap, found)

    def _copy(self, task: Task, member_id: str, used: set[str], heap: list[tuple[float, str]]) -> None:
        process_id = self.members[member_id].process_id
        self.standby[task].append(member_id)
        used.add(process_id)
        self._load(member_id)
        heappush(heap, self._process_rank(process_id))

    def _process_rank(self, process_id: str) -> tuple[float, str]:
        return self.loads[process_id] / len(self.processes[process_id]), process_id
