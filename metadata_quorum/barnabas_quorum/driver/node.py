"""One member of the metadata quorum, running: owns the core, the log, the transport and the clock.

May touch:  asyncio, the RaftLog, the Transport.      Must not touch: files, gRPC types, the controller's state.
Invariants: hard state is durable before any message that depends on it leaves; a record counts only after its flush;
            the listener gets every committed batch once per process start, in order, or a snapshot in place of the
            batches that are gone.
Read next:  ../raft/core.py; proposals.py; committed.py, which turns batches into records and back; snapshots.py; membership.py;
            peer_requests.py, which keeps what peers ask until the core replies.

One task (`run`) feeds the core: an inbox of messages and finished flushes, a timer, the waiting proposals. It awaits only
while hard state or a truncation goes to the disk, which elections need and steady work does not. A flush runs beside it,
one at a time; whatever is written meanwhile is covered by the next.

Proposals get their offset at once and are handed to the core together: at once when no flush is in flight, else when
it ends, at the latest after append_linger_ms. So a lone proposal waits for nothing, and under load one flush carries many.

A snapshot is loaded step by step between the turns of this loop, so that a node that loads a big one still votes, fetches
and answers. Until it is loaded no leader is announced here: a controller never begins with half an image.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.driver.committed import data_batch, leader_change_batch, voters_batch
from barnabas_quorum.driver.delivery import Delivery
from barnabas_quorum.driver.election_watch import ElectionWatch
from barnabas_quorum.driver.log_flush import LogFlush
from barnabas_quorum.driver.membership import Change, OnVotersChanged, VoterChanges, VotersGuard
from barnabas_quorum.driver.peer_requests import PeerRequests
from barnabas_quorum.driver.peers import Peers
from barnabas_quorum.driver.proposals import Proposals
from barnabas_quorum.driver.quorum_description import QuorumDescription, describe_quorum
from barnabas_quorum.driver.quorum_events import Clean, Flushed, Frozen, Resign, Rotten
from barnabas_quorum.driver.quorum_listener import QuorumListener
from barnabas_quorum.driver.quorum_stats import Stats
from barnabas_quorum.driver.replica_snapshots import ReplicaSnapshots
from barnabas_quorum.driver.replica_status import ReplicaStatus, replica_status
from barnabas_quorum.driver.standing_watch import StandingWatch
from barnabas_quorum.driver.transport import ReplicaIdentity, Transport, VoterChangeAnswer
from barnabas_quorum.driver.voters_clocks import VotersClocks
from barnabas_quorum.errors import BufferExhausted, NotController, PeerUnreachable
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.journal import RaftLog, StoredBatch
from barnabas_quorum.raft.messages import (
    Append,
    BeginQuorumEpochReply,
    EndQuorumEpochReply,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    LeaderAndEpoch,
    LeaderChange,
    Message,
    Ready,
    Reply,
    Request,
    Unreachable,
    VoterChange,
    VoteReply,
    Voters,
)
from barnabas_quorum.raft.roles import Leader, Resigned
from barnabas_quorum.raft.voters import ReplicaKey, Voter, VoterSet
from barnabas_wire.kafka.ids import ANONYMOUS, NO_BROKER, ZERO_UUID, BrokerId, Epoch, Offset

logger = logging.getLogger(__name__)

BOOTSTRAP_ID_MAX = -2
"""Bootstrap servers are asked under this id and those below: who they are is not known yet."""
INBOX_MESSAGES_MAX = 4096
"""Most peer messages that wait for the core; beyond it requests are refused."""
CLEAN_INTERVAL_S = 60.0
"""Time between two looks whether the log or its snapshots have outlived their retention (as Kafka)."""
RESIGN_TIMEOUT_S = 1.0
"""How long a resigning leader waits for the voters to know."""


_Event = Message | Flushed | Resign | Frozen | Rotten | Clean | Change

_REPLIES = (FetchReply, VoteReply, BeginQuorumEpochReply, EndQuorumEpochReply, FetchSnapshotReply)


class QuorumNode:
    """The quorum driver; all members are to be used on its event loop (the control lane)."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        replica: ReplicaKey,
        voters: VoterSet,
        log: RaftLog,
        transport: Transport,
        clock_ms: Callable[[], int],
        random: Random,
        listener: QuorumListener,
        endpoint: tuple[str, int] | None = None,
        bootstrap_servers: Sequence[tuple[str, int]] = (),
        on_loading: Callable[[bool], None] = lambda is_begun: None,
        voters_guard: VotersGuard | None = None,
        on_voters_changed: OnVotersChanged | None = None,
    ) -> None:
        """
        Args:
            voters: those that count before any Voters record: of the bootstrap checkpoint, or VoterSet.unknown().
            clock_ms: wall time, for record timestamps and descriptions; timers use the loop's clock.
            endpoint: where this replica's controller listener is reached; None on a broker, which never votes.
            bootstrap_servers: whom to ask for the leader besides the voters.
            on_loading: called with True when a snapshot begins to be loaded, False when that ends.
            voters_guard: of changes of the voter set that this replica carries out as leader; None lets everybody.
        """
        self._config = config
        self._log = log
        self._transport = transport
        self._clock_ms = clock_ms
        self._random = random
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started_s = 0.0
        own_endpoint = None if endpoint is None else Voter(replica, *endpoint)
        self._core = QuorumCore(
            timing=config,
            me=replica,
            own_endpoint=own_endpoint,
            voters=voters,
            hard_state=log.hard_state,
            epoch_starts=log.epoch_starts(),
            end_offset=log.end_offset,
            draw=random.random,
            now_ms=0,
            log_start=log.log_start_offset,
            snapshots=log.snapshots(),
            voter_sets=log.voter_sets(),
            bootstrap=[
                Voter(ReplicaKey(BrokerId(BOOTSTRAP_ID_MAX - index), ZERO_UUID), host, port)
                for index, (host, port) in enumerate(bootstrap_servers)
            ],
            lost_end=log.lost_end,
            life=1 + random.getrandbits(62),
        )
        self._peers = Peers(config=config, core=self._core, transport=transport, formatted_voters=voters)
        self._changes = VoterChanges(
            config=config,
            core=self._core,
            me=own_endpoint,
            transport=transport,
            report=self._post,
            guard=voters_guard,
            on_changed=on_voters_changed,
        )
        self.stats = Stats()
        self._inbox: deque[_Event] = deque()
        self._wake = asyncio.Event()
        self._snapshots = ReplicaSnapshots(
            config=config,
            core=self._core,
            log=log,
            listener=listener,
            clock_ms=clock_ms,
            now_ms=self._now_ms,
            post=self._post,
            on_loading=on_loading,
        )
        self.snapshot_stats = self._snapshots.stats
        self._flush = LogFlush(log=log, stats=self.stats, post=self._post)
        self._delivery = Delivery(
            core=self._core, log=log, listener=listener, snapshots=self._snapshots.writer, stats=self.stats
        )
        self._tasks: asyncio.TaskGroup | None = None
        self._peer_requests = PeerRequests(
            log=log,
            fetch_bytes_max=config.fetch_bytes_max,
            prover=self._snapshots.prover,
            cleaner=self._snapshots.cleaner,
            stats=self.snapshot_stats,
        )
        self._proposals = Proposals(self._core, linger_ms=config.append_linger_ms)
        self._election_watch = ElectionWatch(self.stats)
        self._clocks = VotersClocks()
        self._standing_watch = StandingWatch(self._core, self.stats)
        self._resigned = asyncio.Event()

    # --- what the rooms around it use ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled. The caller's task group owns the task. An error of the log or a broken invariant ends it."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._started_s = loop.time()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._flush.run(), name="quorum-flush")
                tasks.create_task(self._snapshots.writer.run(), name="quorum-snapshot")
                tasks.create_task(self._snapshots.prover.run(), name="quorum-proof")
                tasks.create_task(self._clean_for_ever(), name="quorum-clean")
                tasks.create_task(self._changes.keep_up(), name="quorum-membership")
                if self._log.snapshots():
                    self._snapshots.loading.begin(self._log.snapshots()[-1])
                await self._feed_for_ever(loop)
        finally:
            self._tasks = None
            self._snapshots.loading.end()
            self._peer_requests.refuse_all(PeerUnreachable("this replica is stopping"))
            await self._transport.close()

    async def handle(self, request: Request) -> Reply:
        """A peer's request; answers when the core does, for a fetch up to fetch_wait_ms_max later.

        `request` becomes this node's: it sets the correlation. Raises BufferExhausted when too much waits already,
        PeerUnreachable when the node does not run.
        """
        if self._tasks is None:
            raise PeerUnreachable("this replica does not run")
        if len(self._inbox) >= INBOX_MESSAGES_MAX or len(self._peer_requests) >= INBOX_MESSAGES_MAX:
            raise BufferExhausted(f"{INBOX_MESSAGES_MAX} quorum requests wait already")
        if isinstance(request, FetchRequest):
            self._clocks.hear(request.source, request.clock_ms, now_ms=self._now_ms())
        token, answer = self._peer_requests.begin(request)
        self._post(request)
        self.stats.requests_served += 1
        try:
            return await answer
        finally:
            self._peer_requests.end(token)

    def propose(self, records: Sequence[bytes], *, epoch: Epoch, is_urgent: bool = True) -> Offset:
        """Append one atomic batch; returns the offset of its last record. Commit is reported by the listener: here at once,
        on the other replicas at once only if it is urgent (QuorumCore.propose).

        Raises NotController when this node does not lead in `epoch`, BatchTooLarge, BufferExhausted.
        """
        core = self._core
        if not core.is_leader or core.epoch != epoch or self._delivery.announced != (core.me.id, epoch):
            raise NotController(f"node {core.me.id} does not lead the quorum in epoch {epoch}")
        base_offset = self.log_end_offset
        batch = data_batch(records, base_offset=base_offset, epoch=epoch, timestamp_ms=self._clock_ms())
        self._proposals.add(batch, now_s=self._now_s(), is_urgent=is_urgent)
        self.stats.proposals += 1
        self._wake.set()
        return Offset(batch.end_offset - 1)

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader this node knows."""
        leader_id = self._core.live_leader_id
        return LeaderAndEpoch(None if leader_id == NO_BROKER else leader_id, self._core.epoch)

    @property
    def high_watermark(self) -> Offset:
        """One past the last committed record known here."""
        return self._core.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """One past the last record here, committed or not; includes proposals that are not written yet."""
        return self._proposals.end_offset

    @property
    def voted_id(self) -> BrokerId:
        """Whom this replica voted for in this epoch; -1 for nobody."""
        voted = self._core.voted
        return NO_BROKER if voted is None else voted.id

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set."""
        return self._core.is_voter

    @property
    def may_lead(self) -> bool:
        """Whether this replica votes, leads or may run for election: who was removed may until it knows that committed."""
        return self._core.is_voter or self._core.is_leader or self._core.may_campaign

    @property
    def voters(self) -> VoterSet:
        """The voter set that counts now: the last one in the log here, committed or not."""
        return self._core.voters

    @property
    def leader_endpoint(self) -> Voter | None:
        """The live leader with its address, if it is known."""
        return self._core.leader_endpoint

    @property
    def voters_clock_ms(self) -> int:
        """The median of the voters' wall clocks as their leader knows it; -1 when it is not known."""
        core = self._core
        return self._clocks.median_ms(core.voters, core.me, wall_ms=self._clock_ms(), now_ms=self._now_ms())

    @property
    def log_start_offset(self) -> Offset:
        """First record in the log here; what was before it is in a snapshot."""
        return self._core.log_start

    @property
    def identity(self) -> ReplicaIdentity:
        """What this replica is, for a leader that is asked to let it vote."""
        return self._changes.identity

    async def change_voters(
        self, change: VoterChange, *, principal: str = ANONYMOUS, client_host: str = ""
    ) -> VoterChangeAnswer:
        """Change the voter set as its leader; any other node answers who leads. Ends when the change is committed."""
        return await self._changes.handle(change, principal=principal, client_host=client_host)

    async def ask_for_voters(
        self, change: VoterChange, *, principal: str = ANONYMOUS, client_host: str = ""
    ) -> VoterChangeAnswer:
        """The same from any node: it asks the leader. Raises PeerUnreachable."""
        return await self._changes.ask_leader(change, principal=principal, client_host=client_host)

    def describe(self) -> QuorumDescription:
        """The quorum as this node sees it."""
        return describe_quorum(self._core, self._peers.silent, now_ms=self._now_ms(), wall_ms=self._clock_ms())

    def describe_own(self) -> ReplicaStatus:
        """This replica's own place in the quorum."""
        return replica_status(self._core, self._peers.silent)

    async def resign(self) -> None:
        """Give up leadership, informing the voters who should follow; returns when they know or after a short wait.

        Does nothing on a node that does not lead, or does not run.
        """
        if not self._core.is_leader or self._tasks is None:
            return
        self._post(Resign())
        try:
            async with asyncio.timeout(RESIGN_TIMEOUT_S):
                await self._resigned.wait()
        except TimeoutError:
            logger.warning("resigned, but not every voter has heard of it within %.1f s", RESIGN_TIMEOUT_S)

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def _feed_for_ever(self, loop: asyncio.AbstractEventLoop) -> None:
        core = self._core
        while True:
            self._take_inbox()
            if core.deadline_ms() <= self._now_ms():
                core.tick(self._now_ms())
            if self._proposal_delay_ms() <= 0:
                self._proposals.hand_over(now_ms=self._now_ms())
            while (ready := core.ready()) is not None:
                await self._obey(ready)
            self._settle()
            if self._snapshots.loading.is_under_way:
                loaded = self._snapshots.loading.step()
                if loaded is not None:
                    self._delivery.offset = loaded.end_offset
                    self._snapshots.writer.begin_anew()
                await asyncio.sleep(0)
            elif self._delivery.is_behind:
                self._delivery.deliver()
                await asyncio.sleep(0)
            self._delivery.announce(self.leader_and_epoch, log_end_offset=self.log_end_offset)
            if self._snapshots.cleaner.is_wanted:
                await self._snapshots.cleaner.clean(
                    now_ms=self._now_ms(), is_loading=self._snapshots.loading.is_under_way
                )
            if self._inbox or self._snapshots.loading.is_under_way or self._delivery.is_behind:
                continue
            delay_ms = min(core.deadline_ms() - self._now_ms(), self._proposal_delay_ms())
            if delay_ms <= 0:
                await asyncio.sleep(0)
                continue
            # At least a millisecond: the core's clock counts whole ones, and a shorter sleep would spin.
            timer = loop.call_later(min(delay_ms, 3_600_000) / 1000 + 0.001, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()

    def _take_inbox(self) -> None:
        core = self._core
        for _ in range(len(self._inbox)):
            event = self._inbox.popleft()
            if isinstance(event, Flushed):
                core.flushed(event.end_offset, self._now_ms())
            elif isinstance(event, Resign):
                core.resign(self._now_ms())
            elif isinstance(event, Frozen):
                self._snapshots.take_frozen(event.snapshot_id, self._now_ms())
            elif isinstance(event, Rotten):
                self._snapshots.replace_rotten(event.snapshot_id)
            elif isinstance(event, Clean):
                self._snapshots.cleaner.want()
            elif isinstance(event, Change):
                self._proposals.hand_over(now_ms=self._now_ms())
                self._changes.begin(event, self._now_ms())
            else:
                core.step(event, self._now_ms())

    def _proposal_delay_ms(self) -> float:
        """How long proposals wait for a flush in flight; infinite where there are none."""
        return self._proposals.delay_ms(now_s=self._now_s(), is_flushing=self._flush.is_under_way)

    async def _obey(self, ready: Ready) -> None:
        """Persist, write, speak: in this order (raft/messages.py, Ready)."""
        log = self._log
        if self._core.lost_end is None and log.lost_end is not None:
            # Before it speaks in its own name: a leader that has heard that may make it a voter, and then needs its vote.
            await log.note_regained()
        if ready.hard_state is not None:
            await log.save_hard_state(ready.hard_state)
        if ready.truncate_to is not None:
            logger.info("cutting the metadata log from %d to %d", log.end_offset, ready.truncate_to)
            await log.truncate_to(ready.truncate_to)
        for part in ready.snapshot_parts:
            await log.when_there_is_space(partial(log.write_snapshot_part, part.snapshot_id, part.position, part.data))
            self._snapshots.downloading = part.snapshot_id
        if ready.install is not None:
            await self._snapshots.install(ready.install)
        if ready.appends:
            batches = [batch for append in ready.appends for batch in self._batches_of(append)]
            started_s = self._now_s()
            log.append(batches)
            await log.written()
            self.stats.append_s.observe(self._now_s() - started_s)
            self.stats.batches_written += len(batches)
            self.stats.bytes_written += sum(len(batch.data) for batch in batches)
            self._flush.want()
        for message in ready.send:
            if isinstance(message, _REPLIES):
                self._peer_requests.answer(message, now_ms=self._now_ms())
            else:
                self._send(message)
        for result in ready.finished:
            self._changes.finish(result)
        self._core.advance(ready)

    def _batches_of(self, append: Append) -> Sequence[StoredBatch]:
        payload = append.payload
        if isinstance(payload, LeaderChange):
            self.stats.elections_won += 1
            own = leader_change_batch(
                payload, base_offset=append.base_offset, epoch=append.epoch, timestamp_ms=self._clock_ms()
            )
        elif isinstance(payload, Voters):
            logger.info("the voters are now %s", payload.voter_set)
            own = voters_batch(
                payload, base_offset=append.base_offset, epoch=append.epoch, timestamp_ms=self._clock_ms()
            )
        elif isinstance(payload, StoredBatch):
            own = payload
        else:
            fetched: Sequence[StoredBatch] = payload
            self.stats.records_fetched += sum(batch.end_offset - batch.base_offset for batch in fetched)
            return fetched
        self.stats.records_appended += own.end_offset - own.base_offset
        return [own]

    def _send(self, request: Request) -> None:
        assert self._tasks is not None, "send before run"
        if isinstance(request, FetchRequest):
            request.clock_ms = self._clock_ms()
        self._tasks.create_task(self._call(request))

    async def _call(self, request: Request) -> None:
        self.stats.requests_sent += 1
        reply = await self._peers.call(request)
        self.stats.requests_failed += isinstance(reply, Unreachable)
        self._post(reply)

    def _post(self, event: _Event) -> None:
        self._inbox.append(event)
        self._wake.set()

    # --- what the core decided ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Account for what the core decided: own commits, a resignation that everybody has heard of."""
        core = self._core
        for proposed_s in self._proposals.committed():
            self.stats.commit_s.observe(self._now_s() - proposed_s)
        self._standing_watch.note(now_s=self._now_s())
        self._snapshots.drop_stale_part()
        role = core.role
        self._election_watch.note(role, epoch=core.epoch, now_s=self._now_s())
        if isinstance(role, Leader):
            self._resigned.clear()
        else:
            self._proposals.forget_uncommitted()
            if not isinstance(role, Resigned) or not role.resend_ms:
                self._resigned.set()

    async def _clean_for_ever(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_S)
            self._post(Clean())

    def _now_s(self) -> float:
        return 0.0 if self._loop is None else self._loop.time() - self._started_s

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)
