"""`barnabas txn`: transactional ids and their transactions, by the Kafka protocol.

May touch:  the brokers, the clock.   Must not touch: the transactions topic.
Invariants: what is shown is what coordinators have committed.
Read next:  ../transactions.py, ../hanging_transactions.py.
"""

from __future__ import annotations

import time
from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import local_time, print_fields, print_json, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition

TIMEOUT_MAX_MINUTES = 15.0
"""transaction.max.timeout.ms of a broker that does not set it."""


@click.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in this state; may be repeated.")
@click.option(
    "--pattern",
    metavar="RE2",
    help="Only ids that match this regular expression as a whole, in RE2's syntax: 'orders-.*'.",
)
@click.option("--open-for", type=click.FloatRange(min=0), metavar="SECONDS", help="Only those open for longer.")
@common_options
def list_transactions(
    invocation: Invocation, states: tuple[str, ...], pattern: str | None, open_for: float | None
) -> None:
    """List the transactional ids with their state and coordinator."""
    from barnabas_admin import transactions
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states),
        duration_filter=-1 if open_for is None else int(open_for * 1000),
        transactional_id_pattern=pattern,
    )
    found = run_with_cluster(invocation, lambda client: transactions.list_transactions(client, request))
    if invocation.is_json:
        print_json({"transactions": found})
        return
    columns = ["TRANSACTIONAL_ID", "STATE", "PRODUCER_ID", "COORDINATOR"]
    print_table(columns, [list(entry.values()) for entry in found])


@click.command()
@click.argument("transactional_id", metavar="ID")
@common_options
def describe(invocation: Invocation, transactional_id: str) -> None:
    """Show a transactional id's producer, and the partitions of its transaction."""
    from barnabas_admin import transactions
    from barnabas_admin.kafka import run_with_cluster

    found = run_with_cluster(invocation, lambda client: transactions.describe_transaction(client, transactional_id))
    if invocation.is_json:
        print_json(found)
        return
    partitions = [f"{entry['topic']}-{entry['partition']}" for entry in found["partitions"]]
    print_fields(found | {"start_ms": found["start_ms"] or "-", "partitions": " ".join(partitions) or "-"})


@click.command("find-hanging")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only in this topic; may be repeated.")
@click.option(
    "--broker", "broker_id", type=click.IntRange(min=0), metavar="ID", help="Only in partitions that this broker has."
)
@click.option(
    "--max-transaction-timeout",
    "timeout_minutes",
    type=click.FloatRange(min=0),
    default=TIMEOUT_MAX_MINUTES,
    metavar="MINUTES",
    help="The brokers' transaction.max.timeout.ms, default 15; only what is open for five minutes longer is suspected.",
)
@common_options
def find_hanging(
    invocation: Invocation, topics: tuple[str, ...], broker_id: int | None, timeout_minutes: float
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end."""
    from barnabas_admin import hanging_transactions
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient

    now_ms = int(time.time() * 1000)

    async def work(client: ClusterClient) -> list[hanging_transactions.OpenTransaction]:
        view = await client.metadata(list(topics) or None)
        wanted = [
            TopicPartition(topic, number)
            for topic, partitions in sorted(view.topics.items())
            if not topics or topic in topics
            for number, partition in sorted(partitions.items())
            if broker_id is None or broker_id in partition.replicas
        ]
        return await hanging_transactions.find_hanging(
            client, wanted, view, now_ms=now_ms, timeout_max_ms=int(timeout_minutes * 60_000)
        )

    found = run_with_cluster(invocation, work)
    rows: list[dict[str, Any]] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator_epoch": each.coordinator_epoch,
            "start_offset": each.start_offset,
            "last_timestamp_ms": each.last_timestamp_ms,
            "open_for_minutes": (now_ms - each.last_timestamp_ms) // 60_000,
        }
        for each in found
    ]
    if invocation.is_json:
        print_json({"hanging": rows})
        return
    columns = [
        "TOPIC",
        "PARTITION",
        "PRODUCER_ID",
        "EPOCH",
        "COORDINATOR_EPOCH",
        "START_OFFSET",
        "LAST_WRITE",
        "MINUTES",
    ]
    cells = [row | {"last_timestamp_ms": local_time(row["last_timestamp_ms"], is_dated=True)} for row in rows]
    print_table(columns, [list(row.values()) for row in cells])
    if rows:
        first = rows[0]
        talk(
            f"end one: barnabas txn abort -t {first['topic']} -p {first['partition']} --start-offset {first['start_offset']}"
        )


@click.command()
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("-t", "--topic", metavar="TOPIC", help="Of a hanging transaction.")
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Of a hanging transaction.")
@click.option("--start-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Where it begins in the partition.")
@yes_option
@common_options
def abort(
    invocation: Invocation,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
) -> None:
    """End an open transaction: all of a transactional id's, or a hanging one in one partition."""
    from barnabas_admin import transactions
    from barnabas_admin.errors import WrongUsage
    from barnabas_admin.kafka import run_with_cluster

    is_hanging = topic is not None and partition is not None and start_offset is not None
    if (transactional_id is None) == (not is_hanging) or (topic, partition, start_offset).count(None) not in (0, 3):
        raise WrongUsage(
            "name a transactional id, or a hanging transaction's partition and where it begins",
            hint="barnabas txn abort ID, or barnabas txn abort -t TOPIC -p N --start-offset OFFSET as find-hanging shows them",
        )
    if transactional_id is not None:
        confirm(
            f"fence the producer of {transactional_id} and abort its transaction, a prepared one too",
            typed=transactional_id,
            yes=yes,
        )
        timeout_s = invocation.timeout_s
        run_with_cluster(
            invocation, lambda client: transactions.abort_transaction(client, transactional_id, timeout_s=timeout_s)
        )
        done = {"transactional_id": transactional_id, "is_aborted": True}
    else:
        assert topic is not None and partition is not None and start_offset is not None
        key = TopicPartition(topic, partition)
        confirm(f"abort the transaction that begins at {start_offset} in {key}", typed=topic, yes=yes)
        _end_hanging(invocation, key, start_offset)
        done = {"topic": topic, "partition": partition, "start_offset": start_offset, "is_aborted": True}
    if invocation.is_json:
        print_json(done)
    else:
        print_fields(done)


def _end_hanging(invocation: Invocation, key: TopicPartition, start_offset: int) -> None:
    from barnabas_admin import hanging_transactions
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient

    async def work(client: ClusterClient) -> None:
        view = await client.metadata([key.topic])
        found = await hanging_transactions.open_transactions(client, [key], view)
        meant = next((each for each in found if each.start_offset == start_offset), None)
        if meant is None:
            raise AdminError(
                f"no transaction that begins at offset {start_offset} is open in {key}",
                code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                hint="`barnabas txn find-hanging` shows where each begins",
            )
        await hanging_transactions.abort(client, meant, view)

    run_with_cluster(invocation, work)
