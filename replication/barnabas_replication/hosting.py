"""Brings what is hosted here in line with the image: the plan's removals, leaderships and followings, and what is postponed.

May touch:  partitions' roles, the pool of followers, loop timers.       Must not touch: requests, sockets, the disk.
Invariants: the plan is obeyed in its order: remove, postpone, lead, follow; what is postponed is planned anew under each image
            that knows this incarnation of the broker.
Read next:  placement.py (the plan), replica_logs.py (which log a replica gets), roles.py (leading and following).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.topics import TopicsDelta
from barnabas_quorum.records import ReplicaFault
from barnabas_replication import roles
from barnabas_replication.followers import Followers
from barnabas_replication.hosted import HostedPartitions
from barnabas_replication.partition import Partition
from barnabas_replication.placement import Change, Removal, as_of, changes_of, deleted_of, plan
from barnabas_replication.replica_faults import ReplicaFaults
from barnabas_replication.replica_listener import ReplicaListener
from barnabas_replication.replica_logs import NotOpened, ReplicaLogs
from barnabas_wire.kafka.ids import TopicPartition, Uuid

logger = logging.getLogger(__name__)

OPEN_RETRY_S = 1.0
"""After which logs are opened that found no descriptor."""


class HostingHost(Protocol):
    """Who keeps the table of partitions."""

    def now_ms(self) -> int:
        """Monotonic ms of the loop."""
        ...

    def make_partition(self, change: Change, log: UnifiedLog) -> Partition:
        """The partition, hosted from now on."""
        ...

    def forget(self, partition: Partition) -> None:
        """The partition is hosted no more: whoever waits for it is sent away."""
        ...

    def note_lost(self, partition: Partition) -> None:
        """The replica lacks records that it had: it is to be refilled."""
        ...


class Hosting:
    """The replicas of one broker under the newest image. Lives on the data loop; all methods are synchronous."""

    def __init__(
        self,
        hosted: HostedPartitions,
        *,
        host: HostingHost,
        logs: ReplicaLogs,
        followers: Followers,
        faults: ReplicaFaults,
        listener: ReplicaListener,
    ) -> None:
        self._hosted = hosted
        self._host = host
        self._logs = logs
        self._followers = followers
        self._faults = faults
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._postponed: dict[TopicPartition, None] = {}
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
            self._place(changes_of(delta), deleted=deleted_of(delta))
        self.place_postponed()
        if not self._has_looked_for_strays and self._hosted.is_present_incarnation():
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
                self._host.note_lost(partition)

    def close(self) -> None:
        """Open nothing later."""
        if self._opening is not None:
            self._opening.cancel()

    def _place(self, changes: Iterable[Change], *, deleted: Iterable[Removal] = ()) -> None:
        wanted = plan(
            changes,
            deleted=deleted,
            broker_id=self._hosted.broker_id,
            log_topic_id=self._logs.topic_id,
            is_present=self._hosted.is_present_incarnation(),
        )
        for removal in wanted.remove:
            self._remove(*removal)
        self._postponed.update(dict.fromkeys(wanted.postpone))
        now_ms = self._host.now_ms()
        for change in wanted.lead:
            self._lead(change, now_ms)
        for change in wanted.follow:
            self._follow(change)

    def _lead(self, change: Change, now_ms: int) -> None:
        partition = self._hosted_partition(change)
        if partition is None:
            return
        self._report(partition, change)
        self._followers.stop(partition)
        is_present = self._hosted.is_present_incarnation()
        if is_present and not self._faults.may_lead(partition):
            roles.follow(partition, change.registration)  # who the controller does not know yet to have lost records
            return
        roles.lead(partition, change.registration, now_ms=now_ms, is_present_incarnation=is_present)
        if not is_present:
            self._led_before[change.topic_partition] = None

    def _follow(self, change: Change) -> None:
        partition = self._hosted_partition(change)
        if partition is None:
            return
        self._report(partition, change)
        if self._hosted.topics_at_start is None:
            # It may name a leader from before epochs that our log holds, or that we led: that one would have us cut
            # what was committed since, while the cluster still takes us for one who has it. Once an image knew this
            # incarnation, each partition remembers its newest epoch by itself.
            self._postponed[change.topic_partition] = None
            return
        if roles.follow(partition, change.registration):
            self._followers.stop(partition)
            self._followers.begin(partition)

    def _hosted_partition(self, change: Change) -> Partition | None:
        """The partition, its log opened or made; None when it cannot have one now."""
        topic_partition, topic_id, registration = change
        partition = self._hosted.partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id == topic_id:
                return partition
            self._remove(topic_partition, partition.topic_id)
        log = self._logs.open(topic_partition, topic_id, registration)
        if not isinstance(log, NotOpened):
            return self._host.make_partition(change, log)
        if log is not NotOpened.REFUSED:
            self._postponed[topic_partition] = None
        if log is NotOpened.NO_DESCRIPTOR and self._opening is None:
            logger.warning("%s and perhaps others cannot be opened yet for want of descriptors", topic_partition)
            self._opening = self._loop.call_later(OPEN_RETRY_S, self._open_postponed)
        elif log is NotOpened.NO_ROOM:
            self._faults.report(topic_id, topic_partition.partition, ReplicaFault.NO_ROOM)
        return None

    def _open_postponed(self) -> None:
        self._opening = None
        self.place_postponed()

    def _report(self, partition: Partition, change: Change) -> None:
        """What the cluster believes otherwise: where the replica is, and what is wrong with it."""
        directory_id = self._logs.directory_to_report(partition.log, change.registration)
        if directory_id is not None:
            self._listener.on_placed(partition.topic_id, partition.topic_partition.partition, directory_id)
        if self._hosted.is_present_incarnation() and self._faults.take_in(partition, change.registration):
            self._host.note_lost(partition)
        self._faults.report_unknown(partition, change.registration)

    def _remove(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """The topic is gone, or we are no replica of it any more: its log goes too."""
        partition = self._hosted.partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id != topic_id:
                return
            self._host.forget(partition)
        self._logs.delete(topic_partition, topic_id)
