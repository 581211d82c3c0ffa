"""Which replicas of a partition are lost together: those of brokers that name one host.

May touch:  its arguments.            Must not touch: asyncio, clock, files, controller.
Invariants: a broker that names no host is one of its own.
Read next:  controller/placement.py, which keeps replicas apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from barnabas_quorum.image.cluster import BrokerRegistration, ClusterImage
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_wire.kafka.ids import BrokerId


def shared_hosts(cluster: ClusterImage, replicas: Sequence[BrokerId]) -> dict[str, tuple[BrokerId, ...]]:
    """The hosts that have more than one of these replicas, by name, each with the brokers in the replicas' order."""
    found: defaultdict[str, tuple[BrokerId, ...]] = defaultdict(tuple)
    for replica in replicas:
        broker = cluster.broker(replica)
        if broker is not None and broker.host is not None:
            found[broker.host] += (replica,)
    return {host: found[host] for host in sorted(found) if len(found[host]) > 1}


def lost_hosts(cluster: ClusterImage) -> dict[str, tuple[BrokerId, ...]]:
    """The hosts of several brokers all of which are fenced, by name, each with its brokers by id."""
    found: defaultdict[str, list[BrokerRegistration]] = defaultdict(list)
    for broker in cluster.sorted_brokers():
        if broker.host is not None:
            found[broker.host].append(broker)
    return {
        host: tuple(broker.id for broker in brokers)
        for host, brokers in sorted(found.items())
        if len(brokers) > 1 and all(broker.is_fenced for broker in brokers)
    }


def count_sharing_host(image: MetadataImage) -> int:
    """Partitions with two replicas on one host that could be on more of the hosts there are."""
    brokers = image.cluster.brokers.values()
    names = {broker.host for broker in brokers if broker.host is not None}
    if not names:
        return 0
    hosts = len(names) + sum(broker.host is None for broker in brokers)
    count = 0
    for topic in image.topics.topics.values():
        for partition in topic.partitions.values():
            shared = shared_hosts(image.cluster, partition.replicas)
            used = len(partition.replicas) - sum(len(each) - 1 for each in shared.values())
            count += used < min(len(partition.replicas), hosts)
    return count
