"""What a classic consumer puts into JoinGroup metadata (its subscription) and gets from SyncGroup (its assignment).

Layout of both blobs: int16 version, then the message in that version, never flexible. A newer version only adds fields at the
end, so it is read as the newest version declared here, and what follows is left alone.
"""

from __future__ import annotations

from typing import TypeVar

from barnabas_wire.kafka.primitives import Buffer, MalformedMessage
from barnabas_wire.kafka.schema import NEVER_FLEXIBLE, Message, array, decode, encode_request, int32, raw, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@dataclass(slots=True)
class ConsumerProtocolSubscription(Message):
    """What a member wants to consume and, from version 1 on, what it owns now (KIP-429, KIP-792, KIP-881)."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, NEVER_FLEXIBLE

    topics: list[str] = array(string)
    user_data: bytes | None = raw(nullable="0+", default=None)  # whatever the assignor needs; brokers do not look
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, "1+")
    generation_id: int = int32("2+", default=-1)  # in which owned_partitions were given; -1: none
    rack_id: str | None = string("3+", nullable="3+", default=None)


@dataclass(slots=True)
class ConsumerProtocolAssignment(Message):
    """What a member is to consume in this generation."""

    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 3, NEVER_FLEXIBLE

    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = raw(nullable="0+", default=None)  # from the leader's assignor to the member's


Blob = TypeVar("Blob", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def decode_blob(cls: type[Blob], data: Buffer) -> Blob:
    """A subscription or assignment with its version in front. Raises MalformedMessage: members may use other protocols."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < cls.MIN_VERSION:
        raise MalformedMessage(f"{cls.__name__} of version {version}")
    message: Blob = decode(cls, min(version, cls.MAX_VERSION), data, 2)
    return message


def encode_blob(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """The blob with its version in front."""
    out = bytearray(version.to_bytes(2, "big"))
    encode_request(message, version, out)
    return bytes(out)
