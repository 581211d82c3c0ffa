"""Batches that a producer had sent behind one that was found: refused for the same reason, so that both come again in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_log.errors import OutOfOrderSequence
from barnabas_log.tail.producer_state import SEQUENCE_MAX, ProducerState
from barnabas_replication.errors import NotEnoughReplicas, NotLeaderOrFollower
from barnabas_replication.leader.batch_partitions import BatchPartitions
from barnabas_replication.partition import PIPELINED_MS
from barnabas_replication.stats import Stats
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.records.batch import CorruptBatch
from tests.support.logs import NOW_MS, make_batch
from tests.support.replicas import TP, PartitionBench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PartitionBench]:
    bench = PartitionBench(tmp_path)
    yield bench
    bench.close()


def send(bench: PartitionBench, sequence: int, *, producer: int = 7, epoch: int = 0) -> None:
    """One record, as a client sends it, and what becomes of it is told to the partition as Appends does."""
    batch = make_batch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    try:
        bench.partition.append_as_leader(batch, is_all_acks=True, clock_ms=NOW_MS)
    except KafkaError as error:
        refused(bench, error)
        raise


def refused(bench: PartitionBench, error: KafkaError) -> None:
    """As when Appends answers a batch with that."""
    hosted: Any = SimpleNamespace(
        partitions={tuple(TP): bench.partition}, now_ms=lambda: bench.host.time_ms, leader_hint=lambda *_: None
    )
    BatchPartitions(hosted, Stats()).refused(*TP, error)


def led_anew(bench: PartitionBench) -> None:
    """Records 0 and 1 of a producer are there, and another epoch begins, in which it sends on."""
    bench.lead()
    send(bench, 0)
    send(bench, 1)
    bench.lead(leader_epoch=2, partition_epoch=2)


def test_what_comes_to_a_new_leader_before_what_it_follows_comes_again(bench: PartitionBench) -> None:
    led_anew(bench)
    for _ in range(2):
        with pytest.raises(NotLeaderOrFollower, match="in order"):
            send(bench, 3)
    send(bench, 2)
    send(bench, 3)


def test_a_gap_is_one_when_nothing_may_come_any_more(bench: PartitionBench) -> None:
    led_anew(bench)
    bench.host.time_ms += PIPELINED_MS - 1
    with pytest.raises(NotLeaderOrFollower):
        send(bench, 3)
    bench.host.time_ms += 1
    with pytest.raises(OutOfOrderSequence):
        send(bench, 3)


def test_the_first_leader_of_a_partition_expects_nothing(bench: PartitionBench) -> None:
    bench.lead(leader_epoch=0)
    send(bench, 5)
    with pytest.raises(OutOfOrderSequence):
        send(bench, 7)


def test_what_follows_a_refused_batch_is_refused_for_the_same_reason(bench: PartitionBench) -> None:
    bench.lead(leader_epoch=0)
    send(bench, 0)
    refused(bench, NotEnoughReplicas("too few"))
    with pytest.raises(NotEnoughReplicas, match="too few"):
        send(bench, 2)
    send(bench, 1)
    send(bench, 2)
    send(bench, 0)  # a repeat is none of them
    with pytest.raises(OutOfOrderSequence):
        bench.host.time_ms += PIPELINED_MS
        send(bench, 4)
    with pytest.raises(OutOfOrderSequence):
        send(bench, 5)
    assert bench.partition.passing_refusal is None, "that refusal does not pass"


def test_a_client_that_sends_damaged_batches_has_none_of_another_refused(bench: PartitionBench) -> None:
    bench.lead(leader_epoch=0)
    refused(bench, CorruptBatch("the batch's checksum is wrong"))
    send(bench, 5)
    with pytest.raises(OutOfOrderSequence):
        send(bench, 7)


def test_a_producer_that_a_new_leader_does_not_know_begins_with_its_first_record(bench: PartitionBench) -> None:
    led_anew(bench)
    with pytest.raises(NotLeaderOrFollower):
        send(bench, 1, producer=8)
    send(bench, 0, producer=8)
    send(bench, 1, producer=8)
    bench.host.time_ms += PIPELINED_MS
    send(bench, 5, producer=9)


def test_a_refusal_keeps_no_request(bench: PartitionBench) -> None:
    led_anew(bench)
    with pytest.raises(NotLeaderOrFollower) as found:
        send(bench, 3)
    assert bench.partition.passing_refusal is not None
    assert bench.partition.passing_refusal[0] is found.value
    refused(bench, found.value)
    assert found.value.__traceback__ is None


@pytest.mark.parametrize(
    ("last", "epoch", "sequence", "misses"),
    [
        (4, 0, 5, False),
        (4, 0, 6, True),
        (4, 0, 4, False),
        (4, 0, 0, False),
        (4, 1, 0, False),
        (4, 1, 1, True),
        (SEQUENCE_MAX, 0, 0, False),
        (SEQUENCE_MAX, 0, 1, True),
        (2, 0, SEQUENCE_MAX, False),
    ],
)
def test_misses_before(last: int, epoch: int, sequence: int, misses: bool) -> None:
    state = ProducerState()
    state.update(producer_id=7, epoch=0, first_sequence=last, last_offset=Offset(9), offset_delta=0, timestamp_ms=0)
    assert state.misses_before(7, epoch, sequence) is misses
    assert state.misses_before(8, 0, sequence) is (sequence != 0)
