"""What the admin service reports of the cluster's health, as one sentence and its reasons in words.

May touch:  its arguments.            Must not touch: everything else.
Invariants: each reason of the service has words and a place that says more; one without words is shown by its name.
Read next:  pages.py.
"""

from __future__ import annotations

from typing import Any

WORDS: dict[str, tuple[str, str]] = {
    "recovered_twice": ("the quorum was recovered twice, from different survivors", "/explain?subject=leader"),
    "no_controller": ("no controller is active: nothing can change", "/explain?subject=leader"),
    "voter_down": ("a voter of the quorum does not answer", "/quorum"),
    "quorum_no_tolerance": ("the loss of one more voter stops the quorum", "/quorum"),
    "no_broker": ("no broker is in service", "/brokers"),
    "broker_down": ("a broker is out of service", "/brokers"),
    "leaderless": ("partitions have no leader and cannot be written or read", "/topics?state=leaderless"),
    "under_min_isr": ("partitions lack the in-sync replicas that acks=all needs", "/topics?state=under-replicated"),
    "under_replicated": ("partitions lack in-sync replicas", "/topics?state=under-replicated"),
    "corrupt": ("a replica is damaged and being repaired", "/topics?state=under-replicated"),
    "no_room": ("a replica's disk is full", "/brokers"),
    "records_lost": (
        "a replica has lost records and leads nothing until it is refilled",
        "/topics?state=under-replicated",
    ),
}
"""Reason of DescribeHealth -> its words, and the page that says more."""


def verdict(found: Any) -> dict[str, Any]:
    """The health of a DescribeHealthResponse as a page shows it."""
    reasons = [
        {"reason": reason, "words": words, "more": more}
        for reason in found.reasons
        for words, more in [WORDS.get(reason, (reason.replace("_", " "), "/"))]
    ]
    if found.is_healthy:
        brokers = len(found.brokers)
        sentence = (
            f"Everything is well: {brokers} broker{'s' if brokers != 1 else ''} in service, "
            f"each of {found.partitions:,} partitions is led and in sync."
        )
    else:
        sentence = f"Not well: {'; '.join(each['words'] for each in reasons) or 'the cluster does not say why'}."
    return {
        "healthy": found.is_healthy,
        "sentence": sentence,
        "reasons": reasons,
        "controller_id": found.controller_id if found.controller_id >= 0 else None,
        "controller_epoch": found.controller_epoch,
        "voters": list(found.voters),
        "voters_down": list(found.voters_down),
        "brokers": list(found.brokers),
        "brokers_fenced": list(found.brokers_fenced),
        "partitions": found.partitions,
        "leaderless": found.leaderless,
        "under_min_isr": found.under_min_isr,
        "under_replicated": found.under_replicated,
        "not_preferred_leader": found.not_preferred_leader,
    }
