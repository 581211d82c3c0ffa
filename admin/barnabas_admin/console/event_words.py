"""Records of the metadata log in people's words: what was written together is one event, and ids are names.

May touch:  its arguments.            Must not touch: the cluster, HTTP.
Invariants: no record is lost: one without words is shown by its kind and fields; a topic whose name is not known is shown by its id.
Read next:  events.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from barnabas_admin.commands.metadata_log import text_of as fields_text

Fields = dict[str, Any]
Names = Mapping[str, str]
"""Topic id -> name."""

NAMED_MAX = 3
"""Names in a sentence; of more it says how many."""


def fold(entries: Sequence[Any]) -> list[list[Any]]:
    """Log entries by the batch that they were written in. A batch of which the beginning is missing is left out, unless it is the
    only one."""
    batches = [list(batch) for _, batch in groupby(entries, key=lambda entry: entry.batch_offset)]
    return batches[1:] if len(batches) > 1 and batches[0][0].offset > batches[0][0].batch_offset else batches


def told(kinds: Sequence[tuple[str, Fields]], names: Names) -> tuple[str, str | None]:
    """What the records of one batch say as a sentence, and the page that says more; None for no page."""
    by_kind: dict[str, list[Fields]] = {}
    for kind, fields in kinds:
        by_kind.setdefault(kind, []).append(fields)
    created = {fields["topic_id"] for fields in by_kind.get("TopicRecord", ())}
    sentences: list[str] = []
    for kind, several in by_kind.items():
        if kind == "TopicRecord":
            sentences.append(_created(several, by_kind.get("PartitionRecord", ()), names))
        elif kind == "PartitionRecord":
            sentences += _added([each for each in several if each["topic_id"] not in created], names)
        elif kind == "PartitionChangeRecord":
            sentences.append(_changed(several, names))
        elif kind == "ConfigRecord":
            sentences += _configured(several)
        elif kind == "FeatureLevelRecord":
            sentences.append("Features: " + _several([f"{each['name']} {each['level']}" for each in several], 20))
        elif kind in _ONE:
            sentences.append(_several([_ONE[kind](each, names) for each in several], NAMED_MAX))
        elif kind not in _SILENT or len(by_kind) == 1:
            sentences.append(_several([f"{kind}: {fields_text(each)}" for each in several], 1))
    text = "; ".join(sentences)
    return text[:1].upper() + text[1:], _page(kinds, names)


def _created(topics: Sequence[Fields], partitions: Sequence[Fields], names: Names) -> str:
    counts = Counter(each["topic_id"] for each in partitions)
    if len(topics) == 1:
        count = counts[topics[0]["topic_id"]]
        replicas = max((len(each["replicas"]) for each in partitions), default=0)
        return (
            f"topic {topics[0]['name']} was created with {_count(count, 'partition')} of {_count(replicas, 'replica')}"
        )
    return f"{len(topics):,} topics were created: {_several([each['name'] for each in topics], NAMED_MAX)}"


def _added(partitions: Sequence[Fields], names: Names) -> list[str]:
    counts = Counter(each["topic_id"] for each in partitions)
    return [f"{_topic(each, names)} got {_count(count, 'partition')} more" for each, count in counts.items()]


def _changed(changes: Sequence[Fields], names: Names) -> str:
    if len(changes) <= NAMED_MAX:
        return "; ".join(
            f"partition {names.get(each['topic_id'], each['topic_id'])}-{each['partition_id']} {_change(each)}"
            for each in changes
        )
    topics = [_topic(each, names) for each in dict.fromkeys(change["topic_id"] for change in changes)]
    leaders = Counter(each["leader"] for each in changes if each.get("leader") is not None)
    without = leaders.pop(-1, 0)
    more = [f"{count:,} led by {leader}" for leader, count in sorted(leaders.items())]
    if without:
        more.append(f"{without:,} without a leader")
    moved = sum(1 for each in changes if each.get("replicas") is not None)
    if moved:
        more.append(f"{moved:,} with other replicas")
    text = f"{_count(len(changes), 'partition')} of {_several(topics, NAMED_MAX)} changed"
    return f"{text}: {', '.join(more)}" if more else f"{text} their in-sync replicas"


def _change(fields: Fields) -> str:
    said = []
    if fields.get("leader") is not None:
        said.append("has no leader" if fields["leader"] < 0 else f"is led by {fields['leader']}")
    for name, words in (
        ("replicas", "has the replicas"),
        ("isr", "has in sync"),
        ("adding_replicas", "adds the replicas"),
        ("removing_replicas", "removes the replicas"),
    ):
        if fields.get(name):
            said.append(f"{words} {', '.join(map(str, fields[name]))}")
    if fields.get("faults"):
        said.append("has a faulty replica on " + ", ".join(str(each["broker_id"]) for each in fields["faults"]))
    return ", ".join(said) or "changed"


def _configured(configs: Sequence[Fields]) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for each in configs:
        value = each.get("value")
        text = f"{each['key']} is back at its default" if value is None else f"{each['key']}={value}"
        found.setdefault((each["resource_type"], each["resource_name"]), []).append(text)
    return [
        f"{'all brokers' if kind == 'BROKER' and not name else f'{kind.lower()} {name}'}: {_several(texts, 6)}"
        for (kind, name), texts in found.items()
    ]


def _registration(fields: Fields, names: Names) -> str:
    broker = f"broker {fields['broker_id']}"
    for name, yes, no in (
        ("is_fenced", "was fenced: it serves nobody", "came into service"),
        ("is_in_controlled_shutdown", "is shutting down", "no longer shuts down"),
        ("is_in_maintenance", "is drained: it leads nothing", "may lead again"),
    ):
        if fields.get(name) is not None:
            return f"{broker} {yes if fields[name] else no}"
    return f"{broker} has other log directories" if fields.get("directories") else f"{broker} serves its directories"


def _voters(fields: Fields, names: Names) -> str:
    return "the voters are " + ", ".join(each.partition("@")[0] for each in str(fields["voters"]).split(","))


def _quota(fields: Fields, names: Names) -> str:
    whose = " and ".join(f"{each['type']} {each.get('name') or '(any other)'}" for each in fields["entity"])
    value = fields.get("value")
    return f"quota of {whose}: " + (
        f"{fields['key']} was removed" if value is None else f"{fields['key']}={value:,.10g}"
    )


def _acl(fields: Fields, names: Names) -> str:
    what = f"{str(fields['resource_type']).lower()} {fields['resource_name']}"
    verb = "may not" if str(fields["permission"]).upper() == "DENY" else "may"
    return f"{fields['principal']} {verb} {str(fields['operation']).lower().replace('_', ' ')} {what}"


_ONE: dict[str, Callable[[Fields, Names], str]] = {
    "LeaderChange": lambda f, n: (
        f"controller {f['leader_id']} was elected by {', '.join(map(str, f['granting_voters']))}"
    ),
    "KRaftVoters": _voters,
    "RegisterBrokerRecord": lambda f, n: f"broker {f['broker_id']} registered",
    "UnregisterBrokerRecord": lambda f, n: f"broker {f['broker_id']} was unregistered",
    "BrokerRegistrationChangeRecord": _registration,
    "RegisterControllerRecord": lambda f, n: f"controller {f['controller_id']} registered",
    "UnregisterControllerRecord": lambda f, n: f"controller {f['controller_id']} was unregistered",
    "RemoveTopicRecord": lambda f, n: f"{_topic(f['topic_id'], n)} was deleted",
    "ProducerIdsRecord": lambda f, n: f"broker {f['broker_id']} took producer ids up to {f['next_producer_id'] - 1:,}",
    "ClientQuotaRecord": _quota,
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": lambda f, n: "an ACL was removed",
    "UserScramCredentialRecord": lambda f, n: f"user {f['name']} has a new password",
    "RemoveUserScramCredentialRecord": lambda f, n: f"a password of user {f['name']} was removed",
    "DelegationTokenRecord": lambda f, n: f"a delegation token of {f['owner']} was made or renewed",
    "RemoveDelegationTokenRecord": lambda f, n: "a delegation token ended",
    "ClearElrRecord": lambda f, n: f"eligible leader replicas of {f['topic_name'] or 'every topic'} were cleared",
    "QuarantineRecord": lambda f, n: f"the record at offset {f['offset']} is passed over: {f['reason']}",
    "QuorumRecoveryRecord": lambda f, n: "the quorum was recovered from the loss of a majority",
    "AbortTransactionRecord": lambda f, n: f"what was begun was undone: {f['reason']}",
}
"""Kind -> what one record of it says."""
_SILENT = {"BeginTransactionRecord", "EndTransactionRecord", "KRaftVersion"}
"""Kinds that say nothing beside others."""


def _page(kinds: Iterable[tuple[str, Fields]], names: Names) -> str | None:
    for kind, fields in kinds:
        topic = fields.get("name") if kind == "TopicRecord" else names.get(str(fields.get("topic_id", "")))
        if kind == "ConfigRecord" and fields["resource_type"] == "TOPIC":
            topic = fields["resource_name"]
        if topic and topic in names.values():
            return f"/topics/{quote(topic, safe='')}"
        if kind == "BrokerRegistrationChangeRecord" or kind == "RegisterBrokerRecord":
            return f"/brokers/{fields['broker_id']}"
        if kind in ("LeaderChange", "KRaftVoters", "RegisterControllerRecord"):
            return "/quorum"
        if kind in ("AccessControlEntryRecord", "UserScramCredentialRecord", "ClientQuotaRecord"):
            return "/access"
    return None


def _topic(topic_id: str, names: Names) -> str:
    return f"topic {names[topic_id]}" if topic_id in names else f"a topic that is gone ({topic_id})"


def _several(texts: Sequence[str], named_max: int) -> str:
    shown = ", ".join(texts[:named_max])
    return f"{shown} and {len(texts) - named_max:,} more" if len(texts) > named_max else shown


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
