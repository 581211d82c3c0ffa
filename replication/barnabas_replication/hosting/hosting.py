"""Brings what is hosted here in line with the image: the plan's removals, leaderships and followings, and what is postponed.

May touch:  partitions' roles, the pool of fetchers, loop timers.       Must not touch: requests, sockets, the disk.
Invariants: the plan is obeyed in its order: remove, postpone, lead, follow; what is hosted already takes all of an image in one turn;
            logs are deleted and opened later, a few a turn, the deletions first; what is postponed is planned again
            under each image that knows this incarnation of the broker.
Read next:  placement.py (the plan), replica_logs.py (which log a replica gets), roles.py (leading and following).

Not obvious:
- Between two turns the image may change, and what it said of a partition whose log is being made with it: the partition gets
  the role that the newest image gives it, and a log that is no longer wanted goes.
- What is made in a thread when the broker stops is waited for: the logs close after it, and whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from barnabas_log.directories.manager import NewLog
from barnabas_log.errors import StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.topics import TopicsDelta
from barnabas_quorum.records import ReplicaFault
from barnabas_replication.config import ReplicationConfig
from barnabas_replication.follower.fetcher_pool import FetcherPool
from barnabas_replication.hosting import roles
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.hosting.placement import Change, Removal, as_of, changes_of, deleted_of, plan
from barnabas_replication.hosting.replica_faults import ReplicaFaults
from barnabas_replication.hosting.replica_listener import ReplicaListener
from barnabas_replication.hosting.replica_logs import NotOpened, ReplicaLogs
from barnabas_replication.leader.appends import Appends
from barnabas_replication.leader.batch_work import BatchWork
from barnabas_replication.leader.fetches import Fetches
from barnabas_replication.leader.follower_contacts import FollowerContacts
from barnabas_replication.partition import Partition
from barnabas_replication.replica_events import ReplicaEvents
from barnabas_replication.stats import Stats, TopicTraffic
from barnabas_wire.kafka.ids import INTERNAL_TOPICS, TopicPartition, Uuid

logger = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_RETRY_S = 1.0
"""The pause before logs that found no descriptor are opened."""
SLICE_LOGS = 16
"""Logs that are deleted, or opened, between two turns of the loop; and made by a thread in one go, which holds the interpreter
for some of that time."""


BEGUN_AT_ONCE = 256
"""Replicas that are reported, and begin to fetch, between two turns of the loop."""


class Hosting:
    """The replicas of one broker under the newest image. Lives on the data loop; `run` owns the slices, everything else is
    synchronous."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        config: ReplicationConfig,
        events: ReplicaEvents[Partition],
        contacts: FollowerContacts,
        logs: ReplicaLogs,
        appends: Appends,
        fetches: Fetches,
        batch_work: BatchWork,
        fetchers: FetcherPool,
        faults: ReplicaFaults,
        listener: ReplicaListener,
        stats: Stats,
    ) -> None:
        self.topic_traffic: dict[str, TopicTraffic] = {}
        """The traffic of each topic that has a partition here; in the order in which the topics came."""
        self._hosted = hosted
        self._config = config
        self._events = events
        self._contacts = contacts
        self._logs = logs
        self._appends = appends
        self._fetches = fetches
        self._batch_work = batch_work
        self._stats = stats
        self._fetchers = fetchers
        self._faults = faults
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._postponed: dict[TopicPartition, None] = {}
        self._to_delete: deque[Removal] = deque()
        """Logs that no longer serve requests, and replicas of deleted topics."""
        self._to_open: dict[TopicPartition, None] = {}
        """Replicas that have no log yet, in the order in which they get one."""
        self._to_follow: deque[Partition] = deque()
        """Replicas that were opened, and begin to fetch together: one fetch then asks for all of them, where each slice by itself would
        have the fetchers look through all that they follow."""
        self._to_report: deque[tuple[Partition, Uuid]] = deque()
        """Likewise, and in which directory each is: every report becomes a record, and that another image for every node."""
        self._is_due = asyncio.Event()
        """Set while one of these is not empty."""
        self._when_placed: list[Callable[[], None]] = []
        self._opening: asyncio.TimerHandle | None = None
        """While logs wait for descriptors."""
        self._has_looked_for_strays = False
        self._led_before: dict[TopicPartition, None] = {}
        """Until then: what an earlier process of this broker led, as far as the images say."""

    def take_in(self, delta: TopicsDelta | None) -> None:
        """Obey the image that `hosted` has just taken: deletions, then leaders, then followers.

        delta: what it changes of topics, None when nothing.
        """
        if delta is not None:
            # A replica of a topic that is gone promises nothing any more, and continues until it is its turn.
            self._to_delete.extend(deleted_of(delta))
            if self._to_delete:
                self._is_due.set()
            self._place(changes_of(delta))
        self.place_postponed()

    def when_placed(self, call: Callable[[], None]) -> None:
        """Call it once every log is deleted or opened that is to be by now, and can be; at once if nothing waits."""
        if self._is_due.is_set():
            self._when_placed.append(call)
        else:
            self._end_placing()
            call()

    async def run(self) -> None:
        """Delete and open logs, slice by slice, until cancelled."""
        while True:
            await self._is_due.wait()
            await self._work_off()

    async def _work_off(self) -> None:
        while self._to_delete or self._to_open or self._to_follow or self._to_report:
            if self._to_delete:
                self._delete_some()
            elif self._to_open:
                await self._open_some()
            else:
                self._report_some()
                self._follow_some()
            await asyncio.sleep(0)
        self._is_due.clear()
        self._end_placing()
        calls, self._when_placed = self._when_placed, []
        for call in calls:
            call()

    def _end_placing(self) -> None:
        """What is judged only once every log has its place."""
        if self._has_looked_for_strays or not self._hosted.is_present_incarnation():
            return
        self._has_looked_for_strays = True
        self._logs.set_strays_aside()
        self._take_in_faults()
        if self._led_before:
            logger.info(
                "this broker led %d partitions before it was restarted; it leads again what the controller gives it",
                len(self._led_before),
            )
            self._led_before.clear()

    def place_postponed(self) -> None:
        """If the image is new enough to judge what earlier ones could not, look at that again."""
        if self._postponed and self._hosted.is_present_incarnation():
            postponed, self._postponed = self._postponed, {}
            self._place(as_of(self._hosted.image.topics, postponed))

    def _take_in_faults(self) -> None:
        """The first image that knows this process: from it on what the cluster says of our replicas is no older than what we know."""
        for partition in tuple(self._hosted.partitions.values()):
            topic = self._hosted.image.topics.get_by_id(partition.topic_id)
            registration = None if topic is None else topic.partitions.get(partition.topic_partition.partition)
            if registration is not None and self._faults.take_in(partition, registration):
                self._events.on_lacking(partition)

    def is_hosted(self, partition: Partition) -> bool:
        """Whether it is this very partition that is hosted under its name."""
        return self._hosted.partitions.get(partition.topic_partition) is partition

    def host_again(self, partition: Partition) -> None:
        """Another log was put in the place of the partition's own: host the partition with that."""
        self.forget(partition)
        self._place(as_of(self._hosted.image.topics, [partition.topic_partition]))

    def forget(self, partition: Partition) -> None:
        """The partition is hosted no more: whoever waits for it is sent away."""
        topic_partition = partition.topic_partition
        del self._hosted.partitions[topic_partition]
        partition.traffic.hosted -= 1
        if not partition.traffic.hosted:
            del self.topic_traffic[topic_partition.topic]
            self._batch_work.forget(topic_partition.topic)
        self._fetchers.stop(partition)
        self._appends.forget(partition)
        self._fetches.forget(partition)
        self._faults.forget(partition)
        self._listener.on_replica_gone(partition.topic_id, topic_partition.partition)
        partition.stop(self._hosted.absent(*topic_partition))

    def _make_partition(self, change: Change, log: UnifiedLog) -> Partition:
        """The partition, hosted from now on."""
        topic_partition, topic_id, registration = change
        traffic = self.topic_traffic.setdefault(topic_partition.topic, TopicTraffic())
        traffic.hosted += 1
        if topic_partition.topic not in INTERNAL_TOPICS:
            self._batch_work.note(topic_partition.topic, log.config)
        partition = self._hosted.partitions[topic_partition] = Partition(
            topic_partition=topic_partition,
            topic_id=topic_id,
            log=log,
            high_watermark=log.high_watermark,
            cluster=self._hosted,
            contacts=self._contacts,
            events=self._events,
            config=self._config,
            stats=self._stats,
            traffic=traffic,
        )
        if self._faults.adopt(partition, registration):
            self._events.on_lacking(partition)
        if log.is_failed:  # before it was its turn
            partition.give_up(StorageFailed(f"{log.directory}: its disk failed"))
        return partition

    def close(self) -> None:
        """Open nothing later."""
        if self._opening is not None:
            self._opening.cancel()

    def _place(self, changes: Iterable[Change]) -> None:
        wanted = plan(
            changes,
            broker_id=self._hosted.broker_id,
            log_topic_id=self._logs.topic_id,
            is_present=self._hosted.is_present_incarnation(),
        )
        for removal in wanted.remove:
            self._remove(*removal)
        self._postponed.update(dict.fromkeys(wanted.postpone))
        now_ms = self._hosted.now_ms()
        for change in (*wanted.lead, *wanted.follow):
            partition = self._hosted.partitions.get(change.topic_partition)
            if partition is not None and partition.topic_id == change.topic_id:
                self._give_role(partition, change, now_ms)
                continue
            if partition is not None:
                self._remove(change.topic_partition, partition.topic_id)
            self._to_open[change.topic_partition] = None
            self._is_due.set()

    def _give_role(
        self, partition: Partition, change: Change, now_ms: int, *, is_opened_just_now: bool = False
    ) -> None:
        if change.registration.leader == self._hosted.broker_id:
            self._lead(partition, change, now_ms, is_opened_just_now=is_opened_just_now)
        else:
            self._follow(partition, change, is_opened_just_now=is_opened_just_now)

    def _lead(self, partition: Partition, change: Change, now_ms: int, *, is_opened_just_now: bool) -> None:
        self._report(partition, change, is_opened_just_now=is_opened_just_now)
        self._fetchers.stop(partition)
        is_present = self._hosted.is_present_incarnation()
        if is_present and not self._faults.may_lead(partition):
            roles.follow(partition, change.registration)  # the controller does not know yet that it has lost records
            return
        roles.lead(partition, change.registration, now_ms=now_ms, is_present_incarnation=is_present)
        if not is_present:
            self._led_before[change.topic_partition] = None

    def _follow(self, partition: Partition, change: Change, *, is_opened_just_now: bool) -> None:
        self._report(partition, change, is_opened_just_now=is_opened_just_now)
        if self._hosted.topics_at_start is None:
            # It may name a leader from before epochs that our log holds, or that we led: that one would have us cut
            # what was committed since, while the cluster still takes us for one who has it. Once an image knew this
            # incarnation, each partition remembers its newest epoch by itself.
            self._postponed[change.topic_partition] = None
            return
        if roles.follow(partition, change.registration):
            self._fetchers.stop(partition)
            if is_opened_just_now:
                self._to_follow.append(partition)
            else:
                self._fetchers.begin(partition)

    # -- slices ----------------------------------------------------------------------------------------------------

    def _delete_some(self) -> None:
        for _ in range(min(SLICE_LOGS, len(self._to_delete))):
            topic_partition, topic_id = self._to_delete.popleft()
            partition = self._hosted.partitions.get(topic_partition)
            if partition is not None and partition.topic_id == topic_id:
                self.forget(partition)
            self._logs.delete(topic_partition, topic_id)

    def _report_some(self) -> None:
        for _ in range(min(BEGUN_AT_ONCE, len(self._to_report))):
            partition, directory_id = self._to_report.popleft()
            if self._hosted.partitions.get(partition.topic_partition) is partition:
                self._listener.on_placed(partition.topic_id, partition.topic_partition.partition, directory_id)

    def _follow_some(self) -> None:
        for _ in range(min(BEGUN_AT_ONCE, len(self._to_follow))):
            partition = self._to_follow.popleft()
            if not partition.is_leader and self._hosted.partitions.get(partition.topic_partition) is partition:
                self._fetchers.stop(partition)  # it may fetch already, from another leader than when it was opened
                self._fetchers.begin(partition)

    async def _open_some(self) -> None:
        """The logs that are here, at once; the others are made in a thread of the disk."""
        names = tuple(islice(self._to_open, SLICE_LOGS))
        for name in names:
            del self._to_open[name]
        image = self._hosted.image
        new: list[NewLog] = []
        for change in as_of(image.topics, names):
            if self._hosted.broker_id not in change.registration.replicas:
                continue  # meanwhile; the plan has it
            partition = self._hosted.partitions.get(change.topic_partition)
            if partition is not None:  # it was named again while its log was made
                self._give_role(partition, change, self._hosted.now_ms())
                continue
            log = self._logs.open(*change)
            if isinstance(log, NewLog):
                new.append(log)
            else:
                self._take(change, log)
        if not new:
            return
        for wanted, log in zip(new, await _uncut(self._logs.create(new)), strict=True):
            found = self._change_now(wanted)
            if found is None:
                self._logs.delete(wanted.topic_partition, wanted.topic_id)
                continue
            if isinstance(log, UnifiedLog) and log.is_failed:  # since it was made; nothing is in it
                self._logs.delete(wanted.topic_partition, wanted.topic_id)
                log = NotOpened.TRY_ANOTHER
            elif self._hosted.image is not image:  # its settings may be others by now
                again = self._logs.open(*found)
                log = log if isinstance(again, NewLog) else again
            self._take(found, log)

    def _change_now(self, wanted: NewLog) -> Change | None:
        """What the newest image says of the replica; None when it knows none here."""
        for change in as_of(self._hosted.image.topics, (wanted.topic_partition,)):
            if change.topic_id == wanted.topic_id and self._hosted.broker_id in change.registration.replicas:
                return change
        return None

    def _take(self, change: Change, log: UnifiedLog | NotOpened) -> None:
        """Host the replica with its log, or note why it has none."""
        topic_partition, topic_id, _ = change
        if isinstance(log, UnifiedLog):
            partition = self._make_partition(change, log)
            self._give_role(partition, change, self._hosted.now_ms(), is_opened_just_now=True)
        elif log is NotOpened.TRY_ANOTHER:
            self._to_open[topic_partition] = None
        elif log is not NotOpened.REFUSED:
            self._postponed[topic_partition] = None
        if log is NotOpened.NO_DESCRIPTOR and self._opening is None:
            logger.warning("%s and perhaps others cannot be opened yet for want of descriptors", topic_partition)
            self._opening = self._loop.call_later(OPEN_RETRY_S, self._open_postponed)
        elif log is NotOpened.NO_ROOM:
            self._faults.report(topic_id, topic_partition.partition, ReplicaFault.NO_ROOM)

    def _open_postponed(self) -> None:
        self._opening = None
        self.place_postponed()

    def _report(self, partition: Partition, change: Change, *, is_opened_just_now: bool) -> None:
        """What the cluster believes otherwise: where the replica is, and what is wrong with it."""
        directory_id = self._logs.directory_to_report(partition.log, change.registration)
        if directory_id is not None and is_opened_just_now:
            self._to_report.append((partition, directory_id))
        elif directory_id is not None:
            self._listener.on_placed(partition.topic_id, partition.topic_partition.partition, directory_id)
        if self._hosted.is_present_incarnation() and self._faults.take_in(partition, change.registration):
            self._events.on_lacking(partition)
        self._faults.report_unknown(partition, change.registration)

    def _remove(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """We are no replica of it any more, or it is another topic's: requests are refused, and its log goes."""
        partition = self._hosted.partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id != topic_id:
                return
            self.forget(partition)
        self._to_open.pop(topic_partition, None)
        self._postponed.pop(topic_partition, None)
        self._to_delete.append(Removal(topic_partition, topic_id))
        self._is_due.set()


async def _uncut(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that a thread does; for its end too where the waiting is cancelled."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await doing
        raise
