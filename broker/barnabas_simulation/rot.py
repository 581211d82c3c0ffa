"""Bits that flip on disks: under nodes that are stopped, and under leaders.

May touch:  the disks; the nodes' power and the network through Power.     Must not touch: the state of a node.
Invariants: one node rots at a time, and no node loses a disk until it is whole again: three replicas and min ISR 2 can
            bear one bad copy, not a second or a lost disk beside it. What flips was flushed, as the node's own files
            say: above that, a start takes rot for a write that was torn, and cuts it.
Read next:  faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple, Protocol

from barnabas_log.directories.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINTS_FILE, read_offsets
from barnabas_log.directories.removals import DELETE_SUFFIX
from barnabas_log.memory_disk import Inode
from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.partition import Partition
from barnabas_simulation.disk import LOGS
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.run import Run
from barnabas_simulation.swarm import Slant
from barnabas_wire.kafka.ids import BrokerId, Offset, TopicPartition
from barnabas_wire.records.batch import CRC_START, BatchHeader, iterate_batches

EVERY_S = 1.5
BITS_MAX = 3
CLIENTS = BrokerId(0)
"""Where messages of clients come from."""
LED_EVERY_S = 0.2
WAIT_S = 3.0
"""Most time in which a leader's log is to become what is wanted, and in which a damaged replica is to lead."""
STEP_S = 0.01
UNKNOWN_S = 1.0
"""Most time for which no node hears that whoever leads is damaged."""
DOUBT_SHARE = 0.5
"""The share of bits flipped under leaders that are in a producer's last batch."""


class Place(NamedTuple):
    """A batch in a file."""

    inode: Inode
    position: int
    header: BatchHeader


class Power(Protocol):
    """What breaks nodes, as rot needs it."""

    wiped: NodeParts | None

    def may_strike(self, node: NodeParts, kind: str) -> bool:
        """Whether this may happen to the node now, and is not left out."""

    def stop(self, node: NodeParts) -> None:
        """Ask a node for a clean stop; it starts again later."""

    def power_off(self, node: NodeParts, *, is_short: bool = False) -> None:
        """Power off at once, and on again later, or within moments."""


class Rot:
    """The bits that flip in one run."""

    def __init__(self, cluster: Run, power: Power) -> None:
        self._cluster = cluster
        self._power = power
        self._to_rot: NodeParts | None = None
        """A node that is being stopped, for bits to flip in its logs."""

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run until calm."""
        cluster = self._cluster
        if not cluster.has_rot:
            return []
        # Only where a search asks for it: all other seeds are the runs that they were before.
        is_led = cluster.slant is Slant.ROT
        led = Random(f"rot of the led of {cluster.seed}")
        return [self._under_stopped(), *([self._under_leaders(led)] if is_led else [])]

    @property
    def is_there(self) -> bool:
        """Whether bits are flipped, or about to be."""
        return self._to_rot is not None or any(node.disk.has_rot for node in self._cluster.nodes)

    def forget(self, node: NodeParts) -> None:
        """It crashed before it was stopped: then damage above the recovery point looks like a write that was torn, and is cut."""
        if self._to_rot is node:
            self._to_rot = None

    def after_stop(self, node: NodeParts) -> None:
        """It has ended by itself."""
        if self._to_rot is node:
            self._to_rot = None
            self._flip_several(node)

    # -- under nodes that are stopped ------------------------------------------------------------------------------

    async def _under_stopped(self) -> None:
        """One node is stopped cleanly, and bits of its logs flip while it is down."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.rot.expovariate(1 / EVERY_S))
            if not self.is_there:
                node = cluster.rot.choice(cluster.nodes)
                if not node.is_leaving and self._power.may_strike(node, "rot"):
                    self._to_rot = node
                    self._power.stop(node)

    def _flip_several(self, node: NodeParts) -> None:
        """In what another node holds, too, and where the stop was clean: above a recovery point that a full directory did not take, rot
        looks like a torn write. Not in what is being deleted, which no stop flushes."""
        random = self._cluster.rot
        found = [
            (path, place)
            for path, inode in sorted(node.disk.names.items())
            if LOGS in path and path.endswith(".log") and f"{DELETE_SUFFIX}/" not in path
            if f"{path.rsplit('/', 2)[0]}/{CLEAN_SHUTDOWN_FILE}" in node.disk.names
            for place in _batches_of(inode)
        ]
        for _ in range(random.randint(1, BITS_MAX) if found else 0):
            path, place = random.choice(found)
            bit = _bit_of(place, random)
            topic, _, number = path.rsplit("/", 2)[1].rpartition("-")
            name = TopicPartition(topic, int(number)) if number.isdecimal() else None
            if name and self._is_held_elsewhere(node, name, place.header):
                self._flip(node, place, bit)

    def _is_held_elsewhere(self, node: NodeParts, name: TopicPartition, header: BatchHeader) -> bool:
        """Whether another replica that may lead has the batch, in a directory that works. Without one the partition would have no
        leader once this replica is marked corrupt."""
        for other in self._cluster.nodes:
            found = other.replicas.partition(name) if other is not node and other.is_up else None
            if found is None:
                continue
            registered = self._cluster.invariants.model(name.topic, found.topic_id, name.partition).registration
            if registered is None or other.id not in {*registered.isr, *registered.elr}:
                continue
            is_broken = found.log.directory.rsplit("/", 1)[0] in other.disk.broken
            end_offset = found.durable_end_offset
            if not is_broken and found.log.log_start_offset <= header.base_offset < header.next_offset <= end_offset:
                return True
        return False

    def _flip(self, node: NodeParts, place: Place, bit: tuple[int, int]) -> None:
        place.inode.rot.update([bit])
        self._cluster.figures.bits_flipped += 1
        self._cluster.note("bit flipped", node.id, node.life)

    # -- under leaders ---------------------------------------------------------------------------------------------

    async def _under_leaders(self, random: Random) -> None:
        """A bit flips in what another member of the ISR holds, too."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(random.expovariate(1 / LED_EVERY_S))
            led = [
                (node, each)
                for node in cluster.nodes
                if node.is_up
                for each in node.replicas.partitions()
                if each.is_leader
            ]
            if self.is_there or not led:
                continue
            leader, partition = random.choice(led)
            if not self._power.may_strike(leader, "rot under a leader"):
                continue
            if random.random() < DOUBT_SHARE:
                await self._doubt(leader, partition, random)
            else:
                follower = random.choice([node for node in cluster.nodes if node is not leader])
                await self._send_rotten(leader, partition, follower, random)

    async def _send_rotten(self, leader: NodeParts, partition: Partition, follower: NodeParts, random: Random) -> None:
        """The bit is in what one follower has still to fetch. Its fetch is on its way then: a scrub soon finds what is
        not read."""

        def unsent(places: list[Place]) -> list[Place]:
            behind = follower.replicas.partition(partition.topic_partition) if follower.is_up else None
            return [each for each in places if behind and each.header.base_offset >= behind.log.log_end_offset]

        with self._held(self._cluster.network.held_fetches, (follower.id, leader.id)):
            await self._flip_in_time(leader, partition, random, unsent, holders=(follower, leader))

    async def _doubt(self, leader: NodeParts, partition: Partition, random: Random) -> None:
        """The bit is in a producer's last batch; the leader loses power at once, and leads again before the controllers hear that it
        is damaged and before the producer has written again. What it has read of producers lacks that batch."""
        cluster = self._cluster
        from_clients = [(CLIENTS, node.id) for node in cluster.nodes]

        def last_ones(places: list[Place]) -> list[Place]:
            return list({each.header.producer_id: each for each in places if each.header.producer_id >= 0}.values())

        with self._held(cluster.network.held_reports, leader.id):
            if not await self._flip_in_time(leader, partition, random, last_ones, holders=(leader,)):
                return
            cluster.network.cut(from_clients)
            self._power.power_off(leader, is_short=True)
            try:
                until_s = cluster.loop.time() + WAIT_S
                while cluster.loop.time() < until_s and not self._leads(leader, partition):
                    await asyncio.sleep(STEP_S)
            finally:
                cluster.network.mend(from_clients)
            await asyncio.sleep(UNKNOWN_S * random.random())

    def _leads(self, node: NodeParts, partition: Partition) -> bool:
        """Whether the node does, and may take records; while it could and another one leads, that one loses power."""
        cluster = self._cluster
        number = partition.topic_partition.partition
        registered = cluster.invariants.model(partition.topic_partition.topic, partition.topic_id, number).registration
        if registered is None or not node.is_serving or node.id not in registered.isr:
            return False
        if registered.leader == node.id:
            return len(registered.isr) >= partition.log.config.min_insync_replicas
        if registered.has_leader:
            other = cluster.network.nodes[registered.leader]
            if self._power.may_strike(other, "crash of a leader before a damaged replica"):
                self._power.power_off(other, is_short=True)
        return False

    @contextmanager
    def _held(self, held: dict[Any, asyncio.Future[None]], key: object) -> Iterator[None]:
        """Such messages stay on their way."""
        held[key] = until = self._cluster.loop.create_future()
        try:
            yield
        finally:
            del held[key]
            until.set_result(None)

    async def _flip_in_time(
        self,
        leader: NodeParts,
        partition: Partition,
        random: Random,
        choose: Callable[[list[Place]], list[Place]],
        *,
        holders: Collection[NodeParts],
    ) -> bool:
        """Flip a bit in one of the leader's batches that are chosen, once one of them is flushed, and held by another than `holders`
        that is in the ISR. Returns whether it was, within WAIT_S."""
        loop = self._cluster.loop
        until_s = loop.time() + WAIT_S
        while loop.time() < until_s:
            if (sound_end := self._sound_end(leader, partition, holders)) > 0:
                end = min(sound_end, _saved_end(leader, partition.log))
                places = [
                    place
                    for path, inode in sorted(leader.disk.names.items())
                    if path.startswith(f"{partition.log.directory}/") and path.endswith(".log")
                    for place in _batches_of(inode)
                ]
                found = [place for place in choose(places) if place.header.next_offset <= end]
                if found:
                    place = random.choice(found)
                    self._flip(leader, place, _bit_of(place, random))
                    return True
            await asyncio.sleep(STEP_S)
        return False

    def _sound_end(self, leader: NodeParts, partition: Partition, holders: Collection[NodeParts]) -> Offset:
        """The offset up to which another member of the ISR has flushed what the leader holds; 0 while no bit may
        flip."""
        name, nodes = partition.topic_partition, self._cluster.nodes
        if self.is_there or self._power.wiped is not None or not leader.is_up or leader.is_leaving:
            return Offset(0)
        if leader.replicas.partition(name) is not partition or not partition.is_leader:
            return Offset(0)
        ends = [
            replica.durable_end_offset
            for node in nodes
            if node not in holders and node.is_up and node.id in partition.isr.committed
            if (replica := node.replicas.partition(name)) is not None and replica.leader_epoch == partition.leader_epoch
        ]
        return max(ends, default=Offset(0))


def _bit_of(place: Place, random: Random) -> tuple[int, int]:
    """(byte, bits) in what the checksum covers, so that clients can refuse it: what lies before (offset, length, epoch) they believe."""
    return place.position + random.randrange(CRC_START, place.header.size_bytes), 1 << random.randrange(8)


def _batches_of(inode: Inode) -> list[Place]:
    return [Place(inode, position, header) for position, header in iterate_batches(bytes(inode.content))]


def _saved_end(node: NodeParts, log: UnifiedLog) -> Offset:
    """The offset up to which the node's checkpoint says that the log is flushed."""
    path = f"{log.directory.rpartition('/')[0]}/{RECOVERY_POINTS_FILE}"
    with node.disk.judged():
        return read_offsets(node.disk, path).get(log.topic_partition, Offset(0))
