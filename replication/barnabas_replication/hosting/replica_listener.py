"""What the cluster should know of this broker's replicas; a subclass of ReplicaListener reports it.

May touch:  value types.                  Must not touch: everything else.
Invariants: calls come on the data loop and return at once.
Read next:  hosting.py and replica_faults.py, which report.
"""

from __future__ import annotations

from barnabas_quorum.records import ReplicaFault
from barnabas_wire.kafka.ids import Uuid


class ReplicaListener:
    """Ignores every event; a subclass given to the ReplicaManager reports them."""

    def on_placed(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """The replica is in another directory than the cluster knows (KIP-858)."""

    def on_replica_fault(self, topic_id: Uuid, partition: int, fault: ReplicaFault | None) -> None:
        """The replica became faulty, or whole again, or is not what the cluster knows."""

    def on_replica_gone(self, topic_id: Uuid, partition: int) -> None:
        """The replica is not here any more. It may come back, and is another one then."""

    def on_directory_failed(self, directory: str, error: OSError) -> None:
        """The partitions of a failed log directory were given up."""
