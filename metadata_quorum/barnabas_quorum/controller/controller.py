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

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from random import Random
from typing import Any

from barnabas_quorum.controller import (
    brokers,
    configs,
    directories,
    elections,
    partitions,
    producer_ids,
    reassignment,
    replica_faults,
    tokens,
    topics,
)
from barnabas_quorum.controller.cluster_decisions import DECISIONS, DecisionContext
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.features import bootstrap_records
from barnabas_quorum.controller.limits import PartitionLimits
from barnabas_quorum.controller.partition_rules import MIN_INSYNC_REPLICAS, PartitionRules, rules_of
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
from barnabas_quorum.controller.requests_integrity import WriteImageHash, WriteImageHashReply
from barnabas_quorum.controller.requests_partitions import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    AlterReplicaFaults,
    AlterReplicaFaultsReply,
    AssignReplicasToDirectories,
    AssignReplicasToDirectoriesReply,
    ElectLeaders,
    ElectLeadersReply,
    ListPartitionReassignments,
    ListPartitionReassignmentsReply,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.controller.sessions import BrokerSessions, least_session_ms
from barnabas_quorum.errors import UnreplayableDecision
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import (
    AbortTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    NoOpRecord,
    Record,
)
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, Offset

RECORDS_PER_BATCH_MAX = 10_000
"""Most records of one batch, as in Kafka; what is atomic and needs more goes in a transaction."""
RECORDS_PER_REQUEST_MAX = 25_000
"""Most records that one request may lead to. Measured: 29 s of CPU per million partitions, so this many keep the control lane
busy for 0.7 s; a leader that is silent for controller.quorum.fetch.timeout.ms (2 s) is voted out."""
UNASKED_ELECTIONS_MAX = 1000
"""Most partitions without a leader that are given one in one periodic look."""


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
        self.wall_ms = 0
        """Wall clock when the present event was taken up, ms since 1970; the driver sets it before it asks."""
        self._cluster_id = cluster_id
        self._rules = topics.TopicRules(
            random=random,
            validators=validators,
            records_max=RECORDS_PER_BATCH_MAX,
            limits=PartitionLimits(
                topic_partitions_max=config.topic_partitions_max,
                cluster_partitions_max=config.cluster_partitions_max,
                broker_replicas_max=config.broker_replicas_max,
            ),
        )

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
        decision = DECISIONS.get(type(request))
        if decision is None:
            raise TypeError(f"the controller has no decision for {type(request).__name__}")
        context = DecisionContext(
            config=self.config,
            cluster_id=self._cluster_id,
            random=self._rules.random,
            wall_ms=self.wall_ms,
            records_max=RECORDS_PER_BATCH_MAX,
        )
        return decision(self.pending, request, context)

    @property
    def _topic_rules(self) -> topics.TopicRules:
        """With as many records as metadata.version lets one request make."""
        return replace(self._rules, records_max=self._records_max)

    @property
    def _records_max(self) -> int:
        return RECORDS_PER_REQUEST_MAX if self.pending.features.has_transactions else RECORDS_PER_BATCH_MAX

    @decide.register
    def _(self, request: RegisterBroker, *, now_ms: int) -> ControllerResult[RegisterBrokerReply]:
        registered = self.pending.cluster.broker(request.broker_id)
        least_ms = 0 if registered is None else least_session_ms(registered.features)
        return brokers.register_broker(
            self.pending,
            request,
            cluster_id=self._cluster_id,
            next_offset=self.next_offset,
            has_live_session=self.sessions.is_live(request.broker_id, now_ms=now_ms, at_least_ms=least_ms),
            rules=self.partition_rules,
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
            rules=self.partition_rules,
        )
        if result.response.is_fenced:
            self.sessions.note_fenced(request.broker_id)
        else:
            self.sessions.note_unfenced(request.broker_id, now_ms=now_ms)
        if request.want_shutdown and result.records and not result.response.should_shutdown:
            session.shutdown_offset = Offset(self.next_offset + len(result.records) - 1)
        return result

    @decide.register
    def _(self, request: AlterPartition, *, now_ms: int) -> ControllerResult[AlterPartitionReply]:
        return partitions.alter_partition(self.pending, request, rules=self.partition_rules)

    @decide.register
    def _(self, request: CreateTopics, *, now_ms: int) -> ControllerResult[CreateTopicsReply]:
        return topics.create_topics(self.pending, request, self._topic_rules)

    @decide.register
    def _(self, request: DeleteTopics, *, now_ms: int) -> ControllerResult[DeleteTopicsReply]:
        return topics.delete_topics(self.pending, request)

    @decide.register
    def _(self, request: CreatePartitions, *, now_ms: int) -> ControllerResult[CreatePartitionsReply]:
        return topics.create_partitions(self.pending, request, self._topic_rules)

    @decide.register
    def _(self, request: IncrementalAlterConfigs, *, now_ms: int) -> ControllerResult[IncrementalAlterConfigsReply]:
        result = configs.incremental_alter_configs(
            self.pending, request, validators=self._rules.validators, records_max=RECORDS_PER_BATCH_MAX
        )
        return self._with_consequences(result, now_ms=now_ms)

    def _with_consequences(
        self, result: ControllerResult[IncrementalAlterConfigsReply], *, now_ms: int
    ) -> ControllerResult[IncrementalAlterConfigsReply]:
        """What follows at once from changed configs, in the same batch: another min.insync.replicas makes ELRs void, and
        under another unclean.leader.election.enable partitions without a leader may get one."""
        changed = [record for record in result.records if isinstance(record, ConfigRecord)]
        records: list[Record] = list(result.records)
        cleared = {
            record.resource_name if record.resource_type is ConfigResourceType.TOPIC else ""
            for record in changed
            if record.key == MIN_INSYNC_REPLICAS
        }
        records += [ClearElrRecord(topic_name=name) for name in ([""] if "" in cleared else sorted(cleared))]
        if any(record.key == configs.UNCLEAN_LEADER_ELECTION for record in changed):
            after = self.replayed(records, timestamp_ms=now_ms)
            records += elections.elect_leaderless(
                after, rules=rules_of(after, self.config), records_max=RECORDS_PER_BATCH_MAX - len(records)
            )
        return ControllerResult(records=records, response=result.response)

    @decide.register
    def _(self, request: WriteImageHash, *, now_ms: int) -> ControllerResult[WriteImageHashReply]:
        return self.write_image_hash()

    @decide.register
    def _(self, request: AllocateProducerIds, *, now_ms: int) -> ControllerResult[AllocateProducerIdsReply]:
        return producer_ids.allocate_producer_ids(self.pending, request)

    @decide.register
    def _(self, request: ElectLeaders, *, now_ms: int) -> ControllerResult[ElectLeadersReply]:
        return elections.elect_leaders(
            self.pending, request, rules=self.partition_rules, records_max=RECORDS_PER_BATCH_MAX
        )

    @decide.register
    def _(
        self, request: AlterPartitionReassignments, *, now_ms: int
    ) -> ControllerResult[AlterPartitionReassignmentsReply]:
        return reassignment.alter_reassignments(
            self.pending, request, rules=self.partition_rules, records_max=RECORDS_PER_BATCH_MAX
        )

    @decide.register
    def _(
        self, request: ListPartitionReassignments, *, now_ms: int
    ) -> ControllerResult[ListPartitionReassignmentsReply]:
        return reassignment.list_reassignments(self.pending, request)

    @decide.register
    def _(
        self, request: AssignReplicasToDirectories, *, now_ms: int
    ) -> ControllerResult[AssignReplicasToDirectoriesReply]:
        return directories.assign_directories(self.pending, request, rules=self.partition_rules)

    @decide.register
    def _(self, request: AlterReplicaFaults, *, now_ms: int) -> ControllerResult[AlterReplicaFaultsReply]:
        return replica_faults.alter_replica_faults(self.pending, request, rules=self.partition_rules)

    @decide.register
    def _(self, request: UnregisterBroker, *, now_ms: int) -> ControllerResult[UnregisterBrokerReply]:
        result = brokers.unregister_broker(self.pending, request, rules=self.partition_rules)
        self.sessions.forget(request.broker_id)
        return result

    # --- what the controller does unasked -------------------------------------------------------------------------------

    def bootstrap(self) -> ControllerResult[None]:
        """The first records of a new cluster; none when it has them."""
        records = bootstrap_records(self.pending, min_insync_replicas=self.config.min_insync_replicas)
        return ControllerResult(records=records, response=None, name="Bootstrap records")

    def write_image_hash(self) -> ControllerResult[WriteImageHashReply]:
        """What the pending image hashes to, for all to compare with. Raises UNSUPPORTED_VERSION."""
        if not self.pending.features.has_integrity_records:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_VERSION,
                "metadata.version 1 has no record for image hashes: once all nodes run this version, "
                "`barnabas cluster features upgrade metadata.version=2`",
            )
        reply = WriteImageHashReply(offset=self.next_offset)
        return ControllerResult(records=[self.pending.hash.to_record()], response=reply)

    def abort_transaction(self, reason: str) -> ControllerResult[None]:
        """End the transaction that the log stands in; the pending image holds nothing of it."""
        return ControllerResult(records=[AbortTransactionRecord(reason=reason)], response=None)

    def drop_transaction(self, before: MetadataImage) -> None:
        """The pending image is again what it was before the transaction that is being proposed."""
        self.pending = before

    def sweep_tokens(self) -> ControllerResult[None]:
        """Remove expired delegation tokens."""
        return tokens.sweep_tokens(self.pending, wall_ms=self.wall_ms, records_max=RECORDS_PER_BATCH_MAX)

    def fence(self, broker_id: BrokerId) -> ControllerResult[None]:
        """Fence a broker that was found dead; no records when it is fenced or gone."""
        broker = self.pending.cluster.broker(broker_id)
        if broker is None or broker.is_fenced:
            return ControllerResult(records=[], response=None)
        records = brokers.fence_broker(self.pending, broker, rules=self.partition_rules)
        self.sessions.note_fenced(broker_id)
        return ControllerResult(records=records, response=None, is_atomic=False)

    def stale_broker(self, *, now_ms: int) -> BrokerId | None:
        """The unfenced broker that has been dead for longest, or None."""
        stale = [found for found in self._deadlines() if found[0] <= now_ms]
        return min(stale)[1] if stale else None

    def next_deadline_ms(self) -> int | None:
        """When the next unfenced broker is dead unless it is heard of before."""
        return min((deadline for deadline, _ in self._deadlines()), default=None)

    def _deadlines(self) -> Iterator[tuple[int, BrokerId]]:
        """When each unfenced broker is dead unless it is heard of before."""
        for broker in self.pending.cluster.sorted_brokers():
            if broker.is_fenced:
                continue
            deadline = self.sessions.deadline_ms(broker.id, at_least_ms=least_session_ms(broker.features))
            if deadline is not None:
                yield deadline, broker.id

    def balance_leaders(self, *, now_ms: int) -> ControllerResult[int]:
        """Hand partitions back to preferred leaders that have settled; answers how many."""
        records = elections.balance_leaders(
            self.pending,
            rules=self.partition_rules,
            unfenced_since_ms=self.sessions.unfenced_since_ms(),
            settle_ms=self.config.leader_imbalance_settle_ms,
            now_ms=now_ms,
            records_max=self.config.leader_imbalance_elections_max,
        )
        return ControllerResult(records=records, response=len(records), is_atomic=False)

    def elect_leaderless(self) -> ControllerResult[int]:
        """Leaders for partitions that wait for one and may have one by now; answers how many."""
        records = elections.elect_leaderless(
            self.pending, rules=self.partition_rules, records_max=UNASKED_ELECTIONS_MAX
        )
        return ControllerResult(records=records, response=len(records), is_atomic=False)

    def idle(self) -> ControllerResult[None]:
        """Keep the high watermark moving (KIP-835)."""
        return ControllerResult(records=[NoOpRecord()], response=None)

    @property
    def partition_rules(self) -> PartitionRules:
        """The effective settings of topics, as pending."""
        return rules_of(self.pending, self.config)

    # --- images ---------------------------------------------------------------------------------------------------------

    def replayed(self, records: Sequence[Record], *, timestamp_ms: int) -> MetadataImage:
        """The pending image as it would be with these records. Raises UnreplayableDecision on a record that does not fit:
        better here than on every node (kraft trap 9)."""
        delta = MetadataDelta(self.pending)
        try:
            replay = delta.replay  # a singledispatchmethod makes a wrapper each time it is looked up
            for record in records:
                replay(record)
            return delta.apply(Offset(self.next_offset + len(records) - 1), self.epoch, timestamp_ms)
        except Exception as error:  # a bug that this decision found; nothing of it is written, so nobody dies of it
            raise UnreplayableDecision.because(error) from error

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

    def catch_up(self, image: MetadataImage, *, last_offset: Offset) -> None:
        """The loader goes on after a bad record had held it. An active controller has written nothing meanwhile but
        sign-offs, the last at `last_offset`: they change nothing, so the pending image is this one."""
        self.committed = self.pending = image
        if self.is_active and last_offset > image.offset:
            self.pending = replace(image, offset=last_offset, epoch=self.epoch)
