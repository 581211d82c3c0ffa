"""What a node says of itself to the admin service and to DescribeConfigs.

May touch:  its arguments.            Must not touch: asyncio, sockets, files.
Invariants: everything is read from the finished config objects; nothing is computed twice.
Read next:  node.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from barnabas_broker.api.services import BrokerKey
from barnabas_broker.node.properties import NodeConfig
from barnabas_broker.security.config import SecurityProtocol
from barnabas_broker.security.listener_security import PROTOCOL_MAP
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_quorum.raft.voters import VoterSet
from barnabas_wire.kafka.ids import BrokerId

HIDDEN_VALUE = "(hidden)"
"""Stands for a secret wherever keys are shown."""


class NodeFacts:
    """The NodeView of one node."""

    def __init__(
        self, config: NodeConfig, *, cluster_id: str, voters: Callable[[], VoterSet], image: Callable[[], MetadataImage]
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._voters = voters
        self._image = image

    @property
    def node_id(self) -> BrokerId:
        """node.id."""
        return self._config.server.id

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._cluster_id

    @property
    def roles(self) -> Sequence[str]:
        """process.roles."""
        return self._config.server.process_roles

    @property
    def voters(self) -> VoterSet:
        """The voters and where they listen."""
        return self._voters()

    @property
    def image(self) -> MetadataImage:
        """The control lane's newest image."""
        return self._image()

    @property
    def static_min_isr(self) -> int:
        """min.insync.replicas of the properties."""
        return self._config.log.min_insync_replicas

    def described_keys(self) -> Sequence[BrokerKey]:
        """Every key of server.properties with the value in effect, for DescribeConfigs and for each topic that is made."""
        return self._described

    @cached_property
    def _described(self) -> tuple[BrokerKey, ...]:
        """Made once: it takes 1 ms."""
        own = (
            BrokerKey(
                name=key.name,
                value=HIDDEN_VALUE if key.is_sensitive and value else value,
                default=None if key.is_required or key.default is None else key.default_text,
                type_name=key.type_name,
                doc=key.doc,
                is_set=key.name in self._config.static_properties,
                is_sensitive=key.is_sensitive,
            )
            for key, value in self._config.values()
        )
        return (*own, *self._other_names())

    def _other_names(self) -> Iterator[BrokerKey]:
        """Keys that other tools ask for, of which no room has a field."""
        given = self._config.static_properties
        for name, value, type_name, doc in (
            ("broker.id", str(self._config.server.node_id), "int", "The id of this node: see node.id."),
            ("log.retention.hours", "168", "int", "log.retention.ms in hours, if neither that nor minutes are set."),
            ("log.roll.hours", "168", "int", "log.roll.ms in hours, if that is not set."),
            (
                PROTOCOL_MAP,
                ",".join(f"{each.value}:{each.value}" for each in SecurityProtocol),
                "string",
                "What each listener speaks, NAME:PROTOCOL, comma-separated.",
            ),
        ):
            yield BrokerKey(
                name=name,
                value=given.get(name, value),
                default=value,
                type_name=type_name,
                doc=doc,
                is_set=name in given,
            )
