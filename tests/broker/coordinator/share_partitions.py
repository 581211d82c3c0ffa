"""Share partitions in tests: a partition driven by hand, and its window as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from barnabas_coordination.share.acquiring import AcquireRequest, BatchSpan
from barnabas_coordination.share.partition import Acknowledgement, SharePartition
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import DeliveryState, ShareState, StateBatch
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.kafka.messages.share_acknowledge import AcknowledgeType

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = DeliveryState
LOCK_MS = 30_000
START_MS = 1_000_000


def state_batch(first: int, last: int, state: DeliveryState, deliveries: int = 1, due_ms: int = 0) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, deliveries, due_ms)


class Driven:
    """One share partition, of whose log `batches` are (base, last)."""

    def __init__(
        self,
        batches: Sequence[tuple[int, int]] = ((0, 9), (10, 19), (20, 29)),
        *,
        start: int = 0,
        known: Sequence[StateBatch] = (),
        **settings: Any,
    ) -> None:
        self.settings = ShareSettings(**settings)
        self.batches = list(batches)
        self.now_ms = START_MS
        self.core = SharePartition(
            ShareState(Epoch(1), Offset(start), known), self.settings, start_offset=Offset(start)
        )
        self.aborted: set[int] = set()
        """Bases of batches of aborted transactions."""

    def fetch(
        self, member: str = "a", most: int = 500, *, size: int = 500, strict: bool = False
    ) -> list[tuple[int, int, int]] | None:
        """What the member acquires; None if there is nowhere to read."""
        offset = self.core.fetch_offset()
        if offset is None:
            return None
        spans = [BatchSpan(*each, is_aborted=each[0] in self.aborted) for each in self.batches if each[1] >= offset]
        request = AcquireRequest(member, most, size, strict)
        return [tuple(each) for each in self.core.acquire(spans, request, from_offset=offset, now_ms=self.now_ms)]  # type: ignore[misc]

    def ack(
        self, first: int, last: int, type_: AcknowledgeType = ACCEPT, member: str = "a", *, keep: bool = True
    ) -> int:
        """Acknowledge and write; returns the code of the refusal, 0 if there is none."""
        return self.acks([(first, last, type_)], member, keep=keep)

    def acks(self, batches: Sequence[tuple[int, int, AcknowledgeType]], member: str = "a", *, keep: bool = True) -> int:
        try:
            self.core.acknowledge(
                member,
                [Acknowledgement(Offset(first), Offset(last), type_) for first, last, type_ in batches],
                None,
                now_ms=self.now_ms,
            )
        except KafkaError as error:
            return error.code
        if keep:
            self.write()
        return 0

    def write(self, error: ErrorCode | None = None) -> str:
        """Write what there is to write, or fail to; returns it as text."""
        write = self.core.take_write(self.now_ms)
        if write is None:
            return "nothing"
        self.core.written(None if error is None else KafkaError.of(error, ""), now_ms=self.now_ms)
        batches = ", ".join(
            f"{first}-{last} {state.name} {count}{f' due {due_ms - self.now_ms}' if due_ms else ''}"
            for first, last, state, count, due_ms in write.batches
        )
        return f"start {write.start_offset} complete {write.complete_count}: {batches}"

    def letters(self, *, fails: bool = False) -> list[tuple[int, int, bool]]:
        """Write the dead letters, or fail to."""
        taken = self.core.take_letters(self.now_ms)
        if taken:
            self.core.posted([each.offset for each in taken] if fails else (), now_ms=self.now_ms)
        return [(each.offset, each.deliveries, each.is_rejected) for each in taken]

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.core.tick(self.now_ms)

    def set(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)
        self.core.follow(self.settings)

    @property
    def text(self) -> str:
        """The window: `0-9 ACQUIRED 1 a, 10-19 AVAILABLE 2`; →STATE is what a change will make of it."""
        runs = []
        for run in self.core.window.runs:
            target = f"→{run.target.name}" if run.change is not None else ""
            due = f" due {run.due_ms - self.now_ms}" if run.due_ms > 0 else " ?" if run.due_ms else ""
            runs.append(
                f"{run.first}-{run.last} {run.state.name}{target} {run.deliveries}{due}{f' {run.member}' if run.member else ''}"
            )
        return f"{self.core.window.start}: {', '.join(runs)}" if runs else f"{self.core.window.start}:"
