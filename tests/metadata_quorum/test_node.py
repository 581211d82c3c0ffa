"""The quorum driver over real gRPC, real files and real time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from barnabas_broker.metadata.quorum_state import QUORUM_STATE_FILE, decode_hard_state
from barnabas_quorum.driver.control_batches import voter_sets_in
from barnabas_quorum.driver.grpc_transport import GrpcTransport
from barnabas_quorum.driver.incarnation import METADATA_KEY
from barnabas_quorum.errors import BatchTooLarge, BufferExhausted, NotController, PeerUnreachable
from barnabas_quorum.raft.messages import HardState, LeaderAndEpoch, VoteReply, VoteRequest
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Epoch, Offset, Uuid
from barnabas_wire.records.batch import iterate_records, read_header
from barnabas_wire.records.control import ControlRecordType, decode_control_key, decode_leader_change
from barnabas_wire.rpc import quorum_pb2_grpc
from tests.metadata_quorum.quorum_cluster import CLUSTER_ID, FAST, Cluster, until
from tests.support.replicas import eventually

STATE_FILE = f"__cluster_metadata-0/{QUORUM_STATE_FILE}"


async def test_three_voters_commit_and_all_listeners_hear_it_in_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3, observers=1) as cluster:
        leader = await cluster.leader()
        wanted = []
        for index in range(50):
            record = b"record %d" % index
            wanted.append(record)
            await cluster.commit(leader, [record])
        await cluster.all_have(wanted)
        # A member that got all in one fetch may have its first flush under way.
        await eventually(lambda: all(member.node.stats.flush_s.count for member in cluster.members))
        assert leader.node.high_watermark == leader.node.log_end_offset
        for member in cluster.members:
            assert member.node.is_voter == (member.key.id <= 3)
            stats = member.node.stats
            assert stats.append_s.count <= stats.batches_written and stats.append_s.count >= stats.flush_s.count >= 1
            assert stats.records_appended + stats.records_fetched == member.node.log_end_offset
            assert (stats.commit_s.count, stats.records_fetched == 0) == (
                (50, True) if member is leader else (0, False)
            )
        assert leader.node.voted_id == leader.key.id and leader.node.stats.election_s.count >= 1
        assert cluster.members[3].node.voted_id == -1 and cluster.members[3].node.stats.election_s.count == 0


async def test_batch_is_atomic_and_offset_is_that_of_its_last_record(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1) as cluster:
        leader = await cluster.leader()
        first = await cluster.commit(leader, [b"a", b"b", b"c"])
        second = await cluster.commit(leader, [b"d"])
        assert second == first + 1
        batches = leader.listener.batches
        assert [batch.records for batch in batches] == [(b"a", b"b", b"c"), (b"d",)]
        assert batches[0].last_offset == first
        assert batches[0].epoch == leader.node.leader_and_epoch.epoch


async def test_one_voter_commits_only_after_its_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster(tmp_path, voters=1) as cluster:
        leader = await cluster.leader()
        may_flush = asyncio.Event()
        flush = leader.log.flush

        async def held_flush() -> Offset:
            await may_flush.wait()
            return await flush()

        monkeypatch.setattr(leader.log, "flush", held_flush)
        offset = leader.node.propose([b"x"], epoch=leader.node.leader_and_epoch.epoch)
        await until(lambda: leader.log.end_offset > offset)
        await asyncio.sleep(0.05)
        assert leader.node.high_watermark <= offset
        assert leader.listener.records == []
        may_flush.set()
        await until(lambda: leader.listener.records == [b"x"])


async def test_proposals_linger_while_a_flush_is_under_way_and_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(FAST, append_linger_ms=3_600_000)
    async with Cluster(tmp_path, voters=1, config=config) as cluster:
        leader = await cluster.leader()
        epoch = leader.node.leader_and_epoch.epoch
        await cluster.commit(leader, [b"alone"])  # within an hour's linger: no flush was under way
        may_flush = asyncio.Event()
        flush = leader.log.flush
        flushes: list[Offset] = []

        async def held_flush() -> Offset:
            await may_flush.wait()
            flushes.append(await flush())
            return flushes[-1]

        monkeypatch.setattr(leader.log, "flush", held_flush)
        first = leader.node.propose([b"x"], epoch=epoch)
        await until(lambda: leader.log.end_offset > first)
        monkeypatch.setattr("barnabas_quorum.driver.proposals.PROPOSED_BYTES_MAX", 20_000)
        records = [b"%d" % number + bytes(1000) for number in range(18)]
        for record in records:
            leader.node.propose([record], epoch=epoch)
        with pytest.raises(BufferExhausted):
            leader.node.propose([bytes(3000)], epoch=epoch)
        await asyncio.sleep(0.05)
        assert leader.log.end_offset == first + 1, "held back while the flush is under way"
        may_flush.set()
        await until(lambda: leader.listener.records == [b"alone", b"x", *records])
        assert flushes == [first + 1, first + 1 + len(records)], "one flush carries what waited"
        leader.node.propose([bytes(3000)], epoch=epoch)


async def test_commit_that_is_not_urgent_reaches_the_others_with_what_follows(tmp_path: Path) -> None:
    held = replace(FAST, fetch_wait_ms_max=5_000, fetch_timeout_ms=10_000)
    async with Cluster(tmp_path, voters=3, config=held) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"before"])
        await cluster.all_have([b"before"])
        epoch = leader.node.leader_and_epoch.epoch
        offset = leader.node.propose([b"quiet"], epoch=epoch, is_urgent=False)
        await until(lambda: leader.node.high_watermark > offset)
        await asyncio.sleep(0.1)
        others = [member for member in cluster.members if member is not leader]
        # The slower of the two followers may fetch the record after it is committed.
        assert any(member.listener.records == [b"before"] for member in others)
        leader.node.propose([b"after"], epoch=epoch)
        await cluster.all_have([b"before", b"quiet", b"after"])


async def test_leader_killed_others_go_on_and_it_catches_up(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        first = await cluster.leader()
        await cluster.commit(first, [b"before"])
        await first.kill()
        second = await cluster.leader(other_than=first)
        await cluster.commit(second, [b"during"])
        await first.start()
        await cluster.commit(await cluster.leader(), [b"after"])
        await cluster.all_have([b"before", b"during", b"after"])
        assert second.node.leader_and_epoch.epoch > 1


async def test_all_killed_and_restarted_keep_what_was_committed(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"kept"])
        epoch = leader.node.leader_and_epoch.epoch
        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()
        again = await cluster.leader()
        kept = next(batch for batch in again.listener.batches if batch.records == (b"kept",))
        announced = [leader.leader_id for leader, _ in again.listener.leaders].index(again.key.id)
        assert again.listener.offset_at_leader_change[announced] == kept.last_offset, "it was told before it knew all"
        assert again.node.leader_and_epoch.epoch > epoch, "who led an epoch never leads it again"
        await cluster.commit(again, [b"new"])
        await cluster.all_have([b"kept", b"new"])


async def test_vote_leaves_only_after_it_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"x"])
        await cluster.all_have([b"x"])
        voter = next(member for member in cluster.members if member is not leader)
        may_save = asyncio.Event()
        save = voter.log.save_hard_state

        async def held_save(state: HardState) -> None:
            await may_save.wait()
            await save(state)

        monkeypatch.setattr(voter.log, "save_hard_state", held_save)
        request = VoteRequest(1, leader.key, voter.key, Epoch(50), Epoch(49), Offset(1000), False)
        answer = asyncio.create_task(voter.node.handle(request))
        await asyncio.sleep(0.05)
        assert not answer.done()
        assert voter.log.hard_state.epoch < 50
        may_save.set()
        reply = await answer
        assert isinstance(reply, VoteReply) and reply.is_granted
        stored = decode_hard_state((tmp_path / f"node-{voter.key}" / STATE_FILE).read_bytes(), path="")
        assert stored._replace(has_begun=False) == HardState(Epoch(50), NO_BROKER, leader.key)


async def test_follower_acknowledges_only_after_its_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster(tmp_path, voters=2) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"x"])
        follower = next(member for member in cluster.members if member is not leader)
        may_flush = asyncio.Event()
        flush = follower.log.flush

        async def held_flush() -> Offset:
            await may_flush.wait()
            return await flush()

        monkeypatch.setattr(follower.log, "flush", held_flush)
        offset = leader.node.propose([b"y"], epoch=leader.node.leader_and_epoch.epoch)
        await until(lambda: follower.log.end_offset > offset)
        await asyncio.sleep(0.05)
        assert leader.node.high_watermark <= offset
        may_flush.set()
        await cluster.all_have([b"x", b"y"])


async def test_resigning_leader_hands_over_and_refuses_proposals(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        old = await cluster.leader()
        epoch = old.node.leader_and_epoch.epoch
        await cluster.commit(old, [b"x"])
        await old.node.resign()
        with pytest.raises(NotController):
            old.node.propose([b"y"], epoch=epoch)
        new = await cluster.leader(other_than=old)
        assert new.node.leader_and_epoch.epoch == epoch + 1, "the best successor runs at once and unopposed"
        await until(lambda: old.listener.leaders[-1][0] == new.node.leader_and_epoch)
        assert (LeaderAndEpoch(None, epoch)) in [leader for leader, _ in old.listener.leaders]


async def test_a_leader_hands_over_while_one_voter_is_down(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        old = await cluster.leader()
        behind, ahead = (member for member in cluster.members if member is not old)
        await behind.kill()
        await cluster.commit(old, [b"x"])
        await old.node.resign()
        new = await cluster.leader(other_than=old)
        assert new is ahead
        await behind.start()
        await cluster.all_have([b"x"])


async def test_new_leader_hears_of_itself_only_with_everything_committed(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        first = await cluster.leader()
        last = await cluster.commit(first, [b"%d" % index for index in range(20)])
        await first.kill()
        second = await cluster.leader(other_than=first)
        leaders = second.listener.leaders
        index = next(i for i, (leader, _) in enumerate(leaders) if leader.leader_id == second.key.id)
        assert second.listener.offset_at_leader_change[index] == last
        assert leaders[index][1] == last + 2, "after the LeaderChange record"


async def test_proposal_in_a_wrong_epoch_or_on_a_follower_is_refused(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        epoch = leader.node.leader_and_epoch.epoch
        with pytest.raises(NotController):
            leader.node.propose([b"x"], epoch=Epoch(epoch - 1))
        follower = next(member for member in cluster.members if member is not leader)
        with pytest.raises(NotController):
            follower.node.propose([b"x"], epoch=epoch)
        with pytest.raises(BatchTooLarge):
            leader.node.propose([bytes(9 * 1024 * 1024)], epoch=epoch)


async def test_description_shows_voters_and_observers(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3, observers=1) as cluster:
        leader = await cluster.leader()
        offset = await cluster.commit(leader, [b"x"])
        await until(lambda: all(r.log_end_offset > offset for r in leader.node.describe().voters))
        await until(lambda: [r.key.id for r in leader.node.describe().observers] == [4])
        seen = leader.node.describe()
        assert (seen.leader_id, seen.high_watermark) == (leader.key.id, offset + 1)
        follower = next(member for member in cluster.members if member is not leader).node.describe()
        assert follower.leader_id == leader.key.id
        assert {r.log_end_offset for r in follower.voters} == {-1, offset + 1}


async def test_a_leader_that_was_lost_is_described_as_none_until_there_is_another(tmp_path: Path) -> None:
    """Without a majority the epoch does not end, and keeps its leader's name."""
    async with Cluster(tmp_path, voters=3, observers=1) as cluster:
        leader = await cluster.leader()
        other, *left = (member for member in cluster.members if member is not leader)
        await until(lambda: all(member.node.describe().leader_id == leader.key.id for member in left))
        await leader.kill()
        await other.kill()
        await until(lambda: all(member.node.describe().leader_id == NO_BROKER for member in left))
        for _ in range(100):  # two time-outs of fetches, in which both look for a leader anew
            assert [member.node.describe().leader_id for member in left] == [NO_BROKER, NO_BROKER]
            await asyncio.sleep(0.01)
        await other.start()
        await until(lambda: all(member.node.describe().leader_id not in (NO_BROKER, leader.key.id) for member in left))


async def test_stranger_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1) as cluster:
        leader = await cluster.leader()
        epoch = leader.node.leader_and_epoch.epoch
        stranger = GrpcTransport(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
        request = VoteRequest(
            1, ReplicaKey(BrokerId(9), Uuid(bytes(16))), leader.key, Epoch(99), Epoch(0), Offset(0), False
        )
        with pytest.raises(PeerUnreachable, match="INCONSISTENT_CLUSTER_ID"):
            await stranger.call(request, cluster.voters.voters[0], timeout_s=5)
        await stranger.close()
        assert leader.node.leader_and_epoch == LeaderAndEpoch(leader.key.id, epoch)


async def test_peer_that_refuses_with_nonsense_is_unreachable() -> None:
    """What it says of its incarnation cannot be read: that is its fault, and must not end this node."""
    server = grpc.aio.server()

    class Nonsense(quorum_pb2_grpc.QuorumServicer):
        async def Vote(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no", ((METADATA_KEY, b"\xff:x"),))

    quorum_pb2_grpc.add_QuorumServicer_to_server(Nonsense(), server)  # type: ignore[abstract]  # one method is enough
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    me, peer = (ReplicaKey(BrokerId(each), Uuid(bytes(16))) for each in (1, 2))
    transport = GrpcTransport(cluster_id="any")
    with pytest.raises(PeerUnreachable, match="FAILED_PRECONDITION"):
        await transport.call(
            VoteRequest(1, me, peer, Epoch(1), Epoch(0), Offset(0), True), Voter(peer, "127.0.0.1", port), timeout_s=5
        )
    await transport.close()
    await server.stop(None)


async def test_peer_with_an_ipv6_address_is_called_by_it_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them gRPC takes the port for the address's last part."""
    called: list[str] = []
    real = grpc.aio.insecure_channel

    def open_channel(target: str, **options: Any) -> grpc.aio.Channel:
        called.append(target)
        return real(target, **options)

    monkeypatch.setattr(grpc.aio, "insecure_channel", open_channel)
    transport = GrpcTransport(cluster_id="any")
    with pytest.raises(PeerUnreachable):
        await transport.describe(Voter(ReplicaKey(BrokerId(2), Uuid(bytes(16))), "::1", 1), timeout_s=5)
    await transport.close()
    assert called == ["[::1]:1"]


async def test_peer_on_the_other_side_of_the_world_is_reached(tmp_path: Path) -> None:
    """A connection stands after two round trips (TCP, then SETTINGS): its time-out must not be that of one in the same rack."""
    one_way_s = 0.7
    loop = asyncio.get_running_loop()

    async with Cluster(tmp_path, voters=1) as cluster:
        near = cluster.voters.voters[0]

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                loop.call_later(one_way_s, writer.write, data)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(near.host, near.port)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(relay(reader, back))
                await relay(there, writer)
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        far = near._replace(port=server.sockets[0].getsockname()[1])
        transport = GrpcTransport(cluster_id=CLUSTER_ID)
        async with asyncio.timeout(10):
            while True:
                try:
                    found = await transport.describe(far, timeout_s=5)
                    break
                except PeerUnreachable:
                    await asyncio.sleep(0.02)
        assert found.key == near.key
        await transport.close()
        server.close()


async def test_node_that_does_not_run_says_so_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1) as cluster:
        leader = await cluster.leader()
        request = VoteRequest(1, leader.key, leader.key, Epoch(1), Epoch(0), Offset(0), True)
        await leader.kill()
        with pytest.raises(PeerUnreachable):
            await leader.node.handle(request)


async def test_log_contains_kafka_batches_with_a_leader_change_first(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"x", b"y"])
        control, voters, data = leader.log.read(Offset(0), end_offset=leader.node.high_watermark, bytes_max=1 << 20)
        assert read_header(control.data).is_control
        record = next(iterate_records(control.data))
        assert decode_control_key(record.key or b"") == ControlRecordType.LEADER_CHANGE
        change = decode_leader_change(record.value or b"")
        assert change.leader_id == leader.key.id
        assert [voter.voter_id for voter in change.voters] == [1, 2, 3]
        assert len(change.granting_voters) >= 2
        assert list(voter_sets_in(voters.data)) == [(2, cluster.voters)]
        assert [record.value for record in iterate_records(data.data)] == [b"x", b"y"]
        assert read_header(data.data).partition_leader_epoch == leader.node.leader_and_epoch.epoch
