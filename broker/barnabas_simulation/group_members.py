"""Members of one group, of Streams or of the other protocols mixed: prompt, slow, asleep beyond their session, dead, haunted by what they
said before, and static ones, which are started again.

May touch:  the network, through client_calls.py; the active controller, to let a topic grow.   Must not touch: a coordinator.
Invariants: in a healed network everybody has a share within two heartbeats and an interval, within one where no member must revoke, and a
            member keeps what it need not give up; a static one that comes back finds what it left; a subscriber by a pattern reads
            what matches; a Streams task has its standbys, in other processes.
Read next:  group_lives.py, request by request; group_laws.py, who judges; strangers.py, which starts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from barnabas_coordination.group.consumer.regexes import REFRESH_FLOOR_MS
from barnabas_quorum.controller.requests import (
    CreatableTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    TopicGrowth,
    TopicReference,
)
from barnabas_quorum.image.configs import ConfigResource
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicsImage
from barnabas_quorum.records import ConfigResourceType
from barnabas_simulation.client_calls import CALL_TIMEOUT_S, ListenerCalls
from barnabas_simulation.group_laws import GROUP, RETURNS, SESSION_S, GroupLaws, Membership, Part
from barnabas_simulation.group_lives import PATTERNS, ClassicLife, ConsumerLife, Life, StreamsLife
from barnabas_simulation.operators import _alteration
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_simulation.swarm import MemberTrouble
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.messages.find_coordinator import FindCoordinatorRequest

MEMBERS = 4
BEAT_S = 0.2
INTERVAL_S = 0.3
"""Between two assignments of a group."""
SLACK_S = 0.3
"""For requests on their way, and for the group's log."""
LOOK_S = 0.02
SETTLED_S = 20.0
"""Within which a group is as it should be once everything is healed: sessions of the dead end, and the slow give up."""
PARTITIONS_MAX = 8
STATEFUL_TASKS = 6
FOUND_MAX = 3
"""Topics that are there at once beside the one that stays."""
RESOLVED_S = REFRESH_FLOOR_MS / 1000
"""Within which a topic that came is looked for."""
PATIENCE_S = 1.5
"""A join waits for others as long as they may take."""
CONVERGES = "every live member has its share in time"
STAYS = "what a member need not give up it keeps"
COPIES = "every task has its standbys"
COVERS = "who subscribes by a pattern reads what matches, and nothing else"


class Member:
    """One program, through all its lives."""

    def __init__(self, group: GroupMembers, number: int) -> None:
        self.goes = False
        """It is to leave for good."""
        self.becomes_consumer = False
        self.returns: Callable[[BrokerId], Awaitable[None]] | None = None
        """How it is to be started again, now."""
        self._group = group
        self._run = group.run
        self._number = number
        share = group.trouble.static
        self.instance = f"instance-{number}" if share and group.run.random.random() < share else None
        self._calls, self._doubles = group.make_calls(), group.make_calls()
        self._at: BrokerId | None = None
        self.life = self._begin()

    @property
    def is_in(self) -> bool:
        """Whether it takes itself for a member."""
        return not self.life.is_over and self.life.me.epoch > 0

    def _begin(self, name: str = "") -> Life:
        """name: of before, which a consumer may keep."""
        group = self._group
        is_classic = self._run.random.random() < group.trouble.classic and not self.becomes_consumer
        return self._begin_as(name, is_classic=is_classic)

    def _begin_as(self, name: str = "", *, is_classic: bool) -> Life:
        group = self._group
        place = (self._run, group.laws, group.topic, group.trouble, self._calls)
        if is_classic:
            return ClassicLife(*place, Membership(f"classic {self._number}", self.instance, is_classic=True))
        named = name or f"member-{self._number}-{self._run.loop.time():.6f}"
        me = Membership(named, self.instance)
        if group.trouble.is_streams:
            # a process keeps its id beside its stores, so an instance that is started again has the one that it had
            me.process = (
                f"process {self._number // 2}" if group.trouble.standbys else f"process of {self.instance or named}"
            )
            return StreamsLife(*place, me, doubles=self._doubles)
        pattern = PATTERNS[self._number % len(PATTERNS)] if group.trouble.find_every_s else None
        return ConsumerLife(*place, me, doubles=self._doubles, pattern=pattern)

    async def live(self) -> None:
        """Until the run ends, or it goes."""
        group, random = self._group, self._run.random
        while not group.is_done:
            pause_s = BEAT_S if group.is_calm else BEAT_S * (0.4 + random.random())
            await asyncio.sleep(LOOK_S if self.life.is_pressed else pause_s)
            if not group.is_calm:
                await self._misbehave()
            at = self._at = await group.coordinator(self._calls) if self._at is None else self._at
            if at is None:
                continue
            if self.goes:
                await self.life.leave(at)
                return
            if self.becomes_consumer and isinstance(self.life, ClassicLife):
                await self.life.leave(at)
                self.life = self._begin()
            if self.returns is not None:
                await self.returns(at)
                self.returns = None
                continue
            if not await self.life.beat(at):
                self._at = None
            elif self.life.is_over:  # as real ones do: the same id, and all from the beginning
                is_kept = isinstance(self.life, ConsumerLife) and self.instance is None
                self.life = self._begin(self.life.me.name if is_kept else "")
            elif random.random() < group.trouble.commits:
                await self.life.commit(at)

    async def _misbehave(self) -> None:
        """Sleep past its session and continue as if nothing had been, or die and come back as another, or leave."""
        trouble, random = self._group.trouble, self._run.random
        drawn = random.random()
        if drawn < trouble.sleeps and self._run.strikes("member sleeps", self._number):
            await asyncio.sleep(SESSION_S * (0.8 + 1.2 * random.random()))
            if self._at is not None:
                if isinstance(self.life, ConsumerLife) and random.random() < 0.8:
                    await self.life.haunt(self._at)
                for _ in range(len(self.life.me.owned)):
                    await self.life.commit(self._at)
        elif drawn < trouble.sleeps + trouble.dies and self._run.strikes("member dies", self._number):
            self.life.end()
            self.life = self._begin()
        elif drawn < trouble.sleeps + trouble.dies + trouble.leaves and self._run.strikes(
            "member leaves", self._number
        ):
            if self._at is None:
                self.life.end()
            else:
                await self.life.leave(self._at)
            self.life = self._begin()
        elif (
            self.instance is not None
            and self._at is not None
            and drawn < trouble.sleeps + trouble.dies + trouble.leaves + trouble.restarts
            and self._run.strikes("member starts again", self._number)
        ):
            leaves = random.random() < 0.7
            if random.random() < 0.3:
                await asyncio.sleep(SESSION_S * 1.2 * random.random())
            is_classic = random.random() < trouble.classic and not self.becomes_consumer
            await self.start_again(self._at, is_classic=is_classic, leaves=leaves, lingers=True)

    async def start_again(self, at: BrokerId, *, is_classic: bool, leaves: bool, lingers: bool) -> None:
        """A new process comes under the instance id. leaves: the former one has left for a while, else it still runs; lingers: it works
        as if nothing had been."""
        former = self.life
        if leaves:
            await former.leave_for_a_while(at)
        self.life = self._begin_as(is_classic=is_classic)
        await self.life.beat(at)
        if not (leaves or self.life.me.epoch):
            self.life.end()
            self.life = former
        elif lingers:
            await self._linger(former, at)

    async def _linger(self, former: Life, at: BrokerId) -> None:
        for _ in range(len(former.me.owned)):
            await former.commit(at)
        if former.me.epoch and not former.is_over:
            await former.beat(at)
        if not former.me.has_left and not former.is_over:
            former.end()


class GroupMembers:
    """All of them, and what they know of each other, which none of them does."""

    def __init__(self, run: Run, topic: str, make_calls: Callable[[], ListenerCalls], trouble: MemberTrouble) -> None:
        self.run = run
        self.topic = topic
        self.make_calls = make_calls
        self.trouble = trouble
        self.laws = GroupLaws(run)
        self.is_calm = self.is_done = False
        self.members = [Member(self, number) for number in range(MEMBERS)]
        self.proofs: Counter[str] = Counter()
        """How often the group was seen to converge, by what it was after."""
        self._changing: list[asyncio.Future[None]] = []
        self._found = 0
        """How many topics came beside the one that stays."""

    async def prepare(self) -> None:
        """Become a group, with a partition for everybody."""
        while self._partitions() < (STATEFUL_TASKS if self.trouble.standbys else MEMBERS):
            await self._grow()
        if self.trouble.standbys:
            await self._configure("streams.num.standby.replicas", str(self.trouble.standbys))
        for member in self.members:
            self.run.network.spawn(member.live())
        while not all(member.is_in for member in self.members):
            await asyncio.sleep(LOOK_S)

    def start(self) -> None:
        """Let the topic grow, and others come and go."""
        if self.trouble.grow_every_s:
            self._changing.append(self.run.network.spawn(self._grow_now_and_then()))
        if self.trouble.find_every_s:
            self._changing.append(self.run.network.spawn(self._find_now_and_then()))

    def stop(self) -> None:
        """Be prompt and honest from now on."""
        self.is_calm = True
        self.trouble = replace(self.trouble, slow=0.0, doubles=0.0)
        for member in self.members:
            member.life.trouble = self.trouble
        for change in self._changing:
            change.cancel()

    async def coordinator(self, calls: ListenerCalls) -> BrokerId | None:
        """As some broker says."""
        serving = [node for node in self.run.nodes if node.is_serving]
        if not serving:
            return None
        node = self.run.random.choice(serving)
        found = await calls.call(node.id, FindCoordinatorRequest(key=GROUP, key_type=0), version_max=3)
        return None if found is None or found.error_code else BrokerId(found.node_id)

    # -- in a healed network ---------------------------------------------------------------------------------------

    async def converge(self) -> None:
        """Become one group in which every partition has its reader, then prove how soon that is so again."""
        await self._within(SETTLED_S, "everything healed")
        await self._prove_return("a static member returned")
        for member in self.members:
            member.becomes_consumer = True
        await self._within(SETTLED_S, "all members are of the consumer protocol")
        await self._prove_return("a static member of the consumer protocol returned")
        newcomer = Member(self, MEMBERS)
        newcomer.becomes_consumer = True
        if isinstance(newcomer.life, ClassicLife):
            newcomer.life.end()
            newcomer.life = newcomer._begin()
        await self._proves("a member came", partial(self._come, newcomer), beats=2)
        await self._proves("a member left", partial(self._go, newcomer), beats=1)
        if not self.trouble.standbys:
            await self._proves("the topic grew", self._grow, beats=1)
        if self.trouble.find_every_s:
            await self._make("found-beside", 1)
            await self._proves("a topic came", self._find, beats=2, other_s=RESOLVED_S)
            await self._proves("a topic went", partial(self._unmake, f"found-{self._found}"), beats=2)
        await self._read_all()
        self.is_done = True

    async def _prove_return(self, what: str) -> None:
        member = next((each for each in self.members if each.instance is not None), None)
        if member is not None:
            await asyncio.sleep(INTERVAL_S + SLACK_S)  # targets may be due yet
            await self._within(SETTLED_S, f"targets were due, before {what}")
            await self._proves(what, partial(self._return, member), beats=1, moves_nothing=True)

    async def _return(self, member: Member) -> None:
        member.returns = partial(member.start_again, is_classic=member.life.is_classic, leaves=True, lingers=False)
        while member.returns is not None or not member.is_in:
            await asyncio.sleep(LOOK_S)

    async def _come(self, newcomer: Member) -> None:
        self.members.append(newcomer)
        self.run.network.spawn(newcomer.live())
        while not newcomer.is_in:
            await asyncio.sleep(LOOK_S)

    async def _go(self, member: Member) -> None:
        member.goes = True
        while not member.life.is_over:
            await asyncio.sleep(LOOK_S)
        self.members.remove(member)

    async def _proves(
        self,
        what: str,
        change: Callable[[], object],
        *,
        beats: int,
        other_s: float = 0.0,
        moves_nothing: bool = False,
    ) -> None:
        """That the group converges in time, and that nothing moves which need not. other_s: what it may wait for beside."""
        before = {member: (member.life, dict(member.life.me.owned)) for member in self.members}
        moves, fenced = self.laws.moves, self.laws.fenced
        await change()  # type: ignore[misc]
        took_s = await self._within(SETTLED_S, what)
        if self.laws.moves != moves:
            return
        bound_s = INTERVAL_S + beats * BEAT_S + SLACK_S + other_s
        if took_s > bound_s:
            raise LawBroken(CONVERGES, f"{took_s:.3f} s after {what}, not within {bound_s:.3f} s: {self}")
        if self.laws.fenced != fenced:
            raise LawBroken(
                CONVERGES, f"{self.laws.fenced - fenced} members were told that they are none, after {what}: {self}"
            )
        wanted = self._wanted()
        share = len(wanted) // len(self.members)
        for member in self.members:
            life, had = before.get(member, (member.life, {}))
            has = member.life.me.owned
            had = {part: since_s for part, since_s in had.items() if part in wanted}  # its topic may have gone
            kept = [
                part
                for part, since_s in had.items()
                if has.get(part) == since_s or (part in has and member.life is not life)
            ]
            if moves_nothing and not len(kept) == len(had) == len(has):
                raise LawBroken(RETURNS, f"after {what}: {member.life.me} had {had}, and has {has}")
            if len(kept) < min(len(had), share):
                raise LawBroken(STAYS, f"after {what}: {member.life.me} had {had}, and has {has}")
        self.proofs[what] += 1

    async def _within(self, bound_s: float, what: str) -> float:
        """How long it took."""
        since_s = self.run.loop.time()
        while (reason := self.unsettled()) is not None:
            if self.run.loop.time() > since_s + bound_s:
                law = CONVERGES if self._has_copies() else COPIES
                if self.trouble.find_every_s and self._owned() != self._wanted():
                    law = COVERS
                raise LawBroken(law, f"{bound_s:.0f} s after {what}: {reason}")
            await asyncio.sleep(LOOK_S)
        return self.run.loop.time() - since_s

    def _wanted(self) -> set[Part]:
        """What the members subscribe to and is there, but for the topic that is gone in the end."""
        is_found = any(isinstance(member.life, ConsumerLife) and member.life.pattern for member in self.members)
        pattern = re.compile(PATTERNS[0] if is_found else re.escape(self.topic))
        topics = self._newest_topics().topics.values()
        return {(topic.id, part) for topic in topics if pattern.fullmatch(topic.name) for part in topic.partitions}

    def _newest_topics(self) -> TopicsImage:
        images = [node.loader.image for node in self.run.nodes if node.is_up]
        return max(images, key=lambda image: image.offset).topics

    def _owned(self) -> set[Part]:
        return {part for member in self.members for part in member.life.me.owned}

    def unsettled(self) -> str | None:
        """Why it is not one group in which every partition has its reader, in words; None when it is."""
        owned = [part for member in self.members for part in member.life.me.owned]
        is_one_each = len(owned) == len(set(owned)) and set(owned) == self._wanted()
        heard_since_s = (
            self.run.loop.time() - BEAT_S - SLACK_S
        )  # one that waits at a connection that is dead may be fenced yet
        is_late = any(
            member.life.me.is_asked or not member.is_in or member.life.me.heard_s < heard_since_s
            for member in self.members
        )
        shares = [len(member.life.me.owned) for member in self.members if member.becomes_consumer]
        is_mixed = any(member.becomes_consumer and isinstance(member.life, ClassicLife) for member in self.members)
        is_even = not shares or max(shares) - min(shares) <= 1
        is_as_wanted = is_one_each and is_even and not is_late and not is_mixed
        return None if is_as_wanted and self._has_copies() else str(self)

    def _has_copies(self) -> bool:
        """Whether each task is in as many processes as it may."""
        lives = [member.life.me for member in self.members]
        wanted = 1 + min(self.trouble.standbys, len({me.process for me in lives}) - 1)
        holders = Counter(part for me in lives for part in (*me.owned, *me.copies))
        return not self.trouble.standbys or all(holders[part] == wanted for part in self._wanted())

    def __str__(self) -> str:
        lives = [member.life.me for member in self.members]
        return "; ".join(f"{me}: {sorted(part for _, part in me.owned)}" for me in lives)

    async def _read_all(self) -> None:
        """What is committed in the end."""
        life = self.members[0].life
        for part in sorted(part for part in self._wanted() if part[0] == life.topic_id()):
            reads = self.laws.reads
            while self.laws.reads == reads:
                at = await self.coordinator(life.calls)
                if at is not None:
                    await life.read(at, part)
                await asyncio.sleep(LOOK_S)

    # -- the topic -------------------------------------------------------------------------------------------------

    async def _grow_now_and_then(self) -> None:
        while self._partitions() < PARTITIONS_MAX - 1:
            await asyncio.sleep(self.run.random.expovariate(1 / self.trouble.grow_every_s))
            if self.run.strikes("topic grows", 0):
                await self._grow(is_once=True)

    def _partitions(self) -> int:
        """Partitions of the topic that stays; 0 where no node is up that would know."""
        topic = self._newest_topics().get(self.topic) if any(node.is_up for node in self.run.nodes) else None
        return 0 if topic is None else len(topic.partitions)

    async def _find_now_and_then(self) -> None:
        """Another topic that matches, or one that nearly does; or one that came before goes."""
        random, there = self.run.random, list[str]()
        while True:
            await asyncio.sleep(random.expovariate(1 / self.trouble.find_every_s))
            if not self.run.strikes("topic comes or goes", 0):
                continue
            if len(there) == FOUND_MAX or (there and random.random() < 0.4):
                await self._unmake(there.pop(random.randrange(len(there))), is_once=True)
                continue
            self._found += 1
            there.append(f"found-{self._found}" + random.choice(("", "", "-beside")))
            await self._make(there[-1], random.choice((1, 2)), is_once=True)

    async def _configure(self, key: str, value: str) -> None:
        altered = _alteration(ConfigResourceType.GROUP, GROUP, (key,), value)
        known = ConfigResource(ConfigResourceType.GROUP, GROUP)
        await self._ask(
            IncrementalAlterConfigs(resources=(altered,)),
            lambda image: image.configs.get(known).get(key) == value,
        )

    async def _find(self) -> None:
        self._found += 1
        await self._make(f"found-{self._found}", 2)

    async def _make(self, name: str, partitions: int, *, is_once: bool = False) -> None:
        made = CreatableTopic(name=name, partition_count=partitions, replication_factor=self.run.swarm.replicas)
        request = CreateTopics(topics=(made,), validate_only=False)
        await self._ask(request, lambda image: image.topics.get(name) is not None, is_once=is_once)

    async def _unmake(self, name: str, *, is_once: bool = False) -> None:
        request = DeleteTopics(topics=(TopicReference(name=name),))
        await self._ask(request, lambda image: image.topics.get(name) is None, is_once=is_once)

    async def _grow(self, *, is_once: bool = False) -> None:
        """By a partition; returns once every broker has heard of it, or, of one try, has not."""
        count = self._partitions() + 1

        def has_grown(image: MetadataImage) -> bool:
            topic = image.topics.get(self.topic)
            return topic is not None and len(topic.partitions) >= count

        request = CreatePartitions(topics=(TopicGrowth(name=self.topic, partition_count=count),))
        await self._ask(request, has_grown, is_once=is_once)

    async def _ask(self, request: Any, is_done: Callable[[MetadataImage], bool], *, is_once: bool = False) -> None:
        """The controller; returns once every broker has heard that it is done, or, of one try, has not."""
        while True:
            active = next((node for node in self.run.nodes if node.is_up and node.driver.is_active), None)
            if active is not None:
                with contextlib.suppress(KafkaError, TimeoutError):  # what became of it the brokers show
                    async with asyncio.timeout(CALL_TIMEOUT_S):
                        await active.driver.handle(request, principal="User:simulated")
            if is_once:
                return
            if all(is_done(node.cache.image) for node in self.run.nodes if node.is_up):
                return
            await asyncio.sleep(LOOK_S)
