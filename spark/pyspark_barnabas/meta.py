"""Topics, partitions, offsets, groups, lag and transactions as tables: what `format("barnabas.meta")` reads.

May touch:  the blocking wire client (plain sockets), the clock.   Must not touch: gRPC, rooms of the cluster.
Invariants: a table is asked for when the query runs, by one task; what cannot be known now (a partition without a leader, a topic
    that is gone) is null, and everything else is there; nothing is changed on the cluster.
Read next:  client.py, the same for records.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas_wire.client.blocking import BlockingCluster, NoBrokerReachable
from barnabas_wire.client.metadata import Broker, ClusterView, known_code
from barnabas_wire.client.properties import client_security
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, RequestGroup
from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest
from barnabas_wire.kafka.messages.offset_fetch import OffsetFetchRequest
from barnabas_wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas_wire.moments import moment_of
from pyspark_barnabas.client import REACH_TIMEOUT_S, SourceError
from pyspark_barnabas.kafka_properties import PREFIX, ClusterOptions, OptionError, parse_kafka_options
from pyspark_barnabas.offset_spec import EARLIEST, LATEST

MAX_TIMESTAMP = -3
"""Asks for the record with the greatest timestamp (KIP-734)."""
TRANSACTION_KEY_TYPE = 1
SINGLE_GROUP_VERSION_MAX = 7
"""From version 8 on OffsetFetch asks about many groups at once."""
DESCRIBED_BY: Mapping[str, type[Any]] = {
    "consumer": ConsumerGroupDescribeRequest,
    "streams": StreamsGroupDescribeRequest,
}
"""Types of groups that have epochs (KIP-848, KIP-1071), with what asks for them."""
SHARE = "share"
GROUP_RESOURCE = 32
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
INTERNAL = ("__consumer_offsets", "__share_group_state", "__transaction_state")

Row = dict[str, Any]


class Table(NamedTuple):
    """One table: its columns, and how its rows are asked for."""

    schema: StructType
    rows: Callable[[BlockingCluster], Iterator[Row]]
    doc: str


def _topics(cluster: BlockingCluster) -> Iterator[Row]:
    view = cluster.metadata(None)
    for name, partitions in sorted(view.topics.items()):
        yield {
            "topic": name,
            "id": str(view.topic_ids[name]),
            "partitions": len(partitions),
            "replicationFactor": max((len(part.replicas) for part in partitions.values()), default=0),
            "isInternal": name in INTERNAL,
        }


def _partitions(cluster: BlockingCluster) -> Iterator[Row]:
    view = cluster.metadata(None)
    for name, partitions in sorted(view.topics.items()):
        for index, part in sorted(partitions.items()):
            yield {
                "topic": name,
                "partition": index,
                "leader": None if part.leader < 0 else part.leader,
                "leaderEpoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "isUnderReplicated": len(part.isr) < len(part.replicas),
            }


def _offsets(cluster: BlockingCluster) -> Iterator[Row]:
    view = cluster.metadata(None)
    every = [TopicPartition(name, index) for name, parts in sorted(view.topics.items()) for index in sorted(parts)]
    asked = _led(view, every)
    earliest, latest = (cluster.list_offsets(dict.fromkeys(asked, spec)) for spec in (EARLIEST, LATEST))
    stable = cluster.list_offsets(dict.fromkeys(asked, LATEST), is_read_committed=True)
    newest = cluster.list_offsets_and_timestamps(dict.fromkeys(asked, MAX_TIMESTAMP))
    for key in every:
        at = newest.get(key)
        yield {
            "topic": key.topic,
            "partition": key.partition,
            "earliest": earliest.get(key),
            "latest": latest.get(key),
            "lastStable": stable.get(key),
            "offsets": latest[key] - earliest[key] if key in latest else None,
            "newest": None if at is None or at.offset < 0 else moment_of(at.timestamp_ms, UTC),
        }


def _groups(cluster: BlockingCluster) -> Iterator[Row]:
    for broker in sorted(cluster.metadata([]).brokers.values()):
        listed = cluster.call_checked(ListGroupsRequest(), broker=broker).groups
        epochs: dict[str, tuple[int, int]] = {}
        for kind in DESCRIBED_BY:
            epochs |= _epochs(cluster, broker, kind, [each.group_id for each in listed if each.group_type == kind])
        for group in listed:
            epoch, assignment_epoch = epochs.get(group.group_id, (None, None))
            yield {
                "group": group.group_id,
                "type": group.group_type or None,
                "state": group.group_state or None,
                "protocolType": group.protocol_type or None,
                "coordinator": broker.id,
                "epoch": epoch,
                "assignmentEpoch": assignment_epoch,
            }


def _epochs(cluster: BlockingCluster, broker: Broker, kind: str, groups: list[str]) -> dict[str, tuple[int, int]]:
    """Group -> its epoch and that of its targets; those that the reader may not describe, or that went meanwhile, are left out."""
    if not groups:
        return {}
    answer = cluster.call(DESCRIBED_BY[kind](group_ids=groups), broker=broker)
    return {each.group_id: (each.group_epoch, each.assignment_epoch) for each in answer.groups if not each.error_code}


def _lag(cluster: BlockingCluster) -> Iterator[Row]:
    committed = [
        (row["group"], key, entry)
        for row in sorted(_groups(cluster), key=lambda row: str(row["group"]))
        for key, entry in _committed(cluster, row["group"])
    ]
    view = cluster.metadata(None)
    latest = cluster.list_offsets(dict.fromkeys(_led(view, {key for _, key, _ in committed}), LATEST))
    for group, key, entry in committed:
        end = latest.get(key)
        yield {
            "group": group,
            "topic": key.topic,
            "partition": key.partition,
            "committed": entry.committed_offset,
            "latest": end,
            "lag": None if end is None else max(0, end - entry.committed_offset),
            "metadata": entry.metadata or None,
        }


def _committed(cluster: BlockingCluster, group: str) -> Iterator[tuple[TopicPartition, Any]]:
    request = OffsetFetchRequest(group_id=group, topics=None)
    answer = cluster.call_coordinator(group, request, version_max=SINGLE_GROUP_VERSION_MAX)
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code == 0 and entry.committed_offset >= 0:
                yield TopicPartition(topic.name, entry.partition_index), entry


def _share_groups(cluster: BlockingCluster) -> Iterator[Row]:
    view = cluster.metadata(None)
    for broker in sorted(view.brokers.values()):
        listed = cluster.call_checked(ListGroupsRequest(), broker=broker).groups
        for group in sorted(each.group_id for each in listed if each.group_type == SHARE):
            dead = _dead_letter_topic(cluster, group)
            begin, end = (
                cluster.list_offsets(
                    dict.fromkeys(_led(view, [TopicPartition(dead, part) for part in view.topics.get(dead, {})]), spec)
                )
                for spec in (EARLIEST, LATEST)
            )
            letters = sum(end[key] - begin.get(key, 0) for key in end) if dead in view.topics else None
            answer = cluster.call(DescribeShareGroupOffsetsRequest([RequestGroup(group, None)]), broker=broker)
            for topic in answer.groups[0].topics:
                for part in topic.partitions:
                    yield {
                        "group": group,
                        "topic": topic.topic_name,
                        "partition": part.partition_index,
                        "start": None if part.start_offset < 0 else part.start_offset,
                        "backlog": None if part.lag < 0 else part.lag,
                        "deadLetterTopic": dead or None,
                        "deadLetters": letters,
                    }


def _dead_letter_topic(cluster: BlockingCluster, group: str) -> str:
    """Empty where there is none, or where the reader may not know the group's configs."""
    resource = DescribeConfigsResource(GROUP_RESOURCE, group, [DEAD_LETTER_TOPIC])
    found = cluster.call(DescribeConfigsRequest(resources=[resource])).results[0].configs
    return next((each.value for each in found if each.name == DEAD_LETTER_TOPIC and each.value), "")


def _transactions(cluster: BlockingCluster) -> Iterator[Row]:
    for broker in sorted(cluster.metadata([]).brokers.values()):
        listed = cluster.call_checked(ListTransactionsRequest(), broker=broker).transaction_states
        for entry in sorted(listed, key=lambda entry: str(entry.transactional_id)):
            name = entry.transactional_id
            answer = cluster.call(DescribeTransactionsRequest(transactional_ids=[name]), broker=broker)
            (state,) = answer.transaction_states
            if state.error_code in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR):
                continue  # it expired or moved since it was listed
            if state.error_code:
                raise KafkaError.of(known_code(state.error_code), f"transaction {name}")
            started = state.transaction_start_time_ms
            yield {
                "transactionalId": name,
                "producerId": state.producer_id,
                "producerEpoch": state.producer_epoch,
                "state": state.transaction_state,
                "timeoutMs": state.transaction_timeout_ms,
                "started": None if started < 0 else moment_of(started, UTC),
                "partitions": [
                    {"topic": each.topic, "partition": at} for each in state.topics for at in each.partitions
                ],
                "coordinator": broker.id,
            }


def _brokers(cluster: BlockingCluster) -> Iterator[Row]:
    view = cluster.metadata([])
    for broker in sorted(view.brokers.values()):
        yield {"broker": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}


def _led(view: ClusterView, keys: Any) -> list[TopicPartition]:
    """Those whose leader can be asked."""
    return [
        key
        for key in sorted(keys)
        if (part := view.topics.get(key.topic, {}).get(key.partition)) is not None and part.leader in view.brokers
    ]


_STRING, _INT, _LONG, _BOOLEAN, _TIME = StringType(), IntegerType(), LongType(), BooleanType(), TimestampType()


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


TABLES = {
    "brokers": Table(_columns(broker=_INT, host=_STRING, port=_INT, rack=_STRING), _brokers, "brokers that are up"),
    "topics": Table(
        _columns(topic=_STRING, id=_STRING, partitions=_INT, replicationFactor=_INT, isInternal=_BOOLEAN),
        _topics,
        "topics that the user may describe",
    ),
    "partitions": Table(
        _columns(
            topic=_STRING,
            partition=_INT,
            leader=_INT,
            leaderEpoch=_INT,
            replicas=ArrayType(_INT),
            isr=ArrayType(_INT),
            isUnderReplicated=_BOOLEAN,
        ),
        _partitions,
        "who leads and who copies; `leader` is null where there is none",
    ),
    "offsets": Table(
        _columns(
            topic=_STRING, partition=_INT, earliest=_LONG, latest=_LONG, lastStable=_LONG, offsets=_LONG, newest=_TIME
        ),
        _offsets,
        "where logs begin and end, and the greatest timestamp; null where no leader can be asked",
    ),
    "groups": Table(
        _columns(
            group=_STRING,
            type=_STRING,
            state=_STRING,
            protocolType=_STRING,
            coordinator=_INT,
            epoch=_INT,
            assignmentEpoch=_INT,
        ),
        _groups,
        "groups, and the broker that coordinates each; epochs are those of consumer and Streams groups",
    ),
    "lag": Table(
        _columns(
            group=_STRING, topic=_STRING, partition=_INT, committed=_LONG, latest=_LONG, lag=_LONG, metadata=_STRING
        ),
        _lag,
        "what each group has committed, and how far that is from the end",
    ),
    "share_groups": Table(
        _columns(
            group=_STRING,
            topic=_STRING,
            partition=_INT,
            start=_LONG,
            backlog=_LONG,
            deadLetterTopic=_STRING,
            deadLetters=_LONG,
        ),
        _share_groups,
        "how many records of each partition a share group has still to finish; `deadLetters` is all that its dead letter topic holds",
    ),
    "transactions": Table(
        _columns(
            transactionalId=_STRING,
            producerId=_LONG,
            producerEpoch=_INT,
            state=_STRING,
            timeoutMs=_INT,
            started=_TIME,
            partitions=ArrayType(_columns(topic=_STRING, partition=_INT)),
            coordinator=_INT,
        ),
        _transactions,
        "transactional ids and what each has open",
    ),
}
"""By name."""


def table_of(options: Mapping[str, str]) -> Table:
    """The table that load(...) or the option `table` names. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    name = given.get("table", given.get("path", "")).strip().lower()
    if name not in TABLES:
        near = difflib.get_close_matches(name, TABLES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TABLES)}"
        what = f"there is no table {name}" if name else 'say which table: .load("lag")'
        raise OptionError(f"{what}; {hint}")
    return TABLES[name]


class WholeTable(InputPartition):
    """The one task of a read."""


class MetaReader(DataSourceReader):
    """Reads one table when the query runs."""

    def __init__(self, table: str, columns: Sequence[str], options: ClusterOptions) -> None:
        """The options are checked already."""
        self._table = table
        self._columns = columns
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One task."""
        return [WholeTable(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """In a task: ask the cluster. Raises SourceError."""
        options = self._options
        servers = ",".join(options.bootstrap_servers)
        timeout_s = options.request_timeout_ms / 1000
        cluster = BlockingCluster(
            options.bootstrap_servers,
            client_id=options.client_id,
            timeout_s=timeout_s,
            reach_timeout_s=min(REACH_TIMEOUT_S, timeout_s),
            security=client_security(dict(options.security)),
        )
        try:
            for row in TABLES[self._table].rows(cluster):
                yield tuple(row[name] for name in self._columns)
        except NoBrokerReachable as error:
            raise SourceError(
                f"no broker of kafka.bootstrap.servers={servers} can be reached for its {self._table}: {error}. "
                "Start the cluster, or correct the addresses"
            ) from None
        except (KafkaError, OSError) as error:
            raise SourceError(f"kafka.bootstrap.servers={servers} did not give its {self._table}: {error}") from None
        finally:
            cluster.close()


def meta_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a table; raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    table = table_of(options)
    for name in given:
        if name not in ("table", "path") and not name.startswith(PREFIX):
            raise OptionError(
                f"option {name} is not known to format barnabas.meta: it takes the table and kafka.* alone"
            )
    known = set(table.schema.fieldNames())
    unknown = [name for name in schema.fieldNames() if name not in known]
    if unknown:
        raise OptionError(f"{unknown[0]} is no column of this table; there are {', '.join(table.schema.fieldNames())}")
    name = given.get("table", given.get("path", "")).strip().lower()
    return MetaReader(name, schema.fieldNames(), parse_kafka_options(given))
