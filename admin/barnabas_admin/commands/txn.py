"""`barnabas txn`: transactional ids and their transactions, by the Kafka protocol.

May touch:  the brokers, the clock.   Must not touch: the transactions topic.
Invariants: what is shown is what coordinators have committed.
Read next:  ../kafka.py, ../hanging_transactions.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options, confirm, yes_option
from barnabas_admin.output import local_time, print_fields, print_json, print_table, talk
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

TRANSACTION_KEY_TYPE = 1
TIMEOUT_MAX_MINUTES = 15.0
"""transaction.max.timeout.ms of a broker that does not set it."""
RETRY_S = 0.1
PREPARED = "Prepared"
"""State of a transaction that is written whole and waits for its decision."""


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
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states),
        duration_filter=-1 if open_for is None else int(open_for * 1000),
        transactional_id_pattern=pattern,
    )

    async def work(client: ClusterClient) -> list[dict[str, Any]]:
        view = await client.metadata([])
        found = []
        for broker_id in sorted(view.brokers):
            answer = await client.call(request, broker_id=broker_id)
            if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise AdminError(
                    f"the pattern {pattern!r} is no regular expression of RE2, or too large",
                    code=ErrorCode.INVALID_REGULAR_EXPRESSION,
                    hint="RE2 has no back-references and no look-around; put a backslash before a sign that is meant as itself",
                )
            if answer.error_code:
                raise KafkaError.of(known_code(answer.error_code), f"listing the transactions of broker {broker_id}")
            if answer.unknown_state_filters:
                raise AdminError(
                    f"there is no state {', '.join(answer.unknown_state_filters)}",
                    code=ErrorCode.INVALID_REQUEST,
                    hint="Empty, Ongoing, Prepared, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort are those that there are",
                )
            found += [
                {
                    "transactional_id": entry.transactional_id,
                    "state": entry.transaction_state,
                    "producer_id": entry.producer_id,
                    "coordinator": broker_id,
                }
                for entry in answer.transaction_states
            ]
        return sorted(found, key=lambda entry: str(entry["transactional_id"]))

    found = run_with_cluster(invocation, work)
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
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest

    async def work(client: ClusterClient) -> dict[str, Any]:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await client.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE)
        (state,) = answer.transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise AdminError(
                f"transactional id {transactional_id!r} does not exist",
                code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                hint="`barnabas txn list` shows those that there are",
            )
        if state.error_code:
            raise KafkaError.of(known_code(state.error_code), f"describing transactional id {transactional_id}")
        return {
            "transactional_id": transactional_id,
            "state": state.transaction_state,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "timeout_ms": state.transaction_timeout_ms,
            "start_ms": None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
            "partitions": [
                {"topic": topic.topic, "partition": partition}
                for topic in state.topics
                for partition in topic.partitions
            ],
        }

    found = run_with_cluster(invocation, work)
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
    from barnabas_admin.errors import WrongUsage

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
        _take_over(invocation, transactional_id)
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


def _take_over(invocation: Invocation, transactional_id: str) -> None:
    """As a new producer of the id would: the coordinator fences the one that there is, and aborts what it has open.

    A prepared transaction keeps its id from new producers, and ends by an end with its own epoch.
    """
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
    from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
    from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest

    async def work(client: ClusterClient) -> None:
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await client.call_coordinator(transactional_id, asked, key_type=TRANSACTION_KEY_TYPE)
        if answer.transaction_states[0].error_code:
            raise AdminError(
                f"transactional id {transactional_id!r} does not exist",
                code=known_code(answer.transaction_states[0].error_code),
                hint="`barnabas txn list` shows those that there are",
            )
        found = answer.transaction_states[0]
        if found.transaction_state == PREPARED:
            end = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                committed=False,
            )
            ended = await client.call_coordinator(transactional_id, end, key_type=TRANSACTION_KEY_TYPE)
            if ended.error_code:
                raise KafkaError.of(
                    known_code(ended.error_code), f"aborting the prepared transaction of {transactional_id}"
                )
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=found.transaction_timeout_ms,
        )
        deadline_s = time.monotonic() + invocation.timeout_s
        while True:
            taken = await client.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE)
            if taken.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the transaction of {transactional_id} is still being ended")
            await asyncio.sleep(RETRY_S)
        if taken.error_code:
            raise KafkaError.of(known_code(taken.error_code), f"taking over {transactional_id}")

    run_with_cluster(invocation, work)


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
