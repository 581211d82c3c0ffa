"""Our metrics under the names that published dashboards know: /metrics?compat=strimzi, /metrics?compat=kafka_exporter.

May touch:  prometheus_client's families, as they were read.   Must not touch: a room, a clock.
Invariants: pure renames: a value is ours, or the sum of ours where the other name counts what we count by a label; what we do not measure
            the same way (idle shares of threads, averages, maxima) has no name here.
Read next:  exporter.py, which reads the families; docs/operations.md, "Metrics".

Sources of the names: Strimzi's JMX rules (kafka.server<type=…, name=…PerSec>Count becomes kafka_server_…_total, lower case) over the
MBeans of Kafka's docs/ops.html; kafka_exporter's README.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class Rename:
    """One of our series, by its name in the exposition without barnabas_, as theirs."""

    ours: str
    theirs: str
    where: Mapping[str, str] = field(default_factory=dict)
    """Only series with these labels, which go."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Ours -> theirs, of the labels that stay. Series that become alike are added up."""


TOPIC = {"topic": "topic"}
PARTITION = {"topic": "topic", "partition": "partition"}
GROUP = {"group": "consumergroup", **PARTITION}
_TOPIC_METRICS = "kafka_server_brokertopicmetrics_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_REPLICAS = "kafka_server_replicamanager_"
_RAFT = "kafka_server_raftmetrics_"

STRIMZI = (
    Rename("topic_bytes_total", f"{_TOPIC_METRICS}bytesin_total", {"direction": "in"}, TOPIC),
    Rename("topic_bytes_total", f"{_TOPIC_METRICS}bytesout_total", {"direction": "out"}, TOPIC),
    Rename("topic_records_in_total", f"{_TOPIC_METRICS}messagesin_total", labels=TOPIC),
    Rename("requests_total", f"{_TOPIC_METRICS}totalproducerequests_total", {"api": "Produce"}),
    Rename("requests_total", f"{_TOPIC_METRICS}totalfetchrequests_total", {"api": "Fetch"}),
    Rename("request_errors_total", f"{_TOPIC_METRICS}failedproducerequests_total", {"api": "Produce"}),
    Rename("request_errors_total", f"{_TOPIC_METRICS}failedfetchrequests_total", {"api": "Fetch"}),
    Rename("replica_partitions", f"{_REPLICAS}leadercount", {"role": "leader"}),
    Rename("replica_partitions", f"{_REPLICAS}partitioncount"),
    Rename("replica_under_replicated", f"{_REPLICAS}underreplicatedpartitions"),
    Rename("replica_under_min_isr", f"{_REPLICAS}underminisrpartitioncount"),
    Rename("replica_at_min_isr", f"{_REPLICAS}atminisrpartitioncount"),
    Rename("replica_under_min_isr", "kafka_cluster_partition_underminisr"),
    Rename("replica_at_min_isr", "kafka_cluster_partition_atminisr"),
    Rename("replica_offline", f"{_REPLICAS}offlinereplicacount"),
    Rename("replica_reassigning", f"{_REPLICAS}reassigningpartitions"),
    Rename("producer_ids", f"{_REPLICAS}produceridcount"),
    Rename("replica_isr_changes_total", f"{_REPLICAS}isrshrinks_total", {"kind": "shrink"}),
    Rename("replica_isr_changes_total", f"{_REPLICAS}isrexpands_total", {"kind": "expand"}),
    Rename("replica_isr_changes_total", f"{_REPLICAS}failedisrupdates_total", {"kind": "failed"}),
    Rename("controller_active", f"{_CONTROLLER}activecontrollercount"),
    Rename("controller_brokers", f"{_CONTROLLER}activebrokercount", {"state": "active"}),
    Rename("controller_brokers", f"{_CONTROLLER}fencedbrokercount", {"state": "fenced"}),
    Rename("controller_topics", f"{_CONTROLLER}globaltopiccount"),
    Rename("controller_partitions", f"{_CONTROLLER}globalpartitioncount"),
    Rename("controller_offline_partitions", f"{_CONTROLLER}offlinepartitionscount"),
    Rename("controller_not_preferred_leader_partitions", f"{_CONTROLLER}preferredreplicaimbalancecount"),
    Rename("controller_metadata_errors_total", f"{_CONTROLLER}metadataerrorcount"),
    Rename("controller_heartbeat_timeouts_total", f"{_CONTROLLER}timedoutbrokerheartbeatcount"),
    Rename(
        "controller_leader_elections_total",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        {"type": "unclean"},
    ),
    Rename("connections", "kafka_server_socket_server_metrics_connection_count"),
    Rename("log_dirs", "kafka_log_logmanager_offlinelogdirectorycount", {"state": "offline"}),
    Rename("log_size_bytes", "kafka_log_log_size", labels=PARTITION),
    Rename("log_segments", "kafka_log_log_numlogsegments", labels=PARTITION),
    Rename("log_start_offset", "kafka_log_log_logstartoffset", labels=PARTITION),
    Rename("log_end_offset", "kafka_log_log_logendoffset", labels=PARTITION),
    Rename("raft_state_info", f"{_RAFT}current_state", labels={"state": "current_state"}),
    Rename("raft_leader_id", f"{_RAFT}current_leader"),
    Rename("raft_voted_id", f"{_RAFT}current_vote"),
    Rename("raft_epoch", f"{_RAFT}current_epoch"),
    Rename("raft_high_watermark", f"{_RAFT}high_watermark"),
    Rename("raft_log_end_offset", f"{_RAFT}log_end_offset"),
    Rename("raft_voters", f"{_RAFT}number_of_voters"),
    Rename("raft_observers", f"{_RAFT}number_of_observers"),
    Rename("metadata_applied_offset", "kafka_server_brokermetadatametrics_last_applied_record_offset"),
    Rename("metadata_apply_errors_total", "kafka_server_brokermetadatametrics_metadata_apply_error_count"),
)
KAFKA_EXPORTER = (
    Rename("controller_brokers", "kafka_brokers", {"state": "active"}),
    Rename("log_high_watermark", "kafka_topic_partition_current_offset", labels=PARTITION),
    Rename("log_start_offset", "kafka_topic_partition_oldest_offset", labels=PARTITION),
    Rename("group_committed_offset", "kafka_consumergroup_current_offset", labels=GROUP),
    Rename("group_lag_records", "kafka_consumergroup_lag", labels=GROUP),
    Rename(
        "group_committed_offset",
        "kafka_consumergroup_current_offset_sum",
        labels={"group": "consumergroup", "topic": "topic"},
    ),
    Rename("group_lag_records", "kafka_consumergroup_lag_sum", labels={"group": "consumergroup", "topic": "topic"}),
    Rename("group_members", "kafka_consumergroup_members", labels={"group": "consumergroup"}),
)
VIEWS: Mapping[str, tuple[Rename, ...]] = {"strimzi": STRIMZI, "kafka_exporter": KAFKA_EXPORTER}
"""By the value of ?compat=."""
_PREFIX = "barnabas_"


def renamed(families: Iterable[Metric], renames: Iterable[Rename]) -> Iterator[Metric]:
    """The families that a view has, in its order; what this node does not report is left out."""
    samples: dict[str, tuple[str, list[tuple[Mapping[str, str], float]]]] = {}
    for family in families:
        for sample in family.samples:
            name = sample.name.removeprefix(_PREFIX)
            samples.setdefault(name, (family.documentation, []))[1].append((sample.labels, sample.value))
    for rename in renames:
        doc, found = samples.get(rename.ours, ("", []))
        sums: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, value in found:
            if all(labels.get(name) == wanted for name, wanted in rename.where.items()):
                kept = tuple((theirs, labels[ours]) for ours, theirs in rename.labels.items())
                sums[kept] = sums.get(kept, 0.0) + value
        if sums:
            # The exposition adds _total to a counter's name by itself.
            is_counter = rename.theirs.endswith("_total")
            metric = Metric(rename.theirs.removesuffix("_total"), doc, "counter" if is_counter else "gauge")
            for kept, value in sums.items():
                metric.add_sample(rename.theirs, dict(kept), value)
            yield metric
