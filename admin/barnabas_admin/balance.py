"""Where replicas and leaders should be: the plan that evens brokers out, as a pure function.

May touch:  its arguments.            Must not touch: the cluster, the clock, printing.
Invariants: a partition keeps its number of replicas, each on another broker, and never loses a rack or a host; nothing goes to a
            broker that may not receive; what is even already stays where it is, so that a plan of a plan is empty.
Read next:  commands/balance.py, which prints it and carries it out.

Five aims, each sought only as far as it spoils none before it:
1. racks: a partition spreads over as many racks as it has replicas, where there are so many;
2. hosts: two of its replicas share one only where no other is left that keeps its racks;
3. replicas: brokers differ by one at most. From the fullest to the emptiest broker, one at a time, is the fewest moves there can
   be: each move takes one from a surplus and fills one gap;
4. bytes: pairs of replicas change places while the fullest broker has more than `BYTES_TOLERANCE` above the mean;
5. preferred leaders: brokers differ by one at most where their replicas allow it. To put another replica first copies nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from barnabas_admin.errors import AdminError
from barnabas_wire.lazy_dataclass import dataclass

Partition = tuple[str, int]
Placement = dict[Partition, tuple[int, ...]]
"""(topic, partition) -> replicas, preferred leader first."""

BYTES_TOLERANCE = 0.10
"""How far above the mean the fullest broker may be before replicas change places for their size alone."""
SWAPS_MAX = 10_000
"""A plan ends after so many exchanges for size; each makes brokers more even, so that many are a big cluster's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one broker holds."""

    broker: int
    replicas: int
    leaders: int
    """Partitions whose first replica it has."""
    size_bytes: int


def loads_of(placement: Mapping[Partition, Sequence[int]], sizes: Mapping[Partition, int]) -> dict[int, Load]:
    """The load of every broker that holds something, by broker."""
    held = Counter(broker for replicas in placement.values() for broker in replicas)
    led = Counter(replicas[0] for replicas in placement.values())
    taken: Counter[int] = Counter()
    for name, replicas in placement.items():
        for broker in replicas:
            taken[broker] += sizes.get(name, 0)
    return {
        broker: Load(broker=broker, replicas=held[broker], leaders=led[broker], size_bytes=taken[broker])
        for broker in sorted(held)
    }


def plan_balance(
    present: Mapping[Partition, Sequence[int]],
    *,
    racks: Mapping[int, str | None],
    sizes: Mapping[Partition, int],
    hosts: Mapping[int, str | None] | None = None,
    leaving: Collection[int] = (),
    led_by_nobody: Collection[int] = (),
) -> Placement:
    """The replicas of every partition that should change; the others stay as they are.

    Args:
        present: each partition's replicas.
        racks: the brokers that may receive replicas, with their racks. What others hold stays there, unless they leave.
        sizes: bytes of one replica of each partition; one that is missing counts as empty.
        hosts: of brokers, those that receive nothing too; without one a broker is a host of its own. Brokers of a host are lost together.
        leaving: brokers that must hold nothing in the end.
        led_by_nobody: brokers that hold replicas and shall lead nothing (they are in maintenance).

    Raises AdminError when a partition on a leaving broker has nowhere to go.
    """
    plan = _Plan(present, {b: rack for b, rack in racks.items() if b not in leaving}, sizes, hosts or {})
    plan.leave(frozenset(leaving))
    plan.spread_racks()
    plan.spread_hosts()
    plan.even_replicas()
    plan.even_bytes()
    plan.even_leaders(frozenset(led_by_nobody))
    return {name: tuple(now) for name, now in plan.placement.items() if tuple(now) != tuple(present[name])}


def plan_departure(
    present: Mapping[Partition, Sequence[int]],
    *,
    leaving: Collection[int],
    racks: Mapping[int, str | None],
    sizes: Mapping[Partition, int],
    hosts: Mapping[int, str | None] | None = None,
) -> Placement:
    """What takes everything off these brokers and moves nothing else: each replica goes to the emptiest broker that spreads its
    partition over most racks and hosts. Arguments and errors as those of plan_balance."""
    plan = _Plan(present, {b: rack for b, rack in racks.items() if b not in leaving}, sizes, hosts or {})
    plan.leave(frozenset(leaving))
    return {name: tuple(now) for name, now in plan.placement.items() if tuple(now) != tuple(present[name])}


def copied_bytes(
    present: Mapping[Partition, Sequence[int]],
    planned: Mapping[Partition, Sequence[int]],
    sizes: Mapping[Partition, int],
) -> int:
    """What a plan copies over the network: a replica's size for each broker that is new to a partition."""
    return sum(
        sizes.get(name, 0) * len(set(replicas) - set(present.get(name, ()))) for name, replicas in planned.items()
    )


class _Plan:
    """A placement that is being changed, with what each receiving broker has of it."""

    def __init__(
        self,
        present: Mapping[Partition, Sequence[int]],
        racks: Mapping[int, str | None],
        sizes: Mapping[Partition, int],
        hosts: Mapping[int, str | None],
    ) -> None:
        self.placement = {name: list(present[name]) for name in sorted(present)}
        self._racks = racks
        self._hosts = hosts
        self._sizes = sizes
        self._on: dict[int, set[Partition]] = {broker: set() for broker in sorted(racks)}
        self._bytes = dict.fromkeys(self._on, 0)
        self._topics: Counter[tuple[int, str]] = Counter()
        for name, replicas in self.placement.items():
            for broker in replicas:
                self._add(name, broker)

    def leave(self, leaving: frozenset[int]) -> None:
        """Everything off these brokers."""
        for name, replicas in self.placement.items():
            for broker in [each for each in replicas if each in leaving]:
                free = [each for each in self._on if each not in replicas]
                if not free:
                    raise AdminError(
                        f"{name[0]}:{name[1]} has {len(replicas)} replicas and no broker is left to take the one of broker {broker}",
                        hint="add a broker, or give the topic fewer replicas with "
                        f"`barnabas topic reassign plan {name[0]} -r {len(replicas) - 1}`",
                    )
                self._move(name, broker, min(free, key=lambda to: self._preference(name, broker, to)))

    def spread_racks(self) -> None:
        """Replicas that share a rack go where none is, while there is such a rack."""
        for name, replicas in self.placement.items():
            for _ in range(len(replicas)):
                doubled = [b for b in replicas if b in self._on and self._shares_rack(replicas, b)]
                known = {self._racks[b] for b in replicas if b in self._on}
                free = [b for b in self._on if b not in replicas and self._racks[b] not in known]
                if not doubled or not free or None in known:
                    break
                source = max(doubled, key=lambda b: (len(self._on[b]), -replicas.index(b)))
                self._move(name, source, min(free, key=lambda to: self._preference(name, source, to)))

    def spread_hosts(self) -> None:
        """Replicas that share a host go where none is, while there is such a host and no rack is lost by it."""
        for name, replicas in self.placement.items():
            for _ in range(len(replicas)):
                used = Counter(map(self._host, replicas))
                ways = [
                    (source, target)
                    for source in replicas
                    if source in self._on and used[self._host(source)] > 1
                    for target in self._on
                    if not used[self._host(target)] and self._keeps_apart(name, source, target)
                ]
                if not ways:
                    break
                source, target = min(
                    ways,
                    key=lambda way: (-len(self._on[way[0]]), -replicas.index(way[0]), self._preference(name, *way)),
                )
                self._move(name, source, target)

    def even_replicas(self) -> None:
        """From the fullest to the emptiest, while they differ by more than one."""
        while True:
            for source, target in self._uneven_pairs():
                ideal = max(0, (self._bytes[source] - self._bytes[target]) // 2)
                chosen = self._movable(source, target, ideal)
                if chosen is not None:
                    self._move(chosen, source, target)
                    break
            else:
                return

    def even_bytes(self) -> None:
        """Exchanges between the fullest broker and others, while it is above the tolerance and one makes it better."""
        for _ in range(SWAPS_MAX):
            if len(self._on) < 2 or not any(self._bytes.values()):
                return
            mean = sum(self._bytes.values()) / len(self._bytes)
            fullest = max(self._on, key=lambda b: (self._bytes[b], -b))
            if self._bytes[fullest] <= mean * (1 + BYTES_TOLERANCE) or not self._improve(fullest):
                return

    def even_leaders(self, led_by_nobody: frozenset[int]) -> None:
        """Put other replicas first along the shortest path from a broker with most leaderships to one with fewer by two."""
        for replicas in self.placement.values():
            able = [b for b in replicas if b not in led_by_nobody]
            if able and replicas[0] in led_by_nobody:
                _put_first(replicas, able[0])
        led: dict[int, set[Partition]] = {broker: set() for broker in self._on if broker not in led_by_nobody}
        for name, replicas in self.placement.items():
            if replicas[0] in led:
                led[replicas[0]].add(name)
        while any(self._hand_over(source, led) for source in sorted(led, key=lambda b: (-len(led[b]), b))):
            pass

    def _hand_over(self, source: int, led: dict[int, set[Partition]]) -> bool:
        """One leadership less for `source`, if some broker with fewer by two can be reached over partitions."""
        came_from: dict[int, tuple[int, Partition]] = {}
        waiting = deque([source])
        while waiting:
            broker = waiting.popleft()
            if len(led[broker]) <= len(led[source]) - 2:
                while broker != source:
                    before, name = came_from[broker]
                    _put_first(self.placement[name], broker)
                    led[before].remove(name)
                    led[broker].add(name)
                    broker = before
                return True
            for name in sorted(led[broker]):
                for other in self.placement[name]:
                    if other in led and other != source and other not in came_from:
                        came_from[other] = (broker, name)
                        waiting.append(other)
        return False

    def _uneven_pairs(self) -> Iterable[tuple[int, int]]:
        by_count = sorted(self._on, key=lambda b: (len(self._on[b]), self._bytes[b], b))
        for source in reversed(by_count):
            for target in by_count:
                if len(self._on[source]) - len(self._on[target]) < 2:
                    break
                yield source, target

    def _movable(self, source: int, target: int, ideal_bytes: int) -> Partition | None:
        """What should go from one broker to another: of the topic of which the source has most more, and of the size wanted."""
        fit = [n for n in self._on[source] - self._on[target] if self._keeps_apart(n, source, target)]
        return min(
            fit,
            default=None,
            key=lambda n: (
                self._topics[target, n[0]] - self._topics[source, n[0]],
                abs(self._sizes.get(n, 0) - ideal_bytes),
                n,
            ),
        )

    def _improve(self, fullest: int) -> bool:
        """The best exchange, or move where counts allow one, between the fullest broker and another; False when none helps."""
        best: tuple[int, int, Partition, Partition | None] | None = None
        size = self._sizes.get
        for target in self._on:
            gap = self._bytes[fullest] - self._bytes[target]
            coming: list[tuple[int, Partition | None]] = sorted(
                (size(name, 0), name)
                for name in self._on[target] - self._on[fullest]
                if self._keeps_apart(name, target, fullest)
            )
            if len(self._on[fullest]) > len(self._on[target]):
                coming.insert(0, (0, None))
            for out in self._on[fullest] - self._on[target] if gap and coming else ():
                if not self._keeps_apart(out, fullest, target):
                    continue
                ideal = size(out, 0) - gap // 2
                at = bisect_left(coming, ideal, key=lambda item: item[0])
                for back_size, back in coming[max(0, at - 1) : at + 1]:
                    moved = size(out, 0) - back_size
                    gain = gap // 2 - abs(gap // 2 - moved)
                    if gain > 0 and (best is None or (gain, out) > (best[0], best[2])):
                        best = (gain, target, out, back)
        if best is None:
            return False
        _, target, out, back = best
        self._move(out, fullest, target)
        if back is not None:
            self._move(back, target, fullest)
        return True

    def _keeps_apart(self, name: Partition, source: int, target: int) -> bool:
        """Whether the partition is on no fewer racks and hosts after the move. A broker without one is one of its own."""
        replicas = self.placement[name]
        after = [target if b == source else b for b in replicas]
        return self._rack_count(after) >= self._rack_count(replicas) and self._host_count(after) >= self._host_count(
            replicas
        )

    def _rack_count(self, replicas: Iterable[int]) -> int:
        return len({self._racks.get(b) or f"broker {b}" for b in replicas})

    def _host_count(self, replicas: Iterable[int]) -> int:
        return len(set(map(self._host, replicas)))

    def _host(self, broker: int) -> str | int:
        return self._hosts.get(broker) or broker

    def _shares_rack(self, replicas: Sequence[int], broker: int) -> bool:
        rack = self._racks[broker]
        return rack is not None and any(b != broker and self._racks.get(b) == rack for b in replicas)

    def _preference(self, name: Partition, source: int, target: int) -> tuple[int, int, int, int, int, int]:
        after = [target if b == source else b for b in self.placement[name]]
        return (
            -self._rack_count(after),
            -self._host_count(after),
            len(self._on[target]),
            self._topics[target, name[0]],
            self._bytes[target],
            target,
        )

    def _move(self, name: Partition, source: int, target: int) -> None:
        replicas = self.placement[name]
        replicas[replicas.index(source)] = target
        if source in self._on:
            self._on[source].remove(name)
            self._bytes[source] -= self._sizes.get(name, 0)
            self._topics[source, name[0]] -= 1
        self._add(name, target)

    def _add(self, name: Partition, broker: int) -> None:
        if broker in self._on:
            self._on[broker].add(name)
            self._bytes[broker] += self._sizes.get(name, 0)
            self._topics[broker, name[0]] += 1


def _put_first(replicas: list[int], broker: int) -> None:
    replicas.remove(broker)
    replicas.insert(0, broker)
