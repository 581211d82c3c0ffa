"""The driver over a quorum of one that can be delayed: answers on commit, leadership, sessions, probes.

Time is virtual: a time-out takes no time, and ends exactly when it should.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_quorum.controller.partition_change import ElectedFrom
from barnabas_quorum.controller.request import Request
from barnabas_quorum.controller.requests import (
    AlterPartition,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    CreatableTopic,
    CreatedTopic,
    CreateTopics,
    IsrMemberEpoch,
    NotActiveController,
    PartitionAlteration,
)
from barnabas_quorum.driver import controller_driver, metadata_batches
from barnabas_quorum.driver.broker_probe import reach_of
from barnabas_quorum.driver.controller_driver import ControllerDriver, HeartbeatConnection
from barnabas_quorum.errors import BufferExhausted
from barnabas_quorum.explain.brokers import Reach
from barnabas_quorum.image.features import BOOTSTRAP_LEVELS
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.record_codec import encode
from barnabas_quorum.records import NoOpRecord, TopicRecord
from barnabas_wire.kafka.errors import ErrorCode, InvariantViolated, KafkaError
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Offset
from tests.support import virtual_loop
from tests.support.decided_cluster import HeldQuorum, make_driver, registration, uuid
from tests.support.turns import turns
from tests.support.virtual_loop import on_virtual_time


class Stand:
    """A driver with its quorum, running on this loop."""

    def __init__(self, driver: ControllerDriver, quorum: HeldQuorum) -> None:
        self.driver = driver
        self.quorum = quorum
        self.pushed: list[tuple[int, Any]] = []

    @property
    def image(self) -> MetadataImage:
        return self.driver.controller.committed

    def ask(self, request: Request[Any]) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.driver.handle(request, principal="User:test"))

    def partition(self) -> PartitionRegistration:
        return self.image.topics.topics["t"].partitions[0]

    async def create(self, name: str) -> CreatedTopic:
        reply: Any = await self.ask(create(name))
        topic: CreatedTopic = reply.topics[0]
        return topic

    async def start_broker(self, broker_id: int, **more: Any) -> HeartbeatConnection:
        reply: Any = await self.ask(registration(broker_id, **more))
        connection = self.driver.connect(
            BrokerId(broker_id), reply.broker_epoch, lambda item: self.pushed.append((broker_id, item))
        )
        assert not (await connection.heartbeat(self.beat(connection))).is_fenced
        return connection

    def beat(self, connection: HeartbeatConnection, **more: Any) -> BrokerHeartbeat:
        return BrokerHeartbeat(
            **{
                "broker_id": connection.broker_id,
                "broker_epoch": connection.broker_epoch,
                "metadata_offset": self.image.offset,
                "want_fence": False,
                "want_shutdown": False,
                **more,
            }
        )

    def is_fenced(self, broker_id: int) -> bool:
        broker = self.image.cluster.broker(BrokerId(broker_id))
        assert broker is not None
        return broker.is_fenced

    async def fenced_after_ms(self, broker_id: int) -> int:
        """How long it takes until the broker is fenced."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(60):
            while not self.is_fenced(broker_id):
                await asyncio.sleep(0.001)
        return round((loop.time() - start) * 1000)


def create(name: str, factor: int = 1) -> CreateTopics:
    return CreateTopics(topics=(CreatableTopic(name=name, partition_count=1, replication_factor=factor),))


@asynccontextmanager
async def running(*, elect: bool = True, brokers: Sequence[int] = (), **more: Any) -> AsyncIterator[Stand]:
    more.setdefault("idle_interval_ms", 0)
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon, **more)
    task = asyncio.ensure_future(driver.run())
    await asyncio.sleep(0)
    try:
        if elect:
            quorum.elect()
        await asyncio.sleep(0.001)
        stand = Stand(driver, quorum)
        for broker_id in brokers:
            await stand.start_broker(broker_id)
        yield stand
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# --- answers leave on commit -------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_new_cluster_begins_with_its_metadata_version() -> None:
    async with running() as stand:
        assert stand.image.features.levels == BOOTSTRAP_LEVELS


@on_virtual_time
async def test_an_answer_waits_for_the_commit_of_its_records() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.is_held = True
        asked = stand.ask(create("t"))
        await turns(5)
        assert not asked.done()
        assert stand.driver.controller.pending.topics.get("t") is not None
        assert stand.image.topics.get("t") is None
        stand.quorum.commit_all()
        reply: Any = await asked
        assert reply.topics[0].error is None
        assert stand.image.topics.get("t") is not None


@on_virtual_time
async def test_an_answer_that_read_uncommitted_state_waits_for_it_even_when_it_is_a_refusal() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        stand.quorum.is_held = True
        first, second = stand.ask(create("t")), stand.ask(create("t"))
        stale = stand.ask(registration(2, cluster_id="another"))
        await turns(5)
        heartbeat = connection.heartbeat(stand.beat(connection))
        await turns(5)
        assert not any(waiting.done() for waiting in (first, second, stale, heartbeat))
        stand.quorum.commit_all()
        made: Any = await first
        refused: Any = await second
        assert made.topics[0].error is None
        assert refused.topics[0].error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError):
            await stale
        assert not (await heartbeat).is_fenced


@on_virtual_time
async def test_an_answer_with_nothing_pending_leaves_at_once() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        assert connection.heartbeat(stand.beat(connection)).done()


@on_virtual_time
async def test_the_quorum_confirms_an_operators_answer_that_changes_nothing() -> None:
    async with running(brokers=[1]) as stand:
        await stand.ask(create("t"))
        stand.quorum.is_held = True
        refused = stand.ask(create("t"))
        looked = stand.ask(CreateTopics(topics=create("u").topics, validate_only=True))
        registered = stand.ask(registration(2, cluster_id="another"))
        await turns(5)
        assert not refused.done(), "a deposed controller would hear nothing either, and t may be gone by then"
        assert not looked.done()
        stand.quorum.commit_all()
        reply: Any = await refused
        assert reply.topics[0].error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await looked).topics[0].error is None
        with pytest.raises(KafkaError):
            await registered
        deposed = stand.ask(create("t"))
        await turns(5)
        assert stand.quorum.committed[-1].records == (NOOP,)
        assert all(stand.quorum.urgencies), "a node that asked would wait for its parked fetch to hear of the no-op"
        stand.quorum.depose(2)
        with pytest.raises(NotActiveController):
            await deposed


@on_virtual_time
async def test_an_answer_to_a_node_needs_no_confirmation() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.is_held = True
        with pytest.raises(KafkaError):
            await stand.ask(registration(2, cluster_id="another"))


@on_virtual_time
async def test_answers_leave_in_the_order_of_their_commits() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.is_held = True
        asked = [stand.ask(create(f"t{i}")) for i in range(5)]
        await turns(5)
        held, stand.quorum.batches = stand.quorum.batches, []
        for index, batch in enumerate(held):
            stand.quorum.batches = [batch]
            stand.quorum.commit_all()
            await turns(5)
            assert [task.done() for task in asked] == [i <= index for i in range(5)]


@on_virtual_time
async def test_more_waiters_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_driver, "WAITERS_MAX", 3)
    async with running() as stand:
        connection = await stand.start_broker(1)
        stand.quorum.is_held = True
        asked = [stand.ask(create(f"t{i}")) for i in range(5)]
        await turns(5)
        assert stand.driver.controller.pending.topics.get("t3") is None
        assert not connection.heartbeat(stand.beat(connection)).done(), "but a heartbeat is never refused for that"
        stand.quorum.commit_all()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(outcome, BufferExhausted) for outcome in outcomes] == [False] * 3 + [True] * 2


@on_virtual_time
async def test_what_need_not_be_atomic_is_cut_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        for name in "abcde":
            await stand.create(name)
        monkeypatch.setattr(metadata_batches, "RECORDS_PER_PART_MAX", 2)
        before = len(stand.quorum.committed)
        assert (await connection.heartbeat(stand.beat(connection, want_fence=True))).is_fenced
        assert [len(batch.records) for batch in stand.quorum.committed[before:]] == [2, 2, 2]


# --- leadership ---------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_controller_that_is_not_active_names_the_one_that_is() -> None:
    async with running(elect=False) as stand:
        with pytest.raises(NotActiveController) as caught:
            await stand.create("t")
        assert caught.value.leader_id is None
        stand.quorum.depose(leader_id=3)
        with pytest.raises(NotActiveController) as caught:
            await stand.create("t")
        assert caught.value.leader_id == 3
        with pytest.raises(NotActiveController):
            stand.driver.connect(BrokerId(1), 1, print)


@on_virtual_time
async def test_losing_leadership_drops_what_is_pending_and_fails_every_waiter() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        stand.quorum.is_held = True
        asked = stand.ask(create("t"))
        await turns(5)
        heartbeat = connection.heartbeat(stand.beat(connection))
        await turns(5)
        stand.quorum.depose(leader_id=2)
        for waiting in (asked, heartbeat):
            with pytest.raises(NotActiveController) as caught:
                await waiting
            assert caught.value.leader_id == 2
        assert stand.driver.controller.pending is stand.driver.controller.committed
        assert stand.image.topics.get("t") is None
        assert [type(item) for _, item in stand.pushed] == [NotActiveController], "its streams are ended"


@on_virtual_time
async def test_what_the_next_leader_commits_of_our_records_counts_all_the_same() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.is_held = True
        asked = stand.ask(create("t"))
        await turns(5)
        stand.quorum.depose(leader_id=2, keeps=1)
        with pytest.raises(NotActiveController):
            await asked
        assert stand.image.topics.get("t") is not None
        stand.quorum.commit_from_elsewhere(TopicRecord(name="u", topic_id=uuid(777)))
        assert stand.driver.controller.pending.topics.get("u") is not None


@on_virtual_time
async def test_elected_again_it_continues_from_what_is_committed() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.is_held = True
        lost = stand.ask(create("t"))
        await turns(5)
        stand.quorum.depose()
        stand.quorum.is_held = False
        stand.quorum.elect()
        with pytest.raises(NotActiveController):
            await lost
        assert (await stand.create("t")).error is None
        assert stand.driver.stats.times_active == 2


@on_virtual_time
async def test_a_quorum_that_refuses_makes_it_step_down() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.is_leader = False  # lost, but our listener does not know yet
        with pytest.raises(NotActiveController):
            await stand.create("t")
        assert not stand.driver.is_active
        assert stand.driver.controller.pending.topics.get("t") is None


@on_virtual_time
async def test_an_offset_other_than_decided_stops_the_node() -> None:
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon)
    running_driver = asyncio.ensure_future(driver.run())
    await asyncio.sleep(0)
    quorum.elect()
    await turns(5)
    given = quorum.propose
    quorum.propose = lambda *args, **kwargs: Offset(given(*args, **kwargs) + 5)  # type: ignore[method-assign]
    with pytest.raises(InvariantViolated, match="gave offset"):
        await driver.handle(registration(1), principal="")
    with pytest.raises(ExceptionGroup) as caught:
        await running_driver
    assert caught.group_contains(InvariantViolated)


@pytest.mark.parametrize("raised", [InvariantViolated("an epoch beyond"), KeyError(7)])
@on_virtual_time
async def test_a_decision_that_raises_what_none_may_is_refused_and_nothing_ends(raised: Exception) -> None:
    """The next controller would get the same request: one bug must not end them all."""
    async with running(brokers=[1]) as stand:
        controller: Any = stand.driver.controller

        def fails(*args: Any, **kwargs: Any) -> Any:
            raise raised

        controller.decide = fails
        with pytest.raises(KafkaError) as refused:
            await stand.create("t")
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        del controller.decide
        assert (await stand.create("t")).error is None
        controller.elect_leaderless = controller.idle = fails
        await asyncio.sleep(2 * controller.config.unclean_leader_election_interval_ms / 1000)
        assert stand.driver.stats.failed_decisions >= 2
        await stand.ask(registration(2))


@on_virtual_time
async def test_a_fence_that_is_refused_is_not_tried_without_a_rest() -> None:
    async with running(brokers=[1]) as stand:
        tries = 0

        def refuse(*args: Any, **kwargs: Any) -> Offset:
            nonlocal tries
            tries += 1
            assert tries < 1000, "the lane is spinning"
            raise BufferExhausted("full")

        propose, stand.quorum.propose = stand.quorum.propose, refuse  # type: ignore[method-assign]
        await asyncio.sleep(stand.driver.controller.config.session_timeout_ms / 1000 + 1)
        assert tries > 1
        stand.quorum.propose = propose  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert stand.is_fenced(1)


@on_virtual_time
async def test_a_change_of_the_voters_moves_the_offsets_of_later_decisions() -> None:
    async with running() as stand:
        driver, quorum = stand.driver, stand.quorum
        await driver.handle(registration(1), principal="")
        quorum.next_offset = Offset(quorum.next_offset + 2)  # the quorum wrote KRaftVersion and Voters
        before = quorum.next_offset
        reply = await driver.handle(registration(2), principal="")
        assert reply.broker_epoch == before
        assert driver.controller.committed.offset == quorum.next_offset - 1


@on_virtual_time
async def test_the_committed_image_equals_the_pending_one_it_was_decided_from() -> None:
    """C1 on one node: two replays of the same records, one by the controller and one by the loader."""
    pairs: list[tuple[bytes, bytes]] = []

    class Judge:
        name = "judge"

        def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
            decided = by_offset.pop(image.offset)
            assert decided is not image
            pairs.append((decided.content_hash(), image.content_hash()))

    by_offset: dict[int, MetadataImage] = {}
    async with running(publishers=[Judge()], elect=False) as stand:
        accept = stand.driver.controller.accept

        def remember(image: MetadataImage) -> None:
            by_offset[image.offset] = image
            accept(image)

        stand.driver.controller.accept = remember  # type: ignore[method-assign]
        stand.quorum.elect()
        await turns(5)
        connection = await stand.start_broker(1)
        for name in "abc":
            await stand.create(name)
        await connection.heartbeat(stand.beat(connection, want_fence=True))
    assert len(pairs) > 5
    assert all(decided == loaded for decided, loaded in pairs)


@on_virtual_time
async def test_a_stop_that_comes_in_the_turn_of_a_disconnect_is_not_lost() -> None:
    """asyncio.wait_for of Python 3.11 loses it, and the node would never stop."""
    driver, quorum = make_driver(asyncio.get_running_loop().call_soon)
    task = asyncio.ensure_future(driver.run())
    await asyncio.sleep(0)
    quorum.elect()
    connection = await Stand(driver, quorum).start_broker(1)
    await turns(5)
    connection.close()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- sessions -----------------------------------------------------------------------------------------------------------

SLACK_MS = 5
"""Turns of the loop between the deadline and the commit of the fence, and the step of fenced_after_ms."""


@on_virtual_time
async def test_a_broker_whose_connection_broke_is_fenced_after_the_grace() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        await stand.create("t")
        connection.close()
        assert 1000 <= await stand.fenced_after_ms(1) <= 1000 + SLACK_MS
        assert stand.partition().leader == -1
        assert stand.driver.stats.brokers_fenced == 1 and stand.driver.stats.fenced_by_probe == 0


@on_virtual_time
async def test_a_broker_that_comes_back_within_the_grace_is_not_fenced() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        connection.close()
        await asyncio.sleep(0.9)
        again = stand.driver.connect(BrokerId(1), connection.broker_epoch, print)
        await again.heartbeat(stand.beat(again))
        await asyncio.sleep(2.9)
        assert not stand.is_fenced(1)


@on_virtual_time
async def test_a_silent_broker_is_fenced_after_the_session_time_out_and_unfenced_when_it_is_heard_again() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        await asyncio.sleep(3)
        await connection.heartbeat(stand.beat(connection))
        assert 3000 <= await stand.fenced_after_ms(1) <= 3000 + SLACK_MS
        assert not (await connection.heartbeat(stand.beat(connection))).is_fenced


@on_virtual_time
async def test_heartbeats_keep_a_broker_alive_while_the_quorum_stalls() -> None:
    async with running() as stand:
        connection = await stand.start_broker(1)
        stand.quorum.is_held = True
        waiting = stand.ask(create("t"))
        await turns(5)
        answers = []
        for _ in range(20):
            answers.append(connection.heartbeat(stand.beat(connection)))
            await asyncio.sleep(2)
        assert not any(answer.done() for answer in answers)
        stand.quorum.commit_all()
        await waiting
        assert all([not (await answer).is_fenced for answer in answers])
        assert stand.driver.stats.brokers_fenced == 0


@on_virtual_time
async def test_a_new_controller_gives_brokers_a_fresh_session() -> None:
    async with running(brokers=[1]) as stand:
        stand.quorum.depose()
        await asyncio.sleep(20)
        assert not stand.is_fenced(1), "nobody fences while nobody is active"
        stand.quorum.elect()
        await turns(5)
        assert 3000 <= await stand.fenced_after_ms(1) <= 3000 + SLACK_MS


def stand_still(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_loop.VirtualLoop)
    loop.stand_still(seconds)


@on_virtual_time
async def test_a_controller_that_stood_still_gives_every_broker_that_time_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as stand:
        heard, silent, lost = [await stand.start_broker(broker_id) for broker_id in (1, 2, 3)]
        lost.close()
        await asyncio.sleep(0.5)
        stand_still(60)
        # the heartbeats that came meanwhile are read a moment later than the tick
        await asyncio.sleep(0.05)
        assert not any(stand.is_fenced(broker_id) for broker_id in (1, 2, 3))
        await heard.heartbeat(stand.beat(heard))
        assert 0 < await stand.fenced_after_ms(3) <= 600, "its grace goes on from where it stood"
        assert 1000 <= await stand.fenced_after_ms(2) <= 2100, "so does its session"
        assert not stand.is_fenced(1)
        assert silent.broker_epoch
    assert "stood still 1 times, for 60000 ms at most" in caplog.text


@on_virtual_time
async def test_the_time_that_a_fence_takes_to_decide_is_nobody_elses_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as stand:
        for broker_id in (1, 2):
            await stand.start_broker(broker_id)
            await asyncio.sleep(0.5)
        decide = stand.driver.controller.fence

        def decide_slowly(broker_ids: Collection[BrokerId]) -> Any:
            stand_still(10)
            return decide(broker_ids)

        monkeypatch.setattr(stand.driver.controller, "fence", decide_slowly)
        await stand.fenced_after_ms(1)
        await asyncio.sleep(0.1)
        assert not stand.is_fenced(2)
        assert await stand.fenced_after_ms(2) > 0


class Refused:
    """A probe that gives the set answers, and then finds nobody listening."""

    def __init__(self, *answers: Reach) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[Endpoint]] = []

    async def __call__(self, endpoints: Sequence[Endpoint]) -> Reach:
        self.asked.append(endpoints)
        return self.answers.pop(0) if self.answers else Reach.REFUSED


class RefusedAt:
    """A probe that finds nobody listening at one port."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __call__(self, endpoints: Sequence[Endpoint]) -> Reach:
        return Reach.REFUSED if endpoints[0].port == self.port else Reach.NO_ANSWER


@on_virtual_time
async def test_a_broker_whose_listener_is_gone_is_fenced_without_waiting_for_the_grace() -> None:
    probe = Refused()
    async with running(probe=probe) as stand:
        connection = await stand.start_broker(1)
        connection.close()
        assert 250 <= await stand.fenced_after_ms(1) <= 250 + SLACK_MS
        assert stand.driver.stats.fenced_by_probe == 1
        assert probe.asked == [(Endpoint("PLAINTEXT", "127.0.0.1", 9001),)] * 2


@on_virtual_time
async def test_the_brokers_of_a_lost_host_are_fenced_together() -> None:
    async with running(probe=Refused()) as stand:
        lost = [await stand.start_broker(broker_id, host="h1") for broker_id in (1, 2, 3)]
        await stand.start_broker(4, host="h2")
        batches = len(stand.quorum.committed)
        for connection in lost[:2]:
            connection.close()
            await asyncio.sleep(0.03)  # one after the other, each by its own probe
        assert 220 <= await stand.fenced_after_ms(1) <= 220 + SLACK_MS, "not later for it: the last of them is known"
        assert [stand.is_fenced(broker_id) for broker_id in (2, 3, 4)] == [True, False, False]
        assert len(stand.quorum.committed) == batches + 1, "one append"
        assert (stand.driver.stats.brokers_fenced, stand.driver.stats.fenced_by_probe) == (2, 2)


@on_virtual_time
async def test_a_broker_proven_dead_does_not_wait_long_for_a_sibling_in_doubt() -> None:
    async with running(probe=RefusedAt(9001)) as stand:
        for connection in [await stand.start_broker(broker_id, host="h1") for broker_id in (1, 2)]:
            connection.close()
        assert 300 <= await stand.fenced_after_ms(1) <= 300 + SLACK_MS
        assert not stand.is_fenced(2)


@on_virtual_time
async def test_only_refusals_in_a_row_prove_a_broker_dead() -> None:
    probe = Refused(Reach.REFUSED, Reach.NO_ANSWER)
    async with running(probe=probe, session_timeout_ms=9000, disconnect_grace_ms=8000) as stand:
        connection = await stand.start_broker(1)
        connection.close()
        assert 550 <= await stand.fenced_after_ms(1) <= 550 + SLACK_MS
        assert len(probe.asked) == 4, "refused, answered, then refused twice"


@on_virtual_time
async def test_a_broker_that_still_listens_is_judged_by_its_silence_and_not_by_the_grace() -> None:
    async with running(
        probe=Refused(*[Reach.LISTENS] * 1000), session_timeout_ms=3000, disconnect_grace_ms=1000
    ) as stand:
        connection = await stand.start_broker(1)
        connection.close()
        assert 3000 <= await stand.fenced_after_ms(1) <= 3000 + SLACK_MS


@on_virtual_time
async def test_a_broker_that_listened_and_dies_then_is_fenced_at_once() -> None:
    async with running(probe=Refused(*[Reach.LISTENS] * 8), session_timeout_ms=3000, disconnect_grace_ms=1000) as stand:
        connection = await stand.start_broker(1)
        connection.close()
        assert 1300 < await stand.fenced_after_ms(1) <= 1500 + SLACK_MS


@on_virtual_time
async def test_what_a_listener_said_before_a_new_connection_says_nothing_after_it() -> None:
    probe = Refused(Reach.LISTENS, *[Reach.NO_ANSWER] * 1000)
    async with running(probe=probe, session_timeout_ms=3000, disconnect_grace_ms=1000) as stand:
        connection = await stand.start_broker(1)
        connection.close()
        await asyncio.sleep(0.2)
        assert len(probe.asked) == 1
        again = stand.driver.connect(BrokerId(1), connection.broker_epoch, print)
        again.close()
        assert 1000 <= await stand.fenced_after_ms(1) <= 1000 + SLACK_MS


@on_virtual_time
async def test_a_new_controller_probes_the_brokers_that_do_not_come() -> None:
    async with running(probe=Refused(), session_timeout_ms=9000, brokers=[1]) as stand:
        second = await stand.start_broker(2)
        stand.quorum.depose()
        stand.quorum.elect()
        stand.driver.connect(BrokerId(2), second.broker_epoch, print)
        await turns(5)
        assert 400 <= await stand.fenced_after_ms(1) <= 400 + SLACK_MS
        await asyncio.sleep(5)
        assert not stand.is_fenced(2), "2 came back"


@on_virtual_time
async def test_a_connected_broker_is_never_probed() -> None:
    probe = Refused()
    async with running(probe=probe, brokers=[1]):
        await asyncio.sleep(5)
        assert probe.asked == []


async def test_the_tcp_probe_knows_a_closed_port_from_an_open_one() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    here = Endpoint("PLAINTEXT", "127.0.0.1", port)
    assert await reach_of([here]) is Reach.LISTENS
    assert await reach_of([Endpoint("PLAINTEXT", "a..b", 9092)]) is Reach.NO_ANSWER
    server.close()
    await server.wait_closed()
    assert await reach_of([here]) is Reach.REFUSED
    assert await reach_of([]) is Reach.UNKNOWN, "no endpoint proves nothing"


@pytest.mark.parametrize("endpoint", [("a..b", 9092), ("a" * 64, 9092), ("a\0b", 9092), ("127.0.0.1", 1 << 16 << 16)])
async def test_the_tcp_probe_survives_an_invalid_address(endpoint: tuple[str, int]) -> None:
    """Python raises UnicodeError, ValueError, OverflowError. One broker's typing error must not end each controller in turn."""
    assert await reach_of([Endpoint("PLAINTEXT", *endpoint)]) is Reach.NO_ANSWER


# --- controlled shutdown ------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_others_are_asked_to_report_when_a_broker_leaves() -> None:
    async with running() as stand:
        first = await stand.start_broker(1)
        second = await stand.start_broker(2)
        created: Any = await stand.ask(create("t", factor=2))
        assert created.topics[0].error is None
        leader = stand.partition().leader
        leaving, staying = (first, second) if leader == 1 else (second, first)
        reply = await leaving.heartbeat(stand.beat(leaving, want_shutdown=True))
        assert not reply.should_shutdown
        [(broker_id, push)] = stand.pushed
        assert broker_id == staying.broker_id and isinstance(push, BrokerHeartbeatReply)
        assert push.report_offset == stand.image.offset
        await staying.heartbeat(stand.beat(staying))
        assert (await leaving.heartbeat(stand.beat(leaving, want_shutdown=True))).should_shutdown
        assert stand.is_fenced(int(leaving.broker_id))


# --- what it does unasked -----------------------------------------------------------------------------------------------


@on_virtual_time
async def test_an_idle_controller_keeps_the_high_watermark_moving_and_a_stuck_one_does_not_pile_up() -> None:
    seen: list[MetadataDelta] = []

    class Watcher:
        name = "watcher"

        def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
            seen.append(delta)

    async with running(idle_interval_ms=500, publishers=[Watcher()]) as stand:
        offset = stand.image.offset
        await asyncio.sleep(5.1)
        assert stand.image.offset == offset + 10
        assert stand.quorum.urgencies == [True, *[False] * 10], "nobody waits to hear that nothing happened"
        assert all(delta.topics is None and delta.cluster is None for delta in seen[1:])
        assert stand.quorum.committed[-1].records == (NOOP,)
        stand.quorum.is_held = True
        await asyncio.sleep(5)
        assert len(stand.quorum.batches) == 1


@on_virtual_time
async def test_a_busy_controller_writes_no_no_op() -> None:
    async with running(idle_interval_ms=500, session_timeout_ms=60_000, brokers=[1]) as stand:
        for index in range(20):
            await stand.create(f"t{index}")
            await asyncio.sleep(0.3)
        assert all(batch.records != (NOOP,) for batch in stand.quorum.committed)


@on_virtual_time
async def test_a_controller_that_is_not_active_writes_nothing() -> None:
    async with running(idle_interval_ms=500, elect=False) as stand:
        await asyncio.sleep(10)
        assert stand.quorum.committed == [] and stand.quorum.batches == []


@on_virtual_time
async def test_no_ops_begin_with_each_leadership_and_end_with_it() -> None:
    async with running(idle_interval_ms=500, elect=False) as stand:
        await asyncio.sleep(3.3)
        for _ in range(2):
            stand.quorum.elect()
            await asyncio.sleep(0.1)
            begun = len(stand.quorum.committed)
            await asyncio.sleep(2.2)
            written = stand.quorum.committed[begun:]
            assert [batch.records for batch in written] == [(NOOP,)] * 4
            stand.quorum.depose(2)
            await asyncio.sleep(3.3)
            assert len(stand.quorum.committed) == begun + 4


@on_virtual_time
async def test_partitions_go_back_to_their_preferred_leaders_at_the_balance_interval() -> None:
    async with running(leader_imbalance_check_interval_seconds=300, session_timeout_ms=1_000_000) as stand:
        connections = {broker_id: await stand.start_broker(broker_id) for broker_id in (1, 2)}
        created: Any = await stand.ask(create("t", factor=2))
        first, second = stand.partition().replicas
        await connections[first].heartbeat(stand.beat(connections[first], want_fence=True))
        await connections[first].heartbeat(stand.beat(connections[first]))
        assert stand.partition().leader == second
        rejoin = PartitionAlteration(
            topic_id=created.topics[0].topic_id,
            partition_id=0,
            leader_epoch=stand.partition().leader_epoch,
            partition_epoch=stand.partition().partition_epoch,
            new_isr=(IsrMemberEpoch(broker_id=second), IsrMemberEpoch(broker_id=first)),
        )
        await stand.ask(
            AlterPartition(broker_id=second, broker_epoch=connections[second].broker_epoch, partitions=(rejoin,))
        )
        await asyncio.sleep(290)
        assert stand.partition().leader == second
        await asyncio.sleep(11)
        assert stand.partition().leader == first
        assert stand.driver.stats.leader_elections == {ElectedFrom.ISR: 1, ElectedFrom.PREFERRED: 1}


@on_virtual_time
async def test_the_time_of_a_request_is_reported_in_two_parts() -> None:
    async with running() as stand:
        stats = stand.driver.stats
        decided, waited = stats.process_s.count, stats.wait_s.count
        assert decided == stats.decisions
        stand.quorum.is_held = True
        made = asyncio.ensure_future(stand.create("t"))
        await asyncio.sleep(0.3)
        stand.quorum.commit_all()
        await made
        assert (stats.process_s.count, stats.wait_s.count) == (decided + 1, waited + 1)
        assert 0.3 <= stats.wait_s.total < 0.31 and stats.process_s.total == 0, "virtual time: deciding takes none"


NOOP = encode(NoOpRecord())
