"""Whether this node's image is the active controller's: hashes that it wrote, compared with our own (C1).

May touch:  hashing.py, metadata.py.   Must not touch: asyncio, clock, files, the log.
Invariants: a hash is compared once, with the image of right before its record; a known difference stays known until the hashes
            agree again or the image came from elsewhere.
Read next:  hashing.py; loader.py, which asks.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

from barnabas_quorum.image.hashing import FORMAT, differing_parts
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.records_integrity import ImageHashRecord, PartHash
from barnabas_wire.kafka.ids import Offset

logger = logging.getLogger(__name__)

COMPARISONS_KEPT = 16
IMAGES_KEPT = 4
"""Images of the last comparisons, for whoever looks for the entity that differs. They share what has not changed since."""


class Comparison(NamedTuple):
    """What came of one ImageHashRecord."""

    offset: Offset
    """The offset of that record; the image compared ends right before it."""
    timestamp_ms: int
    """When the active controller appended it."""
    own: tuple[PartHash, ...]
    agreed: tuple[PartHash, ...]

    @property
    def differing(self) -> list[str]:
        """Names of the parts that differ here; none = the image is the active controller's."""
        return differing_parts(self.own, self.agreed)


class Agreement:
    """What is known of one image. Belongs to its loader."""

    def __init__(self) -> None:
        self.divergence = ""
        """How the image is known to differ from the active controller's; it must not go into a snapshot then."""
        self.comparisons: deque[Comparison] = deque(maxlen=COMPARISONS_KEPT)
        self._compared_images: deque[tuple[Offset, MetadataImage]] = deque(maxlen=IMAGES_KEPT)

    def begin_again(self) -> None:
        """The image came from elsewhere."""
        self.divergence = ""

    def is_due(self, record: ImageHashRecord, offset: Offset) -> bool:
        """Whether this hash is of our format, and was not compared yet."""
        is_new = not self.comparisons or self.comparisons[-1].offset < offset
        return is_new and record.format == FORMAT

    def compared_image(self, offset: Offset) -> MetadataImage | None:
        """The image that was compared at that offset, if it is among the last few."""
        return next((image for at, image in self._compared_images if at == offset), None)

    def compare(self, record: ImageHashRecord, offset: Offset, timestamp_ms: int, image: MetadataImage) -> bool:
        """Whether the image, which ends right before the record, is the one that the active controller had there."""
        found = Comparison(offset, timestamp_ms, image.hash.parts(), record.parts)
        self.comparisons.append(found)
        self._compared_images.append((offset, image))
        differing = found.differing
        if not differing:
            self.divergence = ""
            return True
        own, agreed = dict(found.own), dict(found.agreed)
        shown = ", ".join(
            f"{part} {own.get(part, b'').hex()} here, {agreed.get(part, b'').hex()} there" for part in differing
        )
        self.divergence = f"at offset {offset - 1} it differs from the active controller's in {', '.join(differing)}"
        logger.error(
            "METADATA DIFFERS: the image of offset %d is not the active controller's: %s. This node takes no snapshots until "
            "they agree. Next: barnabas quorum verify",
            offset - 1,
            shown,
        )
        return False
