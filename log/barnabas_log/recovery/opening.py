"""A partition's directory becomes an open log: made where it is new, recovered where it is not.

May touch:  the Disk, blocking: it may run in a disk thread.    Must not touch: asyncio, clocks, other logs.
Invariants: a directory of another topic id is never opened for one; what was found counts as durable, and its topic id is made so;
            a log whose witnesses do not agree is opened as found, and serves no request until its user has judged it.
Read next:  recovery.py, which reads what is there; unified_log.py, which is returned.
"""

from __future__ import annotations

from barnabas_log.config import LogConfig
from barnabas_log.directories.disk_space import is_disk_full
from barnabas_log.directories.topic_witness import (
    Fate,
    Identity,
    Witnesses,
    fate_of,
    identity_of,
    read_witnesses,
    witness_files,
    write_missing_witness,
)
from barnabas_log.disk import Disk
from barnabas_log.errors import InconsistentTopicId
from barnabas_log.recovery import repair
from barnabas_log.recovery.recovery import recover_log
from barnabas_log.tail.log_listener import LogListener, NoListener
from barnabas_log.tail.log_tail import STEP_DESCRIPTORS
from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import ZERO_UUID, Offset, TopicPartition, Uuid

_OFFSET_ZERO = Offset(0)


def open_partition_log(
    *,
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: Uuid,
    config: LogConfig,
    now_ms: int,
    recovery_point: Offset | None = _OFFSET_ZERO,
    log_start_offset: Offset = _OFFSET_ZERO,
    high_watermark: Offset = _OFFSET_ZERO,
    is_clean_shutdown: bool = False,
    keeps_damage: bool = True,
    may_have_gaps: bool | None = False,
    has_second_witness: bool = True,
    is_log_start_proved: bool = True,
    is_recovery_point_proved: bool = False,
    listener: LogListener[UnifiedLog] | None = None,
) -> UnifiedLog:
    """Open the partition directory, making it if it is not there; see recovery.py for what that, `keeps_damage`,
    `is_log_start_proved` and `is_recovery_point_proved` do.

    Args:
        topic_id: ZERO_UUID takes the one on disk.
        recovery_point: None where it is not known any more. may_have_gaps: as recover_log has it.
        has_second_witness: False where versions that do not write topic-id.witness may have made the log; it is written then.

    Raises InconsistentTopicId when the log is not, or not surely, of the topic that is asked for; OSError.
    """
    disk.ensure_descriptors(STEP_DESCRIPTORS, directory)
    is_new = not disk.exists(directory)
    said = Witnesses(None, None) if is_new else read_witnesses(disk, directory, topic_partition)
    if said.topic_id != ZERO_UUID and topic_id not in (ZERO_UUID, said.topic_id):
        raise InconsistentTopicId(f"{directory} holds topic id {said.topic_id}, not {topic_id}")
    disk.make_directory(directory)
    recovered = recover_log(
        disk,
        directory,
        config,
        now_ms=now_ms,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        is_clean_shutdown=is_clean_shutdown,
        keeps_damage=keeps_damage,
        may_have_gaps=may_have_gaps,
        is_log_start_proved=is_log_start_proved,
        is_recovery_point_proved=is_recovery_point_proved,
    )
    identity = identity_of(said, holds_records=recovered.log_end_offset > 0, has_second=has_second_witness)
    if topic_id != ZERO_UUID and fate_of(identity, said.topic_id, topic_id=topic_id) is not Fate.SERVE:
        raise InconsistentTopicId(f"{directory} is not known to be of topic id {topic_id}: {identity.value}")
    log = UnifiedLog(
        disk=disk,
        directory=directory,
        topic_partition=topic_partition,
        topic_id=said.topic_id,
        identity=identity,
        config=config,
        recovered=recovered,
        high_watermark=high_watermark,
        now_ms=now_ms,
        listener=listener or NoListener(),
        is_new=is_new,
    )
    log.tail.has_gaps = bool(may_have_gaps) or recovered.has_gaps
    if not is_new:
        try:
            log.forgotten.load(log_end=log.log_end_offset, may_have_gaps=log.tail.has_gaps)
        except OSError as error:
            if not is_disk_full(error):
                raise
            log.forgotten.publish(log.log_end_offset)
    for base_offset in {damage.segment for damage in recovered.damage}:
        repair.set_damage(log, base_offset, [damage for damage in recovered.damage if damage.segment == base_offset])
    if topic_id != ZERO_UUID:
        log.take_topic_id(topic_id)
    elif identity is Identity.PROVED and said.witness is None:
        write_missing_witness(disk, directory, topic_partition, said)
    if not is_clean_shutdown:
        # Perhaps only in the page cache, of a process that was killed. What was recovered counts as durable from here on,
        # and is nothing without its topic id.
        for (name, _), named in zip(witness_files(said.topic_id, topic_partition), said, strict=True):
            if named is not None:
                file = disk.open(f"{directory}/{name}")
                file.sync()
                file.close()
    log.durability.rest()
    for segment in recovered.segments:
        segment.rest()
    return log
