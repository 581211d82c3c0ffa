"""The laws of the quorum, checked after every event of the simulator.

The laws (names as in the field; R numbers are those of the collected list in the README of the verification work):

outcome laws, which look only at what a user or a disk could see
  R1  at most one leader is believed in per epoch, in memory and on disk (SingleLeader)
  R2  the saved epoch never falls (MonotonicEpoch)
  R3  a replica votes for one candidate per epoch, across restarts
  R4  the committed sequence never changes and the high watermark of a replica never falls within one life
  R5  whoever moves the cluster's high watermark has a majority of the disks of the last voter set of its log, and they
      hold everything below it (MajorityReachedHighWatermark); a disk that was lost, or whose bits have flipped since, on a
      minority, counts with what was flushed to it
  R6  logs are equal below the high watermark, also where they begin with a snapshot (ConsistentCommittedData)
  R7  (offset, epoch) names one record for ever
  R8  no replica cuts its log, or replaces it by a snapshot, below its own high watermark; none cuts a batch in two
  R9  a new leader holds everything that leaders of earlier epochs committed
  R11 at most one voter set of a log is not committed; consecutive sets differ by one voter, so their majorities meet;
      replicas with the same committed offset have the same committed voter set; a change that was reported done is
  R12 a leader never loads a snapshot (LeaderNeverLoadSnapshot)
  R13 a log that does not begin at 0 begins where its oldest snapshot ends; a snapshot holds committed records only, is
      what these records make, and its epoch wrote its last one (SnapshotAtLogStart)
  R14 a removed replica votes again only after an operator added it
  R16 nobody who lost sight of the leader deposes it while the other voters hear it (raft_calm.py)
  R17 in calm a leader is found, and what it writes commits everywhere; a leader that hears of no majority resigns, and the
      others elect another (raft_calm.py)
  R15 only legal changes of role; only a Prospective runs for election; only a voter does, or
      one whose removal may not be committed

mechanism laws, which look at how the code keeps them, and so catch a fault before it can do harm
  R10 a leader's high watermark first moves past the start of its epoch
  R2  between two events the hard state on disk equals the one in memory
  R11 the core counts with the last voter set of the log; a leader changes it only after its epoch has committed something;
      a new voter has caught up before
  D7  what a message promises (vote, epoch, fetch offset) is on disk when it leaves
  A   every request goes to a replica whose address the sender knows

Mutants are hunted with the outcome laws alone: a search that needs the mechanism laws has only found its own assertions.
"""

from __future__ import annotations

from typing import Any

from barnabas_quorum.raft.messages import FetchRequest, HardState, SnapshotId, VoteReply
from barnabas_quorum.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas_quorum.raft.voters import ReplicaKey, VoterSet
from tests.simulation.raft_disk import (
    EMPTY_DIGEST,
    EPOCH_SHIFT,
    HASH_MASK,
    VOTERS_BIT,
    LawBroken,
    SimulatedNode,
    Snapshot,
)

__all__ = ["Invariants", "LawBroken"]

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


class Invariants:
    """What the whole run has seen so far, and the checks against it."""

    def __init__(self, nodes: list[SimulatedNode], *, voter_sets: dict[int, VoterSet], checks_mechanisms: bool) -> None:
        self._nodes = nodes
        self._by_key: dict[ReplicaKey, SimulatedNode] = {node.key: node for node in nodes}
        self._lost_disks: dict[ReplicaKey, dict[int, int]] = {}
        self._flipped: dict[ReplicaKey, dict[int, int]] = {}
        self._voter_sets = voter_sets
        self._checks_mechanisms = checks_mechanisms
        self.committed: list[int] = []
        """The value of every committed offset, as first seen committed anywhere."""
        self._digests = [EMPTY_DIGEST]
        """Of every committed prefix, by its length."""
        self.committed_sets: list[tuple[int, VoterSet]] = []
        self._removed: set[ReplicaKey] = set()
        self._added_by_operator: set[ReplicaKey] = set()
        self._committed_by: dict[int, int] = {}
        """Epoch of the leader -> the end it committed."""
        self._leaders: dict[int, int] = {}
        self._leader_keys: dict[int, ReplicaKey] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._written: dict[tuple[int, int], int] = {}
        self.epochs_led = 0

    # --- roles and hard state -----------------------------------------------------------------------------------------

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
            is_sole = len(node.voters) == 1
            if old is not None and role.__class__ not in LEGAL_ROLE_CHANGES[old.__class__] and not is_sole:
                raise LawBroken(f"R15: {node} went from {old} to {role}")
            if role.__class__ in (Prospective, Candidate) and not any(
                node.key in voters for _, voters in node.sets[-2:]
            ):
                raise LawBroken(f"R15: {node} is no voter of {node.voters} and became {role}")
            if role.__class__ is Leader:
                self._on_new_leader(node, epoch)
        node.seen_role = role
        node.seen_epoch = epoch
        node.seen_leader = core.leader_id

    def _on_new_leader(self, node: SimulatedNode, epoch: int) -> None:
        self.epochs_led += 1
        if self._leader_keys.setdefault(epoch, node.key) != node.key:
            raise LawBroken(f"R1: {node.key} and {self._leader_keys[epoch]} both lead epoch {epoch}")
        # A candidate that slept may win an old epoch late; it owes only what was committed before that epoch.
        owed = max((end for by, end in self._committed_by.items() if by < epoch), default=0)
        self._check_prefix(node, owed, f"R9: new leader of epoch {epoch}")

    def on_saved(self, node: SimulatedNode, state: HardState) -> None:
        """R1, R2, R3 on disk."""
        if state.epoch < node.hard_state.epoch:
            raise LawBroken(f"R2: {node} saves epoch {state.epoch} over {node.hard_state.epoch}")
        if state.leader_id >= 0 and self._leaders.setdefault(state.epoch, state.leader_id) != state.leader_id:
            raise LawBroken(f"R1: {node} saves leader {state.leader_id} of epoch {state.epoch}")
        if state.voted is not None:
            self._on_vote(node, state.epoch, state.voted)

    def _on_vote(self, node: SimulatedNode, epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((node.key, epoch), candidate)
        if known != candidate:
            raise LawBroken(f"R3: {node} votes for {candidate} in epoch {epoch}, and had voted for {known}")

    # --- what is committed --------------------------------------------------------------------------------------------

    def on_high_watermark(self, node: SimulatedNode) -> None:
        """R4, R5, R6, R10, R11: the high watermark of a replica has moved."""
        core = node.core
        old, new = node.seen_high_watermark, core.high_watermark
        if new < old:
            raise LawBroken(f"R4: the high watermark of {node} fell from {old} to {new}")
        base, log = node.base, node.log
        if new > base + len(log):
            raise LawBroken(f"R6: {node} says {new} is committed, its log ends at {node.end}")
        committed = self.committed
        common = min(new, len(committed))
        start = max(old, base)
        if start < common and log[start - base : common - base] != committed[start:common]:
            raise LawBroken(f"R6: {node} and the cluster differ below the high watermark {new}")
        if new > len(committed):
            self._commit(node, new)
        node.seen_high_watermark = new
        if node.sets[-1][0] >= old or node.sets[0][0] >= old:
            self._check_committed_set(node, new)

    def _commit(self, node: SimulatedNode, new: int) -> None:
        core = node.core
        role = core.role
        if self._checks_mechanisms:
            is_going = isinstance(role, Resigned) and node.key not in node.voters  # it has committed its own removal
            if not isinstance(role, Leader) and not is_going:
                raise LawBroken(f"R4: {node} moved the cluster's high watermark and does not lead")
            if isinstance(role, Leader) and new <= role.epoch_start:
                raise LawBroken(f"R10: {node} commits {new}, its epoch starts at {role.epoch_start}")
        last = node.log[new - 1 - node.base]
        voters = node.voters
        holders = 0
        for key in voters.keys:
            voter = self._by_key.get(key)
            if (
                voter is not None
                and (voter.holds(new - 1, last) if voter.key == key else self._lost_disks[key].get(new - 1) == last)
            ) or (key in self._flipped and self._flipped[key].get(new - 1) == last):
                holders += 1
        if holders < len(voters.keys) // 2 + 1:
            raise LawBroken(f"R5: {node} says {new} is committed, {holders} disks of {voters.keys} hold it")
        committed = self.committed
        digest = self._digests[-1]
        for value in node.log[len(committed) - node.base : new - node.base]:
            if value & VOTERS_BIT:
                self._on_committed_set(len(committed), self._voter_sets[value])
            digest = (digest * 1_000_003 + value) & HASH_MASK
            committed.append(value)
            self._digests.append(digest)
        self._committed_by[core.epoch] = new

    def _on_committed_set(self, offset: int, voters: VoterSet) -> None:
        """R14."""
        before = set(self.committed_sets[-1][1].keys) if self.committed_sets else set(voters.keys)
        now = set(voters.keys)
        for key in before - now:
            self._removed.add(key)
            self._added_by_operator.discard(key)
        for key in now - before:
            if key in self._removed and key not in self._added_by_operator:
                raise LawBroken(f"R14: {key} was removed, no operator added it, and it votes again")
        self.committed_sets.append((offset, voters))

    def on_operator_added(self, key: ReplicaKey) -> None:
        """R14: an operator wants this replica to vote."""
        self._added_by_operator.add(key)

    def on_change_done(self, node: SimulatedNode, voters: VoterSet) -> None:
        """R11: a change of the voter set was reported done."""
        if not any(committed == voters for _, committed in self.committed_sets):
            raise LawBroken(f"R11: {node} reports the set {voters} as done, and it is not committed")

    def _check_committed_set(self, node: SimulatedNode, high_watermark: int) -> None:
        """R11: the set of what is committed is the same everywhere."""
        mine = next(((at, voters) for at, voters in reversed(node.sets) if at < high_watermark), None)
        if mine is None or mine[0] < 0:
            return
        theirs = next((voters for at, voters in reversed(self.committed_sets) if at < high_watermark), None)
        if theirs is not None and theirs != mine[1]:
            raise LawBroken(f"R11: {node} has voters {mine[1]} below {high_watermark}, the cluster {theirs}")

    def _check_prefix(self, node: SimulatedNode, end: int, law: str) -> None:
        """The log, snapshot and all, equals what is committed below end."""
        base = node.base
        if base > len(self.committed):
            raise LawBroken(f"R13: {node} begins at {base}, only {len(self.committed)} records are committed")
        if node.base_digest != self._digests[base]:
            raise LawBroken(f"{law}: {node} begins at {base} with a snapshot of something else")
        if end > base and node.log[: end - base] != self.committed[base:end]:
            raise LawBroken(f"{law}: {node} lacks committed records, or has others")

    # --- the log ------------------------------------------------------------------------------------------------------

    def on_leader_append(self, node: SimulatedNode, offset: int, epoch: int, value: int) -> None:
        """R7."""
        if self._written.setdefault((offset, epoch), value) != value:
            raise LawBroken(f"R7: {node} writes a second record at offset {offset} of epoch {epoch}")

    def on_voters_written(self, node: SimulatedNode) -> None:
        """R11: a Voters record has come to the end of a log."""
        sets = node.sets
        open_sets = [voters for at, voters in sets if at >= len(self.committed)]
        if len(open_sets) > 1:
            raise LawBroken(f"R11: {node} has {len(open_sets)} voter sets that are not committed: {open_sets}")
        if len(sets) > 1 and sets[-2][1].keys:
            before, now = set(sets[-2][1].keys), set(sets[-1][1].keys)
            if len(before ^ now) > 1:
                raise LawBroken(f"R11: {node} changes the voters from {sets[-2][1]} to {sets[-1][1]} in one step")
        core = node.core
        if (
            self._checks_mechanisms
            and isinstance(core.role, Leader)
            and len(sets) > 1
            and sets[-2][0] >= 0
            and core.high_watermark <= core.role.epoch_start
        ):
            raise LawBroken(f"R11: {node} changes the voters and has committed nothing in epoch {core.epoch} yet")
        if not sets[-1][1].keys:
            raise LawBroken(f"R11: {node} has a voter set without voters")
        if self._checks_mechanisms and isinstance(core.role, Leader) and len(sets) > 1:
            self._check_joined(core.role, before=sets[-2][1], now=sets[-1][1])

    def _check_joined(self, role: Leader, *, before: VoterSet, now: VoterSet) -> None:
        """R11: who joins has reached the leader's end since its epoch began, or it would hold up what the others commit."""
        for key in now.keys if before.keys else ():
            joined = self._by_key.get(key)
            if key in before or joined is None or joined.key != key or not joined.is_whole:
                continue
            if joined.durable_end <= role.epoch_start:
                raise LawBroken(
                    f"R11: {joined} votes from now on and has {joined.durable_end}, the epoch began at {role.epoch_start}"
                )

    def on_truncate(self, node: SimulatedNode, offset: int) -> None:
        """R8."""
        if node.batch_boundary(offset) != offset:
            raise LawBroken(
                f"R8: {node} cuts to {offset}, within the batch that begins at {node.batch_boundary(offset)}"
            )
        if offset < node.core.high_watermark:
            raise LawBroken(f"R8: {node} cuts to {offset}, its high watermark is {node.core.high_watermark}")

    def on_snapshot(self, node: SimulatedNode, snapshot: Snapshot) -> None:
        """R13: a snapshot was frozen."""
        end, epoch = snapshot.snapshot_id
        if end > len(self.committed):
            raise LawBroken(f"R13: {node} has snapshot {snapshot.snapshot_id}, {len(self.committed)} are committed")
        if snapshot.digest != self._digests[end]:
            raise LawBroken(f"R13: snapshot {snapshot.snapshot_id} of {node} holds something else than was committed")
        if self.committed[end - 1] >> EPOCH_SHIFT != epoch:
            raise LawBroken(f"R13: snapshot {snapshot.snapshot_id} of {node} names a wrong epoch")
        if snapshot.voters is not None and self.committed_sets:
            theirs = next((voters for at, voters in reversed(self.committed_sets) if at < end), None)
            if theirs is not None and theirs != snapshot.voters:
                raise LawBroken(f"R11: snapshot {snapshot.snapshot_id} of {node} holds {snapshot.voters}, not {theirs}")

    def on_install(self, node: SimulatedNode, snapshot_id: SnapshotId) -> None:
        """R8, R12: a snapshot is about to replace the log."""
        if node.core.is_leader:
            raise LawBroken(f"R12: {node} leads and loads snapshot {snapshot_id}")
        if snapshot_id.end_offset < node.core.high_watermark:
            raise LawBroken(f"R8: {node} loads {snapshot_id}, its high watermark is {node.core.high_watermark}")

    def on_log_start(self, node: SimulatedNode) -> None:
        """R13: log start or snapshots have changed, on disk and in the core."""
        ids = [each.snapshot_id for each in node.snapshots]
        if node.base and (not ids or ids[0].end_offset != node.base):
            raise LawBroken(f"R13: the log of {node} begins at {node.base}, its snapshots are {ids}")
        if self._checks_mechanisms and (node.core.log_start != node.base or node.core.snapshots != ids):
            raise LawBroken(
                f"R13: {node} has {node.base} and {ids} on disk, {node.core.log_start} and {node.core.snapshots} in memory"
            )
        self._check_prefix(node, node.base, "R6")

    # --- messages and boundaries --------------------------------------------------------------------------------------

    def on_send(self, node: SimulatedNode, message: Any) -> None:
        """R3 on the wire; D7."""
        kind = message.__class__
        if kind is VoteReply and message.is_granted and not message.is_pre_vote:
            self._on_vote(node, message.epoch, message.target)
            if self._checks_mechanisms and (
                node.hard_state.voted != message.target or node.hard_state.epoch != message.epoch
            ):
                raise LawBroken(f"D7: {node} grants a vote that is not on disk")
        if self._checks_mechanisms:
            if message.epoch > node.hard_state.epoch:
                raise LawBroken(f"D7: {node} speaks of epoch {message.epoch}, on disk is {node.hard_state.epoch}")
            if kind is FetchRequest and message.fetch_offset != node.durable_end:
                raise LawBroken(f"D7: {node} fetches from {message.fetch_offset}, durable is {node.durable_end}")

    def on_request(self, node: SimulatedNode, target: ReplicaKey) -> None:
        """A: the driver must find an address."""
        if self._checks_mechanisms:
            endpoint = node.core.endpoint_of(target)
            if endpoint is None or endpoint.key != target:
                raise LawBroken(f"A: {node} asks {target} and does not know its address")

    def on_boundary(self, node: SimulatedNode) -> None:
        """R2, R11: between two events memory and disk agree."""
        if not self._checks_mechanisms:
            return
        core, state = node.core, node.hard_state
        if core.epoch != state.epoch or core.leader_id != state.leader_id or core.voted != state.voted:
            raise LawBroken(f"R2: {node} has {core.epoch, core.leader_id, core.voted} in memory and {state} on disk")
        if core.voters is not node.sets[-1][1] and core.voters != node.sets[-1][1]:
            raise LawBroken(f"R11: {node} counts with {core.voters}, the last set of its log is {node.sets[-1][1]}")

    def on_lost_disk(self, node: SimulatedNode) -> None:
        """What it had acknowledged counts as acknowledged; the replica comes back as another one."""
        flushed = node.log[: node.durable_end - node.base]
        self._lost_disks[node.key] = {**self._flipped.pop(node.key, {}), **dict(enumerate(flushed, node.base))}

    def on_emptied(self, node: SimulatedNode) -> None:
        """The same of a directory that comes back empty with its old id. Its votes are forgotten too; that is a fault of the disk."""
        flushed = node.log[: node.durable_end - node.base]
        self.on_flip(node, dict(enumerate(flushed, node.base)))
        node.seen_epoch = 0
        for voted in [voted for voted in self._votes if voted[0] == node.key]:
            del self._votes[voted]

    def on_flip(self, node: SimulatedNode, gone: dict[int, int]) -> None:
        """What it had acknowledged counts as acknowledged, though its disk gives other bytes back: who has it not any more
        votes as if it had. Flips, like lost disks, hit a minority."""
        self._flipped.setdefault(node.key, {}).update(gone)

    def on_regained(self, node: SimulatedNode) -> None:
        """It has all back."""
        self._flipped.pop(node.key, None)

    def on_new_disk(self, node: SimulatedNode) -> None:
        """The replica has a new directory id."""
        self._by_key[node.key] = node
        node.seen_epoch = 0

    def at_end(self) -> None:
        """R6 once more, over whole logs: every pair agrees below the lower high watermark."""
        for node in self._nodes:
            self._check_prefix(node, node.core.high_watermark if node.is_alive else node.base, "R6")
