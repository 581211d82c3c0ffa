"""What the follower's side decides: when a partition is due, what an answer means, how long to pause. Pure.

May touch:  its arguments.                Must not touch: logs, peers, asyncio, the clock.
Invariants: an answer counts only if leader epoch and log end are still those it was asked with; whatever a leader says that
            is none of the known things means a pause.
Read next:  fetcher_partitions.py, which obeys; fetcher.py, which waits; truncation.py (where to cut).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from barnabas_replication.follower.peer import FetchedPartition
from barnabas_replication.requests import FetchPartitionSpec
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import NO_EPOCH, Epoch, Offset

FIRST_BACKOFF_SHARE = 50
"""The first pause is this part of replica.fetch.backoff.ms; it doubles from there."""
THROTTLE_RECHECK_MS = 500
"""A throttled partition is looked at this often while its debt is paid: the throttle may have been lifted."""


class Meaning(Enum):
    """What a follower does about an answer."""

    APPEND = auto()
    """Take in the records, if any, and the marks beside them."""
    TRUNCATE = auto()
    """Our history parts from the leader's: cut."""
    START_OVER = auto()
    """Nothing of ours lies within the leader's log: retention there has passed our end, or it lost its log."""
    FORGET_EPOCH = auto()
    """We are empty at the leader's start already. A leader of an older version asks what became of our last epoch, of which no
    record is left: ask without it."""
    WAIT = auto()
    """As FORGET_EPOCH, with no epoch to forget: ask again later."""
    REFUSED = auto()
    """An error: ask again later."""


def meaning_of(
    fetched: FetchedPartition, *, log_start_offset: Offset, log_end_offset: Offset, latest_epoch: Epoch
) -> Meaning:
    """What the leader's answer means for a log with that start, end and latest leader epoch (-1 without any)."""
    code = fetched.error_code
    if code is ErrorCode.NONE:
        return Meaning.APPEND if fetched.diverging_epoch is None else Meaning.TRUNCATE
    if code is not ErrorCode.OFFSET_OUT_OF_RANGE or fetched.log_start_offset < 0:
        return Meaning.REFUSED
    if not fetched.log_start_offset == log_end_offset == log_start_offset:
        return Meaning.START_OVER
    return Meaning.WAIT if latest_epoch == NO_EPOCH else Meaning.FORGET_EPOCH


def is_current(asked: FetchPartitionSpec, *, leader_epoch: Epoch, log_end_offset: Offset) -> bool:
    """Whether an answer to that still counts."""
    return asked.current_leader_epoch == leader_epoch and asked.fetch_offset == log_end_offset


def leaves_session(fetched: FetchedPartition) -> bool:
    """Whether the leader has the partition in mind no more, and is to be asked for it again (fetch_session.py)."""
    return len(fetched.records) > 0 or fetched.error_code is not ErrorCode.NONE or fetched.diverging_epoch is not None


def is_full(answer: Sequence[FetchedPartition], *, bytes_max: int) -> bool:
    """Whether the bound of the whole answer cut it: batches are whole, so it left less than the half of itself unused."""
    return sum(len(fetched.records) for fetched in answer) * 2 >= bytes_max


def is_cut(fetched: FetchedPartition, asked: FetchPartitionSpec) -> bool:
    """Whether the bound of the partition cut its records."""
    return len(fetched.records) * 2 >= asked.max_bytes


def throttled_until_ms(*, not_before_ms: int, ready_at_ms: int, now_ms: int) -> int:
    """When a throttled partition is looked at next: its debt may take long, and be forgiven meanwhile."""
    return max(not_before_ms, min(ready_at_ms, now_ms + THROTTLE_RECHECK_MS))


def wait_ms(longest_ms: int, *, next_due_ms: int | None, now_ms: int) -> int:
    """How long the leader may park a fetch: no longer than a partition that is left out of it can wait."""
    return longest_ms if next_due_ms is None else max(1, min(longest_ms, next_due_ms - now_ms))


def backoff_ms(failures: int, *, longest_ms: int, jitter: float) -> int:
    """The pause after that many failures in a row before this one; jitter: a factor about 1."""
    pause = min(longest_ms, (longest_ms << min(failures, 16)) // FIRST_BACKOFF_SHARE)
    return max(1, int(pause * jitter))
