"""ShareFetch and ShareAcknowledge over a socket, of one broker whose share state is kept in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.security.access import Access
from barnabas_coordination.share.due_times import DueTimes
from barnabas_coordination.share.leader import SharePartitions
from barnabas_coordination.share.letters import DeadLetter, DeadLettersFailed
from barnabas_coordination.share.partition import Acknowledgement
from barnabas_coordination.share.sessions import SharedPartition
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import ShareKey
from barnabas_log.disk import RealDisk
from barnabas_quorum.image.authorizer import CLUSTER_NAME
from barnabas_quorum.image.metadata import MetadataDelta
from barnabas_quorum.records import FeatureLevelRecord, PartitionChangeRecord
from barnabas_quorum.records_security import AclOperation, AclResourceType
from barnabas_wire.client.aio import AioConnection
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_wire.kafka.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcknowledgeType,
    ShareAcknowledgeRequest,
)
from barnabas_wire.kafka.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from barnabas_wire.records.batch import Record, build_batch, iterate_batches, iterate_records
from tests.support.listener import LISTENER, NODE_ID, until
from tests.support.memory_persister import MemoryPersister
from tests.support.single_broker import SingleBroker, now_ms, single_broker

TOPIC, GROUP = "work", "workers"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Letters:
    """Dead letters in memory; `fails` refuses them."""

    def __init__(self) -> None:
        self.written: list[DeadLetter] = []
        self.fails = False

    async def write(self, settings: ShareSettings, letters: Sequence[DeadLetter]) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise DeadLettersFailed("told to", code=ErrorCode.INVALID_CONFIG, unwritten=letters)
        self.written += letters


class Shared:
    """The broker, a topic of two partitions, and what a group asks of it."""

    def __init__(
        self, broker: SingleBroker, shares: SharePartitions, persister: MemoryPersister, letters: Letters
    ) -> None:
        self.broker = broker
        self.shares = shares
        self.persister = persister
        self.letters = letters
        self.settings = ShareSettings(auto_offset_reset="earliest")
        self.topic_id = broker.topic_ids[TOPIC]
        self.ahead_ms = 0
        """How far ahead the clock of the share partitions is: nothing that is due later need be waited for."""

    async def connect(self) -> AioConnection:
        port = self.broker.server.bound[LISTENER][1]
        return await AioConnection.connect("127.0.0.1", port, client_id="c", timeout_s=10)

    async def produce(self, *values: str, partition: int = 0) -> None:
        """One batch."""
        at = now_ms()
        records = [Record(offset, at, None, value.encode()) for offset, value in enumerate(values)]
        data = PartitionProduceData(index=partition, records=build_batch(records))
        client = await self.connect()
        request = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        answer = await client.call(request, version=9, timeout_s=10)
        assert answer.responses[0].partition_responses[0].error_code == 0
        await client.close()

    def publish(self, *records: Any) -> None:
        delta = MetadataDelta(self.broker.metadata.image)
        for record in records:
            delta.replay(record)
        self.broker._publish(delta)
        self.shares.follow(self.broker.metadata.image)

    def lead(self, leader: int) -> None:
        """Another one leads, in the next epoch."""
        self.publish(
            PartitionChangeRecord(
                topic_id=self.topic_id,
                partition_id=0,
                replicas=(NODE_ID, BrokerId(leader)),
                directories=(Uuid(bytes(16)),) * 2,
                isr=(BrokerId(leader),),
                leader=BrokerId(leader),
            )
        )

    def key(self, partition: int = 0) -> ShareKey:
        return ShareKey(GROUP, self.topic_id, partition)


class Member:
    """One member of the group, over a connection of its own."""

    def __init__(self, shared: Shared, client: AioConnection, member_id: str) -> None:
        self.shared = shared
        self.client = client
        self.member_id = member_id
        self.epoch = 0

    async def fetch(
        self,
        acks: Sequence[tuple[int, int, int]] = (),
        *,
        partitions: Sequence[int] = (0,),
        forget: Sequence[int] = (),
        wait_ms: int = 0,
        most: int = 500,
        epoch: int | None = None,
        version: int = 2,
        **fields: Any,
    ) -> Any:
        """The decoded answer."""
        asked = [
            FetchPartition(
                partition_index=each,
                acknowledgement_batches=[AcknowledgementBatch(first, last, [type_]) for first, last, type_ in acks],
            )
            for each in partitions
        ]
        topic_id = self.shared.topic_id
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=most,
            batch_size=500,
            topics=[FetchTopic(topic_id=topic_id, partitions=asked)],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=list(forget))] if forget else [],
        )
        request = replace(request, **fields)
        answer = await self.client.call(request, version=version, timeout_s=20)
        if not answer.error_code and epoch is None:
            self.epoch += 1
        return answer

    async def take(self, *acks: tuple[int, int, int], **options: Any) -> list[tuple[int, str, int]]:
        """(offset, value, delivery) of all records acquired."""
        answer = await self.fetch(acks, **options)
        assert not answer.error_code, answer
        found = []
        for topic in answer.responses:
            for part in topic.partitions:
                assert not part.error_code, part
                records = {
                    record.offset: (record.value or b"").decode()
                    for position, header in iterate_batches(part.records)
                    for record in iterate_records(part.records[position : position + header.size_bytes])
                }
                for each in part.acquired_records:
                    for offset in range(each.first_offset, each.last_offset + 1):
                        found.append((offset, records[offset], each.delivery_count))
        return found

    async def ack(
        self, first: int, last: int, *types: int, epoch: int | None = None, partition: int = 0, version: int = 2
    ) -> tuple[int, int]:
        """The code of the request, and that of the partition."""
        batch = AcknowledgementBatch(first, last, list(types))
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=RENEW in types,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.shared.topic_id,
                    partitions=[AcknowledgePartition(partition_index=partition, acknowledgement_batches=[batch])],
                )
            ],
        )
        answer = await self.client.call(request, version=version, timeout_s=20)
        if answer.error_code:
            return answer.error_code, 0
        if epoch is None:
            self.epoch += 1
        return 0, answer.responses[0].partitions[0].error_code


@asynccontextmanager
async def shared(directory: Path, **settings: Any) -> AsyncIterator[Shared]:
    persister, letters = MemoryPersister(), Letters()
    made: list[SharePartitions] = []
    disk = RealDisk()
    found: list[Shared] = []

    def make(broker: SingleBroker) -> SharePartitions:
        shares = SharePartitions(
            replicas=broker.replicas,
            persister=persister,
            letters=letters,
            due_times=DueTimes(disk=disk),
            metadata=broker.metadata,
            settings=lambda image, group_id: found[0].settings,
            sessions_max=2,
            fetch_bytes_max=1 << 24,
            clock_ms=lambda: now_ms() + found[0].ahead_ms,
        )
        made.append(shares)
        return shares

    async with single_broker(directory, topics={TOPIC: 2}, make_shares=make) as broker:
        found.append(Shared(broker, made[0], persister, letters))
        found[0].settings = replace(found[0].settings, **settings)
        found[0].publish(FeatureLevelRecord(name="share.version", level=2))
        for partition in (0, 1):
            await persister.initialize(found[0].key(partition), state_epoch=Epoch(1))
        try:
            yield found[0]
        finally:
            disk.close()


async def join(shared: Shared, member_id: str = "member-a") -> Member:
    return Member(shared, await shared.connect(), member_id)


async def opened(shared: Shared, member_id: str = "member-a", *, partitions: Sequence[int] = (0,)) -> Member:
    """A member whose session is open and whose partition is loaded; it has nothing yet."""
    member = await join(shared, member_id)
    is_there = shared.shares.describe(shared.key()) is not None
    answer = await member.fetch(partitions=partitions, most=0 if is_there else 500)
    assert not answer.error_code and not answer.responses
    await until(lambda: shared.shares.describe(shared.key()) is not None)
    return member


async def test_records_are_acquired_and_acknowledged_and_never_come_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("one", "two", "three")
        member = await opened(place)
        assert await member.take() == [(0, "one", 1), (1, "two", 1), (2, "three", 1)]
        assert await member.ack(0, 1, ACCEPT) == (0, 0)
        assert await member.take((2, 2, RELEASE)) == [(2, "three", 2)] or await member.take() == [(2, "three", 2)]
        assert await member.ack(2, 2, ACCEPT) == (0, 0)
        assert place.persister.kept[place.key()].start_offset == 2
        told = place.shares.describe(place.key())
        assert told is not None and (told.start_offset, told.in_flight) == (3, 0)


@pytest.mark.parametrize("version", [1, 2])
async def test_an_answer_has_whole_batches_and_says_which_offsets_count(tmp_path: Path, version: int) -> None:
    async with shared(tmp_path) as place:
        for number in range(3):
            await place.produce(*(f"{number}-{each}" for each in range(4)))
        member = await opened(place)
        mode: dict[str, Any] = {"share_acquire_mode": 1} if version == 2 else {}
        answer = await member.fetch(most=6, version=version, **mode)
        (part,) = answer.responses[0].partitions
        assert [header.base_offset for _, header in iterate_batches(part.records)] == [0, 4]
        acquired = [(each.first_offset, each.last_offset) for each in part.acquired_records]
        assert acquired == ([(0, 5)] if version == 2 else [(0, 7)])
        assert answer.acquisition_lock_timeout_ms == 30_000


async def test_a_group_that_begins_at_the_end_gets_what_comes_after_its_first_fetch(tmp_path: Path) -> None:
    async with shared(tmp_path, auto_offset_reset="latest") as place:
        await place.produce("before")
        member = await opened(place)
        await place.produce("after")
        assert await member.take(wait_ms=5_000) == [(1, "after", 1)]
    async with shared(tmp_path / "other", auto_offset_reset="by_duration:PT1H") as place:
        await place.produce("an hour is long")
        member = await opened(place)
        assert await member.take(wait_ms=5_000) == [(0, "an hour is long", 1)]


async def test_where_a_group_begins_is_kept_before_its_first_acknowledgement(tmp_path: Path) -> None:
    async with shared(tmp_path, auto_offset_reset="latest") as place:
        await place.produce("before")
        member = await opened(place)
        assert place.persister.kept[place.key()].start_offset == 1
        await member.fetch(epoch=-1)
        await until(lambda: place.shares.describe(place.key()) is None)
        await place.produce("while nobody led it")
        member = await opened(place, "member-b")
        assert await member.take(wait_ms=5_000) == [(1, "while nobody led it", 1)]


async def test_a_fetch_waits_for_records_and_for_those_that_others_let_go_of(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        one, other = await opened(place, "member-a"), await opened(place, "member-b")
        waiting = asyncio.create_task(other.take(wait_ms=15_000))
        await until(lambda: place.shares.stats.fetches_parked > 0)
        await place.produce("x")
        assert await waiting == [(0, "x", 1)]
        waiting = asyncio.create_task(one.take(wait_ms=15_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert await other.ack(0, 0, RELEASE) == (0, 0)
        assert await waiting == [(0, "x", 2)]


async def test_what_a_lost_connection_had_goes_to_another_at_once(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x", "y")
        one, other = await opened(place, "member-a"), await opened(place, "member-b")
        assert len(await one.take(wait_ms=5_000)) == 2
        waiting = asyncio.create_task(other.take(wait_ms=15_000))
        await asyncio.sleep(0.05)
        await one.client.close()
        assert await waiting == [(0, "x", 2), (1, "y", 2)]
        assert len(place.shares.sessions) == 1


async def test_a_lock_ends_by_itself(tmp_path: Path) -> None:
    async with shared(tmp_path, record_lock_duration_ms=200) as place:
        await place.produce("x")
        one, other = await opened(place, "member-a"), await opened(place, "member-b")
        assert await one.take(wait_ms=5_000) == [(0, "x", 1)]
        assert await other.take(wait_ms=15_000) == [(0, "x", 2)]
        assert await one.ack(0, 0, ACCEPT) == (0, ErrorCode.INVALID_RECORD_STATE)


async def test_sessions_have_consecutive_epochs_and_an_end(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        member = await join(place)
        assert (await member.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await member.ack(0, 0, ACCEPT, epoch=0) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, 0)
        assert (await member.fetch([(0, 0, ACCEPT)])).error_code == ErrorCode.INVALID_REQUEST
        await member.fetch()
        assert (await member.fetch(epoch=3)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert len(await member.take(wait_ms=5_000)) == 1
        assert not (await member.fetch(epoch=-1)).error_code
        assert (await member.fetch(epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert len(place.shares.sessions) == 0
        await until(lambda: place.shares.describe(place.key()) is None)


async def test_a_broker_with_as_many_sessions_as_it_may_have_says_so_after_a_while(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        for name in ("member-a", "member-b"):
            await opened(place, name)
        late = await join(place, "member-c")
        began = asyncio.get_running_loop().time()
        assert (await late.fetch(wait_ms=300)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_session_fetches_what_it_named_until_it_forgets_it(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        member = await opened(place, partitions=(0, 1))
        await until(lambda: place.shares.describe(place.key(1)) is not None)
        await place.produce("x", partition=1)
        assert await member.take(partitions=(), wait_ms=5_000) == [(0, "x", 1)]
        await place.produce("y", partition=1)
        assert await member.take(partitions=(), forget=(1,)) == []


async def test_requests_that_break_the_rules_are_refused(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x", "y")
        member = await opened(place)
        invalid = ErrorCode.INVALID_REQUEST
        assert (await member.fetch(is_renew_ack=True)).error_code == invalid
        assert (await member.fetch(share_acquire_mode=2)).error_code == invalid
        assert (await member.fetch(group_id=None)).error_code == invalid
        assert (await member.fetch(member_id="x" * 37)).error_code == invalid
        assert len(await member.take(wait_ms=5_000)) == 2
        assert await member.ack(1, 0, ACCEPT) == (0, invalid)
        assert await member.ack(0, 1, ACCEPT, ACCEPT, ACCEPT) == (0, invalid)
        assert await member.ack(0, 1) == (0, invalid)
        assert await member.ack(0, 0, 5) == (0, invalid)
        assert await member.ack(0, 0, RENEW, version=1) == (0, invalid)
        assert await member.ack(0, 7, ACCEPT) == (0, invalid)
        assert await member.ack(0, 1, ACCEPT, REJECT) == (0, 0)
        assert await member.ack(0, 0, ACCEPT, partition=1) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        place.topic_id = Uuid(bytes(range(16)))
        answer = await member.fetch()
        codes = {part.error_code for topic in answer.responses for part in topic.partitions}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_ID}


async def test_a_renewed_lock_lasts(tmp_path: Path) -> None:
    async with shared(tmp_path, record_lock_duration_ms=3_600_000) as place:
        await place.produce("x")
        one, other = await opened(place, "member-a"), await opened(place, "member-b")
        assert len(await one.take(wait_ms=5_000)) == 1
        for _ in range(4):
            place.ahead_ms += 2_400_000
            assert await one.ack(0, 0, RENEW) == (0, 0)
        assert await other.take() == []
        assert await one.ack(0, 0, ACCEPT) == (0, 0)


async def test_acknowledgements_that_cannot_be_kept_are_refused_and_can_be_repeated(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 1
        place.persister.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await member.ack(0, 0, ACCEPT) == (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        place.persister.error = None
        assert await member.ack(0, 0, ACCEPT) == (0, 0)


async def test_acknowledgements_that_come_while_one_is_written_go_out_together(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce(*"abcdefgh")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 8
        place.persister.gate.clear()
        place.persister.writes.clear()
        session = place.shares.sessions.all()[0]
        told: list[Any] = []
        for offset in range(8):
            ack = Acknowledgement(Offset(offset), Offset(offset), AcknowledgeType.ACCEPT)
            place.shares.acknowledge(session, SharedPartition(place.topic_id, 0), [ack], told.append)
            await asyncio.sleep(0)
        assert told == []
        place.persister.gate.set()
        await until(lambda: len(told) == 8)
        assert told == [None] * 8
        assert len(place.persister.writes) <= 3


async def test_a_leader_that_is_replaced_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 1
        waiting = asyncio.create_task(member.fetch(wait_ms=15_000))
        await asyncio.sleep(0.05)
        place.lead(7)
        (part,) = (await waiting).responses[0].partitions
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (7, 1)
        assert await member.ack(0, 0, ACCEPT) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert place.shares.describe(place.key()) is None


async def test_a_leader_that_another_has_fenced_lets_go(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 1
        await place.persister.read(place.key(), leader_epoch=Epoch(9))
        assert await member.ack(0, 0, ACCEPT) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert place.shares.describe(place.key()) is None


async def test_a_partition_that_cannot_be_loaded_is_refused_and_tried_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        await place.persister.delete(place.key())
        member = await join(place)
        answer = await member.fetch(wait_ms=10_000)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await place.persister.initialize(place.key(), state_epoch=Epoch(2))
        assert await member.take(wait_ms=10_000) == [(0, "x", 1)]


async def test_rejected_records_become_dead_letters_and_are_held_while_those_fail(tmp_path: Path) -> None:
    async with shared(tmp_path, dead_letter_topic="dlq.work") as place:
        await place.produce("x", "y")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 2
        place.letters.fails = True
        assert await member.ack(0, 1, REJECT, ACCEPT) == (0, 0)
        await until(lambda: place.shares.stats.failed_letters > 0)
        told = place.shares.describe(place.key())
        assert told is not None and (told.start_offset, told.archiving, told.held_letters) == (0, 1, 1)
        place.letters.fails = False
        await until(lambda: bool(place.letters.written))
        (letter,) = place.letters.written
        assert letter == DeadLetter(GROUP, place.topic_id, TOPIC, 0, Offset(0), 1, "Offset rejected by client.")
        await until(lambda: place.shares.describe(place.key()).start_offset == 2)  # type: ignore[union-attr]


async def test_a_released_record_waits_for_the_retry_backoff(tmp_path: Path) -> None:
    async with shared(tmp_path, retry_backoff_ms=400) as place:
        await place.produce("x")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 1
        began = asyncio.get_running_loop().time()
        assert await member.ack(0, 0, RELEASE) == (0, 0)
        assert await member.take(wait_ms=10_000) == [(0, "x", 2)]
        assert asyncio.get_running_loop().time() - began >= 0.39


async def test_a_record_that_names_a_time_waits_for_it_and_blocks_nobody(tmp_path: Path) -> None:
    async with shared(tmp_path, deliver_at_header="at") as place:
        at = now_ms()
        records = [
            Record(0, at, None, b"later", (("at", str(at + 3_600_000).encode()),)),
            Record(1, at, None, b"now"),
        ]
        client = await place.connect()
        data = PartitionProduceData(index=0, records=build_batch(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        await client.call(request, version=9, timeout_s=10)
        member = await opened(place)
        assert await member.take(wait_ms=10_000) == [(1, "now", 1)]
        assert await member.take((1, 1, ACCEPT)) == []
        place.ahead_ms = 3_600_000
        assert await member.take(wait_ms=10_000) == [(0, "later", 1)]


async def test_share_groups_are_refused_while_their_feature_is_off(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 1
        waiting = asyncio.create_task(member.fetch(wait_ms=15_000))
        await asyncio.sleep(0.05)
        place.publish(FeatureLevelRecord(name="share.version", level=0))
        await waiting
        assert len(place.shares.sessions) == 0
        assert (await member.fetch(epoch=0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert await member.ack(0, 0, ACCEPT) == (ErrorCode.UNSUPPORTED_VERSION, 0)
        place.publish(FeatureLevelRecord(name="share.version", level=1))
        member.epoch = 0
        await member.fetch()
        assert await member.take(wait_ms=5_000) == [(0, "x", 1)], "its state was kept"


class NoTopics(Access):
    """Of who may read no topic."""

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        return resource_type is not AclResourceType.TOPIC


async def test_who_may_not_read_a_topic_neither_gets_its_records_nor_acknowledges_them(tmp_path: Path) -> None:
    async with shared(tmp_path) as place:
        await place.produce("x")
        member = await opened(place)
        assert len(await member.take(wait_ms=5_000)) == 1
        (connection,) = (each for each in place.broker.server.connections if each.held)
        connection.guard = connection.access = NoTopics()
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await member.ack(0, 0, ACCEPT) == (0, refused)
        (part,) = (await member.fetch([(0, 0, ACCEPT)], wait_ms=5_000)).responses[0].partitions
        assert (part.error_code, part.acknowledge_error_code, part.acquired_records) == (refused, refused, [])
