"""`python -m tests.simulation.sweep --budget 10m`: random seeds of all simulations on all cores until the CPU time is used up.

May touch:  the terminal, processes of its own.      Must not touch: anything else.
Invariants: all seeds follow from the start that is printed; one seed in a hundred runs a second time in another process under
            another PYTHONHASHSEED, and a different trace hash is a failure; exit status 1 when a law breaks or a hash differs, 2
            when too few events came of it or too many runs were void.
Read next:  raft.py, controllers.py, cluster.py, share.py, which are run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, NamedTuple

from barnabas_simulation import cluster
from barnabas_simulation.fault_list import FaultList
from barnabas_simulation.swarm import Slant
from barnabas_wire.error_groups import first_error
from tests.simulation import controllers, node_seeds, raft, share
from tests.simulation.raft_simulator import HASH_MASK, Simulation
from tests.simulation.share_simulator import ShareSimulation
from tests.simulation.shrinking import law_of
from tests.simulation.watchdog import watched

REPOSITORY = Path(__file__).parents[2]
TWICE_EVERY = 100
SHRINK_CPU_S = 60.0
VOID_SHARE_MAX = 0.25
PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the simulations: its share of the CPU time, its steps per seed, its seeds per task (some seconds each)."""

    share: float
    steps: int
    seeds: int
    command: str


KINDS = {
    "raft": Kind(0.50, 5_000, 40, "tests.simulation.raft"),
    "controllers": Kind(0.25, 6_000, 15, "tests.simulation.controllers"),
    "nodes": Kind(0.20, 10_000, 8, "tests.simulation --only nodes"),
    "share": Kind(0.05, 4_000, 40, "tests.simulation.share"),
}


@dataclass(slots=True)
class Tally:
    """What the seeds of one simulation were worth."""

    seeds: int = 0
    events: int = 0
    simulated_us: int = 0
    cpu_s: float = 0.0
    void_runs: int = 0
    crashes: int = 0
    recoveries: int = 0
    """Of a quorum that had lost its majority."""
    ran_twice: int = 0

    def add(self, other: Tally) -> None:
        """Of another process."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Run(NamedTuple):
    """What one seed was worth."""

    events: int
    simulated_us: int
    is_void: bool
    crashes: int
    recoveries: int
    trace: str


@dataclass(slots=True)
class Outcome:
    """Of one task."""

    kind: str
    tally: Tally
    failures: list[str] = field(default_factory=list)
    first_failed: int | None = None
    """A seed whose faults can be shrunk."""


def _run_raft(seed: int, steps: int) -> Run:
    figures = Simulation(seed, steps=steps, fault_list=FaultList(only_count=True)).run()
    trace = f"{figures.trace_hash & HASH_MASK:016x}"
    return Run(figures.events, figures.simulated_us, figures.is_void, figures.crashes, 0, trace)


def _run_controllers(seed: int, steps: int) -> Run:
    figures = controllers.Quorum(seed, steps=steps).run()
    trace = hashlib.blake2b(figures.trace_hash.encode(), digest_size=8).hexdigest()
    return Run(figures.events, figures.simulated_us, figures.is_void, figures.crashes, figures.recoveries, trace)


def _run_nodes(seed: int, steps: int) -> Run:
    figures = cluster.Cluster(seed, steps=steps, slant=slant_of(seed)).run()
    trace = hashlib.blake2b(figures.trace_hash.encode(), digest_size=8).hexdigest()
    return Run(figures.steps, int(figures.virtual_s * 1e6), figures.is_void, figures.crashes, 0, trace)


def _run_share(seed: int, steps: int) -> Run:
    figures = ShareSimulation(seed, steps=steps).run()
    trace = hashlib.sha256(figures.trace_hash.encode()).hexdigest()
    return Run(figures.events, figures.virtual_ms * 1_000, figures.is_void, figures.leaders, 0, trace)


RUNS: dict[str, Callable[[int, int], Run]] = {
    "raft": _run_raft,
    "controllers": _run_controllers,
    "nodes": _run_nodes,
    "share": _run_share,
}


def slant_of(seed: int) -> Slant:
    """The slant of a seed of whole nodes. Each is as frequent as the others, because each has found bugs that the others missed."""
    return Random(seed).choice(tuple(Slant))


def run_task(name: str, first: int, count: int) -> Outcome:
    """Some seeds of one simulation, in a process of the pool."""
    logging.disable(logging.CRITICAL)
    kind = KINDS[name]
    began_s = _cpu_s()
    tally = Tally()
    outcome = Outcome(name, tally)
    for seed in range(first, first + count):
        try:
            with watched(seed):
                ran = RUNS[name](seed, kind.steps)
        except Exception as error:
            outcome.failures.append(
                f"{name} seed {seed}: {law_of(error)}: {first_error(error)}\n  again: {command_of(name, seed)} --trace"
            )
            outcome.first_failed = seed if outcome.first_failed is None else outcome.first_failed
            continue
        tally.seeds += 1
        tally.events += ran.events
        tally.simulated_us += ran.simulated_us
        tally.void_runs += ran.is_void
        tally.crashes += ran.crashes
        tally.recoveries += ran.recoveries
        if seed % TWICE_EVERY == 0:
            tally.ran_twice += 1
            other = trace_in_another_process(name, seed)
            if other != ran.trace:
                outcome.failures.append(
                    f"{name} seed {seed}: two runs differ, trace hashes {ran.trace} and {other}\n  again: {command_of(name, seed)}"
                )
    tally.cpu_s = _cpu_s() - began_s
    return outcome


def command_of(name: str, seed: int) -> str:
    """What replays it."""
    slant = node_seeds.slanted(slant_of(seed)) if name == "nodes" else ""
    return f"python -m {KINDS[name].command} --seed {seed} --steps {KINDS[name].steps}{slant}"


def trace_in_another_process(name: str, seed: int) -> str:
    """The trace hash under another PYTHONHASHSEED."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", *command_of(name, seed).split()[1:]],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": str(1 + seed % 4_000_000)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"trace hash ([0-9a-f]+)", ran.stdout)
    return found[1] if found else f"none: {ran.stdout[-300:]}{ran.stderr[-300:]}"


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def parse_budget(text: str) -> float:
    """CPU seconds: `240`, `4m`, `2h`. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 240, 10m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def sweep(start: int, *, budget_s: float, jobs: int, names: list[str]) -> tuple[dict[str, Tally], list[Outcome]]:
    """Run tasks until the CPU time is used up; stops early at a failure."""
    tallies = {name: Tally() for name in names}
    failed: list[Outcome] = []
    next_seed = dict.fromkeys(names, start)
    running: dict[Future[Outcome], tuple[str, float]] = {}
    shares = {name: KINDS[name].share / sum(KINDS[each].share for each in names) for name in names}
    # What a task costs is known only when it is done: until then it counts as much as the last of its kind.
    cost_s = dict.fromkeys(names, 4.0)
    shown_s = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        while True:
            committed = {
                name: tallies[name].cpu_s + sum(cost for kind, cost in running.values() if kind == name)
                for name in names
            }
            while len(running) < jobs and not failed and sum(committed.values()) < budget_s:
                name = min(names, key=lambda each: committed[each] / shares[each])
                task = pool.submit(run_task, name, next_seed[name], KINDS[name].seeds)
                next_seed[name] += KINDS[name].seeds
                running[task] = (name, cost_s[name])
                committed[name] += cost_s[name]
            if not running:
                return tallies, failed
            done, _ = wait(running, timeout=PROGRESS_S, return_when=FIRST_COMPLETED)
            for task in done:
                name, _ = running.pop(task)
                outcome = task.result()
                tallies[name].add(outcome.tally)
                cost_s[name] = outcome.tally.cpu_s
                if outcome.failures:
                    failed.append(outcome)
            if time.monotonic() - shown_s >= PROGRESS_S:
                shown_s = time.monotonic()
                print(_progress(tallies, budget_s), file=sys.stderr, flush=True)


def _progress(tallies: dict[str, Tally], budget_s: float) -> str:
    cpu_s = sum(tally.cpu_s for tally in tallies.values())
    seeds = sum(tally.seeds for tally in tallies.values())
    events = sum(tally.events for tally in tallies.values())
    return f"{cpu_s:.0f} of {budget_s:.0f} CPU s, {seeds} seeds, {events / 1e6:.1f} million events"


def show(tallies: dict[str, Tally]) -> None:
    """The table of figures."""
    heads = ("seeds", "events", "events/s", "sim h", "sim h/min", "crashes", "recovered", "void", "twice", "CPU s")
    widths = (7, 12, 9, 7, 9, 8, 9, 5, 5, 7)
    print(f"{'':12} " + " ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    whole = Tally()
    for tally in tallies.values():
        whole.add(tally)
    for name, tally in {**tallies, "all": whole}.items():
        cpu_s = max(tally.cpu_s, 0.001)
        hours = tally.simulated_us / 3.6e9
        print(
            f"{name:12} {tally.seeds:7} {tally.events:12,} {tally.events / cpu_s:9,.0f} {hours:7.2f} {hours / cpu_s * 60:9.2f} "
            f"{tally.crashes:8,} {tally.recoveries:9,} {tally.void_runs:5} {tally.ran_twice:5} {tally.cpu_s:7.1f}"
        )


def explain(outcome: Outcome) -> None:
    """A failure, the command that replays it, and its shrunken list of faults."""
    for failure in outcome.failures:
        print(f"FOUND {failure}")
    if outcome.first_failed is None:
        return
    shrinkers: dict[str, Any] = {
        "raft": raft.shrink_seed,
        "controllers": controllers.shrink_seed,
        "share": share.shrink_seed,
        "nodes": partial(node_seeds.shrink_seed, slant=slant_of(outcome.first_failed)),
    }
    try:
        found = shrinkers[outcome.kind](outcome.first_failed, steps=KINDS[outcome.kind].steps, cpu_limit_s=SHRINK_CPU_S)
    except ValueError as error:
        print(f"not shrunk: {error}")
        return
    raft.print_shrunken(command_of(outcome.kind, outcome.first_failed), *found)


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.sweep", description=__doc__)
    parser.add_argument("--budget", type=parse_budget, default=240.0, help="CPU time of all processes: 240, 10m, 2h")
    parser.add_argument("--seed", type=int, help="where the seeds start; random when not given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at the same time")
    parser.add_argument("--only", choices=tuple(KINDS), action="append", help="these simulations; all when not given")
    parser.add_argument("--events-min", type=int, default=0, help="fail when fewer events came of it")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args(arguments)
    start = options.seed if options.seed is not None else SystemRandom().randrange(1 << 30)
    names = options.only or list(KINDS)
    print(f"seeds from {start}, {options.budget:.0f} CPU s, {options.jobs} processes", flush=True)
    tallies, failed = sweep(start, budget_s=options.budget, jobs=options.jobs, names=names)
    show(tallies)
    if options.json is not None:
        content = {"start": start, "failed": bool(failed), **{name: asdict(tally) for name, tally in tallies.items()}}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    logging.disable(logging.CRITICAL)
    for outcome in failed:
        explain(outcome)
    if failed:
        return 1
    events = sum(tally.events for tally in tallies.values())
    if events < options.events_min:
        print(f"only {events:,} events, at least {options.events_min:,} are asked for")
        return 2
    if any(tally.void_runs > VOID_SHARE_MAX * tally.seeds for tally in tallies.values()):
        print(f"more than {VOID_SHARE_MAX:.0%} of the runs were void")
        return 2
    print("no law was broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
