"""Transactions seen as a whole: which transactional ids there are, by state, producer, age and pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas_wire.kafka.messages.init_producer_id import InitProducerIdRequest
from barnabas_wire.kafka.messages.list_transactions import ListTransactionsRequest
from tests.oracle.answers import Side
from tests.oracle.cases import case

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


@case()
def list_by_pattern(side: Side) -> Iterator[tuple[str, Any]]:
    for name in IDS:
        while side.call(InitProducerIdRequest(name, 60_000), version=5).error_code:
            pass  # its coordinator begins
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
