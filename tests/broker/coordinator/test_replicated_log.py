"""A coordinator's topic over real replicas: what is appended is read back, and a disk that fails is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas_coordination.replicated_log import ReplicatedLog
from barnabas_log.errors import StorageFailed
from barnabas_wire.kafka.ids import Epoch, Offset
from tests.support.replicas import MiniCluster, batch


async def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    async with MiniCluster(tmp_path, brokers=1) as cluster:
        cluster.controller.create("__consumer_offsets", replicas=(1,))
        assert cluster[1].manager is not None
        log = ReplicatedLog("__consumer_offsets", replicas=cluster[1].manager, disk=cluster[1].disk)
        for _ in range(2):
            await log.append(0, batch(3), leader_epoch=Epoch(0))
        assert log.ends(0) == (0, 6, 6)
        written = await log.read(0, Offset(3), end=Offset(6), bytes_max=1)
        assert written == cluster[1].bytes_of("__consumer_offsets", 0)[-len(written) :]
        assert len(written) == len(batch(3))


async def test_a_disk_that_cannot_be_read_fails_its_directory_and_not_the_broker(tmp_path: Path) -> None:
    """Another replica can be read: the controller has to hear that this one cannot."""
    async with MiniCluster(tmp_path, brokers=1) as cluster:
        cluster.controller.create("__consumer_offsets", replicas=(1,))
        manager, disk = cluster[1].manager, cluster[1].disk
        assert manager is not None
        failed: list[str] = []
        cluster[1].listener.hear_failed = failed.append
        log = ReplicatedLog("__consumer_offsets", replicas=manager, disk=disk)
        await log.append(0, batch(), leader_epoch=Epoch(0))

        async def fail(*_: Any) -> Any:
            raise OSError(5, "input/output error")

        disk.run = fail  # type: ignore[assignment, method-assign]
        with pytest.raises(StorageFailed):
            await log.read(0, Offset(0), end=Offset(1), bytes_max=1)
        assert failed == [cluster[1].path]
        with pytest.raises(StorageFailed):
            log.ends(0)
