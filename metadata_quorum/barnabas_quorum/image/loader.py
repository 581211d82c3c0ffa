"""From committed batches to images: decodes, replays, publishes; holds a metadata transaction back until its end.

May touch:  record_codec, the other files of image/.   Must not touch: asyncio, clock, files, controller.
Invariants: each record is replayed exactly once and in order; publishers see only whole deltas, in order: nothing of a
            transaction before its End, nothing of one that was aborted ever, and no image whose offset lies inside one;
            a record that cannot be replayed stops the image right before its batch, and nothing else; a hash that the
            active controller wrote is compared with that of the image of right before it.
Read next:  publisher.py; bad_records.py and agreement.py, the rules; driver/metadata_listener.py, which feeds it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas_quorum.image.agreement import Agreement
from barnabas_quorum.image.bad_records import (
    BadRecord,
    Blocked,
    PassedOver,
    ReplayFailed,
    UnreplayableSnapshot,
    bad_record,
    bad_records_ahead,
    sign_offs_in,
)
from barnabas_quorum.image.features import FeaturesImage
from barnabas_quorum.image.log_content import CommittedRecords, SnapshotContent
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.publisher import Publisher
from barnabas_quorum.image.snapshot import difference, image_of, in_one_go
from barnabas_quorum.record_codec import decode
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    QuorumRecoveryRecord,
    Record,
)
from barnabas_quorum.records_integrity import ImageHashRecord, QuarantineRecord
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

PASSED_OVER_KEPT = 100
_CUTTING = (
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    ImageHashRecord,
    QuarantineRecord,
    QuorumRecoveryRecord,
)
"""Records that mean something to the loader beside what they change, which is nothing but for the last."""


class Position(NamedTuple):
    """Where in the metadata log."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    """When the batch of that offset was appended on the active controller."""


@dataclass(slots=True)
class LoaderStats:
    """Counters that metrics pull."""

    records: int = 0
    snapshots: int = 0
    """Loaded ones."""
    hashes_compared: int = 0
    hash_mismatches: int = 0
    bad_records: int = 0
    """That could not be replayed when they came."""
    records_passed_over: int = 0


class _ImageFailed(Exception):
    """A delta of records that could be replayed makes no image."""


class MetadataLoader:
    """Owns the committed image of this node."""

    def __init__(self, publishers: Sequence[Publisher] = ()) -> None:
        """`publishers` in the order in which they are called."""
        self.publishers: tuple[Publisher, ...] = tuple(publishers)
        self.blocked_observers: list[Callable[[], None]] = []
        """Called when `blocked` changed, or what waits behind it."""
        self.image = MetadataImage.EMPTY
        self.is_in_transaction = False
        """A transaction is open: the image ends before its Begin, and no snapshot may be taken, since the log could
        not be cut there. A new leader ends it with an AbortTransactionRecord."""
        self.blocked: Blocked | None = None
        """The bad record before which this node stands."""
        self.agreement = Agreement()
        """Whether the image is the active controller's."""
        self.passed_over: deque[PassedOver] = deque(maxlen=PASSED_OVER_KEPT)
        self.stats = LoaderStats()
        self._delta = MetadataDelta(self.image)
        self._replayed = Position(self.image.offset, self.image.epoch, self.image.timestamp_ms)
        """The position of the last record replayed; ahead of the image while a transaction is open."""
        self._waiting: list[CommittedRecords] = []
        """Committed batches that are not wholly in the image: those of an open transaction, or behind a bad record. In the
        second case they are what the log holds since the last snapshot, for nothing but sign-offs is written then."""
        self._received = self.image.offset
        self._may_end = self.image.offset
        """Last offset replayed so far at which an image may end: of a whole batch, outside of a transaction."""
        self._started_at = self.image.offset
        """The offset of the image that replaying began with: what lies below was replayed by whoever wrote the snapshot."""
        self._behind_blocked: MetadataImage | None = None
        """What a snapshot makes without its bad records: the image to continue from once all of them are signed off. None when
        there are too many, and nothing but another snapshot helps."""
        self._bad_in_snapshot: list[BadRecord] = []
        """Those that are not signed off yet; any, and the snapshot blocks this node."""
        self._sign_offs: dict[tuple[Offset, bytes], QuarantineRecord] = {}
        """By offset and digest of what they are for."""
        self._skipped: dict[Offset, BadRecord] = {}
        self._has_image_of_each = False
        """Look for the record of which no image can be made."""

    @property
    def may_be_written(self) -> bool:
        """Whether the image may go into a snapshot: it ends where the log can be cut, lacks nothing, and is the agreed one."""
        return (
            not self.is_in_transaction
            and self.blocked is None
            and not self.agreement.divergence
            and self.image.offset >= 0
        )

    @property
    def can_be_signed_off(self) -> bool:
        """Whether the image can continue without the records that block it."""
        return not self._bad_in_snapshot or self._behind_blocked is not None

    @property
    def read_offset(self) -> Offset:
        """Last committed record that came here, in the image or waiting."""
        return self._received

    @property
    def blocking_records(self) -> list[BadRecord]:
        """The bad record, and those that would be bad too were it passed over. Replays all that waits."""
        if self.blocked is None or self._bad_in_snapshot:
            return self._bad_in_snapshot[:1]
        return bad_records_ahead(self.image, self._waiting, self.blocked.record, self._skipped)

    @property
    def features(self) -> FeaturesImage:
        """The levels of the image, or of the one that a bad record in a snapshot holds back."""
        return (self.image if self._behind_blocked is None else self._behind_blocked).features

    def on_commit(self, batches: Sequence[CommittedRecords]) -> None:
        """Replay committed batches (in order, each once) into one delta and publish it; a transaction is delayed until
        the call that brings its end. Before a record that cannot be replayed the image stands still, until a sign-off
        for it is committed.

        Raises InvariantViolated when an offset comes twice or backwards.
        """
        for batch in batches:
            # gaps are normal (control records of the quorum), going back is not
            if batch.base_offset <= self._received:
                raise InvariantViolated(f"metadata batch at offset {batch.base_offset} after {self._received}")
            self._received = Offset(batch.base_offset + len(batch.records) - 1)
            self._waiting.append(batch)
            self.stats.records += len(batch.records)
        if self.blocked is not None:
            self._read_ahead(batches)
            if self._sign_off_of(self.blocked.record) is None:
                self._stand_before(self.blocked.record)
                return
        self._go_on()

    def look_ahead(self, batches: Sequence[CommittedRecords]) -> None:
        """Learn of sign-offs that stand further on in the log than what is to be replayed."""
        self._read_ahead(batches)
        if self.blocked is not None and self._sign_off_of(self.blocked.record) is not None:
            self._go_on()

    def _go_on(self) -> None:
        """Replay what waits, as far as it goes."""
        was_blocked = self.blocked is not None
        if self._bad_in_snapshot and not self._take_image_behind_blocked():
            return
        while (bad := self._find_bad()) is not None:
            self._read_ahead(self._waiting)
            if self._sign_off_of(bad) is None:
                if self.blocked is None or self.blocked.record != bad:
                    self.stats.bad_records += 1
                self._stand_before(bad)
                return
            self._skipped[bad.offset] = bad
        self.blocked = None
        if was_blocked:
            logger.warning("every committed metadata record is replayed again, up to offset %d", self._replayed.offset)
            self._tell_observers()

    def _find_bad(self) -> BadRecord | None:
        """Replay and publish what waits, up to the first bad record, which is returned."""
        try:
            return self._replay_up_to_bad()
        except _ImageFailed:
            # all could be replayed, and no image came of it: which record it is shows when each has an image of its own
            logger.exception("records that could be replayed make no metadata image")
        self._begin_again()
        self._has_image_of_each = True
        try:
            return self._replay_up_to_bad()
        finally:
            self._has_image_of_each = False

    def _replay_up_to_bad(self) -> BadRecord | None:
        try:
            self._replay_waiting(until=self._received)
            bad = None
        except ReplayFailed as failed:
            bad = failed.record
            # whatever the bad record left half done goes with the delta; up to its batch all is known to be good
            good = self._may_end
            self._begin_again()
            self._replay_waiting(until=good)
        if not self.is_in_transaction:
            self._publish()
        return bad

    def _stand_before(self, bad: BadRecord) -> None:
        if self.blocked is None or self.blocked.record != bad:
            logger.error(
                "metadata record at offset %d cannot be replayed (%s: %s). This node keeps its metadata of offset %d and "
                "serves with that. If no node can replay it: barnabas quorum quarantine list",
                bad.offset,
                bad.fault.value,
                bad.error,
                self.image.offset,
            )
        self.blocked = Blocked(record=bad, read_offset=self._received)
        self._tell_observers()

    def _read_ahead(self, batches: Sequence[CommittedRecords]) -> None:
        for batch in batches:
            for sign_off in sign_offs_in(batch.records):
                self._sign_offs[sign_off.offset, sign_off.digest] = sign_off

    def _sign_off_of(self, bad: BadRecord) -> QuarantineRecord | None:
        return next((each for each in self._sign_offs.values() if bad.is_meant_by(each)), None)

    def _tell_observers(self) -> None:
        for observer in self.blocked_observers:
            observer()

    def on_load_snapshot(self, snapshot: SnapshotContent) -> Iterator[None]:
        """Make the image of a snapshot and publish what changed, removals too; one step per `next`, so that a loop that
        drives it can rest between. Nothing of it counts before the last step; it may be given up before.

        A snapshot is written from an image, so a record in it that cannot be replayed is of another version, or of a bug.
        Raises UnreplayableSnapshot then when there is an older one; else the image stands still before it, as before a bad
        record of the log. Raises what `groups` raises.
        """
        image, bad = yield from image_of(snapshot)
        yield
        if bad and not snapshot.is_only:
            raise UnreplayableSnapshot(f"{bad[0].error}. An older snapshot and the log say the same")
        if bad:
            self._start_from(Offset(snapshot.end_offset - 1))
            self._behind_blocked, self._bad_in_snapshot = image, bad
            self.stats.bad_records += len(bad)
            self._stand_before(bad[0])
            return
        assert image is not None, "an image without bad records"
        delta = yield from difference(self.image, image)
        was_blocked = self.blocked is not None
        self.start_at(image)
        self.stats.snapshots += 1
        self._tell_publishers(delta)
        if was_blocked:
            self._tell_observers()

    def start_at(self, image: MetadataImage) -> None:
        """Continue from an image that came from elsewhere (a snapshot); whoever brings it informs the publishers."""
        self.image = image
        self._start_from(image.offset)

    def _start_from(self, offset: Offset) -> None:
        self.blocked = None
        self.agreement.begin_again()
        self._behind_blocked, self._bad_in_snapshot = None, []
        self._waiting.clear()
        self._sign_offs.clear()
        self._skipped.clear()
        self._received = self._started_at = offset
        self._begin_again()

    def _take_image_behind_blocked(self) -> bool:
        """Continue from the snapshot without its bad records, if all of them are known and signed off."""
        while (
            self._bad_in_snapshot
            and self.can_be_signed_off
            and (sign_off := self._sign_off_of(self._bad_in_snapshot[0])) is not None
        ):
            self._note_passed_over(self._bad_in_snapshot.pop(0), sign_off)
        if self._bad_in_snapshot:
            self._stand_before(self._bad_in_snapshot[0])
            return False
        assert self._behind_blocked is not None
        image, self._behind_blocked = self._behind_blocked, None
        delta = in_one_go(difference(self.image, image))
        self.image = image
        self._begin_again()
        self._tell_publishers(delta)
        return True

    def _begin_again(self) -> None:
        """Forget what was replayed since the image."""
        self.is_in_transaction = False
        self._delta = MetadataDelta(self.image)
        self._replayed = Position(self.image.offset, self.image.epoch, self.image.timestamp_ms)
        self._may_end = self.image.offset

    # --- replay ---------------------------------------------------------------------------------------------------------

    def _replay_waiting(self, *, until: Offset) -> None:
        """Replay, into the delta, the batches that end at or before `until` and are not replayed yet. Raises ReplayFailed."""
        for batch in tuple(self._waiting):
            last_offset = Offset(batch.base_offset + len(batch.records) - 1)
            if last_offset > until:
                return
            if last_offset <= self._replayed.offset:
                continue
            for index in range(max(0, self._replayed.offset + 1 - batch.base_offset), len(batch.records)):
                self._replay_record(batch, index)
            self._replayed = Position(last_offset, batch.epoch, batch.append_timestamp_ms)
            if not self.is_in_transaction:
                self._may_end = last_offset

    def _replay_record(self, batch: CommittedRecords, index: int) -> None:
        offset = Offset(batch.base_offset + index)
        if offset in self._skipped:
            self._pass_over(offset)
            return
        try:
            record = decode(batch.records[index])
            self._check_transaction(record)
        except Exception as error:  # as below
            raise ReplayFailed(bad_record(batch, index, error)) from error
        if isinstance(record, _CUTTING):
            if index > 0:
                self._replayed = Position(Offset(offset - 1), batch.epoch, batch.append_timestamp_ms)
            self._cut_before(record, offset, batch.append_timestamp_ms)
        try:
            self._delta.replay(record)
            if self._has_image_of_each:
                self._delta.apply(offset, batch.epoch, batch.append_timestamp_ms)
        except Exception as error:  # the edge of one record: what it sets off is its own fault, whatever it is
            raise ReplayFailed(bad_record(batch, index, error)) from error

    def _check_transaction(self, record: Record) -> None:
        if isinstance(record, BeginTransactionRecord) and self.is_in_transaction:
            raise InvariantViolated(f"transaction {record.name!r} begins within another, after {self._replayed}")
        if isinstance(record, EndTransactionRecord | AbortTransactionRecord) and not self.is_in_transaction:
            raise InvariantViolated(f"{type(record).__name__} without a Begin, after {self._replayed}")

    def _cut_before(self, record: Record, offset: Offset, timestamp_ms: int) -> None:
        """What these records mean beside what they change."""
        if isinstance(record, BeginTransactionRecord):
            self._publish()  # so that an abort has an image to go back to
            self.is_in_transaction = True
        elif isinstance(record, EndTransactionRecord):
            self.is_in_transaction = False
        elif isinstance(record, AbortTransactionRecord) or (
            isinstance(record, QuorumRecoveryRecord) and self.is_in_transaction
        ):
            self.is_in_transaction = False
            self._delta = MetadataDelta(self.image)
        elif isinstance(record, ImageHashRecord):
            if self.agreement.is_due(record, offset) and not self.is_in_transaction:
                self._publish()
                is_same = self.agreement.compare(record, offset, timestamp_ms, self.image)
                self.stats.hashes_compared += 1
                self.stats.hash_mismatches += not is_same
        elif isinstance(record, QuarantineRecord):
            self._note_sign_off(record, offset)

    def _note_sign_off(self, record: QuarantineRecord, offset: Offset) -> None:
        # below its start a snapshot holds what came of it
        if record.offset in self._skipped or not self._started_at < record.offset < offset:
            return
        self.agreement.divergence = f"others passed over the record at offset {record.offset}, which was replayed here"
        logger.error(
            "the record at offset %d was signed off at offset %d, but this node has replayed it: its metadata differs from "
            "that of nodes which could not. Next: barnabas quorum verify",
            record.offset,
            offset,
        )

    def _pass_over(self, offset: Offset) -> None:
        record = self._skipped[offset]
        if not any(each.record == record for each in self.passed_over):
            self._note_passed_over(record, self._sign_offs[offset, record.digest])

    def _note_passed_over(self, record: BadRecord, sign_off: QuarantineRecord) -> None:
        self.passed_over.append(PassedOver(record=record, sign_off=sign_off))
        self.stats.records_passed_over += 1
        logger.warning(
            "passed over the metadata record at offset %d, as %s signed: %s",
            record.offset,
            sign_off.principal,
            sign_off.reason,
        )

    def _publish(self) -> None:
        if self._replayed.offset == self.image.offset:
            return
        delta, position = self._delta, self._replayed
        try:
            self.image = delta.apply(position.offset, position.epoch, position.timestamp_ms)
        except Exception as error:  # of one of its records
            raise _ImageFailed from error
        self._delta = MetadataDelta(self.image)
        self._waiting = [
            batch for batch in self._waiting if batch.base_offset + len(batch.records) - 1 > position.offset
        ]
        self._tell_publishers(delta)

    def _tell_publishers(self, delta: MetadataDelta) -> None:
        for publisher in self.publishers:
            publisher.on_metadata_update(delta, self.image)
