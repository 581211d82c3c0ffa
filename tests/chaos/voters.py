"""Changes of the voter set while the load goes on: a disk that is lost and replaced, and a quorum that grows and shrinks.

May touch:  the quorum's gRPC service, the cluster.   Must not touch: how histories are judged.
Invariants: a change is asked of whoever leads until it is committed; a removed or wiped controller never votes under its old
            identity.
Read next:  scenarios.py, whose table these stand in.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import grpc
import grpc.aio

from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.rpc import admin_pb2, admin_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from barnabas_wire.rpc.options import CHANNEL_OPTIONS
from tests.chaos.network import address_of
from tests.chaos.nodes import CONTROLLER_PORT
from tests.chaos.stage import LEADER_WITHIN_S, SETTLED_WITHIN_S, Stage

CALL_TIMEOUT_S = 6.0
CHANGED_WITHIN_S = 60.0
_LATER = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""Refusals that a later attempt may not meet."""


class Seat(NamedTuple):
    """One voter's identity."""

    id: int
    directory_id: Uuid


async def lose_disk(stage: Stage) -> None:
    """SIGKILL a controller (in turn a follower and the leader) and remove everything on its disk. It comes back with a new
    directory as an observer; an operator removes the voter that is gone and adds the new one."""
    figures, watch, cluster = stage.figures, stage.watch, stage.cluster
    index = 0
    rebuilt: list[float] = []
    while stage.may_go_on(index):
        await stage.settle()
        leader = await stage.leader()
        victim = leader if index % 2 else next(node_id for node_id in cluster.voter_ids if node_id != leader)
        (lost,) = [seat for seat in await read_voters(stage) if seat.id == victim]
        killed = cluster.kill([victim])
        figures.faults += 1
        if victim == leader:
            reign = await watch.until_new_leader(killed, timeout_s=LEADER_WITHIN_S)
            figures.new_leader_s.append(reign.since - killed)
        figures.first_write_s.append(await stage.await_first_write(killed))
        found = Seat(victim, cluster.join(victim))
        await _until_following(stage, victim)
        if found in await read_voters(stage):
            figures.broken.append(f"the wiped node {victim} votes before anybody added it")
        await change(stage, "REMOVE", lost)
        await change(stage, "ADD", found)
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="the rebuilt to have all of the log")
        rebuilt.append(round(time.monotonic() - killed, 2))
        seats = await read_voters(stage)
        if found not in seats or lost in seats:
            figures.broken.append(f"after the rebuild of node {victim} the voters are {seats}")
        figures.elections += len(watch.elections_since(killed))
        index += 1
    figures.notes["kill to vote s"] = rebuilt


async def grow_and_shrink(stage: Stage) -> None:
    """From three voters to five and back to three others: two join, the leader is killed once among five, then two of the
    old are removed, the leader first."""
    figures, watch, cluster = stage.figures, stage.watch, stage.cluster
    index = 0
    took: list[float] = []
    while stage.may_go_on(index):
        await stage.settle()
        begun = time.monotonic()
        old = list(cluster.voter_ids)
        for node_id in [node_id for node_id in range(1, 6) if node_id not in old]:
            seat = Seat(node_id, cluster.join(node_id))
            watch.start()
            await _until_following(stage, node_id)
            await change(stage, "ADD", seat)
            cluster.voter_ids.append(node_id)
            figures.faults += 1
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="five voters")
        victim = await stage.leader()
        killed = cluster.kill([victim])
        reign = await watch.until_new_leader(killed, timeout_s=LEADER_WITHIN_S)
        figures.new_leader_s.append(reign.since - killed)
        figures.first_write_s.append(await stage.await_first_write(killed))
        cluster.start(victim)
        figures.faults += 1
        for _ in range(2):
            await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="a settled quorum")
            leader = await stage.leader()
            leaving = leader if leader in old else next(node_id for node_id in old if node_id in cluster.voter_ids)
            (seat,) = [seat for seat in await read_voters(stage) if seat.id == leaving]
            asked = time.monotonic()
            await change(stage, "REMOVE", seat)
            cluster.voter_ids.remove(leaving)
            figures.faults += 1
            await watch.until(
                lambda gone=leaving: watch.leader() not in (None, gone),  # type: ignore[misc]
                timeout_s=LEADER_WITHIN_S,
                what="a leader that votes",
            )
            await stage.await_first_write(asked)
            cluster.begin_stop(leaving)
            await cluster.finish_stop(leaving)
            await watch.drop(leaving)
            cluster.forget(leaving)
        await watch.until(watch.is_settled, timeout_s=SETTLED_WITHIN_S, what="three voters")
        seats = await read_voters(stage)
        if sorted(seat.id for seat in seats) != sorted(cluster.voter_ids):
            figures.broken.append(f"the voters should be {sorted(cluster.voter_ids)} and are {seats}")
        took.append(round(time.monotonic() - begun, 1))
        figures.elections += len(watch.elections_since(begun))
        index += 1
    figures.notes["3-5-3 s"] = took
    figures.notes["longest gap without an acknowledged write"] = (
        f"{stage.load.longest_gap(stage.begun, time.monotonic()):.2f} s"
    )


async def read_voters(stage: Stage) -> list[Seat]:
    """The voter set as the leader tells it."""
    async with _channel_to(await stage.leader()) as channel:
        answer = await admin_pb2_grpc.QuorumViewStub(channel).DescribeOwnQuorum(
            admin_pb2.DescribeQuorumRequest(), timeout=CALL_TIMEOUT_S
        )
    return [
        Seat(replica.id, Uuid.parse(replica.directory_id)) for replica in answer.replicas if replica.role != "observer"
    ]


async def change(stage: Stage, kind: str, seat: Seat) -> None:
    """Add or remove a voter; asks the leader until it is done. Raises TimeoutError with the last refusal."""
    voter = quorum_pb2.Voter(
        replica=quorum_pb2.Replica(id=seat.id, directory_id=bytes(seat.directory_id)),
        host=address_of(seat.id),
        port=CONTROLLER_PORT,
    )
    call = quorum_pb2.ChangeVotersCall(cluster_id=stage.cluster.cluster_id, kind=kind, voter=voter)
    deadline = time.monotonic() + CHANGED_WITHIN_S
    said = "nobody led"
    is_repeated = False
    while time.monotonic() < deadline:
        leader = stage.watch.leader()
        if leader is not None:
            try:
                async with _channel_to(leader) as channel:
                    answer = await quorum_pb2_grpc.QuorumStub(channel).ChangeVoters(call, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                said = f"{error.code().name} {error.details()}"
            else:
                code = ErrorCode(answer.error)
                done_before = {"ADD": ErrorCode.DUPLICATE_VOTER, "REMOVE": ErrorCode.VOTER_NOT_FOUND}[kind]
                if code is ErrorCode.NONE or (is_repeated and code is done_before):
                    return
                said = f"{code.name}: {answer.reason}"
                if code not in _LATER:
                    break
            is_repeated = True
        await asyncio.sleep(0.2)
    raise TimeoutError(f"{kind} of voter {seat.id}: {said}")


async def _until_following(stage: Stage, node_id: int) -> None:
    """Until a controller that joined follows the leader and has caught up with what was committed when it was asked."""
    await stage.watch.look_again()
    mark = stage.watch.high_watermark
    view = stage.watch.views[node_id]
    await stage.watch.until(
        lambda: bool(view.seen) and view.leader == stage.watch.leader() and view.high_watermark >= mark,
        timeout_s=CHANGED_WITHIN_S,
        what=f"node {node_id} to follow",
    )


def _channel_to(node_id: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"{address_of(node_id)}:{CONTROLLER_PORT}", options=CHANNEL_OPTIONS)
