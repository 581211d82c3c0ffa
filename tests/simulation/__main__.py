"""`python -m tests.simulation --seed N --steps N --seeds K`: the consensus core, then controllers, then share partitions,
then whole nodes.

May touch:  the terminal.             Must not touch: anything else.
Invariants: `trace hash` depends on seed, steps, what is left out and code alone; exit status 1 when a law breaks, 2 when every
            run was void.
Read next:  raft.py (the core alone), controllers.py, cluster.py (whole nodes); sweep.py, which runs all by a CPU budget.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.fault_list import FaultList, Without
from barnabas_simulation.run import Figures
from barnabas_simulation.swarm import Slant
from barnabas_wire.error_groups import first_error
from tests.simulation import controllers, raft, share
from tests.simulation.node_seeds import shrink_seed, slanted
from tests.simulation.watchdog import watched


def main() -> int:
    """Run the simulations; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=20_000, help="steps per seed before everything heals")
    parser.add_argument("--only", choices=("raft", "controllers", "share", "nodes"), help="one of the simulations")
    parser.add_argument("--trace", action="store_true", help="print every message")
    parser.add_argument("--without", default="", help="faults to leave out, such as 3,7-12,40-")
    parser.add_argument("--shrink", type=float, default=0.0, metavar="CPU_S", help="shrink a failing seed's faults")
    parser.add_argument(
        "--slant",
        choices=[each.value for each in Slant],
        default=Slant.NONE.value,
        help="what every seed of whole nodes has",
    )
    options = parser.parse_args()
    arguments = ["--seed", str(options.seed), "--seeds", str(options.seeds), "--steps", str(options.steps)]
    arguments += ["--without", options.without, "--shrink", str(options.shrink)]
    if options.trace:
        arguments.append("--trace")
    status = 0
    if options.only in (None, "raft"):
        print("consensus core", flush=True)
        status = raft.main(arguments)
    if options.only in (None, "controllers") and status == 0:
        print("controllers", flush=True)
        status = controllers.main(arguments)
    if options.only in (None, "share") and status == 0:
        print("share partitions", flush=True)
        status = share.main(arguments)
    if options.only in (None, "nodes") and status == 0:
        print("whole nodes", flush=True)
        status = run_nodes(
            seed=options.seed,
            seeds=options.seeds,
            steps=options.steps,
            is_traced=options.trace,
            without=Without.parse(options.without),
            shrink_cpu_s=options.shrink,
            slant=Slant(options.slant),
        )
    return status


def run_nodes(
    *,
    seed: int,
    seeds: int,
    steps: int,
    is_traced: bool,
    without: Without,
    shrink_cpu_s: float,
    slant: Slant = Slant.NONE,
) -> int:
    """Run seeds of whole nodes and print what they were worth."""
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    done = voids = 0
    whole = Figures()
    digest = hashlib.blake2b(digest_size=8)
    for number in range(seed, seed + seeds):
        cluster = Cluster(
            number,
            steps=steps,
            trace=is_traced,
            fault_list=FaultList(without, only_count=True),
            slant=slant,
        )
        try:
            with watched(number):
                figures = cluster.run()
        except Exception as error:
            broken = first_error(error)
            print(f"FOUND seed {number} at {cluster.loop.time():.3f} s: {type(broken).__name__}: {broken}")
            command = f"python -m tests.simulation --only nodes --seed {number} --steps {steps}"
            command += slanted(slant)
            left_out = f" --without {without}" if str(without) else ""
            print(f"again: {command}{left_out} --trace")
            if is_traced:
                raise
            if shrink_cpu_s:
                raft.print_shrunken(command, *shrink_seed(number, steps=steps, cpu_limit_s=shrink_cpu_s, slant=slant))
            return 1
        done += 1
        voids += figures.is_void
        whole.add(figures)
        digest.update(figures.trace_hash.encode())
        if sys.stderr.isatty() and seeds > 1:
            print(f"\r{done}/{seeds}", end="", file=sys.stderr, flush=True)
    cpu_s = time.process_time() - started
    print(
        f"{done} seeds, {whole.steps} events, {whole.messages} messages, {whole.virtual_s / 3600:.2f} simulated hours, "
        f"{whole.acknowledged} records acknowledged, {whole.elections} leaders, {whole.crashes} crashes ({whole.wipes} with logs "
        f"lost), {whole.stops} clean stops, {whole.stalls} stalls, {whole.partitions} partitions, "
        f"{whole.directories_broken} directories broken and {whole.directories_full} full "
        f"({whole.directories_offline} and {whole.directories_filled} met), {whole.reassignments} moves of partitions, "
        f"{whole.deletions} deletions of records, "
        f"{whole.throttles} throttles, {whole.voter_changes} voter changes, {whole.hashes_compared} hashes compared, {voids} void runs"
    )
    print(
        f"cpu {cpu_s:.2f} s: {whole.steps / cpu_s:,.0f} events/s, {whole.virtual_s / 3600 / cpu_s * 60:.2f} simulated hours per "
        "CPU minute"
    )
    print(f"trace hash {digest.hexdigest()}")
    return 2 if voids == done else 0


if __name__ == "__main__":
    sys.exit(main())
