"""Bugs planted into what keeps hosts apart, for node_mutants.py to hunt where hosts are lost whole (Slant.HOSTS).

May touch:  the real code, in memory, while one bug is hunted.   Must not touch: files, the simulation itself.
Invariants: each falls by a law of broker/barnabas_simulation/hosts.py, and needs nothing else.
Read next:  node_mutants.py. Those of balance and departure, which no node runs, are in tests/admin/test_balance_hosts.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.placement import PlaceableBroker
from barnabas_wire.kafka.ids import BrokerId


def _placement_ignores_hosts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlaceableBroker, "lost_with", property(lambda self: self.id))


def _siblings_of_the_dead_are_never_fenced(patch: pytest.MonkeyPatch) -> None:
    original = Controller.stale_brokers

    def stale_brokers(self: Controller, *, now_ms: int) -> list[BrokerId]:
        brokers = self.pending.cluster.brokers
        fenced = {broker.host for broker in brokers.values() if broker.is_fenced}
        return [each for each in original(self, now_ms=now_ms) if brokers[each].host not in fenced][:1]

    patch.setattr(Controller, "stale_brokers", stale_brokers)


HOST_BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None]], ...] = (
    ("placement ignores hosts", _placement_ignores_hosts),
    ("siblings of a dead broker are never fenced", _siblings_of_the_dead_are_never_fenced),
)
"""What is wrong in words, and how it is planted."""
