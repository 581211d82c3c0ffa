"""The controller of this node, the cluster as it sees it, and what this node asks of the active one.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: the cluster's numbers come from the active controller alone, so that sums are right.
Read next:  census.py; barnabas_quorum/driver/controller_driver.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.census import LEADERLESS, NOT_PREFERRED, take_census
from barnabas_broker.metrics.families import counter, gauge, histogram
from barnabas_broker.metrics.sources import NodeSources
from barnabas_quorum.controller.partition_change import ElectedFrom
from barnabas_quorum.records import ReplicaFault

STATES = ("active", "fenced", "shutdown")
"""The states of brokers that are counted."""


def controller_families(sources: NodeSources) -> Iterator[Metric]:
    """The cluster's state; all but the first from the active controller only, so that sums are right."""
    if "controller" not in sources.roles:
        return
    is_active = sources.quorum.describe().leader_id == sources.node_id
    yield gauge("controller_active", "1 on the active controller.", [({}, int(is_active))])
    if sources.controller is not None:
        stats = sources.controller.stats
        yield counter("controller_decisions", "Requests decided.", [({}, stats.decisions)])
        yield counter("controller_refusals", "Requests refused.", [({}, stats.refusals)])
        yield counter(
            "controller_metadata_errors",
            "Requests refused because deciding them failed or the records did not fit the metadata: a bug each; the controller's "
            "log has the traceback.",
            [({}, stats.failed_decisions)],
        )
        yield counter("controller_records_proposed", "Metadata records proposed.", [({}, stats.records_proposed)])
        yield counter("controller_heartbeats", "Broker heartbeats taken in.", [({}, stats.heartbeats)])
        yield counter(
            "controller_heartbeat_timeouts",
            "Brokers fenced because their heartbeats ended: after a silence, or sooner when a probe found their listener closed.",
            [
                ({"by": "probe"}, stats.fenced_by_probe),
                ({"by": "silence"}, stats.brokers_fenced - stats.fenced_by_probe),
            ],
        )
        yield counter(
            "controller_leader_elections",
            "Leaders that this controller gave to partitions: handed back to the preferred replica, taken from the in-sync or "
            "eligible ones when there was none, or from others (records may be lost).",
            [({"type": kind.value}, stats.leader_elections[kind]) for kind in ElectedFrom],
        )
        yield counter(
            "controller_activations", "Times this node became the active controller.", [({}, stats.times_active)]
        )
        yield histogram(
            "controller_event_queue_seconds",
            "Requests to this controller: deciding and proposing one (process), and then its waiting for the commit (wait).",
            [({"phase": "wait"}, stats.wait_s), ({"phase": "process"}, stats.process_s)],
        )
        yield gauge("controller_event_queue_size", "Answers that wait for a commit.", [({}, stats.waiters)])
    if not is_active:
        return
    image = sources.image()
    states = [
        (broker.host, "fenced" if broker.is_fenced else "shutdown" if broker.is_in_controlled_shutdown else "active")
        for broker in image.cluster.sorted_brokers()
    ]
    of_all = Counter(state for _, state in states)
    yield gauge("controller_brokers", "Registered brokers.", [({"state": state}, of_all[state]) for state in STATES])
    of_host = Counter(states)
    yield gauge(
        "controller_host_brokers",
        "Registered brokers of each host that brokers name (broker.host).",
        [
            ({"host": host, "state": state}, of_host[host, state])
            for host in sorted({host for host, _ in states if host is not None})
            for state in STATES
        ],
    )
    census = take_census(image, static_min_isr=sources.static_min_isr)
    yield gauge("controller_topics", "Topics.", [({}, census.topics)])
    yield gauge("controller_partitions", "Partitions.", [({}, census.partitions)])
    yield gauge("controller_offline_partitions", "Partitions without a leader.", [({}, census.flags[LEADERLESS])])
    yield gauge(
        "controller_not_preferred_leader_partitions",
        "Partitions led by another than their first replica.",
        [({}, census.flags[NOT_PREFERRED])],
    )
    yield gauge(
        "controller_faulty_replicas",
        "Replicas that their brokers reported faulty.",
        [({"fault": fault.name.lower()}, census.faulty[fault]) for fault in ReplicaFault],
    )


def broker_control_families(sources: NodeSources) -> Iterator[Metric]:
    """What this node asks of the active controller, and a broker's conversation with it."""
    asked = sources.controller_client
    yield counter("active_controller_requests", "Requests to the active controller.", [({}, asked.requests)])
    yield counter(
        "active_controller_retries",
        "Tries of them that were repeated: a controller led no more, or did not answer.",
        [({}, asked.retries)],
    )
    yield counter("active_controller_timeouts", "Requests that no controller answered in time.", [({}, asked.timeouts)])
    if sources.clock is not None:
        yield gauge(
            "broker_clock_skew_seconds",
            "How far this broker's clock is ahead of the median of the voters'; 0 where that is not known.",
            [({}, sources.clock.skew_s)],
        )
        yield gauge(
            "broker_clock_is_trusted",
            "0 while nothing is deleted, expired or compacted here because it is old: this broker's clock is off, or not confirmed.",
            [({}, int(sources.clock.may_judge_age()))],
        )
    lifecycle = sources.lifecycle
    if lifecycle is None:
        return
    yield counter("broker_registrations", "Registrations of this broker.", [({}, lifecycle.registrations)])
    yield counter(
        "broker_heartbeats",
        "Heartbeats of this broker: sent, and withheld because its data lane was stuck.",
        [({"result": "sent"}, lifecycle.heartbeats_sent), ({"result": "held_back"}, lifecycle.heartbeats_held_back)],
    )
    yield counter("broker_heartbeat_streams", "Heartbeat streams that were opened.", [({}, lifecycle.streams_opened)])
