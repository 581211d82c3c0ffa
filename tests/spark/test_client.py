"""Patience with a cluster that is moving, none with what waiting cannot mend."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_wire.client.blocking import NoBrokerReachable
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from pyspark_barnabas import client as client_module
from pyspark_barnabas.client import SourceClient, SourceError, connected
from pyspark_barnabas.kafka_properties import ClusterOptions
from pyspark_barnabas.offsets import SourcePartition

PART = SourcePartition("t", 0)
X = ClusterOptions(bootstrap_servers=("x:1",))


class ScriptedCluster:
    """Fails with each of `failures` in turn, then answers."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.calls = 0

    def list_offsets(self, wanted: dict[Any, int], *, is_read_committed: bool) -> dict[Any, int]:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return dict.fromkeys(wanted, 7)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    scripted = ScriptedCluster()
    monkeypatch.setattr(client_module, "BlockingCluster", lambda *_, **__: scripted)
    return scripted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time stands still but when it is moved."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "failure",
    [
        KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0"),
        KafkaError.of(ErrorCode.OFFSET_NOT_AVAILABLE, "t-0"),
        TimeoutError("timed out"),
        ConnectionRefusedError("refused"),
    ],
)
def test_what_may_pass_is_tried_again(cluster: ScriptedCluster, failure: Exception) -> None:
    cluster.failures = [failure, failure, failure]
    assert SourceClient(X).list_offsets({PART: -1}) == {PART: 7}
    assert cluster.calls == 4


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-0: there is none at kafka.bootstrap.servers=x:1; create it"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x:1 refuses to give offsets: TOPIC_AUTHORIZATION_FAILED t-0"),
        (ErrorCode.OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_what_waiting_cannot_mend_is_raised_at_once(cluster: ScriptedCluster, code: ErrorCode, reported: str) -> None:
    cluster.failures = [KafkaError.of(code, "t-0")] * 9
    with pytest.raises(SourceError, match=reported) as raised:
        SourceClient(X).list_offsets({PART: -1})
    assert (cluster.calls, raised.value.code) == (1, code)


def test_patience_ends(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    def hang(wanted: dict[Any, int], *, is_read_committed: bool) -> dict[Any, int]:
        cluster.calls += 1
        clock(X.request_timeout_ms / 1000)
        raise TimeoutError

    monkeypatch.setattr(cluster, "list_offsets", hang)
    with pytest.raises(SourceError, match=r"no broker of .*=x:1,y:2 gave offsets within 30 s: TimeoutError"):
        SourceClient(ClusterOptions(bootstrap_servers=("x:1", "y:2"))).list_offsets({PART: -1})
    assert cluster.calls == X.api_timeout_ms // X.request_timeout_ms


@pytest.mark.usefixtures("clock")
def test_nobody_there_is_reported_at_once_unless_a_stream_has_had_answers(cluster: ScriptedCluster) -> None:
    nobody = NoBrokerReachable("tried x:1 (refused)")
    reported = r"no broker of .*=x:1 can be reached for offsets: tried x:1 \(refused\)\. Start the cluster"
    batch, stream = SourceClient(X), SourceClient(X, is_patient=True)
    for client in (batch, stream):
        cluster.failures = [nobody]
        with pytest.raises(SourceError, match=reported):
            client.list_offsets({PART: -1})
        client.list_offsets({PART: -1})
    cluster.failures = [nobody]
    with pytest.raises(SourceError, match=reported):
        batch.list_offsets({PART: -1})
    cluster.failures = [nobody] * 3
    assert stream.list_offsets({PART: -1}) == {PART: 7}


def test_nothing_wanted_asks_nobody(cluster: ScriptedCluster) -> None:
    assert SourceClient(X).list_offsets({}) == {}
    assert cluster.calls == 0


def test_a_process_has_one_client_per_cluster_and_a_child_its_own(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_clients", {})
    first = connected(X)
    assert connected(X) is first
    assert connected(ClusterOptions(bootstrap_servers=("y:1",))) is not first
    assert connected(X, is_patient=True) is not first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert connected(X) is not first
