"""Regular expressions that members subscribe by: which are valid, when they are resolved, and what they match.

May touch:  its arguments, RE2.       Must not touch: asyncio, clock, log, network.
Invariants: a name is matched as a whole and in time linear in it; a topic that the member who asked may not describe matches nothing;
            all of a group's are resolved together, by one set of topics.
Read next:  slices.py, which drives the work; subscription.py, which reads the result.

As in Kafka what is seen is what the last asker may see: in a group of several principals the resolution is as wide as the rights of
the one whose heartbeat began it. The dialect is RE2's, Kafka's is that of its Java port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from barnabas_coordination.group.consumer.errors import InvalidRegularExpression
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.consumer.messages import Surroundings
from barnabas_coordination.group.consumer.records import (
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerRecord,
    GroupValue,
    RegexValue,
)
from barnabas_coordination.group.consumer.soft_state import RegexJob, Resolving
from barnabas_coordination.group.consumer.subscription import group_names, metadata_hash
from barnabas_quorum.image.topics import TopicsImage
from barnabas_wire.linear_pattern import InvalidPattern, compile_linear

REFRESH_FLOOR_MS: Final = 10_000
"""Least time from the beginning of one resolution to the next."""
MATCHES_BEFORE_GIVING_WAY: Final = 200
"""Names matched between two turns given to others: 0.4 ms with most patterns, 28 ms with the worst found."""
REGEXES_MAX: Final = 1_000
"""Most regular expressions that the members of one group may use."""


def compile_regex(regex: str) -> Callable[[str], object]:
    """Matches a whole name. Raises InvalidRegularExpression."""
    try:
        matches: Callable[[str], object] = compile_linear(regex).fullmatch
    except InvalidPattern as error:
        raise InvalidRegularExpression(
            f"the regular expression {regex[:100]!r} is invalid: {error}; RE2 knows no look-around and no back-references"
        ) from error
    return matches


def needs_resolution(group: ConsumerGroup, in_use: Iterable[str], around: Surroundings) -> bool:
    """Whether those expressions are to be resolved now: one has no result yet, topics came or went, it was long
    ago, or the last result could not be appended."""
    wanted = set(in_use)
    if not wanted:
        return False
    soft = group.soft
    since_ms = None if soft.regex_refreshed_ms is None else around.now_ms - soft.regex_refreshed_ms
    if since_ms is not None and 0 <= since_ms < REFRESH_FLOOR_MS:
        return False
    if since_ms is None or since_ms >= around.regex_refresh_interval_ms or not wanted <= group.regexes.keys():
        return True
    seen = soft.regex_names_seen
    if seen is around.topics:
        return False
    if seen is None:
        return True
    if len(seen.topics) == len(around.topics.topics) and all(name in seen.topics for name in around.topics.topics):
        soft.regex_names_seen = around.topics
        return False
    return True


def resolve(regexes: Iterable[str], job: RegexJob) -> Resolving:
    """Topics by regular expression, sorted. Gives way now and then."""
    names = sorted(job.topics.topics)
    found: dict[str, tuple[str, ...]] = {}
    work = 0
    for regex in sorted(regexes):
        try:
            matches = compile_regex(regex)
        except InvalidRegularExpression:  # another version of RE2 took it
            found[regex] = ()
            continue
        matched = []
        for name in names:
            if matches(name) is not None and job.may_describe(name):
                matched.append(name)
            work += 1
            if work >= MATCHES_BEFORE_GIVING_WAY:
                work = 0
                yield
        found[regex] = tuple(matched)
    return found


def resolution_records(
    group: ConsumerGroup, found: dict[str, tuple[str, ...]], job: RegexJob, topics: TopicsImage
) -> list[ConsumerRecord]:
    """What changed, and the group's next epoch if its topics are others. Expressions that are not used any more are
    left out."""
    records: list[ConsumerRecord] = []
    regexes = dict(group.regexes)
    has_changed = False
    for regex, names in found.items():
        if regex not in group.regex_counts:
            continue
        former = regexes.get(regex)
        if former is not None and former.topics == names:
            continue
        has_changed = True
        regexes[regex] = RegexValue(names, job.version, job.started_ms)
        records.append(ConsumerGroupRegularExpressionRecord(group.group_id, regex, regexes[regex]))
    if has_changed:
        changed = metadata_hash(group_names(group, regexes=regexes), topics)
        records.append(ConsumerGroupMetadataRecord(group.group_id, GroupValue(group.epoch + 1, changed)))
    return records
