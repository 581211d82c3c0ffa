"""Whether a broker may make a log for a replica that it does not find, and which log that it finds is of none: pure.

May touch:  its arguments.            Must not touch: files, the log manager.
Invariants: no empty log takes the place of one that may hold what the cluster counts on: neither while a directory that
            may hold it is offline, nor while the cluster still takes the replica for one that has the records; a log that
            does not say which topic it is of serves none, and is kept if it holds records (barnabas_log/directories/topic_witness.py).
Read next:  replica_logs.py, which asks; barnabas_quorum/controller/elr.py, how the cluster learns that records are gone.

Differs from Kafka: there a new log is made in any directory as soon as none is offline, whoever counts on it.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas_quorum.image.directories import directory_of, is_reserved
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Uuid


def refusal_of_new_log(
    partition: PartitionRegistration,
    broker_id: BrokerId,
    *,
    online: Collection[Uuid],
    has_offline: bool,
    is_of_this_incarnation: bool = False,
) -> str | None:
    """Why no log may be made for this broker's replica; None when one may, in its directory if that works, else in any.

    Args:
        online: the ids of the log directories that work.
        has_offline: whether the broker has others, whose ids it may not be able to read.
        is_of_this_incarnation: whether the partition was made since this incarnation of the broker began, which has no log of it.
    """
    directory = directory_of(partition, broker_id)
    if directory in online:
        return None
    counts = broker_id == partition.leader or broker_id in partition.isr or broker_id in partition.elr
    if has_offline:
        if not is_reserved(directory):
            return f"it is in directory {directory}, which does not work here now; make that readable and restart"
        is_new = is_of_this_incarnation or partition.partition_epoch == 0
        if is_new or (broker_id in partition.adding_replicas and not counts):
            return None
        return "no broker has reported in which directory it is, and one of them does not work here now; make that readable and restart"
    if not is_reserved(directory) and counts:
        return f"it is in directory {directory}, which is none of log.dirs, and the cluster counts on its records"
    return None


def is_stray(
    log_topic_id: Uuid, *, topic_id: Uuid | None, partition: PartitionRegistration | None, broker_id: BrokerId
) -> bool:
    """Whether a log on disk is of no replica of this broker: its topic was deleted, or its partition moved away, while the
    broker was down. Ask only of an image that knows this incarnation of the broker: an older one may not know the topic yet.

    Args:
        log_topic_id: as the log says; ZERO_UUID when it does not, which is judged when its partition is hosted.
        topic_id: of the topic that has the log's name now, None when there is none.
        partition: what the cluster knows of the partition, None when there is none.
    """
    if topic_id is None or partition is None or broker_id not in partition.replicas:
        return True
    return log_topic_id not in (topic_id, ZERO_UUID)
