"""What one log directory says of itself beside Kafka's files: whose registration it was last part of, and what it has lost.

May touch:  the Disk it is given.     Must not touch: logs, images, clocks.
Invariants: the file is replaced atomically and durably; what cannot be read whole says nothing, and nothing is concluded from that;
            a replica is on the list before its log is given up, and until it was refilled or its loss was accepted.
Read next:  log_directory.py, which owns one of these; topic_witness.py; barnabas_quorum/controller/brokers.py for the epoch.

Layout of `<log directory>/<OWN_DIRECTORY>/directory-state`: one line of JSON, then a line `crc32c: <8 hexadecimal digits>` of it:
    {"version": 0,
     "broker_epoch": 17,          of the last registration in which the directory took part, written before the broker serves in
                                  it; -1 = none yet. A directory that names an older one than the cluster knows is an old copy
     "has_second_witness": true,  every log in it has a topic-id.witness
     "lost": [{"topic": "t", "partition": 0, "topic_id": "<22 chars>", "end_offset": 500, "why": "..."}]}
                                  replicas that have lost what they had, until they are refilled, or an operator accepts it

OWN_DIRECTORY has the name of a log on its way out. Versions before this one, and Apache Kafka, remove it when they start, and write
checkpoints and registrations without it. So what it holds is never older than what is beside it: it is there, and
then it is the newest, or it is not, and then nothing is known.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from barnabas_log.directories.checkpoints import seal, unseal
from barnabas_log.disk import Disk
from barnabas_wire.kafka.ids import NO_OFFSET, Offset, TopicPartition, Uuid
from barnabas_wire.lazy_dataclass import dataclass

OWN_DIRECTORY: Final = f"barnabas-0.{'0' * 32}-delete"
"""The directory, in each log directory, for the files of ours that must not outlive a start of a version that does not
write them."""
STATE_FILE: Final = "directory-state"
NO_BROKER_EPOCH: Final = -1


class LostReplica(NamedTuple):
    """A replica that has lost records that it had."""

    topic_id: Uuid
    """The id of the replica's topic."""
    end_offset: Offset
    """The offset up to which it had records at least; -1 where that is not known."""
    why: str
    """The reason in words, for an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The file's content."""

    broker_epoch: int = NO_BROKER_EPOCH
    has_second_witness: bool = False
    lost: tuple[tuple[TopicPartition, LostReplica], ...] = ()

    def encode(self) -> bytes:
        """The file's bytes."""
        content = {
            "version": 0,
            "broker_epoch": self.broker_epoch,
            "has_second_witness": self.has_second_witness,
            "lost": [
                {
                    "topic": name.topic,
                    "partition": name.partition,
                    "topic_id": str(replica.topic_id),
                    "end_offset": replica.end_offset,
                    "why": replica.why,
                }
                for name, replica in self.lost
            ],
        }
        return seal(json.dumps(content, sort_keys=True).encode() + b"\n")

    @classmethod
    def decode(cls, content: bytes) -> StoredState | None:
        """None where the bytes are not what this version wrote."""
        body = unseal(content)
        if body is None:
            return None
        try:
            found = json.loads(body)
            if found["version"] != 0:
                return None
            return cls(
                broker_epoch=int(found["broker_epoch"]),
                has_second_witness=bool(found["has_second_witness"]),
                lost=tuple(_lost_of(entry) for entry in found["lost"]),
            )
        except (ValueError, KeyError, TypeError):
            return None


class DirectoryState:
    """What the file says of one log directory. It is written in whichever thread asks, one at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = f"{directory}/{OWN_DIRECTORY}"
        self._saving = threading.Lock()
        self._stored = StoredState()

    def load(self) -> None:
        """Read the file, blocking; one that is missing or unsound says nothing. Raises OSError."""
        try:
            content = self._disk.read_file(f"{self._directory}/{STATE_FILE}")
        except FileNotFoundError:
            return
        self._stored = StoredState.decode(content) or StoredState()

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the last registration that the directory knows; -1 where it knows none."""
        return self._stored.broker_epoch

    @property
    def has_second_witness(self) -> bool:
        """Whether every log in it was given a topic-id.witness."""
        return self._stored.has_second_witness

    @property
    def lost(self) -> Mapping[TopicPartition, LostReplica]:
        """Replicas in it that have lost what they had."""
        return dict(self._stored.lost)

    def note_registration(self, broker_epoch: int) -> None:
        """The broker is registered with the directory. Blocks until that is durable. Raises OSError."""
        self._save(broker_epoch=broker_epoch)

    def note_second_witness(self) -> None:
        """Every log has its second witness. Blocks until that is durable. Raises OSError."""
        if not self._stored.has_second_witness:
            self._save(has_second_witness=True)

    def add_lost(self, lost: Mapping[TopicPartition, LostReplica]) -> None:
        """Put replicas on the list. Blocks until that is durable. Raises OSError."""
        if lost:
            self._save(lost=tuple(sorted({**self.lost, **lost}.items())))

    def forget_lost(self, names: Collection[TopicPartition]) -> None:
        """Take replicas off the list: refilled, accepted, or gone. Blocks until that is durable. Raises OSError."""
        if any(name in names for name, _ in self._stored.lost):
            self._save(lost=tuple(entry for entry in self._stored.lost if entry[0] not in names))

    def _save(self, **changes: Any) -> None:
        with self._saving:
            changed = replace(self._stored, **changes)
            write_own_file(self._disk, self._directory, STATE_FILE, changed.encode())
            self._stored = changed


def write_own_file(disk: Disk, own_directory: str, name: str, content: bytes) -> None:
    """Replace a file in OWN_DIRECTORY, which is made where it is not there. Durable on return. Raises OSError."""
    if not disk.exists(own_directory):
        log_directory = own_directory.rpartition("/")[0]
        disk.make_directory(own_directory, below=log_directory)
        disk.sync_directory(log_directory)
    disk.write_file_atomically(f"{own_directory}/{name}", content)


def _lost_of(entry: Mapping[str, Any]) -> tuple[TopicPartition, LostReplica]:
    name = TopicPartition(str(entry["topic"]), int(entry["partition"]))
    end_offset = Offset(max(int(entry["end_offset"]), NO_OFFSET))
    return name, LostReplica(Uuid.parse(entry["topic_id"]), end_offset, str(entry["why"]))
