"""Share groups in the partitions that this broker leads: what is in flight there, and what became of it.

May touch:  what NodeSources holds, to read.   Must not touch: anything it reads, the event loops.
Invariants: no series per share partition: there may be as many as groups times partitions; counters are read, no window is walked over.
Read next:  share_state.py, where their state is kept; barnabas_coordination/share/leader.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from barnabas_broker.metrics.families import copied, counter, gauge
from barnabas_broker.metrics.sources import NodeSources
from barnabas_coordination.share_state.messages import DeliveryState


def share_families(sources: NodeSources) -> Iterator[Metric]:
    """Sessions, share partitions and their records, dead letters, due times."""
    shares, letters, due_times = sources.shares, sources.dead_letters, sources.due_times
    if shares is None or letters is None or due_times is None:
        return
    cores = copied(shares.cores)
    yield gauge(
        "share_sessions", "Share sessions: one for each member that fetches here.", [({}, len(shares.sessions))]
    )
    yield gauge(
        "share_partitions",
        "Share partitions loaded here, and those of them where nothing new is delivered: the window is full, or as many records wait "
        "for their time as may.",
        [
            ({"state": "loaded"}, len(cores)),
            ({"state": "full"}, sum(core.is_full for core in cores)),
            ({"state": "bound_by_delayed"}, sum(core.is_bound_by_delayed for core in cores)),
        ],
    )
    totals = {
        "acquired": sum(core.window.counts[DeliveryState.ACQUIRED] for core in cores),
        "available": sum(core.window.counts[DeliveryState.AVAILABLE] - core.window.delayed for core in cores),
        "delayed": sum(core.window.delayed for core in cores),
        "archiving": sum(core.window.counts[DeliveryState.ARCHIVING] for core in cores),
    }
    yield gauge(
        "share_records",
        "Records in flight in share groups, by what they wait for: a member, the next fetch, their time, their dead letter.",
        [({"state": state}, count) for state, count in totals.items()],
    )
    stats = shares.stats
    yield counter("share_records_acquired", "Records that members acquired.", [({}, stats.acquired_records)])
    yield counter(
        "share_acknowledgements",
        "Ranges of offsets that members acknowledged, and requests about a partition that were refused.",
        [({"result": "taken"}, stats.acknowledgements), ({"result": "refused"}, stats.refused_acknowledgements)],
    )
    yield counter(
        "share_writes",
        "Changes that were sent to share coordinators, each with all that had changed in a share partition.",
        [({"result": "done"}, stats.writes - stats.failed_writes), ({"result": "failed"}, stats.failed_writes)],
    )
    yield counter(
        "share_loads",
        "Share partitions loaded.",
        [({"result": "done"}, stats.loads - stats.failed_loads), ({"result": "failed"}, stats.failed_loads)],
    )
    yield counter("share_fetches_parked", "Share fetches that waited for records.", [({}, stats.fetches_parked)])
    yield counter(
        "share_dead_letters",
        "Dead letters by what became of them: those that failed are held, or given up, as the group says; uncertain ones may be there "
        "twice; those without a copy are of groups that ask for one.",
        [
            ({"result": "written"}, letters.stats.written),
            ({"result": "failed"}, letters.stats.failed),
            ({"result": "held"}, stats.failed_letters),
            ({"result": "uncertain"}, letters.stats.uncertain),
            ({"result": "without_copy"}, letters.stats.without_copy),
        ],
    )
    yield counter(
        "share_dead_letter_topics_created", "Topics made for dead letters.", [({}, letters.stats.topics_created)]
    )
    looked = due_times.stats
    yield counter(
        "share_due_times_opened_bytes",
        "Bytes of batches that were opened to see when their records are due.",
        [({}, looked.opened_bytes)],
    )
    yield counter(
        "share_due_times_records",
        "Records that were looked at for a time, those that have to wait for it, and those whose time cannot be read.",
        [
            ({"result": "walked"}, looked.walked_records),
            ({"result": "waiting"}, looked.waiting),
            ({"result": "unreadable"}, looked.unreadable),
        ],
    )
    yield counter(
        "share_due_times_unopened_batches",
        "Batches that cannot be opened, so that their records are due at once.",
        [({}, looked.unopened_batches)],
    )
