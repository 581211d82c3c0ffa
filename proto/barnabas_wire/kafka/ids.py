"""NewTypes and value types that every room says: offsets, epochs, ids.

May touch:  nothing.                  Must not touch: everything.
Invariants: values are immutable and hashable; text forms are Kafka's own (URL-safe base64 uuids).
Read next:  errors.py.
"""

from __future__ import annotations

import base64
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
"""Position of a record in a partition, 0 or greater; -1 where a field says unknown."""
Epoch = NewType("Epoch", int)
"""Leader, controller or quorum epoch; -1 where unknown."""
BrokerId = NewType("BrokerId", int)
"""node.id of a broker or a controller; -1 means none."""

NO_BROKER = BrokerId(-1)
NO_EPOCH = Epoch(-1)
NO_OFFSET = Offset(-1)


class Uuid(bytes):
    """A 16-byte id: topic id, directory id, incarnation id. Its text is unpadded URL-safe base64, as Kafka's."""

    __slots__ = ()

    def __new__(cls, value: bytes) -> Uuid:
        """Wrap 16 raw bytes; raises ValueError on any other length."""
        if len(value) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """Read the 22-character text form; raises ValueError when it is not one."""
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return cls(raw)

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Uuid({self})"


ZERO_UUID = Uuid(bytes(16))
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""Fixed topic id of __cluster_metadata (KIP-595)."""
METADATA_TOPIC = "__cluster_metadata"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of who has not said who it is."""
NODE_PRINCIPAL = "Node:self"
"""Who asks the controller where a node asks of its own accord. No login gives it: clients are of type User."""
SHARE_STATE_TOPIC = "__share_group_state"
COMPACTED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Internal topics of which the last record of each key counts."""
INTERNAL_TOPICS = COMPACTED_TOPICS | {SHARE_STATE_TOPIC}
"""Written by the brokers' coordinators alone."""


class TopicPartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """One advertised listener of a node."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


def is_host(text: str) -> bool:
    """Whether a text may be a host: a name or an address of letters, digits, `.`, `-`, `_`, `:` and `%` (of an IPv6 zone) that
    does not begin with `-`. Hosts come from other nodes and end up in operators' commands, where such a one would be an option."""
    return text[:1] not in ("", "-") and all(letter.isalnum() or letter in ".-_:%" for letter in text)
