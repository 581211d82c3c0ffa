"""One member of a share group: what it says of itself, and what it has.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: never changed in place, each record makes another.
Read next:  group.py, which keeps the members.
"""

from __future__ import annotations

from dataclasses import field, replace

from barnabas_coordination.group.consumer.member import MEMBER_BYTES
from barnabas_coordination.group.led_records import NO_MEMBER_EPOCH, Partitions
from barnabas_coordination.group.share.records import ShareAssignmentValue, ShareMemberMetadata
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """As the records have it."""

    member_id: str
    metadata: ShareMemberMetadata
    epoch: int = 0
    previous_epoch: int = NO_MEMBER_EPOCH
    assigned: Partitions = field(default_factory=dict)

    @property
    def is_stable(self) -> bool:
        """It has what it was told last: nothing is given up before."""
        return True

    @property
    def is_revoking(self) -> bool:
        """Nothing is ever revoked."""
        return False

    @property
    def size(self) -> int:
        """About how many bytes of memory its own words take."""
        said = self.metadata
        texts = (said.rack_id, said.client_id, said.client_host)
        return (
            MEMBER_BYTES + sum(len(text) for text in texts if text) + sum(len(name) + 50 for name in said.topic_names)
        )

    def to_value(self) -> ShareAssignmentValue:
        """What a record of its assignment has."""
        return ShareAssignmentValue(self.epoch, self.previous_epoch, self.assigned)

    def with_assignment(self, value: ShareAssignmentValue) -> ShareMember:
        """As that record says."""
        return replace(self, epoch=value.epoch, previous_epoch=value.previous_epoch, assigned=value.assigned)
