"""What an image asks of this broker, with images made by hand."""

from __future__ import annotations

import pytest

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.records import PartitionRecord, Record, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord
from barnabas_replication.hosting.placement import (
    Change,
    Removal,
    as_of,
    changes_of,
    deleted_of,
    is_present_incarnation,
    plan,
    strays,
    was_made_since,
)
from barnabas_wire.kafka.ids import ZERO_UUID, BrokerId, Epoch, Offset, TopicPartition, Uuid
from tests.support.replicas import registration, topic_id_of

ME = BrokerId(1)
LED, FOLLOWED, ELSEWHERE = (TopicPartition("t", number) for number in range(3))
T, U = topic_id_of("t"), topic_id_of("u")


def change(topic_partition: TopicPartition, *, leader: int, replicas: tuple[int, ...] = (1, 2)) -> Change:
    return Change(topic_partition, T, registration(leader=leader, isr=replicas, replicas=replicas))


def image_of(*records: Record, base: MetadataImage = MetadataImage.EMPTY) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(Offset(base.offset + len(records)), Epoch(1), 0)


def topic(name: str, *partitions: int, replicas: tuple[int, ...] = (1, 2)) -> list[Record]:
    holders = tuple(map(BrokerId, replicas))
    return [
        TopicRecord(name=name, topic_id=topic_id_of(name)),
        *(
            PartitionRecord(
                topic_id=topic_id_of(name),
                partition_id=number,
                replicas=holders,
                directories=(ZERO_UUID,) * len(holders),
                isr=holders,
                leader=holders[0],
                leader_epoch=Epoch(0),
                partition_epoch=0,
            )
            for number in partitions
        ),
    ]


def test_each_change_is_led_followed_or_removed() -> None:
    led, followed = change(LED, leader=1), change(FOLLOWED, leader=2)
    gone = change(ELSEWHERE, leader=2, replicas=(2, 3))
    found = plan([gone, followed, led], broker_id=ME, log_topic_id=lambda _: T, is_present=True)
    assert found.remove == [Removal(ELSEWHERE, T)]
    assert (found.lead, found.follow, found.postpone) == ([led], [followed], [])


def test_a_partition_without_leader_is_followed() -> None:
    leaderless = change(LED, leader=-1)
    found = plan([leaderless], broker_id=ME, log_topic_id=lambda _: None, is_present=True)
    assert found.follow == [leaderless]


@pytest.mark.parametrize(
    ("log_topic_id", "is_present", "is_postponed"),
    [(T, False, True), (T, True, False), (U, False, False), (None, False, False)],
)
def test_an_older_image_removes_no_log_of_the_topic_that_it_names(
    log_topic_id: Uuid | None, is_present: bool, is_postponed: bool
) -> None:
    gone = change(ELSEWHERE, leader=2, replicas=(2, 3))
    found = plan([gone], broker_id=ME, log_topic_id=lambda _: log_topic_id, is_present=is_present)
    assert found.postpone == ([ELSEWHERE] if is_postponed else [])
    assert found.remove == ([] if is_postponed else [Removal(ELSEWHERE, T)])


def test_a_delta_names_what_it_changes_and_what_it_deletes() -> None:
    _, base = image_of(*topic("u", 1, 0))
    delta, _ = image_of(*topic("t", 0, 1), RemoveTopicRecord(topic_id=U), base=base)
    assert delta.topics is not None
    assert [(found.topic_partition, found.topic_id) for found in changes_of(delta.topics)] == [(LED, T), (FOLLOWED, T)]
    assert list(deleted_of(delta.topics)) == [Removal(TopicPartition("u", number), U) for number in (0, 1)]


def test_what_was_postponed_is_taken_as_the_image_has_it_now() -> None:
    _, image = image_of(*topic("t", 0))
    found = list(as_of(image.topics, [LED, FOLLOWED, TopicPartition("u", 0)]))
    assert found == [Change(LED, T, image.topics.get("t").partitions[0])]  # type: ignore[union-attr]


def test_logs_of_no_replica_of_ours_are_strays() -> None:
    _, image = image_of(*topic("t", 0, 1), *topic("away", 0, replicas=(2, 3)))
    away, deleted, older = TopicPartition("away", 0), TopicPartition("deleted", 0), FOLLOWED
    on_disk = {LED: T, older: U, away: topic_id_of("away"), deleted: topic_id_of("deleted")}
    found = strays(on_disk, image.topics, broker_id=ME, is_hosted=lambda _: False)
    assert found == [older, away, deleted]
    assert strays(on_disk, image.topics, broker_id=ME, is_hosted=lambda each: each != away) == [away]


def test_the_image_knows_this_incarnation_by_its_epoch() -> None:
    _, image = image_of(
        RegisterBrokerRecord(broker_id=ME, incarnation_id=T, broker_epoch=7, endpoints=(), is_fenced=True)
    )
    assert is_present_incarnation(image.cluster, ME, 7)
    assert not is_present_incarnation(image.cluster, ME, 8), "that of an earlier process"
    assert not is_present_incarnation(image.cluster, BrokerId(2), 7)


def test_a_partition_is_new_when_the_first_image_had_it_not() -> None:
    _, first = image_of(*topic("t", 0))
    _, later = image_of(*topic("t", 0, 1), *topic("u", 0))
    assert not was_made_since(first.topics, later.topics, LED)
    assert was_made_since(first.topics, later.topics, FOLLOWED)
    assert was_made_since(first.topics, later.topics, TopicPartition("u", 0))
    assert not was_made_since(None, later.topics, FOLLOWED), "nothing is known of before"
    assert not was_made_since(first.topics, later.topics, TopicPartition("absent", 0))
