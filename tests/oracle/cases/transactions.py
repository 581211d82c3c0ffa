"""Transactions seen as a whole: which transactional ids there are, by state, producer, age and pattern."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest
from tests.oracle.answers import Side
from tests.oracle.cases import case

TRANSACTION = 1
BEGINS_WITHIN_S = 60.0
IDS = ("orders-1", "orders-22", "bills-1", "bills.1")
PATTERNS = {
    "none": None,
    "empty": "",
    "whole": "orders-1",
    "part": "orders",
    "prefix": "orders-.*",
    "alternatives": "orders-1|bills.1",
    "escaped": r"bills\.1",
    "class": r"\w+-\d",
    "case": "(?i)ORDERS-.*",
    "nothing": "x",
    "open group": "(",
    "open class": "[",
    "bare star": "*",
    "too often": "a{1001}",
    "back-reference": r"(a)\1",
    "look-ahead": "(?=a)",
    "range": "[b-a]",
}


def begin(side: Side, name: str) -> None:
    """Make the transactional id known; its coordinator, which the question for it brings about, may take a while to begin."""
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while True:
        found = side.call(FindCoordinatorRequest(coordinator_keys=[name], key_type=TRANSACTION), version=4)
        if not found.coordinators[0].error_code:
            answer = side.call(InitProducerIdRequest(name, 60_000), version=5)
            if not answer.error_code:
                return
        assert time.monotonic() < deadline, f"{name}: no coordinator"
        time.sleep(0.05)


@case()
def list_by_pattern(side: Side) -> Iterator[tuple[str, Any]]:
    for name in IDS:
        begin(side, name)
    for label, pattern in PATTERNS.items():
        answer = side.call(ListTransactionsRequest(transactional_id_pattern=pattern), version=2)
        found = sorted(each.transactional_id for each in answer.transaction_states if each.transactional_id in IDS)
        yield label, (answer.error_code, found, answer.unknown_state_filters)
    both = ListTransactionsRequest(state_filters=["Ongoing", "Unheard"], transactional_id_pattern="orders-.*")
    answer = side.call(both, version=2)
    yield "with a state", (answer.error_code, len(answer.transaction_states), answer.unknown_state_filters)
    both.transactional_id_pattern = "("
    answer = side.call(both, version=2)
    yield "with an unknown state and no pattern", (answer.error_code, answer.unknown_state_filters)
