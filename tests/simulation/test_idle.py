"""A law of whole nodes: a partition that was idle for long takes its first record as fast as a busy one.

In calm weather, in virtual time, so that only waits count: a record of either partition is on its way for the round trips of
the client, of the followers' fetches and of nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections.abc import Iterator

import pytest

from barnabas_replication.leader.fetch_session import Member
from barnabas_simulation.cluster import START_S, Cluster

pytestmark = pytest.mark.filterwarnings("ignore")

IDLE_S = 90.0
"""Longer than every wait between a leader and its followers; each of these seconds costs both tests CPU time."""
BUSY_RECORDS = 40
BUSY_PAUSE_S = 0.02
LONGEST_HOP = 1.5
"""Of the mean delay, as the network draws it."""
ROUND_TRIPS = 2
"""How much later the idle partition's record may be than the busy one's slowest."""
BUSY_HOPS = 10
"""Four to and fro, and what the disks take."""
SEEDS = (7,)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class CalmCluster(Cluster):
    """Nothing fails. One partition is written to after long, beside another that is busy just then."""

    idle_s = 0.0
    busy_s = 0.0

    async def _run(self) -> None:
        self.loop.set_exception_handler(self._on_loop_error)
        self.loop.after_turn = self._after_turn
        self.faults.calm()
        self.sessionless_size = 0
        for node in self.nodes:
            node.start()
        async with asyncio.timeout(START_S):
            await self._create_topic()
        for partition in (0, 1):
            await self._write(partition)
        self.loop.after_turn = lambda: None  # long nothing is judged by what comes of them
        await asyncio.sleep(IDLE_S)
        self.loop.after_turn = self._after_turn
        taken = []
        for _ in range(BUSY_RECORDS):
            taken.append(await self._write(0))
            await asyncio.sleep(BUSY_PAUSE_S)
        self.busy_s = statistics.median(taken)
        self.idle_s = await self._write(1)

    async def _write(self, partition: int) -> float:
        """One batch; how long until it is acknowledged by all in sync."""
        client = self.clients[partition]
        began_s = self.loop.time()
        await client._write(client.producers[0])
        return self.loop.time() - began_s


def law_broken(seed: int) -> bool:
    """Whether the idle partition's record was later than a busy one's, or even those waited for more than the network."""
    cluster = CalmCluster(seed, steps=0)
    cluster.run()
    hop_s = LONGEST_HOP * cluster.network.faults.delay_s
    return cluster.busy_s > BUSY_HOPS * hop_s or cluster.idle_s > cluster.busy_s + 2 * ROUND_TRIPS * hop_s


def test_the_first_record_after_long_is_as_fast_as_a_busy_partitions() -> None:
    assert not any(law_broken(seed) for seed in SEEDS)


def test_the_law_finds_a_leader_that_lets_what_is_at_rest_wait_for_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Member.look_again

    def look_again(self: Member) -> None:
        if self in self.session.changed:
            original(self)
        else:
            self.note()

    monkeypatch.setattr(Member, "look_again", look_again)
    assert all(law_broken(seed) for seed in SEEDS)
