"""Log levels of this process, which Kafka's tools read and change while a broker runs (KIP-412).

May touch:  the logging module.       Must not touch: files, metadata.
Invariants: a change is checked whole before any of it is made; nothing is kept: a restart has the levels of its command line.
Read next:  api/configs.py, which serves the resource BROKER_LOGGER with it.

Names are those of Barnabas's own loggers and packages (barnabas_replication.follower.fetcher, barnabas_replication), and `root` for what no
other name sets. Levels are Kafka's words; TRACE shows all that DEBUG does and what other libraries write below it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas_wire.kafka.errors import ErrorCode, KafkaError

ROOT: Final = "root"
PREFIX: Final = "barnabas_"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}

FORMER: Final[Mapping[str, str]] = {
    "barnabas_broker.metadata.cut_off": "barnabas_broker.metadata.isolation",
    "barnabas_broker.network.own_address": "barnabas_broker.network.host_address",
    "barnabas_log.aborted_proof": "barnabas_log.recovery.aborted_proof",
    "barnabas_log.checkpointing": "barnabas_log.directories.checkpointing",
    "barnabas_log.directory_health": "barnabas_log.directories.directory_health",
    "barnabas_log.inspection_process": "barnabas_log.recovery.inspection_process",
    "barnabas_log.log_directory": "barnabas_log.directories.log_directory",
    "barnabas_log.log_homes": "barnabas_log.directories.log_homes",
    "barnabas_log.log_tail": "barnabas_log.tail.log_tail",
    "barnabas_log.manager": "barnabas_log.directories.manager",
    "barnabas_log.producer_replay": "barnabas_log.tail.producer_replay",
    "barnabas_log.refill_names": "barnabas_log.directories.refill_names",
    "barnabas_log.refills": "barnabas_log.directories.refills",
    "barnabas_log.removals": "barnabas_log.directories.removals",
    "barnabas_log.saved_offsets": "barnabas_log.directories.saved_offsets",
    "barnabas_log.scrubber": "barnabas_log.recovery.scrubber",
    "barnabas_log.segment": "barnabas_log.tail.segment",
    "barnabas_log.truncating": "barnabas_log.tail.truncating",
    "barnabas_quorum.driver.own_snapshots": "barnabas_quorum.driver.replica_snapshots",
    "barnabas_quorum.driver.unasked": "barnabas_quorum.driver.periodic_tasks",
    "barnabas_replication.alter_partition": "barnabas_replication.leader.alter_partition",
    "barnabas_replication.appends": "barnabas_replication.leader.appends",
    "barnabas_replication.batch_work": "barnabas_replication.leader.batch_work",
    "barnabas_replication.deletion": "barnabas_replication.leader.deletion",
    "barnabas_replication.fetcher": "barnabas_replication.follower.fetcher",
    "barnabas_replication.followed": "barnabas_replication.follower.fetcher_partitions",
    "barnabas_replication.follower.followed": "barnabas_replication.follower.fetcher_partitions",
    "barnabas_replication.follower_log": "barnabas_replication.follower.follower_log",
    "barnabas_replication.isr_changes": "barnabas_replication.leader.isr_changes",
    "barnabas_replication.refill": "barnabas_replication.hosting.refill",
    "barnabas_replication.repair": "barnabas_replication.hosting.repair",
    "barnabas_replication.replica_faults": "barnabas_replication.hosting.replica_faults",
    "barnabas_replication.replica_logs": "barnabas_replication.hosting.replica_logs",
    "barnabas_replication.roles": "barnabas_replication.hosting.roles",
    "barnabas_log.log_writer": "barnabas_log.tail.log_tail",
}
"""Loggers that had another name in the version before: whoever says that still means them, for this version."""


def present_name(name: str) -> str:
    """What a logger is called now that may be named as in the version before."""
    return FORMER.get(name, name)


def levels() -> dict[str, str]:
    """Level in effect by logger name, `root` first."""
    own = sorted(name for name in logging.root.manager.loggerDict if name.startswith(PREFIX))
    return {ROOT: _word(logging.root)} | {name: _word(logging.getLogger(name)) for name in own}


def change_levels(changes: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Set levels by logger name; None takes a logger's own level back, so that it has its parent's.

    Raises INVALID_CONFIG for a logger or a level that is not known, INVALID_REQUEST where root would have none.
    """
    known = levels()
    changes = {present_name(name): level for name, level in changes.items()}
    for name, level in changes.items():
        if name not in known:
            raise KafkaError.of(
                ErrorCode.INVALID_CONFIG, f"there is no logger {name}; describe the broker's loggers for names"
            )
        if level is not None and level not in LEVELS:
            raise KafkaError.of(ErrorCode.INVALID_CONFIG, f"{name}={level!r}: use one of {', '.join(LEVELS)}")
        if level is None and name == ROOT:
            raise KafkaError.of(ErrorCode.INVALID_REQUEST, "root always has a level: set another one")
    if validate_only:
        return
    for name, level in changes.items():
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _word(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((word for word, number in LEVELS.items() if level >= number), "TRACE")
