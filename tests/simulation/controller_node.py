"""One simulated controller: the product's own node without a broker, through its lives.

May touch:  its disk while it is down; what its parts show.    Must not touch: how a node is assembled (barnabas_broker/node).
Invariants: a crash loses what was not flushed and everything in memory; nothing of a past life reaches the next.
Read next:  controllers.py.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from barnabas_broker.node.node import Node
from barnabas_broker.node.properties import NodeConfig, node_config
from barnabas_broker.node.world import Served
from barnabas_log.disk import File
from barnabas_log.errors import DiskFull
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.incarnation import IncarnationGuard
from barnabas_quorum.driver.node import QuorumNode
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.damage import LogEnd
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_simulation.disk import DiskFaults, SimulatedDisk
from barnabas_simulation.node_config import tiny_quorum
from barnabas_simulation.world import SimulatedListeners, SimulatedWorld
from barnabas_wire.error_groups import first_error
from barnabas_wire.kafka.ids import METADATA_TOPIC, Uuid
from tests.simulation.controller_damage import flip_a_bit

if TYPE_CHECKING:
    from tests.simulation.controllers import Quorum

CLUSTER_ID = str(Uuid(b"simulated-cluste"))
PROPERTIES = {
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "controller.listeners.allow.remote": "true",
    "broker.session.timeout.ms": "2000",
    "broker.disconnect.grace.ms": "500",
    "min.insync.replicas": "1",
}
SIZES = {
    "election_timeout_ms": 300,
    "fetch_timeout_ms": 600,
    "election_backoff_ms_max": 200,
    "request_timeout_ms": 600,
    "fetch_wait_ms_max": 150,
    "retention_bytes": 2_500,
    "fetch_snapshot_bytes_max": 300,
}
"""Of the quorum's config."""
SNAPSHOT_AFTER_BYTES = 700
SEGMENT_BYTES = 900
ANYTHING = ConfigValidators(
    topic=lambda *given: given[2],
    broker=lambda *given: given[2],
    group=lambda *given: given[2],
    client_metrics=lambda *given: given[2],
    topic_as_whole=lambda *_: None,
    levels_of_keys={},
)


class TellingDisk(SimulatedDisk):
    """Says when something became durable, or half of something: the moment at which a crash tells most."""

    def __init__(self, faults: DiskFaults, random: Random, moment: Callable[[], None]) -> None:
        super().__init__(faults, random)
        self._moment = moment
        self.is_full = False

    def may_fail(self, operation: str, path: str) -> None:
        """See MemoryDisk. Without space nothing is written; what is there can be read, flushed, renamed and removed."""
        super().may_fail(operation, path)
        if self.is_full and operation in ("append", "write"):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    async def _answer_later(self, files: Sequence[File], delay_s: float) -> None:
        await super()._answer_later(files, delay_s)
        self._moment()

    def flush(self, files: Sequence[File]) -> Awaitable[None]:
        """See Disk.flush."""
        self._moment()
        return super().flush(files)

    def rename(self, source: Any, target: Any) -> None:
        """See Disk.rename."""
        super().rename(source, target)
        self._moment()

    def write_file_atomically(self, path: Any, data: bytes) -> None:
        """See Disk.write_file_atomically."""
        super().write_file_atomically(path, data)
        self._moment()

    def after_power_cut(self, random: Random) -> TellingDisk:
        """What the next life finds."""
        left = self.after_crash(random, is_power_cut=True)
        after = TellingDisk(self._faults, self._draw, self._moment)
        after.names, after.directories, after.durable_names = left.names, left.directories, left.durable_names
        after.is_full = self.is_full
        return after


class ControllerNode:
    """A controller, voter or observer."""

    def __init__(self, quorum: Quorum, member: Voter, voters: VoterSet) -> None:
        self.member = member
        self.id = member.key.id
        self.life = 0
        self.is_up = False
        self.is_starting = False
        self.disk_faults = replace(quorum.swarm.disks)
        self.disk = TellingDisk(self.disk_faults, quorum.random, lambda: quorum.at_disk(self))
        self.directory = f"node-{self.id}"
        self.cluster_id = CLUSTER_ID
        self.clock_ahead_ms = 0
        self.is_kept_down = False
        """Nobody starts it but who switched it off."""
        self.incarnation = IncarnationGuard()
        self.has_gone_over = False
        """To a recovered quorum, in this life."""
        self.quorum: QuorumNode
        self.driver: ControllerDriver
        self.loader: MetadataLoader
        self._run = quorum
        self.voters = voters
        """With which its log was formatted."""
        self.missing: LogEnd | None = None
        """How far its log reached before a bit flipped, until it is as far again: the simulator's own account."""
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a life; `is_up` follows when its log is read."""
        self.life += 1
        self.is_starting = True
        self.has_gone_over = False
        self._running = asyncio.ensure_future(self._live())
        self._running.add_done_callback(self._on_end)

    def crash(self) -> None:
        """Power off: the disk keeps what was durable and part of the rest."""
        self.is_up = self.is_starting = False
        self.life += 1
        self.disk = self.disk.after_power_cut(self._run.random)
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def replace_disk(self, directory_id: Uuid) -> None:
        """The old one is lost, while it is down; this is another replica."""
        self.disk = TellingDisk(self.disk_faults, self._run.random, lambda: self._run.at_disk(self))
        self.member = self.member._replace(key=ReplicaKey(self.id, directory_id))
        self.forget_log()

    def forget_log(self) -> None:
        """Its log is gone, and with it the voters that it was formatted with."""
        self.voters = VoterSet.unknown()
        self.missing = None

    def clock_ms(self) -> int:
        """Wall time, the same everywhere."""
        return self._run.wall_ms()

    def flip_a_bit(self) -> bool:
        """Of its log on the disk, while it is down. False when there was nothing to damage."""
        missing = flip_a_bit(self.disk, f"{self.directory}/{METADATA_TOPIC}-0", self._run.random)
        if missing is None:
            return False
        self.missing = missing if self.missing is None else max(self.missing, missing)
        return True

    @property
    def lacks_records(self) -> bool:
        """Whether a flip has cost it what it had acknowledged, and it is not back."""
        if self.missing is not None and self.is_up:
            own = self.quorum.describe_own()
            if LogEnd(own.last_epoch, own.flushed_end_offset) >= self.missing:
                self.missing = None
        return self.missing is not None

    @property
    def has_forgotten(self) -> bool:
        """Whether its disk does not show what it has promised, so that it needs a leader to be whole: a crash came before that was
        durable."""
        return self.is_up and self.quorum.describe_own().lost_end is not None

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None or task is not self._running:
            return
        recovery = self._run.recovery
        if self.disk.is_full or _lacked_space(first_error(error)):  # by now it may have room again
            self._run.stopped_without_space(self)
        elif recovery is None or not recovery.explains(self, error):
            self._run.network.failures.append(error)

    async def _live(self) -> None:
        run, life = self._run, self.life
        set_aside = self._logs_set_aside()

        def take(served: Served, listeners: SimulatedListeners) -> None:
            if self.life == life:  # otherwise its power went a turn ago
                self._take(served, was_former=self._logs_set_aside() != set_aside)

        world = SimulatedWorld(run, self, self.disk, on_start=take)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Node(self._config, world).run(asyncio.Event()))
            tasks.create_task(self._count_snapshots())

    @cached_property
    def _config(self) -> NodeConfig:
        run = self._run
        config = node_config(
            {
                **PROPERTIES,
                "node.id": str(self.id),
                "listeners": f"CONTROLLER://{self.member.host}:{self.member.port}",
                "controller.quorum.bootstrap.servers": ",".join(
                    f"{host}:{port}" for host, port in run.bootstrap_servers
                ),
                "log.dirs": self.directory,
            }
        )
        sizes = SIZES | {
            "segment_bytes": run.swarm.segment_bytes,
            "snapshot_after_bytes": run.swarm.snapshot_after_bytes,
        }
        if not run.swarm.has_cleaning:
            sizes["retention_bytes"] = -1
        return replace(config, quorum=tiny_quorum(config.quorum, **sizes))

    def _logs_set_aside(self) -> list[str]:
        return sorted({path.split("/")[1] for path in self.disk.names if "/set-aside-" in path})

    def _take(self, served: Served, *, was_former: bool) -> None:
        """The node can be reached from now on, through these parts."""
        control, life = served.control, self.life
        assert control.driver is not None, "it is a controller"
        control.driver.controller._validators = ANYTHING  # the workload's keys are nobody's
        control.loader.publishers = (*control.loader.publishers, _Watcher(self))
        self.loader, self.driver, self.quorum, self.incarnation = (
            control.loader,
            control.driver,
            control.quorum,
            control.incarnation,
        )
        hear = control.incarnation.hear

        def heard(text: str) -> str | None:
            before = control.incarnation.current
            reason = hear(text)
            if control.incarnation.current != before and self.life == life:
                self.has_gone_over = True
                self._run.note("goes over", self.id, self.life)
            return reason

        control.incarnation.hear = heard  # type: ignore[method-assign]
        if was_former:
            self.forget_log()
        else:
            self._run.laws.on_opened(self, control.metadata_log.hard_state)
        self.is_up, self.is_starting = True, False

    async def _count_snapshots(self) -> None:
        seen = 0
        while True:
            await asyncio.sleep(1.0)
            if self.is_up:  # a start may take longer, on a disk that is full
                loaded = self.loader.stats.snapshots
                self._run.figures.snapshots_loaded += loaded - seen
                seen = loaded

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A new image is published here."""
        self._run.laws.on_image(self, image)


def _lacked_space(error: BaseException) -> bool:
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


class _Watcher:
    """A publisher that shows each image to the laws."""

    name = "watcher"

    def __init__(self, node: ControllerNode) -> None:
        self._node = node
        self._life = node.life

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See Publisher."""
        if self._node.life == self._life:
            self._node.on_image(delta, image)
