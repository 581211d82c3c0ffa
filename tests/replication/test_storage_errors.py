"""A disk that fails while metadata is taken in: each of its operations once, and all from each one on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas_log.directories.manager import LogManager
from barnabas_log.memory_disk import MemoryDisk, MemoryFile
from barnabas_quorum.records import PartitionChangeRecord
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.hosting import hosting
from barnabas_replication.manager import ReplicaManager
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Uuid
from tests.support.replicas import FSYNC, MemoryController, batch, place_now, topic_id_of

OF_A_DISK = "open directory list_directory make_directory rename remove remove_tree sync_directory read_file write_file_atomically"
OF_A_FILE = "read append truncate sync"


class Faults:
    """Counts operations while armed; the nth fails, and where the disk is dead all that follow."""

    def __init__(self, *, nth: int, is_dead: bool) -> None:
        self.nth = nth
        self.is_dead = is_dead
        self.is_armed = False
        self.seen = 0

    def before(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def checked(place: Any, *arguments: Any, **more: Any) -> Any:
            if self.is_armed:
                self.seen += 1
                if self.seen == self.nth or (self.is_dead and self.seen > self.nth):
                    raise OSError(5, f"injected {operation.__name__} error")
            return operation(place, *arguments, **more)

        return checked


class Broker:
    """Broker 1 of three, with two log directories."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.controller = MemoryController()
        self.controller.reports = False
        self.epoch, _, _ = [self.controller.register(broker) for broker in (1, 2, 3)]
        disk = self.disk = MemoryDisk()
        for directory in ("data", "other"):
            disk.make_directory(directory)
        self.logs = LogManager(
            disk=disk,
            directories=["data", "other"],
            directory_ids={"data": Uuid(b"d" * 16), "other": Uuid(b"o" * 16)},
            default_config=FSYNC,
            clock_ms=lambda: 0,
        )
        self.manager = ReplicaManager(
            broker_id=BrokerId(1),
            broker_epoch=lambda: self.epoch,
            config=ReplicationConfig(),
            logs=self.logs,
            log_config=lambda topic, image: FSYNC,
            controller=self.controller,
            peers=lambda leader, endpoint: pytest.fail("no fetcher runs"),
            clock_ms=lambda: 0,
            random=Random(1),
        )

    def take_in(self) -> None:
        """What was committed since."""
        self.faults.is_armed = True
        unreported, self.controller.unreported = self.controller.unreported, []
        for delta, image in unreported:
            self.manager.apply_delta(delta.topics, image)
            place_now(self.manager)
        self.faults.is_armed = False

    def append(self) -> None:
        for partition in self.manager.partitions():
            if partition.is_leader and partition.storage_error is None:
                partition.append_as_leader(batch(2), is_all_acks=False, clock_ms=1)
                partition.log.tail.write_pending()


async def live(faults: Faults) -> None:
    """Make, lead, follow, lead again, give away, delete, and make anew."""
    broker = Broker(faults)
    controller = broker.controller
    await broker.logs.load()
    controller.create("led", partitions=3)
    controller.create("followed", leader=2)
    broker.take_in()
    broker.append()
    controller.change("led", 0, leader=2)
    controller.change("followed", leader=1)
    broker.take_in()
    broker.append()
    controller.change("led", 0, leader=1)
    others = (BrokerId(2), BrokerId(3))
    controller.commit(
        PartitionChangeRecord(
            topic_id=topic_id_of("led"),
            partition_id=1,
            replicas=others,
            directories=(ZERO_UUID,) * 2,
            isr=others,
            leader=others[0],
        )
    )
    broker.take_in()
    broker.append()
    controller.delete("led")
    controller.create("led", topic_id=Uuid(b"another topic id"))
    broker.take_in()


@pytest.mark.parametrize("is_dead", [False, True])
async def test_a_disk_that_fails_while_metadata_is_taken_in_stops_no_broker(
    monkeypatch: pytest.MonkeyPatch, is_dead: bool
) -> None:
    """An error that comes out of it would, for nobody knew what half was taken (image/publisher.py)."""
    nth = seen = 0
    while nth <= seen:
        nth += 1
        faults = Faults(nth=nth, is_dead=is_dead)
        with monkeypatch.context() as patched:
            for kind, names in ((MemoryDisk, OF_A_DISK), (MemoryFile, OF_A_FILE)):
                for name in names.split():
                    patched.setattr(kind, name, faults.before(getattr(kind, name)))
            await live(faults)
        seen = faults.seen
    assert nth > 40


async def test_logs_that_find_no_descriptor_are_opened_when_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "OPEN_RETRY_S", 0.001)
    broker = Broker(Faults(nth=0, is_dead=False))
    await broker.logs.load()
    broker.controller.create("led", partitions=3)
    broker.disk.is_short_of_descriptors = True
    broker.take_in()
    await asyncio.sleep(0.01)
    assert list(broker.manager.partitions()) == [] and len(broker.logs.health.online_directories) == 2
    broker.disk.is_short_of_descriptors = False
    async with asyncio.timeout(30):
        while len(list(broker.manager.partitions())) < 3:
            await asyncio.sleep(0.001)
            place_now(broker.manager)
    broker.append()
    assert all(partition.log.log_end_offset == 2 for partition in broker.manager.partitions())
