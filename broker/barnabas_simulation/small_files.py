"""Small files of a node that is down: damaged, gone, or as they were before; and logs that are cut or gone beside them.

May touch:  the disk of the node it is given.     Must not touch: nodes that run, the network.
Invariants: one node is struck at a time, where each of its partitions is held by another that is in sync; what is changed is
            changed durably; a log is cut or gone where a checkpoint names what it held: what was flushed since the last one
            nothing can miss; a copy from before is of the very directory that it is put in place of.
Read next:  faults.py, which says when; barnabas_log/directories/topic_witness.py, checkpoint_twins.py and
            directory_state.py for what a node does.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from barnabas_log.directories.checkpoints import (
    LEADER_EPOCHS_FILE,
    LOG_START_OFFSETS_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    read_offsets,
)
from barnabas_log.directories.log_directory import parse_directory_name
from barnabas_log.directories.topic_witness import WITNESS_FILE
from barnabas_log.memory_disk import Inode
from barnabas_simulation.disk import LOGS, SimulatedDisk
from barnabas_simulation.swarm import Slant
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.records.batch import iterate_batches

KINDS = (
    "topic id flipped",
    "topic id zeroed",
    "topic id missing",
    "witnesses zeroed",
    "log gone",
    "log cut",
    "log start raised",
    "recovery point raised",
    "epochs wrong",
    "older copy",
)
KINDS_OF = {
    Slant.SMALL_FILES: KINDS,
    Slant.TOPIC_IDS: tuple(kind for kind in KINDS if kind.startswith(("topic id", "witnesses"))),
    Slant.OLDER_COPIES: ("older copy",),
}
"""By slant: what may be damaged."""
NOBODY = TopicPartition("", 0)
RAISED_BY = 1000
"""What a checkpoint's number becomes too great by."""


class SmallFiles:
    """The damage of one run, where its slant has any."""

    def __init__(self, random: Random, slant: Slant) -> None:
        self._random = random
        self._kinds = KINDS_OF.get(slant, ())
        self._copies: dict[str, dict[str, bytes]] = {}
        """The small files of log directories as they were at their node's first crash: content by path."""

    def keep(self, disk: SimulatedDisk, directories: Iterable[str]) -> None:
        """A node has crashed: its directories as they are may be put in their own place later, the first that held anything."""
        for directory in directories if self._kinds else ():
            if directory not in self._copies and any(map(_is_of_a_log, _below(disk, directory))):
                self._copies[directory] = {
                    path: bytes(inode.content) for path, inode in _below(disk, directory).items()
                }

    def strike(self, disk: SimulatedDisk, directories: Iterable[str]) -> str:
        """Damage something of a node that is down; returns what, empty where there was nothing to damage."""
        random = self._random
        directory = random.choice(sorted(directories))
        kind = random.choice(self._kinds)
        before = self._copies.get(directory)
        if kind == "older copy":
            return kind if before and _put_back(disk, directory, before) else ""
        logs = sorted({path.rsplit("/", 1)[0] for path in _below(disk, directory) if _is_of_a_log(path)})
        if not logs:
            return ""
        log = random.choice(logs)
        return kind if self._damage(disk, kind, directory, log) else ""

    def _damage(self, disk: SimulatedDisk, kind: str, directory: str, log: str) -> bool:
        names = disk.names
        if kind in ("log gone", "log cut"):
            return self._shorten(disk, log, directory, is_gone=kind == "log gone")
        metadata, witness = names.get(f"{log}/{PARTITION_METADATA_FILE}"), names.get(f"{log}/{WITNESS_FILE}")
        if kind == "topic id missing":
            for known in (names, disk.durable_names):
                known.pop(f"{log}/{PARTITION_METADATA_FILE}", None)
            return metadata is not None
        if kind == "witnesses zeroed":
            return all(inode is not None and _change(inode, bytes(len(inode.content))) for inode in (metadata, witness))
        if kind.startswith("topic id"):
            if metadata is None or len(metadata.content) < 43:
                return False
            if kind == "topic id zeroed":
                return _change(metadata, bytes(len(metadata.content)))
            flipped = bytearray(metadata.content)
            place = self._random.randrange(21, 42)  # of the id
            flipped[place] = ord("A") if flipped[place] != ord("A") else ord("B")
            return _change(metadata, bytes(flipped))
        if kind == "epochs wrong":
            return self._raise_a_number(names.get(f"{log}/{LEADER_EPOCHS_FILE}"), 2)
        file = LOG_START_OFFSETS_FILE if kind == "log start raised" else RECOVERY_POINTS_FILE
        return self._raise_a_number(names.get(f"{directory}/{file}"), 3)

    def _shorten(self, disk: SimulatedDisk, log: str, directory: str, *, is_gone: bool) -> bool:
        with disk.judged():
            points = read_offsets(disk, f"{directory}/{RECOVERY_POINTS_FILE}")
        point = points.get(parse_directory_name(log.rpartition("/")[2]) or NOBODY, 0)
        if is_gone:
            if point:
                disk.wipe(log)
            return point > 0
        inode = disk.names[max(path for path in disk.names if path.startswith(f"{log}/") and path.endswith(".log"))]
        batches = iterate_batches(bytes(inode.content))
        flushed = [position for position, header in batches if header.next_offset <= point]
        if not flushed:
            return False
        return _change(inode, bytes(inode.content[: self._random.choice(flushed) + self._random.randrange(8)]))

    def _raise_a_number(self, inode: Inode | None, fields: int) -> bool:
        """The last number of one entry: what is wrong is well-formed."""
        if inode is None:
            return False
        lines = bytes(inode.content).decode().split("\n")
        entries = [number for number, line in enumerate(lines) if len(line.split(" ")) == fields]
        if not entries:
            return False
        number = self._random.choice(entries)
        *first, last = lines[number].split(" ")
        lines[number] = " ".join([*first, str(int(last) + 1 + self._random.randrange(RAISED_BY))])
        return _change(inode, "\n".join(lines).encode())


def _below(disk: SimulatedDisk, directory: str) -> dict[str, Inode]:
    return {path: inode for path, inode in disk.names.items() if path.startswith(f"{directory}/")}


def _is_of_a_log(path: str) -> bool:
    return LOGS in path and path.endswith(".log") and parse_directory_name(path.rsplit("/", 2)[1]) is not None


def _change(inode: Inode, content: bytes) -> bool:
    inode.content[:] = content
    inode.durable = content
    return True


def _put_back(disk: SimulatedDisk, directory: str, copy: dict[str, bytes]) -> bool:
    disk.wipe(directory)
    with disk.judged():  # it may be broken, and is put back all the same
        for path, content in copy.items():
            disk.make_directory(path.rpartition("/")[0])
            inode = disk.names[path] = disk.durable_names[path] = Inode()
            _change(inode, content)
    return True
