"""What a recovery of the quorum leaves out: leader epochs and producer ids that lost voters can have given out are not given out
again, on any node, whatever state the log was in."""

from __future__ import annotations

import pytest

from barnabas_quorum.controller.requests import (
    AllocateProducerIds,
    AlterPartition,
    CreatePartitions,
    IsrMemberEpoch,
    PartitionAlteration,
    TopicGrowth,
)
from barnabas_quorum.controller.result import ControllerResult
from barnabas_quorum.driver.committed_history import read_history
from barnabas_quorum.image.entities import hash_of
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.snapshot import in_one_go, loaded_delta, record_groups
from barnabas_quorum.records import (
    EPOCHS_PER_RECOVERY,
    BeginTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    QuorumRecoveryRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, TopicPartition
from tests.metadata_quorum.test_explain import Log as ExplainedLog
from tests.metadata_quorum.test_explain import explain, make_log
from tests.metadata_quorum.test_image_history import FakeLog, config
from tests.metadata_quorum.test_transactions import BEGIN, Log, feature
from tests.support.decided_cluster import DecidedCluster, uuid

GAP = EPOCHS_PER_RECOVERY
RECOVERY = QuorumRecoveryRecord(incarnation=f"1:{uuid(1)}", epoch_gap=GAP, producer_id_gap=10**12)
B1, B2 = BrokerId(1), BrokerId(2)


def recover(cluster: DecidedCluster) -> None:
    cluster.commit(ControllerResult(records=[RECOVERY], response=None))


def test_every_partition_continues_above_the_gap_and_all_else_stays() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("a", (1, 2), (2, 1))
    cluster.create("b", (2, 1))
    cluster.fence(2)
    before = cluster.image
    recover(cluster)
    for topic in before.topics.sorted_topics():
        for index, old in topic.partitions.items():
            new = cluster.partition(topic.name, index)
            assert (new.leader_epoch, new.partition_epoch) == (old.leader_epoch + GAP, old.partition_epoch + GAP)
            assert (new.leader, new.isr, new.elr, new.replicas) == (old.leader, old.isr, old.elr, old.replicas)
    assert cluster.image.topics.index == before.topics.index
    assert (cluster.image.cluster, cluster.image.configs) == (before.cluster, before.configs)


def test_the_image_hashes_and_reads_back_as_any_other() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("a", (1, 2))
    recover(cluster)
    image = cluster.image
    assert image.hash == hash_of(image)
    loaded = in_one_go(loaded_delta(record_groups(image))).apply(image.offset, image.epoch, image.timestamp_ms)
    assert (loaded, loaded.hash) == (image, image.hash)


def test_what_the_same_delta_made_rises_too_and_what_it_removed_stays_away() -> None:
    cluster = DecidedCluster().start_brokers(1)
    gone = cluster.create("gone", (1,))
    delta = MetadataDelta(cluster.image)
    made = uuid(77)
    for record in (
        RemoveTopicRecord(topic_id=gone),
        TopicRecord(name="gone", topic_id=made),
        PartitionRecord(topic_id=made, partition_id=0, replicas=(B1,), directories=(uuid(1),), isr=(B1,), leader=B1),
        RECOVERY,
    ):
        delta.replay(record)
    image = delta.apply(Offset(100), Epoch(1), 0)
    assert image.topics.get_by_id(gone) is None
    found = image.topics.partition(TopicPartition("gone", 0))
    assert found is not None and found.leader_epoch == GAP


def test_producer_ids_of_lost_blocks_are_not_given_out_again() -> None:
    cluster = DecidedCluster()
    epoch = cluster.start_broker(1)
    ask = AllocateProducerIds(broker_id=B1, broker_epoch=epoch)
    before = cluster.do(ask).first
    recover(cluster)
    assert cluster.do(ask).first == before + 1000 + 10**12


def test_no_epoch_is_left_is_a_record_that_does_not_fit() -> None:
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(TopicRecord(name="t", topic_id=uuid(1)))
    last = Epoch(2**31 - GAP)
    delta.replay(
        PartitionRecord(
            topic_id=uuid(1),
            partition_id=0,
            replicas=(B1,),
            directories=(uuid(2),),
            isr=(B1,),
            leader=B1,
            leader_epoch=last,
        )
    )
    with pytest.raises(InvariantViolated, match="epoch"):
        delta.replay(RECOVERY)


def test_a_partition_that_a_topic_gains_begins_above_what_lost_voters_gave_the_same_one() -> None:
    cluster = DecidedCluster().start_brokers(1, 2)
    cluster.create("t", (1, 2))

    def grow(count: int) -> None:
        cluster.do(CreatePartitions(topics=(TopicGrowth(name="t", partition_count=count),)))

    grow(2)
    assert cluster.partition("t", 1).leader_epoch == 0
    recover(cluster)
    cluster.fence(2)
    grow(3)
    assert cluster.partition("t", 2).leader_epoch == GAP
    cluster.create("new", (1,))
    assert cluster.partition("new").leader_epoch == 0, "a topic id of its own: nobody else can have it"


def test_the_isr_of_a_leader_that_lost_voters_had_is_not_taken() -> None:
    cluster = DecidedCluster()
    epochs = [cluster.start_broker(1), cluster.start_broker(2)]
    topic_id = cluster.create("t", (1, 2))
    recover(cluster)
    # Broker 1 has followed an island, where it leads in a few epochs more, and comes back with what it last heard.
    island = PartitionAlteration(
        topic_id=topic_id,
        partition_id=0,
        leader_epoch=Epoch(3),
        partition_epoch=5,
        new_isr=(IsrMemberEpoch(broker_id=B1, broker_epoch=epochs[0]),),
    )
    reply = cluster.do(AlterPartition(broker_id=B1, broker_epoch=epochs[0], partitions=(island,)))
    assert reply.partitions[0].error.code is ErrorCode.FENCED_LEADER_EPOCH


def test_an_open_transaction_ends_with_the_recovery_as_aborted() -> None:
    log = Log().commit([feature("a"), BEGIN, feature("b")], [RECOVERY], [feature("c")])
    assert log.reported[-1] == (4, {"a": 1, "c": 1})
    assert not log.loader.is_in_transaction and log.loader.blocked is None


def test_without_a_transaction_nothing_before_the_recovery_is_dropped() -> None:
    log = Log().commit([feature("a")], [RECOVERY], [FeatureLevelRecord(name="b", level=1)])
    assert log.reported[-1] == (2, {"a": 1, "b": 1})


async def test_questions_about_the_past_leave_the_open_transaction_out() -> None:
    log = FakeLog()
    log.size_bytes = 0  # type: ignore[attr-defined]
    log.add(config("a"), BeginTransactionRecord(name="n"), config("b"))
    log.add(RECOVERY)
    log.add(config("c"))
    found = await read_history(log, high_watermark=log.end, concerns=lambda record: True)  # type: ignore[arg-type]
    assert [getattr(each.record, "key", "recovery") for each in found.entries] == ["a", "recovery", "c"]


def test_an_explanation_of_a_partition_mentions_the_recovery() -> None:
    log: ExplainedLog = make_log(1, 2)
    log.write(RECOVERY)
    log.create(1, 2)
    log.write(RECOVERY)
    causes = explain(log).causes
    assert causes[-1].what == f"t-0 leader 1 in a new epoch {GAP}"
    assert causes[-1].reason == f"the quorum was recovered, as incarnation {RECOVERY.incarnation}"
    assert "how it stood before" not in str(causes), "a recovery before its creation is none of its"
