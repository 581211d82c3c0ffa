"""Who is told of each new image: the one interface between metadata and the rest of a node.

May touch:  image/metadata.py.   Must not touch: everything else.
Invariants: publishers are a fixed list, called in its order, each once per delta; none is skipped.
Read next:  loader.py, which calls them.
"""

from __future__ import annotations

from typing import Protocol

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage


class Publisher(Protocol):
    """Takes in metadata changes. An exception from it stops the node: half-published metadata is a split brain."""

    @property
    def name(self) -> str:
        """For logs."""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`image` is what `delta` makes of `delta.image`. Called on the loader's loop; must not block."""
