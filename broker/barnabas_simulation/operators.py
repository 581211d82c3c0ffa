"""Operators of the simulated cluster: they move partitions, turn back, throttle the moving, set topics, delete records, change
who votes.

May touch:  the active controller, by asking it, and leaders, through the network.   Must not touch: anything an operator could not.
Invariants: what was answered is owed: the replicas that a partition has in the end (`owed`), the setting of a topic
            (`owed_settings`), the offset before which records are deleted (the model's `deleted_below`); an answer that did not
            come leaves the outcome open; at least two nodes vote.
Read next:  swarm.py for how often; invariants.py, which asks for what is owed.
"""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas_quorum.controller.reassignment import is_reassigning
from barnabas_quorum.controller.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
)
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    PartitionReassignment,
)
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.raft.messages import VoterChange, VoterChangeKind
from barnabas_quorum.records import ConfigResourceType
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.leader.deletion import HIGH_WATERMARK
from barnabas_replication.partition import Partition
from barnabas_simulation.network import Cut
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.run import Assignment, Run
from barnabas_simulation.swarm import Swarm
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import COMPACTED_TOPICS, BrokerId, Offset, Uuid

CALL_TIMEOUT_S = 2.5
DELETION_TIMEOUT_MS = 1500
CANCEL_SHARE = 0.4
"""The share of moving partitions, when the operator looks, that are turned back; the others get another target."""
REPLICAS_MIN = 2
REPLICAS_MAX = 3
VOTERS_MIN = 2
RATE_KEYS = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS_KEYS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

MINIMUM = "min.insync.replicas"
MINIMA = ("1", "2", "2", "3")
SEGMENT_BYTES = "segment.bytes"
SEGMENT_BYTES_UNIT = 100_000
"""So many bytes that an operator sets are one of a simulated segment, which is smaller than one may ask for (nodes.py)."""
SEGMENT_SIZES = (400, 1500, 6000)
MINIMUM_SHARE = 0.8
"""The share of settings that set min.insync.replicas."""
SETTING = "max.message.bytes"
SETTING_MIN = 1_000_000
"""Far above every batch of a client: what is set must arrive everywhere and change nothing else."""


class Operators:
    """What they ask for in one run, and what they were promised."""

    def __init__(self, cluster: Run, swarm: Swarm) -> None:
        self.id = BrokerId(0)
        self.life = 0
        self.is_up = True
        self.owed: dict[tuple[Uuid, int], set[Assignment]] = {}
        """Replicas that a partition may have once nothing moves; not there: nothing was promised."""
        self.owed_settings: dict[Uuid, set[int]] = {}
        """By topic, which sizes of a batch it may allow once nothing is under way; not there: nothing was promised."""
        self.is_asking = False
        """A move is under way to the controller: what it drops cannot be known yet."""
        self._cluster = cluster
        self._swarm = swarm
        self._work: list[asyncio.Future[None]] = []
        self._has_throttled = False
        self._settings = 0

    def start(self) -> None:
        """Let them begin."""
        if self._swarm.reassign_every_s:
            self._work.append(asyncio.ensure_future(self._reassign_now_and_then()))
        if self._swarm.coordinators.move_every_s:
            self._work.append(asyncio.ensure_future(self._move_coordinators_now_and_then()))
        if self._swarm.change_voters_every_s:
            self._work.append(asyncio.ensure_future(self._change_voters_now_and_then()))
        if self._swarm.delete_records_every_s:
            self._work.append(asyncio.ensure_future(self._delete_records_now_and_then()))
        if self._swarm.set_minimum_every_s:
            self._work.append(asyncio.ensure_future(self._set_now_and_then()))
        if self._swarm.configure_every_s:
            self._work.append(asyncio.ensure_future(self._configure_now_and_then()))

    async def calm(self) -> None:
        """No more of it, and throttles are lifted, as an operator does when the moving is over."""
        for task in self._work:
            task.cancel()
        self.is_asking = False
        while self._has_throttled:
            await self._throttle(None)
            await asyncio.sleep(0.1)

    # -- partitions ------------------------------------------------------------------------------------------------

    async def _reassign_now_and_then(self) -> None:
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.reassign_every_s))
            controller = self._active()
            if controller is None or cluster.faults.wiped is not None or self.is_asking:
                continue
            found = [
                (topic.id, topic.name, number, registration)
                for topic in controller.loader.image.topics.sorted_topics()
                for number, registration in topic.partitions.items()
            ]
            if not found:
                continue
            topic_id, topic_name, number, registration = cluster.random.choice(found)
            target = self._choose_target(registration)
            if not cluster.strikes("reassigned" if target else "turned back", number):
                continue
            if self._swarm.throttle_bytes and cluster.random.random() < 0.5:
                await self._throttle(self._swarm.throttle_bytes)
            await self._reassign(controller, topic_id, topic_name, number, target)

    async def _reassign(
        self, controller: NodeParts, topic_id: Uuid, topic_name: str, number: int, target: Assignment | None
    ) -> None:
        cluster = self._cluster
        self.is_asking = True
        item = PartitionReassignment(topic=topic_name, partition_id=number, replicas=target)
        self._remember((topic_id, number), target, is_certain=False)  # for it may be the last that is asked
        reply = await self._ask(controller, AlterPartitionReassignments(partitions=(item,)))
        error = None if reply is None else reply.partitions[0].error
        cluster.note(f"reassign {topic_name}-{number} to {target}: {reply and error}", controller.id, number)
        if reply is not None and error is None:
            self._remember((topic_id, number), target, is_certain=True)
        self.is_asking = reply is None
        if self.is_asking:  # not known, until whatever is committed of it is everywhere
            await asyncio.sleep(CALL_TIMEOUT_S)
            self.is_asking = False

    async def _move_coordinators_now_and_then(self) -> None:
        """Another of the replicas that hold a coordinator's partition is preferred, and elected."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.coordinators.move_every_s))
            controller = self._active()
            if controller is None or cluster.faults.wiped is not None or self.is_asking:
                continue
            topics = controller.loader.image.topics
            topic = topics.get(cluster.random.choice(sorted(COMPACTED_TOPICS)))
            if topic is None or is_reassigning(topic.partitions[0]):
                continue
            first, *others = topic.partitions[0].replicas
            if not cluster.strikes("coordinator moved", first):
                continue
            await self._reassign(controller, topic.id, topic.name, 0, (*others, first))
            request = ElectLeaders(election_type=ElectionType.PREFERRED, partitions=((topic.name, 0),))
            if await self._ask(controller, request) is not None:
                cluster.figures.coordinators_moved += 1

    def _choose_target(self, registration: PartitionRegistration) -> Assignment | None:
        random = self._cluster.random
        if is_reassigning(registration) and random.random() < CANCEL_SHARE:
            return None
        ids = [node.id for node in self._cluster.nodes]
        return tuple(random.sample(ids, random.randint(REPLICAS_MIN, min(REPLICAS_MAX, len(ids)))))

    def _remember(self, key: tuple[Uuid, int], target: Assignment | None, *, is_certain: bool) -> None:
        if target is None:  # back to where it began, as its registration says: invariants.py checks that
            self.owed.pop(key, None)
        elif is_certain:
            self.owed[key] = {target}
            self._cluster.figures.reassignments += 1
        elif key in self.owed:
            self.owed[key].add(target)

    async def _throttle(self, rate: int | None) -> None:
        """Set the throttle of all brokers and topics, in bytes/s; None lifts it."""
        controller = self._active()
        if controller is None:
            return
        self._has_throttled = True
        topics = [topic.name for topic in controller.loader.image.topics.sorted_topics()]
        resources = [_alteration(ConfigResourceType.BROKER, "", RATE_KEYS, None if rate is None else str(rate))]
        resources += [
            _alteration(ConfigResourceType.TOPIC, name, REPLICAS_KEYS, None if rate is None else "*") for name in topics
        ]
        reply = await self._ask(controller, IncrementalAlterConfigs(resources=tuple(resources)))
        if reply is None:
            return
        if rate is not None:
            self._cluster.figures.throttles += 1
        elif reply.resources[0].error is None:
            self._has_throttled = False

    # -- settings --------------------------------------------------------------------------------------------------

    async def _configure_now_and_then(self) -> None:
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.configure_every_s))
            controller = self._active()
            topics = [] if controller is None else controller.loader.image.topics.sorted_topics()
            if controller is None or not topics:
                continue
            topic = cluster.random.choice(topics)
            if not cluster.strikes("configured", controller.id):
                continue
            self._settings += 1
            value = SETTING_MIN + self._settings
            owed = self.owed_settings.get(topic.id)
            if owed is not None:
                owed.add(value)
            alteration = _alteration(ConfigResourceType.TOPIC, topic.name, (SETTING,), str(value))
            reply = await self._ask(controller, IncrementalAlterConfigs(resources=(alteration,)))
            if reply is not None and reply.resources[0].error is None:
                cluster.note(f"{topic.name} allows {value}", controller.id, -1)
                cluster.figures.settings += 1
                self.owed_settings[topic.id] = {value}

    async def _set_now_and_then(self) -> None:
        """The minimum by which an ISR is judged, and how long segments are."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.set_minimum_every_s))
            controller = self._active()
            topics = [] if controller is None else controller.loader.image.topics.sorted_topics()
            if controller is None or not topics:
                continue
            name = cluster.random.choice(topics).name
            if cluster.random.random() < MINIMUM_SHARE:
                key, value = MINIMUM, cluster.random.choice(MINIMA)
            else:
                key, value = SEGMENT_BYTES, str(SEGMENT_BYTES_UNIT * cluster.random.choice(SEGMENT_SIZES))
            if cluster.strikes("set", controller.id):
                alteration = _alteration(ConfigResourceType.TOPIC, name, (key,), value)
                reply = await self._ask(controller, IncrementalAlterConfigs(resources=(alteration,)))
                if reply is not None and reply.resources[0].error is None:
                    cluster.note(f"{key} of {name} is {value}", controller.id, -1)
                    cluster.figures.settings += 1

    # -- records ---------------------------------------------------------------------------------------------------

    async def _delete_records_now_and_then(self) -> None:
        """Delete records at whatever node takes itself for a leader: all that is committed, or up to any record, which
        may lie within a batch."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.delete_records_every_s))
            led = [
                (node, partition)
                for node in cluster.nodes
                if node.is_up and not node.is_stopping
                for partition in node.replicas.partitions()
                if partition.is_leader and partition.storage_error is None
            ]
            if not led:
                continue
            node, partition = cluster.random.choice(led)
            first, end = partition.log.log_start_offset, partition.high_watermark
            offset = HIGH_WATERMARK if cluster.random.random() < 0.5 else Offset(cluster.random.randint(first, end))
            if cluster.strikes("records deleted", node.id):
                self._work.append(cluster.network.spawn(self._delete_records(node.id, partition, offset)))

    async def _delete_records(self, node_id: BrokerId, partition: Partition, offset: Offset) -> None:
        cluster, name = self._cluster, partition.topic_partition
        model = cluster.invariants.model(name.topic, partition.topic_id, name.partition)

        async def handle(node: NodeParts) -> Offset | KafkaError:
            led = node.replicas.partition(name)
            if led is None or led.topic_id != partition.topic_id:
                return NotLeaderOrFollower(f"{name} is not here")
            model.let_go_below = max(model.let_go_below, led.high_watermark if offset == HIGH_WATERMARK else offset)
            (result,) = await node.replicas.delete_records([(name, offset)], timeout_ms=DELETION_TIMEOUT_MS)
            return result

        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await cluster.network.exchange("DeleteRecords", self, node_id, handle)  # type: ignore[arg-type]
        except (Cut, TimeoutError):
            return
        cluster.note(f"{name} shall begin at {offset}: {answer!r}", node_id, -1)
        if not isinstance(answer, KafkaError):
            cluster.figures.deletions += 1
            cluster.invariants.on_deleted(model, answer)

    # -- voters ----------------------------------------------------------------------------------------------------

    async def _change_voters_now_and_then(self) -> None:
        cluster = self._cluster
        while True:
            await asyncio.sleep(cluster.random.expovariate(1 / self._swarm.change_voters_every_s))
            leader = self._active()
            if leader is None:
                continue
            voters = leader.quorum.voters
            joining = [node for node in cluster.nodes if voters.by_id(node.id) is None]
            if joining and (len(voters) <= VOTERS_MIN or cluster.random.random() < 0.5):
                change = VoterChange(VoterChangeKind.ADD, cluster.random.choice(joining).member, 0)
            elif len(voters) > VOTERS_MIN:
                change = VoterChange(VoterChangeKind.REMOVE, cluster.random.choice(voters.voters), 0)
            else:
                continue
            if cluster.strikes(change.kind.value, change.voter.key.id):
                self._work.append(asyncio.ensure_future(self._change_voters(leader, change)))

    async def _change_voters(self, leader: NodeParts, change: VoterChange) -> None:
        answer = await leader.quorum.change_voters(change)
        self._cluster.note(f"{change.kind.value} {answer.error.name}", leader.id, change.voter.key.id)
        self._cluster.figures.voter_changes += answer.error.value == 0

    # -- the controller --------------------------------------------------------------------------------------------

    def _active(self) -> NodeParts | None:
        return next((node for node in self._cluster.nodes if node.is_up and node.driver.is_active), None)

    async def _ask(self, controller: NodeParts, request: Any) -> Any:
        """The answer; None when it is not known what became of the request."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await controller.driver.handle(request, principal="User:simulated")
        except (KafkaError, TimeoutError):
            return None


def _alteration(kind: ConfigResourceType, name: str, keys: tuple[str, ...], value: str | None) -> ConfigAlteration:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    changes = tuple(ConfigChange(key=key, operation=operation, value=value) for key in keys)
    return ConfigAlteration(resource_type=kind, resource_name=name, changes=changes)
