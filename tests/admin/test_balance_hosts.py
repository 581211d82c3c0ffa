"""Random clusters: no plan puts replicas onto one host while another would do, and a plan that ignores hosts is found out.

The bugs are planted into the plans of `reassign balance` and of `broker decommission` and `host resize` (what drains a broker of its
replicas); no node runs these plans, so no simulation can find them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from barnabas_admin import balance
from barnabas_admin.balance import Placement, plan_balance, plan_departure

SEEDS = 150


def crowded(placement: Placement, hosts: dict[int, str]) -> list[tuple[str, int]]:
    """Partitions on fewer hosts than there are for them."""
    there = len(set(hosts.values()))
    return [
        name for name, replicas in placement.items() if len({hosts[b] for b in replicas}) < min(there, len(replicas))
    ]


def random_cluster(random: Random, *, is_spread: bool) -> tuple[Placement, dict[int, str]]:
    """Some partitions, and brokers with their hosts, two to four on each. is_spread: no two replicas share a host."""
    hosts = {
        100 * host + place: f"h{host}"
        for host in range(1, random.randint(3, 5))
        for place in range(random.randint(2, 4))
    }

    def replicas() -> tuple[int, ...]:
        if not is_spread:
            return tuple(random.sample(sorted(hosts), random.randint(1, 3)))
        names = sorted(set(hosts.values()))
        chosen = random.sample(names, random.randint(1, len(names)))
        return tuple(random.choice([broker for broker in hosts if hosts[broker] == name]) for name in chosen)

    return {("t", index): replicas() for index in range(random.randint(1, 20))}, hosts


def balanced_wrongly(seed: int) -> bool:
    """Whether a plan of balance leaves a partition crowded."""
    present, hosts = random_cluster(Random(seed), is_spread=False)
    planned = plan_balance(present, racks=dict.fromkeys(hosts), hosts=hosts, sizes={})
    return bool(crowded(present | planned, hosts))


def left_wrongly(seed: int) -> bool:
    """Whether the departure of one broker, or of several of one host, crowds what was spread, while it need not."""
    random = Random(seed)
    present, hosts = random_cluster(random, is_spread=True)
    host = random.choice(sorted(set(hosts.values())))
    there = [broker for broker in hosts if hosts[broker] == host]
    leaving = random.sample(there, random.randint(1, len(there) - 1))
    planned = plan_departure(present, leaving=leaving, racks=dict.fromkeys(hosts), hosts=hosts, sizes={})
    after = present | planned
    assert all(set(replicas).isdisjoint(leaving) and len(set(replicas)) == len(replicas) for replicas in after.values())
    return bool(crowded(after, {broker: host for broker, host in hosts.items() if broker not in leaving}))


def hunted(is_wrong: Callable[[int], bool]) -> int | None:
    return next((seed for seed in range(SEEDS) if is_wrong(seed)), None)


@pytest.mark.parametrize("is_wrong", [balanced_wrongly, left_wrongly])
def test_no_plan_crowds_a_host(is_wrong: Callable[[int], bool]) -> None:
    assert hunted(is_wrong) is None


@pytest.mark.parametrize(("is_wrong", "seed"), [(balanced_wrongly, 0), (left_wrongly, 0)])
def test_a_plan_that_ignores_hosts_is_found_by_a_fixed_seed(
    is_wrong: Callable[[int], bool], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance._Plan, "_host", lambda self, broker: broker)
    assert hunted(is_wrong) == seed
