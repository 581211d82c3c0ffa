"""What a coordinator can refuse, each with its code.

May touch:  nothing.                  Must not touch: everything.
Invariants: one class, one code.
Read next:  shard.py.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class CoordinatorNotAvailable(KafkaError):
    """The coordinator's topic has no leader yet, or a record of it was not replicated in time."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(KafkaError):
    """This broker does not lead the partition that the group hashes to."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoadInProgress(KafkaError):
    """This broker leads the partition but has not read it yet."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CorruptRecord(KafkaError):
    """The bytes are not a record of the coordinator's topic: the partition cannot be loaded."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidGroupId(KafkaError):
    """Membership needs a group id that is not empty."""

    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(KafkaError):
    """There is no such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(KafkaError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupSubscribedToTopic(KafkaError):
    """A member still subscribes to the topic whose offsets should go."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class UnknownMemberId(KafkaError):
    """The member is not in the group: it must join again, without its old id."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class MemberIdRequired(KafkaError):
    """A new dynamic member must join again with the id it is given here (KIP-394)."""

    code = ErrorCode.MEMBER_ID_REQUIRED

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id}")
        self.member_id = member_id


class FencedInstanceId(KafkaError):
    """Another process joined with the same group.instance.id later (KIP-345)."""

    code = ErrorCode.FENCED_INSTANCE_ID


class IllegalGeneration(KafkaError):
    """The member speaks of a generation that is not the current one."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgress(KafkaError):
    """The group is changing: the member must join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InconsistentGroupProtocol(KafkaError):
    """The member shares no assignment protocol with the others, or names another protocol type."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidSessionTimeout(KafkaError):
    """The session time-out is outside group.min.session.timeout.ms … group.max.session.timeout.ms."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class GroupMaxSizeReached(KafkaError):
    """The group has group.max.size members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED
