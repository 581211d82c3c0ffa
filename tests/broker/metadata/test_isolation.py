"""When a broker takes itself for replaced, and what its clients then see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas_broker.metadata.isolation import IsolationWatch, is_isolated, may_quorum_stand
from barnabas_broker.metadata.readiness import Readiness
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.messages.api_versions import ApiVersionsRequest
from barnabas_wire.kafka.messages.fetch import ReplicaState
from barnabas_wire.kafka.messages.metadata import MetadataRequest
from tests.broker.metadata.test_lifecycle import Incarnation, living, now_ms
from tests.broker.metadata.test_readiness import OURS, registered
from tests.broker.network.test_connection import fetch_request
from tests.support.listener import NODE_ID, RawClient, make_services, running_server
from tests.support.virtual_loop import on_virtual_time

SESSION_MS = 3000


@pytest.mark.parametrize(
    ("broker_id", "voters", "leaderless", "may_stand"),
    [
        (1, (1, 2, 3), (), True),
        (1, (1, 2, 3), (1,), True),  # our own says little: nobody needs it
        (1, (1, 2, 3), (2,), False),
        (1, (1, 2), (), False),
        (1, (1,), (), False),
        (7, (1,), (), True),
        (7, (1,), (1,), False),
        (7, (1, 2, 3), (2,), True),
        (7, (1, 2, 3), (2, 3), False),
        (1, (1, 2, 3, 4, 5), (2,), True),
        (1, (1, 2, 3, 4, 5), (2, 3), False),
    ],
)
def test_a_quorum_may_stand_where_a_majority_beside_us_may_have_a_leader(
    broker_id: int, voters: tuple[int, ...], leaderless: tuple[int, ...], may_stand: bool
) -> None:
    found = may_quorum_stand(
        broker_id=BrokerId(broker_id),
        voters=[BrokerId(voter) for voter in voters],
        leaderless={BrokerId(voter) for voter in leaderless},
    )
    assert found is may_stand


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        (True, {}),
        (True, {"was_isolated": True}),
        (False, {"unanswered_ms": SESSION_MS - 1}),
        (False, {"may_quorum_stand": False}),
        (False, {"may_quorum_stand": False, "was_isolated": True}),
        (False, {"is_left_alone": lambda: False}),
        (False, {"is_left_alone": lambda: False, "was_isolated": True}),
        (True, {"unanswered_ms": 0, "was_isolated": True, "is_fenced": True}),
        (False, {"unanswered_ms": 0, "was_isolated": True}),
        (False, {"unanswered_ms": 0, "is_fenced": True}),
    ],
)
def test_a_broker_is_cut_off_when_a_quorum_may_stand_without_it_and_nobody_fetches(
    expected: bool, changes: dict[str, Any]
) -> None:
    facts: dict[str, Any] = {
        "was_isolated": False,
        "is_fenced": False,
        "unanswered_ms": SESSION_MS,
        "session_timeout_ms": SESSION_MS,
        "may_quorum_stand": True,
        "is_left_alone": lambda: True,
    }
    assert is_isolated(**facts | changes) is expected


def open_readiness() -> Readiness:
    readiness = Readiness(broker_id=NODE_ID, incarnation_id=OURS, on_registered=lambda: None)
    readiness.look(registered(MetadataImage.EMPTY, OURS, is_fenced=False))
    return readiness


def watched(incarnation: Incarnation, reported: list[bool], *, is_left_alone: bool = True) -> IsolationWatch:
    return IsolationWatch(
        contact=incarnation.lifecycle,
        readiness=open_readiness(),
        is_left_alone=lambda silence_ms: is_left_alone,
        serve_clients=reported.append,
        session_timeout_ms=SESSION_MS,
        clock_ms=now_ms,
    )


@on_virtual_time
async def test_a_broker_that_no_controller_answers_serves_nobody_until_it_is_unfenced() -> None:
    async with living() as incarnation:
        await incarnation.begin()
        reported: list[bool] = []
        watching = asyncio.ensure_future(watched(incarnation, reported).run())
        await asyncio.sleep(10)
        assert reported == []
        incarnation.controllers.transport.stopped = {1, 2, 3}
        start_ms = now_ms()
        while not reported:
            await asyncio.sleep(0.01)
        # its last answered heartbeat was sent at most one interval before, and it looks every 100 ms
        assert reported == [False] and SESSION_MS - 500 <= now_ms() - start_ms <= SESSION_MS + 100
        incarnation.controllers.transport.stopped = set()
        while len(reported) == 1:
            await asyncio.sleep(0.01)
        assert reported == [False, True] and not incarnation.lifecycle.is_fenced
        watching.cancel()


@on_virtual_time
async def test_a_broker_that_is_answered_looks_less_than_once_a_second() -> None:
    async with living() as incarnation:
        await incarnation.begin()
        watch = watched(incarnation, [])
        looks: list[int] = []
        look = watch.look

        def counted() -> None:
            looks.append(now_ms())
            look()

        watch.look = counted  # type: ignore[method-assign]
        watching = asyncio.ensure_future(watch.run())
        await asyncio.sleep(60)
        assert 60 * 1000 / SESSION_MS <= len(looks) < 60
        watching.cancel()


@on_virtual_time
async def test_while_the_quorum_is_lost_it_goes_on_serving() -> None:
    async with living() as incarnation:
        await incarnation.begin()
        reported: list[bool] = []
        watching = asyncio.ensure_future(watched(incarnation, reported).run())
        transport = incarnation.controllers.transport
        transport.cut_streams()
        transport.down, transport.stopped = {1, 2}, {3}  # two are killed, one host is gone
        await asyncio.sleep(60)
        transport.down, transport.stopped = set(), {3}
        for number in (1, 2, 3):
            incarnation.controllers.quorums[number].depose()
        await asyncio.sleep(60)  # two are there and know no leader
        assert reported == []
        watching.cancel()


@on_virtual_time
async def test_while_followers_fetch_it_goes_on_serving_whatever_controllers_do() -> None:
    async with living() as incarnation:
        await incarnation.begin()
        reported: list[bool] = []
        watching = asyncio.ensure_future(watched(incarnation, reported, is_left_alone=False).run())
        incarnation.controllers.transport.stopped = {1, 2, 3}
        await asyncio.sleep(60)
        assert reported == []
        watching.cancel()


@on_virtual_time
async def test_a_controller_that_knows_a_leader_whom_we_do_not_reach_is_no_lost_quorum() -> None:
    async with living() as incarnation:
        await incarnation.begin()
        reported: list[bool] = []
        watching = asyncio.ensure_future(watched(incarnation, reported).run())
        incarnation.controllers.transport.stopped = {1}  # 2 and 3 name it
        await asyncio.sleep(60)
        assert reported == [False]
        watching.cancel()


async def test_a_cut_off_broker_closes_its_clients_and_keeps_followers() -> None:
    readiness = open_readiness()
    async with running_server(make_services()) as server:
        client, follower = await RawClient.connect(server), await RawClient.connect(server)
        await client.call(MetadataRequest(topics=None), 12)
        fetch = fetch_request()
        fetch.replica_id, fetch.replica_state = 2, ReplicaState(replica_id=2, replica_epoch=1)
        await follower.call(fetch, 17)
        readiness.is_isolated = True
        assert not readiness.is_open
        server.serve_clients(False)
        assert await asyncio.wait_for(client.is_closed_by_server(), 30)
        assert (await follower.call(fetch, 17)).error_code == 0
        stranger = await RawClient.connect(server)
        await stranger.call(ApiVersionsRequest(), 3)
        await stranger.send(stranger.frame(MetadataRequest(topics=None), 12)[1])
        assert await asyncio.wait_for(stranger.is_closed_by_server(), 30)
        assert server.stats.connections_closed["cut_off"] == 2
        late_follower, waiting = await RawClient.connect(server), await RawClient.connect(server)
        assert (await late_follower.call(fetch, 17)).error_code == 0
        await waiting.call(ApiVersionsRequest(), 3)
        readiness.is_isolated = False
        assert readiness.is_open
        server.serve_clients(True)
        for each in (follower, late_follower):
            assert (await each.call(fetch, 17)).error_code == 0
        for each in (waiting, await RawClient.connect(server)):
            await each.call(MetadataRequest(topics=None), 12)
