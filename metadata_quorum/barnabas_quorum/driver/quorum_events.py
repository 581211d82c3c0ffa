"""What the quorum's loop is fed with beside the messages of peers.

May touch:  nothing.                  Must not touch: anything.
Invariants: an event says what happened; what follows from it is decided where the loop takes it.
Read next:  node.py, whose inbox they wait in.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_quorum.raft.messages import SnapshotId
from barnabas_wire.kafka.ids import Offset


class Flushed(NamedTuple):
    """The log is durable up to there."""

    end_offset: Offset


class Resign:
    """Asks the core to give up leadership."""


class Frozen(NamedTuple):
    """A snapshot of this replica's own is whole."""

    snapshot_id: SnapshotId


class Rotten(NamedTuple):
    """A snapshot that others download is not whole."""

    snapshot_id: SnapshotId


class Clean:
    """Time to look at the retention."""
