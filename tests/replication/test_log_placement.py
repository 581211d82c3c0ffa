"""No empty log takes the place of one that may hold what the cluster counts on."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas_quorum.image.directories import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import LeaderRecoveryState
from barnabas_replication.hosting.log_placement import is_stray, refusal_of_new_log
from barnabas_wire.kafka.ids import NO_BROKER, ZERO_UUID, BrokerId, Epoch, Uuid

HERE, BROKEN = Uuid(b"h" * 16), Uuid(b"b" * 16)
ME, OTHER = BrokerId(1), BrokerId(2)
TOPIC, ANOTHER_TOPIC = Uuid(b"t" * 16), Uuid(b"a" * 16)


def refusal(
    directory: Uuid, *, has_offline: bool = False, is_of_this_incarnation: bool = False, **more: Any
) -> str | None:
    """For a partition of broker 1 and 2 that 2 leads alone, changed some times."""
    return refusal_of_new_log(
        partition(directory, **more),
        ME,
        online=[HERE],
        has_offline=has_offline,
        is_of_this_incarnation=is_of_this_incarnation,
    )


def partition(directory: Uuid = HERE, **more: Any) -> PartitionRegistration:
    """The same."""
    fields: dict[str, Any] = {
        "replicas": (ME, OTHER),
        "directories": (directory, Uuid(b"o" * 16)),
        "isr": (OTHER,),
        "leader": OTHER,
        "leader_recovery_state": LeaderRecoveryState.RECOVERED,
        "leader_epoch": Epoch(3),
        "partition_epoch": 4,
        "adding_replicas": (),
        "removing_replicas": (),
        "elr": (),
        "last_known_elr": (),
    }
    return PartitionRegistration(**(fields | more))


@pytest.mark.parametrize("has_offline", [False, True])
def test_in_a_directory_that_works_a_log_may_be_made(has_offline: bool) -> None:
    assert refusal(HERE, has_offline=has_offline) is None
    assert refusal(HERE, has_offline=has_offline, isr=(ME,), leader=ME) is None


def test_while_a_directory_is_offline_nothing_is_made_in_place_of_what_may_be_in_it() -> None:
    for more in ({}, {"isr": (ME,)}, {"leader": ME}, {"adding_replicas": (ME,)}):
        found = refusal(BROKEN, has_offline=True, **more)
        assert found is not None and str(BROKEN) in found
    for directory in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY):
        assert refusal(directory, has_offline=True) is not None
        assert refusal(directory, has_offline=True, adding_replicas=(ME,), isr=(ME, OTHER)) is not None
        assert refusal(directory, has_offline=True, leader_epoch=Epoch(0)) is not None


def test_what_no_earlier_life_can_have_had_is_made_though_it_has_changed_since() -> None:
    assert refusal(UNASSIGNED_DIRECTORY, has_offline=True, is_of_this_incarnation=True) is None
    assert refusal(UNASSIGNED_DIRECTORY, has_offline=True, is_of_this_incarnation=True, isr=(ME,), leader=ME) is None
    assert refusal(BROKEN, has_offline=True, is_of_this_incarnation=True) is not None


def test_what_is_new_is_made_also_while_a_directory_is_offline() -> None:
    # In a topic that has lived through a recovery of the quorum a new partition begins above epoch 0.
    for epoch in (0, 1_000_000):
        made: dict[str, Any] = {"leader_epoch": Epoch(epoch), "partition_epoch": 0, "isr": (ME,)}
        assert refusal(UNASSIGNED_DIRECTORY, has_offline=True, **made) is None
    assert refusal(UNASSIGNED_DIRECTORY, has_offline=True, adding_replicas=(ME,)) is None


@pytest.mark.parametrize(
    "counts", [{"isr": (ME,)}, {"elr": (ME,)}, {"leader": ME}, {"isr": (), "leader": NO_BROKER, "elr": (ME, OTHER)}]
)
def test_a_replaced_disk_is_filled_once_nobody_counts_on_the_old_one(counts: dict[str, Any]) -> None:
    assert refusal(BROKEN, **counts) is not None
    assert refusal(BROKEN) is None
    assert refusal(UNASSIGNED_DIRECTORY, **counts) is None, "where it was nobody knows; all directories are there"


@pytest.mark.parametrize(
    ("log_topic_id", "topic_id", "known", "is_so"),
    [
        (TOPIC, TOPIC, partition(), False),
        (ZERO_UUID, TOPIC, partition(), False),
        (TOPIC, None, None, True),
        (TOPIC, TOPIC, None, True),
        (TOPIC, ANOTHER_TOPIC, partition(), True),
        (TOPIC, TOPIC, partition(replicas=(OTHER,), directories=(HERE,)), True),
        (ZERO_UUID, TOPIC, partition(replicas=(OTHER,), directories=(HERE,)), True),
    ],
)
def test_a_log_of_no_replica_is_a_stray(
    log_topic_id: Uuid, topic_id: Uuid | None, known: PartitionRegistration | None, is_so: bool
) -> None:
    assert is_stray(log_topic_id, topic_id=topic_id, partition=known, broker_id=ME) is is_so
