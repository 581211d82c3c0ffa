"""The laws of a whole cluster, all of them after every turn of the loop, each looking only at what has changed.

May touch:  the state of the simulated nodes, read only.   Must not touch: anything it judges.
Invariants: none.
Read next:  partition_model.py; cluster.py.

Names in brackets are those of the literature: R of the quorum, C of the controller, P of replication, E of a client's history.
Mechanism laws (who is in the ISR holds what is committed, ...) fall long before a client could notice; `outcomes_only` leaves
them out, to prove that the faults alone bring a bug to light.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.transaction.service import TRANSACTION_TOPIC
from barnabas_quorum.controller.reassignment import is_reassigning, original_replicas
from barnabas_quorum.driver.periodic_tasks import SESSION_TICK_MS
from barnabas_quorum.image.directories import is_reserved
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_quorum.records import LeaderRecoveryState, ReplicaFault
from barnabas_replication.partition import Partition
from barnabas_simulation.bootstrap_clients import BootstrapClients
from barnabas_simulation.compaction import COMPACTED_TOPIC, CompactingClient
from barnabas_simulation.history import judge
from barnabas_simulation.hosts import unspread
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.operators import MINIMUM
from barnabas_simulation.partition_model import FollowedLog, LawBroken, PartitionModel
from barnabas_simulation.run import Run
from barnabas_simulation.strangers import Listening
from barnabas_simulation.transactions import OUTPUT_TOPIC, TransactionWorkload
from barnabas_simulation.workload import Client, Producer, ids_of
from barnabas_wire.kafka.ids import BrokerId, Epoch, TopicPartition, Uuid
from barnabas_wire.records.batch import BatchHeader, crc_is_valid, iterate_batches, read_header


class JudgedRun(Run, Protocol):
    """A run with those whose histories are judged."""

    clients: list[Client]
    transacting: TransactionWorkload | None
    listening: Listening | None


MIN_INSYNC_REPLICAS = 2
"""The min.insync.replicas of a simulated topic for which nothing else is set: PROPERTIES and CONTROLLER of nodes.py."""


class Invariants:
    """Remembers what later states must not contradict."""

    def __init__(self, cluster: JudgedRun, *, outcomes_only: bool) -> None:
        self.elections = 0
        self.hashes_compared = 0
        self.models: dict[tuple[Uuid, int], PartitionModel] = {}
        self._cluster = cluster
        self._checks_mechanisms = not outcomes_only
        self._quorum_leaders: dict[int, BrokerId] = {}
        self._quorum_high_watermarks: dict[tuple[BrokerId, int], int] = {}
        self._image_hashes: dict[int, bytes] = {}
        self._hashes_seen: dict[tuple[BrokerId, int], int] = {}
        self._images: dict[BrokerId, MetadataImage] = {}
        self._followed: dict[tuple[BrokerId, TopicPartition], FollowedLog] = {}
        self._high_watermarks: dict[tuple[BrokerId, int, PartitionModel, int], int] = {}
        self._changed: dict[PartitionModel, None] = {}
        self._newest_offset = -1
        self._living: set[Uuid] = set()
        self._unjudged = {COMPACTED_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC}
        """Their bytes are each replica's own: compaction.py judges them, and transactions.py what coordinators write."""
        if cluster.swarm.is_compacting:
            self._unjudged.add(OUTPUT_TOPIC)
        self._bootstrap_clients = BootstrapClients()
        self.vouched_for: set[BrokerId] = set()
        """Brokers whose replicas hold what is committed, as an operator has said, though the cluster does not know: P1
        asks whether it is so."""

    def check(self) -> None:
        """Raise LawBroken for the first law that does not hold now."""
        for node in self._cluster.nodes:
            if not node.is_up:
                continue
            self._check_quorum(node)
            self._bootstrap_clients.ask(node)
            if self._images.get(node.id) is not node.loader.image:
                self._check_image(node, node.loader.image)
            if self._checks_mechanisms and not node.is_stopping:
                for partition in node.replicas.partitions():
                    if partition.topic_partition.topic in self._unjudged:
                        continue
                    known = self._followed.get((node.id, partition.topic_partition))
                    if known is None or not known.is_as_seen(partition):  # most are, after most turns
                        with node.disk.judged():
                            self._check_partition(node, partition)
        if self._changed:
            changed, self._changed = self._changed, {}
            if self._checks_mechanisms:
                for model in changed:
                    self._check_in_sync(model)

    def on_recovery(self, end_offset: int) -> None:
        """An operator begins the quorum again from a metadata log that ends there: what the lost voters decided behind
        it may be decided otherwise."""
        self._image_hashes = {offset: found for offset, found in self._image_hashes.items() if offset < end_offset}
        self._images = {node_id: image for node_id, image in self._images.items() if image.offset < end_offset}
        self._newest_offset = min(self._newest_offset, end_offset - 1)

    def newest_registrations(self) -> list[PartitionRegistration]:
        """The registrations of all partitions that are not deleted as far as any node knows."""
        topics = self._newest_image().topics.sorted_topics()
        return [partition for topic in topics for partition in topic.partitions.values()]

    def kept_topics(self) -> set[str]:
        """Names of the topics that are there by now and stay."""
        if not self._images:
            return set()
        kept = {client.topic for client in self._cluster.clients if client.is_kept}
        return {topic.name for topic in self._newest_image().topics.sorted_topics()} & kept

    def minimum(self, topic: str) -> int:
        """The topic's min.insync.replicas as far as anybody knows."""
        return minimum_of(self._newest_image(), topic)

    def _newest_image(self) -> MetadataImage:
        return max(self._images.values(), key=lambda image: image.offset)

    def model(self, topic: str, topic_id: Uuid, number: int) -> PartitionModel:
        """The model of a partition, made when it is first heard of."""
        found = self.models.get((topic_id, number))
        if found is None:
            found = self.models[(topic_id, number)] = PartitionModel(topic, topic_id, number)
        return found

    def on_fence(self, node: NodeParts, broker_id: BrokerId) -> None:
        """This controller is about to fence the broker because nothing was heard of it. What the controller may count is the time
        in which it ran; it knows that to one tick for each time that it stood still."""
        heard = self._cluster.network.heard.get((node.id, node.life, broker_id))
        loop, driver = self._cluster.loop, node.driver
        if heard is None or heard[0] * 1000 < driver.active_since_ms:
            return
        heard_s, stood_still_s, stalls = heard
        ran_ms = (loop.time() - heard_s - (loop.stood_still_s - stood_still_s)) * 1000
        config = driver.controller.config
        is_absent = driver.controller.sessions.is_absent(broker_id)
        owed_ms = config.disconnect_grace_ms if is_absent else config.session_timeout_ms
        if ran_ms < owed_ms - SESSION_TICK_MS * (1 + loop.stalls - stalls):
            broken = LawBroken(
                "the time for which a controller stood still is no broker's silence (C8)",
                f"controller {node.id} fences broker {broker_id} after {ran_ms:.0f} ms of {owed_ms} ms",
            )
            self._cluster.network.failures.append(broken)  # raised here it would be an error of the controller

    # -- quorum and images -----------------------------------------------------------------------------------------

    def _check_quorum(self, node: NodeParts) -> None:
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

    def _check_image(self, node: NodeParts, image: MetadataImage) -> None:
        self._images[node.id] = image
        known = self._image_hashes.setdefault(image.offset, image.content_hash())
        if known != image.content_hash():
            raise LawBroken("images are equal at equal offset (C1)", f"node {node.id} at offset {image.offset}")
        stats = node.loader.stats
        if stats.hash_mismatches:
            raise LawBroken("a node's image hashes to what the controller's did (C1)", f"node {node.id}")
        seen = self._hashes_seen.get((node.id, node.life), 0)
        if stats.hashes_compared != seen:
            self.hashes_compared += stats.hashes_compared - seen
            self._hashes_seen[(node.id, node.life)] = stats.hashes_compared
        topics = image.topics.sorted_topics()
        for topic in topics:
            for number, registration in topic.partitions.items():
                model = self.model(topic.name, topic.id, number)
                self._check_registration(model, registration, minimum_of(image, topic.name))
                self._check_directories(image, topic.name, registration)
                self._check_faults(image, topic.name, registration)
        if image.offset > self._newest_offset:
            self._newest_offset = image.offset
            living = {topic.id for topic in topics}
            if self._cluster.swarm.hosts:
                self._check_spread(image)
            for topic_id in self._living - living:
                self._forget(topic_id)
            self._living = living

    def _check_spread(self, image: MetadataImage) -> None:
        for topic in image.topics.sorted_topics():
            for number, registration in topic.partitions.items() if topic.id not in self._living else ():
                reason = unspread(image.cluster, registration) if registration.partition_epoch == 0 else None
                if reason is not None:
                    raise LawBroken(
                        "two replicas share a host only where no other is left", f"{topic.name}-{number}: {reason}"
                    )

    def _forget(self, topic_id: Uuid) -> None:
        """The topic is deleted, though not every node knows; one that does not may keep what is left of it for a
        while."""
        for (known_id, _), model in self.models.items():
            if known_id == topic_id:
                model.is_deleted = True

    def _check_registration(self, model: PartitionModel, now: PartitionRegistration, minimum: int) -> None:
        before = model.registration
        if before is now:
            return
        if now.has_leader and now.leader not in now.isr:
            raise LawBroken("the leader is in the ISR (C4)", f"{model}: {now}")
        if not set(now.isr) <= set(now.replicas):
            raise LawBroken("the ISR is among the replicas (C4)", f"{model}: {now}")
        for members in (now.replicas, now.isr, now.elr, now.last_known_elr, now.adding_replicas, now.removing_replicas):
            if len(set(members)) < len(members) or not set(members) <= set(now.replicas):
                raise LawBroken("all who belong to a partition are distinct replicas of it (C4)", f"{model}: {now}")
        if set(now.isr) & set(now.elr):
            raise LawBroken("ISR and ELR are disjoint (C4)", f"{model}: {now}")
        if now.elr and len(now.isr) >= min(minimum, len(now.replicas)):
            raise LawBroken("there is an ELR only below min ISR (C4)", f"{model}: {now}")
        if before is not None and now.partition_epoch == before.partition_epoch + 1:
            self._check_change(model, before, now)
        if before is None or now.partition_epoch > before.partition_epoch:
            if before is not None:
                if now.leader_epoch < before.leader_epoch:
                    raise LawBroken("leader epochs never fall (C3)", f"{model}: {before} to {now}")
                self._cluster.faults.after_registration(before, now)
            model.registration = now
            self._changed[model] = None
        elif now.partition_epoch == before.partition_epoch and now != before:
            raise LawBroken("one state per partition epoch (C3)", f"{model}: {before} and {now}")

    def _check_change(self, model: PartitionModel, before: PartitionRegistration, now: PartitionRegistration) -> None:
        """What one change may do. No simulated topic allows unclean elections."""
        self._check_move(model, before, now)
        known = {*before.isr, *before.elr}
        if is_reassigning(before) and not is_reassigning(now):
            known.update(now.isr)  # the old leader has just vouched for the last of them
        if before.fault_of(before.leader) is not None:
            known.update(now.isr)  # as a faulty one does for the first whole one, which takes over at once
        if set(now.elr) - known:
            raise LawBroken("nobody becomes eligible who was not in sync (C4)", f"{model}: {before} to {now}")
        if not now.has_leader or now.leader == before.leader:
            return
        is_recovering = now.leader_recovery_state is LeaderRecoveryState.RECOVERING
        if now.leader not in (*(before.last_known_elr if is_recovering else known), *self.vouched_for):
            raise LawBroken(
                "nobody is elected who was not known to hold what is committed (C4)", f"{model}: {before} to {now}"
            )

    def _check_move(self, model: PartitionModel, before: PartitionRegistration, now: PartitionRegistration) -> None:
        """C10: a move remembers where it began, and ends there or with all wanted replicas in sync."""
        original = set(original_replicas(before))
        if is_reassigning(now):
            if set(original_replicas(now)) != original:
                raise LawBroken("a move remembers who held the partition (C10)", f"{model}: {before} to {now}")
        elif set(now.replicas) != original and set(now.isr) != set(now.replicas):
            raise LawBroken("a move ends when all wanted replicas are in sync (C10)", f"{model}: {before} to {now}")

    def _check_directories(self, image: MetadataImage, name: str, registration: PartitionRegistration) -> None:
        """A replica in a directory that fails is not in sync; one whose directory is gone is not even eligible."""
        for replica, directory in zip(registration.replicas, registration.directories, strict=True):
            broker = image.cluster.broker(replica)
            if broker is None or is_reserved(directory) or directory in broker.directories:
                continue
            node = self._cluster.network.nodes[replica]
            # while another directory does not work, what is missing may be in that one, for all the controller knows
            is_whole = len(broker.directories) == len(node.directory_ids)
            is_gone = is_whole and node.replaced_by.get(directory) in broker.directories
            if replica in registration.isr or (
                is_gone and replica in (*registration.elr, *registration.last_known_elr)
            ):
                raise LawBroken(
                    "who lost the directory of its replica may not lead (C4)",
                    f"{name}, broker {replica}: {registration}",
                )

    def _check_faults(self, image: MetadataImage, name: str, registration: PartitionRegistration) -> None:
        """A faulty replica leads, and is in the ISR, only for want of a whole one; a corrupt one is not eligible."""
        faults = dict(registration.faults)
        whole = [each for each in registration.isr if each not in faults and image.cluster.is_active(each)]
        if (registration.leader in faults and whole) or any(
            member in faults and member != registration.leader for member in registration.isr
        ):
            raise LawBroken("a faulty replica leads only where no whole one may (C4)", f"{name}: {registration}")
        if any(faults.get(member) in (ReplicaFault.CORRUPT, ReplicaFault.LOST) for member in registration.elr):
            raise LawBroken("a corrupt replica is not eligible (C4)", f"{name}: {registration}")
        if any(faults.get(member) is ReplicaFault.LOST for member in (registration.leader, *registration.isr)):
            raise LawBroken("a replica that has lost records leads nothing", f"{name}: {registration}")

    # -- replicas --------------------------------------------------------------------------------------------------

    def _check_partition(self, node: NodeParts, partition: Partition) -> None:
        log = partition.log
        key = (node.id, partition.topic_partition)
        followed = self._followed.get(key)
        if followed is None or followed.log is not log:
            followed = self._begin_to_follow(node, partition)
        elif followed.is_behind():
            if followed.catch_up():
                self._cluster.faults.after_roll(node)
            self._changed[followed.model] = None
        if log.log_start_offset > followed.model.log_start and not followed.model.is_deleted:
            shape = self._cluster.swarm.logs
            followed.model.retire(
                followed,
                retention_bytes=shape.kept_bytes,
                retention_ms=shape.topic_retention_ms,
                now_ms=self._cluster.wall_ms(),
            )
        high_watermark = partition.high_watermark
        if high_watermark != followed.high_watermark or log.log_start_offset > high_watermark:
            self._check_high_watermark(node, partition, followed, high_watermark)
        if partition.is_leader:
            followed.isr_size, followed.min_isr = len(partition.isr.committed), partition.min_isr
            self._check_leader(node, partition, followed)

    def _begin_to_follow(self, node: NodeParts, partition: Partition) -> FollowedLog:
        topic, number = partition.topic_partition
        model = self.model(topic, partition.topic_id, number)
        followed = FollowedLog(model, partition.log, f"node {node.id}")
        self._followed[(node.id, partition.topic_partition)] = followed
        self._changed[model] = None
        return followed

    def _check_high_watermark(
        self, node: NodeParts, partition: Partition, followed: FollowedLog, high_watermark: int
    ) -> None:
        model, log = followed.model, partition.log
        followed.high_watermark = high_watermark
        if not log.log_start_offset <= high_watermark <= log.log_end_offset:
            raise LawBroken(
                "log start <= HW <= log end (P9)",
                f"node {node.id}, {model}: {log.log_start_offset}, {high_watermark}, {log.log_end_offset}",
            )
        if high_watermark > model.committed_end:
            if not partition.is_leader:
                raise LawBroken(
                    "only a leader commits (P9)",
                    f"node {node.id} takes {model} for committed up to {high_watermark}, it is to {model.committed_end}",
                )
            # within one turn it may have moved first, and an ISR or a minimum have come then
            if max(followed.isr_size, len(partition.isr.committed)) < min(followed.min_isr, partition.min_isr):
                raise LawBroken("nothing is committed below min ISR (P3)", f"node {node.id}, {model}: {partition.isr}")
            model.commit(followed, high_watermark)
            self._changed[model] = None
        chain = followed.chain_at(high_watermark)
        if chain is not None and chain != model.chains.get(high_watermark, chain):
            raise LawBroken("logs are equal below the HW (P4)", f"node {node.id}, {model} at {high_watermark}")

    def _check_leader(self, node: NodeParts, partition: Partition, followed: FollowedLog) -> None:
        model, epoch = followed.model, partition.leader_epoch
        known = model.leaders.get(epoch)
        if known is None:
            model.leaders[epoch] = node.id, self._cluster.loop.time()
            self.elections += 1
        elif known[0] != node.id:
            raise LawBroken("one leader per leader epoch", f"{known[0]} and {node.id} lead {model} in epoch {epoch}")
        key = (node.id, node.life, model, epoch)
        before = self._high_watermarks.get(key, 0)
        if partition.high_watermark < before:
            raise LawBroken(
                "HW never falls at its leader (P9)", f"node {node.id}, {model}: {before} to {partition.high_watermark}"
            )
        self._high_watermarks[key] = partition.high_watermark

    def _check_in_sync(self, model: PartitionModel) -> None:
        """P1, P2: whoever may be elected holds, durably, all that is committed."""
        registration = model.registration
        if registration is None or model.is_deleted:
            return
        for member in (*registration.isr, *registration.elr):
            node = self._cluster.network.nodes[member]
            if not node.is_up or self._cluster.faults.wiped is node:
                continue
            partition = node.replicas.partition(TopicPartition(model.topic, model.number))
            if partition is None or partition.topic_id != model.topic_id:
                continue
            followed = self._followed.get((member, partition.topic_partition))
            if followed is None or followed.log is not partition.log:
                continue
            if partition.durable_end_offset < model.committed_end:
                raise LawBroken(
                    "every member of ISR and ELR holds all that is committed (P1)",
                    f"{model}: node {member} of ISR {registration.isr}, ELR {registration.elr} (leader "
                    f"{registration.leader}) holds up to {partition.durable_end_offset}, committed are {model.committed_end}",
                )
            if partition.log.log_start_offset < model.deleted_below:
                raise LawBroken(
                    "no member of ISR and ELR has what is answered as deleted (E13d)",
                    f"{model}: node {member} of ISR {registration.isr}, ELR {registration.elr} begins at "
                    f"{partition.log.log_start_offset}, deleted is before {model.deleted_below}",
                )
            chain = followed.chain_at(model.committed_end)
            if chain is not None and chain != model.chains[model.committed_end]:
                raise LawBroken(
                    "every member of ISR and ELR holds what is committed, byte for byte (P2)", f"{model}: node {member}"
                )

    def on_deleted(self, model: PartitionModel, log_start: int) -> None:
        """A leader has answered that what comes before is deleted."""
        model.deleted_below = max(model.deleted_below, log_start)
        self._changed[model] = None

    # -- what clients see ------------------------------------------------------------------------------------------

    def on_acknowledged(self, topic: str, number: int, offset: int, record_id: int) -> None:
        """E1 at once: what is acknowledged is committed, there and so."""
        if self._checks_mechanisms and not self._is_committed(topic, number, offset, record_id):
            raise LawBroken(
                "what is acknowledged is committed (E1)", f"record {record_id} at {offset} of {topic}-{number}"
            )

    def on_read(self, topic: str, number: int, offset: int, record_id: int) -> None:
        """P7 at once: what is read is committed, there and so."""
        if self._checks_mechanisms and not self._is_committed(topic, number, offset, record_id):
            raise LawBroken("what is read is committed (P7)", f"record {record_id} at {offset} of {topic}-{number}")

    def led_since(self, topic: str, number: int, epoch: Epoch) -> float:
        """When the leader of that epoch began, as far as is known (virtual seconds); infinite: it has not."""
        return next(
            (model.leaders[epoch][1] for model in self._named(topic, number) if epoch in model.leaders), math.inf
        )

    def _is_committed(self, topic: str, number: int, offset: int, record_id: int) -> bool:
        return any(model.committed.get(offset) == record_id for model in self._named(topic, number))

    def _named(self, topic: str, number: int) -> Iterator[PartitionModel]:
        """The models of all incarnations of a topic's partition."""
        return (model for model in self.models.values() if (model.topic, model.number) == (topic, number))

    # -- the end ---------------------------------------------------------------------------------------------------

    def led_where_it_failed(self) -> str | None:
        """Why brokers whose directories failed have not handed over yet what was in them, or None."""
        nodes = self._cluster.nodes
        down = [node.id for node in nodes if not node.is_up or node.is_leaving]
        if down:
            return f"nodes {down} are not up"
        newest = max((node.loader.image for node in nodes), key=lambda image: image.offset)
        for topic in newest.topics.sorted_topics():
            for number, registered in topic.partitions.items():
                name = TopicPartition(topic.name, number)
                failed = [node.id for node in nodes if self._has_failed(node, name)]
                if set(failed) & {registered.leader, *registered.isr}:
                    return f"{name} failed at {failed}: {registered}"
        return None

    def _has_failed(self, node: NodeParts, name: TopicPartition) -> bool:
        partition = node.replicas.partition(name)
        return partition is not None and partition.storage_error is not None

    def unsettled(self) -> str | None:
        """Why the calm cluster is not well yet, or None."""
        for node in self._cluster.nodes:
            if not node.is_up or node.is_leaving:  # its stop may wait seconds for a controller, then close its files
                return f"node {node.id} is not up"
        images = [node.loader.image for node in self._cluster.nodes]
        newest = max(images, key=lambda image: image.offset)
        fenced = [broker.id for broker in newest.cluster.sorted_brokers() if broker.is_fenced]
        if fenced:
            return f"brokers {fenced} are fenced"
        for node in self._cluster.nodes:
            known = newest.cluster.controllers.get(node.id)
            if known is None or known.incarnation_id != node.incarnation_id:
                return f"controller {node.id} is not registered as it is now: {known}"
        for client in self._cluster.clients:
            if not client.is_done:
                return f"a client of {client} is not answered"
            if client.is_kept and newest.topics.partition(TopicPartition(client.topic, client.partition)) is None:
                return f"nobody knows {client}"
        for node in self._cluster.nodes:
            strays = [
                str(name)
                for name in node.logs.logs
                if (registered := newest.topics.partition(name)) is None or node.id not in registered.replicas
            ]
            if strays:
                return f"node {node.id} holds {strays}, of which it is no replica"
        for topic in newest.topics.sorted_topics():
            for number, registered in topic.partitions.items():
                reason = self._unsettled_partition(TopicPartition(topic.name, number), topic.id, registered)
                if reason is not None:
                    return reason
        if self._cluster.transacting is not None and (reason := self._cluster.transacting.unsettled()) is not None:
            return reason
        return None if self._cluster.listening is None else self._cluster.listening.unsettled()

    def _unsettled_partition(
        self, name: TopicPartition, topic_id: Uuid, registered: PartitionRegistration
    ) -> str | None:
        is_whole = registered.has_leader and len(registered.isr) == len(registered.replicas) and not registered.faults
        if not is_whole or is_reassigning(registered):
            return f"{name}: {registered}"
        if not self._is_sound(name, registered):
            return f"{name} is damaged somewhere, or taken for damaged: {registered}"
        ends = set()
        owed = self._cluster.operators.owed_settings.get(topic_id)
        for node in self._cluster.nodes:
            if node.id not in registered.replicas:
                left = [path for path in node.directory_ids if node.disk.exists(f"{path}/{name}")]
                if left:
                    return f"node {node.id} has {left}, and is no replica of it any more: {registered}"
                continue
            partition = node.replicas.partition(name)
            if partition is None or partition.topic_id != topic_id:
                return f"node {node.id} does not hold {name}"
            allowed = partition.log.config.max_message_bytes
            if owed is not None and allowed not in owed:
                return f"{name} on node {node.id} allows {allowed} bytes, set were {sorted(owed)}"
            ends |= {partition.log.log_end_offset, partition.high_watermark}
        return f"the ends and high watermarks of {name} differ: {sorted(ends)}" if len(ends) != 1 else None

    def _is_sound(self, name: TopicPartition, registered: PartitionRegistration) -> bool:
        """Whether no bit is flipped above the log start of any replica, and no broker believes that one is."""
        for replica in registered.replicas:
            node = self._cluster.network.nodes[replica]
            partition = node.replicas.partition(name)
            if partition is None:
                continue
            if any(damage.end_offset > partition.log.log_start_offset for damage in partition.log.damage):
                return False
            for header, data in _kept_batches(node, partition):
                if header != read_header(data) or not crc_is_valid(data, 0, header):
                    return False
        return all(fault is ReplicaFault.NO_ROOM for _, fault in registered.faults)

    def judge_histories(self) -> None:
        """At the end: every producer's history is clean, every reader saw what is there, replicas are equal. What retention
        may have taken is not asked for here."""
        self.check()
        for topic in self._newest_image().topics.sorted_topics():
            for number, registered in topic.partitions.items():
                owed = self._cluster.operators.owed.get((topic.id, number))
                if owed is not None and registered.replicas not in owed:
                    raise LawBroken(
                        "a move ends with the replicas that were asked for (C10)",
                        f"{topic.name}-{number}: {registered}, asked for were {sorted(owed)}",
                    )
        if self._cluster.transacting is not None:
            self._cluster.transacting.judge()
        for client in self._cluster.clients:
            if isinstance(client, CompactingClient) and client.is_made:
                self._judge_compacted(client)
            if not client.is_kept:
                continue
            start, at = self._final_log(client)
            begins = self._final_log_start(client)
            if begins < self._model_of(client).deleted_below:
                raise LawBroken("what is answered as deleted stays so (E13d)", f"{client} begins at {begins}")
            shape = self._cluster.swarm.logs
            is_kept_for_ever = shape.kept_bytes < 0 and shape.topic_retention_ms is None
            if is_kept_for_ever and start > self._model_of(client).let_go_below:
                raise LawBroken(
                    "a topic keeps for ever what its configuration says (L1)", f"{client} begins at {start}"
                )
            for producer in client.producers:
                self._judge(producer, client, start, at)
            changed = [o for o, record_id in client.seen.items() if o >= start and at.get(o) != record_id]
            if changed:
                raise LawBroken("what was read never changes (P7)", f"offsets {changed[:10]} of {client}")

    def _judge_compacted(self, client: CompactingClient) -> None:
        """Each replica for itself, and all by each other: they may differ in bytes, not in what they say."""
        name = TopicPartition(client.topic, client.partition)
        registered = self._newest_image().topics.partition(name)
        assert registered is not None, "it stays once it is made"
        nodes = self._cluster.network.nodes
        said = {
            replica: client.judge(replica, self._read_out(nodes[replica], name)[1]) for replica in registered.replicas
        }
        if any(last != said[registered.leader] for last in said.values()):
            raise LawBroken("replicas of a compacted topic say the same in the end", f"{said}")
        self._cluster.figures.compactions += sum(node.logs.cleaner.stats.runs for node in self._cluster.nodes)

    def registration(self, client: Client) -> PartitionRegistration | None:
        """The registration of a client's partition in the newest image; None where it is not there."""
        return self._newest_image().topics.partition(TopicPartition(client.topic, client.partition))

    def _model_of(self, client: Client) -> PartitionModel:
        topic = self._newest_image().topics.get(client.topic)
        assert topic is not None, "unsettled() has looked"
        return self.model(topic.name, topic.id, client.partition)

    def _final_log(self, client: Client) -> tuple[int, dict[int, int]]:
        """Where all replicas have begun, and offset -> id from there on."""
        name = TopicPartition(client.topic, client.partition)
        registered = self._newest_image().topics.partition(name)
        assert registered is not None, "unsettled() has looked"
        found = [self._read_out(self._cluster.network.nodes[replica], name) for replica in registered.replicas]
        start = max(begin for begin, _ in found)
        contents = [[batch for batch in batches if batch[0] >= start] for _, batches in found]
        if any(content != contents[0] for content in contents):
            raise LawBroken("replicas are equal in the end (E16)", f"{client}")
        return start, dict(ids_of(b"".join(data for _, data in contents[0])))

    def _final_log_start(self, client: Client) -> int:
        """The first offset that the leader serves."""
        registered = self.registration(client)
        assert registered is not None, "unsettled() has looked"
        partition = self._cluster.network.nodes[registered.leader].replicas.partition(
            TopicPartition(client.topic, client.partition)
        )
        assert partition is not None, "unsettled() has looked"
        return partition.log.log_start_offset

    def _read_out(self, node: NodeParts, name: TopicPartition) -> tuple[int, list[tuple[int, bytes]]]:
        """(first offset, [(base offset, batch)]) of a replica, from the batch that holds its log start: what lies
        before is not read, and so not repaired."""
        partition = node.replicas.partition(name)
        assert partition is not None, "unsettled() has looked"
        batches = [(int(header.base_offset), data) for header, data in _kept_batches(node, partition)]
        return batches[0][0] if batches else partition.log.log_start_offset, batches

    def _judge(self, producer: Producer, client: Client, start: int, at: dict[int, int]) -> None:
        verdict = judge(
            sent=range(producer.first_id, producer.next_id),
            acknowledged={i: place for i, place in producer.acknowledged.items() if place.offset >= start},
            log={(client.topic, client.partition): [item for item in at.items() if producer.owns(item[1])]},
        )
        if not verdict.is_clean:
            raise LawBroken("acknowledged records are kept, once, in place (P6, E1)", f"{verdict} {verdict!r}"[:600])


def minimum_of(image: MetadataImage, topic: str) -> int:
    """min.insync.replicas of a topic."""
    return int(image.configs.topic(topic).get(MINIMUM, MIN_INSYNC_REPLICAS))


def _kept_batches(node: NodeParts, partition: Partition) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch from the one of the log start on: its header as it was written, and its bytes as they are read now. A batch that is
    let go of may say, rotten, that it reaches beyond the log start."""
    for segment in partition.log.segments:
        data = segment.file.read(0, segment.file.size_bytes)
        with node.disk.judged():
            written = segment.file.read(0, segment.file.size_bytes)
        for position, header in iterate_batches(written):
            if header.next_offset > partition.log.log_start_offset:
                yield header, data[position : position + header.size_bytes]
