"""Looks at what every node believes after every turn of a run, and writes down what has changed, and why the laws held.

May touch:  the nodes, read only.     Must not touch: anything that it looks at, the run's generator.
Invariants: looking changes no run; the same run gives the same steps.
Read next:  reasons.py, the sentences; barnabas_wire/run_journal.py, the format; scripted.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.image.partition import PartitionRegistration
from barnabas_simulation import reasons
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.reasons import Reason, numbers, records
from barnabas_simulation.run import Run
from barnabas_simulation.workload import Client
from barnabas_wire.kafka.ids import TopicPartition
from barnabas_wire.run_journal import STEPS_MAX, Belief, Step

NOBODY = -1


class Watch:
    """The steps of one run."""

    def __init__(self, run: Run, client: Client, *, min_insync: int) -> None:
        self.steps: list[Step] = []
        self._run = run
        self._client = client
        self._partition = TopicPartition(client.topic, client.partition)
        self._min_insync = min_insync
        self._beliefs: dict[int, Belief] = {node.id: nothing(node.id, node.life) for node in run.nodes}
        self._flushed: dict[int, int] = dict.fromkeys(self._beliefs, NOBODY)
        """What each node had on its disk of the partition when it was last up."""
        self._votes: dict[int, dict[int, int]] = {}
        """By epoch and voter: for whom."""
        self._image = MetadataImage.EMPTY
        self._registration: PartitionRegistration | None = None
        self._known_fenced: set[int] = set()
        self._seen: dict[int, tuple[tuple[Any, ...], MetadataImage]] = {}
        """What each node's belief was made of."""
        self._acknowledged = 0
        self._known_roles: set[tuple[int, int, str]] = set()
        """A voter that is cut off asks, gives it up and asks again: each is reported once in an incarnation."""
        self._lives: Mapping[int, int] = {}
        """Broker epochs at the last look."""
        self._served: Collection[int] = ()
        """Brokers that were not fenced at the last look."""

    def note(self, kind: str, node: int, what: str, reason: Reason) -> None:
        """Something has just happened: write it down with what everybody believes."""
        assert len(self.steps) < STEPS_MAX, "scenarios are short"
        self.steps.append(
            Step(
                step=len(self.steps) + 1,
                at_ms=round(self._run.loop.time() * 1000),
                kind=kind,
                node=node,
                what=what,
                law=reason.law,
                why=reason.why,
                cut=self._cut_links(),
                beliefs=tuple(self._beliefs.values()),
            )
        )

    def look(self) -> None:
        """Write down what has changed since the last look."""
        before, self._beliefs = self._beliefs, {node.id: self._belief(node) for node in self._run.nodes}
        if before != self._beliefs:
            for node_id, now in self._beliefs.items():
                if now != before[node_id]:
                    self._compare_quorum(before[node_id], now)
            self._compare_image()
            for node_id, now in self._beliefs.items():
                if now != before[node_id]:
                    self._compare_replica(before[node_id], now)
        self._compare_client()

    def look_away(self, node: NodeParts) -> None:
        """The node has just gone: it believes nothing more."""
        self._seen.pop(node.id, None)
        self._beliefs[node.id] = nothing(node.id, node.life)

    def on_new_disk(self, node: NodeParts) -> None:
        """What the node had on its disk is lost for good."""
        self._flushed[node.id] = NOBODY

    def forget(self, offset: int) -> None:
        """The quorum begins again from a log that ends there: what was decided behind it was never decided."""
        if self._image.offset >= offset:
            self._image = MetadataImage.EMPTY

    # -- beliefs ---------------------------------------------------------------------------------------------------

    def _belief(self, node: NodeParts) -> Belief:
        if not node.is_up:
            self._seen.pop(node.id, None)
            return nothing(node.id, node.life)
        own = node.quorum.describe_own()
        image = node.loader.image
        partition = node.replicas.partition(self._partition)
        seen: tuple[Any, ...] = (node.life, own, partition is None)
        if partition is not None:
            seen += (
                partition.is_leader,
                partition.leader_epoch,
                partition.log.log_end_offset,
                partition.durable_end_offset,
                partition.high_watermark,
                partition.isr,
                partition.log.damage,
            )
        # most turns change nothing at most nodes, and these few things say so
        before, before_image = self._seen.get(node.id, ((), None))
        if before_image is image and before == seen:
            return self._beliefs[node.id]
        self._seen[node.id] = seen, image
        registration = image.topics.partition(self._partition)
        role = own.role
        if own.key not in own.voters and role in ("follower", "unattached"):
            role = "observer"
        found = Belief(
            node=node.id,
            is_up=True,
            life=node.life,
            role=role,
            epoch=own.epoch,
            leader=own.leader_id,
            voted=own.voted_id,
            voters=tuple(sorted(key.id for key in own.voters.keys)),
            metadata_end=own.log_end_offset,
            metadata_committed=own.high_watermark,
            fenced=tuple(sorted(broker.id for broker in image.cluster.brokers.values() if broker.is_fenced)),
            partition_role="none",
            leader_epoch=NOBODY if registration is None else registration.leader_epoch,
            partition_leader=NOBODY if registration is None else registration.leader,
            log_end=NOBODY,
            flushed_end=NOBODY,
            high_watermark=NOBODY,
            isr=() if registration is None else tuple(sorted(registration.isr)),
            is_damaged=False,
        )
        if partition is None or partition.leader_epoch < 0:
            return found
        return replace(
            found,
            partition_role="leader" if partition.is_leader else "follower",
            leader_epoch=partition.leader_epoch,
            log_end=partition.log.log_end_offset,
            flushed_end=partition.durable_end_offset,
            high_watermark=partition.high_watermark,
            isr=tuple(sorted(partition.isr.committed)) if partition.is_leader else found.isr,
            is_damaged=bool(partition.log.damage),
        )

    def _cut_links(self) -> tuple[tuple[int, int], ...]:
        network = self._run.network
        return tuple(sorted((*network.cut_links, *network.unheard)))

    def _flushed_of(self, members: Collection[int]) -> dict[int, int]:
        """The flushed end, by broker, of those that are up and hold a replica."""
        return {
            member: found.flushed_end
            for member in sorted(members)
            if (found := self._beliefs.get(member)) is not None and found.flushed_end >= 0
        }

    @property
    def _committed(self) -> int:
        return max((model.committed_end for model in self._run.invariants.models.values()), default=0)

    # -- what has changed ------------------------------------------------------------------------------------------

    def _compare_quorum(self, before: Belief, now: Belief) -> None:
        name = f"Node {now.node}"
        if not now.is_up:
            return  # whoever did it has noted it
        if not before.is_up:
            self.note("role", now.node, f"{name} is up", reasons.begun(now, self._flushed[now.node]))
        self._flushed[now.node] = now.flushed_end
        if now.role == "candidate" and before.role != "candidate":
            self._tell_role(before, now)
        if now.voted >= 0 and (now.voted, now.epoch) != (before.voted, before.epoch):
            votes = self._votes.setdefault(now.epoch, {})
            if votes.get(now.node) != now.voted:
                votes[now.node] = now.voted
                whom = "itself" if now.voted == now.node else f"node {now.voted}"
                candidate = self._beliefs.get(now.voted)
                reason = reasons.vote(now, candidate if candidate and candidate.is_up else None, votes)
                self.note("vote", now.node, f"{name} votes for {whom} in epoch {now.epoch}", reason)
        if before.is_up and now.voters != before.voters and now.role == "leader":
            what = f"{name} changes the voters from {numbers(before.voters)} to {numbers(now.voters)}"
            self.note("voters", now.node, what, reasons.voters(now, before.voters))
        if now.role == "leader" and (before.role != "leader" or now.epoch != before.epoch):
            reason = reasons.elected(now, self._votes.get(now.epoch, {}))
            self.note("elected", now.node, f"{name} leads the quorum in epoch {now.epoch}", reason)
        elif now.role != before.role or (now.role in ("follower", "observer") and now.leader != before.leader):
            self._tell_role(before, now)

    def _tell_role(self, before: Belief, now: Belief) -> None:
        what = _role_words(before, now)
        if what and (now.node, now.life, what) not in self._known_roles:
            self._known_roles.add((now.node, now.life, what))
            self.note("role", now.node, f"Node {now.node} {what}", reasons.role(before, now))

    def _compare_image(self) -> None:
        """What the quorum has decided, when the first node knows."""
        up = [node for node in self._run.nodes if node.is_up]
        if not up:
            return
        newest = max((node.loader.image for node in up), key=lambda image: image.offset)
        if newest.offset <= self._image.offset:
            return
        self._image = newest
        registration = newest.topics.partition(self._partition)
        fenced = {int(broker.id) for broker in newest.cluster.brokers.values() if broker.is_fenced}
        lives = {int(broker.id): broker.epoch for broker in newest.cluster.brokers.values()}
        serving = {int(broker.id) for broker in newest.cluster.brokers.values()} - fenced
        for broker in sorted(fenced - self._known_fenced):
            # a broker that has just registered is fenced too, until it has caught up
            if broker in self._served:
                led_by = NOBODY if registration is None else registration.leader
                reason = reasons.fence(
                    broker,
                    silent_ms=self._silent_ms(broker),
                    led_by=led_by,
                    is_reborn=lives[broker] != self._lives.get(broker),
                )
                self.note("fence", broker, f"The controller fences broker {broker}", reason)
        self._compare_registration(registration)
        for broker in sorted(serving & self._known_fenced):
            self.note("unfence", broker, f"The controller lets broker {broker} serve", reasons.UNFENCED)
        self._known_fenced, self._lives = fenced, lives
        self._served = serving

    def _silent_ms(self, broker: int) -> int:
        """How long, in ms, the active controller has heard nothing of a broker."""
        run = self._run
        for node in run.nodes:
            if node.is_up and node.driver.is_active:
                for (controller, life, known), (heard_s, _, _) in run.network.heard.items():
                    if (controller, life, known) == (node.id, node.life, broker):
                        return round((run.loop.time() - heard_s) * 1000)
        return NOBODY

    def _compare_registration(self, now: PartitionRegistration | None) -> None:
        before, self._registration = self._registration, now
        if now is None or now is before:
            return
        name = self._partition
        flushed, committed = self._flushed_of(now.replicas), self._committed
        if before is None or now.leader != before.leader or now.leader_epoch != before.leader_epoch:
            reason = reasons.CREATED
            if before is not None:
                reason = reasons.leader(
                    now.leader,
                    {*before.isr, *before.elr},
                    now.leader_epoch,
                    flushed=flushed.get(now.leader, NOBODY),
                    committed=committed,
                )
            whom = "Nobody leads" if now.leader < 0 else f"The controller makes node {now.leader} lead"
            if before is not None and now.leader == before.leader:
                whom = f"Node {now.leader} is still to lead"
            self.note("leader", max(now.leader, 0), f"{whom} {name}, in leader epoch {now.leader_epoch}", reason)
        if before is None or set(now.isr) == set(before.isr):
            return
        left, joined = set(before.isr) - set(now.isr), set(now.isr) - set(before.isr)
        what = f"The in-sync set goes from {numbers(before.isr)} to {numbers(now.isr)}"
        if left:
            reason = reasons.isr_shrunk(
                left,
                now.isr,
                down=[each for each in now.isr if not self._beliefs[each].is_up],
                committed=committed,
                min_insync=self._min_insync,
            )
        else:
            reason = reasons.isr_grown(joined, flushed, committed=committed)
        self.note("isr", min(left or joined), what, reason)

    def _compare_replica(self, before: Belief, now: Belief) -> None:
        if not (before.is_up and now.is_up):
            return
        name = f"Node {now.node}"
        if now.is_damaged != before.is_damaged:
            others = {each for each in now.isr if each != now.node}
            what = "finds rotten bytes in its replica" if now.is_damaged else "has got the sound bytes"
            reason = reasons.damaged(now, others) if now.is_damaged else reasons.REPAIRED
            self.note("damage", now.node, f"{name} {what}", reason)
        if before.partition_role == "leader" and now.partition_role == "follower":
            reason = reasons.deposed(now, self._committed)
            what = f"{name} learns that node {now.partition_leader} leads {self._partition}, in leader epoch {now.leader_epoch}"
            self.note("role", now.node, what, reason)
        if before.partition_role != "none" and now.log_end < before.log_end:
            what = f"{name} drops {records(now.log_end, before.log_end)}"
            self.note("append", now.node, what, reasons.cut(now, self._committed))
        elif now.log_end > max(before.log_end, 0):
            written = records(max(before.log_end, 0), now.log_end)
            if now.partition_role == "leader":
                self.note("append", now.node, f"{name} writes {written}", reasons.appended(now, now.isr))
            else:
                self.note("append", now.node, f"{name} copies {written}", reasons.copied(now))
        if now.high_watermark > max(before.high_watermark, 0):
            if now.partition_role == "leader":
                reason = reasons.committed_by_leader(now, self._flushed_of(now.isr), self._min_insync)
                self.note("committed", now.node, f"{name} commits up to {now.high_watermark}", reason)
            else:
                reason = reasons.committed_by_follower(now, self._committed)
                self.note("committed", now.node, f"{name} hears that {now.high_watermark} are committed", reason)

    def _compare_client(self) -> None:
        acknowledged = sum(len(producer.acknowledged) for producer in self._client.producers)
        if acknowledged == self._acknowledged:
            return
        places = [place for producer in self._client.producers for place in producer.acknowledged.values()]
        offsets = sorted(place.offset for place in places[self._acknowledged :])
        self._acknowledged = acknowledged
        isr: Mapping[int, int] = self._flushed_of(() if self._registration is None else self._registration.isr)
        reason = reasons.acknowledged(offsets[-1] + 1, isr, self._committed)
        what = f"The client learns that {records(offsets[0], offsets[-1] + 1)} are kept"
        self.note("acknowledged", 0, what.replace(" are kept", " is kept") if len(offsets) == 1 else what, reason)


def nothing(node: int, life: int) -> Belief:
    """What a node believes that is down."""
    return Belief(
        node=node,
        is_up=False,
        life=life,
        role="none",
        epoch=NOBODY,
        leader=NOBODY,
        voted=NOBODY,
        voters=(),
        metadata_end=NOBODY,
        metadata_committed=NOBODY,
        fenced=(),
        partition_role="none",
        leader_epoch=NOBODY,
        partition_leader=NOBODY,
        log_end=NOBODY,
        flushed_end=NOBODY,
        high_watermark=NOBODY,
        isr=(),
        is_damaged=False,
    )


def _role_words(before: Belief, now: Belief) -> str:
    """What of a new role is worth a step; nothing of one that says no more than the step before."""
    match now.role:
        case "prospective":
            lost = f"hears node {before.leader} no more and asks" if before.leader >= 0 else "asks"
            return f"{lost} whether others would vote for it"
        case "candidate":
            return f"runs for election in epoch {now.epoch}"
        case "resigned" if not before.is_up:
            return f"leads epoch {now.epoch} of the quorum no more: it had led it before it went down"
        case "resigned":
            return f"gives up leading the quorum in epoch {now.epoch}"
        case "follower" | "observer" if now.leader >= 0:
            return f"follows node {now.leader} in epoch {now.epoch}"
        case "unattached" if before.role == "leader":
            return f"leads the quorum no more, for epoch {now.epoch} has begun"
        case _:
            return ""
