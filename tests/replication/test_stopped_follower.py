"""A follower is never held up for good by what retention and DeleteRecords have taken of an idle partition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_wire.kafka.ids import Offset
from tests.support.replicas import FSYNC, MiniCluster, batch, eventually

MIN_TWO = LogConfig(flush_on_acks=FlushOnAcks.FSYNC, min_insync_replicas=2)
"""Retention of a week: the records of these tests are of 1970, so every look takes all that is committed."""


async def emptied(cluster: MiniCluster, order: Sequence[int]) -> None:
    """Three records, a new leader that writes nothing, then retention at one broker after the other."""
    cluster.controller.create("t")
    assert (await cluster[1].produce("t", batch(3))).error is None
    await eventually(lambda: all(broker.partition("t").high_watermark == 3 for broker in cluster.brokers.values()))
    cluster.controller.change("t", leader=2)
    await eventually(lambda: {(1, 2), (3, 2)} <= {fetch[:2] for fetch in cluster.fetches})
    for number in order:
        await cluster[number].logs.apply_retention()
    logs = [broker.partition("t").log for broker in cluster.brokers.values()]
    await eventually(lambda: all(log.log_start_offset == 3 for log in logs))


@pytest.mark.parametrize("order", [(1, 3, 2), (2, 1, 3)], ids=["followers first", "leader first"])
async def test_retention_in_any_order_after_an_election_stops_nobody(tmp_path: Path, order: Sequence[int]) -> None:
    async with MiniCluster(tmp_path, log_config=MIN_TWO) as cluster:
        await emptied(cluster, order)
        assert (await cluster[2].produce("t", batch(2), timeout_ms=2_000)).error is None
        await eventually(lambda: all(broker.partition("t").high_watermark == 5 for broker in cluster.brokers.values()))


async def test_a_replica_that_begins_within_a_batch_takes_it(tmp_path: Path) -> None:
    """DeleteRecords may name any record; what a leader sends are whole batches."""
    async with MiniCluster(tmp_path, log_config=FSYNC).with_topic("t") as cluster:
        await cluster[3].stop()
        cluster.controller.change("t", isr=(1, 2))
        assert (await cluster[1].produce("t", batch(5))).error is None
        await eventually(lambda: cluster[1].partition("t").high_watermark == 5)
        cluster[1].partition("t").log.delete_records_before(Offset(2))
        await cluster[3].start()
        await eventually(lambda: len(cluster.controller.registration("t").isr) == 3)
        log = cluster[3].partition("t").log
        assert (log.log_start_offset, log.log_end_offset) == (2, 5)
        assert (await cluster[1].produce("t", batch(2), timeout_ms=2_000)).error is None
        await cluster[3].kill()
        await cluster[3].start()
        await eventually(lambda: cluster[3].partition("t").high_watermark == 7)
