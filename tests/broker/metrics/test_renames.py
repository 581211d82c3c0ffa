"""Views of our metrics under published names: pure renames, and which names of published dashboards there are."""

from __future__ import annotations

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from barnabas_broker.metrics.exporter import render
from barnabas_broker.metrics.page import COMPAT_VIEWS
from barnabas_broker.metrics.renames import KAFKA_EXPORTER, STRIMZI, VIEWS, Rename, renamed
from barnabas_broker.metrics.sources import NodeSources
from barnabas_broker.network.stats import NetworkStats
from barnabas_quorum.image.loader import MetadataLoader
from barnabas_wire.kafka.errors import ErrorCode
from barnabas_wire.kafka.messages import ApiKey
from tests.broker.metrics.test_exporter import make_sources, stand_ins

ASKED_OF_STRIMZI = """
kafka_cluster_partition_atminisr kafka_cluster_partition_underminisr kafka_controller_controllerstats_uncleanleaderelections_total
kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount kafka_log_log_size
kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesout_total
kafka_server_brokertopicmetrics_failedfetchrequests_total kafka_server_brokertopicmetrics_failedproducerequests_total
kafka_server_brokertopicmetrics_messagesin_total kafka_server_brokertopicmetrics_totalfetchrequests_total
kafka_server_brokertopicmetrics_totalproducerequests_total kafka_server_raftmetrics_current_epoch
kafka_server_raftmetrics_current_leader kafka_server_raftmetrics_current_state kafka_server_raftmetrics_current_vote
kafka_server_raftmetrics_high_watermark kafka_server_raftmetrics_log_end_offset kafka_server_replicamanager_leadercount
kafka_server_replicamanager_partitioncount kafka_server_replicamanager_underreplicatedpartitions
kafka_server_socket_server_metrics_connection_count process_open_fds
"""
"""What strimzi-kafka.json and strimzi-kraft.json ask of a Kafka. Not there: idle shares of threads, disk bytes of the host, replicascount,
averages and rates of raft-metrics, raft-channel-metrics; the rest is of a JVM and of Kubernetes."""
ASKED_OF_KAFKA_EXPORTER = """
kafka_consumergroup_current_offset kafka_consumergroup_lag kafka_topic_partition_current_offset kafka_topic_partition_oldest_offset
"""
"""What strimzi-kafka-exporter.json asks. Not there: replicas and leaders of single partitions, which we do not report."""


def names(page: bytes) -> set[str]:
    return {sample.name for family in text_string_to_metric_families(page.decode()) for sample in family.samples}


def sources() -> NodeSources:
    """A node with everything that a view names."""
    network = NetworkStats()
    for key in (ApiKey.PRODUCE, ApiKey.FETCH):
        network.requests[key << 16 | 12] = 2
        network.errors[key, ErrorCode.UNKNOWN_TOPIC_ID] = 1
    return make_sources(network=network, loader=MetadataLoader(), **stand_ins())


def metric(name: str, *samples: tuple[dict[str, str], float]) -> Metric:
    found = Metric(name, "doc", "gauge")
    for labels, value in samples:
        found.add_sample(name, labels, value)
    return found


def test_a_series_is_chosen_renamed_and_added_up() -> None:
    ours = metric(
        "barnabas_x",
        ({"topic": "a", "direction": "in", "version": "1"}, 3),
        ({"topic": "a", "direction": "in", "version": "2"}, 4),
        ({"topic": "b", "direction": "in", "version": "1"}, 5),
        ({"topic": "a", "direction": "out", "version": "1"}, 100),
    )
    renames = [
        Rename("x", "kafka_x_total", {"direction": "in"}, {"topic": "t"}),
        Rename("x", "kafka_all"),
        Rename("y", "kafka_y"),
    ]
    first, second = renamed([ours], renames)
    assert [(sample.name, sample.labels, sample.value) for sample in first.samples] == [
        ("kafka_x_total", {"t": "a"}, 7),
        ("kafka_x_total", {"t": "b"}, 5),
    ]
    assert (first.type, second.type) == ("counter", "gauge")
    assert [sample.value for sample in second.samples] == [112]


@pytest.mark.parametrize(
    ("view", "asked"), [("strimzi", ASKED_OF_STRIMZI), ("kafka_exporter", ASKED_OF_KAFKA_EXPORTER)]
)
def test_what_published_dashboards_ask_is_there(view: str, asked: str) -> None:
    page, _ = render(sources(), view)
    assert set(asked.split()) <= names(page)
    assert not [name for name in names(page) if name.startswith("barnabas_")]


def test_every_rename_has_a_series_of_ours() -> None:
    """A name of ours that is mistyped would never be seen."""
    own = {name.removeprefix("barnabas_") for name in names(render(sources())[0])}
    assert {rename.ours for rename in (*STRIMZI, *KAFKA_EXPORTER)} <= own
    assert tuple(VIEWS) == COMPAT_VIEWS
    for view in VIEWS.values():
        theirs = [rename.theirs for rename in view]
        assert len(theirs) == len(set(theirs))


def test_a_value_is_ours() -> None:
    node = sources()

    def values(view: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        families = text_string_to_metric_families(render(node, view)[0].decode())
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        }

    bytes_in = {
        labels: value
        for labels, value in values("", "barnabas_topic_bytes_total").items()
        if ("direction", "in") in labels
    }
    assert bytes_in
    assert values("strimzi", "kafka_server_brokertopicmetrics_bytesin_total") == {
        tuple(pair for pair in labels if pair[0] == "topic"): value for labels, value in bytes_in.items()
    }
    lags = values("", "barnabas_group_lag_records")
    renames = {"group": "consumergroup"}
    assert values("kafka_exporter", "kafka_consumergroup_lag") == {
        tuple(sorted((renames.get(key, key), text) for key, text in labels)): value for labels, value in lags.items()
    }
