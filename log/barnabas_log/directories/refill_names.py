"""What a start finds of logs that were refilled, and what it does about it; see refills.py for the names.

May touch:  the Disk it is given, blocking.     Must not touch: logs, asyncio, clocks.
Invariants: nothing takes a log's name while a directory of that name is there, nor without a sound record.
Read next:  refills.py; log_directory.py, which calls this before it opens anything.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas_log.disk import Disk
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.crc32c import crc32c

logger = logging.getLogger(__name__)

REFILL_SUFFIX: Final = "-refill"
REFILLED_SUFFIX: Final = "-refilled"
REFILLED_FILE: Final = "refilled.deleted"


def encode_record(topic_partition: TopicPartition) -> bytes:
    """Content of the record."""
    name = f"{topic_partition}\n".encode()
    return name + f"{crc32c(name):08x}".encode()


def decode_record(content: bytes) -> str | None:
    """The partition's name; None where the record is not sound."""
    name, line_break, checksum = content.partition(b"\n")
    if not line_break or checksum != f"{crc32c(name + line_break):08x}".encode():
        return None
    return name.decode()


def finish_refills(disk: Disk, directory: str) -> None:
    """At the start, before anything of the log directory is opened: give logs that were refilled their names where the
    old ones were renamed already, remove them where not. Raises OSError."""
    for name in disk.list_directory(directory):
        if not name.endswith(REFILLED_SUFFIX):
            continue
        path = f"{directory}/{name}"
        try:
            partition = decode_record(disk.read_file(f"{path}/{REFILLED_FILE}"))
        except FileNotFoundError:
            partition = None
        if partition is None:
            logger.error(
                "%s does not say whose log it is, and is left alone; where a replica is missing it is filled from its leader, "
                "then this directory can be removed",
                path,
            )
        elif disk.exists(f"{directory}/{partition}"):
            logger.info("%s was not put in place; %s serves, and is filled anew once more", path, partition)
            disk.remove_tree(path)
        else:
            logger.info("%s takes the place of %s", path, partition)
            disk.rename(path, f"{directory}/{partition}")
            disk.sync_directory(directory)
