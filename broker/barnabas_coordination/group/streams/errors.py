"""What a Streams group can refuse beyond what a consumer group can, each with its code.

May touch:  nothing.                  Must not touch: everything.
Invariants: one class, one code.
Read next:  heartbeat.py.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class InvalidTopology(KafkaError):
    """The topology contradicts itself: no topics of whatever kind can make it run."""

    code = ErrorCode.STREAMS_INVALID_TOPOLOGY


class InvalidStreamsRequest(KafkaError):
    """What the member says does not fit what the group is."""

    code = ErrorCode.INVALID_REQUEST
