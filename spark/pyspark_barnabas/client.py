"""The cluster as the source sees it: topics, offsets, records; patient with a cluster that is moving its leaders.

May touch:  the blocking wire client (plain sockets), the clock.   Must not touch: gRPC, Spark.
Invariants: one try is short, so that a broker that hangs does not use up all patience; what cannot be mended by waiting is
    raised at once; every error says what was asked of whom.
Read next:  reader.py.

Not obvious: pyspark imports this after fork, and workers live on from task to task, so clients are kept per process id and
never on a reader, which Spark pickles.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas_wire.client.blocking import BlockingCluster, NoBrokerReachable
from barnabas_wire.client.metadata import UNKNOWN_TOPIC_CODES, FetchedRecords, known_code
from barnabas_wire.client.properties import client_security
from barnabas_wire.kafka.errors import RETRIABLE_CODES, ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition, Uuid
from barnabas_wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas_wire.records.batch import BatchHeader, iterate_batches
from pyspark_barnabas.in_words import InWords
from pyspark_barnabas.kafka_properties import ClusterOptions
from pyspark_barnabas.offsets import Offsets, SourcePartition

REACH_TIMEOUT_S = 6.0
"""How long no broker at all may take a connection before a query that begins says so: it is rather the address that is wrong."""
WITH_NAMES_VERSION_MAX = 9
"""From version 10 on OffsetCommit and OffsetFetch name topics by id."""
RETRY_PAUSE_S = 0.05
NO_MEMBER_CODES = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)

Answer = TypeVar("Answer")


class SourceError(InWords, RuntimeError):
    """What the cluster said, or that it said nothing, in words. `code` is the cluster's, if it gave one."""

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class SourceTopic(NamedTuple):
    """A topic as it is now."""

    id: str
    partitions: tuple[int, ...]


class SourceClient:
    """Answers for planner and tasks. Raises SourceError. Threads take turns, try by try."""

    def __init__(self, options: ClusterOptions, *, is_patient: bool = False) -> None:
        """Nothing is connected before the first call.

        is_patient: once the cluster has answered, it may be away for default.api.timeout.ms, as a stream can wait for it.
        """
        self._options = options
        self._servers = ",".join(options.bootstrap_servers)
        timeout_s = options.request_timeout_ms / 1000
        self._cluster = BlockingCluster(
            options.bootstrap_servers,
            client_id=options.client_id,
            timeout_s=timeout_s,
            reach_timeout_s=min(REACH_TIMEOUT_S, timeout_s),
            security=client_security(dict(options.security)),
        )
        self._is_patient = is_patient
        self._has_answered = False
        # A task that was given up may still have a fetch under way when the next begins in the same worker.
        self._turn = threading.Lock()

    def topics(self, names: Sequence[str], *, may_be_missing: bool = False) -> dict[str, SourceTopic]:
        """Id and partitions of each topic; a missing one is left out, or raises SourceError that names it."""
        if not may_be_missing:
            return self._topics(names)
        found: dict[str, SourceTopic] = {}
        for name in names:
            try:
                found |= self._topics([name])
            except SourceError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found

    def matching(self, pattern: str) -> dict[str, SourceTopic]:
        """The topics whose whole name matches, without Kafka's own (`__…`)."""
        view = self._patiently(lambda: self._cluster.metadata(None), "its topics")
        whole = re.compile(pattern)
        return {
            name: SourceTopic(str(view.topic_ids[name]), tuple(sorted(partitions)))
            for name, partitions in sorted(view.topics.items())
            if whole.fullmatch(name) and not name.startswith("__")
        }

    def list_offsets(self, wanted: Mapping[SourcePartition, int]) -> Offsets:
        """Offsets for sentinels (-1 latest, -2 earliest) and times in ms (-1: no record is that late), asked of each leader.

        Under read_committed latest is the last stable offset: what lies behind may still be aborted.
        """
        if not wanted:
            return {}
        asked = {TopicPartition(*key): spec for key, spec in wanted.items()}
        committed = self._options.is_read_committed
        found = self._patiently(lambda: self._cluster.list_offsets(asked, is_read_committed=committed), "offsets")
        return {key: found[TopicPartition(*key)] for key in wanted}

    def fetch(
        self, partition: SourcePartition, offset: int, *, topic_id: str | None, bytes_max: int, patience_s: float
    ) -> FetchedRecords:
        """Whole batches from the one that holds `offset`, the last perhaps cut; empty when there is nothing yet."""
        options = self._options
        return self._patiently(
            lambda: self._cluster.fetch(
                TopicPartition(*partition),
                offset,
                bytes_max=bytes_max,
                bytes_min=options.fetch_bytes_min,
                wait_ms_max=options.fetch_wait_ms,
                is_read_committed=options.is_read_committed,
                topic_id=None if topic_id is None else Uuid.parse(topic_id),
                rack=options.client_rack,
            ),
            f"{partition} from offset {offset}",
            patience_s=patience_s,
        )

    def batch_at(self, partition: SourcePartition, offset: int) -> BatchHeader | None:
        """The header of the record batch that holds an offset, or follows it; None where there is none."""
        # A leader gives the first batch whole, however little is asked for.
        fetched = self.fetch(
            partition, offset, topic_id=None, bytes_max=1, patience_s=self._options.api_timeout_ms / 1000
        )
        return next((header for _, header in iterate_batches(fetched.records)), None)

    def bytes_of(self, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
        """Bytes of each partition's segments at its leader; needs the right to describe the cluster."""
        view = self._patiently(lambda: self._cluster.metadata({key.topic for key in partitions}), "its topics")
        found: dict[SourcePartition, int] = {}
        for broker, share in view.by_leader(dict.fromkeys((TopicPartition(*key) for key in partitions), 0)).items():
            topics: dict[str, list[int]] = {}
            for topic, index in share:
                topics.setdefault(topic, []).append(index)
            request = DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
            )
            answer = self._patiently(lambda b=broker, r=request: self._cluster.call(r, broker=b), "sizes of its logs")  # type: ignore[misc]
            self._check(answer.error_code, "sizes of its logs (the user needs DESCRIBE on the cluster)")
            for directory in answer.results:
                for topic in directory.topics:
                    for part in topic.partitions:
                        if not part.is_future_key:
                            found[SourcePartition(topic.name, part.partition_index)] = part.partition_size
        return found

    def committed(self, group_id: str, partitions: Collection[SourcePartition]) -> Offsets:
        """What a group has committed for these partitions; those without are left out."""
        topics: dict[str, list[int]] = {}
        for key in partitions:
            topics.setdefault(key.topic, []).append(key.partition)
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in topics.items()],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=[
                        OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in topics.items()
                    ],
                )
            ],
            require_stable=True,
        )
        what = f"the offsets of the group {group_id}"
        answer = self._of_coordinator(group_id, request, what)
        found: Offsets = {}
        for topic in answer.groups[0].topics if answer.groups else answer.topics:
            for part in topic.partitions:
                self._check(part.error_code, what)
                if part.committed_offset >= 0:
                    found[SourcePartition(topic.name, part.partition_index)] = part.committed_offset
        return found

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Store offsets for a group that nobody is a member of, where lag tools find them."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for key, at in offsets.items():
            topics.setdefault(key.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=key.partition, committed_offset=at, committed_metadata="pyspark-barnabas"
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        what = f"a commit of the group {group_id}"
        answer = self._of_coordinator(group_id, request, what)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code in NO_MEMBER_CODES:
                    raise SourceError(
                        f"the group {group_id} has members that commit by themselves: name a group of this query's own with "
                        "kafka.group.id",
                        ErrorCode(part.error_code),
                    )
                self._check(part.error_code, what)

    def _of_coordinator(self, group_id: str, request: Any, what: str) -> Any:
        """Ask a group's coordinator; a group that is just moving is asked for again."""

        def passing(answer: Any) -> int:
            groups = getattr(answer, "groups", None) or ()
            topics = answer.topics or [topic for group in groups for topic in group.topics]
            codes = [part.error_code for topic in topics for part in topic.partitions]
            codes += [group.error_code for group in groups]
            return next((code for code in codes if code and known_code(code) in RETRIABLE_CODES), 0)

        return self._patiently(
            lambda: self._cluster.call_coordinator(group_id, request, version_max=WITH_NAMES_VERSION_MAX, find=passing),
            what,
        )

    def _check(self, code: int, what: str) -> None:
        if code:
            raise SourceError(_words(KafkaError.of(known_code(code), ""), what, self._servers), known_code(code))

    def _topics(self, names: Sequence[str]) -> dict[str, SourceTopic]:
        view = self._patiently(lambda: self._cluster.metadata(names), "its topics")
        return {name: SourceTopic(str(view.topic_ids[name]), tuple(sorted(view.topics[name]))) for name in names}

    def _patiently(self, call: Callable[[], Answer], what: str, *, patience_s: float | None = None) -> Answer:
        patience_s = self._options.api_timeout_ms / 1000 if patience_s is None else patience_s
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                with self._turn:
                    answer = call()
                self._has_answered = True
                return answer
            except NoBrokerReachable as error:
                if not (self._is_patient and self._has_answered) or time.monotonic() >= deadline_s:
                    raise SourceError(
                        f"no broker of kafka.bootstrap.servers={self._servers} can be reached for {what}: {error}. "
                        "Start the cluster, or correct the addresses"
                    ) from None
            except KafkaError as error:
                # A topic that is unknown after the client's own patience is not there; other codes may pass.
                is_final = not error.is_retriable or error.code in UNKNOWN_TOPIC_CODES
                if is_final or time.monotonic() >= deadline_s:
                    raise SourceError(_words(error, what, self._servers), error.code) from None
                time.sleep(RETRY_PAUSE_S)
            except OSError as error:
                if time.monotonic() >= deadline_s:
                    raise SourceError(
                        f"no broker of kafka.bootstrap.servers={self._servers} gave {what} within {patience_s:.0f} s: "
                        f"{str(error) or type(error).__name__}"
                    ) from None


def _words(error: KafkaError, what: str, servers: str) -> str:
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"{error.message}: there is none at kafka.bootstrap.servers={servers}; create it, or correct its name"
    return f"kafka.bootstrap.servers={servers} refuses to give {what}: {error.code.name} {error.message}".rstrip()


_clients: dict[tuple[int, ClusterOptions, bool], SourceClient] = {}
"""Per process and cluster: a forked child must not share its parent's sockets."""


def connected(options: ClusterOptions, *, is_patient: bool = False) -> SourceClient:
    """This process's client of the cluster; connections are made at first use."""
    key = (os.getpid(), options, is_patient)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = SourceClient(options, is_patient=is_patient)
    return client
