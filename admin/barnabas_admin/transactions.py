"""Transactional ids as their coordinators know them: which there are, what each has open, and the end of an open one.

May touch:  barnabas_wire.client.     Must not touch: printing, the transactions topic.
Invariants: what is reported is what coordinators have committed.
Read next:  hanging_transactions.py (what no coordinator knows of); commands/txn.py, console/transactions.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from barnabas_admin.errors import AdminError
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import known_code
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_wire.kafka.messages.end_txn import EndTxnRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest

TRANSACTION_KEY_TYPE = 1
RETRY_S = 0.1
PREPARED = "Prepared"
"""State of a transaction that is written whole and waits for its decision."""


async def list_transactions(client: ClusterClient, request: ListTransactionsRequest) -> list[dict[str, Any]]:
    """The transactional ids that the request asks for, with state, producer id and coordinator, by id.

    Raises AdminError for a state that there is not or a pattern that cannot be read, KafkaError, OSError.
    """
    view = await client.metadata([])
    found = []
    for broker_id in sorted(view.brokers):
        answer = await client.call(request, broker_id=broker_id)
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise AdminError(
                f"the pattern {request.transactional_id_pattern!r} is no regular expression of RE2, or too large",
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


async def describe_transaction(client: ClusterClient, transactional_id: str) -> dict[str, Any]:
    """A transactional id's producer, and the partitions of its transaction. Raises AdminError for one that nobody knows, KafkaError,
    OSError."""
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
            {"topic": topic.topic, "partition": partition} for topic in state.topics for partition in topic.partitions
        ],
    }


async def abort_transaction(client: ClusterClient, transactional_id: str, *, timeout_s: float) -> None:
    """Take the id over as a new producer of it would: the coordinator fences the one that there is, and aborts what it has open.

    A prepared transaction keeps its id from new producers, and ends by an end with its own epoch. Raises AdminError for an id that
    nobody knows, TimeoutError while it is still being ended, KafkaError, OSError.
    """
    found = await describe_transaction(client, transactional_id)
    if found["state"] == PREPARED:
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=found["producer_id"],
            producer_epoch=found["producer_epoch"],
            committed=False,
        )
        ended = await client.call_coordinator(transactional_id, end, key_type=TRANSACTION_KEY_TYPE)
        if ended.error_code:
            raise KafkaError.of(
                known_code(ended.error_code), f"aborting the prepared transaction of {transactional_id}"
            )
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=found["timeout_ms"])
    deadline_s = time.monotonic() + timeout_s
    while True:
        taken = await client.call_coordinator(transactional_id, request, key_type=TRANSACTION_KEY_TYPE)
        if taken.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the transaction of {transactional_id} is still being ended")
        await asyncio.sleep(RETRY_S)
    if taken.error_code:
        raise KafkaError.of(known_code(taken.error_code), f"taking over {transactional_id}")
