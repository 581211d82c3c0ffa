"""Finalized feature levels of the cluster: image and delta.

May touch:  records.   Must not touch: asyncio, clock, files, controller.
Invariants: level 0 means absent.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod

from barnabas_quorum.records import FeatureLevelRecord, Record

METADATA_VERSION = "metadata.version"
"""The feature that says which records the metadata log may hold."""
METADATA_VERSION_LATEST = 1
"""The level this code writes and the highest it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesImage:
    """Feature name -> level."""

    levels: Mapping[str, int]

    @property
    def metadata_version(self) -> int:
        """0 before the first controller has written its bootstrap records."""
        return self.levels.get(METADATA_VERSION, 0)

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for name in sorted(self.levels):
            yield FeatureLevelRecord(name=name, level=self.levels[name])


EMPTY_FEATURES = FeaturesImage(levels={})


class FeaturesDelta:
    """Features that changed since an image; level 0 = gone."""

    __slots__ = ("changed", "image")

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changed: dict[str, int] = {}

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"features have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: FeatureLevelRecord) -> None:
        self.changed[record.name] = record.level

    def apply(self) -> FeaturesImage:
        """The image after the delta."""
        levels = {**self.image.levels, **self.changed}
        return FeaturesImage(levels={name: level for name, level in levels.items() if level != 0})
