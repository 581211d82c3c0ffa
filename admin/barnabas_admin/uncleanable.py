"""Why a replica of a compacted topic is not compacted: which broker has set it aside, and what helps.

May touch:  barnabas_wire.client.     Must not touch: printing, the admin service.
Invariants: nothing is said of replicas that are compacted; a broker that does not answer keeps no other from being asked.
Read next:  commands/explain.py; barnabas_log/cleaner/driver.py, which sets logs aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

REMEDIES: Mapping[str, str] = {
    "corrupt": "its bytes are damaged: the broker checks them and fetches them anew from another replica; see what is damaged (on its "
    "host, LOG_DIR of its log.dirs)",
    "unsound": "what its cleaner wrote was not sound and was thrown away; see whether the log itself is (on its host, LOG_DIR of its "
    "log.dirs)",
    "memory": "its cleaner has too little memory: lower log.cleaner.dedupe.buffer.size of the broker, or give the host more, and restart",
    "died": "its cleaner ended again and again: look at the broker's log, and at the host's memory",
}
"""By the kind that a broker names first."""
CHECKED = ("corrupt", "unsound")


async def find(client: ClusterClient, partition: TopicPartition) -> list[tuple[int, str]]:
    """(broker, why) of each replica that is set aside. Raises KafkaError, OSError where the metadata cannot be had."""
    view = await client.metadata([partition.topic])
    found: list[tuple[int, str]] = []
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(partition.topic, [partition.partition])])
    for broker_id in sorted(view.brokers):
        try:
            answer = await client.call(request, broker_id=broker_id)
        except (KafkaError, OSError, TimeoutError):
            continue  # whether it serves is said elsewhere
        found += [
            (broker_id, replica.cleaner_fault)
            for directory in answer.results
            for topic in directory.topics
            for replica in topic.partitions
            if replica.cleaner_fault
        ]
    return found


def describe(partition: TopicPartition, found: Sequence[tuple[int, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Facts, and steps (purpose, command)."""
    facts: list[str] = []
    steps: list[tuple[str, str]] = []
    for broker_id, fault in found:
        kind, _, reason = fault.partition(": ")
        facts.append(f"broker {broker_id} cannot compact its replica, which grows: {reason}")
        purpose = REMEDIES.get(kind, "look at the broker's log; it is tried again within the hour")
        command = f"barnabas log verify LOG_DIR/{partition.topic}-{partition.partition}" if kind in CHECKED else ""
        steps.append((f"broker {broker_id}: {purpose}", command))
    return facts, steps
