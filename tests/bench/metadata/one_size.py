"""What one number of partitions costs a controller and a broker; each role in a process of its own.

May touch:  a temporary directory, the CPU clock of its process.   Must not touch: targets.
Invariants: a change goes the whole way (decision, journal, commit, delta, image, publishers); CPU is of all threads of the
            process; the cost of a change is the median of many, each to another partition.
Read next:  __main__.py, which starts these and prints; member.py.

    python -m tests.bench.metadata.one_size controller|broker DIRECTORY PARTITIONS PER_TOPIC CHANGES

The other brokers are registrations without processes. The broker that is measured holds HELD partitions with real logs, whatever
the size: 100 000 real logs would be 100 000 directories with four files each, and what is asked is what the *image* costs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.metadata_log import MetadataLog
from barnabas_broker.metadata.publisher import BrokerMetadataPublisher
from barnabas_broker.metadata.readiness import Readiness
from barnabas_log.config import LogConfig
from barnabas_log.directories.manager import LogManager
from barnabas_log.disk import RealDisk
from barnabas_quorum.controller.requests import (
    AlterPartition,
    CreatableTopic,
    CreateTopics,
    IsrMemberEpoch,
    PartitionAlteration,
)
from barnabas_quorum.driver.snapshots import LoadedSnapshot, SnapshotWriter
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import PartitionChangeRecord
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.manager import ReplicaManager
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Epoch, Offset, TopicPartition
from tests.bench.machine import resident_mib
from tests.bench.metadata.member import QUORUM, ControllerMember, directory_id, voters_of, wall_ms

REMOTE_BROKERS = tuple(range(101, 107))
HELD_BY = 100
"""The broker that is measured."""
HELD = 64
PARTITIONS_PER_REQUEST = 1000
IN_FLIGHT = 4
REPLICATION_FACTOR = 3
WARM_UP = 20


class Costs:
    """CPU ms of one kind of change."""

    def __init__(self) -> None:
        self.cpu_ms: list[float] = []

    async def add(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do it once, and count."""
        before = time.process_time_ns()
        result = await work()
        self.cpu_ms.append((time.process_time_ns() - before) / 1e6)
        return result

    @property
    def median_ms(self) -> float:
        """Without the first few."""
        return statistics.median(self.cpu_ms[min(WARM_UP, len(self.cpu_ms) // 4) :])


def topics_of(partitions: int, per_topic: int) -> list[CreatableTopic]:
    """Topics that together have so many partitions."""
    return [
        CreatableTopic(
            name=f"orders.of-region-{start // per_topic}",
            partition_count=min(per_topic, partitions - start),
            replication_factor=REPLICATION_FACTOR,
        )
        for start in range(0, partitions, per_topic)
    ]


async def create_topics(
    ask: Callable[[CreateTopics], Awaitable[Any]], topics: Sequence[CreatableTopic], per_topic: int
) -> None:
    """All of them, with IN_FLIGHT requests at a time. Raises the KafkaError of the first refusal."""
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def create(some: Sequence[CreatableTopic]) -> None:
        async with gate:
            reply = await ask(CreateTopics(topics=tuple(some)))
        for topic in reply.topics:
            if topic.error is not None:
                raise topic.error

    size = max(1, PARTITIONS_PER_REQUEST // per_topic)
    async with asyncio.TaskGroup() as tasks:
        for start in range(0, len(topics), size):
            tasks.create_task(create(topics[start : start + size]))


# --- the controller -------------------------------------------------------------------------------------------------


async def measure_controller(directory: Path, partitions: int, per_topic: int, changes: int) -> dict[str, Any]:
    """Create, change, fence, write a snapshot."""
    voters = voters_of([0])
    async with await ControllerMember.open(directory, voters.keys[0], voters) as member:
        await member.until_active()
        epochs = {broker_id: await member.start_broker(broker_id) for broker_id in REMOTE_BROKERS}
        driver = member.driver
        gc.collect()
        before_mib = resident_mib(os.getpid())
        started, cpu = time.perf_counter(), time.process_time()
        await create_topics(
            lambda request: driver.handle(request, principal="bench"), topics_of(partitions, per_topic), per_topic
        )
        create_s, create_cpu_s = time.perf_counter() - started, time.process_time() - cpu
        gc.collect()
        found: dict[str, Any] = {
            "create_per_s": partitions / create_s,
            "create_cpu_us": create_cpu_s * 1e6 / partitions,
            "controller_bytes": (resident_mib(os.getpid()) - before_mib) * 1024 * 1024 / partitions,
        }
        found["create_one_ms"] = await _create_one_by_one(member, changes)
        epochs[HELD_BY] = await member.start_broker(HELD_BY)
        held = CreatableTopic(
            name="held",
            assignments={index: (BrokerId(HELD_BY), BrokerId(101), BrokerId(102)) for index in range(HELD)},
        )
        await driver.handle(CreateTopics(topics=(held,)), principal="bench")
        found["controller_change_ms"] = await _alter_isrs(member, epochs, partitions, per_topic, changes)
        found |= await _other_decisions(member, epochs, changes)
        found |= await _write_snapshot(member)
    return found


async def _create_one_by_one(member: ControllerMember, changes: int) -> float:
    """Topics with one partition, each in a request of its own."""
    costs = Costs()
    for number in range(max(3, changes // 5)):
        topic = CreatableTopic(name=f"a.small_topic-{number}", partition_count=1, replication_factor=REPLICATION_FACTOR)
        request = CreateTopics(topics=(topic,))
        reply = await costs.add(partial(member.driver.handle, request, principal="bench"))
        if reply.topics[0].error is not None:
            raise reply.topics[0].error
    return costs.median_ms


async def _alter_isrs(
    member: ControllerMember, epochs: dict[int, int], partitions: int, per_topic: int, changes: int
) -> float:
    """A leader takes a replica out of the ISR: decided, written, committed, published."""
    random, costs = Random(7), Costs()
    for number in random.sample(range(partitions), min(changes, partitions)):
        topic = member.driver.controller.pending.topics.get(f"orders.of-region-{number // per_topic}")
        assert topic is not None, "it was just made"
        index = number % per_topic
        partition = topic.partitions[index]
        request = AlterPartition(
            broker_id=partition.leader,
            broker_epoch=epochs[partition.leader],
            partitions=(
                PartitionAlteration(
                    topic_id=topic.id,
                    partition_id=index,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr=tuple(IsrMemberEpoch(broker_id=replica) for replica in partition.isr[:2]),
                ),
            ),
        )
        reply = await costs.add(partial(member.driver.handle, request, principal="bench"))
        if reply.partitions[0].error is not None:
            raise reply.partitions[0].error
    return costs.median_ms


async def _other_decisions(member: ControllerMember, epochs: dict[int, int], changes: int) -> dict[str, float]:
    """What else a controller does, asked and unasked, that concerns few partitions."""
    controller = member.driver.controller
    beat, fence, look = Costs(), Costs(), Costs()
    for _ in range(changes):
        await beat.add(lambda: member.heartbeat(HELD_BY, epochs[HELD_BY]))
    for _ in range(max(3, changes // 20)):

        async def fence_and_back() -> None:
            await member.heartbeat(HELD_BY, epochs[HELD_BY], want_fence=True)
            await member.heartbeat(HELD_BY, epochs[HELD_BY])

        await fence.add(fence_and_back)
    for _ in range(max(3, changes // 20)):

        async def look_around() -> None:
            controller.elect_leaderless()
            controller.balance_leaders(now_ms=0)

        await look.add(look_around)
    return {
        "heartbeat_ms": beat.median_ms,
        "fence_ms": fence.median_ms,
        "look_ms": look.median_ms,
    }


async def _write_snapshot(member: ControllerMember) -> dict[str, float]:
    """The product's writer, on the journal that holds all of it."""
    frozen = asyncio.Event()
    writer = SnapshotWriter(
        config=QUORUM,
        log=member.log,
        source=member.listener.take_snapshot,
        voters_before=lambda offset: member.quorum.voters,
        refusal=lambda snapshot_id: None,
        flushed_end=lambda: member.log.end_offset,
        on_frozen=lambda snapshot_id: frozen.set(),
    )
    partitions = member.loader.image.topics.partition_count
    before = time.process_time()
    writing = asyncio.create_task(writer.run())
    writer.count(QUORUM.snapshot_after_bytes)
    await frozen.wait()
    cpu_s = time.process_time() - before
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    return {
        "snapshot_bytes": writer.stats.last_bytes / partitions,
        "snapshot_s": writer.stats.last_ms / 1000,
        "snapshot_cpu_s": cpu_s,
    }


# --- the broker -----------------------------------------------------------------------------------------------------


class Unreachable:
    """The controller and the peers of a broker that is measured alone."""

    async def alter_partition(self, requests: Sequence[Any]) -> Sequence[Any]:
        """AlterPartitionChannel."""
        raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT)


async def measure_broker(directory: Path, partitions: int, per_topic: int, changes: int) -> dict[str, Any]:
    """Load the snapshot that the controller has written, then take changes in."""
    loop, applied = asyncio.get_running_loop(), asyncio.Event()
    disk, log_directory = RealDisk(), directory / "data"
    log_directory.mkdir()
    logs = LogManager(
        disk=disk,
        directories=[str(log_directory)],
        default_config=LogConfig(),
        clock_ms=wall_ms,
        directory_ids={str(log_directory): directory_id(HELD_BY)},
    )
    await logs.load()
    loader, cache, epoch = MetadataLoader(), MetadataCache(MetadataImage.EMPTY), [-1]

    def no_peer(*_: object) -> Any:
        raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE)

    replicas = ReplicaManager(
        broker_id=BrokerId(HELD_BY),
        broker_epoch=lambda: epoch[0],
        config=ReplicationConfig(),
        logs=logs,
        log_config=lambda topic, image: LogConfig(),
        controller=Unreachable(),
        peers=no_peer,
        clock_ms=wall_ms,
        random=Random(1),
    )
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        applied.set()

    loader.publishers = (
        BrokerMetadataPublisher(
            broker_id=HELD_BY,
            replicas=replicas,
            coordinators=[],
            changed_settings=lambda delta, image: {},
            update_throttles=lambda delta, image: None,
            update_quotas=lambda image: None,
            cache=cache,
            readiness=Readiness(broker_id=BrokerId(HELD_BY), incarnation_id=ZERO_UUID, on_registered=lambda: None),
            control_loop=loop,
            data_loop=loop,
            on_applied=lambda offset: applied.set(),
            on_error=fail,
        ),
    )
    placing = asyncio.ensure_future(replicas._hosting.run())  # of its tasks the one that opens logs
    metadata_log = await MetadataLog.open(disk=RealDisk(), metadata_directory=str(directory), now_ms=wall_ms())
    found = await _load(metadata_log, loader, applied, partitions)
    registered = loader.image.cluster.broker(BrokerId(HELD_BY))
    assert registered is not None, "the controller's run registered it"
    epoch[0] = registered.epoch
    if failures:
        raise failures[0]

    random = Random(11)
    shrunk = set[TopicPartition]()

    async def change(name: str, index: int) -> None:
        topic = loader.image.topics.get(name)
        assert topic is not None, "the controller's run made it"
        key = TopicPartition(name, index)
        replicas_of = topic.partitions[index].replicas
        isr = replicas_of if key in shrunk else replicas_of[:2]
        shrunk.symmetric_difference_update({key})
        record = PartitionChangeRecord(topic_id=topic.id, partition_id=index, isr=isr)
        offset = Offset(loader.image.offset + 1)
        batch = CommittedBatch(offset, Epoch(loader.image.epoch), wall_ms(), (encode(record),))
        applied.clear()
        loader.on_commit([batch])
        await applied.wait()
        if failures:
            raise failures[0]
        assert cache.image is loader.image, "the publisher has applied it"

    own, others = Costs(), Costs()
    for number in range(changes):
        await own.add(partial(change, "held", number % HELD))
        at = random.randrange(partitions)
        await others.add(partial(change, f"orders.of-region-{at // per_topic}", at % per_topic))
    found["broker_change_ms"], found["broker_other_ms"] = own.median_ms, others.median_ms
    placing.cancel()
    await replicas.close()
    await logs.close(broker_epoch=epoch[0])
    await metadata_log.close()
    disk.close()
    return found


async def _load(log: MetadataLog, loader: MetadataLoader, applied: asyncio.Event, partitions: int) -> dict[str, Any]:
    gc.collect()
    before_mib = resident_mib(os.getpid())
    started, cpu = time.perf_counter(), time.process_time()
    longest_s, step_started = 0.0, time.perf_counter()
    for _ in loader.on_load_snapshot(LoadedSnapshot(log, log.snapshots()[-1])):
        longest_s = max(longest_s, time.perf_counter() - step_started)
        await asyncio.sleep(0)
        step_started = time.perf_counter()
    await applied.wait()
    longest_s = max(longest_s, time.perf_counter() - step_started)
    load_s, load_cpu_s = time.perf_counter() - started, time.process_time() - cpu
    gc.collect()
    return {
        "load_s": load_s,
        "load_cpu_s": load_cpu_s,
        "load_step_ms": longest_s * 1000,
        "broker_bytes": (resident_mib(os.getpid()) - before_mib) * 1024 * 1024 / partitions,
    }


ROLES = {"controller": measure_controller, "broker": measure_broker}

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    role, where, *sizes = sys.argv[1:]
    print(json.dumps(asyncio.run(ROLES[role](Path(where), *map(int, sizes)))))
