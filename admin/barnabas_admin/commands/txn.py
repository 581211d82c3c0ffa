"""`barnabas txn`: transactional ids and their transactions, by the Kafka protocol.

May touch:  the brokers.              Must not touch: the transactions topic.
Invariants: what is shown is what coordinators have committed.
Read next:  ../kafka.py.
"""

from __future__ import annotations

from typing import Any

import click

from barnabas_admin.errors import AdminError
from barnabas_admin.invocation import Invocation, common_options
from barnabas_admin.output import print_fields, print_json, print_table
from barnabas_wire.kafka.errors import ErrorCode, KafkaError

TRANSACTION_KEY_TYPE = 1


@click.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in this state; may be repeated.")
@click.option("--open-for", type=click.FloatRange(min=0), metavar="SECONDS", help="Only those open for longer.")
@common_options
def list_transactions(invocation: Invocation, states: tuple[str, ...], open_for: float | None) -> None:
    """List the transactional ids with their state and coordinator."""
    from barnabas_admin.kafka import run_with_cluster
    from barnabas_wire.client.cluster import ClusterClient
    from barnabas_wire.client.metadata import known_code
    from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states), duration_filter=-1 if open_for is None else int(open_for * 1000)
    )

    async def work(client: ClusterClient) -> list[dict[str, Any]]:
        view = await client.metadata([])
        found = []
        for broker_id in sorted(view.brokers):
            answer = await client.call(request, broker_id=broker_id)
            if answer.error_code:
                raise KafkaError.of(known_code(answer.error_code), f"listing the transactions of broker {broker_id}")
            if answer.unknown_state_filters:
                raise AdminError(
                    f"there is no state {', '.join(answer.unknown_state_filters)}",
                    code=ErrorCode.INVALID_REQUEST,
                    hint="Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort are those that there are",
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
