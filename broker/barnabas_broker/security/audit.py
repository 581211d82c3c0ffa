"""The audit log: who was refused what, who logged in, who changed what. JSON lines, only ever appended.

May touch:  one file and its former one, a thread of its own.     Must not touch: decisions; nothing waits for it.
Invariants: `note` never blocks and never raises: what the writer cannot keep up with is counted and said in the next line; two files of
            audit.log.max.bytes at most; no secret gets into a line; the file is its owner's alone.
Read next:  audited_changes.py (a change with before and after); access.py and controller/guard.py, which report denials.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from barnabas_broker.security.audit_config import AuditConfig
from barnabas_broker.security.audited_changes import describe
from barnabas_broker.security.listener_security import has_secret
from barnabas_quorum.image.authorizer import Verdict
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.rights import Right
from barnabas_quorum.raft.messages import VoterChange
from barnabas_quorum.raft.voters import VoterSet
from barnabas_quorum.records import Record
from barnabas_wire.kafka.errors import KafkaError

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Lines that wait to be written; about 5 MB. More are dropped and counted."""
FORMER: Final = ".1"
_STOP: Final = None


class AuditLog:
    """Of one node. `note` may be called from every lane."""

    def __init__(self, config: AuditConfig, *, node_id: int, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` is wall time. Writes nothing before `start`."""
        self._config = config
        self._node_id = node_id
        self._clock_ms = clock_ms
        self._waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.written = 0
        self.dropped = 0
        """Since the start, for metrics."""
        self._unsaid = 0

    @property
    def is_on(self) -> bool:
        """Whether there is a file to write to."""
        return bool(self._config.audit_log_path)

    def start(self) -> None:
        """Open the file, or begin it. Raises OSError when it cannot be written."""
        if self.is_on and self._thread is None:
            descriptor = self._open()
            self._thread = threading.Thread(target=self._write, args=(descriptor,), name="audit-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._waiting.put(_STOP)
            self._thread.join()
            self._thread = None

    def note(self, kind: str, **facts: Any) -> None:
        """Have one line written, some time."""
        if self._thread is None:
            return
        if self._waiting.qsize() >= WAITING_MAX:
            self.dropped += 1
            self._unsaid += 1
            return
        self._waiting.put({"time_ms": self._clock_ms(), "node": self._node_id, "kind": kind, **facts})

    def denied(self, principal: str, host: str, right: Right, name: str, verdict: Verdict) -> None:
        """Somebody was refused something."""
        self.note(
            "denied",
            principal=principal,
            host=host,
            operation=right.operation.name,
            resource_type=right.resource_type.name,
            resource=name,
            rule=verdict.rule,
        )

    def logged_in(self, principal: str, host: str, *, listener: str, how: str) -> None:
        """A client has authenticated. `how`: the mechanism, or `certificate`."""
        self.note("login", principal=principal, host=host, listener=listener, how=how)

    def login_refused(self, host: str, *, listener: str, how: str, reason: str) -> None:
        """Somebody did not."""
        self.note("login-refused", host=host, listener=listener, how=how, reason=reason)

    def changed(
        self,
        principal: str,
        host: str,
        request: str,
        before: MetadataImage,
        records: Sequence[Record],
        error: KafkaError | None,
    ) -> None:
        """A change of the metadata was committed; or, with an error, nobody knows."""
        if self._thread is not None:
            self.note(
                "change",
                principal=principal,
                host=host,
                request=request,
                outcome="committed" if error is None else f"unknown: {error.message}",
                changes=describe(before, records, has_secret=has_secret),
            )

    def voters_changed(
        self, principal: str, host: str, change: VoterChange, before: VoterSet, after: VoterSet, unknown: str
    ) -> None:
        """The quorum's voters were changed; or, with `unknown` for a reason, nobody knows."""
        self.note(
            "change",
            principal=principal,
            host=host,
            request="ChangeVoters",
            outcome=f"unknown: {unknown}" if unknown else "committed",
            changes=[
                {"record": "KRaftVoters", "change": change.kind.name, "before": str(before), "after": str(after)},
            ],
        )

    # ---- the writer's thread -----------------------------------------------------------------------------------------

    def _write(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        while (entry := self._waiting.get()) is not _STOP:
            lines = [entry]
            if self._unsaid:
                unsaid, self._unsaid = self._unsaid, 0
                lines.append({**entry, "kind": "dropped", "count": unsaid})
            for line in lines:
                data = _line(line)
                try:
                    if size and size + len(data) > self._config.audit_log_max_bytes:
                        os.close(descriptor)
                        os.replace(self._config.audit_log_path, self._config.audit_log_path + FORMER)
                        descriptor, size = self._open(), 0
                    os.write(descriptor, data)
                    size += len(data)
                    self.written += 1
                except OSError as error:
                    self.dropped += 1
                    self._unsaid += 1
                    logger.error("the audit log %s cannot be written: %s", self._config.audit_log_path, error)
        os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._config.audit_log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _line(entry: dict[str, Any]) -> bytes:
    time_ms = entry.pop("time_ms")
    time = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, **entry}, ensure_ascii=True, default=str).encode() + b"\n"
