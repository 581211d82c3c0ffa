"""Brokers and controllers as they registered: image and delta.

May touch:  records, barnabas_wire.kafka.ids.   Must not touch: asyncio, clock, files, controller.
Invariants: the broker epoch of one id strictly grows; a change record names the epoch it changes.
Read next:  metadata.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import singledispatchmethod
from typing import NamedTuple

from barnabas_quorum.records import (
    BrokerRegistrationChangeRecord,
    FeatureRange,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    ServedDirectory,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from barnabas_wire.kafka.errors import InvariantViolated
from barnabas_wire.kafka.ids import BrokerId, Endpoint, Uuid
from barnabas_wire.lazy_dataclass import dataclass


class Domains(NamedTuple):
    """What a broker is lost with; None: it is alone in that."""

    rack: str | None
    host: str | None


NO_DOMAINS = Domains(None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """One broker as it last registered."""

    id: BrokerId
    epoch: int
    """Offset of its RegisterBrokerRecord."""
    incarnation_id: Uuid
    """Random, one per process start."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    is_fenced: bool
    """A fenced broker is in no ISR and leads nothing."""
    is_in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    features: tuple[FeatureRange, ...]
    is_in_maintenance: bool = False
    """It stays in sync and leads only what nobody else can lead; it is so until an operator says otherwise, restarts included."""
    served: tuple[ServedDirectory, ...] = ()
    """The last epoch in which it was unfenced with each of its directories, by directory: one that names an older epoch when the broker
    registers is a copy from before."""
    host: str | None = None
    """Brokers of one host are lost together; None: it is one of its own."""

    @property
    def is_active(self) -> bool:
        """Whether it may lead, and join an ISR."""
        return not self.is_fenced and not self.is_in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where it listens under that listener name."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """One controller as it last registered."""

    id: BrokerId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All nodes. Plain dicts: a cluster has at most some hundreds."""

    brokers: Mapping[BrokerId, BrokerRegistration]
    controllers: Mapping[BrokerId, ControllerRegistration]

    def broker(self, broker_id: BrokerId) -> BrokerRegistration | None:
        """The broker's registration, or None."""
        return self.brokers.get(broker_id)

    def is_active(self, broker_id: BrokerId) -> bool:
        """Registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def domains_of(self, broker_id: BrokerId) -> Domains:
        """The rack and the host of a broker; none of one that is not registered."""
        broker = self.brokers.get(broker_id)
        return NO_DOMAINS if broker is None else Domains(broker.rack, broker.host)

    @property
    def in_maintenance(self) -> frozenset[BrokerId]:
        """The brokers that shall lead nothing that another can lead."""
        return frozenset(broker.id for broker in self.brokers.values() if broker.is_in_maintenance)

    def sorted_brokers(self) -> list[BrokerRegistration]:
        """All brokers by id: the order for whoever decides or prints."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers)]

    def to_records(self) -> Iterator[Record]:
        """Records that replay to this image, canonical order."""
        for broker in self.sorted_brokers():
            yield RegisterBrokerRecord(
                broker_id=broker.id,
                incarnation_id=broker.incarnation_id,
                broker_epoch=broker.epoch,
                endpoints=broker.endpoints,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
                is_in_controlled_shutdown=broker.is_in_controlled_shutdown,
                directories=broker.directories,
                features=broker.features,
                is_in_maintenance=broker.is_in_maintenance,
                served=broker.served,
                host=broker.host,
            )
        for controller_id in sorted(self.controllers):
            controller = self.controllers[controller_id]
            yield RegisterControllerRecord(
                controller_id=controller.id,
                incarnation_id=controller.incarnation_id,
                endpoints=controller.endpoints,
                features=controller.features,
            )


EMPTY_CLUSTER = ClusterImage(brokers={}, controllers={})


class ClusterDelta:
    """Nodes that changed since an image; None = gone."""

    __slots__ = ("changed_brokers", "changed_controllers", "image")

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[BrokerId, BrokerRegistration | None] = {}
        self.changed_controllers: dict[BrokerId, ControllerRegistration | None] = {}

    def broker(self, broker_id: BrokerId) -> BrokerRegistration | None:
        """The broker as it is now."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    @singledispatchmethod
    def replay(self, record: Record) -> None:
        """Take in one record; a record that does not fit the image is a broken invariant, never skipped."""
        raise TypeError(f"the cluster has no replay for {type(record).__name__}")

    @replay.register
    def _(self, record: RegisterBrokerRecord) -> None:
        present = self.broker(record.broker_id)
        if present is not None and record.broker_epoch < present.epoch:
            raise InvariantViolated(
                f"broker {record.broker_id} registers with epoch {record.broker_epoch} after {present.epoch}"
            )
        self.changed_brokers[record.broker_id] = BrokerRegistration(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=record.endpoints,
            rack=record.rack,
            is_fenced=record.is_fenced,
            is_in_controlled_shutdown=record.is_in_controlled_shutdown,
            directories=record.directories,
            features=record.features,
            is_in_maintenance=record.is_in_maintenance,
            served=record.served,
            host=record.host,
        )

    @replay.register
    def _(self, record: UnregisterBrokerRecord) -> None:
        self._living(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    @replay.register
    def _(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._living(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = replace(
            broker,
            is_fenced=broker.is_fenced if record.is_fenced is None else record.is_fenced,
            is_in_controlled_shutdown=(
                broker.is_in_controlled_shutdown
                if record.is_in_controlled_shutdown is None
                else record.is_in_controlled_shutdown
            ),
            directories=broker.directories if record.directories is None else record.directories,
            is_in_maintenance=(
                broker.is_in_maintenance if record.is_in_maintenance is None else record.is_in_maintenance
            ),
            served=_served_in(broker) if record.serves else broker.served,
        )

    @replay.register
    def _(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = ControllerRegistration(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=record.endpoints,
            features=record.features,
        )

    @replay.register
    def _(self, record: UnregisterControllerRecord) -> None:
        present = self.changed_controllers.get(record.controller_id, self.image.controllers.get(record.controller_id))
        if present is None:
            raise InvariantViolated(f"controller {record.controller_id} is unregistered but was not registered")
        self.changed_controllers[record.controller_id] = None

    def _living(self, broker_id: BrokerId, broker_epoch: int) -> BrokerRegistration:
        broker = self.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            found = "is not registered" if broker is None else f"has epoch {broker.epoch}"
            raise InvariantViolated(f"broker {broker_id} changes with epoch {broker_epoch} but {found}")
        return broker

    @classmethod
    def between(cls, before: ClusterImage, after: ClusterImage) -> ClusterDelta:
        """What leads from one image to another, for whoever loads a snapshot."""
        delta = cls(before)
        for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
            broker = after.brokers.get(broker_id)
            if before.brokers.get(broker_id) != broker:
                delta.changed_brokers[broker_id] = broker
        for controller_id in sorted(before.controllers.keys() | after.controllers.keys()):
            controller = after.controllers.get(controller_id)
            if before.controllers.get(controller_id) != controller:
                delta.changed_controllers[controller_id] = controller
        return delta

    def apply(self) -> ClusterImage:
        """The image after the delta."""
        brokers = dict(self.image.brokers)
        for broker_id, broker in self.changed_brokers.items():
            if broker is None:
                brokers.pop(broker_id, None)
            else:
                brokers[broker_id] = broker
        controllers = {**self.image.controllers, **self.changed_controllers}
        return ClusterImage(
            brokers=brokers,
            controllers={
                controller_id: controller for controller_id, controller in controllers.items() if controller is not None
            },
        )


def _served_in(broker: BrokerRegistration) -> tuple[ServedDirectory, ...]:
    """Its directories once it serves in its present epoch; of those that do not work now what was known before."""
    epochs = {**dict(broker.served), **dict.fromkeys(broker.directories, broker.epoch)}
    return tuple(ServedDirectory(directory, epochs[directory]) for directory in sorted(epochs))
