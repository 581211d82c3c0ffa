"""Logs are made and deleted a few a turn: what is answered meanwhile, what a later image does, and what a stop leaves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas_log.config import LogConfig
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.hosting.hosting import SLICE_LOGS
from barnabas_replication.manager import NO_SETTINGS, ReplicaManager
from tests.support.replicas import PAGE_CACHE, MiniCluster, batch, eventually

MANY = 3 * SLICE_LOGS + 1


class SlowMaking:
    """Broker 1 alone, whose disk's threads begin nothing while they are held; metadata is taken in when a test says so."""

    def __init__(self, cluster: MiniCluster) -> None:
        self.cluster = cluster
        self.broker = cluster[1]
        manager = self.broker.manager
        assert manager is not None
        self.manager: ReplicaManager = manager
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.runs: list[int] = []
        """Of each go of a thread that makes logs, how many."""
        self.placed = 0
        cluster.controller.reports = False
        run = self.broker.disk.run

        async def held(function: Callable[..., Any], *args: Any) -> Any:
            if getattr(function, "__name__", "") == "open_all":
                self.runs.append(len(args[0]))
                await self.may_go_on.wait()
            return await run(function, *args)

        self.broker.disk.run = held  # type: ignore[method-assign]

    def take_in(self, settings: dict[str, LogConfig] | None = None) -> None:
        """What was committed since."""
        unreported, self.cluster.controller.unreported = self.cluster.controller.unreported, []
        for delta, image in unreported:
            self.manager.apply_delta(
                delta.topics, image, settings=settings or NO_SETTINGS, when_placed=self._note_placed
            )

    def _note_placed(self) -> None:
        self.placed += 1

    @property
    def directories(self) -> list[str]:
        """Of logs, those that are on their way out left aside."""
        names = [path.name for path in Path(self.broker.path).iterdir() if path.is_dir()]
        return sorted(name for name in names if not name.endswith("-delete"))


@asynccontextmanager
async def slow_making(directory: Path) -> AsyncIterator[SlowMaking]:
    async with MiniCluster(directory, brokers=1, log_config=PAGE_CACHE) as cluster:
        making = SlowMaking(cluster)
        yield making
        making.may_go_on.set()


def create(making: SlowMaking, partitions: int = MANY) -> None:
    making.cluster.controller.create("t", partitions=partitions, replicas=(1,))


async def test_logs_are_made_a_few_at_a_time_and_the_image_is_through_with_the_last(tmp_path: Path) -> None:
    async with slow_making(tmp_path) as making:
        create(making)
        making.take_in()
        assert (making.placed, list(making.manager.partitions())) == (0, []), (
            "nothing is made in the turn that brings it"
        )
        await eventually(lambda: making.placed == 1)
        assert len(list(making.manager.partitions())) == MANY
        assert making.runs == [SLICE_LOGS] * 3 + [1]
        assert (await making.broker.produce("t", batch(), partition=MANY - 1)).error is None


async def test_what_is_not_open_yet_is_refused_as_what_others_lead(tmp_path: Path) -> None:
    async with slow_making(tmp_path) as making:
        making.may_go_on.clear()
        create(making, 1)
        making.take_in()
        await eventually(lambda: len(making.runs) == 1)
        assert isinstance((await making.broker.produce("t", batch())).error, NotLeaderOrFollower)
        assert isinstance((await making.broker.consume("t")).error, NotLeaderOrFollower)
        making.may_go_on.set()
        await eventually(lambda: making.placed == 1)
        assert (await making.broker.produce("t", batch())).error is None


async def test_an_image_without_it_wins_over_a_log_in_the_making(tmp_path: Path) -> None:
    async with slow_making(tmp_path) as making:
        making.may_go_on.clear()
        create(making)
        making.take_in()
        await eventually(lambda: len(making.runs) == 1)
        making.cluster.controller.delete("t")
        making.take_in()
        making.may_go_on.set()
        await eventually(lambda: making.placed == 2)
        assert (list(making.manager.partitions()), dict(making.broker.logs.logs)) == ([], {})
        assert making.directories == []
        assert making.runs == [SLICE_LOGS], "what had not begun does not begin"


async def test_a_newer_image_gives_the_role_and_the_settings_to_a_log_in_the_making(tmp_path: Path) -> None:
    async with slow_making(tmp_path) as making:
        making.may_go_on.clear()
        create(making, 1)
        making.take_in()
        await eventually(lambda: len(making.runs) == 1)
        making.cluster.controller.change("t", leader=1)
        making.cluster.log_config = LogConfig(min_insync_replicas=2)
        making.take_in({"t": making.cluster.log_config})
        making.may_go_on.set()
        await eventually(lambda: making.placed == 2)
        partition = making.broker.partition("t")
        assert (partition.is_leader, partition.leader_epoch) == (True, 1)
        assert partition.log.config.min_insync_replicas == 2
        assert len(making.runs) == 1, "it is made once"


async def test_a_stop_waits_for_what_a_thread_makes_and_leaves_no_log_behind_the_manager(tmp_path: Path) -> None:
    async with slow_making(tmp_path) as making:
        making.may_go_on.clear()
        create(making)
        making.take_in()
        await eventually(lambda: len(making.runs) == 1)
        logs, directory = making.broker.logs, Path(making.broker.path)
        stopping = asyncio.create_task(making.broker.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done() and not (directory / ".kafka_cleanshutdown").exists()
        making.may_go_on.set()
        await stopping
        assert len(making.directories) == SLICE_LOGS
        assert (directory / ".kafka_cleanshutdown").exists() and not logs.logs
        assert all((directory / name / "partition.metadata").exists() for name in making.directories)


async def test_replicas_of_a_deleted_topic_go_a_few_a_turn(tmp_path: Path) -> None:
    async with slow_making(tmp_path) as making:
        create(making)
        making.take_in()
        await eventually(lambda: making.placed == 1)
        making.cluster.controller.delete("t")
        making.take_in()
        left = []
        while making.placed < 2:
            left.append(len(making.broker.logs.logs))
            await asyncio.sleep(0)
        assert max(before - after for before, after in itertools.pairwise(left)) <= SLICE_LOGS
        assert (list(making.manager.partitions()), dict(making.broker.logs.logs), making.directories) == ([], {}, [])
