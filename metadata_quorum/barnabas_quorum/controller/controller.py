"""The controller's state: two images, the sessions, and its periodic work; decisions.py maps requests to functions.

May touch:  the other files of controller/, image/.   Must not touch: asyncio, clock, files, gRPC, raft.
Invariants: a decision reads the pending image, so that each sees the decisions before it; only `accept` moves the pending
            image and only `commit` the committed one; losing leadership drops the pending one.
Read next:  driver/controller_driver.py, which feeds it; partition_change.py and brokers.py for the rules.

Not obvious
- The pending image may never be committed. Nothing that was read from it, not even an error, may leave before the records
  behind it are committed; the driver ensures that.
- rpds maps iterate in a different order in every process. Decisions use sorted lists, or one seed would not give one
  history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from barnabas_quorum.controller import (  # noqa: F401 - importing the modules fills the table
    acls,
    broker_decisions,
    brokers,
    config_changes,
    controllers,
    directories,
    elections,
    features,
    image_hashes,
    maintenance,
    partitions,
    producer_ids,
    quotas,
    reassignment,
    replica_faults,
    scram,
    tokens,
    topics,
)
from barnabas_quorum.controller.config import ControllerConfig
from barnabas_quorum.controller.configs import ConfigValidators
from barnabas_quorum.controller.decisions import (
    DECISIONS,
    RECORDS_PER_BATCH_MAX,
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
)
from barnabas_quorum.controller.limits import PartitionLimits
from barnabas_quorum.controller.partition_rules import PartitionRules, rules_of
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.controller.sessions import BrokerSessions, least_session_ms
from barnabas_quorum.errors import UnreplayableDecision
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import AbortTransactionRecord, NoOpRecord, Record
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, Offset

R = TypeVar("R")

REQUESTS: tuple[type[Request[Any]], ...] = tuple(DECISIONS)
"""Every module with decisions."""
PERIODIC_ELECTIONS_MAX = 1000
"""Most leaders elected in one periodic run for partitions without one."""


class Controller:
    """Makes decisions. Owned by one driver; not thread-safe."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        cluster_id: str,
        random: Random,
        validators: ConfigValidators,
        first_records: Sequence[Record] = (),
    ) -> None:
        """`first_records`: what a new cluster begins with, besides its feature levels."""
        self.config = config
        self.sessions = BrokerSessions(
            session_timeout_ms=config.session_timeout_ms, disconnect_grace_ms=config.disconnect_grace_ms
        )
        self.committed = MetadataImage.EMPTY
        self.pending = MetadataImage.EMPTY
        self.epoch: Epoch = NO_EPOCH
        """The epoch of this leadership; -1 while not active."""
        self.next_offset = Offset(0)
        """The offset of the first record of the next result; meaningful while active."""
        self.wall_ms = 0
        """Wall clock when the current event began, ms since 1970; the driver sets it before each decision."""
        self._cluster_id = cluster_id
        self._random = random
        self._first_records = tuple(first_records)
        self._validators = validators
        self._limits = PartitionLimits(
            topic_partitions_max=config.topic_partitions_max,
            cluster_partitions_max=config.cluster_partitions_max,
            broker_replicas_max=config.broker_replicas_max,
        )

    # --- leadership -----------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this controller leads the quorum."""
        return self.epoch != NO_EPOCH

    def claim(self, *, epoch: Epoch, next_offset: Offset, now_ms: int) -> None:
        """This controller leads from now on. The committed image contains everything below the start of its epoch."""
        self.epoch = epoch
        self.next_offset = next_offset
        self.pending = self.committed
        unfenced = [
            (broker.id, broker.epoch) for broker in self.committed.cluster.sorted_brokers() if not broker.is_fenced
        ]
        self.sessions.begin(unfenced, now_ms=now_ms)

    def release(self) -> None:
        """This controller no longer leads: drop everything that is not committed."""
        self.epoch = NO_EPOCH
        self.pending = self.committed
        self.sessions.end()

    # --- decide, then replay --------------------------------------------------------------------------------------------

    def decide(self, request: Request[R], *, now_ms: int) -> ControllerResult[R]:
        """Decide a request. Raises the KafkaError that refuses it."""
        decision = DECISIONS.get(type(request))
        if decision is None:
            raise TypeError(f"the controller has no decision for {type(request).__name__}")
        context = DecisionContext(
            config=self.config,
            cluster_id=self._cluster_id,
            random=self._random,
            validators=self._validators,
            limits=self._limits,
            rules=self.partition_rules,
            sessions=self.sessions,
            now_ms=now_ms,
            wall_ms=self.wall_ms,
            next_offset=self.next_offset,
            transaction_records_max=(
                RECORDS_PER_REQUEST_MAX if self.pending.features.has_transactions else RECORDS_PER_BATCH_MAX
            ),
            after=lambda records: self.replayed(records, timestamp_ms=now_ms),
        )
        return decision(self.pending, request, context)

    # --- what the controller starts itself -------------------------------------------------------------------------------

    def bootstrap(self) -> ControllerResult[None]:
        """The first records of a new cluster; none when the cluster has them already."""
        records = features.bootstrap_records(self.pending, min_insync_replicas=self.config.min_insync_replicas)
        if records:
            records += self._first_records
        return ControllerResult(records=records, response=None, name="Bootstrap records")

    def abort_transaction(self, reason: str) -> ControllerResult[None]:
        """End the open transaction of the log; the pending image contains nothing of it."""
        return ControllerResult(records=[AbortTransactionRecord(reason=reason)], response=None)

    def drop_transaction(self, before: MetadataImage) -> None:
        """Reset the pending image to what it was before the transaction that is being proposed."""
        self.pending = before

    def sweep_tokens(self) -> ControllerResult[None]:
        """Remove expired delegation tokens."""
        return tokens.sweep_tokens(self.pending, wall_ms=self.wall_ms, records_max=RECORDS_PER_BATCH_MAX)

    def fence(self, broker_ids: Collection[BrokerId]) -> ControllerResult[None]:
        """Fence brokers that were found dead, in one go; no records for one that is already fenced or unregistered."""
        dead = [
            broker
            for broker in map(self.pending.cluster.broker, sorted(broker_ids))
            if broker is not None and not broker.is_fenced
        ]
        if not dead:
            return ControllerResult(records=[], response=None)
        records = brokers.fence_brokers(self.pending, *dead, rules=self.partition_rules)
        for broker in dead:
            self.sessions.note_fenced(broker.id)
        return ControllerResult(records=records, response=None, is_atomic=False)

    def stale_brokers(self, *, now_ms: int) -> list[BrokerId]:
        """The unfenced brokers that are dead, the one that has been so for longest first: as many as have RECORDS_PER_REQUEST_MAX
        replicas together, and one in any case. Heartbeats that came meanwhile go before the others. Once one is due, so is
        everyone who is proven dead."""
        replicas = self.pending.topics.index.replica_counts
        chosen: list[BrokerId] = []
        room = RECORDS_PER_REQUEST_MAX
        for deadline_ms, broker_id in sorted(self._deadlines()):
            if deadline_ms > now_ms and not (chosen and self.sessions.is_refused(broker_id)):
                continue
            room -= replicas.get(broker_id, 0)
            if chosen and room < 0:
                break
            chosen.append(broker_id)
        return chosen

    def awaits_siblings(self, broker_id: BrokerId) -> bool:
        """Whether others of the broker's host are absent too, and it is not known yet whether they are dead."""
        cluster = self.pending.cluster
        broker = cluster.broker(broker_id)
        return (
            broker is not None
            and broker.host is not None
            and any(
                other.host == broker.host
                and other.id != broker_id
                and not other.is_fenced
                and self.sessions.is_absent(other.id)
                and not self.sessions.is_refused(other.id)
                for other in cluster.brokers.values()
            )
        )

    def next_deadline_ms(self) -> int | None:
        """When the next session of an unfenced broker expires."""
        return min((deadline for deadline, _ in self._deadlines()), default=None)

    def _deadlines(self) -> Iterator[tuple[int, BrokerId]]:
        """When the session of each unfenced broker expires."""
        for broker in self.pending.cluster.sorted_brokers():
            if broker.is_fenced:
                continue
            deadline = self.sessions.deadline_ms(broker.id, at_least_ms=least_session_ms(broker.features))
            if deadline is not None:
                yield deadline, broker.id

    def balance_leaders(self, *, now_ms: int) -> ControllerResult[int]:
        """Hand partitions back to preferred leaders that have settled; returns how many."""
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
        """Elect leaders for partitions without one where that is possible by now; returns how many."""
        records = elections.elect_leaderless(
            self.pending, rules=self.partition_rules, records_max=PERIODIC_ELECTIONS_MAX
        )
        return ControllerResult(records=records, response=len(records), is_atomic=False)

    def idle(self) -> ControllerResult[None]:
        """Keep the high watermark moving (KIP-835)."""
        return ControllerResult(records=[NoOpRecord()], response=None)

    @property
    def partition_rules(self) -> PartitionRules:
        """The effective settings of topics in the pending image."""
        return rules_of(self.pending, self.config)

    # --- images ---------------------------------------------------------------------------------------------------------

    def replayed(self, records: Sequence[Record], *, timestamp_ms: int) -> MetadataImage:
        """The pending image with these records replayed. Raises UnreplayableDecision on a record that does not fit: once
        committed, it would stop every node."""
        delta = MetadataDelta(self.pending)
        try:
            replay = delta.replay  # each lookup of a singledispatchmethod creates a wrapper
            for record in records:
                replay(record)
            return delta.apply(Offset(self.next_offset + len(records) - 1), self.epoch, timestamp_ms)
        except Exception as error:  # this decision found a bug; it writes nothing, so no node stops
            raise UnreplayableDecision.because(error) from error

    def accept(self, image: MetadataImage) -> None:
        """The records that lead to `image` were proposed."""
        self.pending = image
        self.next_offset = Offset(image.offset + 1)

    def commit(self, image: MetadataImage) -> None:
        """The loader has published this image; on the active controller it is a prefix of the pending one."""
        if self.is_active and image.offset > self.pending.offset:
            raise InvariantViolated(
                f"records up to {image.offset} are committed in epoch {self.epoch}, but this active controller has only "
                f"proposed up to {self.pending.offset}"
            )
        self.committed = image
        if not self.is_active or image.offset == self.pending.offset:
            # equal records give equal images; taking the loader's frees the pending one, so the two share all their memory
            self.pending = image

    def catch_up(self, image: MetadataImage, *, last_offset: Offset) -> None:
        """The loader continues after a bad record had stopped it. Meanwhile an active controller has written only sign-offs,
        the last at `last_offset`. They change nothing, so the pending image is this one."""
        self.committed = self.pending = image
        if self.is_active and last_offset > image.offset:
            self.pending = replace(image, offset=last_offset, epoch=self.epoch)
