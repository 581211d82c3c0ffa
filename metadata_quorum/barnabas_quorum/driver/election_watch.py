"""How many elections this replica stood in, and how long they took.

May touch:  its arguments and the counters.   Must not touch: the clock, the core.
Invariants: an epoch counts once; an election lasts from the first pre-vote until this replica leads or follows a leader.
Read next:  node.py, which calls this once in each turn; quorum_stats.py.
"""

from __future__ import annotations

from barnabas_quorum.driver.quorum_stats import Stats
from barnabas_quorum.raft.roles import Candidate, Follower, Leader, Prospective, Role
from barnabas_wire.kafka.ids import Epoch


class ElectionWatch:
    """Follows the roles of this replica from turn to turn."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._stood_in_epoch = Epoch(-1)
        self._began_s: float | None = None
        """While this replica stands for election, or nobody has won since it did."""

    def note(self, role: Role, *, epoch: Epoch, now_s: float) -> None:
        """The role and epoch at the end of a turn."""
        if isinstance(role, (Candidate, Leader)) and epoch != self._stood_in_epoch:
            self._stood_in_epoch = epoch
            self._stats.elections_begun += 1
            if self._began_s is None:  # it won, or began, within one turn
                self._began_s = now_s
        if isinstance(role, Prospective) and self._began_s is None:
            self._began_s = now_s
        elif isinstance(role, (Leader, Follower)) and self._began_s is not None:
            self._stats.election_s.observe(now_s - self._began_s)
            self._began_s = None
