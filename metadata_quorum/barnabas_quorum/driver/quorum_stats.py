"""What metrics pull of a quorum member.

May touch:  nothing.                  Must not touch: everything.
Invariants: plain counters and histograms since the start of the process.
Read next:  node.py and proposals.py, which count.
"""

from __future__ import annotations

from dataclasses import field

from barnabas_wire.histogram import Histogram
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class Stats:
    """Plain counters since the start of the process."""

    elections_begun: int = 0
    """Epochs in which this replica stood for election."""
    elections_won: int = 0
    election_s: Histogram = field(default_factory=Histogram)
    """From this replica's standing, pre-votes included, until it led or followed a leader."""
    leader_changes: int = 0
    requests_sent: int = 0
    requests_failed: int = 0
    requests_served: int = 0
    proposals: int = 0
    batches_written: int = 0
    bytes_written: int = 0
    records_appended: int = 0
    """As leader."""
    cuts_refused: int = 0
    """Leaders that told this replica to cut off what was committed; it keeps that."""
    records_fetched: int = 0
    """From a leader, and written here."""
    append_s: Histogram = field(default_factory=Histogram)
    """Writes to the log, before the flush."""
    flush_s: Histogram = field(default_factory=Histogram)
    commit_s: Histogram = field(default_factory=Histogram)
    """Times of own proposals, from propose to the high watermark passing them."""
