"""What a cluster says of itself, as tables in a real SparkSession."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from barnabas_wire.client import transactions
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import alter_share_group_offsets
from barnabas_wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_wire.kafka.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from pyspark_barnabas.meta import meta_reader, table_of
from pyspark_barnabas.options import OptionError
from tests.spark.conftest import Topics

pytestmark = [pytest.mark.cluster, pytest.mark.tools]

Options = Callable[..., dict[str, str]]


def test_every_table_shows_what_is_there(spark: SparkSession, topics: Topics, options: Options) -> None:
    topic = topics.create(2)
    topics.fill(topic, [b"%d" % at for at in range(60)], partition=1)
    topics.delete_records(topic, before=10, partition=1)
    group = f"readers-of-{topic}"
    committed = OffsetCommitRequestPartition(partition_index=1, committed_offset=25, committed_metadata="here")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])])
    answer = topics.wire.call_coordinator(
        group, request, version_max=9, find=lambda answer: answer.topics[0].partitions[0].error_code
    )
    assert answer is not None
    producer = transactions.begin(topics.wire, f"of-{topic}", timeout_ms=60_000)

    def table(name: str) -> DataFrame:
        return spark.read.format("barnabas.meta").options(**options()).load(name)

    (row,) = table("topics").filter(f"topic = '{topic}'").collect()
    assert (row.partitions, row.replicationFactor, row.isInternal) == (2, 3, False)
    assert row.id == str(topics.wire.metadata([topic]).topic_ids[topic])
    parts = table("partitions").filter(f"topic = '{topic}'").orderBy("partition").collect()
    leader = topics.wire.metadata([topic]).leader(TopicPartition(topic, 1)).id
    assert [part.partition for part in parts] == [0, 1] and parts[1].leader == leader
    assert sorted(parts[1].replicas) == sorted(parts[1].isr) and len(parts[1].isr) == 3
    assert not parts[1].isUnderReplicated
    offsets = table("offsets").filter(f"topic = '{topic}'").orderBy("partition")
    first, second = offsets.selectExpr("*", "unix_millis(newest) AS millis").collect()
    assert (first.earliest, first.latest, first.offsets, first.newest) == (0, 0, 0, None)
    assert (second.earliest, second.latest, second.lastStable, second.offsets) == (10, 60, 60, 50)
    assert second.millis == 1049
    (row,) = table("groups").filter(f"group = '{group}'").collect()
    assert row.state == "Empty" and row.coordinator in topics.wire.metadata([]).brokers
    assert (row.type, row.epoch, row.assignmentEpoch) == ("classic", None, None)
    joined = topics.wire.call_coordinator(
        f"{group}-consumers",
        ConsumerGroupHeartbeatRequest(
            group_id=f"{group}-consumers",
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        ),
    )
    (row,) = table("groups").filter(f"group = '{group}-consumers'").collect()
    assert (row.type, row.state, row.epoch, row.assignmentEpoch) == (
        "consumer",
        "Stable",
        joined.member_epoch,
        joined.member_epoch,
    )
    begins = alter_share_group_offsets.RequestTopic(topic, [alter_share_group_offsets.RequestPartition(1, 25)])
    altered = alter_share_group_offsets.AlterShareGroupOffsetsRequest(f"{group}-workers", [begins])
    answer = topics.wire.call_coordinator(
        altered.group_id, altered, find=lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code
    )
    assert answer is not None
    (row,) = table("share_groups").filter(f"group = '{group}-workers'").collect()
    assert (row.topic, row.partition, row.start, row.backlog) == (topic, 1, 25, 35)
    assert (row.deadLetterTopic, row.deadLetters) == (None, None)
    topics.wire.call_coordinator(
        f"{group}-app",
        StreamsGroupHeartbeatRequest(
            group_id=f"{group}-app",
            member_id="m",
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=60_000,
            topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        ),
    )
    (row,) = table("groups").filter(f"group = '{group}-app'").collect()
    assert row.type == "streams" and row.epoch >= 1 and 0 <= row.assignmentEpoch <= row.epoch
    (row,) = table("lag").filter(f"group = '{group}'").collect()
    assert (row.topic, row.partition, row.committed, row.latest, row.lag, row.metadata) == (
        topic,
        1,
        25,
        60,
        35,
        "here",
    )
    (row,) = table("transactions").filter(f"transactionalId = 'of-{topic}'").collect()
    assert (row.producerId, row.state, row.timeoutMs, row.partitions) == (producer.id, "Empty", 60_000, [])
    assert table("brokers").count() == 3
    only = spark.read.format("barnabas.meta").options(**options(table="topics")).schema("topic string").load()
    assert only.columns == ["topic"] and only.filter(f"topic = '{topic}'").count() == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "lags"}, r"there is no table lags; did you mean lag\?"),
        ({}, r'say which table: \.load\("lag"\); there are brokers, topics'),
        ({"path": "lag", "subscribe": "t"}, r"option subscribe is not known to format barnabas\.meta"),
        ({"path": "lag"}, r"say where the brokers are"),
    ],
)
def test_what_cannot_be_read_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        meta_reader(given, table_of(given).schema)


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(OptionError, match=r"id is no column of this table; there are group, topic, partition"):
        meta_reader({"path": "lag"}, StructType([StructField("id", StringType())]))
