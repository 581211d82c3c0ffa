"""The audit log: refusals, logins and changes, each with its principal. JSON lines, only ever appended.

May touch:  its files, its own thread.     Must not touch: decisions; nothing waits for it.
Invariants: `note` never blocks and never raises; a change is written, or said in the node's own log, whatever others do: no denial and no
            login takes its room, on the way or on disk; what is not written is counted and said in the next line of its kind; each kind
            of line has two files of audit.log.max.bytes at most; no secret gets into a line; the files are their owner's alone.
Read next:  audit_budget.py (how many denials and logins), audit_files.py; audited_changes.py (a change with before and after); access.py
            and controller/guard.py, which report denials.

Not obvious:
- An attacker chooses what the log is full of. So each kind has its own files, texts of clients are cut, and what one
  source does again and again is summed up.
- A change that the disk does not take is not refused: a full disk is mended by changes (a topic deleted, a right taken from who fills
  it), and who may write to one topic could else stop the operator. It waits for the disk within CHANGES_BYTES_MAX, and what has no room
  there goes as a whole line to the node's own log, the one other place that an operator keeps.
- A commit from outside of a group's membership may be an operator's reset or a reader that keeps its own assignment: the wire does not
  say which. They are `offsets`, under a budget like logins, for a reader that commits every second would else be the only one heard.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple

from barnabas_broker.config.log_output import WHOLE
from barnabas_broker.security.audit_budget import WINDOW_MS, AuditBudget, Source
from barnabas_broker.security.audit_config import AuditConfig, AuditStats
from barnabas_broker.security.audit_files import AuditFile
from barnabas_broker.security.audited_changes import RECORDS_MAX, describe
from barnabas_broker.security.listener_security import has_secret
from barnabas_quorum.image.authorizer import Verdict
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.rights import Right
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.records import Record
from barnabas_wire.kafka.errors import KafkaError

logger = logging.getLogger(__name__)


class Kind(Enum):
    """The kind of a line; each has its own files."""

    CHANGE = "change"
    """Changes of the metadata, the voters, log levels."""
    DATA_CHANGE = "data-change"
    """Records, groups and offsets that were deleted. Apart from the others: a client that may delete records of one
    topic can do it all day."""
    OFFSETS = "offsets"
    """Commits from outside of a group's membership."""
    DENIED = "denied"
    LOGIN = "login"
    LOGIN_REFUSED = "login-refused"

    @property
    def suffix(self) -> str:
        """What its file has after audit.log.path."""
        return "" if self is Kind.CHANGE else f".{self.value}"

    @property
    def is_kept(self) -> bool:
        """Whether a line is never dropped."""
        return self in (Kind.CHANGE, Kind.DATA_CHANGE)


DROPPED: Final = "dropped"
"""A line that says how many of its file's kind were lost."""
WAITING_MAX: Final = 10_000
"""Lines of one kind that may be dropped and wait to be written; about 5 MB. More are dropped and counted."""
CHANGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most bytes of lines of one kind that wait for the disk and are never dropped."""
TEXT_MAX: Final = 512
"""Characters of a text that a client chose; names of topics have 249 at most."""
CHANGE_TEXT_MAX: Final = 4096
"""Characters of a value in a change: a principal with that right may set a long list."""
RETRY_S: Final = 1.0
"""The time between two tries to write what the disk did not take."""
_TICK_S: Final = WINDOW_MS / 1000 / 4


class _Waiting(NamedTuple):
    kind: Kind
    entry: dict[str, Any] | bytes
    """Bytes: of a kind that is kept, whose memory is counted."""


_NOTHING: Final = _Waiting(Kind.DENIED, {})
"""The queue had nothing for a while."""


class AuditLog:
    """The audit log of one node. `note` may be called from every lane."""

    def __init__(self, config: AuditConfig, *, node_id: int, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` is wall time. Writes nothing before `start`."""
        self._config = config
        self._node_id = node_id
        self._clock_ms = clock_ms
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Guards everything that follows, but what the writer's thread alone has. Never held over a write."""
        self._counts: Counter[Kind] = Counter()
        """Lines that wait, by kind."""
        self._kept_bytes: Counter[Kind] = Counter()
        self._budgets = {kind: AuditBudget() for kind in Kind if not kind.is_kept}
        self._unsaid: Counter[Kind] = Counter()
        self.stats = AuditStats()

    @property
    def is_on(self) -> bool:
        """Whether there is a file to write to."""
        return bool(self._config.audit_log_path)

    def start(self) -> None:
        """Open the files, or begin them. Raises OSError when one cannot be written."""
        if self.is_on and self._thread is None:
            path, bytes_max = self._config.audit_log_path, self._config.audit_log_max_bytes
            files = {kind: AuditFile(path + kind.suffix, bytes_max) for kind in Kind}
            writer = _Writer(self, files)
            self._thread = threading.Thread(target=writer.run, name="audit-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def note(self, kind: Kind, principal: str, host: str, **facts: Any) -> None:
        """Have one line written, some time."""
        if self._thread is None:
            return
        if kind.is_kept:
            entry = self._entry(kind, principal=principal, host=host, **_cut(facts, CHANGE_TEXT_MAX))
            self._put_kept(kind, _line(entry))
            return
        principal = _cut(principal, TEXT_MAX)
        with self._lock:
            if not self._budgets[kind].admits(Source(principal, host), self._clock_ms()):
                return
            if self._counts[kind] >= WAITING_MAX:
                self.stats.dropped += 1
                self._unsaid[kind] += 1
                return
            self._counts[kind] += 1
        entry = self._entry(kind, principal=principal, host=host, **_cut(facts, TEXT_MAX))
        self._queue.put(_Waiting(kind, entry))

    def denied(self, principal: str, host: str, right: Right, name: str, verdict: Verdict) -> None:
        """Somebody was refused something."""
        self.note(
            Kind.DENIED,
            principal,
            host,
            operation=right.operation.name,
            resource_type=right.resource_type.name,
            resource=name,
            rule=verdict.rule,
        )

    def logged_in(self, principal: str, host: str, *, listener: str, how: str) -> None:
        """A client has authenticated. `how`: the mechanism, or `certificate`."""
        self.note(Kind.LOGIN, principal, host, listener=listener, how=how)

    def login_refused(self, host: str, *, user: str, listener: str, how: str, reason: str) -> None:
        """A login was refused. `user`: the name that the client gave, unchecked; "" where it did not say."""
        # Counted by the address alone: the name is the client's to choose.
        self.note(Kind.LOGIN_REFUSED, "", host, user=user, listener=listener, how=how, reason=reason)

    def changed(
        self,
        principal: str,
        host: str,
        request: str,
        before: MetadataImage,
        records: Sequence[Record],
        error: KafkaError | None,
    ) -> None:
        """A change of the metadata was committed; or, with an error, that is not known."""
        if self._thread is not None:
            self.note(
                Kind.CHANGE,
                principal,
                host,
                request=request,
                outcome="committed" if error is None else f"unknown: {error.message}",
                changes=describe(before, records, has_secret=has_secret),
            )

    def voters_changed(
        self, principal: str, host: str, change: VoterChange, before: VoterSet, after: VoterSet, unknown: str
    ) -> None:
        """The quorum's voters were changed; or, with `unknown` for a reason, that is not known."""
        self.note(
            Kind.CHANGE,
            principal,
            host,
            request="ChangeVoters",
            outcome=f"unknown: {unknown}" if unknown else "committed",
            changes=[
                {"record": "KRaftVoters", "change": change.kind.name, "before": str(before), "after": str(after)},
            ],
        )

    def levels_changed(self, principal: str, host: str, *, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """This node's log says more or less from now on. Levels by logger name."""
        changes = [
            {"logger": name, "before": before.get(name), "after": level}
            for name, level in after.items()
            if before.get(name) != level
        ]
        if changes:
            self.note(Kind.CHANGE, principal, host, request="IncrementalAlterConfigs", outcome="done", changes=changes)

    def deleted(self, principal: str, host: str, *, request: str, changes: Iterable[dict[str, Any]]) -> None:
        """This broker deleted records, groups or offsets, of which no metadata tells; nothing, where `changes` is empty."""
        if self._thread is None:
            return
        left = iter(changes)
        told = list(islice(left, RECORDS_MAX))
        more = sum(1 for _ in left)
        if more:
            told.append({"more": more})
        if told:
            self.note(Kind.DATA_CHANGE, principal, host, request=request, outcome="done", changes=told)

    def offsets_set(self, principal: str, host: str, *, group: str, changes: list[dict[str, Any]]) -> None:
        """Offsets of a group were committed by who is no member of it: an operator's reset, or a reader without a group."""
        self.note(Kind.OFFSETS, principal, host, group=group, changes=changes)

    # ---- between the lanes and the writer ------------------------------------------------------------------------------

    def _entry(self, kind: Kind | None, **facts: Any) -> dict[str, Any]:
        return {
            "time_ms": self._clock_ms(),
            "node": self._node_id,
            "kind": DROPPED if kind is None else kind.value,
            **facts,
        }

    def _put_kept(self, kind: Kind, line: bytes) -> None:
        with self._lock:
            has_room = self._kept_bytes[kind] + len(line) <= CHANGES_BYTES_MAX
            if has_room:
                self._kept_bytes[kind] += len(line)
        if has_room:
            self._queue.put(_Waiting(kind, line))
        else:
            self.say_elsewhere(line)

    def say_elsewhere(self, line: bytes) -> None:
        """A change that no file takes."""
        with self._lock:
            self.stats.changes_elsewhere += 1
        logger.error(
            "the audit log %s takes no more; this change is here alone: %s",
            self._config.audit_log_path,
            line[:-1].decode(),
            extra=WHOLE,
        )

    def take(self, timeout_s: float) -> _Waiting | None:
        """The next line for the writer; None to end. Raises queue.Empty after the time."""
        waiting = self._queue.get(timeout=timeout_s)
        if waiting is not None and not waiting.kind.is_kept:
            with self._lock:
                self._counts[waiting.kind] -= 1
        return waiting

    def sums(self, *, is_end: bool) -> list[tuple[Kind, dict[str, Any]]]:
        """Lines for what was summed up in windows that are over; in all at the end."""
        now_ms = self._clock_ms()
        with self._lock:
            summed: list[tuple[Kind, Mapping[Source, int]]] = [
                (kind, budget.close() if is_end else budget.ended(now_ms)) for kind, budget in self._budgets.items()
            ]
        return [
            (kind, self._entry(kind, **source._asdict(), more=count))
            for kind, counts in summed
            for source, count in counts.items()
        ]

    def take_unsaid(self, kind: Kind) -> dict[str, Any] | None:
        """The line for what was dropped of a kind and has not been said."""
        with self._lock:
            count = self._unsaid.pop(kind, 0)
        return self._entry(None, of=kind.value, count=count) if count else None

    def was_written(self, kind: Kind, line: bytes, count: int = 1) -> None:
        """The writer has put lines into their file."""
        with self._lock:
            self.stats.written += count
            if kind.is_kept:
                self._kept_bytes[kind] -= len(line)

    def was_lost(self, kind: Kind, count: int = 1) -> None:
        """It could not, and will not try again."""
        with self._lock:
            self.stats.dropped += count
            self._unsaid[kind] += count


class _Writer:
    """What the thread does. Owns the files."""

    def __init__(self, log: AuditLog, files: Mapping[Kind, AuditFile]) -> None:
        self._log = log
        self._files = files
        self._kept: dict[Kind, deque[bytes]] = {kind: deque() for kind in Kind if kind.is_kept}
        """What the disk has not taken, oldest first; bounded by CHANGES_BYTES_MAX."""
        self._retry_s = 0.0
        self._failing: set[Kind] = set()

    def run(self) -> None:
        while True:
            try:
                waiting = self._log.take(RETRY_S if any(self._kept.values()) else _TICK_S)
            except queue.Empty:
                waiting = _NOTHING
            if waiting is None:
                break
            if isinstance(waiting.entry, bytes):
                self._kept[waiting.kind].append(waiting.entry)
            elif waiting is not _NOTHING:
                self._write(waiting.kind, waiting.entry)
            self._write_kept()
            self._write_sums(is_end=False)
        self._write_sums(is_end=True)
        self._retry_s = 0.0
        self._write_kept()
        for lines in self._kept.values():
            for line in lines:
                self._log.say_elsewhere(line)
        for file in self._files.values():
            file.close()

    def _write_kept(self) -> None:
        """What is never dropped, in its order, as far as the disk takes it."""
        if time.monotonic() < self._retry_s:
            return
        for kind, lines in self._kept.items():
            while lines:
                if not self._has_written(kind, lines[0]):
                    self._retry_s = time.monotonic() + RETRY_S
                    break
                self._log.was_written(kind, lines.popleft())

    def _write_sums(self, *, is_end: bool) -> None:
        for kind, entry in self._log.sums(is_end=is_end):
            self._write(kind, entry)

    def _write(self, kind: Kind, entry: dict[str, Any]) -> None:
        line = _line(entry)
        if not self._has_written(kind, line):
            self._log.was_lost(kind)
            return
        self._log.was_written(kind, line)
        unsaid = self._log.take_unsaid(kind)
        if unsaid is not None:
            line = _line(unsaid)
            if self._has_written(kind, line):
                self._log.was_written(kind, line)
            else:
                self._log.was_lost(kind, int(unsaid["count"]))

    def _has_written(self, kind: Kind, line: bytes) -> bool:
        try:
            self._files[kind].write(line)
        except OSError as error:
            if kind not in self._failing:  # a flood would fill the node's log instead
                self._failing.add(kind)
                logger.error("the audit log cannot be written (%s): %s; make room on its disk", kind.value, error)
            return False
        if kind in self._failing:
            self._failing.discard(kind)
            logger.warning("the audit log is written again (%s)", kind.value)
        return True


def _cut(value: Any, characters_max: int) -> Any:
    """The value with every text in it no longer than that. What a client says fills no file."""
    if isinstance(value, str):
        if len(value) <= characters_max:
            return value
        return f"{value[:characters_max]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {name: _cut(each, characters_max) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(each, characters_max) for each in value]
    return value


def _line(entry: dict[str, Any]) -> bytes:
    time_ms = entry.pop("time_ms")
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    text = json.dumps({"time": moment, **entry}, ensure_ascii=True, default=str)
    return text.encode().replace(b"\x7f", b"\\u007f") + b"\n"
