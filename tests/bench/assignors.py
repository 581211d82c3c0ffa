"""CPU time of the assignors of consumer groups: `python -m tests.bench.assignors [--members 100] [--partitions 10000]`.

May touch:  the assignors.            Must not touch: sockets, files.
Invariants: each row is a first assignment, and one more after a member joined, of the same group.
Read next:  barnabas_coordination/group/consumer/assignor/.
"""

from __future__ import annotations

import argparse
import time

from barnabas_coordination.group.consumer.assignor.subscribers import Assignor, Subscriber, Subscribers, Targets, run
from barnabas_coordination.group.consumer.target import ASSIGNORS
from barnabas_wire.kafka.ids import Uuid

GOAL_MS = 100
RACKS = ("a", "b", "c")
"""Of members and replicas, in turn."""


def _group(members: int, topics: int, each: int, former: Targets, *, is_alike: bool) -> Subscribers:
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(topics)]
    counts = dict.fromkeys(ids, each)
    found = []
    for number in range(members):
        name = f"member-{number:05}"
        wanted = frozenset(
            ids if is_alike else (t for index, t in enumerate(ids) if topics == 1 or (index + number) % 3)
        )
        rack = RACKS[number % 3]
        found.append(Subscriber(member_id=name, rack_id=rack, topics=wanted, target=former.get(name, {})))
    replicas = [frozenset((RACKS[index % 3], RACKS[index // 3 % 3])) for index in range(each)]
    racks = dict.fromkeys(ids, replicas)
    return Subscribers(members=found, partition_counts=counts, partition_racks=racks)


def _cpu_ms(assignor: Assignor, group: Subscribers) -> tuple[float, Targets]:
    before = time.process_time()
    targets = run(assignor(group))
    return (time.process_time() - before) * 1000, targets


def main() -> None:
    """Print a table; the goal is not asserted."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.assignors", description=__doc__)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    print(f"{options.members} members, {options.partitions} partitions; ms of CPU, goal {GOAL_MS}")
    print(f"{'assignor':12} {'topics':>6} {'subscribe':>10} {'first':>8} {'one more':>8}")
    for name, assignor in ASSIGNORS.items():
        for topics in (1, 100, 1_000):
            for is_alike in (True, False):
                each = options.partitions // topics
                first_ms, targets = _cpu_ms(assignor, _group(options.members, topics, each, {}, is_alike=is_alike))
                again = _group(options.members + 1, topics, each, targets, is_alike=is_alike)
                more_ms, _ = _cpu_ms(assignor, again)
                what = "alike" if is_alike else "differently"
                print(f"{name:12} {topics:6} {what:>10} {first_ms:8.1f} {more_ms:8.1f}")


if __name__ == "__main__":
    main()
