"""What the logs of a broker count.

May touch:  nothing.                  Must not touch: metrics libraries.
Invariants: counters only rise.
Read next:  manager.py, which counts; broker/metrics/logs.py, which names them.
"""

from __future__ import annotations

from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class LogManagerStats:
    """Counters since the start."""

    logs_recovered: int = 0
    """Logs opened after an unclean stop."""
    recovery_scanned_bytes: int = 0
    recovery_truncated_bytes: int = 0
    logs_that_lost_flushed_data: int = 0
    replicas_lost: int = 0
    """Logs that lack what a proved checkpoint says that they had, or are set aside since their topic is unknown."""
    checkpoints_doubted: int = 0
    """Checkpoint files that were missing, unreadable, or other than their twin when they were read."""
    segments_retired: int = 0
    producers_expired: int = 0
    directories_failed: int = 0
    directories_filled: int = 0
    """Times that a directory ran full."""
