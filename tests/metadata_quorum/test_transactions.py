"""Metadata transactions: what the loader holds back, how the driver makes them, and who ends one whose leader is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.driver import metadata_batches
from barnabas_quorum.driver.metadata_batches import cut_into_batches
from barnabas_quorum.errors import BufferExhausted
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import decode, encode
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    Record,
)
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import Epoch, Offset
from tests.metadata_quorum.test_controller_driver import Stand, running
from tests.support.virtual_loop import on_virtual_time


class Log:
    """A loader that is fed batches; `told` holds (offset, features) of every published image."""

    name = "log"

    def __init__(self) -> None:
        self.reported: list[tuple[int, dict[str, int]]] = []
        self.loader = MetadataLoader([self])
        self.end = 0

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert delta.image.offset < image.offset
        self.reported.append((image.offset, dict(image.features.levels)))

    def commit(self, *batches: list[Record]) -> Log:
        committed = []
        for records in batches:
            data = tuple(encode(record) for record in records)
            committed.append(CommittedBatch(Offset(self.end), Epoch(1), 0, data))
            self.end += len(records)
        self.loader.on_commit(committed)
        return self


def feature(name: str) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, level=1)


BEGIN, END, ABORT = BeginTransactionRecord(name="n"), EndTransactionRecord(), AbortTransactionRecord(reason="r")


def test_nothing_of_a_transaction_is_published_before_its_end_and_then_all_at_once() -> None:
    log = Log().commit([feature("a")], [BEGIN, feature("b")])
    assert log.reported == [(0, {"a": 1})] and log.loader.is_in_transaction
    log.commit([feature("c")]).commit([NoOpRecord()])
    assert log.reported == [(0, {"a": 1})] and log.loader.image.offset == 0
    log.commit([feature("d"), END], [feature("e")])
    assert log.reported[1:] == [(7, dict.fromkeys("abcde", 1))] and not log.loader.is_in_transaction


def test_an_aborted_transaction_is_as_if_it_had_never_been_and_its_offsets_pass() -> None:
    log = Log().commit([feature("a"), BEGIN, feature("b")], [feature("c")], [ABORT], [feature("d")])
    assert log.reported == [(0, {"a": 1}), (5, {"a": 1, "d": 1})]
    log.commit([BEGIN], [feature("x")]).commit([ABORT])
    assert log.reported[-1] == (8, {"a": 1, "d": 1}) and not log.loader.is_in_transaction


@pytest.mark.parametrize("records", [[BEGIN, BEGIN], [END], [ABORT], [BEGIN, END, END]])
def test_a_transaction_that_does_not_fit_stops_the_image_before_its_batch(records: list[Record]) -> None:
    log = Log().commit([feature("a")], records)
    assert log.reported == [(0, {"a": 1})] and log.loader.blocked is not None and not log.loader.is_in_transaction


def test_an_offset_that_goes_back_within_a_transaction_stops_the_node() -> None:
    log = Log().commit([BEGIN, feature("b")])
    log.end = 1
    with pytest.raises(InvariantViolated, match="after 1"):
        log.commit([feature("c")])


# --- the driver -----------------------------------------------------------------------------------------------------------


def many(count: int) -> CreateTopics:
    return CreateTopics(topics=(CreatableTopic(name="many", partition_count=count, replication_factor=1),))


def kinds(stand: Stand, since: int) -> list[list[str]]:
    """Record types of the batches committed since, without the ends."""
    names = [[type(decode(data)).__name__ for data in batch.records] for batch in stand.quorum.committed[since:]]
    return [[name.removesuffix("Record") for name in batch] for batch in names]


@on_virtual_time
async def test_an_atomic_request_that_fits_no_batch_goes_in_a_transaction() -> None:
    async with running(brokers=[1]) as stand:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 3)
            before = len(stand.quorum.committed)
            reply: Any = await stand.ask(many(4))
        assert reply.topics[0].error is None
        assert kinds(stand, before) == [
            ["BeginTransaction", "Topic", "Partition"],
            ["Partition", "Partition", "Partition"],
            ["EndTransaction"],
        ]
        assert len(stand.image.topics.topics["many"].partitions) == 4
        assert stand.image == stand.driver.controller.pending


@on_virtual_time
async def test_the_answer_waits_for_the_end_of_the_transaction() -> None:
    async with running(brokers=[1]) as stand:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 3)
            stand.quorum.is_held = True
            asked = stand.ask(many(4))
            await asyncio.sleep(0.01)
        batches, stand.quorum.batches = stand.quorum.batches, []
        assert stand.quorum.listener is not None
        stand.quorum.listener.on_commit(batches[:2])
        await asyncio.sleep(0.01)
        assert not asked.done() and stand.image.topics.get("many") is None
        stand.quorum.listener.on_commit(batches[2:])
        await asyncio.sleep(0.01)
        assert asked.done() and stand.image.topics.get("many") is not None


@on_virtual_time
async def test_a_new_leader_aborts_the_transaction_that_the_last_one_left_open() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.depose(2)
        stand.quorum.commit_from_elsewhere(BEGIN, feature("x"))
        offset = stand.image.offset
        before = len(stand.quorum.committed)
        stand.quorum.elect()
        await stand.create("after")
        assert kinds(stand, before)[0] == ["AbortTransaction"]
        assert "x" not in stand.image.features.levels and stand.image.topics.get("after") is not None
        assert stand.image.offset > offset and stand.image == stand.driver.controller.pending


@on_virtual_time
async def test_a_transaction_for_which_the_quorum_has_no_room_is_aborted_and_refused() -> None:
    async with running(brokers=[1]) as stand:
        proposed = 0
        propose = stand.quorum.propose

        def runs_full(records: Any, **more: Any) -> Offset:
            nonlocal proposed
            proposed += 1
            if proposed == 2:
                raise BufferExhausted("full")
            return propose(records, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 3)
            patch.setattr(stand.quorum, "propose", runs_full)
            before = len(stand.quorum.committed)
            stand.quorum.is_held = True
            asked = stand.ask(many(4))
            await asyncio.sleep(0.01)
            assert (
                stand.driver.controller.pending.topics.get("many") is None
            )  # for the next decision, before any commit
            stand.quorum.is_held = False
            stand.quorum.commit_all()
            with pytest.raises(BufferExhausted):
                await asked
        assert kinds(stand, before) == [["BeginTransaction", "Topic", "Partition"], ["AbortTransaction"]]
        assert (await stand.create("many")).error is None  # the name is free: nothing of it stays pending
        assert stand.image == stand.driver.controller.pending


@on_virtual_time
async def test_a_transaction_that_there_is_no_room_to_abort_is_aborted_before_anything_else_is_decided() -> None:
    async with running(brokers=[1]) as stand:
        propose = stand.quorum.propose
        rooms = [True, False, False, False]

        def runs_full(records: Any, **more: Any) -> Offset:
            if rooms and not rooms.pop(0):
                raise BufferExhausted(f"full, {len(rooms)} more times")
            return propose(records, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 3)
            patch.setattr(stand.quorum, "propose", runs_full)
            before = len(stand.quorum.committed)
            with pytest.raises(BufferExhausted, match="2 more"):  # what its asker met, not what the abort did
                await stand.ask(many(4))
            with pytest.raises(BufferExhausted):
                await stand.create("early")
            assert rooms == [] and stand.image.topics.get("many") is None
            assert (await stand.create("many")).error is None
        assert kinds(stand, before)[:3] == [
            ["BeginTransaction", "Topic", "Partition"],
            ["AbortTransaction"],
            ["Topic", "Partition"],
        ]
        assert stand.image.topics.get("early") is None and stand.image == stand.driver.controller.pending


@on_virtual_time
async def test_a_new_leader_aborts_once_the_transaction_that_it_could_not_abort_before() -> None:
    async with running(brokers=[1]) as stand:
        propose = stand.quorum.propose
        rooms = iter([True])

        def runs_full(records: Any, **more: Any) -> Offset:
            if not next(rooms, False):
                raise BufferExhausted("full")
            return propose(records, **more)

        before = len(stand.quorum.committed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 3)
            patch.setattr(stand.quorum, "propose", runs_full)
            with pytest.raises(BufferExhausted):
                await stand.ask(many(4))
        stand.quorum.depose(2)
        stand.quorum.elect()
        await stand.create("after")
        assert kinds(stand, before).count(["AbortTransaction"]) == 1
        assert stand.driver.controller.pending == stand.image


@on_virtual_time
async def test_before_its_metadata_version_there_are_no_transactions() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.depose(2)
        stand.quorum.commit_from_elsewhere(FeatureLevelRecord(name="metadata.version", level=1))
        stand.quorum.elect()
        await asyncio.sleep(0.01)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 3)
            with pytest.raises(KafkaError, match="has no transactions; send it in parts, or upgrade") as caught:
                await stand.ask(many(4))
        assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_transaction_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_batches, "RECORDS_PER_BATCH_MAX", 2)
    monkeypatch.setattr(metadata_batches, "TRANSACTION_BYTES_MAX", 10)
    result = ControllerResult(records=[feature("a"), feature("b"), feature("c")], response=None)
    with pytest.raises(KafkaError, match="more than one transaction holds"):
        cut_into_batches(result, has_transactions=True)
