"""acks=all writes do not wait for a follower that is cut off, and wait for one whose disk is slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_replication.follower import fetcher
from barnabas_wire.kafka.ids import BrokerId
from tests.support.replicas import MiniCluster, batch, eventually

MIN_TWO = LogConfig(flush_on_acks=FlushOnAcks.FSYNC, min_insync_replicas=2)
SILENCE_MS = 600


async def test_writes_go_on_without_a_follower_that_is_cut_off_and_it_comes_back(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, log_config=MIN_TWO, fetch_wait_ms=50, silence_ms=SILENCE_MS).with_topic(
        "t"
    ) as cluster:
        assert (await cluster[1].produce("t", batch())).error is None
        cluster.cut_links.add(frozenset((1, 3)))
        assert (await cluster[1].produce("t", batch(), timeout_ms=8_000)).error is None
        assert cluster.controller.registration("t").isr == (1, 2)
        assert (await cluster[1].produce("t", batch())).error is None
        cluster.cut_links.clear()
        await eventually(lambda: cluster.controller.registration("t").isr == (1, 2, 3))


async def test_a_follower_that_nobody_waits_for_keeps_its_place(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, log_config=MIN_TWO, fetch_wait_ms=50, silence_ms=SILENCE_MS).with_topic(
        "t"
    ) as cluster:
        cluster.cut_links.add(frozenset((1, 3)))
        assert (await cluster[1].produce("t", batch(), acks=1)).error is None
        partition = cluster[1].partition("t")
        await eventually(lambda: partition.is_silent(BrokerId(3), cluster[1].manager.hosted.now_ms()))  # type: ignore[union-attr]
        await asyncio.sleep(0.3)
        assert cluster.controller.registration("t").isr == (1, 2, 3)


async def test_a_slow_flush_is_not_taken_for_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing else to ask for it fetches nothing, now and then."""
    monkeypatch.setattr(fetcher, "ALIVE_EVERY_MS", 50)
    async with MiniCluster(tmp_path, log_config=MIN_TWO, fetch_wait_ms=50, silence_ms=SILENCE_MS).with_topic(
        "t"
    ) as cluster:
        assert (await cluster[1].produce("t", batch())).error is None
        begin_flush, held = cluster[3].disk.begin_flush, []
        cluster[3].disk.begin_flush = lambda *flush: held.append(flush)  # type: ignore[method-assign]
        produce = asyncio.create_task(cluster[1].produce("t", batch(), timeout_ms=20_000))
        await eventually(lambda: cluster.empty_fetches * 50 > 2 * SILENCE_MS)
        assert not produce.done() and cluster.controller.registration("t").isr == (1, 2, 3)
        cluster[3].disk.begin_flush = begin_flush  # type: ignore[method-assign]
        for flush in held:
            begin_flush(*flush)
        assert (await produce).error is None
