"""One member of a Streams group, which is a thread of an instance: what it says of itself, and the tasks that it has.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: never changed in place, each record makes another; pending is empty unless the member is UNREVOKED.
Read next:  group.py, which keeps the members; reconciliation.py, which leads one to its target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from barnabas_coordination.group.consumer.member import MEMBER_BYTES
from barnabas_coordination.group.led_records import LEAVES_FOR_A_WHILE, NO_MEMBER_EPOCH
from barnabas_coordination.group.streams.records import AssignmentValue, MemberMetadata, MemberState
from barnabas_coordination.group.streams.tasks import NOTHING_HELD, HeldTasks, Task
from barnabas_wire.lazy_dataclass import dataclass

TAG_BYTES: Final = 120
"""What a tag takes beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """As the records have it."""

    member_id: str
    metadata: MemberMetadata
    epoch: int = 0
    previous_epoch: int = NO_MEMBER_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    pending: HeldTasks = NOTHING_HELD
    """Tasks that it still has to give up."""

    @property
    def process_id(self) -> str:
        """The instance that it is a thread of."""
        return self.metadata.process_id

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol: there are no such members in a Streams group."""
        return False

    @property
    def is_stable(self) -> bool:
        """Whether it has what it can have, all of its target."""
        return self.state is MemberState.STABLE

    @property
    def size(self) -> int:
        """About how many bytes its own words take."""
        return size_of(self.metadata)

    @property
    def is_revoking(self) -> bool:
        """Whether it still has something to give up."""
        return self.state is MemberState.UNREVOKED_TASKS

    @property
    def has_left_for_a_while(self) -> bool:
        """Whether it is a static member that left and may come back."""
        return self.epoch == LEAVES_FOR_A_WHILE

    def to_value(self) -> AssignmentValue:
        """What a record of its assignment has."""
        return AssignmentValue(self.epoch, self.previous_epoch, self.state, self.assigned, self.pending)

    def with_assignment(self, value: AssignmentValue) -> StreamsMember:
        """As that record says."""
        return replace(
            self,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            state=value.state,
            assigned=value.assigned,
            pending=value.pending,
        )

    def active_since(self, task: Task) -> int | None:
        """The epoch in which it got an active task that it has; None for one that it has not."""
        since = self.assigned.active.get(task)
        return self.pending.active.get(task) if since is None else since


def size_of(metadata: MemberMetadata) -> int:
    """About how many bytes of memory a member's own words take."""
    texts = (metadata.instance_id, metadata.rack_id, metadata.client_id, metadata.client_host, metadata.process_id)
    host = 0 if metadata.endpoint is None else len(metadata.endpoint.host)
    tags = sum(len(key) + len(value) + TAG_BYTES for key, value in metadata.client_tags)
    return MEMBER_BYTES + sum(len(text) for text in texts if text) + host + tags
