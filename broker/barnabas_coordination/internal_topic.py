"""A coordinator's topic in the metadata: which partition a key belongs to, who leads it, and making the topic when it is first needed.

That it keeps the count of partitions that it was made with is seen to by the controller, which lets it grow no more. What older
versions let grow bears witness itself: the names in a partition hash to it only by the count under which they were written.

May touch:  the metadata image, the controller client.   Must not touch: logs, shards.
Invariants: a key belongs to the partition its id hashes to, in Java's way, so that any Kafka broker would agree; the topic is made at
            most by one request of this broker at a time.
Read next:  group/service.py and transaction/service.py, the users.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import mul
from typing import Final, Protocol

from barnabas_coordination.errors import CoordinatorNotAvailable
from barnabas_quorum.controller.request import ActiveController
from barnabas_quorum.controller.requests import CreatableTopic, CreateTopics
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import NODE_PRINCIPAL, BrokerId

logger = logging.getLogger("barnabas_broker.coordinator.internal_topic")  # the name that operators set a level of

NAMES_MAX: Final = 200
"""Most names of a partition that are held against the count when it is loaded: under 1 ms. Of a doubled topic half of them are wrong."""


_BLOCK: Final = 256
_POWERS: Final = tuple(pow(31, power, 1 << 32) for power in reversed(range(_BLOCK)))
_AFTER_BLOCK: Final = pow(31, _BLOCK, 1 << 32)


class MetadataSource(Protocol):
    """Holds the image this broker answers from."""

    @property
    def image(self) -> MetadataImage:
        """The current image."""
        ...


class InternalTopic:
    """One of `__consumer_offsets`, `__transaction_state` and `__share_group_state`."""

    def __init__(
        self,
        name: str,
        *,
        partition_count: int,
        replication_factor: int,
        configs: Mapping[str, str],
        metadata: MetadataSource,
        controller: ActiveController,
    ) -> None:
        """What it is made with, once."""
        self.name = name
        self._wanted = CreatableTopic(
            name=name,
            partition_count=partition_count,
            replication_factor=replication_factor,
            configs=dict(configs),
        )
        self._metadata = metadata
        self._controller = controller
        self._is_creating = False
        self.misplaced: set[int] = set()
        """Partitions led here that hold names of others: the topic was made with another count of partitions."""

    def note_loaded(self, partition: int, names: Iterable[str]) -> None:
        """A partition was read, and holds records of these names: tell if they belong elsewhere by the count of now."""
        topic = self._metadata.image.topics.get(self.name)
        if topic is None:
            return
        seen = list(islice(names, NAMES_MAX))
        elsewhere = [name for name in seen if self.partition_for(name) != partition]
        if not elsewhere:
            return
        level = logging.INFO if self.misplaced else logging.ERROR  # once for all of them
        self.misplaced.add(partition)
        logger.log(
            level,
            "%s has %d partitions, and was made with another count: %d of %d names looked at in partition %d belong elsewhere now, %r to "
            "%d. What it holds of them is not found any more: groups begin anew, transactions hang. Copy offsets with `barnabas group "
            "seek`, end transactions with `barnabas txn find-hanging` and `abort`; such a topic grows no more from this version on",
            self.name,
            len(topic.partitions),
            len(elsewhere),
            len(seen),
            partition,
            elsewhere[0],
            self.partition_for(elsewhere[0]),
        )

    def note_resigned(self, partition: int) -> None:
        """The partition is another broker's to look at."""
        self.misplaced.discard(partition)

    def partition_for(self, key: str) -> int:
        """The partition that a key belongs to."""
        topic = self._metadata.image.topics.get(self.name)
        count = self._wanted.partition_count if topic is None else len(topic.partitions)
        return abs(java_hash(key)) % count

    def leader_for(self, key: str) -> BrokerId:
        """The broker that coordinates the key, as far as this one knows. Raises COORDINATOR_NOT_AVAILABLE while there is none."""
        topic = self._metadata.image.topics.get(self.name)
        if topic is None:
            raise CoordinatorNotAvailable(f"{self.name} is being made")
        partition = self.partition_for(key)
        registration = topic.partitions[partition]
        if not registration.has_leader:
            raise CoordinatorNotAvailable(f"{self.name}-{partition} has no leader")
        return registration.leader

    async def find_leader_for(self, key: str) -> BrokerId:
        """The same, and the topic is made if it is not there yet: the client asks again."""
        if self._metadata.image.topics.get(self.name) is None:
            await self._create()
        return self.leader_for(key)

    async def _create(self) -> None:
        if self._is_creating:
            return
        self._is_creating = True
        try:
            (created,) = (
                await self._controller.ask(CreateTopics(topics=(self._wanted,)), principal=NODE_PRINCIPAL)
            ).topics
        except KafkaError as error:
            raise CoordinatorNotAvailable(f"{self.name} could not be made: {error.message}") from error
        finally:
            self._is_creating = False
        if created.error is not None and created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("%s could not be made: %s", self.name, created.error.message)
            raise CoordinatorNotAvailable(f"{self.name} could not be made: {created.error.message}")


def java_hash(text: str) -> int:
    """Java's String.hashCode, over UTF-16 code units; the one value without a positive twin counts as 0, as in Kafka.

    By blocks, which is four times as fast for the names of 32 KB that a request may be full of.
    """
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(raw) // 2}H", raw)
    first = len(units) % _BLOCK
    for unit in units[:first]:
        value = (31 * value + unit) & 0xFFFF_FFFF
    for at in range(first, len(units), _BLOCK):
        value = (_AFTER_BLOCK * value + sum(map(mul, units[at : at + _BLOCK], _POWERS))) & 0xFFFF_FFFF
    if value >= 0x8000_0000:
        value -= 0x1_0000_0000
    return 0 if value == -0x8000_0000 else value
