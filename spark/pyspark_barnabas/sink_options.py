"""The options of the sink, read and checked once, in the planner.

May touch:  its arguments, the PEM files that are named.     Must not touch: sockets, Spark.
Invariants: names, meanings and defaults are those of Spark's Kafka sink and of Kafka's producer, or the table says where they
    differ and why; an option nobody knows is refused with the nearest known one; a refusal says what to write instead.
Read next:  writer.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas_wire.client.producer import IN_FLIGHT_MAX
from barnabas_wire.client.properties import client_security
from barnabas_wire.records.compression import CompressionType
from pyspark_barnabas.kafka_properties import (
    SECURITY,
    OptionError,
    OptionRow,
    parse_servers,
    take_store_types,
)

BATCH_BYTES = 512 * 1024
"""Kafka's 16 KiB are for records that trickle in; here a task has them at hand, and a request of 1 MiB costs a broker a third."""


SINK_OPTIONS = {
    "kafka.bootstrap.servers": OptionRow("", "`host:port` of brokers, comma-separated; needed"),
    "topic": OptionRow("", "topic of every row; without it the column `topic` decides"),
    "mode": OptionRow(
        "at_least_once",
        "`exactly_once`: each row once, whatever is run again; needs transactionalIdPrefix and brokers that prepare transactions",
        is_stock=False,
    ),
    "transactionalIdPrefix": OptionRow(
        "",
        "for exactly_once: a name of the query's own, the same in every run of it; the marker is in group `PREFIX.decisions`",
        is_stock=False,
    ),
    "exactlyOnceAdopt": OptionRow(
        "false", "for exactly_once: `true` for one run where a query has no marker yet, or an old one", is_stock=False
    ),
    "kafka.transaction.timeout.ms": OptionRow(
        "600000",
        "for exactly_once: how long a task may take before its transaction is aborted, ms; Kafka's producer has 60000",
    ),
    "checkpointLocation": OptionRow("", "Spark's own; the sink does not look at it"),
    "queryName": OptionRow("", "Spark's own: it gives a sink the name of its query"),
    "includeHeaders": OptionRow(
        "", "no meaning here, as in Spark's sink: a column `headers` is written where there is one"
    ),
    "kafka.acks": OptionRow("all", "`all`: every in-sync replica has it, `1`: the leader, `0`: nobody said so"),
    "kafka.enable.idempotence": OptionRow(
        "true", "a retry writes nothing twice; needs acks=all. With acks given otherwise: false"
    ),
    "kafka.compression.type": OptionRow("none", "`none`, `gzip`, `snappy`, `lz4`, `zstd`"),
    "kafka.compression.gzip.level": OptionRow("-1", "-1 (the library's own) or 1 to 9"),
    "kafka.compression.lz4.level": OptionRow(
        "1", "1 to 17; Kafka's producer has 9, which is ten times slower and hardly smaller"
    ),
    "kafka.compression.zstd.level": OptionRow("3", "-131072 to 22"),
    "kafka.batch.size": OptionRow(
        str(BATCH_BYTES),
        "most bytes of a batch before compression; Kafka's producer has 16384. A topic that takes less gets less",
    ),
    "kafka.buffer.memory": OptionRow("33554432", "bytes of a task that wait to be acknowledged; then it waits too"),
    "kafka.max.request.size": OptionRow("1048576", "most bytes of a request, and of one record"),
    "kafka.max.in.flight.requests.per.connection": OptionRow("5", "1 to 5 with idempotence"),
    "kafka.request.timeout.ms": OptionRow("30000", "wait for the answer to one request, ms"),
    "kafka.delivery.timeout.ms": OptionRow(
        "120000", "from handing over a batch to its acknowledgement, retries included, ms"
    ),
    "kafka.max.block.ms": OptionRow("60000", "wait for the metadata of a topic and for a producer id, ms"),
    "kafka.partitioner.ignore.keys": OptionRow("false", "`true`: the key does not choose the partition"),
    "kafka.client.id": OptionRow("pyspark-barnabas", "name in logs and quotas of the brokers"),
    "kafka.linger.ms": OptionRow("", "no meaning here: nothing waits for more records, a task sends what it has"),
    "kafka.retries": OptionRow("", "no meaning here: kafka.delivery.timeout.ms bounds retries, as Kafka recommends"),
    "kafka.retry.backoff.ms": OptionRow("", "no meaning here: 50 ms, doubled up to 1 s"),
    "kafka.metadata.max.age.ms": OptionRow("", "no meaning here: each task asks anew"),
    "kafka.security.protocol": OptionRow("PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`"),
    "kafka.ssl.truststore.location": OptionRow(
        "", "PEM file of authorities, on every executor; the system's if not set"
    ),
    "kafka.ssl.truststore.type": OptionRow("PEM", "`PEM` alone"),
    "kafka.ssl.keystore.location": OptionRow("", "PEM file with private key and certificate"),
    "kafka.ssl.keystore.type": OptionRow("PEM", "`PEM` alone"),
    "kafka.ssl.key.password": OptionRow("", "of that private key"),
    "kafka.ssl.endpoint.identification.algorithm": OptionRow("https", "empty: the broker's name is not checked"),
    "kafka.sasl.mechanism": OptionRow("", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`"),
    "kafka.sasl.oauthbearer.token.endpoint.url": OptionRow(
        "",
        "for OAUTHBEARER: `file:///PATH` of a token on every node, or `https://…`, which is asked with clientId, clientSecret and scope "
        "of sasl.jaas.config",
    ),
    "kafka.sasl.jaas.config": OptionRow("", 'who logs in: `…LoginModule required username="…" password="…";`'),
    "kafka.sasl.username": OptionRow("", "instead of sasl.jaas.config, with sasl.password", is_stock=False),
    "kafka.sasl.password": OptionRow("", "", is_stock=False),
}
"""By name as documented; an empty default says that there is none."""

MODES = ("at_least_once", "exactly_once")
_CANONICAL = {name.lower(): name for name in SINK_OPTIONS}
_REFUSED = {
    "kafka.key.serializer": "keys are written as the bytes they are: cast the column key to binary or string",
    "kafka.value.serializer": "values are written as the bytes they are: cast the column value to binary or string",
    "kafka.partitioner.class": "there is no Java here: a column partition chooses the partition of each row",
    "kafka.interceptor.classes": "there is no Java here: change the rows before they are written",
    "kafka.transactional.id": "Spark's tasks cannot share one: set mode=exactly_once and transactionalIdPrefix",
    "path": 'save() and start() take no path: name the topic with .option("topic", "name")',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything the sink takes from `.option(...)`."""

    bootstrap_servers: tuple[str, ...]
    topic: str | None
    acks: int
    is_idempotent: bool
    compression: CompressionType
    compression_level: int | None
    batch_bytes: int
    buffer_bytes: int
    request_bytes_max: int
    in_flight_max: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    block_ms_max: int
    ignores_keys: bool
    client_id: str
    is_exactly_once: bool
    prefix: str
    """The prefix of the transactional ids, in exactly_once."""
    adopts: bool
    transaction_timeout_ms: int
    security: tuple[tuple[str, str], ...]
    """Client properties as Kafka's tools take them."""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write; raises OptionError naming the option and the fix."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name in _REFUSED:
            raise OptionError(f"{name}: {_REFUSED[name]}")
        if name not in _CANONICAL:
            raise OptionError(_unknown(name))

    def text(name: str) -> str:
        return given.get(name.lower(), SINK_OPTIONS[name].default).strip()

    acks = _choice(text("kafka.acks").lower(), "kafka.acks", {"all": -1, "-1": -1, "1": 1, "0": 0})
    is_idempotent = _flag(text("kafka.enable.idempotence"), "kafka.enable.idempotence")
    if is_idempotent and acks != -1:
        if "kafka.enable.idempotence" in given:
            raise OptionError(
                f"kafka.acks={text('kafka.acks')}: an idempotent producer needs all; or set kafka.enable.idempotence=false"
            )
        is_idempotent = False
    in_flight_max = _number(given, "kafka.max.in.flight.requests.per.connection", 1)
    if is_idempotent and in_flight_max > IN_FLIGHT_MAX:
        raise OptionError(
            f"kafka.max.in.flight.requests.per.connection={in_flight_max}: an idempotent producer may have 5"
        )
    is_exactly_once = _choice(text("mode").lower(), "mode", dict(zip(MODES, (False, True), strict=True)))
    prefix = text("transactionalIdPrefix")
    if is_exactly_once and not prefix:
        raise OptionError(
            'mode=exactly_once needs .option("transactionalIdPrefix", "name"): a name of this query\'s own, the same in every run of it'
        )
    if prefix and not is_exactly_once:
        raise OptionError("transactionalIdPrefix is for mode=exactly_once: set that, or leave the prefix out")
    if is_exactly_once and not is_idempotent:
        raise OptionError("mode=exactly_once needs kafka.acks=all and kafka.enable.idempotence=true: leave both out")
    kinds = {kind.name.lower(): kind for kind in CompressionType}
    compression = _choice(text("kafka.compression.type").lower(), "kafka.compression.type", kinds)
    security = {
        name.removeprefix("kafka."): value
        for name, value in sorted(given.items())
        if name.removeprefix("kafka.").startswith(SECURITY)
    }
    take_store_types(security)
    properties = tuple(security.items())
    try:
        client_security(security)
    except ValueError as error:
        raise OptionError(f"kafka.{error}") from None
    return SinkOptions(
        bootstrap_servers=parse_servers(text("kafka.bootstrap.servers")),
        topic=text("topic") or None,
        acks=acks,
        is_idempotent=is_idempotent,
        compression=compression,
        compression_level=_level(given, compression),
        batch_bytes=_number(given, "kafka.batch.size", 1),
        buffer_bytes=_number(given, "kafka.buffer.memory", 1),
        request_bytes_max=_number(given, "kafka.max.request.size", 1),
        in_flight_max=in_flight_max,
        request_timeout_ms=_number(given, "kafka.request.timeout.ms", 1),
        delivery_timeout_ms=_number(given, "kafka.delivery.timeout.ms", 1),
        block_ms_max=_number(given, "kafka.max.block.ms", 1),
        ignores_keys=_flag(text("kafka.partitioner.ignore.keys"), "kafka.partitioner.ignore.keys"),
        client_id=text("kafka.client.id"),
        is_exactly_once=is_exactly_once,
        prefix=prefix,
        adopts=_flag(text("exactlyOnceAdopt"), "exactlyOnceAdopt"),
        transaction_timeout_ms=_number(given, "kafka.transaction.timeout.ms", 1),
        security=properties,
    )


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _CANONICAL, n=1)
    if near:
        return f"option {name} is not known to the sink of format barnabas; did you mean {_CANONICAL[near[0]]}?"
    return (
        f"option {name} is not known to the sink of format barnabas; leave it out. Known are: {', '.join(SINK_OPTIONS)}"
    )


def _level(given: Mapping[str, str], kind: CompressionType) -> int | None:
    bounds = {CompressionType.GZIP: (-1, 9), CompressionType.LZ4: (1, 17), CompressionType.ZSTD: (-131072, 22)}
    if kind not in bounds:
        return None
    name = f"kafka.compression.{kind.name.lower()}.level"
    least, most = bounds[kind]
    level = _number(given, name, least)
    if level > most or (kind == CompressionType.GZIP and level == 0):
        raise OptionError(f"{name}={level}: {SINK_OPTIONS[name].doc.partition(';')[0]}")
    return level


def _number(given: Mapping[str, str], name: str, least: int) -> int:
    text = given.get(name.lower(), SINK_OPTIONS[name].default).strip()
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"{name}={text} is not a whole number") from None
    if value < least:
        raise OptionError(f"{name}={text}: use {least} or more")
    return value


def _flag(text: str, name: str) -> bool:
    return bool(_choice(text.lower(), name, {"true": True, "false": False}))


def _choice(text: str, name: str, choices: Mapping[str, Any]) -> Any:
    if text not in choices:
        raise OptionError(f"{name}={text}: use {', '.join(dict.fromkeys(choices))}")
    return choices[text]
