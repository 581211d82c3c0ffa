"""A partition's directory becomes an open log: made where it is new, recovered where it is not.

May touch:  the Disk, blocking: it may run in a disk thread.    Must not touch: asyncio, clocks, other logs.
Invariants: a directory of another topic id is never opened; what was found counts as durable, and its topic id is made so.
Read next:  recovery.py, which reads what is there; unified_log.py, which is returned.
"""

from __future__ import annotations

from barnabas_log import repair
from barnabas_log.checkpoints import PARTITION_METADATA_FILE, read_partition_metadata
from barnabas_log.config import LogConfig
from barnabas_log.disk import Disk
from barnabas_log.errors import InconsistentTopicId
from barnabas_log.log_listener import LogListener, NoListener
from barnabas_log.log_writer import STEP_DESCRIPTORS
from barnabas_log.recovery import recover_log
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
    recovery_point: Offset = _OFFSET_ZERO,
    log_start_offset: Offset = _OFFSET_ZERO,
    high_watermark: Offset = _OFFSET_ZERO,
    is_clean_shutdown: bool = False,
    keeps_damage: bool = True,
    may_have_gaps: bool = False,
    listener: LogListener[UnifiedLog] | None = None,
) -> UnifiedLog:
    """Open the partition directory, making it if it is not there; see recovery.py for what that and `keeps_damage` do.

    topic_id: ZERO_UUID takes the one on disk. Raises InconsistentTopicId when both are known and differ, OSError.
    """
    disk.ensure_descriptors(STEP_DESCRIPTORS, directory)
    is_new = not disk.exists(directory)
    metadata_path = f"{directory}/{PARTITION_METADATA_FILE}"
    known_id = None if is_new else read_partition_metadata(disk, metadata_path)
    if known_id is not None and topic_id not in (ZERO_UUID, known_id):
        raise InconsistentTopicId(f"{directory} holds topic id {known_id}, not {topic_id}")
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
    )
    log = UnifiedLog(
        disk=disk,
        directory=directory,
        topic_partition=topic_partition,
        topic_id=known_id or topic_id,
        config=config,
        recovered=recovered,
        high_watermark=high_watermark,
        now_ms=now_ms,
        listener=listener or NoListener(),
        is_new=is_new,
    )
    log.has_gaps = may_have_gaps
    for base_offset in {damage.segment for damage in recovered.damage}:
        repair.set_damage(log, base_offset, [damage for damage in recovered.damage if damage.segment == base_offset])
    if known_id is None and topic_id != ZERO_UUID:
        log.set_topic_id(topic_id)
    elif known_id is not None and not is_clean_shutdown:
        # Perhaps only in the page cache, of a process that was killed. What was recovered counts as durable from here on,
        # and is nothing without its topic id.
        metadata = disk.open(metadata_path)
        metadata.sync()
        metadata.close()
    for segment in recovered.segments:
        segment.rest()
    return log
