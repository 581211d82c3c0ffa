"""Fetches of consumers and followers: look, answer, or park until there is enough or the time is up.

May touch:  hosted partitions, loop timers.          Must not touch: sockets, metadata, appends.
Invariants: a fetch is answered at most once, never after its Cancel; file ranges that are not sent are released here.
Read next:  reads.py (what one partition gives), purgatory.py, throttle.py.

Not obvious:
- The HW travels to followers with the next data. Where nothing follows, it is pushed HIGH_WATERMARK_PUSH_MS after it moved by
  answering the parked fetch without data: answering at once would double the fetch rounds of a busy partition. No two pushes
  come closer than HIGH_WATERMARK_PUSH_EVERY_MS: with 200 records a second each brought one, for a quarter of the brokers' CPU.
- A follower of many partitions fetches in a session: only what was named or has changed since its last answer is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas_replication.config import ReplicationConfig
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.leader import reads
from barnabas_replication.leader.fetch_session import FetchSession, FetchSessions, Member, is_news
from barnabas_replication.leader.follower_contacts import FollowerContacts
from barnabas_replication.leader.purgatory import ParkedFetch
from barnabas_replication.partition import Partition
from barnabas_replication.replica_events import ReplicaEvents
from barnabas_replication.requests import (
    OPENS_SESSION_EPOCH,
    Cancel,
    FetchOutcome,
    FetchPartitionSpec,
    FetchPartitionSpecs,
    FetchSpec,
    RespondFetch,
)
from barnabas_replication.stats import Stats
from barnabas_replication.throttle import ThrottleSide
from barnabas_wire.kafka.ids import NO_BROKER, BrokerId, Uuid

HIGH_WATERMARK_PUSH_MS = 7
"""How long the HW waits for data to travel with before idle followers get it alone."""
HIGH_WATERMARK_PUSH_EVERY_MS = 100
"""How long it waits after the push before."""


def _nothing() -> None:
    """The Cancel of a fetch that was answered already."""


class Fetches:
    """The fetches of one broker's clients and followers. Lives on the data loop; all methods are synchronous."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        contacts: FollowerContacts,
        config: ReplicationConfig,
        events: ReplicaEvents[Partition],
        throttle: ThrottleSide,
        stats: Stats,
    ) -> None:
        """throttle: the leader's side."""
        self._hosted = hosted
        self._contacts = contacts
        self._config = config
        self._throttle = throttle
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._is_push_due = False
        self._pushed_s = 0.0
        self._sessions = FetchSessions()

    def fetch(self, request: FetchSpec, partitions: FetchPartitionSpecs, respond: RespondFetch) -> Cancel:
        """Answer one fetch, at once or when there is enough, at latest after max_wait_ms.

        The returned Cancel forgets it (connection gone). Ranges in the outcomes are the receiver's to release.
        """
        replica_id = request.replica_id
        is_follower = replica_id >= 0
        if is_follower:
            session = self._sessions.of(request) if request.session_id else None
            if self._is_from_earlier_life(request):
                self._sessions.end(replica_id)
                respond([self._refuse_earlier_life(request, topic, number) for topic, _, number, *_ in partitions])
                return _nothing
            now_ms = self._now_ms()
            self._contacts.note(replica_id, now_ms + max(0, request.max_wait_ms))
            if session is not None:
                session.fetched_ms = now_ms
                return self._fetch_in_session(session, request, partitions, respond)
        outcomes, size_bytes, is_final = self._look(request, partitions, is_first_look=True)
        if is_final or size_bytes >= request.min_bytes or request.max_wait_ms <= 0 or not partitions:
            self._answer(replica_id, outcomes, respond)
            return _nothing
        _release(outcomes)
        return self._park(request, partitions, respond)

    def fetch_one(self, request: FetchSpec, spec: FetchPartitionSpec, respond: RespondFetch) -> Cancel:
        """`fetch` of one partition: the usual poll of a consumer, flat, since its price is our own steps."""
        topic, _, number, _, _, _, _, _, _ = spec
        partition = self._hosted.partitions.get((topic, number))
        is_follower = request.replica_id >= 0
        if partition is None or is_follower:
            return self.fetch(request, (spec,), respond)
        bytes_max = self._config.fetch_bytes_max
        if request.max_bytes < bytes_max:
            bytes_max = request.max_bytes
        outcome = reads.fetch_from(
            partition, spec, request, bytes_max=bytes_max, is_one_batch_due=True, is_first_look=True, now_ms=0
        )
        size_bytes = outcome.size_bytes
        if size_bytes < request.min_bytes and request.max_wait_ms > 0:
            if (
                outcome.error is None
                and outcome.diverging_epoch is None
                and outcome.preferred_read_replica == NO_BROKER
            ):
                _release([outcome])
                return self._park(request, (spec,), respond)
        elif size_bytes:
            partition.traffic.bytes_out += size_bytes
            self._stats.fetched_bytes += size_bytes
        respond([outcome])
        return _nothing

    def _park(self, request: FetchSpec, partitions: FetchPartitionSpecs, respond: RespondFetch) -> Cancel:
        is_follower = request.replica_id >= 0
        parked = ParkedFetch(request, partitions, respond, self._look_again, self._expire_fetch)
        parked.cancel_timer = self._loop.call_later(request.max_wait_ms / 1000, self._expire_fetch, parked).cancel
        parked.wait_in(
            partition.follower_fetches if is_follower else partition.consumer_fetches
            for topic, _, number, *_ in partitions
            if (partition := self._hosted.partitions.get((topic, number))) is not None
        )
        self._stats.fetch_parked += 1
        return parked.leave

    # ------------------------------------------------------------------ sessions of followers

    def in_session(self, request: FetchSpec) -> FetchSpec:
        """The follower's fetch with the session that it opens or continues. Raises as FetchSessions.take."""
        return request._replace(session_id=self._sessions.take(request).id)

    def vouch(self) -> None:
        """See FetchSessions.vouch."""
        self._sessions.vouch()

    def _fetch_in_session(
        self, session: FetchSession, request: FetchSpec, partitions: FetchPartitionSpecs, respond: RespondFetch
    ) -> Cancel:
        session.send_back()
        get = self._hosted.partitions.get
        for spec in partitions:
            topic, _, number, _, _, _, _, _, _ = spec
            session.name(spec, get((topic, number)))
        members = tuple(session.changed)
        outcomes, size_bytes, is_final = self._look(request, [member.spec for member in members], is_first_look=True)
        # The answer to a session's first fetch carries its id, which the follower needs for the next.
        is_opening = request.session_epoch == OPENS_SESSION_EPOCH
        if is_final or size_bytes >= request.min_bytes or request.max_wait_ms <= 0 or is_opening:
            self._answer_in_session(session, members, outcomes, respond)
            return _nothing
        _release(outcomes)
        parked = session.parked = ParkedFetch(
            request, (), respond, self._look_again_in_session, self._expire_in_session
        )
        parked.cancel_timer = self._loop.call_later(request.max_wait_ms / 1000, self._expire_in_session, parked).cancel
        self._stats.fetch_parked += 1
        return parked.leave

    def _look_again_in_session(self, parked: ParkedFetch) -> None:
        self._answer_parked(parked, is_due=False)

    def _expire_in_session(self, parked: ParkedFetch) -> None:
        self._answer_parked(parked, is_due=True)

    def _answer_parked(self, parked: ParkedFetch, *, is_due: bool) -> None:
        """Look at what changed, and answer if it is worth that, or due."""
        session = self._sessions.of(parked.request)
        if parked.is_done or session is None:
            return
        members = tuple(session.changed)
        specs = [member.spec for member in members]
        outcomes, size_bytes, is_final = self._look(parked.request, specs, is_first_look=False)
        if parked.is_done:
            _release(outcomes)
        elif is_due or is_final or size_bytes >= parked.request.min_bytes:
            parked.leave()
            session.parked = None
            self._answer_in_session(session, members, outcomes, parked.respond)
        else:
            _release(outcomes)

    def _answer_in_session(
        self, session: FetchSession, members: Sequence[Member], outcomes: list[FetchOutcome], respond: RespondFetch
    ) -> None:
        """Answer with what has news; what brought records or a refusal is to be named again."""
        reported = []
        get = self._hosted.partitions.get
        for member, outcome in zip(members, outcomes, strict=True):
            if member.is_done:  # a look may wake others, who may have ended the session
                _release([outcome])
                continue
            if outcome.error is not None or outcome.diverging_epoch is not None or outcome.size_bytes:
                session.drop(member)
                reported.append(outcome)
                continue
            if is_news(member, outcome.high_watermark, outcome.log_start_offset):
                member.sent_high_watermark = outcome.high_watermark
                member.sent_log_start = outcome.log_start_offset
                reported.append(outcome)
            partition = get((outcome.topic, outcome.partition))
            if partition is not member.partition:
                member.move(partition)
            if member.is_at_rest():
                session.changed.pop(member, None)
        self._answer(session.replica_id, reported, respond)

    # ------------------------------------------------------------------ looking

    def _look(
        self, request: FetchSpec, partitions: FetchPartitionSpecs, *, is_first_look: bool
    ) -> tuple[list[FetchOutcome], int, bool]:
        """Read all partitions: outcomes, bytes found, and whether one of them cannot wait (error, divergence)."""
        get = self._hosted.partitions.get
        replica_id = request.replica_id
        is_follower = replica_id >= 0
        limit = request.max_bytes
        now_ms = 0
        is_throttled = False
        if is_follower:
            now_ms = int(self._loop.time() * 1000)
            throttle = self._throttle
            is_throttled = throttle.is_on and throttle.ready_at_ms(now_ms) > now_ms
        elif limit > (limit_of_consumer := self._config.fetch_bytes_max):
            limit = limit_of_consumer
        left = limit
        is_final = False
        outcomes = []
        for spec in partitions:
            topic, topic_id, number, _, _, _, _, _, _ = spec
            partition = get((topic, number))
            if partition is None:
                hint = self._hosted.leader_hint(topic, number)
                outcome = FetchOutcome(topic, topic_id, number, self._hosted.absent(topic, number), current_leader=hint)
            else:
                is_held_back = is_throttled and self._is_throttled(partition, replica_id)
                outcome = reads.fetch_from(
                    partition,
                    spec,
                    request,
                    bytes_max=0 if is_held_back else left,
                    is_one_batch_due=left == limit and not is_held_back,
                    is_first_look=is_first_look,
                    now_ms=now_ms,
                )
            if (
                outcome.error is not None
                or outcome.diverging_epoch is not None
                or outcome.preferred_read_replica != NO_BROKER
            ):
                is_final = True
            left -= outcome.size_bytes
            outcomes.append(outcome)
        return outcomes, limit - left, is_final

    def _look_again(self, parked: ParkedFetch) -> None:
        """Something moved on one of its partitions."""
        outcomes, size_bytes, is_final = self._look(parked.request, parked.partitions, is_first_look=False)
        if is_final or size_bytes >= parked.request.min_bytes:
            parked.leave()
            self._answer(parked.request.replica_id, outcomes, parked.respond)
        else:
            _release(outcomes)

    def _expire_fetch(self, parked: ParkedFetch) -> None:
        if parked.is_done:
            return
        parked.leave()
        outcomes, _, _ = self._look(parked.request, parked.partitions, is_first_look=False)
        self._answer(parked.request.replica_id, outcomes, parked.respond)

    def _answer(self, replica_id: BrokerId, outcomes: list[FetchOutcome], respond: RespondFetch) -> None:
        is_consumer = replica_id < 0
        total_bytes = 0
        throttled_bytes = 0
        get = self._hosted.partitions.get
        for outcome in outcomes:
            size_bytes = outcome.size_bytes
            if outcome.error is not None or (not size_bytes and is_consumer):
                continue
            partition = get((outcome.topic, outcome.partition))
            if partition is None:
                continue
            total_bytes += size_bytes
            if is_consumer:
                partition.traffic.bytes_out += size_bytes
                continue
            partition.sent_high_watermarks[replica_id] = outcome.high_watermark
            if size_bytes and self._is_throttled(partition, replica_id):
                throttled_bytes += size_bytes
        if throttled_bytes:
            self._throttle.take(throttled_bytes, self._now_ms())
        if is_consumer:
            self._stats.fetched_bytes += total_bytes
        else:
            self._stats.follower_fetched_bytes += total_bytes
        respond(outcomes)

    def _is_throttled(self, partition: Partition, replica_id: BrokerId) -> bool:
        """Whether what this follower gets of the partition counts for the leader's throttle."""
        return replica_id not in partition.isr.committed and self._throttle.covers(
            *partition.topic_partition, replica_id
        )

    def _is_from_earlier_life(self, request: FetchSpec) -> bool:
        """KIP-903: a fetch sent before the follower's restart must not bring the restarted one into the ISR."""
        registered = self._hosted.image.cluster.brokers.get(request.replica_id)
        return registered is not None and -1 < request.replica_epoch < registered.epoch

    def _refuse_earlier_life(self, request: FetchSpec, topic: str, number: int) -> FetchOutcome:
        error = NotLeaderOrFollower(
            f"broker {request.replica_id} has registered anew since epoch {request.replica_epoch}"
        )
        partition = self._hosted.partitions.get((topic, number))
        topic_id = Uuid(bytes(16)) if partition is None else partition.topic_id
        return FetchOutcome(topic, topic_id, number, error)

    def push_soon(self) -> None:
        """HWs of leaders moved: push them to followers that no data brings them to soon."""
        if not self._is_push_due:
            self._is_push_due = True
            now_s = self._loop.time()
            due_s = max(now_s + HIGH_WATERMARK_PUSH_MS / 1000, self._pushed_s + HIGH_WATERMARK_PUSH_EVERY_MS / 1000)
            self._loop.call_at(due_s, self._push_high_watermarks)

    def _push_high_watermarks(self) -> None:
        self._is_push_due = False
        due, self._events.advanced = self._events.advanced, {}
        for partition in due:
            partition.follower_fetches.note()
        for partition in due:
            if not partition.is_leader:
                continue
            sent = partition.sent_high_watermarks
            for parked in partition.follower_fetches.fetches():
                if not parked.is_done and sent.get(parked.replica_id, -1) < partition.high_watermark:
                    self._stats.high_watermark_pushes += 1
                    self._pushed_s = self._loop.time()
                    parked.answer_now()

    def answer_followers(self, partition: Partition) -> None:
        """Answer the parked fetches of the partition's followers now, with or without data."""
        for parked in partition.follower_fetches.fetches():
            if not parked.is_done:
                parked.answer_now()

    def forget(self, partition: Partition) -> None:
        """The partition is hosted no more."""
        self._events.advanced.pop(partition, None)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _release(outcomes: list[FetchOutcome]) -> None:
    for outcome in outcomes:
        for part in outcome.parts:
            part.file.release()
