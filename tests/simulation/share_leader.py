"""A leader of the simulated share partition: the real core, and what its driver would do between two waits.

May touch:  the real share partition.     Must not touch: asyncio, chance, the real clock.
Invariants: the core is asked as its driver asks it: a read from where it says, records examined before they are acquired, one write at
            a time, letters that are posted before others are taken.
Read next:  share_simulator.py, which performs; barnabas_coordination/share/partition.py, the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from barnabas_coordination.share.acquiring import AcquireRequest, BatchSpan
from barnabas_coordination.share.partition import Acknowledgement, SharePartition, Write
from barnabas_coordination.share.waiting_letters import Letter
from barnabas_coordination.share.window import Run
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import DeliveryState, ShareState
from barnabas_coordination.share_state.state import Change
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_OFFSET, Epoch, Offset
from barnabas_wire.kafka.messages.share_acknowledge import AcknowledgeType
from tests.simulation.share_log import SimulatedLog

EXAMINED_BATCHES = 5
"""Batches that are opened at a time, to see when their records are due."""
READ_BATCHES = 8
TYPES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
    "gap": AcknowledgeType.GAP,
    "renew": AcknowledgeType.RENEW,
}

Told = list[tuple[str, Offset, str, int]]
"""(member, offset, how, when it was asked) of acknowledgements that count once they are written."""


class Leader:
    """One term of one broker, until it is lost, fenced, or hears of the next."""

    def __init__(self, epoch: int, settings: ShareSettings) -> None:
        self.epoch = epoch
        self.settings = settings
        self.state_epoch = Epoch(-1)
        self.core: SharePartition | None = None
        """None until it has read the state."""
        self.is_sending = False
        self.is_behind = False
        """Whether the start offset may lie at what is done: a write failed."""
        self.timer_ms: int | None = None

    def __repr__(self) -> str:
        return f"<term {self.epoch}: {self.core and self.core.window.runs}>"

    @property
    def is_active(self) -> bool:
        """Whether it serves members."""
        return self.core is not None

    @property
    def loaded(self) -> SharePartition:
        """Its core."""
        assert self.core is not None, "it has not read the state"
        return self.core

    @property
    def start(self) -> int:
        """The start offset."""
        return self.loaded.window.start

    @property
    def end(self) -> int:
        """The last offset of the window."""
        return self.loaded.window.end

    @property
    def is_first_done(self) -> bool:
        """Whether the record at the start offset is over."""
        runs = self.loaded.window.runs
        return (
            bool(runs)
            and runs[0].change is None
            and runs[0].state in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)
        )

    def load(self, state: ShareState, *, reset_to: int) -> None:
        """Begin with what was read. reset_to: where the group's reset says, which counts where the state has no start offset."""
        start = reset_to if state.start_offset == NO_OFFSET else state.start_offset
        self.state_epoch = state.state_epoch
        self.core = SharePartition(state, self.settings, start_offset=Offset(start))

    def log_starts_at(self, offset: int) -> None:
        """The log begins there."""
        self.loaded.log_starts_at(Offset(offset))

    def held(self) -> list[tuple[int, str]]:
        """Offsets that are acquired, with their members; those whose acknowledgement is being written are left out."""
        return [
            (offset, run.member)
            for run in self.loaded.window.runs
            if run.state is DeliveryState.ACQUIRED and run.change is None
            for offset in range(run.first, run.last + 1)
        ]

    def snapshot(self) -> dict[int, tuple[object, ...]]:
        """All that is known of each offset."""

        def known(run: Run) -> tuple[object, ...]:
            return run.state, run.target, run.deliveries, run.due_ms, run.member, run.lock_ms, run.change

        return {offset: known(run) for run in self.loaded.window.runs for offset in range(run.first, run.last + 1)}

    def fetch(
        self, log: SimulatedLog, request: AcquireRequest, *, end: int, now_ms: int
    ) -> Sequence[tuple[int, int, int]]:
        """Give a member records below `end`: ranges with their count of deliveries."""
        core = self.loaded
        core.tick(now_ms)
        offset = core.fetch_offset()
        if offset is not None and offset < log.start:  # OFFSET_OUT_OF_RANGE
            self.log_starts_at(log.start)
            offset = core.fetch_offset()
        self.examine(log, end=end, now_ms=now_ms)
        if offset is None:
            offset = core.fetch_offset()
        if offset is None or offset >= end:
            return ()
        is_committed = self.settings.is_read_committed
        spans = [
            BatchSpan(
                batch.base,
                batch.last,
                is_aborted=is_committed and not batch.is_control and log.is_aborted(batch),
            )
            for batch in log.read(offset, end=end, batches_max=READ_BATCHES)
        ]
        return core.acquire(spans, request, from_offset=offset, now_ms=now_ms)

    def examine(self, log: SimulatedLog, *, end: int, now_ms: int) -> None:
        """Look into records for when they are due, where the core has to know."""
        core = self.loaded
        first = core.examine_from()
        if first is None:
            return
        batches = log.read(first, end=end, batches_max=EXAMINED_BATCHES)
        if batches:
            due = [(Offset(at), due_ms) for batch in batches for at, due_ms in sorted(batch.due.items()) if at >= first]
            core.delay(first, Offset(batches[-1].last), due, now_ms=now_ms)

    def acknowledge(self, member: str, first: int, kinds: Sequence[str], told: Told, *, now_ms: int) -> None:
        """Take acknowledgements of neighbouring offsets; `told` comes back when they are written. Raises KafkaError."""
        batches = []
        for how, group in groupby(enumerate(kinds, first), key=lambda each: each[1]):
            offsets = [offset for offset, _ in group]
            batches.append(Acknowledgement(Offset(offsets[0]), Offset(offsets[-1]), TYPES[how]))
        self.loaded.acknowledge(member, batches, told, now_ms=now_ms)

    def take_write(self, now_ms: int) -> Write | None:
        """What is to be written next, while nothing is under way."""
        write = self.loaded.take_write(now_ms)
        self.is_sending = self.is_sending or write is not None
        return write

    def change_of(self, write: Write) -> Change:
        """As the share coordinator gets it."""
        return Change(self.state_epoch, Epoch(self.epoch), write.start_offset, write.complete_count, write.batches)

    def written(self, error: KafkaError | None, *, now_ms: int) -> Told:
        """The write has ended; returns the acknowledgements that count now."""
        self.is_sending = False
        self.is_behind = error is not None
        changes = self.loaded.written(error, now_ms=now_ms)
        if error is not None:
            return []
        return [each for change in changes for each in change.token]  # type: ignore[attr-defined]  # a Told

    def take_letters(self, now_ms: int) -> Sequence[Letter]:
        """Dead letters to write now."""
        return self.loaded.take_letters(now_ms)
