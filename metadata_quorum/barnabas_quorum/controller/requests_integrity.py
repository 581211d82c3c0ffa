"""What the active controller can be asked about the soundness of the metadata itself.

May touch:  barnabas_wire.kafka.   Must not touch: everything else.
Invariants: those of requests.py.
Read next:  quarantine.py, which decides the sign-off.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas_quorum.controller.request import Request
from barnabas_wire.kafka.ids import Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteImageHash(Request["WriteImageHashReply"]):
    """Write what the metadata hashes to into the log, so that every node compares its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteImageHashReply:
    """It is committed."""

    offset: Offset
    """Of the record with the hash; the image that it is of ends right before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOffRecord(Request["SignOffRecordReply"]):
    """Let every node pass over a committed record that none can replay."""

    offset: Offset
    digest: bytes
    """Of the record that was looked at; empty = whichever is held at that offset."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOffRecordReply:
    """The sign-off is committed, and this controller has acted on it."""

    offset: Offset
    """Of the record with the sign-off."""
