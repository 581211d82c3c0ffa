"""How a leader changes its ISR: whom it proposes to drop or to take in, and what the controller's answer does.

May touch:  the partition.   Must not touch: the network, clocks.
Invariants: one proposal at a time; a member that may join counts at once, one that shall leave counts until the image is without it;
            an ISR is installed by the image alone, never by an answer.
Read next:  isr.py for the rules; alter_partition.py, which sends proposals (KIP-497).

Not obvious: an answer says what is committed, and may be ahead of the image here. What the controller has judged by is
in the image too: min.insync.replicas above all, by which it keeps who leaves as eligible (ELR). Kafka installs the ISR
with the answer; with the former minimum the leader would then commit alone what the eligible replica lacks.
"""

from __future__ import annotations

import logging

from barnabas_replication.controller import AlterPartitionItem, AlterPartitionOutcome, IsrMember
from barnabas_replication.leader import isr as rules
from barnabas_replication.leader.replica_state import (
    UNKNOWN_BROKER_EPOCH,
    RemoteReplica,
)
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId

logger = logging.getLogger(__name__)

_FORGET_PROPOSAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INELIGIBLE_REPLICA,
    }
)
"""Refused for good: back to the committed ISR; the next fetch or lag check may propose again."""
_AWAIT_IMAGE = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller is ahead of us, perhaps because it accepted this proposal in an earlier try whose answer was lost: so the
proposal keeps counting until the image shows it, as an accepted one does."""


def shrink_isr(partition: Partition, *, now_ms: int) -> None:
    """Propose to drop members that lag (called every half of replica.lag.time.max.ms)."""
    if not partition.is_leader or partition.storage_error is not None:
        return
    lagging = rules.replicas_out_of_sync(
        partition.isr,
        partition.remotes,
        leader_end_offset=partition.log.log_end_offset,
        now_ms=now_ms,
        lag_ms_max=partition.config.replica_lag_time_ms_max,
    )
    if not lagging:
        return
    logger.info("%s: followers %s lag, proposing an ISR without them", partition.topic_partition, sorted(lagging))
    members = partition.isr.committed - lagging
    partition.isr = partition.isr.shrinking()
    propose(partition, members)


def drop_silent(partition: Partition, *, now_ms: int) -> None:
    """Propose to drop members that are silent while acks=all writes wait for them alone (called while any wait)."""
    awaited_end = partition.waiting_for_commit.first_offset
    if awaited_end is None or not partition.is_leader or partition.storage_error is not None:
        return
    leavers = rules.replicas_to_drop_for_silence(
        partition.isr,
        partition.remotes,
        silent=[broker_id for broker_id in partition.remotes if partition.is_silent(broker_id, now_ms)],
        awaited_end=awaited_end,
        leader_durable_end=partition.durable_end_offset,
        min_isr=partition.min_isr,
    )
    if not leavers:
        return
    logger.info(
        "%s: nothing was heard from followers %s, and acks=all writes wait for them alone: proposing an ISR without them",
        partition.topic_partition,
        sorted(leavers),
    )
    members = partition.isr.committed - leavers
    partition.isr = partition.isr.shrinking()
    propose(partition, members)


def on_isr_outcome(
    partition: Partition, item: AlterPartitionItem, outcome: AlterPartitionOutcome, *, now_ms: int
) -> bool:
    """The controller's word on a proposal; returns whether to send it again."""
    if partition.proposal is not item:
        return False
    error = outcome.error
    if error is None:
        if outcome.partition_epoch == partition.partition_epoch:  # nothing was to be changed: no image will show it
            _settle(partition, now_ms)
        return False
    if error.code in _FORGET_PROPOSAL:
        partition.stats.isr_proposals_refused += 1
        logger.info("%s: the controller refused an ISR: %s", partition.topic_partition, error.code.name)
        _settle(partition, now_ms)
        return False
    return error.code not in _AWAIT_IMAGE


def _settle(partition: Partition, now_ms: int) -> None:
    """Back to the committed ISR."""
    partition.proposal = None
    partition.isr = partition.isr.settled()
    partition.advance_high_watermark(now_ms)


def expand_isr(partition: Partition, replica: RemoteReplica) -> None:
    """Propose to take in a follower that may join."""
    if replica.log_start_offset < partition.log.log_start_offset:
        return  # elected, it would bring back what was deleted; it moves with its next fetches
    if rules.may_join(
        partition.isr,
        replica,
        is_eligible=partition.is_eligible(replica),
        high_watermark=partition.high_watermark,
        leader_epoch_start_offset=partition.leader_epoch_start_offset,
    ):
        logger.info("%s: follower %d caught up, proposing it for the ISR", partition.topic_partition, replica.broker_id)
        partition.isr = partition.isr.expanding(replica.broker_id)
        propose(partition, partition.isr.maximal)


def propose(partition: Partition, members: frozenset[BrokerId]) -> None:
    """Send the ISR to the controller, each member with the broker epoch of the incarnation that we mean (KIP-903)."""
    me = partition.cluster.broker_id
    isr = tuple(
        IsrMember(
            broker_id, partition.cluster.broker_epoch() if broker_id == me else _known_epoch(partition, broker_id)
        )
        for broker_id in partition.replicas
        if broker_id in members
    )
    partition.proposal = AlterPartitionItem(
        partition.topic_id,
        partition.topic_partition.topic,
        partition.topic_partition.partition,
        partition.leader_epoch,
        isr,
        partition.partition_epoch,
    )
    partition.events.propose_isr(partition, partition.proposal)


def _known_epoch(partition: Partition, broker_id: BrokerId) -> int:
    replica = partition.remotes.get(broker_id)
    return UNKNOWN_BROKER_EPOCH if replica is None else replica.broker_epoch
