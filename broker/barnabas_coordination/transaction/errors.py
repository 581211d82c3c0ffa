"""What the transaction coordinator can refuse, each with its code.

May touch:  nothing.                  Must not touch: everything.
Invariants: one class, one code.
Read next:  state.py, which raises most of them.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class InvalidProducerIdMapping(KafkaError):
    """The transactional id is not known, or has another producer id: it expired and was taken again."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ProducerFenced(KafkaError):
    """A newer producer has the transactional id, or the transaction was aborted for its time-out."""

    code = ErrorCode.PRODUCER_FENCED


class ConcurrentTransactions(KafkaError):
    """The last transaction is decided and not all of its markers are written yet: the client tries again."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS
    retriable = True


class InvalidTransactionState(KafkaError):
    """The request does not fit the state of the transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeout(KafkaError):
    """transaction.timeout.ms is not between 1 and transaction.max.timeout.ms."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionalIdNotFound(KafkaError):
    """There is no such transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
