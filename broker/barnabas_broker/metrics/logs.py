"""The log directories: room, flushes, recovery, damage, retention, open files.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: only an online directory has free space; nothing is by partition.
Read next:  replicas.py; barnabas_log/directories/manager.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import copied, counter, gauge, histogram
from barnabas_broker.metrics.sources import NodeSources


def log_families(sources: NodeSources) -> Iterator[Metric]:
    """The log directories."""
    logs = sources.logs
    if logs is None:
        return
    online, offline = logs.health.online_directories, logs.health.offline_directories
    yield gauge(
        "log_dirs", "Log directories.", [({"state": "online"}, len(online)), ({"state": "offline"}, len(offline))]
    )
    yield gauge(
        "log_disk_free_bytes", "Free space of a log directory.", [({"dir": path}, _free_bytes(path)) for path in online]
    )
    flushes = logs.flush_stats().items()
    yield histogram("log_flush_seconds", "Flush rounds.", [({"dir": path}, stats.round_s) for path, stats in flushes])
    yield counter("log_flushed_files", "Files flushed.", [({"dir": path}, stats.files) for path, stats in flushes])
    stats = logs.stats
    yield counter("log_recovered", "Logs opened after an unclean stop.", [({}, stats.logs_recovered)])
    yield counter("log_dir_failures", "Log directories that failed while in use.", [({}, stats.directories_failed)])
    yield counter(
        "log_dir_fillings",
        "Times that a log directory ran out of room and took no more records.",
        [({}, stats.directories_filled)],
    )
    yield counter("log_recovery_scanned_bytes", "Bytes read by recovery.", [({}, stats.recovery_scanned_bytes)])
    yield counter("log_recovery_truncated_bytes", "Bytes cut by recovery.", [({}, stats.recovery_truncated_bytes)])
    yield counter(
        "log_lost_flushed_data",
        "Logs opened without all that was flushed: the disk lost what it had confirmed.",
        [({}, stats.logs_that_lost_flushed_data)],
    )
    yield counter(
        "log_lost_replicas",
        "Replicas that were found without records that they had, or without a proof of whose they are.",
        [({}, stats.replicas_lost)],
    )
    yield counter(
        "log_doubted_checkpoints",
        "Checkpoint files that were missing, unreadable, or other than their twin at the start.",
        [({}, stats.checkpoints_doubted)],
    )
    scrubs = logs.repairs.scrub_stats().items()
    yield counter(
        "log_scrub_bytes",
        "Bytes of logs that were read again to find damage.",
        [({"dir": path}, scrub.bytes_checked) for path, scrub in scrubs],
    )
    yield counter(
        "log_scrub_batches",
        "Batches among them that were sound.",
        [({"dir": path}, scrub.batches_checked) for path, scrub in scrubs],
    )
    yield counter(
        "log_scrub_passes",
        "Times that a whole log directory was read.",
        [({"dir": path}, scrub.passes) for path, scrub in scrubs],
    )
    yield gauge(
        "log_scrub_progress_ratio",
        "How much of its log directory the pass under way has read, 0 to 1.",
        [
            ({"dir": path}, min(1.0, scrub.pass_bytes_checked / scrub.pass_bytes) if scrub.pass_bytes else 1.0)
            for path, scrub in scrubs
        ],
    )
    yield gauge(
        "log_damaged_ranges",
        "Offset ranges that are known to be damaged here and not repaired yet.",
        [({}, sum(len(log.damage) for log in copied(logs.logs.values)))],
    )
    yield counter(
        "log_damage_found", "Damaged ranges found.", [({"dir": path}, scrub.ranges_found) for path, scrub in scrubs]
    )
    yield counter(
        "log_damage_repaired",
        "Damaged ranges that were replaced by sound batches of their leaders, in place or with all behind them.",
        [({"dir": path}, scrub.ranges_repaired) for path, scrub in scrubs],
    )
    yield counter(
        "log_indexes_rebuilt",
        "Indexes of sealed segments that were damaged and made again.",
        [({"dir": path}, scrub.indexes_rebuilt) for path, scrub in scrubs],
    )
    cleaner = logs.cleaner.stats
    yield counter("log_cleaner_runs", "Compaction runs over one log that were swapped in.", [({}, cleaner.runs)])
    yield counter(
        "log_cleaner_runs_failed",
        "Compaction runs that came to nothing and are tried again.",
        [({}, cleaner.runs_failed)],
    )
    yield counter(
        "log_cleaner_runs_dropped",
        "Compaction runs that were dropped because the log was cut or deleted meanwhile.",
        [({}, cleaner.runs_dropped)],
    )
    yield counter("log_cleaner_bytes", "Bytes that the cleaner has read and written.", [({}, cleaner.bytes_moved)])
    yield counter(
        "log_cleaner_freed_bytes", "Bytes by which compaction made logs smaller.", [({}, cleaner.bytes_freed)]
    )
    yield counter(
        "log_cleaner_segments_swapped", "Segments that smaller ones replaced.", [({}, cleaner.segments_swapped)]
    )
    yield gauge("log_cleaner_running", "1 while a compaction run is under way.", [({}, int(cleaner.is_running))])
    yield gauge("log_cleaner_last_run_seconds", "How long the last run took.", [({}, cleaner.last_run_ms / 1000)])
    yield gauge(
        "log_cleaner_last_run_keys", "Keys in the dirty part that the last run saw.", [({}, cleaner.keys_last_run)]
    )
    yield gauge(
        "log_cleaner_dirty_ratio_max",
        "Dirty share of the log that is cleaned next, 0 when none is due.",
        [({}, cleaner.dirty_ratio_max)],
    )
    yield gauge(
        "log_cleaner_uncleanable_logs",
        "Compacted logs that cannot be cleaned and were set aside; the node's log names them.",
        [({}, len(cleaner.set_aside))],
    )
    yield counter("log_segments_retired", "Segments dropped by retention.", [({}, stats.segments_retired)])
    yield counter("log_producers_expired", "Idempotent producers that were forgotten.", [({}, stats.producers_expired)])
    descriptors = sources.log_descriptors
    if descriptors is None:
        return
    yield gauge("log_files_open", "Log files that are open.", [({}, len(descriptors))])
    yield counter(
        "log_files_closed",
        "Log files closed to keep the descriptors within the limit (process_max_fds).",
        [({}, descriptors.stats.closed)],
    )
    yield counter(
        "log_files_reopened", "Uses of a log file that had to open it again.", [({}, descriptors.stats.reopened)]
    )
    yield counter(
        "log_files_refused", "Log files not opened for want of a descriptor.", [({}, descriptors.stats.refused)]
    )


def _free_bytes(path: str) -> int:
    """Free space, 0 for a directory that went away meanwhile."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return 0
