"""Whether a broker knows that nobody fetches from it any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.replicas import MiniCluster, batch, eventually

SILENCE_MS = 400


async def test_a_leader_is_left_alone_when_no_follower_fetches_and_only_with_others_in_sync(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, fetch_wait_ms=50) as cluster:
        leader, follower = cluster[1].manager, cluster[2].manager
        assert leader is not None and follower is not None
        cluster.controller.create("single", replicas=(1,))
        assert leader.is_left_alone(0) is False, "nobody else has it"
        cluster.controller.create("t")
        assert (await cluster[1].produce("t", batch())).error is None
        assert leader.is_left_alone(SILENCE_MS) is False
        cluster.cut_links.add(frozenset((1, 2)))
        await asyncio.sleep(2 * SILENCE_MS / 1000)
        assert leader.is_left_alone(SILENCE_MS) is False, "one still fetches"
        cluster.cut_links.add(frozenset((1, 3)))
        await eventually(lambda: leader.is_left_alone(SILENCE_MS))
        assert follower.is_left_alone(SILENCE_MS) is False, "it leads nothing"
        cluster.controller.change("t", isr=(1,))
        assert leader.is_left_alone(SILENCE_MS) is False, "nobody could be elected instead"
        cluster.controller.change("t", isr=(1, 2))
        cluster.cut_links.clear()
        await eventually(lambda: not leader.is_left_alone(SILENCE_MS))
