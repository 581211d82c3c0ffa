"""Many groups are described together, for one request to each coordinator and leader; a group that is not where it was is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from barnabas_admin.errors import AdminError
from barnabas_admin.groups import describe_group, describe_groups
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import ClusterView, ListedOffset, Partition
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition
from barnabas_wire.kafka.messages import (
    consumer_group_describe,
    describe_share_group_offsets,
    share_group_describe,
    streams_group_describe,
)
from barnabas_wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas_wire.kafka.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas_wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas_wire.kafka.messages.streams_group_heartbeat import TaskIds

ENDS = {("orders", 0): 100, ("orders", 1): 50, ("flights", 0): 9}


class Cluster:
    """Stands for a cluster client: coordinators with groups, leaders with ends; counts what it is asked."""

    def __init__(self) -> None:
        self.groups: dict[int, dict[str, dict[tuple[str, int], int]]] = {1: {}, 2: {}}
        """Coordinator -> group -> partition -> committed."""
        self.consumers: dict[str, consumer_group_describe.DescribedGroup] = {}
        """Groups of the consumer protocol."""
        self.streams: dict[str, streams_group_describe.DescribedGroup] = {}
        self.shares: dict[str, tuple[share_group_describe.DescribedGroup, Any]] = {}
        """Share groups, and what is told of their offsets."""
        self.without_leader: set[tuple[str, int]] = set()
        self.silent: set[tuple[str, int]] = set()
        """Partitions whose leader does not answer."""
        self.offsets_errors: dict[str, ErrorCode] = {}
        self.asked: Counter[str] = Counter()
        self.offsets_sent = 0

    async def call(self, request: Any, *, broker_id: int | None = None, version_max: int | None = None) -> Any:
        self.asked[type(request).__name__] += 1
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=self._coordinator(request.key))
        here = self.groups[broker_id or 0]
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(group_id=each, group_state="Empty" if each in here else "Dead")
                    for each in request.groups
                ]
            )
        if isinstance(request, ConsumerGroupDescribeRequest):
            return ConsumerGroupDescribeResponse(groups=[self._consumers(each) for each in request.group_ids])
        if isinstance(request, StreamsGroupDescribeRequest):
            unknown = [each for each in request.group_ids if each not in self.streams]
            return streams_group_describe.StreamsGroupDescribeResponse(
                groups=[
                    *(self.streams[each] for each in request.group_ids if each in self.streams),
                    *(
                        streams_group_describe.DescribedGroup(group_id=each, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                        for each in unknown
                    ),
                ]
            )
        if isinstance(request, share_group_describe.ShareGroupDescribeRequest):
            absent = share_group_describe.DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            found = [self.shares.get(each, (replace(absent, group_id=each), None))[0] for each in request.group_ids]
            return share_group_describe.ShareGroupDescribeResponse(groups=found)
        if isinstance(request, describe_share_group_offsets.DescribeShareGroupOffsetsRequest):
            told = [self.shares[each.group_id][1] for each in request.groups]
            return describe_share_group_offsets.DescribeShareGroupOffsetsResponse(groups=told)
        assert isinstance(request, OffsetFetchRequest) and version_max == 9, "topics by name"
        return OffsetFetchResponse(groups=[self._offsets(here, each) for each in request.groups])

    def _consumers(self, group: str) -> consumer_group_describe.DescribedGroup:
        found = self.consumers.get(group)
        if found is None:
            return consumer_group_describe.DescribedGroup(group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return found

    async def call_coordinator(self, group: str, request: Any, *, version_max: int | None = None) -> Any:
        return await self.call(request, broker_id=self._coordinator(group), version_max=version_max)

    async def metadata(self, topics: Iterable[str] | None = None, *, skips_missing: bool = False) -> ClusterView:
        assert topics is not None and skips_missing, "never the whole cluster's"
        self.asked["metadata"] += 1
        known: dict[str, dict[int, Partition]] = {}
        for topic, index in ENDS:
            if topic in set(topics):
                leader = BrokerId(-1 if (topic, index) in self.without_leader else 1)
                known.setdefault(topic, {})[index] = Partition(index, leader, Epoch(0), (1,), (1,))
        return ClusterView(topics=known)

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        self.asked["list_offsets"] += 1
        if any(tuple(each) in self.silent for each in wanted):
            raise KafkaError.of(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return {each: ListedOffset(Offset(ENDS[each.topic, each.partition]), 0) for each in wanted}

    def _coordinator(self, group: str) -> int:
        return next((broker for broker, groups in self.groups.items() if group in groups), 1)

    def _offsets(
        self, here: dict[str, dict[tuple[str, int], int]], asked: OffsetFetchRequestGroup
    ) -> OffsetFetchResponseGroup:
        committed = here.get(asked.group_id, {})
        if asked.topics is not None:  # Kafka says -1 of what is not committed
            committed = {(t.name, n): committed.get((t.name, n), -1) for t in asked.topics for n in t.partition_indexes}
        self.offsets_sent += len(committed)
        topics = [
            OffsetFetchResponseTopics(
                name=topic, partitions=[OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset)]
            )
            for (topic, index), offset in committed.items()
        ]
        error = self.offsets_errors.get(asked.group_id, 0)
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error)


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.groups[1] = {f"g{n}": {("orders", 0): n, ("gone", 0): 3} for n in range(20)}
    found.groups[2] = {f"h{n}": {("orders", 1): n, ("flights", 0): 9} for n in range(20)}
    return found


def coordinators(cluster: Cluster) -> dict[str, int]:
    return {group: broker for broker, groups in cluster.groups.items() for group in groups}


def client(cluster: Cluster) -> ClusterClient:
    return cast(ClusterClient, cluster)


async def test_many_are_described_as_one_by_one_for_a_few_requests(cluster: Cluster) -> None:
    found = await describe_groups(client(cluster), coordinators(cluster))
    assert cluster.asked == {"DescribeGroupsRequest": 2, "OffsetFetchRequest": 2, "metadata": 1, "list_offsets": 1}
    assert found == {group: await describe_group(client(cluster), group) for group in coordinators(cluster)}
    assert found["g7"]["total_lag"] == 93 and found["g7"]["coordinator"] == 1
    assert [(row["topic"], row["end"]) for row in found["g7"]["partitions"]] == [("gone", None), ("orders", 100)]


async def test_a_group_that_moved_is_found_and_one_that_went_away_is_left_out(cluster: Cluster) -> None:
    known = coordinators(cluster) | {"never": 2}
    cluster.groups[2]["g3"] = cluster.groups[1].pop("g3")
    found = await describe_groups(client(cluster), known)
    assert found["g3"]["coordinator"] == 2 and "never" not in found and len(found) == 40


async def test_a_partition_without_a_leader_has_no_end_and_one_that_is_silent_costs_its_groups_alone(
    cluster: Cluster,
) -> None:
    cluster.without_leader = {("orders", 1)}
    found = await describe_groups(client(cluster), coordinators(cluster))
    assert [row["end"] for row in found["h4"]["partitions"]] == [9, None] and found["h4"]["total_lag"] == 0
    cluster.silent = {("flights", 0)}
    found = await describe_groups(client(cluster), coordinators(cluster))
    assert set(found) == {f"g{n}" for n in range(20)}


async def test_offsets_that_are_refused_are_no_lag_of_nothing(cluster: Cluster) -> None:
    cluster.offsets_errors = {"g5": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert "g5" not in await describe_groups(client(cluster), coordinators(cluster))
    with pytest.raises(KafkaError) as refused:
        await describe_group(client(cluster), "g5")
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(AdminError, match="does not exist"):
        await describe_group(client(cluster), "never")


async def test_of_the_partitions_asked_about_alone_are_offsets_and_ends_had(cluster: Cluster) -> None:
    read: list[TopicPartition] = []
    real = cluster.list_offsets

    async def list_offsets(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        read.extend(wanted)
        return await real(wanted)

    cluster.list_offsets = list_offsets  # type: ignore[method-assign]
    only = [TopicPartition("orders", 1)]
    whole = await describe_groups(client(cluster), coordinators(cluster))
    read.clear()
    cluster.offsets_sent = 0
    cluster.asked.clear()
    found = await describe_groups(client(cluster), coordinators(cluster) | {"never": 1}, only=only)
    assert read == only and cluster.offsets_sent == 41
    assert cluster.asked == {
        "DescribeGroupsRequest": 2,
        "ConsumerGroupDescribeRequest": 1,
        "StreamsGroupDescribeRequest": 1,
        "ShareGroupDescribeRequest": 1,
        "OffsetFetchRequest": 2,
        "metadata": 1,
        "list_offsets": 1,
    }
    for group, described in found.items():
        rows = whole[group]["partitions"] if group in whole else []
        assert described["partitions"] == [row for row in rows if row["topic"] == "orders" and row["partition"] == 1]
    assert found["h4"]["total_lag"] == 46 and found["g4"]["partitions"] == [] and len(found) == 41
    cluster.silent = {("flights", 0)}
    assert await describe_groups(client(cluster), coordinators(cluster), only=only) == {
        group: described for group, described in found.items() if group != "never"
    }
    cluster.silent = {("orders", 1)}
    assert set(await describe_groups(client(cluster), coordinators(cluster), only=only)) == {f"g{n}" for n in range(20)}


async def test_ends_that_are_known_are_not_asked_for_again(cluster: Cluster) -> None:
    whole = await describe_groups(client(cluster), coordinators(cluster))
    cluster.asked.clear()
    known = {TopicPartition(*each): end for each, end in ENDS.items()}
    del cluster.groups[1]
    found = await describe_groups(client(cluster), coordinators(cluster), ends=known)
    assert found == {group: whole[group] for group in found} and len(found) == 20
    assert cluster.asked == {"DescribeGroupsRequest": 1, "OffsetFetchRequest": 1}
    cluster.asked.clear()
    del known[TopicPartition("flights", 0)]
    assert await describe_groups(client(cluster), coordinators(cluster), ends=known) == found
    assert cluster.asked["list_offsets"] == 1


async def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs(cluster: Cluster) -> None:
    def orders(*partitions: int) -> consumer_group_describe.Assignment:
        topic = consumer_group_describe.TopicPartitions(topic_name="orders", partitions=list(partitions))
        return consumer_group_describe.Assignment(topic_partitions=[topic])

    cluster.consumers["c"] = consumer_group_describe.DescribedGroup(
        group_id="c",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[
            consumer_group_describe.Member(
                member_id="m",
                member_epoch=3,
                client_host="/127.0.0.1",
                assignment=orders(0, 1),
                target_assignment=orders(1),
                member_type=1,
            )
        ],
    )
    found = (await describe_groups(client(cluster), {"c": 1}, only=[TopicPartition("orders", 1)]))["c"]
    assert (found["state"], found["epoch"], found["assignment_epoch"]) == ("Reconciling", 5, 4)
    assert (found["protocol_type"], found["protocol"]) == ("consumer", "uniform")
    (member,) = found["members"]
    assert (member["protocol"], member["epoch"], member["to_give_up"], member["to_get"]) == ("consumer", 3, 1, 0)
    assert [row["member"] for row in found["partitions"]] == ["m"]


async def test_a_streams_group_is_described_with_its_tasks(cluster: Cluster) -> None:
    def tasks(*numbers: int, standby: tuple[int, ...] = ()) -> streams_group_describe.Assignment:
        return streams_group_describe.Assignment(
            active_tasks=[TaskIds("0", list(numbers))], standby_tasks=[TaskIds("1", list(standby))]
        )

    cluster.streams["app"] = streams_group_describe.DescribedGroup(
        group_id="app",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="sticky",
        topology=streams_group_describe.Topology(
            subtopologies=[streams_group_describe.Subtopology(subtopology_id="0", source_topics=["orders"])]
        ),
        members=[
            streams_group_describe.Member(
                member_id="m",
                member_epoch=3,
                process_id="p",
                client_host="/127.0.0.1",
                assignment=tasks(0, 1, standby=(2,)),
                target_assignment=tasks(1, standby=(2, 3)),
            )
        ],
    )
    found = (await describe_groups(client(cluster), {"app": 1}, only=[TopicPartition("orders", 1)]))["app"]
    assert (found["state"], found["epoch"], found["assignment_epoch"]) == ("Reconciling", 5, 4)
    assert (found["protocol_type"], found["protocol"]) == ("streams", "sticky")
    (member,) = found["members"]
    assert (member["protocol"], member["process"], member["to_give_up"], member["to_get"]) == ("streams", "p", 1, 1)
    assert member["tasks"] == {"active": ["0_0", "0_1"], "standby": ["1_2"], "warmup": []}
    assert [row["member"] for row in found["partitions"]] == ["m"]


async def test_a_share_group_is_described_with_what_it_has_not_finished(cluster: Cluster) -> None:
    """Of a partition that has not begun nothing is known; the lag is what the brokers say, not the distance to the end."""
    orders = consumer_group_describe.TopicPartitions(topic_name="orders", partitions=[0, 1])
    described = share_group_describe.DescribedGroup(
        group_id="workers",
        group_state="Stable",
        group_epoch=5,
        assignment_epoch=5,
        assignor_name="simple",
        members=[
            share_group_describe.Member(
                member_id=name,
                member_epoch=5,
                client_host="/127.0.0.1",
                assignment=consumer_group_describe.Assignment(topic_partitions=[orders]),
            )
            for name in ("m", "n")
        ],
    )
    partitions = [
        describe_share_group_offsets.ResponsePartition(partition_index=0, start_offset=60, lag=7),
        describe_share_group_offsets.ResponsePartition(partition_index=1, start_offset=-1, lag=-1),
    ]
    topics = [describe_share_group_offsets.ResponseTopic(topic_name="orders", partitions=partitions)]
    cluster.shares["workers"] = (described, describe_share_group_offsets.ResponseGroup("workers", topics))
    cluster.offsets_errors["workers"] = ErrorCode.GROUP_ID_NOT_FOUND  # it has committed nothing
    found = (await describe_groups(client(cluster), {"workers": 1}))["workers"]
    assert (found["type"], found["protocol"], found["state"], found["epoch"]) == ("share", "simple", "Stable", 5)
    rows = [(row["partition"], row["committed"], row["end"], row["lag"], row["member"]) for row in found["partitions"]]
    assert rows == [(0, 60, 100, 7, None), (1, None, 50, None, None)]
    assert found["total_lag"] == 7 and [len(member["partitions"]) for member in found["members"]] == [2, 2]
