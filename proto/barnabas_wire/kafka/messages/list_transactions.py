"""ListTransactions (key 66): the transactional ids that a broker coordinates (KIP-664)."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, array, int16, int32, int64, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class ListTransactionsRequest(Message):
    """Ask for transactional ids that pass every filter: v1 filters by duration (KIP-994), v2 by name (KIP-1152)."""

    API_KEY = ApiKey.LIST_TRANSACTIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    # empty: any
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)  # ms a transaction has been open for at least; negative: any
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)  # RE2 syntax; null or "": any


@dataclass(slots=True)
class TransactionState:
    """One transactional id, and how it stands."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@dataclass(slots=True)
class ListTransactionsResponse(Message):
    """The transactional ids found. INVALID_REGULAR_EXPRESSION may occur from v2 on."""

    API_KEY = ApiKey.LIST_TRANSACTIONS
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 2, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)  # states asked for that there are not
    transaction_states: list[TransactionState] = array(TransactionState)
