"""A minimum that rises while its leader hears late of the metadata: one story, told as the issue that found it tells it.

May touch:  a run, as faults do.      Must not touch: anything within its nodes.
Invariants: clean code keeps every law in it, and a leader that judges an ISR by the settings before it breaks P1.
Read next:  stories.py, of which it is one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from barnabas_quorum.controller.requests_partitions import ElectionType, ElectLeaders
from barnabas_simulation.cluster import TOPIC
from barnabas_simulation.scripted import CALM
from tests.simulation.stories import Story, minimum_of_topic

LAG_S = 1.8
"""Longer than the controllers take to give up a follower that is gone, shorter than the time-out of a metadata fetch."""
ROUNDS = 6
"""How often it is played: one answer must bring both, which hangs on when it was asked for, and on where a segment ends."""
ROUND_S = 0.3
"""By how much longer the metadata lags in each round before the minimum rises."""


class LateLeader(Story):
    """The leader, which does not vote, hears late; the minimum becomes 2, its only follower loses its power, and comes back."""

    like = replace(CALM, brokers_beside=1, think_s=0.1)

    async def tell(self) -> None:
        """See Story.tell."""
        leader = self.nodes[-1]
        follower = next(node for node in self.nodes[:-1] if not node.driver.is_active)
        wanted = (leader.id, follower.id)
        await self.move(wanted)
        await self.until(lambda: self.registration.replicas == wanted and set(self.registration.isr) == set(wanted))
        for number in range(ROUNDS):
            await self.ask(minimum_of_topic(1))
            await self.ask(ElectLeaders(election_type=ElectionType.PREFERRED, partitions=((TOPIC, 0),)))
            await self.until(lambda: self.registration.leader == leader.id and len(self.registration.isr) == 2)
            await asyncio.sleep(2.0)
            self.network.metadata_lags_s[leader.id] = LAG_S
            await asyncio.sleep(LAG_S + number * ROUND_S)
            await self.ask(minimum_of_topic(2))
            self.cut_power(follower)
            await asyncio.sleep(3 * LAG_S)
            del self.network.metadata_lags_s[leader.id]
            follower.start()
            await asyncio.sleep(3.0)
