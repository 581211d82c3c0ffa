"""The blocking producer against brokers that judge sequences: each record once and in order, through every kind of failure."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from barnabas_wire.client import metadata as rules
from barnabas_wire.client import producer as producer_module
from barnabas_wire.client.blocking import BlockingCluster
from barnabas_wire.client.producer import BlockingProducer, ProducerIdentity, RecordsSection, init_producer
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.records.batch import HEADER_BYTES, Record, build_batch, iterate_records, read_header
from barnabas_wire.records.compression import CompressionType, compress
from tests.proto.fake_broker import FakeBroker, FakeCluster

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Two brokers; t-0 led by 1, t-1 by 2. Retries come at once."""
    monkeypatch.setattr(rules, "RETRY_DELAY_S", 0.001)
    monkeypatch.setattr(producer_module, "RETRY_DELAY_S_MAX", 0.01)
    found = FakeCluster()
    found.leaders = {("t", 0): 1, ("t", 1): 2}
    with FakeBroker(found, 1), FakeBroker(found, 2):
        yield found


@pytest.fixture
def wire(cluster: FakeCluster) -> Iterator[BlockingCluster]:
    made = BlockingCluster(f"127.0.0.1:{cluster.brokers[1].port}", timeout_s=5)
    yield made
    made.close()


def section(values: list[bytes], kind: CompressionType = CompressionType.NONE) -> RecordsSection:
    batch = build_batch([Record(at, 17, None, value) for at, value in enumerate(values)])
    return RecordsSection(compress(kind, batch[HEADER_BYTES:]), int(kind), len(values), 17)


def numbered(batches: int, each: int = 3) -> list[list[bytes]]:
    return [[b"%d" % (batch * each + at) for at in range(each)] for batch in range(batches)]


def written(cluster: FakeCluster, partition: TopicPartition) -> list[bytes | None]:
    batches = [
        records
        for broker in cluster.brokers.values()
        for topic, index, records, _ in broker.produced
        if (topic, index) == partition
    ]
    if batches and read_header(batches[0]).producer_id >= 0:
        batches.sort(key=lambda batch: read_header(batch).base_sequence)
    return [record.value for batch in batches for record in iterate_records(batch)]


def test_many_batches_of_many_partitions_are_each_written_once_and_in_order(
    cluster: FakeCluster, wire: BlockingCluster
) -> None:
    producer = BlockingProducer(wire, identity=init_producer(wire))
    for kind, values in zip(list(CompressionType) * 10, numbered(50), strict=True):
        for partition in (T0, T1):
            producer.send(partition, section(values, kind))
    producer.flush()
    assert producer.buffered_bytes == 0
    wanted = [value for values in numbered(50) for value in values]
    assert written(cluster, T0) == written(cluster, T1) == wanted
    batch = read_header(cluster.brokers[1].produced[0][2])
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.max_timestamp_ms) == (7, 0, 0, 17)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS]
)
def test_a_batch_that_failed_and_those_behind_it_are_sent_again_in_order(
    cluster: FakeCluster, wire: BlockingCluster, code: ErrorCode
) -> None:
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0), request_bytes_max=1)
    cluster.errors = [(ApiKey.PRODUCE, int(code))] * 3
    for values in numbered(20):
        producer.send(T0, section(values))
    producer.flush()
    assert not cluster.errors
    assert written(cluster, T0) == [value for values in numbered(20) for value in values]


def test_what_a_lost_connection_may_have_written_is_not_written_again(
    cluster: FakeCluster, wire: BlockingCluster
) -> None:
    answers = iter([True] * 3 + [False] + [True] * 1000)
    plain = cluster.before_answer

    def swallow(key: int, frame: bytes) -> bytes | None:
        if key == ApiKey.PRODUCE and not next(answers):
            for writer in list(cluster.brokers[1]._writers):
                writer.transport.abort()
            return None
        return plain(key, frame)

    cluster.before_answer = swallow
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0), request_bytes_max=1)
    for values in numbered(30):
        producer.send(T0, section(values))
    producer.flush()
    assert written(cluster, T0) == [value for values in numbered(30) for value in values]


def test_a_partition_that_moves_is_followed(cluster: FakeCluster, wire: BlockingCluster) -> None:
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0))
    for place, values in enumerate(numbered(30)):
        if place == 15:
            producer.flush()
            cluster.leaders["t", 0] = 2
        producer.send(T0, section(values))
        producer.poll()
    producer.flush()
    assert written(cluster, T0) == [value for values in numbered(30) for value in values]
    assert cluster.brokers[1].produced and cluster.brokers[2].produced


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_batch_that_is_too_large_is_split_without_a_gap(
    cluster: FakeCluster, wire: BlockingCluster, kind: CompressionType
) -> None:
    cluster.batch_bytes_max = 1000
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0))
    wanted = [os.urandom(100) for _ in range(64)]
    producer.send(T0, section(wanted[:60], kind))
    producer.send(T0, section(wanted[60:], kind))
    producer.flush()
    assert written(cluster, T0) == wanted
    assert producer.batch_bytes_max is not None and producer.batch_bytes_max <= 1000


def test_what_cannot_be_written_is_said(cluster: FakeCluster, wire: BlockingCluster) -> None:
    cluster.batch_bytes_max = 70
    producer = BlockingProducer(wire)
    producer.send(T0, section([b"a" * 100]))
    with pytest.raises(KafkaError, match=r"t-0 refuses a batch of 1 records") as refused:
        producer.flush()
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE

    producer = BlockingProducer(wire, delivery_timeout_s=0.2)
    cluster.errors = [(ApiKey.PRODUCE, int(ErrorCode.NOT_ENOUGH_REPLICAS))] * 10_000
    producer.send(T0, section([b"a"]))
    with pytest.raises(TimeoutError, match=r"t-0 did not acknowledge a batch of 1 records within 0.2 s: NOT_ENOUGH"):
        producer.flush()


def test_a_gap_in_the_sequences_is_an_error_and_not_retried(cluster: FakeCluster, wire: BlockingCluster) -> None:
    cluster.sequences["t", 0, 7] = 0
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0))
    producer._lanes.clear()
    producer.send(T0, section([b"a"]))
    producer._lanes[T0].waiting.clear()
    producer.send(T0, section([b"b"]))
    with pytest.raises(KafkaError) as refused:
        producer.flush()
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_send_blocks_while_too_much_waits(cluster: FakeCluster, wire: BlockingCluster) -> None:
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0), buffered_bytes_max=3000)
    most = 0
    for values in numbered(50, 10):
        producer.send(T0, section(values))
        most = max(most, producer.buffered_bytes)
    producer.flush()
    assert 1000 < most <= 3000
    assert len(written(cluster, T0)) == 500


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many open as a driver of Spark may have: what comes next is above select()'s 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"at most {hard} descriptors may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with contextlib.ExitStack() as opened:
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) < 1_024:
            opened.callback(os.close, descriptor)
        opened.callback(os.close, descriptor)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_with_many_descriptors_produces(many_descriptors: None, wire: BlockingCluster) -> None:
    producer = BlockingProducer(wire, identity=ProducerIdentity(7, 0))
    producer.send(T0, section([b"a"]))
    producer.flush()
    assert producer.buffered_bytes == 0


def test_acks_0_waits_for_nobody(cluster: FakeCluster, wire: BlockingCluster) -> None:
    producer = BlockingProducer(wire, acks=0)
    producer.send(T0, section([b"a"]))
    producer.flush()
    assert wire.list_offsets({T0: -1})  # a round trip later the batch has been read
    producer.close()
    for _ in range(100):
        if cluster.brokers[1].produced:
            break
        wire.list_offsets({T0: -1})
    assert cluster.brokers[1].produced[0][3] == 0
