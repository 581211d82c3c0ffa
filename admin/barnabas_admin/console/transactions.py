"""The transactions screens: transactional ids, what each has open, and the end of an open one.

May touch:  ConsoleCluster.           Must not touch: HTTP, templates.
Invariants: an id is aborted only when it was typed: its producer is fenced by that.
Read next:  ../transactions.py, which asks the coordinators.
"""

from __future__ import annotations

import time
from typing import Any

from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.errors import WrongUsage
from barnabas_admin.transactions import abort_transaction, describe_transaction, list_transactions
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest

STATES = ("Ongoing", "Prepared", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty")
OPEN_STATES = STATES[:4]
ABORT_TIMEOUT_S = 20.0


async def read_transactions(cluster: ConsoleCluster, *, state: str, contains: str) -> list[dict[str, Any]]:
    """The transactional ids in a state (empty: every), whose name contains a text."""
    if state and state not in STATES:
        raise WrongUsage(f"there is no state {state!r}: {', '.join(STATES)}")
    request = ListTransactionsRequest(state_filters=[state] if state else [], duration_filter=-1)
    rows = await cluster.kafka(lambda client: list_transactions(client, request))
    return [row for row in rows if contains in row["transactional_id"]]


async def read_transaction(cluster: ConsoleCluster, transactional_id: str) -> dict[str, Any]:
    """One transactional id, and for how long its transaction is open."""
    found = await cluster.kafka(lambda client: describe_transaction(client, transactional_id))
    start_ms = found["start_ms"]
    return found | {
        "is_open": found["state"] in OPEN_STATES,
        "open_for_ms": None if start_ms is None else max(0, int(time.time() * 1000) - start_ms),
    }


async def show_abort(cluster: ConsoleCluster, fields: Any) -> dict[str, Any]:
    """What would be aborted."""
    return await read_transaction(cluster, fields["id"])


async def abort(cluster: ConsoleCluster, fields: Any) -> str:
    """Fence the producer of an id, and abort what it has open."""
    transactional_id = fields["id"]
    if fields["typed"] != transactional_id:
        raise WrongUsage(
            f"nothing was aborted: type {transactional_id} to fence its producer and abort its transaction"
        )
    await cluster.kafka(lambda client: abort_transaction(client, transactional_id, timeout_s=ABORT_TIMEOUT_S))
    return "/transactions"
