"""Produce and Fetch at the edge: topic ids, refusals per partition, leader hints, old versions, sessions."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.security.access import AccessControl
from barnabas_coordination.transaction.writes import WriteVersion
from barnabas_log.errors import InvalidBatch
from barnabas_quorum.image.acls import AccessControlEntry, AclsImage
from barnabas_quorum.image.authorizer import Authorizer
from barnabas_quorum.records_security import AclOperation, AclPatternType, AclPermission, AclResourceType
from barnabas_replication.follower.peer import KafkaPeer
from barnabas_replication.requests import (
    AppendEntry,
    AppendOutcome,
    CurrentLeader,
    DivergingEpoch,
    FetchOutcome,
    FetchPartitionSpec,
    FetchSpec,
)
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import ANONYMOUS, BrokerId, Endpoint, Epoch, Offset, Uuid
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas_wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.listener import (
    LISTENER,
    TOPIC,
    TOPIC_ID,
    RawClient,
    RememberingReplicas,
    connected,
    make_services,
    running_server,
)
from tests.support.single_broker import single_broker

STRANGER = Uuid(b"no-such-topic-id")


class NotLeading(RememberingReplicas):
    """Refuses everything, naming broker 1 as leader."""

    def append_records(self, entries: Sequence[AppendEntry], **rest: Any) -> None:
        error = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
        hint = CurrentLeader(BrokerId(1), Epoch(5))
        rest["respond"]([AppendOutcome(topic, number, error, current_leader=hint) for topic, number, _ in entries])

    def outcomes(self, partitions: Sequence[Any]) -> list[FetchOutcome]:
        error = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
        hint = CurrentLeader(BrokerId(1), Epoch(5))
        return [FetchOutcome(p.topic, p.topic_id, p.partition, error, current_leader=hint) for p in partitions]


def topic(*partitions: int, name: str = TOPIC, topic_id: Uuid = TOPIC_ID) -> TopicProduceData:
    data = [PartitionProduceData(index=index, records=b"records") for index in partitions]
    return TopicProduceData(name=name, topic_id=topic_id, partition_data=data)


def asked(*partitions: int, name: str = TOPIC, topic_id: Uuid = TOPIC_ID) -> FetchTopic:
    found = [FetchPartition(partition=index, partition_max_bytes=1000) for index in partitions]
    return FetchTopic(topic=name, topic_id=topic_id, partitions=found)


@pytest.mark.parametrize("version", range(3, 14))
async def test_every_partition_is_answered_in_every_version(version: int) -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        answer = await client.call(ProduceRequest(acks=-1, topic_data=[topic(0, 1, 2)]), version)
        (reported,) = answer.responses
        assert (reported.topic_id if version >= 13 else reported.name) == (TOPIC_ID if version >= 13 else TOPIC)
        found = [(part.index, part.error_code, part.base_offset) for part in reported.partition_responses]
        assert found == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]
        assert replicas.appended == [(TOPIC, index, b"records") for index in range(3)]


class Refusing(RememberingReplicas):
    """Refuses every batch for some of its records."""

    def __init__(self, records: Sequence[int]) -> None:
        super().__init__()
        self.records = records

    def append_records(self, entries: Sequence[AppendEntry], **rest: Any) -> None:
        error = InvalidBatch("no key", records=self.records)
        rest["respond"]([AppendOutcome(topic, number, error) for topic, number, _ in entries])


@pytest.mark.parametrize("version", [7, 8, 9, 12, 13])
async def test_a_refused_batch_names_its_invalid_records(version: int) -> None:
    for records in ([1, 4], []):
        async with connected(make_services(replica_manager=Refusing(records))) as (_, client):
            answer = await client.call(ProduceRequest(acks=-1, topic_data=[topic(0)]), version)
            (refused,) = answer.responses[0].partition_responses
            assert refused.error_code == ErrorCode.INVALID_RECORD
            if version >= 8:
                assert refused.error_message == "no key"
                assert [(each.batch_index, each.batch_index_error_message) for each in refused.record_errors] == [
                    (index, "no key") for index in records
                ]


async def test_an_unknown_topic_id_is_refused_beside_a_known_one() -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        request = ProduceRequest(acks=1, topic_data=[topic(4, topic_id=STRANGER), topic(1)])
        answer = await client.call(request, 13)
        assert [reported.topic_id for reported in answer.responses] == [STRANGER, TOPIC_ID]
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert answer.responses[1].partition_responses[0].error_code == 0
        assert [index for _, index, _ in replicas.appended] == [1]

        fetched = await client.call(
            FetchRequest(max_wait_ms=10_000, topics=[asked(4, topic_id=STRANGER), asked(0)]), 17
        )
        assert [reported.topic_id for reported in fetched.responses] == [STRANGER, TOPIC_ID]
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert fetched.responses[1].partitions[0].error_code == 0
        assert replicas.fetched[-1][0].max_wait_ms == 0  # an error must not wait


@pytest.mark.attack("A8", "a topic's id gives its name to nobody who may not see the topic")
@pytest.mark.parametrize(("operation", "is_named"), [(None, False), ("DESCRIBE", True), ("READ", True)])
async def test_an_id_does_not_give_its_name_away(operation: str | None, is_named: bool) -> None:
    entries = {}
    if operation is not None:
        entries[Uuid(b"one acl of a few")] = AccessControlEntry(
            resource_type=AclResourceType.TOPIC,
            resource_name=TOPIC,
            pattern_type=AclPatternType.LITERAL,
            principal=ANONYMOUS,
            host="*",
            operation=AclOperation[operation],
            permission=AclPermission.ALLOW,
        )
    denied: list[str] = []
    access = AccessControl(
        Authorizer(), acls=lambda: AclsImage(entries=entries), on_denied=lambda *told: denied.append(told[3])
    )
    async with connected(make_services(access=access)) as (_, client):
        answers = [
            (await client.call(ProduceRequest(acks=1, topic_data=[topic(0, topic_id=each)]), 13))
            .responses[0]
            .partition_responses[0]
            for each in (TOPIC_ID, STRANGER)
        ]
    there, gone = ((each.error_code, (each.error_message or "").partition("id")[0]) for each in answers)
    if is_named:
        assert there[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED and TOPIC in there[1]
    else:
        assert there == gone and TOPIC not in str(answers)
    assert denied == [TOPIC], "the denial is noted either way"


async def test_only_unknown_ids_never_reach_the_replicas() -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        answer = await client.call(ProduceRequest(acks=1, topic_data=[topic(0, topic_id=STRANGER)]), 13)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        fetched = await client.call(FetchRequest(topics=[asked(0, topic_id=STRANGER)]), 17)
        assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert not replicas.appended
        assert not replicas.fetched


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_a_refused_producer_is_reported_who_leads_and_where(version: int) -> None:
    async with connected(make_services(replica_manager=NotLeading())) as (server, client):
        answer = await client.call(ProduceRequest(acks=1, topic_data=[topic(0)]), version)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert part.error_message == "moved"
        if version >= 10:
            assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 5)
            assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [(1, "127.0.0.1", 9092)]
        else:
            assert not answer.node_endpoints
        assert server.stats.errors[(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)] == 1


async def test_hints_name_the_listener_that_was_asked() -> None:
    async with running_server(make_services(replica_manager=NotLeading()), listener="OTHER") as server:
        client = await RawClient.connect(server, "OTHER")
        answer = await client.call(ProduceRequest(acks=1, topic_data=[topic(0)]), 10)
        assert [(node.host, node.port) for node in answer.node_endpoints] == [("other.example", 1001)]


@pytest.mark.parametrize("version", [11, 12, 15, 16, 18])
async def test_a_refused_consumer_is_reported_who_leads_and_where(version: int) -> None:
    async with connected(make_services(replica_manager=NotLeading())) as (_, client):
        answer = await client.call(FetchRequest(topics=[asked(0)]), version)
        part = answer.responses[0].partitions[0]
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 12:
            assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 5)
        if version >= 16:
            assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(1, 9092)]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_0_to_2_of_produce_are_refused_in_their_own_layout(version: int) -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        body = struct.pack(">hiih3siii", 1, 1000, 1, 3, b"old", 1, 6, 4) + b"data"
        frame = struct.pack(">hhih", ApiKey.PRODUCE, version, 5, -1) + body
        await client.send(struct.pack(">i", len(frame)) + frame)
        answer = await client.read_frame()
        wanted = struct.pack(">iih3siihq", 5, 1, 3, b"old", 1, 6, ErrorCode.UNSUPPORTED_VERSION, -1)
        wanted += struct.pack(">q", -1) if version == 2 else b""
        wanted += struct.pack(">i", 0) if version >= 1 else b""
        assert answer == wanted
        assert not replicas.appended


@pytest.mark.parametrize("version", [9, 11, 12])
async def test_a_transactional_produce_goes_by_the_transactions_coordinator(version: int) -> None:
    """With what its version knows: to add partitions by writing to them (12), and TRANSACTION_ABORTABLE (11)."""
    asked: list[tuple[str, list[tuple[str, int]], WriteVersion]] = []

    def append_records(
        transactional_id: str, entries: Any, *, version: WriteVersion, respond: Any, **named: Any
    ) -> None:
        asked.append((transactional_id, [entry[:2] for entry in entries], version))
        respond(
            [AppendOutcome(name, number, KafkaError.of(ErrorCode.INVALID_TXN_STATE)) for name, number, _ in entries]
        )

    replicas = RememberingReplicas()
    services = make_services(replica_manager=replicas, transactional=SimpleNamespace(append_records=append_records))
    async with connected(services) as (_, client):
        answer = await client.call(
            ProduceRequest(transactional_id="t", acks=-1, topic_data=[topic(0), topic(1, name="more")]), version
        )
        codes = [part.error_code for reported in answer.responses for part in reported.partition_responses]
        assert codes == [ErrorCode.INVALID_TXN_STATE] * 2
        assert not replicas.appended
        ((transactional_id, entries, knows),) = asked
        assert (transactional_id, len(entries)) == ("t", 2)
        assert knows == WriteVersion(adds_partitions=version >= 12, knows_abortable=version >= 11)


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_partition_of_a_fetch_is_answered_in_every_version(version: int) -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        answer = await client.call(FetchRequest(isolation_level=1, topics=[asked(2, 0)]), version)
        (reported,) = answer.responses
        assert [(part.partition_index, part.high_watermark) for part in reported.partitions] == [(2, 7), (0, 7)]
        assert [bytes(part.records) for part in reported.partitions] == [b"", b""]  # never null
        assert reported.partitions[0].aborted_transactions == []
        assert replicas.fetched[0][0].is_read_committed


async def test_a_followers_identity_is_read_from_where_its_version_puts_it() -> None:
    replicas = RememberingReplicas()
    async with connected(make_services(replica_manager=replicas)) as (_, client):
        await client.call(FetchRequest(replica_id=3, topics=[asked(0)]), 12)
        await client.call(
            FetchRequest(replica_state=ReplicaState(replica_id=3, replica_epoch=44), topics=[asked(0)]), 17
        )
        (first, _), (second, _) = replicas.fetched
        assert (first.replica_id, first.replica_epoch) == (3, -1)
        assert (second.replica_id, second.replica_epoch) == (3, 44)


@pytest.mark.parametrize("partitions", [1, 2])
async def test_what_a_follower_has_flushed_reaches_the_replicas(partitions: int) -> None:
    """Lost on the way, its fetch offset would count for flushed."""
    replicas = RememberingReplicas()
    async with running_server(make_services(replica_manager=replicas)) as server:
        host, port = server.bound[LISTENER]
        peer = KafkaPeer(endpoint=Endpoint(LISTENER, host, port), client_id="follower", timeout_ms=5_000)
        for flushed in (900, 0, 950, -1):
            specs = [
                FetchPartitionSpec(TOPIC, TOPIC_ID, number, Epoch(5), Offset(1_000), flushed_offset=Offset(flushed))
                for number in range(partitions)
            ]
            await peer.fetch(FetchSpec(replica_id=BrokerId(3), replica_epoch=44), specs)
            reported = replicas.fetched[-1][1]
            assert [(spec.fetch_offset, spec.flushed_offset) for spec in reported] == [(1_000, flushed)] * partitions
        await peer.close()


async def test_divergence_is_reported() -> None:
    class Diverging(RememberingReplicas):
        def outcomes(self, partitions: Sequence[Any]) -> list[FetchOutcome]:
            diverging = DivergingEpoch(Epoch(3), Offset(17))
            return [
                FetchOutcome(p.topic, p.topic_id, p.partition, None, Offset(20), diverging_epoch=diverging)
                for p in partitions
            ]

    async with connected(make_services(replica_manager=Diverging())) as (_, client):
        answer = await client.call(FetchRequest(topics=[asked(0)]), 12)
        epoch = answer.responses[0].partitions[0].diverging_epoch
        assert (epoch.epoch, epoch.end_offset) == (3, 17)


async def test_no_fetch_session_is_ever_opened() -> None:
    async with connected(make_services()) as (_, client):
        opened = await client.call(FetchRequest(session_id=0, session_epoch=0, topics=[asked(0)]), 12)
        assert (opened.error_code, opened.session_id) == (0, 0)
        assert len(opened.responses) == 1
        stale = await client.call(FetchRequest(session_id=99, session_epoch=5), 12)
        assert stale.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        closing = await client.call(FetchRequest(session_id=99, session_epoch=-1), 12)
        assert closing.error_code == 0
        again = await client.call(FetchRequest(session_id=99, session_epoch=0, topics=[asked(0)]), 12)
        assert (again.error_code, again.session_id, len(again.responses)) == (0, 0, 1)
        out_of_nothing = await client.call(FetchRequest(session_id=0, session_epoch=1, topics=[asked(0)]), 12)
        assert out_of_nothing.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_an_empty_produce_is_answered() -> None:
    async with connected(make_services()) as (_, client):
        answer = await asyncio.wait_for(client.call(ProduceRequest(acks=1), 9), 10)
        assert answer.responses == []


@pytest.mark.attack("A5", "strangers open no fetch sessions of replicas")
async def test_who_is_no_broker_of_the_cluster_opens_no_fetch_session(tmp_path: Path) -> None:
    """One is kept for each replica id, which a client of an open cluster makes up."""
    async with single_broker(tmp_path, topics={TOPIC: 1}) as broker:
        assert broker.server is not None
        client = await RawClient.connect(broker.server)
        for replica_id in range(100, 150):
            request = FetchRequest(
                replica_id=replica_id,
                session_id=0,
                session_epoch=0,
                max_wait_ms=0,
                topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0)])],
            )
            assert (await client.call(request, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not broker.replicas.fetches._sessions._sessions
