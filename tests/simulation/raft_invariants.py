"""The laws of the quorum, checked after every event of the simulator.

The laws (names as in the field; R numbers are those of the collected list in the README of the verification work):

outcome laws, which look only at what a user or a disk could see
  R1  at most one leader is believed in per epoch, in memory and on disk
  R2  the saved epoch never falls
  R3  a replica votes for one candidate per epoch, across restarts
  R4  the committed sequence never changes and the high watermark of a replica never falls within one life
  R5  whoever moves the cluster's high watermark has a majority of disks that hold everything below it
  R6  logs are equal below the high watermark
  R7  (offset, epoch) names one record for ever
  R8  no replica cuts its log below its own high watermark
  R9  a new leader holds everything that leaders of earlier epochs committed
  R15 only legal changes of role; only a Prospective runs for election

mechanism laws, which look at how the code keeps them, and so catch a fault before it can do harm
  R10 a leader's high watermark first moves past the start of its epoch
  R2  between two events the hard state on disk equals the one in memory
  D7  what a message promises (vote, epoch, fetch offset) is on disk when it leaves

Mutants are hunted with the outcome laws alone: a search that needs the mechanism laws has only found its own assertions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas_quorum.raft.messages import FetchRequest, HardState, VoteReply
from barnabas_quorum.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from tests.simulation.raft_simulator import SimulatedNode

LEGAL_ROLE_CHANGES = {
    # As seen between two events, in which a replica may pass through several roles. Stated here a second time, by hand:
    # the core's own table is what is being judged.
    Unattached: {Unattached, Prospective, Follower},
    Prospective: {Prospective, Unattached, Candidate, Follower},
    Candidate: {Candidate, Prospective, Unattached, Follower, Leader},
    Follower: {Follower, Prospective, Unattached},
    Leader: {Leader, Resigned, Unattached, Follower, Prospective},
    Resigned: {Resigned, Unattached, Follower, Prospective},
}


class LawBroken(AssertionError):
    """A law of the quorum is broken; the text names the law and the replica."""


class Invariants:
    """What the whole run has seen so far, and the checks against it."""

    def __init__(self, nodes: list[SimulatedNode], *, voter_count: int, checks_mechanisms: bool) -> None:
        self._nodes = nodes
        self._voters = nodes[:voter_count]
        self._majority = voter_count // 2 + 1
        self._checks_mechanisms = checks_mechanisms
        self.committed: list[int] = []
        """The value of every committed offset, as first seen committed anywhere."""
        self._committed_by: dict[int, int] = {}
        """Epoch of the leader -> the end it committed."""
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._written: dict[tuple[int, int], int] = {}
        self.epochs_led = 0

    def on_role(self, node: SimulatedNode) -> None:
        """R1, R2, R9, R15: after any change of role, epoch or leader."""
        core = node.core
        role = core.role
        epoch = core.epoch
        if epoch < node.seen_epoch:
            raise LawBroken(f"R2: {node} went from epoch {node.seen_epoch} to {epoch}")
        if core.leader_id >= 0:
            known = self._leaders.setdefault(epoch, core.leader_id)
            if known != core.leader_id:
                raise LawBroken(f"R1: {node} believes in leader {core.leader_id} of epoch {epoch}, others in {known}")
        old = node.seen_role
        if old is not role:
            is_sole = len(self._voters) == 1
            if old is not None and role.__class__ not in LEGAL_ROLE_CHANGES[old.__class__] and not is_sole:
                raise LawBroken(f"R15: {node} went from {old} to {role}")
            if role.__class__ is Leader:
                self.epochs_led += 1
                # A candidate that slept may win an old epoch late; it owes only what was committed before that epoch.
                owed = max((end for by, end in self._committed_by.items() if by < epoch), default=0)
                if node.log[:owed] != self.committed[:owed]:
                    raise LawBroken(f"R9: new leader {node} of epoch {epoch} lacks committed records")
        node.seen_role = role
        node.seen_epoch = epoch
        node.seen_leader = core.leader_id

    def on_high_watermark(self, node: SimulatedNode) -> None:
        """R4, R5, R6, R10: the high watermark of a replica has moved."""
        core = node.core
        old, new = node.seen_high_watermark, core.high_watermark
        if new < old:
            raise LawBroken(f"R4: the high watermark of {node} fell from {old} to {new}")
        if new > len(node.log):
            raise LawBroken(f"R6: {node} says {new} is committed, its log ends at {len(node.log)}")
        committed = self.committed
        common = min(new, len(committed))
        if node.log[old:common] != committed[old:common]:
            raise LawBroken(f"R6: {node} and the cluster differ below the high watermark {new}")
        if new > len(committed):
            role = core.role
            if self._checks_mechanisms:
                if role.__class__ is not Leader:
                    raise LawBroken(f"R4: {node} moved the cluster's high watermark and does not lead")
                if new <= role.epoch_start:
                    raise LawBroken(f"R10: {node} commits {new}, its epoch starts at {role.epoch_start}")
            last = node.log[new - 1]
            holders = sum(1 for v in self._voters if v.durable_end >= new and v.log[new - 1] == last)
            if holders < self._majority:
                raise LawBroken(f"R5: {node} says {new} is committed, {holders} disks hold it")
            committed.extend(node.log[len(committed) : new])
            self._committed_by[core.epoch] = new
        node.seen_high_watermark = new

    def on_saved(self, node: SimulatedNode, state: HardState) -> None:
        """R1, R2, R3 on disk."""
        if state.epoch < node.hard_state.epoch:
            raise LawBroken(f"R2: {node} saves epoch {state.epoch} over {node.hard_state.epoch}")
        if state.leader_id >= 0 and self._leaders.setdefault(state.epoch, state.leader_id) != state.leader_id:
            raise LawBroken(f"R1: {node} saves leader {state.leader_id} of epoch {state.epoch}")
        if state.voted is not None:
            self._on_vote(node, state.epoch, state.voted.id)

    def _on_vote(self, node: SimulatedNode, epoch: int, candidate: int) -> None:
        known = self._votes.setdefault((node.id, epoch), candidate)
        if known != candidate:
            raise LawBroken(f"R3: {node} votes for {candidate} in epoch {epoch}, and had voted for {known}")

    def on_leader_append(self, node: SimulatedNode, offset: int, epoch: int, value: int) -> None:
        """R7."""
        if self._written.setdefault((offset, epoch), value) != value:
            raise LawBroken(f"R7: {node} writes a second record at offset {offset} of epoch {epoch}")

    def on_truncate(self, node: SimulatedNode, offset: int) -> None:
        """R8."""
        if offset < node.core.high_watermark:
            raise LawBroken(f"R8: {node} cuts to {offset}, its high watermark is {node.core.high_watermark}")

    def on_send(self, node: SimulatedNode, message: Any) -> None:
        """R3 on the wire; D7."""
        kind = message.__class__
        if kind is VoteReply and message.is_granted and not message.is_pre_vote:
            self._on_vote(node, message.epoch, message.target.id)
            if self._checks_mechanisms and (
                node.hard_state.voted != message.target or node.hard_state.epoch != message.epoch
            ):
                raise LawBroken(f"D7: {node} grants a vote that is not on disk")
        if self._checks_mechanisms:
            if message.epoch > node.hard_state.epoch:
                raise LawBroken(f"D7: {node} speaks of epoch {message.epoch}, on disk is {node.hard_state.epoch}")
            if kind is FetchRequest and message.fetch_offset != node.durable_end:
                raise LawBroken(f"D7: {node} fetches from {message.fetch_offset}, durable is {node.durable_end}")

    def on_boundary(self, node: SimulatedNode) -> None:
        """R2: between two events memory and disk agree."""
        if not self._checks_mechanisms:
            return
        core, state = node.core, node.hard_state
        if core.epoch != state.epoch or core.leader_id != state.leader_id or core.voted != state.voted:
            raise LawBroken(f"R2: {node} has {core.epoch, core.leader_id, core.voted} in memory and {state} on disk")

    def at_end(self) -> None:
        """R6 once more, over whole logs: every pair agrees below the lower high watermark."""
        for node in self._nodes:
            high_watermark = node.core.high_watermark
            if node.log[:high_watermark] != self.committed[:high_watermark]:
                raise LawBroken(f"R6: {node} and the cluster differ below {high_watermark}")
