"""The typed records that keep the metadata sound: what the image hashes to, and which bad record an operator has put aside.

May touch:  barnabas_wire.kafka.ids.  Must not touch: asyncio, clock, files, protobuf, image, controller.
Invariants: as in records.py; neither changes what the cluster is, so an image with them equals one without.
Read next:  image/hashing.py and image/bad_records.py, which act on these.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas_wire.kafka.ids import Epoch, Offset
from barnabas_wire.lazy_dataclass import dataclass


class PartHash(NamedTuple):
    """What one part of the image (topics, configs, …) hashes to; 16 bytes."""

    part: str
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHashRecord:
    """What the active controller's image hashes to right before this record: every node compares its own (C1)."""

    format: int
    """How it was hashed (image/hashing.py); a node that hashes otherwise does not compare."""
    parts: tuple[PartHash, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecord:
    """An operator has signed that one committed record, which no node can replay, is passed over by all of them."""

    offset: Offset
    epoch: Epoch
    """The epoch of the batch that holds it."""
    digest: bytes
    """The digest of its bytes (image/bad_records.py): exactly that record is meant."""
    principal: str
    reason: str


IntegrityRecord = ImageHashRecord | QuarantineRecord
