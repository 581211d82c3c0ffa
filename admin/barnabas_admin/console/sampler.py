"""Looks at the cluster every few seconds, and keeps what it saw in the history.

May touch:  ConsoleCluster, History, the clock.    Must not touch: HTTP.
Invariants: a look that fails is left out and is no zero; the looks cost the cluster a bounded number of requests each, however
            many topics and groups there are.
Read next:  history.py, charts.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime

from barnabas_admin.client import AdminClient
from barnabas_admin.console.cluster import ConsoleCluster
from barnabas_admin.console.history import History
from barnabas_admin.disks import read_totals
from barnabas_admin.groups import describe_groups, list_groups
from barnabas_wire.client.cluster import ClusterClient
from barnabas_wire.client.metadata import LATEST, metadata_request
from barnabas_wire.kafka.errors import KafkaError
from barnabas_wire.kafka.ids import TopicPartition

logger = logging.getLogger(__name__)

EVERY_S = 10
PARTITIONS_MAX = 5_000
"""Ends are asked of so many partitions a look; of the others there is no rate."""
GROUPS_MAX = 50
"""Groups that are described a look, by name."""

TOPIC, ALL, LAG, ANSWER, DATA = "topic", "all", "lag", "answer", "data"
"""Kinds of series: end offsets of a topic, of all topics together; a group's lag; a broker's time to answer, ms; the bytes of its
replicas."""
RECORDS = "records"


class Sampler:
    """Fills one history from one cluster."""

    def __init__(self, cluster: ConsoleCluster, history: History, *, every_s: float = EVERY_S) -> None:
        self._cluster = cluster
        self._history = history
        self._every_s = every_s
        self._failed = ""
        self._is_begun = False

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            began_s = time.monotonic()
            try:
                await self.look()
                self._failed = ""
            except (KafkaError, OSError, TimeoutError) as error:
                if str(error) != self._failed:  # once, and not at every look
                    self._failed = str(error)
                    logger.info("a look at the cluster failed: %s", error)
            await asyncio.sleep(max(1.0, self._every_s - (time.monotonic() - began_s)))

    async def look(self) -> None:
        """One look. Raises KafkaError, OSError, TimeoutError."""
        if not self._is_begun:
            cluster_id = (await self._cluster.admin(AdminClient.describe_cluster)).cluster_id
            await asyncio.to_thread(self._history.begin, cluster_id)
            self._is_begun = True
        counters, gauges = await self._cluster.kafka(self._ask)
        at_s = int(time.time())
        day = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d")
        await asyncio.to_thread(self._history.add_look, at_s, day, counters=counters, gauges=gauges, topics=TOPIC)

    async def _ask(self, client: ClusterClient) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
        view = await client.metadata()
        led = [
            TopicPartition(topic, index)
            for topic, partitions in sorted(view.topics.items())
            for index, partition in sorted(partitions.items())
            if partition.leader >= 0 and not topic.startswith("__")
        ][:PARTITIONS_MAX]
        # A topic of which a partition has no leader now has no sum that could be compared with the one before.
        whole = {
            topic
            for topic, partitions in view.topics.items()
            if all(partition.leader >= 0 for partition in partitions.values())
        }
        listed = await client.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
        by_partition = {each: int(offset.offset) for each, offset in listed.items()}
        ends: dict[str, int] = {}
        for each, end in by_partition.items():
            ends[each.topic] = ends.get(each.topic, 0) + end
        counters: dict[tuple[str, str], float] = {(TOPIC, topic): end for topic, end in ends.items() if topic in whole}
        if ends.keys() <= whole:
            counters[ALL, RECORDS] = sum(ends.values())
        gauges: dict[tuple[str, str], float] = {}
        groups = {row["group"]: row["coordinator"] for row in (await list_groups(client))[:GROUPS_MAX]}
        # One that went away, or whose coordinator moves, has a gap in its line.
        for name, found in (await describe_groups(client, groups, ends=by_partition)).items():
            gauges[LAG, name] = found["total_lag"]
        for broker_id in sorted(view.brokers):
            began_s = time.perf_counter()
            try:
                await client.call(metadata_request([]), broker_id=broker_id)
            except (KafkaError, OSError, TimeoutError):
                continue
            gauges[ANSWER, str(broker_id)] = (time.perf_counter() - began_s) * 1000
            with contextlib.suppress(KafkaError, OSError, TimeoutError):  # a gap in the line
                totals = await read_totals(client, broker_id)
                gauges[DATA, str(broker_id)] = sum(each.replica_bytes for each in totals)
        return counters, gauges
