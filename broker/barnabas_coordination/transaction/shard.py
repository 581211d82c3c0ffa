"""The transactional ids of one `__transaction_state` partition: every request finds its id here, every record is replayed here.

May touch:  its arguments.            Must not touch: asyncio, clock, randomness, log, network.
Invariants: `replay` of the log from its start gives the state that live steps gave; markers are asked for only once PREPARE is
            committed, and COMPLETE is written only when they are all there.
Read next:  state.py (the rules), ../runtime.py (who performs the results), markers.py (who sends).

Not obvious: a change is replayed when it is appended and answered when it is committed. Where Kafka refuses a request with
CONCURRENT_TRANSACTIONS because the one before is still being written, this decides it at once and answers after both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final, NamedTuple

from barnabas_coordination.shard import CoordinatorResult, Ticket
from barnabas_coordination.transaction import records as codec
from barnabas_coordination.transaction import state as rules
from barnabas_coordination.transaction.config import TransactionCoordinatorConfig
from barnabas_coordination.transaction.errors import ConcurrentTransactions, TransactionalIdNotFound
from barnabas_coordination.transaction.records import TransactionRecord
from barnabas_coordination.transaction.state import (
    ENDING,
    LEGAL,
    Producer,
    TransactionState,
    TransactionStatus,
)
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition

TIME_OUTS: Final = "transaction time-outs"
"""Key of the timer that looks for transactions that are open too long."""
EXPIRY: Final = "transactional id expiry"
"""Key of the timer that looks for transactional ids that are not used any more."""
EXPIRY_BATCH_RECORDS_MAX: Final = 5_000
"""Most tombstones of one look for expired ids; the rest follows at once."""
ABORT_BATCH_RECORDS_MAX: Final = 200
"""Most aborts of one look for time-outs, each with all its partitions; the rest follows at once."""
EXPIRY_CONTINUE_MS: Final = 100


class Ending(NamedTuple):
    """A transaction whose end is committed to the log, and whose markers are due."""

    transactional_id: str
    state: TransactionState


class TransactionShard:
    """State of one partition of `__transaction_state`. Meets CoordinatorShard."""

    def __init__(
        self,
        config: TransactionCoordinatorConfig,
        *,
        server_version: Callable[[], int],
        on_ending: Callable[[Ending], None],
        may_judge_age: Callable[[], bool] = lambda: True,
    ) -> None:
        """server_version: the cluster's transaction.version. on_ending: has markers written, and calls `complete` after all.
        may_judge_age: whether the broker's clock may be believed now, so that old transactional ids may go."""
        self._config = config
        self._server_version = server_version
        self._on_ending = on_ending
        self._may_judge_age = may_judge_age
        self._is_loaded = False
        self.states: dict[str, TransactionState] = {}
        """As of the newest record, committed or not."""
        self.committed: dict[str, TransactionState] = {}
        """As of the newest committed record: what others may see."""

    # ---- requests ------------------------------------------------------------------------------------------------

    def initialize(
        self,
        transactional_id: str,
        ticket: Ticket,
        *,
        timeout_ms: int,
        expected: Producer | None,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> CoordinatorResult:
        """InitProducerId; the reply is a Producer. An open transaction is aborted, and the reply then CONCURRENT_TRANSACTIONS.

        Raises as state.initialize.
        """
        after = rules.initialize(
            self.states.get(transactional_id),
            timeout_ms=timeout_ms,
            expected=expected,
            fresh_producer_id=fresh_producer_id,
            server_version=self._server_version(),
            now_ms=now_ms,
        )
        result = CoordinatorResult(records=[TransactionRecord(transactional_id, after)])
        if after.status in ENDING:
            result.reply(ticket, ConcurrentTransactions("the open transaction is aborted first; try again"))
        else:
            result.reply(ticket, after.producer)
        return result

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
        *,
        client_version: int,
        now_ms: int,
    ) -> CoordinatorResult:
        """AddPartitionsToTxn and AddOffsetsToTxn; the reply is None. Raises as state.add_partitions."""
        after = rules.add_partitions(
            self.states.get(transactional_id), producer, partitions, client_version=client_version, now_ms=now_ms
        )
        result = CoordinatorResult()
        if after is not None:
            result.records.append(TransactionRecord(transactional_id, after))
        result.reply(ticket, None)
        return result

    def verify_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
    ) -> CoordinatorResult:
        """AddPartitionsToTxn that only asks; the reply is an ErrorCode by partition. Raises as state.verify_partitions."""
        result = CoordinatorResult()
        result.reply(ticket, rules.verify_partitions(self.states.get(transactional_id), producer, partitions))
        return result

    def prepare(self, transactional_id: str, producer: Producer, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """PrepareTxn; the reply is None, once the state is committed. Raises as state.prepare."""
        after = rules.prepare(self.states.get(transactional_id), producer, now_ms=now_ms)
        result = CoordinatorResult()
        if after is not None:
            result.records.append(TransactionRecord(transactional_id, after))
        result.reply(ticket, None)
        return result

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        ticket: Ticket,
        *,
        is_commit: bool,
        client_version: int,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> CoordinatorResult:
        """EndTxn; the reply is the Producer to continue as, once the decision is committed. Raises as state.end."""
        ending = rules.end(
            self.states.get(transactional_id),
            producer,
            is_commit=is_commit,
            client_version=client_version,
            fresh_producer_id=fresh_producer_id,
            now_ms=now_ms,
        )
        result = CoordinatorResult()
        if ending.state is not None:
            result.records.append(TransactionRecord(transactional_id, ending.state))
        result.reply(ticket, ending.producer)
        return result

    def complete(self, ending: Ending, ticket: Ticket, *, now_ms: int) -> CoordinatorResult:
        """Every marker of an ending is written; the reply is None. Nothing happens if the id has moved on since."""
        result = CoordinatorResult()
        result.reply(ticket, None)
        state = self.states.get(ending.transactional_id)
        if state is not None and state == ending.state:
            result.records.append(TransactionRecord(ending.transactional_id, rules.complete(state, now_ms=now_ms)))
        return result

    def describe(self, transactional_id: str) -> TransactionState:
        """What is committed of one transactional id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        state = self.committed.get(transactional_id)
        if state is None:
            raise TransactionalIdNotFound(f"there is no transactional id {transactional_id} here")
        return state

    # ---- time ----------------------------------------------------------------------------------------------------

    def on_loaded(self, *, now_ms: int) -> CoordinatorResult:
        """Continue every end that was decided, and begin to look at the clock."""
        self._is_loaded = True
        for transactional_id, state in self.states.items():
            if state.status in ENDING:
                self._on_ending(Ending(transactional_id, state))
        result = CoordinatorResult()
        result.arm(TIME_OUTS, self._config.abort_timed_out_interval_ms)
        result.arm(EXPIRY, self._config.remove_expired_interval_ms)
        return result

    def on_timer(self, key: Hashable, *, now_ms: int) -> CoordinatorResult:
        """Look for transactions to abort, or for transactional ids to forget."""
        if key == TIME_OUTS:
            return self._abort_timed_out(now_ms)
        assert key == EXPIRY, key
        return self._forget_expired(now_ms)

    def _abort_timed_out(self, now_ms: int) -> CoordinatorResult:
        result = CoordinatorResult()
        delay_ms = self._config.abort_timed_out_interval_ms
        for transactional_id, state in self.states.items():
            if len(result.records) == ABORT_BATCH_RECORDS_MAX:
                delay_ms = EXPIRY_CONTINUE_MS
                break
            if state.is_timed_out(now_ms=now_ms):
                fenced = rules.fence(state, server_version=self._server_version(), now_ms=now_ms)
                result.records.append(TransactionRecord(transactional_id, fenced))
        result.arm(TIME_OUTS, delay_ms)
        return result

    def _forget_expired(self, now_ms: int) -> CoordinatorResult:
        result = CoordinatorResult()
        expiration_ms = self._config.transactional_id_expiration_ms
        delay_ms = self._config.remove_expired_interval_ms
        for transactional_id, state in self.states.items():
            if len(result.records) == EXPIRY_BATCH_RECORDS_MAX:
                delay_ms = EXPIRY_CONTINUE_MS
                break
            if self._may_judge_age() and state.is_expired(now_ms=now_ms, expiration_ms=expiration_ms):
                result.records.append(TransactionRecord(transactional_id, None))
        result.arm(EXPIRY, delay_ms)
        return result

    # ---- replay --------------------------------------------------------------------------------------------------

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """Typed record -> key and value, in the version that the cluster's transaction.version allows."""
        return codec.encode(record, value_version=min(self._server_version(), codec.FLEXIBLE_VALUE))

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """Key and value -> typed record."""
        return codec.decode(key, value)

    def replay(self, record: TransactionRecord) -> None:
        """Change state by one record."""
        transactional_id, state = record
        if state is None:
            before = self.states.pop(transactional_id, None)
            assert before is None or before.status in LEGAL[TransactionStatus.DEAD], (
                f"{transactional_id} was forgotten in {before}"
            )
        else:
            self.states[transactional_id] = state

    def on_refused(self, result: CoordinatorResult, error: KafkaError) -> CoordinatorResult:
        """Records could not be appended: nothing has changed."""
        return result.refused(error)

    def on_committed(self, record: TransactionRecord) -> None:
        """The record is below the high watermark: it may be seen, and a decided end goes out."""
        transactional_id, state = record
        if state is None:
            self.committed.pop(transactional_id, None)
            return
        self.committed[transactional_id] = state
        if state.status in ENDING and self._is_loaded:
            self._on_ending(Ending(transactional_id, state))
