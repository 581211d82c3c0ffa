"""CPU for each MB of one host with 1 to 16 brokers: the same requests, the same load for each partition.

May touch:  a host under test, its sockets.      Must not touch: broker code.
Invariants: each broker leads PARTITIONS partitions of each row, with the same bytes and the same window; CPU is that of all brokers where
            all are written to, and of the one that is read from; what they take at rest is measured beside it.
Read next:  cluster.py; ../blaster.py.

Work and rest. n brokers on this machine's few cores take n times as long for n times the bytes, and rest n-fold meanwhile; with a core
for each they would not. So what a row costs beyond the rest of its brokers is the *work* for a MB, and a broker that has a core of its own
spends work / (1 - rest) of that core's time on a MB, its rest (in cores) included. That figure is compared from step to step. What is
measured without a correction stands beside it.

Side by side. The fewest brokers that have room for the replicas run all the time, and take their turn right before or after the many: what
else runs on the machine, and how the host shares it out, changes within a minute. A ratio is the median of the pairs' own.

Apart. Several brokers keep every core of this machine busy, one does not, and a core whose neighbour is busy does less for its time. With
`is_apart` the other side is as many clusters of one broker each, which share the machine in the same way and nothing else.

The sum for sixteen cores is worked out, not measured: it leaves out clients (they have other machines), the network, the memory's
bandwidth and the disk.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

from tests.bench.blaster import Blast, Target, blast, drain, settle
from tests.bench.frames import KIB, MIB, Load, make_produce
from tests.bench.hosts.cluster import HOST, Hosts
from tests.bench.machine import MemoryAtHand, cpu_s

STEPS = (2, 4, 8, 16)
"""Each beside one broker, or three where there are three replicas."""
PARTITIONS = 3
"""How many partitions of a row each broker leads."""
REST_S = 5.0
SETTLE_S = 3.0
RUNS_AT_LEAST = 8
"""Partitions that a row writes at least, in runs one after another: one broker alone would be done in no time."""
READS = 5
"""How often each partition is read, one after another: the first read finds a broker that was idle meanwhile."""
RATIO_MAX = 1.1
REPLICAS = 3
CORES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One kind of load."""

    name: str
    load: Load
    partition_bytes: int
    window: int
    replicas: int = 1
    is_fetched: bool = False
    """Whether reading it back is measured, not writing it."""


ROWS = (
    CostRow(name="produce, RF 1, 16 KiB", load=Load(KIB, 16 * KIB), partition_bytes=20_000_000, window=64),
    CostRow(name="produce, RF 1, 1 MiB", load=Load(KIB, MIB), partition_bytes=20_000_000, window=4),
    CostRow(name="small requests, RF 1, 1 KiB", load=Load(100, KIB), partition_bytes=1_500_000, window=64),
    CostRow(name="fetch, 1 MiB", load=Load(KIB, MIB), partition_bytes=20_000_000, window=4, is_fetched=True),
    CostRow(
        name="produce, RF 3, 16 KiB", load=Load(KIB, 16 * KIB), partition_bytes=8_000_000, window=64, replicas=REPLICAS
    ),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """One row on one host, once."""

    brokers: int
    cpu_ms_per_mb: float
    """As it was."""
    work_ms_per_mb: float
    """Without the rest of the brokers."""
    rest: float
    """Cores that one broker takes at rest."""
    mb_per_s: float
    """What all brokers took in together, on this machine's cores."""

    @property
    def own_core_ms_per_mb(self) -> float:
        """CPU for a MB, in ms, of a broker that has a core to itself."""
        return self.work_ms_per_mb / (1 - self.rest)


def assignment(ids: Sequence[int], *, replicas: int, partitions: int = PARTITIONS) -> list[list[int]]:
    """Replicas of each partition: every broker leads as many, and follows as many others as it can."""
    count = len(ids)
    found = []
    for leader in range(count):
        for number in range(partitions):
            others = [(number * (replicas - 1) + step) % max(1, count - 1) + 1 for step in range(replicas - 1)]
            found.append([ids[leader], *(ids[(leader + other) % count] for other in others)])
    return found


class Pair(NamedTuple):
    """The same row on the fewest brokers and on many, one right after the other."""

    few: Cost
    many: Cost


@dataclass(slots=True)
class Costs:
    """What the rounds have said."""

    found: dict[str, dict[int, list[Pair]]] = field(default_factory=dict)
    """By row and number of brokers."""

    def add(self, row: str, brokers: int, pair: Pair) -> None:
        """Keep one."""
        self.found.setdefault(row, {}).setdefault(brokers, []).append(pair)

    def ratios(self, row: str, brokers: int) -> list[float]:
        """The ratio of CPU for a MB, many brokers to one, in each pair of runs, ascending."""
        return sorted(pair.many.own_core_ms_per_mb / pair.few.own_core_ms_per_mb for pair in self.found[row][brokers])

    def missed(self) -> Iterator[str]:
        """Rows and steps beyond RATIO_MAX."""
        for row, steps in self.found.items():
            for brokers in steps:
                if (ratio := statistics.median(self.ratios(row, brokers))) > RATIO_MAX:
                    yield f"{row}, {brokers} brokers: {ratio:.2f} times the CPU for a MB (at most {RATIO_MAX})"

    def table(self) -> str:
        """For docs/performance.md."""
        lines = [
            "| row | brokers | CPU ms/MB, with rest | of it work | on a core of its own | ratio | MB/s here | "
            f"{CORES} cores, worked out: MB/s |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row, steps in self.found.items():
            beside: dict[int, list[Cost]] = {}
            for pair in chain(*steps.values()):
                beside.setdefault(pair.few.brokers, []).append(pair.few)
            lines += [_line(row, costs, "") for costs in beside.values()]
            for brokers, pairs in sorted(steps.items()):
                ratios = self.ratios(row, brokers)
                words = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
                lines.append(_line(row, [pair.many for pair in pairs], words))
        return "\n".join(lines)

    def as_json(self) -> Mapping[str, object]:
        """All pairs."""
        return {
            row: {
                str(brokers): [
                    {
                        "ratio": many.own_core_ms_per_mb / few.own_core_ms_per_mb,
                        "few": asdict(few),
                        "many": asdict(many),
                    }
                    for few, many in pairs
                ]
                for brokers, pairs in steps.items()
            }
            for row, steps in self.found.items()
        }


def _line(row: str, costs: Sequence[Cost], ratio: str) -> str:
    def median(figure: str) -> float:
        return statistics.median(getattr(cost, figure) for cost in costs)

    cells = [
        row,
        str(costs[0].brokers),
        f"{median('cpu_ms_per_mb'):.3f}",
        f"{median('work_ms_per_mb'):.3f}",
        f"{median('own_core_ms_per_mb'):.3f}",
        ratio,
        f"{median('mb_per_s'):,.0f}",
        f"{CORES * 1000 / median('own_core_ms_per_mb'):,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def measure(rounds: int, steps: Sequence[int], rows: Sequence[CostRow], *, is_apart: bool = False) -> Costs:
    """All of it. is_apart: beside as many clusters of one broker each, in rows with one replica; else beside the fewest brokers."""
    costs = Costs()
    for brokers in steps:
        with ExitStack() as running:

            def start(clusters: int, brokers: int, running: ExitStack = running) -> list[Hosts]:
                return [running.enter_context(Hosts([brokers])) for _ in range(clusters)]

            many = start(1, brokers)
            beside = {1: start(brokers, 1)} if is_apart else {1: start(1, 1), REPLICAS: start(1, REPLICAS)}
            rests = {id(each): rest_of(each[0]) for each in (many, *beside.values())}
            for number in range(rounds):
                for row in rows:
                    few = beside.get(row.replicas)
                    if few is None or (not is_apart and brokers <= row.replicas):
                        continue
                    turns = (many, few) if number % 2 else (few, many)
                    seen = {id(each): _measure_row(each, row, rests[id(each)]) for each in turns}
                    pair = Pair(seen[id(few)], seen[id(many)])
                    costs.add(row.name, brokers, pair)
                    print(_said(row, number, pair), flush=True)
    return costs


def _said(row: CostRow, number: int, pair: Pair) -> str:
    words = "; ".join(
        f"{cost.brokers:2} brokers {cost.cpu_ms_per_mb:7.3f} ms/MB, work {cost.work_ms_per_mb:7.3f}, {cost.mb_per_s:5.0f} MB/s"
        for cost in pair
    )
    ratio = pair.many.own_core_ms_per_mb / pair.few.own_core_ms_per_mb
    return f"round {number + 1}  {row.name:28} {words}; ratio {ratio:.2f}"


def rest_of(hosts: Hosts) -> float:
    """Cores that one broker takes while nothing happens, the mean of all."""
    time.sleep(SETTLE_S)
    pids = hosts.pids("broker")
    before, began = cpu_s(pids), time.perf_counter()
    time.sleep(REST_S)
    return (cpu_s(pids) - before) / (time.perf_counter() - began) / len(pids)


def _measure_row(clusters: Sequence[Hosts], row: CostRow, rest: float) -> Cost:
    pids = [pid for hosts in clusters for pid in hosts.pids("broker")]
    cpu, rested, seconds, size_bytes = 0.0, 0.0, 0.0, 0
    for _ in range(max(1, RUNS_AT_LEAST // (PARTITIONS * len(pids)))):
        topics, targets, reads = [], [], []
        for hosts in clusters:
            replicas = assignment(hosts.broker_ids, replicas=row.replicas)
            topics.append(topic := hosts.create(replicas))
            for index, (leader, *_) in enumerate(replicas):
                target = Target(HOST, hosts.kafka_port(leader), make_produce(row.load, topic, index, acks=-1))
                targets.append(target)
                reads.append(([hosts.pid_of(leader)], partial(_read, target, topic, index)))
        settle(targets)
        frame = targets[0].frame
        each = row.partition_bytes // frame.value_bytes
        with MemoryAtHand(clusters[0].directory, each * len(targets) * frame.batch_bytes * row.replicas):
            runs = [_timed(pids, partial(blast, targets, requests=each * len(targets), window=row.window))]
        if row.is_fetched:
            runs = [_timed(read_from, partial(read, each)) for read_from, read in reads for _ in range(READS)]
        counted = 1 if row.is_fetched else len(pids)
        for used, result in runs:
            cpu += used
            rested += rest * counted * result.seconds
            seconds += result.seconds
            size_bytes += result.bytes
        for hosts, topic in zip(clusters, topics, strict=True):
            hosts.delete(topic)
    megabytes = size_bytes / 1e6
    return Cost(len(pids), cpu * 1e3 / megabytes, (cpu - rested) * 1e3 / megabytes, rest, megabytes / seconds)


def _timed(pids: Sequence[int], work: Callable[[], Blast]) -> tuple[float, Blast]:
    """CPU seconds of the processes meanwhile, and what came of it."""
    before = cpu_s(pids)
    result = work()
    return cpu_s(pids) - before, result


def _read(target: Target, topic: str, partition: int, requests: int) -> Blast:
    frame = target.frame
    return drain(
        target.host,
        target.port,
        topic,
        partition,
        end_offset=(requests + 1) * frame.record_count,  # one settled it
        max_bytes=MIB,
        batch=(frame.batch_bytes, frame.record_count),
        values_share=frame.value_bytes / frame.batch_bytes,
    )
