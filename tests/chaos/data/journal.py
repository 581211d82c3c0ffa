"""What one transactional producer did, written so that whoever kills it leaves a true history.

May touch:  the history's file.       Must not touch: the cluster.
Invariants: a transaction is in the file before its first record is sent, and again before its end is asked for.
Read next:  tests/checker/transaction_events.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tests.checker.data_history import FAIL, INFO, OK, UNKNOWN_OFFSET, HistoryWriter
from tests.checker.transaction_events import Taken, Transaction, Written


class Journal:
    """Of one transactional id, through all its owners in this process."""

    def __init__(self, history: HistoryWriter, transactional_id: str, *, group: str = "") -> None:
        self.transactional_id = transactional_id
        self.number = 0
        """Of the transaction that is open, or was the last."""
        self._history = history
        self._group = group
        self._owner = 0
        self._sequences: Counter[str] = Counter()
        self._open: Transaction | None = None
        self._is_commit = False

    def take(self, owner: int) -> None:
        """The transactional id is this owner's from now on."""
        self._owner, self.number = owner, 0
        self._sequences.clear()
        self._open = None
        self._history.write(Taken(transactional_id=self.transactional_id, owner=owner, at=time.monotonic()))
        self._history.flush()

    @property
    def tag(self) -> str:
        """A word that no other transaction has."""
        return f"{self.transactional_id}.{self._owner}.{self.number + (self._open is None)}"

    def begin(
        self,
        values: list[tuple[str, str]],
        *,
        consumed: list[str] | None = None,
        source: list[str] | None = None,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        """A transaction will write these values, as (key, value)."""
        self.number += 1
        writes = []
        for key, value in values:
            writes.append(Written(key, value, self._sequences[key], UNKNOWN_OFFSET))
            self._sequences[key] += 1
        self._open = Transaction(
            transactional_id=self.transactional_id,
            owner=self._owner,
            number=self.number,
            writes=writes,
            begun=time.monotonic(),
            outcome=FAIL,
            consumed=consumed or [],
            source=source or [],
            offsets=offsets or {},
            group=self._group,
        )
        self._write()

    def open(self) -> None:
        """Its first record is acknowledged."""
        assert self._open is not None
        self._open = replace(self._open, opened=min(self._open.opened, time.monotonic()))

    def ask(self, *, is_commit: bool) -> None:
        """Its end is asked for now. An abort after a commit that was refused leaves open which of both it was."""
        assert self._open is not None
        self._is_commit = is_commit
        outcome = INFO if is_commit else self._open.outcome
        self._open = replace(self._open, asked=min(self._open.asked, time.monotonic()), outcome=outcome)
        self._write()

    def end(self, offsets: Mapping[str, int] | None = None, error: str = "") -> None:
        """What was asked for is done. offsets: value -> where it was written, as acknowledged."""
        assert self._open is not None
        writes = [
            written._replace(offset=(offsets or {}).get(written.value, written.offset)) for written in self._open.writes
        ]
        outcome = OK if self._is_commit else self._open.outcome
        self._open = replace(self._open, ended=time.monotonic(), outcome=outcome, writes=writes, error=error)
        self._write()
        self._open = None

    def give_up(self, error: str) -> None:
        """Nobody will hear how it ended."""
        if self._open is not None:
            self._open = replace(self._open, ended=time.monotonic(), error=error)
            self._write()
            self._open = None

    def _write(self) -> None:
        assert self._open is not None
        self._history.write(self._open)
        self._history.flush()
