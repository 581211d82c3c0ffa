"""When a new topic is there: a change of the metadata is committed before the last broker has heard of it.

Clients ask again when a broker does not know a topic yet; a test that counts answers or errors waits here instead.
"""

from __future__ import annotations

from barnabas_admin.local_cluster import LocalCluster
from barnabas_wire.client.blocking import BlockingConnection
from barnabas_wire.kafka.ids import Uuid
from barnabas_wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA_VERSION = 12
KNOWN_WITHIN_S = 60.0


def wait_until_known(cluster: LocalCluster, name: str, topic_id: str) -> None:
    """Return once every broker that runs serves this topic, by its id: a name may have belonged to another before."""
    wanted = Uuid.parse(topic_id)
    for node in cluster.brokers:
        if not node.is_running:
            continue
        assert node.kafka_port is not None
        connection = BlockingConnection("127.0.0.1", node.kafka_port, client_id="waits-for-topic")
        try:
            cluster.wait_until(
                lambda connection=connection: _is_known(connection, name, wanted),  # type: ignore[misc]
                timeout_s=KNOWN_WITHIN_S,
                what=f"topic {name} being known to broker {node.id}",
            )
        finally:
            connection.close()


def _is_known(connection: BlockingConnection, name: str, topic_id: Uuid) -> bool:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (found,) = connection.call(asked, version=METADATA_VERSION).topics
    is_led = all(partition.leader_id >= 0 for partition in found.partitions)
    return found.error_code == 0 and found.topic_id == topic_id and bool(found.partitions) and is_led
