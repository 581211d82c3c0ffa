"""Laws of the simple assignor, whatever group it is given."""

from __future__ import annotations

from collections import Counter
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_coordination.group.consumer.assignor.subscribers import Subscriber, Targets, run
from barnabas_coordination.group.share.assignor import assign
from barnabas_wire.kafka.ids import Uuid

TOPICS = [Uuid(number.to_bytes(16, "big")) for number in range(3)]


def shared(members: list[Subscriber], counts: dict[Uuid, int]) -> Targets:
    """The targets, whatever order the members come in."""
    assignable = {topic_id: list(range(count)) for topic_id, count in counts.items() if count}
    targets = run(assign(members, assignable))
    assert run(assign(members[::-1], assignable)) == targets
    return targets


def pairs(targets: Targets) -> list[tuple[str, Uuid, int]]:
    return [(name, topic_id, each) for name, of in targets.items() for topic_id, found in of.items() for each in found]


@settings(max_examples=400)
@given(
    st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=12),
    st.fixed_dictionaries({topic_id: st.integers(0, 7) for topic_id in TOPICS}),
    st.fixed_dictionaries({topic_id: st.integers(0, 7) for topic_id in TOPICS}),
    st.booleans(),
)
def test_every_partition_has_members_and_loads_are_even(
    subscriptions: list[set[Uuid]],
    former: dict[Uuid, int],
    counts: dict[Uuid, int],
    is_alike: bool,
) -> None:
    if is_alike:
        subscriptions = [subscriptions[0]] * len(subscriptions)
    members = [Subscriber(member_id=f"m{i}", topics=frozenset(of), target={}) for i, of in enumerate(subscriptions)]
    before = shared(members, former)
    left = [
        Subscriber(member_id=each.member_id, topics=each.topics, target=before[each.member_id]) for each in members[1:]
    ]
    members = [*left, Subscriber(member_id="new", topics=members[0].topics, target={})]
    targets = shared(members, counts)
    assert targets.keys() == {member.member_id for member in members}
    found = pairs(targets)
    assert len(found) == len(set(found)), "nobody has one twice"
    sharers = Counter((topic_id, each) for _, topic_id, each in found)
    assert sharers.keys() == {
        (topic_id, each)
        for topic_id, count in counts.items()
        for each in range(count)
        if any(topic_id in member.topics for member in members)
    }
    for member in members:
        assert targets[member.member_id].keys() <= member.topics
    groups = [members[0].topics] if len({member.topics for member in members}) == 1 else [{each} for each in TOPICS]
    for topics in groups:
        names = [member.member_id for member in members if member.topics >= topics]
        of_topics = [(name, each) for name, topic_id, each in found if topic_id in topics]
        partitions = sum(counts[topic_id] for topic_id in topics)
        if not names or not partitions:
            continue
        loads = Counter(name for name, _ in of_topics)
        if len(names) >= partitions:
            assert all(loads[name] >= 1 for name in names), "every member has something"
            most = ceil(len(names) / partitions)
            assert max(n for (topic_id, _), n in sharers.items() if topic_id in topics) <= most
        else:
            assert max(loads[name] for name in names) - min(loads[name] for name in names) <= 1
    again = [
        Subscriber(member_id=each.member_id, topics=each.topics, target=targets[each.member_id]) for each in members
    ]
    assert shared(again, counts) == targets, "what is settled stays"
