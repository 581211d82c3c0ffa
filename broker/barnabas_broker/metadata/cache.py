"""The image that this broker answers from.

May touch:  nothing.                  Must not touch: everything.
Invariants: swapped as a whole, on the data lane, after replicas and coordinators have taken their roles.
Read next:  publisher.py, the only writer.
"""

from __future__ import annotations

from barnabas_quorum.image.metadata import MetadataImage


class MetadataCache:
    """Holds one immutable image; readers take it once per request."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def image(self) -> MetadataImage:
        """The current image."""
        return self._image

    def swap(self, image: MetadataImage) -> None:
        """Answer from this image from now on. Raises AssertionError when it is older than the current one."""
        assert image.offset >= self._image.offset, f"image {image.offset} would replace {self._image.offset}"
        self._image = image
