"""How topics and groups stand, as one look shows it: what refuses producers, what consumers miss or wait for.

May touch:  barnabas_wire.client.     Must not touch: printing, the admin service.
Invariants: what is bounded says so; a part that a broker refuses to show is left out with its reason, and the rest is looked at.
Read next:  finding.py; rebalancing.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_admin import stable_offset
from barnabas_admin.doctor.finding import Cause, Finding
from barnabas_admin.groups import describe_groups, list_groups
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import EARLIEST, LATEST, MAX_TIMESTAMP, ClusterView
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, TopicPartition
from barnabas_wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_wire.records.batch import CorruptBatch, iterate_batches, iterate_records

PARTITIONS_MAX = 2_000
GROUPS_MAX = 200
TRANSACTIONS_MAX = 5
"""Partitions whose open transactions are looked up."""
SHOWN_MAX = 8
"""Partitions that one finding names."""
FUTURE_MS = 10 * 60_000
"""A record that is younger than now by more than this is of a clock that is ahead."""
HOT_RECORDS_MIN = 1_000
HOT_SHARE = 5
"""A partition with as many times the records of the others' mean is looked into."""
HOT_BYTES = 1 << 20
TOPIC = 2
"""As a resource of DescribeConfigs."""
MIN_ISR = "min.insync.replicas"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class Standing(NamedTuple):
    """What one look found."""

    findings: list[Finding]
    skipped: list[str]
    """What was not looked at, and why."""
    rebalancing: list[str]
    """Groups that only watching says more of."""


async def examine(client: ClusterClient, *, topics: Collection[str], groups: Collection[str], now_ms: int) -> Standing:
    """Look once. topics, groups: those asked about; empty: all that the client may see. Raises KafkaError, OSError, TimeoutError."""
    found = Standing([], [], [])
    skipped = found.skipped
    missing, known = await _named_topics(client, topics)
    found.findings.extend(missing)
    view = await client.metadata(known if topics else None, skips_missing=True)
    view = _bounded(view, known if topics else view.topics, skipped)
    ends = await _part(skipped, "offsets", _offsets(client, view))
    group_names = await _part(skipped, "groups", list_groups(client))
    parts: list[Awaitable[list[Finding]]] = [_replicas(client, view)]
    if ends is not None:
        parts += [_transactions(client, ends, now_ms), _hot(client, ends), _clocks(ends, now_ms)]
    if group_names is not None:
        wanted = [group for group in group_names if not groups or group["group"] in groups]
        if len(wanted) > GROUPS_MAX:
            skipped.append(f"groups: {len(wanted) - GROUPS_MAX} of {len(wanted)}; name those that matter with --group")
        found.rebalancing.extend(group["group"] for group in wanted if group["state"] in REBALANCING)
        parts.append(_groups(client, view, wanted[:GROUPS_MAX], None if ends is None else ends.starts))
    for part in await asyncio.gather(*(_part(skipped, "a part", part) for part in parts)):
        found.findings.extend(part or [])
    return found


async def _part(skipped: list[str], what: str, work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (KafkaError, OSError, TimeoutError) as error:
        skipped.append(f"{what}: {error.message if isinstance(error, KafkaError) else error or 'no answer in time'}")
        return None


# ---- topics


async def _named_topics(client: ClusterClient, topics: Collection[str]) -> tuple[list[Finding], list[str]]:
    """What a client hears of topics by their names, and those that are there."""
    if not topics:
        return [], []
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )
    found, known = [], []
    for topic in (await client.call(request)).topics:
        name = topic.name or ""
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found.append(
                Finding(
                    Cause.NO_RIGHT,
                    f"topic {name}",
                    "this user may not see it, whether it is there or not",
                    f"`barnabas acl create --allow User:NAME --operation read --resource topic --name {name}`, or write, by one who may",
                )
            )
        elif topic.error_code:
            found.append(
                Finding(
                    Cause.TOPIC_UNKNOWN,
                    f"topic {name}",
                    "there is none of that name",
                    f"`barnabas topic create {name}`; `barnabas topic list` shows those that there are (capital letters count)",
                )
            )
        else:
            known.append(name)
    return found, known


def _bounded(view: ClusterView, topics: Iterable[str], skipped: list[str]) -> ClusterView:
    kept: dict[str, Mapping[int, Any]] = {}
    count = left = 0
    for name in sorted(topics):
        partitions = view.topics.get(name, {})
        if name in INTERNAL_TOPICS:
            continue
        if count + len(partitions) > PARTITIONS_MAX:
            left += 1
            continue
        count += len(partitions)
        kept[name] = partitions
    if left:
        skipped.append(f"topics: {left} of {left + len(kept)}; name those that matter with --topic")
    return ClusterView(view.cluster_id, view.controller_id, view.brokers, kept, view.topic_ids)


async def _replicas(client: ClusterClient, view: ClusterView) -> list[Finding]:
    """Partitions that nobody leads, and those that refuse acks=all."""
    found = []
    short: dict[str, list[Any]] = {}
    for topic, partitions in view.topics.items():
        without = [number for number, partition in sorted(partitions.items()) if partition.leader < 0]
        if without:
            found.append(
                Finding(
                    Cause.NO_LEADER,
                    f"topic {topic}, partition {_few(without)}",
                    "it has no leader: nobody writes or reads it",
                    f"`barnabas explain partition {topic} {without[0]}` says which replicas are missing, and what brings them back",
                )
            )
        behind = [each for each in partitions.values() if each.leader >= 0 and len(each.isr) < len(each.replicas)]
        behind += [each for each in partitions.values() if each.leader >= 0 and len(each.replicas) == 1]
        if behind:
            short[topic] = behind
    if not short:
        return found
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, name, [MIN_ISR]) for name in short])
    for result in (await client.call(request)).results:
        minimum = next((int(entry.value) for entry in result.configs if entry.name == MIN_ISR and entry.value), 1)
        refused = [each for each in short[result.resource_name] if len(each.isr) < minimum]
        if not refused:
            continue
        numbers = sorted(each.partition for each in refused)
        fix = (
            f"bring the other replicas back: `barnabas explain partition {result.resource_name} {numbers[0]}` says what each waits for; "
            "producers go on by themselves once enough are in sync"
        )
        found.append(
            Finding(
                Cause.ACKS_ALL_REFUSED,
                f"topic {result.resource_name}, partition {_few(numbers)}",
                f"acks=all is refused (NOT_ENOUGH_REPLICAS): {len(refused[0].isr)} in sync, min.insync.replicas is {minimum}",
                fix,
            )
        )
    return found


# ---- offsets


class Ends(NamedTuple):
    """Offsets of the partitions that somebody leads."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    newest_ms: Mapping[TopicPartition, int]


async def _offsets(client: ClusterClient, view: ClusterView) -> Ends:
    led = [
        TopicPartition(topic, number)
        for topic, partitions in view.topics.items()
        for number, partition in partitions.items()
        if partition.leader >= 0
    ]
    if not led:
        return Ends({}, {}, {}, {})
    starts, ends, stable, newest = await asyncio.gather(
        client.list_offsets(dict.fromkeys(led, EARLIEST)),
        client.list_offsets(dict.fromkeys(led, LATEST)),
        client.list_offsets(dict.fromkeys(led, LATEST), is_read_committed=True),
        client.list_offsets(dict.fromkeys(led, MAX_TIMESTAMP)),
    )
    return Ends(
        {each: int(listed.offset) for each, listed in starts.items()},
        {each: int(listed.offset) for each, listed in ends.items()},
        {each: int(listed.offset) for each, listed in stable.items()},
        {each: listed.timestamp_ms for each, listed in newest.items()},
    )


async def _transactions(client: ClusterClient, ends: Ends, now_ms: int) -> list[Finding]:
    """Partitions whose readers of committed records wait: whose transaction is open there."""
    held = sorted(each for each, stable in ends.stable.items() if stable < ends.ends[each])
    found = []
    for each in held[:TRANSACTIONS_MAX]:
        explained = await stable_offset.explain(client, each, now_ms=now_ms)
        if explained is not None:
            found.append(
                Finding(
                    Cause.TRANSACTION_OPEN,
                    str(each),
                    "; ".join(explained.facts),
                    "; ".join(f"{purpose}: `{command}`" for purpose, command in explained.steps),
                )
            )
    return found


async def _clocks(ends: Ends, now_ms: int) -> list[Finding]:
    found = []
    for each, newest_ms in sorted(ends.newest_ms.items()):
        ahead_s = (newest_ms - now_ms) / 1000
        if ahead_s > FUTURE_MS / 1000:
            found.append(
                Finding(
                    Cause.CLOCK_AHEAD,
                    str(each),
                    f"its newest record is dated {ahead_s:.0f} s ahead of this machine's clock: retention by time keeps what is before it, "
                    "and a search by time ends there",
                    "set the clock of the producer that wrote it (NTP), or message.timestamp.type=LogAppendTime on the topic; "
                    "message.timestamp.after.max.ms refuses such records",
                )
            )
    return found


async def _hot(client: ClusterClient, ends: Ends) -> list[Finding]:
    """Topics of which one partition takes nearly everything, and the key that does it."""
    found = []
    by_topic: dict[str, dict[TopicPartition, int]] = {}
    for each, end in ends.ends.items():
        by_topic.setdefault(each.topic, {})[each] = end - ends.starts[each]
    for topic, counts in sorted(by_topic.items()):
        hottest = max(counts, key=lambda each: counts[each])
        rest = sum(counts.values()) - counts[hottest]
        if (
            len(counts) < 2
            or counts[hottest] < HOT_RECORDS_MIN
            or counts[hottest] * (len(counts) - 1) < HOT_SHARE * rest
        ):
            continue
        what = f"partition {hottest.partition} holds {counts[hottest]} of its {counts[hottest] + rest} records"
        offset = max(ends.starts[hottest], ends.ends[hottest] - HOT_RECORDS_MIN)
        keys = _keys((await client.fetch(hottest, offset, bytes_max=HOT_BYTES)).records)
        (key, times), *_ = keys.most_common(1) or [(None, 0)]
        if times * 2 < keys.total() or not keys:
            continue
        named = "no key" if key is None else f"the key {key[:60]!r}"
        fix = (
            "records without a key go where the client's partitioner sends them: leave `partitioner` and `partition` to the client"
            if key is None
            else "spread it: a second part in the key (a bucket number), a topic of its own, or no key where order does not matter; more "
            "partitions do not help"
        )
        found.append(
            Finding(Cause.HOT_KEY, f"topic {topic}", f"{what}; {times} of {keys.total()} looked at have {named}", fix)
        )
    return found


def _keys(records: memoryview) -> Counter[bytes | None]:
    found: Counter[bytes | None] = Counter()
    try:
        for position, _ in iterate_batches(records):
            for record in iterate_records(records[position:]):
                found[None if record.key is None else bytes(record.key)] += 1
    except CorruptBatch:
        return found  # the last batch is cut where the answer was full
    return found


# ---- groups


async def _groups(
    client: ClusterClient,
    view: ClusterView,
    groups: Sequence[Mapping[str, Any]],
    starts: Mapping[TopicPartition, int] | None,
) -> list[Finding]:
    """Groups that have read less far than retention has deleted, and members that have nothing to read."""
    described = await describe_groups(client, {group["group"]: group["coordinator"] for group in groups})
    found = []
    for name, group in sorted(described.items()):
        lost = {
            TopicPartition(row["topic"], row["partition"]): row["committed"]
            for row in group["partitions"]
            if row["committed"] is not None
            and starts is not None
            and row["committed"] < starts.get(TopicPartition(row["topic"], row["partition"]), 0)
        }
        if lost and starts is not None:
            first, committed = next(iter(sorted(lost.items())))
            found.append(
                Finding(
                    Cause.OFFSETS_DELETED,
                    f"group {name}",
                    f"it has read {_few(sorted(map(str, lost)))} to where nothing is left: committed {committed}, the log of {first} "
                    f"begins at {starts[first]}",
                    "its members jump to the beginning or the end, as their auto.offset.reset says; keep records for longer than a group "
                    f"may be away (`barnabas topic alter {first.topic} --config retention.ms=…`), and see `barnabas group describe {name}`",
                )
            )
        idle = [member for member in group["members"] if not member["partitions"]]
        read = {row["topic"] for row in group["partitions"]}
        if group["state"] == "Stable" and idle and read:
            partitions = sum(len(view.topics.get(topic, {})) for topic in read)
            whose = _few([f"{each['client']} at {each['host']}" for each in idle])
            found.append(
                Finding(
                    Cause.MEMBERS_IDLE,
                    f"group {name}",
                    f"{len(idle)} of its {len(group['members'])} members have nothing to read: {_few(sorted(read))} has {partitions} "
                    f"partitions, and each goes to one member ({whose})",
                    f"more partitions (`barnabas topic add-partitions {min(read)} -n N`), or fewer members; a consumer that is to read "
                    "all by itself needs a group.id of its own",
                )
            )
    return found


def _few(each: Sequence[object]) -> str:
    shown = ", ".join(str(one) for one in each[:SHOWN_MAX])
    return shown if len(each) <= SHOWN_MAX else f"{shown} and {len(each) - SHOWN_MAX} more"
