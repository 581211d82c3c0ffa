"""Runs in which what goes wrong is told, not drawn: the moment of a planted bug that random seeds hardly reach.

May touch:  a run, as faults do.      Must not touch: anything within its nodes.
Invariants: clean code keeps every law in every story. One seed each: it decides how long messages and flushes take, and no story
            hangs on that, so no change of what nodes write makes one stale.
Read next:  node_mutants.py, which looks for bugs in them; test_stories.py; late_leader.py, one more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.controller.requests import (
    CreatableTopic,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    TopicReference,
)
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    PartitionReassignment,
)
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import ConfigResourceType
from barnabas_replication.leader.deletion import HIGH_WATERMARK
from barnabas_replication.requests import AppendOutcome
from barnabas_simulation.cluster import TOPIC, Cluster
from barnabas_simulation.disk import DiskFaults
from barnabas_simulation.faults import Faults
from barnabas_simulation.nodes import SimulatedNode
from barnabas_simulation.operators import MINIMUM, _alteration
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.rot import _batches_of
from barnabas_simulation.scripted import CALM, STEPS_MAX
from barnabas_simulation.sockets import StreamFaults
from barnabas_simulation.swarm import HAUNT_EVERY_S, ONE_BATCH_BYTES, MemberTrouble, Slant, Swarm
from barnabas_simulation.workload import Client, Producer
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Offset, TopicPartition
from barnabas_wire.records.batch import CRC_START

SEED = 39
WAIT_S = 20.0
"""For what clean code does not let come."""
NAME = TopicPartition(TOPIC, 0)
AGAIN = "again"
BUSY = replace(CALM, think_s=0.05)
"""Clients write some forty batches a second."""


class StoryFailed(Exception):
    """The story itself could not go on: no law was broken."""


class Story(Cluster):
    """Three voters, and one partition of three replicas; `tell` is what happens."""

    partitions = 1
    like = BUSY
    has = Slant.NONE

    def __init__(self) -> None:
        super().__init__(SEED, steps=STEPS_MAX, slant=self.has)

    def draw_swarm(self) -> Swarm:
        """See Cluster.draw_swarm."""
        return self.like

    def make_faults(self) -> Faults:
        """See Cluster.make_faults."""
        return _Told(self)

    async def tell(self) -> None:
        """Break what is to be broken. The run heals everything afterwards, and judges."""
        raise NotImplementedError

    # -- what stories are made of ----------------------------------------------------------------------------------

    @property
    def registration(self) -> PartitionRegistration:
        """The partition's registration in the newest image."""
        return self.registration_of(NAME)

    def registration_of(self, name: TopicPartition) -> PartitionRegistration:
        """The registration of a partition that was created before."""
        found = self.invariants._newest_image().topics.partition(name)
        assert found is not None, f"{name} was created"
        return found

    @property
    def leader_id(self) -> BrokerId:
        """NO_BROKER while nobody leads, or nobody is up who would know."""
        found = self.invariants._newest_image().topics.partition(NAME)
        return NO_BROKER if found is None else found.leader

    @property
    def leader(self) -> SimulatedNode:
        """Who leads the partition."""
        return next(node for node in self.nodes if node.id == self.registration.leader)

    async def until(self, holds: Callable[[], bool], *, every_s: float = 0.05) -> bool:
        """Wait; False when it did not come to that within WAIT_S."""
        until_s = self.loop.time() + WAIT_S
        while not holds():
            if self.loop.time() > until_s:
                return False
            await asyncio.sleep(every_s)
        return True

    async def ask(self, request: object) -> None:
        """An operator asks the active controller, once there is one."""
        await self.until(lambda: any(node.is_up and node.driver.is_active for node in self.nodes))
        active = next(node for node in self.nodes if node.is_up and node.driver.is_active)
        await active.driver.handle(request, principal="User:operator")  # type: ignore[arg-type]

    async def move(self, replicas: tuple[BrokerId, ...]) -> None:
        """Begin to move the partition's replicas there."""
        moved = PartitionReassignment(topic=TOPIC, partition_id=0, replicas=replicas)
        await self.ask(AlterPartitionReassignments(partitions=(moved,)))

    async def lead(self, node: SimulatedNode) -> None:
        """Have the first of its replicas lead the partition."""
        await self.until_in_sync()
        await self.ask(ElectLeaders(election_type=ElectionType.PREFERRED, partitions=((TOPIC, 0),)))
        await self.until(lambda: self.leader_id == node.id)

    async def send(self, batch: bytes) -> AppendOutcome:
        """To whoever leads, until it is acknowledged."""
        while (outcome := await self.clients[0]._try(batch)) is None:
            await asyncio.sleep(0.01)
        return outcome

    async def until_in_sync(self) -> bool:
        """Every node is up, and every replica of the partition in its ISR."""
        return await self.until(
            lambda: (
                all(node.is_up for node in self.nodes)
                and self.leader_id != NO_BROKER
                and len(self.registration.isr) == len(self.registration.replicas)
            )
        )

    def cut_power(self, node: SimulatedNode) -> None:
        """At once; it stays off until it is started."""
        self.figures.crashes += 1
        node.crash()


class _Told(Faults):
    """Nothing happens but what the story tells."""

    def __init__(self, story: Story) -> None:
        super().__init__(story, story.swarm)
        self._story = story

    def start(self) -> None:
        """See Faults.start."""
        self.is_calm = False
        telling = asyncio.ensure_future(self._story.tell())
        telling.add_done_callback(self._on_end)
        self._trouble.append(telling)

    def _on_end(self, telling: asyncio.Task[None]) -> None:
        if telling.cancelled():
            return
        error = telling.exception()
        if isinstance(error, LawBroken):
            self._story.network.failures.append(error)
        elif error is not None:
            failed = StoryFailed(f"{type(self._story).__name__} could not be told")
            failed.__cause__ = error
            self._story.network.failures.append(failed)
        self._story.end_trouble()


class StopsInTurn(Story):
    """Records count when written. Two nodes stop cleanly, one after the other, and then their power may go: the second is eligible
    with all that it had, for its stop has flushed that."""

    like = replace(BUSY, logs=replace(BUSY.logs, is_page_cache=True))

    async def tell(self) -> None:
        """See Story.tell."""
        for round_ in range(8):
            await self.until_in_sync()
            await asyncio.sleep(1.0)
            for place in (round_, round_ + 1):
                node = self.nodes[place % len(self.nodes)]
                life = node.life
                self.figures.stops += 1
                node.stop()
                await self.until(lambda node=node, life=life: node.life > life)  # type: ignore[misc]
        await self.until_in_sync()


class TopicMadeAgain(Story):
    """A topic is deleted and made again under its name. Its leader alone has flushed a record when it loses its power, before its next
    checkpoint of high watermarks: what the last one says of the name is about the former topic."""

    like = replace(BUSY, logs=replace(BUSY.logs, checkpoint_s=1.0))

    async def tell(self) -> None:
        """See Story.tell."""
        for round_ in range(6):
            await self._make(AGAIN)
            former, client = Client(self, AGAIN, 0, producers=0), Client(self, AGAIN, 0, producers=0)
            producers = [Producer(10_000 + 2 * round_), Producer(10_001 + 2 * round_)]
            for _ in range(3):
                await former._write(producers[0])
            await asyncio.sleep(1.5 * self.like.logs.checkpoint_s)
            await self.ask(DeleteTopics(topics=(TopicReference(name=AGAIN),)))
            await self._make(AGAIN)
            found = self.registration_of(TopicPartition(AGAIN, 0))
            leader = next(node for node in self.nodes if node.id == found.leader)
            for node in self.nodes:
                node.disk_faults.are_logs_stalled = node is not leader
            writing = asyncio.ensure_future(client._write(producers[1]))
            await self.until(lambda leader=leader: _durable_end(leader, AGAIN) > 0)  # type: ignore[misc]
            self.cut_power(leader)
            await asyncio.sleep(0.1)
            for node in self.nodes:
                node.disk_faults.are_logs_stalled = False
            leader.start()
            await writing
            await self.until_in_sync()
            await self.ask(DeleteTopics(topics=(TopicReference(name=AGAIN),)))

    async def _make(self, name: str) -> None:
        made = CreatableTopic(name=name, partition_count=1, replication_factor=3)
        await self.ask(CreateTopics(topics=(made,), validate_only=False))
        await self.until(
            lambda: all(
                node.is_up and node.replicas.partition(TopicPartition(name, 0)) is not None for node in self.nodes
            )
        )


class BegunAnew(Story):
    """A follower comes back when its leader has let go of all that it has: it begins anew where the leader's log starts, and no
    flush of its disk is answered. It may join only once that beginning is durable."""

    async def tell(self) -> None:
        """See Story.tell."""
        leader = self.leader
        follower, other = (node for node in self.nodes if node is not leader)
        self.cut_power(follower)
        await self.until(lambda: len(self.registration.isr) == 2)
        for client in self.clients:
            client.stop()  # it is caught up with its first fetch then
        await self.until(lambda: all(client.is_done for client in self.clients))
        led = leader.replicas.partition(NAME)
        assert led is not None, "it leads"
        await self.operators._delete_records(leader.id, led, HIGH_WATERMARK)
        follower.disk_faults.are_logs_stalled = True
        follower.start()
        if await self.until(lambda: follower.id in self.registration.isr):
            self.cut_power(other)
            await self.until(lambda: other.id not in self.registration.isr)
            self.cut_power(follower)
            await self.until(lambda: follower.id not in self.registration.isr)
            other.start()
            follower.start()
        follower.disk_faults.are_logs_stalled = False
        await self.until_in_sync()


class DoubtedLeader(Story):
    """One replica is enough for a write. A bit flips in a producer's last batch, of which the producer has not heard, while the
    leader has no follower; it starts again, leads alone, and cannot know that batch when it comes again."""

    like = replace(BUSY, brokers_beside=3, logs=replace(BUSY.logs, checkpoint_s=0.2))

    async def tell(self) -> None:
        """See Story.tell."""
        client, beside = self.clients[0], self.nodes[3:]  # the voters go on
        await self.ask(minimum_of_topic(1))
        await self.move(tuple(node.id for node in beside))
        await self.until(lambda: {node.id for node in beside} == set(self.registration.isr))
        for round_ in range(3):
            await self.until_in_sync()
            producer = Producer(10_000 + round_)
            client.producers.append(producer)
            ids, batch = producer.next_batch(1, time_ms=self.wall_ms())
            await self.send(batch)
            await asyncio.sleep(0.5)  # it is below the recovery point: else it would be cut as a torn write
            leader = self.leader
            others = [node for node in beside if node is not leader]
            for node in others:
                self.cut_power(node)
            await self.until(lambda leader=leader: self.registration.isr == (leader.id,))  # type: ignore[misc]
            self.cut_power(leader)
            place = next(
                place
                for path, inode in leader.disk.names.items()
                if f"/{NAME}/" in path and path.endswith(".log")
                for place in _batches_of(inode)
                if place.header.producer_id == producer.producer_id
            )
            place.inode.rot[place.position + CRC_START] = 1
            leader.start()
            sending = asyncio.ensure_future(self.send(batch))
            await asyncio.sleep(3.0)
            for node in others:
                node.start()
            client._on_acknowledged(producer, ids, await sending)


class StandsStill(Story):
    """The machine of all nodes stands still for longer than a broker's session lasts: no broker was silent."""

    async def tell(self) -> None:
        """See Story.tell."""
        for _ in range(6):
            await asyncio.sleep(1.5)
            self.figures.stalls += 1
            self.loop.stand_still(4.5)


class Haunted(Story):
    """A follower loses its disk, comes back and joins again; then the leader hears what it asked for in its former life, as if it had
    again what it had (KIP-903)."""

    like = replace(BUSY, producers=4, replica_fetch_bytes=ONE_BATCH_BYTES, restart_s=0.3)
    has = Slant.HAUNTED

    async def tell(self) -> None:
        """See Story.tell."""
        for round_ in range(20):
            await self.until_in_sync()
            await asyncio.sleep(HAUNT_EVERY_S)
            others = [node for node in self.nodes if node is not self.leader]
            await self.faults._haunt(self.leader, others[round_ % 2])


class UncommittedTails(Story):
    """Whoever leads has alone what it writes from then on, and the power of all goes. The two others elect one of them, and write; then
    the first comes back with a tail that was never committed, of an epoch that has nothing else."""

    like = replace(BUSY, producers=4, logs=replace(BUSY.logs, segment_bytes=400, checkpoint_s=0.2))

    async def tell(self) -> None:
        """See Story.tell."""
        for _ in range(8):
            await self.until(lambda: self.leader_id != NO_BROKER and self.leader.is_up, every_s=0.001)
            leader = self.leader
            for node in self.nodes:
                node.disk_faults.are_logs_stalled = node is not leader
            await asyncio.sleep(0.5)
            for node in self.nodes:
                self.cut_power(node)
                node.disk_faults.are_logs_stalled = False
            for node in self.nodes:
                if node is not leader:
                    node.start()
            await self.until(lambda leader=leader: self.leader_id not in (leader.id, NO_BROKER))  # type: ignore[misc]
            await asyncio.sleep(0.5)
            leader.start()
            await self.until_in_sync()
            self.cut_power(self.leader)
            next(node for node in self.nodes if not node.is_up).start()


class TrimmedTails(Story):
    """No follower flushes what a leader writes, so nothing of it is committed while its size calls for retention; then the leader stops."""

    like = replace(BUSY, logs=replace(BUSY.logs, segment_bytes=400, topic_retention_bytes=600, checkpoint_s=0.5))

    async def tell(self) -> None:
        """See Story.tell."""
        client = self.clients[0]
        for round_ in range(3):
            await self.until_in_sync()
            leader = self.leader
            for node in self.nodes:
                node.disk_faults.are_logs_stalled = node is not leader
            writing = [asyncio.ensure_future(client._write(Producer(10_000 + 40 * round_ + i))) for i in range(40)]
            await asyncio.sleep(5.0)
            for node in self.nodes:
                node.disk_faults.are_logs_stalled = False
            await asyncio.gather(*writing)
            self.figures.stops += 1
            leader.stop()


class TwoOfOneInstance(Story):
    """A second process comes under the instance id of a classic member while the first still runs: that one is told so, and nothing counts
    that it commits. So it is again when the group's coordinator has lost its power."""

    like = replace(
        BUSY,
        streams=StreamFaults(),
        members=MemberTrouble(
            classic=1.0,
            sleeps=0.0,
            dies=0.0,
            leaves=0.0,
            slow=0.0,
            doubles=0.0,
            commits=0.5,
            grow_every_s=0.0,
            static=1.0,
            restarts=0.0,
        ),
    )

    async def tell(self) -> None:
        """See Story.tell."""
        assert self.listening is not None and self.listening.members is not None
        group = self.listening.members
        for member in group.members[:2]:
            await self.until(lambda: group.unsettled() is None)
            member.returns = partial(member.start_again, is_classic=True, leaves=False, lingers=True)
            await self.until(lambda member=member: member.returns is None)  # type: ignore[misc]
            coordinator = next(node for node in self.nodes if group.laws.is_newest(group.laws.term(node.id)))
            self.cut_power(coordinator)
            await asyncio.sleep(1.0)
            coordinator.start()
            await self.until_in_sync()


class SlowFlushes(Story):
    """A flush takes so long that segments are begun meanwhile; one node after the other loses its power, then all."""

    like = replace(
        BUSY,
        disks=DiskFaults(flush_s=0.05),
        producers=4,
        think_s=0.02,
        restart_s=0.3,
        logs=replace(BUSY.logs, segment_bytes=400, checkpoint_s=0.3),
    )

    async def tell(self) -> None:
        """See Story.tell."""
        for turn in range(10):
            await asyncio.sleep(1.0 + 0.1 * turn)
            for node in self.nodes if turn % 4 == 3 else [self.nodes[turn % 3]]:
                self.faults.crash(node)


class LateAnswers(Story):
    """The controllers agree that a follower joins; its leader, which does not vote, hears that late, and meanwhile the follower flushes
    nothing."""

    like = replace(BUSY, producers=4, brokers_beside=1)

    async def tell(self) -> None:
        """See Story.tell."""
        leader = self.nodes[-1]
        wanted = (leader.id, self.nodes[0].id, self.nodes[1].id)
        await self.move(wanted)
        await self.until(lambda: self.registration.replicas == wanted and len(self.registration.isr) == 3)
        for round_ in range(6):
            await self.ask(ElectLeaders(election_type=ElectionType.PREFERRED, partitions=((TOPIC, 0),)))
            await self.until(lambda: self.registration.leader == leader.id and len(self.registration.isr) == 3)
            follower = self.nodes[round_ % 2]
            self.cut_power(follower)
            await self.until(lambda follower=follower: follower.id not in self.registration.isr)  # type: ignore[misc]
            self.network.late_answer_s = 2.0
            self.network.metadata_lags_s[leader.id] = 1.0
            follower.start()
            await self.until(lambda follower=follower: follower.id in self.registration.isr, every_s=0.001)  # type: ignore[misc]
            follower.disk_faults.are_logs_stalled = True
            await asyncio.sleep(1.0)
            follower.disk_faults.are_logs_stalled = False
            self.network.late_answer_s = 0.0
            self.network.metadata_lags_s.clear()


class TailWrittenAgain(Story):
    """A producer's batch is in a tail that its leader has to cut; it leads again, and the batch comes again: it is no duplicate."""

    async def tell(self) -> None:
        """See Story.tell."""
        first = next(node for node in self.nodes if node.id == self.registration.replicas[0])
        others = [node for node in self.nodes if node is not first]
        client = self.clients[0]
        for round_ in range(3):
            producer = Producer(10_000 + round_)
            client.producers.append(producer)
            ids, batch = producer.next_batch(1, time_ms=self.wall_ms())
            await self.lead(first)
            for node in others:
                node.disk_faults.are_logs_stalled = True
            sending = asyncio.ensure_future(client._calls.produce(first.id, NAME, batch))
            await asyncio.sleep(0.5)
            for node in self.nodes:
                self.cut_power(node)
                node.disk_faults.are_logs_stalled = False
            sending.cancel()
            for node in others:
                node.start()
            await self.until(lambda: self.leader_id not in (first.id, NO_BROKER))
            await asyncio.sleep(0.5)
            first.start()
            await self.lead(first)
            client._on_acknowledged(producer, ids, await self.send(batch))


class MovedAwayAndBack(Story):
    """A replica moves away, and its directory is renamed, emptied and removed; then its node loses its power, and the replica moves
    back meanwhile. What the power cut undid of that is a whole log or none: the new name was durable first."""

    like = replace(BUSY, logs=replace(BUSY.logs, segment_bytes=400))

    async def tell(self) -> None:
        """See Story.tell."""
        everywhere = tuple(self.registration.replicas)
        for round_ in range(8):
            await self.until_in_sync()
            await asyncio.sleep(1.0)
            node = self.nodes[round_ % len(self.nodes)]
            directory = f"{next(iter(node.directory_ids))}/{NAME}"
            await self.move(tuple(each for each in everywhere if each != node.id))
            await self.until(lambda directory=directory, node=node: _files(node, directory) == 0, every_s=0.001)  # type: ignore[misc]
            self.cut_power(node)
            await self.move(everywhere)
            node.start()


class TrimmedEverywhere(Story):
    """Retention moves the log start of every replica, an operator deletes less than that, and all nodes lose their power with the answer.
    Their disks may have the old names of the segments that retention took: a start that counted is one that was saved."""

    like = replace(BUSY, logs=replace(BUSY.logs, segment_bytes=400, topic_retention_bytes=600, checkpoint_s=4.0))

    async def tell(self) -> None:
        """See Story.tell."""
        await asyncio.sleep(1.0)
        (client,) = self.clients
        client.stop()  # a flush makes the new names durable
        await self.until(lambda: client.is_done)
        for round_ in range(4):
            await self.until(lambda: len(self._logs()) == len(self.nodes))
            await self.until_in_sync()
            producer = Producer(10_000 + round_)
            for _ in range(60):
                await client._write(producer)
            before = max(log.log_start_offset for log in self._logs())
            await self.until(
                lambda before=before: min(log.log_start_offset for log in self._logs()) > before,  # type: ignore[misc]
                every_s=0.001,
            )
            led = self.leader.replicas.partition(NAME)
            assert led is not None, "it leads"
            await self.operators._delete_records(self.leader.id, led, Offset(led.log.log_start_offset - 1))
            for node in self.nodes:
                self.cut_power(node)
            await asyncio.sleep(0.2)
            for node in self.nodes:
                node.start()
        await self.until(lambda: len(self._logs()) == len(self.nodes))
        await self.until_in_sync()

    def _logs(self) -> list[UnifiedLog]:
        replicas = [node.replicas.partition(NAME) for node in self.nodes if node.is_up]
        return [replica.log for replica in replicas if replica is not None]


def _files(node: SimulatedNode, directory: str) -> int:
    """How many files a log has, under whatever name."""
    return sum(name.startswith(directory) for name in node.disk.names)


def _durable_end(node: SimulatedNode, topic: str) -> int:
    partition = node.replicas.partition(TopicPartition(topic, 0)) if node.is_up else None
    return 0 if partition is None else partition.durable_end_offset


def minimum_of_topic(value: int) -> IncrementalAlterConfigs:
    """An operator sets its min.insync.replicas."""
    return IncrementalAlterConfigs(resources=(_alteration(ConfigResourceType.TOPIC, TOPIC, (MINIMUM,), str(value)),))
