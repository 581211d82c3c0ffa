"""What the admin service needs of its node.

May touch:  nothing.                  Must not touch: everything.
Invariants: asked on the control lane only.
Read next:  service.py; ../node/facts.py, which is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import BrokerId


class NodeView(Protocol):
    """What the service needs of its node. Called on the control lane only."""

    @property
    def node_id(self) -> BrokerId:
        """node.id."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id, 22 characters."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """process.roles."""
        ...

    @property
    def voters(self) -> VoterSet:
        """The voters and the endpoints of their gRPC listeners."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The control lane's newest image."""
        ...

    @property
    def static_min_isr(self) -> int:
        """min.insync.replicas of the node's properties."""
        ...
