"""The laws of a whole cluster. Cheap ones after every turn of the loop, deep ones now and then and at the end.

May touch:  the state of the simulated nodes, read only.   Must not touch: anything it judges.
Invariants: none of its own.
Read next:  cluster.py.

Names in brackets are those of the literature: R of the quorum, C of the controller, P of replication.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from barnabas_log.unified_log import UnifiedLog
from barnabas_wire.kafka.ids import BrokerId, TopicPartition
from tests.checker.history import judge
from tests.simulation.workload import Client, ids_of

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.nodes import SimulatedNode

READ_BYTES = 1 << 30


class LawBroken(AssertionError):
    """One law, and what broke it."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(f"{law}: {what}")


class Invariants:
    """Remembers what later states must not contradict."""

    def __init__(self, cluster: Cluster) -> None:
        self.elections = 0
        self._cluster = cluster
        self._quorum_leaders: dict[int, BrokerId] = {}
        self._quorum_high_watermarks: dict[tuple[BrokerId, int], int] = {}
        self._image_hashes: dict[int, bytes] = {}
        self._partition_leaders: dict[tuple[int, int], BrokerId] = {}
        self._high_watermarks: dict[tuple[BrokerId, int, int, int], int] = {}

    def check(self, *, is_deep: bool) -> None:
        """Raise LawBroken for the first law that does not hold now."""
        for node in self._cluster.nodes:
            if node.is_up:
                self._check_quorum(node)
                self._check_partitions(node)
        if is_deep:
            self._check_images()
            for client in self._cluster.clients:
                self._check_logs_agree(client)

    def _check_quorum(self, node: SimulatedNode) -> None:
        leader = node.quorum.leader_and_epoch
        if leader.leader_id is not None:
            known = self._quorum_leaders.setdefault(leader.epoch, leader.leader_id)
            if known != leader.leader_id:
                raise LawBroken("one leader per epoch (R1)", f"{known} and {leader.leader_id} in epoch {leader.epoch}")
        key = (node.id, node.life)
        before = self._quorum_high_watermarks.get(key, 0)
        now = node.quorum.high_watermark
        if now < before:
            raise LawBroken("metadata high watermark never falls (R4)", f"node {node.id}: {before} to {now}")
        self._quorum_high_watermarks[key] = now

    def _check_partitions(self, node: SimulatedNode) -> None:
        for partition in node.replicas.partitions():
            number = partition.topic_partition.partition
            log = partition.log
            if partition.high_watermark > log.log_end_offset:
                raise LawBroken(
                    "HW is within the log (P9)", f"node {node.id}: {partition.high_watermark} > {log.log_end_offset}"
                )
            if not partition.is_leader:
                continue
            epoch = partition.leader_epoch
            known = self._partition_leaders.get((number, epoch))
            if known is None:
                self._partition_leaders[(number, epoch)] = node.id
                self.elections += 1
                self._check_new_leader(node, number, log)
            elif known != node.id:
                raise LawBroken("one leader per leader epoch", f"{known} and {node.id} lead {number} in epoch {epoch}")
            key = (node.id, node.life, number, epoch)
            before = self._high_watermarks.get(key, 0)
            if partition.high_watermark < before:
                raise LawBroken(
                    "HW never falls at its leader (P9)", f"node {node.id}: {before} to {partition.high_watermark}"
                )
            self._high_watermarks[key] = partition.high_watermark

    def _check_new_leader(self, node: SimulatedNode, number: int, log: UnifiedLog) -> None:
        """P2: who is elected has every acknowledged record."""
        acknowledged = self._cluster.clients[number].acknowledged
        if not acknowledged:
            return
        last = max(place.offset for place in acknowledged.values())
        if log.log_end_offset <= last:
            raise LawBroken(
                "a new leader has every acknowledged record (P2)",
                f"node {node.id} leads {number} with end {log.log_end_offset}, acknowledged up to {last}",
            )

    def _check_images(self) -> None:
        for node in self._cluster.nodes:
            if not node.is_up:
                continue
            image = node.loader.image
            known = self._image_hashes.setdefault(image.offset, image.content_hash())
            if known != image.content_hash():
                raise LawBroken("images are equal at equal offset (C1)", f"node {node.id} at offset {image.offset}")
            for topic in image.topics.sorted_topics():
                for index, partition in topic.partitions.items():
                    if partition.has_leader and partition.leader not in partition.isr:
                        raise LawBroken("the leader is in the ISR (C4)", f"{topic.name}-{index}: {partition}")
                    if not set(partition.isr) <= set(partition.replicas):
                        raise LawBroken("the ISR is among the replicas (C4)", f"{topic.name}-{index}: {partition}")

    def _check_logs_agree(self, client: Client) -> None:
        """P4: below the high watermarks of two replicas their logs are equal, byte for byte."""
        found: list[tuple[BrokerId, bytes]] = []
        for node in self._cluster.nodes:
            partition = self._partition(node, client) if node.is_up else None
            if partition is not None:
                found.append((node.id, log_bytes(partition.log, partition.high_watermark)))
        found.sort(key=lambda pair: len(pair[1]))
        for (shorter, data), (longer, more) in itertools.pairwise(found):
            if not more.startswith(data):
                raise LawBroken(
                    "logs are equal below the HW (P4)", f"{client.partition} at nodes {shorter} and {longer}"
                )

    def unsettled(self) -> str | None:
        """Why the calm cluster is not well yet, or None."""
        for node in self._cluster.nodes:
            if not node.is_up:
                return f"node {node.id} is not up"
        images = [node.loader.image for node in self._cluster.nodes]
        newest = max(images, key=lambda image: image.offset)
        fenced = [broker.id for broker in newest.cluster.sorted_brokers() if broker.is_fenced]
        if fenced:
            return f"brokers {fenced} are fenced"
        for client in self._cluster.clients:
            if not client.is_done:
                return f"a produce to partition {client.partition} is not answered"
            registered = newest.topics.partition(TopicPartition(client.topic, client.partition))
            if registered is None or not registered.has_leader or len(registered.isr) < len(registered.replicas):
                return f"partition {client.partition}: {registered}"
            ends = set()
            for node in self._cluster.nodes:
                partition = self._partition(node, client)
                if partition is None:
                    return f"node {node.id} does not hold partition {client.partition}"
                ends |= {partition.log.log_end_offset, partition.high_watermark}
            if len(ends) != 1:
                return f"the ends and high watermarks of partition {client.partition} differ: {sorted(ends)}"
        return None

    def judge_histories(self) -> None:
        """At the end: every producer's history is clean, every reader saw what is there, replicas are equal."""
        self.check(is_deep=True)
        for client in self._cluster.clients:
            partition = self._partition(self._cluster.nodes[0], client)
            assert partition is not None, "unsettled() has looked"
            records = ids_of(log_bytes(partition.log, partition.log.log_end_offset))
            verdict = judge(
                sent=range(client.sent),
                acknowledged=client.acknowledged,
                log={(client.topic, client.partition): records},
            )
            if not verdict.is_clean:
                raise LawBroken(
                    "acknowledged records are kept, once, in place (P6, E1)", f"{verdict} {verdict!r}"[:600]
                )
            at = dict(records)
            changed = [offset for offset, record_id in client.seen.items() if at.get(offset) != record_id]
            if changed:
                raise LawBroken("what was read never changes (P7)", f"offsets {changed[:10]} of {client.partition}")

    def _partition(self, node: SimulatedNode, client: Client):  # type: ignore[no-untyped-def]
        return node.replicas.partition(TopicPartition(client.topic, client.partition))


def log_bytes(log: UnifiedLog, end: int) -> bytes:
    """All batches of a log below `end`."""
    found = b""
    offset = log.log_start_offset
    while offset < end:
        read = log.read(offset, bytes_max=READ_BYTES, end=end, at_least_one_batch=True)  # type: ignore[arg-type]
        data = b"".join(part.file.read(part.position, part.size) for part in read.parts)
        for part in read.parts:
            part.file.release()
        records = ids_of(data)
        if not records:
            break
        found += data
        offset = type(offset)(records[-1][0] + 1)
    return found
