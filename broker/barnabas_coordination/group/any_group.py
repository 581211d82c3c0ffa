"""Groups of every protocol under one name.

May touch:  nothing.                  Must not touch: everything.
Invariants: a group of one protocol becomes one of another only where shard.py puts another in its place.
Read next:  classic.py, consumer/group.py, share/group.py, streams/group.py.
"""

from __future__ import annotations

from barnabas_coordination.group.classic import ClassicGroup
from barnabas_coordination.group.consumer.group import ConsumerGroup
from barnabas_coordination.group.share.group import ShareGroup
from barnabas_coordination.group.streams.group import StreamsGroup

LedGroup = ConsumerGroup | ShareGroup | StreamsGroup
"""A group in which the coordinator assigns, and members are led to what they are assigned."""
CommittingGroup = ConsumerGroup | StreamsGroup
"""One of those whose members commit offsets by the epoch of their group."""
AnyGroup = ClassicGroup | LedGroup
