"""Clients that start beside the brokers: each asks every broker for Metadata as soon as it serves, and at each change after.

May touch:  a node's Metadata handler, by the real codec.   Must not touch: anything that changes a node, the run's randomness.
Invariants: none.
Read next:  broker/barnabas_broker/metadata/readiness.py, which this judges; invariants.py.

A real client asks once, and some (librdkafka) believe the answer for good. So the first answer of a broker's life must be
one to live by: it names brokers, a controller, and every topic that was there before the broker started.
"""

from __future__ import annotations

from typing import Any

from barnabas_broker.api import registry
from barnabas_broker.api.config import ApiConfig
from barnabas_broker.api.context import RequestContext
from barnabas_broker.api.services import BrokerServices
from barnabas_quorum.image.metadata import MetadataImage
from barnabas_simulation.node_parts import NodeParts
from barnabas_simulation.partition_model import LawBroken
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.ids import BrokerId
from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_wire.kafka.schema import decode_response

VERSION = 12
LAW = "who serves names brokers, a controller and every topic (E19)"


class BootstrapClients:
    """One such client per node."""

    def __init__(self) -> None:
        self._asked: dict[BrokerId, MetadataImage] = {}
        self.answers = 0

    def ask(self, node: NodeParts) -> None:
        """Ask this node, if it serves and would not answer as it did. Raises LawBroken."""
        if self._asked.get(node.id) is node.cache.image or not node.is_serving:
            return
        self._asked[node.id] = node.cache.image
        self.answers += 1
        answer = metadata_answer(node)
        who = f"node {node.id} in life {node.life}"
        if not answer.brokers:
            raise LawBroken(LAW, f"{who} names no brokers")
        if answer.controller_id not in {broker.node_id for broker in answer.brokers}:
            raise LawBroken(LAW, f"{who} names {answer.controller_id} as controller, which is none of its brokers")
        named = {topic.name for topic in answer.topics if topic.error_code == ErrorCode.NONE}
        if not node.topics_before <= named:
            raise LawBroken(LAW, f"{who} does not name {sorted(node.topics_before - named)}")


def metadata_answer(node: NodeParts) -> MetadataResponse:
    """What the node's Metadata handler answers to a client that asks for all topics."""
    registry.load_handlers()
    unused: Any = None
    services = BrokerServices(
        node_id=node.id,
        cluster_id="simulated",
        config=ApiConfig(),
        replica_manager=unused,
        metadata=node.cache,
        controller=unused,
        groups=unused,
        transactions=unused,
        transactional=unused,
        share_state=unused,
        shares=unused,
        producer_ids=unused,
        clock_ms=lambda: 0,
        quorum_description=unused,
        broker_keys=tuple,
    )
    context = RequestContext(
        api_key=ApiKey.METADATA,
        api_version=VERSION,
        correlation_id=0,
        client_id="beside",
        listener_name="PLAINTEXT",
        client_host="",
        now_ms=0,
    )
    body = registry.APIS[ApiKey.METADATA].handler(services, context, MetadataRequest(topics=None))
    answer: MetadataResponse = decode_response(MetadataResponse, VERSION, body)
    return answer
