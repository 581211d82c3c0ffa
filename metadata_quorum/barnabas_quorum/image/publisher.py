"""The receiver of each new image: the one interface between metadata and the rest of a node.

May touch:  image/metadata.py.   Must not touch: everything else.
Invariants: publishers are a fixed list, called in its order, each once per delta; none is skipped.
Read next:  loader.py, which calls them.
"""

from __future__ import annotations

from typing import Protocol

from barnabas_quorum.image.metadata import MetadataDelta, MetadataImage


class Publisher(Protocol):
    """Takes in metadata changes. An exception from it stops the node, logged with its traceback.

    Kafka's brokers count it (metadata-apply-error-count) and continue, its controllers stop; here what is to be expected is dealt
    with where it arises: a record that cannot be replayed holds the image (bad_records.py), a setting that a newer node wrote
    leaves the default, a directory that fails goes offline at whatever operation (tests/replication/test_storage_errors.py), a
    decision that fails is refused. What is left are bugs and broken laws, behind which nobody knows what half was taken: a
    partition still led that another leads, or the next delta applied to a state that no image describes. A fresh process begins
    with a whole image, and others lead meanwhile. The price: a change that fails in every broker stops every broker.
    """

    @property
    def name(self) -> str:
        """For logs."""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`image` is what `delta` makes of `delta.image`. Called on the loader's loop; must not block."""
