"""What the clients write and read: topics, partitions, rates.

May touch:  nothing.                  Must not touch: anything.
Invariants: in sum well above FLOOR_OPS_PER_S, so that a healthy cluster passes it on a busy machine.
Read next:  confluent.py and aio.py, which do it.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.checker.data_history import FAIL, INFO

FLOOR_OPS_PER_S = 500.0
"""Operations (acknowledged records, polls, commits, requests) a second before the first fault; below, a run is void."""
KEPT = "kept"
LOOSE = "loose"
PRUNED = "pruned"
IDLE = "idle"
"""Written in bursts, and emptied by DeleteRecords in between: leaders change while a log's start is its end."""
RETRY_BACKOFF_S = 0.08
"""The shortest pause of either client before it asks again: 100 ms, which librdkafka shortens by a fifth at the most."""
MAX_MESSAGE_BYTES = 20_000
"""Of LOOSE: what is larger is refused, so that there are records that certainly were not written."""


class Topic(NamedTuple):
    """One topic of the load."""

    name: str
    partitions: int
    configs: dict[str, str]


_CONFIGS = {"min.insync.replicas": "2", "segment.ms": "3000", "segment.bytes": "1048576"}
"""Small segments: there are sealed ones soon, for rot to hit and retention to take."""
TOPICS = (
    Topic(KEPT, 3, _CONFIGS),
    Topic(LOOSE, 2, {**_CONFIGS, "max.message.bytes": str(MAX_MESSAGE_BYTES)}),
    Topic(PRUNED, 2, {**_CONFIGS, "retention.bytes": "1500000", "file.delete.delay.ms": "1000"}),
    Topic(IDLE, 2, _CONFIGS),
)
COPIED = "copied"
TWICE = "copied-twice"
ENDED = "ended"
_TRANSACTED_CONFIGS = {"min.insync.replicas": "2", "segment.ms": "3000"}
TRANSACTED_TOPICS = (
    Topic(COPIED, 3, _TRANSACTED_CONFIGS),
    Topic(TWICE, 3, _TRANSACTED_CONFIGS),
    Topic(ENDED, 2, _TRANSACTED_CONFIGS),
)
"""Those that transactions write to, in scenarios that have transactional clients."""
PARTITIONS = {topic.name: topic.partitions for topic in (*TOPICS, *TRANSACTED_TOPICS)}
KEYS = [(topic.name, partition) for topic in TOPICS for partition in range(topic.partitions)]
TRANSACTED_KEYS = [(topic.name, partition) for topic in TRANSACTED_TOPICS for partition in range(topic.partitions)]
CONFLUENT_GROUP = "confluent-group"
AIO_GROUP = "aio-group"
MEMBERS = 2
"""Of each group; they read KEPT."""
CROWD = "crowd"
CROWD_MEMBERS = 3
"""Of the group whose members die, stop, leave and change their protocol; they read KEPT, too."""

SHARE_GROUP = "sharers"
SHARERS = 3
"""Members of the share group that reads KEPT."""
SHARE_LOCK_S = 3.0
SHARE_DELIVERIES_MAX = 10
"""A delivery whose answer was lost counts: with few, records would be dead that nobody was shown."""


class Writer(NamedTuple):
    """One producer. `padding`: bytes added to each value, at most. `pause_s`: how long it rests after each second."""

    client: str
    topic: str
    per_second: int
    is_idempotent: bool
    padding: int
    pause_s: float = 0.0


CONFLUENT_WRITERS = (
    Writer("confluent-idempotent", KEPT, 300, True, 200),
    Writer("confluent-plain", LOOSE, 200, False, 200),
    Writer("confluent-pruned", PRUNED, 150, True, 1500),
    Writer("confluent-idle", IDLE, 20, True, 200, pause_s=5.0),
)
AIO_WRITERS = (Writer("aio-idempotent", KEPT, 150, True, 200), Writer("aio-plain", LOOSE, 100, False, 200))


class Copy(NamedTuple):
    """Copiers of one group, which write what they read of one topic to the same partitions of another."""

    group: str
    source: str
    target: str
    copiers: int


COPIES = (Copy("copiers", KEPT, COPIED, 2), Copy("second-copiers", COPIED, TWICE, 1))
"""The second reads what the first has committed: what it must not see it would copy."""
ABORT_SHARE = 0.1
"""Of the transactions."""
RECORDS_PER_TRANSACTION_MAX = 100


def key_of(topic: str, partition: int) -> str:
    """The history's key of a partition."""
    return f"{topic}-{partition}"


def outcome_of_refused_commit(*, took_s: float) -> str:
    """FAIL where a coordinator's refusal answers the only attempt; INFO where the client may have asked before and lost the answer,
    as both clients do after their pause for retries: that attempt may have committed."""
    return FAIL if took_s < RETRY_BACKOFF_S else INFO
