"""The test constructor of the controller: decisions that commit at once, and a quorum of one that can be held back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.controller import Controller
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    CreatableTopic,
    CreateTopics,
    RegisterBroker,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.driver.broker_probe import unknown_reach
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.driver.metadata_listener import MetadataListener
from barnabas_quorum.errors import NotController
from barnabas_quorum.image.features import METADATA_VERSION, METADATA_VERSION_PROOF, SHARE_VERSION, SUPPORTED_FEATURES
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.raft.messages import CommittedBatch, LeaderAndEpoch
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import FeatureLevelRecord, Record
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Epoch, Offset, TopicPartition, Uuid

CLUSTER_ID = "a-test-cluster"


def refuse_bad_values(name: str, key: str, value: str) -> str:
    """Stands for the validators of the rooms that own the keys."""
    if value == "bad":
        raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{name}: {key}={value}")
    return value.lower()


def refuse_odd_company(topic: str, overrides: Mapping[str, str], cluster: Mapping[str, str]) -> None:
    """Two values that do not go together, be one of them set for all brokers."""
    if {"left", "right"} <= {*overrides.values(), *cluster.values()}:
        raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{topic}: left and right")


VALIDATORS = ConfigValidators(
    topic=refuse_bad_values,
    broker=refuse_bad_values,
    group=refuse_bad_values,
    client_metrics=refuse_bad_values,
    topic_as_whole=refuse_odd_company,
    levels_of_keys={
        "new.key": FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_PROOF),
        "share.key": FeatureLevelRecord(name=SHARE_VERSION, level=2),
    },
    inherited=lambda resource_type, key, cluster_default: cluster_default.get(key, ""),
)


def make_controller(*, seed: int = 1, first_records: Sequence[Record] = (), **config: Any) -> Controller:
    """A controller that is not active."""
    return Controller(
        config=ControllerConfig(**config),
        cluster_id=CLUSTER_ID,
        random=Random(seed),
        first_records=first_records,
        validators=VALIDATORS,
    )


def uuid(number: int) -> Uuid:
    """A uuid that tells its number."""
    return Uuid(number.to_bytes(16, "big"))


def registration(
    broker_id: int, *, incarnation: int | None = None, rack: str | None = None, **more: Any
) -> RegisterBroker:
    """A valid registration request."""
    return RegisterBroker(
        **{
            "broker_id": BrokerId(broker_id),
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid(1000 + broker_id if incarnation is None else incarnation),
            "endpoints": (Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),),
            "rack": rack,
            "directories": (uuid(5000 + broker_id),),
            "features": SUPPORTED_FEATURES,
            **more,
        }
    )


class DecidedCluster:
    """A controller whose decisions are committed at once. `log` holds all records, by offset."""

    def __init__(self, *, seed: int = 1, **config: Any) -> None:
        self.controller = make_controller(seed=seed, **config)
        self.log: list[Record] = []
        self.images: list[MetadataImage] = []
        self.now_ms = 0
        self.controller.claim(epoch=Epoch(1), next_offset=Offset(0), now_ms=0)
        self.commit(self.controller.bootstrap())

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        return self.controller.committed

    def commit(self, result: ControllerResult[Any]) -> Any:
        """Replay and commit a result; its response."""
        if result.records:
            image = self.controller.replayed(result.records, timestamp_ms=self.now_ms)
            self.controller.accept(image)
            self.controller.commit(image)
            self.log += result.records
            self.images.append(image)
        return result.response

    def do(self, request: Any) -> Any:
        """Decide and commit a request; its response, or the KafkaError raised."""
        return self.commit(self.controller.decide(request, now_ms=self.now_ms))

    def heartbeat(
        self, broker_id: int, *, offset: int | None = None, want_fence: bool = False, want_shutdown: bool = False
    ) -> BrokerHeartbeatReply:
        """A heartbeat with the present epoch, caught up unless `offset` says otherwise."""
        broker = self.image.cluster.broker(BrokerId(broker_id))
        assert broker is not None
        reply: BrokerHeartbeatReply = self.do(
            BrokerHeartbeat(
                broker_id=BrokerId(broker_id),
                broker_epoch=broker.epoch,
                metadata_offset=Offset(self.image.offset if offset is None else offset),
                want_fence=want_fence,
                want_shutdown=want_shutdown,
            )
        )
        return reply

    def start_broker(self, broker_id: int, **more: Any) -> int:
        """Register and unfence; its epoch."""
        epoch: int = self.do(registration(broker_id, **more)).broker_epoch
        assert not self.heartbeat(broker_id).is_fenced
        return epoch

    def start_brokers(self, *broker_ids: int) -> DecidedCluster:
        """Several, without racks."""
        for broker_id in broker_ids:
            self.start_broker(broker_id)
        return self

    def fence(self, broker_id: int) -> None:
        """The broker was found dead."""
        self.commit(self.controller.fence([BrokerId(broker_id)]))

    def create(self, name: str, *replicas: Sequence[int], configs: dict[str, str] | None = None) -> Uuid:
        """A topic with the given replica list per partition; its id."""
        request = CreateTopics(
            topics=(
                CreatableTopic(
                    name=name,
                    assignments={i: tuple(BrokerId(b) for b in ids) for i, ids in enumerate(replicas)},
                    configs=configs or {},
                ),
            )
        )
        created = self.do(request).topics[0]
        assert created.error is None, created.error
        topic_id: Uuid = created.topic_id
        return topic_id

    def partition(self, topic: str, index: int = 0) -> PartitionRegistration:
        """A partition as it is committed."""
        found = self.image.topics.partition(TopicPartition(topic, index))
        assert found is not None
        return found


class HeldQuorum:
    """A quorum of one node. Commits as soon as the loop turns, or when told to while `is_held`."""

    def __init__(self, call_soon: Callable[..., Any], *, node_id: int = 1) -> None:
        self.node_id = BrokerId(node_id)
        self.epoch = Epoch(0)
        self.is_leader = False
        self.is_held = False
        self.listener: MetadataListener | None = None
        self.next_offset = Offset(0)
        self.batches: list[CommittedBatch] = []
        """Proposed and not committed."""
        self.committed: list[CommittedBatch] = []
        self.urgencies: list[bool] = []
        """Of each proposal, in order."""
        self._call_soon = call_soon

    def elect(self) -> None:
        """Lead in a new epoch: what was not committed is gone, and the LeaderChange record takes an offset."""
        self.commit_all()
        self.epoch = Epoch(self.epoch + 1)
        self.next_offset = Offset(self.next_offset + 1)
        self.is_leader = True
        assert self.listener is not None
        self.listener.on_leader_change(LeaderAndEpoch(self.node_id, self.epoch), self.next_offset)

    def depose(self, leader_id: int | None = None, *, keeps: int = 0) -> None:
        """Another node leads; of what was not committed, `keeps` batches were committed by it all the same."""
        kept, self.batches = self.batches[:keeps], []
        self.epoch = Epoch(self.epoch + 1)
        self.is_leader = False
        assert self.listener is not None
        self.listener.on_leader_change(
            LeaderAndEpoch(None if leader_id is None else BrokerId(leader_id), self.epoch), self.next_offset
        )
        self.batches = kept
        self.commit_all()
        last = self.committed[-1].last_offset if self.committed else -1
        self.next_offset = Offset(last + 1)

    @property
    def log_end_offset(self) -> Offset:
        """See QuorumNode."""
        return self.next_offset

    def propose(self, records: Sequence[bytes], *, epoch: Epoch, is_urgent: bool = True) -> Offset:
        """See QuorumNode."""
        if not self.is_leader or epoch != self.epoch:
            raise NotController("not the leader")
        self.batches.append(CommittedBatch(self.next_offset, epoch, 0, tuple(records)))
        self.urgencies.append(is_urgent)
        self.next_offset = Offset(self.next_offset + len(records))
        if not self.is_held:
            self._call_soon(self.commit_all)
        return Offset(self.next_offset - 1)

    def commit_all(self) -> None:
        """The high watermark passes everything."""
        batches, self.batches = self.batches, []
        assert self.listener is not None
        if batches:
            self.committed += batches
            self.listener.on_commit(batches)

    def commit_from_elsewhere(self, *records: Record) -> None:
        """Another leader's batch is committed."""
        batch = CommittedBatch(self.next_offset, self.epoch, 0, tuple(encode(record) for record in records))
        self.next_offset = Offset(batch.last_offset + 1)
        self.batches.append(batch)
        self.commit_all()


def make_driver(
    call_soon: Callable[..., Any], *, node_id: int = 1, probe: Any = None, publishers: Sequence[Any] = (), **config: Any
) -> tuple[ControllerDriver, HeldQuorum]:
    """A driver over a quorum of one that is not elected yet."""
    driver = ControllerDriver(
        make_controller(**config), node_id=BrokerId(node_id), clock_ms=lambda: 0, probe=probe or unknown_reach
    )
    quorum = HeldQuorum(call_soon, node_id=node_id)
    loader = MetadataLoader([driver, *publishers])
    quorum.listener = MetadataListener(loader, leader_observers=[driver.on_leader_change])
    driver.attach(quorum, loader=loader)
    return driver, quorum
