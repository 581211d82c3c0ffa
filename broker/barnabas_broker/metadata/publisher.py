"""From the control lane to the data lane: every delta, in order, one in flight; and the order in which its parts act.

May touch:  replica manager, coordinators, metadata cache; both lanes' loops.   Must not touch: network, api, gRPC.
Invariants: deltas are applied in the order of the metadata log, each once, the next when the last replica of the one before has its
    log; the settings of topics go to the replicas with the
    ISRs that were decided by them; the cache is swapped after replicas and coordinators, so
    a client never hears from this broker of a leader role it has not taken, and readiness.py looks last; an error here
    stops the node, half-applied metadata is not used.
Read next:  cache.py, lifecycle.py (which unfences only after its own registration was applied here).

Not obvious: Kafka's publisher sets its cache first, because its handlers look endpoints up there; ours are given the new
image as an argument, so the cache can be last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from barnabas_broker.metadata.cache import MetadataCache
from barnabas_broker.metadata.readiness import Readiness
from barnabas_log.config import LogConfig
from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage
from barnabas_quorum.image.quotas import QuotasImage
from barnabas_quorum.image.topics import TopicsDelta
from barnabas_wire.kafka.ids import Epoch, Offset


class ReplicaTarget(Protocol):
    """What the publisher needs of the replica manager."""

    def apply_delta(
        self,
        delta: TopicsDelta | None,
        image: MetadataImage,
        *,
        settings: Mapping[str, LogConfig],
        when_placed: Callable[[], None],
    ) -> None:
        """Settings, deletes, leaders, followers; `when_placed` is called once logs are made and deleted, which may take many turns.
        Called for every image: only registered, unfenced brokers may join an ISR."""


class CoordinatorTarget(Protocol):
    """What the publisher needs of a coordinator: it learns which of its topic's partitions this broker leads."""

    def on_elected(self, partition: int, leader_epoch: Epoch) -> None:
        """This broker leads the partition in this epoch."""

    def on_resigned(self, partition: int) -> None:
        """This broker no longer leads the partition."""

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone from the cluster."""


class CoordinatorTopic(NamedTuple):
    """A coordinator and the internal topic that holds its state."""

    topic: str
    target: CoordinatorTarget


class BrokerMetadataPublisher:
    """Publisher on the control lane; applies on the data lane."""

    name = "broker"

    def __init__(
        self,
        *,
        broker_id: int,
        replicas: ReplicaTarget,
        coordinators: Sequence[CoordinatorTopic],
        changed_settings: Callable[[MetadataDelta, MetadataImage], Mapping[str, LogConfig]],
        update_throttles: Callable[[MetadataDelta, MetadataImage], None],
        update_quotas: Callable[[QuotasImage], None],
        cache: MetadataCache,
        readiness: Readiness,
        control_loop: asyncio.AbstractEventLoop,
        data_loop: asyncio.AbstractEventLoop,
        on_applied: Callable[[Offset], None],
        on_error: Callable[[BaseException], None],
        update_shares: Callable[[MetadataImage], None] = lambda image: None,
    ) -> None:
        """On the data lane: `changed_settings` says what a delta's configs come to for the logs of each topic that they may
        touch, by name; `update_throttles` takes those of replication over, `update_quotas` changed quotas to the listeners;
        `update_shares` hears of roles and features that changed.
        On the control lane: `on_applied` hears the offset of each image that the data lane has applied, `on_error` stops
        the node."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._coordinators = coordinators
        self._changed_settings = changed_settings
        self._update_throttles = update_throttles
        self._update_quotas = update_quotas
        self._update_shares = update_shares
        self._cache = cache
        self._readiness = readiness
        self._control_loop = control_loop
        self._data_loop = data_loop
        self._on_applied = on_applied
        self._on_error = on_error
        self._waiting: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        self._is_in_flight = False
        self._is_stopped = False

    # -- control lane ----------------------------------------------------------------------------------------------

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Queue one delta for the data lane. The no-op record of an idle cluster changes nothing there and does not
        wake it: the image in the cache stays, its offset behind by such records at most."""
        if delta.is_empty and not self._is_in_flight:
            self._on_applied(image.offset)
            return
        self._waiting.append((delta, image))
        self._send_next()

    def _send_next(self) -> None:
        if self._is_in_flight or not self._waiting:
            return
        self._is_in_flight = True
        delta, image = self._waiting.popleft()
        if self._data_loop is self._control_loop:
            self._data_loop.call_soon(self._apply, delta, image)
        else:
            self._data_loop.call_soon_threadsafe(self._apply, delta, image)

    def _finish(self, offset: Offset, error: BaseException | None) -> None:
        if error is not None:
            self._on_error(error)
            return
        self._is_in_flight = False
        self._on_applied(offset)
        self._send_next()

    # -- data lane -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Apply nothing more. For the data lane, before it closes the logs: metadata that comes later would look for them, or
        make new ones behind the clean-shutdown file."""
        self._is_stopped = True

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The order is the law of this file: replicas, coordinators, throttles, the cache, and then whether clients may ask it."""
        if self._is_stopped:
            return
        try:
            settings = {} if delta.configs is None else self._changed_settings(delta, image)
            self._replicas.apply_delta(
                delta.topics, image, settings=settings, when_placed=partial(self._complete, delta, image)
            )
        except Exception as raised:
            self._report(image.offset, raised)

    def _complete(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._is_stopped:
            return
        error: BaseException | None = None
        try:
            self._apply_the_rest(delta, image)
        except Exception as raised:
            error = raised
        self._report(image.offset, error)

    def _report(self, offset: Offset, error: BaseException | None) -> None:
        """Report to the control lane; an error stops the node there."""
        if self._data_loop is self._control_loop:
            self._control_loop.call_soon(self._finish, offset, error)
        else:
            self._control_loop.call_soon_threadsafe(self._finish, offset, error)

    def _apply_the_rest(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.topics is not None:
            for coordinator in self._coordinators:
                self._tell_coordinator(coordinator, delta.topics)
        if delta.topics is not None or delta.features is not None:
            self._update_shares(image)
        if delta.configs is not None:
            self._update_throttles(delta, image)
        if delta.quotas is not None:
            self._update_quotas(image.quotas)
        self._cache.swap(image)
        self._readiness.look(image)

    def _tell_coordinator(self, coordinator: CoordinatorTopic, topics: TopicsDelta) -> None:
        if topics.deleted:
            coordinator.target.on_topics_deleted({gone.name for gone in topics.deleted.values()})
        for gone in topics.deleted.values():
            if gone.name == coordinator.topic:
                for index, partition in sorted(gone.partitions.items()):
                    if partition.leader == self._broker_id:
                        coordinator.target.on_resigned(index)
        for changed in topics.changed.values():
            if changed.name != coordinator.topic:
                continue
            for index, after in sorted(changed.changed.items()):
                before = changed.before.partitions.get(index) if changed.before is not None else None
                led_before = before is not None and before.leader == self._broker_id
                if after.leader == self._broker_id:
                    if not led_before or (before is not None and before.leader_epoch != after.leader_epoch):
                        coordinator.target.on_elected(index, after.leader_epoch)
                elif led_before:
                    coordinator.target.on_resigned(index)
