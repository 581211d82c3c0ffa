"""The metadata log on disk: the quorum's RaftLog over a UnifiedLog, and the quorum-state file beside it.

May touch:  the Disk, one UnifiedLog. Must not touch: the quorum's rules, other logs.
Invariants: hard state is replaced whole and flushed before save returns; flush tells the end it was begun for; what is
            in the log are Kafka's v2 batches with the quorum epoch as leader epoch, so Kafka's own tools can dump it.
Read next:  barnabas_quorum/raft/journal.py, the interface; barnabas_log/unified_log.py.

Files, all in `<metadata directory>/__cluster_metadata-0/`:
    quorum-state              JSON, Kafka's version 1: {"leaderId", "leaderEpoch", "votedId", "votedDirectoryId",
                              "data_version": 1}; -1 and the zero uuid stand for none. A crash leaves the old or the new.
    <base offset>.log, …      segments; a crash may leave a torn tail, which opening cuts. Never retired.
    .lock                     held while the process lives: a second one would vote twice
The log has its own Disk, so that its flushes never queue behind those of the data.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from barnabas_log.config import LogConfig
from barnabas_log.disk import Disk
from barnabas_log.segment import LOG_SUFFIX, segment_path
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.raft.journal import INITIAL_HARD_STATE, StoredBatch
from barnabas_quorum.raft.messages import EpochStart, HardState
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    BrokerId,
    Epoch,
    Offset,
    TopicPartition,
    Uuid,
)
from barnabas_wire.records.batch import iterate_batches

logger = logging.getLogger(__name__)

QUORUM_STATE_FILE = "quorum-state"
DATA_VERSION = 1
SEGMENT_BYTES = 256 * 1024 * 1024


class DamagedQuorumState(KafkaError):
    """The quorum-state file cannot be read. Without it this replica could vote twice in one epoch."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class MetadataLog:
    """RaftLog on disk. Get one with `open`; belongs to the loop it was opened on."""

    def __init__(self, disk: Disk, log: UnifiedLog, state_path: str, hard_state: HardState) -> None:
        self._disk = disk
        self._log = log
        self._state_path = state_path
        self._hard_state = hard_state

    @classmethod
    async def open(cls, *, disk: Disk, metadata_directory: str, now_ms: int) -> MetadataLog:
        """Open, or make on a new disk; cuts a torn tail. `disk` is this log's own and is closed with it.

        Raises DamagedQuorumState, DirectoryLocked, OSError.
        """
        directory = f"{metadata_directory}/{METADATA_TOPIC}-0"
        opened: MetadataLog = await disk.run(cls._open, disk, directory, now_ms)
        # The directory's own name must be durable before the first vote that is written into it.
        await opened.flush()
        return opened

    @classmethod
    def _open(cls, disk: Disk, directory: str, now_ms: int) -> MetadataLog:
        disk.make_directory(directory)
        disk.lock_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])
        state_path = f"{directory}/{QUORUM_STATE_FILE}"
        hard_state = INITIAL_HARD_STATE
        if disk.exists(state_path):
            hard_state = decode_hard_state(disk.read_file(state_path), path=state_path)
        log = UnifiedLog.open(
            disk=disk,
            directory=directory,
            topic_partition=TopicPartition(METADATA_TOPIC, 0),
            topic_id=METADATA_TOPIC_ID,
            config=LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1, retention_bytes=-1),
            now_ms=now_ms,
        )
        report = log.recovery_report
        if report.truncated_bytes:
            logger.info("cut %d bytes of an unfinished write off the metadata log", report.truncated_bytes)
        return cls(disk, log, state_path, hard_state)

    @property
    def hard_state(self) -> HardState:
        """See RaftLog.hard_state."""
        return self._hard_state

    @property
    def end_offset(self) -> Offset:
        """See RaftLog.end_offset."""
        return self._log.log_end_offset

    def epoch_starts(self) -> Sequence[EpochStart]:
        """See RaftLog.epoch_starts."""
        return [EpochStart(epoch, start) for epoch, start in self._log.leader_epochs.entries]

    async def save_hard_state(self, state: HardState) -> None:
        """See RaftLog.save_hard_state."""
        await self._disk.run(self._disk.write_file_atomically, self._state_path, encode_hard_state(state))
        self._hard_state = state

    def append(self, batches: Sequence[StoredBatch]) -> None:
        """See RaftLog.append."""
        # A leader's own batches have their offsets and epoch already, so both kinds go the follower's way, which also
        # checks every CRC once more.
        self._log.append_as_follower(b"".join([batch.data for batch in batches]), leader_epoch=batches[-1].epoch)
        self._log.write_pending(is_forced=True)

    async def truncate_to(self, offset: Offset) -> None:
        """See RaftLog.truncate_to."""
        self._log.truncate_to(offset)
        assert self._log.log_end_offset == offset, f"{offset} lies inside a batch"
        cut = self._disk.open(segment_path(self._log.directory, self._log.base_offsets[-1], LOG_SUFFIX))
        try:
            await self._disk.flush([*self._log.dirty_files(), cut])
            self._log.mark_flushed(offset)
        finally:
            cut.close()

    async def flush(self) -> Offset:
        """See RaftLog.flush."""
        files = self._log.dirty_files()
        end_offset = self._log.written_end_offset
        if files:
            try:
                await self._disk.flush(files)
            except OSError as error:
                self._log.fail(error)
                raise
        self._log.mark_flushed(end_offset)
        return end_offset

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Sequence[StoredBatch]:
        """See RaftLog.read."""
        found = self._log.read(offset, bytes_max=bytes_max, end=end_offset, at_least_one_batch=True)
        batches: list[StoredBatch] = []
        for file, position, size in found.parts:
            data = file.read(position, size)
            file.release()
            for start, header in iterate_batches(data):
                batches.append(
                    StoredBatch(
                        header.base_offset,
                        header.next_offset,
                        header.partition_leader_epoch,
                        data[start : start + header.size_bytes],
                    )
                )
        return batches

    async def close(self) -> None:
        """See RaftLog.close; the Disk is closed too."""
        await self._disk.run(self._log.close)
        self._disk.close()


def encode_hard_state(state: HardState) -> bytes:
    """The quorum-state file's content."""
    content = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": -1 if state.voted is None else state.voted.id,
        "votedDirectoryId": str(ZERO_UUID if state.voted is None else state.voted.directory_id),
        "data_version": DATA_VERSION,
    }
    return json.dumps(content).encode()


def decode_hard_state(data: bytes, *, path: str) -> HardState:
    """What the file says. Raises DamagedQuorumState, naming `path` and what to do."""
    try:
        content = json.loads(data)
        if content["data_version"] != DATA_VERSION:
            raise ValueError(f"data_version {content['data_version']} is not {DATA_VERSION}")
        voted_id = int(content["votedId"])
        voted = None if voted_id < 0 else ReplicaKey(BrokerId(voted_id), Uuid.parse(content["votedDirectoryId"]))
        return HardState(Epoch(int(content["leaderEpoch"])), BrokerId(int(content["leaderId"])), voted)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedQuorumState(
            f"{path} cannot be read ({error}). Do not delete it alone: this replica could vote twice. Restore it, or give "
            "the node a new, freshly formatted metadata directory and let the other controllers outvote it"
        ) from None
