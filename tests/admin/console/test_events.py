"""The newest events are found behind whatever a cluster at rest writes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_admin.client import AdminClient
from barnabas_admin.console.event_words import fold, told
from barnabas_admin.console.events import read_events


class Log:
    """Stands for the admin service of a node: `kinds` are its records, from offset 0."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.asked: list[int] = []

    def inspect_stream(self, method: str, request: Any) -> Iterator[Any]:
        assert method == "ReadLog"
        self.asked.append(request.last)
        start = getattr(request, "from")
        first = max(0, len(self.kinds) - request.last) if start < 0 else start
        entries = [
            SimpleNamespace(
                offset=offset, batch_offset=offset, epoch=1, timestamp_ms=offset, kind=kind, json='{"name": "t"}'
            )
            for offset, kind in enumerate(self.kinds)
            if offset >= first
        ]
        yield SimpleNamespace(entries=entries[:3])
        yield SimpleNamespace(entries=entries[3:])


def offsets(log: Log, **asked: int) -> list[int]:
    return [event["offset"] for event in read_events(cast(AdminClient, log), last=8, **asked)["events"]]


HASH = "ImageHashRecord"


@pytest.mark.parametrize(
    ("at_rest", "questions"),
    [
        (0, [18]),
        (10, [18]),
        (11, [18, 24]),
        (60, [18, 24, 80]),
        (100, [18, 24, 80, 240]),
        (5_000, [18, 24, 80, 240, 800]),
    ],
)
def test_what_an_idle_cluster_writes_hides_nothing(at_rest: int, questions: list[int]) -> None:
    log = Log(*["NewsRecord"] * 20, *[HASH] * at_rest)
    assert offsets(log) == (list(range(19, 11, -1)) if at_rest <= 700 else [])
    assert log.asked == questions


def test_a_young_log_is_read_once_and_an_older_page_ends_at_its_offset() -> None:
    log = Log("NewsRecord", HASH, "OtherRecord")
    assert offsets(log) == [2, 0] and log.asked == [18]
    log = Log(*["NewsRecord"] * 30)
    assert offsets(log, before=20) == list(range(19, 11, -1))


def test_what_was_written_together_is_one_event_and_none_is_told_without_its_beginning() -> None:
    entries = [
        SimpleNamespace(offset=each, batch_offset=batch) for each, batch in ((6, 5), (7, 5), (8, 8), (9, 9), (10, 9))
    ]
    assert [[each.offset for each in batch] for batch in fold(entries)] == [[8], [9, 10]]
    assert [[each.offset for each in batch] for batch in fold(entries[:2])] == [[6, 7]], "the only one is told as it is"
    assert fold([]) == []


NAMES = {"T1": "orders", "T2": "flights"}


def partition(topic: str, number: int) -> tuple[str, dict[str, Any]]:
    return "PartitionRecord", {"topic_id": topic, "partition_id": number, "replicas": [1, 2, 3]}


def change(topic: str, number: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "PartitionChangeRecord", {"topic_id": topic, "partition_id": number, **fields}


CREATED = ("TopicRecord", {"topic_id": "T1", "name": "orders"})
CONFIG = ("ConfigRecord", {"resource_type": "TOPIC", "resource_name": "orders", "key": "retention.ms", "value": "9"})
FENCED = ("BrokerRegistrationChangeRecord", {"broker_id": 3, "broker_epoch": 1, "is_fenced": True})


@pytest.mark.parametrize(
    ("records", "sentence", "page"),
    [
        (
            [CREATED, partition("T1", 0), partition("T1", 1), CONFIG],
            "Topic orders was created with 2 partitions of 3 replicas; topic orders: retention.ms=9",
            "/topics/orders",
        ),
        (
            [("TopicRecord", {"topic_id": f"T{each}", "name": f"t{each}"}) for each in range(5)],
            "5 topics were created: t0, t1, t2 and 2 more",
            None,
        ),
        ([partition("T2", 3)], "Topic flights got 1 partition more", "/topics/flights"),
        (
            [
                FENCED,
                *(change("T1", each, leader=1 + each % 2, isr=[1, 2]) for each in range(4)),
                change("T2", 0, leader=-1),
            ],
            "Broker 3 was fenced: it serves nobody; 5 partitions of topic orders, topic flights changed: 2 led by 1, 2 led by 2, "
            "1 without a leader",
            "/brokers/3",
        ),
        ([change("T1", 2, isr=[1, 2])], "Partition orders-2 has in sync 1, 2", "/topics/orders"),
        ([("RemoveTopicRecord", {"topic_id": "T9"})], "A topic that is gone (T9) was deleted", None),
        (
            [
                (
                    "ClientQuotaRecord",
                    {"entity": [{"type": "user", "name": None}], "key": "producer_byte_rate", "value": 1e6},
                )
            ],
            "Quota of user (any other): producer_byte_rate=1,000,000",
            "/access",
        ),
        ([("NewsRecord", {"a": 1})], "NewsRecord: a=1", None),
        ([("BeginTransactionRecord", {"name": "x"}), FENCED], "Broker 3 was fenced: it serves nobody", "/brokers/3"),
    ],
)
def test_records_are_told_in_words(records: list[tuple[str, dict[str, Any]]], sentence: str, page: str | None) -> None:
    assert told(records, NAMES) == (sentence, page)
