"""The log of each replica: found on disk or made, settled among rivals, deleted, set aside.

May touch:  the log manager, the image.       Must not touch: partitions' state, asyncio, the network.
Invariants: nothing on disk is given up, and no empty log takes the place of one that may hold records, on the word of an image
            that does not know this incarnation of the broker; nor on the word of one witness of the topic id, or of none.
Read next:  log_placement.py (the rule for new logs), hosting.py (who asks), barnabas_log/directories/manager.py.

Not obvious:
- A restarted broker gets older images first, in which a topic may be the one before the one that its log is of. So a log is
  opened or postponed, never replaced, until an image knows this incarnation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto

from barnabas_log.config import FlushOnAcks, LogConfig
from barnabas_log.directories.directory_state import LostReplica
from barnabas_log.directories.manager import LogManager, NewLog
from barnabas_log.directories.topic_witness import Fate, Identity, fate_of
from barnabas_log.errors import DiskFull, OutOfDescriptors, StorageFailed
from barnabas_log.unified_log import UnifiedLog
from barnabas_quorum.image.directories import directory_of
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_replication.hosting.hosted import HostedPartitions
from barnabas_replication.hosting.log_placement import refusal_of_new_log
from barnabas_replication.hosting.placement import strays, was_made_since
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class NotOpened(Enum):
    """Why a replica has no log now."""

    IMAGE_TOO_OLD = auto()
    """A newer image is to judge it."""
    NO_DESCRIPTOR = auto()
    """No image would ask for it again."""
    NO_ROOM = auto()
    """It is made when there is room."""
    REFUSED = auto()
    """None is made: its directory failed, or may hold the log already."""
    TRY_ANOTHER = auto()
    """Its directory failed just now, with nothing in it: another may do. No later image would ask again, and a leader
    that hosts nothing is led on by no one else."""


class ReplicaLogs:
    """The logs of one broker's replicas. Lives on the data loop."""

    def __init__(
        self, logs: LogManager, hosted: HostedPartitions, log_config: Callable[[str, MetadataImage], LogConfig]
    ) -> None:
        """log_config: settings of a topic's logs by name."""
        self._logs = logs
        self._hosted = hosted
        self._log_config = log_config
        self._configs: dict[str, LogConfig] = {}
        """The log configs of `_configs_image`, by topic: one topic may have thousands of partitions to open."""
        self._configs_image: MetadataImage | None = None

    def topic_id(self, topic_partition: TopicPartition) -> Uuid | None:
        """The topic that the partition's log on disk is of; None without a log."""
        log = self._logs.get(topic_partition)
        return None if log is None else log.topic_id

    def open(
        self, topic_partition: TopicPartition, topic_id: Uuid, registration: PartitionRegistration
    ) -> UnifiedLog | NewLog | NotOpened:
        """The log of a replica, with its topic's settings; what to `create` where it is not here."""
        logs, broker_id = self._logs, self._hosted.broker_id
        is_present = self._hosted.is_present_incarnation()
        if topic_partition in logs.homes.rivals:
            if not is_present:
                return NotOpened.IMAGE_TOO_OLD
            logs.homes.settle(topic_partition, topic_id, directory_id=directory_of(registration, broker_id))
        found = logs.get(topic_partition)
        if found is not None:
            fate = fate_of(found.identity, found.topic_id, topic_id=topic_id)
            if fate is not Fate.SERVE:
                if not is_present:
                    return NotOpened.IMAGE_TOO_OLD
                try:
                    self._give_up(found, fate, topic_id)
                except (OutOfDescriptors, DiskFull) as error:
                    logger.warning("%s: it is set aside later: %s", topic_partition, error)
                    return NotOpened.NO_DESCRIPTOR
                if logs.get(topic_partition) is found:
                    return NotOpened.REFUSED  # its directory failed just now: the log stays as it is
        if logs.get(topic_partition) is None:
            refusal = self._refusal_of_new_log(topic_partition, registration)
            if refusal is not None:
                return refusal
        config = self._config_of(topic_partition.topic)
        if logs.get(topic_partition) is None:
            return NewLog(topic_partition, topic_id, config, directory_of(registration, broker_id))
        try:
            return logs.get_or_create(topic_partition, topic_id, config)
        except (OSError, KafkaError) as error:
            return _not_opened(topic_partition, error)

    async def create(self, wanted: Sequence[NewLog]) -> list[UnifiedLog | NotOpened]:
        """Make these logs, in one go of a disk thread."""
        health = self._logs.health
        online = len(health.online_directories)
        results: list[UnifiedLog | NotOpened] = []
        for each, made in zip(wanted, await self._logs.create(wanted), strict=True):
            result = _not_opened(each.topic_partition, made) if isinstance(made, Exception) else made
            if result is NotOpened.REFUSED and 0 < len(health.online_directories) < online:
                result = NotOpened.TRY_ANOTHER
            results.append(result)
        return results

    def _config_of(self, topic: str) -> LogConfig:
        image = self._hosted.image
        if image is not self._configs_image:
            self._configs_image = image
            self._configs.clear()
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = self._log_config(topic, image)
        return config

    def _give_up(self, log: UnifiedLog, fate: Fate, topic_id: Uuid) -> None:
        """Remove a deleted topic's log; keep one of which that is not proved, out of service."""
        topic_partition = log.topic_partition
        if fate is Fate.REMOVE:
            logger.warning("%s: the log on disk is of the deleted topic %s, removing it", topic_partition, log.topic_id)
            self._logs.delete(topic_partition)
            return
        why = f"{log.directory}: {log.identity.value}"
        settings = self._config_of(topic_partition.topic)
        is_damaged = log.identity is Identity.CONTRADICTED  # no crash makes two files name two topics
        # Where acks wait for flushes, what it holds may be committed, whether a checkpoint has come to say so or not.
        if log.was_flushed or is_damaged or settings.flush_on_acks is FlushOnAcks.FSYNC:
            kept_in = self._logs.give_up(topic_partition, LostReplica(topic_id, log.log_end_offset, why))
        else:  # a power cut before its first records were durable
            kept_in = self._logs.set_aside(topic_partition)
        logger.error(
            "%s: the log is kept in %s, and not served (%s); `barnabas log strays` shows what it holds and how it is adopted "
            "or deleted",
            topic_partition,
            kept_in,
            why,
        )

    def _refusal_of_new_log(
        self, topic_partition: TopicPartition, registration: PartitionRegistration
    ) -> NotOpened | None:
        """Why no empty log may be begun here now; None when one may."""
        online = self._logs.health.online_directory_ids
        has_offline = bool(self._logs.health.offline_directories)
        if ZERO_UUID in online:
            return None  # directories without ids: where a replica is cannot be known
        refusal = refusal_of_new_log(
            registration,
            self._hosted.broker_id,
            online=online,
            has_offline=has_offline,
            is_of_this_incarnation=was_made_since(
                self._hosted.topics_at_start, self._hosted.image.topics, topic_partition
            ),
        )
        is_present = self._hosted.is_present_incarnation()
        # What is new in an older image may have been given a log since, in the directory that does not work now.
        if refusal is None and (is_present or not has_offline):
            return None
        if not is_present:
            return NotOpened.IMAGE_TOO_OLD
        logger.error("%s: no log is made for it: %s", topic_partition, refusal)
        return NotOpened.REFUSED

    def delete(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Take the partition's log out of service if it is of that topic."""
        if self._logs.lost_replica(topic_partition, topic_id) is not None:
            self._logs.forget_lost(topic_partition)
        if self.topic_id(topic_partition) == topic_id:
            self._logs.delete(topic_partition)

    def directory_to_report(self, log: UnifiedLog, registration: PartitionRegistration) -> Uuid | None:
        """The directory that the log is in, if the cluster believes it elsewhere or does not know; else None."""
        directory_id = self._logs.directory_id(log)
        known = dict(zip(registration.replicas, registration.directories, strict=False)).get(self._hosted.broker_id)
        return None if directory_id in (known, ZERO_UUID) else directory_id

    def set_strays_aside(self) -> None:
        """No delta names topics that were deleted, and partitions that moved away, while this broker was down."""
        topics = self._hosted.image.topics
        for topic_partition, lost in self._logs.lost.items():
            topic = topics.get(topic_partition.topic)
            partition = None if topic is None else topic.partitions.get(topic_partition.partition)
            is_ours = partition is not None and self._hosted.broker_id in partition.replicas
            if topic is None or topic.id != lost.topic_id or not is_ours:
                self._logs.forget_lost(topic_partition)
        for topic_partition in list(self._logs.homes.rivals):
            topic = topics.get(topic_partition.topic)
            # no replica is left of those whose turn has not come: one of them is enough to be looked at below
            self._logs.homes.settle(topic_partition, ZERO_UUID if topic is None else topic.id, directory_id=ZERO_UUID)
        to_set_aside = strays(
            {topic_partition: log.topic_id for topic_partition, log in self._logs.logs.items()},
            topics,
            broker_id=self._hosted.broker_id,
            is_hosted=self._hosted.partitions.__contains__,
        )
        for topic_partition in to_set_aside:
            kept_in = self._logs.set_aside(topic_partition)
            if kept_in is not None:
                logger.warning(
                    "the cluster knows no replica of this broker for %s: its log is kept in %s; remove that directory "
                    "when its records are not wanted any more",
                    topic_partition,
                    kept_in,
                )


def _not_opened(topic_partition: TopicPartition, error: Exception) -> NotOpened:
    """Raises what is no matter of the disk."""
    if isinstance(error, OutOfDescriptors):
        logger.debug("%s cannot be opened yet: %s", topic_partition, error)
        return NotOpened.NO_DESCRIPTOR
    if isinstance(error, DiskFull):
        logger.info("%s: its log is made when there is room: %s", topic_partition, error)
        return NotOpened.NO_ROOM
    if not isinstance(error, OSError | StorageFailed):
        raise error
    logger.error("%s: its log cannot be made: %s", topic_partition, error)
    return NotOpened.REFUSED
