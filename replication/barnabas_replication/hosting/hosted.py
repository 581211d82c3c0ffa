"""The table of this broker's partitions, and what the image says of those that are not in it.

May touch:  the image.                    Must not touch: logs, asyncio, the partitions' state.
Invariants: one table per broker; the manager alone writes it, and swaps the image as a whole.
Read next:  manager.py, which writes it; appends.py and fetches.py, which read it.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas_quorum.image.directories import is_directory_online
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.topics import TopicsImage
from barnabas_replication.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas_replication.hosting.cluster_view import ClusterView
from barnabas_replication.partition import Partition
from barnabas_replication.requests import CurrentLeader
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import NO_EPOCH, BrokerId, Epoch, TopicPartition


class HostedPartitions(ClusterView):
    """What is hosted here, under the image that it was last brought in line with."""

    __slots__ = ("partitions", "topics_at_start")

    def __init__(
        self, broker_id: BrokerId, broker_epoch: Callable[[], int], now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """See ClusterView."""
        super().__init__(broker_id, broker_epoch, now_ms)
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.topics_at_start: TopicsImage | None = None
        """The topics of the first image that knew this incarnation of the broker; None before that image."""

    def take(self, image: MetadataImage) -> MetadataImage:
        """Go by a newer image from now on; returns the one before."""
        before, self.image = self.image, image
        if self.topics_at_start is None and self.is_present_incarnation():
            self.topics_at_start = image.topics
        return before

    def absent(self, topic: str, number: int) -> KafkaError:
        """Why a request for a partition that is not hosted here is refused: others host it, or it does not exist."""
        registration = self.image.topics.partition(TopicPartition(topic, number))
        if registration is None:
            return UnknownTopicOrPartition(f"{topic}-{number} does not exist")
        if self.broker_id in registration.replicas:
            return NotLeaderOrFollower(f"broker {self.broker_id} has not opened {topic}-{number} yet; ask again")
        return NotLeaderOrFollower(f"broker {self.broker_id} holds no replica of {topic}-{number}")

    def hosted_partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition if a replica of it is here. Raises UnknownTopicOrPartition, NotLeaderOrFollower, or the error of its disk."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            raise self.absent(*topic_partition)
        if partition.storage_error is not None:
            raise partition.storage_error
        return partition

    def leader_partition(self, topic_partition: TopicPartition, current_leader_epoch: Epoch = NO_EPOCH) -> Partition:
        """The partition if this broker leads it in the epoch the caller knows (-1: any).

        Raises UnknownTopicOrPartition, NotLeaderOrFollower, FencedLeaderEpoch or UnknownLeaderEpoch.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None:
            raise self.absent(*topic_partition)
        partition.check_leader(current_leader_epoch)
        return partition

    def leader_hint(self, topic: str, number: int) -> CurrentLeader | None:
        """The leader and its epoch in the image; None when there is no such partition."""
        registration = self.image.topics.partition(TopicPartition(topic, number))
        return None if registration is None else CurrentLeader(registration.leader, registration.leader_epoch)

    def eligible_elsewhere(self, partition: Partition) -> dict[BrokerId, str | None]:
        """Replicas outside the ISR that a clean election may take: None for one that lives, else why it does not.

        The ISR may be the controller's answer, which is there before its image and names no eligible replicas: until that comes,
        whoever has left may be one.
        """
        image, registration = self.image, self.image.topics.partition(partition.topic_partition)
        if registration is None:
            return {}
        members = registration.elr
        if registration.partition_epoch < partition.partition_epoch:
            members += registration.isr
        found: dict[BrokerId, str | None] = {}
        for member in sorted({*members} - partition.isr.maximal):
            broker = image.cluster.broker(member)
            if broker is None:
                found[member] = f"broker {member} is not registered"
            elif not broker.is_active:
                found[member] = f"broker {member} is {'fenced' if broker.is_fenced else 'shutting down'}"
            elif not is_directory_online(image, registration, member):
                found[member] = f"the log directory of broker {member} does not work"
            else:
                found[member] = None
        return found
