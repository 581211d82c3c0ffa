"""Rules that keep our metrics under published names: which names there are, that each is of a series of ours, and what they count."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from barnabas_admin.generating.templates import template
from barnabas_broker.metrics.exporter import render
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
kafka_server_socket_server_metrics_connection_count
"""
"""What strimzi-kafka.json and strimzi-kraft.json ask of a Kafka beside process_open_fds, which is ours too.
Not there: idle shares of threads, disk bytes of the host, replicascount, averages and rates of
raft-metrics, raft-channel-metrics; the rest is of a JVM and of Kubernetes."""
ASKED_OF_KAFKA_EXPORTER = """
kafka_consumergroup_current_offset kafka_consumergroup_lag kafka_topic_partition_current_offset kafka_topic_partition_oldest_offset
"""
"""What strimzi-kafka-exporter.json asks. Not there: replicas and leaders of single partitions, which we do not report."""


FILES = {"strimzi": ASKED_OF_STRIMZI, "kafka_exporter": ASKED_OF_KAFKA_EXPORTER}


def rules(name: str) -> dict[str, str]:
    """Expressions by name; no name is there twice."""
    (group,) = yaml.safe_load(template(f"{name}.yml"))["groups"]
    found = {rule["record"]: rule["expr"] for rule in group["rules"]}
    assert len(found) == len(group["rules"])
    return found


@pytest.mark.parametrize("name", FILES)
def test_what_published_dashboards_ask_is_there_and_ours(name: str) -> None:
    """A name of ours that is mistyped, or a label or a value of it, would never be seen."""
    network = NetworkStats()
    for key in (ApiKey.PRODUCE, ApiKey.FETCH):
        network.requests[key << 16 | 12] = 2
        network.errors[key, ErrorCode.UNKNOWN_TOPIC_ID] = 1
    page, _ = render(make_sources(network=network, loader=MetadataLoader(), **stand_ins()))
    ours = [sample for family in text_string_to_metric_families(page.decode()) for sample in family.samples]
    assert set(FILES[name].split()) <= set(rules(name))
    for expression in rules(name).values():
        ((metric, matchers),) = re.findall(r"(barnabas_\w+)(?:{(.*?)})?", expression)
        labels = [sample.labels for sample in ours if sample.name == metric]
        assert labels, metric
        wanted = dict(re.findall(r'(\w+)="(.*?)"', matchers))
        assert all(set(wanted) <= set(each) for each in labels), expression
        by = set(expression.removeprefix("sum by (").split(")")[0].split(", ")) - {"job", "instance", "cluster", "node"}
        replaced = dict(re.findall(r'"(\w+)", "\$1", "(\w+)"', expression))
        assert all({replaced.get(label, label) for label in by} <= set(each) for each in labels), expression


CASES: dict[str, tuple[dict[str, int], str, dict[str, int]]] = {
    "strimzi": (
        {
            'barnabas_topic_bytes_total{node="1", topic="a", direction="in", version="1"}': 3,
            'barnabas_topic_bytes_total{node="1", topic="a", direction="in", version="2"}': 4,
            'barnabas_topic_bytes_total{node="1", topic="b", direction="in"}': 5,
            'barnabas_topic_bytes_total{node="1", topic="a", direction="out"}': 100,
        },
        "kafka_server_brokertopicmetrics_bytesin_total",
        {'{node="1", topic="a"}': 7, '{node="1", topic="b"}': 5},
    ),
    "kafka_exporter": (
        {'barnabas_group_lag_records{node="1", group="g", topic="a", partition="0"}': 9},
        "kafka_consumergroup_lag",
        {'{node="1", consumergroup="g", topic="a", partition="0"}': 9},
    ),
}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool of the Debian package prometheus")
@pytest.mark.parametrize("name", FILES)
def test_prometheus_takes_the_rules_and_counts_what_is_ours(name: str, tmp_path: Path) -> None:
    series, asked, wanted = CASES[name]
    (tmp_path / f"{name}.yml").write_text(template(f"{name}.yml"))
    case: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": key, "values": str(value)} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": asked,
                "eval_time": "0m",
                "exp_samples": [{"labels": asked + labels, "value": value} for labels, value in wanted.items()],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [f"{name}.yml"], "tests": [case]}))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
