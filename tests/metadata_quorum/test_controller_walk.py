"""A random walk over the controller's decisions; after every step the laws C1 to C8 (except C6, which is the driver's)."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    CreatableTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    IsrMemberEpoch,
    PartitionAlteration,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AssignReplicasToDirectories,
    ElectionType,
    ElectLeaders,
    PartitionReassignment,
    ReplicaPlacement,
    UnregisterBroker,
)
from barnabas_quorum.image.cluster import BrokerRegistration
from barnabas_quorum.image.directories import directory_of, is_directory_online, is_reserved
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.image.topics import TopicImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import ConfigResourceType, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from tests.metadata_quorum.test_controller_partition_change import check_partition_laws
from tests.metadata_quorum.test_partition_index import check_index
from tests.support.decided_cluster import DecidedCluster, registration, uuid

BROKERS = range(1, 6)
TOPICS = ("a", "b", "c.d", "c_d", "e")
UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
FLUSH = "log.flush.on.acks"


class Walk:
    """One seed's walk."""

    def __init__(self, seed: int, *, allows_unclean: bool) -> None:
        self.random = Random(seed)
        self.cluster = DecidedCluster(seed=seed)
        self.allows_unclean = allows_unclean
        self.incarnations = 10_000
        self.counts: Counter[str] = Counter()
        self.producer_ids: set[int] = set()
        weights = {
            self.register: 2,
            self.heartbeat: 12,
            self.fence: 1,
            self.leave: 1,
            self.create: 2,
            self.delete: 1,
            self.grow: 1,
            self.alter_isr: 12,
            self.alter_config: 1,
            self.allocate: 1,
            self.balance: 1,
            self.reassign: 5,
            self.elect: 2,
            self.place: 2,
            self.lose_directory: 1,
            self.unregister: 1,
        }
        self.steps = [step for step, weight in weights.items() for _ in range(weight)]

    def step(self) -> None:
        before, offset = self.cluster.image, len(self.cluster.log)
        chosen = self.random.choice(self.steps)
        try:
            chosen()
        except KafkaError as error:
            assert error.message
            self.counts["refused"] += 1
            assert len(self.cluster.log) == offset, "a refusal writes nothing"
        check_image(self.cluster.image, allows_unclean=self.allows_unclean)
        check_step(before, self.cluster.image)
        if any(
            partition.leader == -1
            for topic in self.cluster.image.topics.sorted_topics()
            for partition in topic.partitions.values()
        ):
            self.counts["leaderless"] += 1
        self.counts[chosen.__name__] += len(self.cluster.log) > offset

    def any_broker(self) -> BrokerRegistration | None:
        brokers = self.cluster.image.cluster.sorted_brokers()
        return self.random.choice(brokers) if brokers else None

    def any_topic(self) -> TopicImage | None:
        topics = self.cluster.image.topics.sorted_topics()
        return self.random.choice(topics) if topics else None

    def register(self) -> None:
        broker_id = self.random.choice(BROKERS)
        present = self.cluster.image.cluster.broker(BrokerId(broker_id))
        self.incarnations += 1
        if present is not None and self.random.random() < 0.5:
            return
        is_new = present is None or self.random.random() < 0.7
        incarnation = self.incarnations if is_new or present is None else int.from_bytes(present.incarnation_id, "big")
        rack = self.random.choice([None, "x", "y"])
        every = (uuid(5000 + broker_id), uuid(6000 + broker_id))
        if self.random.random() < 0.1:
            every = (uuid(7000 + broker_id), uuid(6000 + broker_id))
        directories = self.random.choice([every, every, every[:1], every[1:]])
        previous = -1 if present is None or self.random.random() < 0.5 else present.epoch
        self.cluster.do(
            registration(
                broker_id,
                incarnation=incarnation,
                rack=rack,
                directories=directories,
                previous_broker_epoch=previous,
            )
        )

    def heartbeat(self) -> None:
        broker = self.any_broker()
        if broker is None:
            return
        offset = self.cluster.image.offset - self.random.choice([0, 0, 0, 5, 50])
        self.beat(broker, offset=max(offset, -1), want_fence=self.random.random() < 0.05)

    def beat(self, broker: BrokerRegistration, *, offset: int, **wants: bool) -> None:
        epoch = broker.epoch if self.random.random() < 0.95 else broker.epoch - 1
        self.cluster.do(
            BrokerHeartbeat(
                broker_id=broker.id,
                broker_epoch=epoch,
                metadata_offset=Offset(offset),
                want_fence=wants.get("want_fence", False),
                want_shutdown=wants.get("want_shutdown", False),
            )
        )

    def fence(self) -> None:
        broker = self.any_broker()
        if broker is not None:
            self.cluster.fence(broker.id)

    def leave(self) -> None:
        broker = self.any_broker()
        if broker is not None and self.random.random() < 0.5:
            self.beat(broker, offset=self.cluster.image.offset, want_shutdown=True)

    def create(self) -> None:
        topics = tuple(
            CreatableTopic(
                name=name,
                partition_count=self.random.randrange(0, 5),
                replication_factor=self.random.randrange(1, 5),
                configs={UNCLEAN: "true"} if self.allows_unclean else {},
            )
            for name in self.random.sample(TOPICS, 2)
        )
        self.cluster.do(CreateTopics(topics=topics, validate_only=self.random.random() < 0.1))

    def delete(self) -> None:
        topic = self.any_topic()
        if topic is None or self.random.random() < 0.5:
            return
        by_id = self.random.random() < 0.5
        reference = TopicReference(topic_id=topic.id) if by_id else TopicReference(name=topic.name)
        self.cluster.do(DeleteTopics(topics=(reference,)))

    def grow(self) -> None:
        topic = self.any_topic()
        if topic is not None:
            count = len(topic.partitions) + self.random.randrange(0, 2)
            self.cluster.do(CreatePartitions(topics=(TopicGrowth(name=topic.name, partition_count=count),)))

    def alter_isr(self) -> None:
        topic = self.any_topic()
        if topic is None:
            return
        index = self.random.choice(sorted(topic.partitions))
        partition = topic.partitions[index]
        brokers = self.cluster.image.cluster
        sender = brokers.broker(partition.leader if partition.leader != -1 else partition.replicas[0])
        if sender is None:
            return
        isr = self.random.sample(partition.replicas, self.random.randint(1, len(partition.replicas)))
        if self.random.random() < 0.8 and sender.id not in isr:
            isr.append(sender.id)
        members = []
        for member in isr:
            registered = brokers.broker(member)
            epoch = -1 if registered is None else registered.epoch - (self.random.random() < 0.1)
            members.append(IsrMemberEpoch(broker_id=member, broker_epoch=epoch))
        item = PartitionAlteration(
            topic_id=topic.id,
            partition_id=index,
            leader_epoch=Epoch(partition.leader_epoch + self.random.choice([0, 0, 0, 0, -1, 1])),
            partition_epoch=partition.partition_epoch + self.random.choice([0, 0, 0, 0, -1, 1]),
            new_isr=tuple(members),
        )
        offset = len(self.cluster.log)
        reply = self.cluster.do(
            AlterPartition(broker_id=sender.id, broker_epoch=sender.epoch, partitions=(item,))
        ).partitions[0]
        if reply.error is not None:
            is_moved = reply.error.code is ErrorCode.NEW_LEADER_ELECTED
            assert is_moved == (len(self.cluster.log) > offset), "a refused proposal writes nothing"
            self.counts["moved by an ISR"] += is_moved
            return
        now = self.cluster.partition(topic.name, index)
        assert (reply.isr, reply.partition_epoch, reply.leader) == (now.isr, now.partition_epoch, now.leader)

    def alter_config(self) -> None:
        topic = self.any_topic()
        name = "" if topic is None or self.random.random() < 0.3 else topic.name
        values = ["1", "2", "bad"]
        key = self.random.choice(["k1", "k2", MIN_ISR, FLUSH])
        values = {MIN_ISR: ["1", "2", "3"], FLUSH: ["fsync", "page-cache"]}.get(key, values)
        operations = [ConfigOperation.SET, ConfigOperation.DELETE] if key in (MIN_ISR, FLUSH) else list(ConfigOperation)
        change = ConfigChange(key=key, operation=self.random.choice(operations), value=self.random.choice(values))
        kind = ConfigResourceType.TOPIC if name else ConfigResourceType.BROKER
        resource = ConfigAlteration(resource_type=kind, resource_name=name, changes=(change,))
        self.cluster.do(IncrementalAlterConfigs(resources=(resource,)))

    def allocate(self) -> None:
        broker = self.any_broker()
        if broker is None:
            return
        block = self.cluster.do(AllocateProducerIds(broker_id=broker.id, broker_epoch=broker.epoch))
        ids = set(range(block.first, block.first + block.count))
        assert not ids & self.producer_ids, "C8: blocks are disjoint"
        self.producer_ids |= ids

    def balance(self) -> None:
        self.cluster.commit(self.cluster.controller.balance_leaders(now_ms=self.random.choice([0, 10**9])))

    def any_partition(self) -> tuple[str, int, PartitionRegistration] | None:
        topic = self.any_topic()
        if topic is None:
            return None
        index = self.random.choice(sorted(topic.partitions))
        return topic.name, index, topic.partitions[index]

    def reassign(self) -> None:
        found = self.any_partition()
        if found is None:
            return
        topic, index, partition = found
        replicas: tuple[BrokerId, ...] | None = None
        if not partition.adding_replicas or self.random.random() < 0.5:
            replicas = tuple(BrokerId(b) for b in self.random.sample(range(1, 7), self.random.randrange(0, 5)))
        item = PartitionReassignment(topic=topic, partition_id=index, replicas=replicas)
        reply = self.cluster.do(
            AlterPartitionReassignments(partitions=(item,), allow_replication_factor_change=self.random.random() < 0.8)
        ).partitions[0]
        self.counts["reassigned" if reply.error is None else "refused"] += 1
        self.counts["cancelled"] += reply.error is None and replicas is None

    def elect(self) -> None:
        found = self.any_partition()
        if found is None:
            return
        kind = self.random.choice(list(ElectionType)) if self.allows_unclean else ElectionType.PREFERRED
        asked = None if self.random.random() < 0.2 else (found[:2],)
        for reply in self.cluster.do(ElectLeaders(election_type=kind, partitions=asked)).partitions:
            if reply.error is None:
                assert self.cluster.partition(reply.topic, reply.partition_id).leader == reply.leader != -1

    def place(self) -> None:
        found, broker = self.any_partition(), self.any_broker()
        if found is None or broker is None:
            return
        topic = self.cluster.image.topics.get(found[0])
        assert topic is not None
        directory = uuid(self.random.choice([5000, 6000]) + broker.id)
        placement = ReplicaPlacement(topic_id=topic.id, partition_id=found[1], directory_id=directory)
        self.cluster.do(
            AssignReplicasToDirectories(broker_id=broker.id, broker_epoch=broker.epoch, placements=(placement,))
        )

    def lose_directory(self) -> None:
        broker = self.any_broker()
        if broker is not None and len(broker.directories) > 1:
            self.cluster.do(
                BrokerHeartbeat(
                    broker_id=broker.id,
                    broker_epoch=broker.epoch,
                    metadata_offset=self.cluster.image.offset,
                    want_fence=False,
                    want_shutdown=False,
                    offline_directories=broker.directories[:1],
                )
            )

    def unregister(self) -> None:
        broker = self.any_broker()
        if broker is not None and self.random.random() < 0.3:
            self.cluster.do(UnregisterBroker(broker_id=broker.id))


def check_image(image: MetadataImage, *, allows_unclean: bool) -> None:
    """C4, C5 and what belongs to them, on one image."""
    brokers = image.cluster
    held: Counter[int] = Counter()
    for topic in image.topics.sorted_topics():
        assert image.topics.get_by_id(topic.id) is topic
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            held.update(partition.replicas)
            check_partition_laws(partition)
            if partition.leader != -1:
                assert brokers.is_active(partition.leader), "a leader is registered, unfenced and stays"
                assert is_directory_online(image, partition, partition.leader), "and its disk works"
            assert all(brokers.is_active(member) for member in partition.isr), "C4: nobody in an ISR is out of service"
            if partition.leader == -1:
                assert not partition.isr, "whoever is in sync and in service leads"
                lone = partition.last_known_elr if len(partition.last_known_elr) == 1 else ()
                acceptable = partition.replicas if allows_unclean else partition.elr or lone
                may = [b for b in acceptable if brokers.is_active(b) and is_directory_online(image, partition, b)]
                assert not may, "who may lead, leads"
    assert image.topics.replica_counts == held
    assert image.topics.partition_count == sum(len(topic.partitions) for topic in image.topics.topics.values())
    check_index(image.topics)
    assert len(image.topics.topics) == len(image.topics.topics_by_id)
    for resource in image.configs.resources:
        assert image.configs.get(resource)
        if resource.type is ConfigResourceType.TOPIC:
            assert image.topics.get(resource.name) is not None, "no config outlives its topic"


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """C3 and C7: what may change from one image to the next."""
    for broker in before.cluster.sorted_brokers():
        now = after.cluster.brokers.get(broker.id)
        if now is None:
            assert broker.is_fenced, "only a broker out of service is forgotten"
            continue
        assert now.epoch >= broker.epoch, "C7"
        if now.incarnation_id != broker.incarnation_id:
            assert now.epoch > broker.epoch and now.is_fenced
            check_lost_replicas(after, now)
    for topic in before.topics.sorted_topics():
        later = after.topics.get_by_id(topic.id)
        if later is None:
            continue
        for index, was in topic.partitions.items():
            is_now = later.partitions[index]
            check_partition(was, is_now)
    assert after.producer_ids.next_producer_id >= before.producer_ids.next_producer_id


def check_lost_replicas(image: MetadataImage, broker: BrokerRegistration) -> None:
    """A broker has just come back: it counts for nothing in partitions that its directories no longer contain."""
    for topic in image.topics.sorted_topics():
        for partition in topic.partitions.values():
            directory = directory_of(partition, broker.id)
            if not is_reserved(directory) and directory not in broker.directories:
                assert broker.id not in {*partition.isr, *partition.elr, *partition.last_known_elr}


def check_partition(was: PartitionRegistration, now: PartitionRegistration) -> None:
    assert (now.partition_epoch, now.leader_epoch) >= (was.partition_epoch, was.leader_epoch)
    assert now.partition_epoch >= was.partition_epoch and now.leader_epoch >= was.leader_epoch, "C3"
    assert (now == was) == (now.partition_epoch == was.partition_epoch), "C3: every change is counted, nothing else is"
    if not set(was.replicas) <= set(now.replicas):
        assert now.leader_epoch > was.leader_epoch, "who is dropped learns of it"
    if now.leader != was.leader:
        assert now.leader_epoch > was.leader_epoch, "another leader, another leader epoch"


@pytest.mark.parametrize("allows_unclean", [False, True], ids=["clean", "unclean"])
@pytest.mark.parametrize("seed", range(6))
def test_no_step_of_a_random_walk_breaks_a_law(seed: int, allows_unclean: bool) -> None:
    walk = Walk(seed, allows_unclean=allows_unclean)
    for _ in range(800):
        walk.step()
    # some that find something to do are rare; they have their own tests
    rare = (walk.balance, walk.elect, walk.unregister, walk.lose_directory)
    for name in {step.__name__ for step in walk.steps if step not in rare} | {"refused", "leaderless", "reassigned"}:
        assert walk.counts[name] > 0, f"the walk is void: no {name} in it ({walk.counts})"
    check_replay(walk.cluster)


def check_replay(cluster: DecidedCluster) -> None:
    """C1: the same records, cut into other batches and deltas, give the same image. C2: so do the image's own records."""
    for batch_size in (1, 7, 10_000):
        loader = MetadataLoader()
        for base in range(0, len(cluster.log), batch_size):
            values = tuple(encode(record) for record in cluster.log[base : base + batch_size])
            loader.on_commit([CommittedBatch(Offset(base), Epoch(1), 0, values)])
        assert loader.image == cluster.image
        assert loader.image.content_hash() == cluster.image.content_hash()
    assert rebuilt(cluster.image) == cluster.image


def rebuilt(image: MetadataImage) -> MetadataImage:
    delta = MetadataDelta(MetadataImage.EMPTY)
    for record in image.to_records():
        delta.replay(record)
    return delta.apply(image.offset, image.epoch, image.timestamp_ms)


@pytest.mark.parametrize("seed", [1, 2])
def test_one_seed_gives_one_history(seed: int) -> None:
    histories: list[list[Record]] = []
    for _ in range(2):
        walk = Walk(seed, allows_unclean=False)
        for _ in range(200):
            walk.step()
        histories.append(walk.cluster.log)
    assert histories[0] == histories[1]


def test_every_image_of_a_walk_is_rebuilt_from_its_own_records() -> None:
    walk = Walk(99, allows_unclean=False)
    for _ in range(300):
        walk.step()
    seen: set[bytes] = set()
    for image in walk.cluster.images:
        again = rebuilt(image)
        assert again == image and again.content_hash() == image.content_hash()
        seen.add(image.content_hash())
    assert len(seen) == len(walk.cluster.images), "another image, another hash"


def test_topic_ids_come_from_the_seed_alone() -> None:
    def ids(seed: int) -> list[Uuid]:
        cluster: Any = DecidedCluster(seed=seed).start_brokers(1)
        return [cluster.create(name, [1]) for name in ("a", "b")]

    assert ids(1) == ids(1) != ids(2)
    assert all(not str(topic_id).startswith("-") for seed in range(40) for topic_id in ids(seed))
