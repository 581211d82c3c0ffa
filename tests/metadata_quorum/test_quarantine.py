"""A committed record that cannot be replayed: nodes stop at it, an operator signs, all skip it alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from barnabas_quorum.controller.decisions import DECISIONS
from barnabas_quorum.controller.requests import (
    BrokerHeartbeat,
    CreatableTopic,
    CreateTopics,
    DeleteTopics,
    TopicReference,
)
from barnabas_quorum.controller.requests_integrity import SignOffRecord, WriteImageHash
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.driver.blocked_controller import BlockedController
from barnabas_quorum.driver.controller_driver import ControllerDriver
from barnabas_quorum.explain.chain import Explanation, NextStep, with_blocked
from barnabas_quorum.image.bad_records import FOLLOWING_MAX, Fault, UnreplayableSnapshot, digest_of_record
from barnabas_quorum.image.hashing import FORMAT
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.topics import TopicsDelta, TopicsImage
from barnabas_quorum.raft.messages import CommittedBatch
from barnabas_quorum.record_codec import decode, encode
from barnabas_quorum.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash, QuarantineRecord
from barnabas_quorum.records_security import ScramMechanism, UserScramCredentialRecord
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset
from tests.support.decided_cluster import HeldQuorum, make_driver, registration, uuid

GARBAGE = b"\xd2\x09\x00"


def config(key: str, value: str | None = "1") -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", key=key, value=value)


class Log:
    """Committed batches one after the other, each read by whoever asks for it."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def add(self, *records: Record | bytes) -> int:
        """Returns the offset of the first."""
        values = tuple(one if isinstance(one, bytes) else encode(one) for one in records)
        base = self.end
        self.batches.append(CommittedBatch(Offset(base), Epoch(1), base * 10, values))
        return base

    def sign(self, offset: int, data: bytes = GARBAGE) -> int:
        return self.add(
            QuarantineRecord(
                offset=Offset(offset),
                epoch=Epoch(1),
                digest=digest_of_record(data),
                principal="User:ops",
                reason="why",
            )
        )

    def read_by(self, *loaders: MetadataLoader, pieces: Sequence[int] = ()) -> None:
        """All of it, in calls that end after so many batches."""
        for loader in loaders:
            at = 0
            for end in (*pieces, len(self.batches)):
                loader.on_commit(self.batches[at:end])
                at = end


def keys(loader: MetadataLoader) -> set[str]:
    return set(loader.image.configs.topic("t"))


class Recorder:
    name = "recorder"

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.offsets.append(image.offset)


# --- the loader -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (GARBAGE, Fault.UNREADABLE),
        (b"\xff\xff\xff", Fault.UNREADABLE),
        (encode(RemoveTopicRecord(topic_id=uuid(9))), Fault.DOES_NOT_FIT),
        (encode(EndTransactionRecord()), Fault.DOES_NOT_FIT),
    ],
)
def test_a_bad_record_stops_the_image_before_its_batch_and_its_neighbours_wait(bad: bytes, fault: Fault) -> None:
    log = Log()
    log.add(config("a"))
    offset = log.add(config("b"), bad, config("c")) + 1
    log.add(config("d"))
    loader = MetadataLoader()
    log.read_by(loader)
    assert keys(loader) == {"a"} and loader.image.offset == 0
    assert loader.blocked is not None and not loader.may_be_written
    record = loader.blocked.record
    assert (record.offset, record.batch_offset, record.batch_end_offset, record.fault) == (offset, 1, 4, fault)
    assert loader.blocked.read_offset == 4


@pytest.mark.parametrize("pieces", [(), (1,), (2,), (3,), (1, 2, 3), (2, 4)])
def test_a_signed_record_alone_is_passed_over_however_the_log_is_read(pieces: Sequence[int]) -> None:
    log = Log()
    log.add(config("a"))
    offset = log.add(config("b"), GARBAGE, config("c")) + 1
    log.add(config("d"))
    log.sign(offset)
    recorder = Recorder()
    loader = MetadataLoader([recorder])
    log.read_by(loader, pieces=pieces)
    assert loader.blocked is None and loader.may_be_written
    assert keys(loader) == {"a", "b", "c", "d"}
    assert loader.image.offset == log.end - 1
    assert recorder.offsets == sorted(set(recorder.offsets))
    assert [each.record.offset for each in loader.passed_over] == [offset]
    assert loader.stats.records_passed_over == 1
    # nobody saw an image that ends between the bad record and the sign-off: a snapshot of it could not be told apart
    assert not [at for at in recorder.offsets if offset <= at < log.end - 1]
    log.add(config("e"))
    loader.on_commit(log.batches[-1:])
    assert "e" in keys(loader)


def test_a_record_of_which_no_image_can_be_made_stalls_too_and_its_neighbours_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = TopicsDelta.apply

    def fails_on_boom(delta: TopicsDelta) -> TopicsImage:
        image = apply(delta)
        if image.get("boom") is not None:
            raise KeyError("boom")
        return image

    monkeypatch.setattr(TopicsDelta, "apply", fails_on_boom)
    boom = TopicRecord(name="boom", topic_id=uuid(2))
    log = Log()
    log.add(config("a"), TopicRecord(name="t", topic_id=uuid(1)))
    offset = log.add(config("b"), boom, config("c")) + 1
    log.add(config("d"))
    loader, late = MetadataLoader(), MetadataLoader()
    log.read_by(loader)
    assert loader.blocked is not None and loader.blocked.record.offset == offset and loader.image.offset == 1
    assert [record.offset for record in loader.blocking_records] == [offset]
    log.sign(offset, encode(boom))
    loader.on_commit(log.batches[-1:])
    log.read_by(late, pieces=(1, 2))
    assert loader.blocked is None and keys(loader) == {"a", "b", "c", "d"} and loader.image.topics.get("t") is not None
    assert loader.image.content_hash() == late.image.content_hash()


@pytest.mark.parametrize("wrong", [{"replicas": ()}, {"leader_epoch": Epoch(2**31)}, {"partition_epoch": 2**31}])
def test_a_partition_that_no_snapshot_could_write_is_a_bad_record(wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"replicas": (BrokerId(1),), "isr": (BrokerId(1),), "directories": (), **wrong}
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(TopicRecord(name="t", topic_id=uuid(1)))
    with pytest.raises(InvariantViolated):
        delta.replay(PartitionRecord(topic_id=uuid(1), partition_id=0, **fields))


def test_a_sign_off_for_other_bytes_releases_nobody() -> None:
    log = Log()
    offset = log.add(GARBAGE)
    log.sign(offset, b"other")
    loader = MetadataLoader()
    log.read_by(loader)
    assert loader.blocked is not None
    log.sign(offset)
    loader.on_commit(log.batches[-1:])
    assert loader.blocked is None


def test_a_bad_record_in_a_transaction_stops_the_image_before_the_transaction() -> None:
    log = Log()
    log.add(config("a"))
    log.add(BeginTransactionRecord(name="x"), config("b"))
    offset = log.add(config("c"), GARBAGE) + 1
    log.add(config("d"), EndTransactionRecord())
    log.add(config("e"))
    loader, late = MetadataLoader(), MetadataLoader()
    log.read_by(loader, pieces=(1, 2, 3, 4))
    assert keys(loader) == {"a"} and loader.image.offset == 0 and loader.blocked is not None
    log.sign(offset)
    loader.on_commit(log.batches[-1:])
    log.read_by(late)
    assert keys(loader) == keys(late) == {"a", "b", "c", "d", "e"}
    assert loader.image.content_hash() == late.image.content_hash()


def test_an_aborted_transaction_with_a_passed_over_record_leaves_nothing() -> None:
    log = Log()
    log.add(config("a"))
    offset = log.add(BeginTransactionRecord(name="x"), config("b"), GARBAGE) + 2
    log.add(AbortTransactionRecord(reason="r"))
    log.sign(offset)
    loader = MetadataLoader()
    log.read_by(loader)
    assert keys(loader) == {"a"} and loader.blocked is None and loader.image.offset == log.end - 1


def test_what_builds_on_a_bad_record_is_listed_beforehand_and_stalls_in_turn() -> None:
    log = Log()
    topic = encode(TopicRecord(name="u", topic_id=uuid(5)))[:-3]  # cut short: its id has 13 bytes
    first = log.add(topic)
    second = log.add(RemoveTopicRecord(topic_id=uuid(5)))
    log.add(config("z"))
    loader = MetadataLoader()
    log.read_by(loader)
    assert [record.offset for record in loader.blocking_records] == [first, second]
    log.sign(first, topic)
    loader.on_commit(log.batches[-1:])
    assert loader.blocked is not None and loader.blocked.record.offset == second
    log.sign(second, encode(RemoveTopicRecord(topic_id=uuid(5))))
    loader.on_commit(log.batches[-1:])
    assert loader.blocked is None and keys(loader) == {"z"}
    assert loader.stats.bad_records == 2


def test_whoever_replayed_a_record_that_others_passed_over_says_that_it_differs() -> None:
    log = Log()
    offset = log.add(config("a"))
    log.sign(offset, encode(config("a")))
    loader = MetadataLoader()
    log.read_by(loader)
    assert keys(loader) == {"a"} and "passed over" in loader.agreement.divergence and not loader.may_be_written


def test_a_bad_record_that_holds_a_secret_does_not_show_it() -> None:
    secret = UserScramCredentialRecord(
        name="alice",
        mechanism=ScramMechanism.SCRAM_SHA_256,
        salt=b"SALT",
        stored_key=b"STORED",
        server_key=b"SERVER",
        iterations=4096,
    )
    log = Log()
    log.add(encode(secret) + b"\x08")
    loader = MetadataLoader()
    log.read_by(loader)
    assert loader.blocked is not None
    shown = str(loader.blocked.record)
    assert "STORED" not in shown and "SERVER" not in shown


# --- snapshots ------------------------------------------------------------------------------------------------------------


class Snapshot:
    """Of everything below its end, as a listener reads it."""

    def __init__(self, end_offset: int, *records: Record | bytes, is_only: bool = True) -> None:
        self.end_offset = Offset(end_offset)
        self.epoch = Epoch(1)
        self.timestamp_ms = 0
        self.is_only = is_only
        self._group = tuple(one if isinstance(one, bytes) else encode(one) for one in records)

    def groups(self) -> Iterator[Sequence[bytes]]:
        return iter((self._group[:2], self._group[2:]))

    def load_into(self, loader: MetadataLoader) -> None:
        for _ in loader.on_load_snapshot(self):
            pass


class Faulty:
    """A publisher that cannot take metadata in."""

    name = "faulty"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(5, "a disk"), KafkaError("a refusal")])
def test_an_error_of_a_publisher_is_not_a_bad_record_and_reaches_the_node(error: Exception) -> None:
    """Which ends with it (publisher.py)."""
    log = Log()
    log.add(config("a"))
    at_its_end, within = MetadataLoader([Faulty(error)]), MetadataLoader([Faulty(error)])
    with pytest.raises(type(error)):
        log.read_by(at_its_end)
    log.add(BeginTransactionRecord(name="opens"))  # what stands before it is published on the way
    with pytest.raises(type(error)):
        log.read_by(within)
    from_snapshot = MetadataLoader([Faulty(error)])
    with pytest.raises(type(error)):
        Snapshot(5, config("a")).load_into(from_snapshot)
    assert [loader.blocked for loader in (at_its_end, within, from_snapshot)] == [None] * 3


def test_a_bad_record_in_a_snapshot_does_not_stall_where_an_older_snapshot_says_the_same() -> None:
    loader = MetadataLoader()
    with pytest.raises(UnreplayableSnapshot, match="record 1 of the snapshot 5-1"):
        Snapshot(5, config("a"), GARBAGE, config("b"), is_only=False).load_into(loader)
    assert loader.blocked is None and loader.image is MetadataImage.EMPTY


def test_the_only_snapshot_is_taken_without_its_bad_records_when_each_is_signed_off() -> None:
    removal = encode(RemoveTopicRecord(topic_id=uuid(5)))
    recorder, recorder_of_clean = Recorder(), Recorder()
    loader, clean = MetadataLoader([recorder]), MetadataLoader([recorder_of_clean])
    Snapshot(5, config("a"), GARBAGE, config("b"), removal, config("c")).load_into(loader)
    Snapshot(5, config("a"), config("b"), config("c")).load_into(clean)
    assert loader.blocked is not None and not loader.may_be_written and loader.image is MetadataImage.EMPTY
    assert loader.blocked.record.is_in_snapshot and loader.blocking_records == [loader.blocked.record]

    log = Log()
    log.batches.append(CommittedBatch(Offset(5), Epoch(1), 0, (encode(config("d")),)))
    log.sign(4)
    log.add(config("e"))
    log.sign(3, removal)  # of a node whose snapshot ends elsewhere: the bytes say what is meant
    log.add(config("f"))
    log.read_by(loader, pieces=(1, 2))
    log.read_by(clean)
    assert loader.blocked is None and loader.may_be_written
    assert keys(loader) == {"a", "b", "c", "d", "e", "f"}
    assert loader.image.content_hash() == clean.image.content_hash()
    assert [each.record.digest for each in loader.passed_over] == list(map(digest_of_record, (GARBAGE, removal)))
    assert recorder.offsets == [4, log.end - 1]


def test_a_node_stalls_before_its_only_snapshot_however_many_of_its_records_are_bad() -> None:
    """It would end at each start otherwise. No sign-off can help it; a sound snapshot does."""
    garbage = [GARBAGE + bytes([number]) for number in range(FOLLOWING_MAX + 1)]
    recorder = Recorder()
    loader = MetadataLoader([recorder])
    with pytest.raises(UnreplayableSnapshot):
        Snapshot(5, config("a"), *garbage, is_only=False).load_into(loader)
    Snapshot(5, config("a"), *garbage).load_into(loader)
    assert loader.blocked is not None and not loader.may_be_written and recorder.offsets == []
    assert "too many to sign off" in loader.blocked.record.error
    log = Log()
    log.batches.append(CommittedBatch(Offset(5), Epoch(1), 0, (encode(config("b")),)))
    for each in garbage:
        log.sign(4, each)
    log.read_by(loader)
    assert loader.blocked is not None and recorder.offsets == [], "what is left of it is not known"
    assert loader.blocking_records == [loader.blocked.record]
    unused: Any = None
    quarantine = BlockedController(unused)
    quarantine.attach(loader)
    with pytest.raises(KafkaError, match=r"no sign-off helps.*run the version"):
        quarantine.sign_off(SignOffRecord(offset=Offset(4), digest=b"", reason="r"), principal="User:me", quorum=unused)
    Snapshot(log.end, config("a"), config("b")).load_into(loader)
    assert loader.blocked is None and keys(loader) == {"a", "b"}


def test_a_snapshot_of_which_no_image_can_be_made_does_not_stall_where_there_is_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any) -> MetadataImage:
        raise KeyError("a bug")

    monkeypatch.setattr(MetadataDelta, "apply", fail)
    with pytest.raises(UnreplayableSnapshot, match="no image comes"):
        Snapshot(5, config("a"), is_only=False).load_into(MetadataLoader())


def test_a_snapshot_without_the_bad_record_ends_the_stall() -> None:
    loader = MetadataLoader()
    Snapshot(5, config("a"), GARBAGE).load_into(loader)
    Snapshot(9, config("a"), config("b")).load_into(loader)
    assert loader.blocked is None and loader.blocking_records == [] and keys(loader) == {"a", "b"}


# --- hashes ---------------------------------------------------------------------------------------------------------------


def hash_record(loader: MetadataLoader) -> ImageHashRecord:
    return loader.image.hash.to_record()


def test_a_hash_is_compared_with_the_image_of_right_before_it() -> None:
    log, writer, loader = Log(), MetadataLoader(), MetadataLoader()
    log.add(config("a"))
    log.read_by(writer)
    log.add(hash_record(writer), config("b"))
    log.add(config("c"))
    log.read_by(loader)
    assert (loader.stats.hashes_compared, loader.stats.hash_mismatches) == (1, 0)
    assert [(each.offset, each.differing) for each in loader.agreement.comparisons] == [(1, [])]
    compared = loader.agreement.compared_image(Offset(1))
    assert compared is not None and compared.offset == 0
    assert keys(loader) == {"a", "b", "c"}


def test_a_hash_that_differs_is_counted_named_and_keeps_the_image_out_of_snapshots_until_they_agree(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, writer, loader = Log(), MetadataLoader(), MetadataLoader()
    log.add(config("a"))
    log.read_by(writer)
    log.add(hash_record(writer))
    loader.on_commit([CommittedBatch(Offset(0), Epoch(1), 0, (encode(config("a", "2")),)), log.batches[1]])
    assert loader.stats.hash_mismatches == 1
    assert loader.agreement.comparisons[-1].differing == ["configs"]
    assert "configs" in loader.agreement.divergence and not loader.may_be_written
    own = dict(loader.image.hash.parts())["configs"].hex()
    assert "offset 0" in caplog.text and own in caplog.text and "barnabas quorum verify" in caplog.text
    loader.on_commit([CommittedBatch(Offset(2), Epoch(1), 0, (encode(config("a", "1")),))])
    loader.on_commit([CommittedBatch(Offset(3), Epoch(1), 0, (encode(hash_record(writer)),))])
    assert loader.agreement.divergence == "" and loader.may_be_written


def test_a_hash_of_another_format_is_not_compared() -> None:
    loader = MetadataLoader()
    log = Log()
    log.add(config("a"))
    log.add(ImageHashRecord(format=FORMAT + 1, parts=(PartHash("configs", bytes(16)),)))
    log.read_by(loader)
    assert loader.stats.hashes_compared == 0 and not loader.agreement.divergence


# --- the controller -------------------------------------------------------------------------------------------------------


class Stand:
    """An active controller over a quorum of one, and a follower's loader that reads the same log."""

    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.driver: ControllerDriver
        self.quorum: HeldQuorum
        self.driver, self.quorum = make_driver(loop.call_soon, image_hash_interval_ms=0, **settings)
        assert self.quorum.listener is not None
        self.loader = self.quorum.listener.loader
        self.quorum.elect()

    def follower(self) -> MetadataLoader:
        """A node that starts now and reads all that is committed."""
        loader = MetadataLoader()
        loader.on_commit(self.quorum.committed)
        return loader

    def commit(self, *values: bytes) -> int:
        """A batch that some older controller wrote; returns the offset of its first record."""
        quorum = self.quorum
        batch = CommittedBatch(quorum.next_offset, quorum.epoch, 0, tuple(values))
        quorum.next_offset = Offset(batch.last_offset + 1)
        quorum.batches.append(batch)
        quorum.commit_all()
        return batch.base_offset

    async def ask(self, request: Any) -> Any:
        return await self.driver.handle(request, principal="User:ops")

    async def add_broker(self) -> int:
        """Broker 1, in service; returns its epoch."""
        epoch: int = (await self.ask(registration(1))).broker_epoch
        connection = self.driver.connect(BrokerId(1), epoch, lambda item: None)
        assert not (await connection.heartbeat(heartbeat(1, epoch, offset=epoch))).is_fenced
        return epoch

    async def make(self, name: str) -> None:
        """A topic, for good."""
        (made,) = (await self.ask(topic(name))).topics
        assert made.error is None and self.loader.image.topics.get(name) is not None

    async def refusal(self, request: Any) -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            await self.ask(request)
        return caught.value


def heartbeat(broker_id: int, epoch: int, *, offset: int) -> BrokerHeartbeat:
    return BrokerHeartbeat(
        broker_id=BrokerId(broker_id),
        broker_epoch=epoch,
        metadata_offset=Offset(offset),
        want_fence=False,
        want_shutdown=False,
    )


def topic(name: str) -> CreateTopics:
    return CreateTopics(topics=(CreatableTopic(name=name, assignments={0: (BrokerId(1),)}),))


async def test_while_stalled_a_controller_takes_only_the_sign_off_and_continues_after_it() -> None:
    stand = Stand()
    await stand.add_broker()
    bad = stand.commit(GARBAGE)
    assert stand.loader.blocked is not None

    refused = await stand.refusal(topic("t"))
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR and "quarantine list" in refused.message
    assert f"quarantine sign-off {bad} " in refused.message
    before = len(stand.quorum.committed)
    reply = await stand.ask(SignOffRecord(offset=Offset(bad), digest=digest_of_record(GARBAGE), reason="garbage"))
    assert len(stand.quorum.committed) == before + 1
    assert stand.loader.blocked is None and reply.offset == stand.loader.image.offset

    await stand.make("t")
    assert stand.follower().image.content_hash() == stand.loader.image.content_hash()
    sign_off = decode(stand.quorum.committed[before].records[0])
    assert isinstance(sign_off, QuarantineRecord)
    assert (sign_off.principal, sign_off.reason) == ("User:ops", "garbage")


def test_every_explanation_on_a_stalled_node_names_the_record_and_its_sign_off() -> None:
    found = Explanation(
        subject="broker 5",
        status="unknown",
        summary="broker 5 is not registered.",
        next=(NextStep(purpose="start it"),),
    )
    log, loader = Log(), MetadataLoader()
    offset = log.add(GARBAGE)
    assert with_blocked(found, loader.blocked) is found
    log.read_by(loader)
    reported = with_blocked(found, loader.blocked)
    assert f"offset {offset}" in reported.facts[0] and "no broker can register" in reported.facts[0]
    assert f"quarantine sign-off {offset} " in reported.next[1].command and reported.next[-1] == found.next[0]


async def test_waiters_for_a_commit_behind_a_bad_record_get_an_error_and_the_next_leader_releases() -> None:
    stand = Stand()
    await stand.add_broker()
    stand.quorum.is_held = True
    waiting = asyncio.ensure_future(stand.ask(topic("t")))
    await asyncio.sleep(0)
    (proposed,) = stand.quorum.batches
    stand.quorum.batches[0] = proposed._replace(records=(GARBAGE, *proposed.records[1:]))
    stand.quorum.commit_all()
    with pytest.raises(KafkaError, match="cannot be replayed"):
        await waiting
    stand.quorum.is_held = False

    stand.quorum.elect()  # a new leadership that begins stalled
    assert (await stand.refusal(topic("u"))).code is ErrorCode.KAFKA_STORAGE_ERROR
    for blocking in list(stand.loader.blocking_records):  # the partition of the topic that is not there is bad too
        await stand.ask(SignOffRecord(offset=blocking.offset, digest=b"", reason="lost"))
    assert stand.loader.blocked is None
    await stand.make("t")
    assert stand.follower().image.content_hash() == stand.loader.image.content_hash()


async def test_a_transaction_that_was_open_behind_a_bad_record_is_aborted_after_the_release() -> None:
    stand = Stand()
    await stand.add_broker()
    stand.quorum.is_leader = False
    bad = stand.commit(encode(BeginTransactionRecord(name="x")), encode(config("a")), GARBAGE) + 2
    stand.quorum.elect()
    await stand.ask(SignOffRecord(offset=Offset(bad), digest=b"", reason="garbage"))
    await stand.make("t")
    assert not stand.loader.is_in_transaction and keys(stand.loader) == set()
    assert stand.follower().image.content_hash() == stand.loader.image.content_hash()


async def test_a_broker_that_heartbeats_while_the_controller_is_stalled_is_not_dead_afterwards() -> None:
    stand = Stand()
    epoch = await stand.add_broker()
    bad = stand.commit(GARBAGE)
    beat = heartbeat(1, epoch, offset=epoch)
    connection = stand.driver.connect(BrokerId(1), epoch, lambda item: None)
    reply = await connection.heartbeat(beat)
    assert reply.is_caught_up and not reply.is_fenced
    session = stand.driver.sessions()[BrokerId(1)]
    assert session.metadata_offset == epoch
    assert (await stand.refusal(SignOffRecord(offset=Offset(bad), digest=b"", reason=" "))).message.startswith(
        "a sign-off"
    )


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda bad: SignOffRecord(offset=Offset(bad), digest=b"x" * 16, reason="r"), "has the digest"),
        (lambda bad: SignOffRecord(offset=Offset(bad - 1), digest=b"", reason="r"), "has replayed the record"),
        (lambda bad: SignOffRecord(offset=Offset(bad + 1), digest=b"", reason="r"), "is not bad"),
        (lambda bad: SignOffRecord(offset=Offset(bad), digest=b"", reason="r" * 1001), "1001 characters"),
    ],
)
async def test_a_sign_off_that_means_another_record_is_refused(request_of: Any, words: str) -> None:
    stand = Stand()
    await stand.add_broker()
    bad = stand.commit(GARBAGE, encode(NoOpRecord()))
    assert words in (await stand.refusal(request_of(bad))).message
    assert stand.loader.blocked is not None


async def test_a_record_that_the_controller_or_a_broker_can_replay_is_not_signed_off() -> None:
    stand = Stand()
    epoch = await stand.add_broker()
    refused = await stand.refusal(SignOffRecord(offset=Offset(1), digest=b"", reason="r"))
    assert "none is bad" in refused.message and "upgrade" in refused.message
    bad = stand.commit(GARBAGE)
    connection = stand.driver.connect(BrokerId(1), epoch, lambda item: None)
    newer = heartbeat(1, epoch, offset=bad)
    await connection.heartbeat(newer)
    refused = await stand.refusal(SignOffRecord(offset=Offset(bad), digest=b"", reason="r"))
    assert "broker 1 has replayed" in refused.message and "Upgrade" in refused.message


@pytest.mark.parametrize(
    "wrong",
    [
        RemoveTopicRecord(topic_id=uuid(77)),  # no such topic
        ProducerIdsRecord(broker_id=BrokerId(1), broker_epoch=0, next_producer_id=2**63),  # more than its field holds
    ],
)
async def test_a_decision_that_does_not_fit_is_refused_before_it_is_written_and_no_node_stops(
    monkeypatch: pytest.MonkeyPatch, wrong: Record
) -> None:
    stand = Stand()
    await stand.add_broker()
    await stand.make("t")
    end = stand.quorum.next_offset
    monkeypatch.setitem(
        DECISIONS, DeleteTopics, lambda image, request, context: ControllerResult(records=[wrong], response=None)
    )
    refused = await stand.refusal(DeleteTopics(topics=(TopicReference(name="t"),)))
    assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR and "nothing was written" in refused.message
    assert stand.quorum.next_offset <= end + 1
    await stand.make("u")


async def test_the_active_controllers_hash_is_compared_by_all_at_its_offset() -> None:
    stand = Stand(image_hash_interval_records=4)
    await stand.add_broker()
    for name in "abcd":
        await stand.make(name)
    reply = await stand.ask(WriteImageHash())
    assert stand.loader.agreement.comparisons[-1].offset == reply.offset
    follower = stand.follower()
    assert follower.stats.hashes_compared == stand.loader.stats.hashes_compared >= 3  # two by count, one asked for
    assert follower.stats.hash_mismatches == stand.loader.stats.hash_mismatches == 0
