"""Voters that come and go, with real gRPC and real files: 3 → 5 → 3, replaced disks, who may join by itself, refusals."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from barnabas_quorum.driver.transport import VoterChangeAnswer
from barnabas_quorum.errors import PeerUnreachable
from barnabas_quorum.raft import membership
from barnabas_quorum.raft.messages import ReplyError, VoterChange, VoterChangeKind, VoterRefusal
from barnabas_quorum.raft.voters import ReplicaKey, Voter
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset, Uuid
from tests.metadata_quorum.quorum_cluster import FAST, SETTLE_S, Cluster, Member, free_ports, until

AUTO_JOIN = dataclasses.replace(FAST, auto_join=True)


async def change(member: Member, kind: VoterChangeKind, voter: Voter) -> VoterChangeAnswer:
    return await member.node.ask_for_voters(VoterChange(kind, voter, 0))


NOT_YET = (ReplyError.REQUEST_TIMED_OUT, ReplyError.NOT_LEADER_OR_FOLLOWER, ReplyError.BROKER_NOT_AVAILABLE)
MADE_ALREADY = {VoterChangeKind.ADD: ReplyError.DUPLICATE_VOTER, VoterChangeKind.REMOVE: ReplyError.VOTER_NOT_FOUND}


async def make(cluster: Cluster, kind: VoterChangeKind, voter: Voter, *, asked: Member | None = None) -> None:
    """Once it may begin: the replica has caught up, no other change is under way, and a leader is there. A change whose
    answer was lost may have been made. asked: who brings it to the leader; by default the leader itself."""
    may_be_made = False
    async with asyncio.timeout(SETTLE_S):
        while True:
            leader = await cluster.leader()
            try:
                answer = await change(asked or leader, kind, voter)
            except PeerUnreachable:  # it did not lead, and the one it brought the change to is gone, or back just now
                may_be_made = True
                await asyncio.sleep(0.05)
                continue
            if answer.error is ReplyError.NONE or (may_be_made and answer.error is MADE_ALREADY.get(kind)):
                return
            assert answer.error in NOT_YET, answer
            may_be_made |= answer.error is ReplyError.REQUEST_TIMED_OUT


def ids(member: Member) -> list[int]:
    return [key.id for key in member.node.voters.keys]


async def test_three_five_three_with_commits_between(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3, spares=2) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"three"])
        for spare in cluster.members[3:]:
            await make(cluster, VoterChangeKind.ADD, spare.voter)
            assert spare.node.voters is not None
        await until(lambda: all(ids(member) == [1, 2, 3, 4, 5] for member in cluster.members))
        assert all(member.node.is_voter for member in cluster.members)
        leader = await cluster.leader()
        await cluster.commit(leader, [b"five"])
        # two of five down: three still are a majority, which two of the first three would not be
        followers = [member for member in cluster.members if member is not leader][:2]
        for member in followers:
            await member.kill()
        leader = await cluster.leader()
        await cluster.commit(leader, [b"three of five"])
        for member in followers:
            await member.start()
        await cluster.all_have([b"three", b"five", b"three of five"])
        # the first three leave, the leader among them: it goes on until its own removal is committed
        for member in cluster.members[:2]:
            await make(cluster, VoterChangeKind.REMOVE, member.voter)
        await until(lambda: all(ids(member) == [3, 4, 5] for member in cluster.members))
        leader = await cluster.leader()
        assert leader.key.id in (3, 4, 5)
        await cluster.commit(leader, [b"the others"])
        await cluster.all_have([b"three", b"five", b"three of five", b"the others"])
        # what was decided survives a restart of all
        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()
        leader = await cluster.leader()
        assert all(ids(member) == [3, 4, 5] for member in cluster.members)
        await cluster.commit(leader, [b"after"])


async def test_a_wiped_disk_is_replaced_by_removing_the_old_and_adding_the_new(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"kept"])
        victim = next(member for member in cluster.members if member is not leader)
        await victim.kill()
        old = victim.voter
        fresh = Member(cluster, ReplicaKey(victim.key.id, Uuid(b"a new directory!")), port=victim.port, is_spare=True)
        cluster.members[cluster.members.index(victim)] = fresh
        await fresh.start()
        await until(lambda: fresh.listener.records == [b"kept"])
        leader = await cluster.leader()
        duplicate = await change(leader, VoterChangeKind.ADD, fresh.voter)
        assert duplicate.error is ReplyError.DUPLICATE_VOTER
        assert f"remove {old.key} first" in duplicate.reason
        assert (await change(leader, VoterChangeKind.REMOVE, old)).error is ReplyError.NONE
        await make(cluster, VoterChangeKind.ADD, fresh.voter)
        await until(lambda: all(fresh.key in member.node.voters for member in cluster.members))
        leader = await cluster.leader()
        other = next(member for member in cluster.members if member not in (leader, fresh))
        await other.kill()
        await cluster.commit(leader, [b"counts"])


async def test_a_replaced_disk_joins_by_itself_and_one_that_was_removed_does_not(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3, spares=1, config=AUTO_JOIN) as cluster:
        await until(lambda: ids(cluster.members[0]) == [1, 2, 3, 4])
        leader = await cluster.leader()
        spare = cluster.members[3]
        if spare is leader:
            await spare.node.resign()
            leader = await cluster.leader(other_than=spare)
        await make(cluster, VoterChangeKind.REMOVE, spare.voter)
        await until(lambda: ids(spare) == [1, 2, 3])
        victim = next(member for member in cluster.members[:3] if member is not leader)
        await victim.kill()
        fresh = Member(cluster, ReplicaKey(victim.key.id, Uuid(b"a new directory!")), port=victim.port, is_spare=True)
        cluster.members[cluster.members.index(victim)] = fresh
        await fresh.start()
        await until(lambda: fresh.key in cluster.members[3].node.voters)
        assert ids(spare) == [1, 2, 3], "an operator removed it; it has had as many chances as the other"
        assert spare.key in spare.node.voters.removed


async def test_a_voter_that_moved_reports_its_new_address_to_the_leader(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"x"])
        mover = next(member for member in cluster.members if member is not leader)
        await mover.kill()
        mover.port = free_ports(1)[0]
        await mover.start()
        await until(lambda: all(member.node.voters.by_id(mover.key.id) == mover.voter for member in cluster.members))


async def test_the_only_one_that_can_lead_moved_and_announces_its_new_address_itself(tmp_path: Path) -> None:
    """Its log has what the other survivor lacks, so nobody else can be elected and write the new address into the log."""
    async with Cluster(tmp_path, voters=3) as cluster:
        leader = await cluster.leader()
        lagging, gone = [member for member in cluster.members if member is not leader]
        await lagging.kill()
        await cluster.commit(leader, [b"x"])
        await gone.kill()
        await leader.kill()
        leader.port = free_ports(1)[0]
        await leader.start()
        await lagging.start()
        async with asyncio.timeout(20):
            while lagging.listener.records != [b"x"]:
                await asyncio.sleep(0.01)
            while lagging.node.voters.by_id(leader.key.id) != leader.voter:
                await asyncio.sleep(0.01)


async def test_a_change_asked_for_while_a_removed_leader_steps_down_reaches_the_next_one(tmp_path: Path) -> None:
    patient = dataclasses.replace(FAST, request_timeout_ms=5_000)
    async with Cluster(tmp_path, voters=3, config=patient) as cluster:
        leader = await cluster.leader()
        follower = next(member for member in cluster.members if member is not leader)
        await cluster.commit(leader, [b"known to both"])
        await until(lambda: follower.listener.records == [b"known to both"])  # so it reaches the leader
        assert (await change(follower, VoterChangeKind.REMOVE, leader.voter)).error is ReplyError.NONE
        for asked in (leader, follower):
            again = await change(asked, VoterChangeKind.REMOVE, leader.voter)
            assert again.error is ReplyError.VOTER_NOT_FOUND, again.reason


async def test_who_was_removed_may_lead_until_it_knows_that_committed(tmp_path: Path) -> None:
    """Were the quorum recovered meanwhile, it would lead in an incarnation that is not its own."""
    async with Cluster(tmp_path, voters=2) as cluster, asyncio.TaskGroup() as tasks:
        leader = await cluster.leader()
        other = next(member for member in cluster.members if member is not leader)
        await cluster.commit(leader, [b"known to both"])
        await other.kill()
        asking = tasks.create_task(change(leader, VoterChangeKind.REMOVE, leader.voter))
        await until(lambda: not leader.node.is_voter)
        assert leader.node.may_lead
        await until(lambda: leader.node.leader_and_epoch.leader_id is None)  # it has stepped down
        assert not leader.node.is_voter and leader.node.may_lead
        assert (await asking).error is not ReplyError.NONE
        await other.start()
        await until(lambda: not leader.node.may_lead)  # elected again, it has committed its removal


async def test_a_leader_that_is_too_new_for_a_change_makes_it_when_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = dataclasses.replace(FAST, request_timeout_ms=5_000)
    async with Cluster(tmp_path, voters=1, spares=1, config=patient) as cluster:
        leader = await cluster.leader()
        spare = cluster.members[1]
        await until(lambda: spare.listener.last_offset == leader.listener.last_offset and spare.node.log_end_offset > 0)
        begun: list[bool] = []
        begin = membership.may_begin

        def too_new_at_first(**state: Any) -> VoterRefusal | None:
            begun.append(len(begun) >= 2)
            return begin(**state if begun[-1] else state | {"high_watermark": Offset(0)})

        monkeypatch.setattr(membership, "may_begin", too_new_at_first)
        answer = await change(spare, VoterChangeKind.ADD, spare.voter)
        assert answer.error is ReplyError.NONE, answer
        assert begun == [False, False, True]


async def test_refusals_name_the_rule_and_the_way_out(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=1, spares=1) as cluster:
        leader = await cluster.leader()
        spare = cluster.members[1]
        await until(lambda: spare.node.leader_endpoint is not None)

        async def reason(kind: VoterChangeKind, voter: Voter) -> tuple[ReplyError, str]:
            answer = await change(spare, kind, voter)  # an observer brings it to the leader
            return answer.error, answer.reason

        nobody = Voter(spare.key, "127.0.0.1", free_ports(1)[0])
        error, said = await reason(VoterChangeKind.ADD, nobody)
        assert error is ReplyError.REQUEST_TIMED_OUT and "nobody answers" in said and "start the controller" in said
        wrong = Voter(ReplicaKey(spare.key.id, Uuid(b"another disk....")), "127.0.0.1", spare.voter.port)
        error, said = await reason(VoterChangeKind.ADD, wrong)
        assert error is ReplyError.INVALID_REQUEST and "barnabas storage info" in said
        taken = Voter(leader.key, nobody.host, nobody.port)  # a second mistake, in its address, is not what hinders
        error, said = await reason(VoterChangeKind.ADD, taken)
        assert error is ReplyError.DUPLICATE_VOTER and "voter already" in said
        error, said = await reason(VoterChangeKind.REMOVE, leader.voter)
        assert error is ReplyError.INVALID_REQUEST and "last voter" in said
        error, said = await reason(VoterChangeKind.REMOVE, spare.voter)
        assert error is ReplyError.VOTER_NOT_FOUND
        answer = await spare.node.change_voters(VoterChange(VoterChangeKind.ADD, spare.voter, 0))
        assert answer.error is ReplyError.NOT_LEADER_OR_FOLLOWER and answer.leader == leader.voter


async def test_a_static_voter_set_is_upgraded_when_asked_and_every_voter_speaks_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, voters=3, spares=1, kraft_version=0) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"static"])
        spare = cluster.members[3]
        answer = await change(leader, VoterChangeKind.ADD, spare.voter)
        assert answer.error is ReplyError.UNSUPPORTED_VERSION and "kraft.version" in answer.reason
        away = next(member for member in cluster.members[:3] if member is not leader)
        await away.kill()
        answer = await change(leader, VoterChangeKind.UPGRADE, leader.voter)
        assert answer.error is ReplyError.REQUEST_TIMED_OUT and str(away.key) in answer.reason
        assert leader.node.voters.kraft_version == 0, "a voter that cannot be asked may not speak it"
        await away.start()
        follower = next(member for member in cluster.members[:3] if member not in (leader, away))
        await make(cluster, VoterChangeKind.UPGRADE, follower.voter, asked=follower)
        await until(lambda: all(member.node.voters.kraft_version == 1 for member in cluster.members[:3]))
        await make(cluster, VoterChangeKind.UPGRADE, follower.voter, asked=follower)  # again: nothing is to be done
        await make(cluster, VoterChangeKind.ADD, spare.voter)
        await until(lambda: all(ids(member) == [1, 2, 3, 4] for member in cluster.members))
        for member in cluster.members:
            await member.kill()
            await member.start()
        await cluster.leader()
        await until(lambda: all(ids(member) == [1, 2, 3, 4] for member in cluster.members))


async def test_an_askers_name_travels_to_the_leader_which_checks_it_twice_and_notes_what_it_did(tmp_path: Path) -> None:
    asked: list[tuple[VoterChangeKind, str, str]] = []
    noted: list[tuple[Any, ...]] = []

    def guard(wanted: VoterChange, principal: str, host: str) -> None:
        asked.append((wanted.kind, principal, host))
        if principal != "User:right" and not wanted.is_replicas_own:
            raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{principal} may not")

    def note(*facts: Any) -> None:
        noted.append(facts)

    async with Cluster(tmp_path, voters=3, voters_guard=guard, on_voters_changed=note) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"led"])
        await cluster.all_have([b"led"])  # who has not fetched may have no connection to the leader yet
        follower, leaving = (member for member in cluster.members if member is not leader)
        await until(lambda: follower.node.leader_endpoint == leader.voter)
        remove = VoterChange(VoterChangeKind.REMOVE, leaving.voter, 0)
        before = leader.node.voters
        for member in (follower, leader):
            asked.clear()
            refused = await member.node.ask_for_voters(remove, principal="User:wrong", client_host="10.0.0.9")
            assert refused.error is ReplyError.CLUSTER_AUTHORIZATION_FAILED and refused.reason == "User:wrong may not"
            assert asked == [(VoterChangeKind.REMOVE, "User:wrong", "10.0.0.9")]
        assert not noted
        asked.clear()
        done = await follower.node.ask_for_voters(remove, principal="User:right", client_host="10.0.0.9")
        assert done.error is ReplyError.NONE
        assert set(asked) == {(VoterChangeKind.REMOVE, "User:right", "10.0.0.9")} and len(asked) >= 2
        ((principal, host, change_, was, now, unknown),) = noted
        assert (principal, host, change_.kind, was, unknown) == ("User:right", "10.0.0.9", remove.kind, before, "")
        assert now == before.without_voter(leaving.key)


async def test_a_right_that_goes_while_the_change_waits_refuses_it(tmp_path: Path) -> None:
    is_asked = iter([True, False])

    def guard(wanted: VoterChange, principal: str, host: str) -> None:
        if not next(is_asked):
            raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no more")

    async with Cluster(tmp_path, voters=3, voters_guard=guard) as cluster:
        leader = await cluster.leader()
        await cluster.commit(leader, [b"led"])
        other = next(member for member in cluster.members if member is not leader)
        answer = await leader.node.change_voters(VoterChange(VoterChangeKind.REMOVE, other.voter, 0))
        assert answer.error is ReplyError.CLUSTER_AUTHORIZATION_FAILED
        assert ids(leader) == [1, 2, 3]
