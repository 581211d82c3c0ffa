"""Which topics a group's members subscribe to, by name and by what their regular expressions were resolved to, and a hash of them.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: what does not exist is subscribed to by its name alone; equal topics have equal hashes on every node.
Read next:  target.py, heartbeat.py.

The hash is of name, id and count of partitions of each topic. It is not Kafka's, which has the replicas' racks in it, too, though no
assignor of Kafka 4.4 looks at them: a group that another kind of broker has written gets one epoch more, and the same targets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.member import ConsumerMember
from barnabas_coordination.group.consumer.records import RegexValue
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.kafka.ids import Uuid

NO_TOPICS_HASH = 0


def member_names(member: ConsumerMember, regexes: Mapping[str, RegexValue]) -> set[str]:
    """Topics that one member subscribes to, whether they exist or not."""
    resolved = regexes.get(member.regex)
    return set(member.metadata.topic_names).union(() if resolved is None else resolved.topics)


def member_topics(member: ConsumerMember, regexes: Mapping[str, RegexValue], topics: TopicsImage) -> frozenset[Uuid]:
    """Those of them that exist."""
    found = map(topics.get, member_names(member, regexes))
    return frozenset(topic.id for topic in found if topic is not None)


def group_names(
    group: ConsumerGroup,
    *,
    before: ConsumerMember | None = None,
    after: ConsumerMember | None = None,
    regexes: Mapping[str, RegexValue] | None = None,
) -> set[str]:
    """Topics that the members subscribe to once `before` is `after`: a new member has no `before`.

    Args:
        regexes: resolved regular expressions, those of the group if none are given.
    """
    names = names_after(
        group.topic_counts,
        () if before is None else before.metadata.topic_names,
        () if after is None else after.metadata.topic_names,
    )
    resolved = group.regexes if regexes is None else regexes
    for regex in regexes_in_use(group, before=before, after=after):
        if regex in resolved:
            names.update(resolved[regex].topics)
    return names


def regexes_in_use(
    group: ConsumerGroup, *, before: ConsumerMember | None = None, after: ConsumerMember | None = None
) -> set[str]:
    """Regular expressions that some member subscribes by once `before` is `after`."""
    gone = () if before is None or not before.regex else (before.regex,)
    new = () if after is None or not after.regex else (after.regex,)
    return names_after(group.regex_counts, gone, new)


def names_after(counts: Mapping[str, int], gone: Iterable[str], new: Iterable[str]) -> set[str]:
    """Names that are counted once some are counted one less, and new ones are there."""
    present = set(counts)
    present.difference_update(name for name in gone if counts.get(name, 0) <= 1)
    return present.union(new)


def metadata_hash(names: Iterable[str], topics: TopicsImage) -> int:
    """A hash of id, name and partition count of those topics that exist; NO_TOPICS_HASH where none does."""
    digest = hashlib.blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            is_empty = False
            digest.update(topic.id + len(topic.partitions).to_bytes(4, "big") + name.encode() + b"\0")
    return NO_TOPICS_HASH if is_empty else int.from_bytes(digest.digest(), "big", signed=True)
