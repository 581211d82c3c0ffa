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
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas_wire.client.blocking import BlockingCluster, NoBrokerReachable
from barnabas_wire.client.metadata import UNKNOWN_TOPIC_CODES
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition, Uuid
from pyspark_barnabas.offsets import Offsets, SourcePartition

TRY_TIMEOUT_S = 10.0
"""One call of the wire client, its own retries included."""
REACH_TIMEOUT_S = 6.0
"""How long no broker at all may take a connection before a query that begins says so: it is rather the address that is wrong."""
PATIENCE_S = 30.0
"""How long a cluster that has answered before may take to answer what the planner asks."""
FETCH_WAIT_MS = 500
"""How long a leader may hold a fetch for records that must be there."""

Answer = TypeVar("Answer")


class SourceError(RuntimeError):
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

    def __init__(self, bootstrap_servers: Sequence[str], *, is_patient: bool = False) -> None:
        """Nothing is connected before the first call.

        is_patient: once the cluster has answered, it may be away for PATIENCE_S, as a stream can wait for it.
        """
        self._servers = ",".join(bootstrap_servers)
        self._cluster = BlockingCluster(
            bootstrap_servers,
            client_id="pyspark-barnabas",
            timeout_s=TRY_TIMEOUT_S,
            reach_timeout_s=min(REACH_TIMEOUT_S, TRY_TIMEOUT_S),
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

    def list_offsets(self, wanted: Mapping[SourcePartition, int]) -> Offsets:
        """Offsets for sentinels (-1 latest, -2 earliest), asked of each leader."""
        if not wanted:
            return {}
        asked = {TopicPartition(*key): spec for key, spec in wanted.items()}
        found = self._patiently(lambda: self._cluster.list_offsets(asked), "offsets")
        return {key: found[TopicPartition(*key)] for key in wanted}

    def fetch(
        self, partition: SourcePartition, offset: int, *, topic_id: str | None, bytes_max: int, patience_s: float
    ) -> memoryview:
        """Whole batches from the one that holds `offset`, the last perhaps cut; empty when there is nothing yet."""
        fetched = self._patiently(
            lambda: self._cluster.fetch(
                TopicPartition(*partition),
                offset,
                bytes_max=bytes_max,
                wait_ms_max=FETCH_WAIT_MS,
                topic_id=None if topic_id is None else Uuid.parse(topic_id),
            ),
            f"{partition} from offset {offset}",
            patience_s=patience_s,
        )
        return memoryview(fetched.records)

    def _topics(self, names: Sequence[str]) -> dict[str, SourceTopic]:
        view = self._patiently(lambda: self._cluster.metadata(names), "its topics")
        return {name: SourceTopic(str(view.topic_ids[name]), tuple(sorted(view.topics[name]))) for name in names}

    def _patiently(self, call: Callable[[], Answer], what: str, *, patience_s: float | None = None) -> Answer:
        patience_s = PATIENCE_S if patience_s is None else patience_s
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


_clients: dict[tuple[int, tuple[str, ...], bool], SourceClient] = {}
"""Per process and cluster: a forked child must not share its parent's sockets."""


def connected(bootstrap_servers: tuple[str, ...], *, is_patient: bool = False) -> SourceClient:
    """This process's client of the cluster; connections are made at first use."""
    key = (os.getpid(), bootstrap_servers, is_patient)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = SourceClient(bootstrap_servers, is_patient=is_patient)
    return client
