"""A minimum that rises while its leader hears late of the metadata: one story, played as the issue that found it tells it.

May touch:  a run, as faults do.      Must not touch: anything within its nodes.
Invariants: one seed, one story: clean code keeps every law in it, and a leader that judges an ISR by the settings before it breaks P1.
Read next:  test_settings.py; node_mutants.py, whose bug is looked for in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from barnabas_quorum.controller.requests import IncrementalAlterConfigs
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    PartitionReassignment,
)
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import ConfigResourceType
from barnabas_simulation.cluster import TOPIC, Cluster
from barnabas_simulation.faults import Faults
from barnabas_simulation.nodes import SimulatedNode
from barnabas_simulation.operators import MINIMUM, _alteration
from barnabas_simulation.scripted import CALM, STEPS_MAX
from barnabas_simulation.swarm import Swarm
from barnabas_wire.kafka.ids import TopicPartition

SEED = 39
LAG_S = 1.8
"""Longer than the controllers take to give up a follower that is gone, shorter than the time-out of a metadata fetch."""
ROUNDS = 6
"""How often it is played: one answer must bring both, which hangs on when it was asked for, and on where a segment ends."""
ROUND_S = 0.3
"""By how much longer the metadata lags in each round before the minimum rises."""


class HigherMinimum(Faults):
    """The leader, which does not vote, hears late; the minimum becomes 2, its only follower loses its power, and comes back."""

    def __init__(self, cluster: LateLeader) -> None:
        super().__init__(cluster, cluster.swarm)
        self._run = cluster

    def start(self) -> None:
        self.is_calm = False
        playing = asyncio.ensure_future(self._play())
        playing.add_done_callback(self._on_end)
        self._trouble.append(playing)

    def _on_end(self, playing: asyncio.Task[None]) -> None:
        if not playing.cancelled():
            self._run.network.failures += [playing.exception()] if playing.exception() is not None else []

    async def _play(self) -> None:
        run = self._run
        leader = run.nodes[-1]
        follower = next(node for node in run.nodes[:-1] if not node.driver.is_active)
        wanted = (leader.id, follower.id)
        moved = PartitionReassignment(topic=TOPIC, partition_id=0, replicas=wanted)
        await self._ask(AlterPartitionReassignments(partitions=(moved,)))
        await self._until(lambda found: found.replicas == wanted and set(found.isr) == set(wanted))
        for number in range(ROUNDS):
            await self._ask(_minimum(1))
            await self._ask(ElectLeaders(election_type=ElectionType.PREFERRED, partitions=((TOPIC, 0),)))
            await self._until(lambda found: found.leader == leader.id and len(found.isr) == 2)
            await asyncio.sleep(2.0)
            run.network.metadata_lags_s[leader.id] = LAG_S
            await asyncio.sleep(LAG_S + number * ROUND_S)
            await self._ask(_minimum(2))
            follower.crash()
            run.figures.crashes += 1
            await asyncio.sleep(3 * LAG_S)
            del run.network.metadata_lags_s[leader.id]
            follower.start()
            await asyncio.sleep(3.0)
        run.end_trouble()

    async def _ask(self, request: object) -> None:
        active: SimulatedNode = next(node for node in self._run.nodes if node.is_up and node.driver.is_active)
        await active.driver.handle(request, principal="User:operator")  # type: ignore[arg-type]

    async def _until(self, holds: Callable[[PartitionRegistration], bool]) -> None:
        while True:
            found = self._run.invariants._newest_image().topics.partition(TopicPartition(TOPIC, 0))
            if found is not None and holds(found):
                return
            await asyncio.sleep(0.1)


def _minimum(value: int) -> IncrementalAlterConfigs:
    return IncrementalAlterConfigs(resources=(_alteration(ConfigResourceType.TOPIC, TOPIC, (MINIMUM,), str(value)),))


class LateLeader(Cluster):
    """Three voters and a broker beside them, one partition, and that story."""

    partitions = 1

    def __init__(self) -> None:
        super().__init__(SEED, steps=STEPS_MAX)

    def draw_swarm(self) -> Swarm:
        return replace(CALM, brokers_beside=1, think_s=0.1)

    def make_faults(self) -> Faults:
        return HigherMinimum(self)
