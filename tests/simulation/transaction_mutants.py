"""Bugs planted into transactions: coordinator, markers, verification, last stable offset, aborted index, compaction, handlers of
requests.

May touch:  the real code, in memory, while one bug is hunted.     Must not touch: files, the simulation itself.
Invariants: each is hunted from random seeds with transactions, see node_mutants.py.
Read next:  node_mutants.py, which hunts them; transactions.py, whose laws they break.

Not among them, for another guard holds when theirs is gone, or these clients do not do what it takes:
- ListOffsets answers the HW to readers of committed data: none of these starts at the end.
- TxnOffsetCommit is not fenced by generation: copiers are no members. tests/broker/coordinator/test_transaction_offsets.py has it.
- A marker of an older coordinator epoch is taken: that of a deposed coordinator says what the new one says.
- A coordinator adds partitions that its metadata does not have: clean code did so in one of 173 seeds, where a link was cut while the
  topic was made. test_transactions.py has that seed, tests/broker/coordinator/test_transaction_service.py the rule.
- The aborted index is lost in truncation; markers go out before PREPARE is committed, or are not judged; pending offsets are not
  reported; compaction passes the LSO. Each takes a moment that none of 23 to 39 seeds met.
  tests/broker/coordinator, tests/log/test_transactions_in_a_log.py and tests/log/cleaner have each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from barnabas_broker.api import transactions
from barnabas_broker.api.registry import APIS, api_of
from barnabas_broker.security.access import OPEN_ACCESS
from barnabas_coordination import runtime
from barnabas_coordination.group.pending_offsets import PendingOffsets
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.runtime import CoordinatorRuntime
from barnabas_coordination.shard import Pending
from barnabas_coordination.transaction import state as rules
from barnabas_coordination.transaction.errors import ProducerFenced
from barnabas_coordination.transaction.markers import Markers
from barnabas_coordination.transaction.shard import TransactionShard
from barnabas_coordination.transaction.state import TransactionStatus
from barnabas_coordination.transaction.writes import TransactionalWrites
from barnabas_log.cleaner import rewrite, survival
from barnabas_log.tail import producer_snapshots
from barnabas_log.tail.aborted_transactions import AbortedTransactions
from barnabas_log.tail.producer_state import ProducerState
from barnabas_log.unified_log import UnifiedLog
from barnabas_replication.leader import reads
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, TopicPartition
from barnabas_wire.kafka.messages import ApiKey

Plant = Callable[[pytest.MonkeyPatch], None]


# ---- the coordinator -------------------------------------------------------------------------------------------------


def _marker_that_failed_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    def fail(self: Markers, due: Any, partition: Any) -> None:
        due.left.discard(partition)
        if not due.left:
            self._all_written.append(due)

    patch.setattr(Markers, "_fail", fail)


def _markers_go_to_a_part_of_the_partitions(patch: pytest.MonkeyPatch) -> None:
    original = Markers.add

    def add(self: Markers, ending: Any) -> None:
        some = frozenset(sorted(ending.state.partitions)[:1])
        original(self, ending)
        due = self._due[ending.transactional_id]
        due.left &= some
        for queue in self._queues.values():
            queue[:] = [item for item in queue if item.due is not due or item.partition in some]

    patch.setattr(Markers, "add", add)


def _complete_is_written_before_the_markers(patch: pytest.MonkeyPatch) -> None:
    original = Markers.add

    def add(self: Markers, ending: Any) -> None:
        original(self, ending)
        self._all_written.append(self._due[ending.transactional_id])

    patch.setattr(Markers, "add", add)


def _end_is_answered_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    original = CoordinatorRuntime._perform

    def perform(self: CoordinatorRuntime[Any], hosted: Any, result: Any) -> None:
        replies = list(result.replies)
        original(self, hosted, result)
        for reply in replies:
            self._answer(hosted, reply)

    patch.setattr(CoordinatorRuntime, "_perform", perform)


def _new_coordinator_forgets_prepare(patch: pytest.MonkeyPatch) -> None:
    original = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, *, now_ms: int) -> Any:
        on_ending, self._on_ending = self._on_ending, lambda ending: None
        result = original(self, now_ms=now_ms)
        self._on_ending = on_ending
        return result

    patch.setattr(TransactionShard, "on_loaded", on_loaded)


def _new_coordinator_aborts_what_was_prepared(patch: pytest.MonkeyPatch) -> None:
    original = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, *, now_ms: int) -> Any:
        for name, state in self.states.items():
            if state.status is TransactionStatus.PREPARE_COMMIT:
                self.states[name] = replace(state, status=TransactionStatus.PREPARE_ABORT)
        return original(self, now_ms=now_ms)

    patch.setattr(TransactionShard, "on_loaded", on_loaded)


def _epoch_stays_at_an_end(patch: pytest.MonkeyPatch) -> None:
    original = rules.end

    def end(state: Any, producer: Any, **rest: Any) -> Any:
        ending = original(state, producer, **rest)
        if ending.state is None:
            return ending
        return ending._replace(state=replace(ending.state, producer_epoch=producer.epoch), producer=producer)

    patch.setattr(rules, "end", end)


def _fence_leaves_the_epoch(patch: pytest.MonkeyPatch) -> None:
    original = rules.fence
    patch.setattr(
        rules,
        "fence",
        lambda state, **rest: replace(original(state, **rest), producer_epoch=state.producer_epoch),
    )


def _time_out_commits(patch: pytest.MonkeyPatch) -> None:
    original = rules.fence
    patch.setattr(
        rules,
        "fence",
        lambda state, **rest: replace(original(state, **rest), status=TransactionStatus.PREPARE_COMMIT),
    )


def _open_transactions_never_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules.TransactionState, "is_timed_out", lambda self, *, now_ms: False)


def _new_owner_leaves_the_open_transaction(patch: pytest.MonkeyPatch) -> None:
    original = rules.initialize

    def initialize(state: Any, *, now_ms: int, **rest: Any) -> Any:
        if state is not None and state.status is TransactionStatus.ONGOING:
            state = replace(state, status=TransactionStatus.EMPTY, partitions=frozenset())
        return original(state, now_ms=now_ms, **rest)

    patch.setattr(rules, "initialize", initialize)


def _new_owner_has_the_epoch_of_the_former(patch: pytest.MonkeyPatch) -> None:
    original = rules.initialize

    def initialize(state: Any, **rest: Any) -> Any:
        after = original(state, **rest)
        if state is None or after.status is not TransactionStatus.EMPTY:
            return after
        return replace(after, producer_epoch=state.producer_epoch)

    patch.setattr(rules, "initialize", initialize)


def _prepared_transactions_time_out(patch: pytest.MonkeyPatch) -> None:
    original = rules.fence
    patch.setattr(
        rules.TransactionState,
        "is_timed_out",
        lambda self, *, now_ms: self.status in rules.OPEN and self.start_ms + self.timeout_ms < now_ms,
    )
    patch.setattr(
        rules, "fence", lambda state, **rest: original(replace(state, status=TransactionStatus.ONGOING), **rest)
    )


def _new_owner_takes_what_is_prepared(patch: pytest.MonkeyPatch) -> None:
    original = rules.initialize

    def initialize(state: Any, **rest: Any) -> Any:
        if state is not None and state.status is TransactionStatus.PREPARED:
            state = replace(state, status=TransactionStatus.ONGOING)
        return original(state, **rest)

    patch.setattr(rules, "initialize", initialize)


def _new_coordinator_forgets_that_one_is_prepared(patch: pytest.MonkeyPatch) -> None:
    original = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, *, now_ms: int) -> Any:
        for name, state in self.states.items():
            if state.status is TransactionStatus.PREPARED:
                self.states[name] = replace(state, status=TransactionStatus.ONGOING)
        return original(self, now_ms=now_ms)

    patch.setattr(TransactionShard, "on_loaded", on_loaded)


def _former_owners_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_of", lambda state, producer: state)


# ---- verification ----------------------------------------------------------------------------------------------------


def _verification_is_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerState, "needs_verification", lambda self, producer_id, epoch: False)


def _open_transaction_of_another_epoch_counts_as_verified(patch: pytest.MonkeyPatch) -> None:
    original = ProducerState.needs_verification
    patch.setattr(
        ProducerState,
        "needs_verification",
        lambda self, producer_id, epoch: (
            producer_id not in self.open_transactions and original(self, producer_id, epoch)
        ),
    )


# ---- late coordinators -----------------------------------------------------------------------------------------------


def _abort_of_nothing_before_the_markers_is_fenced(patch: pytest.MonkeyPatch) -> None:
    original = rules.end

    def end(state: Any, producer: Any, **rest: Any) -> Any:
        if state is not None and state.status in rules.ENDING and producer == state.producer:
            raise ProducerFenced("it has nothing to end")
        return original(state, producer, **rest)

    patch.setattr(rules, "end", end)


def _marker_during_a_slow_question_refuses_the_batch(patch: pytest.MonkeyPatch) -> None:
    """The guard is taken before the question waits for its turn, which is repeated for a time that began with the first."""

    async def confirm(
        self: TransactionalWrites, transactional_id: str, writers: Any, unverified: Any, *, is_add: bool
    ) -> Any:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._config.add_partitions_retry_backoff_max_ms / 1000
        refused: dict[TopicPartition, ErrorCode] = {}
        left = list(unverified)
        while left:
            guards: dict[TopicPartition, Any] = {}
            producer = writers[left[0]]
            self._begin_verifications(guards, left, producer)
            codes = await self._verification.ask(transactional_id, producer, left, is_add=is_add)
            again = []
            for key, code in codes.items():
                if code == ErrorCode.NONE:
                    self._confirm_one(key, producer, guards)
                    if not self._needs_verification(key, producer):
                        continue
                    code = ErrorCode.INVALID_TXN_STATE
                elif not (is_add and code == ErrorCode.CONCURRENT_TRANSACTIONS):
                    refused[key] = ErrorCode(code)
                    continue
                if loop.time() >= until:
                    refused[key] = ErrorCode(code)
                else:
                    again.append(key)
            left = again
            if left:
                await asyncio.sleep(self._config.add_partitions_retry_backoff_ms / 1000)
        return refused

    patch.setattr(TransactionalWrites, "_confirm", confirm)


def _yes_counts_though_a_marker_came(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: ProducerState, producer_id: int, guard: Any) -> bool:
        self._guards[producer_id] = guard
        guard.is_confirmed = True
        return True

    patch.setattr(ProducerState, "confirm", confirm)


def _offsets_go_by_a_yes_however_old(patch: pytest.MonkeyPatch) -> None:
    """TxnOffsetCommit takes its guard when the answer is there, so that nothing can have made it void."""

    async def commit_offsets(
        self: TransactionalWrites, transactional_id: str, commit: Any, writer: Any, *, is_add: bool
    ) -> Any:
        self._groups.check_coordinates(commit.member.group_id)
        key, producer = TopicPartition(OFFSETS_TOPIC, 0), rules.Producer(*writer)
        codes = await self._verification.ask(transactional_id, producer, [key], is_add=is_add)
        if codes[key] != ErrorCode.NONE:
            raise KafkaError.of(ErrorCode(codes[key]), "not in the transaction")
        producers = self._producers_of(key)
        if producers is not None:
            producers.confirm(producer.producer_id, producers.begin_verification(*producer))
        return await self._groups.commit_in_transaction(commit, writer)

    patch.setattr(TransactionalWrites, "commit_offsets", commit_offsets)


# ---- what readers of committed data see ------------------------------------------------------------------------------


def _stable_offset_passes_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnifiedLog, "last_stable_offset", property(lambda self: self.high_watermark))


def _fetch_ignores_the_isolation_level(patch: pytest.MonkeyPatch) -> None:
    original = reads.fetch_from

    def fetch_from(partition: Any, spec: Any, request: Any, *args: Any, **rest: Any) -> Any:
        return original(partition, spec, request._replace(is_read_committed=False), *args, **rest)

    patch.setattr(reads, "fetch_from", fetch_from)


def _list_of_aborted_is_empty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedTransactions, "within", lambda self, start, end: [])


def _list_of_aborted_ends_early(patch: pytest.MonkeyPatch) -> None:
    original = AbortedTransactions.within
    patch.setattr(AbortedTransactions, "within", lambda self, start, end: original(self, start, end)[:1])


def _aborted_index_is_not_rebuilt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedTransactions, "correct", lambda self, start, found, bases: None)


def _aborted_index_is_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedTransactions, "write", lambda self: iter(()))
    patch.setattr(AbortedTransactions, "_content", lambda self, base, end: b"")  # else its note has it made again


def _snapshots_forget_open_transactions(patch: pytest.MonkeyPatch) -> None:
    original = producer_snapshots.decode_snapshot

    def decode(content: bytes, end_offset: Any) -> ProducerState:
        state = original(content, end_offset)
        state.open_transactions.clear()
        for entry in state:
            entry.transaction_start = NO_OFFSET
        return state

    patch.setattr(producer_snapshots, "decode_snapshot", decode)


# ---- offsets in transactions -----------------------------------------------------------------------------------------


def _pending_offsets_count_at_once(patch: pytest.MonkeyPatch) -> None:
    original = runtime._replayed

    def replayed(result: Any) -> list[Any]:
        return [each.record if isinstance(each, Pending) else each for each in original(result)]

    patch.setattr(runtime, "_replayed", replayed)


def _aborted_offsets_count(patch: pytest.MonkeyPatch) -> None:
    original = PendingOffsets.end
    patch.setattr(
        PendingOffsets, "end", lambda self, producer_id, *, is_commit: original(self, producer_id, is_commit=True)
    )


def _new_group_coordinator_forgets_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    original = CoordinatorRuntime._replay_last

    async def replay_last(self: CoordinatorRuntime[Any], hosted: Any, last: Any, open_transactions: Any) -> None:
        await original(self, hosted, last, {})

    patch.setattr(CoordinatorRuntime, "_replay_last", replay_last)


# ---- compaction ------------------------------------------------------------------------------------------------------


def _compaction_keeps_aborted_records(patch: pytest.MonkeyPatch) -> None:
    """They are taken for committed: the marker and the index entry go, and they stay."""
    patch.setattr(survival.Transactions, "pass_data", lambda self, header: False)


def _compaction_drops_markers_at_once(patch: pytest.MonkeyPatch) -> None:
    original = survival.survivor

    def survivor(batch: Any, header: Any, keys: Any, *rest: Any, **named: Any) -> Any:
        kept = original(batch, header, keys, *rest, **named)
        return None if header.is_control and header.base_offset <= keys.latest and not named["keeps_end"] else kept

    patch.setattr(rewrite, "survivor", survivor)


def _swap_forgets_the_aborted(patch: pytest.MonkeyPatch) -> None:
    original = AbortedTransactions.replace
    patch.setattr(AbortedTransactions, "replace", lambda self, start, end, entries: original(self, start, end, ()))


# ---- the handlers of the Kafka listener ------------------------------------------------------------------------------


def _end_swaps_commit_and_abort(patch: pytest.MonkeyPatch) -> None:
    def end(handler: Any, services: Any, context: Any, request: Any) -> Any:
        request.committed = not request.committed
        return handler(services, context, request)

    _handle(patch, ApiKey.END_TXN, end)


def _end_needs_no_right_to_the_id(patch: pytest.MonkeyPatch) -> None:
    def end(handler: Any, services: Any, context: Any, request: Any) -> Any:
        return handler(services, replace(context, access=OPEN_ACCESS), request)

    _handle(patch, ApiKey.END_TXN, end)


def _commit_of_offsets_adds_no_partition(patch: pytest.MonkeyPatch) -> None:
    api_of(ApiKey.TXN_OFFSET_COMMIT)
    patch.setattr(transactions, "COMMIT_ADDS_FROM", transactions.COMMIT_ADDS_FROM + 1)


def _handle(patch: pytest.MonkeyPatch, key: ApiKey, handle: Callable[..., Any]) -> None:
    """Have a request of clients answered by `handle`, which is given the real handler first."""
    api = api_of(key)
    assert api is not None
    patch.setitem(APIS, key, replace(api, handler=partial(handle, api.handler)))


TRANSACTION_BUGS: tuple[tuple[str, Plant], ...] = (
    ("txn: a marker that failed counts as written", _marker_that_failed_counts_as_written),
    ("txn: markers go to a part of the partitions", _markers_go_to_a_part_of_the_partitions),
    ("txn: Complete is written before the markers", _complete_is_written_before_the_markers),
    ("txn: an end is answered before it is committed", _end_is_answered_before_it_is_committed),
    ("txn: a new coordinator forgets PREPARE", _new_coordinator_forgets_prepare),
    ("txn: a new coordinator aborts what was prepared", _new_coordinator_aborts_what_was_prepared),
    ("txn: the epoch stays at an end (TV2)", _epoch_stays_at_an_end),
    ("txn: fencing leaves the epoch", _fence_leaves_the_epoch),
    ("txn: a time-out commits", _time_out_commits),
    ("txn: open transactions never time out", _open_transactions_never_time_out),
    ("txn: a new owner leaves the open transaction", _new_owner_leaves_the_open_transaction),
    ("txn: a new owner has the former's epoch", _new_owner_has_the_epoch_of_the_former),
    ("txn: former owners are not fenced", _former_owners_are_not_fenced),
    ("txn: prepared transactions time out", _prepared_transactions_time_out),
    ("txn: a new owner takes what is prepared", _new_owner_takes_what_is_prepared),
    ("txn: a new coordinator forgets one is prepared", _new_coordinator_forgets_that_one_is_prepared),
    ("txn: verification is skipped", _verification_is_skipped),
    ("txn: another epoch's batch counts as verified", _open_transaction_of_another_epoch_counts_as_verified),
    ("txn: the LSO passes open transactions", _stable_offset_passes_open_transactions),
    ("txn: Fetch ignores the isolation level", _fetch_ignores_the_isolation_level),
    ("txn: the list of aborted is empty", _list_of_aborted_is_empty),
    ("txn: the list of aborted ends early", _list_of_aborted_ends_early),
    ("txn: the aborted index is not rebuilt", _aborted_index_is_not_rebuilt),
    ("txn: the aborted index is not written", _aborted_index_is_not_written),
    ("txn: snapshots forget open transactions", _snapshots_forget_open_transactions),
    ("txn: pending offsets count at once", _pending_offsets_count_at_once),
    ("txn: aborted offsets count", _aborted_offsets_count),
    ("txn: a new group coordinator forgets pending", _new_group_coordinator_forgets_pending_offsets),
    ("txn: compaction keeps aborted records", _compaction_keeps_aborted_records),
    ("txn: compaction drops markers at once", _compaction_drops_markers_at_once),
    ("txn: a swap forgets the aborted", _swap_forgets_the_aborted),
)

COORDINATOR_BUGS: tuple[tuple[str, Plant, bool], ...] = (
    ("txn: an abort of nothing is fenced by the last end", _abort_of_nothing_before_the_markers_is_fenced, True),
    ("txn: a marker during a slow question is fatal", _marker_during_a_slow_question_refuses_the_batch, False),
    ("txn: a yes counts though a marker came", _yes_counts_though_a_marker_came, True),
    ("txn: offsets go by a yes however old", _offsets_go_by_a_yes_however_old, True),
)
"""Slant coordinators; each with whether `make test` looks for it too."""

HANDLER_BUGS: tuple[tuple[str, Plant], ...] = (
    ("txn: EndTxn's handler swaps commit and abort", _end_swaps_commit_and_abort),
    ("txn: EndTxn's handler asks for no right to the id", _end_needs_no_right_to_the_id),
    ("txn: TxnOffsetCommit's handler adds no partition", _commit_of_offsets_adds_no_partition),
)
"""Slant transactions, in those of its seeds whose clients come through the Kafka listener: past it, no handler is run."""
