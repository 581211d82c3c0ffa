"""What members of a group may expect of its coordinators, judged by what they are answered: one owner, epochs, committed offsets.

May touch:  which epoch each broker's replica of the group's log is in, and whether the group has members.   Must not touch: anything else.
Invariants: no member is accused for what KIP-848 lets happen: a member is protected only from when a request left that
            was answered, for as long as any coordinator since must wait for it.
Read next:  group_members.py, who are judged. The numbers are those of the group laws: 2, 5, 16 to 18, 28 to 30, 36.

A member has what an answer assigned to it, until it sent a request that said that it does not, or it was told that it
is out. It does not know when its session ends; these laws do. What makes a protection shorter than it seems:
- A coordinator that is deposed and does not know answers on, for a heartbeat that changes nothing writes nothing. So it counts only
  until the next one led; that one has given every member a fresh session.
- A static member that left for a while is not there to protect anything: its partitions and its instance id wait for it all the same.
- A request without an answer may arrive later, or may have arrived, and says that the member has no more than it had then. An epoch
  that is the former one lets it in (KIP-848), so what came to the member after it is not protected.
"""

from __future__ import annotations

from dataclasses import field

from barnabas_coordination.group.any_group import AnyGroup
from barnabas_coordination.group.service import OFFSETS_TOPIC
from barnabas_coordination.runtime import ShardState
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import LawBroken
from barnabas_simulation.run import Run
from barnabas_wire.kafka.ids import BrokerId, TopicPartition, Uuid
from barnabas_wire.lazy_dataclass import dataclass

GROUP = "members"
SESSION_S = 1.5
REBALANCE_S = 1.0
"""Within which a member gives up what it must."""
UNDER_WAY_S = 1.5
"""The time within which a request without an answer arrives, if it does."""
OWNER = "a partition has one owner"
EPOCHS = "epochs of a member never fall"
FENCED = "no commit counts of who has lost the partition"
KEPT = "a committed offset stays committed"
INSTANCE = "an instance id has one owner"
PROCESS = "a process has a task once"
RETURNS = "what a static member left it finds again"
Part = tuple[Uuid, int]
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


@dataclass(slots=True, eq=False)
class Unanswered:
    """A request of which it is not known whether, or when, it arrived."""

    sent_s: float
    owned: frozenset[Part]
    copies: frozenset[Part] = frozenset()
    until_s: float = float("inf")
    """It does not arrive later."""


@dataclass(slots=True, eq=False)
class Membership:
    """What one member knows of itself, as long as it takes itself for one."""

    name: str
    instance: str | None = None
    """The instance id of a static member, which its next life has too."""
    process: str = ""
    """The process that a Streams member runs in, which may run others too."""
    is_classic: bool = False
    """Whether it speaks the classic protocol, in which a newcomer under an instance id takes the place of the member that had it."""
    has_left: bool = False
    """For a while: another life is to continue where it ended."""
    replaced: tuple[float, int] | None = None
    """When another was let in under its instance id, and the newest leader epoch of the group's log then."""
    epoch: int = 0
    kept_epoch: int = 0
    """The last one that the group's log has: a generation is in no log before its leader's assignment is."""
    owned: dict[Part, float] = field(default_factory=dict)
    """What it reads, and since when."""
    heard_s: float = float("-inf")
    """When the request left that was answered last,"""
    term: int = -1
    """and the leader epoch of the group's log in which it was."""
    to_give_up: set[Part] = field(default_factory=set)
    copies: dict[Part, float] = field(default_factory=dict)
    """Tasks that it has as standbys, and since when."""
    copies_to_give_up: set[Part] = field(default_factory=set)
    asked_s: float = 0.0
    """Since when the coordinator may wait for that."""
    unanswered: list[Unanswered] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name} in epoch {self.epoch}"

    @property
    def is_asked(self) -> bool:
        """Whether it has something to give up."""
        return bool(self.to_give_up or self.copies_to_give_up)

    def is_sure_of(self, part: Part) -> bool:
        """Whether no request may still say that it has it not."""
        return all(part in each.owned for each in self.unanswered)

    def is_sure_of_copy(self, part: Part) -> bool:
        """The same of a standby."""
        return all(part in each.copies for each in self.unanswered)

    def give_up(self) -> None:
        """It has no more what it was asked for."""
        for part in self.to_give_up:
            self.owned.pop(part, None)
        for part in self.copies_to_give_up:
            self.copies.pop(part, None)
        self.to_give_up.clear()
        self.copies_to_give_up.clear()

    def lose(self) -> None:
        """It is a member no more, and knows."""
        for each in (self.owned, self.to_give_up, self.copies, self.copies_to_give_up):
            each.clear()


@dataclass(slots=True)
class Commit:
    """One attempt."""

    number: int
    """What it commits: numbers rise over all attempts of a run."""
    part: Part
    is_lost: bool
    """The partition had gone to another when it was sent."""


@dataclass(slots=True)
class _Committed:
    """What may be committed for a partition."""

    acknowledged: int = -1
    """The newest."""
    acknowledged_s: float = 0.0
    refused: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)


class GroupLaws:
    """Judges the members of one group in one run."""

    def __init__(self, run: Run) -> None:
        self.members: list[Membership] = []
        self.given = self.fenced = self.commits = self.refused = self.reads = 0
        """Partitions given to members; answers that a member is out; commits acknowledged and refused; committed offsets read."""
        self.upgrades = self.downgrades = 0
        """How often the group was seen to become one of the consumer protocol, and back."""
        self.returns = self.unreleased = self.replaced = 0
        """Static members that came back; that were refused, for their instance id was another's; that another took the place of."""
        self.copied = 0
        """Standbys given to members."""
        self._instances: dict[str, Membership] = {}
        """The member that was let in last under an instance id."""
        self._type = ""
        self._run = run
        self._terms: dict[int, float] = {}
        """When each leader epoch of the group's log began."""
        self._last_given: dict[Part, tuple[float, Membership]] = {}
        self._committed: dict[Part, _Committed] = {}
        self._number = 0
        self._empty_s = 0.0
        """When the group was seen without members last."""

    @property
    def moves(self) -> int:
        """How often the coordinator changed."""
        return max(0, len(self._terms) - 1)

    def look(self) -> None:
        """After each turn: who leads the group's log, and has the group members?"""
        for node in self._run.nodes:
            term = self._led_by(node)
            if term is None:
                continue
            now_s = self._run.loop.time()
            self._terms.setdefault(term, now_s)
            if self.is_newest(term) and node.groups.partitions.get(OFFSETS.partition) is ShardState.ACTIVE:
                group = self._group(node)
                if group is None or not group.members:
                    self._empty_s = now_s
                elif group.type_name != self._type:
                    self.upgrades += self._type == "classic"
                    self.downgrades += self._type == "consumer"
                    self._type = group.type_name

    def term(self, broker: BrokerId) -> int | None:
        """The leader epoch in which a broker coordinates now; None: it does not."""
        return self._led_by(self._run.network.nodes[broker])

    def is_newest(self, term: int | None) -> bool:
        """Whether no broker leads the group's log in a later epoch."""
        return term is not None and term >= max(self._terms, default=-1)

    def _group(self, node: NodeParts) -> AnyGroup | None:
        return next((each for each in node.groups.existing_groups() if each.group_id == GROUP), None)

    def _led_by(self, node: NodeParts) -> int | None:
        led = node.replicas.partition(OFFSETS) if node.is_up and not node.is_stopping else None
        return int(led.leader_epoch) if led is not None and led.is_leader else None

    # -- ownership -------------------------------------------------------------------------------------------------

    def answered(self, member: Membership, epoch: int, *, is_kept: bool = True) -> None:
        """A member is told the epoch that it is in. A group whose members were all gone may have begun again. is_kept: the log has it."""
        if not member.epoch and member.instance is not None:
            self._let_in(member, member.instance)
        if epoch < member.kept_epoch and self._empty_s <= member.heard_s:
            raise LawBroken(EPOCHS, f"{member} is told {epoch}, and {member.kept_epoch} was kept")
        member.epoch = epoch
        if is_kept:
            member.kept_epoch = epoch

    def _let_in(self, member: Membership, instance: str) -> None:
        """Its instance id was free, or of a member that had left, or fell silent, or another may take the place of."""
        now_s = self._run.loop.time()
        former = self._instances.get(instance)
        self._instances[instance] = member
        if former is None or former not in self.members:
            return
        may_replace = former.has_left or former.is_classic or member.is_classic
        if not may_replace and self._is_heard(former, now_s):
            raise LawBroken(INSTANCE, f"{member} is let in as {instance}, which {former} is")
        former.replaced = (now_s, max(self._terms, default=-1))
        self.members.remove(former)
        self.returns += former.has_left
        self.replaced += not former.has_left

    def heard(self, member: Membership, sent_s: float, term: int) -> None:
        """A member is told that it is one, by who coordinated in that term, in answer to what it sent then."""
        member.heard_s, member.term = sent_s, term
        if self._is_replaced(member, sent_s) and member.replaced is not None and term >= member.replaced[1]:
            raise LawBroken(INSTANCE, f"{member} is told that it is {member.instance}, which another is since")

    def _is_replaced(self, member: Membership, at_s: float) -> bool:
        return member.replaced is not None and at_s >= member.replaced[0]

    def take(self, member: Membership, parts: set[Part]) -> None:
        """Partitions are given to a member, which had them not."""
        now_s = self._run.loop.time()
        for part in sorted(parts):
            for other in self.members:
                if other is not member and part in other.owned and self._is_protected(other, part, now_s):
                    law = RETURNS if other.has_left else OWNER
                    raise LawBroken(law, f"{part[1]} is given to {member}, and {other} has it")
            self._judge_process(member, part, now_s)
            self.given += 1
            member.owned[part] = now_s
            self._last_given[part] = (now_s, member)

    def take_copies(self, member: Membership, parts: set[Part]) -> None:
        """Tasks are given to a member as standbys, which had them not as such."""
        now_s = self._run.loop.time()
        for part in sorted(parts):
            self._judge_process(member, part, now_s)
            for other in self._beside(member):
                if part in other.owned and self._is_protected(other, part, now_s):
                    raise LawBroken(PROCESS, f"{part[1]} is to be copied by {member}, and {other} works on it")
            self.copied += 1
            member.copies[part] = now_s

    def _judge_process(self, member: Membership, part: Part, now_s: float) -> None:
        for other in self._beside(member):
            if part in other.copies and other.is_sure_of_copy(part) and self._is_heard(other, now_s):
                raise LawBroken(PROCESS, f"{part[1]} is given to {member}, and {other} has a copy")

    def _beside(self, member: Membership) -> list[Membership]:
        return [each for each in self.members if each is not member and each.process == member.process != ""]

    def _is_protected(self, member: Membership, part: Part, now_s: float) -> bool:
        """Whether no coordinator has a reason to think that it has the partition no more."""
        return member.is_sure_of(part) and self._is_heard(member, now_s)

    def _is_heard(self, member: Membership, now_s: float) -> bool:
        """Whether no coordinator has a reason to think that it is gone."""
        if member.is_asked and now_s >= member.asked_s + REBALANCE_S:
            return False
        patience_s = min(
            SESSION_S, REBALANCE_S
        )  # to give something up it may have been told in an answer that was lost
        later = sorted(start_s for term, start_s in self._terms.items() if term > member.term)
        until_s = min([member.heard_s, *later[:1], *(each.sent_s for each in member.unanswered)]) + patience_s
        for start_s in later:
            if start_s <= until_s:
                until_s = max(until_s, start_s + patience_s)
        return now_s < until_s

    # -- committed offsets -----------------------------------------------------------------------------------------

    def commit(self, member: Membership, part: Part) -> Commit:
        """A member is about to commit for what it takes for its own."""
        self._number += 1
        given_s, to = self._last_given.get(part, (0.0, member))
        is_taken = to is not member and given_s > member.owned[part]
        is_lost = is_taken and (member.is_sure_of(part) or not self._is_current(member))
        is_lost = is_lost or self._is_replaced(member, self._run.loop.time())
        attempt = Commit(self._number, part, is_lost)
        known = self._of(part)
        (known.refused if is_lost else known.unknown).add(attempt.number)
        return attempt

    def _is_current(self, member: Membership) -> bool:
        """Whether the coordinator may have the member in just this epoch, in which it is taken at its word."""
        for node in self._run.nodes:
            if self.is_newest(self._led_by(node)) and (group := self._group(node)) is not None:
                known = group.members.get(member.name)
                return known is not None and getattr(known, "epoch", member.epoch) == member.epoch
        return True

    def acknowledged(self, member: Membership, attempt: Commit) -> None:
        """It counts."""
        if attempt.is_lost:
            _, to = self._last_given[attempt.part]
            raise LawBroken(FENCED, f"{member}: {attempt.part[1]}, which {to} was given last")
        self.commits += 1
        known = self._of(attempt.part)
        known.unknown.discard(attempt.number)
        if attempt.number > known.acknowledged:
            known.acknowledged, known.acknowledged_s = attempt.number, self._run.loop.time()

    def refused_for_good(self, attempt: Commit) -> None:
        """It does not count."""
        self.refused += 1
        known = self._of(attempt.part)
        known.unknown.discard(attempt.number)
        known.refused.add(attempt.number)

    def acknowledged_before(self, part: Part) -> int:
        """What a reader that asks now must find, or something newer."""
        return self._of(part).acknowledged

    def judge_read(self, part: Part, found: int, *, at_least: int) -> None:
        """A coordinator that was the newest says what is committed."""
        known = self._of(part)
        self.reads += 1
        if found in known.refused:
            raise LawBroken(FENCED, f"{part[1]}: {found} is committed, which was refused")
        if found == -1 and self._empty_s >= known.acknowledged_s:
            return  # retention may take the offsets of a group without members
        if found < at_least and found not in known.unknown:
            raise LawBroken(KEPT, f"{part[1]}: {found} is committed, {at_least} was acknowledged")

    def _of(self, part: Part) -> _Committed:
        return self._committed.setdefault(part, _Committed())
