"""Share groups at the leader: finds the share partition that a member's fetch or acknowledgement is about, of those led here.

May touch:  replicas led here, sessions, share partitions.   Must not touch: sockets, the bytes of records, what a core decides.
Invariants: one core for each share partition, of one leader epoch; it is let go of before another leader can be heard of here.
Read next:  led_partition.py (performs what a core decides), parked_fetches.py, sessions.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from barnabas_coordination.internal_topic import MetadataSource
from barnabas_coordination.share.description import ShareDescription, describe
from barnabas_coordination.share.led_partition import (
    DueTimeReader,
    LedPartition,
    LetterWriter,
    RespondAcknowledged,
    ShareStats,
    Surroundings,
)
from barnabas_coordination.share.parked_fetches import ParkedFetch, RespondShare, ShareFetch, ShareOutcome, refusal
from barnabas_coordination.share.partition import Acknowledgement, SharePartition
from barnabas_coordination.share.sessions import SharedPartition, ShareSession, ShareSessions
from barnabas_coordination.share_settings import ShareSettings
from barnabas_coordination.share_state.messages import Persister, ShareKey
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_replication.errors import NotLeaderOrFollower
from barnabas_replication.manager import ReplicaManager
from barnabas_replication.requests import Cancel
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import TopicPartition

SHARE_VERSION_DEAD_LETTERS: Final = 2


class SharePartitions:
    """Everything that share groups do at this broker. On the data lane; `run` owns its tasks."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        persister: Persister,
        letters: LetterWriter,
        due_times: DueTimeReader,
        metadata: MetadataSource,
        settings: Callable[[MetadataImage, str], ShareSettings],
        sessions_max: int,
        fetch_bytes_max: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """settings: of a group, by its id. sessions_max: group.share.max.share.sessions. fetch_bytes_max: of one answer.
        clock_ms: wall clock."""
        self.stats = ShareStats()
        self.sessions = ShareSessions(sessions_max=sessions_max)
        self._replicas = replicas
        self._metadata = metadata
        self._settings_of = settings
        self._clock_ms = clock_ms
        self._led: dict[ShareKey, LedPartition] = {}
        self._settings: dict[str, tuple[object, object, ShareSettings]] = {}
        """By group: configs and features of the image, and what they come to."""
        self._tasks: asyncio.TaskGroup | None = None
        self._around = Surroundings(
            replicas=replicas,
            persister=persister,
            letters=letters,
            due_times=due_times,
            metadata=metadata,
            settings=self.settings,
            has_members=self.sessions.has_members,
            spawn=self._spawn,
            forget=self._forget,
            fetch_bytes_max=fetch_bytes_max,
            clock_ms=clock_ms,
            stats=self.stats,
        )

    async def run(self) -> None:
        """Owner task of all that waits, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._drop_all(NotLeaderOrFollower("this broker stops"))
                self._tasks = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:  # the broker stops
            work.close()
            return
        self._tasks.create_task(work)

    # -- settings and roles ------------------------------------------------------------------------------------------

    def settings(self, group_id: str) -> ShareSettings:
        """What holds for a group now."""
        image = self._metadata.image
        known = self._settings.get(group_id)
        if known is not None and known[0] is image.configs and known[1] is image.features:
            return known[2]
        settings = self._settings_of(image, group_id)
        if image.features.share_version < SHARE_VERSION_DEAD_LETTERS and settings.dead_letter_topic:
            settings = replace(settings, dead_letter_topic="")
        if known is None and not self.sessions.has_members(group_id):
            return settings  # whoever asks may name any group
        self._settings[group_id] = (image.configs, image.features, settings)
        return settings

    def follow(self, image: MetadataImage) -> None:
        """Replicas have taken the roles of this image: let go of what this broker leads no more, and of all once share groups are off."""
        if not image.features.share_version:
            self._drop_all(KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, "share groups are off: share.version is 0"))
            for session in self.sessions.all():
                self.sessions.end(session)
            self._settings.clear()
            return
        for led in list(self._led.values()):
            if not led.is_led or self._replicas.partition(led.partition.topic_partition) is not led.partition:
                led.drop(led.partition.not_leader())

    # -- sessions ----------------------------------------------------------------------------------------------------

    def end_session(self, session: ShareSession) -> None:
        """The member leaves, or its connection is gone: let go of its records in the partitions that the session has. Harmless when
        the member has another session by now."""
        if not self.sessions.end(session):
            return
        now_ms = self._clock_ms()
        for shared in session.partitions:
            led = self._led.get(ShareKey(session.group_id, *shared))
            if led is not None and led.core is not None:
                led.core.release(session.member_id, now_ms=now_ms)
                led.obey()
        if not self.sessions.has_members(session.group_id):
            self._settings.pop(session.group_id, None)
            for led in list(self._led.values()):
                if led.key.group_id == session.group_id:
                    led.drop_idle()

    # -- acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        session: ShareSession,
        shared: SharedPartition,
        batches: Sequence[Acknowledgement],
        respond: RespondAcknowledged,
    ) -> None:
        """Take a member's acknowledgements in one partition; all count, once they are kept, or none."""
        key = ShareKey(session.group_id, *shared)
        led = self._led.get(key)
        if led is None or led.core is None or not led.is_led:
            respond(self._unknown(shared))
            return
        led.core.follow(self.settings(key.group_id))
        try:
            change = led.core.acknowledge(session.member_id, batches, respond, now_ms=self._clock_ms())
        except KafkaError as error:
            self.stats.refused_acknowledgements += 1
            led.obey()
            respond(error)
            return
        self.stats.acknowledgements += len(batches)
        led.obey()
        if change is None:
            respond(None)

    def _unknown(self, shared: SharedPartition) -> KafkaError:
        """Why there is no such share partition here."""
        topic = self._metadata.image.topics.get_by_id(shared.topic_id)
        if topic is None:
            return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {shared.topic_id}")
        try:
            self._replicas.hosted.leader_partition(TopicPartition(topic.name, shared.partition))
        except KafkaError as error:
            return error
        return KafkaError.of(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"nobody has fetched {topic.name}-{shared.partition} here: fetch first",
        )

    # -- fetching ----------------------------------------------------------------------------------------------------

    def fetch(self, ask: ShareFetch, partitions: Sequence[SharedPartition], respond: RespondShare) -> Cancel:
        """Answer one fetch, at once or when there is enough, at latest after max_wait_ms."""
        leds: list[LedPartition] = []
        refused: list[ShareOutcome] = []
        for shared in partitions:
            try:
                leds.append(self._lead(ShareKey(ask.session.group_id, *shared)))
            except KafkaError as error:
                refused.append(refusal(self._around, shared, error))
        return ParkedFetch(self._around, ask, leds, refused, respond).begin()

    def _lead(self, key: ShareKey) -> LedPartition:
        """The share partition, which begins to load if it was not there. Raises KafkaError where this broker does not lead it."""
        led = self._led.get(key)
        if led is not None and led.check() is None:
            return led
        topic = self._metadata.image.topics.get_by_id(key.topic_id)
        if topic is None:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has id {key.topic_id}")
        partition = self._replicas.hosted.leader_partition(TopicPartition(topic.name, key.partition))
        if partition.topic_id != key.topic_id:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_ID, f"{topic.name} was made again, and is not here yet")
        if self._tasks is None:
            raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker starts, or stops: ask again")
        led = self._led[key] = LedPartition(key, partition, self._around)
        return led

    def _forget(self, led: LedPartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]

    def _drop_all(self, error: KafkaError) -> None:
        for led in list(self._led.values()):
            led.drop(error)

    # -- telling -----------------------------------------------------------------------------------------------------

    def describe(self, key: ShareKey) -> ShareDescription | None:
        """How a share partition is; None for one that is not loaded here."""
        led = self._led.get(key)
        return None if led is None or led.core is None else describe(led.core)

    def cores(self) -> list[SharePartition]:
        """The cores of all share partitions that are loaded here, to read their counters."""
        return [led.core for led in self._led.values() if led.core is not None]

    def descriptions(self) -> list[tuple[ShareKey, ShareDescription]]:
        """How each share partition is that is loaded here."""
        return [(key, describe(led.core)) for key, led in self._led.items() if led.core is not None]
