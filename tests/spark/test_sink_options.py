"""Options of the sink: Kafka's names and defaults, and errors that name the fix."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from barnabas_wire.records.compression import CompressionType
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.sink import check_columns
from pyspark_barnabas.sink_options import SINK_OPTIONS, parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9092"}
HEADERS = ArrayType(StructType([StructField("key", StringType(), False), StructField("value", BinaryType())]))


def test_defaults_are_an_idempotent_producer_that_waits_for_all_replicas() -> None:
    found = parse_sink_options(SERVERS | {"topic": "t"})
    assert found.bootstrap_servers == ("one:9092", "two:9092") and found.topic == "t"
    assert (found.acks, found.is_idempotent, found.in_flight_max) == (-1, True, 5)
    assert (found.compression, found.compression_level) == (CompressionType.NONE, None)
    assert (found.delivery_timeout_ms, found.request_timeout_ms, found.buffer_bytes) == (120_000, 30_000, 32 << 20)


def test_every_option_of_the_table_is_taken_in_any_case() -> None:
    given = {name.upper(): option.default for name, option in SINK_OPTIONS.items() if option.default}
    assert replace(parse_sink_options(given | SERVERS), security=()) == parse_sink_options(SERVERS)
    meaningless = ("checkpointLocation", "queryName", "includeHeaders", "kafka.linger.ms", "kafka.retries")
    assert parse_sink_options(SERVERS | dict.fromkeys(meaningless, "1")) == parse_sink_options(SERVERS)


def test_fewer_acks_mean_no_idempotence_as_with_kafkas_producer() -> None:
    assert not parse_sink_options(SERVERS | {"kafka.acks": "1"}).is_idempotent
    with pytest.raises(OptionError, match=r"kafka.acks=1: an idempotent producer needs all"):
        parse_sink_options(SERVERS | {"kafka.acks": "1", "kafka.enable.idempotence": "true"})


def test_security_reaches_the_client_and_is_checked_first() -> None:
    found = parse_sink_options(
        SERVERS
        | {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": "p",
            "kafka.ssl.truststore.type": "PEM",  # as Java's clients must say
        }
    )
    assert dict(found.security)["sasl.username"] == "u" and "ssl.truststore.type" not in dict(found.security)
    with pytest.raises(OptionError, match=r"only PEM is read"):
        parse_sink_options(SERVERS | {"kafka.ssl.keystore.type": "JKS"})
    with pytest.raises(OptionError, match=r"kafka.sasl.mechanism=GSSAPI: use PLAIN"):
        parse_sink_options(SERVERS | {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.compresion.type": "lz4"}, r"did you mean kafka.compression.type\?"),
        ({"kafka.compression.type": "brotli"}, r"kafka.compression.type=brotli: use none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "0"}, r"gzip.level=0: -1"),
        ({"kafka.compression.type": "lz4", "kafka.compression.lz4.level": "18"}, r"lz4.level=18: 1 to 17"),
        ({"kafka.batch.size": "many"}, r"kafka.batch.size=many is not a whole number"),
        ({"kafka.buffer.memory": "0"}, r"kafka.buffer.memory=0: use 1 or more"),
        ({"kafka.acks": "2"}, r"kafka.acks=2: use all, -1, 1, 0"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, r"=6: an idempotent producer may have 5"),
        ({"kafka.key.serializer": "x"}, r"kafka.key.serializer: keys are written as the bytes they are"),
        ({"path": "t"}, r'name the topic with .option\("topic"'),
        ({"kafka.bootstrap.servers": ""}, r"say where the brokers are"),
        ({"kafka.bootstrap.servers": "one"}, r"write host:port,host:port"),
    ],
)
def test_what_cannot_be_used_names_the_option_and_the_fix(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_sink_options(SERVERS | given)


def test_columns_are_those_of_sparks_kafka_sink() -> None:
    options = parse_sink_options(SERVERS)
    good = [
        StructField("topic", StringType()),
        StructField("value", BinaryType()),
        StructField("key", StringType()),
        StructField("partition", IntegerType()),
        StructField("headers", HEADERS),
        StructField("more", LongType()),
    ]
    check_columns(StructType(good), options)
    for field, message in (
        (
            StructField("key", LongType()),
            r"key attribute has the unsupported type bigint: key must be a string or binary",
        ),
        (StructField("value", IntegerType()), r"value must be a string or binary"),
        (StructField("topic", BinaryType()), r"topic must be a string"),
        (StructField("partition", LongType()), r"partition must be a int"),
        (StructField("headers", ArrayType(StringType())), r"headers must be a array<struct<key:string,value:binary>>"),
    ):
        with pytest.raises(OptionError, match=message):
            check_columns(StructType([field if field.name == known.name else known for known in good]), options)
    with pytest.raises(OptionError, match=r"required attribute 'value' not found"):
        check_columns(StructType(good[:1]), options)
    with pytest.raises(OptionError, match=r'\.option\("topic", "name"\), or a column topic'):
        check_columns(StructType(good[1:]), options)
