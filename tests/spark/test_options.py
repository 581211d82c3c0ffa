"""Options are those of Spark's Kafka source; whatever is refused is refused with the fix."""

from __future__ import annotations

import pytest

from pyspark_barnabas.options import EARLIEST, KNOWN_OPTIONS, LATEST, OptionError, includes_headers, parse_options

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
        (TOPIC | {"startingOffsets": "first"}, True, r"is not JSON .*: write .*, earliest or latest"),
        (TOPIC | {"startingOffsets": "[1]"}, True, r'write \{"topic":\{"0":23\}\}, earliest or latest'),
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
        (TOPIC | {"subscribepattern": "t.*"}, True, r"did you mean subscribe\?"),
        (TOPIC | {"kafka.bootstrap.server": "x"}, True, r"did you mean kafka\.bootstrap\.servers\?"),
        (TOPIC | {"zzz": "1"}, True, r"leave it out\. Known are: kafka\.bootstrap\.servers, subscribe"),
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
    assert all(KNOWN_OPTIONS.values())
