"""A topology held against the topics: what must be there, with how many partitions, and what is said where it is not."""

from __future__ import annotations

import sys

import pytest

from barnabas_coordination.group.streams.errors import InvalidTopology
from barnabas_coordination.group.streams.internal_topics import ConfiguredTopology, StatusCode, configure
from barnabas_coordination.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from tests.support.images import make_image


def found(parts: list[Subtopology], **topics: int) -> ConfiguredTopology:
    image = make_image(topics={name: [((1,), (1,), 1)] * count for name, count in topics.items()})
    return configure(Topology(0, tuple(parts)).in_order(), image.topics)


def part(name: str, *sources: str, **named: object) -> Subtopology:
    return Subtopology(subtopology_id=name, source_topics=sources, **named)  # type: ignore[arg-type]


CHAIN = [
    part("0", "a", "b", repartition_sinks=("x",)),
    part("1", repartition_sources=(InternalTopic("x"),), repartition_sinks=("y",)),
    part("2", "c", repartition_sources=(InternalTopic("y"),), changelogs=(InternalTopic("s"),)),
]


def test_partitions_follow_from_who_writes_and_tasks_from_what_is_read() -> None:
    configured = found(CHAIN, a=2, b=3, c=4)
    assert configured.partition_counts == {"x": 3, "y": 3, "s": 4}
    assert configured.task_counts == {"0": 3, "1": 3, "2": 4}
    assert [topic.name for topic in configured.missing] == ["s", "x", "y"]
    assert configured.status is not None
    assert tuple(configured.status) == (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: s, x, y")
    assert found(CHAIN, a=2, b=3, c=4, x=3, y=3, s=4).is_ready


def test_a_topic_that_is_there_with_another_count_stands_in_the_way() -> None:
    configured = found(CHAIN, a=2, b=3, c=4, x=3, y=2, s=4)
    assert configured.status is not None
    assert tuple(configured.status) == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic y has different number of partitions: expected 3, found 2",
    )


def test_missing_sources_come_first_and_three_are_named() -> None:
    configured = found([part("0", "d", "c", "b", "a", "e")], e=1)
    assert configured.status is not None
    assert tuple(configured.status) == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )
    assert not configured.missing


def test_copartitioned_topics_agree_or_are_named() -> None:
    group = CopartitionGroup((0, 1))
    assert found([part("0", "a", "b", copartitions=(group,))], a=2, b=2).is_ready
    uneven = found([part("0", "a", "b", copartitions=(group,))], a=2, b=3)
    assert uneven.status is not None and uneven.status.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    joined = [
        part("0", "small", repartition_sinks=("x",)),
        part("1", "wide", repartition_sources=(InternalTopic("x"),), copartitions=(CopartitionGroup((0,), (), (0,)),)),
    ]
    assert found(joined, small=1, wide=6).partition_counts == {"x": 6}, "it takes the count of its partner"
    joined[1] = part(
        "1", "wide", repartition_sources=(InternalTopic("x", 4),), copartitions=(CopartitionGroup((0,), (), (0,)),)
    )
    fixed = found(joined, small=1, wide=6)
    assert fixed.status is not None and "[4] of repartition topic [x]" in fixed.status.detail
    two = [
        part("0", "small", repartition_sinks=("x",)),
        part("1", "wide", repartition_sinks=("y",)),
        part(
            "2",
            repartition_sources=(InternalTopic("x"), InternalTopic("y")),
            copartitions=(CopartitionGroup((), (), (0, 1)),),
        ),
    ]
    assert found(two, small=1, wide=6).partition_counts == {"x": 6, "y": 6}


def test_a_topology_that_contradicts_itself_is_refused() -> None:
    loop = [
        part("0", repartition_sources=(InternalTopic("x"),), repartition_sinks=("y",)),
        part("1", repartition_sources=(InternalTopic("y"),), repartition_sinks=("x",)),
    ]
    fed_back = [part("0", "a", repartition_sources=(InternalTopic("x"),), repartition_sinks=("x",))]
    assert found(fed_back, a=3).partition_counts == {"x": 3}, "what is known of it counts"
    for parts in (loop, [part("0", repartition_sources=(InternalTopic("x"),))], [part("0")]):
        with pytest.raises(InvalidTopology):
            found(parts)


def test_the_order_of_a_clients_lists_does_not_matter() -> None:
    one = part(
        "0",
        "b",
        "a",
        repartition_sources=(InternalTopic("y"), InternalTopic("x", 2)),
        copartitions=(CopartitionGroup((0,), (), (1,)),),
    )
    other = part(
        "0",
        "a",
        "b",
        repartition_sources=(InternalTopic("x", 2), InternalTopic("y")),
        copartitions=(CopartitionGroup((1,), (), (0,)),),
    )
    assert one.in_order() == other.in_order() == other


def test_a_long_chain_takes_work_that_grows_with_it_alone() -> None:
    """A client may name thousands of subtopologies, in the worst order. Calls are counted: time is the machine's affair."""

    def calls(count: int) -> int:
        chain = [part("a", "in", repartition_sinks=("t0",))]
        chain += [
            part(f"p{n}", repartition_sources=(InternalTopic(f"t{n}"),), repartition_sinks=(f"t{n + 1}",))
            for n in reversed(range(count))
        ]
        chain.append(part("z", repartition_sources=(InternalTopic(f"t{count}"),)))
        counted = 0

        def count_call(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count_call)
        try:
            counts = found(chain, **{"in": 2}).partition_counts
        finally:
            sys.setprofile(None)
        assert set(counts.values()) == {2}
        return counted

    assert calls(1_000) < 11 * calls(100)
