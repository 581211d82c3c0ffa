"""The intensities of one run of the consensus core: how many replicas, what network and disk, what goes wrong how often.

May touch:  the Random it is given.   Must not touch: anything else.
Invariants: the same Random gives the same swarm.
Read next:  raft_simulator.py.

Each seed draws its own member (swarm testing): some runs have much of one fault and nothing of another, which finds what
uniform faults do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from barnabas_quorum.config import QuorumConfig
from barnabas_quorum.raft.roles import NEVER_MS

NEVER_US = NEVER_MS * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """Times in µs (`NEVER_US`: not at all), rates as probabilities, `*_moments` as a mean count between two."""

    voters: int
    observers: int
    config: QuorumConfig
    # the network
    delay_us: int
    delay_spread_us: int
    slow_rate: float
    slow_us: int
    loss_rate: float
    duplicate_rate: float
    refusal_rate: float
    reset_rate: float
    """The request arrives, the connection breaks before the reply does."""
    # the disk
    flush_us: int
    flush_stall_rate: float
    flush_failure_rate: float
    save_us: int
    # the work
    propose_us: int
    proposal_records_max: int
    fetch_records_max: int
    # what goes wrong
    crash_us: int
    crash_moments: int
    quick_restart_rate: float
    restart_us: int
    partition_us: int
    partition_length_us: int
    one_way_rate: float
    cut_new_leader_rate: float
    pause_us: int
    resign_us: int
    clog_us: int = NEVER_US
    clock_drift: float = 0.0
    """A replica's clock runs at up to 1 ± this many times the true speed."""
    clock_jump_us: int = NEVER_US
    # snapshots
    snapshot_us: int = NEVER_US
    clean_rate: float = 0.0
    snapshot_slices_max: int = 1
    damaged_snapshot_rate: float = 0.0
    crash_loading_rate: float = 0.0
    """Crash while a downloaded snapshot replaces the log."""
    # the voter set
    kraft_version: int = 0
    knows_voters: bool = True
    """Whether observers are formatted with the voter set, or know bootstrap servers only."""
    auto_join: bool = False
    member_us: int = NEVER_US
    cut_changing_leader_rate: float = 0.0
    replace_disk_us: int = NEVER_US
    # what a disk does to a minority
    flip_rate: float = 0.0
    """Probability that a crash leaves a flipped bit in what was flushed."""
    full_disk_us: int = NEVER_US
    full_disk_length_us: int = 0
    empty_disk_us: int = NEVER_US
    """A minority's directories are emptied and formatted again with the same ids. Where that happens the first start has to be proved."""

    @classmethod
    def draw(cls, random: Random) -> Swarm:
        """A swarm member."""
        pick = random.choice
        scale = pick((1, 1, 4, 10))
        config = QuorumConfig(
            election_timeout_ms=1000 // scale,
            fetch_timeout_ms=2000 // scale,
            election_backoff_ms_max=1000 // scale,
            request_timeout_ms=2000 // scale,
            retry_backoff_ms=20,
            fetch_wait_ms_max=500 // scale,
            fetch_snapshot_bytes_max=100,
        )
        unit_us = 1_000_000 // scale
        return cls(
            voters=pick((1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5, 7)),
            observers=pick((0, 0, 1, 1, 2, 5)),
            config=config,
            delay_us=pick((100, 300, 1000)),
            delay_spread_us=pick((100, 1000, 10_000)),
            slow_rate=pick((0.0, 0.01, 0.1)),
            slow_us=pick((20_000, 200_000, 2_000_000)) // scale,
            loss_rate=pick((0.0, 0.0, 0.01, 0.1, 0.3)),
            duplicate_rate=pick((0.0, 0.01, 0.1)),
            refusal_rate=pick((0.0, 0.5, 1.0)),
            reset_rate=pick((0.0, 0.0, 0.02, 0.1)),
            flush_us=pick((200, 2000, 20_000)),
            flush_stall_rate=pick((0.0, 0.0, 0.02)),
            flush_failure_rate=pick((0.0, 0.0, 0.001, 0.01)),
            save_us=pick((200, 2000, 20_000)),
            propose_us=pick((3000, 10_000, 50_000)),
            proposal_records_max=pick((1, 3)),
            fetch_records_max=pick((1, 1, 2, 8, 1000)),
            crash_us=pick((NEVER_US, unit_us, 3 * unit_us, 10 * unit_us)),
            crash_moments=pick((0, 3, 10, 30, 100)),
            quick_restart_rate=pick((0.0, 0.5, 0.9, 1.0)),
            restart_us=pick((unit_us // 4, 2 * unit_us, 6 * unit_us)),
            partition_us=pick((NEVER_US, unit_us, 4 * unit_us, 12 * unit_us)),
            partition_length_us=pick((unit_us // 2, 3 * unit_us)),
            one_way_rate=pick((0.0, 0.3, 1.0)),
            cut_new_leader_rate=pick((0.0, 0.0, 0.3, 0.8)),
            pause_us=pick((NEVER_US, NEVER_US, 3 * unit_us)),
            resign_us=pick((NEVER_US, NEVER_US, 5 * unit_us)),
            clog_us=pick((NEVER_US, NEVER_US, 2 * unit_us)),
            clock_drift=pick((0.0, 0.0, 0.0005, 0.1)),
            clock_jump_us=pick((NEVER_US, NEVER_US, NEVER_US, 5 * unit_us)),
            snapshot_us=pick((NEVER_US, unit_us // 20, unit_us // 5, unit_us)),
            clean_rate=pick((0.2, 0.8, 1.0)),
            snapshot_slices_max=pick((1, 3, 10, 30)),
            damaged_snapshot_rate=pick((0.0, 0.0, 0.2)),
            crash_loading_rate=pick((0.0, 0.3, 0.6)),
            kraft_version=pick((0, 1, 1, 1)),
            knows_voters=pick((True, False)),
            auto_join=pick((False, True)),
            member_us=pick((NEVER_US, unit_us // 10, unit_us // 2, 3 * unit_us)),
            cut_changing_leader_rate=pick((0.0, 0.0, 0.3, 0.7)),
            replace_disk_us=pick((NEVER_US, NEVER_US, 3 * unit_us, 10 * unit_us)),
            flip_rate=pick((0.0, 0.0, 0.1, 0.5)),
            full_disk_us=pick((NEVER_US, NEVER_US, 2 * unit_us, 6 * unit_us)),
            full_disk_length_us=pick((unit_us // 20, unit_us, 4 * unit_us)),
            empty_disk_us=_aside(random).choice((NEVER_US, NEVER_US, 2 * unit_us, 6 * unit_us)),
        )


def _aside(random: Random) -> Random:
    """Draws that leave the others of this seed as they were."""
    other = Random()
    other.setstate(random.getstate())
    return other
