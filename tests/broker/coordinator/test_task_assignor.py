"""The sticky assignor of tasks: its laws for whatever groups there are, and what moves when a group changes."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.group.streams.assignor import Targets, TaskMember, assign
from barnabas_coordination.group.streams.tasks import Task, Tasks

COUNTS = st.dictionaries(st.sampled_from("0123"), st.integers(1, 7), min_size=1)


def run(
    members: list[TaskMember], counts: dict[str, int], stateful: frozenset[str] = frozenset(), replicas: int = 0
) -> Targets:
    assigning = assign(members, task_counts=counts, stateful=stateful, replicas=replicas)
    while True:
        try:
            next(assigning)
        except StopIteration as done:
            targets: Targets = done.value
            return targets


def check(
    members: list[TaskMember], targets: Targets, counts: dict[str, int], stateful: frozenset[str], replicas: int
) -> None:
    """Law 42."""
    tasks = [Task(name, number) for name, count in counts.items() for number in range(count)]
    process = {member.member_id: member.process_id for member in members}
    assert targets.keys() == process.keys()
    active = {task: name for name, target in targets.items() for task in target.active}
    assert sorted(task for target in targets.values() for task in target.active) == sorted(tasks)
    sizes = [len(target.active) for target in targets.values()]
    assert max(sizes) - min(sizes) <= 1
    copies = min(replicas, len(set(process.values())) - 1)
    for task in tasks:
        holders = [name for name, target in targets.items() if task in target.standby]
        assert len(holders) == (copies if task.subtopology in stateful else 0)
        assert len({process[name] for name in (*holders, active[task])}) == len(holders) + 1
    assert not any(target.warmup for target in targets.values())
    assert {task for target in targets.values() for role in target for task in role} <= set(tasks)


@st.composite
def groups(draw: st.DrawFn) -> list[TaskMember]:
    processes = draw(st.lists(st.sampled_from("pqrs"), min_size=1, max_size=8))
    return [TaskMember(member_id=f"m{number}", process_id=name) for number, name in enumerate(processes)]


@settings(max_examples=150, deadline=None)
@given(groups(), COUNTS, st.sets(st.sampled_from("0123")), st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_laws_hold_while_members_come_and_go(
    members: list[TaskMember], counts: dict[str, int], kept: set[str], replicas: int, random: Random
) -> None:
    stateful = frozenset(kept)
    targets = run(members, counts, stateful, replicas)
    check(members, targets, counts, stateful, replicas)
    for number in range(4):
        members = [replace(member, target=targets.get(member.member_id)) for member in members]
        assert run(members, counts, stateful, replicas) == targets, "nothing changed, so nothing moves"
        if random.random() < 0.5 and len(members) > 1:
            members.pop(random.randrange(len(members)))
        else:
            members.append(TaskMember(member_id=f"n{number}", process_id=random.choice("pqrst")))
        mixed = random.sample(members, len(members))
        before = targets
        targets = run(members, counts, stateful, replicas)
        assert run(mixed, counts, stateful, replicas) == targets, "in whatever order they come"
        check(members, targets, counts, stateful, replicas)
        share = sum(counts.values()) // len(members)
        for member in members:
            had = before.get(member.member_id, Tasks()).active
            if len(had) <= share:
                assert had <= targets[member.member_id].active, "who has no more than its share keeps it all"


def test_the_one_that_reports_the_most_progress_gets_a_task_that_nobody_had() -> None:
    behind, ahead = (
        TaskMember(member_id=name, process_id=name, offsets={Task("0", 0): offset, Task("0", 1): offset})
        for name, offset in (("a", 10), ("b", 90))
    )
    targets = run([behind, ahead], {"0": 2})
    assert targets["b"].active == {Task("0", 0)}


def test_a_large_group_gives_way_and_takes_little() -> None:
    members = [TaskMember(member_id=f"m{number:03}", process_id=f"p{number % 50:02}") for number in range(100)]
    counts = {str(part): 1_000 for part in range(10)}
    began = time.process_time()
    assigning = assign(members, task_counts=counts, stateful=counts, replicas=1)
    slices = 0
    while True:
        try:
            next(assigning)
            slices += 1
        except StopIteration as done:
            targets: Targets = done.value
            break
    took_s = time.process_time() - began
    assert slices >= 20
    check(members, targets, counts, frozenset(counts), 1)
    print(f"10,000 tasks with a standby each for 100 members: {took_s * 1000:.0f} ms of CPU, {slices} slices")
