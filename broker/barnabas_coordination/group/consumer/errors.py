"""What a consumer group can refuse beyond what every group can, each with its code.

May touch:  nothing.                  Must not touch: everything.
Invariants: one class, one code.
Read next:  heartbeat.py.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class FencedMemberEpoch(KafkaError):
    """The member is behind or ahead of what the group knows: it must give everything up and join again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class UnreleasedInstanceId(KafkaError):
    """Another member with the same group.instance.id is there and has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class StaleMemberEpoch(KafkaError):
    """The member's epoch is not the current one; it learns that by its next heartbeat."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class InvalidRegularExpression(KafkaError):
    """RE2 does not take the pattern."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION
