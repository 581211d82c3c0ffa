"""The controller's state and its table of decisions: two images, the sessions, and which function answers what.

May touch:  the other files of controller/, image/.   Must not touch: asyncio, clock, files, gRPC, raft.
Invariants: a decision looks at the pending image, so that each sees what the ones before it decided; only `accept` moves
            the pending image and only `commit` the committed one; losing leadership drops the pending one.
Read next:  driver/controller_driver.py, which feeds it; partition_change.py and brokers.py for the rules.

Not obvious
- The pending image may never be committed. Whatever was read from it, an error too, must not leave before the records it
  was read from are committed (C6); the driver sees to that.
- rpds maps iterate in an order of their own in every process. Decisions go through sorted lists, or one seed would not
  give one history.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatchmethod
from random import Random
from typing import Any

from barnabas_quorum.controller import brokers, configs, partitions, producer_ids, topics
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlterPartition,
    AlterPartitionReply,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsReply,
    RegisterBroker,
    RegisterBrokerReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.controller.sessions import BrokerSessions
from barnabas_quorum.image.features import METADATA_VERSION, METADATA_VERSION_LATEST
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import FeatureLevelRecord, NoOpRecord, Record
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, Offset

RECORDS_PER_BATCH_MAX = 10_000
"""Most records of one atomic result, as in Kafka."""
PREFERRED_ELECTIONS_MAX = 1000
"""Most partitions handed back to their preferred leaders in one go."""


class Controller:
    """Decides. Owned by one driver; not thread-safe."""

    def __init__(
        self, *, config: ControllerConfig, cluster_id: str, random: Random, validators: ConfigValidators
    ) -> None:
        self.config = config
        self.sessions = BrokerSessions(
            session_timeout_ms=config.session_timeout_ms, disconnect_grace_ms=config.disconnect_grace_ms
        )
        self.committed = MetadataImage.EMPTY
        self.pending = MetadataImage.EMPTY
        self.epoch: Epoch = NO_EPOCH
        """Of this leadership; -1 while not active."""
        self.next_offset = Offset(0)
        """What the first record of the next result will get; meaningful while active."""
        self._cluster_id = cluster_id
        self._rules = topics.TopicRules(random=random, validators=validators, records_max=RECORDS_PER_BATCH_MAX)

    # --- leadership -----------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this controller leads the quorum."""
        return self.epoch != NO_EPOCH

    def claim(self, *, epoch: Epoch, next_offset: Offset, now_ms: int) -> None:
        """This controller leads from now on. The committed image holds everything below the start of its epoch."""
        self.epoch = epoch
        self.next_offset = next_offset
        self.pending = self.committed
        unfenced = [
            (broker.id, broker.epoch) for broker in self.committed.cluster.sorted_brokers() if not broker.is_fenced
        ]
        self.sessions.begin(unfenced, now_ms=now_ms)

    def release(self) -> None:
        """This controller leads no more: what was not committed is as if it had never been."""
        self.epoch = NO_EPOCH
        self.pending = self.committed
        self.sessions.end()

    # --- decide, then replay --------------------------------------------------------------------------------------------

    @singledispatchmethod
    def decide(self, request: Any, *, now_ms: int) -> ControllerResult[Any]:
        """What a request comes to. Raises the KafkaError with which it is refused."""
        raise TypeError(f"the controller has no decision for {type(request).__name__}")

    @decide.register
    def _(self, request: RegisterBroker, *, now_ms: int) -> ControllerResult[RegisterBrokerReply]:
        return brokers.register_broker(
            self.pending,
            request,
            cluster_id=self._cluster_id,
            next_offset=self.next_offset,
            has_live_session=self.sessions.is_live(request.broker_id, now_ms=now_ms),
            allows_unclean=self.allows_unclean,
        )

    @decide.register
    def _(self, request: BrokerHeartbeat, *, now_ms: int) -> ControllerResult[BrokerHeartbeatReply]:
        """Counts as a sign of life of the broker, whatever comes of it."""
        partitions.registered_broker(self.pending, request.broker_id, request.broker_epoch)
        self.sessions.touch(
            request.broker_id, request.broker_epoch, metadata_offset=request.metadata_offset, now_ms=now_ms
        )
        session = self.sessions.get(request.broker_id)
        assert session is not None, "touch makes a session"
        others = [
            broker.id
            for broker in self.pending.cluster.sorted_brokers()
            if broker.is_active and broker.id != request.broker_id
        ]
        result = brokers.heartbeat(
            self.pending,
            request,
            lowest_active_offset=self.sessions.lowest_offset(others, default=self.next_offset),
            shutdown_offset=session.shutdown_offset,
            allows_unclean=self.allows_unclean,
        )
        if request.want_shutdown and result.records and not result.response.should_shutdown:
            session.shutdown_offset = Offset(self.next_offset + len(result.records) - 1)
        return result

    @decide.register
    def _(self, request: AlterPartition, *, now_ms: int) -> ControllerResult[AlterPartitionReply]:
        return partitions.alter_partition(self.pending, request)

    @decide.register
    def _(self, request: CreateTopics, *, now_ms: int) -> ControllerResult[CreateTopicsReply]:
        return topics.create_topics(self.pending, request, self._rules)

    @decide.register
    def _(self, request: DeleteTopics, *, now_ms: int) -> ControllerResult[DeleteTopicsReply]:
        return topics.delete_topics(self.pending, request)

    @decide.register
    def _(self, request: CreatePartitions, *, now_ms: int) -> ControllerResult[CreatePartitionsReply]:
        return topics.create_partitions(self.pending, request, self._rules)

    @decide.register
    def _(self, request: IncrementalAlterConfigs, *, now_ms: int) -> ControllerResult[IncrementalAlterConfigsReply]:
        result = configs.incremental_alter_configs(
            self.pending, request, validators=self._rules.validators, records_max=RECORDS_PER_BATCH_MAX
        )
        if not any(getattr(record, "key", "") == configs.UNCLEAN_LEADER_ELECTION for record in result.records):
            return result
        # partitions that wait for a lost leader may be led at once under the new setting
        after = self.replayed(result.records, timestamp_ms=now_ms)
        elections = partitions.elect_leaderless(
            after,
            is_acceptable=after.cluster.is_active,
            allows_unclean=lambda topic: self._allows_unclean(after, topic),
            records_max=RECORDS_PER_BATCH_MAX - len(result.records),
        )
        return ControllerResult(records=[*result.records, *elections], response=result.response)

    @decide.register
    def _(self, request: AllocateProducerIds, *, now_ms: int) -> ControllerResult[AllocateProducerIdsReply]:
        return producer_ids.allocate_producer_ids(self.pending, request)

    # --- what the controller does unasked -------------------------------------------------------------------------------

    def bootstrap(self) -> ControllerResult[None]:
        """The first records of a new cluster; none when it has them."""
        if self.pending.features.metadata_version != 0:
            return ControllerResult(records=[], response=None)
        return ControllerResult(
            records=[FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_LATEST)], response=None
        )

    def fence(self, broker_id: BrokerId) -> ControllerResult[None]:
        """Fence a broker that was found dead; no records when it is fenced or gone."""
        broker = self.pending.cluster.broker(broker_id)
        if broker is None or broker.is_fenced:
            return ControllerResult(records=[], response=None)
        records = brokers.fence_broker(self.pending, broker, allows_unclean=self.allows_unclean)
        return ControllerResult(records=records, response=None, is_atomic=False)

    def stale_broker(self, *, now_ms: int) -> BrokerId | None:
        """The unfenced broker that has been dead for longest, or None."""
        stale = [
            (deadline, broker.id)
            for broker in self.pending.cluster.sorted_brokers()
            if not broker.is_fenced
            and (deadline := self.sessions.deadline_ms(broker.id)) is not None
            and deadline <= now_ms
        ]
        return min(stale)[1] if stale else None

    def next_deadline_ms(self) -> int | None:
        """When the next unfenced broker is dead unless it is heard of before."""
        deadlines = [
            self.sessions.deadline_ms(broker.id)
            for broker in self.pending.cluster.sorted_brokers()
            if not broker.is_fenced
        ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def balance_leaders(self) -> ControllerResult[int]:
        """Hand partitions back to their preferred leaders; answers how many."""
        records = partitions.elect_preferred(self.pending, records_max=PREFERRED_ELECTIONS_MAX)
        return ControllerResult(records=records, response=len(records))

    def idle(self) -> ControllerResult[None]:
        """Keep the high watermark moving (KIP-835)."""
        return ControllerResult(records=[NoOpRecord()], response=None)

    def allows_unclean(self, topic: str) -> bool:
        """The topic's effective unclean.leader.election.enable."""
        return self._allows_unclean(self.pending, topic)

    def _allows_unclean(self, image: MetadataImage, topic: str) -> bool:
        return configs.allows_unclean_election(image, topic, default=self.config.unclean_leader_election_enable)

    # --- images ---------------------------------------------------------------------------------------------------------

    def replayed(self, records: Sequence[Record], *, timestamp_ms: int) -> MetadataImage:
        """The pending image as it would be with these records. Raises InvariantViolated or TypeError on a record that
        does not fit: better here than on every node (kraft trap 9)."""
        delta = MetadataDelta(self.pending)
        for record in records:
            delta.replay(record)
        return delta.apply(Offset(self.next_offset + len(records) - 1), self.epoch, timestamp_ms)

    def accept(self, image: MetadataImage) -> None:
        """The records that lead to `image` are proposed."""
        self.pending = image
        self.next_offset = Offset(image.offset + 1)

    def commit(self, image: MetadataImage) -> None:
        """The loader has published this image; on the active controller it is a prefix of what is pending."""
        if self.is_active and image.offset > self.pending.offset:
            raise InvariantViolated(
                f"records up to {image.offset} are committed in epoch {self.epoch}, but this active controller has only "
                f"proposed up to {self.pending.offset}"
            )
        self.committed = image
        if not self.is_active or image.offset == self.pending.offset:
            # equal by law (C1); taking the loader's lets the pending one go, so the two share all their memory
            self.pending = image
