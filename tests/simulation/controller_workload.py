"""Operators and brokers as the controllers meet them: they ask, believe what they are told, and hold the quorum to it.

May touch:  the simulated network.    Must not touch: controllers but by asking them.
Invariants: an answer that does not come leaves the outcome open; only what was answered is owed. Each asker works on topics
            and a broker id of its own, so that it knows what may have happened to them.
Read next:  controller_laws.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    IsrMemberEpoch,
    PartitionAlteration,
    RegisterBroker,
    TopicReference,
)
from barnabas_quorum.controller.requests_partitions import AlterReplicaFaults, ReplicaFaultReport
from barnabas_quorum.image.features import SUPPORTED_FEATURES
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records import ConfigResourceType, ReplicaFault
from barnabas_simulation.network import Cut
from barnabas_simulation.partition_model import LawBroken
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from tests.simulation.controller_node import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.controller_node import ControllerNode
    from tests.simulation.controllers import Quorum

BROKERS_OF_EACH = 2
TOPICS_OF_EACH = 3
PARTITIONS_MAX = 9
TIMEOUT_S = 1.5
UNREACHED_S = 0.05
"""An asker that is cut off from every node looks again so much later."""
ALLOCATIONS_AT_ONCE = (1, 1, 2, 4)
CONFIG = "retention.ms"
ALTER_APART = 0.6
"""While voters are lost, how often an ISR is changed: both sides do so, of the same partitions."""
FIRST_BROKER = 100
FIRST_ASKER = 1000


@dataclass(slots=True)
class Owed:
    """What the quorum has promised of one topic name, and what else may be true since."""

    since_offset: int = -1
    """Every image from here on must show one of the states."""
    states: set[tuple[Uuid, int] | None] = field(default_factory=lambda: {None})
    """(id, partitions) of the topic, or None: there is none."""
    config_since: int = -1
    configs: set[str | None] = field(default_factory=lambda: {None})
    gone: set[Uuid] = field(default_factory=set)
    """Ids whose deletion was acknowledged."""


@dataclass(slots=True)
class PlayedBroker:
    """A broker that the asker plays."""

    id: BrokerId
    lives: int = 0
    epoch: int = -1
    """Of the newest registration that was acknowledged."""
    epoch_since: int = -1
    is_settled: bool = False
    """Nothing of a later registration is under way."""
    faults: dict[tuple[Uuid, int], tuple[int, ReplicaFault | None]] = field(default_factory=dict)
    """By partition: since which offset this is what the quorum knows of its replica."""
    unsure: set[tuple[Uuid, int]] = field(default_factory=set)
    """Partitions of which a report was not answered: it may arrive late, and nobody can say any more."""
    is_of_island: bool = False
    """Its epoch is of voters that the quorum was recovered without."""


class Asker:
    """One client: asks one thing after another."""

    def __init__(self, run: Quorum, number: int) -> None:
        self.number = number
        self.is_up = True
        self.life = 0
        self.id = BrokerId(FIRST_ASKER + number)
        self.is_done = False
        self._run = run
        self._is_stopping = False
        self._names = [f"topic-{number}-{index}" for index in range(TOPICS_OF_EACH)]
        self._owed = {name: Owed() for name in self._names}
        self._brokers = [PlayedBroker(BrokerId(FIRST_BROKER + number * 10 + i)) for i in range(BROKERS_OF_EACH)]
        self._unique = 0

    def start(self) -> None:
        """Begin to ask."""
        self._run.network.spawn(self._ask_for_ever())

    def stop(self) -> None:
        """One more operation of each kind, which must succeed, and then no more."""
        self._is_stopping = True

    async def _ask_for_ever(self) -> None:
        random = self._run.random
        kinds = [self._create, self._create, self._delete, self._configure, self._allocate, self._alter, self._alter]
        kinds += [self._report, self._report]
        for broker in self._brokers:
            await self._register(broker)
        while not self._is_stopping:
            await asyncio.sleep(random.random() * self._run.swarm.think_s)
            if random.random() < 0.15:
                await self._register(random.choice(self._brokers))
            elif random.random() < 0.25:
                await self._beat(random.choice(self._brokers))
            elif self._run.network.walls and random.random() < ALTER_APART:
                await self._alter()
            else:
                await random.choice(kinds)()
        while not await self._configure_default():
            await asyncio.sleep(0.1)
        self.is_done = True

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _ask(self, request: Any) -> tuple[Any, int] | KafkaError | None:
        """(reply, offset applied by who gave it), the refusal, or None when nobody knows what came of it."""
        run = self._run
        reached = [node for node in run.nodes if run.network.is_open(self.id, node.id)]
        if not reached:
            await asyncio.sleep(UNREACHED_S)
            return None
        active = [node for node in reached if node.is_up and node.driver.is_active]
        node = run.random.choice(active if active and run.random.random() < 0.8 else reached)
        offsets: list[tuple[int, int]] = []

        async def handle(target: ControllerNode) -> Any:
            try:
                reply = await target.driver.handle(request, principal="User:simulated")
            except KafkaError as error:
                return error
            offsets.append((target.loader.image.offset, target.loader.image.epoch))
            return reply

        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await run.network.exchange(type(request).__name__, self, node.id, handle)  # type: ignore[arg-type]
        except (Cut, TimeoutError):
            return None
        if isinstance(answer, KafkaError):
            if answer.code == ErrorCode.UNKNOWN_SERVER_ERROR:
                raise LawBroken("C12 a controller decides only what it can replay", f"{request}: {answer!r}")
            return None if answer.code == ErrorCode.NOT_CONTROLLER else answer
        run.figures.acknowledged += 1
        run.after_answer(node)
        offset, epoch = offsets[0]
        if run.recovery is not None and not run.recovery.is_of(epoch):
            self._hear_from_island(request, answer)
            return None
        return answer, offset

    def _hear_from_island(self, request: Any, reply: Any) -> None:
        """Voters that the quorum was recovered without still promise: it is lost, but what they give must be nobody else's."""
        if isinstance(request, AllocateProducerIds):
            self._run.laws.on_producer_ids(reply.first, reply.count)
        elif isinstance(request, RegisterBroker):
            broker = next(each for each in self._brokers if each.id == request.broker_id)
            broker.epoch, broker.is_of_island = reply.broker_epoch, True

    def on_recovery(self, retained: int) -> None:
        """The quorum was recovered from a survivor, and committed records from this offset on may be lost."""
        for name, owed in list(self._owed.items()):
            if max(owed.since_offset, owed.config_since) >= retained:
                self._give_up(name)
        for broker in self._brokers:
            if broker.epoch_since >= retained:
                broker.epoch, broker.is_settled = -1, False
            broker.unsure |= broker.faults.keys()
            broker.faults.clear()

    def _give_up(self, name: str) -> None:
        """The request may be on its way for long: nobody can say any more what is true of this name."""
        if name not in self._owed:
            return
        self._unique += 1
        fresh = f"topic-{self.number}-{self._unique}-again"
        self._names[self._names.index(name)] = fresh
        del self._owed[name]
        self._owed[fresh] = Owed()

    async def _create(self) -> None:
        random = self._run.random
        name = random.choice(self._names)
        owed = self._owed[name]
        registered = [broker.id for broker in self._brokers if broker.epoch >= 0]
        if not registered:
            return
        count = random.randint(1, PARTITIONS_MAX)
        assignments = {
            index: tuple(random.sample(registered, random.randint(1, len(registered)))) for index in range(count)
        }
        self._unique += 1
        value = str(3_600_000 + self._unique)
        topic = CreatableTopic(name=name, assignments=assignments, configs={CONFIG: value})
        # whatever becomes of it, a topic of this name with this many partitions may be there from now on
        unknown = (Uuid(bytes(16)), count)
        before, before_configs = set(owed.states), set(owed.configs)
        owed.states.add(unknown)
        owed.configs.add(value)
        answer = await self._ask(CreateTopics(topics=(topic,)))
        if answer is None:
            self._give_up(name)
            return
        if isinstance(answer, KafkaError) or answer[0].topics[0].error is not None:
            # a refusal says that nothing was written, but an earlier wish may still come true
            if unknown not in before:
                owed.states.discard(unknown)
            owed.configs = before_configs
            return
        created = answer[0].topics[0]
        if created.topic_id in owed.gone:
            raise LawBroken("C11 a topic id never comes back", f"{name} {created.topic_id}")
        owed.since_offset, owed.states = answer[1], {(created.topic_id, count)}
        owed.config_since, owed.configs = answer[1], {value}

    async def _delete(self) -> None:
        name = self._run.random.choice(self._names)
        owed = self._owed[name]
        states, configs = set(owed.states), set(owed.configs)
        owed.states.add(None)
        owed.configs.add(None)
        answer = await self._ask(DeleteTopics(topics=(TopicReference(name=name),)))
        if answer is None:
            self._give_up(name)
            return
        if isinstance(answer, KafkaError) or answer[0].topics[0].error is not None:
            owed.states, owed.configs = states, configs
            return
        owed.gone.add(answer[0].topics[0].topic_id)
        owed.since_offset, owed.states = answer[1], {None}
        owed.config_since, owed.configs = answer[1], {None}

    async def _configure(self) -> None:
        await self._set(ConfigResourceType.TOPIC, self._run.random.choice(self._names))

    async def _configure_default(self) -> bool:
        """A topic that is not there is refused; either is an answer."""
        return await self._set(ConfigResourceType.TOPIC, self._names[0])

    async def _set(self, kind: ConfigResourceType, name: str) -> bool:
        owed = self._owed[name]
        self._unique += 1
        value = str(3_600_000 + self._unique)
        before = set(owed.configs)
        owed.configs.add(value)
        change = ConfigChange(key=CONFIG, operation=ConfigOperation.SET, value=value)
        alteration = ConfigAlteration(resource_type=kind, resource_name=name, changes=(change,))
        answer = await self._ask(IncrementalAlterConfigs(resources=(alteration,)))
        if answer is None:
            self._give_up(name)
            return False
        if isinstance(answer, KafkaError) or answer[0].resources[0].error is not None:
            owed.configs = before
            return True
        owed.config_since, owed.configs = answer[1], {value}
        return True

    async def _allocate(self) -> None:
        """As brokers do whose blocks run out at the same time: several ask before any of them is answered."""
        random = self._run.random
        registered = [broker for broker in self._brokers if broker.epoch >= 0]
        if registered:
            count = random.choice(ALLOCATIONS_AT_ONCE)
            await asyncio.gather(*(self._allocate_for(random.choice(registered)) for _ in range(count)))

    async def _allocate_for(self, broker: PlayedBroker) -> None:
        answer = await self._ask(AllocateProducerIds(broker_id=broker.id, broker_epoch=broker.epoch))
        if isinstance(answer, tuple):
            self._run.laws.on_producer_ids(answer[0].first, answer[0].count)

    async def _register(self, broker: PlayedBroker) -> None:
        """A new life of it, after a stop that was not clean."""
        broker.lives += 1
        broker.is_settled = False
        incarnation = Uuid((broker.id * 1_000_000 + broker.lives).to_bytes(16, "big"))
        answer = await self._ask(
            RegisterBroker(
                broker_id=broker.id,
                cluster_id=CLUSTER_ID,
                incarnation_id=incarnation,
                endpoints=(Endpoint("PLAINTEXT", "simulated", 9000 + broker.id),),
                directories=(Uuid(bytes([broker.id % 256]) * 16),),
                features=SUPPORTED_FEATURES,
            )
        )
        if not isinstance(answer, tuple):
            return
        epoch = answer[0].broker_epoch
        if epoch <= broker.epoch and not broker.is_of_island:
            raise LawBroken("C7 broker epochs rise", f"broker {broker.id}: {broker.epoch} to {epoch}")
        old = -1 if broker.is_of_island else broker.epoch
        broker.epoch, broker.epoch_since, broker.is_settled, broker.is_of_island = epoch, answer[1], True, False
        if old >= 0 and self._run.random.random() < 0.5:
            await self._speak_from_the_past(broker, old)
        await self._beat(broker)

    async def _speak_from_the_past(self, broker: PlayedBroker, epoch: int) -> None:
        answer = await self._ask(AllocateProducerIds(broker_id=broker.id, broker_epoch=epoch))
        if isinstance(answer, tuple) and epoch < broker.epoch:
            raise LawBroken("C7 an older life is refused", f"broker {broker.id} with epoch {epoch}, now {broker.epoch}")

    async def _beat(self, broker: PlayedBroker) -> None:
        if broker.epoch < 0:
            return
        await self._ask(
            BrokerHeartbeat(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                metadata_offset=self._run.laws.newest.offset,
                want_fence=False,
                want_shutdown=False,
            )
        )

    async def _alter(self) -> None:
        """Shrink or grow an ISR, now and then from what an older image says."""
        random = self._run.random
        image = self._newest()
        topic = image.topics.get(random.choice(self._names))
        if topic is None:
            return
        index = random.choice(sorted(topic.partitions))
        partition = topic.partitions[index]
        leader = next((broker for broker in self._brokers if broker.id == partition.leader), None)
        if leader is None:
            return
        is_late = random.random() < 0.3
        if is_late:
            await asyncio.sleep(random.random() * 0.3)
        wanted = [partition.leader] if len(partition.isr) > 1 else list(partition.replicas)
        epoch = partition.partition_epoch - (1 if random.random() < 0.2 else 0)
        alteration = PartitionAlteration(
            topic_id=topic.id,
            partition_id=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=epoch,
            new_isr=tuple(IsrMemberEpoch(broker_id=member) for member in wanted),
        )
        answer = await self._ask(
            AlterPartition(broker_id=leader.id, broker_epoch=leader.epoch, partitions=(alteration,))
        )
        if isinstance(answer, tuple) and answer[0].partitions[0].error is None:
            now = answer[0].partitions[0].partition_epoch
            if now != epoch + 1 and not (now == epoch and set(wanted) == set(partition.isr)):
                raise LawBroken(
                    "C3 a change names the present partition epoch", f"{topic.name}-{index}: {epoch} gave {now}"
                )

    async def _report(self) -> None:
        """A replica became faulty, or is whole again."""
        random = self._run.random
        topic = self._newest().topics.get(random.choice(self._names))
        broker = random.choice(self._brokers)
        if topic is None or broker.epoch < 0:
            return
        index = random.choice(sorted(topic.partitions))
        fault = random.choice((None, None, ReplicaFault.CORRUPT, ReplicaFault.NO_ROOM))
        key = (topic.id, index)
        report = ReplicaFaultReport(topic_id=topic.id, partition_id=index, fault=fault)
        broker.faults.pop(key, None)
        answer = await self._ask(AlterReplicaFaults(broker_id=broker.id, broker_epoch=broker.epoch, reports=(report,)))
        if answer is None:
            broker.unsure.add(key)
        elif isinstance(answer, tuple) and answer[0].replicas[0].error is None and key not in broker.unsure:
            broker.faults[key] = (answer[1], fault)

    def _newest(self) -> MetadataImage:
        """What this asker can have heard of: who is cut off with lost voters hears of nobody else."""
        network = self._run.network
        if not network.walls:
            return self._run.laws.newest
        heard = [node.loader.image for node in self._run.nodes if node.is_up and network.is_open(self.id, node.id)]
        return max(heard, key=lambda image: (image.epoch, image.offset), default=MetadataImage.EMPTY)

    # -- judging ---------------------------------------------------------------------------------------------------

    def judge(self, image: MetadataImage, *, where: str) -> None:
        """C6, C7, C9: what was acknowledged is there."""
        for name, owed in self._owed.items():
            topic = image.topics.get(name)
            if topic is not None and topic.id in owed.gone and image.offset >= owed.since_offset:
                raise LawBroken("C6 a deletion that was acknowledged", f"{name} {topic.id} is back on {where}")
            if image.offset >= owed.since_offset:
                states = owed.states
                state = None if topic is None else (topic.id, len(topic.partitions))
                is_known = state in states or (state is not None and (Uuid(bytes(16)), state[1]) in states)
                if not is_known:
                    law = "C9 a topic has all its partitions" if topic is not None and None in states else "C6"
                    raise LawBroken(
                        f"{law}: an acknowledged topic",
                        f"{name} is {state}, may be {states} since {owed.since_offset}, {where}",
                    )
            if image.offset >= max(owed.config_since, owed.since_offset):
                value = image.configs.topic(name).get(CONFIG)
                if value not in owed.configs:
                    raise LawBroken(
                        "C6 an acknowledged config",
                        f"{name} has {value}, may have {owed.configs} since {owed.config_since}, {where}",
                    )
        for broker in self._brokers:
            for (topic_id, index), (since, fault) in broker.faults.items():
                topic = image.topics.get_by_id(topic_id)
                if image.offset < since or topic is None:
                    continue
                if (found := topic.partitions[index].fault_of(broker.id)) is not fault:
                    raise LawBroken(
                        "C6 an acknowledged fault",
                        f"{topic.name}-{index} on broker {broker.id}: {found}, not {fault} of offset {since}, {where}",
                    )
            if broker.is_settled and image.offset >= broker.epoch_since:
                registered = image.cluster.broker(broker.id)
                if registered is None or registered.epoch < broker.epoch:
                    raise LawBroken("C6 an acknowledged registration", f"broker {broker.id}: {registered} on {where}")
