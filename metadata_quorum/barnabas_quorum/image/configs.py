"""Dynamic configs of topics and brokers: image and delta.

May touch:  records, rpds.   Must not touch: asyncio, clock, files, controller, what a key means.
Invariants: only overrides are here, never defaults; a resource without overrides has no entry.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import singledispatchmethod
from typing import NamedTuple

from rpds import HashTrieMap

from barnabas_quorum.records import ConfigRecord, ConfigResourceType, Record
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.lazy_dataclass import dataclass

NO_CONFIGS: Mapping[str, str] = {}


class ConfigResource(NamedTuple):
    """What has configs: a topic by name, a broker by its id in text, all brokers by ""."""

    type: ConfigResourceType
    name: str


CLUSTER_DEFAULT = ConfigResource(ConfigResourceType.BROKER, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsImage:
    """The overrides of each resource that has any."""

    resources: HashTrieMap[ConfigResource, Mapping[str, str]]

    def get(self, resource: ConfigResource) -> Mapping[str, str]:
        """The overrides of a resource; empty when it has none."""
        found: Mapping[str, str] = self.resources.get(resource, NO_CONFIGS)
        return found

    def topic(self, name: str) -> Mapping[str, str]:
        """The overrides of a topic."""
        return self.get(ConfigResource(ConfigResourceType.TOPIC, name))

    def broker(self, broker_id: BrokerId) -> Mapping[str, str]:
        """The overrides of one broker, without the cluster-wide ones."""
        return self.get(ConfigResource(ConfigResourceType.BROKER, str(broker_id)))

    @property
    def cluster_default(self) -> Mapping[str, str]:
        """The dynamic configs of all brokers (broker resource with the empty name)."""
        return self.get(CLUSTER_DEFAULT)

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for resource in sorted(self.resources):
            values = self.resources[resource]
            for key in sorted(values):
                yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, key=key, value=values[key])


EMPTY_CONFIGS = ConfigsImage(resources=HashTrieMap())


class ConfigsDelta:
    """Resources whose overrides changed since an image."""

    __slots__ = ("changed", "image")

    def __init__(self, image: ConfigsImage) -> None:
        self.image = image
        self.changed: dict[ConfigResource, dict[str, str]] = {}
        """All overrides of each changed resource as they are after the delta; empty = none left."""

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record."""
        raise TypeError(f"configs have no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        values = self.changed.get(resource)
        if values is None:
            values = self.changed[resource] = dict(self.image.get(resource))
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value

    def remove_topic(self, name: str) -> None:
        """The topic is gone, and with it its configs: no later topic of that name inherits them."""
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        if resource in self.changed or self.image.get(resource):
            self.changed[resource] = {}

    @classmethod
    def between(cls, before: ConfigsImage, after: ConfigsImage) -> ConfigsDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for resource in sorted({*before.resources, *after.resources}):
            values = after.get(resource)
            if before.get(resource) != values:
                delta.changed[resource] = dict(values)
        return delta

    def apply(self) -> ConfigsImage:
        """The image after the delta."""
        resources = self.image.resources
        for resource, values in self.changed.items():
            if values:
                resources = resources.insert(resource, values)
            elif resource in resources:
                resources = resources.remove(resource)
        return ConfigsImage(resources=resources)
