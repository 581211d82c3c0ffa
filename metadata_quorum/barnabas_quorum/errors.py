"""What the quorum and the controller may refuse, each with its Kafka code.

May touch:  nothing.                  Must not touch: everything.
Invariants: the code stands on the class; handlers never write numbers.
Read next:  ../../proto/barnabas_wire/kafka/errors.py.
"""

from __future__ import annotations

from barnabas_wire.kafka.errors import ErrorCode, KafkaError


class NotController(KafkaError):
    """This node does not lead the quorum (any more), or not in the epoch that was named."""

    code = ErrorCode.NOT_CONTROLLER


class UnreplayableDecision(KafkaError):
    """A decision made a record that does not fit the metadata it was made from: a bug, refused before it is written."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    @classmethod
    def because(cls, cause: Exception) -> UnreplayableDecision:
        """What the replay, or the encoding, raised."""
        return cls(
            f"this controller decided a record that it cannot replay ({cause!r}); nothing was written, and its log says more"
        )


class FailedDecision(KafkaError):
    """A decision raised what no decision may: a bug that this request found. It was made from an immutable image and nothing of
    it is written, so the controller continues; were it to end, the next one would get the same request. (Kafka's renounces.)"""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    @classmethod
    def because(cls, cause: Exception) -> FailedDecision:
        """What the decision raised."""
        return cls(f"this controller failed to decide ({cause!r}); nothing was written, and its log says more")


class BatchTooLarge(KafkaError):
    """A proposal is larger than one batch of the metadata log may be."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class BufferExhausted(KafkaError):
    """Too many proposals wait to be written; try again later."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class PeerUnreachable(KafkaError):
    """A replica did not answer, or is not one of ours."""

    code = ErrorCode.NETWORK_EXCEPTION
