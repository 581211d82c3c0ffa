"""A dead letter: a record of a share group that no consumer could process (KIP-1191), and the error of those that were not written.

May touch:  its arguments.            Must not touch: asyncio, clock, log, network.
Invariants: a letter says all that its record in the dead-letter topic needs, but for the key and the value.
Read next:  dead_letters.py, which writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas_wire.kafka.errors import ErrorCode, KafkaError
from barnabas_wire.kafka.ids import Offset, Uuid

REJECTED: Final = "Offset rejected by client."
"""Cause of a record that a consumer rejected, in Kafka's words."""
EXHAUSTED: Final = "Offset delivery count exceeded the threshold."
"""Cause of a record that was delivered as often as the group allows, in Kafka's words."""


class DeadLetter(NamedTuple):
    """One offset of a share partition that will not be delivered again."""

    group_id: str
    topic_id: Uuid
    topic: str
    partition: int
    offset: Offset
    deliveries: int
    """How often it was delivered."""
    cause: str
    """REJECTED or EXHAUSTED."""


class DeadLettersFailed(KafkaError):
    """Some letters are not known to be written. Its code is that of what stood in the way."""

    def __init__(self, message: str, *, code: ErrorCode, unwritten: Sequence[DeadLetter]) -> None:
        super().__init__(message, code=code)
        self.unwritten = tuple(unwritten)
        """The letters to write again; all others of the call are in the dead-letter topic."""
