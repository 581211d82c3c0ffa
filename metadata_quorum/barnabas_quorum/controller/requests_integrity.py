"""Requests about the integrity of the metadata itself.

May touch:  barnabas_wire.kafka.   Must not touch: everything else.
Invariants: those of requests.py.
Read next:  record_sign_off.py, which decides about sign-offs.
"""

from __future__ import annotations

from barnabas_quorum.controller.request import Request
from barnabas_wire.kafka.ids import Offset
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteImageHash(Request["WriteImageHashReply"]):
    """Write the hash of the metadata into the log, so that every node compares its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteImageHashReply:
    """It is committed."""

    offset: Offset
    """The offset of the record with the hash; the hashed image ends right before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOffRecord(Request["SignOffRecordReply"]):
    """Let every node skip a committed record that none can replay."""

    offset: Offset
    digest: bytes
    """The digest of the inspected record; empty = whichever record is bad at that offset."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOffRecordReply:
    """The sign-off is committed, and this controller has acted on it."""

    offset: Offset
    """The offset of the record with the sign-off."""
