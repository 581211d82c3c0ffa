"""Metadata images made by replaying records, and a node that shows one: for what reads a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from barnabas_broker.api.services import BrokerKey
from barnabas_quorum.driver.quorum_description import QuorumDescription, ReplicaDescription
from barnabas_quorum.driver.quorum_stats import Stats
from barnabas_quorum.driver.snapshots import SnapshotStats
from barnabas_quorum.image.cluster import ClusterImage
from barnabas_quorum.image.features import METADATA_VERSION, SUPPORTED_FEATURES
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.messages import ReplyError, VoterChange
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_quorum.records import (
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, Uuid

NOW_MS = 1_700_000_000_000

Replicas = tuple[Sequence[int], Sequence[int], int]
"""(replicas, isr, leader) of a partition."""


def uuid(number: int) -> Uuid:
    """A different uuid for each number."""
    return Uuid(number.to_bytes(16, "big"))


def make_image(
    *,
    brokers: Sequence[int] = (1, 2, 3),
    fenced: Sequence[int] = (),
    topics: Mapping[str, Sequence[Replicas]] | None = None,
    configs: Mapping[tuple[ConfigResourceType, str], Mapping[str, str]] | None = None,
    offset: int = 100,
    host: str = "127.0.0.1",
    metadata_version: int | None = None,
    topic_ids_from: int = 1000,
) -> MetadataImage:
    """An image with these brokers and topics, as the metadata log would make it; with a `metadata_version` the brokers say
    what they serve."""
    delta = MetadataDelta(MetadataImage.EMPTY)
    if metadata_version is not None:
        delta.replay(FeatureLevelRecord(name=METADATA_VERSION, level=metadata_version))
    for broker in brokers:
        delta.replay(
            RegisterBrokerRecord(
                broker_id=BrokerId(broker),
                incarnation_id=uuid(broker),
                broker_epoch=broker * 10,
                endpoints=(Endpoint("PLAINTEXT", host, 9091 + broker),),
                rack=f"rack-{broker}",
                is_fenced=broker in fenced,
                features=() if metadata_version is None else SUPPORTED_FEATURES,
            )
        )
    for number, (name, partitions) in enumerate((topics or {}).items(), topic_ids_from):
        delta.replay(TopicRecord(name=name, topic_id=uuid(number)))
        for index, (replicas, isr, leader) in enumerate(partitions):
            delta.replay(
                PartitionRecord(
                    topic_id=uuid(number),
                    partition_id=index,
                    replicas=tuple(map(BrokerId, replicas)),
                    directories=tuple(uuid(1) for _ in replicas),
                    isr=tuple(map(BrokerId, isr)),
                    leader=BrokerId(leader),
                    leader_epoch=Epoch(5),
                    partition_epoch=7,
                )
            )
    for (kind, name), overrides in (configs or {}).items():
        for key, value in overrides.items():
            delta.replay(ConfigRecord(resource_type=kind, resource_name=name, key=key, value=value))
    return delta.apply(Offset(offset), Epoch(4), NOW_MS)


def housed(image: MetadataImage, hosts: Mapping[int, str]) -> MetadataImage:
    """The same with these brokers on these hosts, by broker."""
    brokers = {each.id: replace(each, host=hosts.get(each.id)) for each in image.cluster.brokers.values()}
    return replace(image, cluster=ClusterImage(brokers=brokers, controllers=image.cluster.controllers))


def make_quorum(
    *, leader: int = 1, ends: Sequence[int] = (101, 101, 101), silent: Sequence[int] = (), observers: Sequence[int] = ()
) -> QuorumDescription:
    """Voters 1…n as their leader sees them; the `silent` ones have not fetched for a minute."""

    def describe(replica: int, end: int) -> ReplicaDescription:
        fetched = NOW_MS - (60_000 if replica in silent else 40)
        return ReplicaDescription(
            key=ReplicaKey(BrokerId(replica), uuid(replica)),
            log_end_offset=Offset(end),
            last_fetch_ms=fetched,
            last_caught_up_ms=fetched,
        )

    return QuorumDescription(
        leader_id=BrokerId(leader),
        epoch=Epoch(4),
        high_watermark=Offset(101),
        voters=tuple(describe(index, end) for index, end in enumerate(ends, 1)),
        observers=tuple(describe(replica, 101) for replica in observers),
    )


def make_voters(count: int = 3, port: int = 9112, host: str = "127.0.0.1") -> VoterSet:
    """Voters 1…count on consecutive ports."""
    return VoterSet([Voter(ReplicaKey(BrokerId(i + 1), uuid(i + 1)), host, port + i) for i in range(count)])


@dataclass
class FakeNode:
    """A node as admin service and exporter see it."""

    image: MetadataImage = field(default_factory=make_image)
    quorum: QuorumDescription = field(default_factory=make_quorum)
    voters: VoterSet = field(default_factory=make_voters)
    node_id: BrokerId = field(default=BrokerId(1))
    cluster_id: str = "5L6g3nShTAeMCtK__X86sw"
    roles: tuple[str, ...] = ("broker", "controller")
    static_min_isr: int = 2
    voter_changes: list[VoterChange] = field(default_factory=list)
    """What the quorum was asked for."""
    recovered_beside: tuple[str, ...] = ()
    voter_error: ReplyError = ReplyError.NONE
    """What it answers."""

    def broker_keys(self) -> list[BrokerKey]:
        return [
            BrokerKey("min.insync.replicas", "2", "1", "int", "Least in-sync replicas of an acks=all write.", True),
            BrokerKey("num.partitions", "1", "1", "int", "Partitions of a new topic.", False),
        ]


class FakeQuorumNode:
    """QuorumNode as the exporter reads it."""

    def __init__(self, quorum: QuorumDescription, *, is_voter: bool = True) -> None:
        self._quorum = quorum
        self.is_voter = is_voter
        self.high_watermark = quorum.high_watermark
        self.log_end_offset = Offset(103)
        self.log_start_offset = Offset(7)
        self.snapshot_stats = SnapshotStats()
        self.voted_id = BrokerId(2)
        self.stats = Stats(elections_begun=5, elections_won=2, records_appended=8, records_fetched=9)
        for seconds in (0.002, 0.5):
            self.stats.flush_s.observe(seconds)

    def describe(self) -> QuorumDescription:
        return self._quorum
