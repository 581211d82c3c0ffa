"""Says what keeps this replica from taking part: an empty log that nobody has explained, or a leader that lacks what is committed.

May touch:  the core (reading), the counters, the log of the process.   Must not touch: the clock, the network.
Invariants: each standstill is said once when it has lasted a moment, then again every minute; a refused cut is counted once an epoch.
Read next:  node.py, which calls this once in each turn; ../raft/inquiry.py and ../raft/following.py, the rules.
"""

from __future__ import annotations

import logging

from barnabas_quorum.driver.quorum_stats import Stats
from barnabas_quorum.raft.core import QuorumCore
from barnabas_quorum.raft.damage import UNKNOWN_END
from barnabas_quorum.raft.messages import EpochStart
from barnabas_quorum.raft.voters import ReplicaKey
from barnabas_wire.kafka.ids import NO_BROKER

logger = logging.getLogger(__name__)

FIRST_WORD_S = 3.0
NEXT_WORD_S = 60.0


class StandingWatch:
    """Follows the standing of this replica from turn to turn."""

    def __init__(self, core: QuorumCore, stats: Stats) -> None:
        self._core = core
        self._stats = stats
        self._next_word_s: float | None = None
        """While it does not take part."""
        self._refused: EpochStart | None = None

    def note(self, *, now_s: float) -> None:
        """At the end of a turn."""
        core = self._core
        if core.refused_cut != self._refused:
            self._note_cut(core.refused_cut)
        if core.lost_end != UNKNOWN_END or core.own_endpoint is None:
            self._next_word_s = None
        elif self._next_word_s is None:
            self._next_word_s = now_s + FIRST_WORD_S
        elif now_s >= self._next_word_s:
            self._next_word_s = now_s + NEXT_WORD_S
            logger.warning("%s", standstill(core))

    def _note_cut(self, refused: EpochStart | None) -> None:
        before, self._refused = self._refused, refused
        if refused is None or (before is not None and before.epoch == refused.epoch):
            return
        self._stats.cuts_refused += 1
        core = self._core
        logger.error(
            "controller %d, which leads epoch %d, lacks metadata that was committed: it tells this node to go back to offset %d, and "
            "committed here is everything below %d. The quorum has lost it, as when the directories of a majority of its voters "
            "were emptied. This node keeps its metadata log, takes nothing more from that controller and serves what it has. "
            "Look for a controller that has more (barnabas explain leader; on stopped ones barnabas-server quorum recover "
            "--inspect) and let it lead; or give the difference up: stop this node, move __cluster_metadata-0 out of its "
            "metadata directory, start it",
            core.leader_id,
            refused.epoch,
            refused.start_offset,
            core.high_watermark,
        )


def standstill(core: QuorumCore) -> str:
    """Why a controller that does not know what it has promised takes no part, whom it waits for, and the way out."""
    recover = "If they are lost for good, barnabas-server quorum recover --inspect says, on each controller's host, what is left"
    if not core.is_voter:
        if core.leader_id != NO_BROKER:
            return "this controller fills its empty metadata log from the active one; until it has, it does not vote"
        return (
            "this controller's metadata directory has neither a log nor a bootstrap checkpoint, so it looks for a controller that "
            "leads. That is right for one that is to join (storage format --no-initial-controllers). If it was a voter, its log is "
            "lost or its disk is not mounted: mount it, or let the other voters lead; it votes for nobody before it has caught up"
        )
    inquiry = core.inquiry
    waits = _names(core, inquiry.unheard(core.voters, core.me))
    if core.is_empty and not inquiry.whole:
        return (
            "this voter's metadata log is empty. It is the first start of a new quorum only if all its voters are blank, and silence "
            f"does not prove that: waiting for {waits or 'them to agree'}. Start what is missing. {recover}"
        )
    return (
        f"this voter has lost its metadata log, while controllers {_names(core, tuple(sorted(inquiry.whole)))} have theirs. It votes for "
        "nobody and is not elected until it has caught up with a leader whose epoch the others confirm"
        + (f"; waiting for {waits}" if waits else "")
        + f". {recover}"
    )


def _names(core: QuorumCore, keys: tuple[ReplicaKey, ...]) -> str:
    found = [(key, core.endpoint_of(key)) for key in keys]
    return ", ".join(f"{key.id}" + (f" ({voter.address})" if voter else "") for key, voter in found)
