"""What must hold in a quorum of real controllers: after every turn, at every image, and at the end.

May touch:  the state of the simulated controllers, read only.   Must not touch: anything it judges.
Invariants: none of its own.
Read next:  controllers.py; raft_invariants.py, the laws of the core alone.

Outcome laws, which a client or an operator could see
  R1   one leader per epoch
  R4   the high watermark of a node never falls within one life
  R11  the committed voter set is the same wherever the same offset is committed
  R13  a node that comes back has what it needs: its log opens, its snapshots load (whatever the code raises there)
  R17  after everything healed there is one active controller, all nodes have its image, and it takes new work
  C1   nodes with equal applied offset have equal image hashes, snapshots or not (with C2: a snapshot holds the whole image)
  C3   the partition epoch that an accepted AlterPartition names is the present one, and rises by one with each change; one
       leader in each leader epoch
  C4   the leader is in the ISR, the ISR among the replicas; a fenced broker leads nothing; a faulty replica leads, and is in the
       ISR, only for want of a whole one, and a corrupt one is not eligible
  C6   no acknowledged operation is ever absent later: topics, deletions, configs, ISRs, registrations, faults of replicas
  C7   broker epochs rise; who speaks with an older one is refused
  C8   producer id blocks are disjoint
  C9   no image shows a part of a metadata transaction: a topic has all its partitions at once
  C11  a topic id never comes back after its deletion, and names one topic
  C12  no answer is an internal error: what a controller decides fits the image that it decides from
Mechanism law, which falls long before anybody could see the harm
  R3   the epoch and the vote that a reply tells are on the disk
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.messages import HardState, VoteReply
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from barnabas_quorum.records import ReplicaFault
from barnabas_simulation.partition_model import LawBroken
from barnabas_wire.kafka.ids import BrokerId, Epoch, Offset, Uuid

if TYPE_CHECKING:
    from barnabas_quorum.image.partition import PartitionRegistration
    from tests.simulation.controller_node import ControllerNode
    from tests.simulation.controllers import Quorum


class ControllerLaws:
    """Remembers what later states must not contradict."""

    def __init__(self, quorum: Quorum, *, checks_mechanisms: bool) -> None:
        self._run = quorum
        self._checks_mechanisms = checks_mechanisms
        self._leaders: dict[int, BrokerId] = {}
        self._high_watermarks: dict[tuple[BrokerId, int], int] = {}
        self._hashes: dict[tuple[int, int], bytes] = {}
        self._epochs: dict[tuple[int, bool], int] = {}
        self._voter_sets: dict[bool, dict[int, VoterSet]] = {False: {}, True: {}}
        """Of the quorum before it was recovered, and of the recovered one."""
        self._seen_sets: dict[tuple[BrokerId, int], tuple[int, int]] = {}
        self._topic_names: dict[Uuid, str] = {}
        self._partition_epochs: dict[tuple[Uuid, int, int], bytes] = {}
        self._leaders_of_partitions: dict[tuple[Uuid, int, int], BrokerId] = {}
        self._broker_epochs: dict[tuple[int, bool], dict[Uuid, int]] = {}
        self._promised: dict[ReplicaKey, tuple[Epoch, ReplicaKey | None]] = {}
        """Epoch and vote that each replica has last answered with."""
        self._producer_blocks: list[tuple[int, int]] = []
        """(first id, one past the last) of every block that was handed out, in order."""
        self.newest: MetadataImage = MetadataImage.EMPTY
        """The image with the highest offset that any node has published."""

    @property
    def epochs_led(self) -> int:
        """How many epochs had a leader."""
        return len(self._leaders)

    def check(self) -> None:
        """After every turn of the loop."""
        recovery = self._run.recovery
        for node in self._run.nodes:
            if not node.is_up:
                continue
            if recovery is not None:
                recovery.check(node)
            leader = node.quorum.leader_and_epoch
            if leader.leader_id is not None:
                known = self._leaders.setdefault(leader.epoch, leader.leader_id)
                if known != leader.leader_id:
                    raise LawBroken("R1 one leader per epoch", f"{known} and {leader.leader_id} in {leader.epoch}")
            key = (node.id, node.life)
            now = node.quorum.high_watermark
            before = self._high_watermarks.get(key, 0)
            if now != before:
                if now < before:
                    raise LawBroken("R4 the high watermark never falls", f"node {node.id}: {before} to {now}")
                self._high_watermarks[key] = now
                self._check_voters(node, now)

    def on_opened(self, node: ControllerNode, state: HardState) -> None:
        """R2, R3: a start reads the epoch and the vote with which the replica has answered. (A quorum that is recovered begins in
        an epoch of its own, and who rejoins it begins anew.)"""
        epoch, voted = self._promised.get(node.member.key, (state.epoch, None))
        if (
            self._checks_mechanisms
            and self._run.recovery is None
            and (state.epoch < epoch or (state.epoch == epoch and voted not in (None, state.voted)))
        ):
            raise LawBroken(
                "R2 epoch and vote outlive a restart", f"node {node.id} reads {state}, it said {epoch}, {voted}"
            )

    def on_quorum_reply(self, node: ControllerNode, reply: Any) -> None:
        """R1, R3, of what a replica is about to say."""
        if not self._checks_mechanisms or not node.is_up:
            return
        saved = node.quorum._log.hard_state
        is_vote = isinstance(reply, VoteReply) and reply.is_granted and not reply.is_pre_vote
        if self._run.recovery is None:
            key = node.member.key  # another once its disk is replaced
            epoch, voted = self._promised.get(key, (reply.epoch, None))
            if reply.epoch < epoch:
                raise LawBroken(
                    "R2 the epoch of a replica never falls, over a restart neither", f"{reply} after {epoch}"
                )
            if reply.epoch > epoch:
                voted = None
            if is_vote and voted not in (None, reply.target):
                raise LawBroken("R1 a replica votes once in an epoch, over a restart too", f"{reply} after {voted}")
            self._promised[key] = (max(epoch, reply.epoch), reply.target if is_vote else voted)
        if saved.epoch < reply.epoch or (is_vote and saved.epoch == reply.epoch and saved.voted != reply.target):
            raise LawBroken("R3 epochs and votes are on the disk before they are told", f"{reply} with {saved}")

    def _check_voters(self, node: ControllerNode, high_watermark: int) -> None:
        """R11. An entry stands at the offset of its record; a snapshot's set stands before the snapshot's end."""
        core = node.quorum._core  # the driver tells no history: nobody but a judge needs one
        entries = core.voter_history.entries()
        key = (node.id, node.life)
        seen = (len(entries), entries[-1][0])
        if self._seen_sets.get(key) == seen and entries[-1][0] < high_watermark - 1:
            return
        self._seen_sets[key] = seen
        mine_at, mine = next((entry for entry in reversed(entries) if entry[0] < high_watermark), entries[0])
        ends = {each.end_offset - 1 for each in core.snapshots}
        is_recovered = self._is_recovered(core.history.epoch_before(Offset(high_watermark)))
        if is_recovered and self._run.recovery is not None and mine_at < self._run.recovery.begins_at:
            return
        known = self._voter_sets[is_recovered]
        if mine_at >= 0 and mine_at not in ends:
            known.setdefault(mine_at, mine)
        theirs_at = max((offset for offset in known if offset < high_watermark), default=-1)
        if theirs_at < 0 or known[theirs_at] == mine:
            return
        if mine_at > theirs_at and len(set(mine.keys) ^ set(known[theirs_at].keys)) <= 1:
            # Whoever committed the record crashed before a look at it, and only its snapshot tells: that binds the others.
            known[mine_at] = mine
        else:
            raise LawBroken(
                "R11 one committed voter set",
                f"node {node.id} has {mine} of offset {mine_at} below {high_watermark}, others {known[theirs_at]} "
                f"of offset {theirs_at}",
            )

    # -- images ----------------------------------------------------------------------------------------------------

    def on_image(self, node: ControllerNode, image: MetadataImage) -> None:
        """A node has published one."""
        recovery = self._run.recovery
        is_recovered = self._is_recovered(image.epoch)
        is_uncertain = recovery is not None and recovery.is_uncertain(node, image)
        known = self._hashes.setdefault((image.offset, image.epoch), image.content_hash())
        if known != image.content_hash() or (
            not is_uncertain and self._epochs.setdefault((image.offset, is_recovered), image.epoch) != image.epoch
        ):
            raise LawBroken(
                "C1 equal images at equal offset", f"node {node.id} at offset {image.offset} of epoch {image.epoch}"
            )
        for topic in image.topics.sorted_topics():
            if self._topic_names.setdefault(topic.id, topic.name) != topic.name:
                raise LawBroken("C11 a topic id names one topic", f"{topic.id}: {topic.name}")
            for index, partition in topic.partitions.items():
                if partition.has_leader and partition.leader not in partition.isr:
                    raise LawBroken("C4 the leader is in the ISR", f"{topic.name}-{index}: {partition}")
                if not set(partition.isr) <= set(partition.replicas):
                    raise LawBroken("C4 the ISR is among the replicas", f"{topic.name}-{index}: {partition}")
                leader = image.cluster.broker(partition.leader) if partition.has_leader else None
                if partition.has_leader and (leader is None or leader.is_fenced):
                    raise LawBroken("C4 a fenced broker leads nothing", f"{topic.name}-{index}: {partition}")
                self._judge_faults(f"{topic.name}-{index}", partition, image)
                if is_uncertain:
                    continue
                at = (topic.id, index, partition.leader_epoch)
                if self._leaders_of_partitions.setdefault(at, partition.leader) != partition.leader:
                    raise LawBroken("C3 one leader per leader epoch", f"{topic.name}-{index}: {partition}")
                key = (topic.id, index, partition.partition_epoch)
                state = repr((partition.isr, partition.leader, partition.leader_epoch, partition.faults)).encode()
                if self._partition_epochs.setdefault(key, state) != state:
                    raise LawBroken("C3 one state per partition epoch", f"{topic.name}-{index}: {partition}")
        for broker in image.cluster.sorted_brokers():
            epochs = self._broker_epochs.setdefault((broker.id, is_recovered), {})
            if epochs.setdefault(broker.incarnation_id, broker.epoch) != broker.epoch:
                raise LawBroken("C7 one epoch per life of a broker", f"{broker}")
        if is_recovered or recovery is None or recovery.plan is None:
            for asker in self._run.askers:
                asker.judge(image, where=f"node {node.id} at offset {image.offset}")
        if (image.epoch, image.offset) > (self.newest.epoch, self.newest.offset):
            self.newest = image

    def _judge_faults(self, name: str, partition: PartitionRegistration, image: MetadataImage) -> None:
        """C4 for faulty replicas: they lead, and are in the ISR, only for want of a whole one."""
        faults = dict(partition.faults)
        whole = [member for member in partition.isr if member not in faults and image.cluster.is_active(member)]
        if partition.leader in faults and whole:
            raise LawBroken("C4 a faulty replica leads only where no whole one may", f"{name}: {partition}")
        if any(member in faults and member != partition.leader for member in partition.isr):
            raise LawBroken("C4 of the faulty only a leader is in the ISR", f"{name}: {partition}")
        if any(faults.get(member) is ReplicaFault.CORRUPT for member in partition.elr):
            raise LawBroken("C4 a corrupt replica is not eligible", f"{name}: {partition}")
        if not set(faults) <= set(partition.replicas):
            raise LawBroken("C4 only replicas are faulty", f"{name}: {partition}")

    def _is_recovered(self, epoch: int) -> bool:
        """Whether a record of this epoch is of a recovered quorum."""
        recovery = self._run.recovery
        return recovery is not None and recovery.plan is not None and epoch >= recovery.first_epoch

    def on_producer_ids(self, first: int, count: int) -> None:
        """C8. A block was handed out: none of its ids may be in another."""
        blocks, end = self._producer_blocks, first + count
        at = bisect_left(blocks, (first, end))
        if any(other[0] < end and first < other[1] for other in blocks[max(0, at - 1) : at + 1]):
            raise LawBroken("C8 producer id blocks are disjoint", f"{first} to {end} overlaps one of {blocks}")
        blocks.insert(at, (first, end))

    # -- the end ---------------------------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Why the quorum has not come back to order yet; None when it has."""
        nodes = self._run.nodes
        down = [node.id for node in nodes if not node.is_up]
        if down:
            return f"nodes {down} are down"
        recovery = self._run.recovery
        if recovery is not None and (apart := [node.id for node in nodes if not recovery.is_followed_by(node)]):
            return f"nodes {apart} do not follow the recovered quorum"
        active = [node for node in nodes if node.driver.is_active]
        if len(active) != 1:
            return f"{len(active)} controllers are active"
        leader = active[0]
        if leader.quorum.leader_and_epoch.epoch != max(node.quorum.leader_and_epoch.epoch for node in nodes):
            return "a node knows of a later epoch"
        busy = [asker.number for asker in self._run.askers if not asker.is_done]
        if busy:
            return f"operations of askers {busy} get no answer"
        # the leader goes on writing no-ops, so equal offsets are a matter of luck: near is enough
        lag = max(leader.loader.image.offset - node.loader.image.offset for node in nodes)
        if lag > 4 or leader.loader.image.offset < self.newest.offset:
            return f"images lag by {lag} records behind {leader.loader.image.offset}"
        if leader.loader.is_in_transaction:
            return "a metadata transaction stays open"
        return None

    def at_end(self) -> None:
        """C6 once more, on every node."""
        for node in self._run.nodes:
            for asker in self._run.askers:
                asker.judge(node.loader.image, where=f"node {node.id} at the end")
