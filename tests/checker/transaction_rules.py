"""The laws of transactions as real clients see them, one pure function each: what the model promises, judged in a history.

May touch:  its arguments.            Must not touch: files, clusters, clocks.
Invariants: those of data_rules.py; nothing is judged before the last reader has read, for until then a commit may be on its way.
Read next:  transaction_model.py, which says what is promised; data_rules.py, whose table holds these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from barnabas_simulation import transaction_model as model
from tests.checker.data_history import FAIL, FINAL, INFO, OK, UNKNOWN_OFFSET, History
from tests.checker.transaction_events import Held, Transaction

_OUTCOMES = {OK: model.Outcome.COMMITTED, FAIL: model.Outcome.ABORTED, INFO: model.Outcome.UNKNOWN}
_NAMED_MAX = 5


def copies_of_uncommitted(history: History) -> Iterator[str]:
    """E4c: a reader of committed data made a transaction from a value whose own transaction was certainly not committed."""
    failed = {
        written.value: transaction
        for transaction in history.transactions
        if transaction.outcome == FAIL
        for written in transaction.writes
    }
    for transaction in history.transactions:
        for value in transaction.consumed:
            if value in failed:
                yield f"{transaction.name} was made from {value}, and {failed[value].name} was not committed"


def precommitted_reads(history: History) -> Iterator[str]:
    """E5: a reader of committed data was shown a value before anybody had asked for the end of its transaction."""
    asked = {
        (written.key, written.value): transaction
        for transaction in history.transactions
        for written in transaction.writes
    }
    for poll in history.polls:
        for key, records in poll.records.items():
            for offset, value in records:
                transaction = asked.get((key, value))
                if transaction is not None and poll.ended < transaction.asked:
                    yield f"{poll.client} read {value} at {key} {offset} before the end of {transaction.name} was asked for"


def torn_transactions(history: History) -> Iterator[str]:
    """E8: in the end, some values of a transaction are read and others are not."""
    return _judged(history, "E8")


def offsets_apart(history: History) -> Iterator[str]:
    """E9: a group stands elsewhere than what its visible transactions consumed."""
    return _judged(history, "E9")


def circular_transactions(history: History) -> Iterator[str]:
    """E11: a transaction is made from what, in the end, was made from it."""
    return _judged(history, "E11")


def fenced_transactions(history: History) -> Iterator[str]:
    """E15: what a producer ended after a later one had taken its transactional id is read."""
    return _judged(history, "E15")


def late_ends(history: History) -> Iterator[tuple[Held, Transaction]]:
    """Each EndTxn that came to its broker while a later transaction of its transactional id was certainly open, with that one."""
    for held in history.held:
        for transaction in history.transactions:
            if (
                transaction.transactional_id == held.transactional_id
                and transaction.begun > held.came
                and transaction.opened < held.went < transaction.asked
            ):
                yield held, transaction


def accepted_late_ends(history: History) -> Iterator[str]:
    """E15l: an EndTxn that came in a later transaction was not refused: it ended what it did not mean."""
    for held, transaction in late_ends(history):
        if held.answer == 0:
            verb = "commit" if held.is_commit else "abort"
            yield f"a {verb} that was held back for {held.went - held.came:.1f} s came in {transaction.name}, and was accepted"


def inexact_copies(history: History) -> Iterator[str]:
    """E9c: in the end, the copies of a source partition are not each of its values once and in their order, or not all of them."""
    made_from = {
        (written.key, written.value): (source, value)
        for transaction in history.transactions
        for written, source, value in zip(transaction.writes, transaction.source, transaction.consumed, strict=False)
    }
    copied: dict[str, list[str]] = defaultdict(list)
    for key, records in history.final.items():
        for _, value in records:
            source = made_from.get((key, value))
            if source is not None:
                copied[source[0]].append(source[1])
    for key in sorted({source for transaction in history.transactions for source in transaction.source if source}):
        wanted = [value for _, value in history.final.get(key, ())]
        found = copied[key]
        if found == wanted:
            continue
        lost = sorted(set(wanted) - set(found))
        seen: set[str] = set()
        twice = [value for value in found if value in seen or seen.add(value)]  # type: ignore[func-returns-value]
        moved = (
            [value for value, due in zip(found, wanted, strict=False) if value != due] if not (lost or twice) else []
        )
        yield (
            f"{key} has {len(wanted)} values and {len(found)} copies: lost {lost[:_NAMED_MAX]} of {len(lost)}, "
            f"twice {twice[:_NAMED_MAX]} of {len(twice)}, elsewhere {moved[:_NAMED_MAX]}"
        )


def _judged(history: History, law: str) -> Iterator[str]:
    """What the model's laws say of what was read in the end."""
    if not history.transactions or not any(poll.how == FINAL for poll in history.polls):
        return
    yield from (violation.what for violation in model.judge(_as_the_model_sees_it(history)) if violation.law == law)


def _as_the_model_sees_it(history: History) -> model.TransactionHistory:
    offsets: dict[str, int] = {}
    groups = {transaction.group for transaction in history.transactions}
    for answer in history.committed:  # by their begin: the last answer stands
        if answer.group in groups and answer.offset != UNKNOWN_OFFSET:
            offsets[answer.key] = answer.offset
    return model.TransactionHistory(
        transactions=[
            model.Transaction(
                transactional_id=each.transactional_id,
                owner=each.owner,
                writes=tuple(model.Write(written.key, written.value) for written in each.writes),
                consumed=tuple(each.consumed),
                offsets=each.offsets,
                outcome=_OUTCOMES[each.outcome],
                ended_at=each.asked,
            )
            for each in history.transactions
        ],
        taken_at={(taken.transactional_id, taken.owner): taken.at for taken in history.takings},
        read={key: [value for _, value in history.final.get(key, ())] for key in history.transacted},
        offsets=offsets,
    )
