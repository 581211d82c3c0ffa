"""Share groups (KIP-932): members, sessions, what is acquired and acknowledged, counts, locks, offsets, configs; and all of it off.

Every case has a group and topics of its own. What Kafka does a moment after it has answered is waited for by asking: whether a
group's configs are taken in (`alter_group`), whether its partitions have begun (`member_of`), whether a lock has ended (`gather`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages import alter_share_group_offsets as alter
from barnabas_wire.kafka.messages import delete_share_group_offsets as delete
from barnabas_wire.kafka.messages import describe_share_group_offsets as describe
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas_wire.kafka.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.describe_groups import DescribeGroupsRequest
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas_wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas_wire.kafka.messages.list_groups import ListGroupsRequest
from barnabas_wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_wire.kafka.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas_wire.kafka.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from barnabas_wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas_wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas_wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.compat.samples import DEADLINE_S
from tests.oracle.answers import UNKNOWN_ID, Side
from tests.oracle.cases import batch, case
from tests.oracle.cases.groups import member_of as classic_member_of
from tests.oracle.cases.groups import ready
from tests.oracle.cases.produce import produce
from tests.support.transactional_producer import TransactionalProducer

GROUP_RESOURCE = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
LOCK_KEY = "share.record.lock.duration.ms"
SHORT_LOCK = {LOCK_KEY: "1000"}
"""The shortest that the brokers of these tests allow."""
PAUSE_S = 0.02

Range = tuple[int, int, int | Sequence[int]]
"""(first offset, last offset, one type for all or a type for each)."""


# ---- asking ----------------------------------------------------------------------------------------------------------


class Member:
    """One member of a share group at one broker, or a stranger to it, by raw requests; it counts its share session's epoch itself."""

    def __init__(self, side: Side, group: str, name: str = "a") -> None:
        self.side, self.group, self.name = side, group, name
        self.epoch = 0
        """Of the member, as the group coordinator last told it."""
        self.session_epoch = 0
        """The next one to be sent."""
        self.connection = f"share-{group}-{name}"

    def beat(self, *topics: str, **fields: Any) -> Any:
        """One heartbeat; with topics it subscribes to them."""
        named: dict[str, Any] = {"member_epoch": self.epoch} | fields
        if topics:
            named["subscribed_topic_names"] = list(topics)
        answer = self.side.call(ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.name, **named))
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def leave(self) -> Any:
        """The last heartbeat."""
        return self.beat(member_epoch=-1)

    def fetch(
        self,
        *topics: str,
        partitions: Sequence[int] = (0,),
        acks: Mapping[int, Sequence[Range]] | None = None,
        forget: str = "",
        version: int = 2,
        **fields: Any,
    ) -> Any:
        """One share fetch within the member's session, of the partitions of each topic; acks are of the partitions of the first."""
        asked: dict[str, Any] = {
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        listed = [
            FetchTopic(
                self.side.topic_ids.get(topic, UNKNOWN_ID),
                [
                    FetchPartition(index, _batches(acks or {}, index) if topic == topics[0] else [])
                    for index in partitions
                ],
            )
            for topic in topics
        ]
        forgotten = [ForgottenTopic(self.side.topic_ids[forget], list(partitions))] if forget else []
        return self._in_session(
            ShareFetchRequest(
                **{"group_id": self.group, "member_id": self.name} | asked | fields,
                topics=listed,
                forgotten_topics_data=forgotten,
            ),
            version,
        )

    def wait_for(self, *topics: str, **fields: Any) -> Any:
        """A fetch that has acquired something, or failed; the first one of a partition waits for its state."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.fetch(*topics, **{"max_wait_ms": 1000} | fields)
            found = [each for topic in answer.responses for each in topic.partitions]
            if answer.error_code or any(each.error_code or each.acquired_records for each in found):
                return answer
            assert time.monotonic() < deadline, (self.side.name, self.group, answer)
            topics, fields = (), {name: value for name, value in fields.items() if name != "acks"}

    def gather(self, *topics: str, until: int) -> dict[int, int]:
        """Offset -> delivery count of what so many records' fetches have acquired: where locks end one by one, or the log is read in
        steps, each broker has fetches of its own."""
        found: dict[int, int] = {}
        while len(found) < until:
            found |= by_offset(self.wait_for(*topics))
            topics = ()
        return found

    def acknowledge(self, topic: str, *ranges: Range, partition: int = 0, version: int = 2, **fields: Any) -> Any:
        """Acknowledge ranges of one partition."""
        asked: dict[str, Any] = {"group_id": self.group, "member_id": self.name} | fields
        asked.setdefault("share_session_epoch", self.session_epoch)
        listed = []
        if topic:
            parts = [AcknowledgePartition(partition, _batches({partition: ranges}, partition))]
            listed = [AcknowledgeTopic(self.side.topic_ids.get(topic, UNKNOWN_ID), parts)]
        return self._in_session(ShareAcknowledgeRequest(**asked, topics=listed), version)

    def close(self) -> Any:
        """End the session."""
        return self.acknowledge("", share_session_epoch=-1)

    def hang_up(self) -> None:
        """Close the connection."""
        self.side.hang_up(self.connection)
        self.session_epoch = 0

    def _in_session(self, request: Any, version: int) -> Any:
        answer = self.side.call(request, version=version, on=self.connection)
        if not isinstance(answer, str) and not answer.error_code:
            self.session_epoch = 0 if request.share_session_epoch < 0 else request.share_session_epoch + 1
        return answer


def _batches(acks: Mapping[int, Sequence[Range]], partition: int) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first, last, [types] if isinstance(types, int) else list(types))
        for first, last, types in acks.get(partition, ())
    ]


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """(first, last, delivery count) of everything that a fetch of one partition has acquired."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def by_offset(answer: Any) -> dict[int, int]:
    """Offset -> delivery count."""
    return {offset: count for first, last, count in acquired(answer) for offset in range(first, last + 1)}


def outcome(answer: Any) -> Any:
    """The codes of an acknowledgement: of the whole, and of each partition."""
    if isinstance(answer, str):
        return answer
    parts = [each for topic in answer.responses for each in topic.partitions]
    return answer.error_code, [getattr(each, "acknowledge_error_code", each.error_code) for each in parts]


def held(answer: Any) -> tuple[int, int | None]:
    """The epoch that a heartbeat was answered with, and how many partitions it assigned; None: it said nothing of them."""
    given = answer.assignment
    return answer.member_epoch, None if given is None else sum(len(each.partitions) for each in given.topic_partitions)


_alterations: Counter[tuple[str, str]] = Counter()


def alter_group(side: Side, group: str, configs: Mapping[str, str]) -> None:
    """Set configs of a group, and wait until the broker goes by them. That a share fetch tells: beside them the lock's length is
    set, to one that the group has not had."""
    _alterations[side.name, group] += 1
    configs = {LOCK_KEY: str(30_000 + _alterations[side.name, group])} | dict(configs)
    entries = [AlterableConfig(key, 0, value) for key, value in configs.items()]
    answer = side.call(IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, entries)], False))
    assert not answer.responses[0].error_code, (side.name, answer)
    looker = Member(side, group, "looker")
    deadline = time.monotonic() + DEADLINE_S
    while (told := looker.fetch()).acquisition_lock_timeout_ms != int(configs[LOCK_KEY]):
        assert time.monotonic() < deadline, (side.name, group, told)
        time.sleep(PAUSE_S)
    looker.close()


def offsets(side: Side, group: str, topic: str | None = None, *partitions: int, version: int = 1) -> Any:
    """DescribeShareGroupOffsets; without a topic, of all."""
    topics = None if topic is None else [describe.RequestTopic(topic, list(partitions))]
    groups = [describe.RequestGroup(group, topics)]
    asked = describe.DescribeShareGroupOffsetsRequest(groups)
    return side.call(asked, version=version).groups[0]


def lags(side: Side, group: str, wanted: Mapping[int, int]) -> dict[int, int]:
    """Partition -> lag, once it is as wanted or time is up: what was told to a client is kept a moment later."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = {each.partition_index: each.lag for topic in offsets(side, group).topics for each in topic.partitions}
        if found == wanted or time.monotonic() > deadline:
            return found
        time.sleep(PAUSE_S)


def set_offsets(side: Side, group: str, topic: str, to: Mapping[int, int]) -> Any:
    """AlterShareGroupOffsets of one topic."""
    listed = [alter.RequestPartition(index, offset) for index, offset in to.items()]
    return side.call(alter.AlterShareGroupOffsetsRequest(group, [alter.RequestTopic(topic, listed)]))


def delete_offsets(side: Side, group: str, *topics: str) -> Any:
    """DeleteShareGroupOffsets."""
    return side.call(delete.DeleteShareGroupOffsetsRequest(group, [delete.RequestTopic(each) for each in topics]))


def member_of(side: Side, group: str, topic: str, *, partitions: int = 1, name: str = "a") -> Member:
    """A member that has been told all partitions of the topic, which have begun."""
    member = Member(side, group, name)
    answer = member.beat(topic)
    assert not answer.error_code, (side.name, answer)
    wait_for_beginning(side, group, topic, partitions)
    deadline = time.monotonic() + DEADLINE_S
    while (
        answer.assignment is None
        or sum(len(each.partitions) for each in answer.assignment.topic_partitions) < partitions
    ):
        assert time.monotonic() < deadline, (side.name, answer)
        time.sleep(PAUSE_S)
        answer = member.beat()
    return member


def wait_for_beginning(side: Side, group: str, topic: str, partitions: int = 1) -> None:
    """Until the coordinator says that the state of all partitions is there."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = offsets(side, group)
        if [len(each.partitions) for each in found.topics if each.topic_name == topic] == [partitions]:
            return
        assert time.monotonic() < deadline, (side.name, found)
        time.sleep(PAUSE_S)


def begun(
    side: Side, group: str, *counts: int, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> tuple[Member, str]:
    """(a member, its topic of the group's name): the topic has batches of so many records in every partition, and the group
    begins with the first."""
    topic = side.topic(group, partitions)
    ready(side, group)
    alter_group(side, group, {"share.auto.offset.reset": "earliest"} | dict(configs or {}))
    for partition in range(partitions):
        for number, count in enumerate(counts):
            written = produce(side, topic, batch(count, first=sum(counts[:number])), partition=partition)
            assert written.error_code == 0, (side.name, written)
    return member_of(side, group, topic, partitions=partitions), topic


def another(member: Member, topic: str, name: str = "b") -> Member:
    """A second member of the same group."""
    return member_of(member.side, member.group, topic, name=name)


# ---- members ---------------------------------------------------------------------------------------------------------


@case({"the former epoch.assignment": "told-again"})
def share_members(side: Side) -> Iterator[tuple[str, Any]]:
    group = ready(side, "share-members")
    topic, other = side.topic(group, 2), side.topic(f"{group}-other")
    one = Member(side, group)
    for label, fields in (
        ("no group", {"group_id": ""}),
        ("no member id", {"member_id": ""}),
        ("member id of 37", {"member_id": "m" * 37}),
        ("epoch -2", {"member_epoch": -2}),
        ("no topics", {}),
        ("empty topics", {"subscribed_topic_names": []}),
        ("empty rack", {"rack_id": "", "subscribed_topic_names": [topic]}),
        ("beat of no group", {"member_epoch": 1}),
        ("leave of no group", {"member_epoch": -1}),
    ):
        asked: dict[str, Any] = {"group_id": group, "member_id": "a", "member_epoch": 0} | fields
        yield label, side.call(ShareGroupHeartbeatRequest(**asked))
    yield "join", one.beat(topic, rack_id="r")
    wait_for_beginning(side, group, topic, 2)
    yield "assigned", one.beat()
    yield "unchanged", one.beat()
    yield "the same topics", one.beat(topic)
    yield "joins again", one.beat(topic, member_epoch=0)
    yield "ahead", one.beat(member_epoch=one.epoch + 1)
    yield "the former epoch", one.beat(member_epoch=one.epoch - 1)
    yield "an older epoch", one.beat(member_epoch=1)
    yield "a stranger", Member(side, group, "x").beat(member_epoch=1)
    yield "a stranger leaves", Member(side, group, "x").leave()
    two = Member(side, group, "m" * 36)
    # Who gets which of two partitions goes by hashes of ids that each broker makes.
    yield "a second joins", held(two.beat(topic))
    yield "the first hears", held(one.beat())
    yield "another topic", held(one.beat(topic, other))
    wait_for_beginning(side, group, other)
    yield "which is assigned", sorted(str(side.show(each.topic_id)) for each in one.beat().assignment.topic_partitions)
    yield "no such topic", two.beat("share-members-none").error_code
    yield "and then", two.beat()
    yield "without topics", one.beat(subscribed_topic_names=[])
    yield "leave", one.leave()
    yield "leave again", one.leave()
    yield "the other leaves", two.leave()
    classic = ready(side, "share-members-classic")
    classic_member_of(side, classic)
    yield "a classic group", Member(side, classic).beat(topic)


@case({"*.groups.<share-seen>.beginning": "own-fields"})
def share_groups_seen(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-seen"
    member, topic = begun(side, group, 1, partitions=2)
    ask = ShareGroupDescribeRequest
    yield "described", side.call(ask([group]))
    yield "with rights", side.call(ask([group], True))
    yield "unknown", side.call(ask(["share-seen-none"]))
    yield "no group", side.call(ask([""]))
    yield "nothing", side.call(ask([]))
    classic = ready(side, "share-seen-classic")
    classic_member_of(side, classic)
    yield "a classic group", side.call(ask([classic]))
    yield "as a classic group", side.call(DescribeGroupsRequest([group]))
    yield "as a consumer group", side.call(ConsumerGroupDescribeRequest([group]))
    for types, states in ((["share"], []), (["Share"], ["Stable"]), (["share"], ["empty"]), (["consumer"], [])):
        answer = side.call(ListGroupsRequest(states_filter=states, types_filter=types))
        yield f"list {types} {states}", [each for each in answer.groups if each.group_id == group]
    yield "deleted with a member", side.call(DeleteGroupsRequest([group]))
    yield "leave", member.leave()
    yield "empty", side.call(ask([group]))
    yield "deleted", side.call(DeleteGroupsRequest([group]))
    yield "gone", side.call(ask([group]))
    key = f"{group}:{side.topic_ids[topic]}:0"
    for label, asked in (("share coordinator", key), ("no share key", group), ("no partition", key[:-2])):
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = side.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[asked]), version=6)
            if found.coordinators[0].error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE or time.monotonic() > deadline:
                break
            time.sleep(PAUSE_S)
        for each in found.coordinators:
            each.key = label  # it has the topic's id
        yield label, found


# ---- offsets ---------------------------------------------------------------------------------------------------------


@case(
    {
        "v? unknown group.*": "no-such-group",
        "v? all of an unknown group.error_code": "no-such-group",
        "of a classic group.error_code": "no-such-group",
        "delete again.responses.*": "known-ids",
    }
)
def share_offsets(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-offsets"
    member, topic = begun(side, group, 5, 5, partitions=2)
    for version in (0, 1):
        yield f"v{version} begun", offsets(side, group, version=version)
        yield f"v{version} unknown topic", offsets(side, group, "share-offsets-none", 0, version=version)
        yield f"v{version} unknown group", offsets(side, "share-offsets-none", topic, 0, version=version)
        yield f"v{version} all of an unknown group", offsets(side, "share-offsets-none", version=version)
    # A partition that is not there is left out: Kafka's persister tries for half a minute to read its state.
    yield "acquired", acquired(member.wait_for(topic))
    yield "accepted", outcome(member.acknowledge(topic, (0, 3, ACCEPT)))
    yield "lags", lags(side, group, {0: 6, 1: -1})
    yield "of one that is not empty", set_offsets(side, group, topic, {0: 2})
    yield "delete of one that is not empty", delete_offsets(side, group, topic)
    member.hang_up()  # by whose last session's end Kafka forgets what it has loaded
    member.leave()
    yield "altered", set_offsets(side, group, topic, {0: 2, 1: 7})
    yield "altered offsets", offsets(side, group)
    yield "unknown partition", set_offsets(side, group, topic, {7: 2})
    yield "unknown topic", set_offsets(side, group, "share-offsets-none", {0: 2})
    yield "no topics", side.call(alter.AlterShareGroupOffsetsRequest(group, []))
    yield "no group", set_offsets(side, "", topic, {0: 2})
    again = member_of(side, group, topic, partitions=2)
    yield "from there", acquired(again.wait_for(topic))
    yield "and there", acquired(again.wait_for(topic, partitions=[1]))
    again.leave()
    made = "share-offsets-made"
    ready(side, made)
    yield "of a new group", set_offsets(side, made, topic, {0: 4})
    yield (
        "which is there",
        [
            (each.group_type, each.group_state)
            for each in side.call(ListGroupsRequest()).groups
            if each.group_id == made
        ],
    )
    yield "with offsets", offsets(side, made, topic, 0)
    yield "delete", delete_offsets(side, group, topic, "share-offsets-none")
    yield "deleted", offsets(side, group)
    yield "delete again", delete_offsets(side, group, topic)
    yield "delete of no group", delete_offsets(side, "share-offsets-none", topic)
    classic = ready(side, "share-offsets-classic")
    classic_member_of(side, classic)
    yield "alter of a classic group", set_offsets(side, classic, topic, {0: 1})
    yield "delete of a classic group", delete_offsets(side, classic, topic)
    yield "of a classic group", offsets(side, classic)


@case()
def share_offset_resets(side: Side) -> Iterator[tuple[str, Any]]:
    now_ms = int(time.time() * 1000)
    for reset in ("earliest", "latest", "by_duration:PT1H"):
        group = f"share-reset-{reset[:8]}"
        topic = side.topic(group)
        ready(side, group)
        alter_group(side, group, {"share.auto.offset.reset": reset})
        produce(side, topic, batch(3, timestamp_ms=now_ms - 7_200_000))
        produce(side, topic, batch(2, timestamp_ms=now_ms))
        member = member_of(side, group, topic)
        loaded = _loaded(member, topic)
        produce(side, topic, batch(1, timestamp_ms=now_ms))
        yield (
            reset,
            sorted(by_offset(loaded) | by_offset(member.wait_for(max_wait_ms=500) if reset == "latest" else loaded)),
        )
        member.leave()
    group = "share-reset-grown"
    topic = side.topic(group)
    ready(side, group)
    alter_group(side, group, {"share.auto.offset.reset": "latest"})
    member = member_of(side, group, topic)
    _grow(side, topic, 2)
    produce(side, topic, batch(4), partition=1)
    deadline = time.monotonic() + DEADLINE_S
    while sum(len(each.partitions) for each in offsets(side, group).topics) < 2:
        assert time.monotonic() < deadline, side.name
        member.beat()
        time.sleep(PAUSE_S)
    yield "a new partition of a known topic", acquired(member.wait_for(topic, partitions=[1]))


def _loaded(member: Member, topic: str) -> Any:
    """The fetch that has the start offset settled: one that waits in vain has waited for it."""
    return member.fetch(topic, max_wait_ms=1500)


def _grow(side: Side, topic: str, partitions: int) -> None:
    answer = side.call(CreatePartitionsRequest([CreatePartitionsTopic(topic, partitions, None)], 10_000, False))
    assert not answer.results[0].error_code, (side.name, answer)
    side.wait_for_topic(topic, partitions)


# ---- sessions --------------------------------------------------------------------------------------------------------


@case(
    {
        "*.current_leader.*": "unknown-leader",
        "v? empty group*": "kafka-stumbles",
        "opened again*.responses.<share-sessions>": "only-what-is-there",
    }
)
def share_sessions(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-sessions"
    member, topic = begun(side, group, 3)
    stranger = Member(side, group, "x")
    for version in (1, 2):
        yield f"v{version} fetch without one", stranger.fetch(topic, version=version, share_session_epoch=5)
        yield f"v{version} end of none by a fetch", stranger.fetch(version=version, share_session_epoch=-1)
        yield f"v{version} ack without one", stranger.acknowledge(topic, version=version, share_session_epoch=5)
        yield f"v{version} ack that opens one", stranger.acknowledge(topic, version=version, share_session_epoch=0)
        yield f"v{version} end of none", stranger.acknowledge("", version=version, share_session_epoch=-1)
        yield f"v{version} acks as it opens", stranger.fetch(topic, version=version, acks={0: [(0, 0, ACCEPT)]})
        yield f"v{version} no group", stranger.fetch(topic, version=version, group_id=None)
        yield f"v{version} empty group", stranger.fetch(topic, version=version, group_id="")
        stranger.session_epoch = 0  # Kafka has a session of that group now
        yield f"v{version} no member", stranger.fetch(topic, version=version, member_id=None)
        yield f"v{version} empty member", stranger.fetch(topic, version=version, member_id="")
        yield f"v{version} member id of 37", stranger.fetch(topic, version=version, member_id="m" * 37)
        yield f"v{version} ack, no group", stranger.acknowledge(topic, version=version, group_id=None)
        yield f"v{version} ack, no member", stranger.acknowledge(topic, version=version, member_id=None)
    yield "opened", member.wait_for(topic)
    yield "nothing more", member.fetch()
    yield "the epoch before", member.fetch(share_session_epoch=member.session_epoch - 1)
    yield "the epoch after", member.fetch(share_session_epoch=member.session_epoch + 1)
    yield (
        "ack in the epoch before",
        member.acknowledge(topic, (0, 0, ACCEPT), share_session_epoch=member.session_epoch - 1),
    )
    yield "ack", member.acknowledge(topic, (0, 0, ACCEPT))
    yield "ack beside a fetch", member.fetch(topic, acks={0: [(1, 1, ACCEPT)]})
    yield "opened again, the records stay with it", member.fetch(topic, share_session_epoch=0)
    yield "and may be acknowledged", member.acknowledge(topic, (2, 2, ACCEPT))
    yield "unknown topic", member.fetch("share-sessions-none")
    yield "unknown partition", member.fetch(topic, partitions=[7])
    yield "ack of an unknown topic", member.acknowledge("share-sessions-none", (0, 0, ACCEPT))
    yield "ack of an unknown partition", member.acknowledge(topic, (0, 0, ACCEPT), partition=7)
    produce(side, topic, batch(2, first=3))
    yield "forgotten", member.fetch(forget=topic)
    yield "of nothing", acquired(member.fetch(max_wait_ms=300))
    yield "added", acquired(member.wait_for(topic))
    yield "no records asked for", acquired(member.fetch(max_records=0))
    yield "no bytes asked for", acquired(member.fetch(max_bytes=0))
    yield "end, by an ack", member.acknowledge(topic, (3, 3, ACCEPT), share_session_epoch=-1)
    yield "ended", member.fetch(share_session_epoch=3)
    member.session_epoch = 0
    yield "what was left", acquired(member.wait_for(topic))
    yield (
        "end, by a fetch",
        member.fetch(topic, acks={0: [(4, 4, ACCEPT)]}, share_session_epoch=-1, max_bytes=0, max_records=0),
    )
    yield "ended again", member.fetch(share_session_epoch=3)


# ---- acquiring -------------------------------------------------------------------------------------------------------


@case({"*.current_leader.*": "unknown-leader", "mode 9.error_code": "kafka-stumbles"})
def share_acquire_modes(side: Side) -> Iterator[tuple[str, Any]]:
    for mode in (BATCH_OPTIMIZED, RECORD_LIMIT):
        group = f"share-mode-{mode}"
        member, topic = begun(side, group, 5, 5, 5, 5)
        yield f"{mode}: 3 records", member.wait_for(topic, share_acquire_mode=mode, max_records=3, batch_size=3)
        yield f"{mode}: 7 records", member.wait_for(share_acquire_mode=mode, max_records=7, batch_size=2)
        yield f"{mode}: the rest", member.wait_for(share_acquire_mode=mode)
        yield f"{mode}: nothing", member.fetch(share_acquire_mode=mode)
        yield (
            f"{mode}: release",
            outcome(member.acknowledge(topic, (2, 2, RELEASE), (6, 8, RELEASE), (12, 12, RELEASE))),
        )
        yield f"{mode}: again", member.wait_for(share_acquire_mode=mode)
        yield f"{mode}: release more", outcome(member.acknowledge(topic, (1, 3, RELEASE)))
        yield f"{mode}: two of three", member.wait_for(share_acquire_mode=mode, max_records=2)
    group = "share-mode-9"
    member, topic = begun(side, group, 5)
    yield "mode 9", member.fetch(topic, share_acquire_mode=9)
    yield "v1 knows no modes", member.wait_for(topic, version=1, max_records=2, batch_size=2)


@case({"*.current_leader.*": "unknown-leader"})
def share_bounds_of_a_fetch(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-bounds"
    member, topic = begun(side, group, *[1] * 12, configs={"share.partition.max.record.locks": "100"})
    yield "batches of one, two at a time", member.wait_for(topic, max_records=2, batch_size=1)
    yield "sizes of one", acquired(member.wait_for(max_records=6, batch_size=4))
    size = len(batch(1, first=8))
    yield "so few bytes", acquired(member.wait_for(max_bytes=2 * size + 1))
    yield "a byte", acquired(member.wait_for(max_bytes=1))
    yield "more than there is", acquired(member.fetch(min_bytes=100_000, max_wait_ms=300))
    for _ in range(10):
        produce(side, topic, batch(12))
    yield "in flight at most", sum(map(len, (by_offset(member.wait_for(max_records=1000)), range(12))))
    yield "nothing beyond", acquired(member.fetch(max_wait_ms=300))
    yield "accept all but the first", outcome(member.acknowledge(topic, (1, 11, ACCEPT)))
    yield "which holds the others back", acquired(member.fetch(max_wait_ms=300))
    yield "accept it", outcome(member.acknowledge(topic, (0, 0, ACCEPT)))
    yield "goes on", min(by_offset(member.wait_for()), default=None)


# ---- acknowledging ---------------------------------------------------------------------------------------------------


def _say(member: Member, topic: str, is_apart: bool, *ranges: Range) -> Any:
    """Acknowledge by a request for that alone, or beside a fetch of nothing."""
    if is_apart:
        return member.acknowledge(topic, *ranges)
    return member.fetch(topic, acks={0: ranges}, max_bytes=0, max_records=0)


@case({"*accept again*": "settled-is-settled"})
def share_acknowledge_types(side: Side) -> Iterator[tuple[str, Any]]:
    for is_apart in (False, True):
        group = f"share-types-{'apart' if is_apart else 'beside'}"
        member, topic = begun(side, group, 12)

        say = partial(_say, member, topic, is_apart)

        yield f"{group}: taken", acquired(member.wait_for(topic))
        for label, ranges in (
            ("last before first", [(5, 4, ACCEPT)]),
            ("no types", [(4, 5, [])]),
            ("too few types", [(4, 6, [ACCEPT, ACCEPT])]),
            ("too many types", [(4, 5, [ACCEPT, ACCEPT, ACCEPT])]),
            ("type 5", [(4, 5, 5)]),
            ("type -1", [(4, 5, -1)]),
            ("renew without the flag", [(4, 5, RENEW)]),
            ("not in order", [(6, 7, ACCEPT), (4, 5, ACCEPT)]),
            ("overlapping", [(4, 6, ACCEPT), (5, 7, ACCEPT)]),
            ("beyond the end", [(10, 14, ACCEPT)]),
            ("all beyond the end", [(20, 24, ACCEPT)]),
        ):
            yield f"{group}: {label}", outcome(say(*ranges))
        yield f"{group}: accept", outcome(say((0, 1, ACCEPT)))
        yield f"{group}: accept again", outcome(say((0, 1, ACCEPT)))
        yield f"{group}: one by one", outcome(say((2, 6, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT])))
        yield f"{group}: a released one", outcome(say((3, 3, ACCEPT)))
        yield f"{group}: a rejected one", outcome(say((4, 4, ACCEPT)))
        yield f"{group}: some good, some bad", outcome(say((7, 7, ACCEPT), (6, 6, ACCEPT)))
        yield f"{group}: a bad one behind a good one", outcome(say((3, 3, ACCEPT), (8, 8, ACCEPT)))
        yield f"{group}: the good one is still acquired", outcome(say((8, 8, ACCEPT)))
        second = Member(side, group, "b")
        yield f"{group}: what another gets", acquired(second.wait_for(topic))
        yield f"{group}: another's", outcome(second.acknowledge(topic, (9, 9, ACCEPT)))
        yield f"{group}: mine, which is another's now", outcome(say((3, 3, ACCEPT)))
        yield f"{group}: the rest", outcome(say((7, 7, ACCEPT), (9, 11, ACCEPT)))
        yield f"{group}: another's rest", outcome(second.acknowledge(topic, (3, 3, ACCEPT)))
        yield f"{group}: lag", lags(side, group, {0: 0})


@case({"*.current_leader.*": "unknown-leader"})
def share_renewals(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-renewals"
    member, topic = begun(side, group, 6, configs=SHORT_LOCK)
    nothing: dict[str, Any] = {"is_renew_ack": True, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    yield "taken", acquired(member.wait_for(topic))
    yield "renewed", member.acknowledge(topic, (0, 5, RENEW), is_renew_ack=True)
    yield "beside a fetch", member.fetch(topic, acks={0: [(0, 5, RENEW)]}, **nothing)
    for name, value in (("max_wait_ms", 1), ("min_bytes", 1), ("max_bytes", 1), ("max_records", 1)):
        yield f"with {name}", member.fetch(topic, acks={0: [(0, 5, RENEW)]}, **nothing | {name: value}).error_code
    yield "the flag alone", member.fetch(**nothing)
    yield "the flag without a renewal", outcome(member.acknowledge(topic, (5, 5, ACCEPT), is_renew_ack=True))
    yield "mixed", outcome(member.acknowledge(topic, (0, 4, [RENEW, ACCEPT, RENEW, RENEW, REJECT]), is_renew_ack=True))
    yield "v1 has no renewals", outcome(member.acknowledge(topic, (0, 0, RENEW), version=1))
    other = Member(side, group, "b")
    other.fetch(topic)
    begun_at = time.monotonic()
    while time.monotonic() - begun_at < 1.6:  # longer than the lock
        assert outcome(member.acknowledge(topic, (0, 0, RENEW), (2, 3, RENEW), is_renew_ack=True)) == (0, [0])
        taken = acquired(other.fetch(max_wait_ms=100))
        assert not taken, (side.name, taken)
    yield "kept for longer than a lock", outcome(member.acknowledge(topic, (0, 0, ACCEPT)))
    yield "then it ends", other.gather(until=2)
    yield "and is renewed no more", outcome(member.acknowledge(topic, (2, 3, RENEW), is_renew_ack=True))
    alter_group(side, group, {"share.renew.acknowledge.enable": "false"})
    yield "switched off", outcome(other.acknowledge(topic, (2, 2, RENEW), is_renew_ack=True))
    yield "others go", outcome(other.acknowledge(topic, (2, 2, ACCEPT)))


@case()
def share_delivery_counts(side: Side) -> Iterator[tuple[str, Any]]:
    for limit, count in ((2, 3), (3, 4), (5, 4), (5, 9), (6, 5)):
        group = f"share-counts-{limit}-{count}"
        member, topic = begun(side, group, count, configs={"share.delivery.count.limit": str(limit)})
        given = []
        deliveries = 0
        while deliveries < limit * count:
            found = acquired(member.wait_for(topic))
            given.append(found)
            deliveries += sum(last - first + 1 for first, last, _ in found)
            assert outcome(member.acknowledge(topic, *((first, last, RELEASE) for first, last, _ in found)))[0] == 0
        yield f"{group}: each fetch", given
        yield f"{group}: nothing is left", acquired(member.fetch(max_wait_ms=300))
        yield f"{group}: lag", lags(side, group, {0: 0})
        member.close()
        member.leave()


@case()
def share_locks_end(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-locks"
    member, topic = begun(side, group, 3, configs=SHORT_LOCK | {"share.delivery.count.limit": "3"})
    other = Member(side, group, "b")
    yield "taken", acquired(member.wait_for(topic))
    yield "accepted", outcome(member.acknowledge(topic, (1, 1, ACCEPT)))
    yield "ended", other.gather(topic, until=2)
    yield "too late", outcome(member.acknowledge(topic, (0, 0, ACCEPT)))
    yield "in time", outcome(other.acknowledge(topic, (0, 0, ACCEPT)))
    yield "the last time", member.gather(until=1)
    yield "lag, once that has ended", lags(side, group, {0: 0})
    yield "nothing is left", acquired(other.fetch())


@case()
def share_releases(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-releases"
    member, topic = begun(side, group, 4)
    other = Member(side, group, "b")
    yield "taken", acquired(member.wait_for(topic))
    yield "closed", member.close()
    yield "released", other.gather(topic, until=4)
    other.hang_up()
    yield "released by hanging up", member.gather(topic, until=4)
    yield "forgotten", member.fetch(forget=topic)
    yield "releases nothing", acquired(other.fetch(topic, max_wait_ms=300))
    yield "may be acknowledged", outcome(member.acknowledge(topic, (0, 1, ACCEPT)))
    yield "closed without it", member.close()
    yield "releases it still or not", acquired(other.fetch(max_wait_ms=300))
    yield "leaving the group", member.leave().error_code


# ---- what the log does -----------------------------------------------------------------------------------------------


@case()
def share_isolation(side: Side) -> Iterator[tuple[str, Any]]:
    for level in ("read_uncommitted", "read_committed"):
        group = f"share-{level.replace('_', '-')}"
        topic = side.topic(group)
        ready(side, group)
        alter_group(side, group, {"share.auto.offset.reset": "earliest", "share.isolation.level": level})
        _write_transactions(side, topic, group)
        member = member_of(side, group, topic)
        found = member.gather(topic, until=8 if level == "read_uncommitted" else 6)
        yield f"{level}: acquired", sorted(found.items())
        yield f"{level}: acknowledged", outcome(member.acknowledge(topic, *((each, each, ACCEPT) for each in found)))
        yield f"{level}: lag", lags(side, group, {0: 0})


def _write_transactions(side: Side, topic: str, name: str) -> None:
    """Two records, two aborted ones and their marker, two committed ones and their marker."""
    key = TopicPartition(topic, 0)

    async def write() -> None:
        client = ClusterClient(f"{side.host}:{side.port}", client_id="oracle")
        try:
            producer = TransactionalProducer(client, name, is_new=True)
            await producer.init()
            for is_commit in (False, True):
                for _ in range(2):
                    await producer.write(key)
                await producer.end(is_commit=is_commit)
        finally:
            await client.close()

    produce(side, topic, batch(2))
    asyncio.run(write())
    last = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=0, timestamp=-1)])
    deadline = time.monotonic() + DEADLINE_S
    while True:  # a client of the new protocol hears of the end before the marker is there
        found = side.call(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[last])).topics[0].partitions[0]
        if found.offset == 8:
            return
        assert time.monotonic() < deadline, (side.name, found)
        time.sleep(PAUSE_S)


@case({"goes on at the start*": "gone-is-gone"})
def share_deleted_records(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-deleted"
    member, topic = begun(side, group, 4, 4, 4)
    yield "taken", acquired(member.wait_for(topic, max_records=4))
    cut = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 6)])
    yield "cut", side.call(DeleteRecordsRequest([cut], 10_000)).topics[0].partitions
    yield "goes on at the start", acquired(member.wait_for())
    yield "of what is gone", outcome(member.acknowledge(topic, (0, 3, ACCEPT)))
    yield "of what is there", outcome(member.acknowledge(topic, (6, 11, ACCEPT)))
    yield "lag", lags(side, group, {0: 0})


# ---- configs ---------------------------------------------------------------------------------------------------------

SHARE_KEYS = (
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.assignment.interval.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
)
BAD_CONFIGS = (
    ("share.record.lock.duration.ms", "999"),
    ("share.record.lock.duration.ms", "3600001"),
    ("share.delivery.count.limit", "1"),
    ("share.delivery.count.limit", "11"),
    ("share.delivery.count.limit", "many"),
    ("share.partition.max.record.locks", "99"),
    ("share.partition.max.record.locks", "4001"),
    ("share.auto.offset.reset", "none"),
    ("share.auto.offset.reset", "by_duration:PT"),
    ("share.auto.offset.reset", "by_duration:-PT1H"),
    ("share.auto.offset.reset", "BY_DURATION:PT1H"),
    ("share.isolation.level", "dirty"),
    ("share.renew.acknowledge.enable", "perhaps"),
    ("share.session.timeout.ms", "1"),
    ("share.heartbeat.interval.ms", "60000"),
    ("share.assignment.interval.ms", "15001"),
    ("share.unheard.of", "1"),
    ("errors.deadletterqueue.topic.name", "__mine"),
    ("errors.deadletterqueue.topic.name", "no/name"),
    ("errors.deadletterqueue.copy.record.enable", "2"),
)
GOOD_CONFIGS = (
    ("share.record.lock.duration.ms", "60000"),
    ("share.delivery.count.limit", "10"),
    ("share.partition.max.record.locks", "100"),
    ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
    ("share.isolation.level", "read_committed"),
    ("share.assignment.interval.ms", "0"),
    ("errors.deadletterqueue.topic.name", "any"),
    ("errors.deadletterqueue.topic.name", ""),
)


@case(
    {
        "share.auto.offset.reset=BY_DURATION:PT1H": "either-case",
        "errors.deadletterqueue.topic.name=no/name": "strict-names",
    }
)
def share_group_configs(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-configs"

    def described() -> dict[str, Any]:
        """Values, not from where they are: of what the broker's file says Kafka names the broker's key."""
        asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(GROUP_RESOURCE, group, None)])
        found = side.call(asked, version=4).results[0].configs
        return {each.name: (each.value, each.config_type, each.read_only) for each in found if each.name in SHARE_KEYS}

    def set_to(key: str, value: str | None, operation: int = 0) -> Any:
        resource = AlterConfigsResource(GROUP_RESOURCE, group, [AlterableConfig(key, operation, value)])
        return side.call(IncrementalAlterConfigsRequest([resource], False)).responses[0].error_code

    yield "defaults", described()
    for key, value in BAD_CONFIGS:
        yield f"{key}={value}", set_to(key, value)
    for key, value in GOOD_CONFIGS:
        yield f"{key}={value}", set_to(key, value)
    yield "null", set_to("share.delivery.count.limit", None)
    alter_group(side, group, {})
    yield "set", described()
    yield "taken back", set_to("share.delivery.count.limit", None, 1)


# ---- and all of it off -----------------------------------------------------------------------------------------------


@case()
def share_groups_off(side: Side) -> Iterator[tuple[str, Any]]:
    group = "share-off"
    member, topic = begun(side, group, 4)
    yield "taken", acquired(member.wait_for(topic))
    yield "off", _set_level(side, 0)
    try:
        yield "heartbeat", member.beat()
        yield "describe", side.call(ShareGroupDescribeRequest([group]))
        yield "fetch", member.fetch()
        yield "acknowledge", member.acknowledge(topic, (0, 3, ACCEPT))
        yield "offsets", offsets(side, group)
        yield "alter offsets", set_offsets(side, group, topic, {0: 0})
        yield "delete offsets", delete_offsets(side, group, topic)
    finally:
        on_again = _set_level(side, 2)
    yield "on", on_again
    again = Member(side, group)
    with suppress(AssertionError):
        again = member_of(side, group, topic)
    yield "the records again", by_offset(again.wait_for(topic))


def _set_level(side: Side, level: int) -> int:
    """The answer's code, once the broker goes by it."""
    asked = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey("share.version", level, upgrade_type=3 if level == 0 else 1)]
    )
    answer = side.call(asked, version=2)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        told = side.call(ApiVersionsRequest("x", "1"), version=4)
        found = {each.name: each.max_version_level for each in told.finalized_features}.get("share.version", 0)
        if found == level or time.monotonic() > deadline:
            code: int = answer.error_code
            return code
        time.sleep(PAUSE_S)
