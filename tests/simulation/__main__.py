"""`python -m tests.simulation --seed N --steps N --seeds K`: the consensus core, then whole nodes, through seeds of faults.

May touch:  the terminal.             Must not touch: anything else.
Invariants: `trace hash` depends on seed, steps and code alone; exit status 1 when a law breaks, 2 when every run was void.
Read next:  cluster.py (whole nodes), raft.py (the core alone).
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import time

from tests.simulation import raft
from tests.simulation.cluster import Cluster


def main() -> int:
    """Run both simulations; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=20_000, help="steps per seed before everything heals")
    parser.add_argument("--only", choices=("raft", "nodes"), help="one of the two simulations")
    parser.add_argument("--trace", action="store_true", help="print every message")
    options = parser.parse_args()
    status = 0
    if options.only != "nodes":
        print("consensus core", flush=True)
        arguments = ["--seed", str(options.seed), "--seeds", str(options.seeds), "--steps", str(options.steps)]
        status = raft.main([*arguments, "--trace"] if options.trace else arguments)
    if options.only != "raft" and status == 0:
        print("whole nodes", flush=True)
        status = run_nodes(seed=options.seed, seeds=options.seeds, steps=options.steps, is_traced=options.trace)
    return status


def run_nodes(*, seed: int, seeds: int, steps: int, is_traced: bool) -> int:
    """Run seeds of whole nodes and print what they were worth."""
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    done = voids = events = messages = crashes = partitions = acknowledged = elections = 0
    virtual_s = 0.0
    digest = hashlib.blake2b(digest_size=8)
    for number in range(seed, seed + seeds):
        cluster = Cluster(number, steps=steps, trace=is_traced)
        try:
            figures = cluster.run()
        except Exception as broken:
            print(f"FOUND seed {number} at {cluster.loop.time():.3f} s: {type(broken).__name__}: {broken}")
            print(f"again: python -m tests.simulation --only nodes --seed {number} --steps {steps} --trace")
            if is_traced:
                raise
            return 1
        done += 1
        voids += figures.is_void
        events += figures.steps
        messages += figures.messages
        crashes += figures.crashes
        partitions += figures.partitions
        acknowledged += figures.acknowledged
        elections += figures.elections
        virtual_s += figures.virtual_s
        digest.update(figures.trace_hash.encode())
        if sys.stderr.isatty() and seeds > 1:
            print(f"\r{done}/{seeds}", end="", file=sys.stderr, flush=True)
    cpu_s = time.process_time() - started
    print(
        f"{done} seeds, {events} events, {messages} messages, {virtual_s / 3600:.2f} simulated hours, {acknowledged} records "
        f"acknowledged, {elections} leaders, {crashes} crashes, {partitions} partitions, {voids} void runs"
    )
    print(
        f"cpu {cpu_s:.2f} s: {events / cpu_s:,.0f} events/s, {virtual_s / 3600 / cpu_s * 60:.2f} simulated hours per CPU minute"
    )
    print(f"trace hash {digest.hexdigest()}")
    return 2 if voids == done else 0


if __name__ == "__main__":
    sys.exit(main())
