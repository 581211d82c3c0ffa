"""Why readers of committed data do not get further in a partition: what is open there, whose it is, and what ends it.

May touch:  barnabas_wire.client.     Must not touch: printing, the admin service.
Invariants: nothing is said of a partition in which nothing is open.
Read next:  hanging_transactions.py; commands/explain.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas_admin.hanging_transactions import OpenTransaction, open_transactions
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST, known_code
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest

SHOWN_MAX = 5
"""Open transactions of a partition that are named: the first of them is what readers wait for."""


OPEN_STATES = ("Ongoing", "Prepared", "PrepareCommit", "PrepareAbort")
"""The states of a transactional id whose transaction its coordinator will end, or a known client decides on."""


class Owner(NamedTuple):
    """The owner of a producer id, as its coordinator lists it."""

    transactional_id: str
    state: str


class StableOffset(NamedTuple):
    """What is to be said: facts, and steps (purpose, command)."""

    facts: list[str]
    steps: list[tuple[str, str]]


def describe(
    partition: TopicPartition,
    *,
    high_watermark: int,
    last_stable_offset: int,
    found: Sequence[OpenTransaction],
    owners: Mapping[int, Owner],
    now_ms: int,
) -> StableOffset:
    """In words. found: what is open, the first of it first."""
    facts = [
        f"readers of committed data stand at offset {last_stable_offset}, {high_watermark - last_stable_offset} records behind "
        f"the high watermark {high_watermark}"
    ]
    steps: list[tuple[str, str]] = []
    for each in found[:SHOWN_MAX]:
        owner = owners.get(each.producer_id)
        whose = (
            "of no transactional id that a coordinator knows"
            if owner is None
            else f"of {owner.transactional_id!r}, which is {owner.state}"
        )
        quiet_s = max(0, now_ms - each.last_timestamp_ms) / 1000
        facts.append(
            f"open since offset {each.start_offset}: producer {each.producer_id}, epoch {each.producer_epoch}, {whose}; its last "
            f"record here is {quiet_s:.0f} s old"
        )
        if owner is None or owner.state not in OPEN_STATES:
            place = f"-t {partition.topic} -p {partition.partition} --start-offset {each.start_offset}"
            steps.append(
                ("see whether it hangs, then end it", f"barnabas txn find-hanging; barnabas txn abort {place}")
            )
        else:
            steps.append(
                ("see what its transaction waits for", f"barnabas txn describe {shlex.quote(owner.transactional_id)}")
            )
            if owner.state == "Prepared":  # no time-out ends it
                steps.append(
                    (
                        "if whoever decides on it (a Spark driver) will never run again, end it: its records are lost",
                        f"barnabas txn abort {shlex.quote(owner.transactional_id)}",
                    )
                )
    if len(found) > SHOWN_MAX:
        facts.append(f"{len(found) - SHOWN_MAX} more are open")
    return StableOffset(facts, steps)


async def explain(client: ClusterClient, partition: TopicPartition, *, now_ms: int) -> StableOffset | None:
    """Ask the partition's leader and the coordinators; None where nothing is open. Raises KafkaError, OSError, TimeoutError."""
    view = await client.metadata([partition.topic])
    found = sorted(await open_transactions(client, [partition], view), key=lambda each: each.start_offset)
    if not found:
        return None
    ends = [
        (await client.list_offsets({partition: LATEST}, is_read_committed=is_read_committed))[partition].offset
        for is_read_committed in (True, False)
    ]
    owners: dict[int, Owner] = {}
    request = ListTransactionsRequest(producer_id_filters=sorted({each.producer_id for each in found}))
    for broker_id in sorted(view.brokers):
        answer = await client.call(request, broker_id=broker_id)
        if answer.error_code:
            raise KafkaError.of(known_code(answer.error_code), f"listing the transactions of broker {broker_id}")
        for entry in answer.transaction_states:
            owners[entry.producer_id] = Owner(entry.transactional_id, entry.transaction_state)
    return describe(
        partition,
        high_watermark=ends[1],
        last_stable_offset=ends[0],
        found=found,
        owners=owners,
        now_ms=now_ms,
    )
