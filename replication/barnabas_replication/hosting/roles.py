"""How a replica takes the role that an image gives it: lead a new epoch, lead on with other replicas, or follow.

May touch:  the partition and its log.   Must not touch: the network, clocks, fetchers.
Invariants: state from an older partition epoch is ignored; a leader epoch is led by one incarnation of a broker only; a
            request that waits for what only a leader does is sent away when the leadership ends.
Read next:  partition.py, whose state this sets; placement.py, which says who leads and who follows.

Not obvious:
- A leader epoch is led by one incarnation only. A broker that comes back has perhaps lost what followers fetched from it in that
  epoch; writing on would give two records one (offset, epoch). So an epoch from an image that does not know this incarnation's
  registration yet is not led, nor one that the log knows already: the controller gives the next when it sees the new incarnation.
"""

from __future__ import annotations

import logging

from barnabas_log.tail import truncating
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.leader.isr import IsrState
from barnabas_replication.leader.replica_state import RemoteReplica, initial_replica
from barnabas_replication.partition import Partition
from barnabas_wire.kafka.ids import NO_EPOCH, NO_OFFSET, BrokerId

logger = logging.getLogger(__name__)


def lead(
    partition: Partition, registration: PartitionRegistration, *, now_ms: int, is_present_incarnation: bool = True
) -> None:
    """Lead as the image says; within a leader epoch this only takes in the new ISR.

    is_present_incarnation: whether the image knows this very process as the broker. Otherwise the epoch was given to an
    earlier incarnation, and is not led.
    """
    if registration.partition_epoch < partition.partition_epoch:
        return
    epoch = registration.leader_epoch
    is_new_epoch = epoch > partition.leader_epoch
    if not is_new_epoch and not partition.is_leader:
        return
    partition.log.tail.is_sole_copy = len(registration.replicas) == 1
    if is_new_epoch:
        partition.missed_below = NO_OFFSET
        was_led_before = partition.leader_epoch == NO_EPOCH and partition.log.latest_epoch >= epoch
        _take_roles(partition, registration)
        if was_led_before or not is_present_incarnation:
            # every restart brings this for each partition that was led: the manager counts them in one line
            logger.debug(
                "%s: epoch %d was led by an earlier process, not by this one", partition.topic_partition, epoch
            )
            partition.dismiss(partition.not_leader())
            return
        partition.is_leader = True
        _begin_epoch(partition, registration, now_ms)
        if epoch:  # the former leader has sent away those whose batches were not committed
            partition.expect_again(partition.led_anew(), now_ms)
        # Fetches parked in an earlier epoch learn of the new one; produces stay, their records are still ours.
        partition.follower_fetches.wake()
        partition.consumer_fetches.wake()
    elif registration.partition_epoch == partition.partition_epoch:
        return
    else:
        _take_replicas(partition, registration, now_ms)
    partition.install_isr(registration.isr, registration.partition_epoch, now_ms)


def follow(partition: Partition, registration: PartitionRegistration) -> bool:
    """Follow as the image says; returns whether leader or epoch changed, so that fetching must start over."""
    if registration.partition_epoch < partition.partition_epoch:
        return False
    is_new = registration.leader_epoch > partition.leader_epoch
    if not is_new and registration.partition_epoch == partition.partition_epoch:
        return False
    was_leader = partition.is_leader
    if is_new:
        partition.missed_below = NO_OFFSET  # this leader may have forgotten less
    _take_roles(partition, registration)
    partition.partition_epoch = registration.partition_epoch
    if was_leader or is_new:
        partition.dismiss(partition.not_leader())
        # An epoch that we began to lead and wrote nothing in must go from the epoch cache: the new leader knows
        # nothing of it, and its older records would not fit behind it.
        truncating.truncate_to(partition.log, partition.log.log_end_offset)
    return is_new


def _take_roles(partition: Partition, registration: PartitionRegistration) -> None:
    partition.is_leader = False
    partition.leader_id = registration.leader
    partition.leader_epoch = registration.leader_epoch
    partition.replicas = registration.replicas
    partition.partition_epoch = registration.partition_epoch
    partition.isr = IsrState.of(registration.isr)
    _take_faults(partition, registration)
    partition.proposal = None
    partition.remotes = {}
    partition.sent_high_watermarks = {}


def _begin_epoch(partition: Partition, registration: PartitionRegistration, now_ms: int) -> None:
    log = partition.log
    end = log.log_end_offset
    assert partition.high_watermark <= end, (
        f"{partition.topic_partition}: HW {partition.high_watermark} above LEO {end}"
    )
    partition.leader_epoch_start_offset = end
    partition.leading_since_ms = now_ms
    log.tail.assign_epoch_start(registration.leader_epoch, end)
    partition.remotes = _remotes_of(partition, registration, now_ms)
    logger.info(
        "%s: leading epoch %d from offset %d, ISR %s",
        partition.topic_partition,
        partition.leader_epoch,
        end,
        registration.isr,
    )


def _take_replicas(partition: Partition, registration: PartitionRegistration, now_ms: int) -> None:
    """Replicas may come and go within a leader epoch (reassignment), and become faulty."""
    _take_faults(partition, registration)
    if registration.replicas == partition.replicas:
        return
    partition.replicas = registration.replicas
    partition.remotes = _remotes_of(partition, registration, now_ms)
    partition.follower_fetches.note()  # one that went and came again reports its offset again


def _take_faults(partition: Partition, registration: PartitionRegistration) -> None:
    partition.faulty_replicas = frozenset(replica for replica, _ in registration.faults)
    own = registration.fault_of(partition.cluster.broker_id)
    partition.is_known_corrupt = own in (ReplicaFault.CORRUPT, ReplicaFault.LOST)


def _remotes_of(
    partition: Partition, registration: PartitionRegistration, now_ms: int
) -> dict[BrokerId, RemoteReplica]:
    """The followers as the leader sees them: those that it knows as they are, the others as at the start of an epoch."""
    me, end = partition.cluster.broker_id, partition.log.log_end_offset
    return {
        broker_id: partition.remotes.get(broker_id)
        or initial_replica(broker_id, is_in_sync=broker_id in registration.isr, leader_end_offset=end, now_ms=now_ms)
        for broker_id in registration.replicas
        if broker_id != me
    }
