"""Seeds of whole nodes: what one breaks, and fewer faults that break it too.

May touch:  whole runs.               Must not touch: anything within one.
Invariants: what shrinking returns still breaks the same law.
Read next:  shrinking.py; sweep.py and __main__.py, which ask for it.
"""

from __future__ import annotations

from barnabas_simulation.cluster import Cluster
from barnabas_simulation.fault_list import FaultList, Without
from barnabas_simulation.swarm import Slant
from tests.simulation.shrinking import Broken, Shrunken, law_of, shrink


def slanted(slant: Slant) -> str:
    """What the command that replays a seed says of it."""
    return "" if slant is Slant.NONE else f" --slant {slant.value}"


def find(
    seed: int, *, steps: int, without: Without, outcomes_only: bool = False, slant: Slant = Slant.NONE
) -> Broken | None:
    """One seed with its list of faults; None when it keeps all laws."""
    faults = FaultList(without)
    try:
        Cluster(seed, steps=steps, fault_list=faults, outcomes_only=outcomes_only, slant=slant).run()
    except Exception as error:
        return Broken(law_of(error), faults)
    return None


def shrink_seed(
    seed: int, *, steps: int, cpu_limit_s: float, outcomes_only: bool = False, slant: Slant = Slant.NONE
) -> tuple[Broken, Shrunken]:
    """The faults of a failing seed, and fewer of them that break the same law. Raises ValueError when it does not fail."""
    first = find(seed, steps=steps, without=Without(), outcomes_only=outcomes_only, slant=slant)
    if first is None:
        raise ValueError(f"seed {seed} keeps all laws in {steps} steps")
    return first, shrink(
        lambda without: find(seed, steps=steps, without=without, outcomes_only=outcomes_only, slant=slant),
        first,
        cpu_limit_s=cpu_limit_s,
    )
