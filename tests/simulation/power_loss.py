"""Power is cut again and again under the nodes of one seed: `python -m tests.simulation.power_loss --form all --cycles 200`.

May touch:  the nodes' power, the network, the disks.   Must not touch: the state of a node in any other way.
Invariants: records count when flushed, every loss of power loses what was not; between two the cluster acknowledges something.
Read next:  faults.py, whose other trouble is left out; disk.py, what a power cut leaves; tests/power for real processes.

Forms: `all` cuts the power of all nodes at one instant. `one` cuts that of one node at a random instant while another one is cut off
from the rest, both ways or one. `lying` is the negative control: `all`, where flushes of partitions' logs do nothing. It must lose.

`make sim` cuts power too, at telling moments and among all other trouble; here it is what there is, and it is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from dataclasses import dataclass, replace
from typing import Literal

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.faults import Faults
from barnabas_simulation.swarm import NEVER, Swarm

Form = Literal["all", "one", "lying"]

CUTS_PER_SEED = 20
"""At most."""
STEPS_MAX = 400_000
"""Of one seed: bounds it should the cluster not come back."""
BETWEEN_S = 0.4
"""Mean time from the first acknowledgement after a cut to the next one."""
CUT_OFF_S = 0.8
"""Most time for which a node is cut off."""
STEP_S = 0.01


class PowerCuts(Faults):
    """Cuts, and nothing else."""

    def __init__(self, cluster: PowerLossCluster, swarm: Swarm) -> None:
        super().__init__(cluster, swarm)
        self.cuts = 0
        self._powered = cluster

    def start(self) -> None:
        """Let it begin."""
        self.is_calm = False
        self._powered.network.faults = self._swarm.links
        self._trouble.append(asyncio.ensure_future(self._cut_again_and_again()))

    async def _cut_again_and_again(self) -> None:
        cluster = self._powered
        random = cluster.random
        for node in cluster.nodes:
            node.disk_faults.are_logs_lying = cluster.form == "lying"
        while self.cuts < cluster.cuts_max:
            await self._until_acknowledged()
            await asyncio.sleep(random.expovariate(1 / BETWEEN_S))
            self.cuts += 1
            if cluster.form != "one":
                for node in cluster.nodes:
                    if node.is_up:
                        self.power_off(node, ())
                continue
            dark, lonely = random.sample(cluster.nodes, 2)
            out = [(lonely.id, other.id) for other in cluster.nodes if other is not lonely]
            links = random.choice([out, [(b, a) for a, b in out], out + [(b, a) for a, b in out]])
            cutting = asyncio.ensure_future(self._cut(lonely.id, links, random.random() * CUT_OFF_S))
            self._trouble.append(cutting)
            await asyncio.sleep(random.random() * CUT_OFF_S)
            if dark.is_up:
                self.power_off(dark, ())
            await cutting
        cluster.end_trouble()

    async def _until_acknowledged(self) -> None:
        """Until a partition has taken something, and everybody is up."""
        known = self._acknowledged()
        while self._acknowledged() == known or not all(node.is_up for node in self._powered.nodes):
            await asyncio.sleep(STEP_S)

    def _acknowledged(self) -> int:
        return sum(len(each.acknowledged) for client in self._powered.clients for each in client.producers)


class PowerLossCluster(Cluster):
    """One run of one form."""

    def __init__(self, seed: int, form: Form, *, cuts_max: int = CUTS_PER_SEED) -> None:
        self.form = form
        self.cuts_max = cuts_max
        super().__init__(seed, steps=STEPS_MAX, outcomes_only=form == "lying")

    def draw_swarm(self) -> Swarm:
        """As the seed says, without other trouble; records count when flushed."""
        drawn = super().draw_swarm()
        return replace(
            drawn,
            moments=NEVER,
            wipe=0.0,
            think_s=min(drawn.think_s, 0.1),
            idle_factor=1.0,
            churn_s=0.0,
            restart_s=min(drawn.restart_s, 0.3),
            logs=replace(drawn.logs, is_page_cache=False),
            reassign_every_s=0.0,
            change_voters_every_s=0.0,
            throttle_bytes=0,
            configure_every_s=0.0,
        )

    def make_faults(self) -> Faults:
        """See the module."""
        return PowerCuts(self, self.swarm)

    @property
    def cuts(self) -> int:
        """How often the power was cut."""
        assert isinstance(self.faults, PowerCuts), "make_faults makes these"
        return self.faults.cuts


@dataclass(slots=True)
class Outcome:
    """Of some seeds."""

    cuts: int = 0
    acknowledged: int = 0
    broken: Exception | None = None
    seed: int = 0
    """The last one."""


def run(form: Form, *, seed: int, cycles: int) -> Outcome:
    """Seeds from this one on until so many cuts, or until a law is broken."""
    done = Outcome(seed=seed)
    while done.cuts < cycles and done.broken is None:
        done.seed = seed
        cluster = PowerLossCluster(seed, form, cuts_max=min(CUTS_PER_SEED, cycles - done.cuts))
        try:
            done.acknowledged += cluster.run().acknowledged
        except Exception as error:
            done.broken = error
        done.cuts += cluster.cuts
        seed += 1
    return done


def main() -> int:
    """Run one form; 0 when nothing was lost, of `lying` when something was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=("all", "one", "lying"), default="all")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun = time.monotonic()
    done = run(options.form, seed=options.seed, cycles=options.cycles)
    print(
        f"{done.cuts} simulated power cuts ({options.form}), seeds {options.seed} to {done.seed}, {done.acknowledged} records "
        f"acknowledged, {time.monotonic() - begun:.0f} s: {done.broken!r}"
    )
    if (done.broken is not None) == (options.form == "lying"):
        return 0
    again = f"python -m tests.simulation.power_loss --form {options.form} --cycles {CUTS_PER_SEED} --seed {done.seed}"
    print(
        f"again: {again}" if done.broken else "flushes that do nothing lost nothing: this proof is blind",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
