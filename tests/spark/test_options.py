"""Options are those of Spark's Kafka source; whatever is refused is refused with the fix."""

from __future__ import annotations

import pytest

from pyspark_barnabas.kafka_properties import KAFKA_OPTIONS, REFUSED, WITHOUT_MEANING
from pyspark_barnabas.offset_spec import Ago, AtTime, AtTimes, Committed, Last
from pyspark_barnabas.options import (
    EARLIEST,
    LATEST,
    OPTIONS,
    OptionError,
    includes_headers,
    parse_options,
    requested_columns,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
TOPIC = SERVERS | {"subscribe": "t"}


def test_a_batch_reads_from_earliest_to_latest_unless_told_otherwise() -> None:
    found = parse_options(TOPIC, is_stream=False)
    assert (found.starting_offsets, found.ending_offsets) == (EARLIEST, LATEST)
    assert (found.topics, found.assigned, found.max_offsets_per_trigger) == (("t",), None, None)
    assert (found.is_data_loss_fatal, found.includes_headers, found.poll_timeout_ms) == (True, False, 120_000)


def test_a_stream_begins_at_latest_unless_told_otherwise() -> None:
    assert parse_options(TOPIC, is_stream=True).starting_offsets == LATEST


def test_everything_that_can_be_said_is_understood() -> None:
    found = parse_options(
        {
            "kafka.bootstrap.servers": " one:1, two:2 ,",
            "assign": '{"b":[1,0,1],"a":[7]}',
            "startingOffsets": '{"a":{"7":-2},"b":{"0":5,"1":6}}',
            "maxOffsetsPerTrigger": "100",
            "failOnDataLoss": "False",
            "includeHeaders": "TRUE",
            "kafkaConsumer.pollTimeoutMs": "5",
        },
        is_stream=True,
    )
    assert found.bootstrap_servers == ("one:1", "two:2")
    assert (found.topics, found.assigned) == (("a", "b"), {"b": (0, 1), "a": (7,)})
    assert found.starting_offsets == {"a": {7: -2}, "b": {0: 5, 1: 6}}
    assert (found.max_offsets_per_trigger, found.is_data_loss_fatal, found.includes_headers) == (100, False, True)
    assert found.poll_timeout_ms == 5


def test_names_are_taken_in_any_case() -> None:
    """Spark hands options over in lower case."""
    lowered = {name.lower(): "earliest" if name == "startingOffsets" else value for name, value in TOPIC.items()}
    assert parse_options(lowered, is_stream=True) == parse_options(TOPIC, is_stream=True)


def test_a_topic_named_twice_is_read_once() -> None:
    assert parse_options(SERVERS | {"subscribe": "a, b,a"}, is_stream=False).topics == ("a", "b")


@pytest.mark.parametrize(
    ("options", "is_stream", "fix"),
    [
        ({"subscribe": "t"}, False, r'say where the brokers are: \.option\("kafka\.bootstrap\.servers", "host:port"\)'),
        ({"subscribe": "t", "kafka.bootstrap.servers": " , "}, False, "say where the brokers are"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "localhost"}, False, "'localhost' is not host:port, write host"),
        (SERVERS, False, "exactly one of"),
        (TOPIC | {"assign": '{"t":[0]}'}, False, "exactly one of"),
        (SERVERS | {"subscribe": " , "}, False, r"subscribe names no topic: write \.option"),
        (SERVERS | {"assign": "t"}, False, r'assign=t is not JSON .*: write \{"topic":\[0,1\]\}'),
        (SERVERS | {"assign": "[0]"}, False, r'write \{"topic":\[0,1\]\}'),
        (SERVERS | {"assign": '{"t":"01"}'}, False, r'write \{"topic":\[0,1\]\}'),
        (SERVERS | {"assign": '{"t":[true]}'}, False, r'write \{"topic":\[0,1\]\}'),
        (SERVERS | {"assign": '{"t":[]}'}, False, "assign names no partition: write"),
        (SERVERS | {"assign": "{}"}, False, "assign names no partition: write"),
        (TOPIC | {"endingOffsets": "latest"}, True, r"use trigger\(availableNow=True\)"),
        (TOPIC | {"maxOffsetsPerTrigger": "5"}, False, "bound a batch read with endingOffsets"),
        (TOPIC | {"startingOffsets": "latest"}, False, "use earliest or offsets"),
        (TOPIC | {"startingOffsets": '{"t":{"0":-1}}'}, False, "use earliest or offsets"),
        (TOPIC | {"endingOffsets": "earliest"}, False, "use latest or offsets"),
        (TOPIC | {"endingOffsets": '{"t":{"0":-2}}'}, False, "use latest or offsets"),
        (TOPIC | {"startingOffsets": "first"}, True, r"is not JSON .*: write .*, earliest, latest, group"),
        (TOPIC | {"startingOffsets": "[1]"}, True, r'write \{"topic":\{"0":23\}\}, earliest, latest'),
        (TOPIC | {"startingOffsets": '{"t":5}'}, True, r'write \{"topic":\{"0":23\}\}'),
        (TOPIC | {"startingOffsets": '{"t":{"0":1.5}}'}, True, r'write \{"topic":\{"0":23\}\}'),
        (TOPIC | {"startingOffsets": '{"t":{"zero":1}}'}, True, r'write \{"topic":\{"0":23\}\}'),
        (TOPIC | {"startingOffsets": '{"t":{"0":-3}}'}, True, "-1 for latest, -2 for earliest"),
        (TOPIC | {"maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger=0: write a whole number, at least 1"),
        (TOPIC | {"maxOffsetsPerTrigger": "1e6"}, True, "write a whole number"),
        (TOPIC | {"kafkaConsumer.pollTimeoutMs": "²"}, True, "write a whole number"),
        (TOPIC | {"failOnDataLoss": "no"}, True, "failOnDataLoss=no: write true or false"),
        (TOPIC | {"includeHeaders": "1"}, True, "includeHeaders=1: write true or false"),
        (TOPIC | {"startingOffset": "earliest"}, True, r"did you mean startingOffsets\?"),
        (TOPIC | {"subscribepatern": "t.*"}, True, r"did you mean subscribePattern\?"),
        (TOPIC | {"kafka.bootstrap.server": "x"}, True, r"did you mean kafka\.bootstrap\.servers\?"),
        (TOPIC | {"subscribePattern": "t.*"}, True, "exactly one of"),
        (SERVERS | {"subscribePattern": "t("}, True, r"subscribePattern=t\( is no regular expression: missing \)"),
        (TOPIC | {"startingTimestamp": "x"}, True, "startingTimestamp=x: write a whole number"),
        (TOPIC | {"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, True, "a time is ms since 1970"),
        (TOPIC | {"startingOffsetsByTimestampStrategy": "earliest"}, True, "write error or latest"),
        (TOPIC | {"endingTimestamp": "1"}, True, "endingTimestamp is for batch reads"),
        (TOPIC | {"startingOffsets": "-10 fortnights"}, True, 'fortnights is no unit of time; write "-10 minutes"'),
        (TOPIC | {"startingOffsets": "group"}, True, r'needs a group: say which with .option\("kafka\.group\.id"'),
        (TOPIC | {"commitOffsets": "true"}, True, "commitOffsets=true needs a group"),
        (TOPIC | {"commitOffsets": "true"}, False, "commitOffsets is for streams"),
        (
            TOPIC | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            True,
            "minOffsetsPerTrigger=9 is greater than maxOffsetsPerTrigger=8",
        ),
        (TOPIC | {"maxTriggerDelay": "15"}, True, "maxTriggerDelay=15: write a number and a unit, such as 15m"),
        (
            TOPIC | {"columns": "value,timestmp"},
            True,
            r"timestmp is no column of format barnabas; did you mean timestamp\?",
        ),
        (TOPIC | {"columns": "value,value"}, True, "name each column once"),
        (TOPIC | {"kafka.isolation.level": "committed"}, True, "write read_committed or read_uncommitted"),
        (
            TOPIC | {"kafka.auto.offset.reset": "latest"},
            True,
            "leave kafka.auto.offset.reset out: startingOffsets says",
        ),
        (TOPIC | {"kafka.value.deserializer": "x"}, True, "decode them with SQL functions"),
        (TOPIC | {"kafka.fetch.max.byte": "1"}, True, r"did you mean kafka\.fetch\.max\.bytes\?"),
        (TOPIC | {"kafka.zzz": "1"}, True, "no property of Kafka's consumer; leave it out"),
        (TOPIC | {"kafka.security.protocol": "TLS"}, True, "kafka.security.protocol=TLS: use PLAINTEXT, SSL"),
        (TOPIC | {"kafka.ssl.truststore.type": "JKS"}, True, "only PEM is read; convert the store"),
        (
            TOPIC | {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
            True,
            "needs who logs in: set sasl.username",
        ),
        (TOPIC | {"zzz": "1"}, True, r"leave it out\. Known are: subscribe, subscribePattern"),
        (TOPIC | {"path": "t"}, False, r'load\(\) takes no path: name the topics with \.option\("subscribe"'),
    ],
)
def test_a_refusal_names_the_option_and_the_fix(options: dict[str, str], is_stream: bool, fix: str) -> None:
    with pytest.raises(OptionError, match=fix):
        parse_options(options, is_stream=is_stream)


def test_headers_are_decided_before_other_options_are_looked_at() -> None:
    assert includes_headers({"INCLUDEHEADERS": "true", "nonsense": "1"})
    assert not includes_headers({})


def test_every_known_option_is_explained() -> None:
    assert all(row.doc for name, row in OPTIONS.items() if name != "kafka.sasl.password")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("group", Committed()),
        ("-100", Last(100)),
        ("-10 minutes", Ago(600_000)),
        ("-1 hour", Ago(3_600_000)),
        ("-90s", Ago(90_000)),
        ("-2 Days", Ago(172_800_000)),
        ("-500ms", Ago(500)),
    ],
)
def test_a_start_may_be_told_from_the_end_or_by_a_group(text: str, spec: object) -> None:
    given = TOPIC | {"startingOffsets": text, "kafka.group.id": "g"}
    assert parse_options(given, is_stream=True).starting_offsets == spec
    assert parse_options(given, is_stream=False).starting_offsets == spec


def test_the_most_precise_of_several_starts_wins() -> None:
    offsets = TOPIC | {"startingOffsets": "earliest", "endingOffsets": "latest"}
    times = {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":6}}'}
    time = {"startingTimestamp": "7", "endingTimestamp": "8"}
    by_partition = parse_options(offsets | times, is_stream=False)
    assert (by_partition.starting_offsets, by_partition.ending_offsets) == (
        AtTimes({"t": {0: 5}}),
        AtTimes({"t": {0: 6}}),
    )
    one = parse_options(offsets | times | time, is_stream=False)
    assert (one.starting_offsets, one.ending_offsets) == (AtTime(7), AtTime(8))
    assert (one.starting_option, one.ending_option) == ("startingTimestamp", "endingTimestamp")


def test_properties_of_kafkas_consumer_have_their_meaning_or_none_and_never_show_a_secret() -> None:
    found = parse_options(
        TOPIC
        | {
            "kafka.isolation.level": "read_committed",
            "kafka.client.id": "me",
            "kafka.client.rack": "r1",
            "kafka.max.partition.fetch.bytes": "1000000",
            "kafka.fetch.max.bytes": "5000",
            "kafka.session.timeout.ms": "1",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.username": "me",
            "kafka.sasl.password": "secret!",
        },
        is_stream=True,
    )
    cluster = found.cluster
    assert (cluster.is_read_committed, cluster.client_id, cluster.client_rack) == (True, "me", "r1")
    assert cluster.fetch_bytes_max == 5000
    assert ("sasl.password", "secret!") in cluster.security
    assert "secret!" not in repr(found)


def test_every_property_of_kafkas_consumer_is_in_one_table() -> None:
    bare = {name.removeprefix("kafka.") for name in (*KAFKA_OPTIONS, *REFUSED)}
    assert not bare & set(WITHOUT_MEANING)
    assert not set(KAFKA_OPTIONS) & set(REFUSED)


def test_columns_are_taken_in_their_order_and_any_case() -> None:
    assert requested_columns({"COLUMNS": "offset, timestamptype ,value"}) == ("offset", "timestampType", "value")
    assert requested_columns({}) is None
